/* Away: memory comes back under a client's blocks, all at once or by piece; and blocks without memory are freed. */
#include "base/system.h"
#include "memory/mapped/away_parts.h"
#include "memory/space/stream_order.h"

#include <sched.h>
#include <string.h>

/* Freeing ---------------------------------------------------------------------------------------------------------- */

/* Nothing is left on the piece: its addresses become a hole, or free where a resume that failed has left memory. False:
 * an extent that could not be cut reaches beyond it. */
static bool away_dissolve(wi_mapped *m, const wi_piece *p)
{
    wi_region *region = p->region;
    wi_extent *extent = wi_region_at(region, piece_start(p)), *last = extent;
    bool backed = false;
    while (last->next && last->next->offset < piece_end(p))
        last = last->next;
    if (extent->offset < piece_start(p) || extent_end(last) > piece_end(p))
        return false;
    while (extent->next && extent->next->offset < piece_end(p))
        wi_region_merge_busy(region, extent);
    for (uint64_t g = p->first; g < p->first + p->count; g++)
        backed |= region->chunks[g] != NULL;
    extent->last = backed ? wi_owners_mix(extent->last, p->last) : WI_CLEAN;
    wi_chunks_dissolve(m, extent);
    return true;
}

static bool away_empty(const wi_piece *p)
{
    EACH_EXTENT (e, p)
        if (e->kind == WI_USED)
            return false;
    return true;
}

/* The piece that the offset of the region lies on, or NULL. */
static wi_piece *away_piece_at(wi_away *away, const wi_region *region, uint64_t offset)
{
    size_t i = away_from(away, region, offset);
    wi_piece *p = i < away->piece_count ? &away->pieces[i] : NULL;
    return p && p->region == region && piece_start(p) <= offset ? p : NULL;
}

/* The base knows nothing more of it when the last piece goes. */
static void away_remove(wi_mapped *m, wi_away *away, wi_piece *p)
{
    memmove(p, p + 1, (size_t)(away->pieces + --away->piece_count - p) * sizeof *p);
    if (away->piece_count == 0)
        wi_away_unlink(m, away);
}

/* Cuts the busy extent where pieces begin and end. Without a record for the cut, the whole extent stays busy:
 * addresses, and memory beside them, are lost, but no sum is wrong. */
static bool away_cut(wi_mapped *m, const wi_away *away, wi_extent *extent)
{
    wi_region *region = extent->region;
    uint64_t end = extent_end(extent);
    for (size_t i = away_from(away, region, extent->offset); i < away->piece_count; i++) {
        const wi_piece *p = &away->pieces[i];
        if (p->region != region || piece_start(p) >= end)
            break;
        const uint64_t edges[] = {piece_start(p), piece_end(p)};
        for (int k = 0; k < 2; k++) {
            if (edges[k] <= extent->offset || edges[k] >= extent_end(extent))
                continue;
            if (wi_extent_pool_reserve(&m->shared.pool, 1) != WEIR_OK)
                return false;
            extent = wi_region_cut(region, extent, edges[k]);
        }
    }
    return true;
}

void wi_away_free(wi_base *base, wi_block *block)
{
    wi_mapped *m = away_mapped(base);
    wi_extent *extent = (wi_extent *)block;
    wi_region *region = extent->region;
    wi_away *away = m->aways;
    while (away->account != block->account) /* it is there, as the block is away */
        away = away->next;
    wi_assert(away->bytes >= block->away && !block->leaving);
    away->bytes -= block->away;
    m->away_bytes -= block->away;
    atomic_fetch_sub(&away->shown, wi_away_shown(away, extent));
    uint64_t end = extent_end(extent);
    wi_region_end(region, extent, wi_account_owner(block->account));
    bool cut = away_cut(m, away, extent);
    for (wi_extent *e = extent, *next; cut && e && e->offset < end; e = next) {
        wi_piece *p = away_piece_at(away, region, e->offset);
        next = e->next;
        if (!p) {
            wi_region_set(region, e, WI_FREE);
            next = wi_region_join(region, e)->next;
        } else if (p->shown || p->adrift) {
            continue; /* stays busy until the copy is taken away, or queued work is done */
        } else if (away_empty(p)) {
            uint64_t behind = piece_end(p);
            if (!away_dissolve(m, p))
                continue;
            away_remove(m, away, p);
            next = behind < end ? wi_region_at(region, behind) : NULL;
        }
    }
    bool stays = false;
    for (size_t i = 0; i < away->piece_count; i++)
        stays |= away->pieces[i].shown || away->pieces[i].adrift;
    if (away->bytes > 0 || stays)
        return;
    away->piece_count = 0; /* there are some if an extent could not be cut */
    wi_away_unlink(m, away);
}

