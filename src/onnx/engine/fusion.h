/* What ONNX Runtime's optimizer makes of a graph, as far as it decides what a run takes. */
#ifndef WEIR_ONNX_FUSION_H
#define WEIR_ONNX_FUSION_H

#include "rewrite.h"

/* Rewrites the graph into the graph that runs at a level of optimization (ONNX Runtime's number). Nodes that ONNX
 * Runtime fuses become a single node. A fused node comes after all nodes of the file where ONNX Runtime places it
 * there. `known` is onnx_known's, NULL: all dimensions are numbers in the file. rewrite_clear is needed in any case.
 * false: no host memory. */
bool onnx_fuse(graph *g, const uint32_t *known, int optimization, bool cuda, rewrite *out);

#endif
