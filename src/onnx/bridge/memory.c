/* Where a bridge's memory comes from, beside its client: blocks of a pool, and pinned blocks that are kept.
 *
 * Each pinned block is an allocation of the driver's, whose free may wait for the whole device, while ONNX Runtime
 * takes and frees a few for each run: so some freed blocks are kept for the next run. The host itself writes to pinned
 * blocks, in no stream's order, so a kept block serves again only when the device is past its free. Kept blocks are
 * freed when ONNX Runtime has no block of the bridge any more, and when memory is short. */
#include "onnx/bridge/bridge.h"
#include <weir/block_pool.h>
#include <weir/onnxruntime.h>
#include "runtime/block_pool/block_pool.h"

/* Device memory as runs of blocks of a pool: requests rounded up to whole blocks ----------------------------------- */

weir_status wi_ort_runs_init(wi_ort_runs *runs, weir_block_pool_member *member)
{
    runs->view = wi_blocks_view(member->pool);
    runs->at = calloc(runs->view.count, sizeof *runs->at);
    if (!runs->at)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the runs of a pool of %u blocks", runs->view.count);
    runs->member = member;
    return WEIR_OK;
}

void wi_ort_runs_destroy(wi_ort_runs *runs)
{
    free(runs->at);
    runs->at = NULL;
    runs->member = NULL;
}

weir_status wi_ort_runs_alloc(wi_ort_runs *runs, size_t bytes, weir_stream stream, void **out)
{
    uint64_t count = bytes / runs->view.bytes + (bytes % runs->view.bytes != 0);
    uint32_t first;
    if (count > runs->view.count)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "%zu bytes are %llu blocks of %zu bytes; the pool has %u", bytes,
                         (unsigned long long)count, runs->view.bytes, runs->view.count);
    weir_status status = weir_block_pool_alloc(runs->member, (uint32_t)count, WEIR_BLOCK_POOL_RUN, stream, &first);
    if (status != WEIR_OK)
        return status;
    runs->at[first].stream = stream;
    atomic_store(&runs->at[first].length, (uint32_t)count);
    *out = weir_block_pool_at(&runs->view, first);
    return WEIR_OK;
}

weir_status wi_ort_runs_free(wi_ort_runs *runs, void *pointer, weir_stream stream)
{
    uint32_t first = weir_block_pool_index(&runs->view, pointer);
    if (first == WEIR_BLOCK_POOL_NONE)
        return weir_fail(WEIR_ERR_FOREIGN, "%p is no block of the pool", pointer);
    if (weir_block_pool_at(&runs->view, first) != pointer)
        return weir_fail(WEIR_ERR_INTERIOR, "%p lies in block %u of the pool and does not begin it", pointer, first);
    uint32_t count = atomic_exchange(&runs->at[first].length, 0);
    if (count == 0)
        return weir_fail(WEIR_ERR_DOUBLE_FREE,
                         "no run begins at block %u of the pool: it was given back, or never taken", first);
    weir_status status =
        weir_block_pool_free(runs->member, &(uint32_t){first}, NULL, count, WEIR_BLOCK_POOL_RUN, stream);
    if (status != WEIR_OK)
        atomic_store(&runs->at[first].length, count);
    return status;
}

weir_stream wi_ort_runs_stream(const wi_ort_runs *runs, const void *pointer)
{
    uint32_t first = weir_block_pool_index(&runs->view, pointer);
    bool begins = first != WEIR_BLOCK_POOL_NONE && weir_block_pool_at(&runs->view, first) == pointer &&
                  atomic_load(&runs->at[first].length) != 0;
    return begins ? runs->at[first].stream : WEIR_STREAM_HOST;
}

/* Pinned memory ---------------------------------------------------------------------------------------------------- */

static weir_status bridge_memory_allocate(weir_onnxruntime *bridge, size_t bytes, void **out)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = bytes,
                            .stream = WEIR_STREAM_HOST,
                            .memory_class = WEIR_CLASS_SCRATCH,
                            .tag = "onnxruntime",
                            .kind = WEIR_KIND_PINNED};
    weir_block block;
    weir_status status = weir_alloc_with(bridge->client, &request, &block);
    *out = block.pointer;
    return status;
}

/* With the lock held. */
static wi_ort_kept remove_kept(wi_ort_pinned *pinned, size_t index)
{
    wi_ort_kept kept = pinned->kept[index];
    pinned->kept[index] = pinned->kept[--pinned->count];
    pinned->bytes -= kept.bytes;
    return kept;
}

/* One that is long enough, and not twice as long as that. */
static void *take_kept(weir_onnxruntime *bridge, size_t bytes)
{
    wi_ort_pinned *pinned = &bridge->kept;
    const weir_runtime *runtime = bridge->runtime;
    void *found = NULL;
    pthread_mutex_lock(&pinned->lock);
    for (size_t i = 0; i < pinned->count && !found; i++) {
        const wi_ort_kept *kept = &pinned->kept[i];
        if (kept->bytes >= bytes && kept->bytes / 2 <= bytes && runtime->driver->passed(runtime->device, kept->past))
            found = remove_kept(pinned, i).pointer;
    }
    pthread_mutex_unlock(&pinned->lock);
    return found;
}

weir_status wi_ort_pinned_alloc(weir_onnxruntime *bridge, size_t bytes, void **out)
{
    *out = take_kept(bridge, bytes);
    weir_status status = *out ? WEIR_OK : bridge_memory_allocate(bridge, bytes, out);
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        return status;
    wi_ort_pinned_drop(bridge);
    return bridge_memory_allocate(bridge, bytes, out);
}

static void bridge_memory_on_pressure(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    wi_ort_pinned_drop(user);
}

