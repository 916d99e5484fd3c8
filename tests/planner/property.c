/* Random lists: every plan is checked by the library's checker and by brute force here, proven ones against all orders
 * of placement. */
#include "info.h"
#include "planner/random.h"
#include <weir/plan.h>

typedef struct placed {
    uint64_t begin, end, low, high;
} placed;

/* Whether any two storages share bytes in a step; looks at all pairs. Lists without views and in-place pairs. */
static bool any_overlap(const weir_plan *plan, const weir_buffers *list)
{
    uint32_t count = list_details(list).count;
    placed *all = calloc(count, sizeof *all);
    bool overlap = false;
    for (uint32_t i = 0; i < count; i++) {
        weir_buffer b = WEIR_INIT(weir_buffer);
        ok(weir_buffer_info(list, i, &b));
        all[i] = (placed){b.begin, b.end, offset_of(plan, i), offset_of(plan, i) + b.bytes};
        for (uint32_t j = 0; j < i; j++)
            overlap |=
                all[j].begin < b.end && b.begin < all[j].end && all[j].low < all[i].high && all[i].low < all[j].high;
    }
    free(all);
    return overlap;
}

static uint64_t most_live(const weir_buffers *list)
{
    uint64_t most = 0;
    for (uint64_t step = 0; step < list_details(list).steps; step++) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < list_details(list).count; i++) {
            weir_buffer b = WEIR_INIT(weir_buffer);
            ok(weir_buffer_info(list, i, &b));
            live += b.begin <= step && step < b.end ? b.bytes : 0;
        }
        most = live > most ? live : most;
    }
    return most;
}

static void random_lists_are_planned_without_overlap(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < rounds(60); round++) {
        weir_buffers *list = random_list(&seed, 1 + (int)roll(&seed, 60), 2 + roll(&seed, 40), 1 + roll(&seed, 50));
        weir_plan_options options = WEIR_INIT(weir_plan_options);
        options.effort = 1 + roll(&seed, 20000);
        options.mode = round % 5 == 0 ? WEIR_PLAN_QUICK : WEIR_PLAN_SEARCH;
        weir_plan *plan, *again;
        ok(weir_plan_create(list, &options, &plan));
        ok(weir_plan_check(plan, list));
        assert_false(any_overlap(plan, list));
        weir_plan_details s = summary_of(plan);
        assert_int_equal(s.lower_bound, most_live(list));
        assert_true(s.arena >= s.lower_bound);
        assert_true(s.proven || s.arena > s.lower_bound);
        ok(weir_plan_create(list, &options, &again));
        for (uint32_t i = 0; i < list_details(list).count; i++)
            assert_int_equal(offset_of(plan, i), offset_of(again, i));
        weir_plan_destroy(again);
        weir_plan_destroy(plan);
        weir_buffers_destroy(list);
    }
}

/* The least arena of all orders in which each buffer goes into the lowest gap: some order gives the optimum. */
typedef struct orders {
    weir_buffer *buffers;
    uint64_t *offsets;
    bool *done;
    int count;
    uint64_t least, bound;
} orders;

static uint64_t lowest(const orders *o, int i)
{
    uint64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int j = 0; j < o->count; j++)
            if (o->done[j] && o->buffers[j].begin < o->buffers[i].end && o->buffers[i].begin < o->buffers[j].end &&
                o->offsets[j] < at + o->buffers[i].bytes && at < o->offsets[j] + o->buffers[j].bytes) {
                at = o->offsets[j] + o->buffers[j].bytes;
                moved = true;
            }
    }
    return at;
}

static void try_orders(orders *o, int placed_so_far, uint64_t height)
{
    if (height >= o->least || o->least == o->bound)
        return;
    if (placed_so_far == o->count) {
        o->least = height;
        return;
    }
    for (int i = 0; i < o->count; i++) {
        if (o->done[i])
            continue;
        o->offsets[i] = lowest(o, i);
        uint64_t top = o->offsets[i] + o->buffers[i].bytes;
        o->done[i] = true;
        try_orders(o, placed_so_far + 1, top > height ? top : height);
        o->done[i] = false;
    }
}

