/* The cuda driver's memory piece by piece: at once, of every kind, and in stream order from a pool of the device's own.
 *
 * The pool keeps released memory until it is trimmed. Memory goes to another stream when the device is past its
 * release; the pool may not make the other stream wait instead, as no caller asked for such an order. */
#include "base/system.h"
#include "driver/cuda.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>

#define PTR(address) ((CUdeviceptr)(uintptr_t)(address))

/* Long page-locked pieces ------------------------------------------------------------------------------------------ */

/* The driver makes page-locked memory from small pages, on one thread: 2.3 GB/s on an H200. Huge pages that several
 * threads touch and that are registered then are there many times as fast; short pieces are not worth it. */
enum { LONG_PINNED = 32 * WI_MIB, TOUCHERS = 8, HUGE_PAGE = 2 * WI_MIB };

typedef struct slice {
    char *start;
    uint64_t bytes;
} slice;

/* Has the kernel populate the slice. Pages that the kernel cannot populate are touched as usual, when the memory is
 * registered. */
static void *pinned_touch(void *user)
{
    enum { POPULATE_WRITE = 23 }; /* MADV_POPULATE_WRITE, of Linux 5.14 */
    const slice *s = user;
    (void)madvise(s->start, s->bytes, POPULATE_WRITE);
    return NULL;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the kernel writes there */
static void pinned_touch_all(char *start, uint64_t bytes)
{
    slice slices[TOUCHERS];
    pthread_t threads[TOUCHERS];
    bool runs[TOUCHERS] = {false};
    cpu_set_t set;
    unsigned most = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    unsigned count = wi_min(most, TOUCHERS);
    uint64_t each = wi_round_up(bytes / count, HUGE_PAGE), at = 0;
    for (unsigned i = 0; i < count && at < bytes; i++, at += each) {
        slices[i] = (slice){start + at, wi_min(each, bytes - at)};
        runs[i] = i > 0 && pthread_create(&threads[i], NULL, pinned_touch, &slices[i]) == 0;
        if (i > 0 && !runs[i])
            (void)pinned_touch(&slices[i]);
    }
    (void)pinned_touch(&slices[0]);
    for (unsigned i = 0; i < count; i++)
        if (runs[i])
            pthread_join(threads[i], NULL);
}

/* Addresses that begin at a huge page. */
static char *pinned_map(uint64_t bytes)
{
    char *raw =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    char *start = (char *)wi_round_up((uintptr_t)raw, HUGE_PAGE); /* NOLINT(performance-no-int-to-ptr) */
    uint64_t before = (uint64_t)(start - raw);
    if (before > 0)
        munmap(raw, before);
    munmap(start + bytes, HUGE_PAGE - before);
    (void)madvise(start, bytes, MADV_HUGEPAGE);
    return start;
}

/* With the context current. */
static weir_status pinned_register(wi_device *device, uint64_t bytes, void **address)
{
    char *start = pinned_map(bytes);
    if (!start)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "cuda:%d: the host has no addresses for %llu bytes: %s",
                         device->ordinal, (unsigned long long)bytes, strerror(errno));
    pinned_touch_all(start, bytes);
    weir_status status = wi_cuda_check(device, wi_cuda.cuMemHostRegister(start, bytes, CU_MEMHOSTREGISTER_PORTABLE),
                                       "cuMemHostRegister");
    if (status != WEIR_OK)
        munmap(start, bytes);
    else
        *address = start;
    return status;
}

static weir_status pinned_unregister(wi_device *device, void *address, uint64_t bytes)
{
    weir_status status = wi_cuda_check(device, wi_cuda.cuMemHostUnregister(address), "cuMemHostUnregister");
    if (status == WEIR_OK)
        munmap(address, bytes);
    return status;
}

/* At once ---------------------------------------------------------------------------------------------------------- */

weir_status wi_cuda_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    wi_cuda_guard guard;
    CUdeviceptr start = 0;
    if (kind == WEIR_KIND_HOST)
        return wi_pageable_allocate(bytes, address);
    if (kind != WEIR_KIND_DEVICE && kind != WEIR_KIND_PINNED)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "cuda:%d: there is no kind of memory with the number %d",
                         device->ordinal, (int)kind);
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    if (kind == WEIR_KIND_PINNED && bytes >= LONG_PINNED) {
        status = pinned_register(device, bytes, address);
    } else if (kind == WEIR_KIND_PINNED) {
        status =
            wi_cuda_check(device, wi_cuda.cuMemHostAlloc(address, bytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    } else {
        status = wi_cuda_check(device, wi_cuda.cuMemAlloc(&start, bytes), "cuMemAlloc");
        *address = (void *)(uintptr_t)start;
    }
    wi_cuda_end(&guard);
    return status;
}

weir_status wi_cuda_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    wi_cuda_guard guard;
    if (kind == WEIR_KIND_HOST) {
        free(address);
        return WEIR_OK;
    }
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = kind != WEIR_KIND_PINNED ? wi_cuda_check(device, wi_cuda.cuMemFree(PTR(address)), "cuMemFree")
             : bytes >= LONG_PINNED   ? pinned_unregister(device, address, bytes)
                                      : wi_cuda_check(device, wi_cuda.cuMemFreeHost(address), "cuMemFreeHost");
    wi_cuda_end(&guard);
    return status;
}

