/* What sessions that work at the same time do not share: a stream, and a bridge that frees in its order. */
#include "model.h"

#include <weir/base.h>
#include <weir/engine.h>
#include <weir/onnxruntime.h>

static weir_status open_bridge(weir_engine_model *model, onnx_lane *lane)
{
    weir_onnxruntime_options options = WEIR_INIT(weir_onnxruntime_options);
    options.api = (const struct OrtApi *)model->library->api;
    options.version = ORT_API_WANTED;
    options.env = (struct OrtEnv *)model->library->env;
    options.client = model->client;
    options.stream = lane->stream;
    return weir_onnxruntime_create(&options, &lane->bridge);
}

weir_status onnx_lane_begin(weir_engine_model *model, onnx_lane *lane)
{
    *lane = (onnx_lane){.stream = WEIR_STREAM_HOST};
    weir_status status = model->device.cuda ? weir_stream_acquire(model->runtime, &lane->stream) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    status = open_bridge(model, lane);
    if (status != WEIR_OK && model->device.cuda && weir_stream_release(lane->stream) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: the stream of a session stays");
    return status;
}

void onnx_lane_end(weir_engine_model *model, onnx_lane *lane)
{
    const char *name = model->name;
    if (lane->options)
        model->library->api->ReleaseSessionOptions(lane->options);
    if (weir_onnxruntime_destroy(lane->bridge) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: a bridge of %s stays: %s", name, weir_detail());
    if (lane->bridge && model->device.cuda && weir_stream_release(lane->stream) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: the stream of a session stays: %s", weir_detail());
    *lane = (onnx_lane){.stream = WEIR_STREAM_HOST};
}
