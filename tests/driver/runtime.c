/* The runtime's public calls on host, on cuda over the stub, and on a real GPU: allocation in stream order, memory that
 * moves, limits of the device, what is given back. */
#include "info.h"
#include "driver/runtime.h"
#include "trim.h"

/* Blocks ----------------------------------------------------------------------------------------------------------- */

static void test_alloc_info_resize_free(void **state)
{
    (void)state;
    make_runtime(32 * MIB);
    weir_client *client = open_client("one");
    char *block;
    weir_block_details details = WEIR_INIT(weir_block_details);
    ok(weir_alloc(client, 5 * MIB + 100, WEIR_STREAM_HOST, WEIR_CLASS_KV, (void **)&block));
    fill_now(block, 3, 5 * MIB + 100);
    ok(weir_block_info(block + 77, &details));
    assert_int_equal(details.offset, 77);
    assert_int_equal(details.bytes, 5 * MIB + 100);
    assert_int_equal(details.memory_class, WEIR_CLASS_KV);
    assert_int_equal(details.state, WEIR_BLOCK_LIVE);
    assert_ptr_equal(details.client, client);
    assert_ptr_equal(details.runtime, runtime);
    ok(weir_resize(client, block, 9 * MIB, WEIR_STREAM_HOST)); /* maps more behind it */
    assert_int_equal(wrong_bytes(block, 3, 5 * MIB + 100), 0);
    fill_now(block, 4, 9 * MIB);
    ok(weir_resize(client, block, 1000, WEIR_STREAM_HOST));
    assert_int_equal(wrong_bytes(block, 4, 1000), 0);
    assert_int_equal(snapshot().live, 1024);
    fails(weir_free(client, block + 256, WEIR_STREAM_HOST), WEIR_ERR_INTERIOR);
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    fails(weir_free(client, block, WEIR_STREAM_HOST), WEIR_ERR_DOUBLE_FREE);
    assert_int_equal(snapshot().live, 0);
    ok(weir_client_destroy(client));
    end_runtime();
}

static void test_zeroed(void **state)
{
    (void)state;
    make_runtime(16 * MIB);
    weir_client *client = open_client("one");
    weir_stream stream;
    ok(weir_stream_acquire(runtime, &stream));
    for (int round = 0; round < 3; round++) {
        weir_request request = WEIR_INIT(weir_request);
        weir_block block;
        request.bytes = 3 * MIB;
        request.stream = stream;
        request.flags = WEIR_ALLOC_ZEROED;
        ok(weir_alloc_with(client, &request, &block));
        ok(weir_stream_synchronize(stream));
        assert_int_equal(wrong_bytes(block.pointer, 0, 3 * MIB), 0);
        fill_now(block.pointer, 0xff, 3 * MIB);
        ok(weir_free_block(client, block, stream));
    }
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(client));
    end_runtime();
}

static uint64_t unpassed(void)
{
    weir_stats stats = snapshot();
    return stats.pending + stats.ordered;
}

/* Stream order ----------------------------------------------------------------------------------------------------- */

