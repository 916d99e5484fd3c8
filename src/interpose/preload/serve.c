/* Blocks of weir's for what programs ask of cuMemAlloc and its like, and their frees. */
#include "interpose/preload/preload.h"

/* Taking ----------------------------------------------------------------------------------------------------------- */

enum { ALIGNMENT = 512 }; /* what CUDA's own memory has, as textures want it */

/* Blocks of multiples of the alignment lie at multiples of it, where a program has no others of weir's. */
static weir_status preload_serve_allocate(const wp_device *d, size_t bytes, weir_stream stream, void **out)
{
    weir_status status = weir_alloc(d->client, bytes, stream, WEIR_CLASS_OTHER, out);
    if (status != WEIR_OK || (uintptr_t)*out % ALIGNMENT == 0)
        return status;
    weir_request request = {.struct_size = sizeof request, .bytes = bytes, .alignment = ALIGNMENT, .stream = stream};
    weir_block block;
    (void)!weir_free(d->client, *out, stream);
    status = weir_alloc_with(d->client, &request, &block);
    *out = block.pointer;
    return status;
}

/* Whether the device was waited for, so that what is freed and not passed can be had: CUDA does the same before it refuses.
 * Where that would not be enough it is not. */
static bool wait_for_frees(const wp_device *d, size_t bytes)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    if (wp_capturing() || weir_snapshot(d->runtime, &stats, NULL, 0, NULL) != WEIR_OK ||
        stats.pending + stats.ordered == 0 || stats.live + stats.promised + bytes > stats.budget ||
        weir_runtime_enter(d->runtime) != WEIR_OK)
        return false;
    bool waited = wp_real.cuCtxSynchronize() == CUDA_SUCCESS;
    weir_runtime_leave(d->runtime);
    return waited;
}

/* Whether other processes of the tree have given up something, where that could be what is missing. */
static bool ask_others(const wp_device *d, size_t bytes)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    return weir_snapshot(d->runtime, &stats, NULL, 0, NULL) == WEIR_OK &&
           stats.live + stats.promised + bytes <= stats.budget && wp_tree_ask(d->ordinal, bytes);
}

static CUresult answer_of(weir_status status, const wp_device *d, const char *function, size_t bytes)
{
    return status == WEIR_ERR_FORKED ? WP_NOT_INITIALIZED
                                     : wp_refuse(d->ordinal, function, bytes); /* CUDA tells of a lost device itself */
}

