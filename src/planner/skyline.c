/* One pass from below for any number of items: the lowest run of the skyline gets the best item that lies inside it,
 * and is raised to its lower neighbour when there is none. Items are ranked beforehand, so that a tree finds the best
 * item. Serves plain problems only. */
#include "planner/problem.h"
#include "planner/solve.h"
#include "base/internal.h"

/* Runs of the skyline lie at their left sections; `heap` has their left sections, the lowest level first. */
typedef struct skyline {
    const wi_problem *problem;
    uint64_t *levels; /* by left section: level of the run */
    uint32_t *rights; /* by left section: right end of the run; 0: no run begins there */
    uint32_t *lefts;  /* by section: left section of the run that ends before */
    wi_key *heap;     /* key: level; entries of runs that are gone are passed over */
    size_t heap_count, heap_room;
    uint32_t *by_left;   /* items */
    uint32_t *first;     /* by section: position in by_left of the first item whose left is the section or behind */
    uint32_t *positions; /* by item: in the order of by_left */
    uint32_t *ranks;     /* by item: 0 is the best */
    uint32_t *best;      /* by node of the tree over by_left: the best rank; UINT32_MAX: none waits */
    uint32_t *nearest;   /* by node: the least right */
    uint32_t *of_rank;   /* items */
    uint32_t leaves;
} skyline;

static const uint32_t nothing = UINT32_MAX;

/* The tree --------------------------------------------------------------------------------------------------------- */

static void update(skyline *s, uint32_t node)
{
    uint32_t a = 2 * node, b = a + 1;
    s->best[node] = s->best[a] < s->best[b] ? s->best[a] : s->best[b];
    s->nearest[node] = s->nearest[a] < s->nearest[b] ? s->nearest[a] : s->nearest[b];
}

static void build_tree(skyline *s)
{
    for (uint32_t i = 0; i < s->leaves; i++) {
        bool item = i < s->problem->count;
        s->best[s->leaves + i] = item ? s->ranks[s->by_left[i]] : nothing;
        s->nearest[s->leaves + i] = item ? s->problem->items[s->by_left[i]].right : nothing;
    }
    for (uint32_t node = s->leaves - 1; node > 0; node--)
        update(s, node);
}

static void remove_item(skyline *s, uint32_t item)
{
    uint32_t node = s->leaves + s->positions[item];
    s->best[node] = s->nearest[node] = nothing;
    while (node /= 2)
        update(s, node);
}

/* The best rank below `than` of those at positions low … high - 1 that end at `right` or before. `node` stands for
 * `width` positions from `at` on. */
static uint32_t best_inside(const skyline *s, uint32_t node, uint32_t at, uint32_t width, const wi_span *positions,
                            uint32_t right, uint32_t than)
{
    if (at >= positions->right || at + width <= positions->left || s->best[node] >= than || s->nearest[node] > right)
        return than;
    if (width == 1)
        return s->best[node];
    uint32_t half = width / 2, a = 2 * node, b = a + 1;
    if (s->best[a] < s->best[b]) {
        than = best_inside(s, a, at, half, positions, right, than);
        return best_inside(s, b, at + half, half, positions, right, than);
    }
    than = best_inside(s, b, at + half, half, positions, right, than);
    return best_inside(s, a, at, half, positions, right, than);
}

/* The skyline ------------------------------------------------------------------------------------------------------ */

