/* Virtual-memory management over one memfd per device: a handle is a piece of the file and may be mapped at two addresses.
 * Handles of the host's memory have a file each, and take nothing of the device's.
 *
 * Strict where it matters: whole granules, whole handles, unmapping whole mappings alone, access on fully mapped ranges,
 * free addresses only without mappings. What is unmapped or was given no access really faults. */
#include "stub.h"

#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>

typedef struct handle {
    CUmemGenericAllocationHandle id; /* never used twice, but where a test wants that */
    int device;                      /* of a host's: the one whose context was current */
    int file;                        /* of a host's; else -1 */
    uint64_t offset, bytes;
    uint64_t mappings;
    bool released;
    unsigned retained; /* to be released so many times more */
    struct handle *next;
} handle;

/* One granule of a reservation. A mapping begins where `first` is set. */
typedef struct cell {
    handle *handle;
    bool first;
} cell;

typedef struct reservation {
    int device; /* whose context was current */
    char *address;
    uint64_t bytes;
    cell *cells;
    struct reservation *next;
} reservation;

static handle *handles;
static reservation *reservations;
static CUmemGenericAllocationHandle last_id;

static bool whole(uint64_t bytes)
{
    return bytes != 0 && bytes % STUB_GRANULE == 0;
}

static bool on_host(const CUmemAllocationProp *p)
{
    return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA &&
           p->location.id == 0 && !stub.unreachable;
}

/* Of a part of a device (CUDA 13.5) the stub has the device. */
static CUmemAllocationProp of_whole_device(const CUmemAllocationProp *p)
{
    enum { LOCATION_PART_OF_DEVICE = 6, DEVICE_OF_PART = 0xff };
    CUmemAllocationProp whole = *p;
    if (p->location.type == LOCATION_PART_OF_DEVICE)
        whole.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, p->location.id & DEVICE_OF_PART};
    return whole;
}

static bool right_kind(const CUmemAllocationProp *p)
{
    return on_host(p) ||
           (p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            p->location.id >= 0 && p->location.id < stub.devices);
}

CUresult stub_cuMemGetInfo(size_t *available, size_t *total)
{
    STUB_CALL(cuMemGetInfo, STUB_IN_CONTEXT);
    pthread_mutex_lock(&stub.lock);
    const stub_device *device = &stub.device[stub_current()->device];
    *total = device->total;
    *available = device->total - wi_min(device->total, device->taken + device->used);
    pthread_mutex_unlock(&stub.lock);
    return CUDA_SUCCESS;
}

CUresult stub_cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties, int option)
{
    STUB_CALL(cuMemGetAllocationGranularity, 0);
    if (!right_kind(properties) || option < 0 || option > 1)
        return STUB_INVALID_VALUE;
    *bytes = STUB_GRANULE;
    return CUDA_SUCCESS;
}

/* Addresses -------------------------------------------------------------------------------------------------------- */

static void *close_addresses(char *address, uint64_t bytes, int flags)
{
    return mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

static char *reserve(uint64_t bytes, uint64_t alignment)
{
    char *raw = close_addresses(NULL, bytes + alignment, 0);
    if (raw == MAP_FAILED)
        return NULL;
    char *start = (char *)wi_round_up((uintptr_t)raw, alignment);
    if (start > raw)
        munmap(raw, (size_t)(start - raw));
    munmap(start + bytes, (size_t)(raw + alignment - start));
    return start;
}

CUresult stub_cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
                                  unsigned long long flags)
{
    (void)wish;
    STUB_CALL(cuMemAddressReserve, STUB_IN_CONTEXT | STUB_UNSAFE);
    if (!whole(bytes) || flags != 0 || (alignment != 0 && !wi_power_of_two(alignment)))
        return STUB_INVALID_VALUE;
    reservation *r = calloc(1, sizeof *r);
    cell *cells = calloc(bytes / STUB_GRANULE, sizeof *cells);
    char *start = r && cells ? reserve(bytes, wi_max(alignment, STUB_GRANULE)) : NULL;
    if (!start) {
        free(r);
        free(cells);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&stub.lock);
    *r = (reservation){stub_current()->device, start, bytes, cells, reservations};
    reservations = r;
    stub.device[r->device].count.reservations++;
    pthread_mutex_unlock(&stub.lock);
    *address = (CUdeviceptr)(uintptr_t)start;
    return CUDA_SUCCESS;
}

/* With the lock held: the granules of [address, + bytes), which must lie in one reservation of the current device's. */
static cell *find_cells(CUdeviceptr address, uint64_t bytes)
{
    if (address % STUB_GRANULE != 0 || !whole(bytes))
        return NULL;
    for (reservation *r = reservations; r; r = r->next) {
        CUdeviceptr start = (CUdeviceptr)(uintptr_t)r->address;
        if (stub_is_here(r->device) && address >= start && address < start + r->bytes)
            return bytes <= start + r->bytes - address ? r->cells + (address - start) / STUB_GRANULE : NULL;
    }
    return NULL;
}

