/* The host driver by itself: memory that moves, streams that are threads. */
#include "core.h"

#include "driver/driver.h"

static const wi_driver *const d = &wi_host_driver;

static wi_device *open_device(void)
{
    wi_device *device;
    ok(d->open(0, &device));
    assert_int_equal(d->granule(device), GRANULE);
    return device;
}

static void ranges_are_aligned_and_closed(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *ranges[3];
    for (int i = 0; i < 3; i++) {
        ok(d->reserve(device, (uint64_t)(i + 1) * GRANULE, &ranges[i]));
        assert_int_equal((uintptr_t)ranges[i] % (2 * MIB), 0);
    }
    for (int i = 0; i < 3; i++)
        d->unreserve(device, ranges[i], (uint64_t)(i + 1) * GRANULE);
    void *none = NULL;
    fails(WEIR_ERR_OUT_OF_MEMORY, d->reserve(device, (uint64_t)1 << 60, &none));
    uint64_t available, total;
    ok(d->memory(device, &available, &total));
    assert_true(available > 0 && available <= total);
    d->close(device);
}

static void contents_move(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    wi_device *device = open_device();
    void *range;
    wi_handle handles[COUNT], back[COUNT];
    ok(d->reserve(device, 64 * GRANULE, &range));
    char *base = range;
    ok(d->create(device, GRANULE, COUNT, handles));
    ok(d->map(device, base, GRANULE, COUNT, handles));
    for (size_t i = 0; i < COUNT * GRANULE; i++)
        assert_int_equal(base[i], 0); /* fresh memory is zero */
    for (int i = 0; i < COUNT; i++)
        memset(base + (size_t)i * GRANULE, 'a' + i, GRANULE);
    ok(d->unmap(device, base, GRANULE, COUNT, handles));
    for (int i = 0; i < COUNT; i++)
        back[i] = handles[COUNT - 1 - i];
    ok(d->map(device, base + 20 * GRANULE, GRANULE, COUNT, back)); /* elsewhere, in another order */
    for (int i = 0; i < COUNT; i++) {
        const char *at = base + (size_t)(20 + i) * GRANULE;
        for (size_t k = 0; k < GRANULE; k += 4095)
            assert_int_equal(at[k], 'a' + COUNT - 1 - i);
    }
    ok(d->unmap(device, base + 22 * GRANULE, GRANULE, 3, back + 2)); /* some of them */
    for (size_t k = 0; k < GRANULE; k += 4095)
        assert_int_equal(base[21 * GRANULE + k], 'a' + COUNT - 2);
    ok(d->map(device, base, GRANULE, 3, back + 2));
    assert_int_equal(base[0], 'a' + COUNT - 3);
    assert_int_equal(base[2 * GRANULE], 'a' + COUNT - 5);
    ok(d->unmap(device, base, GRANULE, 3, back + 2));
    ok(d->unmap(device, base + 20 * GRANULE, GRANULE, 2, back));
    ok(d->unmap(device, base + 25 * GRANULE, GRANULE, 3, back + 5));
    d->destroy(device, GRANULE, COUNT, back);
    ok(d->create(device, GRANULE, 2, handles)); /* and what is created then is fresh again */
    ok(d->map(device, base, GRANULE, 2, handles));
    assert_int_equal(base[0] | base[2 * GRANULE - 1], 0);
    ok(d->unmap(device, base, GRANULE, 2, handles));
    d->destroy(device, GRANULE, 2, handles);
    d->unreserve(device, range, 64 * GRANULE);
    d->close(device);
}

