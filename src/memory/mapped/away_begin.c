/* Away from the start: addresses, and a block over them, where the device has no room. The caller shows memory of the host's there. */
#include "memory/mapped/away_parts.h"

#include <stdlib.h>
#include <string.h>

/* The smallest hole that has room; NULL: there is none. With the lock held. */
static wi_extent *begin_find_hole(const wi_region *region, uint64_t bytes, uint64_t alignment)
{
    wi_extent *best = NULL;
    for (wi_extent *e = region->holes.first; e; e = e->list_next) {
        uint64_t start = wi_extent_start(e, alignment);
        bool fits = start < extent_end(e) && extent_end(e) - start >= bytes;
        if (fits && (!best || e->bytes < best->bytes))
            best = e;
    }
    return best;
}

/* Cuts the addresses into pieces as long as new chunks would be. */
static weir_status begin_list(wi_mapped *m, wi_region *region, uint64_t first, uint64_t count, uint64_t charged,
                              wi_claim *out)
{
    uint64_t usual = wi_map_plan_chunk(m, WI_LONG_LIVED, count);
    size_t room = 0;
    char *end = region->base + first * region->granule + charged;
    for (uint64_t done = 0, step; done < count; done += step) {
        step = wi_growth_step(m->granule, usual, count - done);
        weir_status status = wi_away_room((void **)&out->pieces, out->count, &room, sizeof *out->pieces);
        if (status != WEIR_OK)
            return status;
        wi_piece p = {.region = region, .first = first + done, .count = step, .whole = true};
        p.low = region->base + piece_start(&p);
        p.high = p.low + wi_min(step * region->granule, (uint64_t)(end - p.low));
        out->pieces[out->count++] = p;
    }
    return WEIR_OK;
}

weir_status wi_away_claim(wi_base *base, const wi_placement *p, wi_claim *out)
{
    wi_mapped *m = away_mapped(base);
    wi_region *region = &m->regions[WI_LONG_LIVED];
    uint64_t bytes = wi_round_up(p->charged, m->granule), alignment = wi_max(p->alignment, m->granule);
    *out = (wi_claim){0};
    wi_base_lock(base);
    weir_status status = wi_extent_pool_reserve(&m->shared.pool, WI_RECORDS_PER_CHANGE);
    wi_extent *hole = status == WEIR_OK ? begin_find_hole(region, bytes, alignment) : NULL;
    if (status == WEIR_OK && !hole)
        status = weir_fail(WEIR_ERR_OUT_OF_MEMORY, "no addresses are left for %llu bytes", (unsigned long long)bytes);
    if (status == WEIR_OK) {
        uint64_t start = wi_extent_start(hole, alignment);
        status = begin_list(m, region, start / m->granule, bytes / m->granule, p->charged, out);
        wi_map_plan plan = {.region = region, .first = hole, .low = start, .high = start + bytes};
        if (status == WEIR_OK)
            (void)wi_chunks_make_busy(&plan);
    }
    wi_base_unlock(base);
    if (status != WEIR_OK)
        wi_away_claim_end(out);
    return status;
}

void wi_away_claim_end(wi_claim *claim)
{
    free(claim->pieces);
    *claim = (wi_claim){0};
}

void wi_away_unclaim(wi_base *base, const wi_claim *claim)
{
    wi_region *region = claim->pieces[0].region;
    wi_base_lock(base);
    wi_chunks_dissolve(away_mapped(base), wi_region_at(region, piece_start(&claim->pieces[0])));
    wi_base_unlock(base);
}

/* Puts the pieces among those of the record, in the order of their addresses. There is space. */
static void begin_insert(wi_away *away, const wi_claim *claim)
{
    const wi_piece *p = &claim->pieces[0];
    size_t at = away_from(away, p->region, piece_start(p));
    memmove(&away->pieces[at + claim->count], &away->pieces[at], (away->piece_count - at) * sizeof *p);
    memcpy(&away->pieces[at], p, claim->count * sizeof *p);
    away->piece_count += claim->count;
}

/* Makes the block, and notes that all of it is away and shown. */
static wi_block *begin_block(wi_mapped *m, wi_away *away, const wi_claim *claim, wi_placement *p)
{
    wi_region *region = claim->pieces[0].region;
    uint64_t start = piece_start(&claim->pieces[0]);
    wi_extent *busy = wi_region_at(region, start);
    if (start + p->charged < extent_end(busy)) /* the rest has no memory of the device's either, and stays busy */
        (void)wi_region_cut(region, busy, start + p->charged);
    wi_block *block = wi_ordered_use(busy, start, p, 0);
    block->lent = 0;
    block->shown = true;
    atomic_fetch_add(&away->shown, p->charged);
    away->bytes += p->charged;
    m->away_bytes += p->charged;
    return block;
}

weir_status wi_away_begin(wi_base *base, wi_away *away, const wi_claim *claim, wi_placement *p, weir_block *out)
{
    wi_mapped *m = away_mapped(base);
    wi_base_lock(base);
    weir_status status = wi_extent_pool_reserve(&m->shared.pool, WI_RECORDS_PER_CHANGE);
    while (status == WEIR_OK && away->piece_room < away->piece_count + claim->count)
        status = wi_away_room((void **)&away->pieces, away->piece_room, &away->piece_room, sizeof *away->pieces);
    if (status == WEIR_OK) {
        if (away->piece_count == 0) {
            away->next = m->aways;
            m->aways = away;
        }
        begin_insert(away, claim);
        wi_block *block = begin_block(m, away, claim, p);
        *out = (weir_block){block->pointer, wi_block_generation(block)};
        wi_ledger_begin_away(base->resource.ledger, block);
    }
    wi_base_unlock(base);
    return status;
}
