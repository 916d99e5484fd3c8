/* Capture pools that requests name: captures of several streams, work between the captures on the same memory, and a close
 * with blocks that are live.
 *
 * The users bring all work on a pool's memory into one order, launch after launch and stream after stream, so that only
 * weir decides who has which bytes. Weir's promises are checked with each block that weir gives out: bytes of the pool
 * are in no other block, serve requests on the stream that they were got for, and come back to that stream when the
 * device is past their uses on other streams. */
#include "sim/world.h"

#include "runtime/runtime.h"

/* Bytes ------------------------------------------------------------------------------------------------------------ */

static uint64_t named_overlap(const char *a, uint64_t a_bytes, const char *b, uint64_t b_bytes)
{
    const char *from = a > b ? a : b, *to = a + a_bytes < b + b_bytes ? a + a_bytes : b + b_bytes;
    return from < to ? (uint64_t)(to - from) : 0;
}

static uint64_t named_kept(const world_named *p)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < p->extent_count; i++)
        bytes += p->extents[i].bytes;
    for (unsigned i = 0; i < p->piece_count; i++)
        bytes -= p->pieces[i].charged;
    return bytes;
}

/* Compares what the runtime says of the pool, which no other step works with. Slack behind a block is in no piece. */
static void named_check(world *w, const world_named *p)
{
    weir_capture_pool_details d = {.struct_size = sizeof d};
    bool slack = strcmp(w->runtime->resource->base->table->all.name, "segments") == 0;
    uint64_t kept = named_kept(p);
    uint64_t stream = p->begun ? w->streams[p->streams[0]].id : 0;
    if (!p->pool || !ANSWER(w, "weir_capture_pool_info", weir_capture_pool_info(p->pool, &d), WEIR_OK))
        return;
    if (d.held > kept || (d.held < kept && !slack) || (d.held > 0) != (d.held_blocks > 0) ||
        d.live_blocks != p->piece_count || d.stream.id != stream)
        oracle_report(w->oracle, ORACLE_LEDGER,
                      "a capture pool tells %llu bytes kept in %llu blocks and %llu live ones; it has %llu and %u live",
                      (unsigned long long)d.held, (unsigned long long)d.held_blocks, (unsigned long long)d.live_blocks,
                      (unsigned long long)kept, p->piece_count);
}

/* Points ----------------------------------------------------------------------------------------------------------- */

static void named_drop_passed(world *w, world_named *p)
{
    for (unsigned i = 0; i < NAMED_LATE; i++)
        if (p->late[i].number && wi_sim_done(w->device, p->late[i].number) >= p->late[i].point)
            p->late[i].number = 0;
}

static named_late *named_room_for_late(world *w, world_named *p)
{
    named_drop_passed(w, p);
    for (unsigned i = 0; i < NAMED_LATE; i++)
        if (!p->late[i].number)
            return &p->late[i];
    return NULL;
}

/* Brings the stream behind all that was done with the pool's memory. False: a stream is not to be had now. */
static bool named_order(world *w, world_named *p, unsigned stream)
{
    if (!world_follow(w, stream, p->worked))
        return false;
    p->worked = world_bit(stream);
    return true;
}

/* The step's stream; or a stream in whose order the pool keeps bytes. */
static unsigned named_stream(const world *w, const step *s, const world_named *p)
{
    enum { OF_EXTENT = 64 };
    const named_extent *e = &p->extents[s->field[F_COUNT] % (p->extent_count ? p->extent_count : 1)];
    for (unsigned i = 1; s->field[F_MORE] & OF_EXTENT && p->extent_count && i <= w->options.streams; i++)
        if (w->streams[i].id == e->order && e->order)
            return i;
    return (unsigned)s->field[F_STREAM];
}

static bool named_captures(const world_named *p, unsigned stream)
{
    for (unsigned i = 0; i < p->capturing; i++)
        if (p->streams[i] == stream)
            return true;
    return false;
}

/* Getting ---------------------------------------------------------------------------------------------------------- */

