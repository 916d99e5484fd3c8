/* The operations, and how chance picks operations and their numbers. A new operation needs a line of the table, a
 * function that runs the operation and a function that chooses its numbers. */
#include "sim/world.h"
#include <weir/block_pool.h>

static bool chance(world *w, unsigned percent)
{
    return world_random(w, 100) < percent;
}

static uint64_t any_stream(world *w)
{
    for (int tries = 0; tries < 4; tries++) {
        uint64_t stream = world_random(w, w->options.streams) + 1;
        if (world_has_stream(w, stream))
            return stream;
    }
    return 0;
}

static uint64_t some_stream(world *w)
{
    return chance(w, 4) ? 0 : any_stream(w);
}

/* Most blocks are small, and most bytes are in large ones. Where free places are to be fought for, most fit many. */
static uint64_t some_bytes(world *w)
{
    if (w->mood != MOOD_ORDINARY && chance(w, 70))
        return w->options.budget / 32 * (world_random(w, 4) + 1);
    uint64_t kind = world_random(w, 100);
    uint64_t most = kind < 50 ? 64 << 10 : kind < 80 ? 1 << 20 : kind < 95 ? 8 << 20 : w->options.budget / 3;
    uint64_t bytes = world_random(w, most) + 1;
    return chance(w, 30) ? (bytes + 4095) / 4096 * 4096 : bytes;
}

/* A slot that holds a block, or not, if one is soon found. */
static uint64_t some_slot(world *w, bool full)
{
    uint64_t found = 0;
    for (int tries = 0; tries < 8; tries++) {
        found = world_random(w, WORLD_SLOTS);
        if ((w->slots[found].block.pointer != NULL) == full)
            break;
    }
    return found;
}

/* As much as was freed not long ago, for the same client on the same stream: what a loop asks for. */
static void choose_again(world *w, step *s)
{
    const freed_block *b = &w->freed[world_random(w, WORLD_FREED)];
    if (b->bytes == 0)
        return;
    s->field[F_CLIENT] = b->client;
    s->field[F_STREAM] = b->stream;
    s->field[F_BYTES] = b->bytes;
    s->field[F_MORE] = s->field[F_FLAGS] = 0;
    s->field[F_COUNT] &= ~UINT64_C(2);
}

static void choose_allocate(world *w, step *s)
{
    s->field[F_SLOT] = some_slot(w, false);
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_STREAM] = some_stream(w);
    s->field[F_BYTES] = chance(w, 1) ? 0 : some_bytes(w);
    s->field[F_MORE] = chance(w, 20) ? UINT64_C(1) << world_random(w, 22) : 0;
    s->field[F_CLASS] = world_random(w, WEIR_CLASS_COUNT);
    s->field[F_FLAGS] = (chance(w, 10) ? WEIR_ALLOC_ZEROED : 0) | (chance(w, 40) ? WEIR_ALLOC_NO_WAIT : 0) |
                        (chance(w, 5) ? WEIR_ALLOC_STABLE : 0);
    s->field[F_COUNT] = (uint64_t)chance(w, 40) | (uint64_t)chance(w, 30) << 1 | (uint64_t)chance(w, 30) << 2;
    if (chance(w, 30))
        choose_again(w, s);
}

/* A stream for the next use of a block: often the stream of the last write. */
static uint64_t next_stream(world *w, const slot *b)
{
    return b->writer && chance(w, 60) ? b->writer : some_stream(w);
}

static void choose_free(world *w, step *s)
{
    s->field[F_SLOT] = some_slot(w, true);
    s->field[F_STREAM] = next_stream(w, &w->slots[s->field[F_SLOT]]);
    s->field[F_FLAGS] = chance(w, 50);
}

static void choose_resize(world *w, step *s)
{
    s->field[F_SLOT] = some_slot(w, true);
    const slot *b = &w->slots[s->field[F_SLOT]];
    s->field[F_STREAM] = next_stream(w, b);
    s->field[F_BYTES] = chance(w, 50) ? world_random(w, b->bytes + 1) + 1 : b->bytes + some_bytes(w);
}

static void choose_touch(world *w, step *s)
{
    s->field[F_SLOT] = some_slot(w, true);
    const slot *b = &w->slots[s->field[F_SLOT]];
    s->field[F_STREAM] = next_stream(w, b);
    s->field[F_FLAGS] = chance(w, 50);
    s->field[F_MORE] = chance(w, 50) ? 0 : world_random(w, b->bytes + 1);
    s->field[F_BYTES] = chance(w, 50) ? b->bytes : world_random(w, b->bytes + 1) + 1;
}

