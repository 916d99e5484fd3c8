/* bodies.h: graphs inside nodes (If, Loop, Scan). They are not looked into, except for what they take from outside. */
#ifndef WEIR_GRAPH_BODIES_H
#define WEIR_GRAPH_BODIES_H

#include "onnx_shapes/graph.h"

/* The most values that the bodies of a node can take from outside; 0 also where there is none. */
size_t graph_bodies_count(onnx_text node);

/* Appends the values that bodies of the node take from outside, known so far, to `out`. Answers how many. */
uint32_t graph_bodies_read(const graph *g, onnx_text node, uint32_t *out);

/* How many values the nodes in them make, at every depth. */
size_t graph_bodies_made(onnx_text node);

/* Whether there is a body at all. */
bool graph_has_body(onnx_text node);

#endif