/* The pool --------------------------------------------------------------------------------------------------------- */

static weir_status cuda_memory_make_pool(wi_device *device, CUmemoryPool *out)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = device->properties.location};
    int supported = 0, wait_inside = 0;
    unsigned long long keep = UINT64_MAX;
    CUmemoryPool pool = NULL;
    weir_status status = wi_cuda_check(
        device, wi_cuda.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device->device),
        "cuDeviceGetAttribute");
    if (status == WEIR_OK && !supported)
        status = weir_fail(WEIR_ERR_UNSUPPORTED, "cuda:%d has no memory pools, and so no allocation in stream order",
                           device->ordinal);
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check(device, wi_cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
                           "cuMemPoolSetAttribute");
    if (status == WEIR_OK)
        status = wi_cuda_check(
            device,
            wi_cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &wait_inside),
            "cuMemPoolSetAttribute");
    if (status == WEIR_OK)
        *out = pool;
    else
        (void)wi_cuda.cuMemPoolDestroy(pool);
    return status;
}

/* The pool, or NULL when it was never asked for. */
static CUmemoryPool pool_of(wi_device *device)
{
    pthread_mutex_lock(&device->lock);
    CUmemoryPool pool = device->pool;
    pthread_mutex_unlock(&device->lock);
    return pool;
}

/* With the context current: makes the pool when it is not there. If two threads make pools at the same time, one pool
 * is kept. */
static weir_status open_pool(wi_device *device, CUmemoryPool *out)
{
    CUmemoryPool made = NULL;
    *out = pool_of(device);
    if (*out)
        return WEIR_OK;
    weir_status status = cuda_memory_make_pool(device, &made);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    CUmemoryPool other = device->pool;
    if (!other)
        device->pool = made;
    *out = device->pool;
    pthread_mutex_unlock(&device->lock);
    if (other)
        (void)wi_cuda.cuMemPoolDestroy(made);
    return WEIR_OK;
}

void wi_cuda_pool_close(wi_device *device)
{
    wi_cuda_guard guard;
    if (!device->pool || wi_cuda_begin(device, &guard) != WEIR_OK)
        return;
    (void)wi_cuda.cuMemPoolDestroy(device->pool);
    wi_cuda_end(&guard);
}

/* On the stream, or on the device's own, which is waited for. */
static weir_status cuda_pool_synchronize(wi_device *device, const wi_cuda_stream *stream)
{
    if (stream)
        return WEIR_OK;
    return wi_cuda_check(device, wi_cuda.cuStreamSynchronize(device->own_stream->stream), "cuStreamSynchronize");
}

weir_status wi_cuda_pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address)
{
    wi_cuda_guard guard;
    CUmemoryPool pool = NULL;
    CUdeviceptr start = 0;
    const wi_cuda_stream *on = stream ? stream : device->own_stream;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check_stream(device, on, false, "allocating from the pool");
    if (status == WEIR_OK)
        status = open_pool(device, &pool);
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuMemAllocFromPoolAsync(&start, bytes, pool, on->stream),
                               "cuMemAllocFromPoolAsync");
    if (status == WEIR_OK) {
        status = cuda_pool_synchronize(device, stream);
        if (status != WEIR_OK)
            (void)wi_cuda.cuMemFreeAsync(start, on->stream);
    }
    wi_cuda_end(&guard);
    *address = (void *)(uintptr_t)start;
    return status;
}

/* It is released once the driver has taken it: a failure to wait for that would only be told of something else. */
weir_status wi_cuda_pool_release(wi_device *device, void *address, uint64_t bytes, void *stream)
{
    wi_cuda_guard guard;
    const wi_cuda_stream *on = stream ? stream : device->own_stream;
    (void)bytes;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check_stream(device, on, false, "releasing memory of the pool");
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuMemFreeAsync(PTR(address), on->stream), "cuMemFreeAsync");
    if (status == WEIR_OK)
        (void)cuda_pool_synchronize(device, stream);
    wi_cuda_end(&guard);
    return status;
}

/* With the context current. */
static weir_status read_held(wi_device *device, CUmemoryPool pool, uint64_t *held)
{
    unsigned long long reserved = 0;
    weir_status status =
        wi_cuda_check(device, wi_cuda.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved),
                      "cuMemPoolGetAttribute");
    *held = reserved;
    return status;
}

weir_status wi_cuda_pool_held(wi_device *device, uint64_t *held)
{
    wi_cuda_guard guard;
    CUmemoryPool pool = pool_of(device);
    *held = 0;
    weir_status status = pool ? wi_cuda_begin(device, &guard) : WEIR_OK;
    if (!pool || status != WEIR_OK)
        return status;
    status = read_held(device, pool, held);
    wi_cuda_end(&guard);
    return status;
}

weir_status wi_cuda_pool_trim(wi_device *device, uint64_t keep, uint64_t *held)
{
    wi_cuda_guard guard;
    CUmemoryPool pool = pool_of(device);
    *held = 0;
    weir_status status = pool ? wi_cuda_begin(device, &guard) : WEIR_OK;
    if (!pool || status != WEIR_OK)
        return status;
    status = wi_cuda_check(device, wi_cuda.cuMemPoolTrimTo(pool, keep), "cuMemPoolTrimTo");
    if (status == WEIR_OK)
        status = read_held(device, pool, held);
    wi_cuda_end(&guard);
    return status;
}
