/* The table of a runtime's streams: its own, a pool of the driver's, and registered ones of other libraries. Ids are
 * never given twice. With it stand capture pools, which streams have while they are captured.
 *
 * An id is the runtime's number (16 bits, from 1, unique among the runtimes there are), a generation (32 bits) and a
 * entry in the table (16 bits).
 *
 * A stream ends in four steps: its door is closed (`closed`), after which no call finds the stream; the calls that are
 * putting work on it are waited for (`inside`); its work is waited for, with the work of these calls; its entry is
 * given up. Between the first step and the last weir itself still names the stream, to record points on it. Frees that
 * looked before are not waited for: such a free looks again when its point is known (free.c).
 *
 * Invariants: an entry has a stream exactly while it has users; an own stream is in an entry or idle; a leaving entry has
 * no users and gets none; a closed entry has exactly one user. */
#ifndef WI_STREAMS_H
#define WI_STREAMS_H

#include <weir/stream.h>

#include "driver/driver.h"
#include "memory/resource.h"

enum { WI_STREAMS = 1024 };

typedef enum wi_stream_origin {
    WI_STREAM_OWN,
    WI_STREAM_ADOPTED,
    WI_STREAM_LEGACY,
    WI_STREAM_PER_THREAD
} wi_stream_origin;

typedef struct wi_stream_entry {
    void *stream; /* the driver's */
    uint32_t generation;
    uint32_t users; /* 1 for an acquired stream, else how often it was registered; 0: the entry is free */
    wi_stream_origin origin;
    void *native;       /* of a registered stream: the handle that was registered */
    uint64_t identity;  /* tells the stream from an earlier stream with the same handle */
    uint64_t thread;    /* the thread of a per-thread default stream; 0: any thread may use the stream */
    bool closed;        /* it is being released or unregistered: no call finds it */
    uint32_t inside;    /* calls between wi_streams_begin and wi_streams_done */
    bool leaving;       /* the stream ended without being unregistered; its entry is being cleared for another stream */
    uint32_t abandoned; /* generation of the last such stream in this entry */
    bool captured;      /* as weir_capture_begin said */
    bool bounded;       /* while captured: the point before the capture is known */
    wi_event before;
    struct weir_capture_pool *graph; /* the capture pool that the open capture allocates from; NULL: none */
    pthread_t capturer;              /* the thread that began it */
} wi_stream_entry;

/* What wi_streams_look finds without the lock. */
typedef struct wi_stream_seen {
    atomic_uint_fast64_t id; /* of the stream in the entry, while not captured and usable by any thread; else 0 */
    atomic_uintptr_t stream; /* the driver's; written between two stores of the id */
} wi_stream_seen;

typedef struct wi_streams {
    pthread_mutex_t lock;
    pthread_cond_t
        left;        /* signalled when an entry that was leaving or closed is free or open again, or nobody is inside */
    uint16_t pool;   /* the runtime's number */
    uint32_t used;   /* entries from there on never had a stream */
    uint32_t pooled; /* own streams, when no more are to be made; 0: they are made on demand */
    uint32_t idle_used; /* own streams that are not acquired */
    void *idle[WI_STREAMS];
    wi_stream_entry entries[WI_STREAMS];
    wi_stream_seen seen[WI_STREAMS];
} wi_streams;

/* WEIR_ERR_BUSY when all numbers are in use by runtimes. */
weir_status wi_streams_init(wi_streams *streams);
/* Undoes wi_streams_init. The streams remain the driver's. */
void wi_streams_end(wi_streams *streams);
/* Makes `count` own streams, and lets no more be made; count 0: own streams are made on demand. On failure the streams
 * that were made are idle, and wi_streams_unmake destroys them. */
weir_status wi_streams_make(wi_streams *streams, const wi_driver *driver, wi_device *device, uint32_t count);
void wi_streams_unmake(wi_streams *streams, const wi_driver *driver, wi_device *device);
/* Undoes wi_streams_init, and destroys idle streams. No other thread uses the table any more. */
void wi_streams_destroy(wi_streams *streams, const wi_driver *driver, wi_device *device);

/* What is known of a stream without asking the driver, at one moment. A request looks its stream up once and hands the facts
 * down. Another thread may end or capture the stream meanwhile. Steps that must see this look again: under the lock
 * (wi_streams_begin, wi_streams_stays, wi_streams_graph), or behind queued work (wi_streams_record, wi_streams_wants_point). */
