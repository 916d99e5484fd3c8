/* Physical memory that programs make and map themselves: it is on the device until its handle is released and it is mapped
 * nowhere any more. */
#include "interpose/preload/preload.h"
#include "base/maps.h"

typedef struct memory {
    wp_device *device;
    uint64_t bytes;
    uint64_t held; /* by handles and mappings */
} memory;

/* One number may stand for several handles. */
typedef struct handle {
    memory *of;
    uint64_t count;
} handle;

typedef struct mapping {
    memory *of; /* NULL: of a handle that was imported */
    uint64_t bytes;
} mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wi_pointer_map handles;  /* by number, to a `handle` each */
static wi_pointer_map mappings; /* by address, to a `mapping` each */

static const void *handles_key_of(uint64_t key)
{
    return (const void *)(uintptr_t)key; // NOLINT(performance-no-int-to-ptr)
}

/* With the lock held; NULL: there is none. */
static void *handles_get(const wi_pointer_map *map, uint64_t key)
{
    uint64_t value;
    return wi_pointer_map_get(map, handles_key_of(key), &value) ? (void *)(uintptr_t)value
                                                                : NULL; // NOLINT(performance-no-int-to-ptr)
}

static void *handles_take_out(wi_pointer_map *map, uint64_t key)
{
    uint64_t value;
    return wi_pointer_map_remove(map, handles_key_of(key), &value) ? (void *)(uintptr_t)value
                                                                   : NULL; // NOLINT(performance-no-int-to-ptr)
}

/* With the lock held. Answers what is to be given back to the budget, or NULL. */
static memory *handles_let_go(memory *m)
{
    return m && --m->held == 0 ? m : NULL;
}

static void handles_give_back(memory *m)
{
    if (!m)
        return;
    wp_uncharge(m->device, WP_KIND_HANDLE, m->bytes);
    free(m);
}

/* With the lock held: a handle more of the memory; false: no host memory. */
static bool add_handle(CUmemGenericAllocationHandle number, memory *m)
{
    handle *it = handles_get(&handles, number);
    if (it) {
        it->count++;
        m->held++;
        return true;
    }
    it = malloc(sizeof *it);
    if (it)
        *it = (handle){m, 1};
    bool put = it && wi_pointer_map_put(&handles, handles_key_of(number), (uintptr_t)it);
    m->held += put;
    if (!put)
        free(it);
    return put;
}

static bool enter_handle(CUmemGenericAllocationHandle number, wp_device *d, uint64_t bytes)
{
    memory *m = malloc(sizeof *m);
    if (!m)
        return false;
    *m = (memory){d, bytes, 0};
    pthread_mutex_lock(&lock);
    bool put = add_handle(number, m);
    pthread_mutex_unlock(&lock);
    if (!put)
        free(m);
    return put; // NOLINT(clang-analyzer-unix.Malloc): the handle has it
}

/* Finds the device of which memory at the place is; false: the place is the host, or another one that is no device. */
static bool handles_device_of(const CUmemLocation *where, int *ordinal)
{
    enum { DEVICE_OF_PART = 0xff };
    bool part = where->type == WP_LOCATION_PART_OF_DEVICE;
    *ordinal = part ? where->id & DEVICE_OF_PART : where->id;
    return part || where->type == CU_MEM_LOCATION_TYPE_DEVICE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *number, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags)
{
    WP_ENTER(cuMemCreate);
    int ordinal;
    if (!number || !properties || !handles_device_of(&properties->location, &ordinal))
        return wp_real.cuMemCreate(number, bytes, properties, flags);
    wp_device *d = wp_device_start(ordinal);
    if (!d || !wp_charge(d, WP_KIND_HANDLE, bytes))
        return wp_refuse(ordinal, "cuMemCreate", bytes);
    CUresult result = wp_real.cuMemCreate(number, bytes, properties, flags);
    if (result == CUDA_SUCCESS && enter_handle(*number, d, bytes))
        return CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        (void)wp_real.cuMemRelease(*number);
    wp_uncharge(d, WP_KIND_HANDLE, bytes);
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* Counts a retained handle as a further handle, under the same number or a new number. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *number, void *address)
{
    WP_ENTER(cuMemRetainAllocationHandle);
    CUresult result = wp_real.cuMemRetainAllocationHandle(number, address);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    const handle *known = handles_get(&handles, *number);
    const mapping *at = known ? NULL : handles_get(&mappings, (uintptr_t)address);
    if (known)
        (void)add_handle(*number, known->of);
    else if (at && at->of)
        (void)add_handle(*number, at->of);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Drops a handle, before CUDA is asked to release it, as CUDA may give the number to another handle at once. Returns
 * the handle's memory, which stays held, or NULL. */
static memory *drop_handle(CUmemGenericAllocationHandle number)
{
    pthread_mutex_lock(&lock);
    handle *it = handles_get(&handles, number), *last = NULL;
    memory *of = it ? it->of : NULL;
    if (it && --it->count == 0)
        last = handles_take_out(&handles, number);
    pthread_mutex_unlock(&lock);
    free(last);
    return of;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle number)
{
    WP_ENTER(cuMemRelease);
    memory *of = drop_handle(number), *gone = NULL;
    CUresult result = wp_real.cuMemRelease(number);
    pthread_mutex_lock(&lock);
    bool stays = result != CUDA_SUCCESS && of && add_handle(number, of);
    if (stays)
        of->held--;
    else
        gone = handles_let_go(of);
    pthread_mutex_unlock(&lock);
    handles_give_back(gone);
    return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle number,
                  unsigned long long flags)
{
    WP_ENTER(cuMemMap);
    CUresult result = wp_real.cuMemMap(address, bytes, offset, number, flags);
    mapping *it = result == CUDA_SUCCESS ? malloc(sizeof *it) : NULL;
    if (!it)
        return result;
    pthread_mutex_lock(&lock);
    const handle *of = handles_get(&handles, number);
    *it = (mapping){of ? of->of : NULL, bytes};
    if (!wi_pointer_map_put(&mappings, handles_key_of(address), (uintptr_t)it))
        free(it);
    else if (it->of)
        it->of->held++;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Of what began before weir was there nothing is known: it is stepped over. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    WP_ENTER(cuMemUnmap);
    enum { STEP = 64 * 1024 };
    CUresult result = wp_real.cuMemUnmap(address, bytes);
    for (CUdeviceptr at = address; result == CUDA_SUCCESS && at < address + bytes;) {
        pthread_mutex_lock(&lock);
        mapping *it = handles_take_out(&mappings, at);
        memory *gone = it ? handles_let_go(it->of) : NULL;
        pthread_mutex_unlock(&lock);
        at += it ? it->bytes : STEP;
        handles_give_back(gone);
        free(it);
    }
    return result;
}
