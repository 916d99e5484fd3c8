/* rules.h: one node in the course of inference, as the rules of the operators see it, and the rules, by families. The rules
 * are asked in the order of the nodes, so that every input has its type and shape already. */
#ifndef WI_ONNX_SHAPES_RULES_H
#define WI_ONNX_SHAPES_RULES_H

#include "onnx/shapes/graph.h"

typedef struct step {
    graph *g;
    graph_node *node;
    bool wrong;    /* the node cannot be, whatever the data: `why` says so */
    bool keeps;    /* output 0 is the elements of input 0, also where its shape is not known */
    char why[200]; /* why a rule could not tell a shape */
} step;

/* fold.c: works out the contents of the node's outputs, whose shapes are known, where all that they depend on is known
 * and they are few numbers. */
void graph_fold(step *s);

/* False when a shape does not follow from what is known, or the node is wrong; `why` has been set then. */
typedef bool graph_rule(step *s);

/* What is known of an operator. */
typedef struct graph_operator {
    const char *op;
    graph_rule *rule;
    uint8_t inputs; /* so many are there when the rule is asked; with GRAPH_ALL_INPUTS all that the node names, too */
    bool in_place;  /* each number of its output needs nothing of an input but what lies in the same place or row */
} graph_operator;

enum { GRAPH_ALL_INPUTS = 128 };

/* By domain and name; NULL: there is none. */
const graph_operator *graph_operator_of(const graph_node *node);

/* NULL: left out. */
const graph_value *step_in(const step *s, unsigned i);
graph_value *step_out(const step *s, unsigned i);
bool step_has(const step *s, unsigned i);

/* The contents of an input; NULL: it is left out, or its contents are not known before the model runs. */
const graph_number *step_contents(const step *s, unsigned i);

/* Says why and answers false: that a shape cannot be told, or that the node is wrong. */
#define step_unknown(s, ...) (step_say(s, false, __VA_ARGS__), false)
#define step_wrong(s, ...)   (step_say(s, true, __VA_ARGS__), false)
#define step_odd(s, what)    step_wrong(s, "its %s has not the dimensions it should have", what)
void step_say(step *s, bool wrong, const char *format, ...) WEIR_PRINTF(3, 4);

/* Gives an output its type and shape; does nothing for an unused output. False: the shape is too large for any
 * memory. */
bool step_give(step *s, unsigned output, int32_t type, const graph_shape *shape);
bool step_give_like(step *s, unsigned output, const graph_value *value); /* type and shape of another */

/* An axis from -rank to rank - 1 as one from 0 on. */
bool step_axis(step *s, int64_t axis, uint32_t rank, uint32_t *out);

/* Whole numbers that are an attribute in older operator sets and an input in newer ones (`input` below 0: never one).
 * Answers how many; -1: neither is there; -2: not known, or too many, which has been said. */
int step_ints(step *s, const char *name, int input, int64_t *out, int capacity);

/* Joins two shapes by the rules of broadcasting. */
bool step_broadcast(step *s, graph_shape *into, const graph_shape *more);

/* Elements of a shape, or of part of it; UINT64_MAX: beyond what can be. */
uint64_t graph_elements(const graph_shape *shape, uint32_t from, uint32_t to);

/* Do strides and sums of a few dimensions stay in range? Those of empty shapes are asked of too, leaving out the
 * zeros. */
bool graph_addressable(const graph_shape *shape);

/* For "%s" in messages: "2x3x4", "a single number"; the text is the caller's. */
const char *graph_shape_text(const graph_shape *shape, char *text, size_t capacity);
enum { GRAPH_SHAPE_TEXT = 120 };

/* ---- the rules ------------------------------------------------------------------------------------------------------- */

/* rules_elementwise.c: element by element */
graph_rule rule_same, rule_same_bool, rule_broadcast, rule_compare, rule_where, rule_cast, rule_cast_like, rule_dropout,
    rule_quantize, rule_dynamic_quantize;
/* rules_window.c: convolutions and pools */
graph_rule rule_conv, rule_conv_transpose, rule_pool, rule_global_pool, rule_roi_align, rule_grid_sample;
/* rules_matrix.c */
graph_rule rule_matmul, rule_gemm, rule_matmul_nbits, rule_einsum;
/* rules_shape.c: the same elements in another shape */
graph_rule rule_reshape, rule_flatten, rule_squeeze, rule_unsqueeze, rule_transpose, rule_depth_to_space,
    rule_space_to_depth;
/* rules_shape.c: parts, repetitions and pieces put together */
graph_rule rule_concat, rule_split, rule_slice, rule_expand, rule_tile, rule_pad, rule_resize;
/* rules_index.c: by index, and reductions */
graph_rule rule_gather, rule_gather_elements, rule_gather_nd, rule_top_k, rule_one_hot, rule_arg, rule_reduce,
    rule_data_dependent, rule_nonzero;
bool graph_reduced_axes(step *s, bool *gone); /* which dimensions a reduction takes away */
/* rules_elementwise.c: from nothing but shapes */
graph_rule rule_constant, rule_constant_of_shape, rule_shape, rule_size, rule_range, rule_random, rule_random_like;
/* Which dimensions a Shape tells of. */
void graph_shape_range(const graph_node *node, uint32_t rank, uint32_t *from, uint32_t *to);
/* rules_shape.c: the ranges of a Slice, for both its shape and its contents. */
typedef struct graph_slices {
    uint32_t rank;
    int64_t begin[GRAPH_MAX_RANK], by[GRAPH_MAX_RANK], count[GRAPH_MAX_RANK];
} graph_slices;

/* As a rule: false, and why. */
bool graph_slices_read(step *s, graph_slices *out);
/* branches.c */
graph_rule rule_if;
/* rules_elementwise.c: normalisations */
graph_rule rule_batch_norm, rule_layer_norm, rule_skip_norm, rule_embed_norm;
/* rules_matrix.c: attention */
graph_rule rule_attention, rule_multi_head, rule_group_query, rule_recurrent;
/* rules_signal.c: windows, transforms, samples, losses */
graph_rule rule_window, rule_mel_weights, rule_dft, rule_stft, rule_rfft, rule_irfft, rule_det, rule_affine_grid,
    rule_center_crop_pad, rule_col2im, rule_roi_pool, rule_unpool, rule_multinomial, rule_loss, rule_tf_idf,
    rule_distances, rule_murmur, rule_bit_cast;
/* rules_learning.c: ai.onnx.ml */
graph_rule rule_classes, rule_targets, rule_same_float, rule_label_encoder, rule_array_features, rule_feature_vector,
    rule_categories;
/* rules_quantized.c: ONNX Runtime's own on quantized numbers */
graph_rule rule_quantized_product, rule_quantized_gemm, rule_quantized_pair, rule_quantized_where, rule_quantized_pool,
    rule_quantized_reduce, rule_quantized_concat, rule_quantized_lstm, rule_quantized_attention, rule_quantized_gather;

#endif
