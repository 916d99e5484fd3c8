/* weir/trace.h: what happened, event by event, in the order in which the ledger saw it.
 *
 * A trace records from the moment it is opened; reading takes events out of it. Records are written within the step
 * that changes the ledger, so that a free never stands behind the reuse of its address. Nothing of it calls back. */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include <weir/memory.h>

WEIR_BEGIN

typedef struct weir_trace weir_trace;

typedef enum weir_action {
    WEIR_ALLOCATE = 0,
    WEIR_DEALLOCATE = 1, /* the free call; the bytes are pending or free from here on */
    WEIR_REAP = 2,       /* pending bytes have become free; pointer and bytes of the block */
    WEIR_RESIZE = 3,     /* bytes and charged are the new ones */
    WEIR_REFUSE = 4,     /* pointer is NULL, bytes as requested */
    WEIR_HOLD = 5        /* the driver gave (or took back) physical memory: `held` has changed */
} weir_action;

typedef struct weir_event {
    size_t size;
    weir_action action;
    weir_class memory_class;
    uint64_t order;       /* strictly increasing within the trace, from 1 */
    uint64_t nanoseconds; /* monotonic clock */
    uint64_t thread;      /* small number, 1 for the first thread seen */
    void *pointer;
    uint64_t bytes;   /* as requested */
    uint64_t charged; /* as counted */
    uint64_t generation;
    weir_stream stream;           /* of this action */
    uint64_t live, pending, held; /* the runtime's, after this event */
    const char *client; /* its name; "" for WEIR_HOLD. Names and tags stay valid for the life of the process */
    const char *tag;    /* "" is none */
} weir_event;

/* Starts recording on `runtime`, keeping at most `capacity` unread events (0: 1,048,576); later ones are counted as lost
 * until somebody reads. One trace per runtime: WEIR_BUSY otherwise. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_trace_open(weir_runtime *runtime, size_t capacity, weir_trace **out);

/* Takes up to `capacity` events, oldest first; events[0].size is the stride. *count is 0 when none is waiting. One
 * reader at a time. */
WEIR_API WEIR_NODISCARD weir_status weir_trace_read(weir_trace *trace, weir_event *events, size_t capacity,
                                                    size_t *count);

/* How many events were lost so far. */
WEIR_API uint64_t weir_trace_lost(const weir_trace *trace);

/* Stops recording and frees the trace. */
WEIR_API void weir_trace_close(weir_trace *trace);

WEIR_END
#endif
