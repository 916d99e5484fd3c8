/* fold_move.c: known numbers picked, cut, put together and summed up. */
#include "onnx_shapes/fold.h"

#include <string.h>

#include "onnx_shapes/rules.h"
#include "onnx_shapes/slices.h"

/* Copies by a walk whose strides and start have been set. */
static void copy(const graph_value *value, fold_walk *w, const graph_number *in, graph_number *out)
{
    w->shape = value->shape;
    for (uint64_t i = 0; i < value->elements; i++, fold_next(w))
        out[i] = in[w->at];
}

bool fold_gather(step *s)
{
    uint32_t axis;
    const graph_number *in = step_contents(s, 0), *at = step_contents(s, 1);
    graph_number *out = in && at ? fold_room(s, 0) : NULL;
    if (!out || !step_axis(s, graph_int(s->node, "axis", 0), step_in(s, 0)->shape.rank, &axis))
        return false;
    if (step_out(s, 0)->elements == 0) /* the dimensions before the axis may be endless then */
        return true;
    const graph_shape *shape = &step_in(s, 0)->shape;
    uint64_t outer = graph_elements(shape, 0, axis), inner = graph_elements(shape, axis + 1, shape->rank);
    uint64_t picks = step_in(s, 1)->elements, extent = (uint64_t)shape->dims[axis];
    for (uint64_t i = 0; i < outer; i++)
        for (uint64_t k = 0; k < picks; k++) {
            int64_t pick = at[k].i < 0 ? at[k].i + (int64_t)extent : at[k].i;
            if (pick < 0 || (uint64_t)pick >= extent)
                return false;
            memcpy(out + (i * picks + k) * inner, in + (i * extent + (uint64_t)pick) * inner, inner * sizeof *out);
        }
    return true;
}

bool fold_slice(step *s)
{
    graph_slices slices;
    int64_t strides[GRAPH_MAX_RANK];
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in && graph_slices_read(s, &slices) ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    fold_walk w = {.at = 0};
    fold_dense(&step_in(s, 0)->shape, strides);
    for (uint32_t i = 0; i < slices.rank; i++) {
        w.at += strides[i] * slices.begin[i];
        w.strides[i] = slices.count[i] > 1 ? strides[i] * slices.by[i] : 0;
    }
    copy(step_out(s, 0), &w, in, out);
    return true;
}

bool fold_concat(step *s)
{
    uint32_t axis;
    graph_number *out = fold_room(s, 0);
    for (unsigned i = 0; i < s->node->input_count; i++)
        if (!step_contents(s, i))
            return false;
    if (!out || !step_axis(s, graph_int(s->node, "axis", 0), step_out(s, 0)->shape.rank, &axis))
        return false;
    if (step_out(s, 0)->elements == 0) /* as above */
        return true;
    uint64_t outer = graph_elements(&step_out(s, 0)->shape, 0, axis);
    for (uint64_t i = 0; i < outer; i++)
        for (unsigned k = 0; k < s->node->input_count; k++) {
            const graph_shape *shape = &step_in(s, k)->shape;
            uint64_t run = graph_elements(shape, axis, shape->rank);
            memcpy(out, step_contents(s, k) + i * run, run * sizeof *out);
            out += run;
        }
    return true;
}

bool fold_split(step *s)
{
    uint32_t axis;
    const graph_number *in = step_contents(s, 0);
    if (!in || !step_axis(s, graph_int(s->node, "axis", 0), step_in(s, 0)->shape.rank, &axis))
        return false;
    fold_walk w = {.at = 0};
    int64_t begin = 0, strides[GRAPH_MAX_RANK];
    fold_dense(&step_in(s, 0)->shape, strides);
    for (unsigned i = 0; i < s->node->output_count; i++) {
        graph_number *out = fold_room(s, i);
        if (!out)
            return false;
        w = (fold_walk){.at = begin * strides[axis]};
        memcpy(w.strides, strides, sizeof strides);
        copy(step_out(s, i), &w, in, out);
        begin += step_out(s, i)->shape.dims[axis];
    }
    return true;
}

