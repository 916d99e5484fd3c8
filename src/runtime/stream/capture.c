/* Graph capture: while a stream is being captured, an event on it would belong to the graph. What weir needs to know
 * of the stream is a point that was recorded before the capture. */
#include "runtime/runtime.h"

weir_status wi_streams_captured(const weir_runtime *runtime, weir_stream stream, const char *call)
{
    return weir_fail(WEIR_ERR_STREAM_MISUSE,
                     "%s: stream %llx of %s is being captured into a graph, whose work happens when it is launched; do "
                     "this before or after the capture, on another stream, or around the launch of the graph",
                     call, (unsigned long long)stream.id, runtime->name);
}

bool wi_streams_declared(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    const wi_stream_entry *entry = wi_streams_entry(streams, stream);
    bool declared = entry && entry->captured;
    pthread_mutex_unlock(&streams->lock);
    return declared;
}

bool wi_streams_capturing(wi_streams *streams, const wi_driver *driver, wi_device *device, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    const wi_stream_entry *entry = wi_streams_entry(streams, stream);
    void *native = entry ? entry->stream : NULL;
    bool declared = entry && entry->captured;
    pthread_mutex_unlock(&streams->lock);
    return declared || (native && driver->stream_capturing(device, native));
}

bool wi_stream_is_captured(const weir_runtime *runtime, const wi_stream_facts *at)
{
    return at->captured || (at->native && runtime->driver->stream_capturing(runtime->device, at->native));
}

weir_status wi_streams_resolve_now(weir_runtime *runtime, weir_stream stream, const char *call, void **out)
{
    weir_status status = wi_streams_resolve(&runtime->streams, stream, runtime->name, out);
    if (status == WEIR_OK && *out && wi_streams_capturing(&runtime->streams, runtime->driver, runtime->device, stream))
        return wi_streams_captured(runtime, stream, call);
    return status;
}

weir_status wi_streams_resolve_recorded(weir_runtime *runtime, weir_stream stream, const char *call, void **out)
{
    weir_status status = wi_streams_resolve(&runtime->streams, stream, runtime->name, out);
    if (status == WEIR_OK && *out && wi_streams_declared(&runtime->streams, stream))
        return wi_streams_captured(runtime, stream, call);
    return status;
}

/* Whether this stream, or a later one in its place, ended without being unregistered. The lock is held. */
static bool streams_was_abandoned(const wi_streams *streams, weir_stream stream)
{
    uint32_t index = (uint32_t)(stream.id & 0xffff), generation = (uint32_t)(stream.id >> 16);
    return stream.id != 0 && index < streams->used && generation <= streams->entries[index].abandoned;
}

/* The point of the stream as far as it is known without the driver. False: the caller asks the driver; *ended: about
 * all work of the device, as the stream itself is gone. */
static bool streams_known_point(wi_streams *streams, weir_stream stream, wi_event *out, bool *ended)
{
    *out = (wi_event){0};
    pthread_mutex_lock(&streams->lock);
    const wi_stream_entry *entry = wi_streams_entry(streams, stream);
    bool bounded = entry && entry->bounded;
    *ended = !entry && streams_was_abandoned(streams, stream);
    if (bounded)
        *out = entry->before;
    pthread_mutex_unlock(&streams->lock);
    return (!entry && !*ended) || bounded;
}

bool wi_streams_ended(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    bool ended = !wi_streams_entry(streams, stream) && streams_was_abandoned(streams, stream);
    pthread_mutex_unlock(&streams->lock);
    return ended;
}

static weir_status streams_point_of_ended(weir_runtime *runtime, wi_event *out)
{
    const wi_driver *driver = runtime->driver;
    return driver->record_all ? driver->record_all(runtime->device, out) : WEIR_OK;
}

