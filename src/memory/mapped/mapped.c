/* The base "mapped": best fit in free memory; where nothing fits, memory is mapped. Frees are in
 * space/stream_order.c. */
#include "memory/mapped/mapped.h"
#include "base/values.h"
#include "base/system.h"
#include "memory/away.h"
#include "memory/space/stream_lists.h"

#include <weir/pressure.h>

#include <stdio.h>
#include <sys/resource.h>

/* Layout ----------------------------------------------------------------------------------------------------------- */

/* Writes an extent into the layout. A busy one may have no memory yet, or none any more. */
static void mapped_walk_extent(wi_layout *layout, const wi_extent *e, const wi_chunk **current)
{
    const wi_region *region = e->region;
    uint64_t end = e->offset + e->bytes;
    for (uint64_t at = e->offset, next; at < end; at = next) {
        const wi_chunk *b = region->chunks[at / region->granule];
        next = wi_min(end, (b ? b->first + b->count : at / region->granule + 1) * region->granule);
        if (b && b != *current)
            wi_layout_segment(layout, region->base + b->first * region->granule, b->count * region->granule);
        *current = b;
        if (b)
            wi_layout_extent(layout, e, at, next - at);
    }
}

void wi_mapped_walk(wi_base *base, wi_layout *layout)
{
    const wi_mapped *mapped = (const wi_mapped *)base;
    for (int region_number = 0; region_number < WI_REGIONS; region_number++) {
        const wi_chunk *current = NULL;
        for (const wi_extent *e = mapped->regions[region_number].first; e; e = e->next)
            if (e->kind != WI_HOLE)
                mapped_walk_extent(layout, e, &current);
    }
    for (const wi_chunk *b = mapped->spare; b; b = b->next) {
        wi_layout_segment(layout, NULL, b->count * mapped->granule);
        wi_layout_span(layout, WEIR_SPAN_SPARE, NULL, b->count * mapped->granule);
    }
}

/* Regions ---------------------------------------------------------------------------------------------------------- */

static wi_mapped *mapped_of(wi_base *base)
{
    return (wi_mapped *)base;
}

static wi_region *mapped_region_of(wi_mapped *mapped, const void *pointer)
{
    for (int region_number = 0; region_number < WI_REGIONS; region_number++)
        if (wi_region_holds(&mapped->regions[region_number], pointer))
            return &mapped->regions[region_number];
    return NULL;
}

static void mapped_lock(wi_mapped *mapped)
{
    wi_base_lock(&mapped->base);
}

static void mapped_unlock(wi_mapped *mapped)
{
    wi_base_unlock(&mapped->base);
}

static void mapped_check(wi_base *base)
{
    for (int region_number = 0; region_number < WI_REGIONS; region_number++)
        wi_region_check(&mapped_of(base)->regions[region_number]);
    uint64_t away_bytes = 0;
    for (const wi_away *away = mapped_of(base)->aways; away; away = away->next)
        away_bytes += away->bytes;
    wi_assert(away_bytes == mapped_of(base)->away_bytes);
}

/* Placing ---------------------------------------------------------------------------------------------------------- */

/* Maps memory for a block; *g says where. WEIR_ERR_NO_ROOM: no place, or no memory for it. WEIR_ERR_BUSY: try
 * again. */
static weir_status mapped_map(wi_mapped *mapped, wi_region *region, wi_placement *p, wi_map_plan *g, wi_extent **busy)
{
    const wi_fit_request want = {p->charged, p->alignment, wi_ordered_list(&mapped->base, p), p->guard_page,
                                 p->growth == WI_GROWTH_SOFT_LIMIT};
    weir_status status = wi_map_plan_make(mapped, region, &want, g);
    if (status == WEIR_ERR_NO_ROOM && p->growth == WI_GROWTH_LAST_RESORT && !p->guard_page) {
        *g = (wi_map_plan){.taken_count = 1}; /* compaction may also have created chunks, or needed none */
        return wi_compact(mapped, region, &want, &g->start, busy);
    }
    if (status == WEIR_OK && p->growth == WI_GROWTH_SOFT_LIMIT && g->over_soft_limit) {
        p->over_soft_limit = true;
        return WEIR_ERR_NO_ROOM;
    }
    weir_status filled =
        status == WEIR_OK && !p->guard_page ? wi_compact_fill(mapped, region, &want, g, busy) : WEIR_ERR_NO_ROOM;
    if (status != WEIR_OK || filled != WEIR_ERR_NO_ROOM)
        return status != WEIR_OK ? status : filled;
    if (!g->cut)
        return wi_chunks_grow(mapped, g, busy);
    status = wi_chunks_cut(mapped, g->cut, g->cut_at);
    return status == WEIR_OK ? WEIR_ERR_BUSY : status;
}

