/* Away: a client's chunks leave from under its blocks; in away_back.c memory comes back there. */
#include "base/system.h"
#include "memory/mapped/away_parts.h"
#include "memory/space/stream_order.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAY_LEAVE = -1 }; /* beside weir_stay */

void wi_away_clear(wi_away *away)
{
    free(away->pieces);
    free(away->runs);
    free(away->blocks);
    away->pieces = NULL;
    away->runs = NULL;
    away->blocks = NULL;
    away->piece_count = away->piece_room = away->run_count = away->run_room = 0;
    away->block_count = away->block_room = 0;
}

weir_status wi_away_room(void **list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return WEIR_OK;
    size_t more = *room ? 2 * *room : 16;
    void *grown = realloc(*list, more * size);
    if (!grown)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the records of what leaves");
    *list = grown;
    *room = more;
    return WEIR_OK;
}

/* Choosing --------------------------------------------------------------------------------------------------------- */

static void away_note_stay(const wi_away *away, const wi_block *block, uint64_t bytes, weir_stay why)
{
    weir_residency *r = away->receipt;
    wi_block seen = wi_look_at(block);
    for (uint32_t i = 0; i < r->stays; i++)
        if (r->stay[i].pointer == seen.pointer)
            return;
    if (r->stays == WEIR_STAYS)
        return;
    r->stay[r->stays].pointer = seen.pointer;
    r->stay[r->stays].bytes = bytes;
    r->stay[r->stays].why = why;
    snprintf(r->stay[r->stays].tag, sizeof r->stay[0].tag, "%s", seen.tag ? seen.tag : "");
    r->stays++;
}

/* Why the block whose word was `word` stays, or MAY_LEAVE. */
static int away_reason(const wi_away *away, const wi_block *block, uint64_t word)
{
    if (block->leaving)
        return MAY_LEAVE;
    if ((word & 7) != WI_LIVE)
        return (word & 7) == WI_ACQUIRED ? WEIR_STAY_BUSY : WEIR_STAY_SHARED;
    if (block->graph && !away->graphs)
        return WEIR_STAY_GRAPH;
    if (block->stable)
        return WEIR_STAY_STABLE;
    return away->stay & WEIR_CLASS_BIT(wi_load(block->memory_class)) ? WEIR_STAY_CLASS : MAY_LEAVE;
}

/* Whether all on the chunk may leave. If not, the account's blocks there are noted. *any: the account has some. */
static bool away_may_leave(const wi_away *away, const wi_piece *p, bool *any)
{
    bool may = true;
    *any = false;
    EACH_EXTENT (e, p) {
        bool mine = e->kind == WI_USED && wi_load(e->block.account) == away->account;
        *any |= mine;
        may &= mine ? away_reason(away, &e->block, atomic_load(&e->block.word)) == MAY_LEAVE
                    : e->kind == WI_FREE && !e->stream_list;
    }
    if (may || !*any)
        return may;
    EACH_EXTENT (e, p)
        if (e->kind == WI_USED && wi_load(e->block.account) == away->account) {
            int why = away_reason(away, &e->block, atomic_load(&e->block.word));
            away_note_stay(away, &e->block, away_overlap(p, e), why == MAY_LEAVE ? WEIR_STAY_SHARED : (weir_stay)why);
        }
    return false;
}

/* Acquires a block for this thread; the lock is held. */
weir_status wi_away_acquire(wi_away *away, wi_block *block, bool *acquired)
{
    uint64_t word = atomic_load(&block->word);
    *acquired = block->leaving;
    if (block->leaving)
        return WEIR_OK;
    weir_status status = wi_away_room((void **)&away->blocks, away->block_count, &away->block_room, sizeof(wi_block *));
    if (status != WEIR_OK)
        return status;
    if ((word & WI_TRACKED) && (word & 7) == WI_LIVE && wi_stream_uses_held(block->stream_uses))
        return weir_fail(WEIR_ERR_BUSY, "%s cannot be suspended or resumed: its block at %p is used by %s",
                         away->account->name, block->pointer, wi_stream_uses_holder(block->stream_uses));
    *acquired = away_reason(away, block, word) == MAY_LEAVE && wi_block_acquire(block, word, WI_ACQUIRED);
    if (*acquired) {
        block->leaving = true;
        away->blocks[away->block_count++] = block;
    }
    return WEIR_OK;
}

