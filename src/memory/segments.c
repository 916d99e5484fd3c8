/* The resource "segments": places blocks in pieces of the driver's by best fit. segments.h has the rules. */
#include "memory/segments.h"
#include "memory/space/layout.h"

#include <weir/pressure.h>

#include <stddef.h>

static wi_segments *segments_of(wi_resource *resource)
{
    return (wi_segments *)resource;
}

static wi_segment *segment_at(const wi_segments *s, const void *pointer)
{
    wi_range *range = wi_index_find(&s->index, (uintptr_t)pointer, (uintptr_t)pointer + 1);
    return range ? (wi_segment *)((char *)range - offsetof(wi_segment, range)) : NULL;
}

/* A few segments each time: all of them would make long runs quadratic. */
static void segments_check(wi_resource *resource)
{
    wi_segments *s = segments_of(resource);
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

/* The best fit among the free memory of a kind; NULL: there is none. */
static wi_extent *find_free(const wi_segments *s, const wi_placement *p, unsigned kind)
{
    return wi_shared_best(&s->shared, kind, wi_ordered_list(&s->resource, p), p->charged, p->alignment);
}

static bool segments_is_shortage(weir_status status)
{
    return status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY;
}

/* There is no segment by the rules. WEIR_ERR_OUT_OF_MEMORY: the device had none, whatever the budget says. */
static weir_status make_do(wi_segments *s, const wi_placement *p, unsigned kind, weir_status status, wi_extent **out)
{
    *out = find_free(s, p, kind == WI_SMALL_BLOCKS ? WI_LARGE_BLOCKS : WI_SMALL_BLOCKS);
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
        *out = find_free(s, p, kind);
        p->hit = *out && waits == 0;
        if (*out)
            return WEIR_OK;
        if (renewals++ < WI_MOST_RENEWALS &&
            wi_stream_lists_renew(&s->stream_lists) > 0) { /* what has passed is anyone's */
            wi_climbed(p, WEIR_RUNG_COMPLETED);
            continue;
        }
        status = wi_segments_obtain(s, kind, wi_segment_length(p->charged, p->alignment), out);
        if (segments_is_shortage(status))
            status = make_do(s, p, kind, status, out);
        if (!segments_is_shortage(status) || !wi_segments_synchronize(s, &waits))
            return status;
    }
}

/* What is free in the order of another stream. */
static wi_block *segments_find_behind(wi_segments *s, wi_placement *p)
{
    unsigned kind = wi_segment_kind(p->charged);
    wi_block *block = wi_ordered_use_behind(&s->resource, &s->shared, kind, p, segments_slack_of(p));
    kind = kind == WI_SMALL_BLOCKS ? WI_LARGE_BLOCKS : WI_SMALL_BLOCKS;
    return block ? block : wi_ordered_use_behind(&s->resource, &s->shared, kind, p, segments_slack_of(p));
}

static void segments_look_around(wi_segments *s, uint64_t charged, uint64_t alignment, wi_shortage *shortage);

static weir_status segments_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    wi_segments *s = segments_of(resource);
    wi_extent *extent = NULL;
    wi_resource_lock(resource);
    weir_status status = segments_find_room(s, p, &extent);
    if (status == WEIR_OK) {
        *out = segments_use(p, extent);
    } else if (segments_is_shortage(status) && p->behind && (*out = segments_find_behind(s, p))) {
        status = WEIR_OK;
    } else if (segments_is_shortage(status)) {
        shortage->cause = status == WEIR_ERR_NO_ROOM ? WEIR_CAUSE_FRAGMENTATION : WEIR_CAUSE_OTHER_PROCESS;
        segments_look_around(s, p->charged, p->alignment, shortage);
        status = WEIR_ERR_OUT_OF_MEMORY;
    }
    wi_resource_unlock(resource);
    return status;
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static uint64_t segments_charge(wi_resource *resource, uint64_t bytes)
{
    (void)resource;
    return wi_segment_charge(bytes);
}

