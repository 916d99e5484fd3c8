/* replays.c: replays on the simulated device, which can be made as large as a trace needs it. Its lag gates are pieces
 * of work: an empty one follows each operation, and the device is run as far as the operation that lies the lag behind.
 * Where weir waits, the device runs by itself. */
#include "simulate.h"

#include "base/system.h"
#include "cli/replay/replay.h"
#include "sim/device/device.h"
#include "runtime/runtime.h"

#include <stdlib.h>

typedef struct mark {
    uint16_t stream;
    uint64_t sequence; /* of the stream's work; 0: none */
} mark;

typedef struct gates {
    wi_replay_lag_gates table;
    weir_runtime *runtime;
    const weir_stream *streams;
    uint64_t lag, next; /* the first operation whose mark is not reached */
    mark *marks;        /* of operation n at n modulo the lag */
    uint64_t *wanted;   /* by stream: as far as it is to be done */
    uint16_t count;
} gates;

static void replays_nothing(void *user)
{
    (void)user;
}

static unsigned replays_number_of(const gates *g, uint16_t stream)
{
    return wi_sim_number(weir_stream_native(g->streams[stream]));
}

static weir_status replays_put(void *user, uint16_t stream, uint64_t at)
{
    gates *g = user;
    mark *m = &g->marks[at % g->lag];
    *m = (mark){.stream = stream};
    if (!g->streams[stream].id)
        return WEIR_OK;
    weir_status status = weir_call(g->runtime, replays_nothing, NULL, g->streams[stream]);
    m->sequence = wi_sim_queued(g->runtime->device, replays_number_of(g, stream));
    return status;
}

/* Runs each stream as far as wanted. A stream that waits for a stream further behind is tried again at the next
 * operation. */
static void replays_run(gates *g)
{
    for (uint16_t i = 0; i < g->count; i++) {
        unsigned number = g->wanted[i] ? replays_number_of(g, i) : 0;
        while (number && wi_sim_done(g->runtime->device, number) < g->wanted[i] &&
               wi_sim_run(g->runtime->device, number, 1) > 0)
            ;
        if (number && wi_sim_done(g->runtime->device, number) >= g->wanted[i])
            g->wanted[i] = 0;
    }
}

static void replays_reach(void *user, uint64_t at)
{
    gates *g = user;
    for (; g->next + g->lag <= at; g->next++) {
        const mark *m = &g->marks[g->next % g->lag];
        if (m->sequence)
            g->wanted[m->stream] = m->sequence;
    }
    replays_run(g);
}

static void replays_open_put(void *user)
{
    const gates *g = user;
    enum { MOST = 1 << 30 };
    (void)wi_sim_run(g->runtime->device, 0, MOST);
}

static void replays_rest(void *user)
{
    gates *g = user;
    replays_open_put(g);
    g->next = 0;
}

static uint64_t replays_forced(void *user)
{
    (void)user;
    return 0;
}

static void end_gates(void *user)
{
    gates *g = user;
    free(g->marks);
    free(g->wanted);
    free(g);
}

static weir_status make_gates(const wi_replay_world *how, weir_runtime *runtime, const weir_stream *streams,
                              wi_replay_lag_gates **out)
{
    gates *g = calloc(1, sizeof *g);
    if (g) {
        *g =
            (gates){.table = {g, replays_put, replays_reach, replays_open_put, replays_rest, replays_forced, end_gates},
                    .runtime = runtime,
                    .streams = streams,
                    .lag = how->lag};
        g->count = how->streams;
        g->marks = calloc(how->lag, sizeof *g->marks);
        g->wanted = calloc(how->streams + 1u, sizeof *g->wanted);
    }
    if (g && g->marks && g->wanted) {
        *out = &g->table;
        return WEIR_OK;
    }
    if (g) {
        free(g->marks);
        free(g->wanted);
    }
    free(g);
    return weir_fail(WEIR_ERR_SYSTEM, "no memory for gates");
}

/* The device does work when it is told to, but by itself where nothing lags. */
static void replays_begin(const wi_replay_world *how)
{
    enum { GRANULE = 2 << 20 };
    wi_clock = wi_sim_now;
    wi_alone = true;
    wi_sim_configure(&(wi_sim_options){.bytes = (how->device_bytes / GRANULE + 1) * GRANULE,
                                       .granule = GRANULE,
                                       .seed = 1,
                                       .by_itself = how->lag == 0});
}

static void replays_end(void)
{
    wi_sim_configure(NULL);
    wi_clock = NULL;
    wi_alone = false;
}

const wi_replay_device simulate_replays = {replays_begin, replays_end, make_gates};
