/* Cases of the program with two and three of what the others have one of, and calls that CUDA refuses when weir has counted
 * them already. */
#include "preload/program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

/* CUDA's own ------------------------------------------------------------------------------------------------------- */

static const CUDA_ARRAY_DESCRIPTOR flat = {.Width = 1 << 20, .Height = 2, .Format = 0x10, .NumChannels = 4};
static const CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 1 << 20, .Height = 4, .Format = 0x01, .NumChannels = 2};

/* Of one, two and three dimensions, in each format, with as many bytes as an element has. */
static void extents_of_arrays(void)
{
    static const struct {
        unsigned format, bytes;
    } formats[] = {{0x01, 1}, {0x08, 1}, {0x02, 2}, {0x09, 2}, {0x10, 2}, {0x03, 4}, {0x0a, 4}, {0x20, 4}};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (size_t dimensions = 1; dimensions <= 3; dimensions++) {
            CUarray array;
            const CUDA_ARRAY3D_DESCRIPTOR what = {.Width = MIB(1),
                                                  .Height = dimensions > 1 ? 2 : 0,
                                                  .Depth = dimensions > 2 ? 2 : 0,
                                                  .Format = formats[i].format,
                                                  .NumChannels = 1};
            EXPECT(cu.cuArray3DCreate_v2(&array, &what) == CUDA_SUCCESS);
            size_t spent = (MIB(1) << (dimensions - 1)) * formats[i].bytes;
            EXPECT(left() == MIB(64) - (spent > MIB(1) ? spent : MIB(2)));
            EXPECT(cu.cuArrayDestroy(array) == CUDA_SUCCESS && left() == MIB(64));
        }
}

/* A level has half of the one before in each direction that has more than one: 16 MiB, 2 MiB and a quarter of one; of lines
 * 16 MiB, 4 MiB and one; of a line 16 MiB, 8 MiB and 4 MiB. */
static void levels_of_arrays(void)
{
    static const struct {
        size_t height, depth, spent;
    } shapes[] = {{4, 4, 20}, {4, 0, 22}, {0, 0, 28}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        CUmipmappedArray levels;
        size_t lines = (shapes[i].height ? shapes[i].height : 1) * (shapes[i].depth ? shapes[i].depth : 1);
        const CUDA_ARRAY3D_DESCRIPTOR what = {.Width = MIB(16) / lines,
                                              .Height = shapes[i].height,
                                              .Depth = shapes[i].depth,
                                              .Format = 0x01,
                                              .NumChannels = 1};
        EXPECT(cu.cuMipmappedArrayCreate(&levels, &what, 3) == CUDA_SUCCESS);
        EXPECT(left() == MIB(64) - MIB(shapes[i].spent));
        EXPECT(cu.cuMipmappedArrayDestroy(levels) == CUDA_SUCCESS && left() == MIB(64));
    }
}

/* Formats, channels and levels count: 16 MiB of halves; 8 MiB, 2 MiB and half a MiB, which CUDA rounds up together. */
void arrays(void)
{
    CUarray array, sparse;
    CUmipmappedArray levels, unbacked_levels;
    CUDA_ARRAY_DESCRIPTOR large = flat;
    CUDA_ARRAY3D_DESCRIPTOR unbacked = deep;
    EXPECT(cu.cuArrayCreate_v2(&array, &flat) == CUDA_SUCCESS && left() == MIB(48));
    EXPECT(cu.cuMipmappedArrayCreate(&levels, &deep, 3) == CUDA_SUCCESS && left() == MIB(36));
    unbacked.Flags = WP_ARRAY_SPARSE;
    EXPECT(cu.cuArray3DCreate_v2(&sparse, &unbacked) == CUDA_SUCCESS && left() == MIB(36));
    unbacked.Flags = WP_ARRAY_DEFERRED;
    EXPECT(cu.cuMipmappedArrayCreate(&unbacked_levels, &unbacked, 3) == CUDA_SUCCESS && left() == MIB(36));
    large.Height = 5;
    uint64_t calls = stub.stub_count("cuArrayCreate");
    EXPECT(cu.cuArrayCreate_v2(&sparse, &large) == CUDA_ERROR_OUT_OF_MEMORY &&
           stub.stub_count("cuArrayCreate") == calls);
    stub.stub_fail("cuArrayDestroy", 1, WP_UNKNOWN);
    EXPECT(cu.cuArrayDestroy(array) == WP_UNKNOWN && left() == MIB(36));
    EXPECT(cu.cuArrayDestroy(array) == CUDA_SUCCESS && left() == MIB(52));
    stub.stub_fail("cuMipmappedArrayDestroy", 1, WP_UNKNOWN);
    EXPECT(cu.cuMipmappedArrayDestroy(levels) == WP_UNKNOWN && left() == MIB(52));
    EXPECT(cu.cuMipmappedArrayDestroy(levels) == CUDA_SUCCESS && left() == MIB(64));
    stub.stub_fail("cuArrayCreate", 1, WP_UNKNOWN);
    stub.stub_fail("cuArray3DCreate", 1, WP_UNKNOWN);
    stub.stub_fail("cuMipmappedArrayCreate", 1, WP_UNKNOWN);
    EXPECT(cu.cuArrayCreate_v2(&array, &flat) == WP_UNKNOWN && left() == MIB(64));
    EXPECT(cu.cuArray3DCreate_v2(&array, &deep) == WP_UNKNOWN && left() == MIB(64));
    EXPECT(cu.cuMipmappedArrayCreate(&levels, &deep, 3) == WP_UNKNOWN && left() == MIB(64));
    extents_of_arrays();
    levels_of_arrays();
}

