/* memory.h: what the values of an inferred graph take, and when: the list of buffers that is planned. */
#ifndef WI_ONNX_SHAPES_MEMORY_H
#define WI_ONNX_SHAPES_MEMORY_H

#include <weir/plan.h>

#include "onnx/shapes/graph.h"

/* Steps are the nodes that run, in the given order, but for those that unpack weights (DequantizeLinear), each of which comes
 * right before the first node that reads it; views take none. Not in the list, because they are no activations:
 * - weights, and views of them;
 * - values that are made of weights alone, and small ones that follow from dimensions: they are worked out once, unless
 *   they are an output.
 * Inputs live from the first step to their last use, outputs up to the last step. Views (Reshape, Flatten, Squeeze,
 * Unsqueeze, Identity, Dropout, a Cast to the same type) share the bytes of what they look at. Where an operator works
 * element by element or row by row and its input is of no use to anybody else, its output may be written over it.
 * The branches of an If are planned by themselves, and the larger arena is one buffer, live in the node's step. */
typedef struct graph_memory {
    weir_buffers *buffers;
    uint32_t *values; /* by buffer */
    uint32_t *order;  /* by step: the node that runs */
    uint32_t count, views;
    size_t steps, folded;        /* nodes that run, and that were worked out */
    uint64_t weights, constants; /* bytes read by nodes that run */
    uint64_t inputs, outputs;    /* bytes of the list that are the graph's */
    uint32_t weight_count;
} graph_memory;

/* `in_place` false: no output is written over an input. `order`: every node once, makers before readers; NULL: as in the file.
 * WEIR_ERR_SYSTEM without host memory; on failure *out is empty. */
weir_status graph_memory_make(const graph *g, bool in_place, const uint32_t *order, graph_memory *out);
void graph_memory_clear(graph_memory *memory);

/* Where a value comes from: "Conv", "input". */
onnx_text graph_origin(const graph *g, uint32_t id);

#endif
