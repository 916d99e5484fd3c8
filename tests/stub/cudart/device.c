/* Devices, errors, and the way to the driver. */
#include "cudart.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static cudart_driver driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local int last_error, device;

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    CUresult (*get)(const char *, void **, int, unsigned long long, int *);
    if (!symbol) {
        fprintf(stderr, "stub: no libcuda.so.1: %s\n", dlerror());
        abort();
    }
    memcpy(&get, &symbol, sizeof get);
#define X(name, version, parameters)                                                                                   \
    {                                                                                                                  \
        void *function = NULL;                                                                                         \
        if (get(#name, &function, version, 0, NULL) != CUDA_SUCCESS)                                                   \
            abort();                                                                                                   \
        memcpy(&driver.name, &function, sizeof function);                                                              \
    }
    WI_CUDA_FUNCTIONS(X)
    STUB_USERS(X)
#undef X
    driver.cuInit(0);
}

/* Finds the driver's function of a name and a version. *how is what cuGetProcAddress says of it. */
static int entry_point(const char *name, void **function, unsigned version, unsigned long long flags, int *how)
{
    enum { INVALID_VALUE = 1, NOT_FOUND = 500 };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol = dlsym(library, "cuGetProcAddress_v2");
    CUresult (*get)(const char *, void **, int, unsigned long long, int *);
    memcpy(&get, &symbol, sizeof get);
    if (!name || !function)
        return cudart_keep(INVALID_VALUE);
    if (get(name, function, (int)version, flags, how) != CUDA_SUCCESS)
        *function = NULL;
    return how || *function ? CUDA_SUCCESS : cudart_keep(NOT_FOUND);
}

CUDART_FUNCTION(int, cudaGetDriverEntryPointByVersion,
                (const char *name, void **function, unsigned version, unsigned long long flags, int *how))
{
    return entry_point(name, function, version, flags, how);
}

/* In the version that the runtime is of. */
CUDART_FUNCTION(int, cudaGetDriverEntryPoint, (const char *name, void **function, unsigned long long flags, int *how))
{
    enum { VERSION = 13000 };
    return entry_point(name, function, VERSION, flags, how);
}

/* What code that is compiled for default streams of threads calls. */
CUDART_FUNCTION(int, cudaGetDriverEntryPoint_ptsz,
                (const char *name, void **function, unsigned long long flags, int *how))
{
    enum { VERSION = 13000, PER_THREAD = 2 };
    return entry_point(name, function, VERSION, flags ? flags : PER_THREAD, how);
}

/* Retained once in the process, and for good. */
CUcontext cudart_primary(int ordinal)
{
    enum { MOST = 80 };
    static CUcontext primaries[MOST];
    static pthread_mutex_t retaining = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&retaining);
    if (ordinal < MOST && !primaries[ordinal])
        driver.cuDevicePrimaryCtxRetain(&primaries[ordinal], ordinal);
    CUcontext context = ordinal < MOST ? primaries[ordinal] : NULL;
    pthread_mutex_unlock(&retaining);
    return context;
}

/* The primary context of the thread's device stays current, as the real library has it; one that a caller has made current
 * is left alone. */
const cudart_driver *cudart_enter(void)
{
    CUcontext context = NULL;
    pthread_once(&once, load);
    driver.cuCtxGetCurrent(&context);
    if (!context)
        driver.cuCtxSetCurrent(cudart_primary(device));
    return &driver;
}

int cudart_keep(CUresult result)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        last_error = result;
    return result;
}

CUDART_FUNCTION(int, cudaGetLastError, (void))
{
    int error = last_error;
    last_error = 0;
    return error;
}

CUDART_FUNCTION(int, cudaPeekAtLastError, (void))
{
    return last_error;
}

static const char *text_of(int error, bool name)
{
    const char *text = NULL;
    const cudart_driver *d = cudart_enter();
    (void)(name ? d->cuGetErrorName(error, &text) : d->cuGetErrorString(error, &text));
    return text ? text : "an error that the stub has no words for";
}

CUDART_FUNCTION(const char *, cudaGetErrorName, (int error))
{
    return text_of(error, true);
}

