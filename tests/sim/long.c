/* 1e8 random steps, and a tenth of them where the invariants are executed, which takes as long. */
#include "sim.h"

#ifdef WEIR_INVARIANTS
enum { SHARE = 10 };
#else
enum { SHARE = 1 };
#endif

static void a_hundred_million_steps(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        simulate_options o;
        simulate_defaults(&o);
        o.steps = steps_here(10000000 / SHARE);
        o.world.seed = seed * 7919;
        o.world.budget = (16 + 24 * seed) * WI_MIB;
        o.world.device = 2048 * WI_MIB;
        o.world.streams = (unsigned)(8 + seed);
        find_nothing(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_million_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
