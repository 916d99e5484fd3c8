/* The cuda driver's device and memory: CUDA's library, the primary context, made current by guard, and virtual-memory
 * management. */
#include "driver/cuda.h"

#include <dlfcn.h>

/* Once exit has begun the driver may be gone: no call of ours may reach it. */
static atomic_bool exiting;

static void driver_cuda_begin_exit(void)
{
    atomic_store(&exiting, true);
}

static void watch_exit(void)
{
    atexit(driver_cuda_begin_exit);
}

/* Finding CUDA's driver -------------------------------------------------------------------------------------------- */

wi_cuda_functions wi_cuda;

typedef CUresult (*get_proc)(const char *name, void **function, int version, unsigned long long flags, int *found);
typedef CUresult (*init)(unsigned flags);

static weir_status cuda_library_find_all(void *library)
{
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    if (!symbol)
        return weir_fail(WEIR_ERR_NOT_FOUND,
                         "libcuda.so.1 has no cuGetProcAddress_v2: the driver is older than CUDA 12; "
                         "install a newer one");
    get_proc get;
    memcpy(&get, &symbol, sizeof get);
#define X(name, version, parameters)                                                                                   \
    {                                                                                                                  \
        void *function = NULL;                                                                                         \
        if (get(#name, &function, version, 0, NULL) != CUDA_SUCCESS || !function)                                      \
            return weir_fail(WEIR_ERR_NOT_FOUND, "libcuda.so.1 has no " #name ": install a newer driver");             \
        memcpy(&wi_cuda.name, &function, sizeof function);                                                             \
    }
    WI_CUDA_FUNCTIONS(X)
#undef X
#define X(name, version, parameters)                                                                                   \
    {                                                                                                                  \
        void *later = NULL;                                                                                            \
        if (get(#name, &later, version, 0, NULL) == CUDA_SUCCESS)                                                      \
            memcpy(&wi_cuda.name, &later, sizeof later);                                                               \
    }
    WI_CUDA_LATER(X)
#undef X
    return WEIR_OK;
}

weir_status wi_cuda_load(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    pthread_mutex_lock(&lock);
    weir_status status = WEIR_OK;
    if (!loaded) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        status = library ? cuda_library_find_all(library)
                         : weir_fail(WEIR_ERR_NOT_FOUND,
                                     "no CUDA driver: %s; install the NVIDIA driver (apt install nvidia-driver; for a "
                                     "container: docker run --gpus all), or use the device host",
                                     dlerror());
        loaded = status == WEIR_OK;
        /* A usable library is never closed: it keeps threads and exit handlers of its own. An unusable library is
         * closed, or the next call would get the same library instead of a driver installed meanwhile. */
        if (library && !loaded)
            dlclose(library);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Results ---------------------------------------------------------------------------------------------------------- */

/* After these the context is of no use any more (cuda.h says so of each). */
static bool means_lost(CUresult result)
{
    return (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED) ||
           result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_TIMEOUT || result == CUDA_ERROR_ASSERT ||
           result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_NVLINK_UNCORRECTABLE ||
           result == CUDA_ERROR_CONTAINED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           result == CUDA_ERROR_TENSOR_MEMORY_LEAK;
}

/* What a call may not do while a stream is captured into a graph. */
static bool means_captured(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

weir_status wi_cuda_check(wi_device *device, CUresult result, const char *call)
{
    if (wi_likely(result == CUDA_SUCCESS))
        return WEIR_OK;
    const char *name = NULL, *text = NULL; /* both stay NULL for a code that this driver does not know */
    (void)wi_cuda.cuGetErrorName(result, &name);
    (void)wi_cuda.cuGetErrorString(result, &text);
    if (means_lost(result))
        atomic_store(&device->lost, true);
    if (result == CUDA_ERROR_DEINITIALIZED) /* its exit handlers came before ours */
        atomic_store(&exiting, true);
    weir_status status = atomic_load(&device->lost)           ? WEIR_ERR_DEVICE_LOST
                         : result == CUDA_ERROR_OUT_OF_MEMORY ? WEIR_ERR_OUT_OF_MEMORY
                         : result == CUDA_ERROR_NO_DEVICE     ? WEIR_ERR_NOT_FOUND
                         : means_captured(result)             ? WEIR_ERR_STREAM_MISUSE
                                                              : WEIR_ERR_DRIVER;
    return weir_fail(status, "cuda:%d: %s: %s (%d: %s)%s", device->ordinal, call, name ? name : "?", result,
                     text ? text : "no text",
                     status == WEIR_ERR_DEVICE_LOST ? "; the device is lost to this process: restart it" : "");
}

bool wi_cuda_over(wi_device *device)
{
    return atomic_load(&device->lost) || atomic_load(&exiting);
}

static weir_status fail_exiting(int ordinal)
{
    return weir_fail(WEIR_ERR_DRIVER, "cuda:%d: the process is ending; no driver call is made any more", ordinal);
}

static weir_status fail_lost(int ordinal)
{
    return weir_fail(WEIR_ERR_DEVICE_LOST, "cuda:%d is lost to this process: restart it", ordinal);
}

static void driver_cuda_pop(const wi_cuda_guard *guard)
{
    CUcontext ignored;
    if (guard->pushed)
        (void)wi_cuda.cuCtxPopCurrent(&ignored);
}

weir_status wi_cuda_begin(wi_device *device, wi_cuda_guard *guard)
{
    *guard = (wi_cuda_guard){.capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    if (wi_unlikely(atomic_load(&exiting)))
        return fail_exiting(device->ordinal);
    if (wi_unlikely(atomic_load(&device->lost)))
        return fail_lost(device->ordinal);
    CUcontext current = NULL;
    CUresult result = wi_cuda.cuCtxGetCurrent(&current);
    if (result == CUDA_SUCCESS && current != device->context) {
        result = wi_cuda.cuCtxPushCurrent(device->context);
        guard->pushed = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        result = wi_cuda.cuThreadExchangeStreamCaptureMode(&guard->capture_mode);
        if (result != CUDA_SUCCESS)
            driver_cuda_pop(guard);
    }
    return wi_cuda_check(device, result, "making the context current");
}

void wi_cuda_end(wi_cuda_guard *guard)
{
    (void)wi_cuda.cuThreadExchangeStreamCaptureMode(&guard->capture_mode);
    driver_cuda_pop(guard);
}

/* The device ------------------------------------------------------------------------------------------------------- */

static weir_status driver_cuda_choose_device(wi_device *device)
{
    int count = 0, managed = 0;
    weir_status status = wi_cuda_check(device, wi_cuda.cuInit(0), "cuInit");
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuDeviceGetCount(&count), "cuDeviceGetCount");
    if (status == WEIR_OK && device->ordinal >= count)
        status = weir_fail(WEIR_ERR_NOT_FOUND, "there is no cuda:%d; this process sees %d CUDA devices",
                           device->ordinal, count);
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuDeviceGet(&device->device, device->ordinal), "cuDeviceGet");
    if (status == WEIR_OK)
        status = wi_cuda_check(device,
                               wi_cuda.cuDeviceGetAttribute(
                                   &managed, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device->device),
                               "cuDeviceGetAttribute");
    device->unmanaged = !managed;
    return status;
}

/* Finds out whether the device maps host memory, from the NUMA node nearest to the device. A driver that does not know
 * the question answers with an error, which means no. */
static void look_at_host(wi_device *device)
{
    int can = 0, node = 0;
    size_t granule = 0;
    if (device->unmanaged ||
        wi_cuda.cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                     device->device) != CUDA_SUCCESS ||
        !can)
        return;
    if (wi_cuda.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device->device) != CUDA_SUCCESS ||
        node < 0)
        node = 0; /* a host of one node may have no number for it */
    device->on_host = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, node}};
    device->reaches_host = wi_cuda.cuMemGetAllocationGranularity(&granule, &device->on_host,
                                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
                           granule > 0 && device->granule % granule == 0;
}

static weir_status set_up(wi_device *device)
{
    size_t granule = 0;
    device->properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->device}};
    weir_status status = WEIR_OK;
    if (device->unmanaged)
        granule = 2 * WI_MIB; /* nominal: no handle is ever made */
    else
        status = wi_cuda_check(
            device,
            wi_cuda.cuMemGetAllocationGranularity(&granule, &device->properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            "cuMemGetAllocationGranularity");
    if (status == WEIR_OK && !wi_power_of_two(granule))
        status = weir_fail(WEIR_ERR_DRIVER, "cuda:%d: an allocation granularity of %zu bytes is no power of two",
                           device->ordinal, granule);
    device->granule = granule;
    if (status == WEIR_OK)
        look_at_host(device);
    void *own = NULL;
    if (status == WEIR_OK)
        status = wi_cuda_stream_create(device, &own);
    device->own_stream = own;
    return status == WEIR_OK ? wi_cuda_new_record(device, &device->all) : status;
}

static void cuda_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles);

static void cuda_close(wi_device *device)
{
    wi_cuda_guard guard;
    if (device->own_stream)
        wi_cuda_stream_destroy(device, device->own_stream);
    wi_cuda_pool_close(device);
    wi_handle shared = device->shared;
    if (shared)
        cuda_destroy(device, device->granule, 1, &shared);
    wi_cuda_streams_clear(device);
    if (device->context && wi_cuda_begin(device, &guard) == WEIR_OK) {
        wi_cuda_end(&guard);
        (void)wi_cuda.cuDevicePrimaryCtxRelease(device->device);
    }
    pthread_mutex_destroy(&device->shared_lock);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static weir_status cuda_open(int ordinal, wi_device **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (atomic_load(&exiting))
        return fail_exiting(ordinal);
    weir_status status = wi_cuda_load();
    if (status != WEIR_OK)
        return status;
    wi_device *device = calloc(1, sizeof *device);
    if (!device)
        return weir_fail(WEIR_ERR_SYSTEM, "cuda: no memory for the device record");
    device->ordinal = ordinal;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->shared_lock, NULL);
    status = driver_cuda_choose_device(device);
    if (status == WEIR_OK)
        status = wi_cuda_check(device, wi_cuda.cuDevicePrimaryCtxRetain(&device->context, device->device),
                               "cuDevicePrimaryCtxRetain");
    if (status == WEIR_OK) {
        pthread_once(&once, watch_exit); /* after cuInit, so that it runs before the driver's own exit handlers */
        status = set_up(device);
    }
    if (status != WEIR_OK) {
        cuda_close(device);
        return status;
    }
    *out = device;
    return WEIR_OK;
}

static weir_status cuda_memory(wi_device *device, uint64_t *available, uint64_t *total)
{
    wi_cuda_guard guard;
    size_t free_bytes = 0, all_bytes = 0;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check(device, wi_cuda.cuMemGetInfo(&free_bytes, &all_bytes), "cuMemGetInfo");
    wi_cuda_end(&guard);
    *available = free_bytes;
    *total = all_bytes;
    return status;
}

static void *cuda_context(wi_device *device)
{
    return device->context;
}

/* Pushed also where it is current already: cudaSetDevice puts another in the place of what is on top. */
static weir_status cuda_enter(wi_device *device)
{
    if (atomic_load(&exiting))
        return fail_exiting(device->ordinal);
    if (atomic_load(&device->lost))
        return fail_lost(device->ordinal);
    return wi_cuda_check(device, wi_cuda.cuCtxPushCurrent(device->context), "cuCtxPushCurrent");
}

static void cuda_leave(wi_device *device)
{
    CUcontext ignored;
    (void)device;
    if (!atomic_load(&exiting))
        (void)wi_cuda.cuCtxPopCurrent(&ignored);
}

static void cuda_within(wi_device *device, void (*fn)(void *user), void *user)
{
    wi_cuda_guard guard;
    if (wi_cuda_begin(device, &guard) != WEIR_OK)
        return;
    fn(user);
    wi_cuda_end(&guard);
}

static uint64_t cuda_granule(wi_device *device)
{
    return device->granule;
}

/* Addresses and handles -------------------------------------------------------------------------------------------- */

static weir_status cuda_reserve(wi_device *device, uint64_t bytes, void **address)
{
    wi_cuda_guard guard;
    CUdeviceptr start = 0;
    if (device->unmanaged)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "cuda:%d has no virtual-memory management", device->ordinal);
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check(device, wi_cuda.cuMemAddressReserve(&start, bytes, 2 * WI_MIB, 0, 0), "cuMemAddressReserve");
    wi_cuda_end(&guard);
    *address = (void *)(uintptr_t)start;
    return status;
}

