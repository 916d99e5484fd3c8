/* CUDA's driver: which devices this process may use, and as which ordinals. cuInit makes no context. */
#include "factory/hardware/hardware.h"
#include <weir/select.h>

#include "base/values.h"

#include <stdio.h>

#define SONAME "libcuda.so.1"

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_NO_DEVICE = 100,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
};

/* Values and types are those of cuda.h (CUDA 13.0), under the names that the library exports. */
#define FUNCTIONS(X)                                                                                                   \
    X(cuInit, true, (unsigned flags))                                                                                  \
    X(cuDriverGetVersion, true, (int *version))                                                                        \
    X(cuGetErrorName, true, (int error, const char **text))                                                            \
    X(cuDeviceGetCount, true, (int *count))                                                                            \
    X(cuDeviceGet, true, (int *device, int ordinal))                                                                   \
    X(cuDeviceGetName, true, (char *text, int capacity, int device))                                                   \
    X(cuDeviceTotalMem_v2, true, (size_t * bytes, int device))                                                         \
    X(cuDeviceGetAttribute, true, (int *value, int attribute, int device))                                             \
    X(cuDeviceGetUuid, false, (unsigned char *uuid, int device))                                                       \
    X(cuDeviceGetUuid_v2, false, (unsigned char *uuid, int device))                                                    \
    X(cuDeviceGetPCIBusId, false, (char *text, int capacity, int device))

typedef struct cuda {
    void *library;
#define X(name, needed, parameters) int(*name) parameters;
    FUNCTIONS(X)
#undef X
} cuda;

static const char *hardware_cuda_words_of(const cuda *c, int result)
{
    const char *text = NULL;
    return c->cuGetErrorName(result, &text) == CUDA_SUCCESS && text ? text : "an error without a name";
}

/* Never closes a usable library: the library keeps threads and exit handlers of its own. */
static bool hardware_cuda_open_library(const char *root, cuda *c, wi_found *out)
{
    static const wi_function functions[] = {
#define X(name, needed, parameters) {#name, offsetof(cuda, name), needed},
        FUNCTIONS(X)
#undef X
    };
    if (!c->library)
        c->library = wi_library_open(root, SONAME, functions, sizeof functions / sizeof *functions, c, out);
    return c->library != NULL;
}

/* A slice tells its own UUID, without telling that the device is a slice. */
static void write_key(const cuda *c, int device, int ordinal, weir_hardware_device *out)
{
    unsigned char id[16];
    size_t used = sizeof "GPU-" - 1;
    int result = c->cuDeviceGetUuid_v2 ? c->cuDeviceGetUuid_v2(id, device)
                 : c->cuDeviceGetUuid  ? c->cuDeviceGetUuid(id, device)
                                       : CUDA_ERROR_NO_DEVICE;
    snprintf(out->key, sizeof out->key, "GPU-");
    if (result != CUDA_SUCCESS && out->pci[0])
        snprintf(out->key, sizeof out->key, "%s", out->pci);
    else if (result != CUDA_SUCCESS)
        snprintf(out->key, sizeof out->key, "cuda-%d", ordinal);
    for (size_t i = 0; i < sizeof id && result == CUDA_SUCCESS; i++)
        used += (size_t)snprintf(out->key + used, sizeof out->key - used, "%s%02x",
                                 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
}

static int attribute(const cuda *c, int which, int device)
{
    int value = 0;
    return c->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS && value > 0 ? value : 0;
}

static void hardware_cuda_read_device(const cuda *c, int ordinal, wi_found *out)
{
    int device;
    int result = c->cuDeviceGet(&device, ordinal);
    wi_card *card = result == CUDA_SUCCESS ? wi_found_add(out, WEIR_HARDWARE_CUDA) : NULL;
    if (!card) {
        wi_found_remark(out, "device number %d: %s", ordinal, hardware_cuda_words_of(c, result));
        return;
    }
    weir_hardware_device *d = &card->device;
    char address[32] = "";
    size_t bytes = 0;
    d->ordinal = ordinal;
    if (c->cuDeviceGetPCIBusId && c->cuDeviceGetPCIBusId(address, sizeof address, device) == CUDA_SUCCESS)
        wi_pci_read(address, d->pci, sizeof d->pci);
    write_key(c, device, ordinal, d);
    if (c->cuDeviceGetName(d->name, sizeof d->name, device) != CUDA_SUCCESS)
        d->name[0] = '\0';
    if (c->cuDeviceTotalMem_v2(&bytes, device) == CUDA_SUCCESS && bytes > 0)
        d->total = bytes;
    d->units = (uint32_t)attribute(c, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    d->shares_host = attribute(c, CU_DEVICE_ATTRIBUTE_INTEGRATED, device) != 0;
    d->discrete = !d->shares_host;
    uint32_t major = (uint32_t)attribute(c, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    uint32_t minor = (uint32_t)attribute(c, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (major)
        d->capability = (weir_version_number){{major, minor}, 2};
}

/* The versions are the driver's, and so every device's. */
static void add_versions(const char *root, const cuda *c, wi_found *out)
{
    weir_version_number driver = wi_version_in(root, "/sys/module/nvidia/version"), runtime = {.count = 0};
    int number;
    if (c->cuDriverGetVersion(&number) == CUDA_SUCCESS)
        runtime = wi_cuda_version(number);
    for (size_t i = 0; i < out->count; i++) {
        out->cards[i].device.driver = driver;
        out->cards[i].device.driver_runtime = runtime;
    }
}

static void hardware_cuda_ask(const char *root, void **record, wi_found *out)
{
    if (!*record)
        *record = calloc(1, sizeof(cuda));
    cuda *c = *record;
    if (!c || !hardware_cuda_open_library(root, c, out))
        return;
    int count = 0, result = c->cuInit(0);
    const char *call = "cuInit";
    if (result == CUDA_SUCCESS) {
        call = "cuDeviceGetCount";
        result = c->cuDeviceGetCount(&count);
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE) {
        wi_found_remark(out, "%s: %s", call, hardware_cuda_words_of(c, result));
        return;
    }
    for (int i = 0; i < count; i++)
        hardware_cuda_read_device(c, i, out);
    add_versions(root, c, out);
    out->told = true;
}

weir_version_number wi_cuda_version(int number)
{
    weir_version_number version = {{(uint32_t)(number / 1000), (uint32_t)(number % 1000 / 10)}, 2};
    return number > 0 ? version : (weir_version_number){.count = 0};
}

const wi_source wi_source_cuda = {"cuda", hardware_cuda_ask};
