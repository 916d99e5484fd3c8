/* Answers questions of programs about memory: the amount, the owner of an address, and access from devices. */
#include "interpose/preload/preload.h"

#include <stdio.h>

/* How much --------------------------------------------------------------------------------------------------------- */

/* Before anything was allocated nothing is started for a question: the option alone says what the budget is. */
static void bound(int ordinal, size_t *available, size_t *total)
{
    wp_device *d = wp_device_started(ordinal);
    char name[16];
    if (d) {
        wp_left(d, available, total);
        return;
    }
    snprintf(name, sizeof name, "cuda:%d", ordinal);
    uint64_t given = wp_budget_given(name);
    wp_tree_view all = wp_tree_look(ordinal);
    uint64_t budget = given ? wi_min(given, all.budget) : all.budget;
    *available = wi_min(*available, wi_min(budget, all.budget - wi_min(all.budget, all.others)));
    *total = wi_min(*total, budget);
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    WP_ENTER(cuMemGetInfo_v2);
    CUdevice device;
    CUresult result = wp_real.cuMemGetInfo_v2(available, total);
    if (result == CUDA_SUCCESS && wp_real.cuCtxGetDevice(&device) == CUDA_SUCCESS)
        bound(device, available, total);
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    WP_ENTER(cuDeviceTotalMem_v2);
    size_t ignored = 0;
    CUresult result = wp_real.cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS)
        bound(device, &ignored, bytes);
    return result;
}

/* Which of CUDA's devices NVML means, by its place on the bus; -1: that is not known, as before CUDA is initialized. The first
 * one's budget is told then, which is mostly that of all. */
static int preload_answers_ordinal_of(nvmlDevice_t device)
{
    nvmlPciInfo_t pci;
    unsigned domain, bus, slot;
    char text[32];
    if (!wp_real.nvmlDeviceGetPciInfo_v3 || wp_real.nvmlDeviceGetPciInfo_v3(device, &pci) != 0)
        return -1;
    (void)wp_find_cuda();
    for (int i = 0; i < WP_DEVICES && wp_real.cuDeviceGetPCIBusId; i++)
        if (wp_real.cuDeviceGetPCIBusId(text, sizeof text, i) == CUDA_SUCCESS &&
            sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3 && domain == pci.domain && bus == pci.bus &&
            slot == pci.device)
            return i;
    return -1;
}

/* The part of the budget that is not free is in use. */
static void bound_nvml(nvmlDevice_t device, unsigned long long *total, unsigned long long *available,
                       unsigned long long *taken)
{
    size_t left = *available, all = *total;
    int ordinal = preload_answers_ordinal_of(device);
    bound(ordinal < 0 ? 0 : ordinal, &left, &all);
    if (ordinal < 0)
        left = wi_min(*available, all);
    *total = all;
    *available = wi_min(left, all);
    *taken = *total - *available;
}

int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    WP_ENTER(nvmlDeviceGetPciInfo_v3);
    return wp_real.nvmlDeviceGetPciInfo_v3(device, pci);
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    WP_ENTER(nvmlDeviceGetMemoryInfo);
    int result = wp_real.nvmlDeviceGetMemoryInfo(device, memory);
    if (result == 0)
        bound_nvml(device, &memory->total, &memory->free, &memory->used);
    return result;
}

int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    WP_ENTER(nvmlDeviceGetMemoryInfo_v2);
    int result = wp_real.nvmlDeviceGetMemoryInfo_v2(device, memory);
    if (result == 0) {
        bound_nvml(device, &memory->total, &memory->free, &memory->used);
        memory->reserved = 0;
    }
    return result;
}

/* What an address belongs to --------------------------------------------------------------------------------------- */

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    WP_ENTER(cuMemGetAddressRange_v2);
    weir_block_details its;
    wp_device *d;
    if (!wp_block_at(address, &its, &d) || its.state != WEIR_BLOCK_LIVE)
        return wp_real.cuMemGetAddressRange_v2(base, bytes, address);
    if (base)
        *base = (CUdeviceptr)(uintptr_t)its.block.pointer;
    if (bytes)
        *bytes = its.bytes;
    return CUDA_SUCCESS;
}

