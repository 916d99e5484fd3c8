/* graph.h: a small graph in ONNX form, as a decoder's: what a folder is checked against. */
#ifndef LLM_GRAPH_H
#define LLM_GRAPH_H

#include <stdint.h>

typedef struct graph_shape {
    int layers, width; /* of the logits; 0: a name */
    int64_t cache[5];  /* of the inputs past_key_values.N.key and .value; -1: a name */
    int rank, type;    /* of the same; 1: f32, 10: f16, 8: text */
    const char *logits;
    int other;              /* 1: the values of the last layer have extents of their own, of four */
    int64_t other_cache[4]; /* of which a 0 is a name */
    int other_rank;         /* so many of them; 0: all */
    const char *more;       /* an input of this name, of 3 × 5 numbers; NULL: none */
    const char *beside;     /* the file of its weight; NULL: the graph's own */
} graph_shape;

/* Writes it; the test ends where that fails. */
void graph_write(const char *path, const graph_shape *shape);

#endif
