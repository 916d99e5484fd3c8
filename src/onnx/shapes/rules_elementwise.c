/* The rules of operators that work element by element, normalise, or make values of shapes alone. */
#include "onnx/shapes/rules.h"

#include <inttypes.h>
#include <math.h>

/* Element by element ----------------------------------------------------------------------------------------------- */

bool rule_same(step *s)
{
    return step_give_like(s, 0, step_in(s, 0));
}

bool rule_same_bool(step *s)
{
    return step_give(s, 0, ONNX_BOOL, &step_in(s, 0)->shape);
}

static bool broadcast(step *s, graph_shape *out)
{
    *out = step_in(s, 0)->shape;
    for (unsigned i = 1; i < s->node->input_count; i++)
        if (!step_broadcast(s, out, &step_in(s, i)->shape))
            return false;
    return true;
}

bool rule_broadcast(step *s)
{
    graph_shape shape;
    return broadcast(s, &shape) && step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_compare(step *s)
{
    graph_shape shape;
    return broadcast(s, &shape) && step_give(s, 0, ONNX_BOOL, &shape);
}

bool rule_where(step *s)
{
    graph_shape shape;
    return broadcast(s, &shape) && step_give(s, 0, step_in(s, 1)->type, &shape);
}

bool rule_cast(step *s)
{
    int64_t to = graph_int(s->node, "to", 0);
    if (to <= 0 || to >= ONNX_TYPE_COUNT)
        return step_wrong(s, "it says nothing of the type to cast to");
    return step_give(s, 0, (int32_t)to, &step_in(s, 0)->shape);
}

/* DequantizeLinear, too. */
bool rule_cast_like(step *s)
{
    return step_give(s, 0, step_in(s, 1)->type, &step_in(s, 0)->shape);
}

bool rule_dropout(step *s)
{
    return rule_same(s) && step_give(s, 1, ONNX_BOOL, &step_in(s, 0)->shape);
}

bool rule_quantize(step *s)
{
    const graph_value *zero = step_in(s, 2);
    int32_t type = zero ? zero->type : (int32_t)graph_int(s->node, "output_dtype", 0);
    return step_give(s, 0, type ? type : ONNX_UINT8, &step_in(s, 0)->shape);
}

bool rule_dynamic_quantize(step *s)
{
    static const graph_shape single = {.rank = 0};
    return step_give(s, 0, ONNX_UINT8, &step_in(s, 0)->shape) && step_give(s, 1, ONNX_FLOAT, &single) &&
           step_give(s, 2, ONNX_UINT8, &single);
}

/* Normalisations with further outputs ------------------------------------------------------------------------------ */

bool rule_batch_norm(step *s)
{
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
    return step_axis(s, graph_int(s->node, "axis", -1), step_in(s, 0)->shape.rank, &axis) && give_statistics(s, axis) &&
           step_give_like(s, 0, step_in(s, 0));
}

bool rule_skip_norm(step *s)
{
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

/* Values made of nothing but shapes and constants ------------------------------------------------------------------ */

static const graph_shape single = {.rank = 0};

/* The shape of a tensor that stands in an attribute. */
static bool give_tensor(step *s, onnx_text proto)
{
    onnx_tensor tensor;
    graph_shape shape = {.rank = 0};
    if (onnx_tensor_read(s->g->file, (const uint8_t *)proto.text, proto.size, &tensor) != WEIR_OK ||
        tensor.rank > GRAPH_MAX_RANK)
        return step_wrong(s, "its tensor has more than %d dimensions", GRAPH_MAX_RANK);
    for (shape.rank = 0; shape.rank < tensor.rank; shape.rank++)
        shape.dims[shape.rank] = tensor.shape[shape.rank];
    return step_give(s, 0, tensor.type, &shape);
}

bool rule_constant(step *s)
{
    onnx_text proto;
    int64_t ints[GRAPH_NUMBERS];
    double floats[GRAPH_NUMBERS];
    if (graph_tensor(s->node, "value", &proto))
        return give_tensor(s, proto);
    if (graph_has(s->node, "value_int"))
        return step_give(s, 0, ONNX_INT64, &single);
    if (graph_has(s->node, "value_float"))
        return step_give(s, 0, ONNX_FLOAT, &single);
    int count = graph_ints(s->node, "value_ints", ints, GRAPH_NUMBERS);
    if (count >= 0)
        return step_give(s, 0, ONNX_INT64, &(graph_shape){1, {count}});
    count = graph_floats(s->node, "value_floats", floats, GRAPH_NUMBERS);
    if (count >= 0)
        return step_give(s, 0, ONNX_FLOAT, &(graph_shape){1, {count}});
    return step_unknown(s, "it is a constant that is no tensor");
}

bool rule_constant_of_shape(step *s)
{
    onnx_text proto;
    onnx_tensor tensor = {.type = ONNX_FLOAT};
    graph_shape shape = {.rank = 0};
    int count = step_ints(s, NULL, 0, shape.dims, GRAPH_MAX_RANK);
    if (count < 0)
        return false;
    if (graph_tensor(s->node, "value", &proto))
        (void)onnx_tensor_read(s->g->file, (const uint8_t *)proto.text, proto.size, &tensor); /* it was checked */
    shape.rank = (uint32_t)count;
    return step_give(s, 0, tensor.type, &shape);
}

void graph_shape_range(const graph_node *node, uint32_t rank, uint32_t *from, uint32_t *to)
{
    int64_t begin = graph_int(node, "start", 0), end = graph_int(node, "end", rank);
    begin = begin < 0 ? begin + rank : begin;
    end = end < 0 ? end + rank : end;
    *from = begin < 0 ? 0 : begin > rank ? rank : (uint32_t)begin;
    *to = end < *from ? *from : end > rank ? rank : (uint32_t)end;
}

bool rule_shape(step *s)
{
    uint32_t from, to;
    graph_shape_range(s->node, step_in(s, 0)->shape.rank, &from, &to);
    return step_give(s, 0, ONNX_INT64, &(graph_shape){1, {to - from}});
}

bool rule_size(step *s)
{
    return step_give(s, 0, ONNX_INT64, &single);
}

bool rule_range(step *s)
{
    double at[3];
    int32_t type = step_in(s, 0)->type;
    for (unsigned i = 0; i < 3; i++) {
        const graph_number *number = step_contents(s, i);
        if (!number || step_in(s, i)->elements != 1)
            return step_unknown(s, "it follows from what is in \"%.*s\", which only a run knows",
                                ONNX_SHOW(step_in(s, i)->name));
        at[i] = graph_real(step_in(s, i)->type) ? number->f : (double)number->i;
    }
    double count = ceil((at[1] - at[0]) / at[2]);
    if (!(count < 1e15))
        return step_wrong(s, "from %g to %g by %g is no range", at[0], at[1], at[2]);
    return step_give(s, 0, type, &(graph_shape){1, {count > 0 ? (int64_t)count : 0}});
}

bool rule_random(step *s)
{
    graph_shape shape = {.rank = 0};
    int count = step_ints(s, "shape", -1, shape.dims, GRAPH_MAX_RANK);
    if (count < 0)
        return count == -2 ? false : step_wrong(s, "it says nothing of its shape");
    shape.rank = (uint32_t)count;
    return step_give(s, 0, (int32_t)graph_int(s->node, "dtype", ONNX_FLOAT), &shape);
}

bool rule_random_like(step *s)
{
    return step_give(s, 0, (int32_t)graph_int(s->node, "dtype", step_in(s, 0)->type), &step_in(s, 0)->shape);
}
