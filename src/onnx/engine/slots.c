/* What sessions that work at the same time do not share: a stream, and a bridge that frees in its order. */
#include "model.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/onnxruntime.h>

static weir_status open_bridge(weir_engine_model *model, onnx_slot *slot)
{
    weir_onnxruntime_options options = WEIR_INIT(weir_onnxruntime_options);
    options.api = (const struct OrtApi *)model->library->api;
    options.version = ORT_API_WANTED;
    options.env = (struct OrtEnv *)model->library->env;
    options.client = model->client;
    options.stream = slot->stream;
    return weir_onnxruntime_create(&options, &slot->bridge);
}

weir_status onnx_slot_begin(weir_engine_model *model, onnx_slot *slot)
{
    *slot = (onnx_slot){.stream = WEIR_STREAM_HOST};
    weir_status status = model->device.cuda ? weir_stream_acquire(model->runtime, &slot->stream) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    status = open_bridge(model, slot);
    if (status != WEIR_OK && model->device.cuda && weir_stream_release(slot->stream) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: the stream of a session stays");
    return status;
}

void onnx_slot_end(weir_engine_model *model, onnx_slot *slot)
{
    const char *name = model->name;
    if (slot->options)
        model->library->api->ReleaseSessionOptions(slot->options);
    if (weir_onnxruntime_destroy(slot->bridge) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: a bridge of %s stays: %s", name, weir_detail());
    if (slot->bridge && model->device.cuda && weir_stream_release(slot->stream) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: the stream of a session stays: %s", weir_detail());
    *slot = (onnx_slot){.stream = WEIR_STREAM_HOST};
}
