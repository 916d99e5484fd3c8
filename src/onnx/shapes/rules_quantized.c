/* The rules of ONNX Runtime's own operators on quantized numbers, whose scales and zero points stand between what they work on. */
#include "onnx/shapes/rules.h"

/* The inputs at these places as if they were all there are, for the rule of the operator that is not quantized. */
static bool by_rule(step *s, graph_rule *rule, const unsigned *places, unsigned count, int32_t type)
{
    uint32_t inputs[4];
    graph_node node = *s->node;
    for (unsigned i = 0; i < count; i++) {
        if (!step_has(s, places[i]))
            return step_wrong(s, "its input %u is missing", places[i]);
        inputs[i] = s->node->inputs[places[i]];
    }
    node.inputs = inputs;
    node.input_count = count;
    step inner = {.g = s->g, .node = &node};
    bool good = rule(&inner);
    if (!good)
        step_say(s, inner.wrong, "%s", inner.why);
    graph_value *out = step_out(s, 0);
    if (!good || !out || !type)
        return good;
    graph_shape shape = out->shape;
    return step_give(s, 0, type, &shape);
}

static int32_t rules_quantized_type_of(const step *s, unsigned input, int32_t otherwise)
{
    const graph_value *value = step_in(s, input);
    return value ? value->type : otherwise;
}

/* Of floats by integers: the result has the type of the scales. */
bool rule_quantized_product(step *s)
{
    bool dynamic = onnx_text_is(s->node->op, "DynamicQuantizeMatMul");
    return by_rule(s, rule_matmul, (const unsigned[]){0, 1}, 2,
                   dynamic ? rules_quantized_type_of(s, 0, ONNX_FLOAT) : rules_quantized_type_of(s, 2, ONNX_FLOAT));
}

bool rule_quantized_gemm(step *s)
{
    return by_rule(s, rule_gemm, (const unsigned[]){0, 3}, 2,
                   step_has(s, 7) ? rules_quantized_type_of(s, 8, ONNX_UINT8) : ONNX_FLOAT);
}

bool rule_quantized_pair(step *s)
{
    return by_rule(s, rule_broadcast, (const unsigned[]){0, 3}, 2, 0);
}

bool rule_quantized_where(step *s)
{
    return by_rule(s, rule_where, (const unsigned[]){0, 1, 4}, 3, 0);
}

/* Channels may come last, and then they are where the rules look for the first extent of the picture. */
bool rule_quantized_pool(step *s)
{
    if (graph_int(s->node, "channels_last", 0))
        return step_unknown(s, "its channels come last");
    return by_rule(s, onnx_text_is(s->node->op, "QLinearAveragePool") ? rule_pool : rule_global_pool,
                   (const unsigned[]){0}, 1, 0);
}

bool rule_quantized_reduce(step *s)
{
    return by_rule(s, rule_reduce, (const unsigned[]){0}, 1, 0);
}

bool rule_quantized_concat(step *s)
{
    uint32_t at;
    graph_shape shape = step_in(s, 2)->shape;
    if (!step_axis(s, graph_int(s->node, "axis", 0), shape.rank, &at))
        return false;
    for (unsigned i = 5; i < s->node->input_count; i += 3) {
        const graph_value *more = step_in(s, i);
        if (!more || more->shape.rank != shape.rank ||
            __builtin_add_overflow(shape.dims[at], more->shape.dims[at], &shape.dims[at]))
            return step_wrong(s, "its inputs do not go together");
    }
    return step_give(s, 0, step_in(s, 2)->type, &shape);
}

/* Weights are laid the other way round than LSTM has them: inputs before gates. */
bool rule_quantized_lstm(step *s)
{
    const graph_value *x = step_in(s, 0), *r = step_in(s, 2);
    if (x->shape.rank != 3 || r->shape.rank != 3)
        return step_odd(s, "input or recurrence");
    int64_t ways = r->shape.dims[0], width = r->shape.dims[1], length = x->shape.dims[0], batch = x->shape.dims[1];
    graph_shape all = {4, {length, ways, batch, width}}, last = {3, {ways, batch, width}};
    return step_give(s, 0, x->type, &all) && step_give(s, 1, x->type, &last) && step_give(s, 2, x->type, &last);
}

bool rule_quantized_attention(step *s)
{
    const graph_value *x = step_in(s, 0), *weights = step_in(s, 1), *past = step_in(s, 8);
    int64_t heads = graph_int(s->node, "num_heads", 0);
    if (x->shape.rank != 3 || weights->shape.rank != 2 || heads < 1)
        return step_wrong(s, "its input, weights or number of heads are none");
    int64_t batch = x->shape.dims[0], length = x->shape.dims[1], width = weights->shape.dims[1] / 3;
    int64_t before = past && past->shape.rank == 5 ? past->shape.dims[3] : 0;
    graph_shape present = {5, {2, batch, heads, before + length, width / heads}};
    int32_t type = rules_quantized_type_of(s, 3, ONNX_FLOAT);
    return step_give(s, 0, type, &(graph_shape){3, {batch, length, width}}) && step_give(s, 1, type, &present);
}

/* Rows of a table of few bits, two to a byte where it is said to be of bytes. */
bool rule_quantized_gather(step *s)
{
    const graph_value *data = step_in(s, 0), *places = step_in(s, 1);
    int64_t bits = graph_int(s->node, "bits", 4);
    uint32_t axis, packed;
    if (!step_axis(s, graph_int(s->node, "gather_axis", 0), data->shape.rank, &axis) ||
        !step_axis(s, graph_int(s->node, "quantize_axis", 1), data->shape.rank, &packed))
        return false;
    graph_shape shape = {.rank = data->shape.rank - 1 + places->shape.rank};
    if (shape.rank > GRAPH_MAX_RANK || bits < 1 || bits > 8)
        return step_wrong(s, "its places have too many dimensions, or its numbers no bits");
    for (uint32_t i = 0, k = 0; i < data->shape.rank; i++) {
        int64_t size = data->shape.dims[i] * (i == packed && data->type == ONNX_UINT8 ? 8 / bits : 1);
        for (uint32_t at = 0; i == axis && at < places->shape.rank; at++)
            shape.dims[k++] = places->shape.dims[at];
        if (i != axis)
            shape.dims[k++] = size;
    }
    return step_give(s, 0, step_in(s, 2)->type, &shape);
}
