/* Every defect that can be planted is found within 1e5 steps, whatever the seed, in every stack of resources where it can
 * be made, and its script shows it again. With WEIR_TEST_LONG there are more seeds, and more scripts are made shorter. */
#include "sim.h"

typedef struct effort {
    unsigned seeds, few_seeds, shrunk; /* the latter: of the seeds the first ones */
} effort;

static effort effort_here(void)
{
    return getenv("WEIR_TEST_LONG") ? (effort){20, 3, 3} : (effort){5, 1, 2};
}

enum { LONG_ONES = 1 };
enum { LONG_SCRIPT = 30, LONG_ELSEWHERE = 60 }; /* the driver's pool may have to be filled before it serves again */

/* Of a client that is suspended most steps cost a hundred times as much, and few of a long script can be tried: how short it
 * becomes is not asked. residency.c has short ones, written by hand. */
static bool is_slow(wi_bug defect)
{
    return defect == WI_BUG_LEAVE_EARLY || defect == WI_BUG_ARRIVE_LATE;
}

/* Answers whether the script is long although it was made shorter: where a finding takes steps within steps, few of them can
 * go. */
static bool find_with_seed(wi_bug defect, const char *resource, uint64_t seed, bool shrunk)
{
    simulate_options o;
    simulate_result r, again;
    simulate_defaults(&o);
    o.steps = 100000;
    o.plant = defect;
    o.world.seed = seed;
    o.world.resource = resource;
    o.shrink_steps = !shrunk ? 0 : is_slow(defect) ? 50000 : 2000000;
    assert_true(simulate(&o, &r));
    if (r.found.violations == 0)
        fail_msg("%s is not found in %s with seed %llu", defect_name(defect), resource, (unsigned long long)seed);
    assert_int_equal(r.found.count[ORACLE_USER], 0);
    assert_non_null(r.script);
    bool is_long =
        shrunk && !is_slow(defect) && r.script_steps > (strcmp(resource, "mapped") == 0 ? LONG_SCRIPT : LONG_ELSEWHERE);
    o.script = r.script;
    assert_true(simulate(&o, &again));
    assert_true(again.found.violations > 0);
    assert_int_equal(again.plant, defect);
    assert_string_equal(again.parts[0].resource, resource);
    assert_string_equal(again.found.first, r.found.first);
    free(r.script);
    return is_long;
}

/* Memory is unmapped, and clients are suspended, by "mapped" alone. A guard takes a block that is resized for its own, which the freed ones are not. */
static bool applies(wi_bug defect, const char *resource)
{
    return defect != WI_BUG_UNMAP_UNDER_USE && defect != WI_BUG_LEAVE_EARLY && defect != WI_BUG_ARRIVE_LATE &&
           (defect != WI_BUG_FREE_UNDER_USE || !strstr(resource, "guard"));
}

static void find_planted(wi_bug defect)
{
    effort e = effort_here();
    unsigned long_ones = 0;
    for (uint64_t seed = 1; seed <= e.seeds; seed++)
        long_ones += find_with_seed(defect, "mapped", seed, seed <= e.shrunk);
    assert_true(long_ones <= LONG_ONES);
    for (size_t i = 1; simulate_stack(i); i++)
        for (uint64_t seed = 1; applies(defect, simulate_stack(i)) && seed <= e.few_seeds; seed++)
            assert_false(find_with_seed(defect, simulate_stack(i), seed, seed == 1));
}

static void early_reuse(void **state)
{
    (void)state;
    find_planted(WI_BUG_EARLY_REUSE);
}

static void drop_wait(void **state)
{
    (void)state;
    find_planted(WI_BUG_DROP_WAIT);
}

static void unmap_under_use(void **state)
{
    (void)state;
    find_planted(WI_BUG_UNMAP_UNDER_USE);
}

static void lost_reader(void **state)
{
    (void)state;
    find_planted(WI_BUG_LOST_READER);
}

static void free_under_use(void **state)
{
    (void)state;
    find_planted(WI_BUG_FREE_UNDER_USE);
}

static void leave_early(void **state)
{
    (void)state;
    find_planted(WI_BUG_LEAVE_EARLY);
}

static void arrive_late(void **state)
{
    (void)state;
    find_planted(WI_BUG_ARRIVE_LATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early_reuse), cmocka_unit_test(drop_wait),      cmocka_unit_test(unmap_under_use),
        cmocka_unit_test(lost_reader), cmocka_unit_test(free_under_use), cmocka_unit_test(leave_early),
        cmocka_unit_test(arrive_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
