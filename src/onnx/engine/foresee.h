/* What a run will take, found out of the model's graph before anything is loaded. */
#ifndef WEIR_ONNX_FORESEE_H
#define WEIR_ONNX_FORESEE_H

#include <weir/engine.h>

#include "onnx/file/file.h"
#include "settings.h"

typedef struct onnx_foreseen {
    /* Bytes that one run has at its peak, in places as ONNX Runtime's planner shares them, each as it is charged; not
     * of the caller's inputs. Only if `runs`: all shapes follow from the sizes that were given. */
    bool runs;
    uint64_t activations;
    uint64_t packed;   /* bytes of weights as kernels lay them out */
    uint64_t replaced; /* bytes of those that are then not kept as they are in the file */
    bool whole;        /* there was host memory for all of it */
} onnx_foreseen;

/* What it depends on, beside the file. `dims` belongs to the load, which outlives it. */
typedef struct onnx_foresee_ask {
    const char *dims; /* the setting, or "" */
    int threads;      /* from 1 */
    int optimization;
    bool cuda, memory_pattern, prepack;
} onnx_foresee_ask;

/* As a load asks for it; `cuda`: its nodes run on a GPU. */
onnx_foresee_ask onnx_foresee_asked(const weir_engine_load *load, const onnx_settings *settings, bool cuda);

/* Open dimensions have the sizes of the setting "dims" ("batch=1,sequence=128"). Others are 1 where they are the first of their
 * input, else 16, or the next of those which the command tries with which all shapes follow. What cannot be told is 0. */
void onnx_foresee_now(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out);

/* foreseen.c: the same, but for what this process was asked before of a file that has not changed since. Any thread. */
void onnx_foresee(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out);

/* The setting's value is well-formed. */
bool onnx_dims_good(const char *value);

#endif
