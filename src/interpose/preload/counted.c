/* Memory that stays CUDA's and counts: managed memory, arrays, the host's. It is claimed before CUDA is asked for it, and
 * given back to the budget when CUDA has it back. */
#include "interpose/preload/preload.h"
#include "base/maps.h"

/* What there is ---------------------------------------------------------------------------------------------------- */

typedef struct noted {
    wp_device *device; /* NULL: the host's */
    uint64_t bytes;
} noted;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wi_pointer_map maps[WP_KINDS];

static const void *counted_key_of(uint64_t key)
{
    return (const void *)(uintptr_t)key; // NOLINT(performance-no-int-to-ptr)
}

static bool counted_put(wp_kind kind, uint64_t key, const noted *it)
{
    pthread_mutex_lock(&lock);
    bool done = wi_pointer_map_put(&maps[kind], counted_key_of(key), (uintptr_t)it);
    pthread_mutex_unlock(&lock);
    return done;
}

bool wp_count_noted(wp_kind kind, uint64_t key, wp_device *device, uint64_t bytes)
{
    noted *it = malloc(sizeof *it);
    if (!it)
        return false;
    *it = (noted){device, bytes};
    bool done = counted_put(kind, key, it);
    if (!done)
        free(it);
    return done; // NOLINT(clang-analyzer-unix.Malloc): the map has it
}

static void counted_give_back(wp_kind kind, wp_device *device, uint64_t bytes)
{
    if (device)
        wp_uncharge(device, kind, bytes);
    else
        wp_uncharge_host(kind == WP_KIND_DIRECT ? WP_KIND_PINNED : kind, bytes); /* of a pool on the host */
}

wp_leaving wp_count_leave(wp_kind kind, uint64_t key)
{
    uint64_t value = 0;
    pthread_mutex_lock(&lock);
    (void)wi_pointer_map_remove(&maps[kind], counted_key_of(key), &value);
    pthread_mutex_unlock(&lock);
    return (wp_leaving){kind, key, (void *)(uintptr_t)value}; // NOLINT(performance-no-int-to-ptr)
}

CUresult wp_count_left(wp_leaving leaving, CUresult result)
{
    noted *it = leaving.note;
    if (!it || (result != CUDA_SUCCESS && counted_put(leaving.kind, leaving.key, it)))
        return result;
    counted_give_back(leaving.kind, it->device, it->bytes);
    free(it);
    return result;
}

/* A claim for a call of CUDA's: taken before, and kept or given back by its answer. */
typedef struct claim {
    wp_kind kind;
    wp_device *device;
    uint64_t bytes;
} claim;

static bool counted_take(claim *c, wp_kind kind, wp_device *device, uint64_t bytes)
{
    *c = (claim){kind, device, bytes};
    return device ? wp_charge(device, kind, bytes) : wp_charge_host(kind, bytes);
}

/* Without host memory for the note the memory would be lost to the budget for good: it goes back to CUDA by `undo`. */
#define SETTLE(c, result, key, undo)                                                                                   \
    do {                                                                                                               \
        if ((result) != CUDA_SUCCESS) {                                                                                \
            counted_give_back((c)->kind, (c)->device, (c)->bytes);                                                     \
        } else if (!wp_count_noted((c)->kind, (uint64_t)(uintptr_t)(key), (c)->device, (c)->bytes)) {                  \
            (void)(undo);                                                                                              \
            counted_give_back((c)->kind, (c)->device, (c)->bytes);                                                     \
            (result) = CUDA_ERROR_OUT_OF_MEMORY;                                                                       \
        }                                                                                                              \
    } while (0)

/* Managed memory --------------------------------------------------------------------------------------------------- */

/* It may come to the device whole. */
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags)
{
    WP_ENTER(cuMemAllocManaged);
    bool primary;
    CUresult result;
    claim c;
    wp_device *d = out && bytes ? wp_device_here(&primary, &result) : NULL;
    if (!d)
        return out && bytes && result == CUDA_ERROR_OUT_OF_MEMORY ? result
                                                                  : wp_real.cuMemAllocManaged(out, bytes, flags);
    if (!counted_take(&c, WP_KIND_MANAGED, d, wp_spent(bytes)))
        return wp_refuse(d->ordinal, "cuMemAllocManaged", bytes);
    result = wp_real.cuMemAllocManaged(out, bytes, flags);
    SETTLE(&c, result, *out, wp_real.cuMemFree_v2(*out));
    return result;
}

