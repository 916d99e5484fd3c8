/* Handles under a space: under which granules each one lies, and how much of it is in use.
 *
 * A handle without anything on it is idle: it can be moved to where memory is wanted, or given back. Idle ones are listed in
 * the order in which they became so, which is that of their last use.
 *
 * Invariants: a granule has a chunk if and only if no hole covers it (busy extents apart); occupied = bytes of used and busy
 * extents on it; it is in the list if and only if that is 0. Pure bookkeeping under the lock of the resource. */
#ifndef WI_CHUNKS_H
#define WI_CHUNKS_H

#include "driver/driver.h"

#include <weir/stats.h>

struct wi_region;

typedef struct wi_chunk {
    /* What every use needs, in one line of the processor's cache. */
    struct wi_region *region;
    uint64_t first, count; /* granules */
    uint64_t bytes;        /* of the space that it lies under: the last one may go beyond */
    uint64_t occupied;     /* of these */
    struct wi_chunk *previous, *next;

    wi_handle handle;
    struct wi_chunk *before, *behind; /* among all that are mapped; mapped.h */
    struct wi_chunk *chosen;          /* the next one of a plan */
    uint64_t plan;                    /* the last one that it was chosen for */
    uint64_t looked; /* when it was last looked at for a place, by the looks so far; and whether it could be moved */
    bool movable;
} wi_chunk;

typedef struct wi_idle {
    wi_chunk *first, *last; /* the longest idle one first */
    uint64_t granules;
    weir_gauge split, split_segments; /* unused bytes of handles in use, and how many those handles are */
    uint64_t partly, most_partly;     /* handles in use that are not wholly so; the most at a time */
} wi_idle;

/* A record of nothing yet, for free; NULL: no host memory. */
wi_chunk *wi_chunk_new(void);
/* The record stands for a handle from granule `first` of the space on, all of whose bytes are in use. */
void wi_chunk_enter(wi_chunk *chunk, struct wi_region *region, uint64_t first);
/* The handle is mapped there no longer; the record is the caller's. */
void wi_chunk_leave(wi_chunk *chunk);
/* [offset, +bytes) of the space is in use now, or no longer. Granules without memory are passed over. */
void wi_chunk_use(struct wi_region *region, uint64_t offset, uint64_t bytes, bool in_use);

#endif
