/* The stub's streams and events. Records stay for the life of the process, so that a use of a destroyed one is seen.
 *
 * As on a GPU, a stream that is destroyed is gone at once, its work goes on, and the next stream has its address; so that what
 * a program calls a stream, and events were recorded on, are two things here: a handle, and the line of work behind it. */
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
    struct stub_line *line; /* to wait for … */
    uint64_t sequence;      /* … until so much of it is done */
} stub_work;

/* Work in order, and the thread that does it. When the work of a stream that is gone is done, the line serves another one: what
 * was recorded on it stays done. */
typedef struct stub_line {
    pthread_mutex_t lock;
    pthread_cond_t queued_some, done_some;
    stub_work *first, *last;
    uint64_t queued, done;
    bool closing;
    _Atomic int device; /* of its stream, or its last one; looked at with no lock */
    struct stub_line *next, *next_idle;
} stub_line;

/* All with the stub's lock. */
struct CUstream_st {
    struct CUctx_st *context;
    bool alive;
    stub_line *line;
    unsigned long long id; /* never used twice */
    int capture;
    stub_work *captured;
    struct CUstream_st *next, *next_ended;
};

struct CUevent_st {
    struct CUctx_st *context;
    bool alive, captured; /* the latter: recorded while its stream was captured */
    stub_line *line;      /* NULL: never recorded */
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
/* Breaks those of all streams of the device. */
CUresult stub_break_captures(int device, CUresult result);
/* A line of the device's that has come behind all others of it, with what was put on them so far; NULL: no memory. */
stub_line *stub_line_behind_all(int device);
/* The graph takes the work; false when the stream is not captured. */
bool stub_captured(struct CUstream_st *stream, stub_work *work);
void stub_run_wait(stub_work *work);
CUresult stub_put_wait(CUstream stream, stub_line *other, uint64_t sequence);
uint64_t stub_queued(stub_line *line);
/* That device's streams, those that are gone, too; -1: all. */
void stub_wait_for_all(int device);
void stub_trim_pools(void);
CUresult stub_check_event(struct CUevent_st *event);
void stub_wait(stub_line *line, uint64_t sequence);
bool stub_done(stub_line *line, uint64_t sequence);

#endif
