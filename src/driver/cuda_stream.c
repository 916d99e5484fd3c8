/* The cuda driver's streams, its own and others', and the work that is put on them. */
#include "driver/cuda.h"

/* Records ---------------------------------------------------------------------------------------------------------- */

weir_status wi_cuda_new_record(wi_device *device, wi_cuda_stream **out)
{
    wi_cuda_stream *s = *out = calloc(1, sizeof *s);
    if (!s)
        return weir_fail(WEIR_ERR_SYSTEM, "cuda:%d: no memory for a stream", device->ordinal);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_lock(&device->lock);
    s->next = device->records;
    device->records = s;
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

static wi_cuda_stream *cuda_stream_pop(wi_device *device, wi_cuda_stream **list)
{
    pthread_mutex_lock(&device->lock);
    wi_cuda_stream *s = *list;
    if (s)
        *list = s->next_ended;
    pthread_mutex_unlock(&device->lock);
    return s;
}

static void cuda_stream_push(wi_device *device, wi_cuda_stream **list, wi_cuda_stream *s)
{
    pthread_mutex_lock(&device->lock);
    s->next_ended = *list;
    *list = s;
    pthread_mutex_unlock(&device->lock);
}

static bool all_has_passed(wi_device *device, wi_cuda_stream *s)
{
    pthread_mutex_lock(&s->lock);
    wi_event last = {s, s->recorded};
    pthread_mutex_unlock(&s->lock);
    return wi_cuda_passed(device, last);
}

/* An abandoned record serves where all its events have passed: each is looked at once. */
static weir_status cuda_stream_take_record(wi_device *device, wi_cuda_stream **out)
{
    wi_cuda_stream *waiting = NULL, *s = cuda_stream_pop(device, &device->ended);
    while (!s && (s = cuda_stream_pop(device, &device->abandoned)) && !all_has_passed(device, s)) {
        s->next_ended = waiting;
        waiting = s;
        s = NULL;
    }
    for (wi_cuda_stream *w = waiting, *next; w; w = next) {
        next = w->next_ended;
        cuda_stream_push(device, &device->abandoned, w);
    }
    *out = s;
    return s ? WEIR_OK : wi_cuda_new_record(device, out);
}

/* Ends the record: from here on no thread records events on the stream. */
static void end_record(wi_cuda_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->stream = NULL;
    s->foreign = false;
    s->thread = s->id = 0;
    pthread_mutex_unlock(&s->lock);
}

static void destroy_events(wi_cuda_stream *s)
{
    for (uint64_t n = atomic_load(&s->passed) + 1; n <= s->recorded; n++)
        (void)wi_cuda.cuEventDestroy(s->ring[n % s->capacity]);
    for (size_t i = 0; i < s->unused_count; i++)
        (void)wi_cuda.cuEventDestroy(s->unused[i]);
}

void wi_cuda_streams_clear(wi_device *device)
{
    wi_cuda_guard guard;
    bool alive = device->records && wi_cuda_begin(device, &guard) == WEIR_OK;
    for (wi_cuda_stream *s = device->records; alive && s; s = s->next)
        destroy_events(s);
    if (alive)
        wi_cuda_end(&guard);
    while (device->records) {
        wi_cuda_stream *s = device->records;
        device->records = s->next;
        pthread_mutex_destroy(&s->lock);
        free(s->ring);
        free(s->unused);
        free(s);
    }
}

/* Capture and threads ---------------------------------------------------------------------------------------------- */

/* With the context current. The legacy stream answers with an error while a stream is captured that waits for it. */
static bool cuda_stream_is_capturing(const wi_cuda_stream *s)
{
    int capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = wi_cuda.cuStreamIsCapturing(s->stream, &capture);
    return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
           (result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Whether the handle still means the stream that was adopted or asked for: CUDA gives the address of a stream that was
 * destroyed without notice to another stream. Not for a captured stream: to ask for its id ends the capture (seen on an
 * H200, driver 580). */
static bool is_itself(const wi_cuda_stream *s)
{
    unsigned long long id = 0, known = s->thread ? s->thread : s->id;
    return known == 0 || (wi_cuda.cuStreamGetId(s->stream, &id) == CUDA_SUCCESS && id == known);
}

static weir_status has_ended(const wi_device *device, const wi_cuda_stream *s, const char *what)
{
    return s->thread
               ? weir_fail(WEIR_ERR_STREAM_MISUSE,
                           "cuda:%d: %s on the per-thread default stream of another thread, whose name means this "
                           "thread's own here: ask for this thread's, or use a stream that all threads share",
                           device->ordinal, what)
               : weir_fail(WEIR_ERR_STREAM_MISUSE,
                           "cuda:%d: %s on a stream that has ended: unregister it before it is destroyed, and free "
                           "on another stream what was used on it",
                           device->ordinal, what);
}

weir_status wi_cuda_check_stream(wi_device *device, const wi_cuda_stream *s, bool joins, const char *what)
{
    bool capturing = s->stream && cuda_stream_is_capturing(s);
    if (!s->stream || (!capturing && !is_itself(s)))
        return has_ended(device, s, what);
    if (capturing && (!joins || s->stream == CU_STREAM_LEGACY))
        return weir_fail(WEIR_ERR_STREAM_MISUSE,
                         "cuda:%d: %s on a stream that is being captured into a graph: do it after the capture or on a "
                         "stream that is not captured",
                         device->ordinal, what);
    return WEIR_OK;
}

weir_status wi_cuda_check_captures(wi_device *device)
{
    wi_cuda_stream legacy = {.stream = CU_STREAM_LEGACY};
    bool capturing = cuda_stream_is_capturing(&legacy); /* tells of any blocking stream */
    pthread_mutex_lock(&device->lock);
    wi_cuda_stream *s = device->records; /* none goes, and new ones come in front */
    pthread_mutex_unlock(&device->lock);
    for (; s && !capturing; s = s->next) {
        pthread_mutex_lock(&s->lock);
        capturing = s->stream && cuda_stream_is_capturing(s); /* or another stream at this address is */
        pthread_mutex_unlock(&s->lock);
    }
    return capturing
               ? weir_fail(WEIR_ERR_STREAM_MISUSE,
                           "cuda:%d: a point behind all streams cannot be had while one of them is being captured",
                           device->ordinal)
               : WEIR_OK;
}

bool wi_cuda_stream_capturing(wi_device *device, void *handle)
{
    wi_cuda_guard guard;
    if (!handle || wi_cuda_over(device) || wi_cuda_begin(device, &guard) != WEIR_OK)
        return false;
    const wi_cuda_stream *s = handle;
    bool capturing = s->stream && cuda_stream_is_capturing(s);
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
    status = cuda_stream_take_record(device, &s);
    if (status == WEIR_OK) {
        status = wi_cuda_check(device, wi_cuda.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
        if (status == WEIR_OK)
            *out = s;
        else
            cuda_stream_push(device, &device->ended, s);
    }
    wi_cuda_end(&guard);
    return status;
}

/* A record for a stream that is not ours. */
static weir_status note_foreign(wi_device *device, CUstream stream, uint64_t id, uint64_t thread, void **out)
{
    wi_cuda_stream *s;
    weir_status status = cuda_stream_take_record(device, &s);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    s->stream = stream;
    s->foreign = true;
    s->id = id;
    s->thread = thread;
    pthread_mutex_unlock(&s->lock);
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
        return weir_fail(WEIR_ERR_INVALID, "cuda:%d: %p is a default stream: ask for those with weir_stream_default",
                         device->ordinal, native);
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    if (cuda_stream_is_capturing(&(wi_cuda_stream){.stream = stream}))
        status =
            weir_fail(WEIR_ERR_STREAM_MISUSE,
                      "cuda:%d: stream %p is being captured into a graph, and to ask what stream it is would end the "
                      "capture: register it before that",
                      device->ordinal, native);
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuStreamGetCtx(stream, &context), "cuStreamGetCtx");
    if (status == WEIR_OK && context != device->context)
        status = weir_fail(WEIR_ERR_STREAM_MISUSE,
                           "cuda:%d: stream %p belongs to context %p; weir works in the device's primary context, %p: "
                           "make the stream there",
                           device->ordinal, native, (void *)context, (void *)device->context);
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuStreamGetId(stream, &id), "cuStreamGetId");
    if (status == WEIR_OK)
        status = note_foreign(device, stream, identity ? id : 0, 0, out);
    wi_cuda_end(&guard);
    if (status == WEIR_OK && identity)
        *identity = id;
    return status;
}

/* CUDA's name for the per-thread stream means another stream in every thread. The record is for the calling thread's
 * stream, recognized by the stream's id. */
weir_status wi_cuda_stream_default(wi_device *device, weir_default_stream which, void **out)
{
    wi_cuda_guard guard;
    unsigned long long id = 0;
    if (which != WEIR_DEFAULT_STREAM_LEGACY && which != WEIR_DEFAULT_STREAM_PER_THREAD)
        return weir_fail(WEIR_ERR_INVALID, "cuda:%d: there is no default stream with the number %d", device->ordinal,
                         (int)which);
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    if (which == WEIR_DEFAULT_STREAM_PER_THREAD)
        status = wi_cuda_check(device, wi_cuda.cuStreamGetId(CU_STREAM_PER_THREAD, &id), "cuStreamGetId");
    if (status == WEIR_OK)
        status = note_foreign(device, which == WEIR_DEFAULT_STREAM_LEGACY ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD, 0,
                              id, out);
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

/* A foreign stream was drained by the caller, and its owner may have destroyed it. Only its own thread can drain a
 * per-thread stream, as the name means another stream here: waits for the recorded events instead. */
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
    CUstream own = s->foreign ? NULL : s->stream;
    end_record(s);
    if (alive && own)
        (void)wi_cuda.cuStreamDestroy(own);
    if (alive)
        wi_cuda_end(&guard);
    cuda_stream_push(device, &device->ended, s);
}

void wi_cuda_stream_abandon(wi_device *device, void *handle)
{
    end_record(handle);
    cuda_stream_push(device, &device->abandoned, handle);
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

weir_status wi_cuda_synchronize(wi_device *device)
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
static weir_status cuda_stream_put(wi_device *device, wi_cuda_stream *s, queue_fn *queue, const void *arguments,
                                   const char *call)
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
    return cuda_stream_put(device, stream, queue_copy, &(copy_arguments){to, from, bytes, 0}, "cuMemcpyAsync");
}

enum { BATCH = 512 }; /* copies that go to CUDA in one call */

/* Copies `count` of them, at most BATCH. Empty ones are none: CUDA takes no copy of nothing in a batch. */
static CUresult cuda_stream_batch(wi_cuda_stream *s, const weir_driver_copy *copies, size_t count)
{
    CUdeviceptr to[BATCH], from[BATCH];
    size_t bytes[BATCH], used = 0, first = 0, failed;
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    for (size_t i = 0; i < count; i++)
        if (copies[i].bytes > 0) {
            to[used] = (CUdeviceptr)(uintptr_t)copies[i].to;
            from[used] = (CUdeviceptr)(uintptr_t)copies[i].from;
            bytes[used++] = copies[i].bytes;
        }
    return used > 0 ? wi_cuda.cuMemcpyBatchAsync(to, from, bytes, used, &how, &first, 1, &failed, s->stream)
                    : CUDA_SUCCESS;
}

static CUresult cuda_stream_singly(wi_cuda_stream *s, const weir_driver_copy *copies, size_t count)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = wi_cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)copies[i].to, (CUdeviceptr)(uintptr_t)copies[i].from,
                                       copies[i].bytes, s->stream);
    return result;
}

