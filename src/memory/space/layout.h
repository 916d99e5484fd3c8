/* Layout: a copy of where memory lies. Bases write their segments and spans into it with their lock held. */
#ifndef WI_LAYOUT_H
#define WI_LAYOUT_H

#include "memory/space/stream_lists.h"

#include <weir/stats.h>

typedef struct wi_layout {
    weir_segment *segments;
    weir_span *spans; /* in the order of the segments */
    size_t segment_count, segment_room, span_count, span_room;
    bool failed; /* host memory ran out; it is incomplete */
} wi_layout;

/* Begins a segment, which contains the spans that follow. */
void wi_layout_segment(wi_layout *layout, const void *address, uint64_t bytes);
/* Bytes without a block; address NULL: unknown. */
void wi_layout_span(wi_layout *layout, weir_span_state state, const void *address, uint64_t bytes);
/* A part of a block, in the state of the block. The lock of its base is held. */
void wi_layout_block(wi_layout *layout, const wi_block *block, const void *address, uint64_t bytes);

/* [from, from + bytes) of an extent that has memory, in the current segment. */
void wi_layout_extent(wi_layout *layout, const wi_extent *extent, uint64_t from, uint64_t bytes);

/* Writes all memory of the base. Its lock is held. */
void wi_layout_add(wi_layout *layout, wi_base *base);
void wi_layout_clear(wi_layout *layout);

#endif
