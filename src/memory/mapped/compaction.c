/* Places over several holes. Where handles have to be moved, holes are filled: else memory would wander through the addresses
 * with every large block that comes and goes. And the last look before a refusal: any place between two blocks, over several
 * holes and what is free between them, and whatever handles are elsewhere, cut where they lie half under the place. It may cost
 * as much as it likes. */
#include "memory/mapped/mapped.h"

/* Granules that can be put somewhere. */
static uint64_t compact_obtainable(wi_mapped *m)
{
    return wi_chunks_obtainable(m, false) + wi_chunks_creatable(m, NULL);
}

/* A handle that lies half under the place, while the other half is needed; where it is to be cut. NULL: there is none. */
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

/* The first hole of the busy range, as far as it goes; false: there is none. */
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

/* Puts memory under one hole of the place, or makes that possible. */
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

/* All of the place at once: what was put under one hole could not be told from its neighbours' any more. */
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
    wi_place place;
    if (!wi_place_find(region, want, compact_obtainable(mapped), &place))
        return WEIR_ERR_NO_ROOM;
    *start = place.start;
    return carry_out(mapped, region, &place, busy);
}

weir_status wi_compact_fill(wi_mapped *mapped, wi_region *region, const wi_fit_request *want, wi_map_plan *plan,
                            wi_extent **busy)
{
    uint64_t most = plan->missing + plan->missing / 4; /* replayed traces moved least with a quarter more */
    bool moves = plan->taken_count > 0 || plan->cut, short_of = wi_chunks_creatable(mapped, NULL) < plan->missing;
    wi_place place;
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