static void cuda_unreserve(wi_device *device, void *address, uint64_t bytes)
{
    wi_cuda_guard guard;
    if (wi_cuda_begin(device, &guard) != WEIR_OK)
        return;
    (void)wi_cuda.cuMemAddressFree((CUdeviceptr)(uintptr_t)address, bytes);
    wi_cuda_end(&guard);
}

static void cuda_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles)
{
    wi_cuda_guard guard;
    (void)bytes;
    if (wi_cuda_begin(device, &guard) != WEIR_OK)
        return;
    for (size_t i = 0; i < count; i++)
        (void)wi_cuda.cuMemRelease(handles[i]);
    wi_cuda_end(&guard);
}

static weir_status create_like(wi_device *device, const CUmemAllocationProp *properties, uint64_t bytes, size_t count,
                               wi_handle *handles)
{
    wi_cuda_guard guard;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    size_t made = 0;
    for (; made < count; made++) {
        CUmemGenericAllocationHandle handle = 0;
        status = wi_cuda_check(device, wi_cuda.cuMemCreate(&handle, bytes, properties, 0), "cuMemCreate");
        if (status != WEIR_OK)
            break;
        handles[made] = handle;
    }
    if (status != WEIR_OK)
        for (size_t i = 0; i < made; i++)
            (void)wi_cuda.cuMemRelease(handles[i]);
    wi_cuda_end(&guard);
    return status;
}

