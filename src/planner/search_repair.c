/* Tries of the exact search, one after the other: at the lower bound, and, as long as that is not reached, repairs of the
 * best so far. Effort is shared out by nodes of the search, so the answer does not depend on the clock. */
#include "planner/search.h"
#include "base/internal.h"

/* What comes first differs from try to try, as no order serves every problem; each is good at some. */
static const wi_cover_way ways[] = {
    {.height = 0, .width = 2, .edges = 1, .weighted = false}, {.height = 1, .width = 0, .edges = 0, .weighted = true},
    {.height = 2, .width = 1, .edges = 1, .weighted = true},  {.height = 1, .width = 2, .edges = 0, .weighted = false},
    {.height = 0, .width = -1, .edges = 0, .weighted = true}, {.height = 1, .width = 1, .edges = 2, .weighted = true},
};
enum { WAYS = sizeof ways / sizeof ways[0], NODES_PER_ITEM = 3, FIRST_SHARE = 256, CLIMB = 16384 };

typedef struct climb {
    wi_problem *problem;
    wi_work *work;
    wi_best *best;
    wi_cover *cover;
    wi_cover_repair *repair;
    uint64_t *offsets; /* by item: the best of this climb */
    uint64_t height;
    unsigned tries;
} climb;

static wi_cover_way next_way(climb *c)
{
    unsigned round = c->tries / WAYS;
    wi_cover_way way = ways[c->tries % WAYS];
    if (round > 0)
        way.noise = 1;
    way.weighted ^= round % 2;
    way.nodes = (uint64_t)NODES_PER_ITEM * c->problem->count << wi_min(round / 2, 20);
    c->tries++;
    return way;
}

static void keep(climb *c, const int64_t *bottoms, const char *by)
{
    for (uint32_t i = 0; i < c->problem->count; i++)
        c->problem->items[c->cover->items[i].source].offset = (uint64_t)bottoms[i] * c->cover->unit;
    uint64_t height = wi_problem_height(c->problem);
    for (uint32_t i = 0; i < c->problem->count && height < c->height; i++)
        c->offsets[i] = c->problem->items[i].offset;
    c->height = wi_min(height, c->height);
    (void)wi_best_keep(c->problem, c->best, by);
    c->work->arena = c->work->others + c->best->height;
}

/* Tries until so many nodes are spent. */
static wi_cover_answer try_cap(climb *c, int64_t cap, uint64_t nodes)
{
    wi_cover_answer answer = WI_COVER_GAVE_UP;
    uint64_t end = c->work->spent + nodes;
    wi_cover_limit(c->cover, cap);
    while (answer == WI_COVER_GAVE_UP && c->work->spent < end && !c->work->stopped && c->work->spent < c->work->limit) {
        wi_cover_way way = next_way(c);
        answer = wi_cover_try(c->cover, &way, NULL, c->work);
    }
    if (answer == WI_COVER_FOUND)
        keep(c, c->cover->bottoms, "search");
    return answer;
}

/* Makes parts of the climb's best anew, until the nodes are spent. */
static wi_cover_answer improve(climb *c, int64_t low, uint64_t nodes)
{
    int64_t *bottoms = wi_cover_repair_bottoms(c->repair);
    wi_cover_answer answer = WI_COVER_GAVE_UP;
    uint64_t end = c->work->spent + nodes;
    for (uint32_t i = 0; i < c->problem->count; i++)
        bottoms[i] = (int64_t)(c->offsets[c->cover->items[i].source] / c->cover->unit);
    wi_cover_repair_begin(c->repair, low);
    while (answer != WI_COVER_NONE && answer != WI_COVER_NO_MEMORY && c->work->spent < end &&
           wi_work_spend(c->work, 1)) {
        answer = wi_cover_repair_try(c->repair, low, c->work);
        if (answer == WI_COVER_FOUND || answer == WI_COVER_NONE)
            keep(c, bottoms, "repairs");
    }
    return answer;
}

/* The fullest section: items that may be written over others, and are not, take more there than the bound counts. */
static int64_t lowest_cap(const climb *c)
{
    int64_t low = (int64_t)((c->problem->bound + c->cover->unit - 1) / c->cover->unit);
    for (uint32_t s = 0; s < c->cover->sections; s++)
        low = low < c->cover->rest[s] ? c->cover->rest[s] : low;
    return low;
}

