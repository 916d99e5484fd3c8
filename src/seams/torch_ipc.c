/* PyTorch: tensors that processes share (torch.multiprocessing).
 *
 * PyTorch sends a handle of the driver's allocation that a tensor lies in, and the tensor's offset there. It counts the
 * processes that have the tensor, and keeps the tensor's memory until the last of them has let it go. CUDA has handles of
 * what cuMemAlloc gave alone: of the resources segments and direct. Memory that is mapped has none. */
#include "seams/seams.h"
#include "seams/torch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PEER_ACCESS = 1 }; /* cudaIpcMemLazyEnablePeerAccess */

/* An allocation of another process that is mapped here, once for each device. */
struct wtorch_ipc_memory {
    struct wtorch_ipc_memory *next;
    wtorch_ipc handle;
    int device;
    unsigned uses;
    void *address;
};

static struct {
    pthread_once_t once;
    /* The driver's. */
    int (*address_range)(unsigned long long *base, size_t *bytes, unsigned long long address);
    int (*get_handle)(wtorch_ipc *handle, unsigned long long address);
    /* The runtime's, in which PyTorch's current device is. */
    int (*get_device)(int *device);
    int (*set_device)(int device);
    int (*open_handle)(void **address, wtorch_ipc handle, unsigned flags);
    int (*close_handle)(void *address);
    int (*last_error)(void);
} cuda = {.once = PTHREAD_ONCE_INIT};

static pthread_mutex_t ipc_lock = PTHREAD_MUTEX_INITIALIZER;
static wtorch_ipc_memory *ipc_opened; /* with the lock held */
static atomic_bool ipc_shared;        /* something was shared */

static void ipc_find(void)
{
    const char *driver = "libcuda.so.1", *runtime = "libc10_cuda.so"; /* which needs libcudart */
    wtorch_abi_symbol(driver, "cuMemGetAddressRange_v2", &cuda.address_range);
    wtorch_abi_symbol(driver, "cuIpcGetMemHandle", &cuda.get_handle);
    wtorch_abi_symbol(runtime, "cudaGetDevice", &cuda.get_device);
    wtorch_abi_symbol(runtime, "cudaSetDevice", &cuda.set_device);
    wtorch_abi_symbol(runtime, "cudaIpcOpenMemHandle", &cuda.open_handle);
    wtorch_abi_symbol(runtime, "cudaIpcCloseMemHandle", &cuda.close_handle);
    wtorch_abi_symbol(runtime, "cudaGetLastError", &cuda.last_error);
}

/* Sharing ---------------------------------------------------------------------------------------------------------- */

/* With a context of the device current. False: CUDA has no handle of it. */
static bool ipc_handle_of(void *pointer, wtorch_ipc *handle, int64_t *offset)
{
    unsigned long long address = (uintptr_t)pointer, base = 0;
    size_t bytes = 0;
    *handle = (wtorch_ipc){{0}}; /* handles of one allocation are the same bytes */
    pthread_once(&cuda.once, ipc_find);
    if (!cuda.address_range || !cuda.get_handle || cuda.address_range(&base, &bytes, address) != 0 || !base ||
        base > address || cuda.get_handle(handle, base) != 0)
        return false;
    *offset = (int64_t)(address - base);
    return true;
}

static weir_status ipc_refuse(const weir_block_details *details, bool segment, const char *why)
{
    weir_runtime_details runtime = WEIR_INIT(weir_runtime_details);
    if (!details->runtime || weir_runtime_info(details->runtime, &runtime) != WEIR_OK)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "CUDA shares this tensor's memory, which is not weir's, with no other "
                                               "process: send tensor.cpu()");
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "a tensor %s %zu bytes on %s cannot be shared with other processes: its memory, of the resource "
                     "%s, is %s. Send tensor.cpu(), or %s",
                     segment ? "in a segment of" : "of", details->bytes, runtime.device, runtime.resource, why,
                     segment ? "take the pool's client from a runtime with resource=\"direct\""
                             : "call weir.torch.use with resource=\"segments\"");
}

