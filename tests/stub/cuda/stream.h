/* The stub's streams and events. Records stay for the life of the process, so that a use of a destroyed one is seen. */
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
    struct CUstream_st *next;
};

struct CUevent_st {
    struct CUctx_st *context;
    bool alive;
    struct CUstream_st *stream; /* NULL: never recorded */
    uint64_t sequence;
    struct CUevent_st *next;
};

/* The stream takes a copy of `work`. 400 for one that is not alive or not of the current context; the default streams are
 * none of ours, and a test that meets them has found a mistake. */
CUresult stub_put(struct CUstream_st *stream, stub_work work);
CUresult stub_check_stream(struct CUstream_st *stream);
CUresult stub_check_event(struct CUevent_st *event);
void stub_wait(struct CUstream_st *stream, uint64_t sequence);
bool stub_done(struct CUstream_st *stream, uint64_t sequence);

#endif
