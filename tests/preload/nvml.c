/* A libnvidia-ml.so.1 that tells of two devices of 256 MiB, all of it free but for what the second form has reserved. Its
 * handles are their places on the bus. */
#include "interpose/preload/functions.h"

#define API __attribute__((visibility("default")))

API int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    (void)device;
    *memory = (nvmlMemory_t){256 << 20, 256 << 20, 0};
    return 0;
}

API int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    (void)device;
    *memory = (nvmlMemory_v2_t){memory->version, 256 << 20, 6 << 20, 250 << 20, 0};
    return 0;
}

API int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    *pci = (nvmlPciInfo_t){.bus = (unsigned)(uintptr_t)device};
    return 0;
}
