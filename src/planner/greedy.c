/* A tree over the sections. An item's parts are taken apart into nodes, each of which covers all that it stands for; what
 * is kept of a node is not items but addresses: those that are taken in all of its sections, and those that are taken in
 * any. As what lies side by side becomes one run of addresses, thousands of items are few runs. What a lifetime meets is
 * what is taken throughout above its nodes, and anywhere in them; conflicts come from the items themselves.
 *
 * Where tens of thousands are live at once they lie by turns in the runs of several nodes, and a question would go from
 * one to the other as often. So all that is taken throughout a stretch of time is kept in one place for each of some
 * dozens of stretches, and the fullest stretch of a lifetime is looked at first. */
#include "planner/placed.h"
#include "planner/buffers.h"
#include "planner/interval_set.h"
#include "base/internal.h"

/* What a question has to look at, and how far it has come in it. */
typedef struct look {
    const wi_taken *taken;
    uint32_t piece;
} look;

enum { STRETCHES = 128 };

struct wi_placed {
    const wi_problem *problem;
    bool *there;                     /* by item */
    wi_taken *throughout, *anywhere; /* by node */
    uint32_t leaves;
    wi_taken stretches[STRETCHES];
    uint64_t filled[STRETCHES]; /* the sum of their items' lengths */
    uint32_t stretch;           /* sections in each */
    look *looks;
    size_t look_count, looks_room;
    wi_taken conflicts;
};

wi_placed *wi_placed_create(const wi_problem *problem)
{
    wi_placed *p = calloc(1, sizeof *p);
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
    wi_placed_destroy(p);
    return NULL;
}

void wi_placed_destroy(wi_placed *placed)
{
    if (!placed)
        return;
    for (size_t node = 0; placed->throughout && placed->anywhere && node < 2 * (size_t)placed->leaves; node++) {
        wi_taken_clear(&placed->throughout[node]);
        wi_taken_clear(&placed->anywhere[node]);
    }
    for (uint32_t i = 0; i < STRETCHES; i++)
        wi_taken_clear(&placed->stretches[i]);
    wi_taken_clear(&placed->conflicts);
    void *const all[] = {placed->there, placed->throughout, placed->anywhere, placed->looks, placed};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

void wi_placed_empty(wi_placed *placed)
{
    memset(placed->there, 0, placed->problem->count * sizeof *placed->there);
    for (size_t node = 0; node < 2 * (size_t)placed->leaves; node++) {
        wi_taken_empty(&placed->throughout[node]);
        wi_taken_empty(&placed->anywhere[node]);
    }
    for (uint32_t i = 0; i < STRETCHES; i++)
        wi_taken_empty(&placed->stretches[i]);
    memset(placed->filled, 0, sizeof placed->filled);
}

/* Time ------------------------------------------------------------------------------------------------------------- */

/* Sections left … left + width - 1. */
typedef struct node {
    uint32_t number, left, width;
} node;

static node half_of(node n, uint32_t which)
{
    return (node){2 * n.number + which, n.left + which * (n.width / 2), n.width / 2};
}

static bool take_part(wi_placed *p, node n, wi_span part, uint64_t low, uint64_t high)
{
    if (part.right <= n.left || part.left >= n.left + n.width)
        return true;
    if (!wi_taken_add(&p->anywhere[n.number], low, high))
        return false;
    if (part.left <= n.left && n.left + n.width <= part.right)
        return wi_taken_add(&p->throughout[n.number], low, high);
    return take_part(p, half_of(n, 0), part, low, high) && take_part(p, half_of(n, 1), part, low, high);
}

static bool take_stretches(wi_placed *p, wi_span part, uint64_t low, uint64_t high)
{
    bool good = true;
    for (uint32_t i = (part.left + p->stretch - 1) / p->stretch; i < part.right / p->stretch && good; i++) {
        p->filled[i] += high - low;
        good = wi_taken_add(&p->stretches[i], low, high);
    }
    return good;
}

static bool look_at(wi_placed *p, const wi_taken *taken)
{
    if (taken->count == 0)
        return true;
    if (!wi_room_for((void **)&p->looks, sizeof *p->looks, &p->looks_room, p->look_count + 1))
        return false;
    p->looks[p->look_count++] = (look){taken, 0};
    return true;
}

static bool meet_fullest(wi_placed *p, wi_span part)
{
    uint32_t fullest = part.left / p->stretch;
    for (uint32_t i = fullest; i <= (part.right - 1) / p->stretch; i++)
        if (p->filled[i] > p->filled[fullest])
            fullest = i;
    return look_at(p, &p->stretches[fullest]);
}

static bool meet_part(wi_placed *p, node n, wi_span part)
{
    if (part.right <= n.left || part.left >= n.left + n.width || p->anywhere[n.number].count == 0)
        return true;
    if (part.left <= n.left && n.left + n.width <= part.right)
        return look_at(p, &p->anywhere[n.number]);
    return look_at(p, &p->throughout[n.number]) && meet_part(p, half_of(n, 0), part) &&
           meet_part(p, half_of(n, 1), part);
}

static bool meet_conflicts(wi_placed *p, const wi_item *item)
{
    wi_taken_empty(&p->conflicts);
    for (uint32_t i = 0; i < item->edges; i++) {
        uint32_t index = p->problem->edges[item->first_edge + i];
        const wi_item *other = &p->problem->items[index];
        if (p->there[index] && !wi_taken_add(&p->conflicts, other->offset, other->offset + other->length))
            return false;
    }
    return look_at(p, &p->conflicts);
}

/* Items ------------------------------------------------------------------------------------------------------------ */

static const wi_span *parts_of(const wi_problem *problem, const wi_item *item, wi_span *whole, uint32_t *count)
{
    *whole = (wi_span){item->left, item->right};
    *count = item->spans ? item->spans : 1;
    return item->spans ? &problem->spans[item->first_span] : whole;
}

bool wi_placed_add(wi_placed *placed, uint32_t item)
{
    const wi_item *it = &placed->problem->items[item];
    wi_span whole;
    uint32_t count;
    const wi_span *parts = parts_of(placed->problem, it, &whole, &count);
    bool good = true;
    placed->there[item] = true;
    for (uint32_t i = 0; i < count && good; i++)
        good = take_part(placed, (node){1, 0, placed->leaves}, parts[i], it->offset, it->offset + it->length) &&
               take_stretches(placed, parts[i], it->offset, it->offset + it->length);
    return good;
}

bool wi_placed_lowest(wi_placed *placed, uint32_t item, uint64_t from, uint64_t *offset)
{
    const wi_item *it = &placed->problem->items[item];
    wi_span whole;
    uint32_t count;
    const wi_span *parts = parts_of(placed->problem, it, &whole, &count);
    bool good = true;
    placed->look_count = 0;
    for (uint32_t i = 0; i < count && good; i++)
        good = meet_fullest(placed, parts[i]) && meet_part(placed, (node){1, 0, placed->leaves}, parts[i]);
    good = good && meet_conflicts(placed, it);
    uint64_t at = wi_round_up(from, it->alignment);
    for (size_t quiet = 0, i = 0; good && quiet < placed->look_count; i = (i + 1) % placed->look_count) {
        look *l = &placed->looks[i];
        uint64_t higher = wi_taken_gap(l->taken, &l->piece, at, it->length, it->alignment);
        quiet = higher == at ? quiet + 1 : 1;
        at = higher;
    }
    *offset = at;
    return good;
}
