/* A tool as NVTX_INJECTION64_PATH names one: it takes the calls of the memory extension and keeps books of heaps and regions
 * as strictly as it can. TOOL_IS=deaf: it refuses to start; lacking: it has not all of the calls.
 *
 * It has declarations of its own, compared with NVIDIA's header where that is, so that nothing wrong is believed twice. */
#include "resources/nvtx_tool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct segment {
    size_t segment_id, slot_count;
    intptr_t *slots;
} segment;
typedef struct module_info {
    uint16_t nvtx, size, module, compatibility;
    size_t segments;
    segment *first;
    intptr_t (*export)(uint32_t id);
    const void *info;
} module_info;
typedef struct virtual_range {
    size_t size;
    const void *ptr;
} virtual_range;
typedef struct heap_description {
    uint16_t compatibility, size;
    uint32_t reserved0, usage, type;
    size_t specific_size;
    const virtual_range *specific;
    uint32_t category, message_type;
    const void *message;
} heap_description;
typedef struct register_batch {
    uint16_t compatibility, size;
    uint32_t type;
    void *heap;
    size_t count, element_size;
    const virtual_range *elements;
    void **handles;
} register_batch;
typedef struct change_batch {
    uint16_t compatibility, size;
    uint32_t type;
    size_t count, element_size;
    const void *elements;
} change_batch;

#ifdef HAVE_NVTX_HEADER
#include <nvtx3/nvToolsExtMem.h>
#define SAME(ours, theirs, member, its)                                                                                \
    _Static_assert(sizeof(ours) == sizeof(theirs) && offsetof(ours, member) == offsetof(theirs, its), #ours)
SAME(segment, nvtxExtModuleSegment_t, slots, functionSlots);
SAME(module_info, nvtxExtModuleInfo_t, compatibility, compatId);
SAME(module_info, nvtxExtModuleInfo_t, first, segments);
SAME(virtual_range, nvtxMemVirtualRangeDesc_t, ptr, ptr);
SAME(heap_description, nvtxMemHeapDesc_t, usage, usage);
SAME(heap_description, nvtxMemHeapDesc_t, specific, typeSpecificDesc);
SAME(heap_description, nvtxMemHeapDesc_t, message, message);
SAME(register_batch, nvtxMemRegionsRegisterBatch_t, heap, heap);
SAME(register_batch, nvtxMemRegionsRegisterBatch_t, elements, regionDescElements);
SAME(change_batch, nvtxMemRegionsResizeBatch_t, elements, regionDescElements);
SAME(change_batch, nvtxMemRegionsUnregisterBatch_t, elements, refElements);
_Static_assert(NVTX_VERSION == 3 && NVTX_EXT_MODULEID_MEM == 1 && NVTX_EXT_COMPATID_MEM == 0x0102, "numbers");
_Static_assert(NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR == 1 && NVTX_MEM_TYPE_VIRTUAL_ADDRESS == 1 &&
                   NVTX_MEM_REGION_REF_TYPE_POINTER == 1 && NVTX_EXTENSION_DISABLED == 1,
               "numbers");
_Static_assert(NVTX3EXT_CBID_nvtxMemHeapRegister == 0 && NVTX3EXT_CBID_nvtxMemHeapUnregister == 1 &&
                   NVTX3EXT_CBID_nvtxMemRegionsRegister == 3 && NVTX3EXT_CBID_nvtxMemRegionsResize == 4 &&
                   NVTX3EXT_CBID_nvtxMemRegionsUnregister == 5,
               "numbers of calls");
#endif

#define QUESTION                  __attribute__((visibility("default")))
#define X(type, name, parameters) QUESTION type name parameters;
TOOL_QUESTIONS(X)
#undef X
QUESTION int InitializeInjectionNvtxExtension(module_info *info);

enum { MOST = 256 };
typedef struct span {
    bool used;
    const char *start;
    size_t bytes;
    struct span *heap; /* of a region */
} span;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static span heaps[MOST], regions[MOST];
static size_t calls;
static const char *mistake;

static void expect(bool right, const char *what)
{
    if (!right && !mistake)
        mistake = what;
}

/* Whether the calling thread has a context, as the stub of libcuda.so.1 sees it. */
static bool in_context(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, "stub_count") : NULL;
    uint64_t (*stub_count)(const char *what);
    memcpy(&stub_count, &symbol, sizeof symbol);
    return symbol && stub_count("depth") > 0;
}

static void begin(void)
{
    pthread_mutex_lock(&lock);
    calls++;
    expect(in_context(), "something by a thread without a context");
}

static void end(void)
{
    pthread_mutex_unlock(&lock);
}

static span *starting_at(span *list, const void *start)
{
    for (span *s = list; s < list + MOST; s++)
        if (s->used && s->start == start)
            return s;
    return NULL;
}

