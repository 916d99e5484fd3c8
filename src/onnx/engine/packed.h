/* Weights that ONNX Runtime is not expected to keep, because a kernel packs the weight into a layout of its own. */
#ifndef WEIR_ONNX_PACKED_H
#define WEIR_ONNX_PACKED_H

#include "onnx/file/main_graph.h"

/* Marks packed[i] for each of graph->weights, and behind them of graph->inner, that is all but certain to be packed where that is on: a matrix that is the
 * right-hand side of products of the main graph, or the gates of its recurrent layers, and nothing else. The packed copy
 * is made in the client's memory (Reserve), so such a weight can be read straight from the file. Of others that are
 * packed, the weight is freed when it has been. WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_packed(const onnx_graph *graph, bool *packed);

#endif
