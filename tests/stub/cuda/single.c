/* Memory piece by piece: at once, and from pools in stream order. Pieces come from the C allocator, which sees overruns.
 *
 * Stricter than the real one: what came from a pool goes back into it, and nothing else does. */
#include "stream.h"

enum { ALIGNMENT = 256, LOCATION_HOST = 2 };

typedef enum piece_kind { FREED, DEVICE, PINNED, POOLED, REGISTERED } piece_kind;

/* A piece; one of a pool stays in the list when it is freed, with the point from which on another stream may have it. */
typedef struct piece {
    struct piece *next;
    piece_kind kind;
    int device;
    void *address;
    uint64_t bytes, reserved; /* what it counts for on the device */
    CUmemoryPool pool;
    stub_line *line;
    uint64_t sequence;
} piece;

struct CUmemPoolHandle_st {
    int device;
    bool on_host; /* its memory is none of the device's */
    uint64_t held, threshold;
    int wait_inside; /* may make a stream wait for the release of what it is given */
};

static piece *pieces;                   /* with the lock held */
static _Atomic(CUmemoryPool) destroyed; /* the last one: the next that is made has its address */

/* With the lock held: NULL when the device has not so much. */
static piece *make(piece_kind kind, int ordinal, uint64_t bytes, uint64_t reserved)
{
    stub_device *device = &stub.device[ordinal];
    uint64_t taken = stub_in_use(device);
    if (bytes == 0 || taken > device->total || reserved > device->total - taken)
        return NULL;
    piece *p = calloc(1, sizeof *p);
    void *address = NULL;
    if (!p || posix_memalign(&address, ALIGNMENT, bytes) != 0) {
        free(p);
        return NULL;
    }
    *p = (piece){pieces, kind, ordinal, address, bytes, reserved, NULL, NULL, 0};
    pieces = p;
    stub_use(device, reserved, true);
    device->count.allocations++;
    device->count.pinned += kind == PINNED;
    return p;
}

/* With the lock held. */
static void unmake(piece **at)
{
    piece *p = *at;
    *at = p->next;
    stub_use(&stub.device[p->device], p->reserved, false);
    if (p->pool)
        p->pool->held -= p->reserved;
    stub.device[p->device].count.allocations -= p->kind != FREED;
    stub.device[p->device].count.pinned -= p->kind == PINNED;
    free(p->address);
    free(p);
}

/* With the lock held. */
static piece **find(const void *address, piece_kind kind)
{
    piece **at = &pieces;
    while (*at && ((*at)->address != address || (*at)->kind != kind))
        at = &(*at)->next;
    return at;
}

/* At once ---------------------------------------------------------------------------------------------------------- */

static CUresult allocate(piece_kind kind, uint64_t bytes, void **address)
{
    pthread_mutex_lock(&stub.lock);
    const piece *p = make(kind, stub_current()->device, bytes, kind == DEVICE ? bytes : 0);
    if (p)
        *address = p->address;
    pthread_mutex_unlock(&stub.lock);
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Waits for everything, as the real one does: what is pinned any device may be at work with. */
static CUresult release(piece_kind kind, const void *address)
{
    stub_wait_for_all(kind == PINNED ? -1 : stub_current()->device);
    pthread_mutex_lock(&stub.lock);
    piece **at = find(address, kind);
    bool found = *at && (kind == PINNED || stub_is_here((*at)->device));
    if (found)
        unmake(at);
    pthread_mutex_unlock(&stub.lock);
    if (found)
        stub_freed();
    return found ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

CUresult stub_cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    STUB_CALL(cuMemAlloc, STUB_IN_CONTEXT | STUB_UNSAFE);
    void *start = NULL;
    CUresult result = allocate(DEVICE, bytes, &start);
    *address = (CUdeviceptr)(uintptr_t)start;
    return result;
}

CUresult stub_cuMemFree(CUdeviceptr address)
{
    STUB_CALL(cuMemFree, STUB_IN_CONTEXT | STUB_UNSAFE);
    return release(DEVICE, (const void *)(uintptr_t)address);
}

CUresult stub_cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    STUB_CALL(cuMemHostAlloc, STUB_IN_CONTEXT | STUB_UNSAFE);
    return flags == CU_MEMHOSTALLOC_PORTABLE ? allocate(PINNED, bytes, address) : STUB_INVALID_VALUE;
}

CUresult stub_cuMemFreeHost(void *address)
{
    STUB_CALL(cuMemFreeHost, STUB_IN_CONTEXT | STUB_UNSAFE);
    return release(PINNED, address);
}

