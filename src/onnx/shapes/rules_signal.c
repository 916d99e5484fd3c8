/* The rules of operators on signals and images that are none of the usual layers: windows, transforms, losses, samples. */
#include "onnx/shapes/rules.h"

#include <inttypes.h>

static const graph_shape single = {.rank = 0};

/* One whole number, of an input; false, and why, where only a run knows it. */
static bool rules_signal_number_of(step *s, int input, int64_t *out)
{
    return step_ints(s, NULL, input, out, 1) == 1 || step_unknown(s, "its input %d is known to a run alone", input);
}

bool rule_window(step *s)
{
    graph_shape shape = {.rank = 1};
    return rules_signal_number_of(s, 0, &shape.dims[0]) &&
           step_give(s, 0, (int32_t)graph_int(s->node, "output_datatype", ONNX_FLOAT), &shape);
}

bool rule_mel_weights(step *s)
{
    graph_shape shape = {.rank = 2};
    if (!rules_signal_number_of(s, 1, &shape.dims[0]) || !rules_signal_number_of(s, 0, &shape.dims[1]))
        return false;
    shape.dims[0] = shape.dims[0] / 2 + 1;
    return step_give(s, 0, (int32_t)graph_int(s->node, "output_datatype", ONNX_FLOAT), &shape);
}

/* The last dimension is real and imaginary part. A one-sided spectrum has length / 2 + 1 values. */
bool rule_dft(step *s)
{
    const graph_value *x = step_in(s, 0);
    graph_shape shape = x->shape;
    int64_t axis = graph_int(s->node, "axis", 1), length;
    bool inverse = graph_int(s->node, "inverse", 0), half = graph_int(s->node, "onesided", 0);
    uint32_t at;
    if (step_has(s, 2) && !rules_signal_number_of(s, 2, &axis))
        return false;
    if (shape.rank < 2)
        return step_odd(s, "input");
    if (!graph_has(s->node, "axis") && !step_has(s, 2))
        axis = -2;
    if (!step_axis(s, axis, shape.rank, &at))
        return false;
    if (step_has(s, 1)) {
        if (!rules_signal_number_of(s, 1, &length))
            return false;
        shape.dims[at] = length;
    } else if (inverse && half) {
        shape.dims[at] = 2 * (shape.dims[at] - 1);
    }
    if (half && !inverse)
        shape.dims[at] = shape.dims[at] / 2 + 1;
    shape.dims[shape.rank - 1] = half && inverse ? 1 : 2;
    return step_give(s, 0, x->type, &shape);
}

bool rule_stft(step *s)
{
    int64_t every, length;
    if (!rules_signal_number_of(s, 1, &every))
        return false;
    const graph_value *x = step_in(s, 0), *window = step_in(s, 2);
    if (x->shape.rank < 2 || (window && window->shape.rank != 1))
        return step_odd(s, "signal or window");
    length = window ? window->shape.dims[0] : x->shape.dims[1];
    if (step_has(s, 3) && !rules_signal_number_of(s, 3, &length))
        return false;
    if (every < 1 || length < 1 || length > x->shape.dims[1])
        return step_wrong(s, "frames of %" PRId64 " every %" PRId64 " do not fit into %" PRId64, length, every,
                          x->shape.dims[1]);
    graph_shape shape = {4,
                         {x->shape.dims[0], (x->shape.dims[1] - length) / every + 1,
                          graph_int(s->node, "onesided", 1) ? length / 2 + 1 : length, 2}};
    return step_give(s, 0, x->type, &shape);
}

/* com.microsoft's transforms over the last dimensions of real numbers, and back. */
bool rule_rfft(step *s)
{
    const graph_value *x = step_in(s, 0);
    graph_shape shape = x->shape;
    if (shape.rank == 0 || shape.rank == GRAPH_MAX_RANK)
        return step_odd(s, "input");
    if (graph_int(s->node, "onesided", 1))
        shape.dims[shape.rank - 1] = shape.dims[shape.rank - 1] / 2 + 1;
    shape.dims[shape.rank++] = 2;
    return step_give(s, 0, x->type, &shape);
}

