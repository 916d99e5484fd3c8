/* weir/stats.h: who holds what: the ledger read in one step, the same in the names of PyTorch, and where memory lies.
 *
 * Every byte of the device that weir holds is in exactly one state:
 *   live      in blocks, as charged                       pending  freed; the device is not past it yet
 *   cached    mapped, and in no block                     spare    physical memory that is mapped nowhere
 * held = live + pending + cached + spare: the bytes that the driver has given out; never more than the budget. Besides:
 *   ordered        cached bytes that serve the stream of their free alone, until the device is past the free
 *   thread-cached  cached bytes that a thread keeps for its next allocation for the same client on the same stream; they
 *                  count against the client's maximum, and are given up to any request that needs them
 *   promised       claimed under the limits, not yet backed; in no state above
 *   away           of suspended clients (weir/residency.h); in no state above
 * All counts are bytes. */
#ifndef WEIR_STATS_H
#define WEIR_STATS_H

#include <weir/memory.h>

WEIR_BEGIN

/* How a request for a block came to be served: the rungs of the ladder, cheapest first. */
typedef enum weir_rung {
    WEIR_RUNG_FIT = 0,           /* memory that was free, whoever had it last, without a call of the driver */
    WEIR_RUNG_THREAD_CACHED = 1, /* after thread caches had been emptied */
    WEIR_RUNG_COMPLETED = 2,     /* after a look at what was freed and has passed since */
    WEIR_RUNG_SPARE = 3,         /* a spare chunk was mapped */
    WEIR_RUNG_CREATE = 4,        /* physical memory was taken from the driver */
    WEIR_RUNG_REMAP = 5,         /* chunks were moved from under free memory */
    WEIR_RUNG_KEPT_RELEASED = 6, /* after an adaptor had given up what it kept back */
    WEIR_RUNG_ORDER = 7,         /* memory freed on another stream, behind which the request's stream was ordered */
    WEIR_RUNG_PRESSURE = 8,      /* after a pressure callback had made room; weir/pressure.h */
    WEIR_RUNG_WAIT = 9,          /* after waiting for pending frees */
    WEIR_RUNG_COUNT = 10
} weir_rung;

/* The name before 0.2: an error of the compiler that has the new one. */
#define WEIR_RUNG_RELIEVED WEIR_RUNG_RELIEVED_is_now_WEIR_RUNG_KEPT_RELEASED

enum { WEIR_RUNG_MOST = 16 }; /* places in statistics, so that rungs can be added */

typedef struct weir_stats {
    size_t struct_size;
    uint64_t budget;
    uint64_t live, pending, cached, spare, promised;
    uint64_t held;
    uint64_t peak;        /* of live + pending, since start or the last reset */
    uint64_t peak_held;   /* of held */
    uint64_t guaranteed;  /* sum over the clients */
    uint64_t allocations; /* blocks ever allocated, freed, requests refused */
    uint64_t frees;
    uint64_t refusals;
    uint64_t driver_calls; /* calls that create, destroy, map or unmap physical memory */
    uint32_t clients;
    uint64_t failed_frees; /* times that the driver refused to take back what was freed; it is tried again */
    /* Of cached: freed on streams that the device is not past, and so for work on the same streams alone. Looked at a
     * moment before the rest. */
    uint64_t ordered;
    uint64_t created;       /* chunks of physical memory ever made */
    uint64_t moved;         /* chunks ever moved to where a block wanted memory */
    uint64_t batches;       /* times that chunks were moved for a block */
    uint64_t thread_cached; /* of the cached bytes */
    uint64_t hits;          /* allocations that thread caches served */
    uint64_t emptied;       /* thread-cached bytes that were given up for requests which needed them */
    /* Blocks by the highest rung that led to them; invariant: hits and these add up to allocations. */
    uint64_t ladder[WEIR_RUNG_MOST];
    /* Bytes of blocks in memory that was lent, without a call of the driver that moves or makes memory. lent_clients:
     * lent to a client by another client, where that client is known to have had all of the memory. lent_streams: lent
     * to a stream by other streams, whose frees had passed or behind which the borrowing stream came. */
    uint64_t lent_clients, lent_streams;
    uint64_t misses;    /* the other allocations */
    uint64_t lost_tags; /* in the process: times that a tag was not kept; weir/memory.h */
    uint64_t away;      /* bytes of blocks of suspended clients that are elsewhere: neither live nor held;
                           weir/residency.h */
} weir_stats;

/* Whether a client is suspended; weir/residency.h. */
typedef enum weir_residency_state {
    WEIR_RESIDENT = 0,  /* its memory is on the device */
    WEIR_SUSPENDED = 1, /* some is away */
    WEIR_MOVING = 2,    /* a thread suspends or resumes it right now */
    WEIR_RESIDENCY_COUNT = 3
} weir_residency_state;