static void segments_measure(wi_resource *resource, wi_placement *p)
{
    p->charged = segments_charge(resource, p->before + p->bytes + p->after);
}

/* The extent reaches as far as the charge: over what stays behind the block, and into free memory. */
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

/* What is scrubbed may have to be given back again, if that fails; with it would go what stays behind a shrunk block, which may
 * still be in use. */
static bool must_stay_short(const wi_extent *extent)
{
    const wi_block *block = &extent->block;
    uint64_t behind = extent->next ? extent->next->last : WI_CLEAN;
    return block->shrunk && (wi_account_owner(block->account) | extent->last | behind) & WI_SECRET;
}

static weir_status segments_grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait,
                                 wi_shortage *shortage)
{
    uint64_t charged = segments_charge(resource, block->before + bytes + block->after);
    weir_status status = WEIR_OK;
    (void)may_wait;
    (void)shortage;
    wi_resource_lock(resource);
    if (charged > wi_extent_of(block)->bytes && must_stay_short(wi_extent_of(block)))
        status = wi_ordered_no_room(wi_extent_of(block));
    else if (charged > block->charged)
        status = segments_reach(wi_extent_of(block), charged);
    if (status == WEIR_OK)
        wi_ordered_grown(resource, block, bytes, charged);
    wi_resource_unlock(resource);
    return status;
}

/* Giving back, looking --------------------------------------------------------------------------------------------- */

static uint64_t segments_trim(wi_resource *resource, uint64_t keep)
{
    wi_segments *s = segments_of(resource);
    wi_resource_lock(resource);
    (void)wi_stream_lists_renew(&s->stream_lists);
    uint64_t cached = s->held - s->shared.in_use;
    uint64_t given = cached > keep ? wi_segments_give_back(s, cached - keep) : 0;
    wi_resource_unlock(resource);
    return given;
}

static uint64_t segments_trim_idle(wi_resource *resource, bool if_squeezed)
{
    wi_segments *s = segments_of(resource);
    if (if_squeezed) /* what was idle has gone back before a request was refused */
        return 0;
    wi_resource_lock(resource);
    (void)wi_stream_lists_renew(&s->stream_lists);
    uint64_t idle = wi_segments_idle(s, false);
    uint64_t given = idle > WEIR_IDLE_KEPT ? wi_segments_give_back(s, idle - WEIR_IDLE_KEPT) : 0;
    wi_resource_unlock(resource);
    return given;
}

/* The longest run of memory in the segment that is free or will be, behind an aligned address. */
static uint64_t longest_run(const wi_region *region, uint64_t alignment)
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

/* What could be had, and what would have to be held for such a block. With the lock held. */
static void segments_look_around(wi_segments *s, uint64_t charged, uint64_t alignment, wi_shortage *shortage)
{
    uint64_t held, allocations, longest = 0, lost = alignment - WI_UNIT, idle = wi_segments_idle(s, true);
    uint64_t room =
        (wi_ledger_room(s->resource.ledger, &held, &allocations) & ~(uint64_t)(WI_SEGMENT_ROUND - 1)) + idle;
    for (const wi_segment *segment = s->first; segment; segment = segment->next)
        longest = wi_max(longest, longest_run(&segment->region, alignment));
    shortage->largest = shortage->later = wi_max(longest, room - wi_min(room, lost));
    shortage->held = longest >= charged ? held : held - wi_min(idle, charged + lost) + charged + lost;
}

static void segments_look(wi_resource *resource, weir_class memory_class, uint64_t charged, uint64_t alignment,
                          wi_shortage *shortage)
{
    (void)memory_class;
    wi_resource_lock(resource);
    segments_look_around(segments_of(resource), charged, alignment, shortage);
    wi_resource_unlock(resource);
}

static bool segments_owns(wi_resource *resource, const void *pointer)
{
    wi_segments *s = segments_of(resource);
    pthread_mutex_lock(&s->addresses);
    bool found = segment_at(s, pointer) != NULL;
    pthread_mutex_unlock(&s->addresses);
    return found;
}

