/* Away: memory that goes from under live blocks of a client that is suspended, and comes back. Bytes without memory are spans
 * here, and their owners are remembered until it is there again. */
#include "sim/oracle_state.h"

#include <weir/memory.h>

/* Spans ------------------------------------------------------------------------------------------------------------ */

void oracle_take_away(oracle *o, const char *address, uint32_t granule, uint32_t first, uint32_t count)
{
    uint32_t index;
    if (!oracle_room(o, &o->away, o->away_count, &o->away_capacity, sizeof *o->away))
        return;
    (void)wi_plane_run(&o->owners, granule, first, count, &index);
    o->away[o->away_count++] = (away_span){(char *)address + (uint64_t)first * WI_SIM_UNIT, count, index};
    (void)wi_plane_set(&o->owners, granule, first, count, 0); /* no owner: the host is behind all work on these units */
}

static void end_span(oracle *o, size_t which)
{
    uint32_t index = o->away[which].owner;
    o->table[index].units -= o->away[which].units;
    o->away[which] = o->away[--o->away_count];
    oracle_let_go(o, index);
}

/* The memory that comes under the span was somebody's. */
static void put_under(oracle *o, const away_span *span, uint32_t granule)
{
    uint32_t first = (uint32_t)(((uintptr_t)span->address & (o->granule - 1)) / WI_SIM_UNIT), index, run;
    unsigned late;
    for (uint32_t done = 0; done < span->units; done += run) {
        run = wi_plane_run(&o->owners, granule, first + done, span->units - done, &index);
        owner *had = &o->table[index];
        if (index == 0)
            continue;
        if (had->state == OWNER_LIVE || had->state == OWNER_POOL)
            oracle_report(o, ORACLE_OVERLAP, "block %llu comes back to memory of block %llu, which is live",
                          ULL(o->table[span->owner].serial), ULL(had->serial));
        else if (!oracle_behind(o, o->host, had->last, &late))
            oracle_report(o, ORACLE_EARLY_REUSE,
                          "block %llu comes back to memory of block %llu, whose work %llu on stream %u may still run",
                          ULL(o->table[span->owner].serial), ULL(had->serial), ULL(had->last[late]), late);
        had->units -= run;
        oracle_let_go(o, index);
    }
    (void)wi_plane_set(&o->owners, granule, first, span->units, span->owner);
}

/* Memory of the device has come back there for the client; whether to stay, the end of the call tells. */
static void note_there(oracle *o, const char *address, unsigned client)
{
    if (oracle_room(o, &o->there, o->there_count, &o->there_capacity, sizeof *o->there))
        o->there[o->there_count++] = (away_there){address, client};
}

void oracle_not_there(oracle *o, const char *address)
{
    for (size_t i = o->there_count; i-- > 0;)
        if (o->there[i].address == address)
            o->there[i] = o->there[--o->there_count];
}

/* Forgets where memory came back for the client during the call. At the end of the call all of this memory is the
 * client's, or nothing of it. */
static void forget_there(oracle *o, unsigned client)
{
    for (size_t i = o->there_count; i-- > 0;)
        if (o->there[i].client == client)
            o->there[i] = o->there[--o->there_count];
}

void oracle_mapping(void *user, const void *address, uint32_t granule)
{
    oracle *o = user;
    const char *start = address;
    unsigned client = ORACLE_CLIENTS;
    for (size_t i = o->away_count; i-- > 0;) {
        const away_span *span = &o->away[i];
        const owner *w = &o->table[span->owner];
        if (span->address < start || span->address >= start + o->granule)
            continue;
        if (w->moving) { /* the free is about to end, and its addresses are others' */
            end_span(o, i);
            continue;
        }
        if (!o->accounts[w->client].moves)
            oracle_report(o, ORACLE_OVERLAP, "memory is mapped at %p, where block %llu is away", address,
                          ULL(w->serial));
        client = w->client;
        put_under(o, span, granule);
        o->away[i] = o->away[--o->away_count];
    }
    if (client < ORACLE_CLIENTS && granule < wi_sim_first_of_host(o->device))
        note_there(o, start, client);
}

void oracle_forget_away(oracle *o, uint32_t index)
{
    for (size_t i = o->away_count; i-- > 0;)
        if (o->away[i].owner == index)
            end_span(o, i);
}