static weir_status cuda_create(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    return create_like(device, &device->properties, bytes, count, handles);
}

static bool cuda_has_host_handles(wi_device *device)
{
    return device->reaches_host;
}

static weir_status cuda_create_on_host(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    return create_like(device, &device->on_host, bytes, count, handles);
}

static weir_status cuda_map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    wi_cuda_guard guard;
    CUdeviceptr start = (CUdeviceptr)(uintptr_t)address;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    size_t mapped = 0;
    for (; mapped < count; mapped++) {
        status =
            wi_cuda_check(device, wi_cuda.cuMemMap(start + mapped * bytes, bytes, 0, handles[mapped], 0), "cuMemMap");
        if (status != WEIR_OK)
            break;
    }
    if (status == WEIR_OK) {
        CUmemAccessDesc access = {device->properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        status = wi_cuda_check(device, wi_cuda.cuMemSetAccess(start, count * bytes, &access, 1), "cuMemSetAccess");
    }
    if (status != WEIR_OK && mapped > 0)
        (void)wi_cuda.cuMemUnmap(start, mapped * bytes);
    wi_cuda_end(&guard);
    return status;
}

/* cuMemUnmap takes any number of whole mappings away, or refuses and takes none. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the table says so */
static weir_status cuda_unmap(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    wi_cuda_guard guard;
    (void)handles;
    weir_status status = wi_cuda_begin(device, &guard);
    if (status != WEIR_OK)
        return status;
    status = wi_cuda_check(device, wi_cuda.cuMemUnmap((CUdeviceptr)(uintptr_t)address, count * bytes), "cuMemUnmap");
    wi_cuda_end(&guard);
    return status;
}

