/* bench_by_host.c: what a program on the host would call instead: the C library, and mimalloc where it is installed. */
#include "bench_by.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct heap {
    void *(*allocate)(size_t bytes);
    void (*release)(void *pointer);
} heap;

static heap c_library = {malloc, free}, mimalloc;

static const char *begin(void *self, uint64_t cap)
{
    (void)self;
    return cap ? "it has no limit" : NULL;
}

static void end(void *self)
{
    (void)self;
}

static const char *stream(void *self, unsigned index, uint64_t *out)
{
    (void)self;
    *out = index;
    return NULL;
}

static void *allocate(void *self, size_t bytes, uint64_t stream)
{
    (void)stream;
    return ((heap *)self)->allocate(bytes);
}

static bool release(void *self, void *pointer, size_t bytes, uint64_t stream)
{
    (void)bytes;
    (void)stream;
    ((heap *)self)->release(pointer);
    return true;
}

static void fill(bench_peer *out, const char *name, heap *self)
{
    *out = (bench_peer){.struct_size = sizeof *out,
                        .self = self,
                        .begin = begin,
                        .end = end,
                        .stream = stream,
                        .allocate = allocate,
                        .release = release};
    snprintf(out->name, sizeof out->name, "%s", name);
}

const char *bench_by_malloc(bench_peer *out)
{
    fill(out, "malloc", &c_library);
    return NULL;
}

static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

const char *bench_by_mimalloc(bench_peer *out)
{
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return "libmimalloc.so.2 is not installed (Debian: libmimalloc2.0)";
    int (*version)(void);
    if (!find(library, "mi_malloc", &mimalloc.allocate) || !find(library, "mi_free", &mimalloc.release) ||
        !find(library, "mi_version", &version))
        return "libmimalloc.so.2 lacks mi_malloc, mi_free or mi_version";
    char name[64];
    snprintf(name, sizeof name, "mimalloc %d.%d.%d", version() / 100, version() / 10 % 10, version() % 10);
    fill(out, name, &mimalloc);
    return NULL;
}
