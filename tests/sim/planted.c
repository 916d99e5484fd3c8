/* Every defect that can be planted is found within 1e5 steps, whatever the seed, and its script shows it again. */
#include "sim.h"

enum { SEEDS = 20, SHRUNK = 4 };

static void find_planted(wi_defect defect)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        simulate_options o;
        simulate_result r, again;
        simulate_defaults(&o);
        o.steps = 100000;
        o.plant = defect;
        o.world.seed = seed;
        o.shrink_seconds = seed <= SHRUNK ? 60 : 0;
        assert_true(simulate(&o, &r));
        if (r.found.violations == 0)
            fail_msg("%s is not found with seed %llu", defect_name(defect), (unsigned long long)seed);
        assert_int_equal(r.found.count[ORACLE_USER], 0);
        assert_non_null(r.script);
        if (seed <= SHRUNK && r.script_steps > 30)
            fail_msg("the script of %s with seed %llu is long:\n%s", defect_name(defect), (unsigned long long)seed,
                     r.script);
        o.script = r.script;
        assert_true(simulate(&o, &again));
        assert_true(again.found.violations > 0);
        assert_int_equal(again.plant, defect);
        assert_string_equal(again.found.first, r.found.first);
        free(r.script);
    }
}

static void early_reuse(void **state)
{
    (void)state;
    find_planted(WI_PLANT_EARLY_REUSE);
}

static void drop_wait(void **state)
{
    (void)state;
    find_planted(WI_PLANT_DROP_WAIT);
}

static void unmap_under_use(void **state)
{
    (void)state;
    find_planted(WI_PLANT_UNMAP_UNDER_USE);
}

static void lost_reader(void **state)
{
    (void)state;
    find_planted(WI_PLANT_LOST_READER);
}

static void free_under_use(void **state)
{
    (void)state;
    find_planted(WI_PLANT_FREE_UNDER_USE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early_reuse), cmocka_unit_test(drop_wait),      cmocka_unit_test(unmap_under_use),
        cmocka_unit_test(lost_reader), cmocka_unit_test(free_under_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
