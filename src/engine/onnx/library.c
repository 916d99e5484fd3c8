/* See library.h. The library stays open, and its environment with it, until the process ends: ONNX Runtime keeps threads
 * and state of its own that do not survive an unload. */
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <weir/log.h>
#include <weir/options.h>

enum { OLDEST_MINOR = 23 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static onnx_library library; /* complete when `api` is set; guarded by lock until then */

bool onnx_failed(const ort_api *api, ort_status *status, int *code, char *text, size_t capacity)
{
    if (!status)
        return false;
    *code = api->GetErrorCode(status);
    snprintf(text, capacity, "%s", api->GetErrorMessage(status));
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    api->ReleaseStatus(status);
    return true;
}

static void forward_log(void *user, int severity, const char *category, const char *log_id, const char *place,
                        const char *message)
{
    (void)user;
    (void)category;
    (void)log_id;
    weir_log_level level = severity >= ORT_LOG_ERROR     ? WEIR_LOG_ERROR
                           : severity == ORT_LOG_WARNING ? WEIR_LOG_WARNING
                                                         : WEIR_LOG_DEBUG;
    weir_log(level, "onnxruntime: %s (%s)", message, place);
}

static weir_status check_version(const ort_base *base, onnx_library *into)
{
    unsigned major = 0, minor = 0;
    snprintf(into->version, sizeof into->version, "%s", base->GetVersionString());
    if (sscanf(into->version, "%u.%u", &major, &minor) != 2 || major != 1 || minor < OLDEST_MINOR)
        return weir_fail(WEIR_UNSUPPORTED,
                         "%s is ONNX Runtime %s; weir needs 1.%d or a later 1.x: run scripts/engines, or set "
                         "WEIR_ONNXRUNTIME to a newer libonnxruntime.so",
                         into->path, into->version, OLDEST_MINOR);
    return WEIR_OK;
}

static weir_status make_environment(const ort_base *base, onnx_library *into)
{
    const ort_api *api = base->GetApi(ORT_API_WANTED);
    if (!api)
        return weir_fail(WEIR_UNSUPPORTED, "%s (ONNX Runtime %s) does not offer version %d of its interface",
                         into->path, into->version, ORT_API_WANTED);
    int code;
    char text[512];
    if (onnx_failed(api, api->CreateEnvWithCustomLogger(forward_log, NULL, ORT_LOG_ERROR, "weir", &into->env), &code,
                    text, sizeof text) ||
        onnx_failed(api, api->CreateCpuMemoryInfo(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &into->host), &code, text,
                    sizeof text) ||
        onnx_failed(api, api->GetAllocatorWithDefaultOptions(&into->plain), &code, text, sizeof text))
        return weir_fail(WEIR_ENGINE, "ONNX Runtime %s could not be started: %s", into->version, text);
    into->api = api;
    return WEIR_OK;
}

static weir_status start(void *handle, onnx_library *into)
{
    const ort_base *(*get_base)(void) = NULL;
    *(void **)&get_base = dlsym(handle, "OrtGetApiBase");
    if (!get_base)
        return weir_fail(WEIR_ENGINE, "%s is no ONNX Runtime: it has no OrtGetApiBase", into->path);
    const ort_base *base = get_base();
    weir_status status = check_version(base, into);
    return status == WEIR_OK ? make_environment(base, into) : status;
}

/* ---- where it is ------------------------------------------------------------------------------------------------- */

static const char *option(const char *name, weir_option *space)
{
    *space = WEIR_INIT(weir_option);
    return weir_option_get(name, space) == WEIR_OK ? space->value : "";
}

/* What scripts/engines has put into the store: the build for CUDA, which runs on the CPU as well and was asked for by name,
 * before the other. */
static void store_path(char *path, size_t capacity)
{
    static const char *const builds[] = {"onnxruntime-cuda", "onnxruntime"};
    weir_option home;
    const char *value = option("home", &home);
    path[0] = 0;
    for (size_t i = 0; value[0] && i < sizeof builds / sizeof *builds; i++) {
        snprintf(path, capacity, "%s/engines/%s/current/libonnxruntime.so", value, builds[i]);
        if (access(path, R_OK) == 0)
            return;
    }
}

static void note_path(void *handle, const char *asked, onnx_library *into)
{
    Dl_info info;
    void *symbol = dlsym(handle, "OrtGetApiBase");
    const char *path = symbol && dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : asked;
    snprintf(into->path, sizeof into->path, "%s", path);
}

static weir_status open_at(const char *path, onnx_library *into)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return weir_fail(WEIR_NOT_FOUND, "%s", dlerror());
    note_path(handle, path, into);
    return start(handle, into);
}

static weir_status find(onnx_library *into)
{
    char store[512];
    weir_option named;
    const char *path = option("onnxruntime", &named);
    if (path[0]) {
        weir_status status = open_at(path, into);
        return status != WEIR_NOT_FOUND ? status
                                        : weir_fail(WEIR_NOT_FOUND,
                                                    "ONNX Runtime, as the option onnxruntime (%s) names it, cannot be "
                                                    "opened: %s",
                                                    named.environment, weir_detail());
    }
    store_path(store, sizeof store);
    if (store[0] && access(store, R_OK) == 0)
        return open_at(store, into);
    static const char *const system_names[] = {"libonnxruntime.so.1", "libonnxruntime.so"};
    for (size_t i = 0; i < sizeof system_names / sizeof *system_names; i++) {
        weir_status status = open_at(system_names[i], into);
        if (status != WEIR_NOT_FOUND)
            return status;
    }
    return weir_fail(WEIR_NOT_FOUND,
                     "ONNX Runtime is not here: no %s and no system library; run scripts/engines onnxruntime, or set "
                     "WEIR_ONNXRUNTIME to a libonnxruntime.so of version 1.%d or newer",
                     store[0] ? store : "engine store", OLDEST_MINOR);
}

weir_status onnx_library_get(const onnx_library **out)
{
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&lock);
    if (!library.api) {
        onnx_library found = {0};
        status = find(&found);
        if (status == WEIR_OK)
            library = found;
    }
    pthread_mutex_unlock(&lock);
    *out = status == WEIR_OK ? &library : NULL;
    return status;
}
