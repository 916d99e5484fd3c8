/* Compaction: places for a block over several holes and free extents, which are filled by moving chunks.
 *
 * Where a plan would move chunks into one hole, filling several holes is preferred: otherwise memory would wander
 * through the addresses with every large block. Before a refusal, every place between two blocks is tried, with chunks
 * from anywhere, and a chunk that is only partly needed is split. That search may cost as much as it likes. */
#include "memory/mapped/mapped.h"

/* Fit -------------------------------------------------------------------------------------------------------------- */

bool wi_place_can_move(const wi_chunk *chunk, const wi_stream_list *stream_list)
{
    return chunk->occupied == 0 && (stream_list == WI_ANY_STREAM_LIST || wi_chunks_movable(chunk));
}

bool wi_place_reckon(const wi_region *region, const wi_stream_list *stream_list, uint64_t most, wi_place *p)
{
    p->low = p->start / region->granule;
    p->high = (p->end + region->granule - 1) / region->granule;
    p->cost = p->missing = 0;
    for (uint64_t g = p->low, next; g < p->high && p->cost <= most; g = next) {
        const wi_chunk *b = region->chunks[g];
        next = b ? wi_min(b->first + b->count, p->high) : g + 1;
        p->missing += !b;
        p->cost += !b || wi_place_can_move(b, stream_list) ? next - g : 0;
    }
    return p->cost <= most;
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

/* A run: adjacent extents that are holes, or free for the request. The chunks at its ends may also lie under blocks;
 * those stay. */
typedef struct run {
    wi_extent *first, *behind;
    uint64_t start, end;
} run;

/* The first run at or behind the extent; false: there is none. */
static bool compact_next_run(wi_extent *extent, const wi_stream_list *stream_list, run *out)
{
    while (extent && !wi_vacant(extent, stream_list))
        extent = extent->next;
    if (!extent)
        return false;
    *out = (run){extent, extent, extent->offset, extent->offset};
    while (out->behind && wi_vacant(out->behind, stream_list)) {
        out->end = out->behind->offset + out->behind->bytes;
        out->behind = out->behind->next;
    }
    return true;
}

/* A stretch: neighbouring granules of equal cost: 1 for holes and for chunks that could serve elsewhere, or 0. */
typedef struct stretch {
    uint64_t low, high;
    uint64_t before; /* granules before the stretch that cost something */
    bool costs;
} stretch;

/* The search over all runs, and the cheapest place so far. */
typedef struct search {
    const wi_region *region;
    const wi_fit_request *want;
    run in;
    stretch *at;
    size_t count, capacity;
    uint64_t most;
    bool holes_only; /* only holes cost something */
    wi_place *best;
    bool found;
} search;

static stretch *fit_add(search *s, uint64_t low, uint64_t high, bool costs)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 64;
        stretch *more = realloc(s->at, capacity * sizeof *more);
        if (!more)
            return NULL;
        s->at = more;
        s->capacity = capacity;
    }
    uint64_t granule = s->region->granule;
    s->at[s->count] = (stretch){.low = wi_max(low, s->in.start / granule),
                                .high = wi_min(high, (s->in.end + granule - 1) / granule),
                                .costs = costs};
    return &s->at[s->count++];
}

static bool compact_is_inside(const search *s, const wi_chunk *b)
{
    uint64_t granule = s->region->granule;
    return b->first * granule >= s->in.start && (b->first + b->count) * granule <= s->in.end;
}

/* Adds a free extent's granules. A chunk under several extents costs something only if the device is past all of them,
 * so that it could be moved. */
static bool compact_draw_free(search *s, const wi_extent *e, const wi_chunk **last)
{
    uint64_t granule = s->region->granule, end = e->offset + e->bytes;
    bool any = s->want->stream_list == WI_ANY_STREAM_LIST;
    for (uint64_t at = e->offset; at < end; at = ((*last)->first + (*last)->count) * granule) {
        const wi_chunk *b = s->region->chunks[at / granule];
        bool costs = b->occupied == 0 && (any || wi_chunk_has_passed(b, e)) &&
                     (compact_is_inside(s, b) || wi_place_can_move(b, s->want->stream_list));
        if (b == *last)
            s->at[s->count - 1].costs &= costs;
        else if (!fit_add(s, b->first, b->first + b->count, costs))
            return false;
        *last = b;
    }
    return true;
}

