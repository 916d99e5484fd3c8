/* Stream lists: free memory by the stream in whose order it was freed, reused there without an event for each free.
 * With them stands the walk over all that a base has (layout.c).
 *
 * Memory that is freed on a stream goes to the stream's list, in the list's open epoch. Work that is queued on that
 * stream later may use it at once. One event behind all frees of an epoch closes the epoch. Once the device is past
 * that event, any stream may use the memory. Events are recorded when a request of any stream finds nothing that fits,
 * on the reclaim ladder, and in trims and drains (wi_stream_lists_renew); where there are several lists, also after a
 * number of frees, so that the memory has passed by the time that it is wanted.
 *
 * Coalesced extents have the latest epoch among their parts. A small block that is freed in each epoch would so keep
 * large extents from passing. Therefore each chunk remembers when it became idle. The clock for that goes on with each
 * epoch of any list. The device is past the chunk when it is past all frees of its lists before that time.
 *
 * A stream may end without notice while its work goes on. Its list is *gone* then. It serves no requests, and what
 * was freed since its last event waits for a point behind all work of the device. That point is recorded when memory is
 * short or is given back, because recording it breaks captures that the driver does not know of. A list on whose
 * stream no event can be recorded is treated alike.
 *
 * Invariants: passed <= recorded < open; an extent has a stream list if and only if it is linked there and in its size
 * indexes; the links are in the order of epochs; no entry has the list of a stream that has ended.
 *
 * Everything is under the lock of the resource. Events are recorded without it. */
#ifndef WI_STREAM_LISTS_H
#define WI_STREAM_LISTS_H

#include <weir/stats.h>

#include "memory/resource.h"
#include "memory/space/extents.h"

enum { WI_EPOCHS = 8, WI_STREAM_LIST_ENTRIES = 1024 }; /* as many entries as a runtime has streams (streams.h) */

typedef struct wi_epoch {
    uint64_t epoch;
    wi_event event; /* behind the frees of all epochs up to this one */
    uint64_t freed; /* the list's, when the event was recorded */
    uint64_t clock; /* as the epoch was closed: the event is behind all frees of the list at earlier times */
} wi_epoch;

/* When the stream ends in order, its list serves the next stream in the same entry. The epochs go on. */
struct wi_stream_list {
    weir_stream stream; /* id 0: none */
    void *native;
    uint64_t open, recorded, passed; /* epochs */
    uint64_t frees;                  /* in the open one */
    uint64_t freed, freed_passed;    /* bytes in all, and in epochs that have passed */
    uint64_t passed_until;           /* the clock: the device is past all frees at earlier times */
    bool recording;                  /* a thread records an event now */
    bool gone;                       /* the stream has ended without notice: no event can be recorded on it */
    bool refused;                    /* the driver failed to record the last event */
    wi_stream_list *next_gone;       /* in the list of those gone, or spent */
    wi_epoch bound;                  /* while a point behind all work is recorded; epoch 0: not for this list */
    unsigned index;
    wi_epoch epochs[WI_EPOCHS];
    unsigned first_epoch, epoch_count;
    uint64_t bytes;          /* free here */
    wi_extent *first, *last; /* what is free here, by epoch; linked by stream_next */
    wi_size_index size_indexes[WI_SIZE_INDEXES];
};

typedef struct wi_stream_lists {
    wi_base *base;                                   /* whose lock it is */
    uint64_t released;                               /* bytes released to every stream up to now */
    wi_shared *shared;                               /* has the number of lists that have a stream, and the clock */
    unsigned used;                                   /* entries from there on never had a list */
    wi_stream_list *entries[WI_STREAM_LIST_ENTRIES]; /* by the entry of the stream in the runtime's table */
    uint32_t ended[WI_STREAM_LIST_ENTRIES];          /* generation of the last ended stream there */
    wi_stream_list *gone;                            /* linked by next_gone; always ends with: */
    wi_stream_list late;                             /* for frees on a stream that ends meanwhile */
    wi_stream_list *spent;                           /* for the next streams */
    bool bounding;                                   /* a thread records a point behind all work */
} wi_stream_lists;

