/* What else happens to a runtime: its device works and stalls, streams and clients come and go, limits change, somebody
 * looks or makes a mistake, and calls fail. */
#include "sim/world.h"
#include <weir/guard.h>

#include "runtime/runtime.h"

#include "sim/device/device.h"

/* The device ------------------------------------------------------------------------------------------------------- */

void run_device_work(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (world_has_stream(w, stream))
        (void)wi_sim_run(w->device, world_number(w, stream), (unsigned)s->field[F_COUNT]);
}

void run_stall(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (stream && world_has_stream(w, stream))
        wi_sim_stall(w->device, world_number(w, stream), s->field[F_BYTES]);
}

/* Another process takes some of the device's memory, or gives it back. */
void run_device_bytes(world *w, const step *s)
{
    w->held_back = s->field[F_BYTES];
    wi_sim_resize(w->device, w->options.device - (w->held_back < w->options.device ? w->held_back : 0));
}

void run_fault(world *w, const step *s)
{
    uint64_t kind = s->field[F_CLASS]; /* 0: any */
    wi_sim_fault fault = {kind > 0 && kind < WI_SIM_FALLIBLE ? (wi_sim_call)kind : WI_SIM_CALLS,
                          (long)s->field[F_COUNT], false, WEIR_ERR_DRIVER};
    w->fault_base = world_faults(w);
    wi_sim_arm(&fault, NULL);
}

/* Streams and clients ---------------------------------------------------------------------------------------------- */

void world_forget_in_slot(slot *b, unsigned stream)
{
    b->touched &= ~(UINT64_C(1) << stream);
    b->recorded &= ~(UINT64_C(1) << stream);
    if (b->writer == stream)
        b->writer = 0;
}

/* The host knows that all of the stream's work is done. */
static void forget_stream(world *w, unsigned stream)
{
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        world_forget_in_slot(&w->slots[i], stream);
    world_forget_in_pools(w, stream);
    named_pass_on(w, stream, 0);
}

void run_synchronize(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    uint64_t nested = w->nested;
    if (!world_has_stream(w, stream))
        return;
    bool alone = w->stream_in_hand[stream] == 0; /* else a step around this one may be about to put more on it */
    world_take_stream(w, stream, 1);
    bool done = ANSWER(w, "weir_stream_synchronize", weir_stream_synchronize(w->streams[stream]), WEIR_OK);
    world_take_stream(w, stream, -1);
    if (done && stream && alone && w->nested == nested) /* no other step has queued work on the stream since */
        forget_stream(w, stream);
}

/* A stream that somebody else made. */
static void make_known(world *w, unsigned stream)
{
    void *native;
    if (wi_sim_driver.stream_create(w->device, &native) != WEIR_OK)
        return;
    if (!ANSWER(w, "weir_stream_register", weir_stream_register(w->runtime, native, &w->streams[stream]), WEIR_OK)) {
        wi_sim_driver.stream_destroy(w->device, native);
        return;
    }
    w->native[stream] = native;
    w->foreign[stream] = true;
    oracle_succeeds(w->oracle, world_number(w, stream), false);
}

static bool unregister(world *w, unsigned stream)
{
    return ANSWER(w, "weir_stream_unregister", weir_stream_unregister(w->streams[stream]), WEIR_OK);
}

static bool give_stream(world *w, unsigned stream)
{
    if (!w->foreign[stream])
        return ANSWER(w, "weir_stream_release", weir_stream_release(w->streams[stream]), WEIR_OK);
    if (w->registered_twice[stream] && !unregister(w, stream))
        return false;
    w->registered_twice[stream] = false;
    if (!unregister(w, stream))
        return false;
    wi_sim_driver.stream_destroy(w->device, w->native[stream]);
    w->foreign[stream] = false;
    return true;
}

static void affairs_acquire(world *w, unsigned stream)
{
    weir_stream got;
    if (!ANSWER(w, "weir_stream_acquire", weir_stream_acquire(w->runtime, &got), WEIR_OK))
        return;
    w->streams[stream] = got;
    w->native[stream] = weir_stream_native(got);
    oracle_succeeds(w->oracle, world_number(w, stream), false);
}

static void affairs_release(world *w, unsigned stream)
{
    if (world_has_launch(w, stream))
        return;
    w->stream_ends[stream] = (uint8_t)w->depth;
    bool given = give_stream(w, stream);
    w->stream_ends[stream] = 0;
    if (!given)
        return;
    forget_stream(w, stream);
    w->last_released = w->streams[stream];
    w->streams[stream] = WEIR_STREAM_HOST;
    w->native[stream] = NULL;
}

/* Acquires or releases, or registers or unregisters. */
void run_stream(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (stream == 0 || stream > w->options.streams || w->stream_closed[stream] || w->stream_in_hand[stream] > 0 ||
        w->captured[stream] || world_frees_for_others(w))
        return;
    w->stream_closed[stream] = true;
    if (!w->streams[stream].id && s->field[F_FLAGS] & 1 && world_knows_foreign(&w->options))
        make_known(w, stream);
    else if (!w->streams[stream].id)
        affairs_acquire(w, stream);
    else
        affairs_release(w, stream);
    w->stream_closed[stream] = false;
}

