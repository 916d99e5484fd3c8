/* Streams are threads that do their work in order, some time. */
#include "stream.h"

enum { ENDED_KEPT = 64 };

static struct CUstream_st *streams; /* all that ever were */
/* Those that were destroyed, the first of them first, so many of which stay so. With the stub's lock. */
static struct CUstream_st *ended_first, *ended_last;
static unsigned ended_count;

static void *run_stream(void *argument)
{
    struct CUstream_st *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->first && !stream->closing)
            pthread_cond_wait(&stream->queued_some, &stream->lock);
        stub_work *work = stream->first;
        if (!work)
            break;
        stream->first = work->next;
        pthread_mutex_unlock(&stream->lock);
        work->run(work);
        free(work);
        pthread_mutex_lock(&stream->lock);
        stream->done++;
        pthread_cond_broadcast(&stream->done_some);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* With the stub's lock. One that ended long ago, or a new one: a program that makes streams and ends them does not grow. */
static struct CUstream_st *take_record(void)
{
    struct CUstream_st *stream = ended_first;
    if (ended_count > ENDED_KEPT) {
        ended_first = stream->next_ended;
        ended_count--;
        return stream;
    }
    stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->queued_some, NULL);
    pthread_cond_init(&stream->done_some, NULL);
    stream->next = streams;
    streams = stream;
    return stream;
}

/* With the stub's lock. */
static void keep_record(struct CUstream_st *stream)
{
    stream->next_ended = NULL;
    *(ended_first ? &ended_last->next_ended : &ended_first) = stream;
    ended_last = stream;
    ended_count++;
}

/* The stream's record and its thread. */
static struct CUstream_st *new_stream(struct CUctx_st *context)
{
    static unsigned long long last_id;
    pthread_mutex_lock(&stub.lock);
    struct CUstream_st *stream = take_record();
    pthread_mutex_unlock(&stub.lock);
    if (!stream)
        return NULL;
    stream->closing = false;
    bool made = pthread_create(&stream->thread, NULL, run_stream, stream) == 0;
    pthread_mutex_lock(&stub.lock);
    stream->context = context;
    stream->alive = made;
    stream->id = ++last_id;
    if (!made)
        keep_record(stream);
    pthread_mutex_unlock(&stub.lock);
    return made ? stream : NULL;
}

/* The default streams, made when they are first meant: in each context one for all, and one for each thread. They last. */
static struct CUstream_st *default_stream(struct CUstream_st **place)
{
    if (!*place && stub_current()) {
        *place = new_stream(stub_current());
        if (*place)
            pthread_detach((*place)->thread);
    }
    return *place;
}

/* `anywhere`: of any context. */
static CUresult find_stream(CUstream *stream, bool anywhere)
{
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    static _Thread_local struct CUstream_st *own[STUB_MOST_DEVICES][2];
    struct CUctx_st *here = stub_current();
    pthread_mutex_lock(&making);
    if (*stream == CU_STREAM_LEGACY || *stream == CU_STREAM_PER_THREAD)
        *stream = !here                         ? NULL
                  : *stream == CU_STREAM_LEGACY ? default_stream(&here->legacy)
                                                : default_stream(&own[here->device][here->foreign]);
    pthread_mutex_unlock(&making);
    pthread_mutex_lock(&stub.lock);
    bool good = *stream && (*stream)->alive && (anywhere || (*stream)->context == stub_current());
    pthread_mutex_unlock(&stub.lock);
    return good ? CUDA_SUCCESS : STUB_INVALID_HANDLE;
}

CUresult stub_find_stream(CUstream *stream)
{
    return find_stream(stream, false);
}

static CUresult put(CUstream stream, stub_work work, bool anywhere)
{
    CUresult result = find_stream(&stream, anywhere);
    stub_work *queued = result == CUDA_SUCCESS ? malloc(sizeof *queued) : NULL;
    if (!queued)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    *queued = work;
    queued->next = NULL;
    if (stub_captured(stream, queued))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&stream->lock);
    *(stream->first ? &stream->last->next : &stream->first) = queued;
    stream->last = queued;
    stream->queued++;
    pthread_cond_signal(&stream->queued_some);
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

