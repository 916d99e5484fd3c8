/* The base "segments": best fit in allocations of the driver's. segments.h has the rules. */
#include "memory/segments.h"
#include "base/system.h"
#include "memory/space/stream_lists.h"

#include <weir/pressure.h>

#include <stddef.h>

static wi_segments *segments_of(wi_base *base)
{
    return (wi_segments *)base;
}

static wi_segment *segment_at(const wi_segments *s, const void *pointer)
{
    wi_range *range = wi_index_find(&s->index, (uintptr_t)pointer, (uintptr_t)pointer + 1);
    return range ? (wi_segment *)((char *)range - offsetof(wi_segment, range)) : NULL;
}

/* Checks a few segments each time, as all of them would make long runs quadratic. */
static void segments_check(wi_base *base)
{
    wi_segments *s = segments_of(base);
    for (int i = 0; i < 4 && s->first; i++) {
        s->checked = s->checked ? s->checked : s->first;
        wi_region_check(&s->checked->region);
        s->checked = s->checked->next;
    }
    wi_assert(s->shared.in_use <= s->held);
    wi_index_check(&s->index);
}

/* Placing ---------------------------------------------------------------------------------------------------------- */

static uint64_t segments_slack_of(const wi_placement *p)
{
    return wi_segment_kind(p->charged) == WI_SMALL_BLOCKS ? WI_SMALL_SLACK : WI_LARGE_SLACK;
}

static wi_block *segments_use(wi_placement *p, wi_extent *extent)
{
    bool fresh = extent->kind == WI_BUSY;
    wi_climbed(p, fresh ? WEIR_RUNG_CREATE : WEIR_RUNG_FIT);
    wi_block *block = wi_ordered_use(extent, wi_extent_start(extent, p->alignment), p, segments_slack_of(p));
    block->lent = fresh ? 0 : block->lent;
    return block;
}

/* Best fit in the free memory of one kind; NULL: nothing fits. */
static wi_extent *segments_best(const wi_segments *s, const wi_placement *p, unsigned kind)
{
    return wi_shared_best(&s->shared, kind, wi_ordered_list(&s->base, p), p->charged, p->alignment);
}

static bool segments_is_shortage(weir_status status)
{
    return status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY;
}

/* When no segment of the usual length can be had: memory of the other kind, then a shorter segment.
 * WEIR_ERR_OUT_OF_MEMORY: the device had none, whatever the budget says. */
static weir_status segments_fall_back(wi_segments *s, const wi_placement *p, unsigned kind, weir_status status,
                                      wi_extent **out)
{
    *out = segments_best(s, p, kind == WI_SMALL_BLOCKS ? WI_LARGE_BLOCKS : WI_SMALL_BLOCKS);
    if (*out)
        return wi_extent_pool_reserve(&s->shared.pool, WI_RECORDS_PER_CHANGE);
    uint64_t bytes = wi_segment_length(p->charged, p->alignment);
    for (weir_status now = status;
         segments_is_shortage(now) && (bytes = wi_segment_shorter(bytes, p->charged, p->alignment));) {
        now = wi_segments_obtain(s, kind, bytes, out);
        status = now == WEIR_ERR_NO_ROOM ? status : now;
    }
    return status;
}

static weir_status segments_find_room(wi_segments *s, wi_placement *p, wi_extent **out)
{
    unsigned kind = wi_segment_kind(p->charged);
    for (unsigned waits = 0, renewals = 0;;) {
        weir_status status = wi_extent_pool_reserve(&s->shared.pool, WI_RECORDS_PER_CHANGE);
        if (status != WEIR_OK)
            return status;
        *out = segments_best(s, p, kind);
        if (*out)
            return WEIR_OK;
        if (renewals++ < WI_MOST_RENEWALS &&
            wi_stream_lists_renew(&s->stream_lists) > 0) { /* that may serve any stream */
            wi_climbed(p, WEIR_RUNG_COMPLETED);
            continue;
        }
        status = wi_segments_obtain(s, kind, wi_segment_length(p->charged, p->alignment), out);
        if (segments_is_shortage(status))
            status = segments_fall_back(s, p, kind, status, out);
        if (!segments_is_shortage(status) || !wi_segments_synchronize(s, &waits))
            return status;
    }
}

