/* What ONNX Runtime's optimizer makes of a graph, as far as it decides what a run takes. */
#ifndef WEIR_ONNX_FUSION_H
#define WEIR_ONNX_FUSION_H

#include "rewrite.h"

/* The graph as it runs, at a level of optimization (ONNX Runtime's number): what is one node there is one here, which stands behind
 * those of the file where ONNX Runtime has it behind them. `open`: not all dimensions are in the file. rewrite_clear is needed in any
 * case. false: no host memory. */
bool onnx_fuse(const graph *g, int optimization, bool cuda, bool open, rewrite *out);

#endif