/* Reports bytes of the pool that must not serve the piece: of another stream's order, or still in use elsewhere. */
static void named_check_extent(world *w, const world_named *p, const named_extent *e, const named_piece *n)
{
    const char *at = n->block.pointer;
    if (e->order != n->order)
        oracle_report(w->oracle, ORACLE_EARLY_REUSE,
                      "a capture pool gives bytes that are in the order of stream %llx to a request of %llx's",
                      (unsigned long long)e->order, (unsigned long long)n->order);
    for (unsigned i = 0; i < NAMED_LATE; i++) {
        const named_late *l = &p->late[i];
        if (!l->number || !named_overlap(l->address, l->bytes, at, n->charged))
            continue;
        if (wi_sim_done(w->device, l->number) < l->point)
            oracle_report(w->oracle, ORACLE_EARLY_REUSE,
                          "a capture pool gives out bytes again that work %llu on stream %u may still use",
                          (unsigned long long)l->point, l->number);
        w->named_counts[NAMED_AFTER]++;
    }
}

/* Finds which of the pool's bytes the piece has. */
static uint64_t named_covered(world *w, const world_named *p, const named_piece *n)
{
    uint64_t covered = 0;
    for (unsigned i = 0; i < p->extent_count; i++) {
        const named_extent *e = &p->extents[i];
        uint64_t bytes = named_overlap(e->address, e->bytes, n->block.pointer, n->charged);
        covered += bytes;
        w->named_counts[NAMED_SPLIT] += bytes > 0 && bytes < e->bytes;
        if (bytes > 0)
            named_check_extent(w, p, e, n);
    }
    return covered;
}

/* The user has the piece from here on. `at`: the driver's stream that the piece was got on, 0 for a captured one. */
static void named_settle_in(world *w, world_named *p, const named_piece *n, unsigned at)
{
    for (unsigned i = 0; i < p->piece_count; i++)
        if (named_overlap(p->pieces[i].block.pointer, p->pieces[i].charged, n->block.pointer, n->charged))
            oracle_report(w->oracle, ORACLE_OVERLAP, "a capture pool gives out bytes of a block that is live");
    uint64_t covered = named_covered(w, p, n);
    if (covered > 0 && covered < n->charged)
        oracle_report(w->oracle, ORACLE_OVERLAP, "a block has bytes of a capture pool and others");
    w->named_counts[covered > 0 ? NAMED_AGAIN : NAMED_FRESH]++;
    if (covered > 0) {
        oracle_keep(w->oracle, p->client, (weir_class)n->memory_class, n->charged, false);
    } else {
        oracle_got got = {.client = p->client,
                          .stream = at,
                          .address = n->block.pointer,
                          .length = n->charged,
                          .charged = n->charged,
                          .memory_class = (weir_class)n->memory_class,
                          .queued = true};
        p->extents[p->extent_count++] = (named_extent){.address = n->block.pointer,
                                                       .bytes = n->charged,
                                                       .order = n->order,
                                                       .known = oracle_allocated(w->oracle, &got)};
    }
    p->pieces[p->piece_count++] = *n;
}

/* Work that writes the piece and work that finds what was written. */
static void named_put_work(world *w, const world_named *p, named_piece *n, unsigned stream)
{
    n->version = (w->last_version += WI_SIM_OWNERS) + w->owner[p->client];
    wi_sim_touch(w->device, w->native[stream], n->block.pointer, n->charged, true, n->version);
    wi_sim_touch(w->device, w->native[stream], n->block.pointer, n->charged, false, n->version);
}

/* Work on the piece: in the capture, or now. */
static bool named_use(world *w, world_named *p, named_piece *n, unsigned stream, bool write)
{
    bool captured = named_captures(p, stream);
    if (!captured && (!world_has_stream(w, stream) || !named_order(w, p, stream)))
        return false;
    oracle_declare(w->oracle, true);
    if (write || captured)
        named_put_work(w, p, n, stream);
    else if (n->version)
        wi_sim_touch(w->device, w->native[stream], n->block.pointer, n->charged, false, n->version);
    oracle_declare(w->oracle, false);
    n->version = captured ? 0 : n->version; /* launches write it */
    w->written[p->client] |= WEIR_CLASS_BIT(n->memory_class);
    return true;
}