/* Covered addresses: one handle of a single granule, mapped at every covered granule. */

/* Makes the handle, maps it at an address that is to be covered, and fills it with zeros there. */
static weir_status make_shared(wi_device *device, void *address)
{
    wi_handle made;
    weir_status status = cuda_create(device, device->granule, 1, &made);
    if (status != WEIR_OK)
        return status;
    status = cuda_map(device, address, device->granule, 1, &made);
    if (status == WEIR_OK) {
        status = wi_cuda_fill(device, address, 0, device->granule, NULL);
        if (status != WEIR_OK)
            (void)cuda_unmap(device, address, device->granule, 1, &made);
    }
    if (status == WEIR_OK)
        device->shared = made;
    else
        cuda_destroy(device, device->granule, 1, &made);
    return status;
}

static weir_status cover_with_shared(wi_device *device, void *address, uint64_t bytes)
{
    size_t count = bytes / device->granule;
    wi_handle *handles = malloc((count + !count) * sizeof *handles);
    if (!handles)
        return weir_fail(WEIR_ERR_SYSTEM, "cuda:%d: no host memory to cover %llu bytes", device->ordinal,
                         (unsigned long long)bytes);
    for (size_t i = 0; i < count; i++)
        handles[i] = device->shared;
    weir_status status = count ? cuda_map(device, address, device->granule, count, handles) : WEIR_OK;
    free(handles);
    return status;
}

