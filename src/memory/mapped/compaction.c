/* Fit and compaction: places for a block over several holes.
 *
 * Where chunks have to be moved, several holes are filled rather than one; else memory would wander through the
 * addresses with every large block that comes and goes. Before a refusal, any place between two blocks is tried,
 * with chunks from anywhere; a chunk that lies half under the place is split. That search may cost as much as it
 * likes. */
#include "memory/mapped/mapped.h"

/* Fit -------------------------------------------------------------------------------------------------------------- */

/* Places over free extents and holes, and what they cost. */

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

/* A run: adjacent vacant extents. At its ends it may share chunks with blocks; those chunks stay. */
typedef struct run {
    wi_extent *first, *behind;
    uint64_t start, end;
} run;

/* The first run at or behind the extent; false: there is none. */
static bool next_run(wi_extent *extent, const wi_stream_list *stream_list, run *out)
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

/* A stretch of granules that all cost something (holes, or chunks that could be moved elsewhere) or all cost
 * nothing. */
typedef struct stretch {
    uint64_t low, high;
    uint64_t before; /* that cost something, in front of it */
    bool costs;
} stretch;

/* The search over all runs, with the cheapest place so far. */
typedef struct search {
    const wi_region *region;
    const wi_fit_request *want;
    run in;
    stretch *at;
    size_t count, capacity;
    uint64_t most;
    bool holes_only; /* what could be moved costs nothing */
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

static bool is_inside(const search *s, const wi_chunk *b)
{
    uint64_t granule = s->region->granule;
    return b->first * granule >= s->in.start && (b->first + b->count) * granule <= s->in.end;
}

/* A chunk under several extents can be moved if the device is past all of them. */
static bool draw_free(search *s, const wi_extent *e, const wi_chunk **last)
{
    uint64_t granule = s->region->granule, end = e->offset + e->bytes;
    bool unpassed = e->stream_list && s->want->stream_list != WI_ANY_STREAM_LIST;
    for (uint64_t at = e->offset; at < end; at = ((*last)->first + (*last)->count) * granule) {
        const wi_chunk *b = s->region->chunks[at / granule];
        bool costs = b->occupied == 0 && !unpassed && (is_inside(s, b) || wi_place_can_move(b, s->want->stream_list));
        if (b == *last)
            s->at[s->count - 1].costs &= costs;
        else if (!fit_add(s, b->first, b->first + b->count, costs))
            return false;
        *last = b;
    }
    return true;
}

static bool draw_extent(search *s, const wi_extent *e, const wi_chunk **last)
{
    uint64_t granule = s->region->granule;
    if (e->kind == WI_FREE && !s->holes_only)
        return draw_free(s, e, last);
    return fit_add(s, e->offset / granule, (e->offset + e->bytes + granule - 1) / granule, e->kind == WI_HOLE);
}

/* False without host memory. */
static bool fit_draw(search *s)
{
    uint64_t cost = 0;
    const wi_chunk *last = NULL;
    s->count = 0;
    for (const wi_extent *e = s->in.first; e != s->in.behind; e = e->next)
        if (!draw_extent(s, e, &last))
            return false;
    for (size_t i = 0; i < s->count; i++) {
        s->at[i].before = cost;
        cost += s->at[i].costs ? s->at[i].high - s->at[i].low : 0;
    }
    return true;
}

/* The first run at or behind the extent with at least so many bytes, with its stretches. Fragmented memory has few. */
static bool next_drawn(search *s, wi_extent *from, uint64_t least)
{
    while (next_run(from, s->want->stream_list, &s->in)) {
        if (s->in.end - s->in.start >= least)
            return fit_draw(s);
        from = s->in.behind;
    }
    return false;
}

/* The cost of everything before the granule. */
static uint64_t cost_before(const search *s, uint64_t granule)
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

static uint64_t cost_of(const search *s, uint64_t start, uint64_t end)
{
    uint64_t granule = s->region->granule;
    return cost_before(s, (end + granule - 1) / granule) - cost_before(s, start / granule);
}

/* The cheapest place ----------------------------------------------------------------------------------------------- */

static void try_start(search *s, uint64_t start)
{
    uint64_t end = start + s->want->bytes;
    if (start < s->in.start || end > s->in.end)
        return;
    uint64_t cost = cost_of(s, start, end);
    if (s->found ? cost < s->best->cost : cost <= s->most) {
        *s->best = (wi_place){.start = start, .end = end, .cost = cost, .first = s->in.first};
        s->found = true;
    }
}

/* Tries places that begin or end at the edge of a stretch, as near as the alignment allows. Only those can be
 * cheapest. */
static void try_edge(search *s, uint64_t edge)
{
    uint64_t alignment = s->want->alignment, bytes = s->want->bytes;
    try_start(s, edge & ~(alignment - 1));
    try_start(s, wi_round_up(edge, alignment));
    if (edge < bytes)
        return;
    try_start(s, (edge - bytes) & ~(alignment - 1));
    try_start(s, wi_round_up(edge - bytes, alignment));
}

static void try_run(search *s)
{
    try_edge(s, s->in.start);
    try_edge(s, s->in.end);
    for (size_t i = 1; i < s->count; i++)
        if (s->at[i].costs != s->at[i - 1].costs)
            try_edge(s, s->at[i].low * s->region->granule);
}

static bool find_cheapest(search *s)
{
    for (wi_extent *from = s->region->first; next_drawn(s, from, s->want->bytes); from = s->in.behind)
        try_run(s);
    free(s->at);
    return s->found;
}

bool wi_place_find(const wi_region *region, const wi_fit_request *want, uint64_t most, wi_place *out)
{
    search s = {.region = region, .want = want, .most = most, .best = out};
    return find_cheapest(&s) && wi_place_reckon(region, want->stream_list, most, out);
}

bool wi_place_fill(const wi_region *region, const wi_fit_request *want, uint64_t most, wi_place *out)
{
    search s = {.region = region, .want = want, .most = most, .holes_only = true, .best = out};
    return find_cheapest(&s) && wi_place_reckon(region, want->stream_list, UINT64_MAX, out);
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

/* The largest block in the run with so many granules of memory: all of the run, or what lies beside a free end. */
static uint64_t largest_in(const search *s, uint64_t granules)
{
    uint64_t granule = s->region->granule;
    if (s->count == 0 || cost_of(s, s->in.start, s->in.end) <= granules)
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
    for (wi_extent *from = region->first; next_drawn(&s, from, most + 1); from = s.in.behind)
        most = wi_max(most, largest_in(&s, granules));
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
}

/* Compaction ------------------------------------------------------------------------------------------------------- */

/* Granules that can be moved or created. */
static uint64_t compact_obtainable(wi_mapped *m)
{
    return wi_chunks_obtainable(m, false) + wi_chunks_creatable(m, NULL);
}

/* A chunk that lies half under the place while its other half is needed, and where to split it; NULL: none. */
static wi_chunk *to_be_cut(wi_mapped *m, wi_region *region, const wi_place *p, uint64_t *at)
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

/* The first hole of the busy range; false: there is none. */
static bool next_hole(const wi_region *region, const wi_place *p, wi_map_plan *g)
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

/* Maps memory into one hole of the place, or makes that possible. */
static weir_status compact_fill(wi_mapped *m, wi_map_plan *g, wi_extent **busy)
{
    uint64_t creatable = wi_chunks_creatable(m, NULL);
    m->looks++;
    if (wi_map_plan_supply(m, g, creatable, creatable, true))
        return g->cut ? wi_chunks_cut(m, g->cut, g->cut_at) : wi_chunks_grow(m, g, busy);
    if (!m->spare)
        return WEIR_ERR_BUSY; /* others have it */
    wi_chunks_drop_spare(m);
    return WEIR_OK;
}

/* The whole place becomes busy at once: memory in one hole could not be told from its neighbours later. */
static weir_status compact_build(wi_mapped *m, wi_region *region, const wi_place *p, wi_extent **busy)
{
    uint64_t granule = region->granule;
    wi_map_plan g = {.region = region, .first = p->first, .start = p->start, .exact = true};
    g.low = region->chunks[p->low] ? p->start : p->low * granule;
    g.high = region->chunks[p->high - 1] ? p->end : p->high * granule;
    g.first = *busy = wi_chunks_make_busy(&g);
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && next_hole(region, p, &g))
        status = compact_fill(m, &g, busy);
    if (status != WEIR_OK && *busy)
        wi_chunks_dissolve(m, *busy);
    return status;
}

static weir_status carry_out(wi_mapped *m, wi_region *region, const wi_place *p, wi_extent **busy)
{
    uint64_t at;
    wi_chunk *edge = to_be_cut(m, region, p, &at);
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
    return carry_out(mapped, region, &place, busy);
}

weir_status wi_compact_fill(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, wi_map_plan *plan,
                            wi_extent **busy)
{
    uint64_t most = wi_growth_fill(plan->missing);
    bool moves = plan->taken_count > 0 || plan->cut, short_of = wi_chunks_creatable(mapped, NULL) < plan->missing;
    wi_place place = {0};
    if (!moves || !short_of || !wi_place_fill(region, want, most, &place) || place.cost > compact_obtainable(mapped))
        return WEIR_ERR_NO_ROOM;
    weir_status status = carry_out(mapped, region, &place, busy);
    if (status == WEIR_OK)
        *plan = (wi_map_plan){.start = place.start, .taken_count = 1 + place.missing / wi_map_plan_chunk(mapped, 0)};
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
    return carry_out(mapped, used->region, &place, busy);
}
