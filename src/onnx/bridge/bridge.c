/* Opening and ending of bridges. */
#include "onnx/bridge/bridge.h"
#include <weir/block_pool.h>
#include <weir/onnxruntime.h>
#include "runtime/block_pool/block_pool.h"

#include <dlfcn.h>
#include <stdio.h>

bool wi_ort_failed(const ort_api *api, ort_status *status, char *text, size_t capacity)
{
    if (!status)
        return false;
    snprintf(text, capacity, "%s", api->GetErrorMessage(status));
    wi_one_line(text);
    api->ReleaseStatus(status);
    return true;
}

/* Checking --------------------------------------------------------------------------------------------------------- */

static weir_status check_granule(const char *call, const char *what, uint64_t granule)
{
    if (granule != 0 && granule % WI_UNIT == 0)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "%s: %s gives out memory in pieces of %llu bytes; ONNX Runtime needs a multiple of %u", call, what,
                     (unsigned long long)granule, (unsigned)WI_UNIT);
}

static weir_status check_blocks(const weir_onnxruntime_options *o, const char *call)
{
    if (o->blocks->client != o->client)
        return weir_fail(WEIR_ERR_INVALID, "%s: the member of the pool is %s, not the client %s", call,
                         wi_client_name(o->blocks->client), wi_client_name(o->client));
    return check_granule(call, "the pool of blocks", o->blocks->pool->bytes);
}

static weir_status check_source(const weir_onnxruntime_options *o, const char *call)
{
    const weir_runtime *runtime = weir_client_runtime(o->client);
    if (o->blocks)
        return check_blocks(o, call);
    const wi_base *base = runtime->resource->base;
    char text[WI_STACK_BYTES];
    return check_granule(call, wi_runtime_resource(runtime, text, sizeof text),
                         base->table->charge(runtime->resource->base, 1));
}

static weir_status bridge_check_device(const weir_onnxruntime_options *o, const char *call)
{
    weir_runtime *runtime = weir_client_runtime(o->client);
    void *native;
    if (runtime->driver != &wi_host_driver && runtime->driver != &wi_cuda_driver)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: ONNX Runtime's allocators are for host and cuda, not for %s", call,
                         runtime->name);
    return wi_streams_resolve(&runtime->streams, o->stream, runtime->name, &native);
}

weir_status wi_ort_check(const weir_onnxruntime_options *o, const char *call)
{
    const char *missing = !o->api ? "api" : !o->env ? "env" : !o->client ? "client" : NULL;
    if (missing)
        return weir_fail(WEIR_ERR_INVALID, "%s: the member %s is not set", call, missing);
    if (o->version < WEIR_ONNXRUNTIME_OLDEST)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: the interface is of version %u; a bridge needs %d: ask GetApi of ONNX Runtime 1.%d or "
                         "newer for that, and say so in the member version",
                         call, o->version, WEIR_ONNXRUNTIME_OLDEST, WEIR_ONNXRUNTIME_OLDEST);
    weir_status status = wi_client_check(o->client, call);
    if (status == WEIR_OK)
        status = bridge_check_device(o, call);
    return status == WEIR_OK ? check_source(o, call) : status;
}

bool wi_ort_same(const weir_onnxruntime *bridge, const weir_onnxruntime_options *options)
{
    return bridge->client == options->client && bridge->runs.member == options->blocks &&
           bridge->stream.id == options->stream.id;
}

/* Making ----------------------------------------------------------------------------------------------------------- */

/* std::bad_alloc can only be thrown by the C++ library that ONNX Runtime itself uses. */
static weir_status find_throw(weir_onnxruntime *bridge, const char *call)
{
    void *cxx = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void *found = cxx ? dlsym(cxx, "_ZSt17__throw_bad_allocv") : NULL;
    memcpy(&bridge->throw_bad_alloc, &found, sizeof found);
    return found ? WEIR_OK
                 : weir_fail(WEIR_ERR_UNSUPPORTED,
                             "%s: ONNX Runtime does not use libstdc++.so.6, so weir cannot refuse it memory safely",
                             call);
}

/* Checks that `env` is the environment of this ONNX Runtime, and takes a reference. A process has a single environment,
 * and CreateEnv adds a reference to the existing environment. */
