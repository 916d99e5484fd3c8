/* Streams of a runtime: its own, a pool of the driver's, and those of others that were registered; all under ids
 * that are never given twice.
 *
 * An id is the runtime's number (16 bits, from 1, unique at a time), a generation (32 bits) and a place in the table
 * (16 bits).
 *
 * Invariants: a place has a stream exactly while it has users; an own stream is in a place or idle; a place that is
 * leaving has no users and takes none. */
#ifndef WI_STREAMS_H
#define WI_STREAMS_H

#include "driver/driver.h"

#include <weir/stream.h>

enum { WI_STREAMS = 1024 };

typedef enum wi_stream_origin {
    WI_STREAM_OWN,
    WI_STREAM_ADOPTED,
    WI_STREAM_LEGACY,
    WI_STREAM_PER_THREAD
} wi_stream_origin;

typedef struct wi_stream_place {
    void *stream; /* the driver's */
    uint32_t generation;
    uint32_t users; /* 1 when acquired, else as often as registered; 0: the place is free */
    wi_stream_origin origin;
    void *native; /* of an adopted one: what it was registered as, and what tells it from an earlier one there */
    uint64_t identity;
    uint64_t thread;    /* whose default stream it is; 0: any thread may use it */
    bool leaving;       /* the stream has ended without notice; another stream is about to get the place */
    uint32_t abandoned; /* generation of the last stream here that ended without notice */
    bool captured;      /* as weir_capture_begin said */
    bool bounded;       /* while captured: the point before the capture is known */
    wi_event before;
    struct weir_capture_pool *graph; /* whose capture it is, which is open; NULL: nobody's */
    pthread_t capturer;              /* the thread that began it */
} wi_stream_place;

typedef struct wi_streams {
    pthread_mutex_t lock;
    pthread_cond_t left; /* a place has been left */
    uint16_t pool;       /* the runtime's number */
    uint32_t used;       /* places from there on never had a stream */
    uint32_t pooled;     /* own streams, when no more are to be made; 0: they are made on demand */
    uint32_t idle_used;  /* own streams that are not acquired */
    void *idle[WI_STREAMS];
    wi_stream_place places[WI_STREAMS];
} wi_streams;

/* `made`: the driver's streams that acquires are limited to; count 0: there is no such limit. WEIR_ERR_BUSY when all
 * numbers are those of runtimes. */
weir_status wi_streams_init(wi_streams *streams);
/* Undoes that; the streams stay the driver's. */
void wi_streams_end(wi_streams *streams);
/* Makes all own streams that there will be; of 0 none, and they are made on demand. On failure those that were made are
 * idle, for the other one to destroy. */
weir_status wi_streams_make(wi_streams *streams, const wi_driver *driver, wi_device *device, uint32_t count);
void wi_streams_unmake(wi_streams *streams, const wi_driver *driver, wi_device *device);
/* Nobody has any more: destroys the idle ones besides. */
void wi_streams_destroy(wi_streams *streams, const wi_driver *driver, wi_device *device);

/* What is known of a stream without the driver. */
typedef struct wi_stream_facts {
    void *native;     /* the driver's stream; NULL for WEIR_STREAM_HOST */
    bool captured;    /* as was declared */
    bool one_threads; /* the default stream of one thread, on which others can record nothing */
} wi_stream_facts;

/* WEIR_ERR_STREAM_MISUSE for a stream that is not known here, or that is another thread's. */
weir_status wi_streams_look(wi_streams *streams, weir_stream stream, const char *runtime, wi_stream_facts *out);
/* The driver's stream behind an id; NULL for WEIR_STREAM_HOST. WEIR_ERR_STREAM_MISUSE for one that is not known
 * here. */