CUresult stub_cuMemAllocHost(void **address, size_t bytes)
{
    STUB_CALL(cuMemAllocHost, STUB_IN_CONTEXT | STUB_UNSAFE);
    return allocate(PINNED, bytes, address);
}

/* The memory is the program's. */
CUresult stub_cuMemHostRegister(void *address, size_t bytes, unsigned flags)
{
    STUB_CALL(cuMemHostRegister, STUB_IN_CONTEXT | STUB_UNSAFE);
    (void)flags;
    if (!address || bytes == 0)
        return STUB_INVALID_VALUE;
    pthread_mutex_lock(&stub.lock);
    bool there = *find(address, REGISTERED);
    piece *p = there ? NULL : calloc(1, sizeof *p);
    if (p) {
        *p = (piece){.next = pieces, .kind = REGISTERED, .device = stub_current()->device, .address = address};
        pieces = p;
        stub.device[p->device].count.registered++;
    }
    pthread_mutex_unlock(&stub.lock);
    return p ? CUDA_SUCCESS : there ? STUB_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stub_cuMemHostUnregister(void *address)
{
    STUB_CALL(cuMemHostUnregister, STUB_IN_CONTEXT | STUB_UNSAFE);
    stub_wait_for_all(-1);
    pthread_mutex_lock(&stub.lock);
    piece **at = find(address, REGISTERED), *p = *at;
    if (p) {
        *at = p->next;
        stub.device[p->device].count.registered--;
        free(p);
    }
    pthread_mutex_unlock(&stub.lock);
    return p ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

CUresult stub_cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    enum { ROW = 512 };
    STUB_CALL(cuMemAllocPitch, STUB_IN_CONTEXT | STUB_UNSAFE);
    if ((element != 4 && element != 8 && element != 16) || !width || !height || width > SIZE_MAX - ROW ||
        height > SIZE_MAX / wi_round_up(width, ROW))
        return STUB_INVALID_VALUE;
    void *start = NULL;
    *pitch = wi_round_up(width, ROW);
    CUresult result = allocate(DEVICE, *pitch * height, &start);
    *address = (CUdeviceptr)(uintptr_t)start;
    return result;
}

CUresult stub_cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags)
{
    STUB_CALL(cuMemAllocManaged, STUB_IN_CONTEXT | STUB_UNSAFE);
    void *start = NULL;
    CUresult result = flags == 1 || flags == 2 ? allocate(DEVICE, bytes, &start) : STUB_INVALID_VALUE;
    *address = (CUdeviceptr)(uintptr_t)start;
    return result;
}

/* Pools ------------------------------------------------------------------------------------------------------------ */

CUresult stub_cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *p)
{
    STUB_CALL(cuMemPoolCreate, STUB_UNSAFE);
    bool on_host = p->location.type == LOCATION_HOST;
    if (p->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || p->handleTypes > 1 || p->maxSize != 0 || p->usage != 0 ||
        (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE && !on_host) || p->location.id < 0 ||
        p->location.id >= stub.devices)
        return STUB_INVALID_VALUE;
    CUmemoryPool pool = atomic_exchange(&destroyed, NULL);
    if (!pool && !(pool = malloc(sizeof *pool)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = (struct CUmemPoolHandle_st){.device = p->location.id, .on_host = on_host, .wait_inside = 1};
    pthread_mutex_lock(&stub.lock);
    stub.device[pool->device].count.pools++;
    pthread_mutex_unlock(&stub.lock);
    *out = pool;
    return CUDA_SUCCESS;
}

/* With the lock held: gives back what nobody has and the device is past, down to `keep` bytes. */
static void trim(CUmemoryPool pool, uint64_t keep)
{
    for (piece **at = &pieces; *at && pool->held > keep;) {
        const piece *p = *at;
        if (p->pool == pool && p->kind == FREED && stub_done(p->line, p->sequence))
            unmake(at);
        else
            at = &(*at)->next;
    }
}

CUresult stub_cuMemPoolDestroy(CUmemoryPool pool)
{
    STUB_CALL(cuMemPoolDestroy, STUB_UNSAFE);
    stub_wait_for_all(pool->device);
    pthread_mutex_lock(&stub.lock);
    trim(pool, 0);
    for (piece *p = pieces; p; p = p->next)
        if (p->pool == pool) /* still somebody's: it stays and is counted */
            p->pool = NULL;
    stub.device[pool->device].count.pools--;
    pthread_mutex_unlock(&stub.lock);
    free(atomic_exchange(&destroyed, pool));
    return CUDA_SUCCESS;
}

CUresult stub_cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    STUB_CALL(cuMemPoolSetAttribute, 0);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&stub.lock);
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold = *(unsigned long long *)value;
    else if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        pool->wait_inside = *(int *)value;
    else
        result = STUB_INVALID_VALUE;
    pthread_mutex_unlock(&stub.lock);
    return result;
}

