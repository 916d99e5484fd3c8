/* weir/trace.h: what happened, event by event.
 *
 * A trace records from the moment it is opened; the blocks that are live then come first, as allocations on
 * WEIR_STREAM_HOST, for nobody knows any more what was ordered behind them. The trace of a host's runtime has what
 * counts in its ledger: also the pinned and pageable blocks of other runtimes, whose own traces do not have them.
 * Every event is given its order within the step that it tells of: what the ledger does within the ledger's own step,
 * so that a free never stands behind the reuse of its address; a use between the opening of its ticket and the giving
 * back, so that it never stands behind the free of its block; work on streams, streams and notes before the call
 * returns.
 *
 * Events are read with weir_trace_read, or handed to sinks. While no trace is open, recording costs a load. */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include <weir/uses.h>

WEIR_BEGIN

typedef struct weir_trace weir_trace;

typedef enum weir_action {
    WEIR_ACTION_ALLOCATE = 0,
    /* The free call; the bytes are pending or free from here on. `object` is 1 when they are the stream's, in its
     * order: no reap of the block follows. */
    WEIR_ACTION_DEALLOCATE = 1,
    /* Pending bytes have become free; pointer and bytes of the block. With generation 0, and charged 0: the device is
     * past what was freed in the order of `stream` there, and these bytes, which may be of several blocks, are for
     * every stream; where `other` is another stream, the bytes are for `other` alone, which was ordered behind
     * `stream`. */
    WEIR_ACTION_REAP = 2,
    WEIR_ACTION_RESIZE = 3, /* bytes and charged are the new ones */
    /* pointer is NULL, bytes as requested, result WEIR_ERR_OUT_OF_MEMORY; `object` is the weir_refusal_cause, and
     * `generation` the limit in the way: the budget, a maximum, or what the reservation has. */
    WEIR_ACTION_REFUSE = 4,
    /* The driver gave (or took back) physical memory: `held` has changed. `object` is the budget. */
    WEIR_ACTION_HOLD = 5,
    /* A weir_alloc, weir_free or weir_resize that failed otherwise than by a refusal: `result` is its answer, `object`
     * the action that did not happen, pointer and bytes as the caller gave them. Calls with a client that is none
     * belong to no runtime, and to no trace. */
    WEIR_ACTION_FAIL = 6,

    /* What follows changes nothing in the ledger. A call that failed is recorded as well, with its `result`; only the
     * NULLs of a caller are not. */
    WEIR_ACTION_STREAM_OPEN = 7,  /* acquired, or registered */
    WEIR_ACTION_STREAM_CLOSE = 8, /* released, or unregistered; its work is done */
    WEIR_ACTION_SYNCHRONIZE = 9,  /* the host has waited for all work on the stream */

    /* A launch: one event per block, with the access; `object` is the launch's number. One with a failure in `result`
     * tells that the launch was not begun: those of the same number before it are given back. */
    WEIR_ACTION_USE_BEGIN = 10,
    WEIR_ACTION_USE_END = 11,    /* of the launch `object`, on all its blocks */
    WEIR_ACTION_USE_ABORT = 12,  /* the same; nothing was queued */
    WEIR_ACTION_USE_RECORD = 13, /* weir_use_record */

    /* Work that weir queued. A copy is two events of one `object`, the bytes read (WEIR_ACCESS_READ) and the bytes
     * written (WEIR_ACCESS_WRITE); either may be memory that is not weir's. */
    WEIR_ACTION_COPY = 14,
    WEIR_ACTION_FILL = 15,
    WEIR_ACTION_CALL = 16,

    /* What the program says of work that weir does not see; the notes below. */
    WEIR_ACTION_NOTE_RECORD = 17, /* `object` is the event's number */
    WEIR_ACTION_NOTE_WAIT = 18,
    WEIR_ACTION_NOTE_USE = 19,

    /* A block of a client that is suspended (weir/residency.h): `object` bytes of its charge are away from here on, neither
     * live nor pending. The free of a block that is away takes these bytes with it. */
    WEIR_ACTION_LEAVE = 20,
    /* Its client was resumed: its `object` away bytes are live again. The contents are there behind the work queued on
     * `stream` so far. */
    WEIR_ACTION_RETURN = 21,

    /* What a pool of models did there (weir/pool.h). `object` is a weir_pool_action, `tag` the model's name, `bytes` as that
     * says, `generation` what the pool may take of the device. Nothing is said of clients or blocks. */
    WEIR_ACTION_POOL = 22,
    WEIR_ACTION_COUNT
} weir_action;