CUresult wp_serve(wp_device *d, const char *function, weir_stream stream, CUdeviceptr *out, size_t bytes)
{
    void *pointer = NULL;
    if (bytes > SIZE_MAX - ALIGNMENT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t rounded = wi_round_up(bytes, ALIGNMENT);
    wp_free_held_up();
    weir_status status = preload_serve_allocate(d, rounded, stream, &pointer);
    if (status == WEIR_ERR_OUT_OF_MEMORY && wait_for_frees(d, rounded))
        status = preload_serve_allocate(d, rounded, stream, &pointer);
    if (status == WEIR_ERR_OUT_OF_MEMORY && ask_others(d, rounded))
        status = preload_serve_allocate(d, rounded, stream, &pointer);
    if (status != WEIR_OK)
        return answer_of(status, d, function, bytes);
    wp_note(WP_EVENT_SERVED);
    *out = (CUdeviceptr)(uintptr_t)pointer;
    return CUDA_SUCCESS;
}

bool wp_block_at(CUdeviceptr address, weir_block_details *out, wp_device **d)
{
    *out = WEIR_INIT(weir_block_details);
    if (!address ||
        weir_block_info((const void *)(uintptr_t)address, out) != WEIR_OK) // NOLINT(performance-no-int-to-ptr)
        return false;
    *d = wp_device_of(out->client);
    return *d != NULL;
}

/* Freeing behind everything ----------------------------------------------------------------------------------------- */

/* Freed while a stream was captured, when no point behind all work can be had. */
typedef struct held_up {
    struct held_up *next;
    wp_device *device;
    CUdeviceptr address;
} held_up;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static held_up *first;
static atomic_bool any;

static weir_status preload_serve_release(const wp_device *d, CUdeviceptr address, weir_stream stream)
{
    return weir_free(d->client, (void *)(uintptr_t)address, stream); // NOLINT(performance-no-int-to-ptr)
}

/* With no capture going on, and the device current. */
static weir_status free_by_event(wp_device *d, CUdeviceptr address)
{
    weir_status status = WEIR_ERR_DRIVER;
    pthread_mutex_lock(&d->free_lock);
    if (wp_real.cuCtxRecordEvent(d->context, d->event) == CUDA_SUCCESS &&
        wp_real.cuStreamWaitEvent(weir_stream_native(d->behind), d->event, 0) == CUDA_SUCCESS)
        status = preload_serve_release(d, address, d->behind);
    pthread_mutex_unlock(&d->free_lock);
    return status;
}

/* *waited: what CUDA answers to a wait for the device. */
static weir_status preload_serve_free_now(wp_device *d, CUdeviceptr address, CUresult *waited)
{
    weir_status status = weir_runtime_enter(d->runtime);
    *waited = CUDA_SUCCESS;
    if (status != WEIR_OK)
        return status;
    bool waits = wp_settings_of()->free_waits || d->behind.id == WEIR_STREAM_HOST.id;
    status = waits ? WEIR_ERR_DRIVER : free_by_event(d, address);
    if (status == WEIR_ERR_DRIVER && (*waited = wp_real.cuCtxSynchronize()) == CUDA_SUCCESS) {
        wp_note(WP_EVENT_WAITED);
        status = preload_serve_release(d, address, WEIR_STREAM_HOST);
    }
    weir_runtime_leave(d->runtime);
    return status;
}

static bool hold_up(wp_device *d, CUdeviceptr address)
{
    held_up *it = malloc(sizeof *it);
    if (!it)
        return false;
    pthread_mutex_lock(&lock);
    *it = (held_up){first, d, address};
    first = it;
    atomic_store(&any, true);
    pthread_mutex_unlock(&lock);
    return true;
}

/* With a capture going on the block stays the program's until that has ended. */
static CUresult preload_serve_free_behind_all(wp_device *d, CUdeviceptr address)
{
    if (wp_is_exiting()) /* CUDA may be gone, and the memory goes with the process */
        return CUDA_SUCCESS;
    if (!wp_captures_shut()) {
        wp_note(WP_EVENT_HELD_UP);
        return hold_up(d, address) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult waited;
    weir_status status = preload_serve_free_now(d, address, &waited);
    wp_captures_open();
    if (status == WEIR_OK)
        wp_note(WP_EVENT_FREED);
    return status == WEIR_OK                ? CUDA_SUCCESS
           : waited != CUDA_SUCCESS         ? waited
           : status == WEIR_ERR_DEVICE_LOST ? CUDA_ERROR_LAUNCH_FAILED
                                            : WP_INVALID_VALUE; /* a forked child finds no blocks to free */
}

void wp_free_held_up(void)
{
    if (wi_likely(!atomic_load_explicit(&any, memory_order_relaxed)) || wp_capturing())
        return;
    pthread_mutex_lock(&lock);
    held_up *next = first;
    first = NULL;
    atomic_store(&any, false);
    pthread_mutex_unlock(&lock);
    while (next) {
        held_up *it = next;
        next = it->next;
        (void)preload_serve_free_behind_all(it->device, it->address);
        free(it);
    }
}

/* CUDA's calls ----------------------------------------------------------------------------------------------------- */

/* Memory that stays CUDA's, and counts. */
static CUresult take_direct(wp_device *d, const char *function, CUdeviceptr *out, size_t bytes)
{
    uint64_t spent = wp_spent(bytes);
    if (!wp_charge(d, WP_KIND_DIRECT, spent))
        return wp_refuse(d->ordinal, function, bytes);
    CUresult result = wp_real.cuMemAlloc_v2(out, bytes);
    if (result != CUDA_SUCCESS || wp_count_noted(WP_KIND_DIRECT, *out, d, spent)) {
        if (result != CUDA_SUCCESS)
            wp_uncharge(d, WP_KIND_DIRECT, spent);
        return result;
    }
    (void)wp_real.cuMemFree_v2(*out);
    wp_uncharge(d, WP_KIND_DIRECT, spent);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult preload_serve_take(const char *function, CUdeviceptr *out, size_t bytes)
{
    bool primary;
    CUresult result;
    wp_device *d = wp_device_here(&primary, &result);
    if (!d)
        return result == CUDA_ERROR_OUT_OF_MEMORY ? result : wp_real.cuMemAlloc_v2(out, bytes);
    return primary && !wp_settings_of()->direct ? wp_serve(d, function, WEIR_STREAM_HOST, out, bytes)
                                                : take_direct(d, function, out, bytes);
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    WP_ENTER(cuMemAlloc_v2);
    return out && bytes ? preload_serve_take("cuMemAlloc", out, bytes) : wp_real.cuMemAlloc_v2(out, bytes);
}

/* Rows as CUDA aligns them. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element)
{
    WP_ENTER(cuMemAllocPitch_v2);
    bool good = out && pitch && width && height && (element == 4 || element == 8 || element == 16) &&
                width < SIZE_MAX - ALIGNMENT && height <= SIZE_MAX / wi_round_up(width, ALIGNMENT);
    if (!good)
        return wp_real.cuMemAllocPitch_v2(out, pitch, width, height, element);
    size_t row = wi_round_up(width, ALIGNMENT);
    CUresult result = preload_serve_take("cuMemAllocPitch", out, row * height);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

/* What is in no block that is live was freed already, or points into one. */
static bool is_start_of_live(const weir_block_details *its, CUdeviceptr address)
{
    return its->state == WEIR_BLOCK_LIVE && (CUdeviceptr)(uintptr_t)its->block.pointer == address;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    WP_ENTER(cuMemFree_v2);
    weir_block_details its;
    wp_device *d;
    wp_free_held_up();
    if (wp_block_at(address, &its, &d))
        return is_start_of_live(&its, address) ? preload_serve_free_behind_all(d, address) : WP_INVALID_VALUE;
    wp_leaving direct = wp_count_leave(WP_KIND_DIRECT, address), managed = wp_count_leave(WP_KIND_MANAGED, address);
    return wp_count_left(direct, wp_count_left(managed, wp_real.cuMemFree_v2(address)));
}

/* In stream order -------------------------------------------------------------------------------------------------- */

static CUresult real_alloc_async(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream, bool per_thread)
{
    if (pool)
        return (per_thread ? wp_real.cuMemAllocFromPoolAsync_ptsz : wp_real.cuMemAllocFromPoolAsync)(out, bytes, pool,
                                                                                                     stream);
    return (per_thread ? wp_real.cuMemAllocAsync_ptsz : wp_real.cuMemAllocAsync)(out, bytes, stream);
}

/* Counts for the device that the pool's memory is of, or for the host. */
static CUresult direct_async(const wp_device *d, CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream,
                             bool per_thread)
{
    uint64_t spent = wp_spent(bytes);
    int place = wp_pool_place(d, pool);
    wp_device *of = place == WP_HOST ? NULL : wp_device_start(place);
    if (of ? !wp_charge(of, WP_KIND_DIRECT, spent) : place != WP_HOST || !wp_charge_host(WP_KIND_PINNED, spent))
        return wp_refuse(place, "cuMemAllocAsync", bytes);
    CUresult result = real_alloc_async(out, bytes, pool, stream, per_thread);
    if (result == CUDA_SUCCESS && wp_count_noted(WP_KIND_DIRECT, *out, of, spent))
        return CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        (void)(per_thread ? wp_real.cuMemFreeAsync_ptsz : wp_real.cuMemFreeAsync)(*out, stream);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (of)
        wp_uncharge(of, WP_KIND_DIRECT, spent);
    else
        wp_uncharge_host(WP_KIND_PINNED, spent);
    return result;
}

static CUresult take_async(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream, bool per_thread)
{
    bool primary;
    CUresult result;
    weir_stream on = WEIR_STREAM_HOST;
    wp_device *d = out && bytes ? wp_device_here(&primary, &result) : NULL;
    if (!d)
        return out && bytes && result == CUDA_ERROR_OUT_OF_MEMORY
                   ? result
                   : real_alloc_async(out, bytes, pool, stream, per_thread);
    wp_stream_kind kind = wp_stream_of(stream, per_thread, &d, &on);
    if (kind == WP_STREAM_CAPTURED) {
        wp_note(WP_EVENT_GRAPH);
        return real_alloc_async(out, bytes, pool, stream, per_thread);
    }
    if (!primary || wp_settings_of()->direct || !wp_pool_is_plain(d, pool))
        return direct_async(d, out, bytes, pool, stream, per_thread);
    return wp_serve(d, "cuMemAllocAsync", kind == WP_STREAM_KNOWN ? on : WEIR_STREAM_HOST, out, bytes);
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    WP_ENTER(cuMemAllocAsync);
    return take_async(out, bytes, NULL, stream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    WP_ENTER(cuMemAllocAsync_ptsz);
    return take_async(out, bytes, NULL, stream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    WP_ENTER(cuMemAllocFromPoolAsync);
    return pool ? take_async(out, bytes, pool, stream, false)
                : wp_real.cuMemAllocFromPoolAsync(out, bytes, pool, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    WP_ENTER(cuMemAllocFromPoolAsync_ptsz);
    return pool ? take_async(out, bytes, pool, stream, true)
                : wp_real.cuMemAllocFromPoolAsync_ptsz(out, bytes, pool, stream);
}

/* Frees a block behind the work of the stream. Where weir cannot order on the stream, frees the block behind all work
 * of the device. */
static CUresult preload_serve_free_async(CUdeviceptr address, CUstream stream, bool per_thread)
{
    weir_block_details its;
    wp_device *d, *of = NULL;
    weir_stream on = WEIR_STREAM_HOST;
    CUresult (*real)(CUdeviceptr, CUstream) = per_thread ? wp_real.cuMemFreeAsync_ptsz : wp_real.cuMemFreeAsync;
    if (!wp_block_at(address, &its, &d)) {
        wp_leaving leaving = wp_count_leave(WP_KIND_DIRECT, address);
        return wp_count_left(leaving, real(address, stream));
    }
    if (!is_start_of_live(&its, address))
        return WP_INVALID_VALUE;
    wp_stream_kind kind = wp_is_exiting() ? WP_STREAM_UNKNOWN : wp_stream_of(stream, per_thread, &of, &on);
    if (kind == WP_STREAM_CAPTURED) /* a graph frees what is its own alone */
        return WP_INVALID_VALUE;
    if (kind == WP_STREAM_KNOWN && of == d && preload_serve_release(d, address, on) == WEIR_OK) {
        wp_note(WP_EVENT_FREED);
        return CUDA_SUCCESS;
    }
    CUresult waited = of && of != d ? wp_real.cuStreamSynchronize(stream) : CUDA_SUCCESS;
    return waited == CUDA_SUCCESS ? preload_serve_free_behind_all(d, address) : waited;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    WP_ENTER(cuMemFreeAsync);
    return preload_serve_free_async(address, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    WP_ENTER(cuMemFreeAsync_ptsz);
    return preload_serve_free_async(address, stream, true);
}
