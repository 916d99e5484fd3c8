/* Range index: a range's owner by address, for a resource whose addresses the driver chooses; and which
 * addresses were freed lately.
 *
 * Invariants: no two ranges overlap. No locks: the caller has one. */
#ifndef WI_RANGE_INDEX_H
#define WI_RANGE_INDEX_H

#include "base/internal.h"
#include "base/maps.h"

typedef struct wi_range {
    wi_treap_node node; /* by start */
    uintptr_t start, end;
} wi_range;

enum { WI_FREED_KEPT = 1024 };

typedef struct wi_index {
    wi_treap ranges;
    size_t count;
    uintptr_t freed[WI_FREED_KEPT]; /* a ring; 0: none */
    uint32_t next_freed;
    uint64_t changes; /* for the invariant checker */
} wi_index;

/* Inserts a range, whose start and end are set and which overlaps no other. */
void wi_index_insert(wi_index *index, wi_range *range);
void wi_index_remove(wi_index *index, wi_range *range);
/* The lowest range that overlaps [start, end); NULL: none. */
wi_range *wi_index_find(const wi_index *index, uintptr_t start, uintptr_t end);
/* Calls fn for all ranges by address; fn must not change the index. */
void wi_index_each(const wi_index *index, void (*fn)(wi_range *range, void *user), void *user);

/* Remembers the address of a freed block, in place of the oldest, unless it lies in a range and serves again. */
void wi_index_freed(wi_index *index, uintptr_t address);
/* Whether the address was freed lately and does not serve again. */
bool wi_index_was_freed(const wi_index *index, uintptr_t address);

/* Checks the invariant; does nothing in builds without WEIR_INVARIANTS. */
void wi_index_check(wi_index *index);

#endif