/* Takes memory of another stream, behind a wait. */
static wi_block *segments_find_behind(wi_segments *s, wi_placement *p)
{
    unsigned kind = wi_segment_kind(p->charged);
    wi_block *block = wi_ordered_use_behind(&s->base, &s->shared, kind, p, segments_slack_of(p));
    kind = kind == WI_SMALL_BLOCKS ? WI_LARGE_BLOCKS : WI_SMALL_BLOCKS;
    return block ? block : wi_ordered_use_behind(&s->base, &s->shared, kind, p, segments_slack_of(p));
}

static void segments_look_around(wi_segments *s, uint64_t charged, uint64_t alignment, wi_shortage *shortage);

static weir_status segments_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    wi_segments *s = segments_of(wi_base_of(resource));
    wi_extent *extent = NULL;
    wi_base_lock(&s->base);
    weir_status status = segments_find_room(s, p, &extent);
    if (status == WEIR_OK) {
        *out = segments_use(p, extent);
    } else if (segments_is_shortage(status) && p->allow_stream_wait && (*out = segments_find_behind(s, p))) {
        status = WEIR_OK;
    } else if (segments_is_shortage(status)) {
        shortage->cause = status == WEIR_ERR_NO_ROOM ? WEIR_CAUSE_FRAGMENTATION : WEIR_CAUSE_OTHER_PROCESS;
        segments_look_around(s, p->charged, p->alignment, shortage);
        status = WEIR_ERR_OUT_OF_MEMORY;
    }
    wi_base_unlock(&s->base);
    return status;
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static uint64_t segments_charge(wi_base *base, uint64_t bytes)
{
    (void)base;
    return wi_segment_charge(bytes);
}

static void segments_measure(wi_resource *resource, wi_placement *p)
{
    p->charged = segments_charge(wi_base_of(resource), p->before + p->bytes + p->after);
}

/* Extends the extent to the new charge: over the slack behind the block, and into free memory. */
static weir_status segments_reach(wi_extent *extent, uint64_t charged)
{
    wi_extent *busy = NULL;
    if (charged > extent->bytes) {
        weir_status status = wi_extent_pool_reserve(&extent->region->shared->pool, WI_RECORDS_PER_CHANGE);
        if (status != WEIR_OK)
            return status;
        busy = wi_ordered_take_behind(extent, charged - extent->bytes);
        if (!busy)
            return wi_ordered_no_room(extent);
    }
    if (extent->bytes == extent->block.charged) /* nothing stayed behind it */
        extent->last = WI_CLEAN;
    if (busy)
        wi_region_give(extent->region, busy, extent, busy->bytes);
    extent->block.previous = extent->last;
    return WEIR_OK;
}

/* Whether the block must not grow into its slack. Growth that has to be scrubbed may have to be undone, and would take
 * the slack with it, which earlier work may still write. */
static bool segments_must_stay_short(const wi_extent *extent)
{
    const wi_block *block = &extent->block;
    uint64_t behind = extent->next ? extent->next->last : WI_CLEAN;
    return block->shrunk && (wi_account_owner(block->account) | extent->last | behind) & WI_SECRET;
}

static weir_status segments_grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait,
                                 wi_shortage *shortage)
{
    wi_base *base = wi_base_of(resource);
    uint64_t charged = segments_charge(base, block->before + bytes + block->after);
    weir_status status = WEIR_OK;
    (void)may_wait;
    (void)shortage;
    wi_base_lock(base);
    if (charged > wi_extent_of(block)->bytes && segments_must_stay_short(wi_extent_of(block)))
        status = wi_ordered_no_room(wi_extent_of(block));
    else if (charged > block->charged)
        status = segments_reach(wi_extent_of(block), charged);
    if (status == WEIR_OK)
        wi_ordered_grown(base, block, bytes, charged);
    wi_base_unlock(base);
    return status;
}

/* Giving back, looking --------------------------------------------------------------------------------------------- */

static uint64_t segments_trim(wi_base *base, uint64_t keep)
{
    wi_segments *s = segments_of(base);
    wi_base_lock(base);
    (void)wi_stream_lists_renew(&s->stream_lists);
    uint64_t cached = s->held - s->shared.in_use;
    uint64_t given = cached > keep ? wi_segments_give_back(s, cached - keep) : 0;
    wi_base_unlock(base);
    return given;
}

static uint64_t segments_idle(wi_base *base)
{
    wi_base_lock(base);
    uint64_t bytes = wi_segments_idle(segments_of(base), true);
    wi_base_unlock(base);
    return bytes;
}

