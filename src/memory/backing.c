#include "memory/backing.h"
#include "memory/extents.h"
#include "memory/gauges.h"

static void enlist(wi_backing *backing)
{
    wi_idle *idle = &backing->space->shared->idle;
    backing->previous = idle->last;
    backing->next = NULL;
    *(idle->last ? &idle->last->next : &idle->first) = backing;
    idle->last = backing;
    idle->granules += backing->count;
}

static void delist(wi_backing *backing)
{
    wi_idle *idle = &backing->space->shared->idle;
    *(backing->previous ? &backing->previous->next : &idle->first) = backing->next;
    *(backing->next ? &backing->next->previous : &idle->last) = backing->previous;
    idle->granules -= backing->count;
}

wi_backing *wi_backing_new(void)
{
    wi_backing *backing = aligned_alloc(WI_LINE, wi_round_up(sizeof *backing, WI_LINE));
    if (backing)
        memset(backing, 0, sizeof *backing);
    return backing;
}

void wi_backing_enter(wi_backing *backing, wi_space *space, uint64_t first)
{
    backing->space = space;
    backing->first = first;
    backing->bytes = wi_min(backing->count * space->granule, space->bytes - first * space->granule);
    backing->occupied = backing->bytes;
    for (uint64_t g = first; g < first + backing->count; g++) {
        wi_law(!space->backings[g]);
        space->backings[g] = backing;
    }
}

void wi_backing_leave(wi_backing *backing)
{
    wi_law(backing->occupied > 0); /* busy */
    for (uint64_t g = backing->first; g < backing->first + backing->count; g++)
        backing->space->backings[g] = NULL;
}

static void set_split(wi_idle *idle, uint64_t before, uint64_t now)
{
    if (now > before)
        wi_gauge_up(&idle->split, now - before);
    else
        wi_gauge_down(&idle->split, before - now);
    if (now > 0 && before == 0)
        wi_gauge_up(&idle->split_segments, 1);
    else if (now == 0 && before > 0)
        wi_gauge_down(&idle->split_segments, 1);
}

/* Bytes of it that nobody uses, and that cannot go back for those that somebody does. */
static uint64_t split_of(const wi_backing *backing, uint64_t occupied)
{
    return occupied > 0 ? backing->bytes - occupied : 0;
}

static void change(wi_backing *backing, uint64_t bytes, bool in_use)
{
    wi_idle *idle = &backing->space->shared->idle;
    uint64_t before = backing->occupied, after = in_use ? before + bytes : before - bytes;
    wi_law(after <= backing->bytes);
    if (before == 0)
        delist(backing);
    backing->occupied = after;
    uint64_t split = split_of(backing, before), now = split_of(backing, after);
    if (split != now) {
        idle->partly += (uint64_t)(now > 0) - (split > 0);
        idle->most_partly = wi_max(idle->most_partly, idle->partly);
        set_split(idle, split, now);
    }
    if (after == 0)
        enlist(backing);
}

void wi_backing_use(wi_space *space, uint64_t offset, uint64_t bytes, bool in_use)
{
    uint64_t end = offset + bytes;
    while (offset < end) {
        wi_backing *backing = space->backings[offset / space->granule];
        uint64_t behind = backing ? backing->first + backing->count : offset / space->granule + 1;
        uint64_t next = wi_min(end, behind * space->granule);
        if (next < end)
            __builtin_prefetch(space->backings[behind]);
        if (backing)
            change(backing, next - offset, in_use);
        offset = next;
    }
}
