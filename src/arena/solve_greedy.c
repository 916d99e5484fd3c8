/* Items one by one, in an order that is chosen beforehand, each into the lowest gap between those that it meets. Serves
 * every problem: gaps, conflicts, fixed items, alignments. */
#include "arena/radix.h"
#include "arena/solve.h"
#include "base/internal.h"

/* Those that are placed, by offset. */
typedef struct placed {
    uint32_t *items;
    uint32_t count;
} placed;

static void insert(const wi_problem *problem, placed *p, uint32_t index)
{
    uint32_t low = 0, high = p->count;
    uint64_t offset = problem->items[index].offset;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (problem->items[p->items[middle]].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(p->items + low + 1, p->items + low, (p->count - low) * sizeof *p->items);
    p->items[low] = index;
    p->count++;
}

static uint64_t lowest_gap(const wi_problem *problem, const placed *p, const wi_item *item)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const wi_item *other = &problem->items[p->items[i]];
        if (other->offset + other->length <= at || !wi_items_meet(problem, item, other))
            continue;
        if (other->offset >= at + item->length)
            return at;
        at = wi_round_up(other->offset + other->length, item->alignment);
    }
    return at;
}

bool wi_place_in_order(wi_problem *problem, const uint32_t *order)
{
    placed p = {.items = malloc(problem->count * sizeof *p.items)};
    if (!p.items)
        return false;
    for (uint32_t i = 0; i < problem->count; i++)
        if (problem->items[i].fixed)
            insert(problem, &p, i);
    for (uint32_t i = 0; i < problem->count; i++) {
        wi_item *item = &problem->items[order[i]];
        if (item->fixed)
            continue;
        item->offset = lowest_gap(problem, &p, item);
        insert(problem, &p, order[i]);
    }
    free(p.items);
    return true;
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

bool wi_solve_greedily(wi_problem *problem, wi_best *best)
{
    static const char *const names[ORDERS] = {"largest first", "largest area first", "longest lived first"};
    size_t count = problem->count;
    wi_key *keys = malloc(count * 2 * sizeof *keys);
    uint32_t *order = malloc(count * sizeof *order);
    bool good = keys && order;
    for (int by = 0; by < ORDERS && good; by++) {
        for (uint32_t i = 0; i < count; i++)
            keys[i] = (wi_key){UINT64_MAX - rank(&problem->items[i], by), i};
        wi_radix_sort(keys, keys + count, count);
        for (uint32_t i = 0; i < count; i++)
            order[i] = keys[i].value;
        good = wi_place_in_order(problem, order);
        if (good && wi_best_keep(problem, best, names[by]))
            break;
    }
    free(keys);
    free(order);
    return good;
}