CUresult stub_cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    STUB_CALL(cuMemPoolGetAttribute, 0);
    if (attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        return STUB_INVALID_VALUE;
    pthread_mutex_lock(&stub.lock);
    *(unsigned long long *)value = pool->held;
    pthread_mutex_unlock(&stub.lock);
    return CUDA_SUCCESS;
}

CUresult stub_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    STUB_CALL(cuMemPoolTrimTo, 0);
    pthread_mutex_lock(&stub.lock);
    trim(pool, keep);
    pthread_mutex_unlock(&stub.lock);
    return CUDA_SUCCESS;
}

/* What every synchronisation does to pools beyond their threshold. */
void stub_trim_pools(void)
{
    pthread_mutex_lock(&stub.lock);
    for (bool again = true; again;) {
        again = false;
        for (const piece *p = pieces; p && !again; p = p->next) {
            again =
                p->pool && p->kind == FREED && p->pool->held > p->pool->threshold && stub_done(p->line, p->sequence);
            if (again)
                trim(p->pool, p->pool->threshold);
        }
    }
    pthread_mutex_unlock(&stub.lock);
}

/* In stream order -------------------------------------------------------------------------------------------------- */

/* With the lock held. *late: another stream is to wait for the release. */
static piece *find_freed(CUmemoryPool pool, uint64_t bytes, const stub_line *line, bool *late)
{
    piece *found = NULL;
    *late = false;
    for (piece *p = pieces; p; p = p->next) {
        if (p->pool != pool || p->kind != FREED || p->bytes != bytes)
            continue;
        if (p->line == line || stub_done(p->line, p->sequence)) {
            *late = false;
            return p;
        }
        if (pool->wait_inside)
            found = p;
    }
    *late = found;
    return found;
}

/* With the lock held. */
static piece *make_pooled(CUmemoryPool pool, uint64_t bytes)
{
    uint64_t reserved = pool->on_host ? 0 : wi_round_up(bytes, STUB_GRANULE);
    piece *p = make(POOLED, pool->device, bytes, reserved);
    if (!p) {
        trim(pool, 0);
        p = make(POOLED, pool->device, bytes, reserved);
    }
    if (p) {
        p->pool = pool;
        pool->held += reserved;
    }
    return p;
}

CUresult stub_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    STUB_CALL(cuMemAllocFromPoolAsync, STUB_IN_CONTEXT);
    bool late;
    CUresult result = stub_find_stream(&stream);
    if (result == CUDA_SUCCESS && !stub_is_here(pool->device))
        result = STUB_INVALID_VALUE;
    if (result == CUDA_SUCCESS) /* it would become memory of the graph's, which nothing here is made for */
        result = stub_break_capture(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&stub.lock);
    piece *p = find_freed(pool, bytes, stream->line, &late);
    stub_line *other = NULL;
    uint64_t sequence = 0;
    if (p && late) {
        other = p->line;
        sequence = p->sequence;
    }
    if (p) {
        p->kind = POOLED;
        stub.device[p->device].count.allocations++;
    } else {
        p = make_pooled(pool, bytes);
    }
    if (p)
        *address = (CUdeviceptr)(uintptr_t)p->address;
    pthread_mutex_unlock(&stub.lock);
    if (other)
        return stub_put_wait(stream, other, sequence);
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Each device has a pool from the beginning, which gives back what it does not need. On a captured stream the memory becomes
 * the graph's, which here is had at once and for good. */
static struct CUmemPoolHandle_st defaults[STUB_MOST_DEVICES];
static CUmemoryPool chosen[STUB_MOST_DEVICES];

CUresult stub_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    STUB_CALL(cuDeviceGetDefaultMemPool, 0);
    if (device < 0 || device >= stub.devices)
        return STUB_INVALID_DEVICE;
    defaults[device].device = device;
    *pool = &defaults[device];
    return CUDA_SUCCESS;
}

