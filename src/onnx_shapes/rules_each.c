/* rules_each.c: operators that work element by element. */
#include "onnx_shapes/rules.h"

bool rule_same(step *s)
{
    return step_need(s, 1) && step_give_like(s, 0, step_in(s, 0));
}

bool rule_same_bool(step *s)
{
    return step_need(s, 1) && step_give(s, 0, ONNX_BOOL, &step_in(s, 0)->shape);
}

static bool broadcast(step *s, graph_shape *out)
{
    if (!step_need(s, s->node->input_count ? s->node->input_count : 1))
        return false;
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
    return step_need(s, 3) && broadcast(s, &shape) && step_give(s, 0, step_in(s, 1)->type, &shape);
}

bool rule_cast(step *s)
{
    int64_t to = graph_int(s->node, "to", 0);
    if (to <= 0 || to >= ONNX_TYPE_COUNT)
        return step_wrong(s, "it says nothing of the type to cast to");
    return step_need(s, 1) && step_give(s, 0, (int32_t)to, &step_in(s, 0)->shape);
}

bool rule_cast_like(step *s)
{
    return step_need(s, 2) && step_give(s, 0, step_in(s, 1)->type, &step_in(s, 0)->shape);
}

bool rule_dropout(step *s)
{
    return rule_same(s) && step_give(s, 1, ONNX_BOOL, &step_in(s, 0)->shape);
}

bool rule_quantize(step *s)
{
    const graph_value *zero = step_in(s, 2);
    int32_t type = zero ? zero->type : (int32_t)graph_int(s->node, "output_dtype", 0);
    return step_need(s, 1) && step_give(s, 0, type ? type : ONNX_UINT8, &step_in(s, 0)->shape);
}

bool rule_dequantize(step *s)
{
    return step_need(s, 2) && step_give(s, 0, step_in(s, 1)->type, &step_in(s, 0)->shape);
}

bool rule_dynamic_quantize(step *s)
{
    static const graph_shape single = {.rank = 0};
    return step_need(s, 1) && step_give(s, 0, ONNX_UINT8, &step_in(s, 0)->shape) &&
           step_give(s, 1, ONNX_FLOAT, &single) && step_give(s, 2, ONNX_UINT8, &single);
}
