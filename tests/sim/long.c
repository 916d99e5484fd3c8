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

static void fail_pairs(const scenario *s)
{
    uint64_t stride = steps_here(20) < 20 ? 7 : 1;
    for (uint64_t first = 0; first < s->calls; first += stride)
        for (uint64_t second = first + 1; second < s->calls + 10; second += stride)
            run_with_faults(s, fault_at(first), fault_at(second));
}

static void every_pair_of_calls_fails(void **state)
{
    (void)state;
    for_all_stacks(fail_pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_million_steps),
        cmocka_unit_test(every_pair_of_calls_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
