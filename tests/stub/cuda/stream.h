/* The stub's streams and events. Records stay for the life of the process, so that a use of a destroyed one is seen; a stream's
 * serves again when 64 others were destroyed after it. */
#ifndef STUB_STREAM_H
#define STUB_STREAM_H

#include "stub.h"

typedef struct stub_work {
    struct stub_work *next;
    void (*run)(struct stub_work *work);
    void *to;
    const void *from;
    size_t bytes;
    unsigned char value;
    void (*fn)(void *);
    struct CUstream_st *stream; /* to wait for … */
    uint64_t sequence;          /* … until so much of it is done */
} stub_work;

struct CUstream_st {
    struct CUctx_st *context;
    bool alive; /* with the stub's lock */
    pthread_mutex_t lock;
    pthread_cond_t queued_some, done_some;
    pthread_t thread;
    stub_work *first, *last;
    uint64_t queued, done;
    bool closing;
    unsigned long long id; /* never used twice */
    int capture;           /* with the stub's lock, as the next one: what it has captured */
    stub_work *captured;
    struct CUstream_st *next, *next_ended;
};

struct CUevent_st {
    struct CUctx_st *context;
    bool alive, captured;       /* the latter: recorded while its stream was captured */
    struct CUstream_st *stream; /* NULL: never recorded */
    uint64_t sequence;
    struct CUevent_st *next;
};

/* The stream takes a copy of `work`, or the graph that it is captured into. */
CUresult stub_put(CUstream stream, stub_work work);
/* The same on a stream of any context's. */
CUresult stub_put_anywhere(CUstream stream, stub_work work);
/* The stream behind what a caller calls one: itself or a default stream. 400 for one that is not alive or not of the
 * current context; NULL is never meant, and a test that meets it has found a mistake. */
CUresult stub_find_stream(CUstream *stream);
/* Breaks the stream's capture, if there is one, and answers with `result` then. */
CUresult stub_break_capture(struct CUstream_st *stream, CUresult result);
/* The graph takes the work; false when the stream is not captured. */
bool stub_captured(struct CUstream_st *stream, stub_work *work);
CUresult stub_put_wait(CUstream stream, struct CUstream_st *other, uint64_t sequence);
uint64_t stub_queued(struct CUstream_st *stream);
/* That device's streams; -1: all. */
void stub_wait_for_all(int device);
void stub_trim_pools(void);
CUresult stub_check_event(struct CUevent_st *event);
void stub_wait(struct CUstream_st *stream, uint64_t sequence);
bool stub_done(struct CUstream_st *stream, uint64_t sequence);

#endif