static uint64_t segments_trim_idle(wi_base *base, bool if_squeezed)
{
    wi_segments *s = segments_of(base);
    if (if_squeezed) /* idle segments went back before any request was refused */
        return 0;
    wi_base_lock(base);
    (void)wi_stream_lists_renew(&s->stream_lists);
    uint64_t idle = wi_segments_idle(s, false);
    uint64_t given = idle > WEIR_IDLE_KEPT ? wi_segments_give_back(s, idle - WEIR_IDLE_KEPT) : 0;
    wi_base_unlock(base);
    return given;
}

/* The longest aligned run in the segment that is free, or will be once pending blocks are. */
static uint64_t segments_longest_run(const wi_region *region, uint64_t alignment)
{
    uint64_t longest = 0, start = 0;
    for (const wi_extent *e = region->first; e; e = e->next) {
        uint64_t end = e->offset + e->bytes;
        if (e->kind != WI_FREE)
            continue;
        if (!e->previous || e->previous->kind != WI_FREE)
            start = wi_extent_start(e, alignment);
        longest = end > start ? wi_max(longest, end - start) : longest;
    }
    return longest;
}

/* Fills in what could be placed now, and what would have to be held for the request. The lock is held. */
static void segments_look_around(wi_segments *s, uint64_t charged, uint64_t alignment, wi_shortage *shortage)
{
    uint64_t held, allocations, longest = 0, idle = wi_segments_idle(s, true);
    uint64_t room =
        (wi_ledger_room(s->base.resource.ledger, &held, &allocations) & ~(uint64_t)(WI_SEGMENT_ROUND - 1)) + idle;
    uint64_t lost = wi_round_up(alignment - WI_UNIT, WI_SEGMENT_ROUND); /* a segment is a multiple of it, too */
    for (const wi_segment *segment = s->first; segment; segment = segment->next)
        longest = wi_max(longest, segments_longest_run(&segment->region, alignment));
    shortage->largest = shortage->later = wi_max(longest, room - wi_min(room, lost));
    shortage->held = longest >= charged ? held : held - wi_min(idle, charged + lost) + charged + lost;
    wi_ledger_see(s->base.resource.ledger, shortage);
}

static void segments_look(wi_base *base, weir_class memory_class, uint64_t charged, uint64_t alignment,
                          wi_shortage *shortage)
{
    (void)memory_class;
    wi_base_lock(base);
    segments_look_around(segments_of(base), charged, alignment, shortage);
    wi_base_unlock(base);
}

static bool segments_owns(wi_base *base, const void *pointer)
{
    wi_segments *s = segments_of(base);
    pthread_mutex_lock(&s->addresses);
    bool found = segment_at(s, pointer) != NULL;
    pthread_mutex_unlock(&s->addresses);
    return found;
}

static bool segments_was_freed(wi_base *base, const void *pointer)
{
    return wi_index_was_freed(&segments_of(base)->index, (uintptr_t)pointer);
}

static wi_block *segments_find(wi_base *base, const void *pointer, bool *freed)
{
    wi_segment *segment = segment_at(segments_of(base), pointer);
    *freed = false;
    if (!segment)
        return NULL;
    uint64_t offset = (uint64_t)((const char *)pointer - segment->region.base);
    wi_extent *extent = wi_region_find(&segment->region, offset, freed);
    return extent && offset - extent->offset < extent->block.charged ? &extent->block : NULL;
}

static void segments_each(wi_base *base, void (*fn)(wi_block *block, void *user), void *user)
{
    for (const wi_segment *segment = segments_of(base)->first; segment; segment = segment->next)
        for (wi_extent *e = segment->region.first; e; e = e->next)
            if (e->kind == WI_USED && wi_block_is_charged(&e->block))
                fn(&e->block, user);
}

static void segments_walk(wi_base *base, wi_layout *layout)
{
    for (const wi_segment *segment = segments_of(base)->first; segment; segment = segment->next) {
        wi_layout_segment(layout, segment->region.base, segment->region.bytes);
        for (const wi_extent *e = segment->region.first; e; e = e->next)
            wi_layout_extent(layout, e, e->offset, e->bytes);
    }
}

/* Making and ending ------------------------------------------------------------------------------------------------ */

