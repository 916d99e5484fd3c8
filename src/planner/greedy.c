/* Places items one by one, in an order chosen beforehand; an item gets the lowest gap between the placed items that it
 * meets. Serves every problem: gaps, conflicts, fixed items, alignments. */
#include "base/internal.h"
#include "planner/buffers.h"
#include "planner/solve.h"
#include "planner/problem.h"

/* The index of placements ------------------------------------------------------------------------------------------ */

/* A tree over the sections. An item's parts are split into nodes of the tree, so that the item is live in all sections
 * of these nodes. A node keeps addresses instead of items: the addresses taken in all of its sections, and the
 * addresses taken in at least one section. As neighbouring addresses become one run, thousands of items make few runs.
 * A lifetime meets the addresses taken throughout in the ancestors of its nodes, and the addresses taken anywhere in
 * its nodes; conflicts come from the items themselves.
 *
 * Where tens of thousands are live at once they lie by turns in the runs of several nodes, and a question would go from
 * one to the other as often. So all that is taken throughout a stretch of time is kept in one place for each of some
 * dozens of stretches, and the fullest stretch of a lifetime is looked at first. */

/* What a question has to look at, and how far it has come in it. */
typedef struct look {
    const wi_interval_set *set;
    uint32_t piece;
} look;

enum { STRETCHES = 128 };

struct wi_placement_index {
    const wi_problem *problem;
    bool *there;                            /* by item */
    wi_interval_set *throughout, *anywhere; /* by node */
    uint32_t leaves;
    wi_interval_set stretches[STRETCHES];
    uint64_t filled[STRETCHES]; /* the sum of their items' lengths */
    uint32_t stretch;           /* sections in each */
    look *looks;
    size_t look_count, looks_room;
    wi_interval_set conflicts;
};

wi_placement_index *wi_placement_index_create(const wi_problem *problem)
{
    wi_placement_index *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->problem = problem;
    p->leaves = 1;
    while (p->leaves < problem->sections)
        p->leaves *= 2;
    p->stretch = p->leaves > STRETCHES ? p->leaves / STRETCHES : 1;
    p->there = calloc(problem->count, sizeof *p->there);
    p->throughout = calloc(2 * (size_t)p->leaves, sizeof *p->throughout);
    p->anywhere = calloc(2 * (size_t)p->leaves, sizeof *p->anywhere);
    if (p->there && p->throughout && p->anywhere)
        return p;
    wi_placement_index_destroy(p);
    return NULL;
}

