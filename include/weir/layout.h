/* weir/layout.h: where memory lies: every segment that the driver gave, with the blocks and the free runs in it.
 *
 * A segment is what comes from the driver and goes back to it in one span: a handle with `mapped`, an allocation with
 * `direct`, `async` and `segments`. Its spans follow each other without gaps and add up to it. A block
 * that lies over several segments has a span in each. */
#ifndef WEIR_LAYOUT_H
#define WEIR_LAYOUT_H

#include <weir/memory.h>

WEIR_BEGIN

typedef enum weir_span_state {
    WEIR_SPAN_LIVE = 0,
    WEIR_SPAN_PENDING = 1,       /* freed; the device is not yet past it */
    WEIR_SPAN_THREAD_CACHED = 2, /* freed, and kept by a thread for the same client and stream */
    WEIR_SPAN_PROMISED = 3,      /* a thread is making a block of it, or undoing that */
    WEIR_SPAN_FREE = 4,
    WEIR_SPAN_ORDERED = 5, /* free, for `stream` alone as yet: the device may not be past what was freed there */
    WEIR_SPAN_KEPT = 6,    /* what is left beside a block and serves nobody else: direct, async, segments */
    WEIR_SPAN_SPARE = 7,   /* a segment that is mapped nowhere */
    WEIR_SPAN_BUSY = 8,    /* a thread has it mapped or unmapped right now */
    WEIR_SPAN_COUNT = 9
} weir_span_state;

enum { WEIR_SPAN_MOST = 16 }; /* places by state in structures, so that states can be added */

/* "live" and so on, as in the command's JSON; "?" for a number that is none. */
WEIR_API const char *weir_span_state_name(weir_span_state state);

typedef struct weir_segment {
    size_t struct_size;
    uint32_t number; /* from 0, in the order of the walk */
    uint32_t spans;  /* at least one */
    const void
        *address; /* NULL: a spare one, and what the pool of `async` keeps, which is one segment without addresses */
    uint64_t bytes;
} weir_segment;

typedef struct weir_span {
    size_t struct_size;
    weir_span_state state;
    const void *address; /* NULL where the segment has none */
    uint64_t bytes;      /* of this segment */
    weir_block block;    /* the block that this is a part of; a NULL pointer: none. generation 0 unless it is live */
    uint64_t charged;    /* the whole block, as the ledger counts it, */
    uint64_t requested;  /* and as its user asked for it */
    const weir_client *client; /* to be told apart by; it may be closed by now */
    const char *client_name;   /* "" is none, "?" one that was not kept (weir/client.h); valid as long as the process */
    const char *tag;           /* the same */
    weir_class memory_class;   /* of a block */
    weir_stream stream;        /* where the block was allocated, or in whose order the span is free */
} weir_span;

typedef struct weir_layout_totals {
    size_t struct_size;
    uint64_t held; /* as the ledger has it: weir_stats.held */
    /* By state. They and `in_hand` add up to `held`. */
    uint64_t bytes[WEIR_SPAN_MOST];
    uint64_t in_hand; /* between the driver and their place in a thread's hands; 0 while no thread is in the driver */
    uint64_t segments, spans;
} weir_layout_totals;

typedef void (*weir_layout_fn)(const weir_segment *segment, const weir_span *span, void *user);

/* Tells `fn` (NULL: nobody) every span of what counts in the runtime's ledger: segment by segment, and in each by
 * address. `out` (may be NULL) gets the sums. On the host, the pinned and pageable memory of other
 * runtimes is in it.
 *
 * One moment: everything is copied with the resources locked, and told afterwards with no lock held, so that `fn` may call
 * weir, and what it is told may be past. Only what threads park and take back meanwhile (weir/stats.h) is of a moment a
 * little later. Takes host memory for the copy and, while allocations wait, some 50 ns a span. Errors: WEIR_ERR_INVALID,
 * WEIR_ERR_SYSTEM without host memory, WEIR_ERR_FORKED; nothing was told then. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_walk(weir_runtime *runtime, weir_layout_fn fn, void *user,
                                                     weir_layout_totals *out);

WEIR_END
#endif
