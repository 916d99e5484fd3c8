/* How long segments are, and how they come from the driver and go back. What a thread gives back is out of the index, and in
 * nobody else's hands, so that the lock is free meanwhile. */
#include "memory/segments.h"
#include "base/system.h"

#include <stddef.h>

/* The rules -------------------------------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    uint64_t sum;
    return __builtin_add_overflow(bytes, unit - 1, &sum) ? UINT64_MAX & ~(uint64_t)(WI_SEGMENT_ROUND - 1)
                                                         : sum & ~(unit - 1);
}

uint64_t wi_segment_charge(uint64_t bytes)
{
    return round_up(wi_max(bytes, 1), WI_SEGMENT_ROUND);
}

unsigned wi_segment_kind(uint64_t charged)
{
    return charged <= WI_SMALL_MOST ? WI_SMALL_BLOCKS : WI_LARGE_BLOCKS;
}

/* What the block needs wherever the driver lets the segment begin, which is aligned to a unit alone. */
static uint64_t needed_for(uint64_t charged, uint64_t alignment)
{
    uint64_t lost = alignment - WI_UNIT, sum;
    return round_up(__builtin_add_overflow(charged, lost, &sum) ? UINT64_MAX : sum, WI_SEGMENT_ROUND);
}

uint64_t wi_segment_length(uint64_t charged, uint64_t alignment)
{
    uint64_t least = charged <= WI_SMALL_MOST ? WI_SMALL_SEGMENT : charged < WI_OWN_SEGMENT ? WI_LARGE_SEGMENT : 0;
    return wi_max(least, round_up(needed_for(charged, alignment), WI_SEGMENT_STEP));
}

/* A large block's is no longer than the block; a small one's is halved, so that others have something of it. */
uint64_t wi_segment_shorter(uint64_t bytes, uint64_t charged, uint64_t alignment)
{
    uint64_t needed = needed_for(charged, alignment), half = bytes / 2 & ~(uint64_t)(WI_SEGMENT_ROUND - 1);
    if (bytes <= needed)
        return 0;
    return bytes > WI_SMALL_SEGMENT ? needed : wi_max(needed, half);
}

/* The driver ------------------------------------------------------------------------------------------------------- */

static void segments_go_to_driver(wi_segments *s)
{
    s->working++;
    wi_resource_unlock(&s->resource);
}

static void segments_come_back(wi_segments *s)
{
    wi_resource_lock(&s->resource);
    s->working--;
    wi_ledger_driver_call(s->resource.ledger);
    pthread_cond_broadcast(&s->settled);
}

bool wi_segments_synchronize(wi_segments *s, unsigned *waits)
{
    enum { MOST_WAITS = 64 }; /* others may come and go for ever; a refusal must not wait for all of them */
    if (++*waits > MOST_WAITS || s->working == 0 || wi_alone)
        return false;
    pthread_cond_wait(&s->settled, &s->resource.lock);
    return true;
}

static wi_segment *segment_with(const wi_region *region)
{
    return (wi_segment *)((char *)region - offsetof(wi_segment, region));
}

static void link_segment(wi_segments *s, wi_segment *segment)
{
    segment->previous = NULL;
    segment->next = s->first;
    if (s->first)
        s->first->previous = segment;
    s->first = segment;
    s->held += segment->region.bytes;
    pthread_mutex_lock(&s->addresses);
    wi_index_insert(&s->index, &segment->range);
    pthread_mutex_unlock(&s->addresses);
}

static void unlink_segment(wi_segments *s, wi_segment *segment)
{
    *(segment->previous ? &segment->previous->next : &s->first) = segment->next;
    if (segment->next)
        segment->next->previous = segment->previous;
    if (s->checked == segment)
        s->checked = segment->next;
    s->held -= segment->region.bytes;
    pthread_mutex_lock(&s->addresses);
    wi_index_remove(&s->index, &segment->range);
    pthread_mutex_unlock(&s->addresses);
}

/* Getting one ------------------------------------------------------------------------------------------------------ */

enum { GRANULE = 64 << 10 }; /* of the tables of a segment */

/* A new piece becomes a segment, all of it busy. */
static weir_status segments_settle_in(wi_segments *s, wi_segment *segment, unsigned kind, void *address, uint64_t bytes)
{
    wi_region *region = &segment->region;
    weir_status status = wi_region_init(region, kind, address, bytes, GRANULE, &s->shared);
    if (status != WEIR_OK)
        return status;
    region->most_slack = kind == WI_SMALL_BLOCKS ? WI_SMALL_SLACK : WI_LARGE_SLACK;
    region->first->last = s->fresh_last;
    wi_region_set(region, region->first, WI_BUSY);
    segment->chunk.count = wi_round_up(bytes, GRANULE) / GRANULE;
    wi_chunk_enter(&segment->chunk, region, 0);
    segment->range = (wi_range){.start = (uintptr_t)address, .end = (uintptr_t)address + bytes};
    link_segment(s, segment);
    wi_ledger_mapped(s->resource.ledger, bytes);
    wi_ledger_segments(s->resource.ledger, 1, 0);
    return WEIR_OK;
}