CUresult stub_cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    STUB_CALL(cuMemAddressFree, STUB_IN_CONTEXT | STUB_UNSAFE);
    CUresult result = STUB_INVALID_VALUE;
    pthread_mutex_lock(&stub.lock);
    for (reservation **at = &reservations; *at; at = &(*at)->next) {
        reservation *r = *at;
        if ((CUdeviceptr)(uintptr_t)r->address != address || r->bytes != bytes || !stub_is_here(r->device))
            continue;
        bool mapped = false;
        for (uint64_t i = 0; i < bytes / STUB_GRANULE; i++)
            mapped |= r->cells[i].handle != NULL;
        if (mapped)
            break;
        munmap(r->address, bytes);
        *at = r->next;
        stub.device[r->device].count.reservations--;
        free(r->cells);
        free(r);
        result = CUDA_SUCCESS;
        break;
    }
    pthread_mutex_unlock(&stub.lock);
    return result;
}

/* Handles ---------------------------------------------------------------------------------------------------------- */

static bool open_memory(stub_device *device)
{
    if (device->memory >= 0)
        return true;
    device->granules = calloc(device->total / STUB_GRANULE, 1);
    device->memory = memfd_create("stub-cuda", MFD_CLOEXEC);
    return device->granules && device->memory >= 0 && ftruncate(device->memory, (off_t)device->total) == 0;
}

/* The first run of unused granules that is long enough. */
static bool find_piece(const stub_device *device, uint64_t bytes, uint64_t *offset)
{
    uint64_t wanted = bytes / STUB_GRANULE, run = 0;
    for (uint64_t i = 0; i < device->total / STUB_GRANULE; i++) {
        run = device->granules[i] ? 0 : run + 1;
        if (run == wanted) {
            *offset = (i + 1 - wanted) * STUB_GRANULE;
            return true;
        }
    }
    return false;
}

static CUresult create_on_host(CUmemGenericAllocationHandle *out, uint64_t bytes)
{
    handle *made = calloc(1, sizeof *made);
    int file = memfd_create("stub-cuda-host", MFD_CLOEXEC);
    if (!made || file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        if (file >= 0)
            close(file);
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&stub.lock);
    *made = (handle){.id = ++last_id, .device = stub_current()->device, .file = file, .bytes = bytes, .next = handles};
    stub.device[made->device].count.host_handles++;
    handles = made;
    *out = made->id;
    pthread_mutex_unlock(&stub.lock);
    return CUDA_SUCCESS;
}

CUresult stub_cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *properties,
                          unsigned long long flags)
{
    STUB_CALL(cuMemCreate, STUB_IN_CONTEXT | STUB_UNSAFE);
    const CUmemAllocationProp of_whole = of_whole_device(properties);
    properties = &of_whole;
    if (!right_kind(properties) || !whole(bytes) || flags != 0)
        return STUB_INVALID_VALUE;
    if (on_host(properties))
        return create_on_host(out, bytes);
    if (!stub_is_here(properties->location.id))
        return STUB_INVALID_CONTEXT;
    handle *made = calloc(1, sizeof *made);
    pthread_mutex_lock(&stub.lock);
    stub_device *device = &stub.device[properties->location.id];
    uint64_t offset, taken = device->taken + device->used;
    bool fits = made && taken <= device->total && bytes <= device->total - taken && open_memory(device) &&
                find_piece(device, bytes, &offset);
    if (fits) {
        memset(device->granules + offset / STUB_GRANULE, 1, bytes / STUB_GRANULE);
        stub_use(device, bytes, true);
        device->count.handles++;
        *made = (handle){.id = ++last_id,
                         .device = properties->location.id,
                         .file = -1,
                         .offset = offset,
                         .bytes = bytes,
                         .next = handles};
        handles = made;
        *out = made->id;
    }
    pthread_mutex_unlock(&stub.lock);
    if (!fits)
        free(made);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* With the lock held: of the current device's. */
static handle *find_handle(CUmemGenericAllocationHandle id)
{
    handle *h = handles;
    while (h && (h->id != id || h->released || !stub_is_here(h->device)))
        h = h->next;
    return h;
}

/* With the lock held: its memory goes back once it is released and mapped nowhere. */
static void forget(handle *h)
{
    if (!h->released || h->mappings > 0)
        return;
    stub_device *device = &stub.device[h->device];
    if (h->file >= 0) {
        close(h->file);
    } else {
        memset(device->granules + h->offset / STUB_GRANULE, 0, h->bytes / STUB_GRANULE);
        stub_use(device, h->bytes, false);
        (void)fallocate(device->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)h->offset, (off_t)h->bytes);
    }
    *(h->file >= 0 ? &device->count.host_handles : &device->count.handles) -= 1;
    handle **at = &handles;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    free(h);
}