static weir_status bridge_pin(weir_onnxruntime *bridge, ort_env *env, const char *call)
{
    const ort_api *api = bridge->api;
    ort_env *found = NULL;
    char text[512];
    if (wi_ort_failed(api, api->CreateEnv(ORT_LOG_ERROR, "weir", &found), text, sizeof text))
        return weir_fail(WEIR_ERR_ENGINE, "%s: the environment of ONNX Runtime cannot be had: %s", call, text);
    if (found != env) {
        api->ReleaseEnv(found);
        return weir_fail(WEIR_ERR_INVALID, "%s: %p is not the environment of this ONNX Runtime, which is %p", call,
                         (void *)env, (void *)found);
    }
    bridge->env = env;
    return WEIR_OK;
}

static weir_status bridge_describe(weir_onnxruntime *bridge, const char *call)
{
    const ort_api *api = bridge->api;
    int ordinal = bridge->runtime->ordinal;
    char text[512];
    ort_status *status =
        bridge->on_host
            ? api->CreateCpuMemoryInfo(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &bridge->device.info)
            : api->CreateMemoryInfo("Cuda", ORT_DEVICE_ALLOCATOR, ordinal, ORT_MEMORY_DEFAULT, &bridge->device.info);
    if (!status && !bridge->on_host)
        status =
            api->CreateMemoryInfo("CudaPinned", ORT_DEVICE_ALLOCATOR, ordinal, ORT_MEMORY_PINNED, &bridge->pinned.info);
    return wi_ort_failed(api, status, text, sizeof text)
               ? weir_fail(WEIR_ERR_ENGINE, "%s: ONNX Runtime cannot describe the memory of %s: %s", call,
                           bridge->runtime->name, text)
               : WEIR_OK;
}

static weir_status bridge_fill(weir_onnxruntime *bridge, const weir_onnxruntime_options *o, const char *call)
{
    bridge->api = (const ort_api *)o->api;
    bridge->client = o->client;
    bridge->runtime = weir_client_runtime(o->client);
    wi_runtime_name(bridge->runtime->driver, bridge->runtime->ordinal, bridge->name);
    bridge->on_host = bridge->runtime->driver == &wi_host_driver;
    bridge->stream = o->stream;
    bridge->native = weir_stream_native(o->stream);
    wi_ort_table_init(&bridge->device, bridge, WEIR_KIND_DEVICE);
    wi_ort_table_init(&bridge->pinned, bridge, WEIR_KIND_PINNED);
    weir_status status = find_throw(bridge, call);
    if (status == WEIR_OK && o->blocks)
        status = wi_ort_runs_init(&bridge->runs, o->blocks);
    if (status == WEIR_OK)
        status = bridge_describe(bridge, call);
    return status == WEIR_OK ? bridge_pin(bridge, (ort_env *)o->env, call) : status;
}

/* ONNX Runtime still has one of its tables: that refuses from now on. */
static void keep_what_stays(weir_onnxruntime *bridge)
{
    atomic_store(&bridge->ended, true);
    wi_ort_keep_record(bridge);
    wi_ort_say(
        WEIR_LOG_WARNING,
        "onnxruntime: the bridge of %s on %s is no more, but ONNX Runtime keeps its allocator: sessions that get "
        "it are refused memory until another one is registered; %zu bytes stay for that",
        wi_client_name(bridge->client), bridge->name, sizeof *bridge);
}

void wi_ort_free(weir_onnxruntime *bridge)
{
    if (bridge->env)
        bridge->api->ReleaseEnv(bridge->env);
    bridge->env = NULL;
    wi_ort_runs_destroy(&bridge->runs);
    if (bridge->device.stays || bridge->pinned.stays) {
        keep_what_stays(bridge);
        return;
    }
    if (bridge->device.info)
        bridge->api->ReleaseMemoryInfo(bridge->device.info);
    if (bridge->pinned.info)
        bridge->api->ReleaseMemoryInfo(bridge->pinned.info);
    pthread_mutex_destroy(&bridge->followers.lock);
    pthread_mutex_destroy(&bridge->kept.lock);
    pthread_mutex_destroy(&bridge->lock);
    free(bridge);
}