/* The first piece that is shown or adrift, and without blocks; NULL: none. */
static wi_piece *away_left_over(const wi_away *away)
{
    for (size_t i = 0; i < away->piece_count; i++)
        if ((away->pieces[i].shown || away->pieces[i].adrift) && away_empty(&away->pieces[i]))
            return &away->pieces[i];
    return NULL;
}

weir_status wi_away_sweep(wi_base *base, wi_away *away)
{
    wi_mapped *m = away_mapped(base);
    weir_status status = WEIR_OK;
    wi_base_lock(base);
    for (wi_piece *p; status == WEIR_OK && (p = away_left_over(away));) {
        wi_piece left = *p; /* frees by other threads move those in the list */
        wi_base_unlock(base);
        status = away->hide(away, &left, away->user);
        wi_base_lock(base);
        p = away_piece_at(away, left.region, piece_start(&left));
        p->shown = left.shown;
        p->adrift = left.adrift;
        if (!left.shown && !left.adrift && away_dissolve(m, p))
            away_remove(m, away, p);
    }
    wi_base_unlock(base);
    return status;
}

void wi_away_forget(wi_base *base, wi_away *away)
{
    wi_base_lock(base);
    wi_assert(away->bytes == 0);
    away->piece_count = 0;
    wi_away_unlink(away_mapped(base), away);
    wi_base_unlock(base);
}

/* Coming back ------------------------------------------------------------------------------------------------------ */

/* Acquires every block on the pieces. *all false: another thread is freeing a block, and needs the lock. */
static weir_status away_acquire_again(wi_away *away, bool *all)
{
    weir_status status = WEIR_OK;
    *all = true;
    for (size_t i = 0; i < away->piece_count && status == WEIR_OK && *all; i++)
        EACH_EXTENT (e, &away->pieces[i])
            if (status == WEIR_OK && *all && e->kind == WI_USED)
                status = wi_away_acquire(away, &e->block, all);
    return status;
}

static bool away_wants(const wi_away *away, const wi_piece *p, uint64_t *bytes)
{
    bool wanted = false;
    *bytes = 0;
    EACH_EXTENT (e, p) {
        if (e->kind != WI_USED)
            continue;
        *bytes += away_overlap(p, e);
        wanted |= (away->classes == 0 || away->classes & WEIR_CLASS_BIT(wi_load(e->block.memory_class))) &&
                  (!away->pointer || away->pointer == e->block.pointer);
    }
    return wanted;
}

/* In the order of their addresses, up to the first that would be too much; one in any case. */
static void away_select(wi_away *away)
{
    bool full = false;
    uint64_t bytes;
    away->coming = 0;
    for (size_t i = 0; i < away->piece_count; i++) {
        wi_piece *p = &away->pieces[i];
        p->coming = !full && away_wants(away, p, &bytes);
        if (!p->coming)
            continue;
        full = away->coming > 0 && bytes > away->most - wi_min(away->most, away->coming);
        p->coming = !full;
        away->coming += full ? 0 : bytes;
    }
}