/* Under --budget host=8MiB,64MiB: pinned and page-locked memory are of one budget. */
void host_fails(void)
{
    void *a, *b;
    static char own[5 << 20];
    stub.stub_fail("cuMemHostAlloc", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemHostAlloc(&a, MIB(8), CU_MEMHOSTALLOC_PORTABLE) == WP_UNKNOWN);
    stub.stub_fail("cuMemAllocHost", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemAllocHost_v2(&a, MIB(8)) == WP_UNKNOWN);
    stub.stub_fail("cuMemHostRegister", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemHostRegister_v2(own, sizeof own, 0) == WP_UNKNOWN);
    EXPECT(cu.cuMemHostRegister_v2(own, sizeof own, 0) == CUDA_SUCCESS); /* none of them counts */
    EXPECT(cu.cuMemHostAlloc(&a, MIB(4), CU_MEMHOSTALLOC_PORTABLE) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu.cuMemHostAlloc(&a, MIB(1), CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS &&
           cu.cuMemAllocHost_v2(&b, MIB(2)) == CUDA_SUCCESS);
    stub.stub_fail("cuMemFreeHost", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemFreeHost(b) == WP_UNKNOWN &&
           cu.cuMemHostAlloc(&b, 1, CU_MEMHOSTALLOC_PORTABLE) == CUDA_ERROR_OUT_OF_MEMORY);
    stub.stub_fail("cuMemHostUnregister", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemHostUnregister(own) == WP_UNKNOWN &&
           cu.cuMemHostAlloc(&b, 1, CU_MEMHOSTALLOC_PORTABLE) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu.cuMemHostUnregister(own) == CUDA_SUCCESS && cu.cuMemFreeHost(a) == CUDA_SUCCESS);
    EXPECT(cu.cuMemHostAlloc(&a, MIB(6), CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS &&
           cu.cuMemFreeHost(a) == CUDA_SUCCESS);
}

/* Two that lie side by side are unmapped in one call. */
void mappings(void)
{
    CUmemGenericAllocationHandle handles[2];
    CUdeviceptr at;
    EXPECT(cu.cuMemAddressReserve(&at, MIB(20), 0, 0, 0) == CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        EXPECT(cu.cuMemCreate(&handles[i], MIB(10), &on_device, 0) == CUDA_SUCCESS &&
               cu.cuMemMap(at + (CUdeviceptr)i * MIB(10), MIB(10), 0, handles[i], 0) == CUDA_SUCCESS);
    stub.stub_fail("cuMemRelease", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemRelease(handles[1]) == WP_UNKNOWN);
    EXPECT(cu.cuMemRelease(handles[0]) == CUDA_SUCCESS && left() == MIB(44));
    stub.stub_fail("cuMemUnmap", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemUnmap(at, MIB(20)) == WP_UNKNOWN && left() == MIB(44));
    EXPECT(cu.cuMemUnmap(at, MIB(20)) == CUDA_SUCCESS && left() == MIB(54)); /* the second has its handle */
    EXPECT(cu.cuMemRelease(handles[1]) == CUDA_SUCCESS && left() == MIB(64));
}

/* Order ------------------------------------------------------------------------------------------------------------ */

typedef struct capturer {
    pthread_t thread;
    pthread_barrier_t begun, ends;
    CUresult result;
} capturer;

static void *capture_its_own(void *user)
{
    capturer *c = user;
    CUgraph graph;
    use_device(0);
    c->result = cu.cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED);
    pthread_barrier_wait(&c->begun);
    pthread_barrier_wait(&c->ends);
    if (c->result == CUDA_SUCCESS)
        c->result = cu.cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph);
    return NULL;
}

/* The default streams of threads have one name. */
static void captures_of_one_name(void)
{
    capturer others[2];
    CUgraph graph;
    CUdeviceptr block = take(MIB(2));
    for (int i = 0; i < 2; i++) {
        EXPECT(pthread_barrier_init(&others[i].begun, NULL, 2) == 0 &&
               pthread_barrier_init(&others[i].ends, NULL, 2) == 0 &&
               pthread_create(&others[i].thread, NULL, capture_its_own, &others[i]) == 0);
        pthread_barrier_wait(&others[i].begun);
    }
    EXPECT(cu.cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    give(block);
    EXPECT(cu.cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph) == CUDA_SUCCESS && left() == MIB(62));
    for (int i = 0; i < 2; i++) {
        pthread_barrier_wait(&others[i].ends);
        pthread_join(others[i].thread, NULL);
        EXPECT(others[i].result == CUDA_SUCCESS && left() == (i == 0 ? MIB(62) : MIB(64)));
    }
    EXPECT(cu.cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph) != CUDA_SUCCESS); /* none goes on any more */
    give(take(MIB(2)));
    EXPECT(left() == MIB(64));
}

