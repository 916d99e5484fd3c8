/* What programs link to by name, or look up so, where others ask cuGetProcAddress: memory that is made and mapped, as
 * llama.cpp's CUDA module does, and what tests/preload are about, by the names of the real one. */
#include "stub.h"

#define LINKED_AS(symbol, name, parameters, arguments)                                                                 \
    __attribute__((visibility("default"))) CUresult symbol parameters;                                                 \
    CUresult symbol parameters                                                                                         \
    {                                                                                                                  \
        return stub_##name arguments;                                                                                  \
    }
#define LINKED(name, parameters, arguments) LINKED_AS(name, name, parameters, arguments)

LINKED(cuGetErrorString, (CUresult error, const char **text), (error, text))
LINKED(cuMemAddressFree, (CUdeviceptr address, size_t bytes), (address, bytes))
LINKED(cuMemAddressReserve,
       (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags),
       (address, bytes, alignment, hint, flags))
LINKED(cuMemCreate,
       (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *properties,
        unsigned long long flags),
       (handle, bytes, properties, flags))
LINKED(cuMemGetAllocationGranularity, (size_t * bytes, const CUmemAllocationProp *properties, int option),
       (bytes, properties, option))
LINKED(cuMemMap,
       (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
        unsigned long long flags),
       (address, bytes, offset, handle, flags))
LINKED(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
LINKED(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count),
       (address, bytes, access, count))
LINKED(cuMemUnmap, (CUdeviceptr address, size_t bytes), (address, bytes))

LINKED_AS(cuMemAlloc_v2, cuMemAlloc, (CUdeviceptr * address, size_t bytes), (address, bytes))
LINKED_AS(cuMemAllocPitch_v2, cuMemAllocPitch,
          (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned element),
          (address, pitch, width, height, element))
LINKED_AS(cuMemFree_v2, cuMemFree, (CUdeviceptr address), (address))
LINKED_AS(cuMemGetInfo_v2, cuMemGetInfo, (size_t * available, size_t *total), (available, total))
LINKED_AS(cuMemGetAddressRange_v2, cuMemGetAddressRange, (CUdeviceptr * base, size_t *bytes, CUdeviceptr address),
          (base, bytes, address))
LINKED_AS(cuMemAllocHost_v2, cuMemAllocHost, (void **address, size_t bytes), (address, bytes))
LINKED_AS(cuMemHostRegister_v2, cuMemHostRegister, (void *address, size_t bytes, unsigned flags),
          (address, bytes, flags))
LINKED_AS(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, (CUdeviceptr * address, stub_ipc_handle handle, unsigned flags),
          (address, handle, flags))
LINKED_AS(cuArray3DCreate_v2, cuArray3DCreate, (CUarray * array, const stub_array_descriptor *what), (array, what))
LINKED_AS(cuArrayCreate_v2, cuArrayCreate, (CUarray * array, const stub_flat_descriptor *what), (array, what))
LINKED_AS(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, (CUdevice device), (device))
LINKED_AS(cuStreamDestroy_v2, cuStreamDestroy, (CUstream stream), (stream))
LINKED_AS(cuStreamBeginCapture_v2, cuStreamBeginCapture, (CUstream stream, int mode), (stream, mode))
LINKED(cuStreamBeginCaptureToGraph,
       (CUstream stream, CUgraph graph, const void *behind, const void *edges, size_t count, int mode),
       (stream, graph, behind, edges, count, mode))
LINKED(cuStreamBeginRecaptureToGraph, (CUstream stream, int mode, CUgraph graph, void (*fn)(void *), void *user),
       (stream, mode, graph, fn, user))
LINKED(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph))
LINKED(cuStreamCreate, (CUstream * stream, unsigned flags), (stream, flags))
LINKED(cuStreamSynchronize, (CUstream stream), (stream))
LINKED(cuLaunchHostFunc, (CUstream stream, void (*fn)(void *), void *user), (stream, fn, user))
LINKED(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream), (address, bytes, stream))
LINKED(cuMemAllocAsync_ptsz, (CUdeviceptr * address, size_t bytes, CUstream stream), (address, bytes, stream))
LINKED(cuMemAllocFromPoolAsync, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
       (address, bytes, pool, stream))
LINKED(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), (address, stream))
LINKED(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream), (address, stream))
LINKED(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned flags), (address, bytes, flags))
LINKED(cuArrayDestroy, (CUarray array), (array))
LINKED(cuMipmappedArrayCreate, (CUmipmappedArray * array, const stub_array_descriptor *what, unsigned levels),
       (array, what, levels))
LINKED(cuMipmappedArrayDestroy, (CUmipmappedArray array), (array))
LINKED(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags), (address, bytes, flags))
LINKED(cuMemFreeHost, (void *address), (address))
LINKED(cuMemHostUnregister, (void *address), (address))
LINKED(cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr address), (value, attribute, address))
LINKED(cuPointerGetAttributes, (unsigned count, int *attributes, void **values, CUdeviceptr address),
       (count, attributes, values, address))
LINKED(cuIpcGetMemHandle, (stub_ipc_handle * handle, CUdeviceptr address), (handle, address))
LINKED(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *address), (handle, address))
LINKED(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle * handle, void *shared, int type),
       (handle, shared, type))
LINKED(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device), (pool, device))
LINKED(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device), (pool, device))
LINKED(cuMemGetDefaultMemPool, (CUmemoryPool * pool, const CUmemLocation *where, int type), (pool, where, type))
LINKED(cuMemGetMemPool, (CUmemoryPool * pool, const CUmemLocation *where, int type), (pool, where, type))
LINKED(cuMemSetMemPool, (const CUmemLocation *where, int type, CUmemoryPool pool), (where, type, pool))
LINKED(cuMemPoolImportPointer, (CUdeviceptr * address, CUmemoryPool pool, void *shared), (address, pool, shared))
LINKED(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), (device, pool))
LINKED(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *properties), (pool, properties))
LINKED(cuMemPoolDestroy, (CUmemoryPool pool), (pool))
LINKED(cuMemPoolGetAttribute, (CUmemoryPool pool, int attribute, void *value), (pool, attribute, value))
LINKED(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep), (pool, keep))
LINKED(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count), (pool, access, count))
LINKED(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer), (can, device, peer))
LINKED(cuDeviceGetP2PAttribute, (int *value, int attribute, CUdevice from, CUdevice to), (value, attribute, from, to))
LINKED(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags))
LINKED(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device))
LINKED(cuCtxSetCurrent, (CUcontext context), (context))
LINKED(cuCtxGetCurrent, (CUcontext * context), (context))
LINKED(cuCtxGetDevice, (CUdevice * device), (device))
LINKED(cuCtxSynchronize, (void), ())
LINKED_AS(cuCtxCreate_v2, cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device))
LINKED_AS(cuCtxDestroy_v2, cuCtxDestroy, (CUcontext context), (context))