static bool has_blocks(const world *w, unsigned client)
{
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        if (w->slots[i].block.pointer && w->slots[i].client == client)
            return true;
    for (unsigned i = 0; i < WORLD_RESERVATIONS; i++)
        if (w->reservations[i].reservation && w->reservations[i].client == client)
            return true;
    for (unsigned i = 0; i < WORLD_POOLS; i++)
        if (w->pools[i].pool && w->pools[i].client == client)
            return true;
    for (unsigned i = 0; i < WORLD_GRAPHS; i++)
        if (w->graphs[i].graph && w->graphs[i].client == client)
            return true;
    return named_has_client(w, client);
}

static void affairs_open_client(world *w, unsigned client, uint64_t guaranteed, uint64_t maximum, weir_scrub scrub)
{
    weir_client_options options = {
        .struct_size = sizeof options, .name = "client", .guaranteed = guaranteed, .maximum = maximum, .scrub = scrub};
    if (maximum && guaranteed > maximum)
        return;
    weir_status status = weir_client_create(w->runtime, &options, &w->clients[client]);
    if (!ANSWER(w, "weir_client_create", status, WEIR_ERR_OUT_OF_MEMORY))
        return;
    oracle_set_limits(w->oracle, client, guaranteed, maximum);
    w->written[client] = 0;
    w->opening[client] = ++w->openings;
    w->owner[client] = (uint8_t)((w->openings * 2 + (scrub != WEIR_SCRUB_NEVER)) % WI_SIM_OWNERS);
}

static void affairs_close_client(world *w, unsigned client)
{
    bool busy = has_blocks(w, client);
    uint64_t nested = w->nested;
    weir_status status = weir_client_destroy(w->clients[client]);
    if (busy && status != WEIR_ERR_BUSY)
        oracle_report(w->oracle, ORACLE_ANSWER, "a client with blocks is closed: %s",
                      weir_name_of(WEIR_NAMES_STATUS, status));
    if (!busy && status == WEIR_ERR_BUSY && (world_faults(w) != w->fault_mark || !world_undisturbed(w, nested)))
        return; /* what is pending could not be waited for, or others had it in hand */
    if (busy || !ANSWER(w, "weir_client_destroy", status, WEIR_OK))
        return;
    w->clients[client] = NULL;
    w->suspended[client] = RESIDENT;
    oracle_closed(w->oracle, client);
    oracle_set_limits(w->oracle, client, 0, 0);
}

/* Opens or closes. */
void run_client(world *w, const step *s)
{
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients;
    if (w->client_closed[client] || w->client_in_hand[client] > 0)
        return;
    w->client_closed[client] = true;
    if (!w->clients[client])
        affairs_open_client(w, client, s->field[F_BYTES], s->field[F_MORE],
                            s->field[F_FLAGS] & 1 ? WEIR_SCRUB_OTHERS : WEIR_SCRUB_NEVER);
    else
        affairs_close_client(w, client);
    w->client_closed[client] = false;
}

void run_limits(world *w, const step *s)
{
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients;
    uint64_t guaranteed = s->field[F_BYTES], maximum = s->field[F_MORE];
    if (!world_has_client(w, client) || (maximum && guaranteed > maximum))
        return;
    w->client_in_hand[client]++;
    weir_status status = weir_client_set_limits(w->clients[client], guaranteed, maximum);
    w->client_in_hand[client]--;
    if (status == WEIR_ERR_BUSY && w->depth > 1) /* a step around this one gives up its copies */
        return;
    if (w->suspended[client]) {
        world_must_answer(w, "weir_client_set_limits", status, WEIR_ERR_BUSY);
        return;
    }
    if (ANSWER(w, "weir_client_set_limits", status, WEIR_ERR_OUT_OF_MEMORY))
        oracle_set_limits(w->oracle, client, guaranteed, maximum);
}

/* The runtime ------------------------------------------------------------------------------------------------------ */

void run_budget(world *w, const step *s)
{
    uint64_t budget = s->field[F_BYTES] ? s->field[F_BYTES] : 1;
    if (w->budget_in_hand)
        return;
    w->budget_in_hand = true;
    uint64_t before = wi_runtime_budget(w->runtime);
    oracle_setting_budget(w->oracle, budget);
    weir_status status = weir_runtime_set_budget(w->runtime, budget);
    bool set = ANSWER(w, "weir_runtime_set_budget", status, WEIR_ERR_OUT_OF_MEMORY);
    oracle_set_budget(w->oracle, set ? budget : before);
    w->budget_in_hand = false;
}

void run_trim(world *w, const step *s)
{
    weir_trim_options options = {.struct_size = sizeof options, .keep = s->field[F_BYTES]};
    (void)ANSWER(w, "weir_runtime_trim", weir_runtime_trim(w->runtime, &options, NULL), WEIR_OK);
}

