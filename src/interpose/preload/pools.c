/* CUDA's memory pools: what is asked of plain ones is served by weir, and their figures are weir's. */
#include "interpose/preload/preload.h"
#include "base/maps.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wi_pointer_map plain;              /* pools, to the device's ordinal */
static wi_pointer_map cudas;              /* pools that stay CUDA's, to their place, counted from WP_HOST on */
static bool own_pool[WP_DEVICES];         /* the device's current one is not its default */
static CUmemoryPool current[WP_DEVICES];  /* which, then */
static CUmemoryPool defaults[WP_DEVICES]; /* where they were asked for */

static bool preload_pools_is_plain(CUmemoryPool pool, uint64_t *ordinal)
{
    pthread_mutex_lock(&lock);
    bool there = wi_pointer_map_get(&plain, pool, ordinal);
    pthread_mutex_unlock(&lock);
    return there;
}

static void preload_pools_enter(CUmemoryPool pool, int ordinal)
{
    pthread_mutex_lock(&lock);
    (void)wi_pointer_map_put(&plain, pool, (uint64_t)ordinal);
    pthread_mutex_unlock(&lock);
}

static void preload_pools_note_place(CUmemoryPool pool, int place)
{
    pthread_mutex_lock(&lock);
    (void)wi_pointer_map_put(&cudas, pool, (uint64_t)(place - WP_HOST));
    pthread_mutex_unlock(&lock);
}

static void preload_pools_forget(CUmemoryPool pool)
{
    uint64_t ignored;
    pthread_mutex_lock(&lock);
    (void)wi_pointer_map_remove(&plain, pool, &ignored);
    (void)wi_pointer_map_remove(&cudas, pool, &ignored);
    pthread_mutex_unlock(&lock);
}

bool wp_pool_is_plain(const wp_device *d, CUmemoryPool pool)
{
    uint64_t ordinal;
    pthread_mutex_lock(&lock);
    bool own = own_pool[d->ordinal];
    CUmemoryPool asked = pool ? pool : own ? current[d->ordinal] : NULL;
    pthread_mutex_unlock(&lock);
    return !asked || (preload_pools_is_plain(asked, &ordinal) && ordinal == (uint64_t)d->ordinal);
}

int wp_pool_place(const wp_device *d, CUmemoryPool pool)
{
    uint64_t number;
    pthread_mutex_lock(&lock);
    CUmemoryPool asked = pool ? pool : own_pool[d->ordinal] ? current[d->ordinal] : NULL;
    int place = wi_pointer_map_get(&plain, asked, &number)   ? (int)number
                : wi_pointer_map_get(&cudas, asked, &number) ? (int)number + WP_HOST
                                                             : d->ordinal;
    pthread_mutex_unlock(&lock);
    return place;
}

/* A device's own pools ---------------------------------------------------------------------------------------------- */

static bool preload_pools_is_served(int device)
{
    return device >= 0 && device < WP_DEVICES;
}

static void preload_pools_meet_default(CUmemoryPool pool, int device)
{
    pthread_mutex_lock(&lock);
    bool known = defaults[device] == pool;
    defaults[device] = pool;
    pthread_mutex_unlock(&lock);
    if (!known)
        preload_pools_enter(pool, device);
}

/* The current pool of a device is its default pool until another one is chosen. */
static void preload_pools_meet_current(CUmemoryPool pool, int device)
{
    pthread_mutex_lock(&lock);
    bool chosen = own_pool[device];
    pthread_mutex_unlock(&lock);
    if (!chosen)
        preload_pools_meet_default(pool, device);
}

static void preload_pools_choose(CUmemoryPool pool, int device)
{
    pthread_mutex_lock(&lock);
    own_pool[device] = true;
    current[device] = pool;
    pthread_mutex_unlock(&lock);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    WP_ENTER(cuDeviceGetDefaultMemPool);
    CUresult result = wp_real.cuDeviceGetDefaultMemPool(pool, device);
    if (result == CUDA_SUCCESS && preload_pools_is_served(device))
        preload_pools_meet_default(*pool, device);
    return result;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    WP_ENTER(cuDeviceGetMemPool);
    CUresult result = wp_real.cuDeviceGetMemPool(pool, device);
    if (result == CUDA_SUCCESS && preload_pools_is_served(device))
        preload_pools_meet_current(*pool, device);
    return result;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    WP_ENTER(cuDeviceSetMemPool);
    CUresult result = wp_real.cuDeviceSetMemPool(device, pool);
    if (result == CUDA_SUCCESS && preload_pools_is_served(device))
        preload_pools_choose(pool, device);
    return result;
}

/* The same by a place and a type (CUDA 13.0) ------------------------------------------------------------------------ */

/* Whether the place is a device, and the type that of memory that is not managed. */
static bool preload_pools_is_of_device(const CUmemLocation *where, int type)
{
    return type == CU_MEM_ALLOCATION_TYPE_PINNED && where->type == CU_MEM_LOCATION_TYPE_DEVICE &&
           preload_pools_is_served(where->id);
}

