#include "planner/solve.h"
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

bool wi_work_goes_on(wi_work *work)
{
    look_at_clock(work);
    return !work->stopped;
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

/* The first fixed item before `later` that it shares bytes with. */
static uint32_t fixed_one_met_by(const wi_problem *problem, uint32_t later)
{
    const wi_item *other = &problem->items[later];
    for (uint32_t i = 0; i < later; i++) {
        const wi_item *one = &problem->items[i];
        if (one->fixed && one->offset < other->offset + other->length && other->offset < one->offset + one->length &&
            wi_items_meet(problem, one, other))
            return i;
    }
    return later;
}

/* WEIR_CONFLICT with two fixed items that meet; WEIR_SYSTEM without host memory. */
static weir_status check_fixed_ones(const wi_problem *problem, uint32_t pair[2])
{
    wi_placed *placed = wi_placed_create(problem);
    weir_status status = placed ? WEIR_OK : WEIR_SYSTEM;
    for (uint32_t i = 0; i < problem->count && status == WEIR_OK; i++) {
        uint64_t offset = problem->items[i].offset, lowest;
        if (!problem->items[i].fixed)
            continue;
        if (!wi_placed_lowest(placed, i, offset, &lowest) || !wi_placed_add(placed, i)) {
            status = WEIR_SYSTEM;
        } else if (lowest != offset) {
            pair[0] = fixed_one_met_by(problem, i);
            pair[1] = i;
            status = WEIR_CONFLICT;
        }
    }
    wi_placed_destroy(placed);
    return status;
}

/* Above so many items the search does not come to anything. */
enum { SEARCH_ITEMS = 3000 };

static bool solve_plain(wi_problem *problem, wi_work *work, wi_best *best)
{
    if (!wi_solve_from_below(problem, work, best))
        return false;
    if (best->height <= best->enough || work->options->mode == WEIR_PLAN_QUICK)
        return true;
    if (!wi_solve_greedily(problem, work, best))
        return false;
    return best->height <= best->enough || problem->count > SEARCH_ITEMS || work->stopped ||
           wi_solve_by_search(problem, work, best);
}

weir_status wi_solve(wi_problem *problem, wi_work *work, wi_best *best, uint32_t pair[2])
{
    if (problem->count == 0) {
        best->proven = true;
        return WEIR_OK;
    }
    weir_status status = problem->plain ? WEIR_OK : check_fixed_ones(problem, pair);
    if (status != WEIR_OK)
        return status;
    bool good = true;
    best->enough = wi_max(problem->bound, work->options->enough);
    wi_solve_bump(problem); /* a plan, whenever the time is up */
    (void)wi_best_keep(problem, best, "one behind the other");
    work->arena = work->others + best->height;
    if (work->options->mode != WEIR_PLAN_BUMP && best->height > problem->bound)
        good = problem->plain ? solve_plain(problem, work, best) : wi_solve_greedily(problem, work, best);
    for (uint32_t i = 0; i < problem->count && good; i++)
        problem->items[i].offset = best->offsets[i];
    return good ? WEIR_OK : WEIR_SYSTEM;
}
