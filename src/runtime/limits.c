/* Limits of the device's memory for this process. */
#include "runtime/limits.h"
#include "base/values.h"

#include <dlfcn.h>

const char *wi_limits_root = "";

/* NVML's functions; all there or none. The library stays open. */
typedef struct limits_nvml {
    int (*nvmlInit_v2)(void);
    int (*nvmlShutdown)(void);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *bus, void **device);
    wi_nvml_limits_function nvmlDeviceGetMemoryLimits_v1;
} limits_nvml;

static limits_nvml nvml_functions;
static bool nvml_knows; /* the functions are there */

static void limits_find(void)
{
    static const char *const names[] = {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByPciBusId_v2",
                                        "nvmlDeviceGetMemoryLimits_v1"};
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    nvml_knows = library != NULL;
    for (size_t i = 0; nvml_knows && i < sizeof names / sizeof names[0]; i++) {
        void *symbol = dlsym(library, names[i]);
        nvml_knows = symbol != NULL;
        memcpy((char *)&nvml_functions + i * sizeof symbol, &symbol, sizeof symbol);
    }
}

/* Asks NVML, where it is new enough to know limits; an older one is not begun. */
static bool limits_ask_nvml(const char *bus, wi_device_limits *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const limits_nvml *n = &nvml_functions;
    void *device;
    pthread_once(&once, limits_find);
    if (!nvml_knows || n->nvmlInit_v2() != 0)
        return false;
    bool told = n->nvmlDeviceGetHandleByPciBusId_v2(bus, &device) == 0 &&
                wi_cgroup_nvml_limits(wi_limits_root, n->nvmlDeviceGetMemoryLimits_v1, device, out);
    (void)n->nvmlShutdown();
    return told;
}

bool wi_limits_read(const weir_runtime *runtime, wi_device_limits *out)
{
    const char *bus = runtime->driver->bus ? runtime->driver->bus(runtime->device) : "";
    wi_device_limits nvml;
    bool told = wi_cgroup_device_memory(wi_limits_root, bus, out);
    if (bus[0] && limits_ask_nvml(bus, &nvml)) {
        wi_device_limits_join(out, &nvml);
        told = true;
    }
    return told;
}

void wi_limits_tell(const weir_runtime *runtime, const wi_device_limits *limits)
{
    char most[24], left[24], guaranteed[24];
    weir_log(WEIR_LOG_INFO,
             "%s: this process's cgroup may have %s of the device, of which %s are left, and is guaranteed %s; the "
             "budget keeps to that",
             runtime->name, weir_size_format(limits->most, most, sizeof most),
             weir_size_format(limits->left, left, sizeof left),
             weir_size_format(limits->guaranteed, guaranteed, sizeof guaranteed));
}
