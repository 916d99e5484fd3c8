/* replay_run.c: passes of a plan on a fresh runtime. */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

/* What binds nobody: replays touch no memory, so that a device may have more of it than there is. */
static uint64_t plenty(const wi_replay_plan *plan)
{
    return plan->peak < (UINT64_C(1) << 44) ? 8 * plan->peak + GIB : plan->peak;
}

static bool has_budget_option(void)
{
    weir_option option = WEIR_INIT(weir_option);
    return weir_option_get("budget", &option) == WEIR_OK && option.value[0];
}

static wi_replay_world world_for(const wi_replay_plan *plan, const wi_replay_settings *settings)
{
    wi_replay_world how = {.device = settings->device,
                           .resource = settings->resource,
                           .budget = settings->cap,
                           .lag = settings->lag,
                           .streams = plan->streams,
                           .host_stream = plan->host_stream};
    if (!how.budget && strncmp(how.device, "cuda", 4) != 0 && !has_budget_option())
        how.budget = plenty(plan);
    how.device_bytes = how.budget > plenty(plan) ? how.budget : plenty(plan);
    return how;
}

static weir_status run_passes(const wi_replay_plan *plan, const wi_replay_settings *settings, wi_replay_target *target,
                              wi_replay_result *out)
{
    size_t wanted = settings->repeat ? settings->repeat : 1;
    weir_status status = WEIR_OK;
    out->passes = calloc(wanted, sizeof *out->passes);
    if (!out->passes)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu passes", wanted);
    while (status == WEIR_OK && out->count < wanted) {
        wi_replay_pass *pass = &out->passes[out->count++];
        target->at_end = out->count == wanted ? settings->at_end : NULL;
        target->at_end_user = settings->at_end_user;
        status = wi_replay_loop(plan, target, settings->stop, pass);
        if (settings->stop && pass->failures)
            break;
    }
    wi_replay_counts counts;
    if (status == WEIR_OK && (status = target->counts(target->user, &counts)) != WEIR_OK)
        return weir_fail(status, "%s", target->detail());
    if (status == WEIR_OK) {
        out->peak_held = counts.peak_held;
        out->counts_moves = counts.counts_moves;
    }
    return status;
}

weir_status wi_replay_run(const wi_replay_plan *plan, const wi_replay_settings *settings, wi_replay_result *out)
{
    wi_replay_target target = {0};
    wi_replay_world how = world_for(plan, settings);
    const wi_replay_maker *maker = strncmp(how.device, "sim", 3) == 0 ? &wi_replay_sim : &wi_replay_weir;
    maker = settings->maker ? settings->maker : maker;
    *out = (wi_replay_result){0};
    weir_status status = maker->open(&how, &target);
    if (status != WEIR_OK)
        return weir_fail(status, "%s", maker->detail());
    status = run_passes(plan, settings, &target, out);
    weir_status closed = maker->close(&target);
    return status == WEIR_OK && closed != WEIR_OK ? weir_fail(closed, "%s", maker->detail()) : status;
}

void wi_replay_result_clear(wi_replay_result *result)
{
    free(result->passes);
    *result = (wi_replay_result){0};
}

double wi_replay_ns(const wi_replay_plan *plan, const wi_replay_result *result)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < result->count; i++)
        sum += result->passes[i].nanoseconds;
    return (double)sum / ((double)plan->count * (double)result->count);
}
