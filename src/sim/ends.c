/* Foreign streams that end without notice while they have work, and whose address the next stream has; and what has to
 * be so when everything has come to rest. */
#include "sim/world.h"

#include "runtime/runtime.h"

/* What the users know ---------------------------------------------------------------------------------------------- */

static bool knows(const slot *b, unsigned stream)
{
    return b->block.pointer && (b->touched & world_bit(stream) || b->writer == stream);
}

/* Whether a step under way is about something whose order is the stream's, or a launch is open there. */
static bool ends_is_wanted(const world *w, unsigned stream)
{
    if (world_has_launch(w, stream))
        return true;
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        if (w->slots[i].in_hand && knows(&w->slots[i], stream))
            return true;
    for (unsigned i = 0; i < WORLD_POOLS; i++)
        for (unsigned k = 0; k < w->pools[i].count; k++)
            if (w->pools[i].pieces[k].slot.in_hand && knows(&w->pools[i].pieces[k].slot, stream))
                return true;
    return false;
}

/* Replaces the stream by `other` in the slot's uses, because `other` now waits for the stream's work. */
static void ends_pass_on(slot *b, unsigned stream, unsigned other)
{
    if (!knows(b, stream))
        return;
    b->touched = (b->touched & ~world_bit(stream)) | world_bit(other);
    b->recorded &= ~(world_bit(stream) | world_bit(other));
    if (b->writer == stream)
        b->writer = (uint8_t)other;
}

void world_pass_on(world *w, slot *b, unsigned stream, unsigned other)
{
    if (!knows(b, stream))
        return;
    wi_sim_follow(w->device, w->native[other], w->native[stream]);
    ends_pass_on(b, stream, other);
}

bool world_is_told(const slot *b, unsigned stream)
{
    return b->recorded & world_bit(stream);
}

static void pass_all_on(world *w, unsigned stream, unsigned other)
{
    wi_sim_follow(w->device, w->native[other], w->native[stream]);
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        ends_pass_on(&w->slots[i], stream, other);
    for (unsigned i = 0; i < WORLD_POOLS; i++)
        for (unsigned k = 0; k < w->pools[i].count; k++)
            ends_pass_on(&w->pools[i].pieces[k].slot, stream, other);
    named_pass_on(w, stream, other);
}

/* Ending ----------------------------------------------------------------------------------------------------------- */

static bool register_at(world *w, unsigned stream, weir_stream *out)
{
    void *address = wi_sim_address(w->native[stream]);
    return ANSWER(w, "weir_stream_register", weir_stream_register(w->runtime, address, out), WEIR_OK);
}

/* The stream that has the address now gets its id. */
static void settle_next(world *w, unsigned stream)
{
    weir_stream id = WEIR_STREAM_HOST;
    bool done = false;
    for (int tries = 0; tries < 3 && !done; tries++)
        done = register_at(w, stream, &id);
    w->unsettled[stream] = !done;
    w->registered_twice[stream] = false; /* the one before has ended */
    if (!done)
        return;
    if (id.id == w->streams[stream].id && !w->twice)
        oracle_report(w->oracle, ORACLE_ANSWER, "a stream has the id of the one that had its address before");
    if (!w->twice)
        w->last_released = w->streams[stream];
    w->streams[stream] = id;
}

/* Another thread registers the same stream in the middle of that, and frees there. */
void world_register_beside(world *w)
{
    unsigned stream = w->registering;
    weir_stream id, before = w->streams[stream];
    w->registering = 0;
    if (!stream || !register_at(w, stream, &id))
        return;
    w->twice = true;
    w->streams[stream] = id;
    w->last_released = before;
    w->stream_closed[stream] = false;
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        if (!w->slots[i].block.pointer && !w->slots[i].in_hand) {
            w->nested++;
            run_allocate(w, &(step){.field = {[F_SLOT] = i, [F_STREAM] = stream, [F_BYTES] = 4096, [F_COUNT] = 1}});
            run_free(w, &(step){.field = {[F_SLOT] = i, [F_STREAM] = stream}});
            return;
        }
}

