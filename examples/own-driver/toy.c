/* toy.c: the whole driver. What a stream is asked for waits in a list, and its thread does it piece by piece. Pieces
 * are counted: an event is the number of the last piece before it, and passed when so many are done.
 *
 * A driver for hardware has the device's own queue in place of the thread, and its events in place of the count. The
 * records of streams stay until the device is closed, so that events of a stream that has ended can still be asked
 * about. */
#define _POSIX_C_SOURCE 200809L /* for the clock of conditions */

#include "toy.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEVICES = 2, ALIGNMENT = 256, MEMORY = 1 << 30 };

typedef struct toy_stream toy_stream;

typedef struct piece {
    struct piece *next;
    void (*run)(struct piece *piece);
    void *to;
    const void *from;
    size_t bytes;
    uint8_t value;
    void (*fn)(void *);
    weir_driver_event event;
} piece;

struct toy_stream {
    toy_stream *next; /* of all that there were */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    piece *first, *last;
    uint64_t queued;
    atomic_uint_least64_t done;
    bool ending;
};

struct weir_driver_device {
    int ordinal;
    pthread_mutex_t lock;
    toy_stream *streams;
};

/* Memory ----------------------------------------------------------------------------------------------------------- */

static atomic_uint_least64_t used[DEVICES]; /* by all who have the device open */

static weir_status toy_open(int ordinal, weir_driver_device **out)
{
    weir_driver_device *device = calloc(1, sizeof *device);
    if (!device)
        return weir_fail(WEIR_ERR_SYSTEM, "toy: no host memory for a device");
    device->ordinal = ordinal;
    pthread_mutex_init(&device->lock, NULL);
    *out = device;
    return WEIR_OK;
}

static void toy_close(weir_driver_device *device)
{
    for (toy_stream *stream = device->streams, *next; stream; stream = next) {
        next = stream->next;
        pthread_cond_destroy(&stream->changed);
        pthread_mutex_destroy(&stream->lock);
        free(stream);
    }
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static weir_status toy_memory(weir_driver_device *device, uint64_t *available, uint64_t *total)
{
    *total = MEMORY;
    *available = MEMORY - atomic_load(&used[device->ordinal]);
    return WEIR_OK;
}

static weir_status toy_allocate(weir_driver_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    bool counts = kind == WEIR_KIND_DEVICE;
    if (counts && atomic_fetch_add(&used[device->ordinal], bytes) + bytes > MEMORY) {
        atomic_fetch_sub(&used[device->ordinal], bytes);
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "toy:%d has no %llu bytes", device->ordinal,
                         (unsigned long long)bytes);
    }
    *address = aligned_alloc(ALIGNMENT, bytes);
    if (*address)
        return WEIR_OK;
    if (counts)
        atomic_fetch_sub(&used[device->ordinal], bytes);
    return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "toy: the C library has no %llu bytes", (unsigned long long)bytes);
}

