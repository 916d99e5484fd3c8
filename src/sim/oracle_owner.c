/* Owners: which block has which bytes, and when work may touch the bytes. */
#include "sim/oracle_state.h"

/* Records ---------------------------------------------------------------------------------------------------------- */

static bool grow_table(oracle *o)
{
    if (o->count < o->capacity)
        return true;
    uint32_t capacity = o->capacity ? 2 * o->capacity : 256;
    owner *table = realloc(o->table, capacity * sizeof *table);
    if (table)
        o->table = table;
    uint32_t *unused = realloc(o->unused, capacity * sizeof *unused);
    if (unused)
        o->unused = unused;
    if (!table || !unused)
        return false;
    o->capacity = capacity;
    return true;
}

uint32_t oracle_new_owner(oracle *o, uint64_t length, uint64_t charged, void *address)
{
    uint32_t index = o->count;
    uint64_t *last;
    if (o->unused_count > 0) {
        index = o->unused[--o->unused_count];
        last = o->table[index].last;
        memset(last, 0, 3 * (size_t)o->width * sizeof *last);
    } else {
        last = calloc(3 * (size_t)o->width, sizeof *last);
        if (!last || !grow_table(o)) {
            free(last);
            oracle_report(o, ORACLE_DEVICE, "no host memory for the oracle");
            return UINT32_MAX;
        }
        o->count++;
    }
    o->table[index] = (owner){.length = wi_round_up(length, WI_SIM_UNIT),
                              .charged = charged,
                              .serial = ++o->serial,
                              .address = address,
                              .last = last,
                              .least = last + o->width,
                              .most = last + 2 * (size_t)o->width};
    return index;
}

void oracle_let_go(oracle *o, uint32_t index)
{
    const owner *w = &o->table[index];
    if (w->state == OWNER_POOL && w->pool == index)
        return;
    if (index != 0 && w->units == 0 && !w->listed && w->state != OWNER_LIVE)
        o->unused[o->unused_count++] = index;
}

/* Bytes ------------------------------------------------------------------------------------------------------------ */

typedef struct run {
    size_t row;
    uint32_t first, count, owner;
} run;

/* The first run of equal owners in [address, +bytes); false where nothing is mapped. */
static bool oracle_owner_first_run(oracle *o, const char *address, uint64_t bytes, run *out)
{
    long handle = wi_sim_memory_at(o->device, address);
    if (handle < 0)
        return false;
    uint64_t inside = (uintptr_t)address & (o->granule - 1), end = wi_min(inside + bytes, o->granule);
    out->row = (size_t)handle;
    out->first = (uint32_t)(inside / WI_SIM_UNIT);
    out->count = (uint32_t)((end + WI_SIM_UNIT - 1) / WI_SIM_UNIT) - out->first;
    out->count = wi_plane_run(&o->owners, out->row, out->first, out->count, &out->owner);
    return true;
}

static uint64_t oracle_owner_run_end(const run *r, uint64_t at, const char *address)
{
    return at + (uint64_t)r->count * WI_SIM_UNIT - (uintptr_t)(address + at) % WI_SIM_UNIT;
}

/* Gives [address, +bytes) to `index`, and takes the units from their former owners. */
static void oracle_owner_give(oracle *o, const char *address, uint64_t bytes, uint32_t index)
{
    run r;
    for (uint64_t at = 0; at < bytes && oracle_owner_first_run(o, address + at, bytes - at, &r);
         at = oracle_owner_run_end(&r, at, address)) {
        (void)wi_plane_set(&o->owners, r.row, r.first, r.count, index);
        o->table[index].units += r.count;
        o->table[r.owner].units -= r.owner ? r.count : 0;
        oracle_let_go(o, r.owner);
    }
}

/* Giving out ------------------------------------------------------------------------------------------------------- */