static void named_allocate(world *w, const step *s, world_named *p)
{
    unsigned stream = named_stream(w, s, p);
    if (p->capturing > 0 && s->field[F_MORE] & 3)
        stream = p->streams[s->field[F_MORE] / 4 % p->capturing];
    bool captured = named_captures(p, stream), main = p->begun && stream == p->streams[0];
    bool named = !main || s->field[F_MORE] & 16;
    if (stream == 0 || (!captured && !world_has_stream(w, stream)) || p->piece_count == NAMED_PIECES ||
        p->extent_count >= NAMED_NEW || s->field[F_BYTES] == 0 || w->suspended[p->client])
        return;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = wi_round_up(s->field[F_BYTES], WI_SIM_UNIT),
                            .stream = w->streams[stream],
                            .memory_class = (weir_class)(s->field[F_COUNT] % WEIR_CLASS_COUNT),
                            .flags = s->field[F_MORE] & 32 ? WEIR_ALLOC_NO_WAIT : 0,
                            .pool = named ? p->pool : NULL};
    named_piece n = {.bytes = request.bytes,
                     .charged = world_charge(w, request.bytes, 0),
                     .order = named ? request.stream.id : 0,
                     .home = stream,
                     .home_id = request.stream.id,
                     .memory_class = (uint8_t)request.memory_class};
    world_take_stream(w, stream, 1);
    oracle_asking(w->oracle, p->client, request.memory_class, n.charged, false);
    weir_status status = weir_alloc_with(w->clients[p->client], &request, &n.block);
    oracle_answered(w->oracle, p->client, request.memory_class, n.charged, false);
    if (status != WEIR_OK)
        oracle_failed_there(w->oracle, world_number(w, stream));
    /* Memory of another owner must be zeroed, which is impossible during a capture. */
    bool got = ANSWER(w, "weir_alloc_with", status, WEIR_ERR_OUT_OF_MEMORY,
                      captured ? WEIR_ERR_STREAM_MISUSE : WEIR_ERR_OUT_OF_MEMORY);
    if (got) {
        p->worked |= captured ? 0 : world_bit(stream); /* the memory may be there behind work of the stream's alone */
        w->named_counts[NAMED_BESIDE] += captured && stream != p->streams[0];
        named_settle_in(w, p, &n, captured ? 0 : world_number(w, stream));
        (void)named_use(w, p, &p->pieces[p->piece_count - 1], stream, true);
    }
    world_take_stream(w, stream, -1);
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

/* Whether the free needs no point: on the stream whose order the piece is in, or in the capture for the pool. */
static bool named_frees_at_once(const world *w, const world_named *p, const named_piece *n, unsigned stream)
{
    return (n->order != 0 && n->order == w->streams[stream].id) || (p->begun && stream == p->streams[0]);
}

static void named_free(world *w, const step *s, world_named *p)
{
    if (p->piece_count == 0)
        return;
    named_piece *n = &p->pieces[s->field[F_COUNT] % p->piece_count];
    bool at_home = s->field[F_MORE] & 3 && w->streams[n->home].id == n->home_id;
    unsigned stream = at_home ? n->home : (unsigned)s->field[F_STREAM];
    bool captured = named_captures(p, stream), at_once = named_frees_at_once(w, p, n, stream);
    named_late *late = named_room_for_late(w, p);
    if (stream == 0 || !late || (!captured && (!world_has_stream(w, stream) || !named_order(w, p, stream))))
        return;
    bool refused = captured && !at_once;
    *late = (named_late){.address = n->block.pointer,
                         .bytes = n->charged,
                         .point = wi_sim_queued(w->device, world_number(w, stream)),
                         .number = at_once ? 0 : world_number(w, stream)};
    world_take_stream(w, stream, 1);
    weir_status status = s->field[F_MORE] & 4 ? weir_free_block(w->clients[p->client], n->block, w->streams[stream])
                                              : weir_free(w->clients[p->client], n->block.pointer, w->streams[stream]);
    world_take_stream(w, stream, -1);
    if (refused && status == WEIR_OK)
        oracle_report(w->oracle, ORACLE_ANSWER, "a free on another captured stream answers WEIR_OK");
    w->named_counts[NAMED_REFUSED] += refused;
    if (!ANSWER(w, "weir_free", status, refused ? WEIR_ERR_STREAM_MISUSE : WEIR_OK)) {
        late->number = 0;
        return;
    }
    oracle_keep(w->oracle, p->client, (weir_class)n->memory_class, n->charged, true);
    *n = p->pieces[--p->piece_count];
}

