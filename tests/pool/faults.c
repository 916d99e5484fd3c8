/* Loads of a pool that fail, at each step: nothing is left of them, and the next one works. And what time does, by a clock
 * that the test moves. */
#include "pool/bed.h"
#include "base/system.h"

static bed b;
static atomic_long refused; /* clients that cannot be opened from here on */

weir_status __real_weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out);
weir_status __wrap_weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out);
weir_status __wrap_weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out)
{
    if (atomic_load(&refused) > 0) {
        atomic_fetch_sub(&refused, 1);
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the test opens no client");
    }
    return __real_weir_client_create(runtime, options, out);
}

/* A clock that stands still until it is moved. */
static atomic_ullong moved;
static uint64_t still(void)
{
    return 1000 * SECOND + atomic_load(&moved);
}

static void pass(uint64_t nanoseconds)
{
    atomic_fetch_add(&moved, nanoseconds);
}

static int set_up(void **state)
{
    weir_pool_options options = WEIR_INIT(weir_pool_options);
    (void)state;
    options.retry = SECOND;
    options.longest_wait = 3600 * SECOND;
    atomic_store(&refused, 0);
    make_bed(&b, 10 * MIB, &options);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_bed(&b);
    return 0;
}

/* Failing ---------------------------------------------------------------------------------------------------------- */

static void check_nothing(const snapshot *before)
{
    snapshot now = take_snapshot(b.runtime);
    check_sums(&now);
    assert_int_equal(now.count, before->count);
    assert_int_equal(now.device.live + now.device.pending + now.device.promised, before->device.live);
    assert_int_equal(now.device.guaranteed, before->device.guaranteed);
    assert_int_equal(taken(&b), before->device.live);
}

static void fails_at(atomic_int *step, const char *says)
{
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
    weir_pool_request request = request_of("a");
    weir_lease *l;
    spec.first_run = true;
    add_spec(&b, spec);
    add(&b, "b", MIB);
    ok(use(&b, "b"));
    snapshot before = take_snapshot(b.runtime);
    if (step)
        atomic_store(step, 1);
    else
        atomic_store(&refused, 1);
    assert_int_not_equal(weir_pool_acquire(b.pool, &request, &answer, &l), WEIR_OK);
    detail_names(says);
    assert_int_equal(answer.cause, WEIR_POOL_LOAD_FAILED);
    in_state(&b, "a", WEIR_POOL_FAILED);
    assert_non_null(strstr(entry_of(&b, "a").why, says));
    assert_int_equal(entry_of(&b, "a").failures, 1);
    check_nothing(&before);
    long loads = atomic_load(&e.loads);
    assert_int_not_equal(weir_pool_acquire(b.pool, &request, &answer, &l), WEIR_OK); /* not again at once */
    assert_int_equal(answer.cause, WEIR_POOL_LOAD_FAILED);
    assert_true(answer.retry_after > 0 && answer.retry_after <= SECOND);
    assert_int_equal(atomic_load(&e.loads), loads);
    pass(2 * SECOND);
    ok(use(&b, "a"));
    check_books(&b);
    wait_for_event(&b, WEIR_POOL_EVENT_FAILED, 1); /* news may come after the answer */
    assert_int_equal(b.counts[WEIR_POOL_EVENT_FAILED], 1);
}

static void the_client_is_not_opened(void **state)
{
    (void)state;
    fails_at(NULL, "opens no client");
}

static void the_load_fails_at_once(void **state)
{
    (void)state;
    fails_at(&e.fail_load, "before it allocates");
}

static void the_load_fails_late(void **state)
{
    (void)state;
    fails_at(&e.fail_late, "after its weights");
}

static void the_first_run_fails(void **state)
{
    (void)state;
    fails_at(&e.fail_warm, "first run");
}

/* The engine's word after the memory is back: the model is thrown out, and loaded for who waits, or it fails. */
static void a_resume_fails(void **state)
{
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    (void)state;
    spec.engine = "pool-double";
    add_spec(&b, spec);
    assert_true(entry_of(&b, "a").can_suspend);
    ok(use(&b, "a"));
    ok(weir_pool_suspend(b.pool, "a", 0));
    atomic_store(&e.fail_resume, 1);
    (void)use(&b, "a");
    pass(60 * SECOND);
    ok(use(&b, "a"));
    check_books(&b);
}

static void a_load_by_hand_fails(void **state)
{
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    (void)state;
    spec.load_now = true;
    atomic_store(&e.fail_late, 1);
    fails(WEIR_ERR_ENGINE, weir_pool_add(b.pool, &spec));
    size_t count;
    ok(weir_pool_list(b.pool, NULL, 0, &count));
    assert_int_equal(count, 0);
    assert_int_equal(take_snapshot(b.runtime).count, 0);
    spec.load_now = false;
    add_spec(&b, spec);
    atomic_store(&e.fail_late, 1);
    fails(WEIR_ERR_ENGINE, weir_pool_load(b.pool, "a", 0));
    pass(60 * SECOND);
    ok(weir_pool_load(b.pool, "a", 0));
}

