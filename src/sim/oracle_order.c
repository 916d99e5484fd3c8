/* Frees in the order of their streams: which frees are ordered, how many ordered bytes a snapshot may show, and which
 * blocks get the bytes. */
#include "sim/oracle_state.h"

const char *oracle_reuse_name(oracle_reuse kind)
{
    static const char *const names[ORACLE_REUSES] = {"at_once", "passed", "kept"};
    return kind < ORACLE_REUSES ? names[kind] : "?";
}

void oracle_set_in_order(oracle *o, bool slack)
{
    o->in_order = true;
    o->slack = slack;
}

static bool is_drained(const oracle *o, unsigned stream)
{
    return wi_sim_done(o->device, stream) >= wi_sim_queued(o->device, stream);
}

/* Which frees are -------------------------------------------------------------------------------------------------- */

/* Finds the order of a free at its beginning. When weir looks later, the device may or may not be past a declared use;
 * a use that the device is past now stays past. But the point behind weir's own work on the allocation's stream, or
 * behind work found there, is set in this call, or in an earlier call that named another stream. */
void oracle_begin_order(oracle *o, owner *w, unsigned stream)
{
    bool zeros = w->queued && (w->stream != stream || w->elsewhere), heir = o->heirs >> stream & 1;
    w->late = o->left_behind && zeros; /* its stream may have no point that could be had now */
    w->order = !o->in_order || w->pool || w->graphs                          ? ORDER_MORE
               : w->late                                                     ? ORDER_PERHAPS
               : !stream                                                     ? ORDER_MORE
               : zeros || heir || w->let_out || !oracle_are_done(o, w->most) ? ORDER_PERHAPS
                                                                             : ORDER_ALONE;
    w->elsewhere |= w->stream != stream; /* for the next free, if this free is refused */
    if (w->order != ORDER_MORE)
        o->followed |= UINT64_C(1) << stream;
}

void oracle_naming(oracle *o, oracle_block block, unsigned stream)
{
    owner *w = &o->table[block];
    w->elsewhere |= w->stream != stream;
}

/* What it is not past now it was not past when weir looked. */
static bool uses_are_open(const oracle *o, const owner *w)
{
    for (unsigned s = 1; s < o->width; s++) {
        uint64_t point = s == w->free_stream ? w->least_before : w->least[s];
        if (w->marks >> s & 1 && wi_sim_done(o->device, s) < point)
            return true;
    }
    return false;
}

static void list_ordered(oracle *o, uint32_t index)
{
    if (!oracle_room(o, &o->ordered, o->ordered_count, &o->ordered_capacity, sizeof *o->ordered))
        return;
    o->ordered[o->ordered_count++] = index;
    o->table[index].listed = true;
}

void oracle_end_order(oracle *o, uint32_t index)
{
    owner *w = &o->table[index];
    w->freed = w->free_stream ? w->last[w->free_stream] : 0;
    if (w->order == ORDER_PERHAPS && !w->late && uses_are_open(o, w))
        w->order = ORDER_MORE;
    if (w->order == ORDER_ALONE)
        list_ordered(o, index);
}

/* What a snapshot may tell ----------------------------------------------------------------------------------------- */

void oracle_failed_there(oracle *o, unsigned stream)
{
    o->followed |= stream ? UINT64_C(1) << stream : 0;
}

bool oracle_drained(const oracle *o)
{
    for (unsigned s = 1; s < o->width; s++)
        if (o->followed >> s & 1 && !is_drained(o, s))
            return false;
    return true;
}

/* Bytes that nobody had since, and that the device is not past. */
static uint64_t oracle_order_sweep(oracle *o)
{
    uint64_t bytes = 0;
    size_t left = 0;
    for (size_t i = 0; i < o->ordered_count; i++) {
        uint32_t index = o->ordered[i];
        owner *w = &o->table[index];
        if (w->units > 0 && wi_sim_done(o->device, w->free_stream) < w->freed) {
            bytes += w->units * WI_SIM_UNIT;
            o->ordered[left++] = index;
            continue;
        }
        w->listed = false;
        oracle_let_go(o, index);
    }
    o->ordered_count = left;
    return bytes;
}

void oracle_check_order(oracle *o, const weir_stats *stats, bool drained)
{
    uint64_t least = oracle_order_sweep(o);
    if (stats->ordered + stats->thread_cached < least && !o->slack)
        oracle_report(
            o, ORACLE_LEDGER,
            "a snapshot tells %llu bytes to be in the order of streams and %llu thread-cached; %llu were freed there "
            "before points that the device is not past",
            ULL(stats->ordered), ULL(stats->thread_cached), ULL(least));
    if (stats->ordered > stats->cached || (drained && stats->ordered > 0 && !o->left_behind))
        oracle_report(o, ORACLE_LEDGER,
                      "a snapshot tells %llu bytes to be in the order of streams, of %llu cached, and the device is %s",
                      ULL(stats->ordered), ULL(stats->cached), drained ? "past all that is queued" : "at work");
}

/* What was allocated on an earlier stream of that number was not on this one: weir knows them by ids that come once. */
void oracle_succeeds(oracle *o, unsigned stream, bool does)
{
    for (uint32_t i = 1; i < o->count; i++)
        o->table[i].elsewhere |= o->table[i].stream == stream;
    o->heirs &= ~(UINT64_C(1) << stream);
    o->heirs |= (uint64_t)does << stream;
    o->left_behind |= does;
}

/* A thread cache may have kept blocks that were freed there; what is flushed from now on is pending, behind the last
 * point that can be set on the stream. */
void oracle_capturing(oracle *o, unsigned stream)
{
    (void)oracle_order_sweep(o);
    for (uint32_t i = 1; i < o->count; i++) {
        owner *w = &o->table[i];
        if (w->state != OWNER_FREED || w->order == ORDER_MORE || w->units == 0 || w->free_stream != stream)
            continue;
        w->most[stream] = wi_sim_queued(o->device, stream);
        if (w->order == ORDER_PERHAPS && w->listed) /* as pending */
            continue;
        for (size_t k = o->ordered_count; w->listed && k-- > 0;)
            if (o->ordered[k] == i)
                o->ordered[k] = o->ordered[--o->ordered_count];
        w->order = ORDER_PERHAPS;
        w->past = true;
        o->accounts[w->client].pending_most += w->charged;
        oracle_list_pending(o, i);
    }
}

/* Who gets the bytes ----------------------------------------------------------------------------------------------- */

void oracle_count_reuse(oracle *o, const owner *had, const owner *gets, bool *at_once, bool *passed)
{
    if (had->state != OWNER_FREED || had->order != ORDER_ALONE || gets->state != OWNER_LIVE)
        return;
    bool done = wi_sim_done(o->device, had->free_stream) >= had->freed;
    if (!done && had->free_stream == gets->stream && !*at_once) {
        *at_once = true;
        o->found.reuse[ORACLE_REUSE_AT_ONCE]++;
    }
    if (done && had->free_stream != gets->stream && !*passed) {
        *passed = true;
        o->found.reuse[ORACLE_REUSE_PASSED]++;
    }
}
