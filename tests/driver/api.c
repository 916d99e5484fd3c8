/* Our declarations of CUDA's driver interface against its own header, where there is one: the values of constants, the
 * layout of structures, and for each function that the version we ask for has these parameters. */
#include <stddef.h>
#include <stdio.h>

#ifdef HAVE_CUDA_HEADER

#define CONSTANTS(X)                                                                                                   \
    X(CUDA_SUCCESS)                                                                                                    \
    X(CUDA_ERROR_INVALID_VALUE)                                                                                        \
    X(CUDA_ERROR_NOT_SUPPORTED)                                                                                        \
    X(CUDA_ERROR_OUT_OF_MEMORY)                                                                                        \
    X(CUDA_ERROR_DEINITIALIZED)                                                                                        \
    X(CUDA_ERROR_NO_DEVICE)                                                                                            \
    X(CUDA_ERROR_ECC_UNCORRECTABLE)                                                                                    \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE)                                                                                 \
    X(CUDA_ERROR_CONTAINED)                                                                                            \
    X(CUDA_ERROR_NOT_READY)                                                                                            \
    X(CUDA_ERROR_ILLEGAL_ADDRESS)                                                                                      \
    X(CUDA_ERROR_LAUNCH_TIMEOUT)                                                                                       \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED)                                                                                 \
    X(CUDA_ERROR_ASSERT)                                                                                               \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR)                                                                                 \
    X(CUDA_ERROR_LAUNCH_FAILED)                                                                                        \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK)                                                                                   \
    X(CU_STREAM_NON_BLOCKING)                                                                                          \
    X(CU_EVENT_DISABLE_TIMING)                                                                                         \
    X(CU_STREAM_CAPTURE_MODE_RELAXED)                                                                                  \
    X(CU_STREAM_CAPTURE_STATUS_NONE)                                                                                   \
    X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                                                         \
    X(CU_MEM_ALLOCATION_TYPE_PINNED)                                                                                   \
    X(CU_MEM_LOCATION_TYPE_DEVICE)                                                                                     \
    X(CU_MEM_ALLOC_GRANULARITY_MINIMUM)                                                                                \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)                                                                              \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)                                                                           \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)                                                                              \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)                                                                          \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)                                                                      \
    X(CU_MEMHOSTALLOC_PORTABLE)                                                                                        \
    X(CU_MEMHOSTREGISTER_PORTABLE)                                                                                     \
    X(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)                                                               \
    X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)                                                                               \
    X(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)                                                                            \
    X(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)                                                                                \
    X(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)                                               \
    X(CU_MEM_LOCATION_TYPE_HOST_NUMA)                                                                                  \
    X(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)

/* Theirs first. What the constants are there is kept under other names, and ours get other names as they are declared. */
#include <cuda.h>
#include <cudaTypedefs.h>

enum {
#define X(name) THEIR_##name = (int)name,
    CONSTANTS(X)
#undef X
};
typedef CUmemLocation their_location;
typedef CUmemAllocationProp their_properties;
typedef CUmemAccessDesc their_access;
typedef CUmemPoolProps their_pool;
typedef CUmemcpyAttributes their_attributes;
static void *const their_legacy = (void *)CU_STREAM_LEGACY, *const their_per_thread = (void *)CU_STREAM_PER_THREAD;

#define CUDA_SUCCESS                    OUR_CUDA_SUCCESS
#define CUDA_ERROR_INVALID_VALUE        OUR_CUDA_ERROR_INVALID_VALUE
#define CUDA_ERROR_NOT_SUPPORTED        OUR_CUDA_ERROR_NOT_SUPPORTED
#define CUDA_ERROR_OUT_OF_MEMORY        OUR_CUDA_ERROR_OUT_OF_MEMORY
#define CUDA_ERROR_DEINITIALIZED        OUR_CUDA_ERROR_DEINITIALIZED
#define CUDA_ERROR_NO_DEVICE            OUR_CUDA_ERROR_NO_DEVICE
#define CUDA_ERROR_ECC_UNCORRECTABLE    OUR_CUDA_ERROR_ECC_UNCORRECTABLE
#define CUDA_ERROR_NVLINK_UNCORRECTABLE OUR_CUDA_ERROR_NVLINK_UNCORRECTABLE
#define CUDA_ERROR_CONTAINED            OUR_CUDA_ERROR_CONTAINED
#define CUDA_ERROR_NOT_READY            OUR_CUDA_ERROR_NOT_READY
#define CUDA_ERROR_ILLEGAL_ADDRESS      OUR_CUDA_ERROR_ILLEGAL_ADDRESS
#define CUDA_ERROR_LAUNCH_TIMEOUT       OUR_CUDA_ERROR_LAUNCH_TIMEOUT
#define CUDA_ERROR_CONTEXT_IS_DESTROYED OUR_CUDA_ERROR_CONTEXT_IS_DESTROYED
#define CUDA_ERROR_ASSERT               OUR_CUDA_ERROR_ASSERT
#define CUDA_ERROR_HARDWARE_STACK_ERROR OUR_CUDA_ERROR_HARDWARE_STACK_ERROR
#define CUDA_ERROR_LAUNCH_FAILED        OUR_CUDA_ERROR_LAUNCH_FAILED
#define CUDA_ERROR_TENSOR_MEMORY_LEAK   OUR_CUDA_ERROR_TENSOR_MEMORY_LEAK
#define CU_STREAM_NON_BLOCKING          OUR_CU_STREAM_NON_BLOCKING
#define CU_EVENT_DISABLE_TIMING         OUR_CU_EVENT_DISABLE_TIMING
#define CU_STREAM_CAPTURE_MODE_RELAXED  OUR_CU_STREAM_CAPTURE_MODE_RELAXED
#define CU_STREAM_CAPTURE_STATUS_NONE   OUR_CU_STREAM_CAPTURE_STATUS_NONE
#define CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED                                                        \
    OUR_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
