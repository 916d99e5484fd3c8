/* The host driver's streams: a thread for each stream, to make work truly asynchronous.
 *
 * Work is numbered from 1 in the order it was queued. Invariant: done <= queued; an event {stream, n} is passed when n
 * <= done. The record of a stream that has ended serves the next one, which goes on counting: old events stay
 * passed. */
#include "driver/host.h"
#include "base/system.h"

#include <errno.h>
#include <time.h>

typedef struct work {
    struct work *next;
    void (*run)(struct work *work);
    void *to;
    const void *from;
    size_t bytes;
    uint8_t value;
    void (*fn)(void *);
    wi_event event;
    wi_device *device;
} work;

typedef struct wi_host_stream {
    pthread_mutex_t lock;
    pthread_cond_t queued_some, done_some;
    pthread_t thread;
    work *first, *last;
    uint64_t queued;
    atomic_uint_fast64_t done; /* written with the lock held; read without it by wi_host_passed */
    bool closing;
    struct wi_host_stream *next_ended;
} host_stream;

/* The thread ------------------------------------------------------------------------------------------------------- */

static void *run_stream(void *argument)
{
    host_stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->first && !stream->closing)
            pthread_cond_wait(&stream->queued_some, &stream->lock);
        work *item = stream->first;
        if (!item)
            break;
        stream->first = item->next;
        pthread_mutex_unlock(&stream->lock);
        item->run(item);
        free(item);
        pthread_mutex_lock(&stream->lock);
        atomic_fetch_add_explicit(&stream->done, 1, memory_order_release);
        wi_assert(atomic_load(&stream->done) <= stream->queued);
        pthread_cond_broadcast(&stream->done_some);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static void init_clocked_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static host_stream *new_record(void)
{
    host_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->queued_some, NULL);
    init_clocked_condition(&stream->done_some);
    return stream;
}

static host_stream *host_stream_take_record(wi_device *device)
{
    pthread_mutex_lock(&device->lock);
    host_stream *stream = device->ended;
    if (stream)
        device->ended = stream->next_ended;
    pthread_mutex_unlock(&device->lock);
    return stream ? stream : new_record();
}

static void return_record(wi_device *device, host_stream *stream)
{
    pthread_mutex_lock(&device->lock);
    stream->next_ended = device->ended;
    device->ended = stream;
    pthread_mutex_unlock(&device->lock);
}

void wi_host_streams_clear(wi_device *device)
{
    while (device->ended) {
        host_stream *stream = device->ended;
        device->ended = stream->next_ended;
        pthread_cond_destroy(&stream->queued_some);
        pthread_cond_destroy(&stream->done_some);
        pthread_mutex_destroy(&stream->lock);
        free(stream);
    }
}

weir_status wi_host_stream_create(wi_device *device, void **out)
{
    host_stream *stream = host_stream_take_record(device);
    if (!stream)
        return weir_fail(WEIR_ERR_SYSTEM, "host: no memory for a stream");
    stream->closing = false;
    int error = pthread_create(&stream->thread, NULL, run_stream, stream);
    if (error != 0) {
        return_record(device, stream);
        return weir_fail(WEIR_ERR_SYSTEM, "host: no thread for a stream: %s", strerror(error));
    }
    *out = stream;
    return WEIR_OK;
}

void wi_host_stream_destroy(wi_device *device, void *handle)
{
    host_stream *stream = handle;
    pthread_mutex_lock(&stream->lock);
    stream->closing = true;
    pthread_cond_signal(&stream->queued_some);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    return_record(device, stream);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the table says so */
weir_status wi_host_stream_adopt(wi_device *device, void *native, void **stream, uint64_t *identity)
{
    (void)device, (void)native, (void)stream, (void)identity;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "host: all streams are weir's own: take one with weir_stream_acquire");
}

weir_status wi_host_stream_default(wi_device *device, weir_default_stream which, void **stream)
{
    (void)device, (void)which, (void)stream;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "host: there is no default stream: take one with weir_stream_acquire");
}

bool wi_host_stream_capturing(wi_device *device, void *stream)
{
    (void)device, (void)stream;
    return false;
}

/* Events ----------------------------------------------------------------------------------------------------------- */

static bool host_stream_is_done(host_stream *stream, uint64_t sequence)
{
    return sequence <= atomic_load_explicit(&stream->done, memory_order_acquire);
}