/* Arrays ----------------------------------------------------------------------------------------------------------- */

/* Of a channel. What is packed or compressed has less; it is counted for more rather than for less. */
static uint64_t bytes_of_format(unsigned format)
{
    switch (format) {
    case 0x01: /* 8 bits */
    case 0x08:
        return 1;
    case 0x02: /* 16 bits */
    case 0x09:
    case 0x10:
        return 2;
    default:
        return 4;
    }
}

static uint64_t dimension(size_t size)
{
    return size ? size : 1;
}

static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *a)
{
    return dimension(a->Width) * dimension(a->Height) * dimension(a->Depth) * bytes_of_format(a->Format) *
           dimension(a->NumChannels);
}

/* Adds up the bytes of all levels. A level has half the size of the previous level in each direction; the sum is
 * smallest in 3 dimensions and largest in 1 dimension: twice the first level. */
static uint64_t bytes_of_levels(CUDA_ARRAY3D_DESCRIPTOR a, unsigned levels)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < levels && i < 32; i++) {
        sum += bytes_of(&a);
        a.Width = wi_max(a.Width / 2, 1);
        a.Height /= 2;
        a.Depth /= 2;
    }
    return sum;
}

/* Whether an array is to be counted, as one that is backed by the program itself is not; *result otherwise. */
static bool claim_array(const CUDA_ARRAY3D_DESCRIPTOR *what, unsigned levels, const char *function, claim *c,
                        CUresult *result)
{
    bool primary;
    c->device = NULL;
    *result = CUDA_SUCCESS;
    wp_device *d = what->Flags & (WP_ARRAY_SPARSE | WP_ARRAY_DEFERRED) ? NULL : wp_device_here(&primary, result);
    if (!d)
        return false;
    uint64_t bytes = wp_spent(bytes_of_levels(*what, levels));
    if (counted_take(c, WP_KIND_ARRAY, d, bytes))
        return true;
    *result = wp_refuse(d->ordinal, function, bytes);
    return false;
}

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *what)
{
    WP_ENTER(cuArray3DCreate_v2);
    claim c;
    CUresult result = CUDA_SUCCESS;
    if (!out || !what || !claim_array(what, 1, "cuArray3DCreate", &c, &result))
        return out && what && result == CUDA_ERROR_OUT_OF_MEMORY ? result : wp_real.cuArray3DCreate_v2(out, what);
    result = wp_real.cuArray3DCreate_v2(out, what);
    SETTLE(&c, result, *out, wp_real.cuArrayDestroy(*out));
    return result;
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *what)
{
    WP_ENTER(cuArrayCreate_v2);
    claim c;
    CUresult result = CUDA_SUCCESS;
    CUDA_ARRAY3D_DESCRIPTOR same = {0};
    if (what)
        same = (CUDA_ARRAY3D_DESCRIPTOR){
            .Width = what->Width, .Height = what->Height, .Format = what->Format, .NumChannels = what->NumChannels};
    if (!out || !what || !claim_array(&same, 1, "cuArrayCreate", &c, &result))
        return out && what && result == CUDA_ERROR_OUT_OF_MEMORY ? result : wp_real.cuArrayCreate_v2(out, what);
    result = wp_real.cuArrayCreate_v2(out, what);
    SETTLE(&c, result, *out, wp_real.cuArrayDestroy(*out));
    return result;
}