/* The pool's own log of decisions (weir_pool_options.event) is what a replay needs; these are the same moments among the
 * events of the memory that they moved. */
typedef enum weir_pool_action {
    WEIR_POOL_PREDICTED = 0, /* a load begins; bytes: predicted, which are reserved from here on */
    WEIR_POOL_PROMISED = 1,  /* a request is granted; bytes: its own, until it ends. None for a request without bytes */
    WEIR_POOL_COMMITTED = 2, /* a load has ended; bytes: measured */
    WEIR_POOL_WENT_SUSPENDED = 3, /* bytes: that stayed */
    WEIR_POOL_CAME_BACK = 4,      /* resumed; bytes: measured */
    WEIR_POOL_EVICTED = 5,        /* unloaded for another's sake, or the ceiling's; bytes: that came back */
    WEIR_POOL_WENT = 6,           /* unloaded for its own: idle for long, removed, by hand; the same */
    WEIR_POOL_REFUSED = 7,        /* a request; bytes: its own */
    WEIR_POOL_LOAD_GAVE_UP = 8,   /* a load, suspend or resume has failed, or was stopped; bytes: that were reserved */
    WEIR_POOL_ACTION_COUNT
} weir_pool_action;

typedef struct weir_event {
    size_t struct_size;
    weir_action action;
    weir_class memory_class;
    uint64_t order;       /* strictly increasing within the trace, from 1; a gap is what was lost */
    uint64_t nanoseconds; /* monotonic clock */
    uint64_t thread;      /* small number, 1 for the first thread seen */
    void *pointer;
    uint64_t bytes;   /* as requested */
    uint64_t charged; /* as counted */
    uint64_t generation;
    weir_stream stream;           /* of this action */
    uint64_t live, pending, held; /* the runtime's, after this event */
    const char
        *client;     /* its name; "" where there is none, "?" where it was not kept (weir/client.h). Names and tags stay
                           valid for the life of the process */
    const char *tag; /* "" is none */
    weir_status result; /* what the call answered */
    weir_access access; /* of a use; 0 for what is none */
    const char *device; /* "cuda:0" */
    uint64_t object;    /* the number of a launch, a copy or a noted event */
    weir_stream other;  /* where the block was allocated, for what concerns a block */
} weir_event;

/* Sinks ------------------------------------------------------------------------------------------------------------ */

/* Where a trace's events go. They are called with no lock of weir's held, but one after the other: in the order of
 * the events, by whichever thread ends a call of weir's when enough events wait, by a flush and by the close. Inside,
 * weir may be called; flushing or closing the trace, adding to it, or destroying a runtime is WEIR_ERR_BUSY or
 * nothing there. */
typedef struct weir_sink {
    size_t struct_size;
    void *user;
    /* Takes the events; events[0].struct_size is their stride. They are the sink's to read until it returns. A failure
     * loses them for this sink alone. */
    weir_status (*write)(void *user, const weir_event *events, size_t count);
    weir_status (*flush)(void *user);         /* what was written is to arrive; NULL: nothing to do */
    weir_status (*close)(void *user);         /* the last call; NULL: nothing to do */
    void (*lost)(void *user, uint64_t count); /* before the close: so many events never came; NULL: of no interest */
} weir_sink;

typedef enum weir_sink_format {
    /* All members of every event; `weir simulate --trace` reads it, and docs/guide/trace.md describes it. */
    WEIR_SINK_BINARY = 0,
    /* Comma-separated values: the columns that RMM's logging adaptor writes, Thread,Time,Action,Pointer,Size,Stream
     * with the actions allocate, allocate failure and free, and behind them Client,Class,Tag,Order,Nanoseconds. A
     * resize is a free and an allocation; a block that leaves is freed, and allocated again when it returns. RMM's own
     * reader ends at an action that it does not know, so that what RMM has no word for (a reap, a use) has no row here. */
    WEIR_SINK_CSV = 1
} weir_sink_format;

