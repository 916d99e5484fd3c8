/* The bin of a charge in a thread cache: each small charge has its own, and what shares one stays among those that are shared. */
#include "core/core.h"
#include "runtime/thread_cache/thread_cache.h"

static ptrdiff_t place_of(wi_tcache *cache, uint64_t charged)
{
    return wi_tcache_bin_of(cache, charged) - cache->bins;
}

static void each_small_charge_has_its_own(void **state)
{
    wi_tcache *cache = *state;
    for (uint64_t units = 1; units <= WI_TCACHE_SMALL_BINS; units++)
        assert_int_equal(place_of(cache, units * WI_UNIT), units - 1);
}

static void is_shared(wi_tcache *cache, uint64_t charged)
{
    ptrdiff_t place = place_of(cache, charged);
    assert_true(place >= WI_TCACHE_SMALL_BINS && place < WI_TCACHE_BINS);
}

static void larger_ones_share(void **state)
{
    for (uint64_t charged = WI_TCACHE_SMALL + WI_UNIT; charged < UINT64_MAX / 4;
         charged += charged / 7 / WI_UNIT * WI_UNIT)
        is_shared(*state, charged);
}

/* Whoever frees a block for the second time may look at its record while the first free empties it. */
static void no_charge_has_a_bin_that_takes_nothing(void **state)
{
    is_shared(*state, 0);
    assert_int_equal(wi_tcache_bin_of(*state, 0)->most, 0);
}

static void two_that_share_have_a_bin_each(void **state)
{
    wi_tcache *cache = *state;
    const uint64_t first = 100 * KIB;
    uint64_t second = first;
    wi_tcache_bin *bin = wi_tcache_bin_of(cache, first);
    *bin = (wi_tcache_bin){.charged = first, .count = 1, .most = 2};
    do
        second += WI_UNIT;
    while (place_of(cache, second) / 2 != (bin - cache->bins) / 2);
    wi_tcache_bin *other = wi_tcache_bin_of(cache, second);
    assert_ptr_not_equal(other, bin);
    other->charged = second;
    assert_ptr_equal(wi_tcache_bin_of(cache, first), bin);
    assert_ptr_equal(wi_tcache_bin_of(cache, second), other);
}

static int set_up(void **state)
{
    *state = calloc(1, sizeof(wi_tcache));
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(each_small_charge_has_its_own),
        test(larger_ones_share),
        test(no_charge_has_a_bin_that_takes_nothing),
        test(two_that_share_have_a_bin_each),
    };
    return cmocka_run_group_tests_name("bins", tests, NULL, NULL);
}