static void choose_begin(world *w, step *s)
{
    for (int tries = 0; tries < 8; tries++) {
        s->field[F_SLOT] = some_slot(w, true);
        if (w->slots[s->field[F_SLOT]].declared)
            break;
    }
    s->field[F_STREAM] = some_stream(w);
    s->field[F_CLASS] = world_random(w, WORLD_LAUNCHES);
    uint64_t writes = world_random(w, 8);
    s->field[F_FLAGS] = writes & world_random(w, 8); /* more reads than writes */
    s->field[F_COUNT] = world_random(w, WORLD_USES);
    s->field[F_MORE] = chance(w, 50);
}

static void choose_launch(world *w, step *s)
{
    s->field[F_SLOT] = world_random(w, WORLD_LAUNCHES);
}

static void choose_work(world *w, step *s)
{
    s->field[F_STREAM] = chance(w, 50) ? any_stream(w) : 0;
    s->field[F_COUNT] = world_random(w, 12) + 1;
}

static void choose_stall(world *w, step *s)
{
    s->field[F_STREAM] = any_stream(w);
    s->field[F_BYTES] = world_random(w, UINT64_C(3000000000));
}

static void choose_stream(world *w, step *s)
{
    s->field[F_STREAM] = chance(w, 50) ? any_stream(w) : world_random(w, w->options.streams) + 1;
    s->field[F_FLAGS] = chance(w, 30);
}

static void choose_client(world *w, step *s)
{
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_BYTES] = chance(w, 50) ? 0 : world_random(w, w->options.budget / w->options.clients);
    s->field[F_MORE] = chance(w, 60) ? 0 : s->field[F_BYTES] + world_random(w, w->options.budget / 2) + 1;
    s->field[F_FLAGS] = chance(w, 25);
}

static void choose_budget(world *w, step *s)
{
    s->field[F_BYTES] =
        chance(w, 60) ? w->options.budget : w->options.budget / 2 + world_random(w, w->options.budget / 2) + 1;
}

static void choose_trim(world *w, step *s)
{
    s->field[F_BYTES] = chance(w, 30) ? 0 : world_random(w, w->options.budget);
}

static void choose_device_bytes(world *w, step *s)
{
    s->field[F_BYTES] = chance(w, 70) ? 0 : world_random(w, w->options.device);
}

static void choose_slot(world *w, step *s)
{
    s->field[F_SLOT] = some_slot(w, true);
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_COUNT] = world_random(w, 5);
    s->field[F_MORE] = world_random(w, 1 << 20);
}

static void choose_fault(world *w, step *s)
{
    bool mapping = w->mood == MOOD_FAILING && chance(w, 80);
    s->field[F_COUNT] = world_random(w, mapping ? 4 : 12);
    s->field[F_CLASS] = mapping ? WI_SIM_MAP : 0;
}

static void choose_fill(world *w, step *s)
{
    choose_touch(w, s);
    s->field[F_MORE] = world_random(w, 256);
}

static void choose_copy(world *w, step *s)
{
    choose_touch(w, s);
    for (int tries = 0; tries < 8; tries++) { /* clients keep to themselves */
        s->field[F_MORE] = some_slot(w, true);
        if (w->slots[s->field[F_MORE]].client == w->slots[s->field[F_SLOT]].client)
            break;
    }
    s->field[F_BYTES] = 256 << 10; /* a device model's copies go unit by unit */
}

static void choose_call(world *w, step *s)
{
    s->field[F_STREAM] = some_stream(w);
}

static void choose_capture(world *w, step *s)
{
    s->field[F_STREAM] = world_random(w, w->options.streams) + 1;
    for (unsigned i = 1; i <= w->options.streams; i++) /* not many at once */
        if (w->captured[i])
            s->field[F_STREAM] = i;
    s->field[F_SLOT] = some_slot(w, true);
}

static void choose_replace(world *w, step *s)
{
    for (int tries = 0; tries < 8; tries++) {
        s->field[F_STREAM] = world_random(w, w->options.streams) + 1;
        if (w->foreign[s->field[F_STREAM]])
            break;
    }
    s->field[F_CLASS] = any_stream(w);
    s->field[F_FLAGS] = (uint64_t)chance(w, 25) | (uint64_t)chance(w, 15) << 1 | (uint64_t)chance(w, 25) << 2;
#ifndef WEIR_INVARIANTS
    s->field[F_FLAGS] &= 3; /* the third is done at a window: without one the script would do more in another build */
#endif
}