static void test_free_behind_long_work_is_nobody_elses(void **state)
{
    (void)state;
    /* compute-sanitizer makes a fill wait for all work on the device, and so for a gate that opens after it. */
    skip_unless(getenv("WEIR_SANITIZED") == NULL || device_kind_now != ON_CUDA);
    make_runtime(16 * MIB);
    weir_client *one = open_client("one"), *two = open_client("two");
    weir_stream stream;
    gate g = {0};
    void *block, *other;
    weir_block_details details = WEIR_INIT(weir_block_details);
    ok(weir_stream_acquire(runtime, &stream));
    ok(weir_alloc(one, 12 * MIB, stream, WEIR_CLASS_OTHER, &block));
    ok(weir_call(runtime, hold, &g, stream));
    ok(weir_fill(runtime, block, 7, 12 * MIB, stream));
    ok(weir_free(one, block, stream));
    assert_int_equal(unpassed(), 12 * MIB);
    ok(weir_block_info(block, &details));
    assert_int_equal(details.state, WEIR_BLOCK_FREE); /* for this stream */
    weir_request request = WEIR_INIT(weir_request);
    weir_block refused;
    request.bytes = 8 * MIB;
    request.flags = WEIR_ALLOC_NO_WAIT;
    fails(weir_alloc_with(two, &request, &refused), WEIR_ERR_OUT_OF_MEMORY);
    weir_refusal refusal = WEIR_INIT(weir_refusal);
    ok(weir_refusal_last(&refusal));
    assert_int_equal(refusal.cause, WEIR_CAUSE_PENDING);
    /* What is left is served meanwhile, and not out of the freed block. */
    ok(weir_alloc(two, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &other));
    assert_true((char *)other >= (char *)block + 12 * MIB || (char *)other + 4 * MIB <= (char *)block);
    fill_now(other, 9, 4 * MIB);
    atomic_store(&g.open, true);
    ok(weir_stream_synchronize(stream));
    assert_int_equal(wrong_bytes(other, 9, 4 * MIB), 0);
    assert_int_equal(unpassed(), 0);
    ok(weir_alloc_with(two, &request, &refused));
    ok(weir_free_block(two, refused, WEIR_STREAM_HOST));
    ok(weir_free(two, other, WEIR_STREAM_HOST));
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(one));
    ok(weir_client_destroy(two));
    end_runtime();
}

static void slow(void *user)
{
    nap(*(unsigned *)user);
}

/* One client's work writes late, behind a free; the other has everything else, and wants as much. True if the other's
 * bytes were overwritten. `planted`: the free says that the work is done, which is a lie. */
static bool late_write_is_seen(bool planted)
{
    static unsigned delay = 40000;
    make_runtime(16 * MIB);
    weir_client *one = open_client("one"), *two = open_client("two");
    weir_stream late, next;
    void *block, *other;
    ok(weir_stream_acquire(runtime, &late));
    ok(weir_stream_acquire(runtime, &next));
    ok(weir_alloc(one, 12 * MIB, late, WEIR_CLASS_OTHER, &block));
    ok(weir_call(runtime, slow, &delay, late));
    ok(weir_fill(runtime, block, 0xaa, 12 * MIB, late));
    ok(weir_free(one, block, planted ? WEIR_STREAM_HOST : late));
    ok(weir_alloc(two, 12 * MIB, next, WEIR_CLASS_OTHER,
                  &other)); /* only there is room: it waits, or is given it too early */
    assert_ptr_equal(other, block);
    ok(weir_fill(runtime, other, 0x55, 12 * MIB, next));
    ok(weir_stream_synchronize(next));
    ok(weir_stream_synchronize(late));
    bool seen = wrong_bytes(other, 0x55, 12 * MIB) != 0;
    ok(weir_free(two, other, next));
    ok(weir_stream_release(late));
    ok(weir_stream_release(next));
    ok(weir_client_destroy(one));
    ok(weir_client_destroy(two));
    end_runtime();
    return seen;
}

static void test_no_block_is_reused_under_late_work(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        assert_false(late_write_is_seen(false));
}

static void test_a_block_reused_too_early_would_be_seen(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it sees the planted race, too */
#endif
    assert_true(late_write_is_seen(true));
}

/* Memory that moves ------------------------------------------------------------------------------------------------ */