/* What is freed waits for the last of several captures, however the others end. */
void captures(void)
{
    CUgraph graph;
    CUdeviceptr blocks[3];
    CUstream streams[2] = {new_stream(), new_stream()};
    for (int i = 0; i < 3; i++)
        blocks[i] = take(MIB(2));
    for (int i = 0; i < 2; i++)
        EXPECT(cu.cuStreamBeginCapture_v2(streams[i], CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    for (int i = 0; i < 3; i++)
        give(blocks[i]);
    EXPECT(left() == MIB(58) && cu.cuStreamEndCapture(streams[0], &graph) == CUDA_SUCCESS && left() == MIB(58));
    stub.stub_fail("cuStreamEndCapture", 1, WP_CAPTURE_WRONG_THREAD); /* it goes on */
    EXPECT(cu.cuStreamEndCapture(streams[1], &graph) == WP_CAPTURE_WRONG_THREAD && left() == MIB(58));
    EXPECT(cu.cuStreamEndCapture(streams[1], &graph) == CUDA_SUCCESS && left() == MIB(64));
    stub.stub_fail("cuStreamBeginCapture", 1, WP_UNKNOWN);
    EXPECT(cu.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED) == WP_UNKNOWN);
    give(take(MIB(2)));
    EXPECT(left() == MIB(64));
    EXPECT(cu.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    give(take(MIB(2)));
    EXPECT(left() == MIB(62) && cu.cuStreamDestroy_v2(streams[0]) == CUDA_SUCCESS && left() == MIB(64));
    EXPECT(cu.cuMemAllocAsync(&blocks[0], MIB(2), streams[1]) == CUDA_SUCCESS); /* from now on weir knows that one */
    EXPECT(cu.cuMemFreeAsync(blocks[0], streams[1]) == CUDA_SUCCESS);
    EXPECT(cu.cuStreamBeginCapture_v2(streams[1], CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    give(take(MIB(2)));
    EXPECT(left() == MIB(62) && cu.cuStreamDestroy_v2(streams[1]) == CUDA_SUCCESS && left() == MIB(64));
    streams[0] = new_stream();
    EXPECT(cu.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    give(take(MIB(2)));
    stub.stub_fail("cuStreamEndCapture", 1, WP_UNKNOWN); /* so that the capture goes with its stream alone */
    EXPECT(left() == MIB(62) && cu.cuStreamDestroy_v2(streams[0]) == CUDA_SUCCESS && left() == MIB(64));
    streams[0] = new_stream();
    EXPECT(cu.cuStreamBeginCaptureToGraph(streams[0], graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED) ==
           CUDA_SUCCESS);
    give(take(MIB(2)));
    EXPECT(left() == MIB(62) && cu.cuStreamEndCapture(streams[0], &graph) == CUDA_SUCCESS && left() == MIB(64));
    captures_of_one_name();
    EXPECT(try(MIB(64)) == CUDA_SUCCESS && stub.stub_count("captures broken") == 0);
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

static CUmemoryPool new_pool(int device, unsigned handle_types)
{
    CUmemoryPool pool;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .handleTypes = handle_types,
                                       .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    EXPECT(cu.cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    return pool;
}

static unsigned long long figure(CUmemoryPool pool, int attribute)
{
    unsigned long long value;
    EXPECT(cu.cuMemPoolGetAttribute(pool, attribute, &value) == CUDA_SUCCESS);
    return value;
}

/* What is asked of the pool is CUDA's, and counts. */
static void is_cudas(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr a;
    uint64_t calls = stub.stub_count("cuMemAllocFromPoolAsync");
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), pool, stream) == CUDA_SUCCESS && left() == MIB(56));
    EXPECT(stub.stub_count("cuMemAllocFromPoolAsync") == calls + 1);
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && left() == MIB(64));
}

/* What is freed and not passed is kept before what is idle. */
static void trim_beside_work(CUmemoryPool pool)
{
    CUdeviceptr a, b, c;
    CUstream idle = new_stream(), busy = busy_stream();
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), pool, idle) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocFromPoolAsync(&b, MIB(8), pool, busy) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocFromPoolAsync(&c, MIB(8), pool, idle) == CUDA_SUCCESS);
    EXPECT(cu.cuMemFreeAsync(c, idle) == CUDA_SUCCESS && cu.cuStreamSynchronize(idle) == CUDA_SUCCESS);
    EXPECT(cu.cuMemFreeAsync(b, busy) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolTrimTo(pool, MIB(20)) == CUDA_SUCCESS && figure(pool, WP_POOL_RESERVED) == MIB(20));
    let_pass(busy);
    EXPECT(cu.cuMemPoolTrimTo(pool, MIB(8)) == CUDA_SUCCESS && figure(pool, WP_POOL_RESERVED) == MIB(8));
    EXPECT(cu.cuMemFreeAsync(a, idle) == CUDA_SUCCESS && cu.cuStreamSynchronize(idle) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS && figure(pool, WP_POOL_RESERVED) == 0);
}

