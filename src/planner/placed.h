/* Items that are placed, found by time and address: where the lowest gap is that another one fits into. */
#ifndef WI_ARENA_PLACED_H
#define WI_ARENA_PLACED_H

#include "planner/problem.h"

typedef struct wi_placed wi_placed;

/* With nothing placed; NULL without host memory. */
wi_placed *wi_placed_create(const wi_problem *problem);
void wi_placed_destroy(wi_placed *placed);
void wi_placed_empty(wi_placed *placed);

/* The item, at its offset. False without host memory. */
bool wi_placed_add(wi_placed *placed, uint32_t item);

/* The lowest offset at or above `from`, aligned as the item wants, at which it meets none that is placed. False without
 * host memory. */
bool wi_placed_lowest(wi_placed *placed, uint32_t item, uint64_t from, uint64_t *offset);

#endif