/* Uses a live piece between captures, and may have weir remember that. */
static void named_touch(world *w, const step *s, world_named *p)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    named_late *late = named_room_for_late(w, p);
    if (p->piece_count == 0 || stream == 0 || !late || !world_has_stream(w, stream))
        return;
    named_piece *n = &p->pieces[s->field[F_COUNT] % p->piece_count];
    bool record = s->field[F_MORE] & 1;
    if (!named_use(w, p, n, stream, !record && s->field[F_MORE] & 2) || !record)
        return;
    uint64_t point = wi_sim_queued(w->device, world_number(w, stream));
    world_take_stream(w, stream, 1);
    bool noted =
        ANSWER(w, "weir_use_record",
               weir_use_record(w->runtime, (weir_block){.pointer = n->block.pointer}, w->streams[stream]), WEIR_OK);
    world_take_stream(w, stream, -1);
    if (noted && w->streams[stream].id != n->home_id)
        *late = (named_late){
            .address = n->block.pointer, .bytes = n->charged, .point = point, .number = world_number(w, stream)};
}

/* Capturing -------------------------------------------------------------------------------------------------------- */

static bool named_can_capture(const world *w, unsigned stream)
{
    return stream != 0 && world_has_stream(w, stream) && w->stream_in_hand[stream] == 0 && !w->stream_closed[stream] &&
           !world_has_launch(w, stream) && !world_frees_for_others(w);
}

/* The stream is captured from here on: into a graph of its own, which is launched beside the others of the capture. */
static bool named_join(world *w, world_named *p, unsigned stream)
{
    oracle_capturing(w->oracle, world_number(w, stream));
    if (!wi_sim_capture_graph(w->device, w->native[stream]))
        return false;
    w->captured[stream] = true;
    world_take_stream(w, stream, 1);
    p->streams[p->capturing++] = stream;
    return true;
}

static void named_end_graph(named_graph *g)
{
    for (unsigned i = 0; i < NAMED_STREAMS; i++)
        wi_sim_graph_end(g->branch[i]);
}

/* Ends one of the graphs, which does not end the pool. */
static void named_forget_graph(world *w, const step *s, world_named *p)
{
    (void)w;
    if (p->graphs == 0)
        return;
    named_graph *g = &p->recorded[s->field[F_COUNT] % p->graphs];
    named_end_graph(g);
    *g = p->recorded[--p->graphs];
}

static void named_begin(world *w, const step *s, world_named *p)
{
    unsigned stream = named_stream(w, s, p);
    bool begun = s->field[F_COUNT] & 1;
    if (!named_can_capture(w, stream) || w->suspended[p->client] || !named_order(w, p, p->home))
        return;
    if (p->graphs == WORLD_CAPTURES)
        named_forget_graph(w, s, p);
    if (p->capturing > 0) {
        if (p->capturing < NAMED_STREAMS)
            (void)named_join(w, p, stream);
        return;
    }
    w->stream_closed[stream] = true;
    if (begun) {
        oracle_capturing(w->oracle, world_number(w, stream));
        begun = ANSWER(w, "weir_capture_begin", weir_capture_begin(w->streams[stream], p->pool), WEIR_OK);
    }
    p->begun = begun && named_join(w, p, stream);
    if (begun && !p->begun)
        (void)ANSWER(w, "weir_capture_end", weir_capture_end(w->streams[stream], p->pool), WEIR_OK);
    else if (!begun)
        (void)named_join(w, p, stream);
    w->stream_closed[stream] = false;
}

static void named_end(world *w, const step *s, world_named *p)
{
    (void)s;
    named_graph *g = &p->recorded[p->graphs];
    if (p->capturing == 0)
        return;
    *g = (named_graph){{NULL}};
    for (unsigned i = 0; i < p->capturing; i++) {
        g->branch[i] = wi_sim_captured(w->device, w->native[p->streams[i]]);
        w->captures_ended++;
    }
    if (p->begun)
        world_must_answer(w, "weir_capture_end", weir_capture_end(w->streams[p->streams[0]], p->pool), WEIR_OK);
    for (unsigned i = 0; i < p->capturing; i++) {
        w->captured[p->streams[i]] = false;
        world_take_stream(w, p->streams[i], -1);
    }
    p->begun = false;
    p->capturing = 0;
    p->graphs++;
}

