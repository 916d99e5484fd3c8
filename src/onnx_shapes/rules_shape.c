/* rules_shape.c: the same elements in another shape or order. */
#include "onnx_shapes/rules.h"

#include <inttypes.h>

/* Fills in the dimension that is to follow from the others. */
static bool fill_in(step *s, const graph_value *x, graph_shape *shape, int open)
{
    char text[GRAPH_SHAPE_TEXT], from[GRAPH_SHAPE_TEXT];
    if (open >= 0) {
        shape->dims[open] = 1;
        uint64_t others = graph_elements(shape, 0, shape->rank);
        shape->dims[open] = others ? (int64_t)(x->elements / others) : 0;
    }
    if (graph_elements(shape, 0, shape->rank) != x->elements)
        return step_wrong(s, "%s cannot become %s", graph_shape_text(&x->shape, from, sizeof from),
                          graph_shape_text(shape, text, sizeof text));
    return true;
}

bool rule_reshape(step *s)
{
    graph_shape shape = {.rank = 0};
    if (!step_need(s, 1))
        return false;
    s->keeps = true;
    int count = step_ints(s, "shape", 1, shape.dims, GRAPH_MAX_RANK), open = -1;
    const graph_value *x = step_in(s, 0);
    bool zero_is_zero = graph_int(s->node, "allowzero", 0) != 0;
    if (count == -1)
        return step_wrong(s, "it says nothing of the shape to take");
    if (count < 0)
        return false;
    shape.rank = (uint32_t)count;
    for (int i = 0; i < count; i++) {
        if (shape.dims[i] == 0 && !zero_is_zero) {
            if ((uint32_t)i >= x->shape.rank)
                return step_wrong(s, "dimension %d is to stay as it was, and there is none", i);
            shape.dims[i] = x->shape.dims[i];
        } else if (shape.dims[i] == -1 && open < 0) {
            open = i;
        } else if (shape.dims[i] < 0) {
            return step_wrong(s, "dimension %d of its new shape is %" PRId64, i, shape.dims[i]);
        }
    }
    return fill_in(s, x, &shape, open) && step_give(s, 0, x->type, &shape);
}

bool rule_flatten(step *s)
{
    if (!step_need(s, 1))
        return false;
    const graph_value *x = step_in(s, 0);
    uint32_t axis = x->shape.rank;
    int64_t wanted = graph_int(s->node, "axis", 1);
    if (wanted != axis && !step_axis(s, wanted, axis, &axis))
        return false;
    graph_shape shape = {
        2, {(int64_t)graph_elements(&x->shape, 0, axis), (int64_t)graph_elements(&x->shape, axis, x->shape.rank)}};
    return step_give(s, 0, x->type, &shape);
}

/* Marks the axes that are named. -1: none is; -2: said why. */
static int mark_axes(step *s, uint32_t rank, bool *marked)
{
    int64_t axes[GRAPH_MAX_RANK];
    int count = step_ints(s, "axes", 1, axes, GRAPH_MAX_RANK);
    for (int i = 0; i < count; i++) {
        uint32_t axis;
        if (!step_axis(s, axes[i], rank, &axis))
            return -2;
        if (marked[axis]) {
            step_say(s, true, "its axis %u is named twice", axis);
            return -2;
        }
        marked[axis] = true;
    }
    return count;
}

bool rule_squeeze(step *s)
{
    bool gone[GRAPH_MAX_RANK] = {false};
    if (!step_need(s, 1))
        return false;
    s->keeps = true;
    const graph_value *x = step_in(s, 0);
    int count = mark_axes(s, x->shape.rank, gone);
    if (count == -2)
        return false;
    graph_shape shape = {.rank = 0};
    for (uint32_t i = 0; i < x->shape.rank; i++) {
        if (gone[i] && x->shape.dims[i] != 1)
            return step_wrong(s, "dimension %u cannot go: it is %" PRId64, i, x->shape.dims[i]);
        if (count == -1 ? x->shape.dims[i] != 1 : !gone[i])
            shape.dims[shape.rank++] = x->shape.dims[i];
    }
    return step_give(s, 0, x->type, &shape);
}

bool rule_unsqueeze(step *s)
{
    bool fresh[GRAPH_MAX_RANK] = {false};
    int64_t axes[GRAPH_MAX_RANK];
    if (!step_need(s, 1))
        return false;
    s->keeps = true;
    const graph_value *x = step_in(s, 0);
    int count = step_ints(s, "axes", 1, axes, GRAPH_MAX_RANK);
    if (count == -1)
        return step_wrong(s, "it names no axes");
    if (count < 0)
        return false;
    if (x->shape.rank + (uint32_t)count > GRAPH_MAX_RANK)
        return step_wrong(s, "it would have more than %d dimensions", GRAPH_MAX_RANK);
    graph_shape shape = {.rank = x->shape.rank + (uint32_t)count};
    if (mark_axes(s, shape.rank, fresh) < 0)
        return false;
    for (uint32_t i = 0, at = 0; i < shape.rank; i++)
        shape.dims[i] = fresh[i] ? 1 : x->shape.dims[at++];
    return step_give(s, 0, x->type, &shape);
}

bool rule_transpose(step *s)
{
    int64_t order[GRAPH_MAX_RANK];
    bool taken[GRAPH_MAX_RANK] = {false};
    if (!step_need(s, 1))
        return false;
    const graph_value *x = step_in(s, 0);
    graph_shape shape = x->shape;
    int count = step_ints(s, "perm", -1, order, GRAPH_MAX_RANK);
    for (uint32_t i = 0; count == -1 && i < shape.rank; i++)
        order[i] = shape.rank - 1 - i;
    if (count == -2)
        return false;
    if (count >= 0 && (uint32_t)count != shape.rank)
        return step_wrong(s, "its order has %d axes, its input %u", count, shape.rank);
    for (uint32_t i = 0; i < shape.rank; i++) {
        uint32_t from;
        if (!step_axis(s, order[i], shape.rank, &from))
            return false;
        if (taken[from])
            return step_wrong(s, "its order has axis %u twice", from);
        taken[from] = true;
        shape.dims[i] = x->shape.dims[from];
    }
    return step_give(s, 0, x->type, &shape);
}

static bool image_block(step *s, int64_t *block)
{
    if (!step_need(s, 1))
        return false;
    *block = graph_int(s->node, "blocksize", 0);
    if (*block < 1 || *block > INT32_MAX || step_in(s, 0)->shape.rank != 4)
        return step_wrong(s, "it needs an image of four dimensions and blocks, which are %" PRId64, *block);
    return true;
}

bool rule_depth_to_space(step *s)
{
    int64_t block;
    if (!image_block(s, &block))
        return false;
    graph_shape shape = step_in(s, 0)->shape;
    shape.dims[1] /= block * block;
    for (int i = 2; i < 4; i++)
        if (__builtin_mul_overflow(shape.dims[i], block, &shape.dims[i]))
            return step_wrong(s, "it would make more than can be addressed");
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_space_to_depth(step *s)
{
    int64_t block;
    if (!image_block(s, &block))
        return false;
    graph_shape shape = step_in(s, 0)->shape;
    if (__builtin_mul_overflow(shape.dims[1], block * block, &shape.dims[1]))
        return step_wrong(s, "it would make more than can be addressed");
    shape.dims[2] /= block;
    shape.dims[3] /= block;
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}