weir_status wi_away_recover(wi_base *base, wi_away *away)
{
    bool all = false;
    weir_status status = WEIR_OK;
    wi_base_lock(base);
    while (status == WEIR_OK && !all) {
        status = away_acquire_again(away, &all);
        if (status != WEIR_OK || all)
            continue;
        wi_away_let_go(away);
        wi_base_unlock(base);
        sched_yield();
        wi_base_lock(base);
    }
    away->run_count = 0;
    for (size_t i = 0; i < away->piece_count && status == WEIR_OK; i++)
        status = wi_away_list_runs(away, &away->pieces[i]);
    if (status == WEIR_OK)
        away_select(away);
    else
        wi_away_let_go(away);
    wi_base_unlock(base);
    return status;
}

/* The first granules of the piece without memory; 0: all have some. */
static uint64_t away_missing(const wi_piece *p, uint64_t *first)
{
    uint64_t end = p->first + p->count, g = p->first;
    while (g < end && p->region->chunks[g])
        g++;
    *first = g;
    while (g < end && !p->region->chunks[g])
        g++;
    return g - *first;
}

/* Maps memory for the piece, in place of what is shown there. */
static weir_status away_fill(wi_mapped *m, wi_away *away, wi_piece *p)
{
    uint64_t first, count, last = WI_CLEAN;
    unsigned waits = 0;
    if (p->shown) {
        wi_base_unlock(&m->base);
        weir_status status = away->hide(away, p, away->user);
        wi_base_lock(&m->base);
        if (status != WEIR_OK)
            return status;
    }
    while ((count = away_missing(p, &first)) > 0) {
        weir_status status = wi_chunks_fill(m, p->region, first, count, &last);
        p->last = wi_owners_mix(p->last, last);
        EACH_EXTENT (e, p)
            if (e->kind == WI_BUSY)
                e->last = wi_owners_mix(e->last, last);
        if (status == WEIR_OK)
            continue;
        if ((status != WEIR_ERR_BUSY && status != WEIR_ERR_NO_ROOM) ||
            !wi_chunks_synchronize(m, status == WEIR_ERR_BUSY, &waits))
            return status == WEIR_ERR_BUSY ? WEIR_ERR_NO_ROOM : status;
    }
    return WEIR_OK;
}

/* Asks the client that leaves in exchange for room. With the lock held, which is released meanwhile. */
static weir_status away_ask(wi_mapped *m, wi_away *away, uint64_t bytes, uint64_t *gave)
{
    *gave = 0;
    if (!away->make_room)
        return WEIR_OK;
    wi_base_unlock(&m->base);
    weir_status status = away->make_room(away, bytes, gave, away->user);
    wi_base_lock(&m->base);
    return status;
}

/* Fills the piece, and asks for more room as long as memory is short. */
static weir_status away_bring(wi_mapped *m, wi_away *away, wi_piece *p)
{
    uint64_t gave, missing = 0;
    for (uint64_t g = p->first; g < p->first + p->count; g++)
        missing += p->region->chunks[g] ? 0 : m->granule;
    weir_status status = missing > 0 ? away_ask(m, away, missing, &gave) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    for (;;) {
        status = away_fill(m, away, p);
        if (status != WEIR_ERR_NO_ROOM && status != WEIR_ERR_OUT_OF_MEMORY)
            return status;
        weir_status asked = away_ask(m, away, 0, &gave);
        if (asked != WEIR_OK || gave == 0)
            return asked != WEIR_OK ? asked : status;
        m->device_has = UINT64_MAX; /* the given memory came after the look */
    }
}