/* Runs hold memory that nobody has promised them: the load waits for their end, unless nobody wants it any more. */
static void a_load_waits_for_runs(void **state)
{
    asker other = {.b = NULL};
    weir_pool_request request = request_of("b");
    (void)state;
    add(&b, "a", 2 * MIB);
    add(&b, "b", 4 * MIB);
    for (int i = 0; i < 2; i++) {
        bool cancelled = i == 1;
        weir_lease *l = lease(&b, "a");
        request.id = 7;
        atomic_store(&refused, 1);
        start_asking(&other, &b, request);
        while (atomic_load(&refused) > 0)
            sched_yield();
        in_state(&b, "b", WEIR_POOL_LOADING);
        if (cancelled)
            ok(weir_pool_cancel(b.pool, 7));
        else
            weir_lease_release(l);
        end_asking(&other);
        assert_int_equal(other.status, cancelled ? WEIR_ERR_CANCELLED : WEIR_OK);
        weir_lease_release(other.lease);
        if (cancelled) {
            wait_for_event(&b, WEIR_POOL_EVENT_STOPPED, 1);
            weir_lease_release(l);
        }
        ok(weir_pool_unload(b.pool, "b", 0, NULL));
    }
    assert_int_equal(b.counts[WEIR_POOL_EVENT_FAILED], 0);
    assert_int_equal(entry_of(&b, "b").failures, 0);
    atomic_store(&refused, 1);
    fails(WEIR_ERR_OUT_OF_MEMORY, use(&b, "b")); /* nothing runs that could end */
    assert_int_equal(entry_of(&b, "b").failures, 1);
    check_books(&b);
}

/* Time ------------------------------------------------------------------------------------------------------------- */

static void who_is_not_asked_for_leaves(void **state)
{
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    (void)state;
    spec.engine = "pool-double";
    spec.suspend_after = 60 * SECOND;
    spec.keep_alive = 600 * SECOND;
    add_spec(&b, spec);
    ok(use(&b, "a"));
    pass(59 * SECOND);
    in_state(&b, "a", WEIR_POOL_LOADED);
    assert_int_equal(entry_of(&b, "a").expires, SECOND);
    ok(use(&b, "a"));
    pass(59 * SECOND);
    in_state(&b, "a", WEIR_POOL_LOADED);
    weir_lease *l = lease(&b, "a");
    pass(600 * SECOND);
    in_state(&b, "a", WEIR_POOL_LOADED);
    assert_true(entry_of(&b, "a").expires == WEIR_POOL_NONE);
    weir_lease_release(l);
    pass(60 * SECOND);
    wait_for_state(&b, "a", WEIR_POOL_SUSPENDED);
    pass(539 * SECOND);
    in_state(&b, "a", WEIR_POOL_SUSPENDED);
    pass(SECOND);
    wait_for_state(&b, "a", WEIR_POOL_UNLOADED);
    assert_int_equal(entry_of(&b, "a").evictions, 0);
    ok(use(&b, "a"));
}

static void how_long_is_said_by_hand(void **state)
{
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    (void)state;
    spec.keep_alive = SECOND;
    add_spec(&b, spec);
    ok(use(&b, "a"));
    ok(weir_pool_keep(b.pool, "a", WEIR_POOL_NONE));
    assert_true(entry_of(&b, "a").expires == WEIR_POOL_NONE);
    pass(10 * SECOND);
    in_state(&b, "a", WEIR_POOL_LOADED);
    ok(weir_pool_keep(b.pool, "a", 30 * SECOND));
    assert_int_equal(entry_of(&b, "a").expires, 20 * SECOND);
    weir_lease *l = lease(&b, "a");
    ok(weir_pool_keep(b.pool, "a", 0));
    in_state(&b, "a", WEIR_POOL_LOADED);
    weir_lease_release(l);
    wait_for_state(&b, "a", WEIR_POOL_UNLOADED);
    assert_int_equal(weir_pool_keep(b.pool, "b", 0), WEIR_ERR_NOT_FOUND);
}

static void who_is_pinned_stays(void **state)
{
    weir_pool_spec spec = spec_of("a", 4 * MIB);
    (void)state;
    spec.keep_alive = SECOND;
    spec.pinned = true;
    add_spec(&b, spec);
    ok(use(&b, "a"));
    pass(10 * SECOND);
    in_state(&b, "a", WEIR_POOL_LOADED);
    ok(weir_pool_pin(b.pool, "a", false));
    wait_for_state(&b, "a", WEIR_POOL_UNLOADED);
}

static void a_deadline_passes(void **state)
{
    asker a;
    weir_pool_request request = request_of("a");
    (void)state;
    add(&b, "a", 4 * MIB);
    weir_lease *l = lease(&b, "a");
    request.id = 1;
    request.wait = 60 * SECOND;
    start_asking(&a, &b, request);
    wait_for_waiting(&b, 1);
    pass(61 * SECOND);
    (void)entry_of(&b, "a"); /* a call sees what time it is */
    end_asking(&a);
    assert_int_equal(a.status, WEIR_ERR_BUSY);
    assert_int_equal(a.answer.cause, WEIR_POOL_TOO_LATE);
    weir_lease_release(l);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_client_is_not_opened),    CASE(the_load_fails_at_once),   CASE(the_load_fails_late),
        CASE(the_first_run_fails),         CASE(a_resume_fails),           CASE(a_load_by_hand_fails),
        CASE(who_is_not_asked_for_leaves), CASE(how_long_is_said_by_hand), CASE(who_is_pinned_stays),
        CASE(a_deadline_passes),           CASE(a_load_waits_for_runs),
    };
    wi_clock = still;
    register_engines();
    return cmocka_run_group_tests_name("pool-faults", tests, NULL, NULL);
}
