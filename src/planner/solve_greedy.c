/* Items one by one, in an order that is chosen beforehand, each into the lowest gap between those that it meets. Serves
 * every problem: gaps, conflicts, fixed items, alignments. */
#include "planner/radix.h"
#include "planner/solve.h"
#include "base/internal.h"

bool wi_place_in_order(wi_problem *problem, wi_placed *placed, const uint32_t *order, wi_work *work)
{
    uint64_t top = 0;
    bool good = true, goes_on = true;
    wi_placed_empty(placed);
    for (uint32_t i = 0; i < problem->count && good; i++)
        if (problem->items[i].fixed) {
            good = wi_placed_add(placed, i);
            top = wi_max(top, problem->items[i].offset + problem->items[i].length);
        }
    for (uint32_t i = 0; i < problem->count && good; i++) {
        wi_item *item = &problem->items[order[i]];
        if (item->fixed)
            continue;
        goes_on = goes_on && wi_work_goes_on(work);
        if (goes_on)
            good = wi_placed_lowest(placed, order[i], 0, &item->offset) && wi_placed_add(placed, order[i]);
        else
            item->offset = wi_round_up(top, item->alignment);
        top = wi_max(top, item->offset + item->length);
    }
    return good;
}

void wi_solve_bump(wi_problem *problem)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < problem->count; i++)
        if (problem->items[i].fixed)
            at = wi_max(at, problem->items[i].offset + problem->items[i].length);
    for (uint32_t i = 0; i < problem->count; i++) {
        wi_item *item = &problem->items[i];
        if (item->fixed)
            continue;
        item->offset = wi_round_up(at, item->alignment);
        at = item->offset + item->length;
    }
}

/* Larger goes first. */
enum { BY_SIZE, BY_AREA, BY_LIFETIME, ORDERS };

static uint64_t rank(const wi_item *item, int order)
{
    uint64_t width = item->right - item->left, area;
    if (order == BY_SIZE)
        return item->length;
    if (order == BY_LIFETIME)
        return width;
    return __builtin_mul_overflow(item->length, width, &area) ? UINT64_MAX : area;
}

bool wi_solve_greedily(wi_problem *problem, wi_work *work, wi_best *best)
{
    static const char *const names[ORDERS] = {"largest first", "largest area first", "longest lived first"};
    size_t count = problem->count;
    wi_key *keys = malloc(count * 2 * sizeof *keys);
    uint32_t *order = malloc(count * sizeof *order);
    wi_placed *placed = wi_placed_create(problem);
    bool good = keys && order && placed;
    for (int by = 0; by < ORDERS && good && wi_work_goes_on(work); by++) {
        for (uint32_t i = 0; i < count; i++)
            keys[i] = (wi_key){UINT64_MAX - rank(&problem->items[i], by), i};
        wi_radix_sort(keys, keys + count, count);
        for (uint32_t i = 0; i < count; i++)
            order[i] = keys[i].value;
        good = wi_place_in_order(problem, placed, order, work);
        if (good && wi_best_keep(problem, best, names[by]))
            break;
    }
    wi_placed_destroy(placed);
    free(keys);
    free(order);
    return good;
}
