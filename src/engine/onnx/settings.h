/* What a user may choose for a model, and for a run. */
#ifndef WEIR_ONNX_SETTINGS_H
#define WEIR_ONNX_SETTINGS_H

#include <weir/engine.h>

typedef enum onnx_provider { ONNX_CPU, ONNX_CUDA, ONNX_TENSORRT } onnx_provider;

typedef struct onnx_settings {
    bool prepack;        /* kernels keep their weights in a second, faster layout; that copy is charged as well */
    bool ours;           /* weights in the client's memory; otherwise ONNX Runtime reads them onto the heap */
    bool memory_pattern; /* one block for all activations of a run whose shapes were seen before */
    bool pattern_open;   /* nobody chose: as suits the model */
    int optimization;    /* ONNX Runtime's number for the level */
    int threads;         /* 0: as many as cores */
    onnx_provider provider;
    bool cuda_graph; /* runs are captured, and launched again with the same addresses */
} onnx_settings;

/* `cuda`: for a model on cuda, where other things are the default. */
weir_status onnx_settings_read(const weir_setting *settings, size_t count, bool cuda, onnx_settings *out);

/* "cudnn_conv_algo_search" for {"cuda.cudnn_conv_algo_search", …} and the provider "cuda"; NULL for another setting. */
const char *onnx_setting_option(const weir_setting *setting, const char *provider);

/* What one run may choose. */
typedef struct onnx_run_settings {
    bool device_outputs; /* they stay where they were computed */
} onnx_run_settings;

weir_status onnx_run_settings_read(const weir_setting *settings, size_t count, onnx_run_settings *out);

#endif
