/* Tries of the exact search, one after the other: at the lower bound, and, as long as that is not reached, in
 * neighbourhoods of the best solution so far (large neighbourhood search, Shaw 1998). Effort is shared out by nodes of
 * the search, so the result does not depend on the clock. */
#include "base/internal.h"
#include "planner/problem.h"
#include "planner/solve.h"

/* Neighbourhoods --------------------------------------------------------------------------------------------------- */

/* Most of a solution is kept, the rest is searched for again under a lower cap. What is kept lies below a cut, which is
 * lower in a random stretch of time. The solution is also turned upside down now and then, so that any part of it may
 * be the one that is searched for. */
enum { NODES_PER_NEIGHBOUR = 6, PATIENCE = 24, SIDEWAYS = 7 };

typedef struct lns {
    wi_search *search;
    int64_t *bottoms; /* by item: the solution */
    uint32_t *order;  /* items, the lowest bottom first */
    int64_t *tops;    /* by section */
    int64_t *cuts;    /* by section */
    wi_key *keys;
    int64_t height;
    int64_t step; /* how much lower the cap is */
    int failures; /* in a row */
    bool wanders;
} lns;

static void destroy_lns(lns *r)
{
    if (!r)
        return;
    void *const all[] = {r->bottoms, r->order, r->tops, r->cuts, r->keys, r};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static lns *create_lns(wi_search *search)
{
    lns *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->search = search;
    r->bottoms = malloc(search->count * sizeof *r->bottoms);
    r->order = malloc(search->count * sizeof *r->order);
    r->tops = malloc(search->sections * sizeof *r->tops);
    r->cuts = malloc(search->sections * sizeof *r->cuts);
    r->keys = malloc(2 * (size_t)search->count * sizeof *r->keys);
    if (r->bottoms && r->order && r->tops && r->cuts && r->keys)
        return r;
    destroy_lns(r);
    return NULL;
}

static void sort_by_bottom(lns *r)
{
    for (uint32_t i = 0; i < r->search->count; i++)
        r->keys[i] = (wi_key){(uint64_t)r->bottoms[i], i};
    wi_radix_sort(r->keys, r->keys + r->search->count, r->search->count);
    for (uint32_t i = 0; i < r->search->count; i++)
        r->order[i] = r->keys[i].value;
}

/* Lets everything sink as far as it goes. */
static void neighbourhood_sink(lns *r)
{
    sort_by_bottom(r);
    r->height = 0;
    memset(r->tops, 0, r->search->sections * sizeof *r->tops);
    for (uint32_t k = 0; k < r->search->count; k++) {
        const wi_search_item *item = &r->search->items[r->order[k]];
        int64_t level = 0;
        for (uint32_t s = item->left; s < item->right; s++)
            level = r->tops[s] > level ? r->tops[s] : level;
        for (uint32_t s = item->left; s < item->right; s++)
            r->tops[s] = level + item->height;
        r->bottoms[r->order[k]] = level;
        r->height = level + item->height > r->height ? level + item->height : r->height;
    }
    sort_by_bottom(r);
}

static void flip(lns *r)
{
    for (uint32_t i = 0; i < r->search->count; i++)
        r->bottoms[i] = r->height - r->bottoms[i] - r->search->items[i].height;
    neighbourhood_sink(r);
}

static int64_t neighbourhood_part_of(lns *r, int64_t whole)
{
    return (int64_t)((unsigned __int128)wi_search_random(r->search) * (uint64_t)(whole + 1) >> 64);
}

/* Everywhere the same one time in four. */
static void neighbourhood_cut(lns *r)
{
    uint32_t sections = r->search->sections;
    int64_t low = neighbourhood_part_of(r, r->search->cap), high = low;
    uint32_t left = 0, right = sections;
    if (neighbourhood_part_of(r, 3) > 0) {
        left = (uint32_t)neighbourhood_part_of(r, sections - 1);
        right = left + 1 + (uint32_t)neighbourhood_part_of(r, sections / 2);
        high = neighbourhood_part_of(r, 1) ? r->search->cap : low + neighbourhood_part_of(r, r->search->cap - low);
    }
    for (uint32_t s = 0; s < sections; s++)
        r->cuts[s] = s >= left && s < right ? low : high;
}

static wi_strategy random_strategy(lns *r)
{
    return (wi_strategy){.height = (int8_t)neighbourhood_part_of(r, 2),
                         .width = (int8_t)(neighbourhood_part_of(r, 3) - 1),
                         .edges = (int8_t)neighbourhood_part_of(r, 2),
                         .noise = (int8_t)(1 + neighbourhood_part_of(r, 1)),
                         .weighted = neighbourhood_part_of(r, 1),
                         .nodes = (uint64_t)NODES_PER_NEIGHBOUR * r->search->count};
}

static void start_lns(lns *r, int64_t low)
{
    neighbourhood_sink(r);
    r->step = r->height - low;
    r->failures = 0;
}

/* The step is halved when nothing is found for a while, and grows with each success. */
static void neighbourhood_learn(lns *r, bool found)
{
    r->failures = found ? 0 : r->failures + 1;
    if (found)
        r->step += r->step / 2;
    else if (r->failures % PATIENCE == 0 && r->step > 1)
        r->step /= 2;
}

/* Now and then (`wanders`) a solution that is as high, and otherwise different, takes the place of this one, so that
 * others come within reach. WI_SEARCH_FOUND when it got lower, WI_SEARCH_NONE when it is as low as `low`. */
static wi_search_result try_neighbour(lns *r, int64_t low, wi_work *work)
{
    wi_search *search = r->search;
    if (neighbourhood_part_of(r, 1))
        flip(r);
    if (r->height <= low)
        return WI_SEARCH_NONE;
    int64_t height = r->height, lower = height - r->step;
    bool sideways = r->wanders && neighbourhood_part_of(r, SIDEWAYS - 1) == 0;
    if (sideways)
        wi_search_limit_once(search, height);
    else
        wi_search_limit(search, lower > low ? lower : low);
    neighbourhood_cut(r);
    wi_search_solution solution = {r->bottoms, r->order, r->cuts};
    wi_strategy strategy = random_strategy(r);
    wi_search_result result = wi_search_try(search, &strategy, &solution, work);
    if (result == WI_SEARCH_FOUND) {
        memcpy(r->bottoms, search->bottoms, search->count * sizeof *r->bottoms);
        neighbourhood_sink(r);
    }
    bool better = r->height < height;
    if (better || !sideways)
        neighbourhood_learn(r, better);
    return result == WI_SEARCH_FOUND && !better ? WI_SEARCH_GAVE_UP : result;
}

/* Climbs ----------------------------------------------------------------------------------------------------------- */

/* What comes first differs from try to try, as no order serves every problem; each is good at some. */
static const wi_strategy strategies[] = {
    {.height = 0, .width = 2, .edges = 1, .weighted = false}, {.height = 1, .width = 0, .edges = 0, .weighted = true},
    {.height = 2, .width = 1, .edges = 1, .weighted = true},  {.height = 1, .width = 2, .edges = 0, .weighted = false},
    {.height = 0, .width = -1, .edges = 0, .weighted = true}, {.height = 1, .width = 1, .edges = 2, .weighted = true},
};
enum { STRATEGIES = sizeof strategies / sizeof strategies[0], NODES_PER_ITEM = 3, FIRST_SHARE = 256, CLIMB = 16384 };

typedef struct climb {
    wi_problem *problem;
    wi_work *work;
    wi_best *best;
    wi_search *search;
    lns *lns;
    uint64_t *offsets; /* by item: the best of this climb */
    uint64_t height;
    unsigned tries;
} climb;

static wi_strategy next_strategy(climb *c)
{
    unsigned round = c->tries / STRATEGIES;
    wi_strategy strategy = strategies[c->tries % STRATEGIES];
    if (round > 0)
        strategy.noise = 1;
    strategy.weighted ^= round % 2;
    strategy.nodes = (uint64_t)NODES_PER_ITEM * c->problem->count << wi_min(round / 2, 20);
    c->tries++;
    return strategy;
}

static void neighbourhood_keep(climb *c, const int64_t *bottoms, const char *by)
{
    for (uint32_t i = 0; i < c->problem->count; i++)
        c->problem->items[c->search->items[i].source].offset = (uint64_t)bottoms[i] * c->search->unit;
    uint64_t height = wi_problem_height(c->problem);
    for (uint32_t i = 0; i < c->problem->count && height < c->height; i++)
        c->offsets[i] = c->problem->items[i].offset;
    c->height = wi_min(height, c->height);
    (void)wi_best_keep(c->problem, c->best, by);
    c->work->arena = c->work->others + c->best->height;
}

/* Tries until so many nodes are spent. */
static wi_search_result try_cap(climb *c, int64_t cap, uint64_t nodes)
{
    wi_search_result result = WI_SEARCH_GAVE_UP;
    uint64_t end = c->work->spent + nodes;
    wi_search_limit(c->search, cap);
    while (result == WI_SEARCH_GAVE_UP && c->work->spent < end && !c->work->stopped &&
           c->work->spent < c->work->limit) {
        wi_strategy strategy = next_strategy(c);
        result = wi_search_try(c->search, &strategy, NULL, c->work);
    }
    if (result == WI_SEARCH_FOUND)
        neighbourhood_keep(c, c->search->bottoms, "search");
    return result;
}

/* Searches again for parts of the best plan so far, until the nodes are spent. */
static wi_search_result neighbourhood_improve(climb *c, int64_t low, uint64_t nodes)
{
    int64_t *bottoms = c->lns->bottoms;
    wi_search_result result = WI_SEARCH_GAVE_UP;
    uint64_t end = c->work->spent + nodes;
    for (uint32_t i = 0; i < c->problem->count; i++)
        bottoms[i] = (int64_t)(c->offsets[c->search->items[i].source] / c->search->unit);
    start_lns(c->lns, low);
    while (result != WI_SEARCH_NONE && result != WI_SEARCH_NO_MEMORY && c->work->spent < end &&
           wi_work_spend(c->work, 1)) {
        result = try_neighbour(c->lns, low, c->work);
        if (result == WI_SEARCH_FOUND || result == WI_SEARCH_NONE)
            neighbourhood_keep(c, bottoms, "neighbourhood search");
    }
    return result;
}

/* The fullest section: items that may be written over others, and are not, take more there than the bound counts. */
static int64_t lowest_cap(const climb *c)
{
    int64_t low = (int64_t)((c->problem->bound + c->search->unit - 1) / c->search->unit);
    for (uint32_t s = 0; s < c->search->sections; s++)
        low = low < c->search->rest[s] ? c->search->rest[s] : low;
    return low;
}

static bool neighbourhood_begin(climb *c, const uint64_t *offsets)
{
    c->search = wi_search_create(c->problem);
    c->lns = c->search ? create_lns(c->search) : NULL;
    c->offsets = malloc(c->problem->count * sizeof *c->offsets);
    c->height = UINT64_MAX;
    if (!c->lns || !c->offsets)
        return false;
    memcpy(c->offsets, offsets, c->problem->count * sizeof *offsets);
    return true;
}

static void neighbourhood_end(climb *c)
{
    destroy_lns(c->lns);
    wi_search_destroy(c->search);
    free(c->offsets);
}

/* Tries at the goal and in neighbourhoods by turns, from the beginning, with other random numbers; WI_SEARCH_NONE when
 * the goal is reached or impossible. */
static wi_search_result climb_once(climb *c, int64_t goal)
{
    uint64_t share = (uint64_t)FIRST_SHARE * c->problem->count,
             until = c->work->spent + (uint64_t)CLIMB * c->problem->count;
    wi_search_result result = WI_SEARCH_GAVE_UP;
    for (; c->work->spent < until && wi_work_spend(c->work, 1); share *= 2) {
        result = try_cap(c, goal, share);
        if (result == WI_SEARCH_GAVE_UP)
            result = neighbourhood_improve(c, goal, share);
        if (result == WI_SEARCH_NO_MEMORY || result == WI_SEARCH_NONE)
            return result;
        if ((uint64_t)goal * c->search->unit >= c->best->height)
            return WI_SEARCH_NONE;
    }
    return WI_SEARCH_GAVE_UP;
}

/* Climbs again from the same start with other random numbers, until a climb ends with a result or `nodes` steps are
 * spent. The height that a climb reaches depends mostly on its first random choices, so that new climbs do better than
 * a longer climb. */
static wi_search_result climb_again(climb *first, const uint64_t *start, unsigned *number, int64_t goal, uint64_t nodes)
{
    uint64_t until = first->work->spent + nodes;
    wi_search_result result = WI_SEARCH_GAVE_UP;
    while (result == WI_SEARCH_GAVE_UP && first->work->spent < until && wi_work_spend(first->work, 1)) {
        climb c = {.problem = first->problem, .work = first->work, .best = first->best};
        result = WI_SEARCH_NO_MEMORY;
        if (neighbourhood_begin(&c, start)) {
            c.search->random += ++*number;
            c.lns->wanders = true;
            result = climb_once(&c, goal);
        }
        neighbourhood_end(&c);
    }
    return result;
}

/* What is looked for is the bound, or what is enough; where that is proven to be impossible, one unit more. */
static bool climb_up(climb *c, const uint64_t *start)
{
    uint64_t unit = c->search->unit, share = (uint64_t)FIRST_SHARE * c->problem->count;
    int64_t low = lowest_cap(c), goal = (int64_t)(c->best->enough / unit);
    for (unsigned climbs = 0;; share *= 2) {
        wi_search_result result = WI_SEARCH_NONE;
        goal = goal < low ? low : goal;
        while (result == WI_SEARCH_NONE && goal < (int64_t)(c->best->height / unit)) {
            result = try_cap(c, goal, share);
            if (result == WI_SEARCH_NONE)
                low = ++goal;
        }
        c->best->proven |= !c->problem->in_place && (uint64_t)low * unit >= c->best->height;
        if ((uint64_t)goal * unit >= c->best->height || result == WI_SEARCH_NO_MEMORY)
            return result != WI_SEARCH_NO_MEMORY;
        if (share < (uint64_t)CLIMB / 2 * c->problem->count)
            result = neighbourhood_improve(c, goal, share);
        else
            result = climb_again(c, start, &climbs, goal, 3 * share);
        if (result == WI_SEARCH_NONE && (uint64_t)goal * unit < c->best->height)
            low = goal + 1;
        if (result == WI_SEARCH_NO_MEMORY)
            return false;
        if (c->work->stopped || c->work->spent >= c->work->limit)
            return true;
    }
}

bool wi_solve_by_search(wi_problem *problem, wi_work *work, wi_best *best)
{
    climb c = {.problem = problem, .work = work, .best = best};
    uint64_t *start = malloc(problem->count * sizeof *start);
    bool good = start && neighbourhood_begin(&c, best->offsets);
    work->arena = work->others + best->height;
    if (good) {
        memcpy(start, best->offsets, problem->count * sizeof *start);
        good = climb_up(&c, start);
    }
    neighbourhood_end(&c);
    free(start);
    return good;
}
