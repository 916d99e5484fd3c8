/* Which weights ONNX Runtime will not keep: those that a kernel packs into a layout of its own. */
#ifndef WEIR_ONNX_PACKED_H
#define WEIR_ONNX_PACKED_H

#include "onnx_file/main_graph.h"

/* Marks packed[i] for each of graph->weights that is certain to be repacked when prepacking is on: a matrix of floats
 * that is the right-hand side of one MatMul or Gemm and of nothing else. The packed copy is made in the client's memory
 * (Reserve), so such a weight can be read straight from the file instead of being held twice. `bytes` gets their sum.
 * WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_packed(const onnx_graph *graph, bool *packed, uint64_t *bytes);

#endif
