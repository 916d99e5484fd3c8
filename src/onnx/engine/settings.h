/* What a user may choose for a model, and for a run. */
#ifndef WEIR_ONNX_SETTINGS_H
#define WEIR_ONNX_SETTINGS_H

#include "provider.h"
#include <weir/engine.h>

/* On cuda so many runs of a model at a time, each in a session of its own. */
enum { ONNX_SLOTS_MOST = 64 };
/* So many rows of runs that are computed together. */
enum { ONNX_BATCH_MOST = 1024 };

typedef struct onnx_settings {
    bool prepack;        /* kernels keep their weights in a second, faster layout; that copy is charged as well */
    bool ours;           /* weights in the client's memory; otherwise ONNX Runtime reads them onto the heap */
    bool outside_counts; /* what a load takes of the heap is claimed of the client's memory */
    bool memory_pattern; /* one block for all activations of a run whose shapes were seen before */
    bool pattern_open;   /* nobody chose: as suits the model */
    int optimization;    /* ONNX Runtime's number for the level */
    bool level_open;     /* nobody chose it: lower where that level is known to be wrong */
    int threads;         /* 0: as many as cores */
    onnx_provider provider;
    bool cuda_graph;    /* runs are captured, and launched again with the same addresses */
    bool cpu_fallback;  /* the CPU runs what the provider does not take */
    bool cpu_arena_off; /* the setting says so; a session has no arena in any case */
    int concurrency;    /* runs at a time, on cuda in so many slots; 0: as many as come */
    int buckets;        /* sessions of a slot, each for the shapes of its bucket */
    int granularity;    /* extents but the first are rounded up to multiples of it */
    int bucket_dims;    /* and only so many are looked at */
    int batch;          /* rows of runs that are computed together, at most; up to 1: each by itself */
    int batch_delay;    /* microseconds in which a run waits for others */
} onnx_settings;

/* `cuda`: for a model on cuda, where other things are the default. `provider`: what the load asks for, NULL:
 * nothing. */
weir_status onnx_settings_read(const weir_setting *settings, size_t count, bool cuda, const char *provider,
                               onnx_settings *out);

/* Does the provider leave the weights to ONNX Runtime, and keep copies of its own, outside the account? */
bool onnx_settings_outside(const onnx_settings *settings);

/* "cudnn_conv_algo_search" for {"cuda.cudnn_conv_algo_search", …} and the provider "cuda"; NULL for another setting. */
const char *onnx_setting_option(const weir_setting *setting, const char *provider);

/* What one run may choose. */
typedef struct onnx_run_settings {
    bool device_outputs; /* outputs stay on the device that computed them */
} onnx_run_settings;

weir_status onnx_run_settings_read(const weir_setting *settings, size_t count, onnx_run_settings *out);

#endif
