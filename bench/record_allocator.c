/* record_allocator.c: what PyTorch allocates through while scripts/record-trace records a program: CUDA's stream-ordered
 * pool, and a row in RMM's form for each call. Built by that script as a shared object; nothing of CUDA is needed for it.
 * A row of a free stands before the pool has the block back and one of an allocation behind its coming, so that the rows
 * of several threads are in an order in which no two live blocks overlap. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef int result;
typedef unsigned long long address;

typedef struct row {
    uint64_t nanoseconds;
    void *pointer, *stream;
    size_t bytes;
    unsigned thread;
    int allocates;
} row;

static struct {
    pthread_mutex_t lock;
    row *rows;
    size_t count, room;
    uint64_t start;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    result (*get_context)(void **);
    result (*set_context)(void *);
    result (*retain)(void **, int);
    result (*pool)(void **, int);
    result (*set_pool)(void *, int, void *);
    result (*allocate)(address *, size_t, void *);
    result (*release)(address, void *);
} cuda;

/* PyTorch does not look whether it was given anything, and would go on with what is none. */
static void give_up(const char *what, int code)
{
    fprintf(stderr, "record_allocator: %s: error %d\n", what, code);
    abort();
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void load(void)
{
    struct {
        const char *name;
        void *to;
    } wanted[] = {{"cuCtxGetCurrent", &cuda.get_context},     {"cuCtxSetCurrent", &cuda.set_context},
                  {"cuDevicePrimaryCtxRetain", &cuda.retain}, {"cuDeviceGetDefaultMemPool", &cuda.pool},
                  {"cuMemPoolSetAttribute", &cuda.set_pool},  {"cuMemAllocAsync", &cuda.allocate},
                  {"cuMemFreeAsync", &cuda.release}};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *symbol = library ? dlsym(library, wanted[i].name) : NULL;
        if (!symbol)
            give_up(wanted[i].name, 0);
        memcpy(wanted[i].to, &symbol, sizeof symbol);
    }
    kept.start = now();
}

/* A thread that has no context yet gets the device's own, and the pool keeps what it has: its time is not of interest. */
static void enter(int device)
{
    enum { RELEASE_THRESHOLD = 4 };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Thread_local int ready;
    void *context = NULL, *pool = NULL;
    uint64_t most = UINT64_MAX;
    if (ready)
        return;
    (void)pthread_once(&once, load);
    result code = cuda.get_context(&context);
    if (code == 0 && !context) {
        code = cuda.retain(&context, device);
        code = code ? code : cuda.set_context(context);
    }
    code = code ? code : cuda.pool(&pool, device);
    code = code ? code : cuda.set_pool(pool, RELEASE_THRESHOLD, &most);
    if (code)
        give_up("a thread's context", code);
    ready = 1;
}

static void note(int allocates, void *pointer, size_t bytes, void *stream)
{
    static unsigned threads;
    static _Thread_local unsigned thread;
    pthread_mutex_lock(&kept.lock);
    if (!thread)
        thread = ++threads;
    if (kept.count == kept.room) {
        kept.room = kept.room ? 2 * kept.room : 65536;
        kept.rows = realloc(kept.rows, kept.room * sizeof *kept.rows);
        if (!kept.rows)
            give_up("no memory for rows", 0);
    }
    kept.rows[kept.count++] = (row){now() - kept.start, pointer, stream, bytes, thread, allocates};
    pthread_mutex_unlock(&kept.lock);
}

__attribute__((visibility("default"))) void *record_allocate(ssize_t bytes, int device, void *stream)
{
    address got = 0;
    if (bytes <= 0)
        return NULL;
    enter(device);
    result code = cuda.allocate(&got, (size_t)bytes, stream);
    if (code)
        give_up("cuMemAllocAsync", code);
    void *pointer = (void *)(uintptr_t)got;
    note(1, pointer, (size_t)bytes, stream);
    return pointer;
}

__attribute__((visibility("default"))) void record_free(void *pointer, ssize_t bytes, int device, void *stream)
{
    if (!pointer)
        return;
    enter(device);
    note(0, pointer, (size_t)bytes, stream);
    result code = cuda.release((uintptr_t)pointer, stream);
    if (code)
        give_up("cuMemFreeAsync", code);
}

/* Rows so far. */
__attribute__((visibility("default"))) size_t record_count(void)
{
    pthread_mutex_lock(&kept.lock);
    size_t count = kept.count;
    pthread_mutex_unlock(&kept.lock);
    return count;
}

/* The first `count` rows into a file. 0: it is written. */
__attribute__((visibility("default"))) int record_write(const char *path, size_t count)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return -1;
    fputs("Thread,Time,Action,Pointer,Size,Stream\n", file);
    pthread_mutex_lock(&kept.lock);
    for (size_t i = 0; i < kept.count && i < count; i++) {
        const row *r = &kept.rows[i];
        uint64_t us = r->nanoseconds / 1000, seconds = us / 1000000;
        fprintf(file, "%u,%02u:%02u:%02u.%06u,%s,0x%llx,%zu,0x%llx\n", r->thread, (unsigned)(seconds / 3600 % 24),
                (unsigned)(seconds / 60 % 60), (unsigned)(seconds % 60), (unsigned)(us % 1000000),
                r->allocates ? "allocate" : "free", (unsigned long long)(uintptr_t)r->pointer, r->bytes,
                (unsigned long long)(uintptr_t)r->stream);
    }
    pthread_mutex_unlock(&kept.lock);
    return fclose(file) == 0 ? 0 : -1;
}