void oracle_join_away(oracle *o, uint32_t pool)
{
    for (size_t i = 0; i < o->away_count; i++) {
        away_span *span = &o->away[i];
        owner *piece = &o->table[span->owner], *w = &o->table[pool];
        if (span->owner == pool || piece->pool != pool)
            continue;
        oracle_join(o, w->last, piece->last);
        w->units += span->units;
        piece->units -= span->units;
        oracle_let_go(o, span->owner);
        span->owner = pool;
    }
}

typedef void each_run(oracle *o, uint32_t index, uint64_t bytes, void *user);

/* Calls fn for each run of the granule that is a live block's of the client. False: there is none. */
static bool each_live(oracle *o, uint32_t granule, unsigned client, each_run *fn, void *user)
{
    bool any = false;
    uint32_t index, run;
    for (uint32_t at = 0; at < o->owners.units; at += run) {
        run = wi_plane_run(&o->owners, granule, at, o->owners.units - at, &index);
        const owner *w = &o->table[index];
        if (index == 0 || w->client != client || (w->state != OWNER_LIVE && w->state != OWNER_POOL))
            continue;
        any = true;
        fn(o, index, (uint64_t)run * WI_SIM_UNIT, user);
    }
    return any;
}

/* The same for all that is shown, which lies in memory of the host's; how many granules have some. */
static uint64_t each_shown(oracle *o, unsigned client, each_run *fn, void *user)
{
    uint64_t granules = 0;
    uint32_t end = wi_sim_granules(o->device);
    for (uint32_t g = wi_sim_first_of_host(o->device); g < end; g++)
        granules += each_live(o, g, client, fn, user);
    return granules;
}

static void add_bytes(oracle *o, uint32_t index, uint64_t bytes, void *user)
{
    (void)o, (void)index;
    *(uint64_t *)user += bytes;
}

static uint64_t oracle_away_count_of(oracle *o, unsigned client, uint64_t *granules)
{
    uint64_t bytes = 0, last = 0;
    *granules = each_shown(o, client, add_bytes, &bytes);
    for (size_t i = 0; i < o->away_count; i++) {
        if (o->table[o->away[i].owner].client != client)
            continue;
        uint64_t at = (uintptr_t)o->away[i].address & ~(o->granule - 1);
        bool again = at == last;
        for (size_t k = 0; k < i && !again; k++)
            again = ((uintptr_t)o->away[k].address & ~(o->granule - 1)) == at;
        bytes += (uint64_t)o->away[i].units * WI_SIM_UNIT;
        *granules += !again;
        last = at;
    }
    return bytes;
}

/* Copies ----------------------------------------------------------------------------------------------------------- */

void oracle_note_copy(oracle *o, unsigned client, unsigned stream, uint64_t sequence, const char *address,
                      uint64_t bytes)
{
    if (!stream || !oracle_room(o, &o->copies, o->copy_count, &o->copy_capacity, sizeof *o->copies))
        return; /* on no stream it is done */
    o->accounts[client].by = stream;
    o->copies[o->copy_count++] = (away_copy){address, bytes, sequence, client};
}

uint64_t oracle_last_copy(const oracle *o, unsigned client, const char *address, uint64_t bytes)
{
    uint64_t last = 0;
    for (size_t i = 0; i < o->copy_count; i++) {
        const away_copy *c = &o->copies[i];
        if (c->client == client && c->address < address + bytes && c->address + c->bytes > address)
            last = wi_max(last, c->sequence);
    }
    return last;
}

/* The client is on its way, or is not. */
static void oracle_away_move(oracle *o, unsigned client, bool moves)
{
    o->accounts[client].moves = moves;
    for (size_t i = o->copy_count; i-- > 0;)
        if (o->copies[i].client == client)
            o->copies[i] = o->copies[--o->copy_count];
}

/* Suspending ------------------------------------------------------------------------------------------------------- */

void oracle_suspending(oracle *o, unsigned client)
{
    o->accounts[client].by = 0;
    oracle_away_move(o, client, true);
}

void oracle_passing(oracle *o, unsigned client, bool passes)
{
    o->accounts[client].passes = passes;
}

/* So many bytes of the block are away. Of a pool's pieces only the pool is charged. */
static void oracle_away_leave(oracle *o, uint32_t index, uint64_t bytes, void *user)
{
    owner *piece = &o->table[index], *w = piece->pool ? &o->table[piece->pool] : piece;
    (void)user;
    w->away += bytes;
    o->accounts[w->client].away += bytes;
    oracle_live(o, w->client, w->memory_class, 0, bytes);
}