/* Those who had the bytes must be done with them before the clock; what they did is remembered with the new owner. */
static void oracle_owner_take_over(oracle *o, const char *address, uint64_t bytes, const uint64_t *clock, owner *w)
{
    run r;
    bool at_once = false, passed = false;
    unsigned late;
    uint32_t previous = UINT32_MAX;
    for (uint64_t at = 0; at < bytes; at = oracle_owner_run_end(&r, at, address)) {
        if (!oracle_owner_first_run(o, address + at, bytes - at, &r)) {
            oracle_report(o, ORACLE_UNMAPPED, "block %llu is given out at %p, where nothing is mapped", ULL(w->serial),
                          (const void *)(address + at));
            return;
        }
        if (r.owner == previous || r.owner == 0)
            continue;
        previous = r.owner;
        const owner *had = &o->table[r.owner];
        uint32_t pool = had->state == OWNER_POOL ? had->pool : 0;
        if (pool != w->pool)
            oracle_report(o, ORACLE_OVERLAP,
                          "block %llu is given out over bytes of pool %llu, or not over those of its own",
                          ULL(w->serial), ULL(pool ? o->table[pool].serial : 0));
        else if (had->state == OWNER_LIVE)
            oracle_report(o, ORACLE_OVERLAP, "block %llu is given out over block %llu, which is live", ULL(w->serial),
                          ULL(had->serial));
        else if (!oracle_behind(o, clock, had->last, &late))
            oracle_report(o, ORACLE_EARLY_REUSE,
                          "block %llu has bytes of block %llu, freed on stream %u, whose work %llu on stream %u may "
                          "still run",
                          ULL(w->serial), ULL(had->serial), had->free_stream, ULL(had->last[late]), late);
        oracle_count_reuse(o, had, w, &at_once, &passed);
        oracle_join(o, w->last, had->last);
    }
}

/* Checks a block from a thread cache: a whole freed block, given out to the client and the stream of the free. */
static void oracle_owner_check_cached(oracle *o, const oracle_got *got)
{
    run r;
    o->found.reuse[ORACLE_REUSE_CACHED]++;
    for (uint64_t at = 0;
         at < got->charged && oracle_owner_first_run(o, (const char *)got->address + at, got->charged - at, &r);
         at = oracle_owner_run_end(&r, at, got->address)) {
        const owner *had = &o->table[r.owner];
        if (had->state == OWNER_FREED && had->address == got->address && had->charged == got->charged &&
            had->client == got->client && had->free_stream == got->stream)
            continue;
        oracle_report(
            o, ORACLE_EARLY_REUSE,
            "%llu bytes for client %u on stream %u have bytes of block %llu of client %u, freed on stream %u, "
            "and are said to be a block that a thread kept",
            ULL(got->charged), got->client, got->stream, ULL(had->serial), had->client, had->free_stream);
        return;
    }
}

/* Returns the clock of the stream's next work, which is behind all queued work of the stream and behind all work that
 * the host knows to be done. */
static uint64_t *clock_now(oracle *o, unsigned stream)
{
    if (!stream)
        return o->host;
    oracle_join(o, o->clock[stream], o->host);
    o->clock[stream][stream] = wi_sim_queued(o->device, stream);
    return o->clock[stream];
}

oracle_block oracle_allocated(oracle *o, const oracle_got *got)
{
    uint32_t index = oracle_new_owner(o, got->length, got->charged, got->address);
    if (index == UINT32_MAX)
        return 0;
    owner *w = &o->table[index];
    w->state = OWNER_LIVE;
    w->pool = got->pool;
    w->client = got->client;
    w->memory_class = got->memory_class;
    w->stream = got->stream;
    w->allocated = wi_sim_queued(o->device, got->stream);
    if (got->cached)
        oracle_owner_check_cached(o, got);
    oracle_owner_take_over(o, got->address, w->length, clock_now(o, got->stream), w);
    oracle_owner_give(o, got->address, w->length, index);
    w->queued = got->queued && got->stream;
    if (got->zeroed && got->stream) { /* the fill is a write, which weir itself remembers */
        w->write_stream = got->stream;
        w->write = w->last[got->stream] = w->least[got->stream] = w->allocated;
        w->own = UINT64_C(1) << got->stream;
        w->declared = got->pool ? 0 : w->own; /* of a pool's block the user sees to the order */
    }
    oracle_live(o, w->client, w->memory_class, w->charged, 0);
    return index;
}

/* Touching --------------------------------------------------------------------------------------------------------- */

typedef struct access {
    unsigned stream;
    bool write, declared; /* declared: also weir's own work, which weir remembers */
} access;

/* Whether it is what was away that the work runs before, although its user came behind the resume. */
static bool is_too_soon(const owner *w, const uint64_t *clock, const access *a, unsigned late)
{
    bool behind = !w->home || a->stream == w->home || clock[w->home] >= w->home_point;
    return w->arrived && late == w->by && (behind || a->declared);
}

