/* Which addresses belong to what, for a resource whose addresses the driver chooses; and which ones were freed lately.
 *
 * The ranges stand in a tree that is ordered by address and in which the parent has the higher hash: as good as balanced
 * whatever the order they came in, and nothing has to be kept for it.
 *
 * Invariants: no two ranges overlap. No locks: the caller has one. */
#ifndef WI_RANGE_INDEX_H
#define WI_RANGE_INDEX_H

#include "base/internal.h"

typedef struct wi_range {
    uintptr_t start, end;
    struct wi_range *left, *right;
} wi_range;

enum { WI_FREED_KEPT = 1024 };

typedef struct wi_index {
    wi_range *root;
    size_t count;
    uintptr_t freed[WI_FREED_KEPT]; /* a ring; 0: none */
    uint32_t next_freed;
    uint64_t changes; /* for the invariant checker */
} wi_index;

/* Puts in a range that overlaps with none, with start and end set. */
void wi_index_insert(wi_index *index, wi_range *range);
void wi_index_remove(wi_index *index, wi_range *range);
/* The lowest range that has an address of [start, end); NULL: none has. */
wi_range *wi_index_find(const wi_index *index, uintptr_t start, uintptr_t end);
/* Calls fn for all, by address; fn changes nothing. */
void wi_index_each(const wi_index *index, void (*fn)(wi_range *range, void *user), void *user);

/* Remembers an address, unless it lies in a range: it serves again. The oldest one is forgotten for it. */
void wi_index_freed(wi_index *index, uintptr_t address);
/* One of the addresses remembered last, and it does not serve again. */
bool wi_index_was_freed(const wi_index *index, uintptr_t address);

/* Executes the invariant; nothing in builds without WEIR_INVARIANTS. */
void wi_index_check(wi_index *index);

#endif
