/* run.c: passes of a plan on a fresh runtime, with weir as the allocator: a client, and a stream for each of the trace.
 */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

/* weir ------------------------------------------------------------------------------------------------------------- */

typedef struct world {
    weir_runtime *runtime;
    weir_client *client;
    wi_replay_lag_gates *gates;
    weir_stream *streams;
    uint16_t count;
    const wi_replay_device *device;
} world;

/* What the loop calls ---------------------------------------------------------------------------------------------- */

static weir_status replay_run_allocate(void *user, const wi_replay_op *op, void **out)
{
    const world *w = user;
    return weir_alloc(w->client, op->bytes, w->streams[op->stream], (weir_class)op->memory_class, out);
}

static weir_status replay_run_allocate_now(void *user, const wi_replay_op *op, void **out)
{
    const world *w = user;
    weir_block block = {0};
    weir_request request = {.struct_size = sizeof request,
                            .bytes = op->bytes,
                            .stream = w->streams[op->stream],
                            .memory_class = (weir_class)op->memory_class,
                            .flags = WEIR_ALLOC_NO_WAIT};
    weir_status status = weir_alloc_with(w->client, &request, &block);
    *out = block.pointer;
    return status;
}

static weir_status replay_run_release(void *user, const wi_replay_op *op, void *pointer)
{
    const world *w = user;
    return weir_free(w->client, pointer, w->streams[op->stream]);
}

static weir_status replay_run_drain(void *user)
{
    const world *w = user;
    weir_status status = WEIR_OK;
    for (uint16_t i = 0; i < w->count && status == WEIR_OK; i++)
        status = weir_stream_synchronize(w->streams[i]);
    return status;
}

static weir_status replay_run_counts(void *user, wi_replay_counts *out)
{
    const world *w = user;
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_status status = weir_snapshot(w->runtime, &stats, NULL, 0, NULL);
    *out = (wi_replay_counts){
        .driver_calls = stats.driver_calls, .counts_moves = true, .moves = stats.moved, .peak_held = stats.peak_held};
    memcpy(out->ladder, stats.ladder, sizeof out->ladder);
    return status;
}

static weir_status replay_run_walk(void *user, weir_layout_fn fn, void *to, weir_layout_totals *totals)
{
    return weir_layout_walk(((const world *)user)->runtime, fn, to, totals);
}

/* Made and ended --------------------------------------------------------------------------------------------------- */

const wi_replay_device *wi_replay_simulated;

/* Closes everything; the first failure is the answer. */
static weir_status replay_run_end(world *w)
{
    weir_status status = WEIR_OK, next = WEIR_OK;
    if (w->gates)
        w->gates->end(w->gates->user);
    if (w->client)
        status = weir_client_destroy(w->client);
    for (uint16_t i = 0; w->streams && i < w->count; i++) {
        if (w->streams[i].id)
            next = weir_stream_release(w->streams[i]);
        status = status == WEIR_OK ? next : status;
    }
    if (w->runtime)
        next = weir_runtime_destroy(w->runtime);
    if (w->device)
        w->device->end();
    free(w->streams);
    free(w);
    return status == WEIR_OK ? next : status;
}

static weir_status replay_run_make(const wi_replay_world *how, world *w)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = how->budget, .resource = how->resource};
    weir_client_options client = {.struct_size = sizeof client, .name = "replay"};
    weir_status status = weir_runtime_create(how->device, &options, &w->runtime);
    if (status == WEIR_OK)
        status = weir_client_create(w->runtime, &client, &w->client);
    for (uint16_t i = 0; i < w->count && status == WEIR_OK; i++)
        if (i != how->host_stream)
            status = weir_stream_acquire(w->runtime, &w->streams[i]);
    if (status != WEIR_OK || how->lag == 0)
        return status;
    return (w->device ? w->device->make_gates : wi_replay_lag_gates_make)(how, w->runtime, w->streams, &w->gates);
}

static weir_status replay_run_open_world(const wi_replay_world *how, wi_replay_target *out)
{
    world *w = calloc(1, sizeof *w);
    weir_stream *streams = calloc(how->streams + 1u, sizeof *streams);
    if (!w || !streams) {
        free(w);
        free(streams);
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %u streams of a replay", how->streams);
    }
    w->streams = streams;
    w->count = how->streams;
    w->device = strncmp(how->device, "sim", 3) == 0 ? wi_replay_simulated : NULL;
    if (w->device)
        w->device->begin(how);
    weir_status status = replay_run_make(how, w);
    if (status != WEIR_OK) {
        (void)replay_run_end(w);
        return status;
    }
    *out = (wi_replay_target){.user = w,
                              .allocate = replay_run_allocate,
                              .allocate_now = replay_run_allocate_now,
                              .release = replay_run_release,
                              .drain = replay_run_drain,
                              .counts = replay_run_counts,
                              .detail = weir_detail,
                              .gates = w->gates,
                              .walk = replay_run_walk};
    return WEIR_OK;
}

static weir_status replay_run_close_world(wi_replay_target *target)
{
    weir_status status = replay_run_end(target->user);
    *target = (wi_replay_target){0};
    return status;
}

static const wi_replay_maker weir = {replay_run_open_world, replay_run_close_world, weir_detail};

/* Passes ----------------------------------------------------------------------------------------------------------- */

#define GIB (UINT64_C(1) << 30)

/* A budget that limits nothing. Replays touch no memory, so a device may have more of it than the machine. */
static uint64_t plenty(const wi_replay_plan *plan)
{
    return plan->peak < (UINT64_C(1) << 44) ? 8 * plan->peak + GIB : plan->peak;
}

static bool has_budget_option(void)
{
    weir_option option = WEIR_INIT(weir_option);
    return weir_option_info("budget", 0, &option) == WEIR_OK && option.value[0];
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
    const wi_replay_maker *maker = settings->maker ? settings->maker : &weir;
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
