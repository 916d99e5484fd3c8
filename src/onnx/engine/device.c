/* Sessions on a CUDA device: their provider, stream and memory (model.h).
 *
 * A session's stream is weir's (model.c). A free of ONNX Runtime's names no stream, and comes when the work that used
 * the block is queued, not when it is done. So a free is ordered behind the session's stream, on which all work of the
 * session is put. */
#include "model.h"
#include <weir/engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MOST = 32 };

/* The options of one provider, as pairs of texts. */
typedef struct pairs {
    const char *keys[OPTIONS_MOST], *values[OPTIONS_MOST];
    size_t count;
} pairs;

static void onnx_device_put(pairs *to, const char *key, const char *value)
{
    to->keys[to->count] = key;
    to->values[to->count++] = value;
}

static weir_status onnx_device_put_settings(pairs *to, const char *provider, const weir_engine_load *load)
{
    for (size_t i = 0; i < load->setting_count; i++) {
        const char *key = onnx_setting_option(&load->settings[i], provider);
        if (key && to->count == OPTIONS_MOST)
            return weir_fail(WEIR_ERR_INVALID, "more than %d settings of %s", OPTIONS_MOST, provider);
        if (key)
            onnx_device_put(to, key, load->settings[i].value);
    }
    return WEIR_OK;
}

/* A provider's library is opened with it, and what is missing there is said by the dynamic linker, one at a time. */
static weir_status onnx_device_refused(const onnx_library *library, onnx_provider provider, const onnx_attempt *a)
{
    char missing[512];
    return weir_fail(WEIR_ERR_UNSUPPORTED, "%s (ONNX Runtime %s) cannot run models by %s: %s; %s", library->path,
                     library->version, onnx_provider_name(provider), a->text,
                     onnx_provider_missing(library, provider, missing, sizeof missing));
}

static weir_status onnx_device_bad_option(const onnx_library *library, onnx_provider provider, const onnx_attempt *a)
{
    return weir_fail(WEIR_ERR_INVALID, "an option of %s: ONNX Runtime %s: %s", onnx_provider_name(provider),
                     library->version, a->text);
}

static weir_status provide_cuda(const onnx_library *library, const onnx_device *device, weir_stream stream,
                                const onnx_settings *settings, const weir_engine_load *load,
                                ort_session_options *options)
{
    const ort_api *api = library->api;
    char ordinal[16];
    onnx_attempt a = {0};
    pairs list = {.count = 0};
    snprintf(ordinal, sizeof ordinal, "%d", device->ordinal);
    onnx_device_put(&list, "device_id", ordinal);
    onnx_device_put(&list, "do_copy_in_default_stream", "1"); /* that of the session */
    onnx_device_put(&list, "enable_cuda_graph", settings->cuda_graph ? "1" : "0");
    weir_status status = onnx_device_put_settings(&list, "cuda", load);
    ort_cuda_options *cuda = NULL;
    if (status != WEIR_OK)
        return status;
    /* The provider's library is opened by the first call that looks at an option: one is known to be good. */
    bool opened = !onnx_failed(library->api, api->CreateCUDAProviderOptions(&cuda), &a) &&
                  !onnx_failed(library->api, api->UpdateCUDAProviderOptions(cuda, list.keys, list.values, 1), &a);
    bool good =
        opened &&
        !onnx_failed(library->api, api->UpdateCUDAProviderOptions(cuda, list.keys, list.values, list.count), &a) &&
        !onnx_failed(library->api,
                     api->UpdateCUDAProviderOptionsWithValue(cuda, "user_compute_stream", weir_stream_native(stream)),
                     &a);
    if (opened && !good)
        status = onnx_device_bad_option(library, ONNX_CUDA, &a);
    else if (!good || onnx_failed(library->api, api->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda), &a))
        status = onnx_device_refused(library, ONNX_CUDA, &a);
    if (cuda)
        api->ReleaseCUDAProviderOptions(cuda);
    return status;
}

