/* A fault at every driver call and at every malloc of a life of a pool: a clean status, exact counts, and nothing that a
 * member could read of another's. */
#include "blocks/blocks.h"
#include <weir/block_pool.h>
#include "core/faulty.h"
#include "core/heap.h"

#include "runtime/runtime.h"

/* One failure in a life of a pool: of a call of the driver's, or of a malloc ------------------------------------------ */

static long driver_fails_at = -1;
static long calls_made;   /* of the driver, by the life; which sets it */
static unsigned failures; /* that the life has seen; which counts them */

/* Lives twice with that failure, -1: none. What weir keeps for good is there by the second time, which leaves no host memory. */
static void live_with(void (*live)(void), long driver_at, long malloc_at)
{
    long pieces = 0;
    for (int again = 0; again < 2; again++) {
        pieces = heap_pieces;
        faults_reset(-1);
        failures = 0;
        mallocs = 0;
        driver_fails_at = driver_at;
        malloc_fails_at = malloc_at;
        live();
    }
    assert_int_equal(heap_pieces, pieces);
}

/* Has each malloc fail once. More than `least` of the lives see a failure. */
static void fail_each_malloc(void (*live)(void), unsigned least)
{
    unsigned seen = 0;
    long most = 0;
    for (long at = -1; at <= most; at++) {
        live_with(live, -1, at);
        most = at < 0 ? mallocs : most;
        seen += failures > 0;
    }
    assert_true(most > 10 && seen > least);
}

/* The life ---------------------------------------------------------------------------------------------------------- */

/* True if it went well; else it failed as planned. */
static bool went(weir_status status)
{
    failures += status != WEIR_OK;
    assert_true(status == WEIR_OK || status == WEIR_ERR_DRIVER || status == WEIR_ERR_SYSTEM ||
                status == WEIR_ERR_OUT_OF_MEMORY);
    return status == WEIR_OK;
}

/* Zeros, or what the member wrote itself. */
static void check_clean(weir_block_pool *pool, uint32_t first, uint32_t count, int mine)
{
    weir_block_pool_view v = view_of(pool);
    const unsigned char *p = weir_block_pool_at(&v, first);
    for (size_t i = 0; i < count * v.bytes; i++)
        assert_true(p[i] == 0 || p[i] == mine);
}

/* Takes on the stream, and sees zeros whatever failed before; gives on the stream, and again if that fails. */
static void use(weir_block_pool *pool, weir_block_pool_member *m, int mark, weir_stream stream)
{
    uint32_t first, list[5] = {0};
    weir_block_pool_view v = view_of(pool);
    bool taken = went(weir_block_pool_alloc(m, 6, WEIR_BLOCK_POOL_RUN, stream, &first));
    if (!taken) { /* the fault is over; what is left in the blocks is still not this member's */
        assert_int_equal(first, WEIR_BLOCK_POOL_NONE);
        taken = went(weir_block_pool_alloc(m, 6, WEIR_BLOCK_POOL_RUN, stream, &first));
    }
    if (taken) {
        malloc_armed = false; /* the look at the bytes is not what is tried */
        fault.fail_at = -1;
        ok(weir_stream_synchronize(stream));
        check_clean(pool, first, 6, mark);
        memset(weir_block_pool_at(&v, first), mark, (size_t)6 * BLOCK);
        malloc_armed = true;
        fault.fail_at = driver_fails_at;
        if (!went(free_run(m, first, 6, stream)))
            give(m, first, 6);
    }
    if (went(weir_block_pool_alloc(m, 5, 0, stream, list)))
        if (!went(weir_block_pool_free(m, list, NULL, 5, 0, stream)))
            for (int i = 0; i < 5; i++)
                give(m, list[i], 1);
}

static void live(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB};
    weir_block_pool_options what = {.struct_size = sizeof what,
                                    .bytes = BLOCK,
                                    .count = 8,
                                    .flags = WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_CLEAR | WEIR_BLOCK_POOL_NAMED};
    weir_runtime *runtime;
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    weir_stream stream;
    weir_block_pool *pool;
    ok(weir_stream_acquire(runtime, &stream));
    fault.calls = 0;
    fault.fail_at = driver_fails_at;
    malloc_armed = true;
    bool made = went(weir_block_pool_create(client, &what, &pool));
    weir_block_pool_member *m[2] = {NULL, NULL};
    for (int i = 0; made && i < 2; i++)
        if (!went(weir_block_pool_member_create(pool, client, 0, &m[i])))
            ok(weir_block_pool_member_create(pool, client, 0, &m[i]));
    for (int i = 0; made && i < 4; i++)
        use(pool, m[i % 2], 0xe0 + i % 2, stream);
    malloc_armed = false;
    fault.fail_at = -1;
    calls_made = fault.calls;
    if (made) {
        ok(weir_stream_synchronize(stream));
        weir_block_pool_stats s = pool_stats(pool);
        assert_int_equal(s.free, 8);
        assert_int_equal(s.longest, 8);
        assert_int_equal(s.allocations, s.frees);
        ok(weir_block_pool_destroy(pool));
    }
    ok(weir_stream_release(stream));
    check_empty(runtime);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

