/* Streams: handles, and behind each a line of work that a thread does in order, some time. */
#include "stream.h"

static stub_line *lines, *idle_lines; /* all that ever were; those that have no stream and no work */
/* Handles of streams that were destroyed, the last of them first: the next stream gets its address. */
static struct CUstream_st *ended, *streams; /* and all handles that ever were */

/* Lines ------------------------------------------------------------------------------------------------------------ */

static void become_idle(stub_line *line)
{
    pthread_mutex_lock(&stub.lock);
    line->next_idle = idle_lines;
    idle_lines = line;
    pthread_mutex_unlock(&stub.lock);
}

static void *run_line(void *argument)
{
    stub_line *line = argument;
    pthread_mutex_lock(&line->lock);
    for (;;) {
        while (!line->first && !line->closing)
            pthread_cond_wait(&line->queued_some, &line->lock);
        stub_work *work = line->first;
        if (!work)
            break;
        line->first = work->next;
        pthread_mutex_unlock(&line->lock);
        work->run(work);
        free(work);
        pthread_mutex_lock(&line->lock);
        line->done++;
        pthread_cond_broadcast(&line->done_some);
    }
    pthread_mutex_unlock(&line->lock);
    become_idle(line);
    return NULL;
}

/* With the stub's lock: an idle one, or a new one, which is the device's from now on. */
static stub_line *take_line(int device)
{
    stub_line *line = idle_lines;
    if (line) {
        idle_lines = line->next_idle;
        line->device = device;
        return line;
    }
    line = calloc(1, sizeof *line);
    if (!line)
        return NULL;
    pthread_mutex_init(&line->lock, NULL);
    pthread_cond_init(&line->queued_some, NULL);
    pthread_cond_init(&line->done_some, NULL);
    line->device = device;
    line->next = lines;
    return lines = line;
}

/* With its thread. */
static stub_line *new_line(int device)
{
    pthread_t thread;
    pthread_mutex_lock(&stub.lock);
    stub_line *line = take_line(device);
    pthread_mutex_unlock(&stub.lock);
    if (!line)
        return NULL;
    line->closing = false;
    if (pthread_create(&thread, NULL, run_line, line) != 0) {
        become_idle(line);
        return NULL;
    }
    pthread_detach(thread);
    return line;
}

/* What is on it is done yet. */
static void close_line(stub_line *line)
{
    pthread_mutex_lock(&line->lock);
    line->closing = true;
    pthread_cond_signal(&line->queued_some);
    pthread_mutex_unlock(&line->lock);
}

bool stub_done(stub_line *line, uint64_t sequence)
{
    pthread_mutex_lock(&line->lock);
    bool done = line->done >= sequence;
    pthread_mutex_unlock(&line->lock);
    return done;
}

uint64_t stub_queued(stub_line *line)
{
    pthread_mutex_lock(&line->lock);
    uint64_t queued = line->queued;
    pthread_mutex_unlock(&line->lock);
    return queued;
}

void stub_wait(stub_line *line, uint64_t sequence)
{
    pthread_mutex_lock(&line->lock);
    while (line->done < sequence)
        pthread_cond_wait(&line->done_some, &line->lock);
    pthread_mutex_unlock(&line->lock);
}

/* Also for the work of streams that are gone. */
void stub_wait_for_all(int device)
{
    pthread_mutex_lock(&stub.lock);
    stub_line *line = lines;
    pthread_mutex_unlock(&stub.lock);
    for (; line; line = line->next) /* which never changes */
        if (device < 0 || line->device == device)
            stub_wait(line, stub_queued(line));
}

/* Handles ---------------------------------------------------------------------------------------------------------- */

static struct CUstream_st *new_stream(struct CUctx_st *context)
{
    static unsigned long long last_id;
    stub_line *line = new_line(context->device);
    if (!line)
        return NULL;
    pthread_mutex_lock(&stub.lock);
    struct CUstream_st *stream = ended;
    if (stream)
        ended = stream->next_ended;
    else if ((stream = calloc(1, sizeof *stream))) {
        stream->next = streams;
        streams = stream;
    }
    if (stream)
        *stream = (struct CUstream_st){
            .context = context, .alive = true, .line = line, .id = ++last_id, .next = stream->next};
    pthread_mutex_unlock(&stub.lock);
    if (!stream)
        close_line(line);
    return stream;
}

