/* Physical memory of the resource "mapped": spare handles, new ones within the budget, and ones moved from where they lie
 * under nothing but free memory. */
#include "memory/mapped.h"
#include "base/system.h"

/* Driver calls are made between these two. */
static void go_to_driver(wi_mapped *mapped)
{
    mapped->working++;
    pthread_mutex_unlock(&mapped->resource.lock);
}

static void come_back(wi_mapped *mapped)
{
    wi_ledger_driver_call(mapped->resource.ledger);
    pthread_mutex_lock(&mapped->resource.lock);
    mapped->working--;
    pthread_cond_broadcast(&mapped->settled);
}

bool wi_mapped_settle(wi_mapped *mapped, bool lost, unsigned *waits)
{
    enum { MOST_WAITS = 64 }; /* others may come and go for ever; a refusal must not wait for all of them */
    if (++*waits > MOST_WAITS || (mapped->working == 0 && !lost))
        return false;
    if (mapped->working > 0 && wi_alone)
        return lost;
    if (mapped->working > 0)
        pthread_cond_wait(&mapped->settled, &mapped->resource.lock);
    return true;
}

/* Spare handles ---------------------------------------------------------------------------------------------------- */

static weir_status make_room(wi_mapped *mapped, size_t count)
{
    size_t needed = mapped->spare_count + count;
    if (needed <= mapped->spare_capacity)
        return WEIR_OK;
    size_t capacity = wi_max(needed, mapped->spare_capacity * 2);
    wi_handle *spare = realloc(mapped->spare, capacity * sizeof *spare);
    if (!spare)
        return weir_fail(WEIR_SYSTEM, "no host memory for the list of handles");
    mapped->spare = spare;
    mapped->spare_capacity = capacity;
    return WEIR_OK;
}

/* Puts handles that are mapped nowhere, with the bytes of `last`, among the spare ones; without a place in the list they go
 * back to the driver. */
static void give_back(wi_mapped *mapped, const wi_handle *handles, size_t count, uint64_t last)
{
    if (count == 0)
        return;
    if (make_room(mapped, count) == WEIR_OK) {
        memcpy(mapped->spare + mapped->spare_count, handles, count * sizeof *handles);
        mapped->spare_count += count;
        mapped->spare_last = wi_owners_mix(mapped->spare_last, last);
        return;
    }
    mapped->fresh_last = wi_owners_mix(mapped->fresh_last, last);
    mapped->resource.driver->destroy(mapped->resource.device, mapped->granule, count, handles);
    wi_ledger_release(mapped->resource.ledger, count * mapped->granule);
}

/* Asks the driver for up to `count` handles, as many as the budget allows. With the lock held, released meanwhile. */
static weir_status create(wi_mapped *mapped, size_t count)
{
    wi_resource *r = &mapped->resource;
    uint64_t bytes = wi_ledger_hold(r->ledger, count * mapped->granule);
    size_t taken = bytes / mapped->granule;
    if (taken == 0)
        return WEIR_OK;
    wi_handle *handles = malloc(taken * sizeof *handles);
    weir_status status = handles ? WEIR_OK : weir_fail(WEIR_SYSTEM, "no host memory for handles");
    if (handles) {
        go_to_driver(mapped);
        status = r->driver->create(r->device, mapped->granule, taken, handles);
        come_back(mapped);
    }
    if (status == WEIR_OK)
        give_back(mapped, handles, taken, mapped->fresh_last);
    else
        wi_ledger_release(r->ledger, bytes);
    free(handles);
    return status;
}

uint64_t wi_mapped_destroy_spare(wi_mapped *mapped, uint64_t keep)
{
    wi_resource *r = &mapped->resource;
    size_t kept = wi_min(keep / mapped->granule, mapped->spare_count), count = mapped->spare_count - kept;
    wi_handle *handles = count ? malloc(count * sizeof *handles) : NULL;
    if (!handles)
        return 0;
    memcpy(handles, mapped->spare + kept, count * sizeof *handles);
    mapped->spare_count = kept;
    mapped->fresh_last = wi_owners_mix(mapped->fresh_last, mapped->spare_last);
    go_to_driver(mapped);
    r->driver->destroy(r->device, mapped->granule, count, handles);
    wi_ledger_release(r->ledger, count * mapped->granule);
    come_back(mapped);
    free(handles);
    return count * mapped->granule;
}

/* Wholly free granules --------------------------------------------------------------------------------------------- */