void pools_of_two_devices(void)
{
    enum { LOCATION_HOST = 2 };
    const CUmemAccessDesc both[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                    {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    const CUmemAccessDesc of_the_host = {{LOCATION_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr a, b;
    CUmemoryPool of_all, by_the_host = new_pool(0, 0);
    CUstream stream = new_stream();
    CUmemoryPool plain = new_pool(0, 0), reached = new_pool(0, 0), exported = new_pool(0, 1),
                 elsewhere = new_pool(1, 0);
    EXPECT(cu.cuMemPoolSetAccess(plain, both, 1) == CUDA_SUCCESS); /* its own device, which reaches it anyway */
    EXPECT(cu.cuMemPoolSetAccess(reached, both, 2) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolSetAccess(by_the_host, &of_the_host, 1) == CUDA_SUCCESS);
    is_cudas(reached, stream);
    is_cudas(by_the_host, stream);
    is_cudas(exported, stream);
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), elsewhere, stream) == WP_INVALID_VALUE && left() == MIB(64));
    /* What is idle beyond what shall be kept goes; the most that there was is known. */
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), plain, stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocFromPoolAsync(&b, MIB(8), plain, stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemFreeAsync(b, stream) == CUDA_SUCCESS && cu.cuStreamSynchronize(stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolTrimTo(plain, MIB(12)) == CUDA_SUCCESS);
    EXPECT(figure(plain, WP_POOL_RESERVED) <= MIB(12) && figure(plain, WP_POOL_RESERVED_HIGH) >= MIB(16));
    EXPECT(figure(plain, WP_POOL_USED) == MIB(8) && figure(plain, WP_POOL_USED_HIGH) == MIB(16));
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && cu.cuStreamSynchronize(stream) == CUDA_SUCCESS);
    trim_beside_work(plain);
    /* The device's own pool, once another one reaches it. */
    uint64_t calls = stub.stub_count("cuMemAllocAsync");
    EXPECT(cu.cuMemAllocAsync(&a, MIB(8), stream) == CUDA_SUCCESS && stub.stub_count("cuMemAllocAsync") == calls);
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && cu.cuDeviceGetDefaultMemPool(&of_all, 0) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolSetAccess(of_all, &both[1], 1) == CUDA_SUCCESS);
    EXPECT(cu.cuMemAllocAsync(&a, MIB(8), stream) == CUDA_SUCCESS && stub.stub_count("cuMemAllocAsync") == calls + 1);
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS);
    /* One with the address of a plain one that is gone is not plain for that. */
    EXPECT(cu.cuMemPoolDestroy(plain) == CUDA_SUCCESS);
    exported = new_pool(0, 1);
    EXPECT(exported == plain);
    is_cudas(exported, stream);
}

