/* Addresses that are taken, as runs with something free between them. */
#ifndef WI_ARENA_TAKEN_H
#define WI_ARENA_TAKEN_H

#include <weir/base.h>

/* Some runs that follow each other, and the widest of the gaps between them. */
typedef struct wi_taken_piece {
    struct wi_taken_run *runs;
    uint32_t count, room;
    uint64_t widest;
} wi_taken_piece;

/* All zeros: nothing is taken. */
typedef struct wi_taken {
    wi_taken_piece *pieces;
    uint32_t count, room;
} wi_taken;

/* What wi_taken_empty keeps goes too. */
void wi_taken_clear(wi_taken *taken);
void wi_taken_empty(wi_taken *taken);

/* low … high - 1 as well, whatever of it was taken already. False without host memory. */
bool wi_taken_add(wi_taken *taken, uint64_t low, uint64_t high);

/* The lowest multiple of `alignment` at or above `at`, which is one, with `length` free addresses. `piece` says from where
 * on to look: 0, or what it became when this was asked for a lower address. */
uint64_t wi_taken_gap(const wi_taken *taken, uint32_t *piece, uint64_t at, uint64_t length, uint64_t alignment);

#endif