static weir_status mapped_map_and_use(wi_mapped *mapped, wi_region *region, wi_placement *p, wi_block **out)
{
    wi_map_plan plan;
    wi_extent *busy;
    uint64_t start = wi_now();
    weir_status status = mapped_map(mapped, region, p, &plan, &busy);
    if (status != WEIR_OK)
        return status;
    if (plan.taken_count > 0)
        wi_growth_pay_time(&mapped->policy, start, wi_now());
    wi_climbed(p, plan.taken_count > 0 ? WEIR_RUNG_REMAP : plan.fresh > 0 ? WEIR_RUNG_CREATE : WEIR_RUNG_SPARE);
    *out = wi_ordered_use(busy, plan.start, p, 0);
    (*out)->lent = 0; /* mapped for this block */
    return WEIR_OK;
}

/* Whether to look again after an attempt to map memory. */
static bool mapped_once_more(wi_mapped *mapped, weir_status *status, unsigned *waits)
{
    if (*status != WEIR_ERR_BUSY && *status != WEIR_ERR_NO_ROOM)
        return false;
    if (wi_chunks_synchronize(mapped, *status == WEIR_ERR_BUSY, waits))
        return true;
    *status = mapped->device_has == UINT64_MAX ? WEIR_ERR_NO_ROOM : WEIR_ERR_OUT_OF_MEMORY;
    return false;
}

/* Finds or makes room in one region. `own`: it is the region for this kind of block. Only there is the device asked
 * what has passed. */
static weir_status mapped_find_room(wi_mapped *mapped, wi_region *region, wi_placement *p, bool own, wi_block **out)
{
    for (unsigned waits = 0, renewals = 0;;) {
        weir_status status = wi_extent_pool_reserve(&mapped->shared.pool, WI_RECORDS_PER_CHANGE);
        if (status != WEIR_OK)
            return status;
        const wi_stream_list *stream_list = wi_ordered_list(&mapped->base, p);
        wi_extent *extent = p->guard_page ? NULL : wi_region_best(region, stream_list, p->charged, p->alignment);
        if (extent) {
            *out = wi_ordered_use(extent, wi_extent_start(extent, p->alignment), p, 0);
            return WEIR_OK;
        }
        if (own && renewals++ < WI_MOST_RENEWALS &&
            wi_stream_lists_renew(&mapped->stream_lists) > 0) { /* that may serve any stream, and can be moved */
            wi_climbed(p, WEIR_RUNG_COMPLETED);
            continue;
        }
        if (p->growth == WI_GROWTH_NONE)
            return WEIR_ERR_NO_ROOM;
        status = mapped_map_and_use(mapped, region, p, out);
        if (p->over_soft_limit || !mapped_once_more(mapped, &status, &waits))
            return status;
    }
}

static bool mapped_is_shortage(weir_status status)
{
    return status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY;
}

static weir_status mapped_find_in_regions(wi_mapped *mapped, wi_placement *p, wi_block **out)
{
    const unsigned *regions_to_try;
    unsigned count = wi_growth_regions(p, &regions_to_try);
    weir_status status = WEIR_ERR_NO_ROOM;
    for (unsigned i = 0; i < count && mapped_is_shortage(status) && !p->over_soft_limit; i++)
        status = mapped_find_room(mapped, &mapped->regions[regions_to_try[i]], p, i == 0, out);
    return status;
}

/* Takes memory of another stream, behind a wait. */
static wi_block *mapped_find_behind(wi_mapped *mapped, wi_placement *p)
{
    const unsigned *regions_to_try;
    unsigned count = wi_growth_regions(p, &regions_to_try);
    wi_block *block = NULL;
    for (unsigned i = 0; i < count && !block; i++)
        block = wi_ordered_use_behind(&mapped->base, &mapped->shared, regions_to_try[i], p, 0);
    return block;
}

