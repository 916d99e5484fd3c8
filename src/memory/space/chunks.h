/* Chunks: pieces of physical memory under a region, each under a run of granules.
 *
 * A chunk that no block touches is idle: it can be moved to another address, or given back. Idle chunks are listed in
 * the order in which they became idle, which is the order of their last use.
 *
 * Invariants: a granule has a chunk if and only if no hole covers it, busy extents apart; occupied is the sum of the
 * used and busy bytes on the chunk; a chunk is in the idle list if and only if occupied is 0.
 *
 * Bookkeeping alone, under the lock of the resource; mapped/chunks_driver.c calls the driver. Before it the index of ranges by
 * address, by which a pointer's chunk, segment or elastic block is found. */
#ifndef WI_CHUNKS_H
#define WI_CHUNKS_H

#include <weir/stats.h>

#include "base/internal.h"
#include "base/maps.h"
#include "driver/driver.h"

/* ---- range_index.c ----------------------------------------------------------------------------------------------- */

/* Range index: a range's owner by address, for a resource whose addresses the driver chooses; and which
 * addresses were freed lately.
 *
 * Invariants: no two ranges overlap. No locks: the caller has one. */

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

/* ---- chunks.c ---------------------------------------------------------------------------------------------------- */

struct wi_region;

typedef struct wi_chunk {
    /* What every use needs, in one cache line. */
    struct wi_region *region;
    uint64_t first, count; /* granules */
    uint64_t bytes;        /* in the region; the last granule may reach beyond its end */
    uint64_t occupied;     /* bytes in use by blocks or busy */
    struct wi_chunk *previous, *next;
    uint64_t idle_since; /* the clock when the last of its bytes were freed */

    wi_handle handle;
    struct wi_chunk *before, *behind; /* in the list of mapped chunks; mapped.h */
    struct wi_chunk *chosen;          /* the next chunk of the same plan */
    uint64_t plan;                    /* number of the last plan that chose it */
    uint64_t looked; /* number of the last search that asked whether it can be moved, and the answer: */
    bool movable;
    bool sealed;  /* the device's work may read it, and not write; mapped/seal.c */
    bool written; /* it was sealed, and then opened for a write */
} wi_chunk;

typedef struct wi_idle {
    wi_chunk *first, *last; /* longest idle first */
    uint64_t granules;
    uint64_t clock;                   /* counts the epochs that were closed, of all stream lists; stream_lists.h */
    weir_gauge split, split_segments; /* split bytes, and the number of chunks with some */
    uint64_t most_partly;             /* the peak of that number since the base was made */
} wi_idle;

/* An empty record, which the caller frees with free; NULL: no host memory. */
wi_chunk *wi_chunk_new(void);
/* The chunk is mapped from granule `first` of the region on. All of its bytes count as in use. */
void wi_chunk_enter(wi_chunk *chunk, struct wi_region *region, uint64_t first);
/* The chunk is no longer mapped. The record is the caller's. */
void wi_chunk_leave(wi_chunk *chunk);
/* [offset, +bytes) of the region comes into use, or goes out of it. Granules without memory are skipped. */
void wi_chunk_use(struct wi_region *region, uint64_t offset, uint64_t bytes, bool in_use);

#endif