CUresult stub_cuMemRelease(CUmemGenericAllocationHandle id)
{
    STUB_CALL(cuMemRelease, STUB_IN_CONTEXT | STUB_UNSAFE);
    pthread_mutex_lock(&stub.lock);
    handle *h = find_handle(id);
    if (h && h->retained) {
        h->retained--;
    } else if (h) {
        h->released = true;
        forget(h);
        last_id = stub.reuse ? id - 1 : last_id;
    }
    pthread_mutex_unlock(&stub.lock);
    if (h)
        stub_freed();
    return h ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

/* Mappings --------------------------------------------------------------------------------------------------------- */

static CUresult map(CUdeviceptr address, handle *h)
{
    cell *cells = find_cells(address, h->bytes);
    if (!cells)
        return STUB_INVALID_VALUE;
    for (uint64_t i = 0; i < h->bytes / STUB_GRANULE; i++)
        if (cells[i].handle)
            return STUB_INVALID_VALUE;
    if (mmap((void *)(uintptr_t)address, h->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
             h->file >= 0 ? h->file : stub.device[h->device].memory, (off_t)h->offset) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < h->bytes / STUB_GRANULE; i++)
        cells[i] = (cell){h, i == 0};
    h->mappings++;
    stub.device[h->device].count.mappings++;
    return CUDA_SUCCESS;
}

CUresult stub_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
                       unsigned long long flags)
{
    STUB_CALL(cuMemMap, STUB_IN_CONTEXT | STUB_UNSAFE);
    pthread_mutex_lock(&stub.lock);
    handle *h = find_handle(id);
    CUresult result = h && bytes == h->bytes && offset == 0 && flags == 0 ? map(address, h) : STUB_INVALID_VALUE;
    pthread_mutex_unlock(&stub.lock);
    return result;
}

/* Whether mappings begin at the first and end at the last of these granules, with nothing unmapped between them. */
static bool whole_mappings(const cell *cells, uint64_t granules)
{
    uint64_t at = 0;
    while (at < granules && cells[at].first)
        at += cells[at].handle->bytes / STUB_GRANULE;
    return at == granules;
}

CUresult stub_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    STUB_CALL(cuMemUnmap, STUB_IN_CONTEXT | STUB_UNSAFE);
    uint64_t granules = bytes / STUB_GRANULE;
    pthread_mutex_lock(&stub.lock);
    cell *cells = find_cells(address, bytes);
    bool done = cells && whole_mappings(cells, granules) &&
                close_addresses((char *)(uintptr_t)address, bytes, MAP_FIXED) != MAP_FAILED;
    for (uint64_t i = 0; done && i < granules; i++) {
        handle *h = cells[i].first ? cells[i].handle : NULL;
        cells[i] = (cell){0};
        if (!h)
            continue;
        h->mappings--;
        stub.device[h->device].count.mappings--;
        forget(h);
    }
    pthread_mutex_unlock(&stub.lock);
    return done ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

CUresult stub_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    STUB_CALL(cuMemSetAccess, STUB_IN_CONTEXT | STUB_UNSAFE);
    if (!access || count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE || access->location.id < 0 ||
        access->location.id >= stub.devices ||
        (access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE && access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ))
        return STUB_INVALID_VALUE;
    if (!stub_is_here(access->location.id)) /* there are no peers */
        return STUB_INVALID_DEVICE;
    pthread_mutex_lock(&stub.lock);
    cell *cells = find_cells(address, bytes);
    bool mapped = cells && cells[0].first;
    for (uint64_t i = 0; mapped && i < bytes / STUB_GRANULE; i++)
        mapped = cells[i].handle != NULL;
    if (mapped)
        mapped = mprotect((void *)(uintptr_t)address, bytes,
                          access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_READ | PROT_WRITE) == 0;
    pthread_mutex_unlock(&stub.lock);
    return mapped ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

int stub_mapped_on(CUdeviceptr address)
{
    for (const reservation *r = reservations; r; r = r->next) {
        CUdeviceptr start = (CUdeviceptr)(uintptr_t)r->address;
        const handle *h =
            address >= start && address < start + r->bytes ? r->cells[(address - start) / STUB_GRANULE].handle : NULL;
        if (h)
            return h->device;
    }
    return -1;
}

/* The same number, which is to be released once more. */
CUresult stub_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    STUB_CALL(cuMemRetainAllocationHandle, STUB_IN_CONTEXT);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    handle *found = NULL;
    pthread_mutex_lock(&stub.lock);
    for (const reservation *r = reservations; r && !found; r = r->next) {
        CUdeviceptr start = (CUdeviceptr)(uintptr_t)r->address;
        found = at >= start && at < start + r->bytes ? r->cells[(at - start) / STUB_GRANULE].handle : NULL;
    }
    if (found) {
        found->retained += !found->released;
        found->released = false;
        *out = found->id;
    }
    pthread_mutex_unlock(&stub.lock);
    return found ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

/* One that another process has made: it takes none of this one's. */
CUresult stub_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *shared, int type)
{
    STUB_CALL(cuMemImportFromShareableHandle, 0);
    (void)shared;
    (void)type;
    *out = ++last_id;
    return CUDA_SUCCESS;
}