/* The bytes are in the ledger; on failure they are so no longer. */
static weir_status segments_make(wi_segments *s, unsigned kind, uint64_t bytes, wi_extent **busy)
{
    const wi_resource *r = &s->resource;
    void *address = NULL;
    wi_segment *segment = calloc(1, sizeof *segment);
    weir_status status = segment ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for the record of a segment");
    if (segment) {
        segments_go_to_driver(s);
        status = r->driver->allocate(r->device, WEIR_KIND_DEVICE, bytes, &address);
        segments_come_back(s);
    }
    if (status == WEIR_OK)
        status = segments_settle_in(s, segment, kind, address, bytes);
    if (status == WEIR_OK) {
        *busy = segment->region.first;
        return WEIR_OK;
    }
    if (address) {
        segments_go_to_driver(s);
        (void)r->driver->release(r->device, WEIR_KIND_DEVICE, address, bytes);
        segments_come_back(s);
    }
    free(segment);
    wi_ledger_release(r->ledger, bytes);
    return status;
}

/* Takes the bytes in the ledger, giving back what is wholly free if that is enough. */
static weir_status segments_hold(wi_segments *s, uint64_t bytes)
{
    wi_ledger *ledger = s->resource.ledger;
    for (;;) {
        uint64_t held, allocations, got = wi_ledger_hold(ledger, bytes);
        if (got == bytes)
            return WEIR_OK;
        if (got)
            wi_ledger_release(ledger, got);
        uint64_t room = wi_ledger_room(ledger, &held, &allocations);
        if (room < bytes && (bytes - room > wi_segments_idle(s, false) || wi_segments_give_back(s, 1) == 0))
            return WEIR_ERR_NO_ROOM;
    }
}

static weir_status segments_try_once(wi_segments *s, unsigned kind, uint64_t bytes, wi_extent **busy)
{
    weir_status status = segments_hold(s, bytes);
    if (status == WEIR_OK)
        status = segments_make(s, kind, bytes, busy);
    return status;
}

weir_status wi_segments_obtain(wi_segments *s, unsigned kind, uint64_t bytes, wi_extent **busy)
{
    weir_status status = segments_try_once(s, kind, bytes, busy);
    if (status == WEIR_ERR_OUT_OF_MEMORY && wi_segments_give_back(s, bytes) > 0)
        status = segments_try_once(s, kind, bytes, busy);
    if (status != WEIR_OK)
        return status;
    status = wi_extent_pool_reserve(&s->shared.pool, WI_RECORDS_PER_CHANGE);
    if (status != WEIR_OK)
        wi_region_set((*busy)->region, *busy, WI_FREE);
    return status;
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

/* The device is past all of it. */
static bool can_go(const wi_chunk *chunk)
{
    const wi_extent *extent = chunk->region->first;
    return !extent->next && !extent->stream_list;
}

uint64_t wi_segments_idle(const wi_segments *s, bool later)
{
    uint64_t bytes = 0;
    for (const wi_chunk *b = s->shared.idle.first; b; b = b->next)
        bytes += later || can_go(b) ? b->region->bytes : 0;
    return bytes;
}

/* The addresses where blocks were freed are remembered when they are nobody's any more. */
static void remember_frees(wi_segments *s, const wi_region *region)
{
    uint64_t units = region->bytes / WI_UNIT;
    size_t noted = 0;
    for (uint64_t u = 0; u < units && noted < WI_FREED_KEPT; u++)
        if (region->slots[u] & WI_SLOT_FREED) {
            wi_index_freed(&s->index, (uintptr_t)region->base + u * WI_UNIT);
            noted++;
        }
}

static void segments_drop(wi_segment *segment)
{
    wi_region_destroy(&segment->region);
    free(segment);
}

/* Its bytes; 0: the driver keeps it. */
static uint64_t segments_give_back(wi_segments *s, wi_segment *segment)
{
    const wi_resource *r = &s->resource;
    wi_region *region = &segment->region;
    uint64_t bytes = region->bytes;
    s->fresh_last = wi_owners_mix(s->fresh_last, region->first->last);
    wi_region_set(region, region->first, WI_BUSY);
    unlink_segment(s, segment);
    wi_ledger_unmapped(r->ledger, bytes);
    segments_go_to_driver(s);
    weir_status status = r->driver->release(r->device, WEIR_KIND_DEVICE, region->base, bytes);
    segments_come_back(s);
    if (status != WEIR_OK) {
        link_segment(s, segment);
        wi_ledger_mapped(r->ledger, bytes);
        wi_region_set(region, region->first, WI_FREE);
        return 0;
    }
    wi_ledger_release(r->ledger, bytes);
    wi_ledger_segments(r->ledger, 0, 1);
    remember_frees(s, region);
    segments_drop(segment);
    return bytes;
}

uint64_t wi_segments_give_back(wi_segments *s, uint64_t bytes)
{
    uint64_t given = 0, more = 1;
    while (given < bytes && more > 0) {
        const wi_chunk *b = s->shared.idle.first;
        while (b && !can_go(b))
            b = b->next;
        more = b ? segments_give_back(s, segment_with(b->region)) : 0;
        given += more;
    }
    return given;
}

void wi_segments_drop_all(wi_segments *s)
{
    for (wi_segment *segment = s->first, *next; segment; segment = next) {
        next = segment->next;
        segments_drop(segment);
    }
}