bool rule_irfft(step *s)
{
    const graph_value *x = step_in(s, 0);
    graph_shape shape = x->shape;
    if (shape.rank < 2 || shape.dims[shape.rank - 1] != 2)
        return step_odd(s, "input");
    shape.rank--;
    if (graph_int(s->node, "onesided", 1))
        shape.dims[shape.rank - 1] = 2 * (shape.dims[shape.rank - 1] - 1);
    return step_give(s, 0, x->type, &shape);
}

bool rule_det(step *s)
{
    graph_shape shape = step_in(s, 0)->shape;
    if (shape.rank < 2)
        return step_odd(s, "input");
    shape.rank -= 2;
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

/* A grid of the size that input 1 says: of an image or of a volume. */
bool rule_affine_grid(step *s)
{
    int64_t size[5];
    int count = step_ints(s, NULL, 1, size, 5);
    if (count != 4 && count != 5)
        return count == -2 ? false : step_wrong(s, "its size has %d numbers", count);
    graph_shape shape = {(uint32_t)count, {size[0]}};
    for (int i = 2; i < count; i++)
        shape.dims[i - 1] = size[i];
    shape.dims[count - 1] = count - 2;
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_center_crop_pad(step *s)
{
    int64_t size[GRAPH_MAX_RANK], axes[GRAPH_MAX_RANK];
    graph_shape shape = step_in(s, 0)->shape;
    int count = step_ints(s, NULL, 1, size, GRAPH_MAX_RANK), named = graph_ints(s->node, "axes", axes, GRAPH_MAX_RANK);
    if (count < 0)
        return false;
    if ((named >= 0 ? named : (int)shape.rank) != count)
        return step_wrong(s, "it has %d sizes for %d axes", count, named >= 0 ? named : (int)shape.rank);
    for (int i = 0; i < count; i++) {
        uint32_t at;
        if (!step_axis(s, named >= 0 ? axes[i] : i, shape.rank, &at))
            return false;
        shape.dims[at] = size[i];
    }
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_col2im(step *s)
{
    int64_t image[GRAPH_MAX_RANK - 2], block[GRAPH_MAX_RANK - 2], piece = 1;
    const graph_shape *x = &step_in(s, 0)->shape;
    int count = step_ints(s, NULL, 1, image, GRAPH_MAX_RANK - 2),
        blocks = step_ints(s, NULL, 2, block, GRAPH_MAX_RANK - 2);
    if (count < 0 || blocks < 0)
        return false;
    for (int i = 0; i < blocks; i++)
        if (__builtin_mul_overflow(piece, block[i], &piece))
            piece = 0;
    if (x->rank != 3 || count != blocks || piece < 1)
        return step_odd(s, "input or block");
    graph_shape shape = {(uint32_t)count + 2, {x->dims[0], x->dims[1] / piece}};
    for (int i = 0; i < count; i++)
        shape.dims[i + 2] = image[i];
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

/* For each region a picture of the size in an attribute, or in an input. */
bool rule_roi_pool(step *s)
{
    int64_t size[2];
    bool crop = onnx_text_is(s->node->op, "CropAndResize");
    const graph_value *x = step_in(s, 0), *regions = step_in(s, 1);
    int count = crop ? step_ints(s, NULL, 3, size, 2) : graph_ints(s->node, "pooled_shape", size, 2);
    if (crop && count == -2)
        return false;
    if (x->shape.rank != 4 || regions->shape.rank != 2 || count != 2)
        return step_odd(s, "input, regions or size");
    return step_give(s, 0, x->type, &(graph_shape){4, {regions->shape.dims[0], x->shape.dims[1], size[0], size[1]}});
}

/* What a pool has taken apart put together: strides and sizes the other way round. */
bool rule_unpool(step *s)
{
    int64_t sizes[GRAPH_MAX_RANK], kernel[GRAPH_MAX_RANK], strides[GRAPH_MAX_RANK], pads[2 * GRAPH_MAX_RANK];
    graph_shape shape = step_in(s, 0)->shape;
    if (step_has(s, 2)) {
        int count = step_ints(s, NULL, 2, sizes, GRAPH_MAX_RANK);
        if (count != (int)shape.rank)
            return count == -2 ? false : step_odd(s, "size");
        for (uint32_t i = 0; i < shape.rank; i++)
            shape.dims[i] = sizes[i];
        return step_give(s, 0, step_in(s, 0)->type, &shape);
    }
    int axes = (int)shape.rank - 2, given = graph_ints(s->node, "kernel_shape", kernel, GRAPH_MAX_RANK);
    bool steps = graph_ints(s->node, "strides", strides, GRAPH_MAX_RANK) == axes;
    bool padded = graph_ints(s->node, "pads", pads, 2 * GRAPH_MAX_RANK) == 2 * axes;
    if (axes < 1 || given != axes)
        return step_odd(s, "kernel");
    for (int i = 0; i < axes; i++) {
        int64_t *size = &shape.dims[i + 2], by = steps ? strides[i] : 1;
        if (__builtin_mul_overflow(*size - 1, by, size) || __builtin_add_overflow(*size, kernel[i], size) ||
            (padded &&
             (__builtin_sub_overflow(*size, pads[i], size) || __builtin_sub_overflow(*size, pads[i + axes], size))))
            return step_odd(s, "kernel, strides or pads");
    }
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_multinomial(step *s)
{
    const graph_shape *x = &step_in(s, 0)->shape;
    if (x->rank != 2)
        return step_odd(s, "input");
    return step_give(s, 0, (int32_t)graph_int(s->node, "dtype", ONNX_INT32),
                     &(graph_shape){2, {x->dims[0], graph_int(s->node, "sample_size", 1)}});
}

/* Gives a single number, or a loss for each target. A second output, logarithms of probabilities, has the shape of the
 * logits. */
bool rule_loss(step *s)
{
    bool each = onnx_text_is(graph_text(s->node, "reduction"), "none");
    return step_give(s, 0, step_in(s, 0)->type, each ? &step_in(s, 1)->shape : &single) &&
           step_give_like(s, 1, step_in(s, 0));
}

bool rule_tf_idf(step *s)
{
    enum { MOST = 4096 };
    int64_t at[MOST], most = -1;
    graph_shape shape = step_in(s, 0)->shape;
    int count = graph_ints(s->node, "ngram_indexes", at, MOST);
    if (count == -2)
        return step_unknown(s, "its places are more than %d", MOST);
    for (int i = 0; i < count; i++)
        most = at[i] > most ? at[i] : most;
    if (shape.rank == 0 || shape.rank > 2 || most < 0 || most > INT32_MAX)
        return step_odd(s, "input or places");
    shape.dims[shape.rank - 1] = most + 1;
    return step_give(s, 0, ONNX_FLOAT, &shape);
}

bool rule_distances(step *s)
{
    const graph_shape *a = &step_in(s, 0)->shape, *b = &step_in(s, 1)->shape;
    if (a->rank != 2 || b->rank != 2)
        return step_odd(s, "input");
    return step_give(s, 0, step_in(s, 0)->type, &(graph_shape){2, {a->dims[0], b->dims[0]}});
}

bool rule_murmur(step *s)
{
    return step_give(s, 0, graph_int(s->node, "positive", 1) ? ONNX_UINT32 : ONNX_INT32, &step_in(s, 0)->shape);
}

/* The elements are the same bits, of another type of the same width. */
bool rule_bit_cast(step *s)
{
    int32_t to = (int32_t)graph_int(s->node, "to", 0);
    if (onnx_type_bits(to) != onnx_type_bits(step_in(s, 0)->type))
        return step_wrong(s, "elements of %s are not as wide as of %s", onnx_type_name(to),
                          onnx_type_name(step_in(s, 0)->type));
    return step_give(s, 0, to, &step_in(s, 0)->shape);
}