void wi_placement_index_destroy(wi_placement_index *index)
{
    if (!index)
        return;
    for (size_t node = 0; index->throughout && index->anywhere && node < 2 * (size_t)index->leaves; node++) {
        wi_interval_set_clear(&index->throughout[node]);
        wi_interval_set_clear(&index->anywhere[node]);
    }
    for (uint32_t i = 0; i < STRETCHES; i++)
        wi_interval_set_clear(&index->stretches[i]);
    wi_interval_set_clear(&index->conflicts);
    void *const all[] = {index->there, index->throughout, index->anywhere, index->looks, index};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static void empty_index(wi_placement_index *index)
{
    memset(index->there, 0, index->problem->count * sizeof *index->there);
    for (size_t node = 0; node < 2 * (size_t)index->leaves; node++) {
        wi_interval_set_empty(&index->throughout[node]);
        wi_interval_set_empty(&index->anywhere[node]);
    }
    for (uint32_t i = 0; i < STRETCHES; i++)
        wi_interval_set_empty(&index->stretches[i]);
    memset(index->filled, 0, sizeof index->filled);
}

/* Time ------------------------------------------------------------------------------------------------------------- */

/* Sections left … left + width - 1. */
typedef struct node {
    uint32_t number, left, width;
} node;

static node greedy_half_of(node n, uint32_t which)
{
    return (node){2 * n.number + which, n.left + which * (n.width / 2), n.width / 2};
}

static bool greedy_add_part(wi_placement_index *p, node n, wi_span part, uint64_t low, uint64_t high)
{
    if (part.right <= n.left || part.left >= n.left + n.width)
        return true;
    if (!wi_interval_set_add(&p->anywhere[n.number], low, high))
        return false;
    if (part.left <= n.left && n.left + n.width <= part.right)
        return wi_interval_set_add(&p->throughout[n.number], low, high);
    return greedy_add_part(p, greedy_half_of(n, 0), part, low, high) &&
           greedy_add_part(p, greedy_half_of(n, 1), part, low, high);
}

static bool add_stretches(wi_placement_index *p, wi_span part, uint64_t low, uint64_t high)
{
    bool good = true;
    for (uint32_t i = (part.left + p->stretch - 1) / p->stretch; i < part.right / p->stretch && good; i++) {
        p->filled[i] += high - low;
        good = wi_interval_set_add(&p->stretches[i], low, high);
    }
    return good;
}

static bool greedy_look_at(wi_placement_index *p, const wi_interval_set *set)
{
    if (set->count == 0)
        return true;
    if (!wi_room_for((void **)&p->looks, sizeof *p->looks, &p->looks_room, p->look_count + 1))
        return false;
    p->looks[p->look_count++] = (look){set, 0};
    return true;
}

static bool meet_fullest(wi_placement_index *p, wi_span part)
{
    uint32_t fullest = part.left / p->stretch;
    for (uint32_t i = fullest; i <= (part.right - 1) / p->stretch; i++)
        if (p->filled[i] > p->filled[fullest])
            fullest = i;
    return greedy_look_at(p, &p->stretches[fullest]);
}

static bool meet_part(wi_placement_index *p, node n, wi_span part)
{
    if (part.right <= n.left || part.left >= n.left + n.width || p->anywhere[n.number].count == 0)
        return true;
    if (part.left <= n.left && n.left + n.width <= part.right)
        return greedy_look_at(p, &p->anywhere[n.number]);
    return greedy_look_at(p, &p->throughout[n.number]) && meet_part(p, greedy_half_of(n, 0), part) &&
           meet_part(p, greedy_half_of(n, 1), part);
}

static bool meet_conflicts(wi_placement_index *p, const wi_item *item)
{
    wi_interval_set_empty(&p->conflicts);
    for (uint32_t i = 0; i < item->edges; i++) {
        uint32_t index = p->problem->edges[item->first_edge + i];
        const wi_item *other = &p->problem->items[index];
        if (p->there[index] && !wi_interval_set_add(&p->conflicts, other->offset, other->offset + other->length))
            return false;
    }
    return greedy_look_at(p, &p->conflicts);
}

/* Items ------------------------------------------------------------------------------------------------------------ */

bool wi_placement_index_add(wi_placement_index *index, uint32_t item)
{
    const wi_item *it = &index->problem->items[item];
    wi_span whole;
    const wi_span *parts;
    uint32_t count = wi_item_spans(index->problem, it, &whole, &parts);
    bool good = true;
    index->there[item] = true;
    for (uint32_t i = 0; i < count && good; i++)
        good = greedy_add_part(index, (node){1, 0, index->leaves}, parts[i], it->offset, it->offset + it->length) &&
               add_stretches(index, parts[i], it->offset, it->offset + it->length);
    return good;
}

bool wi_placement_index_lowest(wi_placement_index *index, uint32_t item, uint64_t from, uint64_t *offset)
{
    const wi_item *it = &index->problem->items[item];
    wi_span whole;
    const wi_span *parts;
    uint32_t count = wi_item_spans(index->problem, it, &whole, &parts);
    bool good = true;
    index->look_count = 0;
    for (uint32_t i = 0; i < count && good; i++)
        good = meet_fullest(index, parts[i]) && meet_part(index, (node){1, 0, index->leaves}, parts[i]);
    good = good && meet_conflicts(index, it);
    uint64_t at = wi_round_up(from, it->alignment);
    for (size_t quiet = 0, i = 0; good && quiet < index->look_count; i = (i + 1) % index->look_count) {
        look *l = &index->looks[i];
        uint64_t higher = wi_interval_set_gap(l->set, &l->piece, at, it->length, it->alignment);
        quiet = higher == at ? quiet + 1 : 1;
        at = higher;
    }
    *offset = at;
    return good;
}

/* Solving ---------------------------------------------------------------------------------------------------------- */

bool wi_place_in_order(wi_problem *problem, wi_placement_index *index, const uint32_t *order, wi_work *work)
{
    uint64_t top = 0;
    bool good = true, goes_on = true;
    empty_index(index);
    for (uint32_t i = 0; i < problem->count && good; i++)
        if (problem->items[i].fixed) {
            good = wi_placement_index_add(index, i);
            top = wi_max(top, problem->items[i].offset + problem->items[i].length);
        }
    for (uint32_t i = 0; i < problem->count && good; i++) {
        wi_item *item = &problem->items[order[i]];
        if (item->fixed)
            continue;
        goes_on = goes_on && wi_work_goes_on(work);
        if (goes_on)
            good =
                wi_placement_index_lowest(index, order[i], 0, &item->offset) && wi_placement_index_add(index, order[i]);
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

static uint64_t greedy_rank(const wi_item *item, int order)
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
    wi_placement_index *index = wi_placement_index_create(problem);
    bool good = keys && order && index;
    for (int by = 0; by < ORDERS && good && wi_work_goes_on(work); by++) {
        for (uint32_t i = 0; i < count; i++)
            keys[i] = (wi_key){UINT64_MAX - greedy_rank(&problem->items[i], by), i};
        wi_radix_sort(keys, keys + count, count);
        for (uint32_t i = 0; i < count; i++)
            order[i] = keys[i].value;
        good = wi_place_in_order(problem, index, order, work);
        if (good && wi_best_keep(problem, best, names[by]))
            break;
    }
    wi_placement_index_destroy(index);
    free(keys);
    free(order);
    return good;
}
