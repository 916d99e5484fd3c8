/* The part of CUDA's driver interface that weir uses, declared here so that nothing of CUDA is needed to build. Names,
 * values and layouts are those of cuda.h (CUDA 13.0); tests/driver compares them with the real one where it is installed.
 * Functions come from libcuda.so.1 at run time, through cuGetProcAddress, in the version of the interface named beside
 * them. */
#ifndef WI_CUDA_API_H
#define WI_CUDA_API_H

#include "base/internal.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmemPoolHandle_st *CUmemoryPool;

#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
    CUDA_ERROR_CONTAINED = 226,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,

    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 141,
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTREGISTER_PORTABLE = 1,
    CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
};

typedef struct CUmemLocation {
    int type;
    int id;
} CUmemLocation;

typedef struct CUmemAllocationProp {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef struct CUmemPoolProps {
    int allocType;
    int handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct CUmemcpyAttributes {
    int srcAccessOrder;
    CUmemLocation srcLocHint, dstLocHint;
    unsigned flags;
} CUmemcpyAttributes;

/* name, first version of CUDA whose form of it is meant, parameters */
#define WI_CUDA_FUNCTIONS(X)                                                                                           \
    X(cuInit, 2000, (unsigned flags))                                                                                  \
    X(cuDriverGetVersion, 2020, (int *version))                                                                        \
    X(cuGetErrorName, 6000, (CUresult error, const char **text))                                                       \
    X(cuGetErrorString, 6000, (CUresult error, const char **text))                                                     \
    X(cuDeviceGetCount, 2000, (int *count))                                                                            \
    X(cuDeviceGet, 2000, (CUdevice * device, int ordinal))                                                             \
    X(cuDeviceGetAttribute, 2000, (int *value, int attribute, CUdevice device))                                        \
    X(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device))                                          \
    X(cuDevicePrimaryCtxRelease, 11000, (CUdevice device))                                                             \
    X(cuCtxGetCurrent, 4000, (CUcontext * context))                                                                    \
    X(cuCtxPushCurrent, 4000, (CUcontext context))                                                                     \
    X(cuCtxPopCurrent, 4000, (CUcontext * context))                                                                    \
    X(cuCtxSynchronize, 2000, (void))                                                                                  \
    X(cuMemGetInfo, 3020, (size_t * available, size_t * total))                                                        \
    X(cuMemGetAllocationGranularity, 10020, (size_t * bytes, const CUmemAllocationProp *properties, int option))       \
    X(cuMemAddressReserve, 10020,                                                                                      \
      (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags))             \
    X(cuMemAddressFree, 10020, (CUdeviceptr address, size_t bytes))                                                    \
    X(cuMemCreate, 10020,                                                                                              \
      (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *properties,                     \
       unsigned long long flags))                                                                                      \
    X(cuMemRelease, 10020, (CUmemGenericAllocationHandle handle))                                                      \
    X(cuMemMap, 10020,                                                                                                 \
      (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,                          \
       unsigned long long flags))                                                                                      \
    X(cuMemUnmap, 10020, (CUdeviceptr address, size_t bytes))                                                          \
    X(cuMemSetAccess, 10020, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count))         \
    X(cuMemAlloc, 3020, (CUdeviceptr * address, size_t bytes))                                                         \
    X(cuMemFree, 3020, (CUdeviceptr address))                                                                          \
    X(cuMemHostAlloc, 2020, (void **address, size_t bytes, unsigned flags))                                            \
    X(cuMemFreeHost, 2000, (void *address))                                                                            \
    X(cuMemHostRegister, 6050, (void *address, size_t bytes, unsigned flags))                                          \
    X(cuMemHostUnregister, 4000, (void *address))                                                                      \
    X(cuMemPoolCreate, 11020, (CUmemoryPool * pool, const CUmemPoolProps *properties))                                 \
    X(cuMemPoolDestroy, 11020, (CUmemoryPool pool))                                                                    \
    X(cuMemPoolSetAttribute, 11020, (CUmemoryPool pool, int attribute, void *value))                                   \
    X(cuMemPoolGetAttribute, 11020, (CUmemoryPool pool, int attribute, void *value))                                   \
    X(cuMemPoolTrimTo, 11020, (CUmemoryPool pool, size_t keep))                                                        \
    X(cuMemAllocFromPoolAsync, 11020, (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream))       \
    X(cuMemFreeAsync, 11020, (CUdeviceptr address, CUstream stream))                                                   \
    X(cuStreamCreate, 2000, (CUstream * stream, unsigned flags))                                                       \
    X(cuStreamDestroy, 4000, (CUstream stream))                                                                        \
    X(cuStreamSynchronize, 2000, (CUstream stream))                                                                    \
    X(cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned flags))                                       \
    X(cuStreamGetCtx, 9020, (CUstream stream, CUcontext * context))                                                    \
    X(cuStreamGetId, 12000, (CUstream stream, unsigned long long *id))                                                 \
    X(cuStreamIsCapturing, 10000, (CUstream stream, int *status))                                                      \
    X(cuThreadExchangeStreamCaptureMode, 10010, (int *mode))                                                           \
    X(cuEventCreate, 2000, (CUevent * event, unsigned flags))                                                          \
    X(cuEventDestroy, 4000, (CUevent event))                                                                           \
    X(cuEventRecord, 2000, (CUevent event, CUstream stream))                                                           \
    X(cuEventQuery, 2000, (CUevent event))                                                                             \
    X(cuEventSynchronize, 2000, (CUevent event))                                                                       \
    X(cuMemcpyAsync, 4000, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                          \
    X(cuMemsetD8Async, 3020, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))                     \
    X(cuLaunchHostFunc, 10000, (CUstream stream, void (*fn)(void *), void *user))

/* The same for functions that a driver may lack, and that are NULL then. cuMemcpyBatchAsync has one parameter less in CUDA
 * 13.0; later drivers have this form, too. */
#define WI_CUDA_LATER(X)                                                                                               \
    X(cuCtxRecordEvent, 12050, (CUcontext context, CUevent event))                                                     \
    X(cuMemcpyBatchAsync, 12080,                                                                                       \
      (CUdeviceptr * to, CUdeviceptr * from, size_t * bytes, size_t count, CUmemcpyAttributes * attributes,            \
       size_t * firsts, size_t attribute_count, size_t * failed, CUstream stream))

typedef struct wi_cuda_functions {
#define X(name, version, parameters) CUresult(*name) parameters;
    WI_CUDA_FUNCTIONS(X)
    WI_CUDA_LATER(X)
#undef X
} wi_cuda_functions;

/* The functions, once the library is loaded. */
extern wi_cuda_functions wi_cuda;

/* Opens libcuda.so.1 and finds every function. WEIR_ERR_NOT_FOUND names the library or the function that is missing; a later
 * call tries again. */
weir_status wi_cuda_load(void);

#endif
