/* weir_plan_make: from a list to problems, from their solutions to a plan. */
#include "planner/plan.h"
#include "planner/solve.h"
#include "planner/storage.h"
#include "base/internal.h"

static weir_status read_options(const weir_plan_options *given, weir_plan_options *out)
{
    *out = (weir_plan_options){.size = sizeof *out};
    if (given && !wi_copy_in(out, sizeof *out, given, given->size))
        return weir_fail(WEIR_INVALID, "weir_plan_make: options without their size");
    if ((unsigned)out->mode > WEIR_PLAN_BUMP)
        return weir_fail(WEIR_INVALID, "weir_plan_make: %d is no mode", (int)out->mode);
    if (out->alignment == 0)
        out->alignment = 1;
    if (!wi_power_of_two(out->alignment))
        return weir_fail(WEIR_INVALID, "weir_plan_make: an alignment of %llu, which is no power of two",
                         (unsigned long long)out->alignment);
    if (!(out->seconds >= 0))
        return weir_fail(WEIR_INVALID, "weir_plan_make: a limit of %g seconds", out->seconds);
    return WEIR_OK;
}

static const char *leader_name(const wi_stores *stores, weir_kind kind, uint32_t item)
{
    for (uint32_t i = 0; i < stores->buffers->count; i++)
        if (stores->buffers->items[i].kind == kind && stores->all[i].length > 0 && stores->all[i].leader == i &&
            stores->all[i].item == item)
            return wi_buffer_name(stores->buffers, i);
    return "?";
}

static weir_status solve_kind(wi_stores *stores, weir_kind kind, wi_work *work, weir_plan *plan)
{
    wi_problem *problem = &stores->problems[kind];
    wi_best best = {.height = UINT64_MAX, .found_by = "nothing to place"};
    uint32_t pair[2];
    work->others -= problem->bound;
    best.offsets = calloc(problem->count ? problem->count : 1, sizeof *best.offsets);
    weir_status status = best.offsets ? wi_solve(problem, work, &best, pair) : WEIR_SYSTEM;
    if (status == WEIR_SYSTEM)
        status = weir_fail(WEIR_SYSTEM, "planning %u buffers: no host memory", problem->count);
    if (status == WEIR_CONFLICT)
        status = weir_fail(WEIR_CONFLICT,
                           "the fixed buffers %.200s and %.200s are live together and share bytes; move one, or let "
                           "the plan place it",
                           leader_name(stores, kind, pair[0]), leader_name(stores, kind, pair[1]));
    if (status == WEIR_OK) {
        plan->bounds[kind] = problem->bound;
        plan->summary.proven &= best.proven;
        if (problem->count > 0) {
            plan->summary.found_by = best.found_by;
            work->others += best.height;
        }
    }
    free(best.offsets);
    return status;
}

static weir_status solve(wi_stores *stores, wi_work *work, weir_plan *plan)
{
    weir_status status = WEIR_OK;
    plan->summary = (weir_plan_summary){.size = sizeof plan->summary,
                                        .alignment = work->options->alignment,
                                        .proven = true,
                                        .found_by = "nothing to place"};
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++)
        work->bound += stores->problems[kind].bound;
    work->others = work->bound;
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT && status == WEIR_OK; kind++)
        status = solve_kind(stores, (weir_kind)kind, work, plan);
    if (status != WEIR_OK)
        return status;
    for (uint32_t i = 0; i < plan->buffers->count; i++)
        plan->offsets[i] = wi_stores_offset(stores, i, &plan->roots[i]);
    wi_plan_sum_up(plan);
    plan->summary.stopped = work->stopped;
    plan->summary.effort = work->spent;
    plan->summary.seconds = wi_work_seconds(work);
    return WEIR_OK;
}

/* Where a view lies follows from its storage alone. */
static weir_status check_views(const weir_plan *plan)
{
    for (uint32_t i = 0; i < plan->buffers->count; i++) {
        const wi_buffer *b = &plan->buffers->items[i];
        if (b->sharing != WEIR_SHARING_VIEW || b->bytes == 0 || b->alignment < 2 ||
            plan->offsets[i] % b->alignment == 0)
            continue;
        return weir_fail(WEIR_INVALID,
                         "buffer %.200s: a view that lies %llu bytes into %.200s, and so at %llu, which is no multiple "
                         "of its alignment %llu; an alignment of the storage and the place in it decide that",
                         wi_buffer_name(plan->buffers, i), (unsigned long long)b->from,
                         wi_buffer_name(plan->buffers, b->root), (unsigned long long)plan->offsets[i],
                         (unsigned long long)b->alignment);
    }
    return WEIR_OK;
}

weir_status weir_plan_make(const weir_buffers *buffers, const weir_plan_options *options, weir_plan **out)
{
    weir_plan_options all;
    wi_stores stores;
    wi_work work;
    if (!buffers || !out)
        return weir_fail(WEIR_INVALID, "weir_plan_make: NULL");
    weir_status status = read_options(options, &all);
    wi_work_begin(&work, &all);
    if (status == WEIR_OK)
        status = wi_stores_make(buffers, all.alignment, &stores);
    if (status != WEIR_OK)
        return status;
    weir_plan *plan = wi_plan_create(buffers);
    status = plan ? solve(&stores, &work, plan) : weir_fail(WEIR_SYSTEM, "a plan: no host memory");
    wi_stores_clear(&stores);
    if (status == WEIR_OK)
        status = check_views(plan);
    if (status == WEIR_OK) {
        wi_law(weir_plan_check(plan, NULL) == WEIR_OK);
        *out = plan;
    } else {
        weir_plan_destroy(plan);
    }
    return status;
}