static void test_values_survive_moves(void **state)
{
    (void)state;
    enum { BLOCKS = 16 };
    size_t bytes = granule();
    uint8_t value[BLOCKS];
    void *blocks[BLOCKS], *large;
    make_runtime(BLOCKS * bytes);
    weir_client *client = open_client("one");
    for (int i = 0; i < BLOCKS; i++) {
        ok(weir_alloc(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &blocks[i]));
        fill_now(blocks[i], value[i] = (uint8_t)(i + 1), bytes);
    }
    assert_int_equal(snapshot().held, BLOCKS * bytes);
    for (int round = 0; round < 10; round++) {
        /* Every other one goes; one that needs four in a row can only be had by moving handles. */
        uint64_t calls = snapshot().driver_calls;
        for (int i = round % 2; i < BLOCKS; i += 2)
            ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
        ok(weir_alloc(client, 4 * bytes, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &large));
        if (round == 0)
            assert_true(snapshot().driver_calls > calls);
        fill_now(large, 0xee, 4 * bytes);
        for (int i = 1 - round % 2; i < BLOCKS; i += 2)
            assert_int_equal(wrong_bytes(blocks[i], value[i], bytes), 0);
        assert_int_equal(wrong_bytes(large, 0xee, 4 * bytes), 0);
        assert_true(snapshot().held <= BLOCKS * bytes);
        ok(weir_free(client, large, WEIR_STREAM_HOST));
        for (int i = round % 2; i < BLOCKS; i += 2) {
            ok(weir_alloc(client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &blocks[i]));
            fill_now(blocks[i], value[i] = (uint8_t)(value[i] + 16), bytes);
        }
    }
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    end_runtime();
}

/* The device's limits ---------------------------------------------------------------------------------------------- */

/* The driver's own calls, beside weir's. */
static struct {
    int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuDevicePrimaryCtxRelease)(int);
    int (*cuCtxPushCurrent)(void *), (*cuCtxPopCurrent)(void **), (*cuMemGetInfo)(size_t *, size_t *);
    int (*cuMemCreate)(unsigned long long *, size_t, const void *, unsigned long long);
    int (*cuMemRelease)(unsigned long long);
} cuda;
static void *cuda_context;