/* After the device ran out of memory, other processes need it: gives back idle memory, down to WEIR_IDLE_KEPT. */
static uint64_t mapped_trim_after_oom(wi_mapped *mapped)
{
    bool device_oom_seen = mapped->device_oom_seen;
    mapped->device_oom_seen = false;
    return device_oom_seen ? wi_chunks_trim_idle(mapped, WEIR_IDLE_KEPT) : 0;
}

/* The next point to wait for. Other streams come first: their memory can then serve as it lies. The request's own
 * stream may use its memory there without a wait, but cannot have chunks moved. False: nothing to wait for. */
static bool mapped_next_point(wi_mapped *mapped, const wi_placement *p, wi_event *out)
{
    const wi_stream_lists *stream_lists = &mapped->stream_lists;
    return wi_stream_lists_oldest(stream_lists, p->stream, out) ||
           (wi_chunks_obtainable(mapped, true) > wi_chunks_obtainable(mapped, false) &&
            wi_stream_lists_oldest(stream_lists, WEIR_STREAM_HOST, out));
}

/* Waits for frees until *deadline, which is set at the first call. True: the device is past some more of them. The lock
 * is released meanwhile. */
static bool mapped_wait_for_frees(wi_mapped *mapped, const wi_placement *p, uint64_t *deadline)
{
    wi_resource *resource = &mapped->base.resource;
    uint64_t start = wi_now();
    wi_event event;
    wi_growth_earn_wait(&mapped->policy, start);
    if (*deadline == 0)
        *deadline = wi_growth_wait_until(&mapped->policy, start, wi_option_wait());
    if (start >= *deadline || !mapped_next_point(mapped, p, &event))
        return false;
    wi_base_unlock(wi_base_of(resource));
    bool waits = !resource->driver->stream_capturing(
        resource->device, p->native); /* not in a capture, declared or not, as its work runs later */
    weir_status status = waits ? resource->driver->wait(resource->device, event, *deadline) : WEIR_OK;
    wi_base_lock(wi_base_of(resource));
    wi_growth_pay_wait(&mapped->policy, wi_now() - start);
    (void)wi_stream_lists_renew(&mapped->stream_lists);
    return waits && status == WEIR_OK;
}

/* Stays under the soft limit as long as there is something to wait for, then goes beyond it. Only a wait that helped
 * counts as the rung that served the request. */
static weir_status mapped_find_with_waits(wi_mapped *mapped, wi_placement *p, wi_block **out)
{
    const weir_rung rung = p->rung;
    const wi_growth growth = p->growth;
    uint64_t deadline = 0;
    for (bool waits = wi_growth_may_wait(p, mapped->shared.stream_lists);;) {
        p->growth = waits ? WI_GROWTH_SOFT_LIMIT : growth;
        p->over_soft_limit = false;
        weir_status status = mapped_find_in_regions(mapped, p, out);
        p->growth = growth;
        if (!p->over_soft_limit)
            return status;
        waits = mapped_wait_for_frees(mapped, p, &deadline);
        p->rung = rung;
        if (waits)
            wi_climbed(p, WEIR_RUNG_WAIT);
    }
}

static weir_status mapped_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    wi_mapped *mapped = mapped_of(wi_base_of(resource));
    const wi_region *region = &mapped->regions[wi_growth_region(p)];
    if (p->away)
        return wi_away_allocate(&mapped->base, p, shortage);
    mapped_lock(mapped);
    weir_status status = mapped_find_with_waits(mapped, p, out);
    if (mapped_is_shortage(status) && p->allow_stream_wait && !p->guard_page && (*out = mapped_find_behind(mapped, p)))
        status = WEIR_OK;
    if (status == WEIR_OK) {
        (void)mapped_trim_after_oom(mapped);
    } else if (mapped_is_shortage(status) && p->growth != WI_GROWTH_NONE) {
        shortage->cause = p->charged > region->bytes - p->alignment ? WEIR_CAUSE_ADDRESS_RANGE
                          : status == WEIR_ERR_NO_ROOM              ? WEIR_CAUSE_FRAGMENTATION
                                                                    : WEIR_CAUSE_OTHER_PROCESS;
        wi_place_look(mapped, wi_ordered_list(&mapped->base, p), p->charged, p->alignment, shortage);
        status = WEIR_ERR_OUT_OF_MEMORY;
    }
    mapped->device_has = UINT64_MAX;
    mapped_unlock(mapped);
    return status;
}

