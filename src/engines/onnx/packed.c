/* See packed.h. A wrong guess is harmless: session.c finds what was not packed, and what was packed beside it is freed. */
#include "packed.h"

#include <stdlib.h>

#include "strip.h"
#include "uses.h"

weir_status onnx_packed(const onnx_graph *graph, bool *packed)
{
    onnx_uses uses;
    weir_status status = onnx_uses_read(graph, &uses);
    for (size_t i = 0; status == WEIR_OK && i < graph->weight_count; i++) {
        const onnx_tensor *weight = &graph->weights[i];
        packed[i] =
            onnx_moved(weight) && weight->type == ONNX_FLOAT && weight->rank == 2 && uses.of[i].kinds == ONNX_USE_RIGHT;
    }
    free(uses.of);
    return status;
}