/* Work on `stream` that conflicts with `late`'s on the block, and runs in no order with it. */
static void tell_race(oracle *o, const owner *w, const uint64_t *clock, const access *a, unsigned late)
{
    if (is_too_soon(w, clock, a, late)) {
        oracle_report(o, ORACLE_ARRIVAL,
                      "work on stream %u %s block %llu, whose contents work %llu on stream %u brings back", a->stream,
                      a->write ? "writes" : "reads", ULL(w->serial), ULL(w->last[late]), late);
        return;
    }
    bool previous = !(w->own >> late & 1);
    bool after_allocation = !w->stream || clock[w->stream] >= w->allocated;
    oracle_kind kind = previous ? ORACLE_EARLY_REUSE : ORACLE_LOST_ORDER;
    if (!a->declared && !(previous && after_allocation))
        kind = ORACLE_USER;
    oracle_report(o, kind, "work on stream %u %s block %llu, which work %llu on stream %u%s may still %s", a->stream,
                  a->write ? "writes" : "reads", ULL(w->serial), ULL(w->last[late]), late,
                  previous ? ", of a block before it," : "", a->write ? "use" : "write");
}

static void check_order(oracle *o, const owner *w, const uint64_t *clock, const access *a)
{
    for (unsigned s = 1; s < o->width; s++) {
        bool own_read = w->own >> s & 1 && (w->write_stream != s || clock[s] >= w->write);
        if (clock[s] < w->last[s] && (a->write || !own_read)) {
            tell_race(o, w, clock, a, s);
            return;
        }
    }
}

static void touch_live(oracle *o, owner *w, const access *a, uint64_t sequence)
{
    unsigned stream = a->stream;
    check_order(o, w, oracle_clock(o, stream), a);
    if (stream) {
        w->last[stream] = sequence;
        w->own |= UINT64_C(1) << stream;
        w->declared &= ~(UINT64_C(1) << stream);
        w->declared |= (uint64_t)a->declared << stream;
    }
    if (a->write) {
        w->write_stream = stream;
        w->write = sequence;
    }
}

/* A copy of what leaves, or comes; others of the same block are of other bytes. Those may be an earlier call's, which has brought a
 * part, also where this copy is of a file, and on no stream. */
static void touch_moving(oracle *o, owner *w, const access *a, uint64_t sequence)
{
    unsigned by = o->accounts[w->client].by;
    by = by || !w->arrived ? by : w->by;
    uint64_t last = by ? w->last[by] : 0;
    if (by)
        w->last[by] = 0;
    touch_live(o, w, a, sequence);
    if (by)
        w->last[by] = wi_max(w->last[by], last);
}

/* The runtime's own work on bytes without an owner, which are about to be given out. */
static void touch_free(oracle *o, unsigned stream, uint64_t sequence, const char *address, uint64_t bytes)
{
    uint32_t index = oracle_new_owner(o, bytes, 0, (char *)address);
    if (index == UINT32_MAX)
        return;
    owner *w = &o->table[index];
    run r;
    w->state = OWNER_FREED;
    if (oracle_owner_first_run(o, address, bytes, &r) && o->table[r.owner].state == OWNER_POOL) {
        w->state = OWNER_POOL;
        w->pool = o->table[r.owner].pool;
        w->client = o->table[w->pool].client;
    }
    oracle_owner_take_over(o, address, w->length, oracle_clock(o, stream), w);
    if (stream)
        w->last[stream] = sequence;
    oracle_owner_give(o, address, w->length, index);
}

