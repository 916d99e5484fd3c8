/* The streams that programs allocate and free on, as weir knows them, and which of them are captured. */
#include "interpose/preload/preload.h"
#include "base/maps.h"

/* Known streams ---------------------------------------------------------------------------------------------------- */

typedef struct known {
    wp_device *device;
    weir_stream id;
} known;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* `streams`, and the devices' legacy streams */
static wi_pointer_map streams;                           /* to a `known` each */

static known *known_of(uint64_t value)
{
    return (known *)(uintptr_t)value; // NOLINT(performance-no-int-to-ptr)
}

static bool preload_streams_find(const void *native, known *out)
{
    uint64_t value;
    pthread_mutex_lock(&lock);
    bool found = wi_pointer_map_get(&streams, native, &value);
    if (found)
        *out = *known_of(value);
    pthread_mutex_unlock(&lock);
    return found;
}

/* Enters a stream into the map. If another thread has entered the stream meanwhile, weir has the stream registered
 * twice, and the second registration is undone. */
static bool preload_streams_enter(const void *native, known what)
{
    uint64_t value;
    known *copy = malloc(sizeof *copy);
    bool entered = false, there;
    if (copy)
        *copy = what;
    pthread_mutex_lock(&lock);
    there = wi_pointer_map_get(&streams, native, &value);
    if (copy && !there)
        entered = wi_pointer_map_put(&streams, native, (uintptr_t)copy);
    pthread_mutex_unlock(&lock);
    if (!entered) {
        free(copy);
        (void)!weir_stream_unregister(what.id);
    }
    return entered || there;
}

/* A stream of another context than the current one is none that weir registers for it. */
static wp_stream_kind meet(CUstream stream, known *out)
{
    CUresult result;
    bool primary;
    out->device = wp_device_here(&primary, &result);
    if (!out->device || !primary || weir_stream_register(out->device->runtime, stream, &out->id) != WEIR_OK)
        return WP_STREAM_UNKNOWN;
    return preload_streams_enter(stream, *out) ? WP_STREAM_KNOWN : WP_STREAM_UNKNOWN;
}

static wp_stream_kind legacy_stream(known *out)
{
    CUresult result;
    bool primary;
    wp_device *d = out->device = wp_device_here(&primary, &result);
    if (!d || !primary)
        return WP_STREAM_UNKNOWN;
    pthread_mutex_lock(&lock);
    if (!d->legacy_known)
        d->legacy_known = weir_stream_default(d->runtime, WEIR_DEFAULT_STREAM_LEGACY, &d->legacy) == WEIR_OK;
    out->id = d->legacy;
    bool there = d->legacy_known;
    pthread_mutex_unlock(&lock);
    return there ? WP_STREAM_KNOWN : WP_STREAM_UNKNOWN;
}

