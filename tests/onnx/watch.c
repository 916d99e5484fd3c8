/* See watch.h. */
#include "watch.h"
#include <weir/engine.h>

#include <unistd.h>

ort_api watched;
const ort_api *real;
atomic_bool held_up;

static const onnx_library *library(void)
{
    const onnx_library *found;
    const char *device = getenv("WEIR_TEST_DEVICE");
    assert_ok(onnx_library_get(device && strncmp(device, "cuda", 4) == 0 ? ONNX_CUDA : ONNX_CPU, &found));
    return found;
}

int watch(void **state)
{
    (void)state;
    const onnx_library *its = library();
    real = its->api;
    memcpy(&watched, real, offsetof(ort_api, Session_GetEpGraphAssignmentInfo));
    if (its->minor >= ORT_API_ASSIGNMENTS)
        memcpy(&watched, real, sizeof watched);
    ((onnx_library *)(uintptr_t)its)->api = &watched;
    return 0;
}

int unwatch(void **state)
{
    (void)state;
    ((onnx_library *)(uintptr_t)library())->api = real;
    atomic_store(&held_up, false); /* also after a failure */
    return 0;
}

ort_status *slow_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                     const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                     size_t output_count, ort_value **outputs)
{
    watched.Run = real->Run;
    atomic_store(&held_up, true);
    while (atomic_load(&held_up))
        usleep(1000);
    return real->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
}

void wait_for_it(void)
{
    while (!atomic_load(&held_up))
        usleep(1000);
}

void *run_numbered(void *user)
{
    numbered *it = user;
    float x[16] = {0};
    weir_tensor in = tensor("x", WEIR_TYPE_F32, SHAPE(1, 16), x);
    weir_inference inference = {.struct_size = sizeof inference, .inputs = &in, .input_count = 1, .id = it->id};
    weir_outputs out = WEIR_INIT(weir_outputs);
    it->status = it->l->engine->infer(it->l->model, &inference, &out);
    if (it->status == WEIR_OK)
        it->l->engine->release_outputs(it->l->model, &out);
    return NULL;
}