typedef struct weir_client_stats {
    size_t struct_size;
    const weir_client *client;
    char name[64];
    uint64_t guaranteed, maximum;
    uint64_t live, pending, promised;
    uint64_t live_class[WEIR_CLASS_MOST]; /* adds up to live */
    uint64_t peak;                        /* of live + pending */
    uint64_t peak_class[WEIR_CLASS_MOST]; /* live + pending by class at the moment of that peak: adds up to it */
    uint64_t blocks;                      /* live ones */
    uint64_t allocations, frees, refusals;
    uint64_t outside; /* weir_client_note_outside */
    char outside_method[128];
    uint64_t thread_cached; /* live + pending + promised + thread_cached <= maximum */
    uint64_t hits, misses;  /* allocations that thread caches served, and the others */
    weir_runtime *runtime;  /* in whose ledger the account is */
    uint64_t away;          /* bytes of the client's blocks that are away; not in live */
    weir_residency_state residency;
    uint64_t predicted; /* of a model: the peak that was predicted before it was loaded (weir/predict.h); 0: none was */
} weir_client_stats;

/* One consistent view of the runtime and of its clients in the order they were opened: `clients` (may be NULL with
 * capacity 0) gets up to `capacity` of them, each with its member struct_size set by the caller in
 * clients[0].struct_size; `count` (may be NULL) gets how many there are. Exact at every moment: no state is counted
 * twice or missed. Peaks are exact where one thread allocates for a client, or while nothing is thread-cached; where
 * several do, a peak may be off by no more than the client's thread-cached bytes at that moment. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_snapshot(weir_runtime *runtime, weir_stats *out, weir_client_stats *clients,
                                                  size_t capacity, size_t *count);

/* Reports a single client, also while the client is being closed. WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_client_info(weir_client *client, weir_client_stats *out);

/* The same book in the names of torch.cuda.memory_stats, for those who know that. */

typedef struct weir_gauge {
    uint64_t current, peak;    /* now; the most since the start or the last WEIR_RESET_PEAKS */
    uint64_t allocated, freed; /* what came and what went since the start or the last WEIR_RESET_ACCUMULATED */
} weir_gauge;

/* PyTorch's key "allocated_bytes.all.current" is allocated_bytes.current, and so on. Bytes are as charged. */
typedef struct weir_memory_stats {
    size_t struct_size;
    weir_gauge allocated_bytes; /* live, or away: in blocks that are not freed. What thread caches keep is freed */
    weir_gauge
        active_bytes; /* live + pending: freed bytes count while work of their uses holds them up. A free that follows
                         its stream's order alone is not active any more, as in PyTorch */
    weir_gauge requested_bytes; /* of live blocks, as their users asked: allocated - requested is lost to rounding */
    weir_gauge
        reserved_bytes; /* held: physical memory that the driver gave; what was asked of it in vain comes and goes */
    /* Not in blocks, in segments that hold some and so cannot be given back: free, for whomever. Of `mapped` and
     * `segments`; 0 with the resources that split no segments. */
    weir_gauge inactive_split_bytes;
    weir_gauge allocation; /* live blocks */
    weir_gauge segment;    /* segments (weir_layout_walk), without what the pool of `async` keeps */
    weir_gauge active;     /* live and pending blocks; the tail that a resize cut off is one until it has passed */
    weir_gauge
        inactive_split; /* segments of which a part is in blocks and a part is not (PyTorch counts the free parts) */
    uint64_t num_alloc_retries; /* blocks that took more than a free place or new memory: from WEIR_RUNG_REMAP on */
    uint64_t num_ooms;          /* requests refused */
} weir_memory_stats;

/* Reports these figures at one moment, for all memory of the runtime's ledger. Exact at rest, as weir_snapshot; the
 * peaks of what several thread caches keep and serve may be off as is said there, and requested_bytes.peak is that of a
 * moment at which some thread's live bytes were highest. Errors: WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_memory_stats_info(weir_runtime *runtime, weir_memory_stats *out);

enum {
    WEIR_RESET_PEAKS =
        1u << 0, /* peaks start again from what is live and pending now: the runtime's, every client's, and
                                   those of weir_memory_stats */
    WEIR_RESET_ACCUMULATED =
        1u << 1 /* what came and went, retries and refusals start again from 0 in weir_memory_stats;
                                        weir_stats goes on */
};

/* `what` is a sum of the above; another is WEIR_ERR_INVALID. WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_stats_reset(weir_runtime *runtime, uint32_t what);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Where memory lies: every segment that the driver gave, with the blocks and the free runs in it.
 *
 * A segment is what comes from the driver and goes back to it in one span: a chunk with `mapped`, an allocation with
 * `direct`, `async` and `segments`. The spans of a segment follow each other without gaps and add up to the segment. A
 * block that lies over several segments has a span in each. */

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
    uint64_t charged;    /* the whole block, as the ledger counts it */
    uint64_t requested;  /* the whole block, as requested */
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
 * address. `out` (may be NULL) gets the sums. On the host, the pinned and pageable memory of other runtimes is in it.
 *
 * One moment: everything is copied with the resources locked, and told afterwards with no lock held, so that `fn` may
 * call weir, and what it is told may be past. Only what thread caches keep and serve meanwhile is of a
 * moment a little later. Takes host memory for the copy and, while allocations wait, some 50 ns a span. Errors:
 * WEIR_ERR_INVALID, WEIR_ERR_SYSTEM without host memory, WEIR_ERR_FORKED; nothing was told then. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_layout_walk(weir_runtime *runtime, weir_layout_fn fn, void *user,
                                                     weir_layout_totals *out);

WEIR_END
#endif