static uint64_t optimum(const weir_buffers *list)
{
    enum { MOST = 10 };
    weir_buffer buffers[MOST];
    uint64_t offsets[MOST];
    bool done[MOST] = {false};
    orders o = {buffers, offsets, done, (int)list_details(list).count, UINT64_MAX, 0};
    for (int i = 0; i < o.count; i++) {
        buffers[i] = WEIR_INIT(weir_buffer);
        ok(weir_buffer_info(list, (uint32_t)i, &buffers[i]));
    }
    o.bound = most_live(list);
    try_orders(&o, 0, 0);
    return o.least;
}

static void small_lists_reach_the_optimum(void **state)
{
    (void)state;
    uint64_t seed = 905;
    int above = 0;
    for (int round = 0; round < rounds(1500); round++) {
        weir_buffers *list = full_list(&seed, 9, 5, 3);
        if (list_details(list).count <= 10) {
            weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
            weir_plan_details s = summary_of(plan);
            assert_true(s.proven);
            assert_int_equal(s.arena, optimum(list));
            above += s.arena > s.lower_bound;
            weir_plan_destroy(plan);
        }
        weir_buffers_destroy(list);
    }
    assert_true(above > 0); /* the search had to prove that the bound cannot be reached */
}

/* Cuts a rectangle of steps and bytes into pieces, which fit together again in one way at least, and loses some. */
static void dissect(weir_buffers *list, uint64_t *seed, uint64_t begin, uint64_t end, uint64_t height, int depth)
{
    uint64_t width = end - begin;
    bool across = roll(seed, 2) && height > 1;
    if (depth == 0 || (width == 1 && !across)) {
        if (begin == 0 || roll(seed, 4)) /* the first step stays full, others get room to spare */
            (void)add(list, begin, end, height);
    } else if (across) {
        uint64_t part = 1 + roll(seed, height - 1);
        dissect(list, seed, begin, end, part, depth - 1);
        dissect(list, seed, begin, end, height - part, depth - 1);
    } else {
        uint64_t middle = begin + 1 + roll(seed, width - 1);
        dissect(list, seed, begin, middle, height, depth - 1);
        dissect(list, seed, middle, end, height, depth - 1);
    }
}

/* A search that leaves anything out would take the bound for impossible. */
static void dissections_are_put_together_again(void **state)
{
    (void)state;
    uint64_t seed = 31;
    for (int round = 0; round < rounds(150); round++) {
        weir_buffers *list = empty_list();
        dissect(list, &seed, 0, 14, 40, 5);
        weir_plan *plan = plan_of(list, WEIR_PLAN_SEARCH, 0);
        assert_int_equal(summary_of(plan).arena, 40);
        assert_true(summary_of(plan).proven);
        weir_plan_destroy(plan);
        weir_buffers_destroy(list);
    }
}

/* Everything at once: kinds, alignments, gaps, conflicts, fixed buffers, views, in-place pairs, persistent ones. */
static weir_buffers *rich_list(uint64_t *seed)
{
    weir_buffers *list = empty_list();
    int count = 2 + (int)roll(seed, 30);
    uint64_t wall = 0;
    for (int i = 0; i < count; i++) {
        weir_buffer b = WEIR_INIT(weir_buffer), other = WEIR_INIT(weir_buffer);
        uint32_t of = i > 0 ? (uint32_t)roll(seed, (uint64_t)i) : 0;
        b.begin = roll(seed, 30);
        b.end = b.begin + 1 + roll(seed, 12);
        b.bytes = roll(seed, 8) ? roll(seed, 300) : 0;
        b.alignment = (uint64_t)1 << roll(seed, 7);
        b.kind = (weir_kind)roll(seed, 2);
        b.persistent = roll(seed, 12) == 0;
        if (i > 0)
            ok(weir_buffer_info(list, of, &other));
        if (i > 0 && roll(seed, 5) == 0) {
            b.sharing = WEIR_SHARING_VIEW;
            b.of = of;
            b.kind = other.kind;
            b.view_offset = other.bytes ? roll(seed, other.bytes) & ~(uint64_t)63 : 0;
            b.bytes = other.bytes ? roll(seed, other.bytes - b.view_offset + 1) : 0;
            b.alignment = 0;
        } else if (i > 0 && roll(seed, 3) == 0) {
            b.sharing = WEIR_SHARING_IN_PLACE;
            b.of = of;
            b.kind = other.kind;
            b.begin = other.end - 1;
            b.end = b.begin + 1 + roll(seed, 6);
            b.bytes = roll(seed, 2) ? other.bytes : b.bytes;
        } else if (roll(seed, 10) == 0) {
            b.fixed = true;
            b.offset = wall = (wall + 64) & ~(uint64_t)63;
            wall += b.bytes;
        }
        uint32_t index;
        if (weir_buffers_add(list, &b, &index) != WEIR_OK) {
            detail_names("live in a gap");
            b.sharing = WEIR_SHARING_NONE;
            ok(weir_buffers_add(list, &b, &index));
        }
        if (b.sharing != WEIR_SHARING_VIEW && !b.persistent && b.end - b.begin > 4 && roll(seed, 2))
            ok(weir_buffers_gap(list, index, b.begin + 1, b.end - 2));
        if (i > 0 && b.sharing == WEIR_SHARING_NONE && roll(seed, 8) == 0)
            ok(weir_buffers_conflict(list, index, of));
    }
    return list;
}