static void ends_settle_in(world *w, const step *s, unsigned stream)
{
    enum { CAPTURED = 1, NO_EVENT = 2, BESIDE = 4 };
    uint64_t how = s->field[F_FLAGS];
    void *native = w->native[stream];
    bool twice = w->twice; /* as a replacement around this one has left them */
    unsigned captured = w->captured_new;
    if (how & CAPTURED)
        wi_sim_capture(w->device, native, true);
    w->captured_new = how & CAPTURED ? w->depth : captured;
    if (how & NO_EVENT && w->options.faults) {
        w->fault_base = world_faults(w);
        wi_sim_arm(&(wi_sim_fault){WI_SIM_RECORD, 0, false, WEIR_ERR_DRIVER}, NULL);
    }
    w->registering = how & BESIDE && !(how & CAPTURED) ? stream : 0;
    w->twice = false;
    world_take_stream(w, stream, 1);
    settle_next(w, stream);
    if (w->twice)
        w->registered_twice[stream] =
            !ANSWER(w, "weir_stream_unregister", weir_stream_unregister(w->streams[stream]), WEIR_OK);
    world_take_stream(w, stream, -1);
    w->registering = 0;
    w->twice = twice;
    if (how & CAPTURED)
        wi_sim_capture(w->device, native, false);
    w->captured_new = captured;
}

/* Replaces a foreign stream, as its maker could: makes `other` wait for its work, ends the stream, and makes a new
 * stream with the same address. weir is told of the new stream, and of nothing else. */
void run_replace(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM], other = (unsigned)s->field[F_CLASS];
    void *next;
    if (stream == 0 || other == 0 || stream == other || !world_has_stream(w, stream) || !world_has_stream(w, other) ||
        !w->foreign[stream] || w->stream_in_hand[stream] > 0 || w->registering || world_frees_for_others(w) ||
        ends_is_wanted(w, stream))
        return;
    unsigned number = world_number(w, stream);
    pass_all_on(w, stream, other);
    w->left_behind = true;
    if (!wi_sim_replace(w->device, w->native[stream], &next))
        return;
    oracle_capturing(w->oracle, number);
    w->native[stream] = next;
    oracle_succeeds(w->oracle, world_number(w, stream), true);
    w->stream_closed[stream] = true;
    ends_settle_in(w, s, stream);
    w->stream_closed[stream] = w->unsettled[stream];
}

/* Rest ------------------------------------------------------------------------------------------------------------- */

void world_settle_all(world *w)
{
    for (unsigned s = 1; s <= w->options.streams; s++)
        if (w->unsettled[s]) {
            w->twice = false;
            settle_next(w, s);
            w->stream_closed[s] = w->unsettled[s];
        }
}

static bool lift_limits(world *w)
{
    bool any = false;
    run_budget(w, &(step){.field = {[F_BYTES] = w->options.budget}});
    for (unsigned c = 0; c < w->options.clients; c++) {
        run_limits(w, &(step){.field = {[F_CLIENT] = c}});
        any |= world_has_client(w, c);
    }
    world_resume_all(w); /* the clients' guarantees come back with their memory */
    for (unsigned c = 0; c < w->options.clients; c++)
        run_limits(w, &(step){.field = {[F_CLIENT] = c}});
    if (!any)
        run_client(w, &(step){0});
    return wi_runtime_budget(w->runtime) == w->options.budget;
}

static weir_client *any_client(const world *w)
{
    for (unsigned c = 0; c < w->options.clients; c++)
        if (w->clients[c])
            return w->clients[c];
    return NULL;
}

/* As much as the budget is, in what the device gives. */
static uint64_t whole_budget(const world *w)
{
    uint64_t bytes = w->options.budget / w->options.granule * w->options.granule;
    while (bytes > w->options.granule && world_charge(w, bytes, 0) > w->options.budget)
        bytes -= w->options.granule;
    return bytes;
}

/* No block is live, no work is anywhere, and the device has all its memory: any stream may have the freed memory. */
void world_check_rest(world *w)
{
    weir_trim_report report = {.struct_size = sizeof report};
    weir_block block = {NULL, 0};
    wi_sim_run_all(w->device);
    wi_sim_resize(w->device, w->options.device);
    if ((world_features(w) & WEIR_FEATURE_GUARDS) || !lift_limits(w))
        return;
    if (!ANSWER(w, "weir_runtime_trim", weir_runtime_trim(w->runtime, NULL, &report), WEIR_OK))
        return;
    if (report.unpassed > 0)
        oracle_report(w->oracle, ORACLE_STUCK,
                      "%llu bytes have not passed, it is said, though nothing is live and no work is left",
                      (unsigned long long)report.unpassed);
    weir_client *client = any_client(w);
    weir_request all = {.struct_size = sizeof all, .bytes = whole_budget(w), .memory_class = WEIR_CLASS_KV};
    if (!client)
        return;
    weir_status status = weir_alloc_with(client, &all, &block);
    if (status == WEIR_OK)
        (void)ANSWER(w, "weir_free", weir_free_block(client, block, WEIR_STREAM_HOST), WEIR_OK);
    else
        oracle_report(w->oracle, ORACLE_STUCK, "%zu bytes are refused, though nothing is live and no work is left: %s",
                      all.bytes, weir_detail());
}
