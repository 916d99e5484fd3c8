/* A fault at every driver call of a scenario: each call once, once and for all, and as a device that is full. Nothing that
 * the oracle forbids happens, the book stays exact, nothing is left. */
#include "scenario.h"

static void each(weir_status status, wi_sim_call kind, bool stay)
{
    world_options options = scenario_world();
    step steps[SCENARIO_STEPS];
    size_t count;
    uint64_t calls = write_scenario(&options, steps, &count);
    assert_in_range(calls, SCENARIO_CALLS / 2, SCENARIO_CALLS);
    for (uint64_t at = 0; at < calls + 40; at++) {
        options.first = (wi_sim_fault){kind, (long)at, stay, status};
        run_with_faults(&options, steps, count);
    }
}

static void every_call_fails_once(void **state)
{
    (void)state;
    each(WEIR_DRIVER, WI_SIM_CALLS, false);
}

static void the_driver_stays_broken(void **state)
{
    (void)state;
    each(WEIR_DRIVER, WI_SIM_CALLS, true);
}

static void the_device_is_full(void **state)
{
    (void)state;
    each(WEIR_OUT_OF_MEMORY, WI_SIM_CREATE, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(the_driver_stays_broken),
        cmocka_unit_test(the_device_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