static uint64_t inner_granules(const wi_extent *extent, uint64_t granule, uint64_t *start)
{
    uint64_t end = (extent->offset + extent->bytes) & ~(granule - 1);
    *start = wi_round_up(extent->offset, granule);
    return end > *start ? (end - *start) / granule : 0;
}

static uint64_t count_inner(const wi_mapped *mapped, bool later)
{
    uint64_t count = 0, start;
    for (int side = 0; side < WI_SIDES; side++)
        for (const wi_extent *e = mapped->sides[side].first; e; e = e->next)
            if (e->kind == WI_FREE && (later || !e->lane))
                count += inner_granules(e, mapped->granule, &start);
    return count;
}

/* Unmaps one busy extent, which covers whole granules, and makes it a hole. With the lock held, released meanwhile. */
static weir_status unmap_extent(wi_mapped *mapped, wi_extent *busy)
{
    wi_resource *r = &mapped->resource;
    wi_space *space = busy->space;
    uint64_t first = busy->offset / mapped->granule;
    size_t count = busy->bytes / mapped->granule;
    go_to_driver(mapped);
    weir_status status =
        r->driver->unmap(r->device, space->base + busy->offset, mapped->granule, count, space->handles + first);
    come_back(mapped);
    if (status != WEIR_OK) {
        wi_mapped_dissolve(mapped, busy);
        return status;
    }
    memset(space->mapped + first, 0, count);
    wi_ledger_unmapped(r->ledger, count * mapped->granule);
    give_back(mapped, space->handles + first, count, busy->last);
    wi_space_set(space, busy, WI_HOLE);
    busy->last = WI_CLEAN;
    wi_space_join(space, busy);
    return WEIR_OK;
}

/* Cuts a run of wholly free granules out of a free extent and marks it busy; NULL when there is none. */
static wi_extent *isolate_run(wi_mapped *mapped, size_t most)
{
    uint64_t start;
    for (int side = 0; side < WI_SIDES; side++)
        for (wi_extent *e = mapped->sides[side].first; e; e = e->next) {
            uint64_t count = e->kind == WI_FREE && !e->lane ? inner_granules(e, mapped->granule, &start) : 0;
            if (count == 0 || wi_extent_pool_reserve(&mapped->pool, 2) != WEIR_OK)
                continue;
            uint64_t end = start + wi_min(count, most) * mapped->granule;
            if (start > e->offset)
                e = wi_space_cut(e->space, e, start);
            if (end < e->offset + e->bytes)
                wi_space_cut(e->space, e, end);
            wi_space_set(e->space, e, WI_BUSY);
            return e;
        }
    return NULL;
}

weir_status wi_mapped_unmap_free(wi_mapped *mapped, size_t most, size_t *done)
{
    wi_extent *run;
    *done = 0;
    while (*done < most && (run = isolate_run(mapped, most - *done))) {
        size_t count = run->bytes / mapped->granule;
        weir_status status = unmap_extent(mapped, run);
        if (status != WEIR_OK)
            return status;
        *done += count;
    }
    return WEIR_OK;
}

uint64_t wi_mapped_at_hand(wi_mapped *mapped, uint64_t *held)
{
    weir_stats stats = {.size = sizeof stats};
    size_t ignored;
    wi_ledger_snapshot(mapped->resource.ledger, &stats, NULL, 0, 0, &ignored);
    if (held)
        *held = stats.held;
    return (stats.budget - stats.held) / mapped->granule + mapped->spare_count;
}

uint64_t wi_mapped_obtainable(wi_mapped *mapped, bool later)
{
    return wi_mapped_at_hand(mapped, NULL) + count_inner(mapped, later);
}

uint64_t wi_mapped_held_for(wi_mapped *mapped, uint64_t count)
{
    uint64_t held, there = mapped->spare_count + count_inner(mapped, true);
    (void)wi_mapped_at_hand(mapped, &held);
    if (count > UINT64_MAX / 2 / mapped->granule)
        return UINT64_MAX;
    return count > there ? held + (count - there) * mapped->granule : held;
}

/* Backing ---------------------------------------------------------------------------------------------------------- */

static size_t count_unmapped(const wi_mapped *mapped, const wi_extent *busy)
{
    size_t count = 0;
    for (uint64_t g = busy->offset / mapped->granule; g * mapped->granule < busy->offset + busy->bytes; g++)
        count += !busy->space->mapped[g];
    return count;
}

