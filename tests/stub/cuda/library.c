/* Finding the stub's functions, its devices and its words for errors. */
#include "stub.h"

#define STUB_API __attribute__((visibility("default")))

/* What ONNX Runtime's provider links to by name, and never calls where kernels do nothing. */
STUB_API CUresult cuTensorMapEncodeTiled(void);
CUresult cuTensorMapEncodeTiled(void)
{
    return STUB_NOT_PERMITTED;
}

/* The stub's own form of cuGetProcAddress_v2: the exported name is that of a library before this one in a program that
 * preloads it. */
static CUresult get_address(const char *name, void **function, int version, unsigned long long flags, int *found);
STUB_API CUresult cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags,
                                      int *found);

/* The form from before CUDA 12. */
static CUresult get_address_as_before(const char *name, void **function, int version, unsigned long long flags)
{
    return get_address(name, function, version, flags, NULL);
}

STUB_API CUresult cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags);
CUresult cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags)
{
    return get_address(name, function, version, flags, NULL);
}

typedef struct entry {
    const char *name;
    int version;
    void (*function)(void);
} entry;

/* A form that a driver has some day. */
static CUresult later(void)
{
    return STUB_NOT_PERMITTED;
}

static const entry entries[] = {
    {"cuMemFreeHost", 14000, (void (*)(void))later},
    {"cuMemcpyBatchAsync", 13000, (void (*)(void))later},
#define X(name, version, parameters) {#name, version, (void (*)(void))stub_##name},
    WI_CUDA_FUNCTIONS(X) STUB_USERS(X)
#undef X
        {"cuGetProcAddress", 12000, (void (*)(void))get_address},
    {"cuGetProcAddress", 11030, (void (*)(void))get_address_as_before},
};

/* The forms that programs get who want NULL to be the default stream of the thread. */
static const entry per_thread[] = {
    {"cuMemAllocAsync", 11020, (void (*)(void))stub_cuMemAllocAsync_ptsz},
    {"cuMemAllocFromPoolAsync", 11020, (void (*)(void))stub_cuMemAllocFromPoolAsync_ptsz},
    {"cuMemFreeAsync", 11020, (void (*)(void))stub_cuMemFreeAsync_ptsz},
    {"cuStreamBeginCapture", 10010, (void (*)(void))stub_cuStreamBeginCapture_ptsz},
    {"cuStreamBeginCaptureToGraph", 12030, (void (*)(void))stub_cuStreamBeginCaptureToGraph_ptsz},
    {"cuStreamBeginRecaptureToGraph", 13030, (void (*)(void))stub_cuStreamBeginRecaptureToGraph_ptsz},
    {"cuStreamEndCapture", 10000, (void (*)(void))stub_cuStreamEndCapture_ptsz},
};

#define TEXT(name)  #name
#define QUOTE(name) TEXT(name)

static bool lacks(const char *name)
{
#ifdef STUB_LACKS
    return strcmp(name, QUOTE(STUB_LACKS)) == 0;
#else
    (void)name;
    return false;
#endif
}

static CUresult get_address(const char *name, void **function, int version, unsigned long long flags, int *found)
{
    enum { PER_THREAD = 2 };
    *function = NULL;
    if (found)
        *found = 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    if (flags > PER_THREAD)
        return STUB_INVALID_VALUE;
    for (size_t i = 0; flags == PER_THREAD && i < sizeof per_thread / sizeof per_thread[0]; i++)
        if (strcmp(per_thread[i].name, name) == 0 && version >= per_thread[i].version) {
            memcpy(function, &per_thread[i].function, sizeof *function);
            if (found)
                *found = 0;
            return CUDA_SUCCESS;
        }
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].name, name) != 0 || lacks(name) || version < entries[i].version)
            continue;
        memcpy(function, &entries[i].function, sizeof *function);
        if (found)
            *found = 0;
        return CUDA_SUCCESS;
    }
    return STUB_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found)
{
    return get_address(name, function, version, flags, found);
}

STUB_API void *stub_function(const char *name, int version, unsigned long long flags, int *found);
void *stub_function(const char *name, int version, unsigned long long flags, int *found)
{
    void *function;
    return get_address(name, &function, version, flags, found) == CUDA_SUCCESS ? function : NULL;
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

CUresult stub_cuInit(unsigned flags)
{
    stub_init();
    STUB_CALL(cuInit, STUB_ANYTIME);
    if (flags != 0)
        return STUB_INVALID_VALUE;
    pthread_mutex_lock(&stub.lock);
    stub.initialized = stub.devices > 0;
    pthread_mutex_unlock(&stub.lock);
    return stub.devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult stub_cuDriverGetVersion(int *version)
{
    STUB_CALL(cuDriverGetVersion, STUB_ANYTIME);
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetCount(int *count)
{
    STUB_CALL(cuDeviceGetCount, 0);
    *count = stub.devices;
    return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGet(CUdevice *device, int ordinal)
{
    STUB_CALL(cuDeviceGet, 0);
    if (ordinal < 0 || ordinal >= stub.devices)
        return STUB_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult stub_cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    STUB_CALL(cuDeviceGetAttribute, 0);
    if (device < 0 || device >= stub.devices)
        return STUB_INVALID_DEVICE;
    *value = (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED && !stub.unmanaged) ||
             (attribute == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED && !stub.unpooled) ||
             (attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED && !stub.unreachable);
    return CUDA_SUCCESS;
}

/* Words ------------------------------------------------------------------------------------------------------------ */

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {STUB_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {STUB_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {STUB_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {STUB_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {STUB_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {STUB_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {STUB_CAPTURE_BROKEN, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {STUB_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {STUB_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
};

static CUresult describe(CUresult code, const char **out, bool name)
{
    *out = NULL; /* as the real one does for a code that is none */
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            *out = name ? errors[i].name : errors[i].text;
    return *out ? CUDA_SUCCESS : STUB_INVALID_VALUE;
}

CUresult stub_cuGetErrorName(CUresult error, const char **text)
{
    STUB_CALL(cuGetErrorName, STUB_ANYTIME);
    return describe(error, text, true);
}

CUresult stub_cuGetErrorString(CUresult error, const char **text)
{
    STUB_CALL(cuGetErrorString, STUB_ANYTIME);
    return describe(error, text, false);
}
