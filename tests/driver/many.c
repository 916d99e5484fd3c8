/* What driver.h promises of many copies in one step. */
#include "driver/contract.h"

/* More than the cuda driver gives to CUDA in one call, of different lengths, some of them empty. */
enum { COPIES = 1500, STRIDE = 96, BATCHES = 3, SINGLY = 64, REFUSED = 1, UNSUPPORTED = 801, BROKEN = 999 };

typedef struct many {
    unsigned char from[COPIES * STRIDE], back[COPIES * STRIDE];
    weir_driver_copy in[COPIES], out[COPIES];
    char *there;
    mapped_range range;
} many;

static size_t many_length(size_t i)
{
    return i % 7 == 0 ? 0 : i % STRIDE;
}

/* Page-locked where there is such memory: copies of other memory may hold up the caller. */
static weir_kind many_kind(void)
{
    return device_kind_now == ON_HOST ? WEIR_KIND_HOST : WEIR_KIND_PINNED;
}

static many *many_make(void)
{
    void *memory = NULL;
    ok(D(allocate(device, many_kind(), sizeof(many), &memory)));
    many *m = memset(memory, 0, sizeof(many));
    size_t granules = (sizeof m->from + granule - 1) / granule;
    assert_true(granules <= 16);
    make_range(&m->range, granules, granules);
    fill_granules(m->range.address, granules, 3);
    m->there = m->range.address;
    for (size_t i = 0; i < sizeof m->from; i++)
        m->from[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t i = 0; i < COPIES; i++) {
        size_t at = i * STRIDE, other = (COPIES - 1 - i) * STRIDE;
        m->in[i] = (weir_driver_copy){m->there + other, m->from + at, many_length(i)};
        m->out[i] = (weir_driver_copy){m->back + at, m->there + other, many_length(i)};
    }
    return m;
}

static void many_drop(many *m)
{
    drop_range(&m->range);
    ok(D(release(device, many_kind(), m, sizeof *m)));
}

/* The first `count` came back, and nothing else did. */
static void many_is_there(const many *m, size_t count)
{
    for (size_t i = 0; i < COPIES; i++)
        for (size_t k = 0; k < STRIDE; k++) {
            bool copied = i < count && k < many_length(i);
            if (m->back[i * STRIDE + k] != (copied ? m->from[i * STRIDE + k] : 0))
                fail_msg("byte %zu of copy %zu is not what it was to be", k, i);
        }
}

static uint64_t many_calls(const char *function)
{
    return device_kind_now == ON_STUB ? control.stub_count(function) : 0;
}

static void test_many_at_once(void **state)
{
    (void)state;
    many *m = many_make();
    ok(D(copy_many(device, m->in, 0, NULL)));
    ok(D(copy_many(device, m->in, COPIES, NULL)));
    ok(D(copy_many(device, m->out, COPIES, NULL)));
    many_is_there(m, COPIES);
    many_drop(m);
}

/* The list is the caller's again at the return, while the copies wait for what was queued before them. */
static void test_many_on_a_stream(void **state)
{
    (void)state;
    many *m = many_make();
    void *stream = new_stream();
    gate g = {0};
    wi_event behind = {0};
    ok(D(call(device, hold, &g, stream)));
    ok(D(copy_many(device, m->in, COPIES, stream)));
    ok(D(copy_many(device, m->out, COPIES, stream)));
    ok(D(record(device, stream, &behind)));
    memset(m->in, 0, sizeof m->in);
    memset(m->out, 0, sizeof m->out);
    while (!atomic_load(&g.entered))
        nap(100);
    many_is_there(m, 0);
    assert_false(driver->passed(device, behind));
    atomic_store(&g.open, true);
    ok(D(wait(device, behind, UINT64_MAX)));
    many_is_there(m, COPIES);
    V(stream_destroy(device, stream));
    many_drop(m);
}