/* Acquires all blocks on the chunk. *all false: another thread has acquired a block. */
static weir_status away_acquire_all(wi_away *away, const wi_piece *p, bool *all)
{
    weir_status status = WEIR_OK;
    *all = true;
    EACH_EXTENT (e, p) {
        if (e->kind != WI_USED || !*all)
            continue;
        status = wi_away_acquire(away, &e->block, all);
        if (status != WEIR_OK)
            return status;
        if (!*all)
            away_note_stay(away, &e->block, away_overlap(p, e), WEIR_STAY_BUSY);
    }
    return WEIR_OK;
}

/* Nobody gets what is free on the piece while it is away. Records were reserved. */
static void away_close(const wi_piece *p)
{
    wi_region *region = p->region;
    for (wi_extent *e = wi_region_at(region, piece_start(p)), *next; e && e->offset < piece_end(p); e = next) {
        if (e->kind == WI_FREE && e->offset < piece_start(p))
            e = wi_region_cut(region, e, piece_start(p));
        if (e->kind == WI_FREE && extent_end(e) > piece_end(p))
            (void)wi_region_cut(region, e, piece_end(p));
        next = e->next;
        if (e->kind == WI_FREE)
            wi_region_set(region, e, WI_BUSY);
    }
}

/* Undoes that. The extents have memory. */
void wi_away_open(const wi_piece *p)
{
    for (wi_extent *e = wi_region_at(p->region, piece_start(p)), *next; e && e->offset < piece_end(p); e = next) {
        next = e->next;
        if (e->kind != WI_BUSY)
            continue;
        wi_region_set(p->region, e, WI_FREE);
        next = wi_region_join(p->region, e)->next;
    }
}

static uint64_t away_stamp_block(uint64_t stamp, const wi_extent *e)
{
    const uint64_t words[] = {(uint64_t)(uintptr_t)e->block.pointer, e->bytes, wi_block_generation(&e->block)};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        stamp = (stamp ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        stamp ^= stamp >> 29;
    }
    return stamp;
}

static bool away_keeps(const wi_away *away, const wi_extent *e)
{
    return !(away->drop & WEIR_CLASS_BIT(wi_load(e->block.memory_class)));
}

/* Writes down which bytes of the piece are blocks'. */
weir_status wi_away_list_runs(wi_away *away, wi_piece *p)
{
    p->run = away->run_count;
    p->run_count = 0;
    p->low = p->high = NULL;
    p->stamp = 0;
    p->unwritten = !(p->chunk && p->chunk->written);
    EACH_EXTENT (e, p) {
        if (e->kind != WI_USED)
            continue;
        char *start = p->region->base + wi_max(e->offset, piece_start(p));
        uint64_t bytes = away_overlap(p, e);
        bool saved = p->whole || away_keeps(away, e);
        wi_run *last = p->run_count > 0 ? &away->runs[away->run_count - 1] : NULL;
        if (saved)
            p->unwritten &= (away->unwritten & WEIR_CLASS_BIT(wi_load(e->block.memory_class))) != 0;
        if (saved || away->show) {
            p->stamp = away_stamp_block(p->stamp, e);
            p->low = p->low ? p->low : start;
            p->high = start + bytes;
        }
        if (last && last->saved == saved && last->start + last->bytes == start) {
            last->bytes += bytes;
            continue;
        }
        weir_status status = wi_away_room((void **)&away->runs, away->run_count, &away->run_room, sizeof(wi_run));
        if (status != WEIR_OK)
            return status;
        away->runs[away->run_count++] = (wi_run){start, bytes, saved};
        p->run_count++;
    }
    return WEIR_OK;
}

/* Lets all blocks go. */
void wi_away_let_go(wi_away *away)
{
    for (size_t i = 0; i < away->block_count; i++) {
        away->blocks[i]->leaving = false;
        wi_block_set_phase(away->blocks[i], WI_LIVE);
    }
    away->block_count = 0;
    away->run_count = 0;
}