/* All of the device's blocks are freed, however many, and none of the other device's. */
void resets(void)
{
    enum { MANY = 600, BYTES = 4096 };
    EXPECT(cu.cuDevicePrimaryCtxReset_v2(1) == CUDA_SUCCESS && stub.stub_count("cuDevicePrimaryCtxReset") == 1);
    for (int i = 0; i < MANY; i++)
        (void)take(BYTES);
    use_device(1);
    for (int i = 0; i < 3; i++)
        (void)take(MIB(6));
    EXPECT(cu.cuDevicePrimaryCtxReset_v2(1) == CUDA_SUCCESS && left() == MIB(64));
    use_device(0);
    EXPECT(left() == MIB(64) - (size_t)MANY * BYTES);
    EXPECT(cu.cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS && left() == MIB(64) && try(MIB(64)) == CUDA_SUCCESS);
    EXPECT(stub.stub_count("cuDevicePrimaryCtxReset") == 1); /* of the one that weir had not begun with */
}

/* Under --direct. */
void direct_fails(void)
{
    CUdeviceptr a;
    CUstream stream = new_stream();
    give(take(MIB(40)));
    give(take(MIB(2)));
    stub.stub_fail("cuMemAlloc", 1, WP_UNKNOWN);
    EXPECT(try(MIB(8)) == WP_UNKNOWN && left() == MIB(64));
    stub.stub_fail("cuMemAllocAsync", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemAllocAsync(&a, MIB(8), stream) == WP_UNKNOWN && left() == MIB(64));
    stub.stub_fail("cuMemAllocManaged", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemAllocManaged(&a, MIB(8), 1) == WP_UNKNOWN && left() == MIB(64));
    a = take(MIB(8));
    stub.stub_fail("cuMemFree", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemFree_v2(a) == WP_UNKNOWN && left() == MIB(56));
    EXPECT(cu.cuMemAllocAsync(&a, MIB(8), stream) == CUDA_SUCCESS && left() == MIB(48));
    stub.stub_fail("cuMemFreeAsync", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemFreeAsync(a, stream) == WP_UNKNOWN && left() == MIB(48));
}

/* Under a list that gives the first device 64 MiB and the second one 32 MiB; before and behind their first memory. */
void budgets(void)
{
    size_t available, total;
    for (int turn = 0; turn < 2; turn++) {
        use_device(0);
        EXPECT(left() == MIB(64));
        use_device(1);
        EXPECT(cu.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS && total == MIB(32) && available == MIB(32));
        EXPECT(try(MIB(33)) == CUDA_ERROR_OUT_OF_MEMORY && try(MIB(32)) == CUDA_SUCCESS);
        use_device(0);
        EXPECT(try(MIB(65)) == CUDA_ERROR_OUT_OF_MEMORY && try(MIB(64)) == CUDA_SUCCESS);
    }
}

/* Forms of functions ----------------------------------------------------------------------------------------------- */

