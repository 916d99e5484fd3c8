/* Seals: chunks that the device's work may read and not write, while a copy of their contents is trusted.
 *
 * A chunk is sealed under a resume, and opened by a declared write, by the free of a block on it, and when it leaves. So a
 * sealed chunk holds blocks of one account and nothing else: memory of a sealed chunk passes to nobody. */
#include "memory/mapped/away_parts.h"

/* Whether nothing lies on the piece but blocks of the account, which are acquired. */
static bool seal_fits(const wi_away *away, const wi_piece *p)
{
    EACH_EXTENT (e, p)
        if (e->kind != WI_USED || !e->block.leaving || wi_load(e->block.account) != away->account)
            return false;
    return true;
}

/* With the lock held, so that nobody takes the chunk away meanwhile. On a lost device nothing writes any more, and frees go
 * through. */
static weir_status seal_protect(wi_mapped *m, wi_chunk *chunk, bool writable)
{
    const wi_resource *r = &m->base.resource;
    weir_status status = r->driver->protect(r->device, chunk->region->base + chunk->first * m->granule,
                                            chunk->count * m->granule, writable);
    if (status != WEIR_OK && (status != WEIR_ERR_DEVICE_LOST || !writable))
        return status;
    chunk->sealed = !writable;
    chunk->written |= writable;
    atomic_fetch_add(&m->base.sealed, writable ? (uint32_t)-1 : 1);
    return WEIR_OK;
}

void wi_away_seal(wi_base *base, const wi_away *away, const wi_piece *p)
{
    wi_mapped *m = away_mapped(base);
    wi_saved_detail saved;
    if (!base->resource.driver->protect)
        return;
    wi_detail_save(&saved);
    wi_base_lock(base);
    bool fits = seal_fits(away, p);
    for (uint64_t g = p->first; fits && g < p->first + p->count;) {
        wi_chunk *chunk = p->region->chunks[g];
        wi_assert(chunk); /* it has arrived */
        if (!chunk->sealed)
            fits = seal_protect(m, chunk, false) == WEIR_OK;
        g = chunk->first + chunk->count;
    }
    EACH_EXTENT (e, p)
        if (e->kind == WI_USED && e->block.leaving)
            wi_store(e->block.plain, false); /* a free that a thread cache serves would not open the chunk */
    wi_base_unlock(base);
    wi_detail_restore(&saved);
}

weir_status wi_away_unseal(wi_base *base, const void *address, uint64_t bytes)
{
    wi_mapped *m = away_mapped(base);
    weir_status status = WEIR_OK;
    for (int i = 0; i < WI_REGIONS; i++) {
        wi_region *region = &m->regions[i];
        if (!wi_region_holds(region, address))
            continue;
        uint64_t start = (uint64_t)((const char *)address - region->base), end = wi_min(start + bytes, region->bytes);
        for (uint64_t g = start / m->granule; g * m->granule < end && status == WEIR_OK; g++) {
            wi_chunk *chunk = region->chunks[g];
            if (chunk && chunk->sealed)
                status = seal_protect(m, chunk, true);
        }
    }
    return status;
}