#define CU_MEM_ALLOCATION_TYPE_PINNED    OUR_CU_MEM_ALLOCATION_TYPE_PINNED
#define CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID OUR_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
#define CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED                                              \
    OUR_CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
#define CU_MEM_LOCATION_TYPE_HOST_NUMA OUR_CU_MEM_LOCATION_TYPE_HOST_NUMA
#undef CU_MEM_LOCATION_TYPE_DEVICE
#define CU_MEM_LOCATION_TYPE_DEVICE        OUR_CU_MEM_LOCATION_TYPE_DEVICE
#define CU_MEM_ALLOC_GRANULARITY_MINIMUM   OUR_CU_MEM_ALLOC_GRANULARITY_MINIMUM
#define CU_MEM_ACCESS_FLAGS_PROT_READWRITE OUR_CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#undef CU_MEMHOSTALLOC_PORTABLE
#undef CU_MEMHOSTREGISTER_PORTABLE
#undef CU_STREAM_LEGACY
#undef CU_STREAM_PER_THREAD
#define CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED             OUR_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
#define CUDA_ERROR_STREAM_CAPTURE_IMPLICIT                OUR_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
#define CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD            OUR_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
#define CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED        OUR_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
#define CU_MEMHOSTALLOC_PORTABLE                          OUR_CU_MEMHOSTALLOC_PORTABLE
#define CU_MEMHOSTREGISTER_PORTABLE                       OUR_CU_MEMHOSTREGISTER_PORTABLE
#define CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES OUR_CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
#define CU_MEMPOOL_ATTR_RELEASE_THRESHOLD                 OUR_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
#define CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT              OUR_CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
#define CU_MEMCPY_SRC_ACCESS_ORDER_STREAM                 OUR_CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
#define CUresult                                          our_result
#define CUdevice                                          our_device
#define CUdeviceptr                                       our_pointer
#define CUmemGenericAllocationHandle                      our_handle
#define CUcontext                                         our_context
#define CUstream                                          our_stream
#define CUevent                                           our_event
#define CUmemLocation                                     our_location
#define CUmemAllocationProp                               our_properties
#define CUmemAccessDesc                                   our_access
#define CUmemoryPool                                      our_pool_handle
#define CUmemPoolProps                                    our_pool
#define CUmemcpyAttributes                                our_attributes
#include "driver/cuda_api.h"
#undef CUresult
#undef CUdevice
#undef CUdeviceptr
#undef CUmemGenericAllocationHandle
#undef CUcontext
#undef CUstream
#undef CUevent
#undef CUmemLocation
#undef CUmemAllocationProp
#undef CUmemAccessDesc
#undef CUmemoryPool
#undef CUmemPoolProps
#undef CUmemcpyAttributes

#define SAME_TYPE(a, b) __builtin_types_compatible_p(a, b)
#define SAME_SIZE(a, b) _Static_assert(sizeof(a) == sizeof(b) && _Alignof(a) == _Alignof(b), #a " is not as " #b)
SAME_SIZE(our_result, CUresult);
SAME_SIZE(our_device, CUdevice);
SAME_SIZE(our_pointer, CUdeviceptr);
SAME_SIZE(our_handle, CUmemGenericAllocationHandle);
SAME_SIZE(our_context, CUcontext);
SAME_SIZE(our_stream, CUstream);
SAME_SIZE(our_event, CUevent);
SAME_SIZE(our_location, their_location);
SAME_SIZE(our_properties, their_properties);
SAME_SIZE(our_access, their_access);
SAME_SIZE(our_pool_handle, CUmemoryPool);
SAME_SIZE(our_pool, their_pool);
SAME_SIZE(our_attributes, their_attributes);
SAME_SIZE(int, CUmemcpySrcAccessOrder);
SAME_SIZE(int, CUdevice_attribute);
SAME_SIZE(int, CUmemAllocationGranularity_flags);
SAME_SIZE(int, CUstreamCaptureMode);
SAME_SIZE(int, CUstreamCaptureStatus);
SAME_SIZE(int, CUmemPool_attribute);

