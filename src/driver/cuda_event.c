/* The cuda driver's events: numbers on a stream, and the CUDA events behind them (cuda.h has the invariants). */
#include "driver/cuda.h"
#include "base/system.h"

#include <time.h>

/* With the lock held: a ring and a list that can take one more event. */
static bool cuda_event_make_room(wi_cuda_stream *s)
{
    size_t waiting = s->recorded - atomic_load(&s->passed);
    if (waiting < s->capacity)
        return true;
    size_t capacity = s->capacity ? s->capacity * 2 : 64;
    CUevent *ring = malloc(capacity * sizeof(CUevent)), *unused = realloc(s->unused, capacity * sizeof(CUevent));
    if (unused) {
        s->unused = unused;
        s->unused_capacity = capacity;
    }
    if (!ring || !unused) {
        free(ring);
        return false;
    }
    for (uint64_t n = atomic_load(&s->passed) + 1; n <= s->recorded; n++)
        ring[n % capacity] = s->ring[n % s->capacity];
    free(s->ring);
    s->ring = ring;
    s->capacity = capacity;
    return true;
}

static CUresult cuda_event_take_event(wi_cuda_stream *s, CUevent *out)
{
    if (s->unused_count > 0) {
        *out = s->unused[--s->unused_count];
        return CUDA_SUCCESS;
    }
    return wi_cuda.cuEventCreate(out, CU_EVENT_DISABLE_TIMING);
}

static void return_event(wi_cuda_stream *s, CUevent event)
{
    if (s->unused_count < s->unused_capacity)
        s->unused[s->unused_count++] = event;
    else
        (void)wi_cuda.cuEventDestroy(event);
}

void wi_cuda_note_passed(wi_cuda_stream *s, uint64_t sequence)
{
    for (uint64_t n = atomic_load(&s->passed) + 1; n <= sequence; n++)
        return_event(s, s->ring[n % s->capacity]);
    if (sequence > atomic_load(&s->passed))
        atomic_store_explicit(&s->passed, sequence, memory_order_release);
    wi_assert(atomic_load(&s->passed) <= s->recorded);
}

/* With the lock held and the context current: before the ring grows, the older half of it is asked for, so that numbers
 * that nobody asks for do not pile up. */
static void note_oldest(wi_cuda_stream *s)
{
    uint64_t middle = atomic_load(&s->passed) + s->capacity / 2;
    if (s->capacity > 0 && s->recorded - atomic_load(&s->passed) == s->capacity &&
        wi_cuda.cuEventQuery(s->ring[middle % s->capacity]) == CUDA_SUCCESS)
        wi_cuda_note_passed(s, middle);
}

/* With the lock held and the context current: adds an event behind the stream's work or, for `all`, behind the work of
 * all streams. */
static weir_status cuda_event_add_event(wi_device *device, wi_cuda_stream *s, wi_event *out)
{
    CUevent event = NULL;
    bool all = s == device->all;
    note_oldest(s);
    if (!cuda_event_make_room(s))
        return weir_fail(WEIR_ERR_SYSTEM, "cuda:%d: no memory for events", device->ordinal);
    weir_status status = wi_cuda_check(device, cuda_event_take_event(s, &event), "cuEventCreate");
    if (status != WEIR_OK)
        return status;
    CUresult result = all ? wi_cuda.cuCtxRecordEvent(device->context, event) : wi_cuda.cuEventRecord(event, s->stream);
    status = wi_cuda_check(device, result, all ? "cuCtxRecordEvent" : "cuEventRecord");
    if (status != WEIR_OK) {
        return_event(s, event);
        return status;
    }
    s->recorded++;
    s->ring[s->recorded % s->capacity] = event;
    *out = (wi_event){s, s->recorded};
    return WEIR_OK;
}

