/* What a look at the hardware calls by name: functions that describe devices and need no context. */
#include "stub.h"

#include <stdio.h>

#define STUB_API __attribute__((visibility("default")))

enum { MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76 };

STUB_API CUresult cuInit(unsigned flags);
CUresult cuInit(unsigned flags)
{
    return stub_cuInit(flags);
}

STUB_API CUresult cuDriverGetVersion(int *version);
CUresult cuDriverGetVersion(int *version)
{
    return stub_cuDriverGetVersion(version);
}

STUB_API CUresult cuGetErrorName(CUresult error, const char **text);
CUresult cuGetErrorName(CUresult error, const char **text)
{
    return stub_cuGetErrorName(error, text);
}

STUB_API CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetCount(int *count)
{
    return stub_cuDeviceGetCount(count);
}

STUB_API CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    return stub_cuDeviceGet(device, ordinal);
}

STUB_API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    CUresult result = stub_cuDeviceGetAttribute(value, attribute, device);
    if (result == CUDA_SUCCESS && attribute == MULTIPROCESSORS)
        *value = 1;
    else if (result == CUDA_SUCCESS && (attribute == MAJOR || attribute == MINOR))
        *value = attribute == MAJOR ? 9 : 0;
    return result;
}

STUB_API CUresult cuDeviceGetName(char *text, int capacity, CUdevice device);
CUresult cuDeviceGetName(char *text, int capacity, CUdevice device)
{
    if (device < 0 || device >= stub.devices)
        return STUB_INVALID_DEVICE;
    snprintf(text, (size_t)capacity, "stub");
    return CUDA_SUCCESS;
}

CUresult stub_cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    STUB_CALL(cuDeviceTotalMem, 0);
    if (device < 0 || device >= stub.devices)
        return STUB_INVALID_DEVICE;
    *bytes = stub.device[device].total;
    return CUDA_SUCCESS;
}

STUB_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    return stub_cuDeviceTotalMem(bytes, device);
}

STUB_API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device);
CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device)
{
    if (device < 0 || device >= stub.devices)
        return STUB_INVALID_DEVICE;
    memset(uuid, 0, 16);
    uuid[15] = (unsigned char)device;
    return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetPCIBusId(char *text, int capacity, CUdevice device)
{
    STUB_CALL(cuDeviceGetPCIBusId, 0);
    if (device < 0 || device >= stub.devices)
        return STUB_INVALID_DEVICE;
    snprintf(text, (size_t)capacity, "0000:%02x:00.0", device + 1);
    return CUDA_SUCCESS;
}

/* Each graph that there is holds a granule. */
CUresult stub_cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
    STUB_CALL(cuDeviceGetGraphMemAttribute, STUB_IN_CONTEXT);
    if (device < 0 || device >= stub.devices || attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
        return STUB_INVALID_VALUE;
    pthread_mutex_lock(&stub.lock);
    uint64_t bytes = stub.graphs * STUB_GRANULE;
    pthread_mutex_unlock(&stub.lock);
    memcpy(value, &bytes, sizeof bytes);
    return CUDA_SUCCESS;
}