CUDART_FUNCTION(const char *, cudaGetErrorString, (int error))
{
    return text_of(error, false);
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

CUDART_FUNCTION(int, cudaGetDeviceCount, (int *count))
{
    return cudart_keep(cudart_enter()->cuDeviceGetCount(count));
}

/* That of the context that is current, whoever made it so. */
CUDART_FUNCTION(int, cudaGetDevice, (int *out))
{
    return cudart_keep(cudart_enter()->cuCtxGetDevice(out));
}

/* Its primary context comes in the place of the one that was current, as in the real library. */
CUDART_FUNCTION(int, cudaSetDevice, (int ordinal))
{
    int count = 0;
    pthread_once(&once, load);
    driver.cuDeviceGetCount(&count);
    if (ordinal < 0 || ordinal >= count)
        return cudart_keep(101);
    device = ordinal;
    return cudart_keep(driver.cuCtxSetCurrent(cudart_primary(ordinal)));
}

CUDART_FUNCTION(int, cudaDriverGetVersion, (int *version))
{
    return cudart_keep(cudart_enter()->cuDriverGetVersion(version));
}

CUDART_FUNCTION(int, cudaRuntimeGetVersion, (int *version))
{
    *version = 13000;
    return 0;
}

CUDART_FUNCTION(int, cudaDeviceGetPCIBusId, (char *text, int capacity, int ordinal))
{
    snprintf(text, (size_t)capacity, "0000:%02x:00.0", ordinal);
    return 0;
}

CUDART_FUNCTION(int, cudaDeviceCanAccessPeer, (int *can, int device_here, int peer))
{
    (void)device_here;
    (void)peer;
    *can = 0;
    return 0;
}

CUDART_FUNCTION(int, cudaDeviceEnablePeerAccess, (int peer, unsigned flags))
{
    (void)peer;
    (void)flags;
    return cudart_keep(217); /* cudaErrorPeerAccessUnsupported */
}

CUDART_FUNCTION(int, cudaSetDeviceFlags, (unsigned flags))
{
    (void)flags;
    return 0;
}

/* By their numbers: a device of compute capability 9.0 with one multiprocessor. */
CUDART_FUNCTION(int, cudaDeviceGetAttribute, (int *value, int attribute, int ordinal))
{
    static const struct {
        int attribute, value;
    } known[] = {{1, 1024},  {2, 1024},     {3, 1024},       {4, 64},        {5, 1 << 30}, {6, 65535},
                 {7, 65535}, {8, 48 << 10}, {10, 32},        {12, 65536},    {16, 1},      {39, 2048},
                 {75, 9},    {76, 0},       {81, 228 << 10}, {97, 227 << 10}};
    (void)ordinal;
    *value = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute)
            *value = known[i].value;
    return 0;
}

/* cudaDeviceProp of CUDA 13, of which only what follows is filled in. */
CUDART_FUNCTION(int, cudaGetDeviceProperties, (void *properties, int ordinal))
{
    enum { SIZE = 1008 };
    char *p = properties;
    size_t available, total = 0;
    const struct {
        size_t offset;
        int value;
    } numbers[] = {{304, 65536}, {308, 32},    {320, 1024}, {324, 1024}, {328, 1024}, {332, 64},  {336, 1 << 30},
                   {340, 65535}, {344, 65535}, {360, 9},    {364, 0},    {384, 1},    {604, 2048}};
    const struct {
        size_t offset, value;
    } sizes[] = {{296, 48 << 10}, {352, 64 << 10}, {368, 512}, {376, 32}, {624, 228 << 10}, {672, 227 << 10}};
    memset(p, 0, SIZE);
    snprintf(p, 256, "stub %d", ordinal);
    int result = cudart_enter()->cuMemGetInfo(&available, &total);
    memcpy(p + 288, &total, sizeof total);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        memcpy(p + numbers[i].offset, &numbers[i].value, sizeof numbers[i].value);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        memcpy(p + sizes[i].offset, &sizes[i].value, sizeof sizes[i].value);
    return cudart_keep(result);
}

CUDART_FUNCTION(int, cudaDeviceSynchronize, (void))
{
    return cudart_keep(cudart_enter()->cuCtxSynchronize());
}
