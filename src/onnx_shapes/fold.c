/* See fold.h. */
#include "onnx_shapes/fold.h"

#include <stdlib.h>
#include <string.h>

#include "onnx_shapes/rules.h"

graph_number *fold_room(step *s, unsigned output)
{
    graph_value *value = step_out(s, output);
    return value ? graph_contents_make(s->g, value) : NULL;
}

void fold_dense(const graph_shape *shape, int64_t *strides)
{
    int64_t stride = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        strides[i] = stride;
        stride *= shape->dims[i];
    }
}

fold_walk fold_broadcast(const graph_shape *shape, const graph_shape *source)
{
    fold_walk w = {.shape = *shape};
    int64_t strides[GRAPH_MAX_RANK];
    uint32_t behind = shape->rank - source->rank;
    fold_dense(source, strides);
    for (uint32_t i = 0; i < source->rank; i++)
        w.strides[i + behind] = source->dims[i] == 1 ? 0 : strides[i];
    return w;
}

void fold_next(fold_walk *w)
{
    for (uint32_t i = w->shape.rank; i-- > 0;) {
        w->at += w->strides[i];
        if (++w->index[i] < w->shape.dims[i])
            return;
        w->at -= w->strides[i] * w->shape.dims[i];
        w->index[i] = 0;
    }
}

/* Operators that need nothing but what their inputs look like ----------------------------------------------------------- */

static bool fold_shape(step *s)
{
    uint32_t from, to;
    graph_number *out = fold_room(s, 0);
    if (!out)
        return false;
    const graph_shape *shape = &step_in(s, 0)->shape;
    graph_shape_range(s->node, shape->rank, &from, &to);
    for (uint32_t i = from; i < to; i++)
        out[i - from].i = shape->dims[i];
    return true;
}

static bool fold_size(step *s)
{
    graph_number *out = fold_room(s, 0);
    if (out)
        out->i = (int64_t)step_in(s, 0)->elements;
    return out != NULL;
}

static bool fold_constant(step *s)
{
    onnx_text proto;
    int64_t ints[GRAPH_NUMBERS];
    double floats[GRAPH_NUMBERS];
    graph_value *value = step_out(s, 0);
    if (value && graph_tensor(s->node, "value", &proto)) {
        graph_contents_read(s->g, value, (const uint8_t *)proto.text, proto.size);
        return value->data != NULL;
    }
    graph_number *out = fold_room(s, 0);
    if (!out)
        return false;
    /* The same attribute, in the same order, as the rule that made the shape. */
    if (graph_has(s->node, "value_int")) {
        out->i = graph_int(s->node, "value_int", 0);
        return true;
    }
    if (graph_has(s->node, "value_float")) {
        out->f = graph_float(s->node, "value_float", 0);
        return true;
    }
    int count = graph_ints(s->node, "value_ints", ints, GRAPH_NUMBERS);
    for (int i = 0; i < count; i++)
        out[i].i = ints[i];
    if (count >= 0)
        return true;
    count = graph_floats(s->node, "value_floats", floats, GRAPH_NUMBERS);
    for (int i = 0; i < count; i++)
        out[i].f = floats[i];
    return true;
}

static bool fold_constant_of_shape(step *s)
{
    onnx_text proto;
    graph_number *out = fold_room(s, 0);
    graph_value fill = {.elements = 0};
    if (!out)
        return false;
    graph_value *value = step_out(s, 0);
    if (graph_tensor(s->node, "value", &proto)) {
        fill = (graph_value){.type = value->type, .elements = 1};
        graph_contents_read(s->g, &fill, (const uint8_t *)proto.text, proto.size);
    }
    for (uint64_t i = 0; fill.data && i < value->elements; i++)
        out[i] = *fill.data;
    bool good = fill.data || !graph_has(s->node, "value"); /* without one it is zeros, as the room is */
    free(fill.data);
    return good;
}

static bool fold_range(step *s)
{
    const graph_number *from = step_contents(s, 0), *by = step_contents(s, 2);
    graph_number *out = from && by ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    const graph_value *value = step_out(s, 0);
    for (uint64_t i = 0; i < value->elements; i++) {
        if (graph_real(value->type))
            out[i].f = from->f + (double)i * by->f;
        else
            out[i].i = (int64_t)((uint64_t)from->i + i * (uint64_t)by->i);
    }
    return true;
}

/* The same numbers in the same order. */
static bool fold_copy(step *s)
{
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in && !step_out(s, 1) ? fold_room(s, 0) : NULL;
    if (out)
        memcpy(out, in, (size_t)step_out(s, 0)->elements * sizeof *out);
    return out != NULL;
}

/* All ------------------------------------------------------------------------------------------------------------------ */

static const struct entry {
    const char *op;
    graph_folder *fold;
} table[] = {
    {"Shape", fold_shape},       {"Size", fold_size},
    {"Constant", fold_constant}, {"ConstantOfShape", fold_constant_of_shape},
    {"Range", fold_range},       {"Identity", fold_copy},
    {"Reshape", fold_copy},      {"Squeeze", fold_copy},
    {"Unsqueeze", fold_copy},    {"Flatten", fold_copy},
    {"Dropout", fold_copy},      {"Cast", fold_cast},
    {"CastLike", fold_cast},     {"Where", fold_where},
    {"Clip", fold_clip},         {"Gather", fold_gather},
    {"Slice", fold_slice},       {"Concat", fold_concat},
    {"Split", fold_split},       {"Transpose", fold_transpose},
    {"Expand", fold_expand},     {"Tile", fold_tile},
    {"ReduceSum", fold_reduce},  {"ReduceProd", fold_reduce},
    {"ReduceMax", fold_reduce},  {"ReduceMin", fold_reduce},
    {"NonZero", fold_nonzero},
};

static graph_folder *folder_of(const graph_node *node)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (onnx_text_is(node->op, table[i].op))
            return table[i].fold;
    return fold_is_each(node) ? fold_each : NULL;
}

static void forget(graph_value *value)
{
    free(value->data);
    value->data = NULL;
}

void graph_fold(step *s)
{
    graph_folder *fold = folder_of(s->node);
    bool good = fold && fold(s);
    for (uint32_t i = 0; i < s->node->output_count; i++) {
        graph_value *value = step_out(s, i);
        if (value && !good)
            forget(value);
        good &= !value || value->data;
    }
    s->node->folded = good;
}