/* Of a function that CUDA has in two forms the version asked for tells which. */
void forms(void)
{
    CUresult (*get)(const char *, void **, int, uint64_t, int *);
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *second = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    void *found = NULL;
    EXPECT(second);
    memcpy(&get, &second, sizeof second);
    give(take(MIB(1))); /* without memory there is no table */
    EXPECT(get("cuGetProcAddress", &found, 13000, 0, NULL) == CUDA_SUCCESS && found == second);
    /* Of a later version what is the same function is known, and another form is CUDA's. */
    EXPECT(get("cuMemAlloc", &found, 14000, 0, NULL) == CUDA_SUCCESS && found == dlsym(library, "cuMemAlloc_v2"));
    EXPECT(get("cuMemFreeHost", &found, 13000, 0, NULL) == CUDA_SUCCESS && found == dlsym(library, "cuMemFreeHost"));
    EXPECT(get("cuMemFreeHost", &found, 14000, 0, NULL) == CUDA_SUCCESS && found != dlsym(library, "cuMemFreeHost"));
    EXPECT(get("cuMemFreeAsync", &found, 13000, 0, NULL) == CUDA_SUCCESS && found == dlsym(library, "cuMemFreeAsync"));
    EXPECT(get("cuMemFreeAsync", &found, 13000, WP_GET_PER_THREAD, NULL) == CUDA_SUCCESS &&
           found != dlsym(library, "cuMemFreeAsync"));
}

/* Host memory ------------------------------------------------------------------------------------------------------ */

/* The C library's, under the names that the program does not take. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

/* How many allocations on this thread succeed before one fails; -1: all. */
static _Thread_local long host_fails_at = -1;
/* What this thread does inside its next allocation. */
static _Thread_local void (*inside_next)(void);

static bool host_refuses(void)
{
    void (*now)(void) = inside_next;
    inside_next = NULL;
    if (now)
        now();
    return host_fails_at >= 0 && host_fails_at-- == 0;
}

#define OVERRIDES __attribute__((visibility("default")))
OVERRIDES void *malloc(size_t bytes) // NOLINT(readability-inconsistent-declaration-parameter-name)
{
    return host_refuses() ? NULL : __libc_malloc(bytes);
}

OVERRIDES void *calloc(size_t count, size_t bytes) // NOLINT(readability-inconsistent-declaration-parameter-name)
{
    return host_refuses() ? NULL : __libc_calloc(count, bytes);
}

OVERRIDES void *realloc(void *old, size_t bytes) // NOLINT(readability-inconsistent-declaration-parameter-name)
{
    return host_refuses() ? NULL : __libc_realloc(old, bytes);
}

static CUdeviceptr made;
static CUarray made_array;
static CUmipmappedArray made_levels;
static CUmemGenericAllocationHandle made_handle;
static void *made_pinned;
static char own_page[4096];
static CUstream made_on;

static CUresult make_block(void)
{
    return cu.cuMemAlloc_v2(&made, MIB(8));
}
static CUresult make_async(void)
{
    return cu.cuMemAllocAsync(&made, MIB(8), made_on);
}
static CUresult make_managed(void)
{
    return cu.cuMemAllocManaged(&made, MIB(8), 1);
}
static CUresult free_block(void)
{
    return cu.cuMemFree_v2(made);
}
static CUresult free_async(void)
{
    return cu.cuMemFreeAsync(made, made_on);
}
static CUresult make_flat(void)
{
    return cu.cuArrayCreate_v2(&made_array, &flat);
}
static CUresult make_deep(void)
{
    return cu.cuArray3DCreate_v2(&made_array, &deep);
}
static CUresult destroy_array(void)
{
    return cu.cuArrayDestroy(made_array);
}
static CUresult make_levels(void)
{
    return cu.cuMipmappedArrayCreate(&made_levels, &deep, 3);
}
static CUresult destroy_levels(void)
{
    return cu.cuMipmappedArrayDestroy(made_levels);
}
static CUresult make_handle(void)
{
    return cu.cuMemCreate(&made_handle, MIB(8), &on_device, 0);
}
static CUresult release_handle(void)
{
    return cu.cuMemRelease(made_handle);
}
static CUresult make_pinned(void)
{
    return cu.cuMemAllocHost_v2(&made_pinned, MIB(5));
}
static CUresult make_portable(void)
{
    return cu.cuMemHostAlloc(&made_pinned, MIB(5), CU_MEMHOSTALLOC_PORTABLE);
}
static CUresult free_pinned(void)
{
    return cu.cuMemFreeHost(made_pinned);
}
static CUresult lock_own(void)
{
    return cu.cuMemHostRegister_v2(own_page, sizeof own_page, 0);
}
static CUresult unlock_own(void)
{
    return cu.cuMemHostUnregister(own_page);
}

