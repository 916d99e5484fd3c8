/* replay_weir.c: weir as the allocator of a replay: a runtime, a client, a stream for each of the trace. Compiled twice: over
 * libweir, and with WI_REPLAY_SIM over the simulator's own core, whose device can be made as large as a trace wants it. */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

#ifdef WI_REPLAY_SIM
#include "base/system.h"
#include "driver/sim.h"
#endif

typedef struct world {
    weir_runtime *runtime;
    weir_client *client;
    wi_replay_gates *gates;
    weir_stream *streams;
    uint16_t count;
} world;

/* What the loop calls ------------------------------------------------------------------------------------------------ */

static weir_status take(void *user, const wi_replay_op *op, void **out)
{
    const world *w = user;
    return weir_alloc(w->client, op->bytes, w->streams[op->stream], (weir_class)op->memory_class, out);
}

static weir_status take_now(void *user, const wi_replay_op *op, void **out)
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

static weir_status give(void *user, const wi_replay_op *op, void *pointer)
{
    const world *w = user;
    return weir_free(w->client, pointer, w->streams[op->stream]);
}

static weir_status drain(void *user)
{
    const world *w = user;
    weir_status status = WEIR_OK;
    for (uint16_t i = 0; i < w->count && status == WEIR_OK; i++)
        status = weir_stream_synchronize(w->streams[i]);
    return status;
}

static weir_status counts(void *user, wi_replay_counts *out)
{
    const world *w = user;
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_status status = weir_snapshot(w->runtime, &stats, NULL, 0, NULL);
    *out = (wi_replay_counts){
        .driver_calls = stats.driver_calls, .counts_moves = true, .moves = stats.moved, .peak_held = stats.peak_held};
    memcpy(out->ladder, stats.ladder, sizeof out->ladder);
    return status;
}

static weir_status walk(void *user, weir_layout_fn fn, void *to, weir_layout_totals *totals)
{
    return weir_layout_walk(((const world *)user)->runtime, fn, to, totals);
}

/* Made and ended ----------------------------------------------------------------------------------------------------- */

/* The simulated device does work when the world is told to, unless nothing trails. */
static void configure(const wi_replay_world *how)
{
#ifdef WI_REPLAY_SIM
    enum { GRANULE = 2 << 20 };
    wi_clock = wi_sim_now;
    wi_alone = true;
    wi_sim_configure(&(wi_sim_options){.bytes = (how->device_bytes / GRANULE + 1) * GRANULE,
                                       .granule = GRANULE,
                                       .seed = 1,
                                       .by_itself = how->lag == 0});
#else
    (void)how;
#endif
}

static void forget(void)
{
#ifdef WI_REPLAY_SIM
    wi_sim_configure(NULL);
    wi_clock = NULL;
    wi_alone = false;
#endif
}

/* All of it is tried; the first failure is the answer. */
static weir_status end(world *w)
{
    weir_status status = WEIR_OK, next = WEIR_OK;
    if (w->gates)
        wi_replay_gates_end(w->gates);
    if (w->client)
        status = weir_client_close(w->client);
    for (uint16_t i = 0; w->streams && i < w->count; i++) {
        if (w->streams[i].id)
            next = weir_stream_release(w->streams[i]);
        status = status == WEIR_OK ? next : status;
    }
    if (w->runtime)
        next = weir_runtime_destroy(w->runtime);
    free(w->streams);
    free(w);
    forget();
    return status == WEIR_OK ? next : status;
}

static weir_status make(const wi_replay_world *how, world *w)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = how->budget, .resource = how->resource};
    weir_client_options client = {.struct_size = sizeof client, .name = "replay"};
    weir_status status = weir_runtime_create(how->device, &options, &w->runtime);
    if (status == WEIR_OK)
        status = weir_client_open(w->runtime, &client, &w->client);
    for (uint16_t i = 0; i < w->count && status == WEIR_OK; i++)
        if (i != how->host_stream)
            status = weir_stream_acquire(w->runtime, &w->streams[i]);
    return status == WEIR_OK ? wi_replay_gates_make(how, w->runtime, w->streams, &w->gates) : status;
}

static weir_status open_world(const wi_replay_world *how, wi_replay_target *out)
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
    configure(how);
    weir_status status = make(how, w);
    if (status != WEIR_OK) {
        (void)end(w);
        return status;
    }
    *out = (wi_replay_target){.user = w,
                              .take = take,
                              .take_now = take_now,
                              .give = give,
                              .drain = drain,
                              .counts = counts,
                              .detail = weir_detail,
                              .gates = w->gates,
                              .walk = walk};
    return WEIR_OK;
}

static weir_status close_world(wi_replay_target *target)
{
    weir_status status = end(target->user);
    *target = (wi_replay_target){0};
    return status;
}

#ifdef WI_REPLAY_SIM
#define THIS_CORE wi_replay_sim
#else
#define THIS_CORE wi_replay_weir
#endif
const wi_replay_maker THIS_CORE = {open_world, close_world, weir_detail};