/* Behind the back of the step that ends the stream. */
static void choose_late(world *w, step *s)
{
    choose_touch(w, s);
    if (chance(w, 20))
        s->field[F_SLOT] = some_slot(w, false);
    s->field[F_STREAM] = world_ending(w);
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_CLASS] = any_stream(w);
    s->field[F_COUNT] = chance(w, 50) ? 0 : world_random(w, 16);
}

static void choose_graph(world *w, step *s)
{
    s->field[F_SLOT] = world_random(w, WORLD_GRAPHS);
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_STREAM] = any_stream(w);
    s->field[F_CLASS] = any_stream(w);
    s->field[F_BYTES] = world_random(w, chance(w, 50) ? 64 << 10 : 2 << 20) + 1;
    s->field[F_COUNT] = world_random(w, 12);
    s->field[F_MORE] = world_random(w, 1 << WORLD_GRAPH_BLOCKS);
    s->field[F_FLAGS] = world_random(w, 8);
}

/* Chooses among few sizes, so that kept bytes serve again, and closes a pool seldom. */
static void choose_named(world *w, step *s)
{
    static const uint64_t sizes[] = {512, 4096, 4096, 20480, 20480, 65536};
    s->field[F_SLOT] = world_random(w, WORLD_NAMED);
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_STREAM] = any_stream(w);
    s->field[F_CLASS] = any_stream(w);
    s->field[F_BYTES] =
        chance(w, 70) ? sizes[world_random(w, sizeof sizes / sizeof *sizes)] : world_random(w, 1 << 20) + 1;
    s->field[F_COUNT] = world_random(w, 24);
    s->field[F_MORE] = world_random(w, 128);
    s->field[F_FLAGS] = world_random(w, NAMED_ACTIONS);
    if (s->field[F_FLAGS] == NAMED_CLOSES && chance(w, 60))
        s->field[F_FLAGS] = NAMED_BEGINS;
}

static void choose_reserve(world *w, step *s)
{
    s->field[F_SLOT] = world_random(w, WORLD_RESERVATIONS);
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_BYTES] = some_bytes(w);
}

/* Chooses an open pool, if the first or the second try finds one. */
static const pool *some_pool(world *w, step *s)
{
    s->field[F_SLOT] = world_random(w, WORLD_POOLS);
    if (!w->pools[s->field[F_SLOT]].pool)
        s->field[F_SLOT] = world_random(w, WORLD_POOLS);
    return &w->pools[s->field[F_SLOT]];
}

static void choose_pool(world *w, step *s)
{
    s->field[F_SLOT] = world_random(w, WORLD_POOLS);
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_BYTES] = world_random(w, chance(w, 70) ? 4 << 10 : 128 << 10);
    s->field[F_COUNT] = world_random(w, WORLD_PIECES);
    s->field[F_CLASS] = world_random(w, WEIR_CLASS_COUNT);
    s->field[F_FLAGS] = (chance(w, 50) ? WEIR_BLOCK_POOL_CLEAR : 0) | (chance(w, 50) ? WEIR_BLOCK_POOL_NAMED : 0) |
                        (chance(w, 30) ? WEIR_ALLOC_NO_WAIT : 0);
}

static void choose_member(world *w, step *s)
{
    (void)some_pool(w, s);
    s->field[F_CLASS] = world_random(w, WORLD_MEMBERS);
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_COUNT] = chance(w, 50) ? 0 : world_random(w, WORLD_PIECES);
    s->field[F_FLAGS] = chance(w, 60);
}

static void choose_take(world *w, step *s)
{
    (void)some_pool(w, s);
    s->field[F_CLASS] = world_random(w, WORLD_MEMBERS);
    s->field[F_STREAM] = some_stream(w);
    s->field[F_FLAGS] = world_random(w, 3);
    s->field[F_COUNT] = world_random(w, 8);
}

/* A piece that is held, if one is soon found. */
static void choose_piece(world *w, step *s)
{
    const pool *p = some_pool(w, s);
    for (int tries = 0; tries < 8 && p->count > 0; tries++) {
        s->field[F_MORE] = world_random(w, p->count);
        if (p->pieces[s->field[F_MORE]].slot.block.pointer)
            break;
    }
    s->field[F_STREAM] = next_stream(w, &p->pieces[s->field[F_MORE]].slot);
    s->field[F_FLAGS] = world_random(w, 4);
    s->field[F_COUNT] = world_random(w, 8);
}

