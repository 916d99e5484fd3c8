/* What users do with blocks: allocate, use, resize and free them, in an order that they see to themselves or by launches. */
#include "memory/space/stream_order.h"
#include "runtime/runtime.h"
#include "sim/world.h"

#define UNIT ((uint64_t)WI_SIM_UNIT)

slot *world_slot(world *w, uint64_t index)
{
    return &w->slots[index % WORLD_SLOTS];
}

/* What users of so many bytes may touch: a device's work goes by units. */
static uint64_t touchable(uint64_t bytes)
{
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* A guard sees every byte beyond the end, and work here goes by units. */
static uint64_t blocks_whole(const world *w, uint64_t bytes)
{
    return world_features(w) & WEIR_FEATURE_GUARDS ? touchable(bytes) : bytes;
}

/* Reserves the slot and the stream for this step until world_let_slot_go. False: the slot is in
 * use, or full where `full` is false, or empty where it is true; or the stream is unavailable. */
bool world_take_slot(world *w, slot *b, unsigned stream, bool full)
{
    if (b->in_hand || (b->block.pointer != NULL) != full || !world_has_stream(w, stream))
        return false;
    b->in_hand = true;
    world_take_stream(w, stream, 1);
    return true;
}

void world_let_slot_go(world *w, slot *b, unsigned stream)
{
    b->in_hand = false;
    world_take_stream(w, stream, -1);
}

/* A user's order --------------------------------------------------------------------------------------------------- */

/* What is done next on `stream` comes after the work of the streams in `mask`. False: a fault was in the way. */
bool world_follow(world *w, unsigned stream, uint64_t mask)
{
    for (unsigned other = 1; other <= w->options.streams; other++) {
        if (!(mask & world_bit(other)) || other == stream)
            continue;
        if (!world_has_stream(w, other)) /* its end is under way */
            return false;
        if (stream) {
            wi_sim_follow(w->device, w->native[stream], w->native[other]);
            continue;
        }
        world_take_stream(w, other, 1);
        bool done = ANSWER(w, "weir_stream_synchronize", weir_stream_synchronize(w->streams[other]), WEIR_OK);
        world_take_stream(w, other, -1);
        if (!done)
            return false;
    }
    return true;
}

/* Brings `stream` behind what a read, or a write or free, must come after. */
bool world_order_use(world *w, slot *b, unsigned stream, bool write)
{
    if (!world_follow(w, stream, write ? b->touched : b->touched & world_bit(b->writer)))
        return false;
    b->recorded &= write ? 0 : ~world_bit(stream);
    if (write) {
        b->touched = world_bit(stream);
        b->writer = (uint8_t)stream;
    } else {
        b->touched |= world_bit(stream);
    }
    return true;
}

/* Queues work on a part of the block: a write gives it a new version, a read expects the last one. */
void world_touch(world *w, slot *b, unsigned stream, bool write, uint64_t offset, uint64_t bytes)
{
    if (write) {
        b->offset = offset % touchable(b->bytes) / UNIT * UNIT;
        b->length =
            bytes >= touchable(b->bytes) - b->offset ? touchable(b->bytes) - b->offset : touchable(bytes ? bytes : 1);
        b->version = (w->last_version += WI_SIM_OWNERS) + w->owner[b->client];
        w->written[b->client] |= WEIR_CLASS_BIT(b->memory_class);
    } else if (b->version == 0) { /* garbage may be anything */
        return;
    }
    wi_sim_touch(w->device, w->native[stream], (char *)b->block.pointer + b->offset, b->length, write, b->version);
}

/* What lies in a part of the block that the user has not written yet. */
static void look_at_new(world *w, const slot *b, unsigned stream, uint64_t from)
{
    uint64_t start = touchable(from), end = touchable(b->bytes);
    if (start < end)
        wi_sim_touch(w->device, w->native[stream], (char *)b->block.pointer + start, end - start, false,
                     WI_SIM_VISIBLE | w->owner[b->client]);
}

void run_touch(world *w, const step *s)
{
    slot *b = world_slot(w, s->field[F_SLOT]);
    unsigned stream = (unsigned)s->field[F_STREAM];
    bool write = s->field[F_FLAGS] & 1;
    if (!world_take_slot(w, b, stream, true))
        return;
    if (!b->declared && !world_is_away(w, b) && world_order_use(w, b, stream, write))
        world_touch(w, b, stream, write, s->field[F_MORE], s->field[F_BYTES]);
    world_let_slot_go(w, b, stream);
}

/* Allocating ------------------------------------------------------------------------------------------------------- */

/* Counts the allocations that the thread cache served; the program has a single thread. */
static uint64_t count_hits(const world *w)
{
    uint64_t hits = w->runtime->ledger.hits;
    for (const wi_tcache *f = wi_tcache_mine ? wi_tcache_mine->caches : NULL; f; f = f->next_of_thread)
        hits += f->runtime == w->runtime ? f->delta.hits : 0;
    return hits;
}

/* Returns the rung that served the new block; WEIR_RUNG_FIT for a block from the thread cache, which records no
 * rung. */
static unsigned rung_of(world *w, const weir_block *block, bool cached)
{
    wi_base *base = w->runtime->resource->base;
    bool freed;
    wi_base_lock(base);
    const wi_block *found = base->table->find(base, block->pointer, &freed);
    unsigned rung = found && !cached ? found->rung : WEIR_RUNG_FIT;
    wi_base_unlock(base);
    return rung;
}

/* A refusal names its cause. Whether that is true can be told when no other call was in the middle of something, and no
 * free could be kept from ending. */
static void count_refusal(world *w, unsigned client, uint64_t charged, uint64_t nested)
{
    weir_refusal refusal = {.struct_size = sizeof refusal};
    if (weir_refusal_last(&refusal) != WEIR_OK || refusal.cause == 0 || refusal.cause > WEIR_CAUSE_RESERVATION) {
        oracle_report(w->oracle, ORACLE_REFUSAL, "client %u is refused %llu bytes and no cause is named", client,
                      (unsigned long long)charged);
        return;
    }
    w->ladder[LADDER_REFUSED_BUDGET + (int)refusal.cause - 1]++;
    if (world_undisturbed(w, nested) && world_faults(w) == w->fault_mark)
        oracle_refused(w->oracle, client, charged, (int)refusal.cause);
}

/* What the runtime says of a new block. */
static void check_charge(world *w, const slot *b, uint64_t expected)
{
    weir_block_details details = {.struct_size = sizeof details};
    if (!ANSWER(w, "weir_block_info", weir_block_info(b->block.pointer, &details), WEIR_OK))
        return;
    if (details.charged != expected || details.charged < b->bytes || details.bytes != b->bytes)
        oracle_report(w->oracle, ORACLE_LEDGER, "a block of %llu bytes is charged %llu; by its resource it is %llu",
                      (unsigned long long)b->bytes, (unsigned long long)details.charged, (unsigned long long)expected);
}

/* The user has the block from here on. */
static void blocks_settle_in(world *w, slot *b, unsigned stream, bool zeroed, bool cached)
{
    uint64_t alignment = b->alignment ? b->alignment : UNIT;
    if ((uintptr_t)b->block.pointer % alignment != 0)
        oracle_report(w->oracle, ORACLE_ANSWER, "a block at %p is not aligned to %llu", b->block.pointer,
                      (unsigned long long)alignment);
    check_charge(w, b, b->charged);
    b->known = oracle_allocated(w->oracle,
                                &(oracle_got){.client = b->client,
                                              .stream = world_number(w, stream),
                                              .address = b->block.pointer,
                                              .length = world_features(w) & WEIR_FEATURE_GUARDS ? b->bytes : b->charged,
                                              .charged = b->charged,
                                              .memory_class = (weir_class)b->memory_class,
                                              .queued = true,
                                              .zeroed = zeroed,
                                              .cached = cached});
}

static reserved *reserved_for(world *w, unsigned client)
{
    for (unsigned i = 0; i < WORLD_RESERVATIONS; i++)
        if (w->reservations[i].reservation && w->reservations[i].client == client)
            return &w->reservations[i];
    return NULL;
}

/* The block is to come from there. True if it can. */
static bool take_reserved(reserved *from, weir_request *request, uint64_t charged)
{
    if (!from)
        return false;
    from->in_hand++;
    request->reservation = from->reservation;
    return charged <= wi_reservation_left(from->reservation);
}

static void blocks_allocate(world *w, const step *s, slot *b, unsigned client, unsigned stream)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = blocks_whole(w, s->field[F_BYTES]),
                            .alignment = s->field[F_MORE],
                            .stream = w->streams[stream],
                            .memory_class = (weir_class)s->field[F_CLASS],
                            .flags = (uint32_t)s->field[F_FLAGS]};
    weir_block block;
    reserved *from = s->field[F_COUNT] & 2 ? reserved_for(w, client) : NULL;
    uint64_t nested = w->nested, hits = count_hits(w), charged = world_charge(w, request.bytes, request.alignment);
    bool there = take_reserved(from, &request, charged);
    if (!world_asks(w, client)) {
        if (from)
            from->in_hand--;
        return;
    }
    oracle_asking(w->oracle, client, request.memory_class, charged, there);
    weir_status status = weir_alloc_with(w->clients[client], &request, &block);
    bool cached = count_hits(w) > hits && w->nested == nested;
    oracle_answered(w->oracle, client, request.memory_class, charged, there);
    if (there && status == WEIR_OK)
        oracle_reserved(w->oracle, client, 0, charged);
    if (from)
        from->in_hand--;
    bool admitted = world_was_admitted(w, client, "weir_alloc_with", status);
    if (status != WEIR_OK)
        oracle_failed_there(w->oracle, world_number(w, stream));
    if (!admitted)
        return;
    if (status == WEIR_ERR_OUT_OF_MEMORY)
        count_refusal(w, client, charged, nested);
    if (!ANSWER(w, "weir_alloc_with", status, WEIR_ERR_OUT_OF_MEMORY) || request.bytes == 0)
        return;
    w->ladder[rung_of(w, &block, cached)]++;
    bool zeroed = request.flags & WEIR_ALLOC_ZEROED;
    *b = (slot){.block = block,
                .bytes = request.bytes,
                .charged = charged,
                .length = touchable(request.bytes),
                .version = zeroed ? WI_SIM_ZERO : 0,
                .client = (uint8_t)client,
                .memory_class = (uint8_t)request.memory_class,
                .alignment = (uint32_t)request.alignment,
                .touched = world_bit(stream),
                .writer = (uint8_t)stream,
                .in_hand = true,
                .stable = request.flags & WEIR_ALLOC_STABLE,
                .home = stream,
                .home_id = request.stream.id,
                .declared = s->field[F_COUNT] & 1};
    blocks_settle_in(w, b, stream, zeroed, cached);
    if (s->field[F_COUNT] & 4 && !b->declared)
        look_at_new(w, b, stream, 0);
}