typedef struct wi_stream_facts {
    weir_stream stream;
    void *native;                          /* the driver's stream; NULL for WEIR_STREAM_HOST and an unknown stream */
    const struct weir_capture_pool *graph; /* the capture pool that its capture allocates from, or NULL. The facts do
                                            * not hold the pool, so the pointer is only to be compared */
    bool captured;                         /* as was declared */
    bool one_threads;                      /* a per-thread default stream: no other thread can record an event on it */
    bool another_threads;                  /* the per-thread default stream of another thread than the calling one */
    bool closed;                           /* it is being released or unregistered */
} wi_stream_facts;

/* Fills in the facts of any stream, known or not. */
void wi_streams_facts(wi_streams *streams, weir_stream stream, wi_stream_facts *out);
/* Whether weir's own work can go on the stream, whose door may be closed: the stream is known, and not another thread's. */
static inline bool wi_stream_is_usable(const wi_stream_facts *at)
{
    return at->stream.id == 0 || (at->native && !at->another_threads);
}
/* Why a call cannot name the stream: WEIR_ERR_STREAM_MISUSE. */
weir_status wi_streams_refuse(const wi_streams *streams, const wi_stream_facts *at, const char *runtime);
/* WEIR_ERR_STREAM_MISUSE for an unknown stream, one whose door is closed, or the per-thread stream of another thread. */
static inline weir_status wi_streams_check(const wi_streams *streams, const wi_stream_facts *at, const char *runtime)
{
    return wi_likely(wi_stream_is_usable(at) && !at->closed) ? WEIR_OK : wi_streams_refuse(streams, at, runtime);
}
/* wi_streams_facts and wi_streams_check. */
static inline weir_status wi_streams_look(wi_streams *streams, weir_stream stream, const char *runtime,
                                          wi_stream_facts *out)
{
    wi_streams_facts(streams, stream, out);
    return wi_streams_check(streams, out, runtime);
}
/* Records the point behind the work that is queued on the stream; nothing for WEIR_STREAM_HOST. WEIR_ERR_STREAM_MISUSE when the
 * stream has ended since the facts were filled in, as the event may be another stream's. */
weir_status wi_streams_record(weir_runtime *runtime, const wi_stream_facts *at, wi_event *out);
/* The driver's stream behind an id; NULL for WEIR_STREAM_HOST. WEIR_ERR_STREAM_MISUSE for an unknown one. */
weir_status wi_streams_resolve(wi_streams *streams, weir_stream stream, const char *runtime, void **out);
/* wi_streams_resolve for a call that puts work on the stream: the end of the stream waits until it is done, which calls
 * nothing of the program's meanwhile. Nothing is to be done after a failure, or for WEIR_STREAM_HOST. */
weir_status wi_streams_begin(wi_streams *streams, weir_stream stream, const char *runtime, void **out);
void wi_streams_done(wi_streams *streams, weir_stream stream);
/* The same for a call that records an event: WEIR_ERR_STREAM_MISUSE as of wi_streams_resolve_recorded. */
weir_status wi_streams_begin_recorded(weir_runtime *runtime, weir_stream stream, const char *call, void **out);
bool wi_streams_any(wi_streams *streams);
bool wi_streams_knows(wi_streams *streams, weir_stream stream);
/* Whether this stream, or a later one in its place, ended without being unregistered, so that its work may go on. */
bool wi_streams_ended(wi_streams *streams, weir_stream stream);
/* Whether any thread may record events on it, now and later: it is known, not captured, and no per-thread stream. */
bool wi_streams_stays(wi_streams *streams, weir_stream stream);
/* Whether the point behind what was just queued has to be recorded now, as it cannot be later: on a per-thread stream
 * other threads can record nothing; or a capture has begun meanwhile. */
bool wi_streams_wants_point(wi_streams *streams, weir_stream stream);

/* Whether the stream is being captured into a graph, as declared by weir_capture_begin or as the driver says. Never
 * blocks. */
