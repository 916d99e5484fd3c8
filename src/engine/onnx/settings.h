/* What a user may choose for a model. */
#ifndef WEIR_ONNX_SETTINGS_H
#define WEIR_ONNX_SETTINGS_H

#include <weir/engine.h>

typedef struct onnx_settings {
    bool prepack;        /* kernels keep their weights in a second, faster layout; that copy is charged as well */
    bool ours;           /* weights in the client's memory; otherwise ONNX Runtime reads them onto the heap */
    bool memory_pattern; /* one block for all activations of a run whose shapes were seen before */
    int optimization;    /* ONNX Runtime's number for the level */
    int threads;         /* 0: as many as cores */
} onnx_settings;

weir_status onnx_settings_read(const weir_setting *settings, size_t count, onnx_settings *out);

#endif