/* Most requests that thread caches do not serve end here. What the device was out of may be given back first. */
static bool mapped_place(wi_base *base, wi_placement *p, weir_block *out)
{
    wi_mapped *mapped = mapped_of(base);
    bool placed = false;
    mapped_lock(mapped);
    if (!mapped->device_oom_seen && wi_extent_pool_has(&mapped->shared.pool, WI_RECORDS_PER_CHANGE)) {
        wi_region *region = &mapped->regions[wi_growth_region(p)];
        wi_extent *extent = wi_region_best(region, wi_ordered_list(base, p), p->charged, p->alignment);
        placed = extent && !wi_account_must_scrub(p->account, extent->last) && wi_ordered_place(base, extent, p, out);
    }
    mapped_unlock(mapped);
    return placed;
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static uint64_t mapped_charge(wi_base *base, uint64_t bytes)
{
    (void)base;
    return wi_round_up(bytes, WI_UNIT);
}

static void mapped_measure(wi_resource *resource, wi_placement *p)
{
    p->charged = mapped_charge(wi_base_of(resource), p->before + p->bytes + p->after);
}

static weir_status mapped_map_behind(wi_mapped *mapped, wi_extent *extent, uint64_t more, wi_extent **busy)
{
    wi_map_plan plan;
    weir_status status = wi_map_plan_behind(mapped, extent, more, &plan);
    if (status == WEIR_OK && plan.cut) {
        status = wi_chunks_cut(mapped, plan.cut, plan.cut_at);
        return status == WEIR_OK ? WEIR_ERR_BUSY : status;
    }
    if (status == WEIR_OK)
        return wi_chunks_grow(mapped, &plan, busy);
    weir_status compacted = wi_compact_behind(mapped, extent, more, busy);
    return compacted == WEIR_ERR_NO_ROOM ? status : compacted;
}

/* Gives the extent `more` bytes behind it, and maps memory there. WEIR_ERR_OUT_OF_MEMORY: too few chunks. */
static weir_status mapped_extend(wi_mapped *mapped, wi_extent *extent, uint64_t more)
{
    for (unsigned waits = 0;;) {
        weir_status status = wi_extent_pool_reserve(&mapped->shared.pool, WI_RECORDS_PER_CHANGE);
        if (status != WEIR_OK)
            return status;
        wi_extent *busy = wi_ordered_take_behind(extent, more);
        if (!busy)
            status = mapped_map_behind(mapped, extent, more, &busy);
        if (status == WEIR_OK) {
            extent->block.previous = busy->last;
            wi_region_give(extent->region, busy, extent, more);
        }
        bool again = status == WEIR_ERR_BUSY || status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY;
        if (!again || !wi_chunks_synchronize(mapped, status == WEIR_ERR_BUSY, &waits))
            return status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_BUSY ? wi_ordered_no_room(extent) : status;
    }
}

static weir_status mapped_grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait,
                               wi_shortage *shortage)
{
    wi_mapped *mapped = mapped_of(wi_base_of(resource));
    uint64_t charged = mapped_charge(&mapped->base, block->before + bytes + block->after);
    weir_status status = WEIR_OK;
    (void)may_wait;
    (void)shortage;
    mapped_lock(mapped);
    if (charged > block->charged)
        status = mapped_extend(mapped, wi_extent_of(block), charged - block->charged);
    if (status == WEIR_OK)
        wi_ordered_grown(&mapped->base, block, bytes, charged);
    mapped->device_has = UINT64_MAX;
    mapped_unlock(mapped);
    return status;
}

/* Giving back, looking, ending ------------------------------------------------------------------------------------- */

