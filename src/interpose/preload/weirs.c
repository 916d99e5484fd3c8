/* What libweir itself asks CUDA for, where there is a tree of processes: it counts there before CUDA is asked, and CUDA is as
 * large as what the tree leaves. libweir does then what it does on a device with less memory than its budget. */
#include "interpose/preload/preload.h"
#include "base/maps.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wi_pointer_map handles, blocks; /* to bytes and ordinal of what counts */

enum { ORDINAL_BITS = 6 };
_Static_assert(WP_DEVICES == 1 << ORDINAL_BITS, "an ordinal fits");

static const void *weirs_key_of(uint64_t key)
{
    return (const void *)(uintptr_t)key; // NOLINT(performance-no-int-to-ptr)
}

/* Without host memory for the note it would count for good: false. */
static bool weirs_note(wi_pointer_map *map, uint64_t key, int ordinal, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    bool put = wi_pointer_map_put(map, weirs_key_of(key), bytes << ORDINAL_BITS | (uint64_t)ordinal);
    pthread_mutex_unlock(&lock);
    return put;
}

/* Before CUDA is asked to free it, as it may give the number to another one at once. */
static uint64_t weirs_forget(wi_pointer_map *map, uint64_t key)
{
    uint64_t value = 0;
    pthread_mutex_lock(&lock);
    (void)wi_pointer_map_remove(map, weirs_key_of(key), &value);
    pthread_mutex_unlock(&lock);
    return value;
}

/* What CUDA has not taken back counts on. */
static CUresult freed(wi_pointer_map *map, uint64_t key, uint64_t value, CUresult result)
{
    int ordinal = (int)(value % WP_DEVICES);
    uint64_t bytes = value >> ORDINAL_BITS;
    if (bytes && (result == CUDA_SUCCESS || !weirs_note(map, key, ordinal, bytes)))
        wp_tree_give(ordinal, bytes);
    return result;
}

static int ordinal_here(void)
{
    CUdevice device = 0;
    return wp_real.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : 0;
}

/* The functions ---------------------------------------------------------------------------------------------------- */

static CUresult weirs_create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                             unsigned long long flags)
{
    int ordinal = properties->location.id;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return wp_real.cuMemCreate(handle, bytes, properties, flags);
    if (!wp_tree_take(ordinal, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = wp_real.cuMemCreate(handle, bytes, properties, flags);
    if (result == CUDA_SUCCESS && !weirs_note(&handles, *handle, ordinal, bytes)) {
        (void)wp_real.cuMemRelease(*handle);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        wp_tree_give(ordinal, bytes);
    return result;
}

static CUresult weirs_release(CUmemGenericAllocationHandle handle)
{
    uint64_t value = weirs_forget(&handles, handle);
    return freed(&handles, handle, value, wp_real.cuMemRelease(handle));
}

static CUresult allocated(CUresult result, const CUdeviceptr *out, int ordinal, uint64_t spent)
{
    if (result == CUDA_SUCCESS && !weirs_note(&blocks, *out, ordinal, spent)) {
        (void)wp_real.cuMemFree_v2(*out);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        wp_tree_give(ordinal, spent);
    return result;
}

static CUresult weirs_allocate(CUdeviceptr *out, size_t bytes)
{
    int ordinal = ordinal_here();
    uint64_t spent = wp_spent(bytes);
    return wp_tree_take(ordinal, spent) ? allocated(wp_real.cuMemAlloc_v2(out, bytes), out, ordinal, spent)
                                        : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate_from_pool(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    int ordinal = ordinal_here();
    uint64_t spent = wp_spent(bytes);
    return wp_tree_take(ordinal, spent)
               ? allocated(wp_real.cuMemAllocFromPoolAsync(out, bytes, pool, stream), out, ordinal, spent)
               : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult free_block(CUdeviceptr address)
{
    uint64_t value = weirs_forget(&blocks, address);
    return freed(&blocks, address, value, wp_real.cuMemFree_v2(address));
}

static CUresult weirs_free_async(CUdeviceptr address, CUstream stream)
{
    uint64_t value = weirs_forget(&blocks, address);
    return freed(&blocks, address, value, wp_real.cuMemFreeAsync(address, stream));
}

static CUresult get_info(size_t *available, size_t *total)
{
    CUresult result = wp_real.cuMemGetInfo_v2(available, total);
    if (result != CUDA_SUCCESS)
        return result;
    wp_tree_view all = wp_tree_look(ordinal_here());
    uint64_t taken = all.mine + all.others;
    *available = wi_min(*available, all.budget > taken ? all.budget - taken : 0);
    return result;
}

/* By name ---------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*ours)(void);
} functions[] = {
    {"cuMemCreate", (void (*)(void))weirs_create},
    {"cuMemRelease", (void (*)(void))weirs_release},
    {"cuMemAlloc", (void (*)(void))weirs_allocate},
    {"cuMemFree", (void (*)(void))free_block},
    {"cuMemAllocFromPoolAsync", (void (*)(void))allocate_from_pool},
    {"cuMemFreeAsync", (void (*)(void))weirs_free_async},
    {"cuMemGetInfo", (void (*)(void))get_info},
};

CUresult wp_get_for_weir(const char *name, void **function, int version, uint64_t flags, int *found)
{
    if (!wp_find_cuda())
        return WP_NOT_INITIALIZED;
    CUresult result = wp_real.cuGetProcAddress_v2(name, function, version, flags, found);
    for (size_t i = 0; i < sizeof functions / sizeof *functions && result == CUDA_SUCCESS && *function; i++)
        if (strcmp(functions[i].name, name) == 0)
            memcpy(function, &functions[i].ours, sizeof *function);
    return result;
}
