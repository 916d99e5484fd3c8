/* CUDA's functions, as libcuda.so.1 and libnvidia-ml.so.1 export them, of which programs get weir's instead. Names, values
 * and layouts are those of cuda.h (CUDA 13.5), cudaTypedefs.h and nvml.h, declared here so that nothing of CUDA is needed
 * to build. */
#ifndef WP_FUNCTIONS_H
#define WP_FUNCTIONS_H

#include "driver/cuda_api.h"

typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct CUipcMemHandle {
    char reserved[64];
} CUipcMemHandle;

typedef struct CUDA_ARRAY_DESCRIPTOR {
    size_t Width, Height;
    unsigned Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct CUDA_ARRAY3D_DESCRIPTOR {
    size_t Width, Height, Depth;
    unsigned Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct nvmlMemory_t {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct nvmlMemory_v2_t {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct nvmlPciInfo_t {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

enum {
    WP_INVALID_VALUE = 1,
    WP_NOT_INITIALIZED = 3,
    WP_PEER_ACCESS_UNSUPPORTED = 217,
    WP_NOT_SUPPORTED = 801,
    WP_UNKNOWN = 999,
    WP_CAPTURE_WRONG_THREAD = 908,

    WP_KNOWN_VERSION = 13050, /* the last CUDA version known to have no forms of functions besides those below */
    WP_GET_PER_THREAD = 2,    /* a flag of cuGetProcAddress */
    WP_P2P_ACCESS_SUPPORTED = 2,
    WP_P2P_ARRAY_ACCESS_SUPPORTED = 4,
    WP_POINTER_CONTEXT = 1,
    WP_POINTER_BUFFER_ID = 7,
    WP_POINTER_RANGE_START = 11,
    WP_POINTER_RANGE_SIZE = 12,
    WP_POOL_RESERVED = 5,
    WP_POOL_RESERVED_HIGH = 6,
    WP_POOL_USED = 7,
    WP_POOL_USED_HIGH = 8,
    WP_ARRAY_SPARSE = 0x40,
    WP_ARRAY_DEFERRED = 0x80,
    WP_LOCATION_HOST = 2,
    WP_LOCATION_HOST_NUMA = 3,
    WP_LOCATION_HOST_NUMA_CURRENT = 4,
    WP_LOCATION_PART_OF_DEVICE = 6, /* the lowest byte of its id is the device's ordinal */
};

/* Name as it is exported, name and first version of its form for cuGetProcAddress, whether it is the form for per-thread
 * default streams, parameters, arguments. Of forms with one name the later one stands behind, and the one for per-thread
 * streams behind the other. */
#define WP_CUDA_FUNCTIONS(X)                                                                                           \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, 0, (CUdeviceptr * out, size_t bytes), (out, bytes))                             \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0,                                                                    \
      (CUdeviceptr * out, size_t * pitch, size_t width, size_t height, unsigned element),                              \
      (out, pitch, width, height, element))                                                                            \
    X(cuMemFree_v2, cuMemFree, 3020, 0, (CUdeviceptr address), (address))                                              \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, 0, (CUdeviceptr * out, size_t bytes, CUstream stream),                  \
      (out, bytes, stream))                                                                                            \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, 1, (CUdeviceptr * out, size_t bytes, CUstream stream),             \
      (out, bytes, stream))                                                                                            \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0,                                                      \
      (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream), (out, bytes, pool, stream))               \
    X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, 1,                                                 \
      (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream), (out, bytes, pool, stream))               \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, (CUdeviceptr address, CUstream stream), (address, stream))             \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, 1, (CUdeviceptr address, CUstream stream), (address, stream))        \
    X(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0, (size_t * available, size_t * total), (available, total))                \
    X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, 0, (size_t * bytes, CUdevice device), (bytes, device))              \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, 0,                                                          \
      (CUdeviceptr * base, size_t * bytes, CUdeviceptr address), (base, bytes, address))                               \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, 0, (void *value, int attribute, CUdeviceptr address),        \
      (value, attribute, address))                                                                                     \
    X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, 0,                                                         \
      (unsigned count, int *attributes, void **values, CUdeviceptr address), (count, attributes, values, address))     \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, 0, (CUipcMemHandle * handle, CUdeviceptr address),                   \
      (handle, address))                                                                                               \
    X(cuMemCreate, cuMemCreate, 10020, 0,                                                                              \
      (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *properties,                     \
       unsigned long long flags),                                                                                      \
      (handle, bytes, properties, flags))                                                                              \
    X(cuMemRelease, cuMemRelease, 10020, 0, (CUmemGenericAllocationHandle handle), (handle))                           \
    X(cuMemMap, cuMemMap, 10020, 0,                                                                                    \
      (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,                          \
       unsigned long long flags),                                                                                      \
      (address, bytes, offset, handle, flags))                                                                         \
    X(cuMemUnmap, cuMemUnmap, 10020, 0, (CUdeviceptr address, size_t bytes), (address, bytes))                         \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0,                                              \
      (CUmemGenericAllocationHandle * handle, void *address), (handle, address))                                       \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0, (CUdeviceptr * out, size_t bytes, unsigned flags),                \
      (out, bytes, flags))                                                                                             \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, 0, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR *what), (out, what))       \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR *what), (out, what)) \
    X(cuArrayDestroy, cuArrayDestroy, 2000, 0, (CUarray array), (array))                                               \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0,                                                         \
      (CUmipmappedArray * out, const CUDA_ARRAY3D_DESCRIPTOR *what, unsigned levels), (out, what, levels))             \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0, (CUmipmappedArray array), (array))                    \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020, 0, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))        \
    X(cuMemAllocHost_v2, cuMemAllocHost, 3020, 0, (void **out, size_t bytes), (out, bytes))                            \
    X(cuMemFreeHost, cuMemFreeHost, 2000, 0, (void *address), (address))                                               \
    X(cuMemHostRegister_v2, cuMemHostRegister, 6050, 0, (void *address, size_t bytes, unsigned flags),                 \
      (address, bytes, flags))                                                                                         \
    X(cuMemHostUnregister, cuMemHostUnregister, 4000, 0, (void *address), (address))                                   \
    X(cuStreamDestroy_v2, cuStreamDestroy, 4000, 0, (CUstream stream), (stream))                                       \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, 0, (CUstream stream, int mode), (stream, mode))            \
    X(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture, 10010, 1, (CUstream stream, int mode), (stream, mode))       \
    X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, 0,                                              \
      (CUstream stream, CUgraph graph, const CUgraphNode *behind, const void *edges, size_t count, int mode),          \
      (stream, graph, behind, edges, count, mode))                                                                     \
    X(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, 12030, 1,                                         \
      (CUstream stream, CUgraph graph, const CUgraphNode *behind, const void *edges, size_t count, int mode),          \
      (stream, graph, behind, edges, count, mode))                                                                     \
    X(cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph, 13030, 0,                                          \
      (CUstream stream, int mode, CUgraph graph, void (*fn)(void *), void *user), (stream, mode, graph, fn, user))     \
    X(cuStreamBeginRecaptureToGraph_ptsz, cuStreamBeginRecaptureToGraph, 13030, 1,                                     \
      (CUstream stream, int mode, CUgraph graph, void (*fn)(void *), void *user), (stream, mode, graph, fn, user))     \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000, 0, (CUstream stream, CUgraph * graph), (stream, graph))           \
    X(cuStreamEndCapture_ptsz, cuStreamEndCapture, 10000, 1, (CUstream stream, CUgraph * graph), (stream, graph))      \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, 0, (CUmemoryPool * pool, CUdevice device),          \
      (pool, device))                                                                                                  \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, 0, (CUdevice device, CUmemoryPool pool), (device, pool))          \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, 0, (CUmemoryPool * pool, CUdevice device), (pool, device))        \
    X(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, 0,                                                        \
      (CUmemoryPool * pool, const CUmemLocation *where, int type), (pool, where, type))                                \
    X(cuMemGetMemPool, cuMemGetMemPool, 13000, 0, (CUmemoryPool * pool, const CUmemLocation *where, int type),         \
      (pool, where, type))                                                                                             \
    X(cuMemSetMemPool, cuMemSetMemPool, 13000, 0, (const CUmemLocation *where, int type, CUmemoryPool pool),           \
      (where, type, pool))                                                                                             \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020, 0, (CUmemoryPool * pool, const CUmemPoolProps *properties),             \
      (pool, properties))                                                                                              \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0, (CUmemoryPool pool), (pool))                                       \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, 0, (CUmemoryPool pool, int attribute, void *value),         \
      (pool, attribute, value))                                                                                        \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0, (CUmemoryPool pool, size_t keep), (pool, keep))                      \
    X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, 0,                                                                \
      (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count), (pool, access, count))                         \
    X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, 0, (int *can, CUdevice device, CUdevice peer),               \
      (can, device, peer))                                                                                             \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, 0, (CUcontext peer, unsigned flags), (peer, flags))          \
    X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000, 0,                                                       \
      (int *value, int attribute, CUdevice from, CUdevice to), (value, attribute, from, to))                           \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, 0, (CUdevice device), (device))                      \
    X(cuGetProcAddress, cuGetProcAddress, 11030, 0, (const char *name, void **function, int version, uint64_t flags),  \
      (name, function, version, flags))                                                                                \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0,                                                                 \
      (const char *name, void **function, int version, uint64_t flags, int *found),                                    \
      (name, function, version, flags, found))                                                                         \
    /* Memory of others, or of graphs: CUDA's, and past the budget. */                                                 \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, 0,                                        \
      (CUmemGenericAllocationHandle * handle, void *shared, int type), (handle, shared, type))                         \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, 0, (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags), \
      (out, handle, flags))                                                                                            \
    X(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, 0, (CUdeviceptr * out, CUmemoryPool pool, void *shared),  \
      (out, pool, shared))                                                                                             \
    X(cuImportExternalMemory, cuImportExternalMemory, 10000, 0, (CUexternalMemory * out, const void *what),            \
      (out, what))                                                                                                     \
    X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, 0,                                                        \
      (CUgraphNode * out, CUgraph graph, const CUgraphNode *behind, size_t count, void *what),                         \
      (out, graph, behind, count, what))