/* Nobody writes where he has no business here. */
void world_hear_guard(world *w)
{
    weir_guard_report report = {.struct_size = sizeof report};
    size_t count = 0;
    if (!(world_features(w) & WEIR_FEATURE_GUARDS) ||
        !ANSWER(w, "weir_guard_reports", weir_guard_reports(w->runtime, &report, 1, &count), WEIR_OK) || count == 0)
        return;
    oracle_report(w->oracle, ORACLE_DEVICE, "the guard reports %s of a block of %zu bytes, at offset %lld",
                  weir_name_of(WEIR_NAMES_GUARD, report.kind), report.bytes, (long long)report.offset);
}

void run_snapshot(world *w, const step *s)
{
    weir_stats stats = {.struct_size = sizeof stats};
    weir_client_stats lines[WORLD_CLIENTS] = {{.struct_size = sizeof lines[0]}};
    unsigned numbers[WORLD_CLIENTS];
    size_t count = 0;
    (void)s;
    world_hear_guard(w);
    world_check_pools(w);
    uint64_t nested = w->nested;
    bool drained = oracle_drained(w->oracle) && !world_captures(w);
    weir_status status = weir_snapshot(w->runtime, &stats, lines, WORLD_CLIENTS, &count);
    if (!ANSWER(w, "weir_snapshot", status, WEIR_OK))
        return;
    for (size_t i = 0; i < count; i++) {
        numbers[i] = 0;
        while (numbers[i] < w->options.clients && w->clients[numbers[i]] != lines[i].client)
            numbers[i]++;
        if (numbers[i] == w->options.clients) {
            oracle_report(w->oracle, ORACLE_LEDGER, "a snapshot tells of a client that is not open");
            return;
        }
    }
    bool settled =
        world_undisturbed(w, nested) && world_faults(w) == w->fault_mark && !(world_features(w) & WEIR_FEATURE_GUARDS);
    oracle_check(w->oracle, &stats, lines, numbers, count, settled);
    if (settled)
        oracle_check_order(w->oracle, &stats, drained);
}

/* Looking and mistakes --------------------------------------------------------------------------------------------- */

void run_info(world *w, const step *s)
{
    const slot *b = &w->slots[s->field[F_SLOT] % WORLD_SLOTS];
    weir_block_details details = {.struct_size = sizeof details};
    if (!b->block.pointer || b->in_hand)
        return;
    uint64_t offset = s->field[F_MORE] % b->bytes;
    weir_status status = weir_block_info((char *)b->block.pointer + offset, &details);
    if (!ANSWER(w, "weir_block_info", status, WEIR_OK))
        return;
    if (details.block.pointer != b->block.pointer || details.block.generation != b->block.generation ||
        details.offset != offset || details.bytes != b->bytes || details.state != WEIR_BLOCK_LIVE ||
        details.client != w->clients[b->client] || details.memory_class != b->memory_class)
        oracle_report(w->oracle, ORACLE_ANSWER, "weir_block_info of a live block tells another");
}

static void make_mistake(world *w, const step *s, const slot *b, bool held)
{
    unsigned other = (b->client + 1u) % w->options.clients;
    unsigned number = (unsigned)(s->field[F_CLIENT] % w->options.clients);
    weir_client *client = world_has_client(w, number) ? w->clients[number] : NULL;
    switch (s->field[F_COUNT] % 5) {
    case 0: /* the address may now have a block of a newer generation */
        if (client && w->last_freed.pointer && weir_free_block(client, w->last_freed, WEIR_STREAM_HOST) == WEIR_OK)
            oracle_report(w->oracle, ORACLE_ANSWER, "a second weir_free_block answers WEIR_OK");
        return;
    case 1:
        if (b->block.pointer && w->clients[other] && other != b->client && !held)
            world_must_answer(w, "another client's weir_free",
                              weir_free(w->clients[other], b->block.pointer, WEIR_STREAM_HOST), WEIR_ERR_FOREIGN);
        return;
    case 2:
        if (b->block.pointer && b->bytes > 1)
            world_must_answer(w, "weir_free inside a block",
                              weir_free(w->clients[b->client], (char *)b->block.pointer + 1, WEIR_STREAM_HOST),
                              WEIR_ERR_INTERIOR);
        return;
    case 3:
        if (b->block.pointer && w->last_released.id && !held)
            world_must_answer(w, "weir_free on a released stream",
                              weir_free(w->clients[b->client], b->block.pointer, w->last_released),
                              WEIR_ERR_STREAM_MISUSE);
        return;
    default:
        if (client)
            world_must_answer(w, "weir_free of foreign memory", weir_free(client, w, WEIR_STREAM_HOST),
                              WEIR_ERR_FOREIGN);
        return;
    }
}

/* What no state of the world makes right; the kinds of mistakes by number. */
void run_misuse(world *w, const step *s)
{
    slot *b = &w->slots[s->field[F_SLOT] % WORLD_SLOTS];
    if (b->in_hand)
        return;
    b->in_hand = true;
    make_mistake(w, s, b, world_is_held(b));
    b->in_hand = false;
}