static weir_status provide_tensorrt(const onnx_library *library, const onnx_device *device, weir_stream stream,
                                    const weir_engine_load *load, ort_session_options *options)
{
    const ort_api *api = library->api;
    char ordinal[16];
    onnx_attempt a = {0};
    pairs list = {.count = 0};
    snprintf(ordinal, sizeof ordinal, "%d", device->ordinal);
    onnx_device_put(&list, "device_id", ordinal);
    weir_status status = onnx_device_put_settings(&list, "tensorrt", load);
    ort_tensorrt_options *tensorrt = NULL;
    if (status != WEIR_OK)
        return status;
    bool opened =
        !onnx_failed(library->api, api->CreateTensorRTProviderOptions(&tensorrt), &a) &&
        !onnx_failed(library->api, api->UpdateTensorRTProviderOptions(tensorrt, list.keys, list.values, 1), &a);
    bool good = opened &&
                !onnx_failed(library->api,
                             api->UpdateTensorRTProviderOptions(tensorrt, list.keys, list.values, list.count), &a) &&
                !onnx_failed(library->api,
                             api->UpdateTensorRTProviderOptionsWithValue(tensorrt, "user_compute_stream",
                                                                         weir_stream_native(stream)),
                             &a);
    if (opened && !good)
        status = onnx_device_bad_option(library, ONNX_TENSORRT, &a);
    else if (!good ||
             onnx_failed(library->api, api->SessionOptionsAppendExecutionProvider_TensorRT_V2(options, tensorrt), &a))
        status = onnx_device_refused(library, ONNX_TENSORRT, &a);
    if (tensorrt)
        api->ReleaseTensorRTProviderOptions(tensorrt);
    return status;
}

/* ---- providers whose memory is not weir's ------------------------------------------------------------------------ */

typedef ort_status *(*append_fn)(const ort_api *api, ort_session_options *options, const pairs *list);

static ort_status *append_openvino(const ort_api *api, ort_session_options *options, const pairs *list)
{
    return api->SessionOptionsAppendExecutionProvider_OpenVINO_V2(options, list->keys, list->values, list->count);
}

static ort_status *append_coreml(const ort_api *api, ort_session_options *options, const pairs *list)
{
    return api->SessionOptionsAppendExecutionProvider(options, "CoreML", list->keys, list->values, list->count);
}

static ort_status *append_migraphx(const ort_api *api, ort_session_options *options, const pairs *list)
{
    return api->SessionOptionsAppendExecutionProvider(options, "MIGraphX", list->keys, list->values, list->count);
}

static ort_status *append_rocm(const ort_api *api, ort_session_options *options, const pairs *list)
{
    ort_rocm_options *rocm = NULL;
    ort_status *status = api->CreateROCMProviderOptions(&rocm);
    if (!status)
        status = api->UpdateROCMProviderOptions(rocm, list->keys, list->values, list->count);
    if (!status)
        status = api->SessionOptionsAppendExecutionProvider_ROCM(options, rocm);
    if (rocm)
        api->ReleaseROCMProviderOptions(rocm);
    return status;
}

/* The beginning of DirectML's own table. */
typedef struct directml_api {
    ort_status *(*SessionOptionsAppendExecutionProvider_DML)(ort_session_options *options, int device);
} directml_api;

static ort_status *append_directml(const ort_api *api, ort_session_options *options, const pairs *list)
{
    const void *found = NULL;
    int device = 0;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->keys[i], "device_id") == 0)
            device = (int)strtol(list->values[i], NULL, 10);
    ort_status *status = api->GetExecutionProviderApi("DML", ORT_API_WANTED, &found);
    const directml_api *directml = found;
    return status ? status : directml->SessionOptionsAppendExecutionProvider_DML(options, device);
}

static append_fn appending(const onnx_library *library, onnx_provider provider)
{
    switch (provider) {
    case ONNX_OPENVINO:
        return append_openvino;
    case ONNX_COREML:
        return append_coreml;
    case ONNX_DIRECTML:
        return append_directml;
    case ONNX_ROCM:
        return library->has[ONNX_ROCM] & 1u ? append_migraphx : append_rocm;
    default:
        return NULL;
    }
}

static bool names(const pairs *list, const char *key)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->keys[i], key) == 0)
            return true;
    return false;
}

/* What was not given for OpenVINO: it would else choose among the devices that it finds, and take a thread for each
 * core. */