#define SAME_MEMBER(ours, theirs, member)                                                                              \
    _Static_assert(offsetof(ours, member) == offsetof(theirs, member) &&                                               \
                       sizeof(((ours *)0)->member) == sizeof(((theirs *)0)->member),                                   \
                   #member " is not where it is in " #theirs)
SAME_MEMBER(our_location, their_location, type);
SAME_MEMBER(our_location, their_location, id);
SAME_MEMBER(our_properties, their_properties, type);
SAME_MEMBER(our_properties, their_properties, requestedHandleTypes);
SAME_MEMBER(our_properties, their_properties, location);
SAME_MEMBER(our_properties, their_properties, win32HandleMetaData);
SAME_MEMBER(our_properties, their_properties, allocFlags);
SAME_MEMBER(our_properties, their_properties, allocFlags.compressionType);
SAME_MEMBER(our_properties, their_properties, allocFlags.gpuDirectRDMACapable);
SAME_MEMBER(our_properties, their_properties, allocFlags.usage);
SAME_MEMBER(our_access, their_access, location);
SAME_MEMBER(our_access, their_access, flags);
SAME_MEMBER(our_pool, their_pool, allocType);
SAME_MEMBER(our_pool, their_pool, handleTypes);
SAME_MEMBER(our_pool, their_pool, location);
SAME_MEMBER(our_pool, their_pool, win32SecurityAttributes);
SAME_MEMBER(our_pool, their_pool, maxSize);
SAME_MEMBER(our_pool, their_pool, usage);
SAME_MEMBER(our_pool, their_pool, reserved);
SAME_MEMBER(our_attributes, their_attributes, srcAccessOrder);
SAME_MEMBER(our_attributes, their_attributes, srcLocHint);
SAME_MEMBER(our_attributes, their_attributes, dstLocHint);
SAME_MEMBER(our_attributes, their_attributes, flags);

/* Our parameter lists, read with their types, are theirs; but for enumerations, which are numbers with us. */
static const struct {
    const char *name;
    int same;
} functions[] = {
#define X(name, version, parameters) {#name, SAME_TYPE(CUresult(*) parameters, PFN_##name##_v##version)},
    WI_CUDA_FUNCTIONS(X) WI_CUDA_LATER(X)
#undef X
};
static const struct {
    const char *name;
    int same;
} with_enumerations[] = {
    {"cuDeviceGetAttribute",
     SAME_TYPE(CUresult (*)(int *, CUdevice_attribute, CUdevice), PFN_cuDeviceGetAttribute_v2000)},
    {"cuMemGetAllocationGranularity",
     SAME_TYPE(CUresult (*)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags),
               PFN_cuMemGetAllocationGranularity_v10020)},
    {"cuStreamIsCapturing", SAME_TYPE(CUresult (*)(CUstream, CUstreamCaptureStatus *), PFN_cuStreamIsCapturing_v10000)},
    {"cuMemPoolSetAttribute",
     SAME_TYPE(CUresult (*)(CUmemoryPool, CUmemPool_attribute, void *), PFN_cuMemPoolSetAttribute_v11020)},
    {"cuMemPoolGetAttribute",
     SAME_TYPE(CUresult (*)(CUmemoryPool, CUmemPool_attribute, void *), PFN_cuMemPoolGetAttribute_v11020)},
    {"cuThreadExchangeStreamCaptureMode",
     SAME_TYPE(CUresult (*)(CUstreamCaptureMode *), PFN_cuThreadExchangeStreamCaptureMode_v10010)},
};

static int is_same(size_t i)
{
    for (size_t j = 0; j < sizeof with_enumerations / sizeof with_enumerations[0]; j++)
        if (strcmp(functions[i].name, with_enumerations[j].name) == 0)
            return with_enumerations[j].same;
    return functions[i].same;
}

int main(void)
{
    size_t count = sizeof functions / sizeof functions[0];
    int constants = 0, wrong = 0;
#define X(name)                                                                                                        \
    constants++;                                                                                                       \
    if ((int)name != (int)THEIR_##name) {                                                                              \
        printf("%s is %d, and %d in the header\n", #name, (int)name, (int)THEIR_##name);                               \
        wrong++;                                                                                                       \
    }
    CONSTANTS(X)
#undef X
    if ((void *)CU_STREAM_LEGACY != their_legacy || (void *)CU_STREAM_PER_THREAD != their_per_thread) {
        printf("the default streams have other names in the header\n");
        wrong++;
    }
    for (size_t i = 0; i < count; i++)
        if (!is_same(i)) {
            printf("%s has other parameters in the header\n", functions[i].name);
            wrong++;
        }
    printf("%zu functions and %d constants compared with cuda.h of CUDA %d, %d wrong\n", count, constants, CUDA_VERSION,
           wrong);
    return wrong != 0;
}

#else

int main(void)
{
    printf("skipped: no cuda.h (configure with -DWEIR_CUDA_HEADERS=DIR)\n");
    return 77;
}

#endif
