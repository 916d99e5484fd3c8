/* What users ask of weir besides blocks: work on streams, reads that are recorded, captures, reservations. */
#include "sim/world.h"
#include "runtime/runtime.h"

#define UNIT ((uint64_t)WI_SIM_UNIT)

/* Work that weir queues -------------------------------------------------------------------------------------------- */

static void sim_requests_fill(world *w, slot *b, unsigned stream, uint8_t value)
{
    uint64_t bytes = (b->bytes + UNIT - 1) / UNIT * UNIT;
    (void)oracle_by_user(w->oracle, true);
    weir_status status = weir_fill(w->runtime, b->block.pointer, value, bytes, w->streams[stream]);
    (void)oracle_by_user(w->oracle, false);
    if (!ANSWER(w, "weir_fill", status, WEIR_OK))
        return;
    b->offset = 0;
    b->length = bytes;
    b->version = WI_SIM_ZERO + value;
    w->written[b->client] |= WEIR_CLASS_BIT(b->memory_class);
}

void run_fill(world *w, const step *s)
{
    slot *b = world_slot(w, s->field[F_SLOT]);
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (!world_take_slot(w, b, stream, true))
        return;
    if (!b->declared && !world_is_away(w, b) && world_order_use(w, b, stream, true))
        sim_requests_fill(w, b, stream, (uint8_t)s->field[F_MORE]);
    world_let_slot_go(w, b, stream);
}

/* The part that was last written goes to the start of the other block. */
static void sim_requests_copy(world *w, slot *to, const slot *from, unsigned stream)
{
    uint64_t room = (to->bytes + UNIT - 1) / UNIT * UNIT, bytes = from->length < room ? from->length : room;
    (void)oracle_by_user(w->oracle, true);
    weir_status status =
        weir_copy(w->runtime, to->block.pointer, (char *)from->block.pointer + from->offset, bytes, w->streams[stream]);
    (void)oracle_by_user(w->oracle, false);
    if (!ANSWER(w, "weir_copy", status, WEIR_OK))
        return;
    to->offset = 0;
    to->length = bytes;
    to->version = from->version;
    w->written[to->client] |= WEIR_CLASS_BIT(to->memory_class);
}

void run_copy(world *w, const step *s)
{
    slot *to = world_slot(w, s->field[F_SLOT]), *from = world_slot(w, s->field[F_MORE]);
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (!world_take_slot(w, to, stream, true))
        return;
    if (world_take_slot(w, from, stream, true)) {
        if (!to->declared && !from->declared && !world_is_away(w, to) && !world_is_away(w, from) &&
            to->client == from->client && from->version != 0 && from->length <= s->field[F_BYTES] &&
            world_order_use(w, to, stream, true) && world_order_use(w, from, stream, false))
            sim_requests_copy(w, to, from, stream);
        world_let_slot_go(w, from, stream);
    }
    world_let_slot_go(w, to, stream);
}

static void count_call(void *user)
{
    ++*(uint64_t *)user;
}

void run_call(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (!world_has_stream(w, stream))
        return;
    world_take_stream(w, stream, 1);
    weir_status status = weir_call(w->runtime, count_call, &w->calls_done, w->streams[stream]);
    w->calls_queued += ANSWER(w, "weir_call", status, WEIR_OK);
    world_take_stream(w, stream, -1);
}

/* Queues a read and records it afterwards, so that the free waits for the read by itself. */
void run_record(world *w, const step *s)
{
    slot *b = world_slot(w, s->field[F_SLOT]);
    unsigned stream = (unsigned)s->field[F_STREAM], number = world_number(w, stream);
    if (!world_take_slot(w, b, stream, true))
        return;
    if (!b->declared && stream && !world_is_away(w, b) && world_order_use(w, b, stream, false)) {
        world_touch(w, b, stream, false, 0, 0);
        oracle_using(w->oracle, b->known, number, false);
        if (ANSWER(w, "weir_use_record",
                   weir_use_record(w->runtime, (weir_block){.pointer = b->block.pointer}, w->streams[stream]),
                   WEIR_OK)) {
            oracle_used(w->oracle, b->known, number);
            b->recorded |= b->writer != stream ? world_bit(stream) : 0;
        }
    }
    world_let_slot_go(w, b, stream);
}

