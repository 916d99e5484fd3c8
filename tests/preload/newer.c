/* Cases of the program with what later versions of CUDA have, and with each version of each function that a program may ask
 * cuGetProcAddress for. */
#include "preload/program.h"

#include <dlfcn.h>
#include <unistd.h>

/* Pools ------------------------------------------------------------------------------------------------------------ */

static const CUmemLocation first_device = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, the_host = {WP_LOCATION_HOST, 0};
enum { MANAGED = 2 };

static CUmemoryPool made(CUmemLocation where, unsigned handle_types)
{
    CUmemoryPool pool;
    const CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = handle_types, .location = where};
    EXPECT(cu.cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
    return pool;
}

static uint64_t cudas_calls(void)
{
    return stub.stub_count("cuMemAllocFromPoolAsync") + stub.stub_count("cuMemAllocAsync");
}

/* Takes 8 MiB of the pool, or of the current pool, and frees them. Returns whether CUDA has given them. */
static bool is_cudas(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr a;
    uint64_t calls = cudas_calls();
    EXPECT((pool ? cu.cuMemAllocFromPoolAsync(&a, MIB(8), pool, stream) : cu.cuMemAllocAsync(&a, MIB(8), stream)) ==
           CUDA_SUCCESS);
    EXPECT(left() == MIB(56) && cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && left() == MIB(64));
    return cudas_calls() != calls;
}

/* Memory of a pool on the host is none of the device's: all of the device's budget is there beside it. */
static void counts_for_the_host(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr a, b;
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), pool, stream) == CUDA_SUCCESS && left() == MIB(64));
    EXPECT(cu.cuMemAllocFromPoolAsync(&b, MIB(2), pool, stream) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && left() == MIB(64));
    stub.stub_fail("cuMemAllocFromPoolAsync", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), pool, stream) == WP_UNKNOWN);
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), pool, stream) == CUDA_SUCCESS);
    EXPECT(cu.cuMemFreeAsync(a, stream) == CUDA_SUCCESS && stub.stub_count("allocations") == 0);
}

/* Memory of a pool of the second device counts there, where there is room for it. */
static void counts_for_another_device(CUstream stream)
{
    CUdeviceptr all = take(MIB(64)), a;
    CUmemoryPool elsewhere = made((CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 1}, 0),
                 exported = made((CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 1}, 1);
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), elsewhere, stream) == WP_INVALID_VALUE); /* the stub's own word */
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(8), exported, stream) == WP_INVALID_VALUE);
    EXPECT(cu.cuMemAllocFromPoolAsync(&a, MIB(66), elsewhere, stream) == CUDA_ERROR_OUT_OF_MEMORY);
    give(all);
}

