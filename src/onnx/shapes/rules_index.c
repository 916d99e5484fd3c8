/* rules_index.c: by index, and reductions. */
#include "onnx/shapes/rules.h"

#include <inttypes.h>

bool rule_gather(step *s)
{
    uint32_t axis;
    const graph_shape *x = &step_in(s, 0)->shape, *at = &step_in(s, 1)->shape;
    if (!step_axis(s, graph_int(s->node, "axis", 0), x->rank, &axis))
        return false;
    if (x->rank - 1 + at->rank > GRAPH_MAX_RANK)
        return step_wrong(s, "it would have more than %d dimensions", GRAPH_MAX_RANK);
    graph_shape shape = {.rank = 0};
    for (uint32_t i = 0; i < axis; i++)
        shape.dims[shape.rank++] = x->dims[i];
    for (uint32_t i = 0; i < at->rank; i++)
        shape.dims[shape.rank++] = at->dims[i];
    for (uint32_t i = axis + 1; i < x->rank; i++)
        shape.dims[shape.rank++] = x->dims[i];
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_gather_elements(step *s)
{
    return step_give(s, 0, step_in(s, 0)->type, &step_in(s, 1)->shape);
}

bool rule_gather_nd(step *s)
{
    const graph_shape *x = &step_in(s, 0)->shape, *at = &step_in(s, 1)->shape;
    int64_t batch = graph_int(s->node, "batch_dims", 0), depth = at->rank ? at->dims[at->rank - 1] : 0;
    if (batch < 0 || at->rank == 0 || batch >= at->rank || depth < 0 || depth > (int64_t)x->rank - batch ||
        at->rank - 1 + x->rank - (uint32_t)depth - (uint32_t)batch > GRAPH_MAX_RANK)
        return step_wrong(s, "indices of %" PRId64 " places do not go with %u dimensions", depth, x->rank);
    graph_shape shape = {.rank = 0};
    for (uint32_t i = 0; i + 1 < at->rank; i++)
        shape.dims[shape.rank++] = at->dims[i];
    for (uint32_t i = (uint32_t)(batch + depth); i < x->rank; i++)
        shape.dims[shape.rank++] = x->dims[i];
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_top_k(step *s)
{
    uint32_t axis;
    int64_t k[1];
    graph_shape shape = step_in(s, 0)->shape;
    int count = step_has(s, 1) ? step_ints(s, NULL, 1, k, 1) : 0;
    if (count == 0)
        k[0] = graph_int(s->node, "k", -1);
    if (count < 0 || !step_axis(s, graph_int(s->node, "axis", -1), shape.rank, &axis))
        return false;
    if (k[0] < 0 || k[0] > shape.dims[axis])
        return step_wrong(s, "it takes %" PRId64 " of %" PRId64, k[0], shape.dims[axis]);
    shape.dims[axis] = k[0];
    return step_give(s, 0, step_in(s, 0)->type, &shape) && step_give(s, 1, ONNX_INT64, &shape);
}

bool rule_one_hot(step *s)
{
    uint32_t axis;
    int64_t depth[1];
    const graph_shape *x = &step_in(s, 0)->shape;
    int count = step_ints(s, NULL, 1, depth, 1);
    if (count < 0)
        return false;
    if (count == 0 || x->rank == GRAPH_MAX_RANK)
        return step_wrong(s, "it has no depth, or too many dimensions");
    graph_shape shape = {.rank = x->rank + 1};
    if (!step_axis(s, graph_int(s->node, "axis", -1), shape.rank, &axis))
        return false;
    for (uint32_t i = 0, at = 0; i < shape.rank; i++)
        shape.dims[i] = i == axis ? depth[0] : x->dims[at++];
    return step_give(s, 0, step_in(s, 2)->type, &shape);
}

/* Without the marked dimensions, or with 1 in their place. */
static graph_shape reduced(const graph_shape *from, const bool *gone, bool keep)
{
    graph_shape shape = {.rank = 0};
    for (uint32_t i = 0; i < from->rank; i++)
        if (!gone[i] || keep)
            shape.dims[shape.rank++] = gone[i] ? 1 : from->dims[i];
    return shape;
}

bool rule_arg(step *s)
{
    uint32_t axis;
    bool gone[GRAPH_MAX_RANK] = {false};
    if (!step_axis(s, graph_int(s->node, "axis", 0), step_in(s, 0)->shape.rank, &axis))
        return false;
    gone[axis] = true;
    graph_shape shape = reduced(&step_in(s, 0)->shape, gone, graph_int(s->node, "keepdims", 1) != 0);
    return step_give(s, 0, ONNX_INT64, &shape);
}

bool graph_reduced_axes(step *s, bool *gone)
{
    int64_t axes[GRAPH_MAX_RANK];
    uint32_t rank = step_in(s, 0)->shape.rank, axis;
    int count = step_ints(s, "axes", 1, axes, GRAPH_MAX_RANK);
    if (count == -2)
        return false;
    bool all = count <= 0 && graph_int(s->node, "noop_with_empty_axes", 0) == 0;
    for (uint32_t i = 0; i < rank; i++)
        gone[i] = all;
    for (int i = 0; i < count; i++) {
        if (!step_axis(s, axes[i], rank, &axis))
            return false;
        gone[axis] = true;
    }
    return true;
}

bool rule_reduce(step *s)
{
    bool gone[GRAPH_MAX_RANK] = {false};
    if (!graph_reduced_axes(s, gone))
        return false;
    graph_shape shape = reduced(&step_in(s, 0)->shape, gone, graph_int(s->node, "keepdims", 1) != 0);
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_data_dependent(step *s)
{
    return step_unknown(s, "how many there are follows from the data, which only a run knows");
}

bool rule_nonzero(step *s)
{
    const graph_value *x = step_in(s, 0);
    const graph_number *numbers = step_contents(s, 0);
    if (!numbers)
        return rule_data_dependent(s);
    graph_shape shape = {2, {x->shape.rank, 0}};
    for (uint64_t i = 0; i < x->elements; i++)
        shape.dims[1] += graph_real(x->type) ? numbers[i].f != 0 : numbers[i].i != 0;
    return step_give(s, 0, ONNX_INT64, &shape);
}
