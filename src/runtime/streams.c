#include "runtime/runtime.h"

static atomic_uint last_pool;

static weir_stream make_id(const wi_streams *streams, uint32_t index)
{
    return (weir_stream){(uint64_t)streams->pool << 48 | (uint64_t)streams->places[index].generation << 16 | index};
}

void wi_streams_init(wi_streams *streams)
{
    pthread_mutex_init(&streams->lock, NULL);
    streams->pool = (uint16_t)(atomic_fetch_add(&last_pool, 1) % 65535 + 1);
}

void wi_streams_destroy(wi_streams *streams, const wi_driver *driver, wi_device *device)
{
    for (uint32_t i = 0; i < streams->used; i++)
        driver->stream_destroy(device, streams->places[i].stream);
    pthread_mutex_destroy(&streams->lock);
}

bool wi_streams_any(wi_streams *streams)
{
    bool any = false;
    pthread_mutex_lock(&streams->lock);
    for (uint32_t i = 0; i < streams->used; i++)
        any |= streams->places[i].acquired;
    pthread_mutex_unlock(&streams->lock);
    return any;
}

/* With the lock held. */
static wi_stream_place *find(wi_streams *streams, weir_stream stream)
{
    uint32_t index = (uint32_t)(stream.id & 0xffff);
    if (stream.id >> 48 != streams->pool || index >= streams->used)
        return NULL;
    wi_stream_place *place = &streams->places[index];
    return place->acquired && make_id(streams, index).id == stream.id ? place : NULL;
}

bool wi_streams_find(wi_streams *streams, weir_stream stream, void **out)
{
    pthread_mutex_lock(&streams->lock);
    const wi_stream_place *place = find(streams, stream);
    if (place)
        *out = place->stream;
    pthread_mutex_unlock(&streams->lock);
    return place != NULL;
}

weir_status wi_streams_resolve(wi_streams *streams, weir_stream stream, const char *runtime, void **out)
{
    *out = NULL;
    if (stream.id == 0 || wi_streams_find(streams, stream, out))
        return WEIR_OK;
    bool ours = stream.id >> 48 == streams->pool;
    return weir_fail(WEIR_STREAM_MISUSE, "stream %llx is %s; acquire one from the runtime %s",
                     (unsigned long long)stream.id, ours ? "released" : "another runtime's, or none", runtime);
}

/* Public calls ----------------------------------------------------------------------------------------------------- */

/* With the lock held: a released place, or the next new one; WI_STREAMS when there is neither. */
static uint32_t free_place(const wi_streams *streams)
{
    for (uint32_t i = 0; i < streams->used; i++)
        if (!streams->places[i].acquired)
            return i;
    return streams->used;
}

weir_status weir_stream_acquire(weir_runtime *runtime, weir_stream *out)
{
    WI_ENTER();
    if (!runtime || !out)
        return weir_fail(WEIR_INVALID, "weir_stream_acquire: NULL");
    wi_streams *streams = &runtime->streams;
    weir_status status = WEIR_OK;
    *out = WEIR_STREAM_HOST;
    pthread_mutex_lock(&streams->lock);
    uint32_t index = free_place(streams);
    if (index == WI_STREAMS)
        status =
            weir_fail(WEIR_BUSY, "all %d streams of %s are acquired; release some", (int)WI_STREAMS, runtime->name);
    /* Making a stream under the lock is slow and rare; it can hold up only other acquirers. */
    if (status == WEIR_OK && index == streams->used)
        status = runtime->driver->stream_create(runtime->device, &streams->places[index].stream);
    if (status == WEIR_OK) {
        if (index == streams->used)
            streams->used++;
        streams->places[index].acquired = true;
        streams->places[index].generation++;
        *out = make_id(streams, index);
    }
    pthread_mutex_unlock(&streams->lock);
    return status;
}

static weir_status with_runtime(weir_stream stream, weir_runtime **runtime)
{
    *runtime = wi_runtime_of_pool((uint16_t)(stream.id >> 48));
    if (*runtime)
        return WEIR_OK;
    return weir_fail(WEIR_STREAM_MISUSE, "stream %llx belongs to no runtime of this process",
                     (unsigned long long)stream.id);
}

weir_status weir_stream_release(weir_stream stream)
{
    WI_ENTER();
    if (stream.id == 0)
        return weir_fail(WEIR_INVALID, "weir_stream_release: WEIR_STREAM_HOST is nobody's to release");
    weir_runtime *runtime;
    weir_status status = weir_stream_synchronize(stream);
    if (status == WEIR_OK)
        status = with_runtime(stream, &runtime);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&runtime->streams.lock);
    wi_stream_place *place = find(&runtime->streams, stream);
    if (place)
        place->acquired = false;
    pthread_mutex_unlock(&runtime->streams.lock);
    if (!place)
        return weir_fail(WEIR_STREAM_MISUSE, "stream %llx was released by another thread meanwhile",
                         (unsigned long long)stream.id);
    (void)wi_runtime_reap(runtime);
    return WEIR_OK;
}

weir_status weir_stream_synchronize(weir_stream stream)
{
    WI_ENTER();
    if (stream.id == 0)
        return WEIR_OK;
    weir_runtime *runtime;
    void *native;
    weir_status status = with_runtime(stream, &runtime);
    if (status == WEIR_OK)
        status = wi_streams_resolve(&runtime->streams, stream, runtime->name, &native);
    return status == WEIR_OK ? runtime->driver->stream_synchronize(runtime->device, native) : status;
}

void *weir_stream_native(weir_stream stream)
{
    weir_runtime *runtime = atomic_load(&wi_forked) ? NULL : wi_runtime_of_pool((uint16_t)(stream.id >> 48));
    void *native = NULL;
    if (runtime) {
        pthread_mutex_lock(&runtime->streams.lock);
        const wi_stream_place *place = find(&runtime->streams, stream);
        native = place ? place->stream : NULL;
        pthread_mutex_unlock(&runtime->streams.lock);
    }
    return native ? runtime->driver->stream_native(native) : NULL;
}

static weir_status resolve(weir_runtime *runtime, weir_stream stream, bool arguments, const char *call, void **native)
{
    *native = NULL;
    WI_ENTER();
    if (!runtime || !arguments)
        return weir_fail(WEIR_INVALID, "%s: NULL", call);
    return wi_streams_resolve(&runtime->streams, stream, runtime->name, native);
}

weir_status weir_copy(weir_runtime *runtime, void *to, const void *from, size_t bytes, weir_stream stream)
{
    void *native;
    weir_status status = resolve(runtime, stream, (to && from) || bytes == 0, "weir_copy", &native);
    if (status != WEIR_OK || bytes == 0)
        return status;
    return runtime->driver->copy(runtime->device, to, from, bytes, native);
}

weir_status weir_fill(weir_runtime *runtime, void *to, uint8_t value, size_t bytes, weir_stream stream)
{
    void *native;
    weir_status status = resolve(runtime, stream, to || bytes == 0, "weir_fill", &native);
    if (status != WEIR_OK || bytes == 0)
        return status;
    return runtime->driver->fill(runtime->device, to, value, bytes, native);
}

weir_status weir_call(weir_runtime *runtime, void (*fn)(void *user), void *user, weir_stream stream)
{
    void *native;
    weir_status status = resolve(runtime, stream, fn != NULL, "weir_call", &native);
    return status == WEIR_OK ? runtime->driver->call(runtime->device, fn, user, native) : status;
}