/* Launches a graph on the pool's home stream, and beside it the work of the stream that joined the capture. */
static void named_launch(world *w, const step *s, world_named *p)
{
    unsigned side = (unsigned)s->field[F_STREAM];
    if (p->graphs == 0 || w->suspended[p->client] || !named_order(w, p, p->home))
        return;
    const named_graph *g = &p->recorded[s->field[F_COUNT] % p->graphs];
    side = side && world_has_stream(w, side) ? side : p->home;
    void *home = w->native[p->home], *beside = w->native[side];
    oracle_declare(w->oracle, true);
    if (g->branch[1] && side != p->home)
        wi_sim_follow(w->device, beside, home);
    if (g->branch[1])
        wi_sim_launch(w->device, g->branch[1], beside);
    if (g->branch[0])
        wi_sim_launch(w->device, g->branch[0], home);
    if (g->branch[1] && side != p->home)
        wi_sim_follow(w->device, home, beside);
    oracle_declare(w->oracle, false);
    for (unsigned i = 0; i < p->piece_count; i++) /* the graph writes every block of its capture */
        p->pieces[i].version = 0;
    w->named_counts[NAMED_LAUNCHED]++;
}

/* Mistakes --------------------------------------------------------------------------------------------------------- */

static void named_must_refuse(world *w, const char *call, weir_status status, weir_status expected)
{
    w->named_counts[NAMED_REFUSED]++;
    if (status != expected && !(status == WEIR_ERR_DRIVER && world_faults(w) != w->fault_mark))
        world_must_answer(w, call, status, expected);
}

static void named_ask_wrongly(world *w, world_named *p, unsigned client, uint32_t flags, unsigned stream)
{
    weir_block block = {NULL, 0};
    weir_request request = {.struct_size = sizeof request,
                            .bytes = WI_SIM_UNIT,
                            .stream = w->streams[stream],
                            .memory_class = WEIR_CLASS_KV,
                            .flags = flags,
                            .pool = p->pool};
    if (world_has_client(w, client) && !w->suspended[client])
        named_must_refuse(w, "a wrong weir_alloc_with of a capture pool",
                          weir_alloc_with(w->clients[client], &request, &block), WEIR_ERR_INVALID);
}

/* What is refused changes nothing, as named_check sees after each step. */
static void named_mistake(world *w, const step *s, world_named *p)
{
    unsigned stream = (unsigned)s->field[F_STREAM], other = (p->client + 1) % w->options.clients;
    bool free_stream = stream && world_has_stream(w, stream) && w->stream_in_hand[stream] == 0;
    switch (s->field[F_COUNT] % 6) {
    case 0:
        named_ask_wrongly(w, p, p->client, WEIR_ALLOC_ZEROED, free_stream ? stream : 0);
        return;
    case 1:
        if (other != p->client)
            named_ask_wrongly(w, p, other, 0, free_stream ? stream : 0);
        return;
    case 2:
        if (p->begun)
            named_must_refuse(w, "weir_capture_pool_destroy during its capture",
                              weir_capture_pool_destroy(p->pool, WEIR_STREAM_HOST), WEIR_ERR_BUSY);
        return;
    case 3:
        if (p->begun && free_stream)
            named_must_refuse(w, "a second weir_capture_begin", weir_capture_begin(w->streams[stream], p->pool),
                              WEIR_ERR_BUSY);
        return;
    case 4:
        if (free_stream)
            named_must_refuse(w, "weir_capture_end without a begin", weir_capture_end(w->streams[stream], p->pool),
                              WEIR_ERR_INVALID);
        return;
    default:
        if (p->capturing > 0)
            named_must_refuse(w, "weir_capture_pool_destroy on a captured stream",
                              weir_capture_pool_destroy(p->pool, w->streams[p->streams[0]]), WEIR_ERR_STREAM_MISUSE);
        return;
    }
}

/* Closing ---------------------------------------------------------------------------------------------------------- */

// NOLINTNEXTLINE(readability-non-const-parameter) ; the extent keeps it
static void named_add_part(world *w, const world_named *p, named_extent *e, char *address, uint64_t bytes,
                           weir_class memory_class)
{
    oracle_got part = {
        .client = p->client, .address = address, .length = bytes, .charged = bytes, .memory_class = memory_class};
    *e = (named_extent){.address = address, .bytes = bytes, .known = oracle_part(w->oracle, &part)};
}

