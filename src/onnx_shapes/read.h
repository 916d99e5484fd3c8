/* read.h: what reading shares with what adds values later. */
#ifndef WEIR_GRAPH_READ_H
#define WEIR_GRAPH_READ_H

#include "onnx_shapes/graph.h"

/* A new value; its name, if it has one, is not there yet. WEIR_ERR_SYSTEM without host memory. */
weir_status graph_value_add(graph *g, onnx_text name, uint32_t *out);

#endif
