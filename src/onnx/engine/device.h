/* What a session on a CUDA device needs besides: the words for memory there, and its provider. */
#ifndef WEIR_ONNX_DEVICE_H
#define WEIR_ONNX_DEVICE_H

#include "library.h"
#include <weir/engine.h>
#include "settings.h"

typedef struct onnx_device {
    const char *name; /* "host", "cuda:0" */
    bool cuda;        /* else the host, where nothing below is set */
    int ordinal;
    ort_memory_info *memory; /* describes the device's memory */
} onnx_device;

/* For a model on `runtime`, of host or cuda; WEIR_ERR_UNSUPPORTED for another. On failure nothing is left. */
weir_status onnx_device_begin(const onnx_library *library, weir_runtime *runtime, onnx_device *device);
void onnx_device_end(const onnx_library *library, onnx_device *device);

/* Names the provider, and the CPU's behind it, in the options of a session; on cuda its work is put on `stream`. The
 * load's settings have the provider's own options (onnx_setting_option). WEIR_ERR_UNSUPPORTED with ONNX Runtime's words
 * where it cannot be opened here. */
weir_status onnx_device_provide(const onnx_library *library, const onnx_device *device, weir_stream stream,
                                const onnx_settings *settings, const weir_engine_load *load,
                                ort_session_options *options);

#endif