/* The end of the bytes behind `at` that the pool keeps, or *piece is what stands there. */
static uint64_t named_run(const world_named *p, const named_extent *e, const char *at, const named_piece **piece)
{
    uint64_t left = e->bytes - (uint64_t)(at - e->address);
    *piece = NULL;
    for (unsigned i = 0; i < p->piece_count; i++) {
        const named_piece *n = &p->pieces[i];
        const char *start = n->block.pointer;
        if (start <= at && at < start + n->charged) {
            *piece = n;
            return wi_min(left, n->charged - (uint64_t)(at - start));
        }
        if (start > at && (uint64_t)(start - at) < left)
            left = (uint64_t)(start - at);
    }
    return left;
}

/* Makes each piece an extent, and each run of kept bytes. A piece that began in an extent before is an extent already. */
static void named_split(world *w, world_named *p)
{
    named_extent list[NAMED_EXTENTS] = {{.address = NULL}};
    unsigned count = 0;
    for (unsigned i = 0; i < p->extent_count; i++) {
        const named_extent *e = &p->extents[i];
        const named_piece *n;
        for (uint64_t at = 0, run; at < e->bytes; at += run) {
            run = named_run(p, e, e->address + at, &n);
            bool begins = !n || n->block.pointer == e->address + at;
            if (begins && count < NAMED_EXTENTS) {
                named_add_part(w, p, &list[count], e->address + at, n ? n->charged : run,
                               n ? (weir_class)n->memory_class : WEIR_CLASS_SCRATCH);
                list[count++].order = e->order;
            }
        }
    }
    memcpy(p->extents, list, count * sizeof *list);
    p->extent_count = count;
}

static const named_piece *named_piece_of(const world_named *p, const named_extent *e)
{
    for (unsigned i = 0; i < p->piece_count; i++)
        if (p->pieces[i].block.pointer == e->address)
            return &p->pieces[i];
    return NULL;
}

/* Makes a block that is live when the pool is closed an ordinary block, in a slot. */
static void named_let_out(world *w, const world_named *p, const named_extent *e, const named_piece *n)
{
    slot *b = world_slot(w, 0);
    while (b->block.pointer || b->in_hand)
        b++;
    oracle_let_out(w->oracle, e->known);
    *b = (slot){.block = n->block,
                .known = e->known,
                .bytes = n->bytes,
                .charged = n->charged,
                .client = (uint8_t)p->client,
                .memory_class = n->memory_class,
                .touched = world_bit(p->home),
                .writer = (uint8_t)p->home,
                .home = n->home,
                .home_id = n->home_id};
    w->named_counts[NAMED_LEFT_LIVE]++;
}

static unsigned named_free_slots(const world *w)
{
    unsigned count = 0;
    for (unsigned i = 0; i < WORLD_SLOTS; i++)
        count += !w->slots[i].block.pointer && !w->slots[i].in_hand;
    return count;
}

static void named_free_all(world *w, world_named *p)
{
    for (unsigned i = p->piece_count; i > 0; i--)
        named_free(w, &(step){.field = {[F_COUNT] = i - 1, [F_STREAM] = p->home}}, p);
}

static bool named_close_pool(world *w, world_named *p)
{
    unsigned number = world_number(w, p->home);
    named_split(w, p);
    for (unsigned i = 0; i < p->extent_count; i++) {
        const named_extent *e = &p->extents[i];
        if (named_piece_of(p, e))
            continue;
        oracle_hold(w->oracle, e->known, false);
        oracle_freeing(w->oracle, e->known, number);
    }
    bool closed =
        ANSWER(w, "weir_capture_pool_destroy", weir_capture_pool_destroy(p->pool, w->streams[p->home]), WEIR_OK);
    for (unsigned i = 0; i < p->extent_count; i++) {
        const named_extent *e = &p->extents[i];
        const named_piece *n = named_piece_of(p, e);
        if (closed && n) {
            named_let_out(w, p, e, n);
        } else if (closed) {
            oracle_freed(w->oracle, e->known);
        } else if (!n) {
            oracle_cached(w->oracle, e->known);
            oracle_hold(w->oracle, e->known, true);
        }
    }
    return closed;
}

/* Whether there is room for what a close makes of the extents and of the live blocks. */
static bool named_can_close(const world *w, const world_named *p)
{
    enum { SPARE_SLOTS = 32 }; /* for steps within */
    return named_free_slots(w) >= p->piece_count + SPARE_SLOTS && p->extent_count + 2 * p->piece_count <= NAMED_EXTENTS;
}

