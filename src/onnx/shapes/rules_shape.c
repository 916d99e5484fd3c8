/* The rules of operators that put the same elements elsewhere. */
#include "onnx/shapes/rules.h"

#include <inttypes.h>
#include <math.h>

/* The same elements in another shape or order ---------------------------------------------------------------------- */

/* Fills in the dimension that is to follow from the others. */
static bool rules_shape_fill_in(step *s, const graph_value *x, graph_shape *shape, int open)
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
    return rules_shape_fill_in(s, x, &shape, open) && step_give(s, 0, x->type, &shape);
}

bool rule_flatten(step *s)
{
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

/* Slices ----------------------------------------------------------------------------------------------------------- */

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Negative places count from the end; what lies beyond is cut off. */
static void rules_shape_cut(int64_t extent, int64_t begin, int64_t end, int64_t by, int64_t *first, int64_t *count)
{
    int64_t low = by > 0 ? 0 : -1, high = by > 0 ? extent : extent - 1;
    begin = clamp(begin < 0 ? begin + extent : begin, extent > 0 ? 0 : low, high);
    end = clamp(end < 0 ? (end < -extent ? low : end + extent) : end, low, high);
    int64_t span = by > 0 ? end - begin : begin - end;
    uint64_t step_by = by > 0 ? (uint64_t)by : 0 - (uint64_t)by;
    *first = begin;
    *count = span <= 0 ? 0 : (int64_t)(((uint64_t)span - 1) / step_by) + 1;
}

bool graph_slices_read(step *s, graph_slices *out)
{
    int64_t begins[GRAPH_MAX_RANK], ends[GRAPH_MAX_RANK], axes[GRAPH_MAX_RANK], by[GRAPH_MAX_RANK];
    const graph_shape *shape = &step_in(s, 0)->shape;
    int count = step_ints(s, "starts", 1, begins, GRAPH_MAX_RANK);
    int other = count == -2 ? -2 : step_ints(s, "ends", 2, ends, GRAPH_MAX_RANK);
    int named = other == -2 ? -2 : step_ints(s, "axes", 3, axes, GRAPH_MAX_RANK);
    int steps = named == -2 ? -2 : step_ints(s, NULL, 4, by, GRAPH_MAX_RANK);
    if (steps == -2)
        return false;
    if (count < 0 || count != other || (named >= 0 && named != count) || (steps >= 0 && steps != count) ||
        (uint32_t)count > shape->rank)
        return step_wrong(s, "its starts, ends, axes and steps are not as many");
    out->rank = shape->rank;
    for (uint32_t i = 0; i < shape->rank; i++) {
        out->begin[i] = 0;
        out->by[i] = 1;
        out->count[i] = shape->dims[i];
    }
    for (int i = 0; i < count; i++) {
        uint32_t axis = (uint32_t)i;
        if (named >= 0 && !step_axis(s, axes[i], shape->rank, &axis))
            return false;
        int64_t stride = steps >= 0 ? by[i] : 1;
        if (stride == 0)
            return step_wrong(s, "its step %d is 0", i);
        out->by[axis] = stride;
        rules_shape_cut(shape->dims[axis], begins[i], ends[i], stride, &out->begin[axis], &out->count[axis]);
    }
    return true;
}

/* Parts, repetitions, and pieces put together ---------------------------------------------------------------------- */

bool rule_concat(step *s)
{
    uint32_t axis;
    graph_shape shape = step_in(s, 0)->shape;
    if (!step_axis(s, graph_int(s->node, "axis", 0), shape.rank, &axis))
        return false;
    for (unsigned i = 1; i < s->node->input_count; i++) {
        const graph_shape *more = &step_in(s, i)->shape;
        for (uint32_t k = 0; k < shape.rank; k++)
            if (more->rank != shape.rank || (k != axis && more->dims[k] != shape.dims[k]))
                return step_wrong(s, "its input %u does not go with the first", i);
        if (__builtin_add_overflow(shape.dims[axis], more->dims[axis], &shape.dims[axis]))
            return step_wrong(s, "it would make more than can be addressed");
    }
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

/* The extent of one part of a Split. */
static int64_t rules_shape_part_of(int64_t whole, uint32_t parts, uint32_t i)
{
    int64_t each = whole / parts + (whole % parts > 0), begin = each * i;
    return begin >= whole ? 0 : whole - begin < each ? whole - begin : each;
}

bool rule_split(step *s)
{
    enum { PARTS = 1024 };
    int64_t sizes[PARTS], sum = 0;
    uint32_t axis, parts = s->node->output_count;
    const graph_value *x = step_in(s, 0);
    if (!step_axis(s, graph_int(s->node, "axis", 0), x->shape.rank, &axis))
        return false;
    int count = step_ints(s, "split", 1, sizes, PARTS);
    if (count == -2)
        return false;
    if (count >= 0 && (uint32_t)count != parts)
        return step_wrong(s, "it has %d sizes for %u outputs", count, parts);
    graph_shape shape = x->shape;
    for (uint32_t i = 0; i < parts; i++) {
        shape.dims[axis] = count >= 0 ? sizes[i] : rules_shape_part_of(x->shape.dims[axis], parts, i);
        if (shape.dims[axis] < 0 || __builtin_add_overflow(sum, shape.dims[axis], &sum) || sum > x->shape.dims[axis])
            return step_wrong(s, "its parts are more than %" PRId64, x->shape.dims[axis]);
        if (!step_give(s, i, x->type, &shape))
            return false;
    }
    return sum == x->shape.dims[axis] || step_wrong(s, "its parts are less than %" PRId64, x->shape.dims[axis]);
}

bool rule_slice(step *s)
{
    graph_slices slices;
    if (!graph_slices_read(s, &slices))
        return false;
    graph_shape shape = {.rank = slices.rank};
    for (uint32_t i = 0; i < slices.rank; i++)
        shape.dims[i] = slices.count[i];
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_expand(step *s)
{
    graph_shape shape = step_in(s, 0)->shape, wanted = {.rank = 0};
    int count = step_ints(s, NULL, 1, wanted.dims, GRAPH_MAX_RANK);
    if (count < 0)
        return false;
    wanted.rank = (uint32_t)count;
    return step_broadcast(s, &shape, &wanted) && step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_tile(step *s)
{
    int64_t times[GRAPH_MAX_RANK];
    graph_shape shape = step_in(s, 0)->shape;
    int count = step_ints(s, NULL, 1, times, GRAPH_MAX_RANK);
    if (count < 0)
        return false;
    if ((uint32_t)count != shape.rank)
        return step_wrong(s, "it has %d repetitions for %u dimensions", count, shape.rank);
    for (int i = 0; i < count; i++)
        if (__builtin_mul_overflow(shape.dims[i], times[i], &shape.dims[i]))
            return step_wrong(s, "it would make more than can be addressed");
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_pad(step *s)
{
    int64_t pads[2 * GRAPH_MAX_RANK], axes[GRAPH_MAX_RANK];
    graph_shape shape = step_in(s, 0)->shape;
    int count = step_ints(s, graph_has(s->node, "pads") ? "pads" : "paddings", 1, pads, 2 * GRAPH_MAX_RANK);
    int named = count < 0 ? -2 : step_ints(s, NULL, 3, axes, GRAPH_MAX_RANK);
    if (count == -1)
        return step_wrong(s, "it says nothing of how much to pad");
    if (named == -2)
        return false;
    int over = named < 0 ? (int)shape.rank : named;
    if (count != 2 * over)
        return step_wrong(s, "it has %d pads for %d dimensions", count, over);
    for (int i = 0; i < over; i++) {
        uint32_t axis = (uint32_t)i;
        if (named >= 0 && !step_axis(s, axes[i], shape.rank, &axis))
            return false;
        if (__builtin_add_overflow(shape.dims[axis], pads[i], &shape.dims[axis]) ||
            __builtin_add_overflow(shape.dims[axis], pads[i + over], &shape.dims[axis]))
            return step_wrong(s, "it would make more than can be addressed");
    }
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

/* Resize ----------------------------------------------------------------------------------------------------------- */

#define MOST_EXTENT 1e15 /* below it doubles are whole numbers to the last */

/* Scales: an attribute of the first Upsample, the second input then, the third of Resize since version 11. -1: none. */
static int read_scales(step *s, double *scales)
{
    unsigned at = s->node->input_count > 2 ? 2 : 1;
    const graph_value *value = step_in(s, at);
    const graph_number *numbers = step_contents(s, at);
    if (!value)
        return graph_floats(s->node, "scales", scales, GRAPH_MAX_RANK);
    if (value->elements == 0)
        return -1;
    if (!numbers || value->elements > GRAPH_MAX_RANK || !graph_real(value->type)) {
        step_say(s, false, "its scales in \"%.*s\" are not known before a run", ONNX_SHOW(value->name));
        return -2;
    }
    for (uint64_t i = 0; i < value->elements; i++)
        scales[i] = numbers[i].f;
    return (int)value->elements;
}

static bool rules_shape_scale(step *s, const double *scales, int count, const int64_t *axes, int named,
                              graph_shape *shape)
{
    if (count != (named < 0 ? (int)shape->rank : named))
        return step_wrong(s, "it has %d scales for %u dimensions", count, shape->rank);
    for (int i = 0; i < count; i++) {
        uint32_t axis = (uint32_t)i;
        if (named >= 0 && !step_axis(s, axes[i], shape->rank, &axis))
            return false;
        double extent = floorf((float)shape->dims[axis] * (float)scales[i]); /* as runtimes do it, in floats */
        if (!(extent >= 0 && extent <= MOST_EXTENT))
            return step_wrong(s, "its scale %g is none", scales[i]);
        shape->dims[axis] = (int64_t)extent;
    }
    return true;
}

/* With a policy, the sizes are bounds, and one scale serves all of their axes: in doubles, halves rounded up. */
static bool keep_aspect(step *s, const graph_shape *from, const uint32_t *axes, int count, bool larger, int64_t *sizes)
{
    double chosen = 0;
    for (int i = 0; i < count; i++) {
        double one = (double)sizes[i] / (double)from->dims[axes[i]];
        chosen = i == 0 || (larger ? one > chosen : one < chosen) ? one : chosen;
    }
    for (int i = 0; i < count; i++) {
        double extent = round((double)from->dims[axes[i]] * chosen);
        if (extent > MOST_EXTENT)
            return step_wrong(s, "one scale of %g for all makes dimension %u larger than can be addressed", chosen,
                              axes[i]);
        sizes[i] = (int64_t)extent;
    }
    return true;
}

static bool take_sizes(step *s, int64_t *sizes, int count, const int64_t *axes, int named, graph_shape *shape)
{
    uint32_t at[GRAPH_MAX_RANK];
    onnx_text policy = graph_text(s->node, "keep_aspect_ratio_policy");
    if (count != (named < 0 ? (int)shape->rank : named))
        return step_wrong(s, "it has %d sizes for %u dimensions", count, shape->rank);
    for (int i = 0; i < count; i++) {
        at[i] = (uint32_t)i;
        if (named >= 0 && !step_axis(s, axes[i], shape->rank, &at[i]))
            return false;
        if (sizes[i] < 0 || sizes[i] > INT64_C(1) << 40 || shape->dims[at[i]] == 0)
            return step_wrong(s, "its size %" PRId64 " is none", sizes[i]);
    }
    if (policy.size > 0 && !onnx_text_is(policy, "stretch") &&
        !keep_aspect(s, shape, at, count, onnx_text_is(policy, "not_smaller"), sizes))
        return false;
    for (int i = 0; i < count; i++)
        shape->dims[at[i]] = sizes[i];
    return true;
}

bool rule_resize(step *s)
{
    int64_t sizes[GRAPH_MAX_RANK], axes[GRAPH_MAX_RANK];
    double scales[GRAPH_MAX_RANK];
    graph_shape shape = step_in(s, 0)->shape;
    int named = step_ints(s, "axes", -1, axes, GRAPH_MAX_RANK);
    int count = named == -2 ? -2 : step_ints(s, NULL, 3, sizes, GRAPH_MAX_RANK);
    if (count == -2)
        return false;
    if (count > 0)
        return take_sizes(s, sizes, count, axes, named, &shape) && step_give(s, 0, step_in(s, 0)->type, &shape);
    count = read_scales(s, scales);
    if (count == -1)
        return step_wrong(s, "it has neither scales nor sizes");
    return count >= 0 && rules_shape_scale(s, scales, count, axes, named, &shape) &&
           step_give(s, 0, step_in(s, 0)->type, &shape);
}