/* Before the first one is kept: whoever needs the host's memory can have them given up. */
static bool watched(weir_onnxruntime *bridge)
{
    wi_ort_pinned *pinned = &bridge->kept;
    weir_runtime *host = atomic_load(&bridge->runtime->host);
    uint64_t id;
    pthread_mutex_lock(&pinned->lock);
    bool already = pinned->pressure != 0;
    pthread_mutex_unlock(&pinned->lock);
    if (already)
        return true;
    if (!host || weir_pressure_register(host, 0, bridge_memory_on_pressure, bridge, &id) != WEIR_OK)
        return false;
    pthread_mutex_lock(&pinned->lock);
    bool first = pinned->pressure == 0;
    pinned->pressure = first ? id : pinned->pressure;
    pthread_mutex_unlock(&pinned->lock);
    return first || wi_ort_stop_watching(host, id) == WEIR_OK;
}

static bool holds(const wi_ort_pinned *pinned, const void *pointer)
{
    bool holds = false;
    for (size_t i = 0; i < pinned->count; i++)
        holds |= pinned->kept[i].pointer == pointer;
    return holds;
}

static bool bridge_memory_is_kept(wi_ort_pinned *pinned, const void *pointer)
{
    pthread_mutex_lock(&pinned->lock);
    bool is = holds(pinned, pointer);
    pthread_mutex_unlock(&pinned->lock);
    return is;
}

typedef enum keeping { KEPT, KEPT_BEFORE, NO_ROOM } keeping;

/* Keeps the block until the device is past the point. Another thread may have freed it at the same time. */
static keeping bridge_memory_keep(wi_ort_pinned *pinned, wi_ort_kept kept)
{
    pthread_mutex_lock(&pinned->lock);
    bool room = pinned->count < WI_ORT_KEPT_MOST && pinned->bytes + kept.bytes <= WI_ORT_KEPT_BYTES;
    keeping how = holds(pinned, kept.pointer) ? KEPT_BEFORE : room ? KEPT : NO_ROOM;
    if (how == KEPT) {
        pinned->kept[pinned->count++] = kept;
        pinned->bytes += kept.bytes;
    }
    pthread_mutex_unlock(&pinned->lock);
    return how;
}

/* The point behind what is queued now on the sessions' stream; none where the device has been waited for. */
static weir_status point(const weir_onnxruntime *bridge, bool synchronized, wi_event *out)
{
    weir_runtime *runtime = bridge->runtime;
    void *native;
    *out = (wi_event){NULL, 0};
    if (synchronized)
        return WEIR_OK;
    weir_status status = wi_streams_resolve(&runtime->streams, bridge->stream, bridge->name, &native);
    return status == WEIR_OK ? runtime->driver->record(runtime->device, native, out) : status;
}

static weir_status freed_before(const void *pointer)
{
    return weir_fail(WEIR_ERR_DOUBLE_FREE, "%p was freed before", pointer);
}

weir_status wi_ort_pinned_free(weir_onnxruntime *bridge, void *pointer, bool synchronized)
{
    weir_block_details details = {.struct_size = sizeof details};
    wi_ort_kept kept = {.pointer = pointer};
    if (bridge_memory_is_kept(&bridge->kept, pointer))
        return freed_before(pointer);
    bool ours = weir_block_info(pointer, &details) == WEIR_OK && details.state == WEIR_BLOCK_LIVE &&
                details.offset == 0 && details.client == bridge->client && details.kind == WEIR_KIND_PINNED;
    kept.bytes = details.bytes;
    bool may = ours && point(bridge, synchronized, &kept.past) == WEIR_OK && watched(bridge);
    keeping how = may ? bridge_memory_keep(&bridge->kept, kept) : NO_ROOM;
    if (how == NO_ROOM)
        return weir_free(bridge->client, pointer, synchronized ? WEIR_STREAM_HOST : bridge->stream);
    return how == KEPT ? WEIR_OK : freed_before(pointer);
}

/* No pointer: there are not so many. */
static wi_ort_kept take_at(wi_ort_pinned *pinned, size_t index)
{
    wi_ort_kept kept = {NULL, 0, {NULL, 0}};
    pthread_mutex_lock(&pinned->lock);
    if (index < pinned->count)
        kept = remove_kept(pinned, index);
    pthread_mutex_unlock(&pinned->lock);
    return kept;
}

/* Frees a kept block. If the device is past the block's free, no stream is needed, and the bridge's stream may be under
 * capture; else the block is freed in the order of the bridge's stream. */
static weir_status free_kept(const weir_onnxruntime *bridge, wi_ort_kept kept)
{
    const weir_runtime *runtime = bridge->runtime;
    bool past = !kept.past.stream || runtime->driver->passed(runtime->device, kept.past);
    return weir_free(bridge->client, kept.pointer, past ? WEIR_STREAM_HOST : bridge->stream);
}

/* From the last to the first, so that what comes behind meanwhile, or is kept on, is not looked at again. */
void wi_ort_pinned_drop(weir_onnxruntime *bridge)
{
    for (size_t i = WI_ORT_KEPT_MOST; i-- > 0;) {
        wi_ort_kept kept = take_at(&bridge->kept, i);
        weir_status status = kept.pointer ? free_kept(bridge, kept) : WEIR_OK;
        if (status != WEIR_OK && (atomic_load(&bridge->ended) || bridge_memory_keep(&bridge->kept, kept) != KEPT))
            wi_ort_report(bridge, kept.pointer, status);
    }
}

void wi_ort_pinned_end(weir_onnxruntime *bridge)
{
    if (bridge->kept.pressure &&
        wi_ort_stop_watching(atomic_load(&bridge->runtime->host), bridge->kept.pressure) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnxruntime: %s", weir_detail());
    wi_ort_pinned_drop(bridge);
}
