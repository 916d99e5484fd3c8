/* rules.h: the rules of the operators, by families; each is as step.h says. */
#ifndef WI_ONNX_SHAPES_RULES_H
#define WI_ONNX_SHAPES_RULES_H

#include "onnx/shapes/step.h"

/* rules_elementwise.c: element by element */
graph_rule rule_same, rule_same_bool, rule_broadcast, rule_compare, rule_where, rule_cast, rule_cast_like, rule_dropout,
    rule_quantize, rule_dequantize, rule_dynamic_quantize;
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