/* A handle that cannot be moved: nothing is mapped, and the others can be used again. */
static void mapping_is_all_or_none(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *range;
    wi_handle handles[4];
    ok(d->reserve(device, 16 * GRANULE, &range));
    char *base = range;
    ok(d->create(device, GRANULE, 4, handles));
    ok(d->map(device, base, GRANULE, 4, handles));
    memset(base, 5, 4 * GRANULE);
    ok(d->unmap(device, base, GRANULE, 4, handles));
    wi_handle bad[4] = {handles[0], handles[1], (wi_handle)(uintptr_t)base /* no pages there */ | 1, handles[3]};
    fails(WEIR_ERR_DRIVER, d->map(device, base + 8 * GRANULE, GRANULE, 4, bad));
    handles[0] = bad[0];
    handles[1] = bad[1];
    ok(d->map(device, base + 8 * GRANULE, GRANULE, 4, handles));
    for (size_t k = 0; k < 4 * GRANULE; k += 4096)
        assert_int_equal(base[8 * GRANULE + k], 5);
    ok(d->unmap(device, base + 8 * GRANULE, GRANULE, 4, handles));
    d->destroy(device, GRANULE, 4, handles);
    d->unreserve(device, range, 16 * GRANULE);
    d->close(device);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static int sequence[64], position;

static void note(void *user)
{
    sequence[position++] = (int)(uintptr_t)user;
}

static void a_stream_works_in_order(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *stream;
    gate g = GATE;
    wi_event before, after;
    ok(d->stream_create(device, &stream));
    ok(d->record(device, stream, &before));
    assert_true(d->passed(device, before)); /* nothing was queued */
    ok(d->call(device, pass_gate, &g, stream));
    position = 0;
    for (uintptr_t i = 0; i < 64; i++)
        ok(d->call(device, note, (void *)i, stream));
    ok(d->record(device, stream, &after));
    assert_false(d->passed(device, after));
    assert_int_equal(position, 0);
    uint64_t start = now_ns();
    ok(d->wait(device, after, start + 20000000)); /* until the deadline */
    assert_true(now_ns() - start >= 19000000 && !d->passed(device, after));
    ok(d->wait(device, after, start)); /* which is past */
    open_gate(&g);
    ok(d->wait(device, after, UINT64_MAX));
    assert_true(d->passed(device, after));
    for (int i = 0; i < 64; i++)
        assert_int_equal(sequence[i], i);
    assert_true(d->passed(device, (wi_event){NULL, 0}));
    ok(d->wait(device, (wi_event){NULL, 0}, UINT64_MAX));
    ok(d->stream_synchronize(device, stream));
    ok(d->stream_synchronize(device, NULL));
    ok(d->record(device, NULL, &after));
    assert_null(after.stream);
    assert_null(d->stream_native(stream));
    d->stream_destroy(device, stream);
    d->close(device);
}

static void an_event_is_passed_when_what_was_before_it_is_done(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *stream;
    gate first = GATE, second = GATE;
    wi_event one, two;
    ok(d->stream_create(device, &stream));
    ok(d->call(device, pass_gate, &first, stream));
    ok(d->record(device, stream, &one));
    ok(d->call(device, pass_gate, &second, stream));
    ok(d->record(device, stream, &two));
    open_gate(&first);
    ok(d->wait(device, one, UINT64_MAX));
    assert_true(d->passed(device, one));
    assert_false(d->passed(device, two));
    open_gate(&second);
    ok(d->wait(device, two, UINT64_MAX));
    d->stream_destroy(device, stream);
    d->close(device);
}

static void order_between_streams(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *a, *b;
    gate g = GATE;
    wi_event event;
    ok(d->stream_create(device, &a));
    ok(d->stream_create(device, &b));
    position = 0;
    ok(d->call(device, pass_gate, &g, a));
    ok(d->call(device, note, (void *)1, a));
    ok(d->record(device, a, &event));
    ok(d->order(device, b, event));
    ok(d->order(device, a, event)); /* behind itself: it is already */
    ok(d->call(device, note, (void *)2, b));
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    wi_event last;
    ok(d->record(device, b, &last));
    assert_false(d->passed(device, last));
    open_gate(&g);
    ok(d->stream_synchronize(device, b));
    assert_int_equal(position, 2);
    assert_int_equal(sequence[0], 1);
    assert_int_equal(sequence[1], 2);
    ok(d->order(device, b, event)); /* passed: nothing to do */
    ok(d->order(device, NULL, event));
    d->stream_destroy(device, a);
    d->stream_destroy(device, b);
    d->close(device);
}

static void destroying_a_stream_does_its_work_first(void **state)
{
    (void)state;
    wi_device *device = open_device();
    for (int round = 0; round < 20; round++) {
        void *stream;
        gate g = GATE;
        pthread_t opener;
        unsigned char bytes[100] = {0}, copy[100] = {0};
        position = 0;
        ok(d->stream_create(device, &stream));
        if (round == 0)
            ok(d->call(device, pass_gate, &g, stream));
        for (uintptr_t i = 0; i < 10; i++)
            ok(d->call(device, note, (void *)i, stream));
        ok(d->fill(device, bytes, 9, sizeof bytes, stream));
        ok(d->copy(device, copy, bytes, sizeof bytes, stream));
        if (round == 0)
            pthread_create(&opener, NULL, open_gate_later, &g);
        d->stream_destroy(device, stream);
        if (round == 0)
            pthread_join(opener, NULL);
        assert_int_equal(position, 10);
        assert_int_equal(copy[99], 9);
    }
    d->close(device);
}

static void names(void **state)
{
    (void)state;
    const wi_driver *driver;
    int ordinal = 5;
    ok(wi_driver_find("host", &driver, &ordinal));
    assert_ptr_equal(driver, d);
    assert_int_equal(ordinal, 0);
    ok(wi_driver_find("host:0", &driver, &ordinal));
    fails(WEIR_ERR_NOT_FOUND, wi_driver_find("host:3", &driver, &ordinal));
    fails(WEIR_ERR_INVALID, wi_driver_find("tpu", &driver, &ordinal));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(ranges_are_aligned_and_closed),
        cmocka_unit_test(contents_move),
        cmocka_unit_test(mapping_is_all_or_none),
        cmocka_unit_test(a_stream_works_in_order),
        cmocka_unit_test(an_event_is_passed_when_what_was_before_it_is_done),
        cmocka_unit_test(order_between_streams),
        cmocka_unit_test(destroying_a_stream_does_its_work_first),
    };
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