/* What CUDA tells of mapped memory differently than of memory of cuMemAlloc's; false: nothing. */
static bool preload_answers_tell(int attribute, void *value, const weir_block_details *its, const wp_device *d)
{
    unsigned long long id = its->block.generation | UINT64_C(1) << 63; /* none of CUDA's */
    CUdeviceptr start = (CUdeviceptr)(uintptr_t)its->block.pointer;
    switch (attribute) {
    case WP_POINTER_CONTEXT:
        memcpy(value, &d->context, sizeof d->context);
        return true;
    case WP_POINTER_BUFFER_ID:
        memcpy(value, &id, sizeof id);
        return true;
    case WP_POINTER_RANGE_START:
        memcpy(value, &start, sizeof start);
        return true;
    case WP_POINTER_RANGE_SIZE:
        memcpy(value, &its->bytes, sizeof its->bytes);
        return true;
    default:
        return false;
    }
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address)
{
    WP_ENTER(cuPointerGetAttribute);
    weir_block_details its;
    wp_device *d;
    if (value && wp_block_at(address, &its, &d) && its.state == WEIR_BLOCK_LIVE &&
        preload_answers_tell(attribute, value, &its, d))
        return CUDA_SUCCESS;
    return wp_real.cuPointerGetAttribute(value, attribute, address);
}

CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr address)
{
    WP_ENTER(cuPointerGetAttributes);
    weir_block_details its;
    wp_device *d;
    CUresult result = wp_real.cuPointerGetAttributes(count, attributes, values, address);
    if (result == CUDA_SUCCESS && wp_block_at(address, &its, &d) && its.state == WEIR_BLOCK_LIVE)
        for (unsigned i = 0; i < count; i++)
            (void)preload_answers_tell(attributes[i], values[i], &its, d);
    return result;
}

/* Other processes map allocations of cuMemAlloc's alone. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    WP_ENTER(cuIpcGetMemHandle);
    weir_block_details its;
    wp_device *d;
    if (!wp_block_at(address, &its, &d))
        return wp_real.cuIpcGetMemHandle(handle, address);
    wp_note(WP_EVENT_NO_IPC);
    weir_log(WEIR_LOG_WARNING,
             "cuIpcGetMemHandle: weir's memory cannot be given to other processes: weir exec --direct");
    return WP_NOT_SUPPORTED;
}

/* Who reaches it --------------------------------------------------------------------------------------------------- */

/* Access for peers, once allowed, holds for all memory of cuMemAlloc's, and for none that is mapped: programs copy then. */
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    WP_ENTER(cuDeviceCanAccessPeer);
    CUresult result = wp_real.cuDeviceCanAccessPeer(can, device, peer);
    if (result == CUDA_SUCCESS && !wp_settings_of()->direct)
        *can = 0;
    return result;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    WP_ENTER(cuCtxEnablePeerAccess);
    return wp_settings_of()->direct ? wp_real.cuCtxEnablePeerAccess(peer, flags) : WP_PEER_ACCESS_UNSUPPORTED;
}

CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice from, CUdevice to)
{
    WP_ENTER(cuDeviceGetP2PAttribute);
    CUresult result = wp_real.cuDeviceGetP2PAttribute(value, attribute, from, to);
    if (result == CUDA_SUCCESS && !wp_settings_of()->direct &&
        (attribute == WP_P2P_ACCESS_SUPPORTED || attribute == WP_P2P_ARRAY_ACCESS_SUPPORTED))
        *value = 0;
    return result;
}

/* The end of a context --------------------------------------------------------------------------------------------- */

typedef struct blocks {
    const weir_client *client;
    void **list;
    size_t count, capacity;
} blocks;

/* Collects the live blocks of a client. The spans of a block are consecutive. */
static void preload_answers_collect(const weir_segment *segment, const weir_span *span, void *user)
{
    blocks *all = user;
    (void)segment;
    if (span->state != WEIR_SPAN_LIVE || span->client != all->client)
        return;
    if (all->count && all->list[all->count - 1] == span->block.pointer)
        return;
    if (all->count == all->capacity) {
        size_t capacity = all->capacity ? all->capacity * 2 : 256;
        void **more = realloc(all->list, capacity * sizeof *more);
        if (!more)
            return;
        all->list = more;
        all->capacity = capacity;
    }
    all->list[all->count++] = span->block.pointer;
}

/* Frees the program's blocks, as a reset would. Does not reset the context, because weir's memory belongs to the same
 * context. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    WP_ENTER(cuDevicePrimaryCtxReset_v2);
    wp_device *d = wp_device_started(device);
    blocks all = {.client = d ? d->client : NULL};
    if (!d)
        return wp_real.cuDevicePrimaryCtxReset_v2(device);
    if (weir_runtime_enter(d->runtime) != WEIR_OK)
        return CUDA_SUCCESS;
    (void)wp_real.cuCtxSynchronize();
    weir_runtime_leave(d->runtime);
    (void)!weir_layout_walk(d->runtime, preload_answers_collect, &all, NULL);
    for (size_t i = 0; i < all.count; i++)
        (void)!weir_free(d->client, all.list[i], WEIR_STREAM_HOST);
    free(all.list);
    return CUDA_SUCCESS;
}
