/* devices.c: llama.cpp on CUDA. Its backend is a library of its own, libggml-cuda.so, which is opened when a model asks
 * for a device. The library allocates by cudaMalloc; a redirect (interpose/cuda_redirect.h) sends these calls to the
 * clients of the model that the calling thread works for. The redirect lasts as long as a model on a device is
 * loaded. */
#include "engines/command.h"
#include "interpose/cuda_redirect.h"
#include "wg.h"
#include <weir/stats.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static weir_status refuse_place(const weir_engine_load *load, const char *device, const char *why)
{
    return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: the engine gguf computes on the host and on cuda; the place '%s' %s",
                     load->path, device, why);
}

static weir_status gguf_devices_add(const weir_engine_load *load, const weir_engine_place *place, wg_devices *out)
{
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    weir_client_stats account = WEIR_INIT(weir_client_stats);
    weir_status status = weir_client_info(place->client, &account);
    if (status == WEIR_OK)
        status = weir_runtime_info(account.runtime, &its);
    if (status != WEIR_OK)
        return status;
    if (strcmp(its.device, "host") == 0) {
        out->host = out->kind == WEIR_KIND_DEVICE && out->host ? out->host : place->client;
        out->kind = WEIR_KIND_DEVICE;
        return WEIR_OK;
    }
    if (strncmp(its.device, "cuda", 4) != 0)
        return refuse_place(load, its.device, "is none for it");
    for (size_t i = 0; i < out->count; i++)
        if (weir_client_runtime(out->clients[i]) == account.runtime)
            return refuse_place(load, its.device, "is named twice");
    if (out->count == WG_DEVICES)
        return refuse_place(load, its.device, "is one too many");
    out->clients[out->count++] = place->client;
    if (!out->host) {
        out->host = place->client;
        out->kind = WEIR_KIND_HOST;
    }
    return WEIR_OK;
}

/* An older caller's structure ends before the provider. NULL: what the first place is. */
static weir_status check_provider(const weir_engine_load *load, const wg_devices *devices)
{
    const char *asked = load->struct_size > offsetof(weir_engine_load, provider) ? load->provider : NULL;
    if (!asked || (load->place_count == 0 && strcasecmp(asked, "cuda") == 0))
        return WEIR_OK;
    bool cuda = strcasecmp(asked, "cuda") == 0;
    if (!cuda && strcasecmp(asked, "cpu") != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: the engine gguf has the providers cuda and cpu, not %s", load->path,
                         asked);
    if (cuda != (devices->count > 0))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: the provider %s needs a place on %s", load->path, asked,
                         cuda ? "cuda" : "the host alone");
    return WEIR_OK;
}