static weir_status away_choose_chunk(wi_mapped *m, wi_away *away, wi_chunk *chunk)
{
    wi_piece p = {.region = chunk->region, .first = chunk->first, .count = chunk->count, .chunk = chunk};
    bool any, all = false;
    if (chunk->occupied == 0 || !away_may_leave(away, &p, &any) || !any)
        return WEIR_OK;
    weir_status status = wi_extent_pool_reserve(&m->shared.pool, WI_RECORDS_PER_CHANGE);
    if (status == WEIR_OK)
        status = wi_away_room((void **)&away->pieces, away->piece_count, &away->piece_room, sizeof p);
    if (status == WEIR_OK)
        status = away_acquire_all(away, &p, &all);
    if (status != WEIR_OK || !all)
        return status;
    status = wi_away_list_runs(away, &p);
    if (status != WEIR_OK)
        return status;
    away_close(&p);
    away->pieces[away->piece_count++] = p;
    return WEIR_OK;
}

static int away_by_address(const void *a, const void *b)
{
    const wi_piece *x = a, *y = b;
    const char *low = x->region->base + piece_start(x), *other = y->region->base + piece_start(y);
    return (low > other) - (low < other);
}

static weir_status away_choose(wi_base *base, wi_away *away)
{
    wi_mapped *m = away_mapped(base);
    weir_status status = WEIR_OK;
    away->receipt->stays = 0;
    away->released = 0;
    wi_base_lock(base);
    for (wi_chunk *chunk = m->entered; chunk && status == WEIR_OK; chunk = chunk->behind)
        status = away_choose_chunk(m, away, chunk);
    if (status != WEIR_OK) {
        for (size_t i = 0; i < away->piece_count; i++)
            wi_away_open(&away->pieces[i]);
        wi_away_let_go(away);
        away->piece_count = 0;
    } else {
        if (away->piece_count > 0)
            qsort(away->pieces, away->piece_count, sizeof *away->pieces, away_by_address);
        away->next = m->aways;
        m->aways = away;
    }
    wi_base_unlock(base);
    return status;
}

static uint64_t away_stamp(wi_base *base, const wi_away *away, const char *low, const char *high)
{
    wi_mapped *m = away_mapped(base);
    uint64_t stamp = 0;
    wi_base_lock(base);
    for (int i = 0; i < WI_REGIONS; i++) {
        wi_region *region = &m->regions[i];
        if (!wi_region_holds(region, low))
            continue;
        uint64_t end = (uint64_t)(high - region->base);
        for (const wi_extent *e = wi_region_at(region, (uint64_t)(low - region->base)); e && e->offset < end;
             e = e->next)
            if (e->kind == WI_USED && wi_load(e->block.account) == away->account && (away->show || away_keeps(away, e)))
                stamp = away_stamp_block(stamp, e);
    }
    wi_base_unlock(base);
    return stamp;
}

/* Leaving ---------------------------------------------------------------------------------------------------------- */

static weir_status away_take(wi_base *base, wi_piece *p)
{
    wi_base_lock(base);
    weir_status status = wi_chunks_take_away(away_mapped(base), p->chunk);
    p->taken = status == WEIR_OK;
    wi_base_unlock(base);
    return status;
}

/* How many bytes of the extent lie on pieces that were taken. */
static uint64_t away_taken(const wi_away *away, const wi_extent *e)
{
    uint64_t bytes = 0;
    EACH_PIECE(p, away, e)
    bytes += p->taken ? away_overlap(p, e) : 0;
    return bytes;
}

/* Returns how many bytes of the extent are shown: the whole extent, none, or a part after a failure of the driver. */
uint64_t wi_away_shown(const wi_away *away, const wi_extent *e)
{
    uint64_t bytes = 0;
    EACH_PIECE(p, away, e)
    bytes += p->shown ? away_overlap(p, e) : 0;
    return bytes;
}

/* Notes in the acquired blocks whether they are shown, and counts the shown bytes. All blocks on pieces are acquired. */
void wi_away_mark(wi_away *away)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < away->block_count; i++) {
        wi_block *block = away->blocks[i];
        uint64_t shown = wi_away_shown(away, (const wi_extent *)block);
        block->shown = block->away > 0 && shown == block->away;
        bytes += shown;
    }
    atomic_store(&away->shown, bytes);
}

/* Unites neighbouring pieces that share a shown copy: the copy is shown, and taken from its place, as a whole. */
static void away_unite(wi_away *away)
{
    size_t left = 0;
    for (size_t i = 0; i < away->piece_count; i++) {
        const wi_piece *p = &away->pieces[i];
        wi_piece *last = left > 0 ? &away->pieces[left - 1] : NULL;
        if (last && p->shown && last->shown && p->copy == last->copy) {
            last->count += p->count; /* what else is said of it is written when it comes back */
        } else {
            away->pieces[left++] = *p;
        }
    }
    away->piece_count = left;
}