static uint64_t mapped_trim(wi_base *base, uint64_t keep)
{
    wi_mapped *mapped = mapped_of(base);
    mapped_lock(mapped);
    (void)wi_stream_lists_renew(&mapped->stream_lists);
    uint64_t released = wi_chunks_trim(mapped, keep);
    mapped_unlock(mapped);
    return released;
}

static uint64_t mapped_idle(wi_base *base)
{
    wi_mapped *mapped = mapped_of(base);
    mapped_lock(mapped);
    uint64_t bytes = wi_chunks_obtainable(mapped, true) * mapped->granule;
    mapped_unlock(mapped);
    return bytes;
}

static uint64_t mapped_trim_idle(wi_base *base, bool if_squeezed)
{
    wi_mapped *mapped = mapped_of(base);
    mapped_lock(mapped);
    (void)wi_stream_lists_renew(&mapped->stream_lists);
    mapped->device_oom_seen |= !if_squeezed;
    uint64_t released = mapped_trim_after_oom(mapped);
    mapped_unlock(mapped);
    return released;
}

static void mapped_look(wi_base *base, weir_class memory_class, uint64_t charged, uint64_t alignment,
                        wi_shortage *shortage)
{
    wi_mapped *mapped = mapped_of(base);
    mapped_lock(mapped);
    (void)memory_class; /* any class may use any region at last */
    wi_place_look(mapped, WI_ANY_STREAM_LIST, charged, alignment, shortage);
    mapped_unlock(mapped);
}

static bool mapped_owns(wi_base *base, const void *pointer)
{
    return mapped_region_of(mapped_of(base), pointer) != NULL;
}

static wi_block *mapped_find(wi_base *base, const void *pointer, bool *freed)
{
    wi_region *region = mapped_region_of(mapped_of(base), pointer);
    wi_extent *extent = wi_region_find(region, (uint64_t)((const char *)pointer - region->base), freed);
    return extent ? &extent->block : NULL;
}

static wi_block *mapped_peek(wi_base *base, const void *pointer)
{
    wi_region *region = mapped_region_of(mapped_of(base), pointer);
    wi_extent *extent = region ? wi_region_peek(region, (uint64_t)((const char *)pointer - region->base)) : NULL;
    return extent ? &extent->block : NULL;
}

static void mapped_each(wi_base *base, void (*fn)(wi_block *block, void *user), void *user)
{
    for (int region_number = 0; region_number < WI_REGIONS; region_number++)
        for (wi_extent *e = mapped_of(base)->regions[region_number].first; e; e = e->next)
            if (e->kind == WI_USED && wi_block_is_charged(&e->block))
                fn(&e->block, user);
}

static void mapped_unreserve_regions(wi_mapped *mapped)
{
    wi_resource *r = &mapped->base.resource;
    for (int region_number = 0; region_number < WI_REGIONS; region_number++) {
        wi_region *region = &mapped->regions[region_number];
        char *base = region->base;
        wi_region_destroy(region);
        if (base)
            r->driver->unreserve(r->device, base, mapped->range_bytes);
    }
}

static void mapped_destroy(wi_resource *resource)
{
    wi_mapped *mapped = mapped_of(wi_base_of(resource));
    wi_stream_lists_drain(&mapped->stream_lists);
    (void)mapped_trim(&mapped->base, 0);
    mapped_unreserve_regions(mapped);
    wi_stream_lists_destroy(&mapped->stream_lists);
    wi_extent_pool_destroy(&mapped->shared.pool);
    pthread_cond_destroy(&mapped->returned);
    wi_base_end(&mapped->base);
    free(mapped);
}

static const wi_base_table table = {
    .all.name = "mapped",
    .places_guard_pages = true,
    .all.features = WEIR_FEATURE_TRACKS_USES | WEIR_FEATURE_ZEROES | WEIR_FEATURE_SHRINKS | WEIR_FEATURE_GROWS |
                    WEIR_FEATURE_MOVES_MEMORY | WEIR_FEATURE_STREAM_ORDERED | WEIR_FEATURE_CAPTURABLE |
                    WEIR_FEATURE_TRIMS,
    WI_ORDERED,
    .all.measure = mapped_measure,
    .all.allocate = mapped_allocate,
    .place = mapped_place,
    .all.grow = mapped_grow,
    .all.destroy = mapped_destroy,
    .charge = mapped_charge,
    .find = mapped_find,
    .peek = mapped_peek,
    .each = mapped_each,
    .walk = wi_mapped_walk,
    .owns = mapped_owns,
    .trim = mapped_trim,
    .idle = mapped_idle,
    .trim_idle = mapped_trim_idle,
    .away = &wi_mapped_away,
    .look = mapped_look,
    .check = mapped_check,
};

