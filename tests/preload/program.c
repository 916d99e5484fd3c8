/* A program that knows nothing of weir, and asks CUDA's driver for memory in the ways there are: program WAY CASE. It runs
 * under `weir exec --budget 64MiB` over the stub, and expects what a device of 64 MiB would answer. Status 99: something
 * was otherwise, and standard error says what. */
#include "preload/program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

CUdeviceptr take(size_t bytes)
{
    CUdeviceptr address = 0;
    EXPECT(cu.cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS && address);
    return address;
}

CUresult try(size_t bytes)
{
    CUdeviceptr address;
    CUresult result = cu.cuMemAlloc_v2(&address, bytes);
    return result == CUDA_SUCCESS ? cu.cuMemFree_v2(address) : result;
}

void give(CUdeviceptr address)
{
    EXPECT(cu.cuMemFree_v2(address) == CUDA_SUCCESS);
}

size_t left(void)
{
    size_t available, total;
    EXPECT(cu.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS && total == MIB(64));
    return available;
}

CUstream new_stream(void)
{
    CUstream stream;
    EXPECT(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return stream;
}

/* Work that takes its stream until `open` is set. */
static atomic_bool open_gate;
static void wait_at_gate(void *user)
{
    (void)user;
    while (!atomic_load(&open_gate))
        usleep(100);
}

CUstream busy_stream(void)
{
    CUstream stream = new_stream();
    EXPECT(cu.cuLaunchHostFunc(stream, wait_at_gate, NULL) == CUDA_SUCCESS);
    return stream;
}

void let_pass(CUstream stream)
{
    atomic_store(&open_gate, true);
    EXPECT(cu.cuStreamSynchronize(stream) == CUDA_SUCCESS);
}

static bool overlap(CUdeviceptr a, CUdeviceptr b, size_t bytes)
{
    return a < b + bytes && b < a + bytes;
}

/* Served ----------------------------------------------------------------------------------------------------------- */

static void served(void)
{
    static const size_t sizes[] = {1, 100, 513, 4096, 100000, MIB(3)};
    CUdeviceptr at[6];
    for (size_t i = 0; i < 6; i++) {
        at[i] = take(sizes[i]);
        EXPECT(at[i] % 512 == 0);
        memset((void *)(uintptr_t)at[i], (int)i, sizes[i]);
    }
    for (size_t i = 0; i < 6; i++)
        EXPECT(((const unsigned char *)(uintptr_t)at[i])[sizes[i] - 1] == i);
    EXPECT(stub.stub_count("cuMemAlloc") == 0 && stub.stub_count("cuMemCreate") > 0);
    EXPECT(cu.cuMemFree_v2(at[5] + 512) == WP_INVALID_VALUE);
    for (size_t i = 0; i < 6; i++)
        give(at[i]);
    EXPECT(cu.cuMemFree_v2(at[5]) == WP_INVALID_VALUE);
    EXPECT(cu.cuMemFree_v2(512) == WP_INVALID_VALUE);
    EXPECT(stub.stub_count("cuCtxSynchronize") == 0);
}

static void refused(void)
{
    CUdeviceptr a = take(MIB(40)), b = 0;
    EXPECT(cu.cuMemAlloc_v2(&b, MIB(40)) == CUDA_ERROR_OUT_OF_MEMORY && b == 0);
    EXPECT(cu.cuMemAlloc_v2(&b, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(stub.stub_count("cuMemAlloc") == 0 && stub.stub_count("cuCtxSynchronize") == 0);
    give(a);
    give(take(MIB(64)));
    EXPECT(stub.stub_count("used") <= MIB(64));
}

static void information(void)
{
    size_t total;
    EXPECT(left() == MIB(64) && stub.stub_count("cuStreamCreate") == 0);
    EXPECT(cu.cuDeviceTotalMem_v2(&total, 0) == CUDA_SUCCESS && total == MIB(64));
    stub.stub_take(0, MIB(256) - MIB(10));
    EXPECT(left() == MIB(10));
    stub.stub_take(0, 0);
    CUdeviceptr a = take(MIB(30));
    EXPECT(left() == MIB(34));
    EXPECT(cu.cuDeviceTotalMem_v2(&total, 0) == CUDA_SUCCESS && total == MIB(64));
    stub.stub_take(0, MIB(256) - MIB(30) - MIB(10)); /* another process has most of the device */
    EXPECT(left() <= MIB(10));
    give(a);
    stub.stub_take(0, MIB(256) - MIB(30)); /* all but what weir keeps, which is to be had */
    EXPECT(left() == MIB(30));
    stub.stub_take(0, 0);
    EXPECT(left() == MIB(64));
}

static void pitch(void)
{
    CUdeviceptr a;
    size_t row;
    EXPECT(cu.cuMemAllocPitch_v2(&a, &row, 1000, 7, 4) == CUDA_SUCCESS && row == 1024 && a % 512 == 0);
    EXPECT(cu.cuMemAllocPitch_v2(&a, &row, 1000, 7, 5) == WP_INVALID_VALUE);
    EXPECT(cu.cuMemAllocPitch_v2(&a, &row, MIB(1), 65, 16) == CUDA_ERROR_OUT_OF_MEMORY);
    /* What no number holds is CUDA's to refuse, and what has no extent. */
    uint64_t calls = stub.stub_count("cuMemAllocPitch");
    EXPECT(cu.cuMemAllocPitch_v2(&a, &row, 512, SIZE_MAX / 512 + 2, 8) == WP_INVALID_VALUE);
    EXPECT(cu.cuMemAllocPitch_v2(&a, &row, SIZE_MAX - 100, 1, 8) == WP_INVALID_VALUE);
    EXPECT(cu.cuMemAllocPitch_v2(&a, &row, 0, 7, 4) == WP_INVALID_VALUE);
    EXPECT(cu.cuMemAllocPitch_v2(&a, &row, 1000, 0, 4) == WP_INVALID_VALUE);
    EXPECT(stub.stub_count("cuMemAllocPitch") == calls + 4);
    EXPECT(cu.cuMemAllocPitch_v2(&a, &row, 512, 4, 8) == CUDA_SUCCESS && row == 512);
    EXPECT(cu.cuMemAllocPitch_v2(&a, &row, 513, 4, 16) == CUDA_SUCCESS && row == 1024);
    EXPECT(stub.stub_count("allocations") == 0);
}

static void addresses(void)
{
    CUdeviceptr a = take(3000), base, start;
    size_t bytes, size;
    CUcontext context, expected;
    int device = -1, kind = -1;
    unsigned long long id, other;
    void *values[] = {&start, &size, &device};
    int attributes[] = {WP_POINTER_RANGE_START, WP_POINTER_RANGE_SIZE, 9};
    EXPECT(cu.cuMemGetAddressRange_v2(&base, &bytes, a + 1000) == CUDA_SUCCESS && base == a && bytes == 3072);
    EXPECT(cu.cuPointerGetAttribute(&context, WP_POINTER_CONTEXT, a) == CUDA_SUCCESS);
    EXPECT(cu.cuDevicePrimaryCtxRetain(&expected, 0) == CUDA_SUCCESS && context == expected);
    EXPECT(cu.cuPointerGetAttribute(&kind, 2, a) == CUDA_SUCCESS && kind == 2);
    EXPECT(cu.cuPointerGetAttributes(3, attributes, values, a + 7) == CUDA_SUCCESS);
    EXPECT(start == a && size == 3072 && device == 0);
    EXPECT(cu.cuPointerGetAttribute(&id, WP_POINTER_BUFFER_ID, a) == CUDA_SUCCESS && id >> 63); /* none of CUDA's */
    EXPECT(cu.cuMemGetAddressRange_v2(&base, NULL, a + 3071) == CUDA_SUCCESS && base == a);
    EXPECT(cu.cuMemGetAddressRange_v2(NULL, &bytes, a) == CUDA_SUCCESS && bytes == 3072);
    give(a); /* of it nothing is told from now on, but what CUDA says of mapped memory */
    EXPECT(cu.cuMemGetAddressRange_v2(&base, &bytes, a) == CUDA_SUCCESS && bytes == MIB(2));
    EXPECT(cu.cuPointerGetAttribute(&start, WP_POINTER_RANGE_START, a) != CUDA_SUCCESS);
    EXPECT(cu.cuPointerGetAttributes(3, attributes, values, a) == CUDA_SUCCESS && start != a);
    CUdeviceptr b = take(3000);
    EXPECT(cu.cuPointerGetAttribute(&other, WP_POINTER_BUFFER_ID, b) == CUDA_SUCCESS && other != id);
}

/* Order ------------------------------------------------------------------------------------------------------------ */

/* Of what is freed nothing is told, though the device is not past it, but what CUDA says of mapped memory. */
static void is_no_more(CUdeviceptr a)
{
    CUdeviceptr base, start = 1;
    size_t bytes;
    void *values[] = {&start};
    int attributes[] = {WP_POINTER_RANGE_START};
    EXPECT(cu.cuMemGetAddressRange_v2(&base, &bytes, a) == CUDA_SUCCESS && bytes == MIB(2));
    EXPECT(cu.cuPointerGetAttribute(&start, WP_POINTER_RANGE_START, a) != CUDA_SUCCESS);
    EXPECT(cu.cuPointerGetAttributes(1, attributes, values, a) == CUDA_SUCCESS && start != a);
}

static void freed(void)
{
    CUdeviceptr a = take(3000);
    give(a);
    is_no_more(a);
    EXPECT(cu.cuMemFree_v2(a) == WP_INVALID_VALUE && cu.cuMemFreeAsync(a, NULL) != CUDA_SUCCESS);
}

/* A free returns while work goes on, and nobody else gets the memory before that has ended. */
static void order(void)
{
    CUdeviceptr a = take(MIB(20));
    CUstream stream = busy_stream();
    give(a);
    EXPECT(stub.stub_count("cuCtxSynchronize") == 0);
    is_no_more(a);
    CUdeviceptr b = take(MIB(20));
    EXPECT(!overlap(a, b, MIB(20)));
    EXPECT(left() == MIB(44)); /* what is freed counts as free */
    let_pass(stream);
    give(take(MIB(44)));
    give(b);
}

static void *open_later(void *user)
{
    while (stub.stub_count("cuCtxSynchronize") == 0) /* until the other thread waits for the device */
        usleep(100);
    atomic_store(&open_gate, true);
    return user;
}

/* A request that needs what is freed waits for it, as CUDA's own free would have. */
static void waits(void)
{
    pthread_t thread;
    CUdeviceptr a = take(MIB(60));
    CUstream stream = busy_stream();
    give(a);
    EXPECT(pthread_create(&thread, NULL, open_later, NULL) == 0);
    give(take(MIB(60)));
    pthread_join(thread, NULL);
    let_pass(stream);
}

static void free_waits(void)
{
    CUdeviceptr a = take(MIB(20));
    uint64_t before = stub.stub_count("cuCtxSynchronize");
    give(a);
    EXPECT(stub.stub_count("cuCtxSynchronize") == before + 1);
}

static void async(void)
{
    CUdeviceptr a, b, c;
    CUstream stream = busy_stream(), other = new_stream();
    EXPECT(cu.cuMemAllocAsync(&a, MIB(8), stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocAsync(&b, MIB(8), stream) == CUDA_SUCCESS && b == a); /* its work comes behind */
    EXPECT(cu.cuMemFreeAsync(b, stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocAsync(&c, MIB(8), other) == CUDA_SUCCESS && !overlap(a, c, MIB(8)));
    EXPECT(cu.cuMemFreeAsync(c + 512, other) == WP_INVALID_VALUE);
    EXPECT(cu.cuMemFreeAsync(c, other) == CUDA_SUCCESS);
    EXPECT(cu.cuMemFreeAsync(c, other) == WP_INVALID_VALUE);
    EXPECT(cu.cuMemAllocAsync(&c, MIB(70), other) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(stub.stub_count("cuMemAllocAsync") == 0 && stub.stub_count("cuMemAllocFromPoolAsync") == 0);
    let_pass(stream);
    uint64_t streams = stub.stub_count("streams");
    EXPECT(cu.cuStreamDestroy_v2(stream) == CUDA_SUCCESS && stub.stub_count("streams") == streams - 1);
    for (int i = 0; i < 50; i++) { /* the next one has its address */
        stream = new_stream();
        EXPECT(cu.cuMemAllocAsync(&a, 1000, stream) == CUDA_SUCCESS);
        EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && cu.cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
    }
    stream = new_stream();
    EXPECT(cu.cuMemAllocAsync(&a, MIB(60), stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && cu.cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
    give(take(MIB(60))); /* which is to be had, though no stream tells of it any more */
    EXPECT(stub.stub_count("dead streams used") == 0);
}

/* It has two names in the forms for NULL as the default stream of the thread. */
static void captures_of_the_threads_stream(void)
{
    CUgraph graph;
    CUdeviceptr in_graph;
    if (!cu.cuStreamBeginCapture_v2_ptsz)
        return;
    EXPECT(cu.cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocAsync_ptsz(&in_graph, MIB(1), NULL) == CUDA_SUCCESS && stub.stub_count("allocations") == 1);
    give(take(MIB(2)));
    EXPECT(left() == MIB(62));
    EXPECT(cu.cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph) == CUDA_SUCCESS && left() == MIB(64));
    EXPECT(cu.cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    give(take(MIB(2)));
    EXPECT(left() == MIB(62) && cu.cuStreamEndCapture_ptsz(NULL, &graph) == CUDA_SUCCESS && left() == MIB(64));
    EXPECT(cu.cuStreamBeginCaptureToGraph_ptsz(NULL, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED) ==
           CUDA_SUCCESS);
    give(take(MIB(2)));
    EXPECT(left() == MIB(62));
    EXPECT(cu.cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph) == CUDA_SUCCESS && left() == MIB(64));
}

/* What is freed on the legacy stream is had there again at once, and elsewhere only behind its work; of the thread's own one
 * nothing is known. */
static void order_of_default_streams(void)
{
    CUmemoryPool pool;
    CUdeviceptr a, b, c;
    bool is_asked_for = cu.cuMemAllocAsync != cu.cuMemAllocAsync_ptsz; /* by NULL, in the plain forms */
    CUstream legacy = is_asked_for ? NULL : CU_STREAM_LEGACY;
    EXPECT(cu.cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    EXPECT(cu.cuLaunchHostFunc(CU_STREAM_LEGACY, wait_at_gate, NULL) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocAsync(&a, MIB(8), legacy) == CUDA_SUCCESS && cu.cuMemFreeAsync(a, legacy) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocAsync(&b, MIB(8), CU_STREAM_LEGACY) == CUDA_SUCCESS && b == a);
    EXPECT(cu.cuMemFreeAsync(b, CU_STREAM_LEGACY) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocFromPoolAsync(&b, MIB(8), pool, legacy) == CUDA_SUCCESS && b == a);
    EXPECT(cu.cuMemFreeAsync(b, legacy) == CUDA_SUCCESS);
    if (is_asked_for && cu.cuMemAllocAsync_ptsz && cu.cuMemAllocFromPoolAsync_ptsz) {
        EXPECT(cu.cuMemAllocAsync_ptsz(&b, MIB(8), NULL) == CUDA_SUCCESS && !overlap(a, b, MIB(8)));
        EXPECT(cu.cuMemAllocFromPoolAsync_ptsz(&c, MIB(8), pool, NULL) == CUDA_SUCCESS && !overlap(a, c, MIB(8)));
        EXPECT(cu.cuMemFreeAsync_ptsz(b, NULL) == CUDA_SUCCESS && cu.cuMemFreeAsync_ptsz(c, NULL) == CUDA_SUCCESS);
        EXPECT(cu.cuMemAllocAsync(&a, MIB(8), legacy) == CUDA_SUCCESS);
        EXPECT(cu.cuMemAllocAsync(&c, MIB(8), legacy) == CUDA_SUCCESS && !overlap(b, c, MIB(8)));
        EXPECT(cu.cuMemFreeAsync(a, legacy) == CUDA_SUCCESS && cu.cuMemFreeAsync(c, legacy) == CUDA_SUCCESS);
    }
    let_pass(CU_STREAM_LEGACY);
    EXPECT(left() == MIB(64));
}

/* NULL, which is the legacy stream or, where it was asked for so, the thread's. */
static void default_streams(void)
{
    CUdeviceptr a, b;
    CUstream blocking[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (int i = 0; i < 3; i++) {
        EXPECT(cu.cuMemAllocAsync(&a, MIB(2), blocking[i]) == CUDA_SUCCESS);
        EXPECT(cu.cuMemFreeAsync(a, blocking[i]) == CUDA_SUCCESS);
    }
    if (cu.cuMemAllocAsync_ptsz) {
        EXPECT(cu.cuMemAllocAsync_ptsz(&a, MIB(2), NULL) == CUDA_SUCCESS);
        EXPECT(cu.cuMemFreeAsync_ptsz(a, NULL) == CUDA_SUCCESS);
    }
    EXPECT(cu.cuMemAllocAsync(&a, MIB(2), NULL) == CUDA_SUCCESS);
    give(a); /* also what was allocated in stream order */
    b = take(MIB(2));
    EXPECT(cu.cuMemFreeAsync(b, NULL) == CUDA_SUCCESS); /* and the other way round */
    EXPECT(stub.stub_count("allocations") == 0);
    captures_of_the_threads_stream();
    order_of_default_streams();
}

static void capture(void)
{
    CUgraph graph;
    CUdeviceptr a = take(MIB(40)), in_graph;
    CUstream stream = new_stream();
    EXPECT(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocAsync(&in_graph, MIB(1), stream) == CUDA_SUCCESS && stub.stub_count("cuMemAllocAsync") == 1);
    EXPECT(cu.cuMemFreeAsync(a, stream) == WP_INVALID_VALUE);
    CUdeviceptr b = take(MIB(10));
    give(a); /* no point behind all work can be had now */
    EXPECT(left() == MIB(14) && try(MIB(40)) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(stub.stub_count("cuCtxRecordEvent") == 0 && stub.stub_count("cuCtxSynchronize") == 0);
    EXPECT(cu.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && stub.stub_count("captures broken") == 0);
    EXPECT(left() == MIB(54) && try(MIB(54)) == CUDA_SUCCESS);
    give(b);
}

/* CUDA's own ------------------------------------------------------------------------------------------------------- */

const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void physical(void)
{
    CUmemGenericAllocationHandle h, more, again;
    CUdeviceptr at;
    EXPECT(cu.cuMemCreate(&h, MIB(40), &on_device, 0) == CUDA_SUCCESS && left() == MIB(24));
    EXPECT(try(MIB(30)) == CUDA_ERROR_OUT_OF_MEMORY && try(MIB(24)) == CUDA_SUCCESS);
    uint64_t calls = stub.stub_count("cuMemCreate");
    EXPECT(cu.cuMemCreate(&more, MIB(26), &on_device, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(stub.stub_count("cuMemCreate") == calls); /* it was not even asked */
    EXPECT(cu.cuMemAddressReserve(&at, MIB(40), 0, 0, 0) == CUDA_SUCCESS);
    EXPECT(cu.cuMemMap(at, MIB(40), 0, h, 0) == CUDA_SUCCESS && cu.cuMemRelease(h) == CUDA_SUCCESS);
    EXPECT(left() == MIB(24)); /* it is mapped as yet */
    EXPECT(cu.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at) == CUDA_SUCCESS);
    EXPECT(cu.cuMemUnmap(at, MIB(40)) == CUDA_SUCCESS && left() == MIB(24)); /* and now retained */
    EXPECT(cu.cuMemRelease(again) == CUDA_SUCCESS && left() == MIB(64));
    EXPECT(cu.cuMemRelease(again) == WP_INVALID_VALUE && left() == MIB(64));
    EXPECT(cu.cuMemCreate(&h, MIB(64), &on_device, 0) == CUDA_SUCCESS && left() == 0);
    EXPECT(stub.stub_count("used") <= MIB(64)); /* weir has given up what it kept */
    EXPECT(cu.cuMemRelease(h) == CUDA_SUCCESS);
    EXPECT(cu.cuMemCreate(&h, MIB(2), &on_device, 0) == CUDA_SUCCESS);
    EXPECT(cu.cuMemMap(at, MIB(2), 0, h, 0) == CUDA_SUCCESS);
    EXPECT(cu.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at) == CUDA_SUCCESS); /* beside the first one */
    EXPECT(cu.cuMemUnmap(at, MIB(2)) == CUDA_SUCCESS && cu.cuMemRelease(h) == CUDA_SUCCESS && left() == MIB(62));
    EXPECT(cu.cuMemRelease(again) == CUDA_SUCCESS && left() == MIB(64));
    stub.stub_fail("cuMemCreate", 1, 2);
    EXPECT(cu.cuMemCreate(&h, MIB(2), &on_device, 0) == CUDA_ERROR_OUT_OF_MEMORY && left() == MIB(64));
    EXPECT(cu.cuMemImportFromShareableHandle(&h, NULL, 1) == CUDA_SUCCESS && left() == MIB(64));
    const CUmemAllocationProp on_host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
    EXPECT(cu.cuMemCreate(&h, MIB(2), &on_host, 0) == CUDA_SUCCESS && stub.stub_count("host handles") == 1);
    EXPECT(left() == MIB(64) && cu.cuMemRelease(h) == CUDA_SUCCESS && left() == MIB(64));
}

static void other_kinds(void)
{
    CUdeviceptr a;
    CUarray array;
    const CUDA_ARRAY3D_DESCRIPTOR what = {.Width = 1 << 20, .Height = 4, .Format = 0x20, .NumChannels = 1};
    EXPECT(cu.cuMemAllocManaged(&a, MIB(40), 1) == CUDA_SUCCESS && left() == MIB(24));
    EXPECT(try(MIB(25)) == CUDA_ERROR_OUT_OF_MEMORY);
    give(a);
    EXPECT(left() == MIB(64));
    EXPECT(cu.cuMemAllocManaged(&a, MIB(3), 1) == CUDA_SUCCESS && left() == MIB(60)); /* as much as CUDA spends */
    give(a);
    EXPECT(cu.cuMemAllocManaged(&a, MIB(65), 1) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu.cuMemAllocManaged(&a, MIB(1), 7) == WP_INVALID_VALUE && left() == MIB(64));
    EXPECT(cu.cuArray3DCreate_v2(&array, &what) == CUDA_SUCCESS && left() == MIB(48));
    EXPECT(cu.cuArrayDestroy(array) == CUDA_SUCCESS && left() == MIB(64));
}

/* Under --budget host=8MiB,64MiB. */
static void host(void)
{
    void *a, *b;
    static char own[1000];
    EXPECT(cu.cuMemHostAlloc(&a, MIB(6), CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocHost_v2(&b, MIB(3)) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu.cuMemAllocHost_v2(&b, MIB(2)) == CUDA_SUCCESS);
    EXPECT(cu.cuMemHostRegister_v2(own, sizeof own, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu.cuMemFreeHost(a) == CUDA_SUCCESS && cu.cuMemFreeHost(b) == CUDA_SUCCESS);
    EXPECT(cu.cuMemHostRegister_v2(own, sizeof own, 0) == CUDA_SUCCESS);
    EXPECT(cu.cuMemHostUnregister(own) == CUDA_SUCCESS && stub.stub_count("pinned") == 0);
    EXPECT(stub.stub_count("cuStreamCreate") == 0); /* nothing was started for it */
}

static void pools(void)
{
    CUmemoryPool pool, mine;
    CUdeviceptr a, b;
    CUstream stream = new_stream();
    unsigned long long value;
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_device.location};
    EXPECT(cu.cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolCreate(&mine, &properties) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), mine, stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolGetAttribute(pool, WP_POOL_USED, &value) == CUDA_SUCCESS && value == MIB(8));
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && cu.cuStreamSynchronize(stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolGetAttribute(pool, WP_POOL_USED, &value) == CUDA_SUCCESS && value == 0);
    EXPECT(cu.cuMemPoolGetAttribute(pool, WP_POOL_USED_HIGH, &value) == CUDA_SUCCESS && value == MIB(8));
    EXPECT(cu.cuMemPoolGetAttribute(pool, WP_POOL_RESERVED, &value) == CUDA_SUCCESS && value >= MIB(8));
    EXPECT(cu.cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolGetAttribute(pool, WP_POOL_RESERVED, &value) == CUDA_SUCCESS && value == 0);
    EXPECT(stub.stub_count("cuMemAllocFromPoolAsync") == 0);
    /* One that another device reaches is CUDA's, and counts. */
    EXPECT(cu.cuMemPoolSetAccess(mine, &access, 1) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), mine, stream) == CUDA_SUCCESS && left() == MIB(56));
    EXPECT(stub.stub_count("cuMemAllocFromPoolAsync") == 1);
    EXPECT(cu.cuMemAllocFromPoolAsync(&b, MIB(58), mine, stream) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && left() == MIB(64));
    stub.stub_fail("cuDeviceSetMemPool", 1, WP_UNKNOWN);
    EXPECT(cu.cuDeviceSetMemPool(0, mine) == WP_UNKNOWN);
    EXPECT(cu.cuMemAllocAsync(&a, MIB(2), stream) == CUDA_SUCCESS && cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS);
    EXPECT(stub.stub_count("cuMemAllocAsync") == 0);
    EXPECT(cu.cuDeviceSetMemPool(0, mine) == CUDA_SUCCESS); /* which all are from now on */
    EXPECT(cu.cuMemAllocAsync(&a, MIB(2), stream) == CUDA_SUCCESS && stub.stub_count("cuMemAllocAsync") == 1);
    EXPECT(cu.cuDeviceSetMemPool(0, pool) == CUDA_SUCCESS); /* and no more */
    EXPECT(cu.cuMemAllocAsync(&a, MIB(2), stream) == CUDA_SUCCESS && stub.stub_count("cuMemAllocAsync") == 1);
    EXPECT(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value) == WP_INVALID_VALUE);
}

static void foreign_context(void)
{
    CUcontext own;
    give(take(MIB(1)));
    EXPECT(cu.cuCtxCreate_v2(&own, 0, 0) == CUDA_SUCCESS);
    CUdeviceptr a = take(MIB(40));
    EXPECT(stub.stub_count("cuMemAlloc") == 1 && left() == MIB(24));
    EXPECT(try(MIB(25)) == CUDA_ERROR_OUT_OF_MEMORY && stub.stub_count("cuMemAlloc") == 1);
    give(a);
    EXPECT(left() == MIB(64));
}

static void exported(void)
{
    CUipcMemHandle handle;
    CUdeviceptr a = take(MIB(2)), b;
    EXPECT(cu.cuIpcGetMemHandle(&handle, a) == WP_NOT_SUPPORTED && stub.stub_count("cuIpcGetMemHandle") == 0);
    memset(&handle, 0, sizeof handle);
    EXPECT(cu.cuIpcOpenMemHandle_v2(&b, handle, 0) == CUDA_SUCCESS);
    /* What this driver has not is not there. */
    CUexternalMemory outside;
    CUgraphNode node;
    EXPECT(cu.cuImportExternalMemory(&outside, NULL) == WP_NOT_INITIALIZED);
    EXPECT(cu.cuGraphAddMemAllocNode(&node, NULL, NULL, 0, NULL) == WP_NOT_INITIALIZED);
}

/* Under --direct. */
static void direct(void)
{
    CUipcMemHandle handle;
    CUdeviceptr a = take(MIB(40)), b;
    CUcontext other;
    int can;
    EXPECT(stub.stub_count("cuMemAlloc") == 1 && left() == MIB(24));
    EXPECT(try(MIB(25)) == CUDA_ERROR_OUT_OF_MEMORY && stub.stub_count("cuMemAlloc") == 1);
    EXPECT(cu.cuIpcGetMemHandle(&handle, a) == CUDA_SUCCESS);
    CUstream stream = new_stream();
    EXPECT(cu.cuMemAllocAsync(&b, MIB(24), stream) == CUDA_SUCCESS && left() == 0 &&
           try(1) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu.cuMemFreeAsync(b, stream) == CUDA_SUCCESS && left() == MIB(24));
    give(a);
    EXPECT(left() == MIB(64));
    EXPECT(cu.cuDeviceCanAccessPeer(&can, 0, 1) == CUDA_SUCCESS && can == 1);
    EXPECT(cu.cuDeviceGetP2PAttribute(&can, WP_P2P_ACCESS_SUPPORTED, 0, 1) == CUDA_SUCCESS && can == 1);
    EXPECT(cu.cuDevicePrimaryCtxRetain(&other, 1) == CUDA_SUCCESS &&
           cu.cuCtxEnablePeerAccess(other, 0) == CUDA_SUCCESS);
}

/* Under --direct: what CUDA is taken to spend, and every way to CUDA's own memory. */
static void direct_ways(void)
{
    static const size_t sizes[][2] = {{1, 512},         {512, 512},      {513, 1024}, {MIB(1) - 1, MIB(1)},
                                      {MIB(1), MIB(2)}, {MIB(3), MIB(4)}};
    CUdeviceptr a;
    CUmemoryPool pool;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_device.location};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        a = take(sizes[i][0]);
        EXPECT(left() == MIB(64) - sizes[i][1]);
        give(a);
    }
    EXPECT(cu.cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS && left() == MIB(64));
    CUstream stream = new_stream();
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(3), pool, stream) == CUDA_SUCCESS && left() == MIB(60));
    EXPECT(stub.stub_count("cuMemAllocFromPoolAsync") == 1 && cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocFromPoolAsync_ptsz(&a, MIB(5), pool, NULL) == CUDA_SUCCESS && left() == MIB(58));
    EXPECT(stub.stub_count("cuMemAllocFromPoolAsync") == 2 && cu.cuMemFreeAsync_ptsz(a, NULL) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocAsync_ptsz(&a, MIB(7), NULL) == CUDA_SUCCESS && left() == MIB(56));
    EXPECT(stub.stub_count("cuMemAllocAsync") == 1 && cu.cuMemFreeAsync_ptsz(a, NULL) == CUDA_SUCCESS);
    EXPECT(left() == MIB(64) && stub.stub_count("cuMemFreeAsync") == 3);
}

static void peers(void)
{
    CUcontext other;
    int can = 1;
    give(take(MIB(1))); /* without memory there is no table */
    EXPECT(cu.cuDeviceCanAccessPeer(&can, 0, 1) == CUDA_SUCCESS && can == 0);
    EXPECT(cu.cuDevicePrimaryCtxRetain(&other, 1) == CUDA_SUCCESS);
    EXPECT(cu.cuCtxEnablePeerAccess(other, 0) == WP_PEER_ACCESS_UNSUPPORTED);
    EXPECT(cu.cuDeviceGetP2PAttribute(&can, WP_P2P_ACCESS_SUPPORTED, 0, 1) == CUDA_SUCCESS && can == 0);
    EXPECT(cu.cuDeviceGetP2PAttribute(&can, WP_P2P_ARRAY_ACCESS_SUPPORTED, 0, 1) == CUDA_SUCCESS && can == 0);
    EXPECT(cu.cuDeviceGetP2PAttribute(&can, 1, 0, 1) == CUDA_SUCCESS && can == 7); /* of speed alone */
    EXPECT(cu.cuDeviceCanAccessPeer(NULL, 0, 1) == WP_INVALID_VALUE);
    EXPECT(cu.cuDeviceGetP2PAttribute(NULL, WP_P2P_ACCESS_SUPPORTED, 0, 1) == WP_INVALID_VALUE);
}

/* Each has a budget of its own, and a free finds its device. */
static void two_devices(void)
{
    CUdeviceptr a = take(MIB(60)), b;
    use_device(1);
    b = take(MIB(60));
    EXPECT(try(MIB(60)) == CUDA_ERROR_OUT_OF_MEMORY);
    give(a);
    use_device(0);
    EXPECT(try(MIB(60)) == CUDA_SUCCESS);
    give(b);
}

/* What is freed on a stream of another device is freed behind its work and all of its own device's. */
static void streams_of_two_devices(void)
{
    CUdeviceptr a, b;
    CUstream stream = new_stream();
    EXPECT(cu.cuMemAllocAsync(&a, MIB(2), stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS);
    use_device(1);
    b = take(MIB(60));
    use_device(0);
    uint64_t waits = stub.stub_count("cuStreamSynchronize");
    stub.stub_fail("cuStreamSynchronize", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemFreeAsync(b, stream) == WP_UNKNOWN);
    EXPECT(cu.cuMemFreeAsync(b, stream) == CUDA_SUCCESS && stub.stub_count("cuStreamSynchronize") == waits + 2);
    use_device(1);
    EXPECT(left() == MIB(64) && try(MIB(64)) == CUDA_SUCCESS);
}

static void reset(void)
{
    for (int i = 0; i < 10; i++)
        (void)take(MIB(6));
    EXPECT(cu.cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS && stub.stub_count("cuDevicePrimaryCtxReset") == 0);
    EXPECT(left() == MIB(64) && try(MIB(64)) == CUDA_SUCCESS);
}

/* NVML tells of the devices by their places on the bus, also before anything was allocated. */
static void management(void)
{
    int (*look)(nvmlDevice_t, nvmlMemory_t *), (*look_v2)(nvmlDevice_t, nvmlMemory_v2_t *);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *found;
    nvmlDevice_t first = (nvmlDevice_t)1, second = (nvmlDevice_t)2,
                 unknown = (nvmlDevice_t)9; // NOLINT(performance-no-int-to-ptr)
    nvmlMemory_t m;
    nvmlMemory_v2_t v2;
    EXPECT(library && (found = dlsym(library, "nvmlDeviceGetMemoryInfo")));
    memcpy(&look, &found, sizeof found);
    EXPECT((found = dlsym(library, "nvmlDeviceGetMemoryInfo_v2")));
    memcpy(&look_v2, &found, sizeof found);
    EXPECT(look(second, &m) == 0 && m.total == MIB(64) && m.free == MIB(64) && m.used == 0);
    CUdeviceptr a = take(MIB(30));
    EXPECT(look(first, &m) == 0 && m.total == MIB(64) && m.free == MIB(34) && m.used == MIB(30));
    EXPECT(look_v2(first, &v2) == 0 && v2.total == MIB(64) && v2.free == MIB(34) && v2.used == MIB(30) &&
           v2.reserved == 0);
    EXPECT(look(second, &m) == 0 && m.total == MIB(64) && m.free == MIB(64));
    EXPECT(look(unknown, &m) == 0 && m.total == MIB(64) && m.free == MIB(64) && m.used == 0);
    give(a);
}

/* Processes and threads -------------------------------------------------------------------------------------------- */

static int status_of(pid_t child)
{
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* In a child of a process that has used CUDA it does not work, and says so. */
static void forked(void)
{
    CUdeviceptr a = take(MIB(1));
    pid_t child = fork();
    if (child == 0) {
        EXPECT(cu.cuMemAlloc_v2(&a, MIB(1)) == WP_NOT_INITIALIZED);
        exit(7); /* whose table would be the parent's */
    }
    EXPECT(status_of(child) == 7);
    give(a);
}

enum { THREADS = 4, ROUNDS = 400, MOST = 8 };

static void *work(void *user)
{
    unsigned seed = (unsigned)(uintptr_t)user;
    CUdeviceptr mine[MOST] = {0};
    CUmemGenericAllocationHandle handle = 0;
    use_device(0);
    for (int i = 0; i < ROUNDS; i++) {
        int at = rand_r(&seed) % MOST;
        if (mine[at]) {
            give(mine[at]);
            mine[at] = 0;
        } else if (cu.cuMemAlloc_v2(&mine[at], MIB(1 + rand_r(&seed) % 12)) != CUDA_SUCCESS) {
            mine[at] = 0;
        }
        if (at == 0 && handle) {
            EXPECT(cu.cuMemRelease(handle) == CUDA_SUCCESS);
            handle = 0;
        } else if (at == 0 && cu.cuMemCreate(&handle, MIB(2 + 2 * (rand_r(&seed) % 8)), &on_device, 0)) {
            handle = 0;
        }
        EXPECT(stub.stub_count("used") <= MIB(64));
    }
    for (int i = 0; i < MOST; i++)
        if (mine[i])
            give(mine[i]);
    EXPECT(!handle || cu.cuMemRelease(handle) == CUDA_SUCCESS);
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread[i], NULL, work, (void *)(i + 1)) == 0); // NOLINT(performance-no-int-to-ptr)
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    EXPECT(left() == MIB(64));
}

static CUdeviceptr kept;
static void free_late(void)
{
    if (kept && cu.cuMemFree_v2(kept) != CUDA_SUCCESS)
        _exit(99);
}

/* Freed by what runs at exit, when weir has ended. */
static void late(void)
{
    kept = take(MIB(2));
}

/* Of a device that is lost a free says so, and of one that cannot be entered that nothing was freed. */
static void lost(void)
{
    CUdeviceptr a = take(MIB(2));
    stub.stub_fail("cuCtxPushCurrent", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemFree_v2(a) == WP_INVALID_VALUE);
    stub.stub_fail("cuCtxPushCurrent", 1, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT(cu.cuMemFree_v2(a) == CUDA_ERROR_LAUNCH_FAILED);
    stub.stub_lose(true);
    EXPECT(cu.cuMemFree_v2(a) == CUDA_ERROR_LAUNCH_FAILED && cu.cuMemFreeAsync(a, NULL) == CUDA_ERROR_LAUNCH_FAILED);
}

static void nothing(void) {}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"served", served},
             {"refused", refused},
             {"information", information},
             {"pitch", pitch},
             {"addresses", addresses},
             {"freed", freed},
             {"order", order},
             {"waits", waits},
             {"free-waits", free_waits},
             {"async", async},
             {"capture", capture},
             {"physical", physical},
             {"other-kinds", other_kinds},
             {"host", host},
             {"pools", pools},
             {"foreign-context", foreign_context},
             {"exported", exported},
             {"direct", direct},
             {"direct-ways", direct_ways},
             {"peers", peers},
             {"two-devices", two_devices},
             {"streams-of-two-devices", streams_of_two_devices},
             {"reset", reset},
             {"forked", forked},
             {"threads", threads},
             {"late", late},
             {"lost", lost},
             {"default-streams", default_streams},
             {"management", management},
             {"arrays", arrays},
             {"host-fails", host_fails},
             {"mappings", mappings},
             {"captures", captures},
             {"pools-of-two-devices", pools_of_two_devices},
             {"resets", resets},
             {"direct-fails", direct_fails},
             {"budgets", budgets},
             {"forms", forms},
             {"without-host-memory", without_host_memory},
             {"held-up-late", held_up_late},
             {"reused", reused},
             {"pools-by-place", pools_by_place},
             {"part-of-a-device", part_of_a_device},
             {"recaptures", recaptures},
             {"entry-points", entry_points},
             {"nothing", nothing}};

int main(int argc, char **argv)
{
    atexit(free_late); /* before CUDA's own and weir's: it runs last */
    EXPECT(argc == 3);
    find_way(argv[1]);
    use_device(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, argv[2]) == 0) {
            uint64_t depth = stub.stub_count("depth");
            cases[i].run();
            EXPECT(stub.stub_count("depth") == depth ||
                   cases[i].run == foreign_context); /* no context is left behind */
            return 0;
        }
    return 98;
}