/* Of what is freed weir keeps nothing, as all work is done. */
static void keep_nothing(void)
{
    CUmemoryPool pool;
    EXPECT(cu.cuCtxSynchronize() == CUDA_SUCCESS && cu.cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
    EXPECT(cu.cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
}

static const struct {
    CUresult (*make)(void), (*unmake)(void);
} kinds[] = {{make_block, free_block},      {make_async, free_async},   {make_managed, free_block},
             {make_flat, destroy_array},    {make_deep, destroy_array}, {make_levels, destroy_levels},
             {make_handle, release_handle}, {make_pinned, free_pinned}, {make_portable, free_pinned},
             {lock_own, unlock_own}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* What cannot be noted is not given, and neither counts nor stays. Under --budget host=8MiB,64MiB. */
void without_host_memory(void)
{
    static const char *const counts[] = {"allocations", "pinned", "registered", "handles"};
    made_on = new_stream();
    for (size_t i = 0; i < KINDS; i++) {
        EXPECT(kinds[i].make() == CUDA_SUCCESS && kinds[i].unmake() == CUDA_SUCCESS); /* what is made once is there */
        keep_nothing();
        uint64_t before[4];
        for (int k = 0; k < 4; k++)
            before[k] = stub.stub_count(counts[k]);
        bool hit = true;
        for (long nth = 0; hit; nth++) {
            host_fails_at = nth;
            CUresult result = kinds[i].make();
            hit = host_fails_at < 0;
            host_fails_at = -1;
            EXPECT(result == CUDA_SUCCESS ? kinds[i].unmake() == CUDA_SUCCESS : result == CUDA_ERROR_OUT_OF_MEMORY);
            EXPECT(left() == MIB(64));
        }
        keep_nothing();
        for (int k = 0; k < 4; k++)
            EXPECT(stub.stub_count(counts[k]) == before[k]);
    }
}

static CUresult (*make_anew)(void);
static void make_it_anew(void)
{
    EXPECT(make_anew() == CUDA_SUCCESS);
}

/* While CUDA's free has not returned another thread may have what is free again, at the same address: each counts for itself.
 * Under --budget host=16MiB,64MiB. */
void reused(void)
{
    void *most;
    made_on = new_stream();
    for (size_t i = 0; i < KINDS; i++) {
        make_anew = kinds[i].make;
        EXPECT(kinds[i].make() == CUDA_SUCCESS);
        stub.stub_reuse(make_it_anew);
        EXPECT(kinds[i].unmake() == CUDA_SUCCESS);
        bool again = kinds[i].unmake() == CUDA_SUCCESS; /* of what was freed by CUDA then, which made it anew */
        stub.stub_reuse(NULL);
        EXPECT(left() == MIB(64) && (again || kinds[i].unmake == free_block || kinds[i].unmake == free_async ||
                                     kinds[i].unmake == unlock_own));
    }
    EXPECT(cu.cuMemAllocHost_v2(&most, MIB(16)) == CUDA_SUCCESS && cu.cuMemFreeHost(most) == CUDA_SUCCESS);
}

/* A capture that ends while a free is held up for it leaves that free to the next call. */
static CUstream captured_until_then;
static void end_it(void)
{
    CUgraph graph;
    EXPECT(cu.cuStreamEndCapture(captured_until_then, &graph) == CUDA_SUCCESS);
}

void held_up_late(void)
{
    captured_until_then = new_stream();
    for (int turn = 0; turn < 2; turn++) {
        CUdeviceptr large = take(MIB(40)), small = take(MIB(2));
        EXPECT(cu.cuStreamBeginCapture_v2(captured_until_then, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
        inside_next = end_it;
        give(large);
        EXPECT(!inside_next);
        if (turn == 0)
            EXPECT(try(MIB(40)) == CUDA_SUCCESS);
        give(small);
        EXPECT(left() == MIB(64));
    }
}
