/* The growth policy of "mapped": a test for each rule of src/memory/mapped/growth_policy.c. */
#include "core/core.h"
#include "memory/mapped/growth_policy.h"

enum { PAGE = 2 << 20, SECOND = 1000 * 1000 * 1000 };
#define BUDGET (64ULL << 30)

/* A device with so much in use and held, and a budget of 64 GiB. */
static wi_growth_view view_of(uint64_t bytes, unsigned streams)
{
    return (wi_growth_view){.granule = PAGE,
                            .held = bytes,
                            .creatable = (BUDGET - bytes) / PAGE,
                            .in_use = bytes,
                            .peak_in_use = bytes,
                            .stream_lists = streams};
}

static wi_growth_policy begun(unsigned wait_percent)
{
    wi_growth_policy policy;
    wi_growth_begin(&policy, 1, wait_percent, SECOND);
    return policy;
}

/* Regions ---------------------------------------------------------------------------------------------------------- */

static void a_block_stands_with_those_that_live_as_long(void **state)
{
    (void)state;
    const uint64_t small = 16 * KIB, large = small + WI_UNIT;
    assert_int_equal(wi_growth_region(&(wi_placement){.memory_class = WEIR_CLASS_WEIGHTS, .charged = small}),
                     WI_LONG_LIVED);
    assert_int_equal(wi_growth_region(&(wi_placement){.memory_class = WEIR_CLASS_KV, .charged = small}), WI_SMALL);
    assert_int_equal(wi_growth_region(&(wi_placement){.memory_class = WEIR_CLASS_KV, .charged = large}),
                     WI_SHORT_LIVED);
}

static void a_guard_page_is_among_the_short_lived(void **state)
{
    (void)state;
    wi_placement p = {.memory_class = WEIR_CLASS_KV, .charged = WI_UNIT, .guard_page = true};
    assert_int_equal(wi_growth_region(&p), WI_SHORT_LIVED);
    p.memory_class = WEIR_CLASS_WEIGHTS;
    assert_int_equal(wi_growth_region(&p), WI_SHORT_LIVED);
}

static void regions_are_kept_apart_until_the_last_resort(void **state)
{
    (void)state;
    const unsigned *list;
    wi_placement p = {.memory_class = WEIR_CLASS_KV, .charged = MIB};
    assert_int_equal(wi_growth_regions(&p, &list), 1);
    assert_int_equal(list[0], WI_SHORT_LIVED);
    p.growth = WI_GROWTH_LAST_RESORT;
    assert_int_equal(wi_growth_regions(&p, &list), WI_REGIONS);
    p.guard_page = true;
    assert_int_equal(wi_growth_regions(&p, &list), 1);
}

static void small_blocks_may_stand_among_the_short_lived(void **state)
{
    (void)state;
    const unsigned *list;
    wi_placement p = {.memory_class = WEIR_CLASS_KV, .charged = WI_UNIT};
    assert_int_equal(wi_growth_regions(&p, &list), 2);
    assert_int_equal(list[0], WI_SMALL);
    assert_int_equal(list[1], WI_SHORT_LIVED);
}

/* Chunks ----------------------------------------------------------------------------------------------------------- */

static void far_from_the_budget_a_chunk_is_a_share_of_what_is_in_use(void **state)
{
    (void)state;
    wi_growth_view one = view_of(2ULL << 30, 1), several = view_of(8ULL << 30, 2);
    assert_int_equal(wi_growth_chunk(&one, 1) * PAGE, (2ULL << 30) / 64);
    assert_int_equal(wi_growth_chunk(&several, 1) * PAGE, (8ULL << 30) / 512);
}

static void near_the_budget_shared_chunks_make_the_next_ones_shorter(void **state)
{
    (void)state;
    wi_growth_view v = view_of(BUDGET / 2, 1);
    assert_int_equal(wi_growth_chunk(&v, 1), 32); /* a share of the budget is longer than the longest chunk: 64 MiB */
    v = (wi_growth_view){.granule = PAGE, .held = 1ULL << 30, .in_use = 1ULL << 30, .stream_lists = 2};
    v.most_partly = 9;
    uint64_t shared_by_ten = wi_growth_chunk(&v, 1);
    v.creatable = 512; /* the budget is twice as large */
    assert_int_equal(shared_by_ten, 1);
    assert_int_equal(wi_growth_chunk(&v, 1), 2);
    v.most_partly = 0;
    assert_int_equal(wi_growth_chunk(&v, 1), 2); /* never more than 1/512 of it */
    v.most_partly = 19;
    assert_int_equal(wi_growth_chunk(&v, 1), 1);
}