void run_allocate(world *w, const step *s)
{
    slot *b = world_slot(w, s->field[F_SLOT]);
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients, stream = (unsigned)s->field[F_STREAM];
    if (!world_has_client(w, client) || s->field[F_CLASS] >= WEIR_CLASS_COUNT || !world_take_slot(w, b, stream, false))
        return;
    bool resumes = w->suspended[client] == SUSPENDED_UNTIL_ALLOC; /* the resume takes the client in hand itself */
    w->client_in_hand[client] = (uint8_t)(w->client_in_hand[client] + !resumes);
    blocks_allocate(w, s, b, client, stream);
    w->client_in_hand[client] = (uint8_t)(w->client_in_hand[client] - !resumes);
    world_let_slot_go(w, b, stream);
}

/* Freeing and resizing --------------------------------------------------------------------------------------------- */

void world_expect_busy(world *w, const char *call, weir_status status)
{
    bool faulty = status == WEIR_ERR_DRIVER && world_faults(w) != w->fault_mark;
    if (status != WEIR_ERR_BUSY && !faulty && !world_lacks_a_point(w, status))
        oracle_report(w->oracle, ORACLE_ANSWER, "%s of what is held answers %s", call,
                      weir_name_of(WEIR_NAMES_STATUS, status));
}

