/* A pool on a device of which other processes take memory: idle models leave, and come back by use when the others have gone. */
#include "pool/bed.h"

#include <weir/outside.h>

enum { TOTAL = 256 << 20, OWN = 128 << 20, RESERVE = 16 << 20, WEIGHTS = 24 << 20 };

/* What the others have, and the runtime whose memory is counted. */
static atomic_uint_fast64_t others_have;
static weir_runtime *counted;

static uint64_t held(void)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    return counted && weir_snapshot(counted, &stats, NULL, 0, NULL) == WEIR_OK ? stats.held : 0;
}

bool __wrap_wi_cgroup_memory(const char *root, uint64_t *available, uint64_t *total);
bool __wrap_wi_cgroup_memory(const char *root, uint64_t *available, uint64_t *total)
{
    (void)root;
    uint64_t used = atomic_load(&others_have) + held();
    *total = TOTAL;
    *available = used < TOTAL ? TOTAL - used : 0;
    return true;
}

static void leave(uint64_t available)
{
    atomic_store(&others_have, TOTAL - held() - available);
}

static weir_outside look(void)
{
    weir_outside now = WEIR_INIT(weir_outside);
    ok(weir_outside_look(counted, &now));
    return now;
}

static void begin(bed *b)
{
    weir_outside_options options = {.struct_size = sizeof options, .reserve = RESERVE, .by_hand = true};
    reset_engine();
    atomic_store(&others_have, 0);
    counted = NULL;
    make_bed(b, OWN, NULL);
    counted = b->runtime;
    ok(weir_outside_watch(b->runtime, &options));
    const char *const names[] = {"one", "two"};
    for (int i = 0; i < 2; i++) {
        weir_pool_spec spec = spec_of(names[i], WEIGHTS);
        spec.minimum_stay = WEIR_POOL_NONE;
        add_spec(b, spec);
        ok(use(b, names[i]));
    }
}

/* Looks until it is so; the pool's threads have models leave. */
static void look_until_nothing_lacks(void)
{
    while (look().lacks > 0)
        sched_yield();
}

static void idle_models_leave_for_others(void **state)
{
    (void)state;
    bed b;
    begin(&b);
    leave(0);
    look_until_nothing_lacks();
    weir_pool_entry one = entry_of(&b, "one"), two = entry_of(&b, "two");
    assert_int_equal(one.suspends + one.evictions + two.suspends + two.evictions, 1); /* one is enough */
    weir_pool_usage usage = WEIR_INIT(weir_pool_usage);
    ok(weir_pool_usage_info(b.pool, 0, &usage));
    assert_true(usage.ceiling <= 2 * (uint64_t)WEIGHTS - RESERVE);
    atomic_store(&others_have, 0);
    ok(use(&b, "one")); /* though no look has found the others gone */
    ok(use(&b, "two"));
    assert_int_equal(runtime_details(b.runtime).budget, OWN);
    counted = NULL;
    end_bed(&b);
}

static void what_is_leased_stays(void **state)
{
    (void)state;
    bed b;
    begin(&b);
    weir_lease *one = lease(&b, "one"), *two = lease(&b, "two");
    leave(0);
    weir_yield_options options = {.struct_size = sizeof options, .bytes = WEIGHTS, .wait = 1};
    weir_yielded done = WEIR_INIT(weir_yielded);
    ok(weir_yield(b.runtime, &options, &done));
    assert_true(done.lacks > WEIGHTS);
    assert_true(done.live >= 2 * (uint64_t)WEIGHTS);
    infer_in(one);
    weir_lease_release(one);
    weir_lease_release(two);
    look_until_nothing_lacks();
    counted = NULL;
    end_bed(&b);
}

/* The call waits for the pool's threads. */
static void one_call_has_models_leave(void **state)
{
    (void)state;
    bed b;
    begin(&b);
    leave(RESERVE);
    weir_yield_options options = {.struct_size = sizeof options, .bytes = WEIGHTS / 2, .wait = 600 * SECOND};
    weir_yielded done = WEIR_INIT(weir_yielded);
    ok(weir_yield(b.runtime, &options, &done));
    assert_int_equal(done.lacks, 0);
    assert_true(done.given >= WEIGHTS / 2);
    counted = NULL;
    end_bed(&b);
}

int main(void)
{
    register_engines();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_models_leave_for_others),
        cmocka_unit_test(what_is_leased_stays),
        cmocka_unit_test(one_call_has_models_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
