/* What the CPU's kernels work in beside their inputs and outputs. */
#ifndef WEIR_ONNX_WORKSPACE_H
#define WEIR_ONNX_WORKSPACE_H

#include "onnx/shapes/graph.h"

/* Bytes that the node's kernel has at a time, each block as it is charged, in an inferred graph; saturates. 0: none that is known. */
uint64_t onnx_workspace(const graph *g, const graph_node *node, int threads);

/* LSTM or GRU of the standard. */
bool onnx_is_recurrent(const graph_node *node);

#endif