static weir_status cuda_cover(wi_device *device, void *address, uint64_t bytes)
{
    weir_status status = WEIR_OK;
    uint64_t done = 0;
    pthread_mutex_lock(&device->shared_lock);
    if (!device->shared) {
        status = make_shared(device, address);
        done = status == WEIR_OK ? device->granule : 0;
    }
    pthread_mutex_unlock(&device->shared_lock);
    if (status == WEIR_OK)
        status = cover_with_shared(device, (char *)address + done, bytes - done);
    if (status != WEIR_OK && done)
        (void)cuda_unmap(device, address, done, 1, NULL);
    return status;
}

static weir_status cuda_uncover(wi_device *device, void *address, uint64_t bytes)
{
    return cuda_unmap(device, address, bytes, 1, NULL);
}

const wi_driver wi_cuda_driver = {
    .name = "cuda",
    .ordinals = 64,
    .open = cuda_open,
    .close = cuda_close,
    .memory = cuda_memory,
    .granule = cuda_granule,
    .reserve = cuda_reserve,
    .unreserve = cuda_unreserve,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .allocate = wi_cuda_allocate,
    .release = wi_cuda_release,
    .pool_allocate = wi_cuda_pool_allocate,
    .pool_release = wi_cuda_pool_release,
    .pool_trim = wi_cuda_pool_trim,
    .pool_held = wi_cuda_pool_held,
    .stream_create = wi_cuda_stream_create,
    .stream_adopt = wi_cuda_stream_adopt,
    .stream_abandon = wi_cuda_stream_abandon,
    .stream_default = wi_cuda_stream_default,
    .stream_destroy = wi_cuda_stream_destroy,
    .stream_synchronize = wi_cuda_stream_synchronize,
    .synchronize = wi_cuda_synchronize,
    .stream_native = wi_cuda_stream_native,
    .stream_capturing = wi_cuda_stream_capturing,
    .context = cuda_context,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .within = cuda_within,
    .record = wi_cuda_record,
    .record_all = wi_cuda_record_all,
    .passed = wi_cuda_passed,
    .wait = wi_cuda_wait,
    .order = wi_cuda_order,
    .copy = wi_cuda_copy,
    .fill = wi_cuda_fill,
    .call = wi_cuda_call,
    .cover = cuda_cover,
    .uncover = cuda_uncover,
    .has_host_handles = cuda_has_host_handles,
    .create_on_host = cuda_create_on_host,
    .copy_many = wi_cuda_copy_many,
};