static void named_close(world *w, const step *s, world_named *p)
{
    named_end(w, s, p);
    if (s->field[F_COUNT] & 1 || !named_can_close(w, p))
        named_free_all(w, p);
    if (!named_can_close(w, p) || !named_order(w, p, p->home) || !named_close_pool(w, p))
        return;
    while (p->graphs > 0)
        named_forget_graph(w, &(step){0}, p);
    world_take_stream(w, p->home, -1);
    w->named_counts[NAMED_CLOSED]++;
    *p = (world_named){.in_hand = true};
}

static void named_open(world *w, const step *s, world_named *p)
{
    enum { STREAMS_ENOUGH = 4 };
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients, home = (unsigned)s->field[F_CLASS];
    weir_capture_pool *made;
    if (w->options.streams < STREAMS_ENOUGH || !(world_features(w) & WEIR_FEATURE_CAPTURABLE) ||
        world_features(w) & WEIR_FEATURE_GUARDS || home == 0 || !world_has_stream(w, home) ||
        !world_has_client(w, client))
        return;
    world_take_stream(w, home, 1);
    if (ANSWER(w, "weir_capture_pool_create", weir_capture_pool_create(w->clients[client], &made), WEIR_OK))
        *p = (world_named){.pool = made, .client = client, .home = home, .in_hand = true};
    else
        world_take_stream(w, home, -1);
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

static void named_do(world *w, const step *s, world_named *p)
{
    static const struct {
        unsigned before;
        void (*run)(world *, const step *, world_named *);
    } actions[] = {{NAMED_ALLOCATES, named_begin}, {NAMED_FREES, named_allocate},  {NAMED_TOUCHES, named_free},
                   {NAMED_LAUNCHES, named_touch},  {NAMED_MISTAKES, named_launch}, {NAMED_CLOSES, named_mistake},
                   {NAMED_ENDS, named_close},      {NAMED_FORGETS, named_end},     {NAMED_ACTIONS, named_forget_graph}};
    unsigned i = 0;
    while (s->field[F_FLAGS] % NAMED_ACTIONS >= actions[i].before)
        i++;
    actions[i].run(w, s, p);
}

/* Opens a pool, or does something with one: begins a capture or lets a stream join it, allocates, frees, uses what is
 * live, launches, makes a mistake, closes the pool, ends the capture, ends a graph. */
void run_named(world *w, const step *s)
{
    world_named *p = &w->named[s->field[F_SLOT] % WORLD_NAMED];
    if (p->in_hand || (p->pool && w->client_closed[p->client]))
        return;
    p->in_hand = true;
    unsigned client = p->pool ? p->client : (unsigned)s->field[F_CLIENT] % w->options.clients;
    w->client_in_hand[client]++;
    if (p->pool)
        named_do(w, s, p);
    else
        named_open(w, s, p);
    named_check(w, p);
    w->client_in_hand[client]--;
    p->in_hand = false;
}

/* For others ------------------------------------------------------------------------------------------------------- */

bool named_has_client(const world *w, unsigned client)
{
    for (unsigned i = 0; i < WORLD_NAMED; i++)
        if (w->named[i].pool && w->named[i].client == client)
            return true;
    return false;
}

bool named_can_move(const world *w, unsigned client)
{
    for (unsigned i = 0; i < WORLD_NAMED; i++)
        if (w->named[i].in_hand && w->named[i].client == client)
            return false;
    return true;
}

void named_take_client(world *w, unsigned client, bool take)
{
    for (unsigned i = 0; i < WORLD_NAMED; i++)
        if (w->named[i].pool && w->named[i].client == client)
            w->named[i].in_hand = take;
}

void named_pass_on(world *w, unsigned stream, unsigned other)
{
    for (unsigned i = 0; i < WORLD_NAMED; i++) {
        world_named *p = &w->named[i];
        if (p->worked & world_bit(stream))
            p->worked = (p->worked & ~world_bit(stream)) | world_bit(other);
    }
}

void named_end_captures(world *w)
{
    for (unsigned i = 0; i < WORLD_NAMED; i++)
        named_end(w, &(step){0}, &w->named[i]);
}

void world_end_named(world *w)
{
    for (unsigned i = 0; i < WORLD_NAMED; i++)
        if (w->named[i].pool)
            run_named(w, &(step){.field = {[F_SLOT] = i, [F_FLAGS] = NAMED_CLOSES}});
}
