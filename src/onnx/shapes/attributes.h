/* attributes.h: the attributes of a node. An attribute that is not there, or is of another type, is not found. */
#ifndef WI_ONNX_SHAPES_ATTRIBUTES_H
#define WI_ONNX_SHAPES_ATTRIBUTES_H

#include "onnx/shapes/graph.h"

int64_t graph_int(const graph_node *node, const char *name, int64_t otherwise);
double graph_float(const graph_node *node, const char *name, double otherwise);
/* An empty text if the attribute is missing. */
onnx_text graph_text(const graph_node *node, const char *name);

/* Up to `capacity` numbers. -1: not there; -2: more than that. */
int graph_ints(const graph_node *node, const char *name, int64_t *out, int capacity);
int graph_floats(const graph_node *node, const char *name, double *out, int capacity);

/* How many elements a list of whole numbers, floats or texts has; 0 also if the attribute is missing. */
int64_t graph_length(const graph_node *node, const char *name);

/* The TensorProto. False: not there. */
bool graph_tensor(const graph_node *node, const char *name, onnx_text *out);
/* The GraphProto. False: not there. */
bool graph_body(const graph_node *node, const char *name, onnx_text *out);
/* True: the node has an attribute of this name. */
bool graph_has(const graph_node *node, const char *name);

#endif
