/* What away.c, where chunks leave, away_back.c, where memory comes back, and away_begin.c have in common. */
#ifndef WI_AWAY_PARTS_H
#define WI_AWAY_PARTS_H

#include "memory/away.h"
#include "memory/mapped/mapped.h"

static inline wi_mapped *away_mapped(wi_base *base)
{
    return (wi_mapped *)base;
}

static inline uint64_t piece_start(const wi_piece *p)
{
    return p->first * p->region->granule;
}

static inline uint64_t piece_end(const wi_piece *p)
{
    return wi_min((p->first + p->count) * p->region->granule, p->region->bytes);
}

static inline uint64_t extent_end(const wi_extent *e)
{
    return e->offset + e->bytes;
}

/* How many bytes of the extent lie on the piece. */
static inline uint64_t away_overlap(const wi_piece *p, const wi_extent *e)
{
    uint64_t low = wi_max(piece_start(p), e->offset), high = wi_min(piece_end(p), extent_end(e));
    return low < high ? high - low : 0;
}

/* All extents on a piece, in order. */
#define EACH_EXTENT(e, p)                                                                                              \
    for (wi_extent *e = wi_region_at((p)->region, piece_start(p)); (e) && (e)->offset < piece_end(p); (e) = (e)->next)

/* The first piece that ends behind the offset of the region. */
static inline size_t away_from(const wi_away *away, const wi_region *region, uint64_t offset)
{
    const char *address = region->base + offset;
    size_t first = 0, end = away->piece_count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        const wi_piece *p = &away->pieces[middle];
        if (p->region->base + piece_end(p) > address)
            end = middle;
        else
            first = middle + 1;
    }
    return first;
}

/* Iterates over the pieces that the extent overlaps. */
#define EACH_PIECE(p, away, e)                                                                                         \
    for (const wi_piece *p = (away)->pieces + away_from(away, (e)->region, (e)->offset),                               \
                        *end_ = (away)->pieces + (away)->piece_count;                                                  \
         p < end_ && p->region == (e)->region && piece_start(p) < extent_end(e); p++)

/* With the lock held. Acquires a block for this thread. */
weir_status wi_away_acquire(wi_away *away, wi_block *block, bool *acquired);
/* Lets all blocks go. */
void wi_away_let_go(wi_away *away);
/* Writes down which bytes of the piece are blocks'. */
weir_status wi_away_list_runs(wi_away *away, wi_piece *p);
/* What is free on the piece, which has memory, is free for all again. */
void wi_away_open(const wi_piece *p);
/* Bytes of the extent that are shown. */
uint64_t wi_away_shown(const wi_away *away, const wi_extent *e);
/* Notes in the acquired blocks whether they are shown, and counts the shown bytes. All blocks on pieces are acquired. */
void wi_away_mark(wi_away *away);
/* The base knows it no more. */
void wi_away_unlink(wi_mapped *m, wi_away *away);

/* Functions of the table, in away_back.c. */
void wi_away_free(wi_base *base, wi_block *block);
weir_status wi_away_sweep(wi_base *base, wi_away *away);
void wi_away_forget(wi_base *base, wi_away *away);
weir_status wi_away_recover(wi_base *base, wi_away *away);
weir_status wi_away_arrive(wi_base *base, wi_away *away, const wi_event *event);
void wi_away_recall(wi_base *base, wi_away *away, bool idle);

/* In away_begin.c. */
weir_status wi_away_claim(wi_base *base, const wi_placement *placement, wi_claim *out);
void wi_away_unclaim(wi_base *base, const wi_claim *claim);
weir_status wi_away_begin(wi_base *base, wi_away *away, const wi_claim *claim, wi_placement *placement,
                          weir_block *out);

/* In seal.c. */
void wi_away_seal(wi_base *base, const wi_away *away, const wi_piece *piece);
weir_status wi_away_unseal(wi_base *base, const void *address, uint64_t bytes);

#endif
