/* weir_plan_create: from a list to problems, from their solutions to a plan; and what is told of plans. */
#include "planner/buffers.h"
#include <weir/plan.h>
#include "base/internal.h"
#include "base/system.h"
#include "planner/solve.h"

/* Plans ------------------------------------------------------------------------------------------------------------ */

weir_plan *wi_plan_create(const weir_buffers *buffers)
{
    weir_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    size_t count = buffers->count ? buffers->count : 1;
    plan->buffers = wi_buffers_copy(buffers);
    plan->offsets = calloc(count, sizeof *plan->offsets);
    plan->roots = calloc(count, sizeof *plan->roots);
    if (plan->buffers && plan->offsets && plan->roots)
        return plan;
    weir_plan_destroy(plan);
    return NULL;
}

void weir_plan_destroy(weir_plan *plan)
{
    if (!plan)
        return;
    weir_buffers_destroy(plan->buffers);
    free(plan->offsets);
    free(plan->roots);
    free(plan);
}

uint64_t wi_plan_length(const weir_plan *plan, uint32_t index)
{
    const wi_buffer *b = &plan->buffers->items[index];
    return b->root == index ? wi_round_up(b->bytes, plan->summary.alignment) : b->bytes;
}

void wi_plan_sum_up(weir_plan *plan)
{
    const weir_buffers *buffers = plan->buffers;
    weir_plan_details *sum = &plan->summary;
    sum->buffers = (uint32_t)buffers->count;
    sum->steps = wi_buffers_steps(buffers);
    sum->arena = sum->lower_bound = sum->unshared = sum->in_place = 0;
    memset(plan->arenas, 0, sizeof plan->arenas);
    for (uint32_t i = 0; i < buffers->count; i++) {
        const wi_buffer *b = &buffers->items[i];
        if (b->root != i || b->bytes == 0)
            continue;
        uint64_t length = wi_plan_length(plan, i);
        plan->arenas[b->kind] = wi_max(plan->arenas[b->kind], plan->offsets[i] + length);
        sum->unshared += length;
        sum->in_place += plan->roots[i] != i;
    }
    for (unsigned kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        sum->arena += plan->arenas[kind];
        sum->lower_bound += plan->bounds[kind];
    }
}

enum { DEFAULT_EFFORT = 4 * 1000 * 1000, LOOK_AFTER = 4096 };
static const uint64_t tell_after = UINT64_C(100000000); /* nanoseconds */

/* Work ------------------------------------------------------------------------------------------------------------- */

void wi_work_begin(wi_work *work, const weir_plan_options *options)
{
    *work =
        (wi_work){.options = options, .limit = options->effort ? options->effort : DEFAULT_EFFORT, .began = wi_now()};
    work->told = work->began;
}

