/* A fault at every driver call of a scenario, in every stack of resources: each call once, some once and for all, a device
 * that is full, and some of the pairs. Nothing that the oracle forbids happens, the book stays exact, nothing is left. */
#include "scenario.h"

static const wi_sim_fault none = {.at = -1};

static void fail_each(const scenario *s)
{
    for (uint64_t at = 0; at < s->calls + 20; at++)
        run_with_faults(s, fault_at(at), none);
}

static void every_call_fails_once(void **state)
{
    (void)state;
    for_all_stacks(fail_each);
}

static void break_from_some(const scenario *s)
{
    for (uint64_t at = 0; at < s->calls; at += 11)
        run_with_faults(s, (wi_sim_fault){WI_SIM_CALLS, (long)at, true, WEIR_ERR_DRIVER}, none);
}

static void the_driver_stays_broken(void **state)
{
    (void)state;
    for_all_stacks(break_from_some);
}

static void fill_up(const scenario *s)
{
    static const wi_sim_call kinds[] = {WI_SIM_CREATE, WI_SIM_ALLOCATE, WI_SIM_POOL_ALLOCATE};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (long at = 0; at < 30; at += 5)
            run_with_faults(s, (wi_sim_fault){kinds[k], at, true, WEIR_ERR_OUT_OF_MEMORY}, none);
}

static void the_device_is_full(void **state)
{
    (void)state;
    for_all_stacks(fill_up);
}

/* The others are in the long tests. */
static void fail_some_pairs(const scenario *s)
{
    uint64_t pairs = 0;
    for (uint64_t first = 0; first < s->calls; first++)
        for (uint64_t second = first + 1; second < s->calls + 10; second++)
            if (pairs++ % 499 == 0)
                run_with_faults(s, fault_at(first), fault_at(second));
}

static void some_pairs_of_calls_fail(void **state)
{
    (void)state;
    for_all_stacks(fail_some_pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(the_driver_stays_broken),
        cmocka_unit_test(the_device_is_full),
        cmocka_unit_test(some_pairs_of_calls_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
