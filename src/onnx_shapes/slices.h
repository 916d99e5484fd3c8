/* slices.h: what a Slice takes, as its shape and its contents both need it. */
#ifndef WEIR_GRAPH_SLICES_H
#define WEIR_GRAPH_SLICES_H

#include "onnx_shapes/step.h"

typedef struct graph_slices {
    uint32_t rank;
    int64_t begin[GRAPH_MAX_RANK], by[GRAPH_MAX_RANK], count[GRAPH_MAX_RANK];
} graph_slices;

/* As a rule: false, and why. */
bool graph_slices_read(step *s, graph_slices *out);

#endif
