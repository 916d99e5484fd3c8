/* A storage that is written over a storage of the same length becomes part of the item of the storage below, which
 * keeps the load of every step minimal. A shorter storage becomes part of the item only where this lowers the load of a
 * step that is fuller than any plan needs, because the rest of the item stays empty during the shorter storage's
 * lifetime. Over a fixed storage the place is known, and no memory is lost: the shorter storage is a fixed item of its
 * own, which begins a step later. */
#include "base/internal.h"
#include <weir/plan.h>
#include "planner/problem.h"

typedef struct pin {
    uint64_t low, high, begin, end;
    uint32_t buffer;
} pin;

typedef struct joiner {
    wi_stores *stores;
    const wi_buffer *items;
    wi_storage *all;
    size_t count;
    pin *pins;
    size_t pin_count;
} joiner;

static bool in_place_is_root(const joiner *j, size_t i)
{
    return j->items[i].root == i && j->items[i].bytes > 0;
}

static uint64_t in_place_alignment_of(const joiner *j, size_t i)
{
    return wi_max(j->items[i].alignment, j->stores->alignment);
}

/* Returns the offset of storage i in the storage below. */
static uint64_t from(const joiner *j, size_t i)
{
    return j->items[j->items[i].of].from;
}

/* Loads ------------------------------------------------------------------------------------------------------------ */

/* How much is live at each point in time: a segment tree, of which a node has what is added to all of its points, and
 * the most that comes together in any. */
typedef struct segment_tree {
    const uint64_t *points;
    size_t count;
    int64_t *all, *most; /* by node; `most` has what is added to the node in it */
} segment_tree;

/* Over times that are all among `points`, which are put in order; nothing is live as yet. The points stay the
 * caller's. */
static bool make_tree(segment_tree *t, uint64_t *points, size_t count)
{
    *t = (segment_tree){.points = points, .count = wi_numbers_sort(points, count)};
    t->all = calloc(4 * (t->count + 1), sizeof *t->all);
    t->most = calloc(4 * (t->count + 1), sizeof *t->most);
    return t->all && t->most;
}

static void clear_tree(segment_tree *t)
{
    free(t->all);
    free(t->most);
}

/* Points low … high - 1. */
typedef struct node {
    size_t number, low, high;
} node;

static node in_place_half_of(node n, size_t which)
{
    size_t middle = (n.low + n.high) / 2;
    return which ? (node){2 * n.number + 1, middle, n.high} : (node){2 * n.number, n.low, middle};
}

static void add_below(segment_tree *t, node n, size_t from, size_t to, int64_t bytes)
{
    if (from >= n.high || to <= n.low)
        return;
    if (from <= n.low && n.high <= to) {
        t->all[n.number] += bytes;
        t->most[n.number] += bytes;
        return;
    }
    add_below(t, in_place_half_of(n, 0), from, to, bytes);
    add_below(t, in_place_half_of(n, 1), from, to, bytes);
    int64_t a = t->most[2 * n.number], b = t->most[2 * n.number + 1];
    t->most[n.number] = t->all[n.number] + (a > b ? a : b);
}

static int64_t most_below(const segment_tree *t, node n, size_t from, size_t to)
{
    if (from >= n.high || to <= n.low)
        return INT64_MIN;
    if (from <= n.low && n.high <= to)
        return t->most[n.number];
    int64_t a = most_below(t, in_place_half_of(n, 0), from, to), b = most_below(t, in_place_half_of(n, 1), from, to);
    return t->all[n.number] + (a > b ? a : b);
}

/* `bytes` more, or less, from begin until before end. */
static void add_load(segment_tree *t, uint64_t begin, uint64_t end, int64_t bytes)
{
    if (begin < end)
        add_below(t, (node){1, 0, t->count}, wi_numbers_find(t->points, t->count, begin),
                  wi_numbers_find(t->points, t->count, end), bytes);
}

/* The most from begin until before end; INT64_MIN for no time at all. */
static int64_t most_loaded(const segment_tree *t, uint64_t begin, uint64_t end)
{
    return begin < end ? most_below(t, (node){1, 0, t->count}, wi_numbers_find(t->points, t->count, begin),
                                    wi_numbers_find(t->points, t->count, end))
                       : INT64_MIN;
}

/* Overwrites ------------------------------------------------------------------------------------------------------- */

/* True: a plan may write storage i over the storage below, which dies in the step in which storage i is born, and into
 * which storage i fits. Empty storages have no place. */
static bool may_overwrite(const joiner *j, size_t i)
{
    const wi_buffer *b = &j->items[i];
    if (!in_place_is_root(j, i) || b->sharing != WEIR_SHARING_IN_PLACE)
        return false;
    const wi_buffer *of = &j->items[b->of];
    const wi_storage *s = &j->all[i], *under = &j->all[of->root];
    return of->bytes > 0 && under->length > 0 && !j->items[of->root].persistent && under->end == s->begin + 1 &&
           under->begin < s->begin && of->from + s->length <= under->length;
}

