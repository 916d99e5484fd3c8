/* allocators_cuda.c: CUDA's own allocators, and its events. */
#include "allocators.h"

#include "driver/cuda_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { STREAMS = 64, RESERVED_MEM_HIGH = 6 /* CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH of cuda.h */ };

static wi_cuda_functions cuda;

typedef struct device {
    int ordinal;
    CUcontext context;
    CUmemoryPool pool;
    CUstream streams[STREAMS];
    unsigned stream_count;
} device;

/* One each for the stream-ordered pool, for plain allocations, and for events. */
static device pooled, direct, ordered;
static CUevent event;

static const char *allocators_cuda_text_of(CUresult result)
{
    const char *text = "an error without a text";
    if (result == CUDA_SUCCESS)
        return NULL;
    (void)cuda.cuGetErrorString(result, &text);
    return text;
}

static const char *allocators_cuda_find_functions(void)
{
    typedef CUresult finder(const char *name, void **function, int version, unsigned long long flags, int *found);
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    finder *find;
    memcpy(&find, &symbol, sizeof find);
    if (!find)
        return "libcuda.so.1 is not here, or has no cuGetProcAddress_v2";
#define X(name, version, parameters)                                                                                   \
    if (find(#name, &symbol, version, 0, NULL) != CUDA_SUCCESS)                                                        \
        return "libcuda.so.1 lacks " #name;                                                                            \
    memcpy(&cuda.name, &symbol, sizeof symbol);
    WI_CUDA_FUNCTIONS(X)
#undef X
    return NULL;
}

static const char *open_device(int ordinal, device *d)
{
    CUdevice number;
    const char *failure = allocators_cuda_find_functions();
    if (failure)
        return failure;
    CUresult result = cuda.cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuda.cuDeviceGet(&number, ordinal);
    if (result == CUDA_SUCCESS)
        result = cuda.cuDevicePrimaryCtxRetain(&d->context, number);
    d->ordinal = ordinal;
    return allocators_cuda_text_of(result);
}

static void close_device(void *self)
{
    device *d = self;
    (void)cuda.cuDevicePrimaryCtxRelease(d->ordinal);
    d->context = NULL;
}

static void thread_begin(void *self)
{
    (void)cuda.cuCtxPushCurrent(((device *)self)->context);
}

static void thread_end(void *self)
{
    CUcontext ignored;
    (void)self;
    (void)cuda.cuCtxPopCurrent(&ignored);
}

static const char *stream(void *self, unsigned index, uint64_t *out)
{
    device *d = self;
    CUresult result = CUDA_SUCCESS;
    if (index >= STREAMS)
        return "there are not so many streams here";
    thread_begin(d);
    for (; d->stream_count <= index && result == CUDA_SUCCESS; d->stream_count += result == CUDA_SUCCESS)
        result = cuda.cuStreamCreate(&d->streams[d->stream_count], CU_STREAM_NON_BLOCKING);
    thread_end(d);
    *out = (uintptr_t)d->streams[index];
    return allocators_cuda_text_of(result);
}

static void allocators_cuda_synchronize(void *self)
{
    device *d = self;
    thread_begin(d);
    for (unsigned i = 0; i < d->stream_count; i++)
        (void)cuda.cuStreamSynchronize(d->streams[i]);
    thread_end(d);
}

static void allocators_cuda_end(void *self)
{
    device *d = self;
    allocators_cuda_synchronize(d);
    thread_begin(d);
    while (d->stream_count > 0)
        (void)cuda.cuStreamDestroy(d->streams[--d->stream_count]);
    if (d->pool)
        (void)cuda.cuMemPoolDestroy(d->pool);
    d->pool = NULL;
    thread_end(d);
}

/* The stream-ordered pool ------------------------------------------------------------------------------------------ */

/* Creates a private pool that gives no memory back to the device, as a program would set the release threshold. */
static const char *begin_pool(void *self, uint64_t cap)
{
    device *d = self;
    uint64_t most = UINT64_MAX;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->ordinal},
                                 .maxSize = cap};
    thread_begin(d);
    CUresult result = cuda.cuMemPoolCreate(&d->pool, &properties);
    if (result == CUDA_SUCCESS)
        result = cuda.cuMemPoolSetAttribute(d->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most);
    thread_end(d);
    return allocators_cuda_text_of(result);
}