static void free_slot(world *w, const step *s, slot *b, unsigned stream)
{
    weir_client *client = w->clients[b->client];
    bool busy = world_is_held(b);
    if (!busy)
        oracle_freeing(w->oracle, b->known, world_number(w, stream));
    weir_status status = s->field[F_FLAGS] & 1 ? weir_free_block(client, b->block, w->streams[stream])
                                               : weir_free(client, b->block.pointer, w->streams[stream]);
    if (busy)
        world_expect_busy(w, "weir_free", status);
    bool freed = ANSWER(w, "weir_free", status, busy ? WEIR_ERR_BUSY : WEIR_OK);
    if (!freed) {
        if (!busy)
            oracle_cached(w->oracle, b->known);
        return;
    }
    if (busy) /* a defect lets it */
        oracle_freeing(w->oracle, b->known, world_number(w, stream));
    oracle_freed(w->oracle, b->known);
    w->last_freed = b->block;
    w->freed[w->frees++ % WORLD_FREED] = (freed_block){b->bytes, b->client, stream};
    *b = (slot){.in_hand = true};
}

void run_free(world *w, const step *s)
{
    slot *b = world_slot(w, s->field[F_SLOT]);
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (!world_take_slot(w, b, stream, true))
        return;
    unsigned client = b->client;
    w->client_in_hand[client]++;
    if (b->declared || world_follow(w, stream, b->touched & ~b->recorded))
        free_slot(w, s, b, stream);
    w->client_in_hand[client]--;
    world_let_slot_go(w, b, stream);
}

