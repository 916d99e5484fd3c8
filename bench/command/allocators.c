/* allocators.c: weir, the C library, mimalloc and shared objects as allocators, and the list of all. */
#include "allocators.h"
#include "bench.h"

#include <weir/weir.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* weir ------------------------------------------------------------------------------------------------------------- */

enum { STREAMS = 64 };

/* The budget where no cap is given: more than any measurement needs. An explicit budget overrides WEIR_BUDGET. */
#define ROOM (UINT64_C(1) << 40)

typedef struct world {
    const char *device, *resource;
    bool ordered; /* on streams; else on WEIR_STREAM_HOST */
    weir_runtime *runtime;
    weir_client *client;
    weir_stream streams[STREAMS];
    unsigned stream_count;
} world;

static void end_weir(void *self)
{
    world *w = self;
    for (unsigned i = 0; i < w->stream_count; i++)
        (void)!weir_stream_release(w->streams[i]);
    w->stream_count = 0;
    if (w->client)
        (void)!weir_client_destroy(w->client);
    w->client = NULL;
    if (w->runtime)
        (void)!weir_runtime_destroy(w->runtime);
    w->runtime = NULL;
}

static const char *begin_weir(void *self, uint64_t cap)
{
    world *w = self;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = cap ? cap : ROOM, .resource = w->resource};
    weir_client_options client = {.struct_size = sizeof client, .name = "bench"};
    if (weir_runtime_create(w->device, &options, &w->runtime) == WEIR_OK &&
        weir_client_create(w->runtime, &client, &w->client) == WEIR_OK)
        return NULL;
    end_weir(w);
    return weir_detail();
}

static const char *stream_weir(void *self, unsigned index, uint64_t *out)
{
    world *w = self;
    *out = WEIR_STREAM_HOST.id;
    if (!w->ordered)
        return NULL;
    if (index >= STREAMS)
        return "there are not so many streams here";
    for (; w->stream_count <= index; w->stream_count++)
        if (weir_stream_acquire(w->runtime, &w->streams[w->stream_count]) != WEIR_OK)
            return weir_detail();
    *out = w->streams[index].id;
    return NULL;
}

static void *allocate_weir(void *self, size_t bytes, uint64_t stream)
{
    void *pointer;
    weir_stream on = {stream};
    return weir_alloc(((world *)self)->client, bytes, on, WEIR_CLASS_ACTIVATIONS, &pointer) == WEIR_OK ? pointer : NULL;
}

static bool release_weir(void *self, void *pointer, size_t bytes, uint64_t stream)
{
    weir_stream on = {stream};
    (void)bytes;
    return weir_free(((world *)self)->client, pointer, on) == WEIR_OK;
}

static void synchronize_weir(void *self)
{
    world *w = self;
    for (unsigned i = 0; i < w->stream_count; i++)
        (void)!weir_stream_synchronize(w->streams[i]);
}

static void *native_weir(void *self, uint64_t stream)
{
    (void)self;
    return weir_stream_native((weir_stream){stream});
}

static uint64_t peak_held_weir(void *self)
{
    weir_stats stats = {.struct_size = sizeof stats};
    return weir_snapshot(((world *)self)->runtime, &stats, NULL, 0, NULL) == WEIR_OK ? stats.peak_held : 0;
}

const char *bench_weir(const char *device, const char *resource, bool streams, bench_peer *out)
{
    world *w = text_zeroed(1, sizeof *w);
    *w = (world){.device = device, .resource = resource, .ordered = streams};
    *out = (bench_peer){.struct_size = sizeof *out,
                        .self = w,
                        .begin = begin_weir,
                        .end = end_weir,
                        .stream = stream_weir,
                        .allocate = allocate_weir,
                        .release = release_weir,
                        .synchronize = synchronize_weir,
                        .native = native_weir,
                        .peak_held = peak_held_weir,
                        .close = free};
    snprintf(out->name, sizeof out->name, "%s%s%s", "weir", resource ? ": " : "", resource ? resource : "");
    if (!streams)
        snprintf(out->name, sizeof out->name, "weir, no stream");
    return NULL;
}

/* The host --------------------------------------------------------------------------------------------------------- */

typedef struct heap {
    void *(*allocate)(size_t bytes);
    void (*release)(void *pointer);
} heap;

static heap c_library = {malloc, free}, mimalloc;

static const char *begin_host(void *self, uint64_t cap)
{
    (void)self;
    return cap ? "it has no limit" : NULL;
}

static void end_host(void *self)
{
    (void)self;
}

static const char *stream_host(void *self, unsigned index, uint64_t *out)
{
    (void)self;
    *out = index;
    return NULL;
}

static void *allocators_allocate_host(void *self, size_t bytes, uint64_t stream)
{
    (void)stream;
    return ((heap *)self)->allocate(bytes);
}

static bool allocators_release_host(void *self, void *pointer, size_t bytes, uint64_t stream)
{
    (void)bytes;
    (void)stream;
    ((heap *)self)->release(pointer);
    return true;
}

static void fill_host(bench_peer *out, const char *name, heap *self)
{
    *out = (bench_peer){.struct_size = sizeof *out,
                        .self = self,
                        .begin = begin_host,
                        .end = end_host,
                        .stream = stream_host,
                        .allocate = allocators_allocate_host,
                        .release = allocators_release_host};
    snprintf(out->name, sizeof out->name, "%s", name);
}

