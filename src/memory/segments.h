/* The resource "segments", for drivers without virtual-memory management: pieces of the driver's, each a space of its own that
 * is cut into blocks. segments.c makes and frees blocks; segments_pool.c gets segments and gives them back.
 *
 *   request            counts as          comes from a segment of             what is left behind it is an extent from
 *   <= 1 MiB           multiple of 512    2 MiB                               512 bytes
 *   < 10 MiB           multiple of 512    20 MiB                              more than 1 MiB
 *   more               multiple of 512    its own, a multiple of 2 MiB        more than 1 MiB
 *
 * Small and large blocks have segments of their own kind, in which the best fit by size and address serves. Where the budget
 * or the device has no more of that length, segments that are wholly free go back first, as many as it takes; then the
 * memory of the other kind serves, or a shorter segment, before a request is refused.
 *
 * Invariants: the ledger holds, for this resource, `held` and what threads have in the driver; a segment is idle (chunk.h) if and
 * only if nothing of it is in use; what has the addresses of a segment is in the index until the driver has them. */
#ifndef WI_SEGMENTS_H
#define WI_SEGMENTS_H

#include "memory/space/range_index.h"
#include "memory/space/stream_order.h"
#include "memory/stack.h"

enum { WI_LARGE_BLOCKS = 0, WI_SMALL_BLOCKS = 1 }; /* the numbers of their spaces */

enum {
    WI_SEGMENT_ROUND = 512,                      /* what charges are multiples of */
    WI_SMALL_SLACK = WI_SEGMENT_ROUND - WI_UNIT, /* the most that is left behind a small block */
    WI_LARGE_SLACK = 1 << 20,                    /* ... and a large one */
    WI_SMALL_MOST = 1 << 20,                     /* the largest small one */
    WI_SMALL_SEGMENT = 2 << 20,
    WI_LARGE_SEGMENT = 20 << 20,
    WI_OWN_SEGMENT = 10 << 20, /* blocks from here on have segments of their own length */
    WI_SEGMENT_STEP = 2 << 20  /* a multiple of this */
};

typedef struct wi_segment {
    wi_range range;
    wi_region region;
    wi_chunk chunk; /* all of it */
    struct wi_segment *previous, *next;
} wi_segment;

typedef struct wi_segments {
    wi_resource resource;
    pthread_mutex_t addresses; /* a leaf; the index changes under both locks, so that either is enough to look */
    wi_index index;
    /* everything below is under the resource's lock */
    pthread_cond_t settled;
    size_t working; /* threads in the driver */
    wi_shared shared;
    wi_stream_lists stream_lists;
    wi_segment *first, *checked; /* all of them; the one that the invariant checker looks at next */
    uint64_t held;
    uint64_t fresh_last; /* whose bytes those are that the driver gives: it may give back what it got */
} wi_segments;

weir_status wi_segments_create(const wi_driver *driver, wi_device *device, wi_resource **out);
/* The same for a stack: no arguments are taken. */
weir_status wi_segments_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out);

/* The rules; segments_pool.c. Lengths that no number can tell are the largest multiple of 512 that one can. */

uint64_t wi_segment_charge(uint64_t bytes);
unsigned wi_segment_kind(uint64_t charged);
/* How long a segment for the block is by the rules; `alignment` is what the driver may miss, besides. */
uint64_t wi_segment_length(uint64_t charged, uint64_t alignment);
/* The next shorter one that still serves, where there is none of `bytes`; 0: there is none. */
uint64_t wi_segment_shorter(uint64_t bytes, uint64_t charged, uint64_t alignment);

/* With the lock held, which is released while the driver works. */

/* A new segment of the kind, all of which is *busy; records for one change are reserved. WEIR_ERR_NO_ROOM: the budget has no place
 * for it; WEIR_ERR_OUT_OF_MEMORY: the device has not. */
weir_status wi_segments_obtain(wi_segments *segments, unsigned kind, uint64_t bytes, wi_extent **busy);
/* Gives wholly free segments back, the longest idle first, until they are `bytes`; answers how many they were. */
uint64_t wi_segments_give_back(wi_segments *segments, uint64_t bytes);
/* What wholly free segments have; `later`: also those that the device is not past. */
uint64_t wi_segments_idle(const wi_segments *segments, bool later);
/* Whether another try is worth it after waiting for threads in the driver; false at last, by *waits, which begins at 0. */
bool wi_segments_synchronize(wi_segments *segments, unsigned *waits);
/* Ends what the driver does not take. */
void wi_segments_drop_all(wi_segments *segments);

#endif