/* Reserves the addresses of every region, `bytes` for each, or reserves nothing. With `spare`, leaves as many addresses
 * to the process as one region has. */
static weir_status mapped_reserve_all(wi_mapped *mapped, uint64_t bytes, bool spare)
{
    wi_resource *r = &mapped->base.resource;
    void *left = NULL, *base;
    weir_status status = spare ? r->driver->reserve(r->device, bytes, &left) : WEIR_OK;
    mapped->range_bytes = bytes;
    for (int region_number = 0; status == WEIR_OK && region_number < WI_REGIONS; region_number++) {
        wi_region *region = &mapped->regions[region_number];
        status = r->driver->reserve(r->device, bytes, &base);
        if (status != WEIR_OK)
            break;
        status = wi_region_init(region, (unsigned)region_number, base, bytes, mapped->granule, &mapped->shared);
        if (status != WEIR_OK)
            r->driver->unreserve(r->device, base, bytes);
    }
    if (status != WEIR_OK)
        mapped_unreserve_regions(mapped);
    if (left)
        r->driver->unreserve(r->device, left, bytes);
    return status;
}

static weir_status mapped_no_addresses(weir_status status)
{
    char why[400], text[32];
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    snprintf(why, sizeof why, "%s", weir_detail());
    (void)getrlimit(RLIMIT_AS, &limit);
    return weir_fail(status,
                     "%s; a device takes %d ranges of 1 GiB of addresses at least (WEIR_RANGE), and the process may "
                     "have %s (ulimit -v): "
                     "allow it more",
                     why, WI_REGIONS,
                     limit.rlim_cur == RLIM_INFINITY ? "any number"
                                                     : weir_size_format(limit.rlim_cur, text, sizeof text));
}

/* Reserves the regions. Addresses cost only the tables for them: four times the device's memory for each region leaves
 * room for large blocks between scattered small ones. Where the system limits addresses, they are fewer, for all regions
 * alike, or as the option `range` says. */
static weir_status mapped_reserve_regions(wi_mapped *mapped)
{
    wi_resource *r = &mapped->base.resource;
    uint64_t available, total, bytes = wi_round_up(wi_min(wi_option_range(), 4096 * WI_GIB), WI_GIB);
    weir_status status = r->driver->memory(r->device, &available, &total);
    if (status != WEIR_OK)
        return status;
    if (bytes == 0)
        for (bytes = WI_GIB; bytes < 4 * total && bytes < 4096 * WI_GIB;)
            bytes *= 2;
    status = mapped_reserve_all(mapped, bytes, false);
    while (status != WEIR_OK && bytes > WI_GIB) {
        bytes = wi_round_up(bytes / 2, WI_GIB);
        status = mapped_reserve_all(mapped, bytes, true);
    }
    return status == WEIR_OK ? WEIR_OK : mapped_no_addresses(status);
}

weir_status wi_mapped_create(const wi_driver *driver, wi_device *device, wi_resource **out)
{
    wi_mapped *mapped = calloc(1, sizeof *mapped);
    if (!mapped)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a resource");
    wi_base_init(&mapped->base, &table, driver, device);
    mapped->granule = mapped->base.granule = driver->granule(device);
    wi_stream_lists_init(&mapped->stream_lists, &mapped->base, &mapped->shared);
    mapped->base.idle = &mapped->shared.idle;
    mapped->device_has = UINT64_MAX;
    wi_growth_begin(&mapped->policy, wi_option_move_time(), wi_option_reuse_wait(), wi_now());
    pthread_cond_init(&mapped->returned, NULL);
    weir_status status = mapped_reserve_regions(mapped);
    if (status != WEIR_OK) {
        mapped_destroy(&mapped->base.resource);
        return status;
    }
    *out = &mapped->base.resource;
    return WEIR_OK;
}