static void test_cuda_gets_batches(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_STUB);
    many *m = many_make();
    uint64_t singly = many_calls("cuMemcpyAsync"), batches = many_calls("cuMemcpyBatchAsync");
    ok(D(copy_many(device, m->in, COPIES, NULL)));
    assert_int_equal(many_calls("cuMemcpyBatchAsync") - batches, BATCHES);
    ok(D(copy_many(device, m->out, COPIES, NULL)));
    assert_int_equal(many_calls("cuMemcpyAsync") - singly, 0);
    many_is_there(m, COPIES);
    ok(D(copy_many(device, m->in, 1, NULL))); /* one needs no batch */
    assert_int_equal(many_calls("cuMemcpyAsync") - singly, 1);
    assert_int_equal(many_calls("cuMemcpyBatchAsync") - batches, 2 * BATCHES);
    many_drop(m);
}

static void test_default_streams_get_single_copies(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_STUB);
    static const weir_default_stream which[] = {WEIR_DEFAULT_STREAM_LEGACY, WEIR_DEFAULT_STREAM_PER_THREAD};
    uint64_t batches = many_calls("cuMemcpyBatchAsync");
    for (int i = 0; i < 2; i++) {
        many *m = many_make();
        void *stream = NULL;
        ok(D(stream_default(device, which[i], &stream)));
        ok(D(copy_many(device, m->in, SINGLY, stream)));
        ok(D(copy_many(device, m->out, SINGLY, stream)));
        ok(D(stream_synchronize(device, stream)));
        many_is_there(m, SINGLY);
        V(stream_destroy(device, stream));
        many_drop(m);
    }
    assert_int_equal(many_calls("cuMemcpyBatchAsync"), batches);
}

/* A driver that has the function and refuses it, for all or for the second batch, gets the copies singly. */
static void test_refused_batches_are_copied_singly(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_STUB);
    for (int nth = 1; nth <= BATCHES; nth++) {
        many *m = many_make();
        control.stub_fail("cuMemcpyBatchAsync", nth, nth % 2 ? REFUSED : UNSUPPORTED);
        ok(D(copy_many(device, m->in, COPIES, NULL)));
        control.stub_fail("cuMemcpyBatchAsync", nth, nth % 2 ? UNSUPPORTED : REFUSED);
        ok(D(copy_many(device, m->out, COPIES, NULL)));
        many_is_there(m, COPIES);
        many_drop(m);
    }
}

static void test_failures_are_told(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_STUB);
    many *m = many_make();
    for (int nth = 1; nth <= BATCHES; nth++) {
        control.stub_fail("cuMemcpyBatchAsync", nth, BROKEN);
        fails(D(copy_many(device, m->in, COPIES, NULL)), WEIR_ERR_DRIVER);
        assert_non_null(strstr(weir_detail(), "cuMemcpyBatchAsync"));
    }
    control.stub_fail("cuMemcpyBatchAsync", 1, REFUSED);
    control.stub_fail("cuMemcpyAsync", SINGLY, BROKEN);
    fails(D(copy_many(device, m->in, COPIES, NULL)), WEIR_ERR_DRIVER);
    control.stub_fail("cuMemcpyBatchAsync", 0, 0);
    control.stub_fail("cuMemcpyAsync", 0, 0);
    ok(D(copy_many(device, m->in, COPIES, NULL)));
    ok(D(copy_many(device, m->out, COPIES, NULL)));
    many_is_there(m, COPIES);
    many_drop(m);
}

/* A driver without the function gets `copy` for each. */
static void test_copied_singly_without_it(void **state)
{
    (void)state;
    many *m = many_make();
    wi_driver plain = *driver;
    plain.copy_many = NULL;
    ok(wi_driver_copy_many(&plain, device, m->in, COPIES, NULL));
    ok(wi_driver_copy_many(driver, device, m->out, COPIES, NULL));
    many_is_there(m, COPIES);
    ok(wi_driver_copy_many(driver, device, NULL, 0, NULL));
    many_drop(m);
}

int run_many_tests(void)
{
    const struct CMUnitTest many_tests[] = {
        cmocka_unit_test_setup_teardown(test_many_at_once, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_many_on_a_stream, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_cuda_gets_batches, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_default_streams_get_single_copies, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_refused_batches_are_copied_singly, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_failures_are_told, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_copied_singly_without_it, open_device, close_device),
    };
    return cmocka_run_group_tests(many_tests, NULL, NULL);
}