static bool preload_pools_is_of_host(const CUmemLocation *where, int type)
{
    return type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           (where->type == WP_LOCATION_HOST || where->type == WP_LOCATION_HOST_NUMA ||
            where->type == WP_LOCATION_HOST_NUMA_CURRENT);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, const CUmemLocation *where, int type)
{
    WP_ENTER(cuMemGetDefaultMemPool);
    CUresult result = wp_real.cuMemGetDefaultMemPool(pool, where, type);
    if (result == CUDA_SUCCESS && preload_pools_is_of_device(where, type))
        preload_pools_meet_default(*pool, where->id);
    if (result == CUDA_SUCCESS && preload_pools_is_of_host(where, type))
        preload_pools_note_place(*pool, WP_HOST);
    return result;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, const CUmemLocation *where, int type)
{
    WP_ENTER(cuMemGetMemPool);
    CUresult result = wp_real.cuMemGetMemPool(pool, where, type);
    if (result == CUDA_SUCCESS && preload_pools_is_of_device(where, type))
        preload_pools_meet_current(*pool, where->id);
    if (result == CUDA_SUCCESS && preload_pools_is_of_host(where, type))
        preload_pools_note_place(*pool, WP_HOST);
    return result;
}

CUresult cuMemSetMemPool(const CUmemLocation *where, int type, CUmemoryPool pool)
{
    WP_ENTER(cuMemSetMemPool);
    CUresult result = wp_real.cuMemSetMemPool(where, type, pool);
    if (result == CUDA_SUCCESS && preload_pools_is_of_device(where, type))
        preload_pools_choose(pool, where->id);
    return result;
}

/* Pools of a program's own ------------------------------------------------------------------------------------------ */

/* A pool whose memory goes to other processes, is managed, or lies elsewhere is CUDA's. */
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    WP_ENTER(cuMemPoolCreate);
    CUresult result = wp_real.cuMemPoolCreate(pool, properties);
    if (result == CUDA_SUCCESS && properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
        properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties->handleTypes == 0)
        preload_pools_enter(*pool, properties->location.id);
    else if (result == CUDA_SUCCESS && preload_pools_is_of_host(&properties->location, properties->allocType))
        preload_pools_note_place(*pool, WP_HOST);
    else if (result == CUDA_SUCCESS && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        preload_pools_note_place(*pool, properties->location.id);
    return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    WP_ENTER(cuMemPoolDestroy);
    preload_pools_forget(pool);
    return wp_real.cuMemPoolDestroy(pool);
}

/* One that others reach is CUDA's from now on, also where it is a device's default. */
static void forget_shared(CUmemoryPool pool, uint64_t ordinal)
{
    uint64_t ignored;
    pthread_mutex_lock(&lock);
    (void)wi_pointer_map_remove(&plain, pool, &ignored);
    (void)wi_pointer_map_put(&cudas, pool, ordinal - (uint64_t)WP_HOST);
    if (defaults[ordinal] == pool && !own_pool[ordinal]) {
        own_pool[ordinal] = true;
        current[ordinal] = pool;
    }
    pthread_mutex_unlock(&lock);
}

/* Other devices do not reach weir's memory. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    WP_ENTER(cuMemPoolSetAccess);
    uint64_t ordinal;
    for (size_t i = 0; access && i < count; i++)
        if (preload_pools_is_plain(pool, &ordinal) &&
            (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || (uint64_t)access[i].location.id != ordinal))
            forget_shared(pool, ordinal);
    return wp_real.cuMemPoolSetAccess(pool, access, count);
}

/* All plain pools of a device have one cache, which is weir's. */
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    WP_ENTER(cuMemPoolGetAttribute);
    uint64_t ordinal;
    weir_stats stats = WEIR_INIT(weir_stats);
    const wp_device *d = value && preload_pools_is_plain(pool, &ordinal) ? wp_device_started((int)ordinal) : NULL;
    bool ours = attribute >= WP_POOL_RESERVED && attribute <= WP_POOL_USED_HIGH && d && !wp_settings_of()->direct;
    if (!ours || weir_snapshot(d->runtime, &stats, NULL, 0, NULL) != WEIR_OK)
        return wp_real.cuMemPoolGetAttribute(pool, attribute, value);
    const uint64_t figures[] = {stats.held, stats.peak_held, stats.live, stats.peak};
    memcpy(value, &figures[attribute - WP_POOL_RESERVED], sizeof *figures);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    WP_ENTER(cuMemPoolTrimTo);
    uint64_t ordinal;
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_trim_options options = WEIR_INIT(weir_trim_options);
    wp_device *d = preload_pools_is_plain(pool, &ordinal) ? wp_device_started((int)ordinal) : NULL;
    if (d && weir_snapshot(d->runtime, &stats, NULL, 0, NULL) == WEIR_OK) {
        uint64_t used = stats.live + stats.pending;
        options.keep = keep > used ? keep - used : 0;
        (void)!weir_runtime_trim(d->runtime, &options, NULL);
    }
    return wp_real.cuMemPoolTrimTo(pool, keep);
}
