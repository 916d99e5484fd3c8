/* Memory that is free in the order of another stream, for a request that would else have to wait: its own stream is ordered
 * behind the frees there, which costs the device some of what it could do at once, and the host nothing. */
#include "memory/ordered.h"

/* The smallest extent of another lane that holds the request, with the point behind its frees. */
static wi_extent *find(const wi_lanes *lanes, const wi_shared *shared, unsigned number, const wi_placement *p,
                       wi_event *event)
{
    wi_extent *best = NULL;
    wi_event point;
    for (unsigned i = 0; i < WI_LANE_PLACES; i++) {
        const wi_lane *lane = lanes->places[i];
        if (!lane || !lane->first || lane->stream.id == p->stream.id)
            continue;
        wi_extent *extent = wi_shared_best_of(shared, number, lane, p->charged, p->alignment);
        if (!extent || (best && best->bytes <= extent->bytes) || !wi_lanes_point(extent, &point))
            continue;
        best = extent;
        *event = point;
    }
    return best;
}

/* Nothing but what is needed is taken. */
static wi_extent *seize(wi_extent *extent, const wi_placement *p, uint64_t slack)
{
    wi_space *space = extent->space;
    uint64_t start = wi_extent_start(extent, p->alignment);
    if (start > extent->offset)
        extent = wi_space_cut(space, extent, start);
    if (p->charged + slack < extent->bytes)
        wi_space_cut(space, extent, start + p->charged);
    wi_space_set(space, extent, WI_BUSY);
    return extent;
}

/* What the device has passed meanwhile is in no lane any more. */
static void put_back(wi_extent *busy)
{
    if (busy->epoch <= busy->lane->passed)
        busy->lane = NULL;
    wi_space_set(busy->space, busy, WI_FREE);
    wi_space_join(busy->space, busy);
}

/* The extent is busy meanwhile. */
static weir_status order_behind(wi_resource *resource, const wi_placement *p, wi_event event)
{
    wi_resource_unlock(resource);
    weir_status status = resource->driver->order(resource->device, p->native, event);
    wi_resource_lock(resource);
    return status;
}

wi_block *wi_ordered_use_behind(wi_resource *resource, wi_shared *shared, unsigned number, wi_placement *p,
                                uint64_t slack)
{
    wi_event event;
    if (wi_extent_pool_reserve(&shared->pool, WI_RECORDS_PER_CHANGE) != WEIR_OK)
        return NULL;
    wi_extent *extent = find(resource->lanes, shared, number, p, &event);
    if (!extent)
        return NULL;
    slack = wi_min(slack, extent->space->most_slack);
    wi_extent *busy = seize(extent, p, slack);
    if (order_behind(resource, p, event) != WEIR_OK) {
        put_back(busy);
        return NULL;
    }
    wi_lanes_trace(resource->lanes, busy, p->stream);
    wi_climbed(p, WEIR_RUNG_ORDER);
    return wi_ordered_use(busy, busy->offset, p, slack);
}
