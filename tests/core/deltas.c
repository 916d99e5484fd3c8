/* What threads count for themselves is gathered where a number depends on it, and nowhere else. */
#include "info.h"
#include "core.h"
#include "core/faulty.h"
#include "runtime/runtime.h"

enum { BUDGET = 64 << 20, SMALL = 4096 };

static weir_runtime *runtime;
static weir_client *client;
static weir_stream stream;
static unsigned merges;
static void (*real_fold)(void *user);

static void count_fold(void *user)
{
    merges++;
    real_fold(user);
}

/* One block is live, and some are thread-cached, which the ledger does not know yet. */
static void *leave_a_drift(void)
{
    for (int i = 0; i < 3; i++)
        ok(weir_free(client, allocate(client, SMALL, stream, WEIR_CLASS_KV), stream));
    void *p = allocate(client, SMALL, stream, WEIR_CLASS_KV);
    merges = 0;
    return p;
}

/* What is pending does not depend on it, nor what is held, nor the budget. */
static void looks_that_need_none(void **state)
{
    (void)state;
    void *p = leave_a_drift();
    weir_layout_totals totals = WEIR_INIT(weir_layout_totals);
    assert_int_equal(runtime_details(runtime).budget, BUDGET);
    ok(weir_layout_walk(runtime, NULL, NULL, &totals));
    assert_true(totals.bytes[WEIR_SPAN_LIVE] == SMALL && totals.bytes[WEIR_SPAN_THREAD_CACHED] == 0);
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(runtime));
    detail_names("has 1 open client");
    assert_int_equal(merges, 0);
    snapshot s = take_snapshot(runtime); /* this does */
    assert_int_equal(merges, 1);
    check_sums(&s);
    assert_int_equal(s.device.live, SMALL);
    assert_int_equal(s.device.hits, 3);
    ok(weir_free(client, p, stream));
}

/* The ladder asks again and again whether anything is pending. */
static void a_request_that_the_device_refuses(void **state)
{
    (void)state;
    void *p = leave_a_drift();
    weir_request request = {
        .struct_size = sizeof request, .bytes = BUDGET / 2, .stream = stream, .flags = WEIR_ALLOC_NO_WAIT};
    weir_block none;
    merges = 0;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(client, &request, &none));
    assert_int_equal(merges, 0);
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_OTHER_PROCESS); /* the limits allowed it */
    ok(weir_free(client, p, stream));
}

/* Of each client, without an adaptor: hits and misses of its threads' caches. */
static void hits_and_misses_are_told_by_client(void **state)
{
    (void)state;
    enum { HITS = 7 };
    weir_client *two = open_client(runtime, "two", 0, 0);
    snapshot before = take_snapshot(runtime);
    weir_request request = {
        .struct_size = sizeof request, .bytes = SMALL, .stream = stream, .tag = "no thread cache keeps it for that"};
    weir_block tagged;
    for (int i = 0; i <= HITS; i++)
        ok(weir_free(two, allocate(two, 3 * SMALL, stream, WEIR_CLASS_KV), stream));
    ok(weir_alloc_with(two, &request, &tagged));
    ok(weir_free_block(two, tagged, WEIR_STREAM_HOST));
    snapshot now = take_snapshot(runtime);
    assert_int_equal(now.clients[1].hits, HITS);
    assert_int_equal(now.clients[1].misses, 2);
    assert_int_equal(now.clients[1].allocations, HITS + 2);
    assert_int_equal(now.clients[0].hits, before.clients[0].hits);
    assert_int_equal(now.clients[0].misses, before.clients[0].misses);
    assert_int_equal(now.device.hits, before.device.hits + HITS);
    assert_int_equal(now.device.misses, before.device.misses + 2);
    weir_client_stats own = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(two, &own));
    assert_int_equal(own.hits, HITS);
    assert_int_equal(own.misses, 2);
    ok(weir_client_destroy(two));
}

static int start(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = "mapped"};
    faults_reset(-1);
    fault.limit = 32;
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    client = open_client(runtime, "one", 0, 0);
    ok(weir_stream_acquire(runtime, &stream));
    real_fold = runtime->ledger.tcache_hooks.merge;
    runtime->ledger.tcache_hooks.merge = count_fold;
    return real_fold == NULL;
}

static int end(void **state)
{
    (void)state;
    ok(weir_client_destroy(client));
    ok(weir_stream_release(stream));
    return weir_runtime_destroy(runtime) != WEIR_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looks_that_need_none),
        cmocka_unit_test(a_request_that_the_device_refuses),
        cmocka_unit_test(hits_and_misses_are_told_by_client),
    };
    return cmocka_run_group_tests_name("deltas", tests, start, end);
}