const char *bench_malloc(bench_peer *out)
{
    fill_host(out, "malloc", &c_library);
    return NULL;
}

static bool allocators_find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

const char *bench_mimalloc(bench_peer *out)
{
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return "libmimalloc.so.2 is not installed (Debian: libmimalloc2.0)";
    int (*version)(void);
    if (!allocators_find(library, "mi_malloc", &mimalloc.allocate) ||
        !allocators_find(library, "mi_free", &mimalloc.release) || !allocators_find(library, "mi_version", &version))
        return "libmimalloc.so.2 lacks mi_malloc, mi_free or mi_version";
    char name[64];
    snprintf(name, sizeof name, "mimalloc %d.%d.%d", version() / 100, version() / 10 % 10, version() % 10);
    fill_host(out, name, &mimalloc);
    return NULL;
}

/* Shared objects --------------------------------------------------------------------------------------------------- */

static void allocators_leave_out(bench_allocators *all, const char *name, const char *why)
{
    char *text = text_print("%s: %s", name, why);
    json_array_append_new(all->left_out, text_json(text));
    free(text);
}

/* NULL: there is no room for more; it is listed as left out. */
static bench_allocator *add_allocator(bench_allocators *all, const bench_peer *by)
{
    if (all->count == BENCH_ALLOCATORS) {
        allocators_leave_out(all, by->name, "there is no room for more");
        return NULL;
    }
    bench_allocator *added = &all->at[all->count++];
    *added = (bench_allocator){.by = *by};
    return added;
}

static bool allocators_complete(const bench_peer *by)
{
    return by->struct_size == sizeof *by && by->name[0] && by->begin && by->end && by->stream && by->allocate &&
           by->release;
}

/* The loader's message without the file's name, which the caller adds. */
static const char *allocators_without(const char *path, const char *text)
{
    size_t length = strlen(path);
    return strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0 ? text + length + 2 : text;
}

/* Adds every peer of a shared object, which stays loaded: what PyTorch and CUDA start ends with the process. NULL, or
 * why it cannot be loaded. */
static const char *allocators_add_file(bench_allocators *all, const char *path, int ordinal)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return allocators_without(path, dlerror());
    bench_peer_entry *entry;
    void *symbol = dlsym(library, BENCH_PEER_ENTRY);
    if (!symbol)
        return "it does not export " BENCH_PEER_ENTRY;
    memcpy(&entry, &symbol, sizeof entry);
    for (unsigned which = 0; which < BENCH_ALLOCATORS; which++) {
        bench_peer by = {0};
        const char *failure = NULL;
        if (!entry(which, ordinal, &by, &failure))
            break;
        by.name[sizeof by.name - 1] = '\0';
        if (!failure && !allocators_complete(&by))
            failure = "its table is not that of bench/command/peer.h";
        if (failure)
            allocators_leave_out(all, by.name[0] ? by.name : path, failure);
        else
            add_allocator(all, &by);
    }
    return NULL;
}

/* Lists ------------------------------------------------------------------------------------------------------------ */

void bench_enter_thread(const bench_peer *by)
{
    if (by->thread_begin)
        by->thread_begin(by->self);
}

void bench_leave_thread(const bench_peer *by)
{
    if (by->thread_end)
        by->thread_end(by->self);
}

const char *bench_why(const bench_peer *by)
{
    return strncmp(by->name, "weir", 4) == 0 ? weir_detail() : "it refused a block";
}

static bool allocators_add(bench_allocators *all, const char *failure, const char *name, const bench_peer *by, bool own)
{
    if (failure) {
        allocators_leave_out(all, name, failure);
        return false;
    }
    bench_allocator *added = add_allocator(all, by);
    if (added)
        added->own = own;
    return added != NULL;
}

/* A file, or every shared object of a folder. */
static void add_path(bench_allocators *all, const char *path, int ordinal)
{
    size_t count;
    char **files = bench_files(path, ".so", &count);
    for (size_t i = 0; i < count; i++) {
        const char *failure = allocators_add_file(all, files[i], ordinal);
        if (failure)
            allocators_leave_out(all, files[i], failure);
    }
    if (count == 0)
        allocators_leave_out(all, path, "no shared object is in that folder");
    bench_files_free(files, count);
}

void bench_allocators_open(bench_allocators *all, const char *device, const char *resource, const bench_paths *paths)
{
    bench_peer by;
    bool host = strcmp(device, "host") == 0;
    const char *colon = strchr(device, ':');
    int ordinal = colon ? atoi(colon + 1) : 0;
    *all = (bench_allocators){.left_out = json_array()};
    allocators_add(all, bench_weir(device, resource, true, &by), "weir", &by, true);
    if (host) {
        allocators_add(all, bench_weir(device, resource, false, &by), "weir, no stream", &by, true);
        allocators_add(all, bench_malloc(&by), "malloc", &by, false);
        allocators_add(all, bench_mimalloc(&by), "mimalloc", &by, false);
    } else {
        allocators_add(all, bench_cuda_pool(ordinal, &by), "cuMemAllocAsync", &by, false);
    }
    for (size_t i = 0; i < paths->count; i++)
        add_path(all, paths->at[i], ordinal);
}

void bench_allocators_close(bench_allocators *all)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->at[i].by.close)
            all->at[i].by.close(all->at[i].by.self);
    json_decref(all->left_out);
    *all = (bench_allocators){0};
}