static void one_request_is_made_of_few_parts_but_for_several_streams(void **state)
{
    (void)state;
    wi_growth_view v = view_of(BUDGET / 2, 1);
    v.most_partly = 1000;
    assert_int_equal(wi_growth_chunk(&v, 1), 1);
    assert_int_equal(wi_growth_chunk(&v, 64 * 4), 4);
    assert_int_equal(wi_growth_chunk(&v, 64 * 4000), 32);
    v.stream_lists = 2;
    assert_int_equal(wi_growth_chunk(&v, 64 * 4), 1);
}

static void a_chunk_is_never_longer_than_64_mib_nor_shorter_than_a_granule(void **state)
{
    (void)state;
    wi_growth_view v = view_of(BUDGET / 8, 1);
    assert_int_equal(wi_growth_chunk(&v, 1) * PAGE, 64 * MIB);
    v = view_of(0, 1);
    assert_int_equal(wi_growth_chunk(&v, 1), 1);
}

static void long_lived_chunks_are_longer(void **state)
{
    (void)state;
    wi_growth_view v = view_of(BUDGET / 2, 1);
    assert_int_equal(wi_growth_long_chunk(&v, 1) * PAGE, 256 * MIB);
    v.most_partly = 1000;
    v.stream_lists = 2;
    assert_int_equal(wi_growth_long_chunk(&v, 1) * PAGE, 256 * MIB);
    v = view_of(0, 1);
    v.creatable = 640 * 20; /* a share of the budget is 200 MiB, and a power of two 128 */
    assert_int_equal(wi_growth_long_chunk(&v, 1), 64);
    v = (wi_growth_view){.granule = PAGE, .held = 64ULL * PAGE, .creatable = 511 - 64, .in_use = 64ULL * PAGE};
    assert_int_equal(wi_growth_long_chunk(&v, 1), 1);
    v.creatable++;
    assert_int_equal(wi_growth_long_chunk(&v, 1), 4);
}