/* Some classes, seldom many. */
static uint64_t some_classes(world *w, unsigned percent)
{
    if (!chance(w, percent))
        return 0;
    uint64_t some = world_random(w, 1 << WEIR_CLASS_COUNT);
    return some & world_random(w, 1 << WEIR_CLASS_COUNT);
}

static void choose_suspend(world *w, step *s)
{
    s->field[F_CLIENT] = world_random(w, w->options.clients);
    s->field[F_CLASS] = world_random(w, 2);
    for (int tries = 0; tries < 32;
         tries++) { /* one of a block that is large enough to leave, and is used soon before */
        const slot *b = &w->slots[s->field[F_SLOT] = some_slot(w, true)];
        if (!b->block.pointer || !b->declared || b->bytes < w->options.granule)
            continue;
        s->field[F_CLIENT] = b->client;
        s->field[F_STREAM] = any_stream(w);
        break;
    }
    s->field[F_FLAGS] = some_classes(w, 20) | some_classes(w, 30) << WEIR_CLASS_COUNT |
                        (chance(w, 60) ? world_random(w, 1 << WEIR_CLASS_COUNT) : 0) << 2 * WEIR_CLASS_COUNT;
    s->field[F_COUNT] = (chance(w, 20) ? SUSPEND_VERIFY : 0) | (chance(w, 40) ? SUSPEND_KEEP : 0) |
                        (chance(w, 40) ? SUSPEND_ON_ALLOC : 0) | (chance(w, 5) ? SUSPEND_FOLDER : 0) |
                        (chance(w, 35) ? SUSPEND_SHOW : 0);
    s->field[F_MORE] = chance(w, 20) ? world_random(w, UINT64_C(1000000)) + 1 : 0;
}

/* A client that is suspended, if one is soon found. */
static void choose_resume(world *w, step *s)
{
    for (int tries = 0; tries < 4; tries++) {
        s->field[F_CLIENT] = world_random(w, w->options.clients);
        if (w->suspended[s->field[F_CLIENT]])
            break;
    }
    s->field[F_STREAM] = chance(w, 30) ? 0 : any_stream(w);
    s->field[F_COUNT] = chance(w, 40) ? 1 + world_random(w, 6) : 0;
}

static void choose_nothing(world *w, step *s)
{
    (void)w;
    (void)s;
}

/* Picks a resident client and a suspended client, as far as a few tries find them. */
static void choose_exchange(world *w, step *s)
{
    choose_suspend(w, s);
    for (int tries = 0; tries < 4 && w->suspended[s->field[F_CLIENT]]; tries++)
        s->field[F_CLIENT] = world_random(w, w->options.clients);
    for (int tries = 0; tries < 4; tries++) {
        s->field[F_CLASS] = world_random(w, w->options.clients);
        if (w->suspended[s->field[F_CLASS]])
            break;
    }
    s->field[F_STREAM] = chance(w, 30) ? 0 : any_stream(w);
}

const operation operations[] = {
    {"allocate", {260, 330, 260}, run_allocate, choose_allocate},
    {"free", {210, 240, 300}, run_free, choose_free},
    {"resize", {40, 40, 40}, run_resize, choose_resize},
    {"touch", {140, 140, 60}, run_touch, choose_touch},
    {"begin", {75, 40, 40}, run_begin, choose_begin},
    {"end", {110, 110, 110}, run_end, choose_launch},
    {"abort", {5, 5, 5}, run_abort, choose_launch},
    {"work", {200, 12, 200}, run_device_work, choose_work},
    {"stall", {6, 6, 6}, run_stall, choose_stall},
    {"synchronize", {4, 1, 4}, run_synchronize, choose_stream},
    {"stream", {6, 6, 6}, run_stream, choose_stream},
    {"client", {6, 6, 6}, run_client, choose_client},
    {"limits", {6, 6, 6}, run_limits, choose_client},
    {"budget", {3, 3, 3}, run_budget, choose_budget},
    {"trim", {5, 5, 25}, run_trim, choose_trim},
    {"device", {2, 2, 2}, run_device_bytes, choose_device_bytes},
    {"snapshot", {20, 20, 20}, run_snapshot, choose_nothing},
    {"info", {20, 20, 20}, run_info, choose_slot},
    {"misuse", {15, 15, 15}, run_misuse, choose_slot},
    {"fault", {4, 1, 90}, run_fault, choose_fault},
    {"fill", {20, 20, 20}, run_fill, choose_fill},
    {"copy", {10, 10, 10}, run_copy, choose_copy},
    {"call", {10, 10, 10}, run_call, choose_call},
    {"record", {20, 20, 20}, run_record, choose_touch},
    {"capture", {6, 6, 6}, run_capture, choose_capture},
    {"graph", {3, 3, 3}, run_graph, choose_graph},
    {"named", {30, 30, 30}, run_named, choose_named},
    {"replace", {4, 6, 4}, run_replace, choose_replace},
    {"late", {0, 0, 0}, run_late, choose_late},
    {"reserve", {6, 6, 6}, run_reserve, choose_reserve},
    {"pool", {3, 3, 3}, run_pool, choose_pool},
    {"member", {6, 6, 6}, run_member, choose_member},
    {"take", {26, 26, 26}, run_take, choose_take},
    {"give", {26, 26, 26}, run_give, choose_piece},
    {"piece", {20, 20, 20}, run_piece, choose_piece},
    {"suspend", {10, 12, 14}, run_suspend, choose_suspend},
    {"resume", {20, 24, 28}, run_resume, choose_resume},
    {"forget", {2, 2, 2}, run_forget, choose_client},
    {"exchange", {6, 7, 8}, run_exchange, choose_exchange},
};