static void end_pool(weir_block_pool *pool, weir_client *client, weir_stream stream, weir_runtime *runtime)
{
    ok(weir_block_pool_destroy(pool));
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

/* Of two fills the second fails: the blocks are nobody's before the stream is past the first. */
static void what_was_queued_is_waited_for(void **state)
{
    (void)state;
    gate g = GATE;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB};
    weir_runtime *runtime;
    weir_stream stream;
    uint32_t list[2];
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    weir_block_pool *pool = make_pool_with(client, 3, WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_CLEAR);
    weir_block_pool_member *a = join(pool, client, 0), *b = join(pool, client, 0);
    ok(weir_stream_acquire(runtime, &stream));
    take_run(a, 3);
    give(a, 0, 1);
    give(a, 2, 1); /* 1 stands between */
    ok(weir_call(runtime, pass_gate, &g, stream));
    fault.calls = 0;
    fault.fail_at = 1;
    fails(WEIR_ERR_DRIVER, weir_block_pool_alloc(b, 2, 0, stream, list));
    assert_int_equal(list[0], WEIR_BLOCK_POOL_NONE);
    assert_int_equal(pool_stats(pool).pending, 2);
    assert_int_equal(member_stats(b).pending, 2);
    assert_int_equal(member_stats(b).allocations, 0);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(a, 1, 0, WEIR_STREAM_HOST, list));
    open_gate(&g);
    ok(weir_stream_synchronize(stream));
    assert_int_equal(pool_stats(pool).free, 2);
    give(a, 1, 1);
    end_pool(pool, client, stream, runtime);
}

/* A driver of which some calls fail each time, counted. */
static int records_to_fail, waits, synchronized;
static wi_driver tried;

static weir_status failing_record(wi_device *device, void *stream, wi_event *out)
{
    if (records_to_fail == 0)
        return faulty_driver.record(device, stream, out);
    records_to_fail--;
    return weir_fail(WEIR_ERR_DRIVER, "not recorded on purpose");
}

static weir_status failing_wait(wi_device *device, wi_event event, uint64_t deadline)
{
    (void)device, (void)event, (void)deadline;
    waits++;
    return weir_fail(WEIR_ERR_DRIVER, "not waited for on purpose");
}

static weir_status counted_synchronize(wi_device *device, void *stream)
{
    synchronized++;
    return faulty_driver.stream_synchronize(device, stream);
}

static weir_runtime *runtime_that_fails(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB};
    weir_runtime *runtime;
    faults_reset(-1);
    tried = faulty_driver;
    tried.record = failing_record;
    tried.wait = failing_wait;
    tried.stream_synchronize = counted_synchronize;
    records_to_fail = waits = synchronized = 0;
    ok(wi_runtime_create_over(&tried, 0, &options, &runtime));
    return runtime;
}

/* Without a point behind the zeros that were queued, the thread waits for them: the blocks are free at once. */
static void what_was_queued_is_waited_for_where_no_point_tells(void **state)
{
    (void)state;
    weir_stream stream;
    uint32_t list[2];
    weir_runtime *runtime = runtime_that_fails();
    weir_client *client = open_client(runtime, "one", 0, 0);
    weir_block_pool *pool = make_pool_with(client, 3, WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_CLEAR);
    weir_block_pool_member *a = join(pool, client, 0), *b = join(pool, client, 0);
    ok(weir_stream_acquire(runtime, &stream));
    take_run(a, 3);
    give(a, 0, 1);
    give(a, 2, 1); /* 1 stands between */
    synchronized = 0;
    fault.calls = 0;
    fault.fail_at = 1; /* the second fill */
    records_to_fail = 1;
    fails(WEIR_ERR_DRIVER, weir_block_pool_alloc(b, 2, 0, stream, list));
    assert_int_equal(records_to_fail, 0);
    assert_int_equal(synchronized, 1);
    assert_int_equal(pool_stats(pool).pending, 0);
    assert_int_equal(pool_stats(pool).free, 2);
    give(a, 1, 1);
    end_pool(pool, client, stream, runtime);
}

/* A device that cannot be waited for is asked once. */
static void where_waiting_fails_the_request_is_refused(void **state)
{
    (void)state;
    gate g = GATE;
    weir_stream stream;
    uint32_t index;
    weir_runtime *runtime = runtime_that_fails();
    weir_client *client = open_client(runtime, "one", 0, 0);
    weir_block_pool *pool = make_pool_with(client, 2, 0);
    weir_block_pool_member *m = join(pool, client, 0);
    ok(weir_stream_acquire(runtime, &stream));
    take_run(m, 2);
    ok(weir_call(runtime, pass_gate, &g, stream));
    ok(free_run(m, 0, 2, stream));
    waits = 0;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &index));
    assert_int_equal(waits, 1);
    assert_int_equal(index, WEIR_BLOCK_POOL_NONE);
    assert_int_equal(pool_stats(pool).refused, 1);
    open_gate(&g);
    ok(weir_stream_synchronize(stream));
    assert_int_equal(pool_stats(pool).free, 2);
    end_pool(pool, client, stream, runtime);
}

static void each_driver_call_fails_once(void **state)
{
    (void)state;
    long calls = 0;
    for (long at = -1; at <= calls; at++) {
        live_with(live, at, -1);
        if (at < 0) {
            assert_int_equal(failures, 0);
            calls = calls_made;
            assert_true(calls > 10);
        }
    }
}

static void each_malloc_fails_once(void **state)
{
    (void)state;
    fail_each_malloc(live, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_queued_is_waited_for),
        cmocka_unit_test(what_was_queued_is_waited_for_where_no_point_tells),
        cmocka_unit_test(where_waiting_fails_the_request_is_refused),
        cmocka_unit_test(each_driver_call_fails_once),
        cmocka_unit_test(each_malloc_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
