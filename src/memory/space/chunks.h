/* Chunks: pieces of physical memory under a region, each under a run of granules.
 *
 * A chunk that no block touches is idle: it can be moved to another address, or given back. Idle chunks are listed in
 * the order in which they became idle, which is the order of their last use.
 *
 * Invariants: a granule has a chunk if and only if no hole covers it, busy extents apart; occupied is the sum of the
 * used and busy bytes on the chunk; a chunk is in the idle list if and only if occupied is 0.
 *
 * Bookkeeping alone, under the lock of the resource; mapped/chunks_driver.c calls the driver. */
#ifndef WI_CHUNKS_H
#define WI_CHUNKS_H

#include "driver/driver.h"

#include <weir/stats.h>

struct wi_region;

typedef struct wi_chunk {
    /* What every use needs, in one cache line. */
    struct wi_region *region;
    uint64_t first, count; /* granules */
    uint64_t bytes;        /* in the region; the last granule may reach beyond its end */
    uint64_t occupied;     /* bytes in use by blocks or busy */
    struct wi_chunk *previous, *next;

    wi_handle handle;
    struct wi_chunk *before, *behind; /* in the list of mapped chunks; mapped.h */
    struct wi_chunk *chosen;          /* the next chunk of the same plan */
    uint64_t plan;                    /* number of the last plan that chose it */
    uint64_t looked; /* number of the last search that asked whether it can be moved, and the answer: */
    bool movable;
} wi_chunk;

typedef struct wi_idle {
    wi_chunk *first, *last; /* longest idle first */
    uint64_t granules;
    weir_gauge split, split_segments; /* split bytes, and the number of chunks with some */
    uint64_t partly, most_partly;     /* the same number, and its peak */
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