static void *allocate_pool(void *self, size_t bytes, uint64_t on)
{
    CUdeviceptr address;
    const device *d = self;
    if (cuda.cuMemAllocFromPoolAsync(&address, bytes, d->pool, (CUstream)(uintptr_t)on) != CUDA_SUCCESS)
        return NULL;
    return (void *)(uintptr_t)address;
}

static bool release_pool(void *self, void *pointer, size_t bytes, uint64_t on)
{
    (void)self;
    (void)bytes;
    return cuda.cuMemFreeAsync((uintptr_t)pointer, (CUstream)(uintptr_t)on) == CUDA_SUCCESS;
}

static bool retry_pool(void *self)
{
    device *d = self;
    allocators_cuda_synchronize(d);
    thread_begin(d);
    CUresult result = cuda.cuMemPoolTrimTo(d->pool, 0);
    thread_end(d);
    return result == CUDA_SUCCESS;
}

static uint64_t peak_held_pool(void *self)
{
    uint64_t bytes = 0;
    const device *d = self;
    return cuda.cuMemPoolGetAttribute(d->pool, RESERVED_MEM_HIGH, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

const char *bench_cuda_pool(int ordinal, bench_peer *out)
{
    const char *failure = open_device(ordinal, &pooled);
    *out = (bench_peer){.struct_size = sizeof *out,
                        .name = "CUDA: cuMemAllocAsync",
                        .self = &pooled,
                        .begin = begin_pool,
                        .end = allocators_cuda_end,
                        .thread_begin = thread_begin,
                        .thread_end = thread_end,
                        .stream = stream,
                        .allocate = allocate_pool,
                        .release = release_pool,
                        .retry = retry_pool,
                        .synchronize = allocators_cuda_synchronize,
                        .peak_held = peak_held_pool,
                        .close = close_device};
    return failure;
}

/* Plain allocations ------------------------------------------------------------------------------------------------ */

static const char *begin_direct(void *self, uint64_t cap)
{
    (void)self;
    return cap ? "it has no limit" : NULL;
}

static void *allocate_direct(void *self, size_t bytes, uint64_t on)
{
    CUdeviceptr address;
    (void)self;
    (void)on;
    return cuda.cuMemAlloc(&address, bytes) == CUDA_SUCCESS ? (void *)(uintptr_t)address : NULL;
}

static bool release_direct(void *self, void *pointer, size_t bytes, uint64_t on)
{
    (void)self;
    (void)bytes;
    (void)on;
    return cuda.cuMemFree((uintptr_t)pointer) == CUDA_SUCCESS;
}

const char *bench_cuda_direct(int ordinal, bench_peer *out)
{
    const char *failure = open_device(ordinal, &direct);
    *out = (bench_peer){.struct_size = sizeof *out,
                        .name = "CUDA: cuMemAlloc",
                        .self = &direct,
                        .begin = begin_direct,
                        .end = allocators_cuda_end,
                        .thread_begin = thread_begin,
                        .thread_end = thread_end,
                        .stream = stream,
                        .allocate = allocate_direct,
                        .release = release_direct,
                        .synchronize = allocators_cuda_synchronize,
                        .close = close_device};
    return failure;
}

/* Events ----------------------------------------------------------------------------------------------------------- */

const char *bench_cuda_events_begin(int ordinal)
{
    uint64_t ignored;
    const char *failure = open_device(ordinal, &ordered);
    if (failure)
        return failure;
    failure = stream(&ordered, 1, &ignored); /* and the one before it */
    thread_begin(&ordered);
    if (!failure)
        failure = allocators_cuda_text_of(cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    if (failure)
        bench_cuda_events_end();
    return failure;
}

bool bench_cuda_events_order(void)
{
    CUstream first = ordered.streams[0];
    ordered.streams[0] = ordered.streams[1];
    ordered.streams[1] = first;
    return cuda.cuEventRecord(event, first) == CUDA_SUCCESS &&
           cuda.cuStreamWaitEvent(ordered.streams[0], event, 0) == CUDA_SUCCESS;
}

void bench_cuda_events_end(void)
{
    if (event)
        (void)cuda.cuEventDestroy(event);
    event = NULL;
    thread_end(&ordered);
    allocators_cuda_end(&ordered);
    close_device(&ordered);
}