static bool compact_draw_extent(search *s, const wi_extent *e, const wi_chunk **last)
{
    uint64_t granule = s->region->granule;
    if (e->kind == WI_FREE && !s->holes_only)
        return compact_draw_free(s, e, last);
    return fit_add(s, e->offset / granule, (e->offset + e->bytes + granule - 1) / granule, e->kind == WI_HOLE);
}

/* Draws the stretches of the run. False: no host memory. */
static bool fit_draw(search *s)
{
    uint64_t cost = 0;
    const wi_chunk *last = NULL;
    s->count = 0;
    for (const wi_extent *e = s->in.first; e != s->in.behind; e = e->next)
        if (!compact_draw_extent(s, e, &last))
            return false;
    for (size_t i = 0; i < s->count; i++) {
        s->at[i].before = cost;
        cost += s->at[i].costs ? s->at[i].high - s->at[i].low : 0;
    }
    return true;
}

/* The first run at or behind the extent that has at least `least` bytes, drawn. Fragmented memory has few of these. */
static bool compact_next_drawn(search *s, wi_extent *from, uint64_t least)
{
    while (compact_next_run(from, s->want->stream_list, &s->in)) {
        if (s->in.end - s->in.start >= least)
            return fit_draw(s);
        from = s->in.behind;
    }
    return false;
}

/* The cost of all granules of the run before this one. */
static uint64_t compact_cost_before(const search *s, uint64_t granule)
{
    size_t low = 0, high = s->count;
    if (high == 0)
        return 0;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(s->at[middle].low <= granule ? &low : &high) = middle;
    }
    const stretch *at = &s->at[low];
    return at->before + (at->costs && granule > at->low ? wi_min(granule, at->high) - at->low : 0);
}

static uint64_t compact_cost(const search *s, uint64_t start, uint64_t end)
{
    uint64_t granule = s->region->granule;
    return compact_cost_before(s, (end + granule - 1) / granule) - compact_cost_before(s, start / granule);
}

/* The cheapest place ----------------------------------------------------------------------------------------------- */

static void compact_try_start(search *s, uint64_t start)
{
    uint64_t end = start + s->want->bytes;
    if (start < s->in.start || end > s->in.end)
        return;
    uint64_t cost = compact_cost(s, start, end);
    if (s->found ? cost < s->best->cost : cost <= s->most) {
        *s->best = (wi_place){.start = start, .end = end, .cost = cost, .first = s->in.first};
        s->found = true;
    }
}

/* Tries the places that begin or end at the edge of a stretch, as near as the alignment allows. The cheapest place is
 * among these places. */
static void compact_try_edge(search *s, uint64_t edge)
{
    uint64_t alignment = s->want->alignment, bytes = s->want->bytes;
    compact_try_start(s, edge & ~(alignment - 1));
    compact_try_start(s, wi_round_up(edge, alignment));
    if (edge < bytes)
        return;
    compact_try_start(s, (edge - bytes) & ~(alignment - 1));
    compact_try_start(s, wi_round_up(edge - bytes, alignment));
}

static void compact_try_run(search *s)
{
    compact_try_edge(s, s->in.start);
    compact_try_edge(s, s->in.end);
    for (size_t i = 1; i < s->count; i++)
        if (s->at[i].costs != s->at[i - 1].costs)
            compact_try_edge(s, s->at[i].low * s->region->granule);
}

static bool compact_find_cheapest(search *s)
{
    for (wi_extent *from = s->region->first; compact_next_drawn(s, from, s->want->bytes); from = s->in.behind)
        compact_try_run(s);
    free(s->at);
    return s->found;
}

bool wi_place_find(const wi_region *region, const wi_fit_request *want, uint64_t most, wi_place *out)
{
    search s = {.region = region, .want = want, .most = most, .best = out};
    return compact_find_cheapest(&s) && wi_place_reckon(region, want->stream_list, most, out);
}

