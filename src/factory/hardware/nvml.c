/* NVIDIA's management library: the devices of the machine with their slices and their free bytes, without a context.
 * Declared here is the part of nvml.h (CUDA 13.0, and one function of 13.4) that is used, so that nothing of it is needed to build. */
#include "factory/hardware/hardware.h"
#include "base/system.h"
#include "base/values.h"
#include <weir/select.h>

#include <stdio.h>

#define SONAME "libnvidia-ml.so.1"

typedef struct nvml_device *device_handle;

enum { NVML_SUCCESS = 0, NVML_ERROR_NOT_SUPPORTED = 3, NVML_TEXT = 96, NVML_MIG_ON = 1 };

typedef struct nvml_memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvml_memory;
#define NVML_MEMORY_VERSION (sizeof(nvml_memory) | 2u << 24)

typedef struct nvml_memory_1 {
    unsigned long long total, free, used;
} nvml_memory_1;

typedef struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char address[32];
} nvml_pci;

typedef struct nvml_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mib;
} nvml_attributes;

/* name, whether nothing works without it, parameters */
#define FUNCTIONS(X)                                                                                                   \
    X(nvmlInit_v2, true, (void))                                                                                       \
    X(nvmlShutdown, true, (void))                                                                                      \
    X(nvmlSystemGetDriverVersion, false, (char *text, unsigned capacity))                                              \
    X(nvmlSystemGetCudaDriverVersion_v2, false, (int *version))                                                        \
    X(nvmlDeviceGetCount_v2, true, (unsigned *count))                                                                  \
    X(nvmlDeviceGetHandleByIndex_v2, true, (unsigned index, device_handle *out))                                       \
    X(nvmlDeviceGetUUID, true, (device_handle device, char *text, unsigned capacity))                                  \
    X(nvmlDeviceGetName, false, (device_handle device, char *text, unsigned capacity))                                 \
    X(nvmlDeviceGetPciInfo_v3, false, (device_handle device, nvml_pci * out))                                          \
    X(nvmlDeviceGetMemoryInfo_v2, false, (device_handle device, nvml_memory * out))                                    \
    X(nvmlDeviceGetMemoryInfo, false, (device_handle device, nvml_memory_1 * out))                                     \
    X(nvmlDeviceGetCudaComputeCapability, false, (device_handle device, int *major, int *minor))                       \
    X(nvmlDeviceGetAttributes_v2, false, (device_handle device, nvml_attributes * out))                                \
    X(nvmlDeviceGetMigMode, false, (device_handle device, unsigned *now, unsigned *pending))                           \
    X(nvmlDeviceGetMaxMigDeviceCount, false, (device_handle device, unsigned *count))                                  \
    X(nvmlDeviceGetGpuInstanceId, false, (device_handle device, unsigned *id))                                         \
    X(nvmlDeviceGetMigDeviceHandleByIndex, false, (device_handle device, unsigned index, device_handle *out))          \
    X(nvmlDeviceGetMemoryLimits_v1, false, (void *device, void *limits))

typedef struct nvml {
    void *library;
    bool begun;
    const char *(*nvmlErrorString)(int result);
#define X(name, needed, parameters) int(*name) parameters;
    FUNCTIONS(X)
#undef X
} nvml;

/* Calls an optional function; NVML_ERROR_NOT_SUPPORTED without it. */
#define CALL(n, name, ...) ((n)->name ? (n)->name(__VA_ARGS__) : NVML_ERROR_NOT_SUPPORTED)

static bool nvml_open_library(const char *root, nvml *n, wi_found *out)
{
    static const wi_function functions[] = {
#define X(name, needed, parameters) {#name, offsetof(nvml, name), needed},
        FUNCTIONS(X)
#undef X
            {"nvmlErrorString", offsetof(nvml, nvmlErrorString), true}};
    if (!n->library)
        n->library = wi_library_open(root, SONAME, functions, sizeof functions / sizeof *functions, n, out);
    return n->library != NULL;
}

static bool nvml_begin(const char *root, nvml *n, wi_found *out)
{
    if (n->begun)
        return true;
    if (!nvml_open_library(root, n, out))
        return false;
    int result = n->nvmlInit_v2();
    n->begun = result == NVML_SUCCESS;
    if (!n->begun)
        wi_found_remark(out, "nvmlInit_v2: %s", n->nvmlErrorString(result));
    return n->begun;
}