/* Somebody finds no memory. Now and then a user can do without some block, or without all for a while. */
void world_give_up(const weir_pressure *pressure, void *user)
{
    enum { SELDOM = 4, ASIDE = 41 };
    world *w = user;
    if (w->pressed % ASIDE == ASIDE - 1 && pressure->attempt <= 2) {
        w->pressed++;
        world_step_aside(w);
        return;
    }
    if (w->pressed++ % SELDOM != 0 || pressure->attempt > 2)
        return;
    for (unsigned i = 0; i < WORLD_SLOTS; i++) {
        unsigned number = (unsigned)(w->pressed + i) % WORLD_SLOTS;
        const slot *b = world_slot(w, number);
        if (!b->block.pointer || b->in_hand)
            continue;
        w->nested++;
        run_free(w, &(step){.field = {[F_SLOT] = number, [F_STREAM] = b->writer}});
        return;
    }
}

/* Whether what a block loses is given to others. A piece of the driver's stays whole, and so do what a guard is around and
 * what is not worth an extent. */
static bool cuts(const world *w, const slot *b, uint64_t after)
{
    wi_base *base = w->runtime->resource->base;
    bool freed;
    if ((world_features(w) & WEIR_FEATURE_GUARDS) || strcmp(base->table->all.name, "direct") == 0 ||
        strcmp(base->table->all.name, "async") == 0)
        return false;
    if (!base->stream_lists)
        return true;
    wi_base_lock(base);
    const wi_extent *extent = wi_extent_of(base->table->find(base, b->block.pointer, &freed));
    bool cut = !extent || extent->bytes - after > extent->region->most_slack;
    wi_base_unlock(base);
    return cut;
}

