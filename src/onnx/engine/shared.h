/* The weights that a model's further sessions on cuda read where its first one has them. */
#ifndef WEIR_ONNX_SHARED_H
#define WEIR_ONNX_SHARED_H

#include "model.h"
#include <weir/engine.h>
#include "uses.h"

/* May a session be told where a weight lies whose bytes were found on the device? `unlike`: no other weight of the
 * model has the same bytes. `elsewhere` are the operators that other providers than cuda run; true only if none of them
 * could read it, as ONNX Runtime would let it. */
bool onnx_shared_allowed(const onnx_use *use, bool unlike, const char *const *elsewhere, size_t count);

/* Could the bytes of no other weight of the model, and of nothing that is computed, be taken for those of this one? */
bool onnx_shared_unlike(const onnx_graph *graph, size_t index);

/* Lists the weights that the first session shares in model->weights, and in the options of the first slot, if any. Call
 * after the first session was made. WEIR_ERR_UNSUPPORTED before ONNX Runtime 1.24. */
weir_status onnx_shared_begin(weir_engine_model *model, const onnx_graph *graph);

#endif
