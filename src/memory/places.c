/* What could be had: blocks in free memory and holes that lie side by side, once handles are under all of it. */
#include "memory/mapped.h"

/* A run: neighbouring free extents and holes. Its granules are whole, or shared with a block at one of its ends and then
 * mapped already. Law of placing: what stands in a run needs memory, had or to be got, for each whole granule. */
typedef struct run {
    wi_extent *first, *behind;
    uint64_t start, end;
} run;

/* The first run at or behind the extent; false when there is none. */
static bool next_run(wi_extent *extent, const wi_lane *lane, run *out)
{
    while (extent && !wi_vacant(extent, lane))
        extent = extent->next;
    if (!extent)
        return false;
    *out = (run){extent, extent, extent->offset, extent->offset};
    while (out->behind && wi_vacant(out->behind, lane)) {
        out->end = out->behind->offset + out->behind->bytes;
        out->behind = out->behind->next;
    }
    return true;
}

/* Whole granules of a run that [low, high) touches. */
static uint64_t whole_granules(const run *r, uint64_t low, uint64_t high, uint64_t granule)
{
    uint64_t first = wi_max(low / granule, (r->start + granule - 1) / granule);
    uint64_t last = wi_min((high + granule - 1) / granule, r->end / granule);
    return last > first ? last - first : 0;
}

/* The largest block that could stand somewhere with `granules` more of memory put there. */
static uint64_t largest(const wi_space *space, const wi_lane *lane, uint64_t granules)
{
    uint64_t most = 0, granule = space->granule;
    run r;
    for (wi_extent *from = space->first; next_run(from, lane, &r); from = r.behind) {
        uint64_t whole = whole_granules(&r, r.start, r.end, granule), bytes = r.end - r.start;
        if (whole > granules) { /* what is shared at one end, and all that can be had */
            uint64_t left = wi_round_up(r.start, granule) - r.start, right = r.end % granule;
            bytes = wi_max(left, right) + granules * granule;
        }
        most = wi_max(most, bytes);
    }
    return most;
}

/* The fewest granules of memory with which `bytes` could stand somewhere once everything freed has passed; UINT64_MAX:
 * nowhere. At one end of a run a block shares most with what stands there. */
static uint64_t granules_for(const wi_space *space, uint64_t bytes, uint64_t alignment)
{
    uint64_t fewest = UINT64_MAX;
    run r;
    for (wi_extent *from = space->first; next_run(from, WI_ANY_LANE, &r); from = r.behind) {
        if (r.end - r.start < bytes)
            continue;
        uint64_t starts[2] = {wi_round_up(r.start, alignment), (r.end - bytes) & ~(alignment - 1)};
        for (int i = 0; i < 2; i++)
            if (starts[i] >= r.start && starts[i] + bytes <= r.end)
                fewest = wi_min(fewest, whole_granules(&r, starts[i], starts[i] + bytes, space->granule));
    }
    return fewest;
}

void wi_place_look(wi_mapped *mapped, const wi_space *space, const wi_lane *lane, uint64_t bytes, uint64_t alignment,
                   bool refused, wi_shortage *shortage)
{
    uint64_t held, creatable = wi_handles_creatable(mapped, &held), fresh = refused ? 0 : creatable;
    uint64_t now = wi_handles_obtainable(mapped, lane == WI_ANY_LANE), there = wi_handles_obtainable(mapped, true);
    uint64_t needed = granules_for(space, bytes, alignment);
    shortage->largest = largest(space, lane, now + fresh);
    shortage->later = largest(space, WI_ANY_LANE, there + fresh);
    shortage->held = needed > UINT64_MAX / 2 / mapped->granule ? UINT64_MAX
                     : needed > there                          ? held + (needed - there) * mapped->granule
                                                               : held;
}