/* Whether the two can be one item that is no longer than either, wherever that comes to lie. */
static bool can_join(const joiner *j, size_t i, uint32_t under)
{
    const wi_storage *a = &j->all[i], *b = &j->all[under];
    return a->length == b->length && !a->tied && !b->tied &&
           in_place_alignment_of(j, i) <= in_place_alignment_of(j, under);
}

/* Chooses, for every storage, the storage to be written over it: the largest candidate, so that the bound holds; of
 * equally large candidates the first that can be joined. */
static void find_overwrites(joiner *j)
{
    for (size_t i = 0; i < j->count; i++) {
        if (!may_overwrite(j, i))
            continue;
        uint32_t root = j->items[j->items[i].of].root;
        wi_storage *s = &j->all[i], *under = &j->all[root];
        if (under->above != WEIR_NO_BUFFER) {
            wi_storage *other = &j->all[under->above];
            if (s->length < other->length ||
                (s->length == other->length && (can_join(j, under->above, root) || !can_join(j, i, root))))
                continue;
            other->over = WEIR_NO_BUFFER;
        }
        s->over = root;
        under->above = (uint32_t)i;
        j->stores->problems[j->items[i].kind].in_place = true;
    }
}

/* Pins ------------------------------------------------------------------------------------------------------------- */

static bool find_pins(joiner *j)
{
    j->pins = malloc((j->count + 1) * sizeof *j->pins);
    for (size_t i = 0; i < j->count && j->pins; i++) {
        const wi_storage *s = &j->all[i];
        if (in_place_is_root(j, i) && s->fixed)
            j->pins[j->pin_count++] = (pin){s->offset, s->offset + s->length, s->begin, s->own_end, (uint32_t)i};
    }
    return j->pins;
}

/* Whether a fixed storage lies at the place while this is live, but for the one that it is written over and one that
 * will be written over it. */
static bool in_place_is_taken(const joiner *j, size_t i, uint64_t low)
{
    const wi_storage *s = &j->all[i];
    uint64_t high = low + s->length;
    for (size_t k = 0; k < j->pin_count; k++) {
        const pin *p = &j->pins[k];
        if (p->low >= high || low >= p->high || p->begin >= s->own_end || s->begin >= p->end)
            continue;
        const wi_storage *other = &j->all[p->buffer];
        bool below = other->leader == j->all[s->over].leader;
        bool above = other->over == i && p->low == low + from(j, p->buffer) && !other->tied && !s->tied;
        if (!below && !above && j->items[p->buffer].kind == j->items[i].kind)
            return true;
    }
    return false;
}

/* Puts storage i over a storage whose place is known, if storage i may lie there. */
static void join_fixed(joiner *j, size_t i)
{
    wi_storage *s = &j->all[i];
    const wi_storage *under = &j->all[s->over];
    uint64_t place = j->all[under->leader].offset + under->shift + from(j, i);
    if (s->fixed ? s->offset != place : place % in_place_alignment_of(j, i) != 0 || in_place_is_taken(j, i, place))
        return;
    if (s->length == under->length || s->end <= j->all[under->leader].end) {
        s->leader = under->leader;
        s->shift = under->shift + from(j, i);
        j->all[s->leader].end = wi_max(j->all[s->leader].end, s->end);
    } else {
        s->late = s->fixed = true;
        s->offset = place;
    }
    s->root = under->root;
}

/* In the order of the list, as what is below comes first. */
static void join_equal_and_fixed(joiner *j)
{
    for (size_t i = 0; i < j->count; i++) {
        wi_storage *s = &j->all[i];
        if (!in_place_is_root(j, i) || s->over == WEIR_NO_BUFFER || s->tied || j->all[s->over].tied)
            continue;
        const wi_storage *under = &j->all[s->over];
        if (j->all[under->leader].fixed) {
            join_fixed(j, i);
        } else if (!s->fixed && can_join(j, i, s->over)) {
            s->leader = under->leader;
            s->shift = under->shift;
            s->root = under->root;
            j->all[s->leader].end = wi_max(j->all[s->leader].end, s->end);
        }
    }
}

/* Shorter ones ----------------------------------------------------------------------------------------------------- */

static uint32_t leader_of(const joiner *j, uint32_t i)
{
    while (j->all[i].leader != i)
        i = j->all[i].leader;
    return i;
}

/* Whether it could lie in the item of what it may be written over, wherever that comes to lie. */
static bool is_shorter(const joiner *j, size_t i, weir_kind kind)
{
    const wi_storage *s = &j->all[i];
    if (!in_place_is_root(j, i) || j->items[i].kind != kind || s->over == WEIR_NO_BUFFER || s->leader != i ||
        s->fixed || s->tied || j->all[s->over].tied)
        return false;
    uint32_t leader = leader_of(j, s->over);
    return !j->all[leader].fixed && in_place_alignment_of(j, i) <= in_place_alignment_of(j, leader);
}

