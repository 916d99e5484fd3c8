/* Sets of addresses, as intervals with something free between them. */
#ifndef WI_PLANNER_INTERVAL_SET_H
#define WI_PLANNER_INTERVAL_SET_H

#include <weir/base.h>

/* Consecutive intervals, and the length of the widest gap between two neighbours. */
typedef struct wi_interval_piece {
    struct wi_interval *intervals;
    uint32_t count, room;
    uint64_t widest;
} wi_interval_piece;

/* All zeros: an empty set. */
typedef struct wi_interval_set {
    wi_interval_piece *pieces;
    uint32_t count, room;
} wi_interval_set;

void wi_interval_set_empty(wi_interval_set *set); /* keeps the set's memory for later intervals */
void wi_interval_set_clear(wi_interval_set *set);

/* low … high - 1 too, whatever of it is in the set already. False without host memory. */
bool wi_interval_set_add(wi_interval_set *set, uint64_t low, uint64_t high);

/* The lowest multiple of `alignment` at or above `at`, which is one, from which on `length` addresses are not in the
 * set. `piece` says from where on to look: 0, or what it became when this was asked for a lower address. */
uint64_t wi_interval_set_gap(const wi_interval_set *set, uint32_t *piece, uint64_t at, uint64_t length,
                             uint64_t alignment);

#endif