/* A sink that writes a file; an old one is overwritten. out->struct_size is the caller's to set, as everywhere. The
 * sink is for one trace at a time. Errors: WEIR_ERR_SYSTEM, which names the file, WEIR_ERR_INVALID. */
WEIR_API WEIR_NODISCARD weir_status weir_sink_file(const char *path, weir_sink_format format, weir_sink *out);

/* Traces ----------------------------------------------------------------------------------------------------------- */

typedef struct weir_trace_options {
    size_t struct_size;
    size_t capacity;        /* unread events that are kept; 0: 1,048,576 */
    const weir_sink *sinks; /* sinks[0].struct_size is the stride; they are copied */
    size_t sink_count;
} weir_trace_options;

/* Starts recording on `runtime`. `options` may be NULL: no sinks, 1,048,576 unread events; those beyond are counted
 * as lost until somebody reads. The sinks are the trace's when it answers WEIR_OK, and still the caller's otherwise.
 * One trace per runtime beside that of the option `trace`: WEIR_ERR_BUSY otherwise. Other errors: WEIR_ERR_INVALID,
 * WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_trace_create(weir_runtime *runtime, const weir_trace_options *options,
                                                      weir_trace **out);

/* Adds a sink, which gets the events that have not been read or handed out yet. The trace owns the sink from here on,
 * and closes it. WEIR_ERR_INVALID for one without `write`, WEIR_ERR_BUSY inside a sink. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_trace_add_sink(weir_trace *trace, const weir_sink *sink);

/* Takes up to `capacity` events, oldest first; events[0].struct_size is the stride. *count is 0 when none is waiting.
 * One reader at a time. WEIR_ERR_CONFLICT when the trace has sinks, which get the events. */
WEIR_API WEIR_NODISCARD weir_status weir_trace_read(weir_trace *trace, weir_event *events, size_t capacity,
                                                    size_t *count);

/* Hands all events recorded before the call to the sinks, and has the sinks flush them. Waits while another thread
 * hands events out. Answers what the first sink answered that failed. WEIR_ERR_BUSY inside a sink. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_trace_flush(weir_trace *trace);

typedef struct weir_trace_details {
    size_t struct_size;
    uint64_t lost;   /* events, because as many as the capacity were waiting */
    uint64_t failed; /* calls of sinks. The caller of weir whose thread it was is never told; the log is, once for each
                        sink */
} weir_trace_details;

/* So far. WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_trace_info(const weir_trace *trace, weir_trace_details *out);

/* Stops recording, hands the sinks what is left, closes them and frees the trace. Inside a sink it does nothing. */
WEIR_API void weir_trace_destroy(weir_trace *trace);

/* Notes ------------------------------------------------------------------------------------------------------------ */

/* A program that orders its streams by means of its own (a CUevent, a barrier) or that touches blocks without
 * declaring it (weir/uses.h) can say so, for whoever reads the trace: weir simulate --trace checks a recorded program
 * with it. */

typedef struct weir_note {
    size_t struct_size;
    /* One of:
     *   - WEIR_ACTION_NOTE_RECORD: "I have just recorded my event number `event` on this stream"; on WEIR_STREAM_HOST:
     *     the host's work so far. A number stands for its latest record.
     *   - WEIR_ACTION_NOTE_WAIT: "Work on this stream waits, from here on, for that event"; on WEIR_STREAM_HOST: the
     *     host has waited for it.
     *   - WEIR_ACTION_NOTE_USE: "The work that I have just queued here touches these bytes"; on WEIR_STREAM_HOST: the
     *     host does, now. */
    weir_action action;
    weir_access access; /* of a use */
    weir_stream stream;
    uint64_t event;
    const void *pointer; /* of a use */
    size_t bytes;
} weir_note;

/* It does nothing else, and without a trace nothing at all: WEIR_OK, but for a forked child, where it answers
 * WEIR_ERR_FORKED, traced or not. Otherwise WEIR_ERR_INVALID for NULL, another action, no access, or no bytes,
 * WEIR_ERR_STREAM_MISUSE for a stream that is not the runtime's. Any thread. */
WEIR_API weir_status weir_trace_note(weir_runtime *runtime, const weir_note *note);

WEIR_END
#endif
