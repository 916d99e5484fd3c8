/* A libnvidia-ml.so.1 that tells of the devices in gpus.txt. Layouts are written down here a second time, on
 * purpose. */
#include "stub.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define API __attribute__((visibility("default")))

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    GPU_IS_LOST = 15
};

static stub_machine machine;
static bool begun;

API int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    stub_read(&machine, (void (*)(void))nvmlInit_v2);
    stub_sleep(machine.sleep_nvml);
    begun = machine.fail_nvml == 0;
    return machine.fail_nvml;
}

API int nvmlShutdown(void);
int nvmlShutdown(void)
{
    begun = false;
    return OK;
}

API const char *nvmlErrorString(int result);
const char *nvmlErrorString(int result)
{
    return result == GPU_IS_LOST ? "GPU is lost" : result == 9 ? "Driver Not Loaded" : "Unknown Error";
}

static int copy(const char *from, char *to, unsigned capacity)
{
    if (strlen(from) >= capacity)
        return INSUFFICIENT_SIZE;
    memcpy(to, from, strlen(from) + 1);
    return OK;
}

API int nvmlSystemGetDriverVersion(char *text, unsigned capacity);
int nvmlSystemGetDriverVersion(char *text, unsigned capacity)
{
    return copy(machine.driver, text, capacity);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = machine.cuda;
    return OK;
}

/* The whole device number `index` of those that NVML has. */
static stub_gpu *whole(unsigned index)
{
    for (int i = 0; i < machine.count; i++)
        if (machine.gpus[i].parent < 0 && !stub_flag(&machine.gpus[i], "nvml") && index-- == 0)
            return &machine.gpus[i];
    return NULL;
}

API int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetCount_v2(unsigned *count)
{
    for (*count = 0; whole(*count);)
        ++*count;
    return begun ? OK : UNINITIALIZED;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, stub_gpu **out);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, stub_gpu **out)
{
    *out = whole(index);
    return !*out ? INVALID_ARGUMENT : stub_flag(*out, "lost") ? GPU_IS_LOST : OK;
}

API int nvmlDeviceGetUUID(const stub_gpu *gpu, char *text, unsigned capacity);
int nvmlDeviceGetUUID(const stub_gpu *gpu, char *text, unsigned capacity)
{
    return copy(gpu->uuid, text, capacity);
}

API int nvmlDeviceGetName(const stub_gpu *gpu, char *text, unsigned capacity);
int nvmlDeviceGetName(const stub_gpu *gpu, char *text, unsigned capacity)
{
    return copy(gpu->name, text, capacity);
}

API int nvmlDeviceGetPciInfo_v3(const stub_gpu *gpu, unsigned char *out);
int nvmlDeviceGetPciInfo_v3(const stub_gpu *gpu, unsigned char *out)
{
    if (stub_flag(gpu, "nowhere"))
        return NOT_SUPPORTED;
    memset(out, 0, 68); /* 16 of an old text, five numbers, and the address */
    snprintf((char *)out + 36, 32, "0000%s", gpu->pci);
    for (char *p = (char *)out + 36; *p; p++)
        *p = *p >= 'a' && *p <= 'f' ? (char)(*p - 'a' + 'A') : *p;
    return OK;
}

API int nvmlDeviceGetMemoryInfo(const stub_gpu *gpu, unsigned long long *out);
int nvmlDeviceGetMemoryInfo(const stub_gpu *gpu, unsigned long long *out)
{
    if (stub_flag(gpu, "unknown"))
        return NOT_SUPPORTED;
    out[0] = gpu->total; /* total, free, used */
    out[1] = gpu->free;
    out[2] = gpu->total - gpu->free;
    return OK;
}

#ifndef STUB_OLD /* a driver before 510 has no second form */
API int nvmlDeviceGetMemoryInfo_v2(const stub_gpu *gpu, void *out);
int nvmlDeviceGetMemoryInfo_v2(const stub_gpu *gpu, void *out)
{
    uint32_t version;
    memcpy(&version, out, sizeof version);
    if (version != (40 | 2u << 24))
        return 25;
    if (stub_flag(gpu, "unknown"))
        return NOT_SUPPORTED;
    uint64_t words[5] = {version, gpu->total, 0, gpu->free, gpu->total - gpu->free};
    memcpy(out, words, sizeof words);
    return OK;
}
#endif