CUresult cuArrayDestroy(CUarray array)
{
    WP_ENTER(cuArrayDestroy);
    wp_leaving leaving = wp_count_leave(WP_KIND_ARRAY, (uintptr_t)array);
    return wp_count_left(leaving, wp_real.cuArrayDestroy(array));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *what, unsigned levels)
{
    WP_ENTER(cuMipmappedArrayCreate);
    claim c;
    CUresult result = CUDA_SUCCESS;
    if (!out || !what || !claim_array(what, levels, "cuMipmappedArrayCreate", &c, &result))
        return out && what && result == CUDA_ERROR_OUT_OF_MEMORY ? result
                                                                 : wp_real.cuMipmappedArrayCreate(out, what, levels);
    result = wp_real.cuMipmappedArrayCreate(out, what, levels);
    SETTLE(&c, result, *out, wp_real.cuMipmappedArrayDestroy(*out));
    return result;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    WP_ENTER(cuMipmappedArrayDestroy);
    wp_leaving leaving = wp_count_leave(WP_KIND_ARRAY, (uintptr_t)array);
    return wp_count_left(leaving, wp_real.cuMipmappedArrayDestroy(array));
}

/* The host's ------------------------------------------------------------------------------------------------------- */

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    WP_ENTER(cuMemHostAlloc);
    claim c;
    if (!out || !bytes)
        return wp_real.cuMemHostAlloc(out, bytes, flags);
    wp_watch_exit();
    if (!counted_take(&c, WP_KIND_PINNED, NULL, bytes))
        return wp_refuse(WP_HOST, "cuMemHostAlloc", bytes);
    CUresult result = wp_real.cuMemHostAlloc(out, bytes, flags);
    SETTLE(&c, result, *out, wp_real.cuMemFreeHost(*out));
    return result;
}

CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    WP_ENTER(cuMemAllocHost_v2);
    claim c;
    if (!out || !bytes)
        return wp_real.cuMemAllocHost_v2(out, bytes);
    wp_watch_exit();
    if (!counted_take(&c, WP_KIND_PINNED, NULL, bytes))
        return wp_refuse(WP_HOST, "cuMemAllocHost", bytes);
    CUresult result = wp_real.cuMemAllocHost_v2(out, bytes);
    SETTLE(&c, result, *out, wp_real.cuMemFreeHost(*out));
    return result;
}

CUresult cuMemFreeHost(void *address)
{
    WP_ENTER(cuMemFreeHost);
    wp_leaving leaving = wp_count_leave(WP_KIND_PINNED, (uintptr_t)address);
    return wp_count_left(leaving, wp_real.cuMemFreeHost(address));
}

CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    WP_ENTER(cuMemHostRegister_v2);
    claim c;
    if (!address || !bytes)
        return wp_real.cuMemHostRegister_v2(address, bytes, flags);
    wp_watch_exit();
    if (!counted_take(&c, WP_KIND_REGISTERED, NULL, bytes))
        return wp_refuse(WP_HOST, "cuMemHostRegister", bytes);
    CUresult result = wp_real.cuMemHostRegister_v2(address, bytes, flags);
    SETTLE(&c, result, address, wp_real.cuMemHostUnregister(address));
    return result;
}

CUresult cuMemHostUnregister(void *address)
{
    WP_ENTER(cuMemHostUnregister);
    wp_leaving leaving = wp_count_leave(WP_KIND_REGISTERED, (uintptr_t)address);
    return wp_count_left(leaving, wp_real.cuMemHostUnregister(address));
}

/* Past the budget -------------------------------------------------------------------------------------------------- */

#define PASSES(symbol, parameters, arguments)                                                                          \
    CUresult symbol parameters                                                                                         \
    {                                                                                                                  \
        WP_ENTER(symbol);                                                                                              \
        return wp_real.symbol arguments;                                                                               \
    }

PASSES(cuIpcOpenMemHandle_v2, (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags), (out, handle, flags))
PASSES(cuMemPoolImportPointer, (CUdeviceptr * out, CUmemoryPool pool, void *shared), (out, pool, shared))
PASSES(cuImportExternalMemory, (CUexternalMemory * out, const void *what), (out, what))
PASSES(cuGraphAddMemAllocNode, (CUgraphNode * out, CUgraph graph, const CUgraphNode *behind, size_t count, void *what),
       (out, graph, behind, count, what))
PASSES(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle * handle, void *shared, int type),
       (handle, shared, type))