weir_status wi_ort_open(const weir_onnxruntime_options *options, const char *call, weir_onnxruntime **out)
{
    static atomic_uint_fast64_t number;
    weir_onnxruntime *bridge = calloc(1, sizeof *bridge);
    *out = NULL;
    if (!bridge)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for a bridge", call);
    bridge->number = atomic_fetch_add(&number, 1) + 1;
    pthread_mutex_init(&bridge->lock, NULL);
    pthread_mutex_init(&bridge->followers.lock, NULL);
    pthread_mutex_init(&bridge->kept.lock, NULL);
    weir_status status = bridge_fill(bridge, options, call);
    if (status != WEIR_OK) {
        wi_ort_free(bridge);
        return status;
    }
    *out = bridge;
    return WEIR_OK;
}

weir_status weir_onnxruntime_create(const weir_onnxruntime_options *options, weir_onnxruntime **out)
{
    static const char call[] = "weir_onnxruntime_create";
    weir_onnxruntime_options given;
    WI_ENTER();
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "%s: no place for the result", call);
    weir_status status = WI_COPY_IN(weir_onnxruntime_options, &given, options, call);
    if (status == WEIR_OK)
        status = wi_ort_check(&given, call);
    return status == WEIR_OK ? wi_ort_open(&given, call, out) : status;
}

/* Ending ----------------------------------------------------------------------------------------------------------- */

weir_status wi_ort_check_idle(const weir_onnxruntime *bridge, const char *call)
{
    uint64_t live = atomic_load(&bridge->live);
    if (live == 0)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_BUSY,
                     "%s: ONNX Runtime still has %llu block%s of %s on %s: release its sessions and values first", call,
                     (unsigned long long)live, live == 1 ? "" : "s", wi_client_name(bridge->client), bridge->name);
}

/* From the first line on nothing is taken or freed through its tables, so that nothing comes in hand behind what looks
 * there. */
void wi_ort_end(weir_onnxruntime *bridge)
{
    atomic_store(&bridge->ended, true);
    wi_ort_followers_end(bridge);
    wi_ort_pinned_end(bridge);
    wi_ort_runs_destroy(&bridge->runs);
    bridge->api->ReleaseEnv(bridge->env);
    bridge->env = NULL;
}

weir_status weir_onnxruntime_destroy(weir_onnxruntime *bridge)
{
    static const char call[] = "weir_onnxruntime_destroy";
    WI_ENTER();
    if (!bridge)
        return WEIR_OK;
    WI_VISIT(bridge->runtime);
    if (bridge == wi_ort_registered(bridge->env, bridge->name) || atomic_load(&bridge->loading))
        return weir_fail(WEIR_ERR_BUSY, "%s: the bridge of %s on %s is registered or entered: end that first", call,
                         wi_client_name(bridge->client), bridge->name);
    weir_status status = wi_ort_check_idle(bridge, call);
    if (status != WEIR_OK)
        return status;
    wi_ort_end(bridge);
    wi_ort_free(bridge);
    return WEIR_OK;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

static struct OrtAllocator *allocator_of(wi_ort_table *table)
{
    return table->info ? (struct OrtAllocator *)&table->table : NULL;
}

weir_status weir_onnxruntime_info(weir_onnxruntime *bridge, weir_onnxruntime_details *out)
{
    WI_ENTER();
    if (!bridge || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_onnxruntime_info: NULL");
    weir_onnxruntime_details stats = {
        .live = atomic_load(&bridge->live),
        .blocks = atomic_load(&bridge->blocks),
        .on_stream = atomic_load(&bridge->on_stream),
        .unknown = atomic_load(&bridge->unknown),
        .reserved = atomic_load(&bridge->reserved),
        .foreign = atomic_load(&bridge->foreign),
        .refused = atomic_load(&bridge->refused),
        .client = bridge->client,
        .allocators = {
            [WEIR_KIND_DEVICE] = allocator_of(&bridge->device), [WEIR_KIND_PINNED] = allocator_of(&bridge->pinned)}};
    return wi_copy_out(out, out->struct_size, &stats, sizeof stats)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_onnxruntime_info: member struct_size is not set");
}