static void segments_destroy(wi_resource *resource)
{
    wi_segments *s = segments_of(wi_base_of(resource));
    if (resource->ledger) {
        wi_stream_lists_drain(&s->stream_lists);
        (void)segments_trim(&s->base, 0);
    }
    wi_segments_drop_all(s);
    wi_stream_lists_destroy(&s->stream_lists);
    wi_extent_pool_destroy(&s->shared.pool);
    pthread_cond_destroy(&s->returned);
    pthread_mutex_destroy(&s->addresses);
    wi_base_end(&s->base);
    free(s);
}

static const wi_base_table table = {
    .all.name = "segments",
    .all.features = WEIR_FEATURE_TRACKS_USES | WEIR_FEATURE_ZEROES | WEIR_FEATURE_SHRINKS | WEIR_FEATURE_GROWS |
                    WEIR_FEATURE_STREAM_ORDERED | WEIR_FEATURE_CAPTURABLE | WEIR_FEATURE_TRIMS,
    WI_ORDERED,
    .all.measure = segments_measure,
    .all.allocate = segments_allocate,
    .all.grow = segments_grow,
    .all.destroy = segments_destroy,
    .charge = segments_charge,
    .find = segments_find,
    .each = segments_each,
    .walk = segments_walk,
    .owns = segments_owns,
    .was_freed = segments_was_freed,
    .trim = segments_trim,
    .idle = segments_idle,
    .trim_idle = segments_trim_idle,
    .look = segments_look,
    .check = segments_check,
};

weir_status wi_segments_create(const wi_driver *driver, wi_device *device, wi_resource **out)
{
    wi_segments *s = calloc(1, sizeof *s);
    if (!s)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a resource");
    wi_base_init(&s->base, &table, driver, device);
    s->base.granule = WI_SEGMENT_ROUND;
    wi_stream_lists_init(&s->stream_lists, &s->base, &s->shared);
    s->base.idle = &s->shared.idle;
    s->shared.by_address = true;
    pthread_cond_init(&s->returned, NULL);
    pthread_mutex_init(&s->addresses, NULL);
    *out = &s->base.resource;
    return WEIR_OK;
}

weir_status wi_segments_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out)
{
    weir_status status = wi_arguments_check(arguments, (const char *const[]){NULL});
    return status == WEIR_OK ? wi_segments_create(driver, device, out) : status;
}

/* Segments --------------------------------------------------------------------------------------------------------- */

/* The length of segments, and their way from the driver and back. A segment that goes back is out of the index and of
 * all lists, so that the lock is released meanwhile. */

/* The rules -------------------------------------------------------------------------------------------------------- */

static uint64_t segments_round_up(uint64_t bytes, uint64_t unit)
{
    uint64_t sum;
    return __builtin_add_overflow(bytes, unit - 1, &sum) ? UINT64_MAX & ~(uint64_t)(WI_SEGMENT_ROUND - 1)
                                                         : sum & ~(unit - 1);
}

uint64_t wi_segment_charge(uint64_t bytes)
{
    return segments_round_up(wi_max(bytes, 1), WI_SEGMENT_ROUND);
}

unsigned wi_segment_kind(uint64_t charged)
{
    return charged <= WI_SMALL_MOST ? WI_SMALL_BLOCKS : WI_LARGE_BLOCKS;
}

/* What a block needs if the driver's address is aligned to a unit only. */
static uint64_t segments_needed(uint64_t charged, uint64_t alignment)
{
    uint64_t lost = alignment - WI_UNIT, sum;
    return segments_round_up(__builtin_add_overflow(charged, lost, &sum) ? UINT64_MAX : sum, WI_SEGMENT_ROUND);
}

uint64_t wi_segment_length(uint64_t charged, uint64_t alignment)
{
    uint64_t least = charged <= WI_SMALL_MOST ? WI_SMALL_SEGMENT : charged < WI_OWN_SEGMENT ? WI_LARGE_SEGMENT : 0;
    return wi_max(least, segments_round_up(segments_needed(charged, alignment), WI_SEGMENT_STEP));
}

/* A segment for one large block cannot be shorter than the block. A segment for small blocks is halved, so that several
 * blocks still share it. */
uint64_t wi_segment_shorter(uint64_t bytes, uint64_t charged, uint64_t alignment)
{
    uint64_t needed = segments_needed(charged, alignment), half = bytes / 2 & ~(uint64_t)(WI_SEGMENT_ROUND - 1);
    if (bytes <= needed)
        return 0;
    return bytes > WI_SMALL_SEGMENT ? needed : wi_max(needed, half);
}

/* The driver ------------------------------------------------------------------------------------------------------- */

