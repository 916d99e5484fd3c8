/* How much is live, over time, while that is changed. */
#ifndef WI_ARENA_LOADS_H
#define WI_ARENA_LOADS_H

#include <weir/base.h>

typedef struct wi_loads wi_loads;

/* Of times that are all among `points`, which are put in order; nothing is live as yet. The points stay the caller's, and
 * have to be there as long as this. NULL without host memory. */
wi_loads *wi_loads_create(uint64_t *points, size_t count);
void wi_loads_destroy(wi_loads *loads);

/* `bytes` more, or less, from begin until before end. */
void wi_loads_add(wi_loads *loads, uint64_t begin, uint64_t end, int64_t bytes);

/* The most from begin until before end; INT64_MIN for no time at all. */
int64_t wi_loads_most(const wi_loads *loads, uint64_t begin, uint64_t end);

#endif
