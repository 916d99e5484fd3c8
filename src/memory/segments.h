/* The resource "segments", for drivers without virtual-memory management: each segment is one driver allocation and a
 * region that is split into blocks.
 *
 *   request            charged as         from a segment of                   split off if the rest is
 *   <= 1 MiB           multiple of 512    2 MiB                               at least 512 bytes
 *   < 10 MiB           multiple of 512    20 MiB                              more than 1 MiB
 *   more               multiple of 512    its own, a multiple of 2 MiB        more than 1 MiB
 *
 * Small and large blocks have segments of their own kind, with best fit by size, then address. When the budget or the
 * device has no room for a segment of that length, free segments go back to the driver first. Then memory of the other
 * kind serves, then a shorter segment, before a request is refused.
 *
 * Invariants: the ledger holds, for this resource, `held` and what threads in the driver have claimed beforehand; a
 * segment is idle (chunks.h) if and only if nothing of it is in use; a segment is in the index until the driver has its
 * addresses back. */
#ifndef WI_SEGMENTS_H
#define WI_SEGMENTS_H

#include "memory/space/chunks.h"
#include "memory/space/stream_order.h"
#include "memory/stack.h"

enum { WI_LARGE_BLOCKS = 0, WI_SMALL_BLOCKS = 1 }; /* numbers of their regions */

enum {
    WI_SEGMENT_ROUND = 512,                      /* charges are multiples of it */
    WI_SMALL_SLACK = WI_SEGMENT_ROUND - WI_UNIT, /* slack behind a small block */
    WI_LARGE_SLACK = 1 << 20,                    /* slack behind a large one */
    WI_SMALL_MOST = 1 << 20,                     /* the largest small block */
    WI_SMALL_SEGMENT = 2 << 20,
    WI_LARGE_SEGMENT = 20 << 20,
    WI_OWN_SEGMENT = 10 << 20, /* the smallest block with a segment of its own length */
    WI_SEGMENT_STEP = 2 << 20  /* lengths of such segments are multiples of the step */
};

typedef struct wi_segment {
    wi_range range;
    wi_region region;
    wi_chunk chunk; /* the whole segment */
    struct wi_segment *previous, *next;
} wi_segment;

typedef struct wi_segments {
    wi_base base;
    pthread_mutex_t addresses; /* a leaf; the index changes under both locks, and a reader needs only one */
    wi_index index;
    /* under the resource's lock: */
    pthread_cond_t returned;
    size_t working; /* threads in a call of the driver */
    wi_shared shared;
    wi_stream_lists stream_lists;
    wi_segment *first, *checked; /* all segments; the one that the invariant checker looks at next */
    uint64_t held;
    uint64_t fresh_last; /* owner of the bytes in new segments: the driver may return memory that weir gave back */
} wi_segments;

weir_status wi_segments_create(const wi_driver *driver, wi_device *device, wi_resource **out);
/* As a part of a stack, which takes no arguments. */
weir_status wi_segments_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out);

/* The rules. A length that overflows becomes the largest multiple of 512. */

uint64_t wi_segment_charge(uint64_t bytes);
unsigned wi_segment_kind(uint64_t charged);
/* The length of a segment for the block, wherever the driver's address lies within `alignment`. */
uint64_t wi_segment_length(uint64_t charged, uint64_t alignment);
/* The next shorter length that still serves; 0: none. */
uint64_t wi_segment_shorter(uint64_t bytes, uint64_t charged, uint64_t alignment);

/* The lock is held, and released while the driver works. */

/* Makes a new segment of the kind, all of it *busy. Records for one change are reserved. WEIR_ERR_NO_ROOM: the budget
 * has no room for it; WEIR_ERR_OUT_OF_MEMORY: the device has none. */
weir_status wi_segments_obtain(wi_segments *segments, unsigned kind, uint64_t bytes, wi_extent **busy);
/* Gives free segments back, longest idle first, until `bytes` went; returns the bytes. */
uint64_t wi_segments_give_back(wi_segments *segments, uint64_t bytes);
/* Bytes of free segments that the device is past; `later`: of all free segments. */
uint64_t wi_segments_idle(const wi_segments *segments, bool later);
/* Whether to try again after threads in driver calls were waited for. *waits starts at 0 and bounds the number of
 * tries. */
bool wi_segments_synchronize(wi_segments *segments, unsigned *waits);
/* Drops the records of segments that the driver refuses to take back. */
void wi_segments_drop_all(wi_segments *segments);

#endif