weir_status wi_streams_resolve(wi_streams *streams, weir_stream stream, const char *runtime, void **out);
bool wi_streams_any(wi_streams *streams);
bool wi_streams_knows(wi_streams *streams, weir_stream stream);
/* Whether its work was not waited for when it, or one after it at its place, ended without a word. */
bool wi_streams_ended(wi_streams *streams, weir_stream stream);
/* Whether any thread may ask for points on it, now and later: it is known, not captured, and not one thread's own. */
bool wi_streams_stays(wi_streams *streams, weir_stream stream);
/* Whether the point behind what was just queued cannot be had later: it is the default stream of one thread, on which
 * others can record nothing, or a capture of it has begun meanwhile. */
bool wi_streams_wants_point(wi_streams *streams, weir_stream stream);

/* Whether the stream is being captured into a graph, as it was declared or as the driver sees it. Never blocks. */
bool wi_streams_capturing(wi_streams *streams, const wi_driver *driver, wi_device *device, weir_stream stream);
bool wi_streams_declared(wi_streams *streams, weir_stream stream); /* the former alone: costs no driver call */
/* wi_streams_resolve for `call`, which needs to know when the stream's work is done: WEIR_ERR_STREAM_MISUSE besides
 * while it is being captured. */
weir_status wi_streams_resolve_now(weir_runtime *runtime, weir_stream stream, const char *call, void **out);
/* The same for a call that goes on to record an event, which the driver refuses where it sees a capture. */
weir_status wi_streams_resolve_recorded(weir_runtime *runtime, weir_stream stream, const char *call, void **out);
/* The point behind what weir itself has queued on the stream so far. It is passed when the stream was released, which
 * waited for it, behind all work of the device when it ended without a word (WEIR_ERR_STREAM_MISUSE while a stream is
 * captured), and when it is captured, before the capture: weir queues nothing during one. */
weir_status wi_streams_point(weir_runtime *runtime, weir_stream stream, wi_event *out);

/* Among the files of this room ------------------------------------------------------------------------------------- */

/* The id under which the driver's stream is known; WEIR_STREAM_HOST: none. */
weir_stream wi_streams_named(wi_streams *streams, const void *stream);

/* With the lock held. */
wi_stream_place *wi_streams_place(wi_streams *streams, weir_stream stream); /* NULL: not known here */
wi_stream_place *wi_streams_free_place(wi_streams *streams);                /* NULL: all are taken */
weir_stream wi_streams_id(const wi_streams *streams, const wi_stream_place *place);
void wi_streams_clear(wi_stream_place *place); /* it has no stream any more */
/* Fills a free place for its first user. */
weir_stream wi_streams_take(wi_streams *streams, wi_stream_place *place, wi_stream_place content);

/* The runtime that an id names; WEIR_ERR_STREAM_MISUSE when there is none. */
weir_status wi_streams_runtime(weir_stream stream, weir_runtime **runtime);
/* Waits for the stream's work on behalf of `call`, which is for streams of these origins (a bit each). */
weir_status wi_streams_flush(weir_stream stream, unsigned origins, const char *call, weir_runtime **runtime);
/* The stream, whose work was waited for, is nobody's any more: what waited for it becomes anyone's. */
void wi_streams_forget(weir_runtime *runtime, weir_stream stream);
/* The same of one that ended without a word, whose work the device may not be past; before its record goes. */
void wi_streams_abandon(weir_runtime *runtime, weir_stream stream);
/* Failures in words. */
weir_status wi_streams_all_taken(const weir_runtime *runtime);
weir_status wi_streams_captured(const weir_runtime *runtime, weir_stream stream, const char *call);
/* weir_capture_begin for `call`; graph NULL: nothing is directed anywhere. */
weir_status wi_capture_begin(weir_stream stream, struct weir_capture_pool *graph, const char *call);
/* The graph that the stream is captured for, held once more; NULL: none. */
struct weir_capture_pool *wi_streams_graph(wi_streams *streams, weir_stream stream);
/* Whether it is captured for a graph by this thread. */
bool wi_streams_graphed_here(wi_streams *streams, weir_stream stream);
/* The stream, if there is one, is captured for the graph no longer. */
void wi_streams_end_graph(wi_streams *streams, weir_stream stream, const struct weir_capture_pool *graph);

#endif