bool wi_place_fill(const wi_region *region, const wi_fit_request *want, uint64_t most, wi_place *out)
{
    search s = {.region = region, .want = want, .most = most, .holes_only = true, .best = out};
    return compact_find_cheapest(&s) && wi_place_reckon(region, want->stream_list, UINT64_MAX, out);
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

/* The largest block in the run if so many granules can be had: the whole run, or the part beside one of its free
 * ends. */
static uint64_t compact_largest_in(const search *s, uint64_t granules)
{
    uint64_t granule = s->region->granule;
    if (s->count == 0 || compact_cost(s, s->in.start, s->in.end) <= granules)
        return s->in.end - s->in.start;
    const stretch *first = &s->at[0], *last = &s->at[s->count - 1];
    uint64_t left = first->costs ? 0 : first->high * granule - s->in.start;
    uint64_t right = last->costs ? 0 : s->in.end - last->low * granule;
    return wi_max(left, right) + granules * granule;
}

static uint64_t fit_largest(const wi_region *region, const wi_stream_list *stream_list, uint64_t granules)
{
    const wi_fit_request want = {.stream_list = stream_list};
    search s = {.region = region, .want = &want};
    uint64_t most = 0;
    for (wi_extent *from = region->first; compact_next_drawn(&s, from, most + 1); from = s.in.behind)
        most = wi_max(most, compact_largest_in(&s, granules));
    free(s.at);
    return most;
}

void wi_place_look(wi_mapped *mapped, const wi_stream_list *stream_list, uint64_t bytes, uint64_t alignment,
                   wi_shortage *shortage)
{
    const wi_fit_request want = {.bytes = bytes, .alignment = alignment, .stream_list = WI_ANY_STREAM_LIST};
    uint64_t held, fresh = wi_chunks_creatable(mapped, &held), needed = UINT64_MAX;
    uint64_t now = wi_chunks_obtainable(mapped, stream_list == WI_ANY_STREAM_LIST),
             there = wi_chunks_obtainable(mapped, true);
    uint64_t longest = 0;
    shortage->largest = shortage->later = 0;
    for (int region_number = 0; region_number < WI_REGIONS; region_number++) {
        const wi_region *region = &mapped->regions[region_number];
        wi_place place;
        longest = wi_max(longest, region->bytes);
        shortage->largest = wi_max(shortage->largest, fit_largest(region, stream_list, now + fresh));
        shortage->later = wi_max(shortage->later, fit_largest(region, WI_ANY_STREAM_LIST, there + fresh));
        if (wi_place_find(region, &want, needed, &place))
            needed = place.cost;
    }
    shortage->held = needed > UINT64_MAX / 2 / mapped->granule ? UINT64_MAX
                     : needed > there                          ? held + (needed - there) * mapped->granule
                                                               : held;
    if (bytes > longest - alignment)
        shortage->cause = WEIR_CAUSE_ADDRESS_RANGE;
    wi_ledger_see(mapped->base.resource.ledger, shortage);
}

/* Compaction ------------------------------------------------------------------------------------------------------- */

/* Granules that can be moved or created in all. */
static uint64_t compact_obtainable(wi_mapped *m)
{
    return wi_chunks_obtainable(m, false) + wi_chunks_creatable(m, NULL);
}

/* A chunk that lies only partly under the place, if its other part is needed to fill the place; *at: where to split
 * it. NULL: none. */
static wi_chunk *compact_chunk_to_split(wi_mapped *m, wi_region *region, const wi_place *p, uint64_t *at)
{
    uint64_t elsewhere = compact_obtainable(m);
    wi_chunk *edge = NULL;
    for (uint64_t g = p->low, next; g < p->high; g = next) {
        wi_chunk *b = region->chunks[g];
        next = b ? b->first + b->count : g + 1;
        if (!b || !wi_place_can_move(b, NULL))
            continue;
        elsewhere -= b->count;
        if (b->first < p->low || next > p->high)
            edge = b;
    }
    if (!edge || elsewhere >= p->missing)
        return NULL;
    *at = edge->first < p->low ? p->low - edge->first : p->high - edge->first;
    return edge;
}

/* The first hole in the range that is being filled; false: none is left. */
static bool compact_next_hole(const wi_region *region, const wi_place *p, wi_map_plan *g)
{
    uint64_t first = p->low, end;
    while (first < p->high && region->chunks[first])
        first++;
    for (end = first; end < p->high && !region->chunks[end];)
        end++;
    g->hole = first * region->granule;
    g->missing = g->room = end - first;
    return end > first;
}

/* Maps memory into one hole of the place, or splits a chunk for it. */
static weir_status compact_fill(wi_mapped *m, wi_map_plan *g, wi_extent **busy)
{
    uint64_t creatable = wi_chunks_creatable(m, NULL);
    m->looks++;
    if (wi_map_plan_supply(m, g, creatable, creatable, true))
        return g->cut ? wi_chunks_cut(m, g->cut, g->cut_at) : wi_chunks_grow(m, g, busy);
    if (!m->spare)
        return WEIR_ERR_BUSY; /* another thread took the memory */
    wi_chunks_drop_spare(m);
    return WEIR_OK;
}

/* Makes the whole place busy, and fills its holes one by one. No other thread can map memory there meanwhile. */
static weir_status compact_build(wi_mapped *m, wi_region *region, const wi_place *p, wi_extent **busy)
{
    uint64_t granule = region->granule;
    wi_map_plan g = {.region = region, .first = p->first, .start = p->start, .exact = true};
    g.low = region->chunks[p->low] ? p->start : p->low * granule;
    g.high = region->chunks[p->high - 1] ? p->end : p->high * granule;
    g.first = *busy = wi_chunks_make_busy(&g);
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && compact_next_hole(region, p, &g))
        status = compact_fill(m, &g, busy);
    if (status != WEIR_OK && *busy)
        wi_chunks_dissolve(m, *busy);
    return status;
}