static bool touches(const span *s, const char *start, size_t bytes)
{
    return s->used && s->start < start + bytes && start < s->start + s->bytes;
}

static span *add(span *list, const char *start, size_t bytes, span *heap)
{
    span *free_one = NULL;
    for (span *s = list; s < list + MOST; s++) {
        expect(!touches(s, start, bytes), "two of them overlap");
        if (!s->used)
            free_one = s;
    }
    expect(free_one && bytes > 0, "an empty one, or too many");
    if (free_one)
        *free_one = (span){true, start, bytes, heap};
    return free_one;
}

static void check_head(uint16_t compatibility, uint16_t size, size_t right_size, uint32_t type)
{
    expect(compatibility == 0x0102 && size == right_size && type == 1, "a wrong head of a description");
}

static bool within(const span *heap, const char *start, size_t bytes)
{
    return start >= heap->start && start + bytes <= heap->start + heap->bytes;
}

static void *register_heap(void *domain, const heap_description *d)
{
    (void)domain;
    begin();
    check_head(d->compatibility, d->size, sizeof *d, d->type);
    expect(d->usage == 1 && d->specific_size == sizeof *d->specific, "no heap of a sub-allocator");
    span *heap = add(heaps, d->specific->ptr, d->specific->size, NULL);
    end();
    return heap;
}

static void unregister_heap(void *domain, void *handle)
{
    (void)domain;
    begin();
    span *heap = handle;
    bool known = heap >= heaps && heap < heaps + MOST && heap->used;
    expect(known, "the end of a heap that is none");
    for (span *r = regions; r < regions + MOST; r++)
        expect(!r->used || r->heap != heap, "the end of a heap with regions in it");
    if (known)
        heap->used = false;
    end();
}

static void register_regions(void *domain, const register_batch *d)
{
    (void)domain;
    begin();
    check_head(d->compatibility, d->size, sizeof *d, d->type);
    expect(d->count == 1 && d->element_size == sizeof *d->elements, "not one region");
    span *heap = d->heap;
    expect(heap && heap->used && within(heap, d->elements->ptr, d->elements->size), "a region outside of its heap");
    add(regions, d->elements->ptr, d->elements->size, heap);
    end();
}

static void resize_regions(void *domain, const change_batch *d)
{
    (void)domain;
    begin();
    const virtual_range *range = d->elements;
    check_head(d->compatibility, d->size, sizeof *d, d->type);
    expect(d->count == 1 && d->element_size == sizeof *range, "not one region");
    span *region = starting_at(regions, range->ptr);
    expect(region && within(region->heap, range->ptr, range->size), "a new size for no region, or beyond its heap");
    if (region)
        region->bytes = range->size;
    end();
}

static void unregister_regions(void *domain, const change_batch *d)
{
    (void)domain;
    begin();
    const void *const *start = d->elements;
    check_head(d->compatibility, d->size, sizeof *d, d->type);
    expect(d->count == 1 && d->element_size == sizeof *start, "not one region");
    span *region = starting_at(regions, *start);
    expect(region != NULL, "the end of a region that is none");
    if (region)
        region->used = false;
    end();
}

int InitializeInjectionNvtxExtension(module_info *info)
{
    const char *how = getenv("TOOL_IS");
    expect(info->nvtx == 3 && info->size == sizeof *info && info->module == 1 && info->compatibility == 0x0102 &&
               info->segments == 1 && info->first->segment_id == 1 && info->first->slot_count == 63,
           "a wrong description of the module");
    intptr_t *slots = info->first->slots;
    slots[0] = (intptr_t)register_heap;
    slots[1] = (intptr_t)unregister_heap;
    slots[3] = (intptr_t)register_regions;
    slots[4] = how && strcmp(how, "lacking") == 0 ? 1 : (intptr_t)resize_regions;
    slots[5] = (intptr_t)unregister_regions;
    return !how || strcmp(how, "deaf") != 0;
}

static size_t count(const span *list)
{
    size_t n = 0;
    pthread_mutex_lock(&lock);
    for (const span *s = list; s < list + MOST; s++)
        n += s->used;
    end();
    return n;
}

size_t tool_heaps(void)
{
    return count(heaps);
}

size_t tool_regions(void)
{
    return count(regions);
}

size_t tool_calls(void)
{
    return calls;
}

size_t tool_region(const void *start)
{
    const span *region = starting_at(regions, start);
    return region ? region->bytes : 0;
}

int tool_heap(const void *address, size_t *before, size_t *behind)
{
    for (const span *s = heaps; s < heaps + MOST; s++)
        if (touches(s, address, 1)) {
            *before = (size_t)((const char *)address - s->start);
            *behind = s->bytes - *before;
            return 1;
        }
    return 0;
}

const char *tool_mistake(void)
{
    return mistake;
}