void wi_mapped_dissolve(wi_mapped *mapped, wi_extent *busy)
{
    wi_space *space = busy->space;
    uint64_t end = busy->offset + busy->bytes;
    while (busy) {
        uint64_t g = busy->offset / mapped->granule, edge = (g + 1) * mapped->granule;
        bool backed = space->mapped[g];
        while (edge < end && space->mapped[edge / mapped->granule] == backed)
            edge += mapped->granule;
        if (edge < end && wi_extent_pool_reserve(&mapped->pool, 1) != WEIR_OK)
            return; /* without a record to cut it, the rest stays busy: lost addresses rather than a wrong book */
        wi_extent *rest = edge < end ? wi_space_cut(space, busy, edge) : NULL;
        if (!backed)
            busy->lane = NULL;
        wi_space_set(space, busy, backed ? WI_FREE : WI_HOLE);
        wi_space_join(space, busy);
        busy = rest;
    }
}

/* Takes spare handles into `mine` until there are `needed`: those at hand, new ones within the budget, then ones from
 * under free memory. Others may help themselves to the spare ones whenever the lock is released, hence the loop. *last gets
 * the owners of their bytes mixed in. */
static weir_status gather(wi_mapped *mapped, wi_handle *mine, size_t needed, size_t *got, uint64_t *last)
{
    bool device_full = false;
    for (*got = 0;;) {
        size_t take = wi_min(mapped->spare_count, needed - *got);
        mapped->spare_count -= take;
        for (size_t i = 0; i < take; i++)
            mine[(*got)++] = mapped->spare[mapped->spare_count + i];
        if (take > 0)
            *last = wi_owners_mix(*last, mapped->spare_last);
        if (mapped->spare_count == 0)
            mapped->spare_last = WI_CLEAN;
        if (*got == needed)
            return WEIR_OK;
        weir_status status = device_full ? WEIR_OUT_OF_MEMORY : create(mapped, needed - *got);
        if (status != WEIR_OK && status != WEIR_OUT_OF_MEMORY)
            return status;
        device_full = status != WEIR_OK; /* what lies under free memory may still do */
        size_t moved = 0;
        if (mapped->spare_count == 0)
            status = wi_mapped_unmap_free(mapped, needed - *got, &moved);
        if (mapped->spare_count == 0 && moved == 0)
            return device_full ? WEIR_OUT_OF_MEMORY : status != WEIR_OK ? status : WEIR_BUSY;
    }
}

/* Maps `count` handles from granule `first` on. With the lock held, released meanwhile. */
static weir_status map_run(wi_mapped *mapped, wi_space *space, uint64_t first, wi_handle *handles, size_t count)
{
    wi_resource *r = &mapped->resource;
    go_to_driver(mapped);
    weir_status status =
        r->driver->map(r->device, space->base + first * mapped->granule, mapped->granule, count, handles);
    come_back(mapped);
    if (status != WEIR_OK)
        return status;
    memcpy(space->handles + first, handles, count * sizeof *handles);
    memset(space->mapped + first, 1, count);
    wi_ledger_mapped(r->ledger, count * mapped->granule);
    return WEIR_OK;
}

/* Puts the handles under every unmapped granule of the busy extent; *used tells how many are mapped. */
static weir_status map_all(wi_mapped *mapped, wi_extent *busy, wi_handle *handles, size_t *used)
{
    wi_space *space = busy->space;
    uint64_t end = (busy->offset + busy->bytes + mapped->granule - 1) / mapped->granule;
    *used = 0;
    for (uint64_t g = busy->offset / mapped->granule; g < end;) {
        uint64_t first = g;
        while (g < end && !space->mapped[g])
            g++;
        if (g > first) {
            weir_status status = map_run(mapped, space, first, handles + *used, g - first);
            if (status != WEIR_OK)
                return status;
            *used += g - first;
        }
        while (g < end && space->mapped[g])
            g++;
    }
    return WEIR_OK;
}

weir_status wi_mapped_back(wi_mapped *mapped, wi_extent *busy)
{
    size_t needed = count_unmapped(mapped, busy), got = 0, used = 0;
    uint64_t last = WI_CLEAN;
    wi_handle *mine = malloc((needed + 1) * sizeof *mine);
    weir_status status =
        mine ? gather(mapped, mine, needed, &got, &last) : weir_fail(WEIR_SYSTEM, "no host memory for handles");
    if (status == WEIR_OK)
        status = map_all(mapped, busy, mine, &used);
    if (status == WEIR_OK)
        status = wi_extent_pool_reserve(&mapped->pool, WI_RECORDS_PER_CHANGE);
    busy->last = wi_owners_mix(busy->last, last);
    if (status != WEIR_OK) {
        if (mine)
            give_back(mapped, mine + used, got - used, last);
        wi_mapped_dissolve(mapped, busy);
    }
    free(mine);
    return status;
}
