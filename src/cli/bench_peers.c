/* bench_peers.c: what a program would call instead: the C library on the host, CUDA's driver on a GPU. Its functions come
 * from libcuda.so.1 at run time; names and types are cuda.h's (CUDA 13.0). */
#include "bench_operations.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result;
typedef unsigned long long address;

/* The driver's functions, by the names under which the library exports their present forms. */
static struct {
    result (*allocate)(address *, size_t);
    result (*release)(address);
    result (*allocate_async)(address *, size_t, void *);
    result (*release_async)(address, void *);
    result (*default_pool)(void **, int);
    result (*pool_set)(void *, int, void *);
    result (*event_create)(void **, unsigned);
    result (*event_destroy)(void *);
    result (*event_record)(void *, void *);
    result (*stream_wait)(void *, void *, unsigned);
    result (*push)(void *);
    result (*pop)(void **);
} cuda;

static struct {
    void *library, *context, *streams[2], *event;
    weir_runtime *runtime; /* for its context and streams */
    weir_stream own[2];
    bool pushed;
} peers;

/* The host ---------------------------------------------------------------------------------------------------------- */

static bool run_malloc(void *user)
{
    (void)user;
    void *volatile pointer = malloc(BENCH_SMALL_BYTES);
    if (!pointer)
        return false;
    free(pointer);
    return true;
}

static bool run_malloc_large(void *user)
{
    (void)user;
    void *volatile pointer = malloc(BENCH_LARGE_BYTES);
    if (!pointer)
        return false;
    free(pointer);
    return true;
}

/* CUDA -------------------------------------------------------------------------------------------------------------- */

static bool pair_async(size_t bytes)
{
    address pointer;
    return cuda.allocate_async(&pointer, bytes, peers.streams[0]) == 0 &&
           cuda.release_async(pointer, peers.streams[0]) == 0;
}

static bool run_async(void *user)
{
    (void)user;
    return pair_async(BENCH_SMALL_BYTES);
}

static bool run_async_large(void *user)
{
    (void)user;
    return pair_async(BENCH_LARGE_BYTES);
}

static bool pair_direct(size_t bytes)
{
    address pointer;
    return cuda.allocate(&pointer, bytes) == 0 && cuda.release(pointer) == 0;
}

static bool run_direct(void *user)
{
    (void)user;
    return pair_direct(BENCH_SMALL_BYTES);
}

static bool run_direct_large(void *user)
{
    (void)user;
    return pair_direct(BENCH_LARGE_BYTES);
}

/* What a program does by hand to have work on one stream come after work on another. */
static bool run_event(void *user)
{
    (void)user;
    void *first = peers.streams[0];
    peers.streams[0] = peers.streams[1];
    peers.streams[1] = first;
    return cuda.event_record(peers.event, first) == 0 && cuda.stream_wait(peers.streams[0], peers.event, 0) == 0;
}

static bool find(const char *name, void *function)
{
    void *symbol = dlsym(peers.library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool load(void)
{
    peers.library = dlopen("libcuda.so.1", RTLD_NOW);
    return peers.library && find("cuMemAlloc_v2", &cuda.allocate) && find("cuMemFree_v2", &cuda.release) &&
           find("cuMemAllocAsync", &cuda.allocate_async) && find("cuMemFreeAsync", &cuda.release_async) &&
           find("cuDeviceGetDefaultMemPool", &cuda.default_pool) && find("cuMemPoolSetAttribute", &cuda.pool_set) &&
           find("cuEventCreate", &cuda.event_create) && find("cuEventDestroy_v2", &cuda.event_destroy) &&
           find("cuEventRecord", &cuda.event_record) && find("cuStreamWaitEvent", &cuda.stream_wait) &&
           find("cuCtxPushCurrent_v2", &cuda.push) && find("cuCtxPopCurrent_v2", &cuda.pop);
}

/* The device's pool keeps what it has, or every pair would go to the operating system: CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
 * is 4 in cuda.h. */
static bool keep_memory(int ordinal)
{
    enum { RELEASE_THRESHOLD = 4 };
    uint64_t most = UINT64_MAX;
    void *pool;
    return cuda.default_pool(&pool, ordinal) == 0 && cuda.pool_set(pool, RELEASE_THRESHOLD, &most) == 0;
}

static bool set_up(bench *b)
{
    enum { DISABLE_TIMING = 2 };
    weir_runtime_options options = {.struct_size = sizeof options, .budget = UINT64_C(64) << 20};
    if (weir_runtime_create(b->device, &options, &peers.runtime) != WEIR_OK)
        return false;
    for (int i = 0; i < 2; i++) {
        if (weir_stream_acquire(peers.runtime, &peers.own[i]) != WEIR_OK)
            return false;
        peers.streams[i] = weir_stream_native(peers.own[i]);
    }
    peers.context = weir_runtime_native(peers.runtime);
    peers.pushed = load() && cuda.push(peers.context) == 0;
    return peers.pushed && keep_memory(weir_runtime_ordinal(peers.runtime)) &&
           cuda.event_create(&peers.event, DISABLE_TIMING) == 0;
}

static void add(bench *b, const char *operation, const char *who, bool (*run)(void *user))
{
    bench_add(b, operation, who, run, NULL)->peer = true;
}

void bench_peers_begin(bench *b)
{
    add(b, bench_host, "C library: malloc and free", run_malloc);
    if (strncmp(b->device, "cuda", 4) != 0) {
        add(b, bench_small, "C library: malloc and free", run_malloc);
        add(b, bench_large, "C library: malloc and free", run_malloc_large);
        return;
    }
    if (!set_up(b)) {
        snprintf(b->missing, sizeof b->missing, "CUDA's own calls could not be set up: %s", weir_detail());
        return;
    }
    add(b, bench_small, "CUDA: cuMemAllocAsync", run_async);
    add(b, bench_small, "CUDA: cuMemAlloc", run_direct);
    add(b, bench_large, "CUDA: cuMemAllocAsync", run_async_large);
    add(b, bench_large, "CUDA: cuMemAlloc", run_direct_large);
    add(b, bench_record, "CUDA: an event by hand", run_event);
}

void bench_peers_end(void)
{
    void *ignored;
    if (peers.event)
        (void)cuda.event_destroy(peers.event);
    if (peers.pushed)
        (void)cuda.pop(&ignored);
    for (int i = 0; i < 2; i++)
        if (peers.own[i].id)
            (void)!weir_stream_release(peers.own[i]);
    if (peers.runtime)
        (void)!weir_runtime_destroy(peers.runtime);
    memset(&peers, 0, sizeof peers);
}
