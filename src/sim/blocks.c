/* What users do with blocks: allocate, use, resize and free them, in an order that they see to themselves or by launches. */
#include "sim/world.h"

#define UNIT ((uint64_t)WI_SIM_UNIT)

static uint64_t bit(unsigned stream)
{
    return stream ? UINT64_C(1) << stream : 0;
}

static slot *slot_at(world *w, uint64_t index)
{
    return &w->slots[index % WORLD_SLOTS];
}

static uint64_t charged(uint64_t bytes)
{
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* A user's order ---------------------------------------------------------------------------------------------------- */

/* What is done next on `stream` comes after the work of the streams in `mask`. False: a fault was in the way. */
static bool follow(world *w, unsigned stream, uint64_t mask)
{
    for (unsigned other = 1; other <= w->options.streams; other++) {
        if (!(mask & bit(other)) || other == stream)
            continue;
        if (stream)
            wi_sim_follow(w->device, w->native[stream], w->native[other]);
        else if (!ANSWER(w, "weir_stream_synchronize", weir_stream_synchronize(w->streams[other]), WEIR_OK))
            return false;
    }
    return true;
}

/* Brings `stream` behind what a read, or a write or free, must come after. */
static bool order_use(world *w, slot *b, unsigned stream, bool write)
{
    if (!follow(w, stream, write ? b->touched : b->touched & bit(b->writer)))
        return false;
    if (write) {
        b->touched = bit(stream);
        b->writer = (uint8_t)stream;
    } else {
        b->touched |= bit(stream);
    }
    return true;
}

/* Queues work on a part of the block: a write gives it a new version, a read expects the last one. */
static void touch(world *w, slot *b, unsigned stream, bool write, uint64_t offset, uint64_t bytes)
{
    if (write) {
        b->offset = offset % charged(b->bytes) / UNIT * UNIT;
        b->length = bytes >= charged(b->bytes) - b->offset ? charged(b->bytes) - b->offset : charged(bytes ? bytes : 1);
        b->version = ++w->last_version;
    } else if (b->version == 0) { /* garbage may be anything */
        return;
    }
    wi_sim_touch(w->device, w->native[stream], (char *)b->block.pointer + b->offset, b->length, write, b->version);
}

void run_touch(world *w, const step *s)
{
    slot *b = slot_at(w, s->field[F_SLOT]);
    unsigned stream = (unsigned)s->field[F_STREAM];
    bool write = s->field[F_FLAGS] & 1;
    if (!b->block.pointer || b->declared || !world_has_stream(w, stream) || !order_use(w, b, stream, write))
        return;
    touch(w, b, stream, write, s->field[F_MORE], s->field[F_BYTES]);
}

/* Allocating ------------------------------------------------------------------------------------------------------- */

typedef struct counts {
    uint64_t create, map, unmap, wait;
} counts;

static counts count_calls(void)
{
    return (counts){wi_sim_calls(WI_SIM_CREATE), wi_sim_calls(WI_SIM_MAP), wi_sim_calls(WI_SIM_UNMAP),
                    wi_sim_calls(WI_SIM_WAIT)};
}

static void count_ladder(world *w, weir_status status, const counts *before, unsigned client, uint64_t bytes)
{
    counts now = count_calls();
    weir_refusal refusal = {.size = sizeof refusal};
    if (status == WEIR_OK) {
        ladder_rung rung = now.wait > before->wait       ? LADDER_WAIT
                           : now.unmap > before->unmap   ? LADDER_REMAP
                           : now.create > before->create ? LADDER_CREATE
                           : now.map > before->map       ? LADDER_SPARE
                                                         : LADDER_FIT;
        w->ladder[rung]++;
    } else if (status == WEIR_OUT_OF_MEMORY && weir_refusal_last(&refusal) == WEIR_OK && refusal.cause > 0 &&
               refusal.cause <= WEIR_CAUSE_ADDRESS_RANGE) {
        w->ladder[LADDER_REFUSED_BUDGET + (int)refusal.cause - 1]++;
        oracle_refused(w->oracle, client, bytes, (int)refusal.cause);
    } else if (status == WEIR_OUT_OF_MEMORY) {
        oracle_report(w->oracle, ORACLE_REFUSAL, "client %u is refused %llu bytes and no cause is named", client,
                      (unsigned long long)bytes);
    }
}

void run_allocate(world *w, const step *s)
{
    slot *b = slot_at(w, s->field[F_SLOT]);
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients, stream = (unsigned)s->field[F_STREAM];
    if (b->block.pointer || !w->clients[client] || !world_has_stream(w, stream))
        return;
    weir_request request = {.size = sizeof request,
                            .bytes = s->field[F_BYTES],
                            .alignment = s->field[F_MORE],
                            .stream = w->streams[stream],
                            .memory_class = (weir_class)s->field[F_CLASS],
                            .flags = (uint32_t)s->field[F_FLAGS]};
    weir_block block;
    counts before = count_calls();
    weir_status status = weir_alloc_with(w->clients[client], &request, &block);
    count_ladder(w, status, &before, client, charged(request.bytes));
    if (!ANSWER(w, "weir_alloc_with", status, WEIR_OUT_OF_MEMORY) || request.bytes == 0)
        return;
    uint64_t alignment = request.alignment ? request.alignment : UNIT;
    if ((uintptr_t)block.pointer % alignment != 0)
        oracle_report(w->oracle, ORACLE_ANSWER, "a block at %p is not aligned to %llu", block.pointer,
                      (unsigned long long)alignment);
    bool zeroed = request.flags & WEIR_ZEROED;
    *b = (slot){.block = block,
                .bytes = request.bytes,
                .length = charged(request.bytes),
                .version = zeroed ? WI_SIM_ZERO : 0,
                .client = (uint8_t)client,
                .memory_class = (uint8_t)request.memory_class,
                .touched = bit(stream),
                .writer = (uint8_t)stream,
                .declared = s->field[F_COUNT] & 1};
    b->known = oracle_allocated(w->oracle, client, world_number(w, stream), block.pointer, request.bytes,
                                request.memory_class, zeroed);
}

/* Freeing and resizing --------------------------------------------------------------------------------------------- */

static bool held(const slot *b)
{
    return b->readers > 0 || b->written;
}

/* A block that an open launch holds is refused, and nothing changes. */
static void expect_busy(world *w, const char *call, weir_status status)
{
    if (status != WEIR_BUSY && (status != WEIR_DRIVER || wi_sim_faults() == w->fault_mark))
        oracle_report(w->oracle, ORACLE_ANSWER, "%s of a block that a launch holds answers %s", call,
                      weir_status_name(status));
}

void run_free(world *w, const step *s)
{
    slot *b = slot_at(w, s->field[F_SLOT]);
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (!b->block.pointer || !world_has_stream(w, stream))
        return;
    if (!b->declared && !order_use(w, b, stream, true))
        return;
    weir_client *client = w->clients[b->client];
    weir_status status = s->field[F_FLAGS] & 1 ? weir_free_block(client, b->block, w->streams[stream])
                                               : weir_free(client, b->block.pointer, w->streams[stream]);
    if (held(b))
        expect_busy(w, "weir_free", status);
    if (!ANSWER(w, "weir_free", status, held(b) ? WEIR_BUSY : WEIR_OK))
        return;
    oracle_freed(w->oracle, b->known, world_number(w, stream));
    w->last_freed = b->block;
    *b = (slot){0};
}

void run_resize(world *w, const step *s)
{
    slot *b = slot_at(w, s->field[F_SLOT]);
    unsigned stream = (unsigned)s->field[F_STREAM];
    uint64_t bytes = s->field[F_BYTES] ? s->field[F_BYTES] : 1;
    if (!b->block.pointer || !world_has_stream(w, stream))
        return;
    if (!b->declared && !order_use(w, b, stream, true))
        return;
    weir_status status = weir_resize(w->clients[b->client], b->block.pointer, bytes, w->streams[stream]);
    if (held(b))
        expect_busy(w, "weir_resize", status);
    if (!ANSWER(w, "weir_resize", status, WEIR_OUT_OF_MEMORY, WEIR_NO_ROOM, held(b) ? WEIR_BUSY : WEIR_OK))
        return;
    oracle_resized(w->oracle, b->known, bytes, world_number(w, stream));
    b->bytes = bytes;
    if (b->offset + b->length > charged(bytes))
        b->version = 0;
}

/* Launches --------------------------------------------------------------------------------------------------------- */

static void queue_launch(world *w, const launch *l)
{
    oracle_declare(w->oracle, true);
    for (unsigned i = 0; i < l->count; i++) {
        slot *b = slot_at(w, l->slots[i]);
        touch(w, b, l->stream, l->write[i], b->version ? b->offset : 0, b->bytes);
    }
    oracle_declare(w->oracle, false);
}

static void open_tickets(world *w, const launch *l, int by)
{
    for (unsigned i = 0; i < l->count; i++) {
        slot *b = slot_at(w, l->slots[i]);
        if (l->write[i])
            b->written = by > 0;
        else
            b->readers = (uint8_t)(b->readers + by);
    }
}

/* The blocks that a step names: from the slot on, every second one that is declared. */
static bool gather(world *w, const step *s, launch *l, weir_use *uses)
{
    bool conflict = false;
    for (unsigned i = 0; i < s->field[F_COUNT] % WORLD_USES + 1; i++) {
        uint64_t index = (s->field[F_SLOT] + 2 * (uint64_t)i) % WORLD_SLOTS;
        const slot *b = slot_at(w, index);
        bool write = s->field[F_FLAGS] >> i & 1;
        if (!b->block.pointer || !b->declared)
            continue;
        conflict |= b->written || (write && b->readers > 0);
        l->slots[l->count] = (uint8_t)index;
        l->write[l->count] = write;
        uses[l->count++] = (weir_use){.block = b->block, .access = write ? WEIR_WRITE : WEIR_READ};
    }
    return conflict;
}

void run_begin(world *w, const step *s)
{
    launch *l = &w->launches[s->field[F_CLASS] % WORLD_LAUNCHES], fresh = {.stream = (unsigned)s->field[F_STREAM]};
    weir_use uses[WORLD_USES];
    if (l->launch || !world_has_stream(w, fresh.stream))
        return;
    bool conflict = gather(w, s, &fresh, uses);
    if (fresh.count == 0)
        return;
    fresh.late = s->field[F_MORE] & 1;
    weir_status status = weir_launch_begin(w->runtime, w->streams[fresh.stream], uses, fresh.count, &fresh.launch);
    if (conflict) {
        expect_busy(w, "weir_launch_begin", status);
        return;
    }
    if (!ANSWER(w, "weir_launch_begin", status, WEIR_OK))
        return;
    *l = fresh;
    open_tickets(w, l, 1);
    if (!l->late)
        queue_launch(w, l);
}

void run_end(world *w, const step *s)
{
    launch *l = &w->launches[s->field[F_SLOT] % WORLD_LAUNCHES];
    if (!l->launch)
        return;
    if (l->late)
        queue_launch(w, l);
    l->late = false;
    if (!ANSWER(w, "weir_launch_end", weir_launch_end(l->launch), WEIR_OK))
        return;
    for (unsigned i = 0; i < l->count; i++)
        oracle_used(w->oracle, slot_at(w, l->slots[i])->known, world_number(w, l->stream), l->write[i]);
    open_tickets(w, l, -1);
    *l = (launch){0};
}

void run_abort(world *w, const step *s)
{
    launch *l = &w->launches[s->field[F_SLOT] % WORLD_LAUNCHES];
    if (!l->launch || !l->late) /* only of one that has queued nothing */
        return;
    weir_launch_abort(l->launch);
    open_tickets(w, l, -1);
    *l = (launch){0};
}
