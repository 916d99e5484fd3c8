/* What a run will take, found out of the model's graph before anything is loaded. */
#ifndef WEIR_ONNX_FORESEE_H
#define WEIR_ONNX_FORESEE_H

#include <weir/engine.h>

#include "onnx/file/file.h"
#include "settings.h"

typedef struct onnx_foreseen {
    /* Peak bytes of a run, in places that are shared as by ONNX Runtime's planner, each place as charged, without the
     * caller's inputs. Set only if `runs`: all shapes follow from the given sizes. */
    bool runs;
    uint64_t activations;
    uint64_t packed;   /* bytes of weights as kernels lay them out */
    uint64_t replaced; /* bytes of weights that are then not kept as they are in the file */
    bool whole;        /* `packed` and `replaced` are complete: host memory sufficed */
} onnx_foreseen;

/* Inputs of the prediction beside the file. `dims` belongs to the load, which outlives it. */
typedef struct onnx_foresee_ask {
    const char *dims; /* the setting, or "" */
    int threads;      /* from 1 */
    int optimization;
    bool cuda, memory_pattern, prepack;
} onnx_foresee_ask;

/* As a load asks for it; `cuda`: its nodes run on a GPU. */
onnx_foresee_ask onnx_foresee_asked(const weir_engine_load *load, const onnx_settings *settings, bool cuda);

/* Open dimensions have the sizes of the setting "dims" ("batch=1,sequence=128"). Without a size there, an input's first
 * open dimension is 1, and each further open dimension is 16. If not all shapes follow, the next extents that the
 * command would try are tried in place of 16, up to the first with which all shapes follow. Figures that cannot be told
 * are 0. */
void onnx_foresee_now(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out);

/* foreseen.c: the same, but for what this process was asked before of a file that has not changed since. Any thread. */
void onnx_foresee(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out);

/* The setting's value is well-formed. */
bool onnx_dims_good(const char *value);

#endif
