/* The cuda driver's streams, its own and others', and the work that is put on them. */
#include "driver/cuda.h"

/* Records ---------------------------------------------------------------------------------------------------------- */

static wi_cuda_stream *new_record(void)
{
    wi_cuda_stream *s = calloc(1, sizeof *s);
    if (s)
        pthread_mutex_init(&s->lock, NULL);
    return s;
}

static weir_status take_record(wi_device *device, wi_cuda_stream **out)
{
    pthread_mutex_lock(&device->lock);
    wi_cuda_stream *s = device->ended;
    if (s)
        device->ended = s->next_ended;
    pthread_mutex_unlock(&device->lock);
    *out = s ? s : new_record();
    return *out ? WEIR_OK : weir_fail(WEIR_SYSTEM, "cuda:%d: no memory for a stream", device->ordinal);
}

static void return_record(wi_device *device, wi_cuda_stream *s)
{
    s->stream = NULL;
    s->foreign = false;
    s->thread = 0;
    pthread_mutex_lock(&device->lock);
    s->next_ended = device->ended;
    device->ended = s;
    pthread_mutex_unlock(&device->lock);
}

void wi_cuda_streams_clear(wi_device *device)
{
    while (device->ended) {
        wi_cuda_stream *s = device->ended;
        device->ended = s->next_ended;
        pthread_mutex_destroy(&s->lock);
        free(s->ring);
        free(s->unused);
        free(s);
    }
}

/* Capture and threads ---------------------------------------------------------------------------------------------- */

/* With the context current. The legacy stream answers with an error while a stream is captured that waits for it. */
static bool is_capturing(const wi_cuda_stream *s)
{
    int capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = wi_cuda.cuStreamIsCapturing(s->stream, &capture);
    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           (result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE);
}

weir_status wi_cuda_check_stream(wi_device *device, const wi_cuda_stream *s, bool joins, const char *what)
{
    unsigned long long id = s->thread;
    weir_status status =
        s->thread ? wi_cuda_check(device, wi_cuda.cuStreamGetId(s->stream, &id), "cuStreamGetId") : WEIR_OK;
    if (status == WEIR_OK && id != s->thread)
        return weir_fail(WEIR_STREAM_MISUSE,
                         "cuda:%d: %s on the per-thread default stream of another thread, whose name means this "
                         "thread's own here: ask for this thread's, or use a stream that all threads share",
                         device->ordinal, what);
    if (status == WEIR_OK && (!joins || s->stream == CU_STREAM_LEGACY) && is_capturing(s))
        return weir_fail(WEIR_STREAM_MISUSE,
                         "cuda:%d: %s on a stream that is being captured into a graph: do it after the capture or on a "
                         "stream that is not captured",
                         device->ordinal, what);
    return status;
}

