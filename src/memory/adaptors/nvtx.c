/* NVTX's memory extension, as far as it is needed. A tool names a library in NVTX_INJECTION64_PATH; it has a function
 * that fills in a table of calls, and everything goes through that table. What is declared here is NVTX 3's interface
 * of binaries: github.com/NVIDIA/NVTX, c/include/nvtx3/nvToolsExtMem.h (descriptions, numbers of calls) and
 * nvtxDetail/nvtxExtTypes.h, nvtxExtInit.h, nvtxExtImplMem_v1.h (the table, how a tool is found). */
#include "memory/adaptors/adaptors.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { NVTX_VERSION = 3, MODULE_MEMORY = 1, COMPATIBILITY = 0x0102, SEGMENT = 1 };
enum { HEAP_REGISTER, HEAP_UNREGISTER, REGIONS_REGISTER = 3, REGIONS_RESIZE, REGIONS_UNREGISTER, CALLS = 63 };
enum { UNAVAILABLE = 1 }; /* marks a slot as unavailable: neither this nor 0 is a function */
enum { SUB_ALLOCATOR = 1, VIRTUAL_ADDRESS = 1, BY_POINTER = 1 };

typedef struct segment {
    size_t id, count;
    intptr_t *calls;
} segment;

typedef struct module {
    uint16_t version, size, id, compatibility;
    size_t segment_count;
    segment *segments;
    void (*exports)(void);
    const void *more;
} module;

typedef struct range {
    size_t bytes;
    const void *start;
} range;

typedef struct heap_description {
    uint16_t compatibility, size;
    uint32_t reserved, usage, type;
    size_t range_size;
    const range *range;
    uint32_t category, message_type;
    const void *message;
} heap_description;

typedef struct new_regions {
    uint16_t compatibility, size;
    uint32_t type;
    void *heap;
    size_t count, range_size;
    const range *ranges;
    void **handles;
} new_regions;

typedef struct old_regions { /* resized regions, by range, or ended regions, by address */
    uint16_t compatibility, size;
    uint32_t type;
    size_t count, element_size;
    const void *elements;
} old_regions;

/* The functions of the tool. The first argument of each is a domain; NULL is the default one. */
static struct tool {
    void *(*enter_heap)(void *domain, const heap_description *heap);
    void (*leave_heap)(void *domain, void *heap);
    void (*enter)(void *domain, const new_regions *regions);
    void (*resize)(void *domain, const old_regions *regions);
    void (*leave)(void *domain, const old_regions *regions);
} tool;
static bool there;

/* Fills in `tool`. False: the tool lacks a needed function. */
static bool nvtx_read_table(const intptr_t *calls)
{
    const struct {
        int call;
        void *function;
    } wanted[] = {{HEAP_REGISTER, &tool.enter_heap},
                  {HEAP_UNREGISTER, &tool.leave_heap},
                  {REGIONS_REGISTER, &tool.enter},
                  {REGIONS_RESIZE, &tool.resize},
                  {REGIONS_UNREGISTER, &tool.leave}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        intptr_t function = calls[wanted[i].call];
        if (function == 0 || function == UNAVAILABLE)
            return false;
        memcpy(wanted[i].function, &function, sizeof function);
    }
    return true;
}

static void nvtx_find_tool(void)
{
    intptr_t calls[CALLS] = {0};
    segment table = {SEGMENT, CALLS, calls};
    module memory = {.version = NVTX_VERSION,
                     .size = sizeof memory,
                     .id = MODULE_MEMORY,
                     .compatibility = COMPATIBILITY,
                     .segment_count = 1,
                     .segments = &table};
    const char *path = secure_getenv("NVTX_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_LAZY) : NULL; /* never closed, as the table points into it */
    void *symbol = library ? dlsym(library, "InitializeInjectionNvtxExtension") : NULL;
    int (*initialize)(module *);
    if (!symbol)
        return;
    memcpy(&initialize, &symbol, sizeof symbol);
    there = initialize(&memory) != 0 && nvtx_read_table(calls);
}

static bool nvtx_has_tool(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, nvtx_find_tool);
    return there;
}

/* Calls `what` with the device current, which compute-sanitizer needs. */
static void nvtx_tell(const wi_resource *resource, void (*what)(void *user), void *user)
{
    resource->driver->within(resource->device, what, user);
}

static range nvtx_range_of(const wi_block *block)
{
    return (range){block->bytes, block->pointer};
}

typedef struct entry {
    wi_block *block;
    range piece;
} entry;

static void nvtx_enter(void *user)
{
    const entry *e = user;
    wi_block *block = e->block;
    range used = nvtx_range_of(block);
    heap_description heap = {.compatibility = COMPATIBILITY,
                             .size = sizeof heap,
                             .usage = SUB_ALLOCATOR,
                             .type = VIRTUAL_ADDRESS,
                             .range_size = sizeof e->piece,
                             .range = &e->piece};
    new_regions regions = {COMPATIBILITY, sizeof regions, VIRTUAL_ADDRESS, NULL, 1, sizeof used, &used, NULL};
    regions.heap = block->heap = tool.enter_heap(NULL, &heap);
    block->marked = block->heap != NULL;
    if (block->marked)
        tool.enter(NULL, &regions);
}

void wi_nvtx_enter(const wi_resource *resource, wi_block *block, uintptr_t start, uint64_t bytes)
{
    if (resource->driver->within && nvtx_has_tool())
        nvtx_tell(resource, nvtx_enter, &(entry){block, {bytes, (void *)start}});
}

static void nvtx_resize(void *user)
{
    range used = nvtx_range_of(user);
    old_regions regions = {COMPATIBILITY, sizeof regions, VIRTUAL_ADDRESS, 1, sizeof used, &used};
    tool.resize(NULL, &regions);
}

void wi_nvtx_resize(const wi_resource *resource, wi_block *block)
{
    if (block->marked)
        nvtx_tell(resource, nvtx_resize, block);
}

static void nvtx_bury(void *user)
{
    const wi_block *block = user;
    old_regions regions = {COMPATIBILITY, sizeof regions, BY_POINTER, 1, sizeof block->pointer, &block->pointer};
    tool.leave(NULL, &regions);
}

void wi_nvtx_bury(const wi_resource *resource, wi_block *block)
{
    if (block->marked)
        nvtx_tell(resource, nvtx_bury, block);
    block->marked = false;
}

static void nvtx_leave(void *user)
{
    const wi_block *block = user;
    tool.leave_heap(NULL, block->heap);
}

void wi_nvtx_leave(const wi_resource *resource, wi_block *block)
{
    wi_nvtx_bury(resource, block);
    if (block->heap)
        nvtx_tell(resource, nvtx_leave, block);
    block->heap = NULL;
}