static weir_status ipc_share_as(void *pointer, bool segment, wtorch_ipc *handle, int64_t *offset)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    weir_status status = weir_block_info(pointer, &details);
    weir_runtime *runtime = status == WEIR_OK ? weir_client_runtime(details.client) : NULL;
    if (status == WEIR_ERR_FORKED || (segment && !runtime))
        return status == WEIR_ERR_FORKED ? status : WEIR_OK; /* PyTorch's own memory, beside the pool's */
    if (runtime && weir_runtime_enter(runtime) != WEIR_OK)
        return WEIR_ERR_DRIVER;
    bool found = ipc_handle_of(segment ? details.block.pointer : pointer, handle, offset);
    if (runtime)
        weir_runtime_leave(runtime);
    if (!found)
        return ipc_refuse(&details, segment, "not what cuMemAlloc gave");
    return segment && *offset != 0 ? ipc_refuse(&details, segment, "a part of an allocation") : WEIR_OK;
}

weir_status wtorch_ipc_share(void *pointer, wtorch_ipc *handle, int64_t *offset)
{
    weir_status status = ipc_share_as(pointer, false, handle, offset);
    if (status == WEIR_OK)
        atomic_store(&ipc_shared, true);
    return status;
}

weir_status wseam_torch_shareable(void *pointer, bool segment)
{
    wtorch_ipc handle;
    int64_t offset;
    return pointer ? ipc_share_as(pointer, segment, &handle, &offset) : WEIR_OK;
}

void wtorch_ipc_collect(void)
{
    if (atomic_load(&ipc_shared))
        wtorch_abi_collect_shared();
}

/* Mapping what was shared ------------------------------------------------------------------------------------------ */

/* PyTorch's handle is CUDA's, or a version, what it is of, and CUDA's. */
static bool ipc_read(const char *text, size_t bytes, wtorch_ipc *handle)
{
    size_t before = bytes - sizeof *handle;
    if (bytes != sizeof *handle && (bytes != sizeof *handle + 2 || text[1] != 'c'))
        return false;
    memcpy(handle, text + before, sizeof *handle);
    return true;
}

/* With the lock held. */
static weir_status ipc_map(const wtorch_ipc *handle, int device, wtorch_ipc_memory **out)
{
    wtorch_ipc_memory *made = calloc(1, sizeof *made);
    if (!made)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to note a tensor of another process");
    int error = cuda.open_handle(&made->address, *handle, PEER_ACCESS);
    if (error != 0) {
        free(made);
        (void)cuda.last_error(); /* PyTorch would find it at its next call */
        return weir_fail(WEIR_ERR_DRIVER,
                         "cudaIpcOpenMemHandle on cuda:%d answered %d: the process that sent the tensor has "
                         "ended, or is this one",
                         device, error);
    }
    made->handle = *handle;
    made->device = device;
    made->next = ipc_opened;
    *out = ipc_opened = made;
    return WEIR_OK;
}

weir_status wtorch_ipc_open(const char *text, size_t bytes, wtorch_ipc_memory **out, void **address)
{
    wtorch_ipc handle;
    weir_status status = WEIR_OK;
    int device = 0;
    pthread_once(&cuda.once, ipc_find);
    if (!ipc_read(text, bytes, &handle))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "a tensor that another process sent lies in memory that is mapped there "
                                               "(expandable segments): with weir it has to be what cudaMalloc gave");
    if (!cuda.get_device || !cuda.set_device || !cuda.open_handle || !cuda.close_handle || !cuda.last_error)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "this PyTorch has no CUDA runtime where weir looks for it");
    (void)cuda.get_device(&device);
    pthread_mutex_lock(&ipc_lock);
    wtorch_ipc_memory *found = ipc_opened;
    while (found && (found->device != device || memcmp(&found->handle, &handle, sizeof handle) != 0))
        found = found->next;
    if (!found)
        status = ipc_map(&handle, device, &found);
    if (status == WEIR_OK) {
        found->uses++;
        *out = found;
        *address = found->address;
    }
    pthread_mutex_unlock(&ipc_lock);
    return status;
}

void wtorch_ipc_close(wtorch_ipc_memory *memory)
{
    int device = memory->device;
    pthread_mutex_lock(&ipc_lock);
    if (--memory->uses == 0) {
        wtorch_ipc_memory **at = &ipc_opened;
        while (*at != memory)
            at = &(*at)->next;
        *at = memory->next;
        (void)cuda.get_device(&device);
        (void)cuda.set_device(memory->device);
        if (cuda.close_handle(memory->address) != 0)
            (void)cuda.last_error(); /* the process ends, or the device is lost */
        (void)cuda.set_device(device);
        free(memory);
    }
    pthread_mutex_unlock(&ipc_lock);
}
