/* Which dimensions ONNX Runtime knows before a run: numbers in the file, dimensions that follow from numbers, and
 * dimensions with the name of an input's open dimension. Values of shapes that are not known share no place. */
#ifndef WEIR_ONNX_KNOWN_H
#define WEIR_ONNX_KNOWN_H

#include "onnx/shapes/graph.h"

/* By value and dimension (GRAPH_MAX_RANK of each value): ONNX_UNKNOWN, ONNX_NUMBER, or else the same for the same name. */
enum { ONNX_UNKNOWN, ONNX_NUMBER };

/* Of an inferred graph, as it is in the file, with room for a value more for each node; for free. NULL: no host memory. */
uint32_t *onnx_known(graph *g);

#endif
