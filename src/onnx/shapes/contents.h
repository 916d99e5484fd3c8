/* contents.h: values whose contents are known before anything runs: constants, and what follows from dimensions. Kept
 * only where they are few, as shape arithmetic is. */
#ifndef WI_ONNX_SHAPES_CONTENTS_H
#define WI_ONNX_SHAPES_CONTENTS_H

#include "onnx/shapes/graph.h"

enum { GRAPH_NUMBERS = 4096 }; /* most numbers in the contents of a value */

/* Whether numbers of the type are kept in `f`; others of known types are in `i`. */
bool graph_real(int32_t type);

/* Makes room for the contents of a value that has its type and shape. NULL: too many, or no host memory; that is no
 * failure, they are just not known then. */
graph_number *graph_contents_make(graph *g, graph_value *value);

/* The contents of a value, read from the file where it is a weight or a constant that was not read before; NULL: not known. */
const graph_number *graph_contents(graph *g, uint32_t id);

/* Reads a TensorProto's numbers into the value, which has its type and shape. */
void graph_contents_read(graph *g, graph_value *value, const uint8_t *proto, size_t size);

/* The number as a whole one; false: it is none, or beyond what can be. */
bool graph_whole(int32_t type, graph_number number, int64_t *out);

#endif
