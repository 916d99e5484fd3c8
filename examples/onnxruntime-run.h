/* What the examples with ONNX Runtime share: a session of the program's own, and a run of it. It takes models with one input,
 * of numbers of type float, and the first output. */
#ifndef ONNXRUNTIME_RUN_H
#define ONNXRUNTIME_RUN_H

#include <onnxruntime_c_api.h>
#include <weir/weir.h>
#include <weir/onnxruntime.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_DIMENSIONS = 8 };

static const OrtApi *ort;

/* Says what went wrong, and that it did. */
static bool failed(OrtStatus *status)
{
    if (!status)
        return false;
    fprintf(stderr, "ONNX Runtime: %s\n", ort->GetErrorMessage(status));
    ort->ReleaseStatus(status);
    return true;
}

/* Registers the client: from now on it serves the environment's sessions on its device. `stream`: where they work on a GPU. */
static bool share(OrtEnv *env, weir_client *client, weir_stream stream)
{
    weir_onnxruntime_options options = WEIR_INIT(weir_onnxruntime_options);
    options.api = ort;
    options.version = ORT_API_VERSION;
    options.env = env;
    options.client = client;
    options.stream = stream;
    if (weir_onnxruntime_register(&options) == WEIR_OK)
        return true;
    fprintf(stderr, "%s\n", weir_detail());
    return false;
}

/* On a GPU the session's work goes to a stream that weir knows: what is freed there is the next one's without a wait. */
static bool use_cuda(OrtSessionOptions *options, weir_stream stream)
{
    OrtCUDAProviderOptionsV2 *cuda = NULL;
    bool good =
        !failed(ort->CreateCUDAProviderOptions(&cuda)) &&
        !failed(ort->UpdateCUDAProviderOptionsWithValue(cuda, "user_compute_stream", weir_stream_native(stream))) &&
        !failed(ort->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda));
    if (cuda)
        ort->ReleaseCUDAProviderOptions(cuda);
    return good;
}

/* The configuration entry is what a session takes part by. WEIR_STREAM_HOST: it runs on the CPU. */
static OrtSession *open_session(const OrtEnv *env, const char *path, weir_stream stream)
{
    OrtSessionOptions *options;
    OrtSession *session = NULL;
    if (failed(ort->CreateSessionOptions(&options)))
        return NULL;
    if (!failed(ort->AddSessionConfigEntry(options, "session.use_env_allocators", "1")) &&
        (stream.id == 0 || use_cuda(options, stream)))
        (void)failed(ort->CreateSession(env, path, options, &session));
    ort->ReleaseSessionOptions(options);
    return session;
}

/* An input of ones; open extents are 1. *data is the caller's to free. */
static OrtValue *make_input(OrtSession *session, float **data)
{
    OrtTypeInfo *info = NULL;
    const OrtTensorTypeAndShapeInfo *shape_info;
    OrtMemoryInfo *host = NULL;
    OrtValue *value = NULL;
    int64_t shape[MOST_DIMENSIONS];
    size_t rank, count = 1;
    *data = NULL;
    if (failed(ort->SessionGetInputTypeInfo(session, 0, &info)) ||
        failed(ort->CastTypeInfoToTensorInfo(info, &shape_info)) ||
        failed(ort->GetDimensionsCount(shape_info, &rank)) || rank > MOST_DIMENSIONS ||
        failed(ort->GetDimensions(shape_info, shape, rank)) ||
        failed(ort->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &host)))
        goto end;
    for (size_t i = 0; i < rank; i++) {
        shape[i] = shape[i] < 0 ? 1 : shape[i];
        count *= (size_t)shape[i];
    }
    *data = malloc(count * sizeof **data);
    for (size_t i = 0; *data && i < count; i++)
        (*data)[i] = 1;
    if (*data)
        (void)failed(ort->CreateTensorWithDataAsOrtValue(host, *data, count * sizeof **data, shape, rank,
                                                         ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &value));
end:
    if (info)
        ort->ReleaseTypeInfo(info);
    if (host)
        ort->ReleaseMemoryInfo(host);
    return value;
}

/* Runs it once and shows the first number of its first output. */
static bool run(OrtSession *session, const char *who)
{
    OrtAllocator *plain;
    char *input_name = NULL, *output_name = NULL;
    float *data, *answer;
    OrtValue *input = make_input(session, &data), *output = NULL;
    bool good = input && !failed(ort->GetAllocatorWithDefaultOptions(&plain)) &&
                !failed(ort->SessionGetInputName(session, 0, plain, &input_name)) &&
                !failed(ort->SessionGetOutputName(session, 0, plain, &output_name)) &&
                !failed(ort->Run(session, NULL, (const char *const *)&input_name, (const OrtValue *const *)&input, 1,
                                 (const char *const *)&output_name, 1, &output)) &&
                !failed(ort->GetTensorMutableData(output, (void **)&answer));
    if (good)
        printf("%s: %s begins with %g\n", who, output_name, (double)answer[0]);
    if (output)
        ort->ReleaseValue(output);
    if (input)
        ort->ReleaseValue(input);
    if (input_name)
        (void)failed(ort->AllocatorFree(plain, input_name));
    if (output_name)
        (void)failed(ort->AllocatorFree(plain, output_name));
    free(data);
    return good;
}

/* Who held what at most. */
static void print_clients(weir_runtime *runtime)
{
    enum { MOST = 8 };
    weir_stats all = WEIR_INIT(weir_stats);
    weir_client_stats clients[MOST] = {{.struct_size = sizeof clients[0]}};
    size_t count = 0;
    char size[24];
    if (weir_snapshot(runtime, &all, clients, MOST, &count) != WEIR_OK)
        return;
    for (size_t i = 0; i < count && i < MOST; i++)
        printf("%-20s %s at the peak\n", clients[i].name, weir_size_format(clients[i].peak, size, sizeof size));
    printf("%-20s %s at the peak\n", "all", weir_size_format(all.peak, size, sizeof size));
}

static weir_client *make_client(weir_runtime *runtime, const char *name)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_client *client = NULL;
    options.name = name;
    if (weir_client_create(runtime, &options, &client) != WEIR_OK)
        fprintf(stderr, "%s\n", weir_detail());
    return client;
}

#endif