/* What of the blocks lies on pieces that were taken is away: for each block one step of the ledger. */
static void away_account(wi_mapped *m, wi_away *away)
{
    for (size_t i = 0; i < away->block_count; i++) {
        uint64_t bytes = away_taken(away, (const wi_extent *)away->blocks[i]);
        if (bytes == 0)
            continue;
        wi_ledger_leave(m->base.resource.ledger, away->blocks[i], bytes, false);
        away->bytes += bytes;
        m->away_bytes += bytes;
    }
}

/* Beside the account's bytes the memory has those of whoever had what is free. */
static void away_give(wi_mapped *m, wi_away *away, wi_piece *p)
{
    uint64_t last = wi_account_owner(away->account);
    EACH_EXTENT (e, p)
        if (e->kind != WI_USED) {
            last = wi_owners_mix(last, e->last);
            e->last = WI_CLEAN;
        }
    away->released += p->chunk->count * m->granule;
    wi_chunks_give_away(m, p->chunk, last);
    p->chunk = NULL;
    p->taken = false;
}

void wi_away_unlink(wi_mapped *m, wi_away *away)
{
    wi_away **link = &m->aways;
    while (*link && *link != away)
        link = &(*link)->next;
    if (*link)
        *link = away->next;
    away->next = NULL;
}

/* Pieces that were taken are away, the others stay. The ledger comes first: what it counts as live must be held. With the
 * lock held. */
static void away_settle(wi_mapped *m, wi_away *away)
{
    size_t left = 0;
    away_account(m, away);
    for (size_t i = 0; i < away->piece_count; i++) {
        wi_piece *p = &away->pieces[i];
        if (p->taken || p->passed) {
            if (p->taken)
                away_give(m, away, p);
            p->passed = false;
            away->pieces[left++] = *p;
        } else {
            wi_away_open(p);
        }
    }
    away->piece_count = left;
    away_unite(away);
    wi_away_mark(away);
    wi_away_let_go(away);
    if (left == 0)
        wi_away_unlink(m, away);
}

static void away_leave(wi_base *base, wi_away *away)
{
    wi_base_lock(base);
    away_settle(away_mapped(base), away);
    wi_base_unlock(base);
}

static weir_status away_pass(wi_base *base, wi_away *away, wi_piece *p, uint64_t *bytes)
{
    wi_mapped *m = away_mapped(base);
    wi_base_lock(base);
    weir_status status = wi_chunks_take_away(m, p->chunk);
    *bytes = 0;
    if (status == WEIR_OK) {
        EACH_EXTENT (e, p) {
            uint64_t some = e->kind == WI_USED ? away_overlap(p, e) : 0;
            if (some > 0)
                wi_ledger_leave(base->resource.ledger, &e->block, some, true);
            away->bytes += some;
            m->away_bytes += some;
        }
        *bytes = p->chunk->count * m->granule;
        p->passed = true;
        away_give(m, away, p);
    }
    wi_base_unlock(base);
    return status;
}

static bool away_undo(wi_base *base, wi_away *away)
{
    wi_mapped *m = away_mapped(base);
    wi_base_lock(base);
    for (size_t i = 0; i < away->piece_count; i++) {
        wi_piece *p = &away->pieces[i];
        if (p->taken && !p->shown && wi_chunks_put_back(m, p->chunk) == WEIR_OK)
            p->taken = false;
    }
    away_settle(m, away);
    bool undone = away->piece_count == 0;
    wi_base_unlock(base);
    return undone;
}

const wi_away_table wi_mapped_away = {
    .choose = away_choose,
    .stamp = away_stamp,
    .take = away_take,
    .pass = away_pass,
    .undo = away_undo,
    .leave = away_leave,
    .sweep = wi_away_sweep,
    .forget = wi_away_forget,
    .recover = wi_away_recover,
    .arrive = wi_away_arrive,
    .recall = wi_away_recall,
    .free = wi_away_free,
    .seal = wi_away_seal,
    .unseal = wi_away_unseal,
    .claim = wi_away_claim,
    .unclaim = wi_away_unclaim,
    .begin = wi_away_begin,
};