unsigned operation_count(void)
{
    return sizeof operations / sizeof operations[0];
}

const char *operation_name(unsigned number)
{
    return number < operation_count() ? operations[number].name : "?";
}

static unsigned operation_called(const char *name)
{
    unsigned i = 0;
    while (i < operation_count() && strcmp(operations[i].name, name) != 0)
        i++;
    return i;
}

/* At first there are neither clients nor streams: they come before all else. */
static bool choose_beginning(world *w, step *s)
{
    for (unsigned i = 1; i <= w->options.streams; i++)
        if (!w->streams[i].id && !w->last_freed.pointer && chance(w, 80)) {
            s->operation = (uint8_t)operation_called("stream");
            s->field[F_STREAM] = i;
            return true;
        }
    for (unsigned i = 0; i < w->options.clients; i++)
        if (!w->clients[i] && chance(w, 20)) {
            s->operation = (uint8_t)operation_called("client");
            choose_client(w, s);
            s->field[F_CLIENT] = i;
            return true;
        }
    return false;
}

/* While a stream is ended another thread often has something to do with it. */
static bool choose_beside(world *w, step *s)
{
    if (world_ending(w) == 0 || chance(w, 50))
        return false;
    s->operation = (uint8_t)operation_called("late");
    choose_late(w, s);
    return true;
}

/* Has the steps of an open capture come soon after each other, as an open capture keeps weir from much. */
static bool choose_captured(world *w, step *s)
{
    enum { SOON = 80, ENDS = 8, JOINS = 40 };
    for (unsigned i = 0; i < WORLD_NAMED; i++) {
        if (w->named[i].capturing == 0 || w->named[i].in_hand || !chance(w, SOON))
            continue;
        s->operation = (uint8_t)operation_called("named");
        choose_named(w, s);
        s->field[F_SLOT] = i;
        uint64_t pick = world_random(w, 100);
        if (pick < ENDS)
            s->field[F_FLAGS] = NAMED_ENDS;
        else if (pick < JOINS && w->named[i].capturing < NAMED_STREAMS)
            s->field[F_FLAGS] = NAMED_BEGINS;
        return true;
    }
    return false;
}

/* The ordinary one for the most part: the others' steps take several times as long. */
static void choose_mood(world *w)
{
    enum { LASTS = 2000, OFTEN = 12 };
    if (w->mood_left-- > 0)
        return;
    uint64_t pick = world_random(w, 100);
    w->mood = pick < OFTEN ? MOOD_BEHIND : pick < OFTEN + OFTEN ? MOOD_FAILING : MOOD_ORDINARY;
    w->mood_left = (unsigned)world_random(w, LASTS);
}

void world_choose(world *w, step *out)
{
    *out = (step){0};
    unsigned total = 0, at = 0;
    out->field[F_SEED] = world_random(w, UINT32_MAX);
    if (choose_beginning(w, out))
        return;
    if (choose_beside(w, out) || choose_captured(w, out))
        return;
    choose_mood(w);
    for (unsigned i = 0; i < operation_count(); i++)
        total += operations[i].weight[w->mood];
    uint64_t pick = world_random(w, total);
    while (pick >= operations[at].weight[w->mood])
        pick -= operations[at++].weight[w->mood];
    if (operations[at].run == run_fault && !w->options.faults)
        at = 0;
    out->operation = (uint8_t)at;
    operations[at].choose(w, out);
}