void oracle_touch(void *user, unsigned stream, uint64_t sequence, const void *address, uint64_t bytes, bool write,
                  bool own)
{
    oracle *o = user;
    const char *start = address;
    uint32_t previous = UINT32_MAX;
    access a = {stream, write, o->declared || (own && !o->users)};
    run r;
    for (uint64_t at = 0; at < bytes; at = oracle_owner_run_end(&r, at, start)) {
        if (!oracle_owner_first_run(o, start + at, bytes - at, &r)) {
            if (wi_sim_memory_at(o->device, start + at) == -1 && !own)
                oracle_report(o, ORACLE_UNMAPPED, "work on stream %u touches %p, where nothing is mapped", stream,
                              (const void *)(start + at));
            return;
        }
        if (r.owner == previous)
            continue;
        previous = r.owner;
        owner *w = &o->table[r.owner];
        bool live = w->state == OWNER_LIVE || w->state == OWNER_POOL;
        if (live && own && o->accounts[w->client].moves) {
            oracle_note_copy(o, w->client, stream, sequence, start, bytes);
            touch_moving(o, w, &a, sequence);
        } else if (w->state == OWNER_LIVE) {
            touch_live(o, w, &a, sequence);
        } else if (own && !write) {
            continue; /* between blocks that are copied out */
        } else if (own) {
            touch_free(o, stream, sequence, start + at, bytes - at);
            return;
        } else {
            oracle_report(o, ORACLE_USER, "work on stream %u touches %p, which has no owner", stream,
                          (const void *)(start + at));
        }
    }
}

void oracle_using(oracle *o, oracle_block block, unsigned stream, bool write)
{
    owner *w = &o->table[block];
    if (!stream)
        return;
    w->last[stream] = wi_sim_queued(o->device, stream);
    w->own |= UINT64_C(1) << stream;
    if (write) {
        w->write_stream = stream;
        w->write = w->last[stream];
    }
}

/* What was refused weir does not remember, and waits for nothing of it. */
void oracle_used(oracle *o, oracle_block block, unsigned stream)
{
    owner *w = &o->table[block];
    if (!stream)
        return;
    w->least[stream] = w->last[stream];
    w->most[stream] = wi_sim_queued(o->device, stream);
    w->marks |= UINT64_C(1) << stream;
    w->declared |= UINT64_C(1) << stream;
}

/* The part of the granule that an owner has loses its memory. */
static void unmap_run(oracle *o, const char *address, uint32_t granule, const run *r)
{
    const owner *w = &o->table[r->owner];
    bool live = w->state == OWNER_LIVE || w->state == OWNER_POOL;
    const account *a = &o->accounts[w->client];
    bool moves = live && a->moves && !w->graphs;
    const char *start = address + (uint64_t)r->first * WI_SIM_UNIT;
    uint64_t last = moves && a->by ? w->last[a->by] : 0;
    unsigned late;
    if (last) /* copies of other bytes of the block may go on */
        w->last[a->by] = oracle_last_copy(o, w->client, start, (uint64_t)r->count * WI_SIM_UNIT);
    if (live && !moves)
        oracle_report(o, ORACLE_UNMAP_LIVE, "handle %u is unmapped under block %llu, which is live", granule,
                      ULL(w->serial));
    else if (!oracle_behind(o, o->host, w->last, &late))
        oracle_report(
            o, ORACLE_UNMAP_UNDER_USE,
            "handle %u is unmapped under block %llu, %s on stream %u, whose work %llu on stream %u may still run",
            granule, ULL(w->serial), moves ? "allocated" : "freed", moves ? w->stream : w->free_stream,
            ULL(w->last[late]), late);
    if (last)
        w->last[a->by] = last;
    if (moves)
        oracle_take_away(o, address, granule, r->first, r->count);
}