/* Under --budget host=8MiB,64MiB. */
void pools_by_place(void)
{
    CUmemoryPool pool, again;
    CUstream stream = new_stream();
    CUdeviceptr address;
    EXPECT(cu.cuDeviceGetMemPool(&pool, 0) == CUDA_SUCCESS && !is_cudas(pool, stream));
    EXPECT(cu.cuMemGetDefaultMemPool(&again, &first_device, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS);
    EXPECT(again == pool && !is_cudas(again, stream) && !is_cudas(NULL, stream));
    EXPECT(cu.cuMemGetMemPool(&again, &first_device, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS && again == pool);
    EXPECT(cu.cuMemGetMemPool(&again, &first_device, MANAGED) == WP_INVALID_VALUE);
    EXPECT(cu.cuMemGetDefaultMemPool(&again, &the_host, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS);
    counts_for_the_host(again, stream);
    EXPECT(cu.cuMemGetMemPool(&again, &the_host, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS);
    counts_for_the_host(again, stream);
    counts_for_the_host(made(the_host, 0), stream);
    counts_for_another_device(stream);
    /* The pool that is chosen is the one that memory is asked of, by whichever function it was chosen. */
    CUmemoryPool exported = made(first_device, 1);
    stub.stub_fail("cuMemSetMemPool", 1, WP_UNKNOWN);
    EXPECT(cu.cuMemSetMemPool(&first_device, CU_MEM_ALLOCATION_TYPE_PINNED, exported) == WP_UNKNOWN);
    EXPECT(!is_cudas(NULL, stream));
    EXPECT(cu.cuMemSetMemPool(&first_device, CU_MEM_ALLOCATION_TYPE_PINNED, exported) == CUDA_SUCCESS);
    EXPECT(is_cudas(NULL, stream));
    EXPECT(cu.cuMemGetMemPool(&again, &first_device, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_SUCCESS);
    EXPECT(again == exported && is_cudas(again, stream));
    EXPECT(cu.cuDeviceGetMemPool(&again, 0) == CUDA_SUCCESS && again == exported && is_cudas(again, stream));
    EXPECT(cu.cuMemSetMemPool(&first_device, CU_MEM_ALLOCATION_TYPE_PINNED, pool) == CUDA_SUCCESS);
    EXPECT(!is_cudas(NULL, stream));
    EXPECT(cu.cuMemPoolImportPointer(&address, exported, &address) != CUDA_SUCCESS);
}

/* Physical memory of a part of the device counts as the device's. */
void part_of_a_device(void)
{
    enum { SECOND_PART = 1 << 8 };
    const CUmemAllocationProp on_part = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {WP_LOCATION_PART_OF_DEVICE, SECOND_PART}};
    CUmemGenericAllocationHandle h, more;
    EXPECT(cu.cuMemCreate(&h, MIB(40), &on_part, 0) == CUDA_SUCCESS && left() == MIB(24));
    EXPECT(cu.cuMemCreate(&more, MIB(26), &on_part, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cu.cuMemRelease(h) == CUDA_SUCCESS && left() == MIB(64));
}

/* Captures --------------------------------------------------------------------------------------------------------- */

/* Until a capture into a graph that there was has ended, what is freed stays the program's. */
void recaptures(void)
{
    CUstream stream = new_stream();
    CUgraph graph;
    EXPECT(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    EXPECT(cu.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    EXPECT(cu.cuStreamBeginRecaptureToGraph(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, NULL, NULL) == CUDA_SUCCESS);
    give(take(MIB(2)));
    EXPECT(left() == MIB(62) && cu.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && left() == MIB(64));
    if (!cu.cuStreamBeginRecaptureToGraph_ptsz) /* which has no name that is exported by the stub */
        return;
    EXPECT(cu.cuStreamBeginRecaptureToGraph_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED, graph, NULL, NULL) ==
           CUDA_SUCCESS);
    give(take(MIB(2)));
    EXPECT(left() == MIB(62) && cu.cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph) == CUDA_SUCCESS);
    EXPECT(left() == MIB(64) && stub.stub_count("captures broken") == 0);
}

/* Entry points ----------------------------------------------------------------------------------------------------- */

typedef CUresult (*get_function)(const char *, void **, int, uint64_t, int *);
typedef CUresult (*old_get_function)(const char *, void **, int, uint64_t);

static const char *const wrapped[] = {
#define X(symbol, name, version, per_thread, parameters, arguments) #name,
    WP_CUDA_FUNCTIONS(X)
#undef X
};
static const char *const per_thread_names[] = {"cuMemAllocAsync",
                                               "cuMemAllocFromPoolAsync",
                                               "cuMemFreeAsync",
                                               "cuStreamBeginCapture",
                                               "cuStreamEndCapture",
                                               "cuStreamBeginCaptureToGraph",
                                               "cuStreamBeginRecaptureToGraph"};
static const char *const others[] = {
    "cuInit",         "cuLaunchHostFunc", "cuCtxGetCurrent", "cuMemAddressReserve", "cuStreamCreate",
    "cuMemSetAccess", "cuNoSuchFunction", "cuMemAlloc_v2",   "cuMemAllocAsync_ptsz"};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static bool is_one_of(const char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* Expects weir's function where weir has the function, in the form for the flags, and otherwise what CUDA gives. */
static void expect_function(const char *name, const void *found, const void *cudas, uint64_t flags)
{
    Dl_info its;
    bool ours = is_one_of(wrapped, COUNT(wrapped), name);
    EXPECT(dladdr(found, &its) && its.dli_fname);
    EXPECT((strstr(its.dli_fname, "libweir-preload.so") != NULL) == ours);
    if (!ours) {
        EXPECT(found == cudas);
        return;
    }
    const char *end = its.dli_sname ? strstr(its.dli_sname, "_ptsz") : NULL;
    EXPECT(its.dli_sname && strncmp(its.dli_sname, name, strlen(name)) == 0);
    EXPECT((end != NULL) == (flags == WP_GET_PER_THREAD && is_one_of(per_thread_names, COUNT(per_thread_names), name)));
}

static void check_entry_point(get_function get, old_get_function old, const char *name, int version, uint64_t flags)
{
    int found_by_weir = -1, found_by_cuda = -1;
    void *ours = &found_by_weir, *without = &found_by_weir, *by_old = &found_by_weir;
    const void *cudas = stub.stub_function(name, version, flags, &found_by_cuda);
    CUresult result = get(name, &ours, version, flags, &found_by_weir);
    EXPECT((result == CUDA_SUCCESS) == (cudas != NULL) && found_by_weir == found_by_cuda);
    EXPECT(get(name, &without, version, flags, NULL) == result && without == ours);
    EXPECT(old(name, &by_old, version, flags) == result && by_old == ours);
    if (cudas)
        expect_function(name, ours, cudas, flags);
    else
        EXPECT(!ours);
}

/* As CUDA's runtime finds them, linked statically or not, in each version and by each flag. */
void entry_points(void)
{
    enum { DEFAULT_FORMS, LEGACY_FORMS, THREAD_FORMS, NO_FORMS };
    static const int versions[] = {1000,  2000,  3020,  4000,  6050,  10000, 10010, 11000, 11020,
                                   11030, 12000, 12030, 12050, 12080, 13000, 13030, 13050};
    get_function get;
    old_get_function old;
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *function = dlsym(library, "cuGetProcAddress_v2"), *by_function;
    EXPECT(function);
    memcpy(&get, &function, sizeof get);
    function = dlsym(library, "cuGetProcAddress");
    EXPECT(get("cuGetProcAddress", &by_function, 11030, 0, NULL) == CUDA_SUCCESS && by_function == function);
    memcpy(&old, &function, sizeof old);
    for (size_t v = 0; v < COUNT(versions); v++)
        for (uint64_t flags = DEFAULT_FORMS; flags <= NO_FORMS; flags++) {
            for (size_t i = 0; i < COUNT(wrapped); i++)
                check_entry_point(get, old, wrapped[i], versions[v], flags);
            for (size_t i = 0; i < COUNT(others); i++)
                check_entry_point(get, old, others[i], versions[v], flags);
        }
    give(take(MIB(1))); /* without memory there is no table */
}
