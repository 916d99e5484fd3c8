/* In which order ONNX Runtime runs the nodes of a graph. */
#ifndef WEIR_ONNX_ORDER_H
#define WEIR_ONNX_ORDER_H

#include "onnx/shapes/graph.h"

/* Fills `order`, which has room for all nodes of an inferred graph. false: no host memory. */
bool onnx_order(const graph *g, uint32_t *order);

#endif