/* Resizes the block; its charge becomes `after` if the call does not fail. The block loses its tail, or grows. */
static weir_status blocks_resize(world *w, slot *b, uint64_t bytes, uint64_t after, unsigned stream)
{
    uint64_t most = wi_max(after, world_charge(w, bytes, b->alignment)); /* what is asked for, and may be refused */
    uint64_t moved = most > b->charged ? most - b->charged : b->charged - after;
    weir_class memory_class = (weir_class)b->memory_class;
    unsigned number = world_number(w, stream);
    /* What is declared comes behind the stream of the allocation, and so behind what lay behind the block on it. */
    unsigned behind = b->declared ? oracle_stream_of(w->oracle, b->known) : number;
    bool less = after < b->charged && !world_is_held(b) && oracle_away(w->oracle, b->known) == 0,
         cut = less && cuts(w, b, after);
    oracle_block tail = 0;
    oracle_naming(w->oracle, b->known, number);
    if (cut)
        tail = oracle_cutting(w->oracle, b->known, after, after, number);
    else if (less)
        oracle_grown(w->oracle, b->known, 0, after, number);
    oracle_asking(w->oracle, b->client, memory_class, moved, false);
    weir_status status = weir_resize(w->clients[b->client], b->block.pointer, bytes, w->streams[stream]);
    oracle_answered(w->oracle, b->client, memory_class, moved, false);
    if (status != WEIR_OK)
        oracle_failed_there(w->oracle, number);
    if (cut && status == WEIR_OK)
        oracle_freed(w->oracle, tail);
    else if (cut)
        oracle_uncut(w->oracle, b->known, tail);
    else if (status == WEIR_OK)
        oracle_grown(w->oracle, b->known, world_features(w) & WEIR_FEATURE_GUARDS ? bytes : after, after, behind);
    else if (less)
        oracle_grown(w->oracle, b->known, 0, b->charged, number);
    return status;
}

static void resize_slot(world *w, slot *b, uint64_t bytes, unsigned stream)
{
    bool busy = world_is_held(b) || oracle_away(w->oracle, b->known) > 0,
         guarded = world_features(w) & WEIR_FEATURE_GUARDS;
    uint64_t before = b->bytes, after = guarded ? b->charged : world_charge(w, bytes, b->alignment);
    weir_status status = blocks_resize(w, b, bytes, after, stream);
    if (busy)
        world_expect_busy(w, "weir_resize", status);
    if (!ANSWER(w, "weir_resize", status, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_NO_ROOM, busy ? WEIR_ERR_BUSY : WEIR_OK))
        return;
    b->bytes = bytes;
    b->charged = after;
    check_charge(w, b, after);
    if (!b->declared)
        look_at_new(w, b, stream, before);
    if (b->offset + b->length > touchable(bytes))
        b->version = 0;
}

void run_resize(world *w, const step *s)
{
    slot *b = world_slot(w, s->field[F_SLOT]);
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (!world_take_slot(w, b, stream, true))
        return;
    if (b->declared || world_order_use(w, b, stream, true))
        resize_slot(w, b, blocks_whole(w, s->field[F_BYTES] ? s->field[F_BYTES] : 1), stream);
    world_let_slot_go(w, b, stream);
}

/* Launches --------------------------------------------------------------------------------------------------------- */

static void queue_launch(world *w, const launch *l)
{
    oracle_declare(w->oracle, true);
    for (unsigned i = 0; i < l->count; i++) {
        slot *b = world_slot(w, l->slots[i]);
        world_touch(w, b, l->stream, l->write[i], b->version ? b->offset : 0, b->bytes);
    }
    oracle_declare(w->oracle, false);
}

static void open_tickets(world *w, const launch *l, int by)
{
    for (unsigned i = 0; i < l->count; i++) {
        slot *b = world_slot(w, l->slots[i]);
        if (l->write[i])
            b->written = by > 0;
        else
            b->readers = (uint8_t)(b->readers + by);
    }
}