CUresult stub_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    STUB_CALL(cuDeviceSetMemPool, 0);
    if (device < 0 || device >= stub.devices || pool->device != device)
        return STUB_INVALID_VALUE;
    chosen[device] = pool;
    return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    STUB_CALL(cuDeviceGetMemPool, 0);
    if (device < 0 || device >= stub.devices)
        return STUB_INVALID_DEVICE;
    defaults[device].device = device;
    *pool = chosen[device] ? chosen[device] : &defaults[device];
    return CUDA_SUCCESS;
}

/* The host has a pool as well, which is never chosen anew. */
CUresult stub_cuMemGetDefaultMemPool(CUmemoryPool *pool, const CUmemLocation *where, int type)
{
    static struct CUmemPoolHandle_st of_host = {.on_host = true};
    STUB_CALL(cuMemGetDefaultMemPool, 0);
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return STUB_INVALID_VALUE;
    if (where->type != LOCATION_HOST)
        return stub_cuDeviceGetDefaultMemPool(pool, where->id);
    *pool = &of_host;
    return CUDA_SUCCESS;
}

CUresult stub_cuMemGetMemPool(CUmemoryPool *pool, const CUmemLocation *where, int type)
{
    STUB_CALL(cuMemGetMemPool, 0);
    bool of_device = type == CU_MEM_ALLOCATION_TYPE_PINNED && where->type == CU_MEM_LOCATION_TYPE_DEVICE;
    return of_device ? stub_cuDeviceGetMemPool(pool, where->id) : stub_cuMemGetDefaultMemPool(pool, where, type);
}

CUresult stub_cuMemSetMemPool(const CUmemLocation *where, int type, CUmemoryPool pool)
{
    STUB_CALL(cuMemSetMemPool, 0);
    bool of_device = type == CU_MEM_ALLOCATION_TYPE_PINNED && where->type == CU_MEM_LOCATION_TYPE_DEVICE;
    return of_device ? stub_cuDeviceSetMemPool(where->id, pool) : STUB_INVALID_VALUE;
}

/* There is no other process. */
// NOLINTNEXTLINE(readability-non-const-parameter) ; it is CUDA's
CUresult stub_cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, void *shared)
{
    STUB_CALL(cuMemPoolImportPointer, 0);
    (void)address;
    (void)pool;
    (void)shared;
    return STUB_NOT_PERMITTED;
}

CUresult stub_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    STUB_CALL(cuMemPoolSetAccess, 0);
    return pool && access && count ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

CUresult stub_cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    STUB_CALL(cuMemAllocAsync, STUB_IN_CONTEXT);
    int device = stub_current()->device;
    CUstream found = stream;
    CUresult result = stub_find_stream(&found);
    if (result != CUDA_SUCCESS)
        return result;
    if (found->capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        void *start = NULL;
        result = allocate(DEVICE, bytes, &start);
        *address = (CUdeviceptr)(uintptr_t)start;
        return result;
    }
    defaults[device].device = device;
    return stub_cuMemAllocFromPoolAsync(address, bytes, chosen[device] ? chosen[device] : &defaults[device], stream);
}

CUresult stub_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    STUB_CALL(cuMemFreeAsync, STUB_IN_CONTEXT);
    CUresult result = stub_find_stream(&stream);
    if (result == CUDA_SUCCESS)
        result = stub_break_capture(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&stub.lock);
    piece *p = *find((const void *)(uintptr_t)address, POOLED);
    p = p && stub_is_here(p->device) ? p : NULL;
    if (p) {
        p->kind = FREED;
        p->line = stream->line;
        p->sequence = stub_queued(stream->line);
        stub.device[p->device].count.allocations--;
    }
    pthread_mutex_unlock(&stub.lock);
    if (p)
        stub_freed();
    return p ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

CUresult stub_cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return stub_cuMemAllocAsync(address, bytes, stream ? stream : CU_STREAM_PER_THREAD);
}

CUresult stub_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return stub_cuMemAllocFromPoolAsync(address, bytes, pool, stream ? stream : CU_STREAM_PER_THREAD);
}

CUresult stub_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return stub_cuMemFreeAsync(address, stream ? stream : CU_STREAM_PER_THREAD);
}

/* Whose an address is --------------------------------------------------------------------------------------------- */

/* With the lock held. */
static const piece *find_around(CUdeviceptr address)
{
    const piece *p = pieces;
    while (p && (p->kind == FREED || address < (CUdeviceptr)(uintptr_t)p->address ||
                 address - (CUdeviceptr)(uintptr_t)p->address >= p->bytes))
        p = p->next;
    return p;
}

