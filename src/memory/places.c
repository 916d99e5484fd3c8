/* Where a block could stand: in free memory and holes that lie side by side, once handles are under all of it. */
#include "memory/mapped.h"

/* A run: neighbouring free extents and holes. Its granules are whole, or shared with a block at one of its ends and then
 * mapped already. Law of placing: what stands in a run needs a handle, had or to be got, for each whole granule. */
typedef struct run {
    wi_extent *first;
    uint64_t start, end;
} run;

/* Free for who allocates in that lane. */
static bool vacant(const wi_extent *extent, const wi_lane *lane)
{
    return extent->kind == WI_HOLE ||
           (extent->kind == WI_FREE && (!extent->lane || extent->lane == lane || lane == WI_ANY_LANE));
}

static run run_from(wi_extent *first, const wi_lane *lane)
{
    run r = {first, first->offset, first->offset};
    for (const wi_extent *e = first; e && vacant(e, lane); e = e->next)
        r.end = e->offset + e->bytes;
    return r;
}

/* The first run at or behind the extent; false when there is none. */
static bool next_run(wi_extent *extent, const wi_lane *lane, run *out)
{
    while (extent && !vacant(extent, lane))
        extent = extent->next;
    if (extent)
        *out = run_from(extent, lane);
    return extent != NULL;
}

static wi_extent *behind(const run *r, const wi_lane *lane)
{
    wi_extent *e = r->first;
    while (e && vacant(e, lane))
        e = e->next;
    return e;
}

/* Whole granules of a run from `start` to `end` that [low, high) touches. */
static uint64_t whole_granules(uint64_t start, uint64_t end, uint64_t low, uint64_t high, uint64_t granule)
{
    uint64_t first = wi_max(low / granule, (start + granule - 1) / granule);
    uint64_t last = wi_min((high + granule - 1) / granule, end / granule);
    return last > first ? last - first : 0;
}

static uint64_t to_granule(const wi_space *space, uint64_t offset, bool up)
{
    if (offset % space->granule == 0 || space->mapped[offset / space->granule])
        return offset;
    return up ? wi_round_up(offset, space->granule) : offset & ~(space->granule - 1);
}

/* The block from `start` on, within a run that begins at `extent`; granules without memory are taken in as a whole, so that
 * holes keep their bounds. */
static wi_place place_in(const wi_space *space, wi_extent *extent, uint64_t start, uint64_t bytes)
{
    wi_place at = {
        .start = start, .low = to_granule(space, start, false), .high = to_granule(space, start + bytes, true)};
    while (extent->offset + extent->bytes <= at.low)
        extent = extent->next;
    at.extent = extent;
    return at;
}

/* The place that needs the fewest new handles, with a hole in it. Looks at the holes alone, which are few. */
static bool cheapest(const wi_space *space, const wi_lane *lane, uint64_t bytes, uint64_t alignment, wi_place *best)
{
    uint64_t granule = space->granule, best_cost = UINT64_MAX;
    for (wi_extent *hole = space->holes.first; hole; hole = hole->list_next) {
        wi_extent *left = hole->previous && vacant(hole->previous, lane) ? hole->previous : hole;
        const wi_extent *right = hole->next && vacant(hole->next, lane) ? hole->next : hole;
        uint64_t hole_end = hole->offset + hole->bytes, end = right->offset + right->bytes;
        uint64_t start = wi_round_up(left->offset, alignment);
        if (start >= hole_end || bytes > end - start)
            continue;
        uint64_t cost = whole_granules(hole->offset, hole_end, start, start + bytes, granule);
        if (cost > best_cost || (cost == best_cost && start > best->start))
            continue;
        best_cost = cost;
        *best = place_in(space, left, start, bytes);
        best->whole = whole_granules(left->offset, end, start, start + bytes, granule);
    }
    return best_cost != UINT64_MAX;
}

/* The place with the fewest whole granules: at one end of a run, where it shares most with what stands there. */
static bool tightest(const wi_space *space, const wi_lane *lane, uint64_t bytes, uint64_t alignment, wi_place *best)
{
    bool found = false;
    run r;
    for (wi_extent *from = space->first; next_run(from, lane, &r); from = behind(&r, lane)) {
        if (r.end - r.start < bytes)
            continue;
        uint64_t starts[2] = {wi_round_up(r.start, alignment), (r.end - bytes) & ~(alignment - 1)};
        for (int i = 0; i < 2; i++) {
            if (starts[i] < r.start || starts[i] + bytes > r.end)
                continue;
            uint64_t whole = whole_granules(r.start, r.end, starts[i], starts[i] + bytes, space->granule);
            if (found && whole >= best->whole)
                continue;
            *best = place_in(space, r.first, starts[i], bytes);
            best->whole = whole;
            found = true;
        }
    }
    return found;
}

bool wi_place_find(const wi_space *space, const wi_lane *lane, uint64_t bytes, uint64_t alignment, uint64_t handles,
                   wi_place *out)
{
    if (cheapest(space, lane, bytes, alignment, out) && out->whole <= handles)
        return true;
    return tightest(space, lane, bytes, alignment, out) && out->whole <= handles;
}

bool wi_place_apart(const wi_space *space, uint64_t bytes, uint64_t alignment, uint64_t handles, wi_place *out)
{
    uint64_t granule = space->granule;
    for (wi_extent *hole = space->holes.first; hole; hole = hole->list_next) {
        uint64_t start = wi_round_up(hole->offset + (hole->previous ? granule : 0), alignment);
        uint64_t high = wi_round_up(start + bytes, granule);
        if (high + granule > hole->offset + hole->bytes)
            continue;
        start = (high - bytes) & ~(alignment - 1); /* the end at the edge, or as near as the alignment lets it be */
        uint64_t low = start & ~(granule - 1);
        *out = (wi_place){.extent = hole, .start = start, .low = low, .high = high, .whole = (high - low) / granule};
        return out->whole <= handles;
    }
    return false;
}

bool wi_place_behind(const wi_space *space, const wi_lane *lane, wi_extent *used, uint64_t more, wi_place *out)
{
    if (!used->next || !vacant(used->next, lane))
        return false;
    run r = run_from(used->next, lane);
    if (more > r.end - r.start)
        return false;
    *out = place_in(space, r.first, r.start, more);
    out->whole = whole_granules(r.start, r.end, r.start, r.start + more, space->granule);
    return true;
}

uint64_t wi_place_largest(const wi_space *space, uint64_t handles)
{
    const wi_lane *lane = WI_ANY_LANE;
    uint64_t largest = 0, granule = space->granule;
    run r;
    for (wi_extent *from = space->first; next_run(from, lane, &r); from = behind(&r, lane)) {
        uint64_t whole = whole_granules(r.start, r.end, r.start, r.end, granule), bytes = r.end - r.start;
        if (whole > handles) { /* what is shared at one end, and all handles */
            uint64_t left = wi_round_up(r.start, granule) - r.start, right = r.end % granule;
            bytes = wi_max(left, right) + handles * granule;
        }
        largest = wi_max(largest, bytes);
    }
    return largest;
}

uint64_t wi_place_handles(const wi_space *space, uint64_t bytes, uint64_t alignment)
{
    wi_place at;
    return tightest(space, WI_ANY_LANE, bytes, alignment, &at) ? at.whole : UINT64_MAX;
}