weir_status wi_streams_point(weir_runtime *runtime, weir_stream stream, wi_event *out)
{
    wi_streams *streams = &runtime->streams;
    bool ended;
    if (streams_known_point(streams, stream, out, &ended))
        return WEIR_OK;
    if (ended)
        return streams_point_of_ended(runtime, out);
    wi_stream_facts at;
    wi_streams_facts(streams, stream, &at);
    weir_status status = wi_stream_is_usable(&at) ? runtime->driver->record(runtime->device, at.native, out)
                                                  : wi_streams_refuse(streams, &at, runtime->name);
    /* Meanwhile another thread may have begun a capture of the stream or released it. The event may then be of another
     * stream. */
    if (status == WEIR_OK ? wi_streams_knows(streams, stream) : status != WEIR_ERR_STREAM_MISUSE)
        return status;
    return streams_known_point(streams, stream, out, &ended) ? WEIR_OK
           : ended                                           ? streams_point_of_ended(runtime, out)
                                                             : status;
}

/* Where the driver has no such point, all streams are weir's own, and are waited for. */
weir_status wi_streams_point_of_all(weir_runtime *runtime, const char *call, wi_event *out)
{
    const wi_driver *driver = runtime->driver;
    *out = (wi_event){0};
    return driver->record_all ? driver->record_all(runtime->device, out) : wi_streams_synchronize_all(runtime, call);
}

/* Beginning and ending --------------------------------------------------------------------------------------------- */

/* Finds and visits the runtime of a stream that is to be captured, or whose capture ends. */
static weir_status capture_visit(weir_stream stream, const char *call, weir_runtime **runtime)
{
    WI_ENTER();
    if (stream.id == 0)
        return weir_fail(WEIR_ERR_INVALID, "%s: WEIR_STREAM_HOST is no stream that could be captured", call);
    return wi_streams_visit(stream, runtime);
}

static weir_status capture_already(const weir_runtime *runtime, weir_stream stream, const char *call)
{
    return weir_fail(WEIR_ERR_BUSY, "%s: stream %llx of %s is being captured already", call,
                     (unsigned long long)stream.id, runtime->name);
}

/* Marks the stream as captured. The lock is held. */
static weir_status capture_mark(weir_runtime *runtime, weir_stream stream, weir_capture_pool *graph, const char *call)
{
    wi_stream_entry *entry = wi_streams_entry(&runtime->streams, stream);
    if (!entry || entry->closed)
        return weir_fail(WEIR_ERR_STREAM_MISUSE, "%s: stream %llx was released by another thread meanwhile", call,
                         (unsigned long long)stream.id);
    if (entry->captured)
        return capture_already(runtime, stream, call);
    entry->captured = true;
    entry->graph = graph;
    entry->capturer = pthread_self();
    wi_streams_show(&runtime->streams, entry);
    return WEIR_OK;
}

static bool capture_is_legacy(weir_runtime *runtime, weir_stream stream)
{
    pthread_mutex_lock(&runtime->streams.lock);
    const wi_stream_entry *entry = wi_streams_entry(&runtime->streams, stream);
    bool legacy = entry && entry->origin == WI_STREAM_LEGACY;
    pthread_mutex_unlock(&runtime->streams.lock);
    return legacy;
}

/* Records the point before the capture. No zeros are queued behind it: a thread that queues zeros has seen the mark
 * before, or records a point of its own behind them (wi_streams_wants_point). */
static weir_status capture_record_point(weir_runtime *runtime, weir_stream stream, void *native)
{
    wi_event before = {0};
    weir_status status = runtime->driver->record(runtime->device, native, &before);
    pthread_mutex_lock(&runtime->streams.lock);
    wi_stream_entry *entry = wi_streams_entry(&runtime->streams, stream);
    if (entry && entry->captured) {
        entry->captured = entry->bounded = status == WEIR_OK;
        entry->before = before;
        entry->graph = status == WEIR_OK ? entry->graph : NULL;
        wi_streams_show(&runtime->streams, entry);
    }
    pthread_mutex_unlock(&runtime->streams.lock);
    return status;
}

