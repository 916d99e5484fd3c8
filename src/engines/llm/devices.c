/* devices.c: GenAI's library for CUDA, which takes buffers for searching by cudaMalloc and cudaHostAlloc, and nobody
 * can plug in. While there are models on CUDA its import slots lead to their clients (interpose/cuda_redirect.h).
 *
 * GenAI keeps a single stream for good, and a redirect knows only streams that were made under the redirect. So freed
 * memory has to be idle already: a generator goes when its run has read its last token. Pinned memory stays CUDA's:
 * GenAI has a pool of it, for all its models and as long as the process. */
#include "interpose/cuda_redirect.h"
#include "wl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* All guarded by the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char file[600];
static void *handle;
static wi_cuda_redirect *redirect;
static weir_client *bystander; /* who is charged for what no model asked for */
static size_t users;

wi_cuda_redirect *wl_devices_redirect(void)
{
    return __atomic_load_n(&redirect, __ATOMIC_ACQUIRE);
}

weir_status wl_devices_needs(char *missing, size_t capacity)
{
    static const char *const more[] = {"libcublasLt.so.13", "libcurand.so.10", "libcufft.so.12", "libcudnn.so.9", NULL};
    const char *name = wi_cuda_missing(more);
    if (!name)
        return WEIR_OK;
    snprintf(missing, capacity,
             "ONNX Runtime and GenAI need %s for CUDA: install NVIDIA's driver, and put CUDA 13 and cuDNN 9 "
             "where the dynamic linker finds them (LD_LIBRARY_PATH)",
             name);
    return WEIR_ERR_NOT_FOUND;
}

/* Opens GenAI's library for CUDA; GenAI later takes the library that is open. */
static weir_status llm_devices_open_library(const char *genai)
{
    char missing[512];
    const char *slash = strrchr(genai, '/');
    if (handle)
        return WEIR_OK;
    if (wl_devices_needs(missing, sizeof missing) != WEIR_OK)
        return weir_fail(WEIR_ERR_ENGINE, "%s", missing);
    snprintf(file, sizeof file, "%.*s/libonnxruntime-genai-cuda.so", slash ? (int)(slash - genai) : 1,
             slash ? genai : ".");
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    return handle ? WEIR_OK : weir_fail(WEIR_ERR_ENGINE, "GenAI's library for CUDA cannot be opened: %s", dlerror());
}

static weir_status llm_devices_begin(weir_runtime *runtime)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    wi_cuda_redirect *begun = NULL;
    options.name = "onnxruntime-genai";
    weir_status status = weir_client_create(runtime, &options, &bystander);
    if (status != WEIR_OK)
        return status;
    const wi_cuda_redirect_options its = {.module = file,
                                          .clients = &bystander,
                                          .client_count = 1,
                                          .memory_class = WEIR_CLASS_SCRATCH,
                                          .pinned_passes = true};
    status = wi_cuda_redirect_begin(&its, &begun);
    if (status == WEIR_OK)
        __atomic_store_n(&redirect, begun, __ATOMIC_RELEASE);
    return status;
}

static void drop_bystander(void)
{
    if (bystander && weir_client_destroy(bystander) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "llm: the account of GenAI itself stays: %s", weir_detail());
    bystander = NULL;
}

static weir_status llm_devices_check_device(weir_runtime *runtime)
{
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    weir_status status = weir_runtime_info(runtime, &its);
    if (status == WEIR_OK && its.ordinal != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "ONNX Runtime GenAI runs on the first device of CUDA alone, and %s is another; "
                         "CUDA_VISIBLE_DEVICES says which is the first",
                         its.device);
    weir_client *there = redirect ? wi_cuda_redirect_client(redirect, runtime) : NULL;
    if (status == WEIR_OK && there && weir_client_runtime(there) != runtime)
        return weir_fail(WEIR_ERR_BUSY,
                         "ONNX Runtime GenAI has models on %s in another runtime of this process; one process has one "
                         "at a time",
                         its.device);
    return status;
}

weir_status wl_devices_open(const char *genai, weir_client *client)
{
    weir_runtime *runtime = weir_client_runtime(client);
    pthread_mutex_lock(&lock);
    weir_status status = llm_devices_check_device(runtime);
    if (status == WEIR_OK)
        status = llm_devices_open_library(genai);
    if (status == WEIR_OK && !redirect)
        status = llm_devices_begin(runtime);
    if (status == WEIR_OK)
        users++;
    else if (!redirect)
        drop_bystander();
    pthread_mutex_unlock(&lock);
    return status;
}

void wl_devices_close(void)
{
    enum { MOST_MS = 10000 };
    pthread_mutex_lock(&lock);
    if (!wi_cuda_redirect_settle(redirect, MOST_MS))
        weir_log(WEIR_LOG_ERROR, "llm: memory of a model that is gone stays, as a stream's capture does not end");
    if (--users == 0) {
        wi_cuda_redirect *ending = redirect;
        if (wi_cuda_redirect_end(ending) == WEIR_OK) {
            __atomic_store_n(&redirect, NULL, __ATOMIC_RELEASE);
            drop_bystander();
        } else {
            weir_log(WEIR_LOG_ERROR, "llm: GenAI keeps memory of CUDA without a model: %s", weir_detail());
        }
    }
    pthread_mutex_unlock(&lock);
}