/* A stream's number in its runtime, never given twice; 0: none. The rest of an id is the runtime's number. */
static inline uint64_t wi_stream_list_number(weir_stream stream)
{
    return stream.id & (UINT64_MAX >> 16);
}

void wi_stream_lists_init(wi_stream_lists *stream_lists, wi_base *base, wi_shared *shared);
void wi_stream_lists_destroy(wi_stream_lists *stream_lists); /* nothing is free in any */

/* The stream's stream list; NULL when it has none. */
wi_stream_list *wi_stream_lists_find(const wi_stream_lists *stream_lists, weir_stream stream);
/* Whether it has one. Needs no lock. */
bool wi_stream_lists_has(const wi_stream_lists *stream_lists, weir_stream stream);
/* The stream's list, created when there is none. NULL without host memory, for a stream that has ended, and while another
 * stream has its entry. */
wi_stream_list *wi_stream_lists_get(wi_stream_lists *stream_lists, weir_stream stream, void *native);
/* The list for frees on a stream that may have ended; for WEIR_STREAM_HOST, for frees behind all work of the device. */
wi_stream_list *wi_stream_lists_get_late(wi_stream_lists *stream_lists, weir_stream stream, void *native);
/* The device is past all work of the stream, whose id will not be used again. Frees the memory of its list for every
 * stream; returns the bytes. */
uint64_t wi_stream_lists_forget(wi_stream_lists *stream_lists, weir_stream stream);
/* Ends a stream while the device may not be past its work. Every stream may use the memory of its list once the device
 * is past the work. */
void wi_stream_lists_abandon(wi_stream_lists *stream_lists, weir_stream stream);
/* Records a point behind all work for lists that wait for one. False: none does, or the driver cannot record it now.
 * The lock is released meanwhile. */
bool wi_stream_lists_bound(wi_stream_lists *stream_lists);
/* Waits for what was abandoned, and forgets all streams. Nothing is free in any list then. */
void wi_stream_lists_drain(wi_stream_lists *stream_lists);
/* Returns the list after `stream_list`, or NULL behind the last list; `stream_list` NULL: the first list. Covers
 * the lists of gone streams, too. */
wi_stream_list *wi_stream_lists_next(const wi_stream_lists *stream_lists, const wi_stream_list *stream_list);

/* Counts frees; closes the epoch where that is due. The lock is released while the driver works. */
void wi_stream_lists_freed(wi_stream_lists *stream_lists, wi_stream_list *stream_list, uint64_t bytes, uint64_t count);
/* The same for memory that comes back unused; closes nothing. */
void wi_stream_lists_returned(wi_stream_list *stream_list, uint64_t bytes);
/* Closes the open epochs of all lists and asks the driver which epochs have passed. Frees the memory of passed epochs
 * for every stream; returns the bytes. The lock is released while the driver works. */
uint64_t wi_stream_lists_renew(wi_stream_lists *stream_lists);
/* An upper bound for the free bytes that have not passed: a single list may have absorbed memory that any stream may
 * use. */
uint64_t wi_stream_lists_bytes(const wi_stream_lists *stream_lists);
/* Traces that `other` may use the bytes from here on; the extent's own stream stands for all. */
void wi_stream_lists_trace(const wi_stream_lists *stream_lists, const wi_extent *extent, weir_stream other);
/* The oldest recorded point of the list that has the most bytes, except the list of stream `but`. False: there is
 * none. */
bool wi_stream_lists_oldest(const wi_stream_lists *stream_lists, weir_stream but, wi_event *out);
/* Whether the device is past all frees in that part of a free extent which lies on the idle chunk. */
static inline bool wi_chunk_has_passed(const wi_chunk *chunk, const wi_extent *extent)
{
    return !extent->stream_list || chunk->idle_since < extent->stream_list->passed_until;
}
/* The point behind the last free in the extent; false: none was recorded yet. */
bool wi_stream_lists_point(const wi_extent *extent, wi_event *out);

/* ---- layout.c ---------------------------------------------------------------------------------------------------- */

/* Layout: a copy of where memory lies. Bases write their segments and spans into it with their lock held. */

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