static void rich_lists_are_planned_as_the_checker_wants(void **state)
{
    (void)state;
    uint64_t seed = 13;
    int in_place = 0;
    for (int round = 0; round < rounds(400); round++) {
        weir_buffers *list = rich_list(&seed);
        weir_plan_options options = WEIR_INIT(weir_plan_options);
        options.effort = 3000;
        options.alignment = (uint64_t)1 << roll(&seed, 7);
        options.mode = (weir_plan_mode)roll(&seed, 3);
        weir_plan *plan;
        ok(weir_plan_create(list, &options, &plan));
        ok(weir_plan_check(plan, list));
        weir_plan_details s = summary_of(plan);
        assert_true(s.lower_bound <= s.arena);
        in_place += s.in_place > 0;
        weir_plan_destroy(plan);
        weir_buffers_destroy(list);
    }
    assert_true(in_place > 0);
}

/* Pins of an earlier plan hold, and what is new finds its place around them. */
static void pinned_buffers_stay_in_a_plan_made_again(void **state)
{
    (void)state;
    uint64_t seed = 17;
    for (int round = 0; round < rounds(50); round++) {
        weir_buffers *list = random_list(&seed, 25, 20, 40);
        weir_plan *plan = plan_of(list, WEIR_PLAN_QUICK, 8);
        for (uint32_t i = 0; i < 25; i += 2)
            ok(weir_buffers_pin(list, i, offset_of(plan, i)));
        for (int i = 0; i < 5; i++)
            (void)add(list, roll(&seed, 10), 10 + roll(&seed, 10), 1 + roll(&seed, 40));
        weir_plan *again = plan_of(list, WEIR_PLAN_SEARCH, 8);
        for (uint32_t i = 0; i < 25; i += 2)
            assert_int_equal(offset_of(again, i), offset_of(plan, i));
        weir_plan_destroy(again);
        weir_plan_destroy(plan);
        weir_buffers_destroy(list);
    }
}

/* A plan proves that its own offsets go together: whichever of them are pinned, what is written in place among them, a
 * plan is found, and with all of them pinned it is the same. */
static void any_part_of_a_plan_can_be_pinned(void **state)
{
    (void)state;
    uint64_t seed = 29;
    for (int round = 0; round < rounds(400); round++) {
        weir_buffers *list = rich_list(&seed);
        weir_plan *plan = plan_of(list, WEIR_PLAN_QUICK, 64);
        bool all = round % 2;
        for (uint32_t i = 0; i < list_details(list).count; i++) {
            weir_buffer b = WEIR_INIT(weir_buffer);
            ok(weir_buffer_info(list, i, &b));
            if (b.sharing != WEIR_SHARING_VIEW && (all || roll(&seed, 2)))
                ok(weir_buffers_pin(list, i, offset_of(plan, i)));
        }
        weir_plan *again = plan_of(list, WEIR_PLAN_QUICK, 64);
        for (uint32_t i = 0; all && i < list_details(list).count; i++)
            assert_int_equal(slot_of(again, i).root, slot_of(plan, i).root);
        weir_plan_destroy(again);
        weir_plan_destroy(plan);
        weir_buffers_destroy(list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lists_are_planned_without_overlap),
        cmocka_unit_test(small_lists_reach_the_optimum),
        cmocka_unit_test(dissections_are_put_together_again),
        cmocka_unit_test(rich_lists_are_planned_as_the_checker_wants),
        cmocka_unit_test(any_part_of_a_plan_can_be_pinned),
        cmocka_unit_test(pinned_buffers_stay_in_a_plan_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
