/* See plain.h. */
#include "plain.h"

#include <stdio.h>
#include <stdlib.h>

#include "onnx/file/main_graph.h"

static void must(const plain *p, ort_status *status, const char *what)
{
    onnx_attempt a;
    if (onnx_failed(p->library->api, status, &a)) {
        fprintf(stderr, "plain ONNX Runtime: %s: %s\n", what, a.text);
        abort();
    }
}

static void add_cuda(const plain *p, ort_session_options *options)
{
    const ort_api *api = p->library->api;
    ort_cuda_options *cuda;
    must(p, api->CreateCUDAProviderOptions(&cuda), "options of CUDA");
    must(p, api->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda), "CUDA");
    api->ReleaseCUDAProviderOptions(cuda);
}

plain plain_open(const onnx_library *library, const char *path, const onnx_settings *settings)
{
    plain p = {library, NULL};
    const ort_api *api = library->api;
    ort_session_options *options;
    must(&p, api->CreateSessionOptions(&options), "options");
    if (settings) {
        must(&p, api->SetSessionGraphOptimizationLevel(options, settings->optimization), "level");
        must(&p, api->SetIntraOpNumThreads(options, settings->threads), "threads");
        must(&p, api->AddSessionConfigEntry(options, "session.disable_prepacking", settings->prepack ? "0" : "1"),
             "prepack");
        if (!settings->memory_pattern)
            must(&p, api->DisableMemPattern(options), "pattern");
        if (settings->provider == ONNX_CUDA)
            add_cuda(&p, options);
    }
    must(&p, api->CreateSession(library->env, path, options, &p.session), path);
    api->ReleaseSessionOptions(options);
    return p;
}

void plain_close(plain *p)
{
    p->library->api->ReleaseSession(p->session);
    p->session = NULL;
}

void plain_run(const plain *p, const weir_tensor *inputs, size_t input_count, const char *const *output_names,
               size_t output_count, ort_value **outputs)
{
    const ort_api *api = p->library->api;
    const char *names[PLAIN_VALUES];
    ort_value *values[PLAIN_VALUES];
    static uint64_t nothing;
    for (size_t i = 0; i < input_count; i++) {
        const weir_tensor *t = &inputs[i];
        names[i] = t->name;
        must(p,
             api->CreateTensorWithDataAsOrtValue(p->library->host, t->bytes ? t->data : &nothing, t->bytes, t->shape,
                                                 t->rank, onnx_type_from_weir(t->type), &values[i]),
             t->name);
    }
    for (size_t i = 0; i < output_count; i++)
        outputs[i] = NULL;
    must(p,
         api->Run(p->session, NULL, names, (const ort_value *const *)values, input_count, output_names, output_count,
                  outputs),
         "run");
    for (size_t i = 0; i < input_count; i++)
        api->ReleaseValue(values[i]);
}

const void *plain_data(const plain *p, ort_value *value)
{
    void *data;
    must(p, p->library->api->GetTensorMutableData(value, &data), "data");
    return data;
}

size_t plain_bytes(const plain *p, ort_value *value)
{
    const ort_api *api = p->library->api;
    ort_shape_info *info;
    int64_t shape[WEIR_MAX_RANK];
    size_t rank, bytes = 0;
    int type;
    must(p, api->GetTensorTypeAndShape(value, &info), "shape");
    must(p, api->GetTensorElementType(info, &type), "type");
    must(p, api->GetDimensionsCount(info, &rank), "rank");
    must(p, api->GetDimensions(info, shape, rank), "dimensions");
    api->ReleaseTensorTypeAndShapeInfo(info);
    if (weir_tensor_bytes(onnx_type_to_weir(type), (uint32_t)rank, shape, &bytes) != WEIR_OK)
        abort();
    return bytes;
}