static bool begin(climb *c, const uint64_t *offsets)
{
    c->cover = wi_cover_create(c->problem);
    c->repair = c->cover ? wi_cover_repair_create(c->cover) : NULL;
    c->offsets = malloc(c->problem->count * sizeof *c->offsets);
    c->height = UINT64_MAX;
    if (!c->repair || !c->offsets)
        return false;
    memcpy(c->offsets, offsets, c->problem->count * sizeof *offsets);
    return true;
}

static void end(climb *c)
{
    wi_cover_repair_destroy(c->repair);
    wi_cover_destroy(c->cover);
    free(c->offsets);
}

/* Tries at the goal and repairs by turns, from the beginning, with other random numbers; WI_COVER_NONE when the goal is
 * reached or impossible. */
static wi_cover_answer climb_once(climb *c, int64_t goal)
{
    uint64_t share = (uint64_t)FIRST_SHARE * c->problem->count,
             until = c->work->spent + (uint64_t)CLIMB * c->problem->count;
    wi_cover_answer answer = WI_COVER_GAVE_UP;
    for (; c->work->spent < until && wi_work_spend(c->work, 1); share *= 2) {
        answer = try_cap(c, goal, share);
        if (answer == WI_COVER_GAVE_UP)
            answer = improve(c, goal, share);
        if (answer == WI_COVER_NO_MEMORY || answer == WI_COVER_NONE)
            return answer;
        if ((uint64_t)goal * c->cover->unit >= c->best->height)
            return WI_COVER_NONE;
    }
    return WI_COVER_GAVE_UP;
}

/* How far repairs get is luck, most of which is in how they begin: so after a long climb others begin where it began. */
static wi_cover_answer climb_again(climb *first, const uint64_t *start, unsigned *number, int64_t goal, uint64_t nodes)
{
    uint64_t until = first->work->spent + nodes;
    wi_cover_answer answer = WI_COVER_GAVE_UP;
    while (answer == WI_COVER_GAVE_UP && first->work->spent < until && wi_work_spend(first->work, 1)) {
        climb c = {.problem = first->problem, .work = first->work, .best = first->best};
        answer = WI_COVER_NO_MEMORY;
        if (begin(&c, start)) {
            c.cover->random += ++*number;
            wi_cover_repair_wander(c.repair);
            answer = climb_once(&c, goal);
        }
        end(&c);
    }
    return answer;
}

/* What is looked for is the bound, or what is enough; where that is proven to be impossible, one unit more. */
static bool climb_up(climb *c, const uint64_t *start)
{
    uint64_t unit = c->cover->unit, share = (uint64_t)FIRST_SHARE * c->problem->count;
    int64_t low = lowest_cap(c), goal = (int64_t)(c->best->enough / unit);
    for (unsigned climbs = 0;; share *= 2) {
        wi_cover_answer answer = WI_COVER_NONE;
        goal = goal < low ? low : goal;
        while (answer == WI_COVER_NONE && goal < (int64_t)(c->best->height / unit)) {
            answer = try_cap(c, goal, share);
            if (answer == WI_COVER_NONE)
                low = ++goal;
        }
        c->best->proven |= !c->problem->in_place && (uint64_t)low * unit >= c->best->height;
        if ((uint64_t)goal * unit >= c->best->height || answer == WI_COVER_NO_MEMORY)
            return answer != WI_COVER_NO_MEMORY;
        if (share < (uint64_t)CLIMB / 2 * c->problem->count)
            answer = improve(c, goal, share);
        else
            answer = climb_again(c, start, &climbs, goal, 3 * share);
        if (answer == WI_COVER_NONE && (uint64_t)goal * unit < c->best->height)
            low = goal + 1;
        if (answer == WI_COVER_NO_MEMORY)
            return false;
        if (c->work->stopped || c->work->spent >= c->work->limit)
            return true;
    }
}

bool wi_solve_by_search(wi_problem *problem, wi_work *work, wi_best *best)
{
    climb c = {.problem = problem, .work = work, .best = best};
    uint64_t *start = malloc(problem->count * sizeof *start);
    bool good = start && begin(&c, best->offsets);
    work->arena = work->others + best->height;
    if (good) {
        memcpy(start, best->offsets, problem->count * sizeof *start);
        good = climb_up(&c, start);
    }
    end(&c);
    free(start);
    return good;
}