static void long_lengths_have_steps(void **state)
{
    (void)state;
    static const uint64_t steps[][2] = {{1, 1},   {16, 16}, {17, 16}, {19, 16},   {20, 20},   {31, 28},
                                        {32, 32}, {39, 32}, {40, 40}, {127, 112}, {128, 128}, {1000, 128}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        assert_int_equal(wi_growth_step(PAGE, 128, steps[i][0]), steps[i][1]);
    assert_int_equal(wi_growth_step(PAGE, 19, 1000), 16);
    assert_int_equal(wi_growth_step(64ULL << 20, 2, 3), 2); /* a device with long granules */
    assert_int_equal(wi_growth_step(64ULL << 20, 2, 1), 1);
}

/* Moves ------------------------------------------------------------------------------------------------------------ */

static void near_the_budget_all_of_it_may_be_created(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(0);
    wi_growth_view v = view_of(BUDGET / 2, 1);
    assert_int_equal(wi_growth_soft_limit(&policy, &v, MIB), v.creatable);
}

static void far_from_it_little_more_than_the_peak_may_be_held(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(0);
    wi_growth_view v = view_of(1000ULL * PAGE, 1);
    v.in_use = 0;
    assert_int_equal(wi_growth_soft_limit(&policy, &v, PAGE), 30); /* 3 % */
    v.held += 30ULL * PAGE;
    assert_int_equal(wi_growth_soft_limit(&policy, &v, PAGE), 0);
}

static void what_a_request_adds_to_the_peak_may_be_created(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(0);
    wi_growth_view v = view_of(1000ULL * PAGE, 1);
    assert_int_equal(wi_growth_soft_limit(&policy, &v, 1000ULL * PAGE), 1060);
}

static void without_tokens_more_may_be_held(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(0);
    wi_growth_view v = view_of(1000ULL * PAGE, 1);
    v.in_use = 0;
    policy.move_tokens = 2000;
    assert_int_equal(wi_growth_soft_limit(&policy, &v, PAGE), 30);
    policy.move_tokens = 1999;
    assert_int_equal(wi_growth_soft_limit(&policy, &v, PAGE), 90); /* 9 % */
    policy.excess_moves = 2 * 1024;
    assert_int_equal(wi_growth_soft_limit(&policy, &v, PAGE), 110); /* a percent for each 1,024 */
}

static void a_move_costs_what_two_thousand_allocations_earn(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(0);
    const uint64_t first = policy.move_tokens;
    wi_growth_pay(&policy);
    wi_growth_pay(&policy);
    assert_int_equal(policy.move_tokens, first - 4000);
    wi_growth_earn(&policy, 2000);
    assert_int_equal(policy.move_tokens, first - 2000);
    wi_growth_earn(&policy, 2000); /* the same ones again */
    assert_int_equal(policy.move_tokens, first - 2000);
}

static void tokens_are_all_there_at_first_and_do_not_fall_below_none(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(0);
    assert_int_equal(policy.move_tokens, 256000);
    wi_growth_earn(&policy, 1000 * 1000);
    assert_int_equal(policy.move_tokens, 256000);
    for (int i = 0; i < 1000; i++)
        wi_growth_pay(&policy);
    assert_int_equal(policy.move_tokens, 0);
}

static void a_move_every_sixteen_allocations_leaves_no_excess(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(0);
    uint64_t allocations = 0;
    for (int i = 0; i < 100; i++) {
        wi_growth_pay(&policy);
        wi_growth_earn(&policy, allocations += 16);
    }
    assert_int_equal(policy.excess_moves, 0);
    for (int i = 0; i < 100; i++) {
        wi_growth_pay(&policy);
        wi_growth_earn(&policy, allocations += 6);
    }
    assert_int_equal(policy.excess_moves, 100 * 10);
    for (int i = 0; i < 100 * 1000; i++)
        wi_growth_pay(&policy);
    assert_int_equal(policy.excess_moves, 100 * 1024);
}

enum { MILLISECOND = 1000 * 1000 };

/* A batch that begins at *at and takes so many nanoseconds. */
static void move(wi_growth_policy *policy, uint64_t *at, uint64_t takes)
{
    uint64_t start = *at;
    *at += takes;
    wi_growth_pay_time(policy, start, *at);
}

static wi_growth_policy without_saved_time(void)
{
    wi_growth_policy policy = begun(0);
    policy.move_saved = 0;
    return policy;
}

static void time_for_moves_beyond_their_share_raises_the_bound(void **state)
{
    (void)state;
    wi_growth_policy policy = without_saved_time();
    wi_growth_view v = view_of(1000ULL * PAGE, 1);
    v.in_use = 0;
    v.stream_lists = 2;
    uint64_t at = policy.move_at;
    move(&policy, &at, 0);
    assert_int_equal(wi_growth_soft_limit(&policy, &v, PAGE), 30);
    for (int i = 0; i < 2; i++)
        move(&policy, &at, MILLISECOND);
    assert_int_equal(wi_growth_soft_limit(&policy, &v, PAGE), 50); /* a percent for each millisecond */
    v.stream_lists = 1;
    assert_int_equal(wi_growth_soft_limit(&policy, &v, PAGE), 30); /* of several streams alone */
    v.stream_lists = 2;
    for (int i = 0; i < 1000; i++)
        move(&policy, &at, MILLISECOND);
    assert_int_equal(wi_growth_soft_limit(&policy, &v, PAGE), 530); /* at most half as much again */
}

static void a_debt_is_paid_off_by_a_hundredth_of_the_time(void **state)
{
    (void)state;
    wi_growth_policy policy = without_saved_time();
    uint64_t at = policy.move_at;
    move(&policy, &at, 3ULL * MILLISECOND);
    assert_int_equal(policy.move_debt, 3 * MILLISECOND);
    at += 100ULL * MILLISECOND;
    move(&policy, &at, 0);
    assert_int_equal(policy.move_debt, 2 * MILLISECOND);
    at += 1000ULL * MILLISECOND;
    move(&policy, &at, MILLISECOND); /* 10 were earned: 2 pay the debt, 1 the batch */
    assert_int_equal(policy.move_debt, 0);
    assert_int_equal(policy.move_saved, 7 * MILLISECOND);
}

static void time_for_moves_is_saved_up_to_two_seconds_share(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(0);
    uint64_t at = policy.move_at;
    move(&policy, &at, 19ULL * MILLISECOND);
    assert_int_equal(policy.move_saved, MILLISECOND);
    at += 1000ULL * SECOND;
    move(&policy, &at, 0);
    assert_int_equal(policy.move_saved, 20 * MILLISECOND);
    assert_int_equal(policy.move_debt, 0);
    policy.move_percent = 0;
    move(&policy, &at, SECOND); /* does not count */
    assert_int_equal(policy.move_debt, 0);
}

static void holes_are_filled_for_at_most_a_quarter_more(void **state)
{
    (void)state;
    assert_int_equal(wi_growth_fill(8), 10);
    assert_int_equal(wi_growth_fill(3), 3);
}

/* Waits ------------------------------------------------------------------------------------------------------------ */

static void only_a_request_that_could_grow_and_may_wait_waits(void **state)
{
    (void)state;
    int stream;
    const wi_placement able = {.may_wait = true, .native = &stream};
    assert_true(wi_growth_may_wait(&able, 1));
    assert_false(wi_growth_may_wait(&able, 0));
    wi_placement not [6] = {able, able, able, able, able, able};
    not [0].may_wait = false;
    not [1].native = NULL;
    not [2].thread_bound = true;
    not [3].guard_page = true;
    not [4].growth = WI_GROWTH_NONE;
    not [5].growth = WI_GROWTH_LAST_RESORT;
    for (size_t i = 0; i < 6; i++)
        assert_false(wi_growth_may_wait(&not [i], 1));
}

static void a_request_waits_ten_milliseconds_at_most(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(2);
    assert_int_equal(wi_growth_wait_until(&policy, SECOND, UINT64_MAX), SECOND + SECOND / 100);
    assert_int_equal(wi_growth_wait_until(&policy, SECOND, 7), SECOND + 7);
    policy.wait_left = 5;
    assert_int_equal(wi_growth_wait_until(&policy, SECOND, 7), SECOND + 5);
}

static void waits_take_a_share_of_the_time(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(2);
    wi_growth_pay_wait(&policy, SECOND);
    assert_int_equal(policy.wait_left, 0);
    wi_growth_earn_wait(&policy, 2ULL * SECOND);
    assert_int_equal(policy.wait_left, SECOND / 50);
    wi_growth_earn_wait(&policy, 2ULL * SECOND); /* the same second again */
    assert_int_equal(policy.wait_left, SECOND / 50);
    wi_growth_earn_wait(&policy, 1000ULL * SECOND);
    assert_int_equal(policy.wait_left, SECOND / 10);
}

static void without_a_share_nothing_is_waited_for(void **state)
{
    (void)state;
    wi_growth_policy policy = begun(0);
    wi_growth_earn_wait(&policy, 1000ULL * SECOND);
    assert_int_equal(wi_growth_wait_until(&policy, SECOND, UINT64_MAX), SECOND);
}

/* The device ------------------------------------------------------------------------------------------------------- */

static void a_device_is_believed_when_it_has_less_than_was_asked_for(void **state)
{
    (void)state;
    assert_int_equal(wi_growth_device_has(3, 8), 3);
    assert_int_equal(wi_growth_device_has(8, 8), 4);
    assert_int_equal(wi_growth_device_has(100, 8), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_stands_with_those_that_live_as_long),
        cmocka_unit_test(a_guard_page_is_among_the_short_lived),
        cmocka_unit_test(regions_are_kept_apart_until_the_last_resort),
        cmocka_unit_test(small_blocks_may_stand_among_the_short_lived),
        cmocka_unit_test(far_from_the_budget_a_chunk_is_a_share_of_what_is_in_use),
        cmocka_unit_test(near_the_budget_shared_chunks_make_the_next_ones_shorter),
        cmocka_unit_test(one_request_is_made_of_few_parts_but_for_several_streams),
        cmocka_unit_test(a_chunk_is_never_longer_than_64_mib_nor_shorter_than_a_granule),
        cmocka_unit_test(long_lived_chunks_are_longer),
        cmocka_unit_test(long_lengths_have_steps),
        cmocka_unit_test(near_the_budget_all_of_it_may_be_created),
        cmocka_unit_test(far_from_it_little_more_than_the_peak_may_be_held),
        cmocka_unit_test(what_a_request_adds_to_the_peak_may_be_created),
        cmocka_unit_test(without_tokens_more_may_be_held),
        cmocka_unit_test(a_move_costs_what_two_thousand_allocations_earn),
        cmocka_unit_test(tokens_are_all_there_at_first_and_do_not_fall_below_none),
        cmocka_unit_test(a_move_every_sixteen_allocations_leaves_no_excess),
        cmocka_unit_test(time_for_moves_beyond_their_share_raises_the_bound),
        cmocka_unit_test(a_debt_is_paid_off_by_a_hundredth_of_the_time),
        cmocka_unit_test(time_for_moves_is_saved_up_to_two_seconds_share),
        cmocka_unit_test(holes_are_filled_for_at_most_a_quarter_more),
        cmocka_unit_test(only_a_request_that_could_grow_and_may_wait_waits),
        cmocka_unit_test(a_request_waits_ten_milliseconds_at_most),
        cmocka_unit_test(waits_take_a_share_of_the_time),
        cmocka_unit_test(without_a_share_nothing_is_waited_for),
        cmocka_unit_test(a_device_is_believed_when_it_has_less_than_was_asked_for),
    };
    return cmocka_run_group_tests_name("growth policy", tests, NULL, NULL);
}