static void wait_done(host_stream *stream, uint64_t sequence, uint64_t deadline)
{
    struct timespec until = {.tv_sec = (time_t)(deadline / UINT64_C(1000000000)),
                             .tv_nsec = (long)(deadline % UINT64_C(1000000000))};
    pthread_mutex_lock(&stream->lock);
    while (!host_stream_is_done(stream, sequence)) {
        if (deadline == UINT64_MAX)
            pthread_cond_wait(&stream->done_some, &stream->lock);
        else if (pthread_cond_timedwait(&stream->done_some, &stream->lock, &until) == ETIMEDOUT)
            break;
    }
    pthread_mutex_unlock(&stream->lock);
}

weir_status wi_host_record(wi_device *device, void *handle, wi_event *out)
{
    (void)device;
    host_stream *stream = handle;
    *out = (wi_event){0};
    if (!stream)
        return WEIR_OK;
    pthread_mutex_lock(&stream->lock);
    *out = (wi_event){stream, stream->queued};
    pthread_mutex_unlock(&stream->lock);
    return WEIR_OK;
}

bool wi_host_passed(wi_device *device, wi_event event)
{
    (void)device;
    return !event.stream || host_stream_is_done(event.stream, event.sequence);
}

weir_status wi_host_wait(wi_device *device, wi_event event, uint64_t deadline)
{
    (void)device;
    if (event.stream)
        wait_done(event.stream, event.sequence, deadline);
    return WEIR_OK;
}

weir_status wi_host_stream_synchronize(wi_device *device, void *stream)
{
    wi_event event;
    weir_status status = wi_host_record(device, stream, &event);
    return status == WEIR_OK ? wi_host_wait(device, event, UINT64_MAX) : status;
}

/* Work ------------------------------------------------------------------------------------------------------------- */

static void run_copy(work *item)
{
    memmove(item->to, item->from, item->bytes);
}
static void run_copies(work *item)
{
    const weir_driver_copy *copies = item->from;
    for (size_t i = 0; i < item->bytes; i++)
        memmove(copies[i].to, copies[i].from, copies[i].bytes);
    free(item->to);
}
static void run_fill(work *item)
{
    if (item->value == 0)
        wi_host_clear(item->device, item->to, item->bytes);
    else
        memset(item->to, item->value, item->bytes);
}
static void run_call(work *item)
{
    item->fn(item->to);
}
static void host_stream_run_order(work *item)
{
    wait_done(item->event.stream, item->event.sequence, UINT64_MAX);
}

/* Queues a copy of `item`, or runs it at once when there is no stream. */
static weir_status host_stream_put(host_stream *stream, work item)
{
    if (!stream) {
        item.run(&item);
        return WEIR_OK;
    }
    work *queued = malloc(sizeof *queued);
    if (!queued)
        return weir_fail(WEIR_ERR_SYSTEM, "host: no memory to queue work");
    *queued = item;
    queued->next = NULL;
    pthread_mutex_lock(&stream->lock);
    if (stream->first)
        stream->last->next = queued;
    else
        stream->first = queued;
    stream->last = queued;
    stream->queued++;
    pthread_cond_signal(&stream->queued_some);
    pthread_mutex_unlock(&stream->lock);
    return WEIR_OK;
}

weir_status wi_host_order(wi_device *device, void *stream, wi_event event)
{
    if (wi_host_passed(device, event) || event.stream == stream)
        return WEIR_OK;
    return host_stream_put(stream, (work){.run = host_stream_run_order, .event = event});
}

weir_status wi_host_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    (void)device;
    return host_stream_put(stream, (work){.run = run_copy, .to = to, .from = from, .bytes = bytes});
}

/* Queued as one work, with a list of its own. */
weir_status wi_host_copy_many(wi_device *device, const weir_driver_copy *copies, size_t count, void *stream)
{
    (void)device;
    weir_driver_copy *list = stream ? malloc((count + !count) * sizeof *list) : NULL;
    if (stream && !list)
        return weir_fail(WEIR_ERR_SYSTEM, "host: no memory to queue work");
    if (list)
        memcpy(list, copies, count * sizeof *list);
    weir_status status =
        host_stream_put(stream, (work){.run = run_copies, .to = list, .from = list ? list : copies, .bytes = count});
    if (status != WEIR_OK)
        free(list);
    return status;
}

weir_status wi_host_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    return host_stream_put(stream, (work){.run = run_fill, .to = to, .value = value, .bytes = bytes, .device = device});
}

weir_status wi_host_call(wi_device *device, void (*fn)(void *), void *user, void *stream)
{
    (void)device;
    return host_stream_put(stream, (work){.run = run_call, .fn = fn, .to = user});
}