CUresult stub_put(CUstream stream, stub_work work)
{
    return put(stream, work, false);
}

CUresult stub_put_anywhere(CUstream stream, stub_work work)
{
    return put(stream, work, true);
}

bool stub_done(struct CUstream_st *stream, uint64_t sequence)
{
    pthread_mutex_lock(&stream->lock);
    bool done = stream->done >= sequence;
    pthread_mutex_unlock(&stream->lock);
    return done;
}

uint64_t stub_queued(struct CUstream_st *stream)
{
    pthread_mutex_lock(&stream->lock);
    uint64_t queued = stream->queued;
    pthread_mutex_unlock(&stream->lock);
    return queued;
}

void stub_wait(struct CUstream_st *stream, uint64_t sequence)
{
    pthread_mutex_lock(&stream->lock);
    while (stream->done < sequence)
        pthread_cond_wait(&stream->done_some, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

/* One that has ended may be another context's by now, and had no work in between. */
static bool is_of(const struct CUstream_st *stream, int device)
{
    pthread_mutex_lock(&stub.lock);
    bool is = device < 0 || (stream->context && stream->context->device == device);
    pthread_mutex_unlock(&stub.lock);
    return is;
}

void stub_wait_for_all(int device)
{
    pthread_mutex_lock(&stub.lock);
    struct CUstream_st *stream = streams;
    pthread_mutex_unlock(&stub.lock);
    for (; stream; stream = stream->next) /* which never changes */
        if (is_of(stream, device))
            stub_wait(stream, stub_queued(stream));
}

CUresult stub_cuStreamCreate(CUstream *out, unsigned flags)
{
    STUB_CALL(cuStreamCreate, STUB_IN_CONTEXT | STUB_UNSAFE);
    if (flags != CU_STREAM_NON_BLOCKING) /* a blocking one waits for the legacy stream: no stream of weir's may */
        return STUB_INVALID_VALUE;
    struct CUstream_st *stream = new_stream(stub_current());
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&stub.lock);
    stub.device[stream->context->device].count.streams++;
    pthread_mutex_unlock(&stub.lock);
    *out = stream;
    return CUDA_SUCCESS;
}

CUresult stub_cuStreamDestroy(CUstream stream)
{
    STUB_CALL(cuStreamDestroy, STUB_IN_CONTEXT | STUB_UNSAFE);
    CUresult result = stub_find_stream(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&stub.lock);
    stream->alive = false;
    stub.device[stream->context->device].count.streams--;
    pthread_mutex_unlock(&stub.lock);
    pthread_mutex_lock(&stream->lock);
    stream->closing = true;
    pthread_cond_signal(&stream->queued_some);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&stub.lock);
    keep_record(stream);
    pthread_mutex_unlock(&stub.lock);
    return CUDA_SUCCESS;
}

CUresult stub_cuStreamSynchronize(CUstream stream)
{
    STUB_CALL(cuStreamSynchronize, STUB_IN_CONTEXT | STUB_UNSAFE);
    CUresult result = stub_find_stream(&stream);
    if (result == CUDA_SUCCESS)
        result = stub_break_capture(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (result != CUDA_SUCCESS)
        return result;
    stub_wait(stream, stub_queued(stream));
    stub_trim_pools();
    return CUDA_SUCCESS;
}

CUresult stub_cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    STUB_CALL(cuStreamGetCtx, STUB_IN_CONTEXT);
    pthread_mutex_lock(&stub.lock);
    bool alive = stream->alive;
    *context = stream->context;
    pthread_mutex_unlock(&stub.lock);
    return alive ? CUDA_SUCCESS : STUB_INVALID_HANDLE;
}

CUresult stub_cuStreamGetId(CUstream stream, unsigned long long *id)
{
    STUB_CALL(cuStreamGetId, STUB_IN_CONTEXT);
    CUresult result = stub_find_stream(&stream);
    if (result == CUDA_SUCCESS)
        *id = stream->id;
    return result;
}