void oracle_unmapping(void *user, const void *address, uint32_t handle)
{
    oracle *o = user;
    run r = {.row = handle};
    oracle_not_there(o, address);
    for (; r.first < o->owners.units; r.first += r.count) {
        r.count = wi_plane_run(&o->owners, handle, r.first, o->owners.units - r.first, &r.owner);
        if (r.owner != 0)
            unmap_run(o, address, handle, &r);
    }
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

/* The freeing stream must be behind the accesses that weir was not told of; for the others weir waits. */
static void oracle_owner_check_free(oracle *o, const owner *w, unsigned stream)
{
    const uint64_t *clock = oracle_clock(o, stream);
    for (unsigned s = 1; s < o->width; s++)
        if (w->own >> s & ~(w->declared >> s) & 1 && wi_max(clock[s], o->host[s]) < w->last[s] && s != stream)
            oracle_report(o, ORACLE_USER,
                          "block %llu is freed on stream %u, which is not behind its use %llu on stream %u",
                          ULL(w->serial), stream, ULL(w->last[s]), s);
}

static void begin_free(oracle *o, oracle_block block, unsigned stream)
{
    owner *w = &o->table[block];
    w->state = w->pool ? OWNER_POOL : OWNER_FREED;
    w->moving = true;
    w->free_stream = stream;
    w->last_before = w->last[stream];
    w->least_before = w->least[stream];
    if (stream)
        w->last[stream] = w->least[stream] = wi_sim_queued(o->device, stream);
    w->charged -= w->away;
    o->accounts[w->client].away -= w->away;
    o->accounts[w->client].away_moving += w->away;
    w->gone = w->away;
    w->away = 0;
    oracle_live(o, w->client, w->memory_class, 0, w->charged);
    oracle_move(o, w->client, w->memory_class, w->charged, 0);
    if (w->order == ORDER_ALONE)
        return;
    o->accounts[w->client].pending_most += w->charged;
    oracle_list_pending(o, block);
}

/* No work may touch what is away, or is waited for if it is shown: its free waits for nothing. */
void oracle_freeing(oracle *o, oracle_block block, unsigned stream)
{
    owner *w = &o->table[block];
    oracle_owner_check_free(o, w, stream);
    if (w->away > 0) {
        stream = 0;
        w->queued_before = w->queued;
        w->arrived_before = w->arrived;
        w->marks_before = w->marks;
        w->queued = w->arrived = false;
        w->marks = 0;
    }
    oracle_begin_order(o, w, stream);
    begin_free(o, block, stream);
}

static void end_free(oracle *o, owner *w)
{
    w->moving = false;
    oracle_move(o, w->client, w->memory_class, 0, w->charged);
    o->accounts[w->client].away_moving -= w->gone;
}

void oracle_freed(oracle *o, oracle_block block)
{
    owner *w = &o->table[block];
    unsigned stream = w->free_stream;
    end_free(o, w);
    if (w->gone > 0)
        oracle_forget_away(o, block);
    w->gone = 0;
    oracle_end_order(o, block);
    if (w->order == ORDER_ALONE)
        return;
    if (stream)
        w->most[stream] = wi_sim_queued(o->device, stream);
    if (w->queued) /* weir's point behind its own work may also cover later work of the stream */
        w->most[w->stream] = wi_sim_queued(o->device, w->stream);
    if (w->order == ORDER_PERHAPS || (w->graphs && o->slack)) /* the latter: see oracle_hold */
        w->past = true;                                       /* it may be, and need not */
    else
        o->accounts[w->client].pending_least += w->charged;
}

void oracle_cached(oracle *o, oracle_block block)
{
    owner *w = &o->table[block];
    end_free(o, w);
    w->last[w->free_stream] = w->last_before;
    w->least[w->free_stream] = w->least_before;
    if (w->order != ORDER_ALONE) {
        oracle_unlist_pending(o, block);
        o->accounts[w->client].pending_most -= w->charged;
    }
    w->order = ORDER_MORE;
    w->state = OWNER_LIVE;
    oracle_live(o, w->client, w->memory_class, w->charged, 0);
    if (w->gone > 0) {
        w->queued = w->queued_before;
        w->arrived = w->arrived_before;
        w->marks = w->marks_before;
    }
    w->charged += w->gone;
    w->away = w->gone;
    w->gone = 0;
    o->accounts[w->client].away += w->away;
    if (w->units != w->length / WI_SIM_UNIT)
        oracle_report(o, ORACLE_OVERLAP, "bytes of block %llu were given out, though its free was refused",
                      ULL(w->serial));
}

void oracle_keep(oracle *o, unsigned client, weir_class memory_class, uint64_t bytes, bool held)
{
    account *a = &o->accounts[client];
    uint64_t more = held ? bytes : 0, less = bytes - more;
    oracle_live(o, client, memory_class, less, more);
    if (!o->slack) /* else two that adjoin may serve as one, with the second as slack behind it */
        a->pending_least += more - less;
    a->pending_most += more - less;
}

void oracle_hold(oracle *o, oracle_block block, bool held)
{
    owner *w = &o->table[block];
    w->graphs = true;
    oracle_keep(o, w->client, w->memory_class, w->charged, held);
}

/* Adds to *w the uses of a run of its bytes, by the former block. */
static void oracle_owner_join_part(oracle *o, owner *w, const run *r)
{
    owner *had = &o->table[r->owner];
    oracle_join(o, w->last, had->last);
    w->own |= had->own;
    w->declared |= had->declared;
    w->queued |= had->queued;
    w->write_stream = had->write_stream;
    w->write = had->write;
    w->stream = had->stream;
    w->allocated = wi_max(w->allocated, had->allocated);
    if (had->units == r->count)
        had->state = OWNER_FREED;
}

oracle_block oracle_part(oracle *o, const oracle_got *part)
{
    const char *address = part->address;
    uint32_t index = oracle_new_owner(o, part->length, part->charged, part->address);
    run r;
    if (index == UINT32_MAX)
        return 0;
    owner *w = &o->table[index];
    w->state = OWNER_LIVE;
    w->graphs = true;
    w->client = part->client;
    w->memory_class = part->memory_class;
    for (uint64_t at = 0; at < w->length && oracle_owner_first_run(o, address + at, w->length - at, &r);) {
        uint64_t end = oracle_owner_run_end(&r, at, address);
        oracle_owner_join_part(o, w, &r);
        oracle_owner_give(o, address + at, wi_min(end, w->length) - at, index);
        at = end;
    }
    return index;
}

void oracle_let_out(oracle *o, oracle_block block)
{
    owner *w = &o->table[block];
    w->graphs = false;
    w->let_out = true;
}

/* Pools ------------------------------------------------------------------------------------------------------------ */

void oracle_open_pool(oracle *o, oracle_block block)
{
    o->table[block].state = OWNER_POOL;
    o->table[block].pool = block;
}

/* Turns a pool back into a block, which takes over the last accesses of the pieces' owners. */
void oracle_close_pool(oracle *o, oracle_block block)
{
    owner *w = &o->table[block];
    const char *address = w->address;
    run r;
    oracle_join_away(o, block);
    for (uint64_t at = 0, next; at < w->length; at = next) {
        next = at + o->granule -
               ((uintptr_t)(address + at) & (o->granule - 1)); /* a granule at a time, as some may be away */
        if (!oracle_owner_first_run(o, address + at, w->length - at, &r))
            continue;
        next = oracle_owner_run_end(&r, at, address);
        oracle_join(o, w->last, o->table[r.owner].last);
        oracle_owner_give(o, address + at, wi_min(next, w->length) - at, block);
    }
    w->state = OWNER_LIVE;
    w->pool = 0;
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

oracle_block oracle_cutting(oracle *o, oracle_block block, uint64_t length, uint64_t charged, unsigned stream)
{
    length = wi_round_up(length, WI_SIM_UNIT);
    uint32_t tail = oracle_new_owner(o, o->table[block].length - length, o->table[block].charged - charged,
                                     o->table[block].address + length);
    if (tail == UINT32_MAX)
        return 0;
    owner *w = &o->table[block], *t = &o->table[tail], made = *t;
    memcpy(made.last, w->last, 3 * (size_t)o->width * sizeof *made.last);
    *t = *w;
    t->units = 0;
    t->address = made.address;
    t->length = made.length;
    t->charged = made.charged;
    t->serial = made.serial;
    t->last = made.last;
    t->least = made.least;
    t->most = made.most;
    w->length = length;
    w->charged = charged;
    oracle_owner_give(o, t->address, t->length, tail);
    oracle_owner_check_free(o, t, stream);
    begin_free(o, tail, stream);
    return tail;
}

void oracle_uncut(oracle *o, oracle_block block, oracle_block tail)
{
    oracle_cached(o, tail);
    owner *w = &o->table[block], *t = &o->table[tail];
    w->length += t->length;
    w->charged += t->charged;
    t->state = OWNER_FREED;
    oracle_owner_give(o, t->address, t->length, block);
    if (t->length == 0)
        oracle_let_go(o, tail);
}

unsigned oracle_stream_of(const oracle *o, oracle_block block)
{
    return o->table[block].stream;
}

void oracle_grown(oracle *o, oracle_block block, uint64_t length, uint64_t charged, unsigned stream)
{
    owner *w = &o->table[block];
    length = wi_round_up(length, WI_SIM_UNIT);
    if (length > w->length) {
        oracle_owner_take_over(o, w->address + w->length, length - w->length, clock_now(o, stream), w);
        oracle_owner_give(o, w->address + w->length, length - w->length, block);
        w->length = length;
    }
    oracle_live(o, w->client, w->memory_class, charged - w->charged, 0);
    w->charged = charged;
}