/* Captures --------------------------------------------------------------------------------------------------------- */

/* While a stream is being captured nobody puts anything on it, and what needs to know when its work is done is refused. */
static void try_captured(world *w, unsigned stream, slot *b)
{
    const weir_status misuse = WEIR_ERR_STREAM_MISUSE;
    world_must_answer(w, "weir_stream_synchronize during a capture", weir_stream_synchronize(w->streams[stream]),
                      misuse);
    if (!b->block.pointer || b->in_hand || world_is_held(b))
        return;
    b->in_hand = true;
    world_must_answer(w, "weir_free on a captured stream",
                      weir_free(w->clients[b->client], b->block.pointer, w->streams[stream]), misuse);
    world_must_answer(w, "weir_use_record on a captured stream",
                      weir_use_record(w->runtime, (weir_block){.pointer = b->block.pointer}, w->streams[stream]),
                      misuse);
    b->in_hand = false;
}

/* Begins one, or ends it. */
void run_capture(world *w, const step *s)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (stream == 0 || stream > w->options.streams || !w->streams[stream].id || w->stream_closed[stream] ||
        w->stream_in_hand[stream] > 0 || world_has_launch(w, stream))
        return;
    w->stream_closed[stream] = true;
    if (!w->captured[stream])
        oracle_capturing(w->oracle, world_number(w, stream));
    if (w->captured[stream]) {
        wi_sim_capture(w->device, w->native[stream], false);
        w->captures_ended++;
        w->captured[stream] = !ANSWER(w, "weir_capture_end", weir_capture_end(w->streams[stream], NULL), WEIR_OK);
    } else if (ANSWER(w, "weir_capture_begin", weir_capture_begin(w->streams[stream], NULL), WEIR_OK)) {
        wi_sim_capture(w->device, w->native[stream], true);
        w->captured[stream] = true;
        try_captured(w, stream, world_slot(w, s->field[F_SLOT]));
    }
    w->stream_closed[stream] = false;
}

/* Reservations ----------------------------------------------------------------------------------------------------- */

static void sim_requests_reserve(world *w, reserved *r, unsigned client, uint64_t bytes)
{
    uint64_t charged = (bytes + UNIT - 1) / UNIT * UNIT;
    w->client_in_hand[client]++;
    oracle_asking(w->oracle, client, WEIR_CLASS_OTHER, charged, false);
    weir_status status = weir_reservation_create(w->clients[client], bytes, WEIR_ALLOC_NO_WAIT, &r->reservation);
    oracle_answered(w->oracle, client, WEIR_CLASS_OTHER, charged, false);
    if (ANSWER(w, "weir_reservation_create", status, WEIR_ERR_OUT_OF_MEMORY)) {
        oracle_reserved(w->oracle, client, charged, 0);
        r->client = client;
    }
    w->client_in_hand[client]--;
}

static void end_reservation(world *w, reserved *r)
{
    uint64_t left = wi_reservation_left(r->reservation);
    if (ANSWER(w, "weir_reservation_destroy", weir_reservation_destroy(r->reservation), WEIR_OK))
        oracle_reserved(w->oracle, r->client, 0, left);
    r->reservation = NULL;
}

/* Makes one, or ends it. */
void run_reserve(world *w, const step *s)
{
    reserved *r = &w->reservations[s->field[F_SLOT] % WORLD_RESERVATIONS];
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients;
    if (r->in_hand > 0)
        return;
    r->in_hand = 1;
    if (r->reservation)
        end_reservation(w, r);
    else if (world_has_client(w, client) && s->field[F_BYTES] > 0)
        sim_requests_reserve(w, r, client, s->field[F_BYTES]);
    r->in_hand = 0;
}