bool wi_cuda_stream_capturing(wi_device *device, void *handle)
{
    wi_cuda_guard guard;
    if (!handle || wi_cuda_over(device) || wi_cuda_begin(device, &guard) != WEIR_OK)
        return false;
    bool capturing = is_capturing(handle);
    wi_cuda_end(&guard);
    return capturing;
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

weir_status wi_cuda_stream_create(wi_device *device, void **out)
{
    wi_cuda_guard guard;
    wi_cuda_stream *s;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = take_record(device, &s);
    if (status == WEIR_OK) {
        status = wi_cuda_check(device, wi_cuda.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        if (status == WEIR_OK)
            *out = s;
        else
            return_record(device, s);
    }
    wi_cuda_end(&guard);
    return status;
}

/* A record for a stream that is not ours. */
static weir_status note_foreign(wi_device *device, CUstream stream, uint64_t thread, void **out)
{
    wi_cuda_stream *s;
    weir_status status = take_record(device, &s);
    if (status != WEIR_OK)
        return status;
    s->stream = stream;
    s->foreign = true;
    s->thread = thread;
    *out = s;
    return WEIR_OK;
}

weir_status wi_cuda_stream_adopt(wi_device *device, void *native, void **out, uint64_t *identity)
{
    wi_cuda_guard guard;
    CUcontext context = NULL;
    unsigned long long id = 0;
    CUstream stream = native;
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return weir_fail(WEIR_INVALID, "cuda:%d: %p is a default stream: ask for those with weir_stream_default",
                         device->ordinal, native);
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check(device, wi_cuda.cuStreamGetCtx(stream, &context), "cuStreamGetCtx");
    if (status == WEIR_OK && context != device->context)
        status = weir_fail(WEIR_STREAM_MISUSE,
                           "cuda:%d: stream %p belongs to context %p; weir works in the device's primary context, %p: "
                           "make the stream there",
                           device->ordinal, native, (void *)context, (void *)device->context);
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuStreamGetId(stream, &id), "cuStreamGetId");
    if (status == WEIR_OK)
        status = note_foreign(device, stream, 0, out);
    wi_cuda_end(&guard);
    if (status == WEIR_OK)
        *identity = id;
    return status;
}

/* CUDA's name for the per-thread stream means another stream in every thread. The record is for the one of the thread
 * that asks, which its id tells from the others. */
weir_status wi_cuda_stream_default(wi_device *device, weir_default_stream which, void **out)
{
    wi_cuda_guard guard;
    unsigned long long id = 0;
    if (which != WEIR_DEFAULT_LEGACY && which != WEIR_DEFAULT_PER_THREAD)
        return weir_fail(WEIR_INVALID, "cuda:%d: there is no default stream with the number %d", device->ordinal,
                         (int)which);
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    if (which == WEIR_DEFAULT_PER_THREAD)
        status = wi_cuda_check(device, wi_cuda.cuStreamGetId(CU_STREAM_PER_THREAD, &id), "cuStreamGetId");
    if (status == WEIR_OK)
        status = note_foreign(device, which == WEIR_DEFAULT_LEGACY ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD, id, out);
    wi_cuda_end(&guard);
    return status;
}

static void wait_for_recorded(wi_device *device, wi_cuda_stream *s)
{
    pthread_mutex_lock(&s->lock);
    wi_event last = {s, s->recorded};
    pthread_mutex_unlock(&s->lock);
    (void)wi_cuda_wait(device, last, UINT64_MAX);
}

/* One that is not ours has been drained by whoever forgets it; its owner may have destroyed it since. But a per-thread one
 * only its own thread could drain, whose name for it means another stream here. */
void wi_cuda_stream_destroy(wi_device *device, void *handle)
{
    wi_cuda_stream *s = handle;
    wi_cuda_guard guard;
    if (s->thread)
        wait_for_recorded(device, s);
    bool alive = wi_cuda_begin(device, &guard) == WEIR_OK;
    if (alive && !s->foreign)
        (void)wi_cuda.cuStreamSynchronize(s->stream);
    pthread_mutex_lock(&s->lock);
    wi_cuda_note_passed(s, s->recorded);
    for (size_t i = 0; alive && i < s->unused_count; i++)
        (void)wi_cuda.cuEventDestroy(s->unused[i]);
    s->unused_count = 0;
    pthread_mutex_unlock(&s->lock);
    if (alive && !s->foreign)
        (void)wi_cuda.cuStreamDestroy(s->stream);
    if (alive)
        wi_cuda_end(&guard);
    return_record(device, s);
}

weir_status wi_cuda_stream_synchronize(wi_device *device, void *handle)
{
    wi_cuda_stream *s = handle;
    wi_cuda_guard guard;
    weir_status status = s ? wi_cuda_begin(device, &guard) : WEIR_OK;
    if (!s || status != WEIR_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    uint64_t recorded = s->recorded;
    pthread_mutex_unlock(&s->lock);
    status = wi_cuda_check_stream(device, s, false, "waiting for its work");
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuStreamSynchronize(s->stream), "cuStreamSynchronize");
    if (status == WEIR_OK) {
        pthread_mutex_lock(&s->lock);
        wi_cuda_note_passed(s, recorded);
        pthread_mutex_unlock(&s->lock);
    }
    wi_cuda_end(&guard);
    return status;
}

weir_status wi_cuda_settle(wi_device *device)
{
    wi_cuda_guard guard;
    if (wi_cuda_over(device))
        return WEIR_OK;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check(device, wi_cuda.cuCtxSynchronize(), "cuCtxSynchronize");
    wi_cuda_end(&guard);
    return status;
}

void *wi_cuda_stream_native(void *handle)
{
    return ((wi_cuda_stream *)handle)->stream;
}

/* Work ------------------------------------------------------------------------------------------------------------- */

typedef CUresult queue_fn(wi_cuda_stream *s, const void *arguments);

/* Queues on the stream; without one, on the device's own, and waits. */
static weir_status put(wi_device *device, wi_cuda_stream *s, queue_fn *queue, const void *arguments, const char *call)
{
    wi_cuda_guard guard;
    wi_cuda_stream *on = s ? s : device->own_stream;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check_stream(device, on, true, call);
    if (status == WEIR_OK)
        status = wi_cuda_check(device, queue(on, arguments), call);
    if (status == WEIR_OK && !s)
        status = wi_cuda_check(device, wi_cuda.cuStreamSynchronize(on->stream), call);
    wi_cuda_end(&guard);
    return status;
}

typedef struct copy_arguments {
    void *to;
    const void *from;
    size_t bytes;
    uint8_t value;
} copy_arguments;

static CUresult queue_copy(wi_cuda_stream *s, const void *arguments)
{
    const copy_arguments *a = arguments;
    return wi_cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)a->to, (CUdeviceptr)(uintptr_t)a->from, a->bytes, s->stream);
}

static CUresult queue_fill(wi_cuda_stream *s, const void *arguments)
{
    const copy_arguments *a = arguments;
    return wi_cuda.cuMemsetD8Async((CUdeviceptr)(uintptr_t)a->to, a->value, a->bytes, s->stream);
}

weir_status wi_cuda_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    return put(device, stream, queue_copy, &(copy_arguments){to, from, bytes, 0}, "cuMemcpyAsync");
}

weir_status wi_cuda_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    return put(device, stream, queue_fill, &(copy_arguments){to, NULL, bytes, value}, "cuMemsetD8Async");
}

weir_status wi_cuda_call(wi_device *device, void (*fn)(void *), void *user, void *handle)
{
    wi_cuda_stream *s = handle;
    wi_cuda_guard guard;
    if (!s) {
        fn(user);
        return WEIR_OK;
    }
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check_stream(device, s, true, "cuLaunchHostFunc");
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuLaunchHostFunc(s->stream, fn, user), "cuLaunchHostFunc");
    wi_cuda_end(&guard);
    return status;
}