API int nvmlDeviceGetCudaComputeCapability(const stub_gpu *gpu, int *major, int *minor);
int nvmlDeviceGetCudaComputeCapability(const stub_gpu *gpu, int *major, int *minor)
{
    *major = gpu->major;
    *minor = gpu->minor;
    return OK;
}

API int nvmlDeviceGetAttributes_v2(const stub_gpu *gpu, void *out);
int nvmlDeviceGetAttributes_v2(const stub_gpu *gpu, void *out)
{
    if (gpu->parent < 0)
        return NOT_SUPPORTED;
    uint64_t mib = gpu->total >> 20;
    memset(out, 0, 40);
    memcpy(out, &gpu->units, sizeof gpu->units);
    memcpy((char *)out + 32, &mib, sizeof mib); /* behind eight numbers of 4 bytes */
    return OK;
}

API int nvmlDeviceGetGpuInstanceId(const stub_gpu *gpu, unsigned *id);
int nvmlDeviceGetGpuInstanceId(const stub_gpu *gpu, unsigned *id)
{
    *id = (unsigned)gpu->instance;
    return gpu->parent < 0 ? INVALID_ARGUMENT : OK;
}

/* The slice number `index` of a device. */
static stub_gpu *slice(const stub_gpu *gpu, unsigned index)
{
    for (int i = 0; i < machine.count; i++)
        if (machine.gpus[i].parent == gpu - machine.gpus && index-- == 0)
            return &machine.gpus[i];
    return NULL;
}

API int nvmlDeviceGetMigMode(const stub_gpu *gpu, unsigned *now, unsigned *pending);
int nvmlDeviceGetMigMode(const stub_gpu *gpu, unsigned *now, unsigned *pending)
{
    *now = *pending = slice(gpu, 0) != NULL || stub_flag(gpu, "sliced");
    return gpu->major >= 8 ? OK : NOT_SUPPORTED;
}

API int nvmlDeviceGetMaxMigDeviceCount(const stub_gpu *gpu, unsigned *count);
int nvmlDeviceGetMaxMigDeviceCount(const stub_gpu *gpu, unsigned *count)
{
    (void)gpu;
    *count = 7;
    return OK;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(const stub_gpu *gpu, unsigned index, stub_gpu **out);
int nvmlDeviceGetMigDeviceHandleByIndex(const stub_gpu *gpu, unsigned index, stub_gpu **out)
{
    *out = slice(gpu, index);
    return *out ? OK : NOT_FOUND;
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *address, stub_gpu **out);
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, stub_gpu **out)
{
    *out = NULL;
    for (unsigned i = 0; begun && whole(i); i++)
        if (strcasecmp(whole(i)->pci, address) == 0)
            *out = whole(i);
    return !begun ? UNINITIALIZED : *out ? OK : NOT_FOUND;
}

#ifndef STUB_OLD /* a driver before 615 knows no limits */
API int nvmlDeviceGetMemoryLimits_v1(const stub_gpu *gpu, void *out);
int nvmlDeviceGetMemoryLimits_v1(const stub_gpu *gpu, void *out)
{
    static const char mount[] = "/sys/fs/cgroup";
    const char *path; /* soft, hard and used follow it */
    memcpy(&path, out, sizeof path);
    const char *group = path ? strstr(path, mount) : NULL;
    if (!begun || !group || gpu->parent >= 0)
        return !begun ? UNINITIALIZED : NOT_SUPPORTED;
    for (int i = 0; i < machine.limit_count; i++) {
        const stub_limit *l = &machine.limits[i];
        if (strcmp(l->pci, gpu->pci) != 0 || strcmp(l->group, group + sizeof mount - 1) != 0)
            continue;
        uint64_t words[3] = {l->soft, l->hard ? l->hard : UINT64_MAX, l->used};
        memcpy((char *)out + sizeof path, words, sizeof words);
        return OK;
    }
    return machine.limit_count > 0 ? NOT_FOUND : NOT_SUPPORTED;
}
#endif