static void add_to_class(oracle *o, uint32_t index, uint64_t bytes, void *user)
{
    const owner *w = &o->table[index];
    uint64_t *of_class = user;
    of_class[(w->pool ? &o->table[w->pool] : w)->memory_class] += bytes;
}

uint64_t oracle_left(oracle *o, unsigned client, uint64_t of_class[WEIR_CLASS_COUNT])
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < o->away_count; i++)
        if (o->table[o->away[i].owner].client == client)
            add_to_class(o, o->away[i].owner, (uint64_t)o->away[i].units * WI_SIM_UNIT, of_class);
    (void)each_shown(o, client, add_to_class, of_class);
    for (int k = 0; k < WEIR_CLASS_COUNT; k++)
        bytes += of_class[k];
    return bytes;
}

uint64_t oracle_suspended(oracle *o, unsigned client, bool suspended, bool due)
{
    account *a = &o->accounts[client];
    uint64_t ignored;
    a->left = 0;
    oracle_away_move(o, client, false);
    if (suspended && a->passes) /* memory that came when it was to be back, and could not be taken away again */
        for (size_t i = 0; i < o->there_count; i++) {
            away_there t = o->there[i];
            if (t.client == client)
                (void)each_live(o, (uint32_t)wi_sim_memory_at(o->device, t.address), client, oracle_away_leave, NULL);
        }
    else
        forget_there(o, client);
    if (!suspended && oracle_away_count_of(o, client, &ignored) > 0)
        oracle_report(o, ORACLE_UNMAP_LIVE, "%llu bytes of client %u are without memory, which is not suspended",
                      ULL(oracle_away_count_of(o, client, &ignored)), client);
    for (size_t i = 0; i < o->away_count && suspended; i++)
        if (o->table[o->away[i].owner].client == client)
            oracle_away_leave(o, o->away[i].owner, (uint64_t)o->away[i].units * WI_SIM_UNIT, NULL);
    if (suspended)
        (void)each_shown(o, client, oracle_away_leave, NULL);
    if (suspended && due) {
        a->due = a->guaranteed;
        a->guaranteed = 0;
    }
    return a->away;
}

uint64_t oracle_away(const oracle *o, oracle_block block)
{
    return o->table[block].away;
}

/* Resuming --------------------------------------------------------------------------------------------------------- */

/* So many bytes may be promised, or live, besides. */
static void come(oracle *o, account *a, uint64_t bytes)
{
    uint64_t more = bytes - a->coming;
    a->coming = bytes;
    a->asked += more;
    a->moving += more;
    o->moving += more;
    for (int k = 0; k < WEIR_CLASS_COUNT; k++)
        a->moving_class[k] += more;
}

void oracle_resuming(oracle *o, unsigned client)
{
    account *a = &o->accounts[client];
    a->by = 0;
    oracle_away_move(o, client, true);
    come(o, a, wi_max(a->away, a->due));
}

/* What came by a stream is behind the point where that is now, and weir remembers it as a write. */
static void oracle_away_arrive(oracle *o, owner *w, uint64_t bytes, unsigned stream)
{
    unsigned by = o->accounts[w->client].by;
    oracle_live(o, w->client, w->memory_class, bytes, 0);
    w->away -= bytes;
    w->arrived = by != 0;
    w->by = by;
    w->home = stream;
    w->home_point = wi_sim_queued(o->device, stream);
    if (by && stream) {
        w->least[by] = w->most[by] = wi_sim_queued(o->device, by);
        w->marks |= UINT64_C(1) << by;
    }
}

void oracle_resumed(oracle *o, unsigned client, unsigned stream, bool resumed)
{
    account *a = &o->accounts[client];
    uint64_t granules;
    oracle_away_move(o, client, false);
    come(o, a, 0);
    if (!resumed)
        return;
    forget_there(o, client);
    if (oracle_away_count_of(o, client, &granules) > 0)
        oracle_report(o, ORACLE_UNMAPPED, "client %u is said to be back, and %llu of its granules have no memory",
                      client, ULL(granules));
    for (uint32_t i = 1; i < o->count; i++)
        if (o->table[i].client == client && o->table[i].away > 0)
            oracle_away_arrive(o, &o->table[i], o->table[i].away, stream);
    a->away = 0;
    a->guaranteed = wi_max(a->guaranteed, a->due);
    a->due = 0;
}

static void oracle_away_rest(oracle *o, uint32_t index, uint64_t bytes, void *user)
{
    uint64_t *left = user;
    left[o->table[index].pool ? o->table[index].pool : index] += bytes;
}

