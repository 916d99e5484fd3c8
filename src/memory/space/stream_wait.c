/* Memory that is free in the order of other streams, for a request that would else have to wait: its own stream is ordered
 * behind the frees there, which costs the device some of what it could do at once, and the host nothing. */
#include "memory/space/stream_order.h"

/* So many free extents side by side, from the first on, in which the block is to begin at `start`. */
typedef struct run {
    wi_extent *first;
    size_t pieces;
    uint64_t start;
} run;

static uint64_t ordered_end_of(const wi_extent *extent)
{
    return extent->offset + extent->bytes;
}

/* Finding ---------------------------------------------------------------------------------------------------------- */

static bool is_others(const wi_extent *extent, const wi_placement *p)
{
    return extent->stream_list && extent->stream_list->stream.id != p->stream.id;
}

/* The smallest extent of another stream list that holds the request. */
static bool find_one(const wi_stream_lists *stream_lists, const wi_shared *shared, unsigned number,
                     const wi_placement *p, run *out)
{
    wi_extent *best = NULL;
    wi_event ignored;
    for (const wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));) {
        if (!stream_list->first || stream_list->stream.id == p->stream.id)
            continue;
        wi_extent *extent = wi_shared_best_of(shared, number, stream_list, p->charged, p->alignment);
        if (extent && (!best || extent->bytes < best->bytes) && wi_stream_lists_point(extent, &ignored))
            best = extent;
    }
    if (best)
        *out = (run){best, 1, wi_extent_start(best, p->alignment)};
    return best != NULL;
}

/* A free extent to the left of which nothing is: neighbours differ in their stream lists, so that one of two is in a stream list. */
static wi_extent *ordered_leftmost(wi_extent *extent)
{
    wi_extent *left = extent->previous;
    if (!left || left->kind != WI_FREE)
        return extent;
    bool first = !left->stream_list && !(left->previous && left->previous->kind == WI_FREE);
    return first ? left : NULL;
}

/* Several side by side from there on that hold the request together, but for those that nobody could come behind now. */
static bool fits_from(wi_extent *first, const wi_placement *p, run *out)
{
    wi_event ignored;
    *out = (run){0};
    for (wi_extent *e = first; e && e->kind == WI_FREE; e = e->next) {
        if (out->pieces == 0)
            *out = (run){.first = e, .start = wi_extent_start(e, p->alignment)};
        bool usable = !is_others(e, p) || wi_stream_lists_point(e, &ignored);
        out->pieces = usable && out->start < ordered_end_of(e) ? out->pieces + 1 : 0;
        if (out->pieces > 0 && out->start + p->charged <= ordered_end_of(e))
            return true;
    }
    return false;
}

/* The fewest of them. */
static bool find_several(const wi_stream_lists *stream_lists, unsigned number, const wi_placement *p, run *out)
{
    bool found = false;
    run r;
    *out = (run){0};
    for (const wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));)
        for (wi_extent *e = stream_list->first; e; e = e->lane_next) {
            wi_extent *first = e->region->number == number ? ordered_leftmost(e) : NULL;
            if (first && fits_from(first, p, &r) && (!found || r.pieces < out->pieces)) {
                *out = r;
                found = true;
            }
        }
    return found;
}

/* Taking ----------------------------------------------------------------------------------------------------------- */

/* Nothing but what is needed is taken. */
static void ordered_seize(run *r, const wi_placement *p, uint64_t slack)
{
    wi_region *region = r->first->region;
    if (r->start > r->first->offset)
        r->first = wi_region_cut(region, r->first, r->start);
    wi_extent *e = r->first;
    for (size_t i = 0; i < r->pieces; i++, e = e->next) {
        if (ordered_end_of(e) > r->start + p->charged + slack)
            wi_region_cut(region, e, r->start + p->charged);
        wi_region_set(region, e, WI_BUSY);
    }
}

static void ordered_put_back(const run *r)
{
    wi_extent *e = r->first, *next;
    for (size_t i = 0; i < r->pieces; i++, e = next) {
        next = e->next;
        wi_region_set(e->region, e, WI_FREE);
        wi_region_join(e->region, e);
    }
}

/* The points to come behind, one a stream; NULL without host memory. */
static wi_event *points_of(const run *r, const wi_placement *p, size_t *count)
{
    wi_event *points = malloc(r->pieces * sizeof *points), point;
    const wi_extent *e = r->first;
    *count = 0;
    for (size_t i = 0; points && i < r->pieces; i++, e = e->next) {
        if (!is_others(e, p) || !wi_stream_lists_point(e, &point))
            continue;
        size_t k = 0;
        while (k < *count && points[k].stream != point.stream)
            k++;
        if (k == *count)
            points[(*count)++] = point;
        points[k].sequence = wi_max(points[k].sequence, point.sequence);
    }
    return points;
}

/* The run is busy meanwhile. */
static weir_status order_behind(wi_resource *resource, const wi_placement *p, const wi_event *points, size_t count)
{
    weir_status status = WEIR_OK;
    wi_resource_unlock(resource);
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = resource->driver->order(resource->device, p->native, points[i]);
    wi_resource_lock(resource);
    return status;
}

/* One extent, whose order is that of the placement's stream now. */
static wi_extent *ordered_unite(const wi_stream_lists *stream_lists, const run *r, const wi_placement *p)
{
    wi_extent *e = r->first;
    for (size_t i = 0; i < r->pieces; i++, e = e->next) {
        if (e->stream_list)
            wi_stream_lists_trace(stream_lists, e, p->stream);
        e->stream_list = NULL;
    }
    for (size_t i = 1; i < r->pieces; i++)
        wi_region_merge_busy(r->first->region, r->first);
    return r->first;
}

static wi_block *ordered_take(wi_resource *resource, run *r, wi_placement *p, uint64_t slack)
{
    size_t count;
    slack = wi_min(slack, r->first->region->most_slack);
    ordered_seize(r, p, slack);
    wi_event *points = points_of(r, p, &count);
    bool ordered = points && order_behind(resource, p, points, count) == WEIR_OK;
    free(points);
    if (!ordered) {
        ordered_put_back(r);
        return NULL;
    }
    wi_climbed(p, count > 0 ? WEIR_RUNG_ORDER : WEIR_RUNG_FIT);
    wi_block *block = wi_ordered_use(ordered_unite(resource->stream_lists, r, p), r->start, p, slack);
    p->ordered = true;
    wi_store(block->ordered, true);
    return block;
}

wi_block *wi_ordered_use_behind(wi_resource *resource, wi_shared *shared, unsigned number, wi_placement *p,
                                uint64_t slack)
{
    run r;
    if (wi_extent_pool_reserve(&shared->pool, WI_RECORDS_PER_CHANGE) != WEIR_OK)
        return NULL;
    bool found =
        find_one(resource->stream_lists, shared, number, p, &r) || find_several(resource->stream_lists, number, p, &r);
    return found ? ordered_take(resource, &r, p, slack) : NULL;
}