weir_status wi_cuda_record(wi_device *device, void *handle, wi_event *out)
{
    wi_cuda_stream *s = handle;
    wi_cuda_guard guard;
    *out = (wi_event){0};
    /* Frees must go on when the device is over: no work is left to wait for. */
    if (!s || wi_cuda_over(device))
        return WEIR_OK;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&s->lock); /* it does not end meanwhile */
    status = wi_cuda_check_stream(device, s, false, "an event");
    if (status == WEIR_OK)
        status = cuda_event_add_event(device, s, out);
    pthread_mutex_unlock(&s->lock);
    wi_cuda_end(&guard);
    return status;
}

weir_status wi_cuda_record_all(wi_device *device, wi_event *out)
{
    wi_cuda_stream *all = device->all;
    wi_cuda_guard guard;
    *out = (wi_event){0};
    if (wi_cuda_over(device))
        return WEIR_OK;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check_captures(device);
    pthread_mutex_lock(&all->lock);
    if (status == WEIR_OK)
        status = wi_cuda.cuCtxRecordEvent ? cuda_event_add_event(device, all, out)
                                          : wi_cuda_check(device, wi_cuda.cuCtxSynchronize(), "cuCtxSynchronize");
    pthread_mutex_unlock(&all->lock);
    wi_cuda_end(&guard);
    return status;
}

/* *passed, or why that cannot be told. */
static weir_status cuda_event_ask(wi_device *device, wi_event event, bool *passed)
{
    wi_cuda_stream *s = event.stream;
    wi_cuda_guard guard;
    *passed = !s || event.sequence <= atomic_load_explicit(&s->passed, memory_order_acquire) || wi_cuda_over(device);
    if (*passed)
        return WEIR_OK;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    *passed = event.sequence <= atomic_load(&s->passed);
    if (!*passed) {
        CUresult result = wi_cuda.cuEventQuery(s->ring[event.sequence % s->capacity]);
        *passed = result == CUDA_SUCCESS;
        if (*passed)
            wi_cuda_note_passed(s, event.sequence);
        else if (result != CUDA_ERROR_NOT_READY)
            status = wi_cuda_check(device, result, "cuEventQuery");
    }
    pthread_mutex_unlock(&s->lock);
    wi_cuda_end(&guard);
    return status;
}

bool wi_cuda_passed(wi_device *device, wi_event event)
{
    bool passed;
    (void)cuda_event_ask(device, event, &passed);
    return passed || wi_cuda_over(device);
}

/* The driver has no wait with a deadline. Looking again after pauses that grow from 20 to 500 microseconds costs little
 * and overshoots little. */
weir_status wi_cuda_wait(wi_device *device, wi_event event, uint64_t deadline)
{
    long pause = 20000;
    bool passed = false;
    for (;;) {
        weir_status status = cuda_event_ask(device, event, &passed);
        if (wi_cuda_over(device) || passed || wi_now() >= deadline)
            return WEIR_OK;
        if (status != WEIR_OK)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        pause = pause < 250000 ? pause * 2 : 500000;
    }
}

weir_status wi_cuda_order(wi_device *device, void *handle, wi_event event)
{
    wi_cuda_stream *s = handle, *other = event.stream;
    wi_cuda_guard guard;
    /* To ask the driver whether it is passed would cost more than a wait that is none. */
    if (!other || other == s || event.sequence <= atomic_load_explicit(&other->passed, memory_order_acquire) ||
        wi_cuda_over(device))
        return WEIR_OK;
    if (!s)
        return wi_cuda_wait(device, event, UINT64_MAX);
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check_stream(device, s, false, "waiting for another stream");
    if (status == WEIR_ERR_STREAM_MISUSE && wi_cuda_passed(device, event)) { /* then a capture is no matter */
        wi_cuda_end(&guard);
        return WEIR_OK;
    }
    /* The other's lock keeps its CUDA event from being recorded again before the wait is queued. */
    pthread_mutex_lock(&other->lock);
    if (status == WEIR_OK && event.sequence > atomic_load(&other->passed))
        status = wi_cuda_check(device,
                               wi_cuda.cuStreamWaitEvent(s->stream, other->ring[event.sequence % other->capacity], 0),
                               "cuStreamWaitEvent");
    pthread_mutex_unlock(&other->lock);
    wi_cuda_end(&guard);
    return status;
}