static weir_status toy_release(weir_driver_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    free(address);
    if (kind == WEIR_KIND_DEVICE)
        atomic_fetch_sub(&used[device->ordinal], bytes);
    return WEIR_OK;
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static void *work(void *argument)
{
    toy_stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    while (stream->first || !stream->ending) {
        piece *now = stream->first;
        if (!now) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        stream->first = now->next;
        pthread_mutex_unlock(&stream->lock);
        now->run(now);
        free(now);
        pthread_mutex_lock(&stream->lock);
        atomic_fetch_add(&stream->done, 1);
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static toy_stream *make_stream(void)
{
    toy_stream *stream = calloc(1, sizeof *stream);
    pthread_condattr_t clock;
    if (!stream)
        return NULL;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&stream->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&stream->lock, NULL);
    return stream;
}

static weir_status toy_stream_create(weir_driver_device *device, void **out)
{
    toy_stream *stream = make_stream();
    if (!stream || pthread_create(&stream->thread, NULL, work, stream) != 0) {
        free(stream);
        return weir_fail(WEIR_ERR_SYSTEM, "toy: no memory or no thread for a stream");
    }
    pthread_mutex_lock(&device->lock);
    stream->next = device->streams;
    device->streams = stream;
    pthread_mutex_unlock(&device->lock);
    *out = stream;
    return WEIR_OK;
}

static void toy_stream_destroy(weir_driver_device *device, void *handle)
{
    toy_stream *stream = handle;
    (void)device;
    pthread_mutex_lock(&stream->lock);
    stream->ending = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
}

/* Queues a copy of the piece; without a stream it is done here. */
static weir_status queue(toy_stream *stream, piece what)
{
    if (!stream) {
        what.run(&what);
        return WEIR_OK;
    }
    piece *new = malloc(sizeof *new);
    if (!new)
        return weir_fail(WEIR_ERR_SYSTEM, "toy: no host memory to queue work");
    *new = what;
    new->next = NULL;
    pthread_mutex_lock(&stream->lock);
    *(stream->first ? &stream->last->next : &stream->first) = new;
    stream->last = new;
    stream->queued++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return WEIR_OK;
}

/* Events ----------------------------------------------------------------------------------------------------------- */

static weir_status toy_record(weir_driver_device *device, void *handle, weir_driver_event *out)
{
    toy_stream *stream = handle;
    (void)device;
    *out = (weir_driver_event){NULL, 0};
    if (!stream)
        return WEIR_OK;
    pthread_mutex_lock(&stream->lock);
    *out = (weir_driver_event){stream, stream->queued};
    pthread_mutex_unlock(&stream->lock);
    return WEIR_OK;
}

static bool toy_passed(weir_driver_device *device, weir_driver_event event)
{
    const toy_stream *stream = event.stream;
    (void)device;
    return !stream || atomic_load(&stream->done) >= event.sequence;
}

static weir_status toy_wait(weir_driver_device *device, weir_driver_event event, uint64_t deadline)
{
    toy_stream *stream = event.stream;
    const struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000), .tv_nsec = (long)(deadline % 1000000000)};
    int late = 0;
    if (!stream)
        return WEIR_OK;
    pthread_mutex_lock(&stream->lock);
    while (!toy_passed(device, event) && late != ETIMEDOUT)
        late = deadline == UINT64_MAX ? pthread_cond_wait(&stream->changed, &stream->lock)
                                      : pthread_cond_timedwait(&stream->changed, &stream->lock, &until);
    pthread_mutex_unlock(&stream->lock);
    return WEIR_OK;
}

static weir_status toy_stream_synchronize(weir_driver_device *device, void *stream)
{
    weir_driver_event event;
    weir_status status = toy_record(device, stream, &event);
    return status == WEIR_OK ? toy_wait(device, event, UINT64_MAX) : status;
}

/* Work ------------------------------------------------------------------------------------------------------------- */

static void run_copy(piece *p)
{
    memmove(p->to, p->from, p->bytes);
}

static void run_fill(piece *p)
{
    memset(p->to, p->value, p->bytes);
}

static void run_call(piece *p)
{
    p->fn(p->to);
}

static void run_order(piece *p)
{
    (void)toy_wait(NULL, p->event, UINT64_MAX);
}

static weir_status toy_order(weir_driver_device *device, void *stream, weir_driver_event event)
{
    if (toy_passed(device, event) || event.stream == stream)
        return WEIR_OK;
    return queue(stream, (piece){.run = run_order, .event = event});
}

static weir_status toy_copy(weir_driver_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    (void)device;
    return queue(stream, (piece){.run = run_copy, .to = to, .from = from, .bytes = bytes});
}

static weir_status toy_fill(weir_driver_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    (void)device;
    return queue(stream, (piece){.run = run_fill, .to = to, .value = value, .bytes = bytes});
}

static weir_status toy_call(weir_driver_device *device, void (*fn)(void *), void *user, void *stream)
{
    (void)device;
    return queue(stream, (piece){.run = run_call, .fn = fn, .to = user});
}

weir_status toy_register(void)
{
    weir_driver_table table = WEIR_INIT(weir_driver_table);
    table.name = "toy";
    table.ordinals = DEVICES;
    table.open = toy_open;
    table.close = toy_close;
    table.memory = toy_memory;
    table.allocate = toy_allocate;
    table.release = toy_release;
    table.stream_create = toy_stream_create;
    table.stream_destroy = toy_stream_destroy;
    table.stream_synchronize = toy_stream_synchronize;
    table.record = toy_record;
    table.passed = toy_passed;
    table.wait = toy_wait;
    table.order = toy_order;
    table.copy = toy_copy;
    table.fill = toy_fill;
    table.call = toy_call;
    return weir_driver_register(&table);
}