/* So that the next look starts from the beginning. */
static void nvml_end(nvml *n)
{
    n->nvmlShutdown();
    n->begun = false;
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

typedef struct versions {
    weir_version_number driver, runtime;
} versions;

static versions read_versions(const nvml *n)
{
    versions v = {.driver = {.count = 0}};
    char text[NVML_TEXT];
    int number;
    if (CALL(n, nvmlSystemGetDriverVersion, text, sizeof text) == NVML_SUCCESS &&
        wi_version_read(text, &v.driver) != WEIR_OK)
        v.driver.count = 0;
    if (CALL(n, nvmlSystemGetCudaDriverVersion_v2, &number) == NVML_SUCCESS)
        v.runtime = wi_cuda_version(number);
    return v;
}

/* 0 in all is how a driver says that it does not know. */
static void nvml_read_memory(const nvml *n, device_handle handle, weir_hardware_device *out)
{
    nvml_memory now = {.version = NVML_MEMORY_VERSION};
    nvml_memory_1 first = {0};
    if (CALL(n, nvmlDeviceGetMemoryInfo_v2, handle, &now) == NVML_SUCCESS && now.total > 0) {
        out->total = now.total;
        out->free = now.free;
    } else if (CALL(n, nvmlDeviceGetMemoryInfo, handle, &first) == NVML_SUCCESS && first.total > 0) {
        out->total = first.total;
        out->free = first.free;
    }
}

/* What a device and a slice have in common; false, with a remark, for one that does not even tell its UUID. */
static bool read_common(const nvml *n, device_handle handle, const versions *v, wi_found *out, wi_card *card)
{
    weir_hardware_device *d = &card->device;
    char text[NVML_TEXT];
    int result = n->nvmlDeviceGetUUID(handle, text, sizeof text);
    if (result != NVML_SUCCESS) {
        wi_found_remark(out, "a device does not tell its UUID: %s", n->nvmlErrorString(result));
        return false;
    }
    snprintf(d->key, sizeof d->key, "%.63s", text);
    if (CALL(n, nvmlDeviceGetName, handle, text, sizeof text) == NVML_SUCCESS)
        snprintf(d->name, sizeof d->name, "%s", text);
    nvml_read_memory(n, handle, d);
    d->discrete = true;
    d->driver = v->driver;
    d->driver_runtime = v->runtime;
    return true;
}

static void read_slices(const nvml *n, device_handle handle, size_t parent, const versions *v, wi_found *out)
{
    unsigned now = 0, pending, most = 0;
    if (CALL(n, nvmlDeviceGetMigMode, handle, &now, &pending) != NVML_SUCCESS || now != NVML_MIG_ON)
        return;
    out->cards[parent].sliced = true;
    (void)CALL(n, nvmlDeviceGetMaxMigDeviceCount, handle, &most);
    for (unsigned i = 0; i < most; i++) {
        device_handle slice;
        nvml_attributes attributes = {0};
        if (CALL(n, nvmlDeviceGetMigDeviceHandleByIndex, handle, i, &slice) != NVML_SUCCESS)
            continue;
        wi_card *card = wi_found_add(out, WEIR_HARDWARE_CUDA);
        if (!card)
            return;
        if (!read_common(n, slice, v, out, card)) {
            out->count--;
            continue;
        }
        const weir_hardware_device *whole = &out->cards[parent].device;
        snprintf(card->device.parent, sizeof card->device.parent, "%s", whole->key);
        snprintf(card->device.pci, sizeof card->device.pci, "%s", whole->pci);
        card->device.capability = whole->capability;
        if (CALL(n, nvmlDeviceGetGpuInstanceId, slice, &card->instance) != NVML_SUCCESS)
            card->instance = UINT_MAX - i; /* one of its own */
        if (CALL(n, nvmlDeviceGetAttributes_v2, slice, &attributes) != NVML_SUCCESS)
            continue;
        card->device.units = attributes.multiprocessors;
        if (card->device.total == WEIR_BYTES_UNKNOWN && attributes.memory_mib > 0)
            card->device.total = attributes.memory_mib * WI_MIB;
    }
}

static void nvml_read_device(const char *root, const nvml *n, unsigned index, const versions *v, wi_found *out)
{
    device_handle handle;
    int result = n->nvmlDeviceGetHandleByIndex_v2(index, &handle);
    if (result != NVML_SUCCESS) { /* it is lost or not for this process: the others are not concerned */
        wi_found_remark(out, "device number %u: %s", index, n->nvmlErrorString(result));
        return;
    }
    wi_card *card = wi_found_add(out, WEIR_HARDWARE_CUDA);
    if (!card)
        return;
    if (!read_common(n, handle, v, out, card)) {
        out->count--;
        return;
    }
    nvml_pci pci;
    int major, minor;
    if (CALL(n, nvmlDeviceGetPciInfo_v3, handle, &pci) == NVML_SUCCESS)
        wi_pci_read(pci.address, card->device.pci, sizeof card->device.pci);
    if (CALL(n, nvmlDeviceGetCudaComputeCapability, handle, &major, &minor) == NVML_SUCCESS)
        card->device.capability = (weir_version_number){{(uint32_t)major, (uint32_t)minor}, 2};
    (void)wi_cgroup_nvml_limits(root, n->nvmlDeviceGetMemoryLimits_v1, handle, &card->limits);
    read_slices(n, handle, out->count - 1, v, out);
}

static void nvml_ask(const char *root, void **record, wi_found *out)
{
    if (!*record)
        *record = calloc(1, sizeof(nvml));
    nvml *n = *record;
    if (!n || !nvml_begin(root, n, out))
        return;
    unsigned count = 0;
    int result = n->nvmlDeviceGetCount_v2(&count);
    if (result != NVML_SUCCESS) {
        wi_found_remark(out, "nvmlDeviceGetCount_v2: %s", n->nvmlErrorString(result));
        nvml_end(n);
        return;
    }
    versions v = read_versions(n);
    for (unsigned i = 0; i < count; i++)
        nvml_read_device(root, n, i, &v, out);
    if (count == 0) /* it counts when it begins: a device that comes later would never be seen */
        nvml_end(n);
    out->told = true;
}

const wi_source wi_source_nvml = {"nvml", nvml_ask};