bool fold_transpose(step *s)
{
    int64_t order[GRAPH_MAX_RANK], strides[GRAPH_MAX_RANK];
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    uint32_t rank = step_in(s, 0)->shape.rank, from;
    bool given = graph_ints(s->node, "perm", order, GRAPH_MAX_RANK) >= 0;
    fold_walk w = {.at = 0};
    fold_dense(&step_in(s, 0)->shape, strides);
    for (uint32_t i = 0; i < rank; i++) {
        if (!step_axis(s, given ? order[i] : (int64_t)rank - 1 - i, rank, &from))
            return false;
        w.strides[i] = strides[from];
    }
    copy(step_out(s, 0), &w, in, out);
    return true;
}

bool fold_expand(step *s)
{
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    fold_walk w = fold_broadcast(&step_out(s, 0)->shape, &step_in(s, 0)->shape);
    copy(step_out(s, 0), &w, in, out);
    return true;
}

bool fold_tile(step *s)
{
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    const graph_value *x = step_in(s, 0), *value = step_out(s, 0);
    int64_t strides[GRAPH_MAX_RANK];
    fold_walk w = {.shape = value->shape};
    fold_dense(&x->shape, strides);
    for (uint64_t i = 0; i < value->elements; i++, fold_next(&w)) {
        int64_t at = 0;
        for (uint32_t k = 0; k < x->shape.rank; k++)
            at += w.index[k] % x->shape.dims[k] * strides[k];
        out[i] = in[at];
    }
    return true;
}

/* Reductions ---------------------------------------------------------------------------------------------------------- */

static void reduce(const graph_node *node, bool is_real, graph_number more, bool first, graph_number *sum)
{
    char kind = node->op.text[sizeof "Reduce" - 1]; /* Sum, Prod, Max, Min */
    bool least = kind == 'M' && node->op.text[sizeof "Reduce"] == 'i';
    if (first)
        *sum = more;
    else if (is_real)
        sum->f = kind == 'S'   ? sum->f + more.f
                 : kind == 'P' ? sum->f * more.f
                 : least       ? (more.f < sum->f ? more.f : sum->f)
                               : (more.f > sum->f ? more.f : sum->f);
    else
        sum->i = kind == 'S'   ? (int64_t)((uint64_t)sum->i + (uint64_t)more.i)
                 : kind == 'P' ? (int64_t)((uint64_t)sum->i * (uint64_t)more.i)
                 : least       ? (more.i < sum->i ? more.i : sum->i)
                               : (more.i > sum->i ? more.i : sum->i);
}

bool fold_reduce(step *s)
{
    bool gone[GRAPH_MAX_RANK] = {false}, begun[GRAPH_NUMBERS] = {false};
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in && graph_reduced_axes(s, gone) ? fold_room(s, 0) : NULL;
    const graph_value *x = step_in(s, 0);
    if (!out || x->elements == 0)
        return false;
    fold_walk w = {.shape = x->shape};
    int64_t stride = 1;
    for (uint32_t i = x->shape.rank; i-- > 0;) { /* through the result, in which reduced dimensions do not move */
        w.strides[i] = gone[i] ? 0 : stride;
        stride *= gone[i] ? 1 : x->shape.dims[i];
    }
    for (uint64_t i = 0; i < x->elements; i++, fold_next(&w)) {
        reduce(s->node, graph_real(x->type), in[i], !begun[w.at], &out[w.at]);
        begun[w.at] = true;
    }
    return true;
}

bool fold_nonzero(step *s)
{
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    const graph_value *x = step_in(s, 0);
    int64_t count = step_out(s, 0)->shape.dims[1], at = 0;
    fold_walk w = {.shape = x->shape};
    for (uint64_t i = 0; i < x->elements; i++, fold_next(&w)) {
        if (graph_real(x->type) ? in[i].f == 0 : in[i].i == 0)
            continue;
        for (uint32_t k = 0; k < x->shape.rank; k++)
            out[(int64_t)k * count + at].i = w.index[k];
        at++;
    }
    return true;
}
