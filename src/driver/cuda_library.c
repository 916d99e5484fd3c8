/* Finding CUDA's driver at run time. */
#include "driver/cuda_api.h"

#include <dlfcn.h>

wi_cuda_functions wi_cuda;

typedef CUresult (*get_proc)(const char *name, void **function, int version, unsigned long long flags, int *found);
typedef CUresult (*init)(unsigned flags);

static weir_status cuda_library_find_all(void *library)
{
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    if (!symbol)
        return weir_fail(WEIR_ERR_NOT_FOUND,
                         "libcuda.so.1 has no cuGetProcAddress_v2: the driver is older than CUDA 12; "
                         "install a newer one");
    get_proc get;
    memcpy(&get, &symbol, sizeof get);
#define X(name, version, parameters)                                                                                   \
    {                                                                                                                  \
        void *function = NULL;                                                                                         \
        if (get(#name, &function, version, 0, NULL) != CUDA_SUCCESS || !function)                                      \
            return weir_fail(WEIR_ERR_NOT_FOUND, "libcuda.so.1 has no " #name ": install a newer driver");             \
        memcpy(&wi_cuda.name, &function, sizeof function);                                                             \
    }
    WI_CUDA_FUNCTIONS(X)
#undef X
    void *later = NULL;
    if (get("cuCtxRecordEvent", &later, 12050, 0, NULL) == CUDA_SUCCESS)
        memcpy(&wi_cuda.cuCtxRecordEvent, &later, sizeof later);
    return WEIR_OK;
}

weir_status wi_cuda_load(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    pthread_mutex_lock(&lock);
    weir_status status = WEIR_OK;
    if (!loaded) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        status = library ? cuda_library_find_all(library)
                         : weir_fail(WEIR_ERR_NOT_FOUND,
                                     "no CUDA driver: %s; install the NVIDIA driver (apt install nvidia-driver; for a "
                                     "container: docker run --gpus all), or use the device host",
                                     dlerror());
        loaded = status == WEIR_OK;
        /* A usable library is never closed: it keeps threads and exit handlers of its own. An unusable library is
         * closed, or the next call would get the same library instead of a driver installed meanwhile. */
        if (library && !loaded)
            dlclose(library);
    }
    pthread_mutex_unlock(&lock);
    return status;
}