static size_t find_points(const joiner *j, weir_kind kind, uint64_t *points)
{
    const weir_buffers *buffers = j->stores->buffers;
    size_t count = 0;
    for (size_t i = 0; i < j->count; i++)
        if (in_place_is_root(j, i) && j->items[i].kind == kind) {
            points[count++] = j->all[i].begin;
            points[count++] = j->all[i].begin + 1;
            points[count++] = j->all[i].own_end;
        }
    for (size_t i = 0; i < buffers->gap_count; i++)
        if (j->items[buffers->gaps[i].buffer].kind == kind) {
            points[count++] = buffers->gaps[i].begin;
            points[count++] = buffers->gaps[i].end;
        }
    return count;
}

/* As if everything were written in place that may be: the lower bound. */
static void in_place_add_all(const joiner *j, weir_kind kind, segment_tree *loads)
{
    const weir_buffers *buffers = j->stores->buffers;
    for (size_t i = 0; i < j->count; i++) {
        const wi_storage *s = &j->all[i];
        if (in_place_is_root(j, i) && j->items[i].kind == kind)
            add_load(loads, s->begin + (s->over != WEIR_NO_BUFFER), s->own_end, (int64_t)s->length);
    }
    for (size_t i = 0; i < buffers->gap_count; i++) {
        const wi_gap *gap = &buffers->gaps[i];
        if (j->items[gap->buffer].kind == kind)
            add_load(loads, gap->begin, gap->end, -(int64_t)j->all[gap->buffer].length);
    }
}

/* Adds the loads of first steps in which storages lie beside the storages that they may be written over. */
static void add_first_steps(const joiner *j, weir_kind kind, segment_tree *loads)
{
    for (size_t i = 0; i < j->count; i++) {
        const wi_storage *s = &j->all[i];
        bool beside = in_place_is_root(j, i) && s->over != WEIR_NO_BUFFER && s->leader == i && !s->late;
        if (beside && j->items[i].kind == kind)
            add_load(loads, s->begin, s->begin + 1, (int64_t)s->length);
    }
}

/* Into the item below, if its first step is fuller than `enough` and no step gets as full by what stays empty. */
static void join_if_it_helps(joiner *j, size_t i, segment_tree *loads, int64_t enough)
{
    wi_storage *s = &j->all[i];
    const wi_storage *under = &j->all[s->over];
    uint64_t shift = from(j, i);
    uint32_t leader = leader_of(j, s->over);
    for (uint32_t k = s->over; k != leader; k = j->all[k].leader)
        shift += j->all[k].shift;
    wi_storage *whole = &j->all[leader];
    int64_t empty = (int64_t)(whole->length - s->length), here = most_loaded(loads, s->begin, s->begin + 1);
    int64_t later = most_loaded(loads, s->begin + 1, s->end);
    if (here <= enough || shift % in_place_alignment_of(j, i) != 0 || (s->begin + 1 < s->end && later + empty >= here))
        return;
    add_load(loads, s->begin, s->begin + 1, -(int64_t)s->length);
    add_load(loads, s->begin + 1, s->end, empty);
    s->leader = leader;
    s->shift = shift;
    s->root = under->root;
    whole->end = wi_max(whole->end, s->end);
}

static weir_status join_shorter(joiner *j, weir_kind kind)
{
    size_t first = 0;
    while (first < j->count && !is_shorter(j, first, kind))
        first++;
    if (first == j->count)
        return WEIR_OK;
    uint64_t *points = malloc((3 * j->count + 2 * j->stores->buffers->gap_count) * sizeof *points);
    segment_tree loads = {.points = NULL};
    bool good = points && make_tree(&loads, points, find_points(j, kind, points));
    if (good) {
        in_place_add_all(j, kind, &loads);
        int64_t bound = most_loaded(&loads, 0, UINT64_MAX);
        add_first_steps(j, kind, &loads);
        for (size_t i = first; i < j->count; i++)
            if (is_shorter(j, i, kind))
                join_if_it_helps(j, i, &loads, bound);
    }
    clear_tree(&loads);
    free(points);
    return good ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "planning: no host memory");
}

/* All of it -------------------------------------------------------------------------------------------------------- */

/* Replaces a storage's leader by the leader's own leader. Leaders precede the storages in their items, so a leader is
 * resolved first. */
static void resolve(joiner *j)
{
    for (size_t i = 0; i < j->count; i++) {
        wi_storage *s = &j->all[i];
        if (!in_place_is_root(j, i) || s->leader == i)
            continue;
        s->shift += j->all[s->leader].shift;
        s->root = j->all[s->leader].root;
        s->leader = j->all[s->leader].leader;
    }
}

weir_status wi_in_place_join(wi_stores *stores)
{
    joiner j = {.stores = stores, .items = stores->buffers->items, .all = stores->all, .count = stores->buffers->count};
    weir_status status = find_pins(&j) ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "planning: no host memory");
    if (status == WEIR_OK) {
        find_overwrites(&j);
        join_equal_and_fixed(&j);
    }
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT && status == WEIR_OK; kind++)
        status = join_shorter(&j, (weir_kind)kind);
    if (status == WEIR_OK)
        resolve(&j);
    free(j.pins);
    return status;
}
