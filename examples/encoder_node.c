/* encoder_node.c: from a node of the graph to the work that it is. */
#include "encoder.h"

#include "onnx/shapes/graph.h"

#include <string.h>

static const struct {
    const char *op;
    encoder_kind kind;
} kinds[] = {
    {"Add", ENCODER_ADD},
    {"Sub", ENCODER_SUB},
    {"Mul", ENCODER_MUL},
    {"Div", ENCODER_DIV},
    {"Erf", ENCODER_ERF},
    {"Clip", ENCODER_CLIP},
    {"Cast", ENCODER_CAST},
    {"Transpose", ENCODER_COPY},
    {"Gather", ENCODER_GATHER},
    {"MatMul", ENCODER_MATMUL},
    {"ReduceSum", ENCODER_SUM},
    {"ReduceL2", ENCODER_LENGTH},
    {"LayerNormalization", ENCODER_NORM},
    {"Softmax", ENCODER_SOFTMAX},
};

static const graph_shape *shape_of(const encoder *e, const graph_node *node, uint32_t input)
{
    return &e->graph.values[node->inputs[input]].shape;
}

bool encoder_is_view(const graph_node *node)
{
    return onnx_text_is(node->op, "Reshape") || onnx_text_is(node->op, "Unsqueeze");
}

/* The strides of a dense tensor behind the output's dimensions, as broadcasting wants it. */
static void broadcast(const graph_shape *shape, const graph_shape *out, int64_t *strides)
{
    int64_t stride = 1;
    for (uint32_t d = out->rank; d-- > 0;) {
        uint32_t behind = out->rank - d;
        int64_t size = behind <= shape->rank ? shape->dims[shape->rank - behind] : 1;
        strides[d] = size == 1 ? 0 : stride;
        stride *= size;
    }
}

static void transpose(const encoder *e, const graph_node *node, encoder_work *w)
{
    int64_t perm[ENCODER_RANK] = {0}, strides[ENCODER_RANK] = {0}, stride = 1;
    const graph_shape *in = shape_of(e, node, 0);
    bool told = graph_ints(node, "perm", perm, ENCODER_RANK) == (int)in->rank;
    for (uint32_t d = in->rank; d-- > 0; stride *= in->dims[d])
        strides[d] = stride;
    for (uint32_t d = 0; d < in->rank; d++)
        w->strides[0][d] = strides[told ? (uint32_t)perm[d] : in->rank - 1 - d];
}

/* Each row of the left one with each matrix on the right: the dimensions are the output's but for the columns. */
static void product(const encoder *e, const graph_node *node, encoder_work *w)
{
    const graph_shape *a = shape_of(e, node, 0), *b = shape_of(e, node, 1);
    graph_shape out = e->graph.values[node->outputs[0]].shape;
    w->inner = a->dims[a->rank - 1];
    w->columns = out.dims[out.rank - 1];
    broadcast(a, &out, w->strides[0]);
    broadcast(b, &out, w->strides[1]);
    w->rank = (int)out.rank - 1;
    w->strides[0][w->rank - 1] = w->inner;
    w->strides[1][w->rank - 1] = 0;
}

static weir_status reduce(encoder *e, const graph_node *node, encoder_work *w)
{
    const graph_shape *in = shape_of(e, node, 0);
    int64_t axis = 0;
    if (graph_ints(node, "axes", &axis, 1) != 1) {
        const graph_number *given = node->input_count > 1 ? graph_contents(&e->graph, node->inputs[1]) : NULL;
        if (!given)
            return weir_fail(WEIR_ERR_UNSUPPORTED, "a reduction over axes that the file does not say");
        axis = given->i;
    }
    axis += axis < 0 ? in->rank : 0;
    w->deep = in->dims[axis];
    w->inner = 1;
    for (uint32_t d = (uint32_t)axis + 1; d < in->rank; d++)
        w->inner *= in->dims[d];
    return WEIR_OK;
}

static weir_status fill_in(encoder *e, const graph_node *node, encoder_work *w)
{
    const graph_shape *in = shape_of(e, node, 0), *out = &e->graph.values[node->outputs[0]].shape;
    switch (w->kind) {
    case ENCODER_NORM:
        w->epsilon = (float)graph_float(node, "epsilon", 1e-5);
        /* fallthrough */
    case ENCODER_SOFTMAX:
        w->inner = out->dims[out->rank - 1];
        w->count /= w->inner;
        return WEIR_OK;
    case ENCODER_GATHER:
        w->inner = in->dims[in->rank - 1];
        return WEIR_OK;
    case ENCODER_MATMUL:
        product(e, node, w);
        return WEIR_OK;
    case ENCODER_SUM:
    case ENCODER_LENGTH:
        return reduce(e, node, w);
    case ENCODER_COPY:
        transpose(e, node, w);
        return WEIR_OK;
    default:
        broadcast(in, out, w->strides[0]);
        if (node->input_count > 1 && w->kind != ENCODER_CLIP)
            broadcast(shape_of(e, node, 1), out, w->strides[1]);
        return WEIR_OK;
    }
}

weir_status encoder_work_of(encoder *e, const graph_node *node, encoder_work *out)
{
    const graph_value *result = &e->graph.values[node->outputs[0]];
    size_t i = 0, count = sizeof kinds / sizeof *kinds;
    while (i < count && !onnx_text_is(node->op, kinds[i].op))
        i++;
    if (i == count || result->shape.rank > ENCODER_RANK || result->type != ONNX_FLOAT)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "the example has no %.*s of %u dimensions to %s", ONNX_SHOW(node->op),
                         result->shape.rank, onnx_type_name(result->type));
    *out = (encoder_work){.kind = kinds[i].kind, .out = e->at[node->outputs[0]], .rank = (int)result->shape.rank};
    out->count = (int64_t)result->elements;
    memcpy(out->dims, result->shape.dims, sizeof out->dims);
    for (uint32_t k = 0; k < node->input_count && k < 3; k++)
        out->in[k] = node->inputs[k] == GRAPH_NONE ? NULL : e->at[node->inputs[k]];
    return fill_in(e, node, out);
}

static void loop(void *user)
{
    const encoder_work *work = user;
    for (int64_t i = 0; i < work->count; i++)
        encoder_step(work, i);
}

weir_status encoder_queue(encoder *e, encoder_work *work)
{
    return e->on_gpu ? encoder_cuda_queue(e, work) : weir_call(e->runtime, loop, work, e->stream);
}
