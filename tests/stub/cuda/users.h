/* The part of CUDA's driver interface that weir does not use, but programs beside it do: in the stub as in the real one it
 * is found through cuGetProcAddress. Graphs, contexts of one's own, whose an address is, waiting for a word, and the other
 * ways to memory. */
#ifndef STUB_USERS_H
#define STUB_USERS_H

#include "driver/cuda_api.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;

typedef struct stub_ipc_handle {
    char reserved[64];
} stub_ipc_handle;

typedef struct stub_array_descriptor {
    size_t width, height, depth;
    unsigned format, channels, flags;
} stub_array_descriptor;

typedef struct stub_flat_descriptor {
    size_t width, height;
    unsigned format, channels;
} stub_flat_descriptor;

enum {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9
};

/* A driver that is older than a function does not have it: version is the version of CUDA that brought it. */
#define STUB_USERS(X)                                                                                                  \
    WI_CUDA_LATER(X)                                                                                                   \
    X(cuCtxCreate, 3020, (CUcontext * context, unsigned flags, CUdevice device))                                       \
    X(cuCtxDestroy, 4000, (CUcontext context))                                                                         \
    X(cuCtxGetDevice, 2000, (CUdevice * device))                                                                       \
    X(cuCtxSetCurrent, 4000, (CUcontext context))                                                                      \
    X(cuPointerGetAttribute, 4000, (void *value, int attribute, CUdeviceptr address))                                  \
    X(cuStreamWaitValue32, 11070, (CUstream stream, CUdeviceptr word, uint32_t value, unsigned flags))                 \
    X(cuStreamBeginCapture, 10010, (CUstream stream, int mode))                                                        \
    X(cuStreamBeginCaptureToGraph, 12030,                                                                              \
      (CUstream stream, CUgraph graph, const void *behind, const void *edges, size_t count, int mode))                 \
    X(cuStreamBeginRecaptureToGraph, 13030,                                                                            \
      (CUstream stream, int mode, CUgraph graph, void (*fn)(void *), void *user))                                      \
    X(cuStreamEndCapture, 10000, (CUstream stream, CUgraph * graph))                                                   \
    X(cuGraphInstantiateWithFlags, 11040, (CUgraphExec * executable, CUgraph graph, unsigned long long flags))         \
    X(cuGraphLaunch, 10000, (CUgraphExec executable, CUstream stream))                                                 \
    X(cuGraphExecDestroy, 10000, (CUgraphExec executable))                                                             \
    X(cuGraphDestroy, 10000, (CUgraph graph))                                                                          \
    X(cuMemAllocPitch, 3020, (CUdeviceptr * address, size_t * pitch, size_t width, size_t height, unsigned element))   \
    X(cuMemAllocManaged, 6000, (CUdeviceptr * address, size_t bytes, unsigned flags))                                  \
    X(cuMemAllocHost, 3020, (void **address, size_t bytes))                                                            \
    X(cuMemAllocAsync, 11020, (CUdeviceptr * address, size_t bytes, CUstream stream))                                  \
    X(cuDeviceGetDefaultMemPool, 11020, (CUmemoryPool * pool, CUdevice device))                                        \
    X(cuDeviceSetMemPool, 11020, (CUdevice device, CUmemoryPool pool))                                                 \
    X(cuDeviceGetMemPool, 11020, (CUmemoryPool * pool, CUdevice device))                                               \
    X(cuMemGetDefaultMemPool, 13000, (CUmemoryPool * pool, const CUmemLocation *where, int type))                      \
    X(cuMemGetMemPool, 13000, (CUmemoryPool * pool, const CUmemLocation *where, int type))                             \
    X(cuMemSetMemPool, 13000, (const CUmemLocation *where, int type, CUmemoryPool pool))                               \
    X(cuMemPoolImportPointer, 11020, (CUdeviceptr * address, CUmemoryPool pool, void *shared))                         \
    X(cuMemPoolSetAccess, 11020, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count))                     \
    X(cuDeviceTotalMem, 3020, (size_t * bytes, CUdevice device))                                                       \
    X(cuMemGetAddressRange, 3020, (CUdeviceptr * base, size_t * bytes, CUdeviceptr address))                           \
    X(cuPointerGetAttributes, 7000, (unsigned count, int *attributes, void **values, CUdeviceptr address))             \
    X(cuMemRetainAllocationHandle, 11000, (CUmemGenericAllocationHandle * handle, void *address))                      \
    X(cuMemImportFromShareableHandle, 10020, (CUmemGenericAllocationHandle * handle, void *shared, int type))          \
    X(cuIpcGetMemHandle, 4010, (stub_ipc_handle * handle, CUdeviceptr address))                                        \
    X(cuIpcOpenMemHandle, 11000, (CUdeviceptr * address, stub_ipc_handle handle, unsigned flags))                      \
    X(cuArray3DCreate, 3020, (CUarray * array, const stub_array_descriptor *what))                                     \
    X(cuArrayCreate, 3020, (CUarray * array, const stub_flat_descriptor *what))                                        \
    X(cuArrayDestroy, 2000, (CUarray array))                                                                           \
    X(cuMipmappedArrayCreate, 5000, (CUmipmappedArray * array, const stub_array_descriptor *what, unsigned levels))    \
    X(cuMipmappedArrayDestroy, 5000, (CUmipmappedArray array))                                                         \
    X(cuDeviceGetPCIBusId, 4010, (char *text, int capacity, CUdevice device))                                          \
    X(cuDeviceCanAccessPeer, 4000, (int *can, CUdevice device, CUdevice peer))                                         \
    X(cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned flags))                                                   \
    X(cuDeviceGetP2PAttribute, 8000, (int *value, int attribute, CUdevice from, CUdevice to))                          \
    X(cuDevicePrimaryCtxReset, 11000, (CUdevice device))

CUresult stub_cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult stub_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult stub_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult stub_cuStreamBeginCapture_ptsz(CUstream stream, int mode);
CUresult stub_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const void *behind, const void *edges,
                                               size_t count, int mode);
CUresult stub_cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void (*fn)(void *),
                                                 void *user);
CUresult stub_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);

#endif
