/* Sorting by numbers: stable, and linear in the count. */
#ifndef WI_PLANNER_RADIX_H
#define WI_PLANNER_RADIX_H

#include <weir/base.h>

typedef struct wi_key {
    uint64_t key;
    uint32_t value;
} wi_key;

/* Smallest key first; `spare` is as long as `keys`, and what is in it afterwards is of no meaning. */
void wi_radix_sort(wi_key *keys, wi_key *spare, size_t count);

#endif