static bool segments_was_freed(wi_resource *resource, const void *pointer)
{
    return wi_index_was_freed(&segments_of(resource)->index, (uintptr_t)pointer);
}

static wi_block *segments_find(wi_resource *resource, const void *pointer, bool *freed)
{
    wi_segment *segment = segment_at(segments_of(resource), pointer);
    *freed = false;
    if (!segment)
        return NULL;
    uint64_t offset = (uint64_t)((const char *)pointer - segment->region.base);
    wi_extent *extent = wi_region_find(&segment->region, offset, freed);
    return extent && offset - extent->offset < extent->block.charged ? &extent->block : NULL;
}

static void segments_each(wi_resource *resource, void (*fn)(wi_block *block, void *user), void *user)
{
    for (const wi_segment *segment = segments_of(resource)->first; segment; segment = segment->next)
        for (wi_extent *e = segment->region.first; e; e = e->next)
            if (e->kind == WI_USED && wi_block_is_charged(&e->block))
                fn(&e->block, user);
}

static void segments_walk(wi_resource *resource, wi_layout *layout)
{
    for (const wi_segment *segment = segments_of(resource)->first; segment; segment = segment->next) {
        wi_layout_segment(layout, segment->region.base, segment->region.bytes);
        for (const wi_extent *e = segment->region.first; e; e = e->next)
            wi_layout_extent(layout, e, e->offset, e->bytes);
    }
}

/* Making and ending ------------------------------------------------------------------------------------------------ */

static void segments_destroy(wi_resource *resource)
{
    wi_segments *s = segments_of(resource);
    if (resource->ledger) {
        wi_stream_lists_drain(&s->stream_lists);
        (void)segments_trim(resource, 0);
    }
    wi_segments_drop_all(s);
    wi_stream_lists_destroy(&s->stream_lists);
    wi_extent_pool_destroy(&s->shared.pool);
    pthread_cond_destroy(&s->settled);
    pthread_mutex_destroy(&s->addresses);
    pthread_mutex_destroy(&resource->lock);
    free(s);
}

static const wi_resource_table table = {
    .name = "segments",
    .features = WEIR_FEATURE_TRACKS_USES | WEIR_FEATURE_ZEROES | WEIR_FEATURE_SHRINKS | WEIR_FEATURE_GROWS |
                WEIR_FEATURE_STREAM_ORDERED | WEIR_FEATURE_CAPTURABLE | WEIR_FEATURE_TRIMS,
    WI_ORDERED,
    .measure = segments_measure,
    .allocate = segments_allocate,
    .grow = segments_grow,
    .destroy = segments_destroy,
    .charge = segments_charge,
    .find = segments_find,
    .each = segments_each,
    .walk = segments_walk,
    .owns = segments_owns,
    .was_freed = segments_was_freed,
    .trim = segments_trim,
    .trim_idle = segments_trim_idle,
    .look = segments_look,
    .check = segments_check,
};

weir_status wi_segments_create(const wi_driver *driver, wi_device *device, wi_resource **out)
{
    wi_segments *s = calloc(1, sizeof *s);
    if (!s)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a resource");
    wi_resource_init(&s->resource, &table, driver, device, NULL);
    s->resource.granule = WI_SEGMENT_ROUND;
    wi_stream_lists_init(&s->stream_lists, &s->resource, &s->shared.stream_lists);
    s->resource.idle = &s->shared.idle;
    s->shared.by_address = true;
    pthread_cond_init(&s->settled, NULL);
    pthread_mutex_init(&s->addresses, NULL);
    *out = &s->resource;
    return WEIR_OK;
}

weir_status wi_segments_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out)
{
    weir_status status = wi_arguments_check(arguments, (const char *const[]){NULL});
    return status == WEIR_OK ? wi_segments_create(driver, device, out) : status;
}