weir_status wi_away_allocate(wi_base *base, wi_placement *placement, wi_shortage *shortage)
{
    wi_mapped *m = away_mapped(base);
    wi_away *away = placement->away;
    weir_status status = WEIR_OK;
    uint64_t rest;
    wi_base_lock(base);
    (void)wi_stream_lists_renew(&m->stream_lists);
    for (size_t i = 0; i < away->piece_count && status == WEIR_OK; i++) {
        wi_piece *p = &away->pieces[i];
        if (p->arrived || !p->coming)
            continue;
        status = away_bring(m, away, p);
        if (status != WEIR_OK)
            break;
        wi_base_unlock(base);
        status = away->arrived(away, p, away->user);
        wi_base_lock(base);
        p->arrived = status == WEIR_OK;
    }
    if (status == WEIR_OK)
        status = away_ask(m, away, UINT64_MAX, &rest);
    if (status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY) {
        bool enough = status == WEIR_ERR_NO_ROOM && m->device_has == UINT64_MAX;
        shortage->cause = enough ? WEIR_CAUSE_FRAGMENTATION : WEIR_CAUSE_OTHER_PROCESS;
        wi_place_look(m, NULL, placement->charged, WI_UNIT, shortage);
        status = WEIR_ERR_OUT_OF_MEMORY;
    }
    m->device_has = UINT64_MAX;
    wi_base_unlock(base);
    return status;
}

/* How many bytes of the extent lie on pieces that are coming. */
static uint64_t away_coming(const wi_away *away, const wi_extent *e)
{
    uint64_t bytes = 0;
    EACH_PIECE(p, away, e)
    bytes += p->coming ? away_overlap(p, e) : 0;
    return bytes;
}

/* Pieces that were coming are back, the others stay away. With the lock held. */
static void away_settle_back(wi_mapped *m, wi_away *away)
{
    size_t left = 0;
    for (size_t i = 0; i < away->block_count; i++) {
        uint64_t bytes = away_coming(away, (const wi_extent *)away->blocks[i]);
        if (bytes == 0)
            continue;
        m->away_bytes -= bytes;
        away->bytes -= bytes;
        wi_ledger_return(m->base.resource.ledger, away->blocks[i], bytes, away->stream);
    }
    for (size_t i = 0; i < away->piece_count; i++) {
        if (away->pieces[i].coming)
            wi_away_open(&away->pieces[i]);
        else
            away->pieces[left++] = away->pieces[i];
    }
    away->piece_count = away->bytes > 0 ? left : 0; /* there are some if an extent could not be cut */
    wi_away_mark(away);
    wi_away_let_go(away);
    if (away->piece_count == 0)
        wi_away_unlink(m, away);
}

weir_status wi_away_arrive(wi_base *base, wi_away *away, const wi_event *event)
{
    wi_mapped *m = away_mapped(base);
    weir_status status = WEIR_OK;
    wi_base_lock(base);
    for (size_t i = 0; event && i < away->block_count && status == WEIR_OK; i++)
        status = wi_stream_uses_moved(&away->blocks[i]->stream_uses, event);
    if (status == WEIR_OK)
        away_settle_back(m, away);
    wi_base_unlock(base);
    return status;
}

void wi_away_recall(wi_base *base, wi_away *away, bool idle)
{
    wi_mapped *m = away_mapped(base);
    uint64_t ignored;
    wi_base_lock(base);
    for (size_t i = 0; i < away->piece_count; i++) {
        wi_piece *p = &away->pieces[i];
        p->adrift = !idle && (p->adrift || p->coming);
        if (!p->coming)
            continue;
        p->arrived = p->coming = false;
        for (uint64_t g = p->first; idle && g < p->first + p->count;) {
            wi_chunk *chunk = p->region->chunks[g];
            g += chunk ? chunk->count : 1;
            if (chunk && wi_chunks_take_away(m, chunk) == WEIR_OK)
                wi_chunks_give_away(m, chunk, wi_owners_mix(wi_account_owner(away->account), p->last));
        }
        if (!p->whole || p->shown || away_missing(p, &ignored) < p->count)
            continue;
        wi_base_unlock(base); /* the blocks are acquired, so that the list stays as it is */
        away->show_again(away, p, away->user);
        wi_base_lock(base);
    }
    wi_away_mark(away);
    wi_away_let_go(away);
    wi_base_unlock(base);
}
