/* The bytes that the CPU's kernels work in beside inputs and outputs (rewrite.h). Seen in the traces of runs by
 * 1.31. */
#include "rewrite.h"

#include "model.h"
#include "onnx/shapes/graph.h"

enum { MOST_DIM = 1 << 20 };

static uint64_t product(const graph_shape *shape, uint32_t from)
{
    uint64_t all = 1;
    for (uint32_t i = from; i < shape->rank; i++)
        if (__builtin_mul_overflow(all, (uint64_t)shape->dims[i], &all))
            return UINT64_MAX / 8;
    return all;
}

/* ---- convolutions ------------------------------------------------------------------------------------------------- */

/* With more filters than points of an image the whole image is unrolled, else pieces of it, by each thread. One that has
 * nothing to unroll needs neither. */
static uint64_t convolution(const graph_value *filters, const graph_value *out, int threads)
{
    enum { OF_A_THREAD = 128 * 128 };
    uint64_t points = product(&out->shape, 2), unrolled = product(&filters->shape, 1), numbers;
    if (filters->shape.rank < 3 || product(&filters->shape, 2) == 1)
        return 0;
    if ((uint64_t)filters->shape.dims[0] <= points)
        numbers = (uint64_t)threads * OF_A_THREAD;
    else if (__builtin_mul_overflow(points, unrolled, &numbers) || numbers > UINT64_MAX / 64)
        return UINT64_MAX / 8;
    return onnx_charge(numbers * sizeof(float), false);
}

/* ---- LSTM and GRU ------------------------------------------------------------------------------------------------- */

bool onnx_is_recurrent(const graph_node *node)
{
    bool standard = node->domain.size == 0 || onnx_text_is(node->domain, "ai.onnx");
    return standard && (onnx_text_is(node->op, "LSTM") || onnx_text_is(node->op, "GRU"));
}

/* Numbers of floats: of one sequence, unless a name says otherwise. */
typedef struct recurrence {
    uint64_t steps, batch, width, hidden, gates, directions;
    bool reversed, biased, quantized, resets; /* a GRU that multiplies before its reset gate */
} recurrence;

static bool workspace_is_given(const graph_node *node, uint32_t input)
{
    return node->input_count > input && node->inputs[input] != GRAPH_NONE;
}

static bool read_recurrence(const graph *g, const graph_node *node, recurrence *out)
{
    if (!workspace_is_given(node, 0) || !workspace_is_given(node, 2))
        return false;
    const graph_shape *x = &g->values[node->inputs[0]].shape, *r = &g->values[node->inputs[2]].shape;
    if (x->rank != 3 || r->rank != 3)
        return false;
    for (uint32_t i = 0; i < 3; i++)
        if (x->dims[i] > MOST_DIM || r->dims[i] > MOST_DIM)
            return false;
    bool turned = r->dims[1] > r->dims[2]; /* there are more gates than outputs, on whichever side they stand */
    onnx_text direction = graph_text(node, "direction");
    *out = (recurrence){.steps = (uint64_t)x->dims[0],
                        .batch = (uint64_t)x->dims[1],
                        .width = (uint64_t)x->dims[2],
                        .hidden = (uint64_t)r->dims[turned ? 2 : 1],
                        .gates = (uint64_t)r->dims[turned ? 1 : 2],
                        .directions = (uint64_t)r->dims[0],
                        .reversed = onnx_text_is(direction, "reverse") || onnx_text_is(direction, "bidirectional"),
                        .biased = workspace_is_given(node, 3),
                        .quantized = onnx_text_is(node->op, "DynamicQuantizeLSTM"),
                        .resets = graph_int(node, "linear_before_reset", 0) != 0};
    return out->directions > 0 && out->directions <= 2;
}

static uint64_t floats(uint64_t numbers)
{
    return onnx_charge(numbers > UINT64_MAX / 8 ? UINT64_MAX / 2 : numbers * sizeof(float), false);
}

static uint64_t workspace_times(uint64_t count, uint64_t bytes)
{
    uint64_t all;
    return __builtin_mul_overflow(count, bytes, &all) ? UINT64_MAX : all;
}