weir_status wg_devices_read(const weir_engine_load *load, bool planning, wg_devices *out)
{
    weir_status status = WEIR_OK;
    *out = (wg_devices){.kind = WEIR_KIND_HOST};
    if (!load->path || (!planning && load->place_count == 0) || (load->place_count > 0 && !load->places))
        return weir_fail(WEIR_ERR_INVALID, "the engine gguf needs a path and a place with a client");
    for (size_t i = 0; i < load->place_count && status == WEIR_OK; i++)
        status = load->places[i].client ? gguf_devices_add(load, &load->places[i], out)
                                        : weir_fail(WEIR_ERR_INVALID, "%s: place %zu has no client", load->path, i);
    return status == WEIR_OK ? check_provider(load, out) : status;
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

/* All below is guarded by the lock. The library stays open; the redirect, and a client for each device that serves what
 * no model asked for, are there while models are. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char file[600];
static void *handle;
static ggml_backend_reg_t registry;
static wi_cuda_redirect *redirect;
static size_t users;
static weir_client *bystanders[WI_CUDA_DEVICES];

wi_cuda_redirect *wg_devices_redirect(void)
{
    return __atomic_load_n(&redirect, __ATOMIC_ACQUIRE);
}

weir_status wg_devices_find(const char *directory, char *path, size_t capacity)
{
    static const char *const folders[] = {"lib/libggml-cuda.so", "libggml-cuda.so"};
    char store[600];
    if (!directory[0]) {
        wg_store_directory("engines/llama-cuda/current", store, sizeof store);
        directory = store;
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, capacity, "%s/%s", directory, folders[i]);
        if (access(path, R_OK) == 0)
            return wg_check_mark(directory);
    }
    return weir_fail(
        WEIR_ERR_NOT_FOUND,
        "llama.cpp's library for CUDA is not here: no libggml-cuda.so in %s or in its lib/; run " WEIR_ENGINES_COMMAND
        " --cuda llama-cuda, or name another directory by the setting 'llama_cuda'",
        directory);
}

weir_status wg_devices_needs(char *missing, size_t capacity)
{
    const char *name = wi_cuda_missing(NULL);
    if (!name)
        return WEIR_OK;
    snprintf(missing, capacity,
             "llama.cpp's library for CUDA needs %s: install NVIDIA's driver, and put CUDA 13 where the dynamic "
             "linker finds it (LD_LIBRARY_PATH)",
             name);
    return WEIR_ERR_NOT_FOUND;
}

static weir_status gguf_devices_open_library(const char *directory)
{
    char path[600];
    if (handle && !directory[0])
        return WEIR_OK;
    weir_status status = wg_devices_find(directory, path, sizeof path);
    if (status != WEIR_OK)
        return status;
    if (handle && strcmp(path, file) != 0)
        return weir_fail(WEIR_ERR_CONFLICT,
                         "the setting 'llama_cuda' names %s, and this process already runs %s; there can be one", path,
                         file);
    if (handle)
        return WEIR_OK;
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return weir_fail(
            WEIR_ERR_ENGINE,
            "llama.cpp's library for CUDA cannot be opened: %s; it needs NVIDIA's driver, and CUDA 13 where "
            "the dynamic linker finds it (LD_LIBRARY_PATH)",
            dlerror());
    snprintf(file, sizeof file, "%s", path);
    return WEIR_OK;
}

/* The client that has what is allocated on the device for no model: it belongs to the process. */
static weir_status make_bystander(const weir_client *client)
{
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "llama.cpp";
    weir_status status = weir_runtime_info(weir_client_runtime(client), &its);
    if (status == WEIR_OK && (its.ordinal < 0 || its.ordinal >= WI_CUDA_DEVICES))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "llama.cpp has no device %d", its.ordinal);
    return status == WEIR_OK ? weir_client_create(weir_client_runtime(client), &options, &bystanders[its.ordinal])
                             : status;
}

static void drop_bystanders(void)
{
    for (size_t i = 0; i < WI_CUDA_DEVICES; i++) {
        if (bystanders[i] && weir_client_destroy(bystanders[i]) != WEIR_OK)
            weir_log(WEIR_LOG_ERROR, "gguf: the account of llama.cpp itself stays: %s", weir_detail());
        bystanders[i] = NULL;
    }
}

static weir_status begin_redirect(weir_client *client)
{
    const wi_cuda_redirect_options options = {
        .module = file, .clients = &client, .client_count = 1, .memory_class = WEIR_CLASS_SCRATCH};
    wi_cuda_redirect *begun = NULL;
    weir_status status = wi_cuda_redirect_begin(&options, &begun);
    __atomic_store_n(&redirect, begun, __ATOMIC_RELEASE);
    return status;
}

/* Has the redirect serve the client's device, by a client of the same runtime. */
static weir_status gguf_devices_serve(weir_client *client)
{
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    weir_client *there = redirect ? wi_cuda_redirect_client(redirect, weir_client_runtime(client)) : NULL;
    if (there && weir_client_runtime(there) == weir_client_runtime(client))
        return WEIR_OK;
    weir_status status = weir_runtime_info(weir_client_runtime(client), &its);
    if (status != WEIR_OK)
        return status;
    if (there)
        return weir_fail(WEIR_ERR_BUSY,
                         "llama.cpp has models on %s in another runtime of this process; one process has one at a time",
                         its.device);
    status = make_bystander(client);
    if (status == WEIR_OK)
        status = redirect ? wi_cuda_redirect_add(redirect, bystanders[its.ordinal])
                          : begin_redirect(bystanders[its.ordinal]);
    return status;
}