/* The blocks that a step names: from the slot on, every second one that is declared. */
static bool blocks_gather(world *w, const step *s, launch *l, weir_use *uses)
{
    bool conflict = false;
    for (unsigned i = 0; i < s->field[F_COUNT] % WORLD_USES + 1; i++) {
        uint64_t index = (s->field[F_SLOT] + 2 * (uint64_t)i) % WORLD_SLOTS;
        const slot *b = world_slot(w, index);
        bool write = s->field[F_FLAGS] >> i & 1;
        bool torn = w->asked_to_show[b->client] && world_is_away(w, b); /* some of it is not shown, after a fault */
        if (!b->block.pointer || !b->declared || b->in_hand || torn)
            continue;
        conflict |= b->written || (write && b->readers > 0) || world_is_away(w, b);
        l->slots[l->count] = (uint8_t)index;
        l->write[l->count] = write;
        uses[l->count++] = (weir_use){.block = b->block, .access = write ? WEIR_ACCESS_WRITE : WEIR_ACCESS_READ};
    }
    return conflict;
}

/* Reserves the launch, its stream and its blocks for this step, or releases them. */
static void take_launch(world *w, launch *l, bool take)
{
    l->in_hand = take;
    world_take_stream(w, l->stream, take ? 1 : -1);
    for (unsigned i = 0; i < l->count; i++)
        world_slot(w, l->slots[i])->in_hand = take;
}

static void blocks_begin(world *w, launch *l, const weir_use *uses, bool conflict)
{
    for (unsigned i = 0; i < l->count; i++)
        oracle_naming(w->oracle, world_slot(w, l->slots[i])->known, world_number(w, l->stream));
    weir_status status = weir_launch_begin(w->runtime, w->streams[l->stream], uses, l->count, &l->launch);
    if (conflict) {
        world_expect_busy(w, "weir_launch_begin", status);
        return;
    }
    if (!ANSWER(w, "weir_launch_begin", status, WEIR_OK))
        return;
    open_tickets(w, l, 1);
    if (!l->late)
        queue_launch(w, l);
}

void run_begin(world *w, const step *s)
{
    launch *l = &w->launches[s->field[F_CLASS] % WORLD_LAUNCHES], fresh = {.stream = (unsigned)s->field[F_STREAM]};
    weir_use uses[WORLD_USES];
    if (l->launch || l->in_hand || !world_has_stream(w, fresh.stream))
        return;
    bool conflict = blocks_gather(w, s, &fresh, uses);
    if (fresh.count == 0)
        return;
    fresh.late = s->field[F_MORE] & 1;
    *l = fresh;
    take_launch(w, l, true);
    blocks_begin(w, l, uses, conflict);
    take_launch(w, l, false);
}

/* Another step may have the launch in hand, or one of its blocks; or a defect has freed one. */
static bool can_end(world *w, const launch *l)
{
    bool can = l->launch && !l->in_hand;
    for (unsigned i = 0; can && i < l->count; i++)
        can = world_is_held(world_slot(w, l->slots[i])) && !world_slot(w, l->slots[i])->in_hand;
    return can;
}

static void blocks_end(world *w, launch *l)
{
    unsigned stream = world_number(w, l->stream);
    if (l->late)
        queue_launch(w, l);
    l->late = false;
    for (unsigned i = 0; i < l->count; i++)
        oracle_using(w->oracle, world_slot(w, l->slots[i])->known, stream, l->write[i]);
    if (!ANSWER(w, "weir_launch_end", weir_launch_end(l->launch), WEIR_OK))
        return;
    for (unsigned i = 0; i < l->count; i++)
        oracle_used(w->oracle, world_slot(w, l->slots[i])->known, stream);
    open_tickets(w, l, -1);
    l->launch = NULL;
}

void run_end(world *w, const step *s)
{
    launch *l = &w->launches[s->field[F_SLOT] % WORLD_LAUNCHES];
    if (!can_end(w, l))
        return;
    take_launch(w, l, true);
    blocks_end(w, l);
    take_launch(w, l, false);
}

void run_abort(world *w, const step *s)
{
    launch *l = &w->launches[s->field[F_SLOT] % WORLD_LAUNCHES];
    if (!can_end(w, l) || !l->late) /* only a launch that has queued no work can be aborted */
        return;
    weir_launch_abort(l->launch);
    open_tickets(w, l, -1);
    l->launch = NULL;
}