bool wi_streams_capturing(wi_streams *streams, const wi_driver *driver, wi_device *device, weir_stream stream);
bool wi_streams_declared(wi_streams *streams, weir_stream stream); /* only the former: no driver call */
/* wi_streams_capturing, where the request has just looked the stream up: asks the driver alone. */
bool wi_stream_is_captured(const weir_runtime *runtime, const wi_stream_facts *at);
/* wi_streams_resolve for a `call` that must know when the stream's work is done. WEIR_ERR_STREAM_MISUSE also while the
 * stream is being captured. */
weir_status wi_streams_resolve_now(weir_runtime *runtime, weir_stream stream, const char *call, void **out);
/* The same for a call that records an event next. The driver itself refuses that in a capture that was not declared,
 * and this saves one query. */
weir_status wi_streams_resolve_recorded(weir_runtime *runtime, weir_stream stream, const char *call, void **out);
/* The point behind all of weir's own work on the stream so far. For a released stream the point has passed, as the
 * release waited; for a stream that ended without being unregistered it is behind all work of the device; for a
 * captured one it is the point before the capture, as weir queues nothing in a capture. WEIR_ERR_STREAM_MISUSE when a
 * capture does not allow to record it. */
weir_status wi_streams_point(weir_runtime *runtime, weir_stream stream, wi_event *out);
/* A point behind the work of every stream, also of those that weir does not know: WEIR_STREAM_ALL. May wait for the device.
 * WEIR_ERR_STREAM_MISUSE while a stream is captured. */
weir_status wi_streams_point_of_all(weir_runtime *runtime, const char *call, wi_event *out);

/* Waits for work of weir's own on the driver's stream; what it touches is about to be used otherwise. A driver that cannot tell
 * about the stream is asked about the device, and on a lost one nothing works any more. False: it does not say that the work is
 * done. The thread's detail stays. */
bool wi_stream_rests(const weir_runtime *runtime, void *stream);

/* Among the files of this room ------------------------------------------------------------------------------------- */

/* The id of a registered stream of the driver's; WEIR_STREAM_HOST: it is not registered. */
weir_stream wi_streams_named(wi_streams *streams, const void *stream);

/* With the lock held. */
wi_stream_entry *wi_streams_entry(wi_streams *streams, weir_stream stream); /* NULL: not known here */
wi_stream_entry *wi_streams_free_entry(wi_streams *streams);                /* NULL: all are taken */
weir_stream wi_streams_id(const wi_streams *streams, const wi_stream_entry *entry);
void wi_streams_clear(wi_streams *streams, wi_stream_entry *entry); /* the entry is free then */
/* The entry has changed, which wi_streams_look is to see. */
void wi_streams_show(wi_streams *streams, const wi_stream_entry *entry);
/* Fills a free entry for its first user. */
weir_stream wi_streams_take(wi_streams *streams, wi_stream_entry *entry, wi_stream_entry content);

/* The runtime of the stream, visited; NULL, and WEIR_ERR_STREAM_MISUSE, when there is none. */
weir_status wi_streams_visit(weir_stream stream, weir_runtime **runtime);
/* The same for the rest of the function, which answers so. */
#define WI_VISIT_OF(stream, runtime)                                                                                   \
    __attribute__((cleanup(wi_runtime_visited))) weir_runtime *(runtime) = NULL;                                       \
    weir_status wi_door = wi_streams_visit((stream), &(runtime));                                                      \
    if (wi_unlikely(wi_door != WEIR_OK))                                                                               \
    return wi_door
/* Waits for the stream's work on behalf of `call`, also while its door is closed. */
weir_status wi_streams_flush(weir_runtime *runtime, weir_stream stream, const char *call);
/* Closes the door of a stream that ends, and brings what threads have cached in its order to the stream's list; then waits for
 * its work, if `waits`. `call` ends streams of these origins (a bit each). With more than one user nothing is closed, only
 * waited for: *last is false then. On failure the door is open again. */
weir_status wi_streams_close(weir_runtime *runtime, weir_stream stream, unsigned origins, bool waits, const char *call,
                             bool *last);
/* The stream ends after its work was waited for: memory in its order becomes free for all streams. */
void wi_streams_forget(weir_runtime *runtime, weir_stream stream);
/* The stream has ended without being unregistered, and its work may go on: memory in its order becomes free for all
 * streams once the device is past all its work. Called before the table forgets the stream. */