static weir_status compact_carry_out(wi_mapped *m, wi_region *region, const wi_place *p, wi_extent **busy)
{
    uint64_t at;
    wi_chunk *edge = compact_chunk_to_split(m, region, p, &at);
    if (!edge)
        return compact_build(m, region, p, busy);
    weir_status status = wi_chunks_cut(m, edge, at);
    return status == WEIR_OK ? WEIR_ERR_BUSY : status;
}

weir_status wi_compact(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, uint64_t *start,
                       wi_extent **busy)
{
    wi_place place = {0};
    if (!wi_place_find(region, want, compact_obtainable(mapped), &place))
        return WEIR_ERR_NO_ROOM;
    *start = place.start;
    return compact_carry_out(mapped, region, &place, busy);
}

weir_status wi_compact_fill(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, wi_map_plan *plan,
                            wi_extent **busy)
{
    uint64_t most = wi_growth_fill(plan->missing);
    bool moves = plan->taken_count > 0 || plan->cut, short_of = wi_chunks_creatable(mapped, NULL) < plan->missing;
    wi_place place = {0};
    if (!moves || !short_of || !wi_place_fill(region, want, most, &place) || place.cost > compact_obtainable(mapped))
        return WEIR_ERR_NO_ROOM;
    weir_status status = compact_carry_out(mapped, region, &place, busy);
    if (status == WEIR_OK)
        *plan = (wi_map_plan){.start = place.start,
                              .taken_count = 1 + place.missing / wi_map_plan_chunk(mapped, region->number, 0)};
    return status == WEIR_ERR_NO_ROOM ? WEIR_ERR_BUSY : status;
}

weir_status wi_compact_behind(wi_mapped *mapped, const wi_extent *used, uint64_t more, wi_extent **busy)
{
    uint64_t start = used->offset + used->bytes, high = start;
    wi_place place = {.start = start, .end = start + more, .first = used->next};
    for (const wi_extent *e = used->next; e && wi_vacant(e, NULL); e = e->next)
        high = e->offset + e->bytes;
    if (high < place.end || !wi_place_reckon(used->region, NULL, compact_obtainable(mapped), &place))
        return WEIR_ERR_NO_ROOM;
    return compact_carry_out(mapped, used->region, &place, busy);
}
