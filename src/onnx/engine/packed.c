/* Weights that kernels are expected to pack (foresee.h). A wrong guess is harmless: session.c finds what was not
 * packed, and what was packed beside it is freed. */
#include "foresee.h"

#include <stdlib.h>

#include "model.h"

static bool is_packed(const onnx_tensor *weight, unsigned kinds)
{
    if (weight->deep && !weight->lifted) /* read on from the file, where a kernel has packed it too */
        return false;
    bool floats = weight->type == ONNX_FLOAT, bytes = weight->type == ONNX_UINT8 || weight->type == ONNX_INT8;
    bool matrix = weight->rank == 2 && kinds == ONNX_USE_RIGHT, gates = weight->rank == 3 && kinds == ONNX_USE_GATES;
    return onnx_moved(weight) && (floats || bytes) && (matrix || gates);
}

weir_status onnx_packed(const onnx_graph *graph, bool *packed)
{
    onnx_uses uses;
    weir_status status = onnx_uses_read(graph, &uses);
    for (size_t i = 0; status == WEIR_OK && i < graph->weight_count; i++)
        packed[i] = is_packed(&graph->weights[i], uses.of[i].kinds);
    for (size_t i = 0; status == WEIR_OK && i < graph->inner_count; i++)
        packed[graph->weight_count + i] = is_packed(&graph->inner[i], uses.of[graph->weight_count + i].kinds);
    free(uses.of);
    return status;
}
