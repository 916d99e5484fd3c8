/* A copy of where memory lies: bases write their segments and spans into it with their lock held. */
#ifndef WI_LAYOUT_H
#define WI_LAYOUT_H

#include "memory/space/stream_lists.h"

#include <weir/stats.h>

typedef struct wi_layout {
    weir_segment *segments;
    weir_span *spans; /* those of the first segment first */
    size_t segment_count, segment_room, span_count, span_room;
    bool failed; /* for want of host memory; it is not complete then */
} wi_layout;

/* The spans that follow are in it. */
void wi_layout_segment(wi_layout *layout, const void *address, uint64_t bytes);
/* Nobody's bytes; address NULL: unknown. */
void wi_layout_span(wi_layout *layout, weir_span_state state, const void *address, uint64_t bytes);
/* A part of a block, in the state that the block has; with the lock of its base held. */
void wi_layout_block(wi_layout *layout, const wi_block *block, const void *address, uint64_t bytes);

/* [from, from + bytes) of an extent that is no hole, in the segment at hand. */
void wi_layout_extent(wi_layout *layout, const wi_extent *extent, uint64_t from, uint64_t bytes);

/* Everything that the resource has; with its lock held. */
void wi_layout_add(wi_layout *layout, wi_resource *base);
void wi_layout_clear(wi_layout *layout);

#endif
