/* fold.h: the contents of values that follow from dimensions and constants: the arithmetic that models do with shapes. */
#ifndef WEIR_GRAPH_FOLD_H
#define WEIR_GRAPH_FOLD_H

#include "onnx_shapes/step.h"

/* Works out the node's outputs, whose shapes are known, where all that they depend on is known and they are few numbers. */
void graph_fold(step *s);

/* One operator's: false where something is not known. */
typedef bool graph_folder(step *s);

/* fold_each.c */
graph_folder fold_each, fold_cast, fold_where, fold_clip;
bool fold_is_each(const graph_node *node); /* is it one that fold_each knows? */
/* fold_move.c */
graph_folder fold_gather, fold_slice, fold_concat, fold_split, fold_transpose, fold_expand, fold_tile, fold_reduce,
    fold_nonzero;

/* A walk over the places of a shape, which gives for each the place in a source that is laid out by strides. */
typedef struct fold_walk {
    graph_shape shape;
    int64_t index[GRAPH_MAX_RANK];
    int64_t strides[GRAPH_MAX_RANK];
    int64_t at; /* in the source */
} fold_walk;

void fold_next(fold_walk *w);
/* Strides of a dense tensor. */
void fold_dense(const graph_shape *shape, int64_t *strides);
/* A walk over `shape` through a source that is broadcast to it. */
fold_walk fold_broadcast(const graph_shape *shape, const graph_shape *source);

/* Room for an output's contents; NULL: it is not wanted, or not known. */
graph_number *fold_room(step *s, unsigned output);

#endif