#define WP_NVML_FUNCTIONS(X)                                                                                           \
    X(nvmlDeviceGetMemoryInfo, (nvmlDevice_t device, nvmlMemory_t * memory), (device, memory))                         \
    X(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t * memory), (device, memory))                   \
    X(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t * pci), (device, pci))

/* What weir's functions call besides; programs get CUDA's own. */
#define WP_USED_FUNCTIONS(X)                                                                                           \
    X(cuCtxGetCurrent, 4000, (CUcontext * context))                                                                    \
    X(cuCtxGetDevice, 2000, (CUdevice * device))                                                                       \
    X(cuCtxSynchronize, 2000, (void))                                                                                  \
    X(cuCtxRecordEvent, 12050, (CUcontext context, CUevent event))                                                     \
    X(cuEventCreate, 2000, (CUevent * event, unsigned flags))                                                          \
    X(cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned flags))                                       \
    X(cuStreamIsCapturing, 10000, (CUstream stream, int *status))                                                      \
    X(cuGraphDestroy, 10000, (CUgraph graph))                                                                          \
    X(cuStreamSynchronize, 2000, (CUstream stream))                                                                    \
    X(cuDeviceGetPCIBusId, 4010, (char *text, int capacity, CUdevice device))                                          \
    X(cuDeviceGetUuid_v2, 11040, (unsigned char *uuid, CUdevice device))

#endif
