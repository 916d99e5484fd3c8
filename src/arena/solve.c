#include "arena/solve.h"
#include "base/internal.h"
#include "base/system.h"

enum { DEFAULT_EFFORT = 4 * 1000 * 1000, LOOK_AFTER = 4096 };
static const uint64_t tell_after = UINT64_C(100000000); /* nanoseconds */

/* Work ------------------------------------------------------------------------------------------------------------- */

void wi_work_begin(wi_work *work, const weir_plan_options *options)
{
    *work =
        (wi_work){.options = options, .limit = options->effort ? options->effort : DEFAULT_EFFORT, .began = wi_now()};
    work->told = work->began;
}

double wi_work_seconds(const wi_work *work)
{
    return (double)(wi_now() - work->began) * 1e-9;
}

static void look_at_clock(wi_work *work)
{
    const weir_plan_options *options = work->options;
    uint64_t time = wi_now();
    double seconds = (double)(time - work->began) * 1e-9;
    work->looked = work->spent;
    if (options->seconds > 0 && seconds >= options->seconds)
        work->stopped = true;
    if (!options->progress || time - work->told < tell_after)
        return;
    work->told = time;
    weir_plan_progress progress = {.size = sizeof progress,
                                   .arena = work->arena,
                                   .lower_bound = work->bound,
                                   .seconds = seconds,
                                   .done = (double)work->spent / (double)work->limit};
    work->stopped |= !options->progress(&progress, options->user);
}

bool wi_work_spend(wi_work *work, uint64_t steps)
{
    work->spent += steps;
    if (work->spent - work->looked >= LOOK_AFTER)
        look_at_clock(work);
    return !work->stopped && work->spent < work->limit;
}

/* The best --------------------------------------------------------------------------------------------------------- */

bool wi_best_keep(const wi_problem *problem, wi_best *best, const char *by)
{
    uint64_t height = wi_problem_height(problem);
    if (height < best->height) {
        for (uint32_t i = 0; i < problem->count; i++)
            best->offsets[i] = problem->items[i].offset;
        best->height = height;
        best->found_by = by;
        best->proven |= height == problem->bound;
    }
    return best->height <= best->enough;
}

/* Solving ---------------------------------------------------------------------------------------------------------- */

static bool fixed_ones_meet(const wi_problem *problem, uint32_t pair[2])
{
    for (uint32_t i = 0; i < problem->count; i++)
        for (uint32_t j = i + 1; problem->items[i].fixed && j < problem->count; j++) {
            const wi_item *one = &problem->items[i], *other = &problem->items[j];
            if (other->fixed && one->offset < other->offset + other->length &&
                other->offset < one->offset + one->length && wi_items_meet(problem, one, other)) {
                pair[0] = i;
                pair[1] = j;
                return true;
            }
        }
    return false;
}

/* Above so many items a pass of the greedy placement, which looks at all pairs, costs more than a second. */
enum { GREEDY_ITEMS = 30000, SEARCH_ITEMS = 3000 };

static bool solve_plain(wi_problem *problem, wi_work *work, wi_best *best)
{
    if (!wi_solve_from_below(problem, best))
        return false;
    if (best->height <= best->enough || work->options->mode == WEIR_PLAN_QUICK)
        return true;
    if (problem->count <= GREEDY_ITEMS && !wi_solve_greedily(problem, best))
        return false;
    return best->height <= best->enough || problem->count > SEARCH_ITEMS || wi_solve_by_search(problem, work, best);
}

weir_status wi_solve(wi_problem *problem, wi_work *work, wi_best *best, uint32_t pair[2])
{
    if (problem->count == 0) {
        best->proven = true;
        return WEIR_OK;
    }
    if (fixed_ones_meet(problem, pair))
        return WEIR_CONFLICT;
    bool good = true;
    best->enough = wi_max(problem->bound, work->options->enough);
    if (work->options->mode == WEIR_PLAN_BUMP) {
        wi_solve_bump(problem);
        (void)wi_best_keep(problem, best, "one behind the other");
    } else {
        good = problem->plain ? solve_plain(problem, work, best) : wi_solve_greedily(problem, best);
    }
    for (uint32_t i = 0; i < problem->count && good; i++)
        problem->items[i].offset = best->offsets[i];
    return good ? WEIR_OK : WEIR_SYSTEM;
}
