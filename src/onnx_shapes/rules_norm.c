/* rules_norm.c: normalisations that make more than what they normalise. */
#include "onnx_shapes/rules.h"

bool rule_batch_norm(step *s)
{
    if (!step_need(s, 5))
        return false;
    for (unsigned i = 1; i < s->node->output_count; i++) /* running mean and variance, of training */
        if (!step_give_like(s, i, step_in(s, 3)))
            return false;
    return step_give_like(s, 0, step_in(s, 0));
}

/* Mean and deviation, with 1 for every dimension from the axis on. */
static bool give_statistics(step *s, uint32_t axis)
{
    graph_shape shape = step_in(s, 0)->shape;
    for (uint32_t i = axis; i < shape.rank; i++)
        shape.dims[i] = 1;
    return step_give(s, 1, ONNX_FLOAT, &shape) && step_give(s, 2, ONNX_FLOAT, &shape);
}

bool rule_layer_norm(step *s)
{
    uint32_t axis;
    return step_need(s, 1) && step_axis(s, graph_int(s->node, "axis", -1), step_in(s, 0)->shape.rank, &axis) &&
           give_statistics(s, axis) && step_give_like(s, 0, step_in(s, 0));
}

bool rule_skip_norm(step *s)
{
    if (!step_need(s, 2))
        return false;
    const graph_value *x = step_in(s, 0);
    if (x->shape.rank == 0)
        return step_wrong(s, "its input has no dimension");
    return give_statistics(s, x->shape.rank - 1) && step_give_like(s, 3, x) && step_give_like(s, 0, x);
}

bool rule_embed_norm(step *s)
{
    if (!step_has(s, 0) || !step_has(s, 2))
        return step_wrong(s, "its ids or its words are missing");
    const graph_value *ids = step_in(s, 0), *words = step_in(s, 2);
    if (ids->shape.rank != 2 || words->shape.rank != 2)
        return step_wrong(s, "it needs ids and words of two dimensions");
    graph_shape shape = {3, {ids->shape.dims[0], ids->shape.dims[1], words->shape.dims[1]}};
    return step_give(s, 0, words->type, &shape) &&
           step_give(s, 1, ONNX_INT32, &(graph_shape){1, {ids->shape.dims[0]}}) && step_give(s, 2, words->type, &shape);
}
