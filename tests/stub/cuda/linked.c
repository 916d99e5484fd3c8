/* What llama.cpp's CUDA module links to by name, where others ask cuGetProcAddress: memory that is made and mapped. */
#include "stub.h"

#define LINKED(name, parameters, arguments)                                                                            \
    __attribute__((visibility("default"))) CUresult name parameters;                                                   \
    CUresult name parameters                                                                                           \
    {                                                                                                                  \
        return stub_##name arguments;                                                                                  \
    }

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