/* The default streams, made when they are first meant: in each context one for all, and one for each thread. They last. */
static struct CUstream_st *default_stream(struct CUstream_st **place)
{
    if (!*place && stub_current())
        *place = new_stream(stub_current());
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
    stub.dead_streams_used += *stream && !(*stream)->alive;
    pthread_mutex_unlock(&stub.lock);
    return good ? CUDA_SUCCESS : STUB_INVALID_HANDLE;
}

CUresult stub_find_stream(CUstream *stream)
{
    return find_stream(stream, false);
}

/* The next one that is alive and the device's, in the list of all; NULL: the first one. */
static struct CUstream_st *next_alive(const struct CUstream_st *after, int device)
{
    pthread_mutex_lock(&stub.lock);
    struct CUstream_st *stream = after ? after->next : streams;
    while (stream && !(stream->alive && stream->context->device == device))
        stream = stream->next;
    pthread_mutex_unlock(&stub.lock);
    return stream;
}

CUresult stub_break_captures(int device, CUresult result)
{
    CUresult broken = CUDA_SUCCESS;
    for (struct CUstream_st *stream = NULL; (stream = next_alive(stream, device));)
        if (stub_break_capture(stream, result) != CUDA_SUCCESS)
            broken = result;
    return broken;
}

static void enqueue(stub_line *line, stub_work *work)
{
    pthread_mutex_lock(&line->lock);
    *(line->first ? &line->last->next : &line->first) = work;
    line->last = work;
    line->queued++;
    pthread_cond_signal(&line->queued_some);
    pthread_mutex_unlock(&line->lock);
}

stub_line *stub_line_behind_all(int device)
{
    static stub_line *behind[STUB_MOST_DEVICES];
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&making);
    stub_line *line = behind[device] ? behind[device] : (behind[device] = new_line(device));
    pthread_mutex_unlock(&making);
    pthread_mutex_lock(&stub.lock);
    stub_line *other = lines;
    pthread_mutex_unlock(&stub.lock);
    for (; line && other; other = other->next) { /* which never changes */
        stub_work *work = other != line && other->device == device ? calloc(1, sizeof *work) : NULL;
        if (!work)
            continue;
        *work = (stub_work){.run = stub_run_wait, .line = other, .sequence = stub_queued(other)};
        enqueue(line, work);
    }
    return line;
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
    enqueue(stream->line, queued);
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

/* It does not wait: what is on the stream goes on, and events that were recorded there tell of it as before. */
CUresult stub_cuStreamDestroy(CUstream stream)
{
    STUB_CALL(cuStreamDestroy, STUB_IN_CONTEXT | STUB_UNSAFE);
    CUresult result = stub_find_stream(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&stub.lock);
    stub_line *line = stream->line;
    stream->alive = false;
    stream->next_ended = ended;
    ended = stream;
    stub.device[stream->context->device].count.streams--;
    pthread_mutex_unlock(&stub.lock);
    close_line(line);
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
    stub_wait(stream->line, stub_queued(stream->line));
    stub_trim_pools();
    return CUDA_SUCCESS;
}

CUresult stub_cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    STUB_CALL(cuStreamGetCtx, STUB_IN_CONTEXT);
    pthread_mutex_lock(&stub.lock);
    bool alive = stream->alive;
    stub.dead_streams_used += !alive;
    *context = stream->context;
    pthread_mutex_unlock(&stub.lock);
    return alive ? CUDA_SUCCESS : STUB_INVALID_HANDLE;
}

CUresult stub_cuStreamGetId(CUstream stream, unsigned long long *id)
{
    STUB_CALL(cuStreamGetId, STUB_IN_CONTEXT);
    CUresult result = stub_find_stream(&stream);
    if (result == CUDA_SUCCESS)
        result = stub_break_capture(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); /* as an H200's driver does */
    if (result == CUDA_SUCCESS)
        *id = stream->id;
    return result;
}