int stub_allocated_on(CUdeviceptr address)
{
    const piece *p = find_around(address);
    return p && p->kind != PINNED ? p->device : -1;
}

/* Of mapped memory the real one tells what is mapped there. */
CUresult stub_cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    STUB_CALL(cuMemGetAddressRange, STUB_IN_CONTEXT);
    pthread_mutex_lock(&stub.lock);
    const piece *p = find_around(address);
    bool mapped = !p && stub_mapped_on(address) >= 0;
    if (p) {
        *base = (CUdeviceptr)(uintptr_t)p->address;
        *bytes = p->bytes;
    } else if (mapped) {
        *base = address & ~(CUdeviceptr)(STUB_GRANULE - 1);
        *bytes = STUB_GRANULE;
    }
    pthread_mutex_unlock(&stub.lock);
    return p || mapped ? CUDA_SUCCESS : STUB_NOT_FOUND;
}

CUresult stub_cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr address)
{
    STUB_CALL(cuPointerGetAttributes, 0);
    for (unsigned i = 0; i < count; i++)
        if (stub_cuPointerGetAttribute(values[i], attributes[i], address) != CUDA_SUCCESS)
            memset(values[i], 0, sizeof(int));
    return CUDA_SUCCESS;
}

/* For a piece of cuMemAlloc's alone. */
CUresult stub_cuIpcGetMemHandle(stub_ipc_handle *handle, CUdeviceptr address)
{
    STUB_CALL(cuIpcGetMemHandle, STUB_IN_CONTEXT);
    pthread_mutex_lock(&stub.lock);
    const piece *p = *find((const void *)(uintptr_t)address, DEVICE);
    pthread_mutex_unlock(&stub.lock);
    memcpy(handle->reserved, &address, sizeof address);
    return p ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

CUresult stub_cuIpcOpenMemHandle(CUdeviceptr *address, stub_ipc_handle handle, unsigned flags)
{
    STUB_CALL(cuIpcOpenMemHandle, STUB_IN_CONTEXT);
    (void)flags;
    memcpy(address, handle.reserved, sizeof *address);
    return CUDA_SUCCESS;
}

/* An array is as many bytes, whatever its format; one of several levels is as large as its first. */
static CUresult make_array(void **array, const stub_array_descriptor *what)
{
    *array = NULL;
    return allocate(DEVICE, what->width * wi_max(what->height, 1) * wi_max(what->depth, 1) * what->channels, array);
}

CUresult stub_cuArray3DCreate(CUarray *array, const stub_array_descriptor *what)
{
    STUB_CALL(cuArray3DCreate, STUB_IN_CONTEXT | STUB_UNSAFE);
    return make_array((void **)array, what);
}

CUresult stub_cuArrayCreate(CUarray *array, const stub_flat_descriptor *what)
{
    STUB_CALL(cuArrayCreate, STUB_IN_CONTEXT | STUB_UNSAFE);
    const stub_array_descriptor same = {what->width, what->height, 0, what->format, what->channels, 0};
    return make_array((void **)array, &same);
}

CUresult stub_cuMipmappedArrayCreate(CUmipmappedArray *array, const stub_array_descriptor *what, unsigned levels)
{
    STUB_CALL(cuMipmappedArrayCreate, STUB_IN_CONTEXT | STUB_UNSAFE);
    return levels ? make_array((void **)array, what) : STUB_INVALID_VALUE;
}

CUresult stub_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    STUB_CALL(cuMipmappedArrayDestroy, STUB_IN_CONTEXT | STUB_UNSAFE);
    return release(DEVICE, array);
}

CUresult stub_cuArrayDestroy(CUarray array)
{
    STUB_CALL(cuArrayDestroy, STUB_IN_CONTEXT | STUB_UNSAFE);
    return release(DEVICE, array);
}

CUresult stub_cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address)
{
    enum { HOST = 1, OF_DEVICE = 2 };
    STUB_CALL(cuPointerGetAttribute, 0);
    pthread_mutex_lock(&stub.lock);
    const piece *p = find_around(address);
    int device = p ? p->device : stub_mapped_on(address);
    unsigned type = p && p->kind == PINNED ? HOST : OF_DEVICE;
    pthread_mutex_unlock(&stub.lock);
    if (device < 0 ||
        (attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL && attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE))
        return STUB_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        memcpy(value, &device, sizeof device);
    else
        memcpy(value, &type, sizeof type);
    return CUDA_SUCCESS;
}
