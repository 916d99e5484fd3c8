/* Worlds: made, moved and ended. */
#include "sim/world.h"
#include <weir/guard.h>
#include "base/system.h"
#include "runtime/runtime.h"

#include <stdio.h>

const char *ladder_name(ladder_rung rung)
{
    static const char *const refusals[] = {"refused_budget",        "refused_maximum",    "refused_fragmentation",
                                           "refused_pending",       "refused_device",     "refused_other_process",
                                           "refused_address_range", "refused_reservation"};
    if ((unsigned)rung < WEIR_RUNG_COUNT)
        return weir_name_of(WEIR_NAMES_RUNG, rung);
    return rung < LADDER_RUNGS ? refusals[rung - LADDER_REFUSED_BUDGET] : "?";
}

const char *field_name(step_field field)
{
    static const char *const names[STEP_FIELDS] = {"client", "stream", "slot", "bytes", "more",  "class",
                                                   "flags",  "count",  "seed", "at",    "window"};
    return field < STEP_FIELDS ? names[field] : "?";
}

uint64_t world_random(world *w, uint64_t below)
{
    uint64_t x = w->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % below;
}

bool world_lacks_a_point(const world *w, weir_status status)
{
    bool captured = w->captures_ended != w->capture_mark; /* a capture was open when weir asked for the point */
    captured |= world_is_late(w, w->late) || world_captures(w);
    captured |= w->captured_new > 0 && w->depth > w->captured_new;
    return captured && status == WEIR_ERR_STREAM_MISUSE;
}

bool world_answer(world *w, const char *call, weir_status status, const weir_status *allowed, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (status == allowed[i])
            return status == WEIR_OK;
    w->late_refused += status == WEIR_ERR_STREAM_MISUSE && world_is_late(w, w->late);
    /* A fault may come back from whatever call met it. */
    bool faulty = status == WEIR_ERR_DRIVER && world_faults(w) != w->fault_mark;
    if (!faulty && !world_lacks_a_point(w, status))
        oracle_report(w->oracle, ORACLE_ANSWER, "%s answers %s: %s", call, weir_name_of(WEIR_NAMES_STATUS, status),
                      weir_detail());
    return false;
}

void world_must_answer(world *w, const char *call, weir_status status, weir_status expected)
{
    if (status != expected)
        oracle_report(w->oracle, ORACLE_ANSWER, "%s answers %s", call, weir_name_of(WEIR_NAMES_STATUS, status));
}

bool world_has_stream(const world *w, uint64_t stream)
{
    return stream == 0 || (stream <= w->options.streams && w->streams[stream].id != 0 &&
                           (!w->stream_closed[stream] || world_is_late(w, stream)) && !w->captured[stream]);
}

bool world_has_launch(const world *w, unsigned stream)
{
    for (unsigned i = 0; i < WORLD_LAUNCHES; i++)
        if (w->launches[i].launch && w->launches[i].stream == stream)
            return true;
    return false;
}

bool world_captures(const world *w)
{
    for (unsigned i = 1; i <= w->options.streams; i++)
        if (w->captured[i])
            return true;
    return false;
}

bool world_has_client(const world *w, unsigned client)
{
    return w->clients[client] && !w->client_closed[client];
}

uint32_t world_features(const world *w)
{
    return wi_runtime_features(w->runtime);
}

void world_take_stream(world *w, unsigned stream, int by)
{
    w->stream_in_hand[stream] = (uint8_t)(w->stream_in_hand[stream] + by);
}

bool world_frees_for_others(const world *w)
{
    return w->runtime->caches.first_grace != NULL;
}

uint64_t world_faults(const world *w)
{
    return w->fault_base + wi_sim_faults();
}

unsigned world_number(const world *w, unsigned stream)
{
    return stream ? wi_sim_number(w->native[stream]) : 0;
}

bool world_knows_foreign(const world_options *options)
{
    return options->streams <= (WORLD_STREAMS - WORLD_GONE) / 2;
}

/* Returns the most streams of the driver at once: the runtime's own streams, which the runtime keeps when they are
 * unused, foreign streams, a few gone streams, and the streams of the copies. */
static unsigned most_streams(const world_options *options)
{
    unsigned streams = world_knows_foreign(options) ? 2 * options->streams + WORLD_GONE : options->streams;
    return world_knows_residency(options) ? streams + options->clients : streams;
}

/* The copies of what is away count in a host's ledger, which does not hold them all. */
static weir_status make_host(world *w)
{
    enum { STAGE = 8 * WI_MIB };
    weir_runtime_options o = {.struct_size = sizeof o, .budget = w->options.budget / 4 * 3 + STAGE};
    return weir_runtime_create("host", &o, &w->host);
}