typedef struct many_arguments {
    const weir_driver_copy *copies;
    size_t count;
} many_arguments;

/* CUDA refuses batches on the default streams, and its documentation is silent about captured streams. When CUDA refuses a batch as such,
 * the whole batch is copied singly: to copy a part twice is no harm. */
static CUresult queue_copies(wi_cuda_stream *s, const void *arguments)
{
    const many_arguments *a = arguments;
    CUresult result = CUDA_SUCCESS;
    bool batches = wi_cuda.cuMemcpyBatchAsync && a->count > 1 && s->stream != CU_STREAM_LEGACY &&
                   s->stream != CU_STREAM_PER_THREAD && !cuda_stream_is_capturing(s);
    for (size_t at = 0; at < a->count && result == CUDA_SUCCESS; at += BATCH) {
        size_t count = wi_min(a->count - at, BATCH);
        result = batches ? cuda_stream_batch(s, a->copies + at, count) : CUDA_ERROR_NOT_SUPPORTED;
        if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE)
            result = cuda_stream_singly(s, a->copies + at, count);
    }
    return result;
}

weir_status wi_cuda_copy_many(wi_device *device, const weir_driver_copy *copies, size_t count, void *stream)
{
    return cuda_stream_put(device, stream, queue_copies, &(many_arguments){copies, count}, "cuMemcpyBatchAsync");
}

weir_status wi_cuda_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    return cuda_stream_put(device, stream, queue_fill, &(copy_arguments){to, NULL, bytes, value}, "cuMemsetD8Async");
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