static void usual_openvino(const onnx_settings *settings, pairs *list, char *threads, size_t capacity)
{
    if (!names(list, "device_type") && list->count < OPTIONS_MOST)
        onnx_device_put(list, "device_type", "CPU");
    snprintf(threads, capacity, "%d", settings->threads);
    if (settings->threads && !names(list, "num_of_threads") && list->count < OPTIONS_MOST)
        onnx_device_put(list, "num_of_threads", threads);
}

/* ONNX Runtime says "Failed to load shared library" of a bad option, too. */
static bool does_without(const onnx_library *library, append_fn append)
{
    onnx_attempt a;
    ort_session_options *options = NULL;
    static const pairs none;
    bool does = !onnx_failed(library->api, library->api->CreateSessionOptions(&options), &a) &&
                !onnx_failed(library->api, append(library->api, options, &none), &a);
    if (options)
        library->api->ReleaseSessionOptions(options);
    return does;
}

static weir_status not_taken(const onnx_library *library, onnx_provider provider, const pairs *list,
                             const onnx_attempt *a)
{
    char given[400] = "";
    for (size_t i = 0, at = 0; i < list->count && at < sizeof given; i++)
        at += (size_t)snprintf(given + at, sizeof given - at, "%s%s=%s", i ? ", " : "", list->keys[i], list->values[i]);
    return weir_fail(WEIR_ERR_INVALID, "an option of %s (%s): ONNX Runtime %s: %s", onnx_provider_name(provider), given,
                     library->version, a->text);
}

static weir_status provide_other(const onnx_library *library, const onnx_settings *settings,
                                 const weir_engine_load *load, ort_session_options *options)
{
    onnx_provider provider = settings->provider;
    append_fn append = appending(library, provider);
    char threads[16];
    pairs list = {.count = 0};
    onnx_attempt a = {0};
    if (!append)
        return WEIR_OK; /* the CPU provider is always present */
    weir_status status = onnx_device_put_settings(&list, onnx_provider_name(provider), load);
    if (status == WEIR_OK && provider == ONNX_OPENVINO)
        usual_openvino(settings, &list, threads, sizeof threads);
    if (status == WEIR_OK && onnx_failed(library->api, append(library->api, options, &list), &a))
        return list.count > 0 && does_without(library, append) ? not_taken(library, provider, &list, &a)
                                                               : onnx_device_refused(library, provider, &a);
    return status;
}

weir_status onnx_device_provide(const onnx_library *library, const onnx_device *device, weir_stream stream,
                                const onnx_settings *settings, const weir_engine_load *load,
                                ort_session_options *options)
{
    weir_status status = onnx_provider_check(library, settings->provider);
    if (status != WEIR_OK)
        return status;
    if (!device->cuda)
        return provide_other(library, settings, load, options);
    if (settings->provider == ONNX_TENSORRT)
        status = provide_tensorrt(library, device, stream, load, options);
    return status == WEIR_OK ? provide_cuda(library, device, stream, settings, load, options) : status;
}

weir_status onnx_device_begin(const onnx_library *library, weir_runtime *runtime, onnx_device *device)
{
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    weir_status status = weir_runtime_info(runtime, &its);
    if (status != WEIR_OK)
        return status;
    const char *name = its.device;
    *device = (onnx_device){.name = name};
    if (strcmp(name, "host") == 0)
        return WEIR_OK;
    if (strncmp(name, "cuda:", 5) != 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the engine onnx runs on host and on cuda, not on %s", name);
    onnx_attempt a;
    device->ordinal = its.ordinal;
    if (onnx_failed(library->api,
                    library->api->CreateMemoryInfo("Cuda", ORT_DEVICE_ALLOCATOR, device->ordinal, ORT_MEMORY_DEFAULT,
                                                   &device->memory),
                    &a))
        return weir_fail(WEIR_ERR_ENGINE, "memory of %s: ONNX Runtime %s: %s", name, library->version, a.text);
    device->cuda = true;
    return WEIR_OK;
}

void onnx_device_end(const onnx_library *library, onnx_device *device)
{
    if (!device->cuda)
        return;
    library->api->ReleaseMemoryInfo(device->memory);
    device->cuda = false;
}
