/* names.h: values by their names. */
#ifndef WEIR_GRAPH_NAMES_H
#define WEIR_GRAPH_NAMES_H

#include "onnx_shapes/graph.h"

/* Enters a value whose name is not there yet. False without host memory. */
bool graph_names_put(graph *g, uint32_t value);
void graph_names_clear(graph_names *names);

#endif