static void segments_go_to_driver(wi_segments *s)
{
    s->working++;
    wi_base_unlock(&s->base);
}

static void segments_come_back(wi_segments *s)
{
    wi_base_lock(&s->base);
    s->working--;
    wi_ledger_driver_call(s->base.resource.ledger);
    pthread_cond_broadcast(&s->returned);
}

bool wi_segments_synchronize(wi_segments *s, unsigned *waits)
{
    enum { MOST_WAITS = 64 }; /* Other threads may come and go for ever, and a refusal must not wait for all of them. */
    if (++*waits > MOST_WAITS || s->working == 0 || wi_alone)
        return false;
    pthread_cond_wait(&s->returned, &s->base.lock);
    return true;
}

static wi_segment *segment_with(const wi_region *region)
{
    return (wi_segment *)((char *)region - offsetof(wi_segment, region));
}

static void segments_link(wi_segments *s, wi_segment *segment)
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

static void segments_unlink(wi_segments *s, wi_segment *segment)
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

enum { GRANULE = 64 << 10 }; /* of a segment's tables */

/* Makes a segment of a new allocation; all of it is busy. */
static weir_status segments_enter(wi_segments *s, wi_segment *segment, unsigned kind, void *address, uint64_t bytes)
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
    segments_link(s, segment);
    wi_ledger_mapped(s->base.resource.ledger, bytes);
    wi_ledger_segments(s->base.resource.ledger, 1, 0);
    return WEIR_OK;
}

/* Makes a segment of bytes that the ledger holds. On failure they are released in the ledger. */
static weir_status segments_make(wi_segments *s, unsigned kind, uint64_t bytes, wi_extent **busy)
{
    const wi_resource *r = &s->base.resource;
    void *address = NULL;
    wi_segment *segment = calloc(1, sizeof *segment);
    weir_status status = segment ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for the record of a segment");
    if (segment) {
        segments_go_to_driver(s);
        status = r->driver->allocate(r->device, WEIR_KIND_DEVICE, bytes, &address);
        segments_come_back(s);
    }
    if (status == WEIR_OK)
        status = segments_enter(s, segment, kind, address, bytes);
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

/* Holds the bytes in the ledger. Gives free segments back if that makes enough room. */
static weir_status segments_hold(wi_segments *s, uint64_t bytes)
{
    wi_ledger *ledger = s->base.resource.ledger;
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

/* Whether the segment is wholly free, and the device is past it. */
static bool segments_can_go(const wi_chunk *chunk)
{
    const wi_extent *extent = chunk->region->first;
    return !extent->next && !extent->stream_list;
}

uint64_t wi_segments_idle(const wi_segments *s, bool later)
{
    uint64_t bytes = 0;
    for (const wi_chunk *b = s->shared.idle.first; b; b = b->next)
        bytes += later || segments_can_go(b) ? b->region->bytes : 0;
    return bytes;
}

/* Remembers where blocks were freed in a segment that goes back to the driver, so that second frees are recognised. */
static void segments_remember_frees(wi_segments *s, const wi_region *region)
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

/* Gives a segment back. Returns its bytes; 0: the driver refuses it. */
static uint64_t segments_give_back(wi_segments *s, wi_segment *segment)
{
    const wi_resource *r = &s->base.resource;
    wi_region *region = &segment->region;
    uint64_t bytes = region->bytes;
    s->fresh_last = wi_owners_mix(s->fresh_last, region->first->last);
    wi_region_set(region, region->first, WI_BUSY);
    segments_unlink(s, segment);
    wi_ledger_unmapped(r->ledger, bytes);
    segments_go_to_driver(s);
    weir_status status = r->driver->release(r->device, WEIR_KIND_DEVICE, region->base, bytes);
    segments_come_back(s);
    if (status != WEIR_OK) {
        segments_link(s, segment);
        wi_ledger_mapped(r->ledger, bytes);
        wi_region_set(region, region->first, WI_FREE);
        return 0;
    }
    wi_ledger_release(r->ledger, bytes);
    wi_ledger_segments(r->ledger, 0, 1);
    segments_remember_frees(s, region);
    segments_drop(segment);
    return bytes;
}

uint64_t wi_segments_give_back(wi_segments *s, uint64_t bytes)
{
    uint64_t given = 0, more = 1;
    while (given < bytes && more > 0) {
        const wi_chunk *b = s->shared.idle.first;
        while (b && !segments_can_go(b))
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