static void heap_push(skyline *s, wi_key key)
{
    size_t i = s->heap_count++;
    for (; i > 0 && s->heap[(i - 1) / 2].key > key.key; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = key;
}

static wi_key heap_pop(skyline *s)
{
    wi_key top = s->heap[0], last = s->heap[--s->heap_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->heap_count; i = child) {
        child += child + 1 < s->heap_count && s->heap[child + 1].key < s->heap[child].key;
        if (s->heap[child].key >= last.key)
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return top;
}

static void set_run(skyline *s, uint32_t left, uint32_t right, uint64_t level)
{
    s->levels[left] = level;
    s->rights[left] = right;
    s->lefts[right] = left;
}

/* Makes a run, joined with neighbours of the same level. */
static void make_run(skyline *s, uint32_t left, uint32_t right, uint64_t level)
{
    if (left > 0 && s->levels[s->lefts[left]] == level) {
        uint32_t before = s->lefts[left];
        s->rights[left] = 0;
        left = before;
    }
    if (right < s->problem->sections && s->levels[right] == level) {
        uint32_t end = s->rights[right];
        s->rights[right] = 0;
        right = end;
    }
    set_run(s, left, right, level);
    heap_push(s, (wi_key){level, left});
}

static void skyline_place(skyline *s, uint32_t left, uint32_t right, uint32_t index)
{
    wi_item *item = &s->problem->items[index];
    uint64_t level = s->levels[left];
    item->offset = level;
    if (item->right < right) {
        set_run(s, item->right, right, level);
        heap_push(s, (wi_key){level, item->right});
    }
    if (left < item->left) {
        set_run(s, left, item->left, level);
        heap_push(s, (wi_key){level, left});
    }
    make_run(s, item->left, item->right, level + item->length);
    remove_item(s, index);
}

static void raise_run(skyline *s, uint32_t left, uint32_t right)
{
    uint64_t before = left > 0 ? s->levels[s->lefts[left]] : UINT64_MAX;
    uint64_t behind = right < s->problem->sections ? s->levels[right] : UINT64_MAX;
    make_run(s, left, right, before < behind ? before : behind);
}

/* Stacks the waiting items on top of the skyline. */
static void pile_up(skyline *s)
{
    uint64_t top = 0;
    for (uint32_t left = 0; left < s->problem->sections; left = s->rights[left])
        top = wi_max(top, s->levels[left]);
    for (uint32_t i = 0; i < s->problem->count; i++) {
        if (s->best[s->leaves + s->positions[i]] == nothing)
            continue;
        s->problem->items[i].offset = top;
        top += s->problem->items[i].length;
    }
}

enum { PUTS_BETWEEN_LOOKS = 64 };

/* Each item that is placed and each run that is raised pushes at most three entries; a raise ends a run, an item makes
 * two. */
static void skyline_fill(skyline *s, wi_work *work)
{
    uint32_t waiting = s->problem->count;
    s->heap_count = 0;
    memset(s->rights, 0, s->problem->sections * sizeof *s->rights);
    set_run(s, 0, s->problem->sections, 0);
    heap_push(s, (wi_key){0, 0});
    while (waiting > 0) {
        wi_key lowest = heap_pop(s);
        uint32_t left = lowest.value, right = s->rights[left];
        if (right == 0 || s->levels[left] != lowest.key)
            continue;
        wi_span positions = {s->first[left], s->first[right]};
        uint32_t rank = best_inside(s, 1, 0, s->leaves, &positions, right, nothing);
        if (rank == nothing) {
            raise_run(s, left, right);
            continue;
        }
        skyline_place(s, left, right, s->of_rank[rank]);
        if (--waiting % PUTS_BETWEEN_LOOKS == 0 && !wi_work_goes_on(work)) {
            pile_up(s);
            return;
        }
    }
}

/* Orders ----------------------------------------------------------------------------------------------------------- */

enum { BY_WIDTH, BY_LENGTH, BY_AREA, BY_LOAD, ORDERS };
static const char *const names[ORDERS] = {"from below, longest lived first", "from below, largest first",
                                          "from below, largest area first", "from below, fullest steps first"};

/* By section: the sum of the lengths that are live in it. */
static void find_loads(const wi_problem *problem, uint64_t *loads)
{
    memset(loads, 0, ((size_t)problem->sections + 1) * sizeof *loads);
    for (uint32_t i = 0; i < problem->count; i++) {
        loads[problem->items[i].left] += problem->items[i].length;
        loads[problem->items[i].right] -= problem->items[i].length;
    }
    for (uint32_t i = 1; i < problem->sections; i++)
        loads[i] += loads[i - 1];
}

/* In 1/64 of the fullest, so that sections that are nearly as full count alike. Looks at some sections of a long
 * item. */
static uint64_t fullness(const wi_problem *problem, const uint64_t *loads, const wi_item *item)
{
    uint64_t most = 0;
    uint32_t step = (item->right - item->left) / 32 + 1;
    for (uint32_t i = item->left; i < item->right; i += step)
        most = wi_max(most, loads[i]);
    return problem->bound >= 64 ? most / (problem->bound / 64) : most;
}

static uint64_t worth(const wi_problem *problem, const uint64_t *loads, const wi_item *item, int order)
{
    uint64_t width = item->right - item->left, area;
    if (__builtin_mul_overflow(item->length, width, &area))
        area = UINT64_MAX;
    switch (order) {
    case BY_WIDTH:
        return width;
    case BY_LENGTH:
        return item->length;
    case BY_AREA:
        return area;
    default:
        return fullness(problem, loads, item) << 32 | width;
    }
}

static void skyline_rank(skyline *s, const uint64_t *loads, wi_key *keys, int order)
{
    uint32_t count = s->problem->count;
    for (uint32_t i = 0; i < count; i++)
        keys[i] = (wi_key){UINT64_MAX - worth(s->problem, loads, &s->problem->items[i], order), i};
    wi_radix_sort(keys, keys + count, count);
    for (uint32_t i = 0; i < count; i++) {
        s->ranks[keys[i].value] = i;
        s->of_rank[i] = keys[i].value;
    }
}

static void sort_by_left(skyline *s, wi_key *keys)
{
    const wi_problem *problem = s->problem;
    uint32_t next = 0;
    for (uint32_t i = 0; i < problem->count; i++)
        keys[i] = (wi_key){problem->items[i].left, i};
    wi_radix_sort(keys, keys + problem->count, problem->count);
    for (uint32_t i = 0; i < problem->count; i++) {
        s->by_left[i] = keys[i].value;
        s->positions[keys[i].value] = i;
    }
    for (uint32_t section = 0; section <= problem->sections; section++) {
        while (next < problem->count && keys[next].key < section)
            next++;
        s->first[section] = next;
    }
}

static bool skyline_make_room(skyline *s)
{
    size_t count = s->problem->count, sections = (size_t)s->problem->sections + 1;
    s->leaves = 1;
    while (s->leaves < count)
        s->leaves *= 2;
    s->levels = malloc(sections * sizeof *s->levels);
    s->rights = malloc(sections * sizeof *s->rights);
    s->lefts = malloc(sections * sizeof *s->lefts);
    s->heap_room = 6 * count + 8;
    s->heap = malloc(s->heap_room * sizeof *s->heap);
    s->by_left = malloc(count * sizeof *s->by_left);
    s->first = malloc(sections * sizeof *s->first);
    s->positions = malloc(count * sizeof *s->positions);
    s->ranks = malloc(count * sizeof *s->ranks);
    s->of_rank = malloc(count * sizeof *s->of_rank);
    s->best = malloc(2 * (size_t)s->leaves * sizeof *s->best);
    s->nearest = malloc(2 * (size_t)s->leaves * sizeof *s->nearest);
    return s->levels && s->rights && s->lefts && s->heap && s->by_left && s->first && s->positions && s->ranks &&
           s->of_rank && s->best && s->nearest;
}

bool wi_solve_from_below(wi_problem *problem, wi_work *work, wi_best *best)
{
    skyline s = {.problem = problem};
    wi_key *keys = malloc(2 * (size_t)problem->count * sizeof *keys);
    uint64_t *loads = malloc(((size_t)problem->sections + 1) * sizeof *loads);
    bool good = skyline_make_room(&s) && keys && loads;
    if (good) {
        sort_by_left(&s, keys);
        find_loads(problem, loads);
    }
    for (int order = 0; order < ORDERS && good && wi_work_goes_on(work); order++) {
        skyline_rank(&s, loads, keys, order);
        build_tree(&s);
        skyline_fill(&s, work);
        if (wi_best_keep(problem, best, names[order]))
            break;
    }
    void *const all[] = {s.levels, s.rights,  s.lefts, s.heap,    s.by_left, s.first, s.positions,
                         s.ranks,  s.of_rank, s.best,  s.nearest, keys,      loads};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    return good;
}