/* Adds the bytes of blocks that are away; newer blocks may lie in the same granules. */
static void add_away(oracle *o, uint32_t index, uint64_t bytes, void *user)
{
    const owner *w = &o->table[index];
    if ((w->pool ? &o->table[w->pool] : w)->away > 0)
        add_bytes(o, index, bytes, user);
}

static int compare_there(const void *a, const void *b)
{
    const char *left = ((const away_there *)a)->address, *right = ((const away_there *)b)->address;
    return (left < right) - (left > right);
}

/* What comes has the lowest addresses. So many bytes of what has memory are still away, those with the highest. */
static void rest_there(oracle *o, unsigned client, uint64_t bytes, uint64_t *left)
{
    size_t stays = 0;
    qsort(o->there, o->there_count, sizeof *o->there, compare_there);
    for (size_t i = 0; i < o->there_count; i++) {
        away_there t = o->there[i];
        if (t.client == client) {
            uint32_t granule = (uint32_t)wi_sim_memory_at(o->device, t.address);
            uint64_t some = 0;
            (void)each_live(o, granule, client, add_away, &some);
            bytes = some > bytes ? 0 : bytes;
            if (some == 0 || bytes == 0)
                continue;
            (void)each_live(o, granule, client, oracle_away_rest, left);
            bytes -= some;
        }
        o->there[stays++] = t;
    }
    o->there_count = stays;
}

uint64_t oracle_came(oracle *o, unsigned client, unsigned stream, uint64_t came)
{
    account *a = &o->accounts[client];
    uint64_t *left = calloc(o->count, sizeof *left), before = a->away, granules, most;
    oracle_away_move(o, client, false);
    come(o, a, 0);
    for (size_t i = 0; left && i < o->away_count; i++)
        if (o->table[o->away[i].owner].client == client)
            oracle_away_rest(o, o->away[i].owner, (uint64_t)o->away[i].units * WI_SIM_UNIT, left);
    if (left)
        (void)each_shown(o, client, oracle_away_rest, left);
    most = before - oracle_away_count_of(o, client, &granules);
    if (left)
        rest_there(o, client, most - wi_min(most, came), left);
    for (uint32_t i = 1; left && i < o->count; i++) {
        owner *w = &o->table[i];
        if (w->client != client || w->away <= left[i])
            continue;
        a->away -= w->away - left[i];
        oracle_away_arrive(o, w, w->away - left[i], stream);
    }
    free(left);
    return before - a->away;
}

/* Refusals --------------------------------------------------------------------------------------------------------- */

/* Whether somebody has, or may still use, some of the granule. */
static bool oracle_away_is_used(void *user, uint32_t granule)
{
    oracle *o = user;
    uint32_t index;
    for (uint32_t at = 0; at < o->owners.units;) {
        at += wi_plane_run(&o->owners, granule, at, o->owners.units - at, &index);
        const owner *w = &o->table[index];
        if (index != 0 && (w->state != OWNER_FREED || !oracle_are_done(o, w->last) || !oracle_are_done(o, w->most)))
            return true;
    }
    return false;
}

/* True: unused whole handles and new handles have this many granules; their address is free to choose. */
static bool has_memory(oracle *o, uint64_t granules)
{
    uint64_t under = o->budget > o->held ? o->budget - o->held : 0, room;
    uint64_t idle = wi_sim_idle(o->device, oracle_away_is_used, o, &room);
    return (idle + wi_min(room, under)) / o->granule >= granules;
}

void oracle_refused_resume(oracle *o, unsigned client, uint64_t charged, int cause, bool settled)
{
    const account *a = &o->accounts[client];
    uint64_t granules;
    (void)oracle_away_count_of(o, client, &granules);
    if (charged > wi_max(a->away, a->due))
        oracle_report(o, ORACLE_REFUSAL, "client %u, with %llu bytes away and %llu guaranteed, is refused %llu", client,
                      ULL(a->away), ULL(a->due), ULL(charged));
    oracle_refused(o, client, charged, cause);
    if (settled && cause != WEIR_CAUSE_BUDGET && cause != WEIR_CAUSE_MAXIMUM && has_memory(o, granules))
        oracle_report(o, ORACLE_REFUSAL, "client %u is not resumed, for %s, and there is memory for its %llu granules",
                      client, weir_name_of(WEIR_NAMES_CAUSE, cause), ULL(granules));
}

void oracle_closed(oracle *o, unsigned client)
{
    o->accounts[client].due = 0;
}
