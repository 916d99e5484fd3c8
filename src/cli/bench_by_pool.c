/* bench_by_pool.c: CUDA's own stream-ordered pool, which cuMemAllocAsync serves from: from begin to end a pool of its own
 * that keeps what it has, as a program would set it. */
#include "bench_by.h"

#include "driver/cuda_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { STREAMS = 64, RESERVED_MEM_HIGH = 6 /* CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH of cuda.h */ };

static wi_cuda_functions cuda;

static struct {
    int ordinal;
    CUcontext context;
    CUmemoryPool pool;
    CUstream streams[STREAMS];
    unsigned stream_count;
} peer;

static const char *words(CUresult result)
{
    const char *text = "an error without a text";
    if (result == CUDA_SUCCESS)
        return NULL;
    (void)cuda.cuGetErrorString(result, &text);
    return text;
}

static const char *load(void)
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

static void thread_begin(void *self)
{
    (void)self;
    (void)cuda.cuCtxPushCurrent(peer.context);
}

static void thread_end(void *self)
{
    CUcontext ignored;
    (void)self;
    (void)cuda.cuCtxPopCurrent(&ignored);
}

static const char *begin(void *self, uint64_t cap)
{
    uint64_t most = UINT64_MAX;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, peer.ordinal},
                                 .maxSize = cap};
    thread_begin(self);
    CUresult result = cuda.cuMemPoolCreate(&peer.pool, &properties);
    if (result == CUDA_SUCCESS)
        result = cuda.cuMemPoolSetAttribute(peer.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &most);
    thread_end(self);
    return words(result);
}

static void synchronize(void *self)
{
    thread_begin(self);
    for (unsigned i = 0; i < peer.stream_count; i++)
        (void)cuda.cuStreamSynchronize(peer.streams[i]);
    thread_end(self);
}

static void end(void *self)
{
    synchronize(self);
    thread_begin(self);
    while (peer.stream_count > 0)
        (void)cuda.cuStreamDestroy(peer.streams[--peer.stream_count]);
    if (peer.pool)
        (void)cuda.cuMemPoolDestroy(peer.pool);
    peer.pool = NULL;
    thread_end(self);
}

static const char *stream(void *self, unsigned index, uint64_t *out)
{
    CUresult result = CUDA_SUCCESS;
    if (index >= STREAMS)
        return "there are not so many streams here";
    thread_begin(self);
    for (; peer.stream_count <= index && result == CUDA_SUCCESS; peer.stream_count += result == CUDA_SUCCESS)
        result = cuda.cuStreamCreate(&peer.streams[peer.stream_count], CU_STREAM_NON_BLOCKING);
    thread_end(self);
    *out = (uintptr_t)peer.streams[index];
    return words(result);
}

static void *allocate(void *self, size_t bytes, uint64_t stream)
{
    CUdeviceptr address;
    (void)self;
    if (cuda.cuMemAllocFromPoolAsync(&address, bytes, peer.pool, (CUstream)(uintptr_t)stream) != CUDA_SUCCESS)
        return NULL;
    return (void *)(uintptr_t)address;
}

static bool release(void *self, void *pointer, size_t bytes, uint64_t stream)
{
    (void)self;
    (void)bytes;
    return cuda.cuMemFreeAsync((uintptr_t)pointer, (CUstream)(uintptr_t)stream) == CUDA_SUCCESS;
}

static bool retry(void *self)
{
    synchronize(self);
    thread_begin(self);
    CUresult result = cuda.cuMemPoolTrimTo(peer.pool, 0);
    thread_end(self);
    return result == CUDA_SUCCESS;
}

static uint64_t peak_held(void *self)
{
    uint64_t bytes = 0;
    (void)self;
    return cuda.cuMemPoolGetAttribute(peer.pool, RESERVED_MEM_HIGH, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

static void close_peer(void *self)
{
    (void)self;
    (void)cuda.cuDevicePrimaryCtxRelease(peer.ordinal);
    peer.context = NULL;
}

const char *bench_by_pool(int ordinal, bench_peer *out)
{
    CUdevice device;
    const char *failure = load();
    if (failure)
        return failure;
    CUresult result = cuda.cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuda.cuDeviceGet(&device, ordinal);
    if (result == CUDA_SUCCESS)
        result = cuda.cuDevicePrimaryCtxRetain(&peer.context, device);
    peer.ordinal = ordinal;
    *out = (bench_peer){.struct_size = sizeof *out,
                        .begin = begin,
                        .end = end,
                        .thread_begin = thread_begin,
                        .thread_end = thread_end,
                        .stream = stream,
                        .allocate = allocate,
                        .release = release,
                        .retry = retry,
                        .synchronize = synchronize,
                        .peak_held = peak_held,
                        .close = close_peer};
    snprintf(out->name, sizeof out->name, "CUDA: cuMemAllocAsync");
    return words(result);
}