static weir_status end_redirect(void)
{
    wi_cuda_redirect *ending = redirect;
    if (users > 0 || !ending)
        return WEIR_OK;
    weir_status status = wi_cuda_redirect_end(ending);
    if (status != WEIR_OK)
        return status; /* it goes on */
    __atomic_store_n(&redirect, NULL, __ATOMIC_RELEASE);
    drop_bystanders();
    return WEIR_OK;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

typedef struct finding {
    const wg_library *library;
    wg_devices *devices;
    weir_status status;
} finding;

/* llama.cpp numbers devices as CUDA does, and weir as well. */
static void gguf_devices_find_devices(void *user)
{
    finding *it = user;
    const wg_library *lib = it->library;
    ggml_backend_reg_t (*reg)(void);
    *(void **)&reg = dlsym(handle, "ggml_backend_cuda_reg");
    if (!registry)
        registry = reg ? reg() : NULL;
    size_t there = registry ? lib->ggml_backend_reg_dev_count(registry) : 0;
    for (size_t i = 0; i < it->devices->count; i++) {
        weir_runtime_details its = WEIR_INIT(weir_runtime_details);
        it->status = weir_runtime_info(weir_client_runtime(it->devices->clients[i]), &its);
        if (it->status == WEIR_OK && (its.ordinal < 0 || (size_t)its.ordinal >= there))
            it->status = weir_fail(WEIR_ERR_ENGINE, "llama.cpp finds %zu devices of CUDA, and %s is not among them: %s",
                                   there, its.device, wg_log_first_error());
        if (it->status != WEIR_OK)
            return;
        ggml_backend_dev_t device = lib->ggml_backend_reg_dev_get(registry, (size_t)its.ordinal);
        ggml_backend_buffer_type_t of_host = lib->ggml_backend_dev_host_buffer_type(device);
        it->devices->list[i] = device;
        wg_buffers_hook(lib, lib->ggml_backend_dev_buffer_type(device), false);
        if (of_host)
            wg_buffers_hook(lib, of_host, true);
    }
}

weir_status wg_devices_open(const wg_library *library, const char *directory, wg_devices *devices)
{
    char thrown[512] = "";
    finding it = {library, devices, WEIR_OK};
    if (devices->count == 0)
        return WEIR_OK;
    pthread_mutex_lock(&lock);
    weir_status status = gguf_devices_open_library(directory);
    for (size_t i = 0; i < devices->count && status == WEIR_OK; i++)
        status = gguf_devices_serve(devices->clients[i]);
    if (status == WEIR_OK) {
        wg_log_forget();
        if (!wg_guarded(gguf_devices_find_devices, &it, thrown, sizeof thrown))
            it.status = weir_fail(WEIR_ERR_ENGINE, "llama.cpp cannot begin with CUDA: %s", thrown);
        status = it.status;
    }
    devices->held = status == WEIR_OK;
    users += devices->held;
    if (status != WEIR_OK && users == 0) {
        char why[1024];
        snprintf(why, sizeof why, "%s", weir_detail());
        if (end_redirect() != WEIR_OK)
            weir_log(WEIR_LOG_ERROR, "gguf: %s", weir_detail());
        if (!redirect)
            drop_bystanders();
        (void)weir_fail(status, "%s", why);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* While another model's stream is captured, nothing is freed: that takes a moment. */
void wg_devices_settle(const wg_devices *devices)
{
    enum { MOST_MS = 10000 };
    if (devices->held && !wi_cuda_redirect_settle(wg_devices_redirect(), MOST_MS))
        weir_log(WEIR_LOG_ERROR, "gguf: memory of a model that is gone stays, as a stream's capture does not end");
}

void wg_devices_close(wg_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        if (weir_reservation_destroy(devices->reserves[i]) != WEIR_OK)
            weir_log(WEIR_LOG_ERROR, "gguf: the reserve for scratch stays: %s", weir_detail());
        devices->reserves[i] = NULL;
    }
    if (!devices->held)
        return;
    pthread_mutex_lock(&lock);
    users--;
    devices->held = false;
    if (end_redirect() != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "gguf: llama.cpp keeps memory of CUDA without a model: %s", weir_detail());
    pthread_mutex_unlock(&lock);
}

void wg_devices_scratch(const wg_devices *devices, uint64_t *bytes)
{
    for (size_t i = 0; i < devices->count; i++) {
        weir_client_stats account = WEIR_INIT(weir_client_stats);
        bytes[i] =
            weir_client_info(devices->clients[i], &account) == WEIR_OK ? account.live_class[WEIR_CLASS_SCRATCH] : 0;
    }
}