/* Tells nothing more once the work is to end: what is under way still looks a few times. */
static void look_at_clock(wi_work *work)
{
    const weir_plan_options *options = work->options;
    if (work->stopped)
        return;
    uint64_t time = wi_now();
    double seconds = (double)(time - work->began) * 1e-9;
    work->looked = work->spent;
    if (options->seconds > 0 && seconds >= options->seconds)
        work->stopped = true;
    if (!options->progress || time - work->told < tell_after)
        return;
    work->told = time;
    weir_plan_progress progress = {.struct_size = sizeof progress,
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

/* WEIR_ERR_CONFLICT with two fixed items that meet; WEIR_ERR_SYSTEM without host memory. */
static weir_status check_fixed_ones(const wi_problem *problem, uint32_t pair[2])
{
    wi_placement_index *index = wi_placement_index_create(problem);
    weir_status status = index ? WEIR_OK : WEIR_ERR_SYSTEM;
    for (uint32_t i = 0; i < problem->count && status == WEIR_OK; i++) {
        uint64_t offset = problem->items[i].offset, lowest;
        if (!problem->items[i].fixed)
            continue;
        if (!wi_placement_index_lowest(index, i, offset, &lowest) || !wi_placement_index_add(index, i)) {
            status = WEIR_ERR_SYSTEM;
        } else if (lowest != offset) {
            pair[0] = fixed_one_met_by(problem, i);
            pair[1] = i;
            status = WEIR_ERR_CONFLICT;
        }
    }
    wi_placement_index_destroy(index);
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

/* Places the items of a kind: `problem->items[…].offset` are the answer. WEIR_ERR_CONFLICT with the two fixed items
 * that meet in `pair`; WEIR_ERR_SYSTEM without host memory. */
static weir_status solve_problem(wi_problem *problem, wi_work *work, wi_best *best, uint32_t pair[2])
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
    return good ? WEIR_OK : WEIR_ERR_SYSTEM;
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static weir_status planner_plan_read_options(const weir_plan_options *given, weir_plan_options *out)
{
    *out = (weir_plan_options){.struct_size = sizeof *out};
    weir_status status = WI_COPY_OPTIONS_IN(weir_plan_options, out, given, "weir_plan_create");
    if (status != WEIR_OK)
        return status;
    if ((unsigned)out->mode > WEIR_PLAN_BUMP)
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_create: %d is no mode", (int)out->mode);
    if (out->alignment == 0)
        out->alignment = 1;
    if (!wi_power_of_two(out->alignment))
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_create: an alignment of %llu, which is no power of two",
                         (unsigned long long)out->alignment);
    if (!(out->seconds >= 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_create: a limit of %g seconds", out->seconds);
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
    uint32_t pair[2] = {0};
    work->others -= problem->bound;
    best.offsets = calloc(problem->count ? problem->count : 1, sizeof *best.offsets);
    weir_status status = best.offsets ? solve_problem(problem, work, &best, pair) : WEIR_ERR_SYSTEM;
    if (status == WEIR_ERR_SYSTEM)
        status = weir_fail(WEIR_ERR_SYSTEM, "planning %u buffers: no host memory", problem->count);
    if (status == WEIR_ERR_CONFLICT)
        status = weir_fail(WEIR_ERR_CONFLICT,
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
    plan->summary = (weir_plan_details){.struct_size = sizeof plan->summary,
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
    plan->summary.seconds = (double)(wi_now() - work->began) * 1e-9;
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
        return weir_fail(WEIR_ERR_INVALID,
                         "buffer %.200s: a view that lies %llu bytes into %.200s, and so at %llu, which is no multiple "
                         "of its alignment %llu; an alignment of the storage and the place in it decide that",
                         wi_buffer_name(plan->buffers, i), (unsigned long long)b->from,
                         wi_buffer_name(plan->buffers, b->root), (unsigned long long)plan->offsets[i],
                         (unsigned long long)b->alignment);
    }
    return WEIR_OK;
}

weir_status weir_plan_create(const weir_buffers *buffers, const weir_plan_options *options, weir_plan **out)
{
    weir_plan_options all;
    wi_stores stores;
    wi_work work;
    if (!buffers || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_create: NULL");
    weir_status status = planner_plan_read_options(options, &all);
    wi_work_begin(&work, &all);
    if (status == WEIR_OK)
        status = wi_stores_make(buffers, all.alignment, &stores);
    if (status != WEIR_OK)
        return status;
    weir_plan *plan = wi_plan_create(buffers);
    status = plan ? solve(&stores, &work, plan) : weir_fail(WEIR_ERR_SYSTEM, "a plan: no host memory");
    wi_stores_clear(&stores);
    if (status == WEIR_OK)
        status = check_views(plan);
    if (status == WEIR_OK) {
        wi_assert(weir_plan_check(plan, NULL) == WEIR_OK);
        *out = plan;
    } else {
        weir_plan_destroy(plan);
    }
    return status;
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

weir_status weir_plan_info(const weir_plan *plan, weir_plan_details *out)
{
    if (!plan || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_info: NULL");
    weir_plan_details details = plan->summary;
    memcpy(details.arena_of, plan->arenas, sizeof plan->arenas);
    memcpy(details.lower_bound_of, plan->bounds, sizeof plan->bounds);
    details.list = plan->buffers;
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_info: a structure without its size");
    return WEIR_OK;
}

weir_status weir_plan_slot(const weir_plan *plan, uint32_t index, weir_slot *out)
{
    if (!plan || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_slot: NULL");
    if (index >= plan->buffers->count)
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_slot: there is no buffer %u; the plan has %zu", index,
                         plan->buffers->count);
    const wi_buffer *b = &plan->buffers->items[index];
    weir_slot slot = {.offset = plan->offsets[index],
                      .bytes = b->bytes,
                      .length = wi_plan_length(plan, index),
                      .kind = (weir_kind)b->kind,
                      .root = plan->roots[index]};
    if (!wi_copy_out(out, out->struct_size, &slot, sizeof slot))
        return weir_fail(WEIR_ERR_INVALID, "weir_plan_slot: a structure without its size");
    return WEIR_OK;
}