static bool is_captured(CUstream stream)
{
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    return wp_capturing() && wp_real.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

wp_stream_kind wp_stream_of(CUstream stream, bool per_thread, wp_device **device, weir_stream *out)
{
    known found;
    if (!stream)
        stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (is_captured(stream))
        return WP_STREAM_CAPTURED;
    wp_stream_kind kind = stream == CU_STREAM_PER_THREAD         ? WP_STREAM_UNKNOWN
                          : stream == CU_STREAM_LEGACY           ? legacy_stream(&found)
                          : preload_streams_find(stream, &found) ? WP_STREAM_KNOWN
                                                                 : meet(stream, &found);
    if (kind == WP_STREAM_KNOWN) {
        *device = found.device;
        *out = found.id;
    }
    return kind;
}

/* Captures --------------------------------------------------------------------------------------------------------- */

/* Held for reading where a capture would be broken, for writing where one begins. */
static pthread_rwlock_t capture_lock = PTHREAD_RWLOCK_INITIALIZER;
static wi_pointer_map
    origins; /* streams on which captures have begun, to how many (threads have streams of one name) */
static atomic_uint capture_count;

bool wp_capturing(void)
{
    return atomic_load_explicit(&capture_count, memory_order_relaxed) > 0;
}

bool wp_captures_shut(void)
{
    pthread_rwlock_rdlock(&capture_lock);
    if (!wp_capturing())
        return true;
    pthread_rwlock_unlock(&capture_lock);
    return false;
}

void wp_captures_open(void)
{
    pthread_rwlock_unlock(&capture_lock);
}

static const void *origin_of(CUstream stream, bool per_thread)
{
    return stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* With the lock held for writing. */
static CUresult began(CUresult result, const void *origin)
{
    uint64_t count = 0;
    if (result != CUDA_SUCCESS)
        return result;
    (void)wi_pointer_map_get(&origins, origin, &count);
    if (wi_pointer_map_put(&origins, origin, count + 1))
        atomic_fetch_add(&capture_count, 1);
    return result;
}

static void preload_streams_ended(const void *origin)
{
    uint64_t count;
    pthread_rwlock_wrlock(&capture_lock);
    if (wi_pointer_map_remove(&origins, origin, &count)) {
        if (count > 1)
            (void)wi_pointer_map_put(&origins, origin, count - 1);
        atomic_fetch_sub(&capture_count, 1);
    }
    pthread_rwlock_unlock(&capture_lock);
    wp_free_held_up();
}

#define BEGIN(symbol, parameters, arguments, per_thread)                                                               \
    CUresult symbol parameters                                                                                         \
    {                                                                                                                  \
        WP_ENTER(symbol);                                                                                              \
        pthread_rwlock_wrlock(&capture_lock);                                                                          \
        CUresult result = began(wp_real.symbol arguments, origin_of(stream, per_thread));                              \
        pthread_rwlock_unlock(&capture_lock);                                                                          \
        return result;                                                                                                 \
    }

BEGIN(cuStreamBeginCapture_v2, (CUstream stream, int mode), (stream, mode), false)
BEGIN(cuStreamBeginCapture_v2_ptsz, (CUstream stream, int mode), (stream, mode), true)
BEGIN(cuStreamBeginCaptureToGraph,
      (CUstream stream, CUgraph graph, const CUgraphNode *behind, const void *edges, size_t count, int mode),
      (stream, graph, behind, edges, count, mode), false)
BEGIN(cuStreamBeginCaptureToGraph_ptsz,
      (CUstream stream, CUgraph graph, const CUgraphNode *behind, const void *edges, size_t count, int mode),
      (stream, graph, behind, edges, count, mode), true)

BEGIN(cuStreamBeginRecaptureToGraph, (CUstream stream, int mode, CUgraph graph, void (*fn)(void *), void *user),
      (stream, mode, graph, fn, user), false)
BEGIN(cuStreamBeginRecaptureToGraph_ptsz, (CUstream stream, int mode, CUgraph graph, void (*fn)(void *), void *user),
      (stream, mode, graph, fn, user), true)

/* A failed capture has ended as well, but a capture that another thread has begun goes on. */
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    WP_ENTER(cuStreamEndCapture);
    CUresult result = wp_real.cuStreamEndCapture(stream, graph);
    if (result != WP_CAPTURE_WRONG_THREAD)
        preload_streams_ended(origin_of(stream, false));
    return result;
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    WP_ENTER(cuStreamEndCapture_ptsz);
    CUresult result = wp_real.cuStreamEndCapture_ptsz(stream, graph);
    if (result != WP_CAPTURE_WRONG_THREAD)
        preload_streams_ended(origin_of(stream, true));
    return result;
}

/* Destroying ------------------------------------------------------------------------------------------------------- */

/* A capture goes with its stream. It is ended before, as a captured stream cannot be waited for. */
static void preload_streams_drop_capture(CUstream stream)
{
    CUgraph graph = NULL;
    if (!is_captured(stream) || wp_real.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS)
        return;
    if (graph && wp_real.cuGraphDestroy)
        (void)wp_real.cuGraphDestroy(graph);
    preload_streams_ended(stream);
}

/* Waits for the work of a known stream, so that frees on the stream are final; CUDA may give the stream's address to
 * the next stream at once. A capture that ends only with the stream counts until the stream is destroyed: until then no
 * event behind all work can be recorded. */
CUresult cuStreamDestroy_v2(CUstream stream)
{
    WP_ENTER(cuStreamDestroy_v2);
    uint64_t value;
    if (!wp_is_exiting())
        preload_streams_drop_capture(stream);
    pthread_mutex_lock(&lock);
    known *gone = wi_pointer_map_remove(&streams, stream, &value) ? known_of(value) : NULL;
    pthread_mutex_unlock(&lock);
    if (gone && !wp_is_exiting() && weir_stream_unregister(gone->id) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "a stream stays known to weir: %s", weir_detail());
    free(gone);
    CUresult result = wp_real.cuStreamDestroy_v2(stream);
    if (result == CUDA_SUCCESS && wp_capturing())
        preload_streams_ended(stream);
    return result;
}
