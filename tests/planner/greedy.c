/* The index that the greedy placement asks: against one that looks at all pairs, on problems with everything in
 * them. */
#include "planner/solve.h"
#include <weir/plan.h>
#include "planner/random.h"

typedef struct example {
    wi_problem problem;
    wi_item items[120];
    wi_span spans[240];
    uint32_t edges[240];
} example;

static void make_item(example *e, uint32_t i, uint64_t *seed)
{
    wi_problem *p = &e->problem;
    uint32_t left = (uint32_t)roll(seed, p->sections), right = left + 1 + (uint32_t)roll(seed, p->sections - left);
    wi_item *item = &p->items[i];
    *item = (wi_item){.length = 1 + roll(seed, 200), .left = left, .right = right, .first_span = 2 * i};
    item->alignment = (uint64_t)1 << roll(seed, 8);
    item->fixed = roll(seed, 8) == 0;
    item->offset = item->fixed ? roll(seed, 40) * item->alignment : 0;
    if (right - left > 2 && roll(seed, 3) == 0) {
        uint32_t first = left + 1 + (uint32_t)roll(seed, right - left - 2);
        e->spans[2 * i] = (wi_span){left, first};
        e->spans[2 * i + 1] = (wi_span){first + 1 + (uint32_t)roll(seed, right - first - 1), right};
        item->spans = 2;
    }
}

/* Pairs i and i + half, some of them. */
static void make_conflicts(example *e, uint64_t *seed)
{
    wi_problem *p = &e->problem;
    uint32_t half = p->count / 2;
    for (uint32_t i = 0; i < half; i++) {
        bool both = roll(seed, 4) == 0;
        p->items[i].edges = p->items[i + half].edges = both;
        p->items[i].first_edge = i;
        p->items[i + half].first_edge = i + half;
        p->edges[i] = i + half;
        p->edges[i + half] = i;
    }
}

static void make_example(example *e, uint64_t *seed)
{
    e->problem = (wi_problem){.items = e->items, .spans = e->spans, .edges = e->edges};
    e->problem.count = 2 + (uint32_t)roll(seed, 118);
    e->problem.sections = 1 + (uint32_t)roll(seed, roll(seed, 2) ? 300 : 20);
    for (uint32_t i = 0; i < e->problem.count; i++)
        make_item(e, i, seed);
    make_conflicts(e, seed);
}

static bool in_the_way(const wi_problem *p, const bool *there, uint32_t i, uint64_t offset, uint64_t *end)
{
    for (uint32_t j = 0; j < p->count; j++) {
        const wi_item *one = &p->items[i], *other = &p->items[j];
        *end = other->offset + other->length;
        if (there[j] && j != i && offset < *end && other->offset < offset + one->length && wi_items_meet(p, one, other))
            return true;
    }
    return false;
}

static uint64_t lowest(const wi_problem *p, const bool *there, uint32_t i)
{
    uint64_t offset = 0, end, alignment = p->items[i].alignment;
    while (in_the_way(p, there, i, offset, &end))
        offset = (end + alignment - 1) / alignment * alignment;
    return offset;
}

static void each_goes_into_the_lowest_gap(void **state)
{
    (void)state;
    uint64_t seed = 41;
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    wi_work work;
    wi_work_begin(&work, &options);
    for (int round = 0; round < rounds(300); round++) {
        example e;
        uint32_t order[120] = {0};
        bool there[120];
        make_example(&e, &seed);
        wi_problem *p = &e.problem;
        wi_placement_index *placed = wi_placement_index_create(p);
        assert_non_null(placed);
        for (uint32_t i = 0; i < p->count; i++) {
            uint32_t j = (uint32_t)roll(&seed, i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        for (int again = 0; again < 2; again++) {
            assert_true(wi_place_in_order(p, placed, order, &work));
            for (uint32_t i = 0; i < p->count; i++)
                there[i] = p->items[i].fixed;
            for (uint32_t i = 0; i < p->count; i++) {
                if (p->items[order[i]].fixed)
                    continue;
                assert_int_equal(p->items[order[i]].offset, lowest(p, there, order[i]));
                there[order[i]] = true;
            }
        }
        wi_placement_index_destroy(placed);
    }
}

/* Long enough for the runs of one node to be cut into pieces, with holes of all widths that are filled again. */
static void many_at_once_leave_no_hole(void **state)
{
    (void)state;
    enum { COUNT = 4000 };
    uint64_t seed = 43;
    wi_item *items = calloc(COUNT, sizeof *items);
    wi_problem p = {.items = items, .count = COUNT, .sections = 3};
    wi_placement_index *placed = wi_placement_index_create(&p);
    uint64_t end = 0;
    for (uint32_t i = 0; i < COUNT; i += 2) { /* every other one, at random */
        uint64_t lengths[2] = {1 + roll(&seed, 50), 1 + roll(&seed, 50)};
        for (uint32_t k = 0; k < 2; k++) {
            items[i + k] = (wi_item){.length = lengths[k], .alignment = 1, .right = 1 + i % 3, .offset = end};
            end += lengths[k];
        }
    }
    for (uint32_t i = 0; i < COUNT; i += 2)
        assert_true(wi_placement_index_add(placed, (i * 7 + 2) % COUNT));
    for (uint32_t i = 1; i < COUNT; i += 2) {
        uint32_t item = (i * 7 + 4) % COUNT;
        uint64_t offset;
        assert_true(wi_placement_index_lowest(placed, item, items[item].offset, &offset));
        assert_int_equal(offset, items[item].offset);
        assert_true(wi_placement_index_add(placed, item));
    }
    uint64_t offset;
    assert_true(wi_placement_index_lowest(placed, 0, 0, &offset));
    assert_int_equal(offset, end);
    wi_placement_index_destroy(placed);
    free(items);
}

enum { ADDRESSES = 20000 };

static uint64_t free_from(const bool *taken, uint64_t at, uint64_t length, uint64_t alignment)
{
    for (uint64_t i = at; i < at + length; i++)
        if (i < ADDRESSES && taken[i]) {
            at = (i + alignment) / alignment * alignment;
            i = at - 1;
        }
    return at;
}

/* Thousands of short runs, now and then one that swallows many; asked for gaps, upwards from anywhere. */
static void taken_addresses_are_never_answered(void **state)
{
    (void)state;
    uint64_t seed = 53;
    wi_interval_set all = {0};
    bool *taken = calloc(ADDRESSES, sizeof *taken);
    for (int round = 0; round < 4; round++) {
        wi_interval_set_empty(&all);
        memset(taken, false, ADDRESSES * sizeof *taken);
        for (int i = 0; i < 4000; i++) {
            uint64_t length = roll(&seed, 200) ? 1 + roll(&seed, 3) : 1 + roll(&seed, 2000);
            uint64_t low = roll(&seed, ADDRESSES - length);
            assert_true(wi_interval_set_add(&all, low, low + length));
            memset(taken + low, true, length);
            uint64_t alignment = (uint64_t)1 << roll(&seed, 5), at = roll(&seed, ADDRESSES) & -alignment;
            uint32_t piece = 0;
            for (int k = 0; k < 3; k++, at += alignment) {
                length = 1 + roll(&seed, roll(&seed, 4) ? 8 : 200);
                uint64_t gap = wi_interval_set_gap(&all, &piece, at, length, alignment);
                assert_int_equal(gap, free_from(taken, at, length, alignment));
                at = gap;
            }
        }
    }
    wi_interval_set_clear(&all);
    free(taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taken_addresses_are_never_answered),
        cmocka_unit_test(each_goes_into_the_lowest_gap),
        cmocka_unit_test(many_at_once_leave_no_hole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
