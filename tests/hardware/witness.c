/* See witness.h. */
#include "witness.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* From a library that stays open; NULL: it, or the function, is not here. */
static bool function_of(const char *library, const char *name, void *function)
{
    void *handle = dlopen(library, RTLD_NOW), *symbol = handle ? dlsym(handle, name) : NULL;
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

bool witness_seen(char *text, size_t capacity)
{
    static const char driver[] = "libcuda.so.1";
    int (*start)(unsigned), (*count)(int *), (*uuid)(unsigned char *, int), devices = 0;
    if (!function_of(driver, "cuInit", &start) || !function_of(driver, "cuDeviceGetCount", &count) ||
        !function_of(driver, "cuDeviceGetUuid_v2", &uuid))
        return false;
    *text = '\0';
    if (start(0) != 0 || count(&devices) != 0)
        return true; /* it sees none */
    for (int i = 0; i < devices; i++) {
        unsigned char bytes[16];
        if (uuid(bytes, i) != 0)
            return false;
        for (size_t k = 0; k < sizeof bytes; k++)
            snprintf(text + strlen(text), capacity - strlen(text), "%02x", bytes[k]);
        snprintf(text + strlen(text), capacity - strlen(text), " ");
    }
    return true;
}

static struct {
    void *device;
    char uuid[96];
    int (*memory)(void *device, unsigned long long *out);
} nvml;

bool witness_begin(void)
{
    static const char library[] = "libnvidia-ml.so.1";
    int (*start)(void), (*device)(unsigned, void **), (*uuid)(void *, char *, unsigned);
    if (nvml.device)
        return true;
    return function_of(library, "nvmlInit_v2", &start) &&
           function_of(library, "nvmlDeviceGetHandleByIndex_v2", &device) &&
           function_of(library, "nvmlDeviceGetUUID", &uuid) &&
           function_of(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) && start() == 0 &&
           device(0, &nvml.device) == 0 && uuid(nvml.device, nvml.uuid, sizeof nvml.uuid) == 0;
}

const char *witness_uuid(void)
{
    return nvml.uuid;
}

uint64_t witness_used(void)
{
    unsigned long long total_free_used[3] = {0};
    return nvml.memory(nvml.device, total_free_used) == 0 ? total_free_used[2] : 0;
}

bool witness_is_real(void)
{
    int (*tables)(void);
    return function_of("libcuda.so.1", "cuGetExportTable", &tables); /* CUDA's own runtime alone asks for it */
}