/* Of one direction: states, the gates of all steps at once, and biases. */
static uint64_t states_of_lstm(const recurrence *r)
{
    uint64_t of_batch = floats(r->batch * r->hidden), of_one = floats(r->hidden);
    return onnx_plus(workspace_times(3, of_batch), workspace_times(r->biased ? 6 : 2, of_one));
}

static uint64_t states_of_gru(const recurrence *r)
{
    uint64_t count = 2 + r->resets + (r->biased ? 3 + r->resets : 0);
    return workspace_times(count, floats(r->batch * r->hidden));
}

/* The sequence and its outputs the other way round. */
static uint64_t turned_round(const recurrence *r)
{
    uint64_t cells = r->steps * r->batch;
    return r->reversed ? onnx_plus(floats(cells * r->width), floats(cells * r->hidden)) : 0;
}

/* The input as whole numbers, and their products. */
static uint64_t as_bytes(const recurrence *r)
{
    uint64_t all = r->steps * r->batch * r->width, one = r->batch * r->hidden;
    return onnx_plus(onnx_charge(all > one ? all : one, false), floats(r->batch * r->gates));
}

/* Of the last states, which are computed whether they are wanted or not: outputs number 1 and, of an LSTM, 2. */
static uint64_t unwanted(const graph_node *node, const recurrence *r, bool lstm)
{
    uint64_t bytes = 0, one = floats(r->directions * r->batch * r->hidden);
    for (uint32_t i = 1; i <= (lstm ? 2u : 1u); i++)
        if (node->output_count <= i || node->outputs[i] == GRAPH_NONE)
            bytes = onnx_plus(bytes, one);
    return bytes;
}

/* All directions are there together; one of them at the most is turned. */
static uint64_t recurrent(const graph *g, const graph_node *node)
{
    recurrence r;
    bool lstm = !onnx_text_is(node->op, "GRU");
    if (!read_recurrence(g, node, &r))
        return 0;
    uint64_t gates = floats(workspace_times(r.steps * r.batch, r.gates));
    uint64_t one = onnx_plus(onnx_plus(lstm ? states_of_lstm(&r) : states_of_gru(&r), gates), floats(r.batch));
    if (r.quantized)
        one = onnx_plus(one, as_bytes(&r));
    return onnx_plus(onnx_plus(workspace_times(r.directions, one), turned_round(&r)), unwanted(node, &r, lstm));
}

/* ---- element by element -------------------------------------------------------------------------------------------- */

/* What is chosen of each side, repeated as the condition is, before both come together. */
static uint64_t workspace_chosen(const graph *g, const graph_node *node)
{
    uint64_t bytes = 0;
    for (uint32_t i = 1; i < 3; i++) {
        const graph_value *side = &g->values[node->inputs[i]], *condition = &g->values[node->inputs[0]];
        uint64_t numbers = side->elements > condition->elements ? side->elements : condition->elements;
        bytes = onnx_plus(bytes, onnx_charge(workspace_times(numbers, onnx_type_bits(side->type) / 8), false));
    }
    return bytes;
}

/* ---- all ---------------------------------------------------------------------------------------------------------- */

uint64_t onnx_workspace(const graph *g, const graph_node *node, int threads)
{
    if (onnx_text_is(node->op, "Where") && workspace_is_given(node, 0) && workspace_is_given(node, 1) &&
        workspace_is_given(node, 2))
        return workspace_chosen(g, node);
    if (onnx_text_is(node->op, "DynamicQuantizeMatMul") && workspace_is_given(node, 0)) /* a byte for each number */
        return onnx_charge(g->values[node->inputs[0]].elements, false);
    if (onnx_is_recurrent(node) || onnx_text_is(node->op, "DynamicQuantizeLSTM"))
        return recurrent(g, node);
    if (!onnx_text_is(node->op, "Conv") || !workspace_is_given(node, 0) || !workspace_is_given(node, 1) ||
        node->output_count < 1 || node->outputs[0] == GRAPH_NONE)
        return 0;
    return convolution(&g->values[node->inputs[1]], &g->values[node->outputs[0]], threads);
}
