/* rules_move.c: parts, repetitions, and pieces put together. */
#include "onnx_shapes/rules.h"

#include <inttypes.h>
#include <math.h>

#include "onnx_shapes/slices.h"

bool rule_concat(step *s)
{
    uint32_t axis;
    if (!step_need(s, s->node->input_count ? s->node->input_count : 1))
        return false;
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
static int64_t part_of(int64_t whole, uint32_t parts, uint32_t i)
{
    int64_t each = whole / parts + (whole % parts > 0), begin = each * i;
    return begin >= whole ? 0 : whole - begin < each ? whole - begin : each;
}

bool rule_split(step *s)
{
    enum { PARTS = 1024 };
    int64_t sizes[PARTS], sum = 0;
    uint32_t axis, parts = s->node->output_count;
    if (!step_need(s, 1))
        return false;
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
        shape.dims[axis] = count >= 0 ? sizes[i] : part_of(x->shape.dims[axis], parts, i);
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
    if (!step_need(s, 1) || !graph_slices_read(s, &slices))
        return false;
    graph_shape shape = {.rank = slices.rank};
    for (uint32_t i = 0; i < slices.rank; i++)
        shape.dims[i] = slices.count[i];
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_expand(step *s)
{
    if (!step_need(s, 2))
        return false;
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
    if (!step_need(s, 2))
        return false;
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
    if (!step_need(s, 1))
        return false;
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

/* Resize ------------------------------------------------------------------------------------------------------------- */

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

static bool scale(step *s, const double *scales, int count, const int64_t *axes, int named, graph_shape *shape)
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
    if (!step_need(s, 1))
        return false;
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
    return count >= 0 && scale(s, scales, count, axes, named, &shape) && step_give(s, 0, step_in(s, 0)->type, &shape);
}