void wi_streams_abandon(weir_runtime *runtime, weir_stream stream);
/* A refusal: the table is full. */
weir_status wi_streams_all_taken(const weir_runtime *runtime);
/* Waits for the work of every stream that the runtime knows. WEIR_ERR_STREAM_MISUSE while one is captured. */
weir_status wi_streams_synchronize_all(weir_runtime *runtime, const char *call);
weir_status wi_streams_captured(const weir_runtime *runtime, weir_stream stream, const char *call);
/* weir_capture_begin for `call`. With a pool, allocations on the stream come from it; NULL: they do not. */
weir_status wi_capture_begin(weir_stream stream, struct weir_capture_pool *graph, const char *call);
/* The pool that the stream's capture allocates from, with one more reference; NULL: none. */
struct weir_capture_pool *wi_streams_graph(wi_streams *streams, weir_stream stream);
/* Whether this thread captures the stream for a pool. */
bool wi_streams_graphed_here(wi_streams *streams, weir_stream stream);
/* Ends the stream's capture for the pool, unless the stream is gone or captured for another one. */
void wi_streams_end_graph(wi_streams *streams, weir_stream stream, const struct weir_capture_pool *graph);

/* ---- capture_pool.c ---------------------------------------------------------------------------------------------- */

/* Capture pools, inside: private memory of captured graphs. Blocks that are freed in a capture are held, since the
 * graph still uses them.
 *
 * Invariants: a held block has the phase WI_PENDING; it counts as pending and as kept in the ledger; it is in its
 * pool's list and not in that of deferred frees; its free is among its stream uses if it was on a stream outside of
 * the capture. A closed pool holds nothing. Its record lives while the pool is open, allocations for it are under
 * way, or blocks of it are live.
 * A kept block whose request named the pool (graph_named) is in the order of its stream: it serves requests of that stream
 * that name the pool, and is joined with such blocks alone.
 *
 * A pool's lock comes before those of streams, resources and the ledger. Of drivers, only `passed` is called with
 * it. */

/* Reference count of the pool's record. */
void wi_capture_pool_hold(weir_capture_pool *graph);
void wi_capture_pool_drop(weir_capture_pool *graph);
const weir_client *wi_capture_pool_client(const weir_capture_pool *graph);
weir_status wi_capture_pool_check_runtime(const weir_capture_pool *graph, const weir_runtime *runtime,
                                          weir_stream stream, const char *call);
/* WEIR_ERR_BUSY while the client has an open pool, which it names. */
weir_status wi_graphs_check_none(const weir_client *client);

/* Allocates from what the pool holds; *out as from wi_allocate. WEIR_ERR_NO_ROOM: nothing fits. */
weir_status wi_capture_pool_allocate(weir_capture_pool *graph, wi_resource *stack, wi_placement *placement,
                                     wi_block **out);
/* The acquired block belongs to the pool from now on, unless the pool was closed. `named`: as wi_placement.graph_named. */
void wi_capture_pool_adopt(weir_capture_pool *graph, wi_block *block, bool named);
/* Frees an acquired block of the pool, open or closed. On failure the block is still acquired. */
weir_status wi_capture_pool_free(weir_capture_pool *graph, wi_resource *stack, wi_block *block,
                                 const wi_stream_facts *at);
/* The acquired block is in use until the event. Called before the block is shrunk, so that its tail has the use as
 * well. */
weir_status wi_capture_pool_note(wi_block *block, wi_event event);
/* The pool keeps the pending tail of a live block, after the block was shrunk. False: the pool was closed, and the
 * tail is the caller's to free. */
bool wi_capture_pool_keep(weir_capture_pool *graph, wi_resource *stack, wi_block *tail);

/* What the client's pools keep becomes live, with the same contents, so that it can leave like other blocks, until
 * wi_capture_pools_return. The thread has the client's residence. Waits for the uses of these blocks. After a failure some of it
 * is live. WEIR_ERR_STREAM_MISUSE: a pool's capture has not ended; WEIR_ERR_BUSY: the uses were not done by the deadline. */
weir_status wi_capture_pools_step_aside(weir_client *client, uint64_t deadline);
/* The pools keep it again. Nothing of the client is away. */
void wi_capture_pools_return(weir_client *client);

/* weir_capture_begin and weir_capture_end with a pool. */
weir_status wi_capture_pool_begin(weir_capture_pool *graph, weir_stream stream);
weir_status wi_capture_pool_end(weir_capture_pool *graph, weir_stream stream);

#endif