world *world_create(const world_options *options)
{
    world *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->options = *options;
    w->random = options->seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    w->last_version = WI_SIM_FIRST_VERSION;
    w->oracle = oracle_create(most_streams(options) + 1, options->device, options->granule, options->budget);
    if (!w->oracle) {
        free(w);
        return NULL;
    }
    wi_clock = wi_sim_now;
    wi_alone = true;
    wi_sim_watcher watcher = oracle_watcher(w->oracle);
    wi_sim_configure(&(wi_sim_options){
        .bytes = options->device, .granule = options->granule, .seed = options->seed, .watcher = &watcher});
    wi_sim_arm(&options->first, &options->second);
    weir_runtime_options o = {.struct_size = sizeof o, .budget = options->budget, .resource = options->resource};
    /* In every second world threads keep nothing, and more of what they free goes through the runtime. */
    (void)ANSWER(w, "weir_option_set", weir_option_set("thread_cache", options->seed % 2 ? NULL : "0"), WEIR_OK);
    weir_status status = make_host(w);
    o.host = w->host;
    if (status == WEIR_OK)
        status = wi_runtime_create_over(between_driver(), 0, &o, &w->runtime);
    (void)ANSWER(w, "weir_option_set", weir_option_set("thread_cache", NULL), WEIR_OK);
    (void)ANSWER(w, "weir_runtime_create", status, WEIR_OK);
    if (status == WEIR_OK) {
        w->device = w->runtime->device;
        (void)ANSWER(w, "weir_pressure_register",
                     weir_pressure_register(w->runtime, 0, world_give_up, w, &(uint64_t){0}), WEIR_OK);
        oracle_attach(w->oracle, w->device);
        if (strcmp(w->runtime->resource->base->table->all.name, "async") == 0)
            oracle_set_pooled(w->oracle);
        if (w->runtime->resource->keeps_order)
            oracle_set_in_order(w->oracle, strcmp(w->runtime->resource->base->table->all.name, "segments") == 0);
    }
    return w;
}

static void end_blocks(world *w)
{
    for (unsigned i = 0; i < WORLD_LAUNCHES; i++) {
        launch *l = &w->launches[i];
        bool there = l->launch != NULL;
        for (unsigned k = 0; k < l->count; k++) /* not so once a defect has freed what the launch holds */
            there &= w->slots[l->slots[k]].block.pointer != NULL;
        if (there)
            run_end(w, &(step){.field = {[F_SLOT] = i}});
        else
            free(l->launch); /* NULL, or a launch whose blocks a defect has freed */
        *l = (launch){0};
    }
    for (unsigned s = 1; s <= w->options.streams; s++)
        if (w->streams[s].id)
            run_synchronize(w, &(step){.field = {[F_STREAM] = s}});
    if (world_features(w) & WEIR_FEATURE_GUARDS) /* now that no work is queued */
        (void)ANSWER(w, "weir_guard_check", weir_guard_check(w->runtime), WEIR_OK);
    world_end_named(w); /* whose live blocks are put into slots */
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        if (w->slots[i].block.pointer)
            run_free(w, &(step){.field = {[F_SLOT] = i}});
    world_end_pools(w);
    world_end_graphs(w);
}

static void end_captures(world *w)
{
    for (unsigned s = 1; s <= w->options.streams; s++)
        if (w->captured[s])
            run_capture(w, &(step){.field = {[F_STREAM] = s}});
    for (unsigned i = 0; i < WORLD_RESERVATIONS; i++)
        if (w->reservations[i].reservation)
            run_reserve(w, &(step){.field = {[F_SLOT] = i}});
}

void world_end(world *w)
{
    w->faults = world_faults(w);
    wi_sim_arm(NULL, NULL);
    w->fault_base = w->fault_mark = w->faults;
    if (w->runtime) {
        world_settle_all(w);
        named_end_captures(w);
        end_captures(w);
        if (w->options.seed % 3 != 0) /* in every third run the frees meet blocks that are away */
            world_resume_all(w);
        end_blocks(w);
        run_snapshot(w, &(step){0});
        world_check_rest(w);
        for (unsigned c = 0; c < w->options.clients; c++)
            if (w->clients[c])
                run_client(w, &(step){.field = {[F_CLIENT] = c}});
        for (unsigned s = 1; s <= w->options.streams; s++)
            if (w->streams[s].id)
                run_stream(w, &(step){.field = {[F_STREAM] = s}});
        world_hear_guard(w);
        (void)ANSWER(w, "weir_runtime_destroy", weir_runtime_destroy(w->runtime), WEIR_OK);
        w->runtime = NULL;
        if (w->calls_done != w->calls_queued)
            oracle_report(w->oracle, ORACLE_DEVICE, "of %llu functions that were put on streams %llu were called",
                          (unsigned long long)w->calls_queued, (unsigned long long)w->calls_done);
    }
    oracle_ended(w->oracle);
}

void world_destroy(world *w)
{
    oracle_destroy(w->oracle);
    if (w->host)
        (void)!weir_runtime_destroy(w->host);
    free(w);
    wi_sim_configure(NULL);
    wi_clock = NULL;
    wi_alone = false;
}