weir_status wi_capture_begin(weir_stream stream, weir_capture_pool *graph, const char *call)
{
    __attribute__((cleanup(wi_runtime_visited))) weir_runtime *runtime = NULL;
    void *native;
    weir_status status = capture_visit(stream, call, &runtime);
    if (status == WEIR_OK)
        status = wi_streams_resolve(&runtime->streams, stream, runtime->name, &native);
    if (status == WEIR_OK && graph)
        status = wi_capture_pool_check_runtime(graph, runtime, stream, call);
    if (status != WEIR_OK)
        return status;
    if (capture_is_legacy(runtime, stream))
        return weir_fail(WEIR_ERR_STREAM_MISUSE, "%s: the legacy stream of %s cannot be captured; capture another one",
                         call, runtime->name);
    if (wi_streams_capturing(&runtime->streams, runtime->driver, runtime->device, stream))
        return capture_already(runtime, stream, call);
    pthread_mutex_lock(&runtime->streams.lock);
    status = capture_mark(runtime, stream, graph, call);
    pthread_mutex_unlock(&runtime->streams.lock);
    if (status == WEIR_OK)
        status = capture_record_point(runtime, stream, native);
    if (status == WEIR_OK)
        wi_tcaches_drop_stream(runtime, stream);
    return status;
}

weir_status weir_capture_begin(weir_stream stream, weir_capture_pool *pool)
{
    return pool ? wi_capture_pool_begin(pool, stream) : wi_capture_begin(stream, NULL, "weir_capture_begin");
}

weir_capture_pool *wi_streams_graph(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    const wi_stream_entry *entry = wi_streams_entry(streams, stream);
    weir_capture_pool *graph = entry ? entry->graph : NULL;
    if (graph)
        wi_capture_pool_hold(graph);
    pthread_mutex_unlock(&streams->lock);
    return graph;
}

bool wi_streams_graphed_here(wi_streams *streams, weir_stream stream)
{
    pthread_mutex_lock(&streams->lock);
    const wi_stream_entry *entry = wi_streams_entry(streams, stream);
    bool here = entry && entry->graph && pthread_equal(entry->capturer, pthread_self());
    pthread_mutex_unlock(&streams->lock);
    return here;
}

void wi_streams_end_graph(wi_streams *streams, weir_stream stream, const weir_capture_pool *graph)
{
    pthread_mutex_lock(&streams->lock);
    wi_stream_entry *entry = wi_streams_entry(streams, stream);
    if (entry && entry->graph == graph) {
        entry->captured = entry->bounded = false;
        entry->graph = NULL;
        wi_streams_show(streams, entry);
    }
    pthread_mutex_unlock(&streams->lock);
}

weir_status weir_capture_end(weir_stream stream, weir_capture_pool *pool)
{
    if (pool)
        return wi_capture_pool_end(pool, stream);
    __attribute__((cleanup(wi_runtime_visited))) weir_runtime *runtime = NULL;
    void *native;
    weir_status status = capture_visit(stream, "weir_capture_end", &runtime);
    if (status == WEIR_OK)
        status = wi_streams_resolve(&runtime->streams, stream, runtime->name, &native);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&runtime->streams.lock);
    wi_stream_entry *entry = wi_streams_entry(&runtime->streams, stream);
    bool captured = entry && entry->captured, directed = captured && entry->graph;
    if (captured && !directed) {
        entry->captured = entry->bounded = false;
        wi_streams_show(&runtime->streams, entry);
    }
    pthread_mutex_unlock(&runtime->streams.lock);
    if (directed)
        return weir_fail(
            WEIR_ERR_INVALID,
            "weir_capture_end: stream %llx of %s is captured for a graph; end it with its weir_capture_pool",
            (unsigned long long)stream.id, runtime->name);
    if (!captured)
        return weir_fail(WEIR_ERR_INVALID, "weir_capture_end: no capture of stream %llx of %s was begun",
                         (unsigned long long)stream.id, runtime->name);
    return WEIR_OK;
}