static void enter_cuda(void)
{
    int (*get)(const char *, void **, int, unsigned long long, int *);
    void *symbol = cuda_symbol("cuGetProcAddress_v2");
    assert_non_null(symbol);
    memcpy(&get, &symbol, sizeof get);
#define FIND(name, version)                                                                                            \
    assert_int_equal(get(#name, &symbol, version, 0, NULL), 0);                                                        \
    memcpy(&cuda.name, &symbol, sizeof symbol)
    FIND(cuInit, 2000);
    FIND(cuDevicePrimaryCtxRetain, 7000);
    FIND(cuDevicePrimaryCtxRelease, 11000);
    FIND(cuCtxPushCurrent, 4000);
    FIND(cuCtxPopCurrent, 4000);
    FIND(cuMemGetInfo, 3020);
    FIND(cuMemCreate, 10020);
    FIND(cuMemRelease, 10020);
#undef FIND
    assert_int_equal(cuda.cuInit(0), 0);
    assert_int_equal(cuda.cuDevicePrimaryCtxRetain(&cuda_context, 0), 0);
    assert_int_equal(cuda.cuCtxPushCurrent(cuda_context), 0);
}

static void leave_cuda(void)
{
    assert_int_equal(cuda.cuCtxPopCurrent(&cuda_context), 0);
    assert_int_equal(cuda.cuDevicePrimaryCtxRelease(0), 0);
}

/* Free and all bytes of the device as its driver says; false on host. */
static bool device_bytes(size_t *available, size_t *total)
{
    if (device_kind_now == ON_HOST)
        return false;
    enter_cuda();
    assert_int_equal(cuda.cuMemGetInfo(available, total), 0);
    leave_cuda();
    return true;
}

/* Somebody else takes nearly all of the device, and gives it back. Answers how many bytes are left at most: a GPU does not
 * give out the last of what it calls free. */
static unsigned long long taken;

static size_t take_nearly_all(void)
{
    /* CUmemAllocationProp: pinned, no handle type, of device 0 */
    const struct {
        int type, handle_types, location, ordinal;
        void *unused;
        unsigned char flags[8];
    } properties = {1, 0, 1, 0, NULL, {0}};
    size_t available = 0, total = 0;
    size_t leave = 64 * MIB;
    int result = 0;
    assert_true(device_bytes(&available, &total));
    if (device_kind_now == ON_STUB) {
        control.stub_take(0, available - leave);
        return leave;
    }
    enter_cuda();
    while ((result = cuda.cuMemCreate(&taken, (available - leave) & ~(2 * MIB - 1), &properties, 0)) != 0 &&
           leave < 4096 * MIB)
        leave *= 2;
    leave_cuda();
    assert_int_equal(result, 0);
    return leave + 2 * MIB;
}

static void give_back(void)
{
    if (device_kind_now == ON_STUB) {
        control.stub_take(0, 0);
        return;
    }
    enter_cuda();
    assert_int_equal(cuda.cuMemRelease(taken), 0);
    leave_cuda();
}

static void test_default_budget(void **state)
{
    (void)state;
    size_t available = 0, total = 0;
    bool known = device_bytes(&available, &total);
    ok(weir_runtime_create(device_name(), NULL, &runtime));
    uint64_t budget = runtime_details(runtime).budget;
    if (known) {
        size_t margin = available / 10 > 512 * MIB ? available / 10 : 512 * MIB;
        size_t expected = available - margin, off = budget > expected ? budget - expected : expected - budget;
        assert_true(off <= (device_kind_now == ON_STUB ? 0 : 1024 * MIB)); /* the context itself takes some of a GPU */
    }
    assert_true(budget > 0);
    end_runtime();
}

static void test_another_process_is_named(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    make_runtime(20480 * MIB);
    weir_client *client = open_client("one");
    void *small, *large, *rest;
    ok(weir_alloc(client, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &small));
    size_t wanted = 2 * take_nearly_all();
    fails(weir_alloc(client, wanted, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &large), WEIR_ERR_OUT_OF_MEMORY);
    weir_refusal refusal = WEIR_INIT(weir_refusal);
    ok(weir_refusal_last(&refusal));
    assert_int_equal(refusal.cause, WEIR_CAUSE_OTHER_PROCESS);
    assert_non_null(strstr(weir_detail(), "another process"));
    weir_stats stats = snapshot();
    assert_int_equal(stats.live, 8 * MIB);
    assert_int_equal(stats.promised, 0);
    if (device_kind_now == ON_STUB)
        assert_int_equal(stats.held, control.stub_count("used"));
    /* What the device still has is served; and all of it when the other has gone. */
    ok(weir_alloc(client, 16 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &rest));
    ok(weir_free(client, rest, WEIR_STREAM_HOST));
    give_back();
    ok(weir_alloc(client, wanted, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &large));
    ok(weir_free(client, large, WEIR_STREAM_HOST));
    ok(weir_free(client, small, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    end_runtime();
}

static void test_trim_gives_handles_back(void **state)
{
    (void)state;
    size_t before = 0, during = 0, after = 0, total;
    make_runtime(64 * MIB);
    weir_client *client = open_client("one");
    void *blocks[10], *kept;
    ok(weir_alloc(client, 100, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &kept));
    bool known = device_bytes(&before, &total);
    uint64_t held = snapshot().held, released = 0;
    for (int i = 0; i < 10; i++)
        ok(weir_alloc(client, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &blocks[i]));
    uint64_t grown = snapshot().held - held;
    (void)device_bytes(&during, &total);
    for (int i = 0; i < 10; i++)
        ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    assert_int_equal(snapshot().held, held + grown);
    ok(trim_keeping(runtime, 0, &released));
    (void)device_bytes(&after, &total);
    assert_int_equal(snapshot().held, granule());
    assert_int_equal(released, held + grown - granule());
    if (known) { /* the driver's numbers agree with the ledger's, to one handle */
        assert_true(before - during <= grown + granule() && before - during + granule() >= grown);
        assert_true(after + granule() >= before);
    }
    ok(weir_free(client, kept, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    end_runtime();
}

/* Failures of the driver, on the stub ------------------------------------------------------------------------------ */

/* An allocation that needs the driver, with its calls failing one after the other: refused or served, the ledger and the
 * driver agree about what is held, and the next one is served. */
static void test_the_ledger_agrees_after_failures(void **state)
{
    (void)state;
    static const char *const functions[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                            "cuCtxPushCurrent"};
    skip_unless(device_kind_now == ON_STUB);
    make_runtime(16 * MIB);
    weir_client *client = open_client("one");
    void *kept, *block;
    ok(weir_alloc(client, MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &kept));
    fill_now(kept, 0x77, MIB);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        for (int nth = 1; nth <= 8; nth++) {
            control.stub_fail(functions[i], nth, nth % 2 ? 999 : 2);
            weir_status status = weir_alloc(client, 14 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block);
            assert_int_equal(snapshot().live, status == WEIR_OK ? 15 * MIB : MIB);
            if (status == WEIR_OK)
                ok(weir_free(client, block, WEIR_STREAM_HOST));
            /* Giving back cannot fail, so a context that cannot be made current just then would lose handles. */
            if (strcmp(functions[i], "cuCtxPushCurrent") != 0)
                ok(weir_runtime_trim(runtime, NULL, NULL));
            control.stub_fail(functions[i], 0, 0);
            ok(weir_runtime_trim(runtime, NULL, NULL));
            weir_stats stats = snapshot();
            assert_int_equal(stats.live, MIB);
            assert_int_equal(stats.promised + stats.pending, 0);
            assert_int_equal(stats.held, control.stub_count("used"));
            assert_int_equal(stats.held, control.stub_count("handles") * granule());
            assert_int_equal(wrong_bytes(kept, 0x77, MIB), 0);
        }
    ok(weir_free(client, kept, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    end_runtime();
}

static void test_a_lost_device(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_STUB);
    make_runtime(16 * MIB);
    weir_client *client = open_client("one");
    weir_stream stream;
    void *block, *second, *more;
    static gate g; /* the stream is never destroyed */
    ok(weir_stream_acquire(runtime, &stream));
    ok(weir_alloc(client, 6 * MIB, stream, WEIR_CLASS_OTHER, &block));
    ok(weir_alloc(client, 1 * MIB, stream, WEIR_CLASS_OTHER, &second));
    ok(weir_call(runtime, hold, &g, stream));
    ok(weir_free(client, second, stream));
    assert_int_equal(unpassed(), MIB);
    control.stub_lose(true);
    fails(weir_fill(runtime, block, 1, 100, stream), WEIR_ERR_DEVICE_LOST);
    fails(weir_copy(runtime, block, block, 100, WEIR_STREAM_HOST), WEIR_ERR_DEVICE_LOST);
    fails(weir_stream_synchronize(stream), WEIR_ERR_DEVICE_LOST);
    fails(weir_alloc(client, 8 * MIB, stream, WEIR_CLASS_OTHER, &more), WEIR_ERR_DEVICE_LOST);
    assert_non_null(strstr(weir_detail(), "restart"));
    weir_stats stats = snapshot();
    assert_int_equal(stats.live, 6 * MIB);
    assert_int_equal(stats.pending + stats.ordered + stats.promised, 0);
    ok(weir_free(client, block, stream));
    assert_int_equal(snapshot().live, 0);
    uint64_t calls = control.stub_count("cuMemRelease") + control.stub_count("cuMemUnmap");
    ok(weir_runtime_trim(runtime, NULL, NULL));
    assert_int_equal(control.stub_count("cuMemRelease") + control.stub_count("cuMemUnmap"), calls);
    ok(weir_client_destroy(client));
    atomic_store(&g.open, true);
}

int main(int argc, char **argv)
{
    int answer = choose_device(argc, argv);
    if (answer != 0)
        return answer;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_info_resize_free),
        cmocka_unit_test(test_zeroed),
        cmocka_unit_test(test_free_behind_long_work_is_nobody_elses),
        cmocka_unit_test(test_no_block_is_reused_under_late_work),
        cmocka_unit_test(test_a_block_reused_too_early_would_be_seen),
        cmocka_unit_test(test_values_survive_moves),
        cmocka_unit_test(test_default_budget),
        cmocka_unit_test(test_another_process_is_named),
        cmocka_unit_test(test_trim_gives_handles_back),
        cmocka_unit_test(test_the_ledger_agrees_after_failures),
        cmocka_unit_test(test_a_lost_device), /* the last one: its runtime cannot be ended */
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (device_kind_now == ON_CUDA)
        failed += run_kernel_tests();
    return failed != 0;
}
