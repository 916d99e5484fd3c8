/* Every pair of faults, in every stack of resources. */
#include "scenario.h"

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
        cmocka_unit_test(every_pair_of_calls_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
