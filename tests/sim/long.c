/* The long ones: 1e8 random steps, and every pair of faults. */
#include "scenario.h"

static void a_hundred_million_steps(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        simulate_options o;
        simulate_defaults(&o);
        o.steps = steps_here(10000000);
        o.world.seed = seed * 7919;
        o.world.budget = (16 + 24 * seed) * WI_MIB;
        o.world.device = 2048 * WI_MIB;
        o.world.streams = (unsigned)(8 + seed);
        find_nothing(&o);
    }
}

static void every_pair_of_faults(void **state)
{
    (void)state;
    world_options options = scenario_world();
    step steps[SCENARIO_STEPS];
    size_t count;
    uint64_t calls = write_scenario(&options, steps, &count), stride = steps_here(20) < 20 ? 7 : 1;
    for (uint64_t first = 0; first < calls; first += stride)
        for (uint64_t second = first + 1; second < calls + 10; second += stride) {
            options.first = (wi_sim_fault){WI_SIM_CALLS, (long)first, false, WEIR_DRIVER};
            options.second = (wi_sim_fault){WI_SIM_CALLS, (long)second, false, WEIR_DRIVER};
            run_with_faults(&options, steps, count);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_million_steps),
        cmocka_unit_test(every_pair_of_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
