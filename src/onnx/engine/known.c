/* Dimensions that ONNX Runtime knows before a run (rewrite.h). What ONNX's own rules for shapes make of names; an
 * operator that has none here knows its outputs only where all its inputs are numbers. */
#include "rewrite.h"

#include <stdlib.h>

#include "onnx/shapes/graph.h"

typedef struct knowing knowing;

/* Fills the dimensions of a node's first output. */
typedef void rule(const knowing *k, const graph_value *out, uint32_t *to);

/* The rule of an operator that some node before has had. */
typedef struct met_rule {
    onnx_text op;
    rule *its;
} met_rule;

enum { MET = 64 };

struct knowing {
    graph *g;
    uint32_t *all;
    const graph_node *node;
    met_rule met[MET]; /* by a hash of the name: a model has few operators, and the lists of names are long */
};

static uint32_t *onnx_known_dims_of(const knowing *k, uint32_t id)
{
    return k->all + (size_t)id * GRAPH_MAX_RANK;
}

static const graph_value *in(const knowing *k, uint32_t input)
{
    uint32_t id = input < k->node->input_count ? k->node->inputs[input] : GRAPH_NONE;
    return id == GRAPH_NONE ? NULL : &k->g->values[id];
}

/* What is known of the dimension of an input, counted from the last: 1. */
static uint32_t from_end(const knowing *k, uint32_t input, uint32_t place)
{
    const graph_value *value = in(k, input);
    return value && place <= value->shape.rank
               ? onnx_known_dims_of(k, k->node->inputs[input])[value->shape.rank - place]
               : (uint32_t)ONNX_NUMBER;
}

static uint32_t from_begin(const knowing *k, uint32_t input, uint32_t place)
{
    const graph_value *value = in(k, input);
    return value && place < value->shape.rank ? onnx_known_dims_of(k, k->node->inputs[input])[place]
                                              : (uint32_t)ONNX_UNKNOWN;
}

static bool onnx_known_is_number(const knowing *k, uint32_t id)
{
    const graph_value *value = &k->g->values[id];
    bool all = true;
    for (uint32_t i = 0; i < value->shape.rank; i++)
        all &= onnx_known_dims_of(k, id)[i] == ONNX_NUMBER;
    return all;
}

static bool onnx_known_is_constant(const graph_value *value)
{
    return !value || value->constant;
}

/* ---- rules: each fills the dimensions of the first output ------------------------------------------------------------- */

/* Inputs are repeated along dimensions of 1. */
static uint32_t together(const knowing *k, uint32_t first, uint32_t count, uint32_t place)
{
    uint32_t found = ONNX_NUMBER;
    for (uint32_t i = first; i < count; i++) {
        const graph_value *value = in(k, i);
        uint32_t one = from_end(k, i, place);
        if (!value || place > value->shape.rank ||
            (one == ONNX_NUMBER && value->shape.dims[value->shape.rank - place] == 1))
            continue;
        if (one == ONNX_NUMBER)
            return ONNX_NUMBER;
        found = found == ONNX_NUMBER || found == one ? one : (uint32_t)ONNX_UNKNOWN;
    }
    return found;
}

static void onnx_known_repeat(const knowing *k, const graph_value *out, uint32_t *to)
{
    for (uint32_t i = 1; i <= out->shape.rank; i++)
        to[out->shape.rank - i] = together(k, 0, k->node->input_count, i);
}

static void onnx_known_keep(const knowing *k, const graph_value *out, uint32_t *to)
{
    for (uint32_t i = 0; i < out->shape.rank; i++)
        to[i] = from_begin(k, 0, i);
}

static void onnx_known_transpose(const knowing *k, const graph_value *out, uint32_t *to)
{
    int64_t perm[GRAPH_MAX_RANK];
    int count = graph_ints(k->node, "perm", perm, GRAPH_MAX_RANK);
    for (uint32_t i = 0; i < out->shape.rank; i++)
        to[i] = from_begin(k, 0, count == (int)out->shape.rank ? (uint32_t)perm[i] : out->shape.rank - 1 - i);
}

static bool is_vector(const knowing *k, uint32_t input)
{
    const graph_value *value = in(k, input);
    return value && value->shape.rank == 1;
}

/* Places count from the last: columns, rows, and what is repeated. A vector has no rows on the left and no columns on the right. */
static void onnx_known_multiply(const knowing *k, const graph_value *out, uint32_t *to)
{
    bool a = graph_int(k->node, "transA", 0), b = graph_int(k->node, "transB", 0), row = is_vector(k, 0),
         column = is_vector(k, 1);
    uint32_t at = out->shape.rank;
    if (!column && at > 0)
        to[--at] = from_end(k, 1, b ? 2 : 1);
    if (!row && at > 0)
        to[--at] = from_end(k, 0, a ? 1 : 2);
    for (uint32_t place = 3; at > 0; place++)
        to[--at] = together(k, 0, 2, place);
}

/* Windows move over all dimensions but two. */
static void window(const knowing *k, const graph_value *out, uint32_t *to)
{
    bool global = onnx_text_is(k->node->op, "GlobalAveragePool") || onnx_text_is(k->node->op, "GlobalMaxPool");
    for (uint32_t i = 0; i < out->shape.rank; i++) {
        uint32_t one = from_begin(k, 0, i);
        bool filters = i == 1 && onnx_text_is(k->node->op, "Conv");
        to[i] = filters || (global && i > 1)  ? (uint32_t)ONNX_NUMBER
                : i < 2 || one == ONNX_NUMBER ? one
                                              : (uint32_t)ONNX_UNKNOWN;
    }
}

/* A dimension of another size follows from a number alone. */
static void onnx_known_cut(const knowing *k, const graph_value *out, uint32_t *to)
{
    const graph_value *x = in(k, 0);
    for (uint32_t i = 0; x && i < out->shape.rank && i < x->shape.rank; i++) {
        uint32_t one = from_begin(k, 0, i);
        to[i] = one == ONNX_NUMBER || x->shape.dims[i] == out->shape.dims[i] ? one : (uint32_t)ONNX_UNKNOWN;
    }
}

static void put_together(const knowing *k, const graph_value *out, uint32_t *to)
{
    int64_t axis = graph_int(k->node, "axis", 0);
    axis += axis < 0 ? out->shape.rank : 0;
    for (uint32_t i = 0; i < out->shape.rank; i++) {
        to[i] = from_begin(k, 0, i);
        for (uint32_t n = 1; n < k->node->input_count; n++)
            if (to[i] != from_begin(k, n, i))
                to[i] = i != axis && (to[i] == ONNX_NUMBER || from_begin(k, n, i) == ONNX_NUMBER)
                            ? (uint32_t)ONNX_NUMBER
                            : (uint32_t)ONNX_UNKNOWN;
        if (i == axis && to[i] != ONNX_NUMBER && k->node->input_count > 1)
            to[i] = ONNX_UNKNOWN;
    }
}

static void pick(const knowing *k, const graph_value *out, uint32_t *to)
{
    const graph_value *x = in(k, 0), *indices = in(k, 1);
    if (!x || !indices)
        return;
    int64_t axis = graph_int(k->node, "axis", 0);
    axis += axis < 0 ? x->shape.rank : 0;
    for (uint32_t i = 0; i < out->shape.rank; i++)
        to[i] = i < axis                         ? from_begin(k, 0, i)
                : i < axis + indices->shape.rank ? from_begin(k, 1, i - (uint32_t)axis)
                                                 : from_begin(k, 0, i - indices->shape.rank + 1);
}

/* The operator adds or removes dimensions of 1; the remaining dimensions keep their order. */
static void keep_others(const knowing *k, const graph_value *out, uint32_t *to)
{
    const graph_value *x = in(k, 0);
    uint32_t at = 0;
    for (uint32_t i = 0; x && i < out->shape.rank; i++) {
        while (at < x->shape.rank && x->shape.dims[at] != out->shape.dims[i] && x->shape.dims[at] == 1)
            at++;
        bool same = at < x->shape.rank && x->shape.dims[at] == out->shape.dims[i];
        to[i] = same ? from_begin(k, 0, at) : out->shape.dims[i] == 1 ? (uint32_t)ONNX_NUMBER : (uint32_t)ONNX_UNKNOWN;
        at += same;
    }
}

static void onnx_known_reduce(const knowing *k, const graph_value *out, uint32_t *to)
{
    const graph_value *x = in(k, 0);
    if (x && x->shape.rank == out->shape.rank) {
        for (uint32_t i = 0; i < out->shape.rank; i++)
            to[i] = x->shape.dims[i] == out->shape.dims[i] ? from_begin(k, 0, i) : (uint32_t)ONNX_NUMBER;
    } else {
        uint32_t at = 0;
        for (uint32_t i = 0; x && i < out->shape.rank; i++, at++) {
            while (at < x->shape.rank && x->shape.dims[at] != out->shape.dims[i])
                at++;
            to[i] = from_begin(k, 0, at);
        }
    }
}

enum { NOT_WRITTEN = -2 };

/* The number that the file has for the dimension: 0: as it was, -1: what is left. NOT_WRITTEN: it is worked out in the run. */
static int64_t written(const knowing *k, const graph_value *shape, uint32_t place)
{
    uint32_t id = (uint32_t)(shape - k->g->values);
    const graph_node *parts = shape->maker == GRAPH_NONE ? NULL : &k->g->nodes[shape->maker];
    if (!onnx_known_is_constant(shape)) {
        if (!parts || !onnx_text_is(parts->op, "Concat") || place >= parts->input_count)
            return NOT_WRITTEN;
        id = parts->inputs[place];
        place = 0;
    }
    const graph_value *value = id == GRAPH_NONE ? NULL : &k->g->values[id];
    const graph_number *numbers = value && onnx_known_is_constant(value) ? graph_contents(k->g, id) : NULL;
    return numbers && place < value->elements ? numbers[place].i : NOT_WRITTEN;
}

/* What is worked out is taken for the same dimension of the input, if it is as large. */
static void reshape(const knowing *k, const graph_value *out, uint32_t *to)
{
    const graph_value *x = in(k, 0), *shape = in(k, 1);
    bool whole = true, unchanged[GRAPH_MAX_RANK] = {false};
    for (uint32_t i = 0; x && shape && i < x->shape.rank; i++) {
        int64_t number = i < out->shape.rank ? written(k, shape, i) : NOT_WRITTEN;
        unchanged[i] =
            i < out->shape.rank && x->shape.dims[i] == out->shape.dims[i] && (number == 0 || number == NOT_WRITTEN);
        whole &= unchanged[i] || from_begin(k, 0, i) == ONNX_NUMBER;
    }
    for (uint32_t i = 0; x && shape && i < out->shape.rank; i++) {
        int64_t number = written(k, shape, i);
        if (unchanged[i])
            to[i] = from_begin(k, 0, i);
        else if (number > 0 || (number == -1 && whole))
            to[i] = ONNX_NUMBER;
    }
}

static void recur(const knowing *k, const graph_value *out, uint32_t *to)
{
    for (uint32_t i = 0; i < out->shape.rank; i++)
        to[i] = out->shape.rank == 4 && i == 0 ? from_begin(k, 0, 0)
                : i == out->shape.rank - 2     ? from_begin(k, 0, 1)
                                               : (uint32_t)ONNX_NUMBER;
}

/* ---- all -------------------------------------------------------------------------------------------------------------- */

static rule *onnx_known_rule_of(const graph_node *node)
{
    static const char unchanged[] =
        "Abs Acos Asin Atan BatchNormalization BiasGelu Cast Ceil Celu Clip Cos CumSum DequantizeLinear Dropout "
        "DynamicQuantizeLinear Elu Erf Exp FastGelu Floor Gelu HardSigmoid HardSwish Identity InstanceNormalization "
        "IsInf IsNaN LayerNormalization LeakyRelu Log LogSoftmax Mish Neg Not QuantizeLinear QuickGelu Reciprocal "
        "Relu Round ScatterElements ScatterND Selu Sigmoid Sign SimplifiedLayerNormalization Sin Softmax Softplus "
        "Softsign Sqrt Tan Tanh ThresholdedRelu Trilu";
    static const char repeated[] =
        "Add And BitwiseAnd BitwiseOr Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or "
        "PRelu Pow Sub Sum Where Xor";
    static const char products[] = "MatMul MatMulInteger Gemm";
    static const char windows[] = "Conv ConvInteger MaxPool AveragePool GlobalAveragePool GlobalMaxPool";
    static const char cuts[] = "Slice Split Pad TopK";
    static const char unit_dims[] = "Squeeze Unsqueeze";
    static const char reduced[] = "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL2 ArgMax ArgMin";
    static const char recurrent[] = "LSTM GRU RNN DynamicQuantizeLSTM";
    return onnx_text_among(node->op, unchanged)   ? onnx_known_keep
           : onnx_text_among(node->op, repeated)  ? onnx_known_repeat
           : onnx_text_among(node->op, products)  ? onnx_known_multiply
           : onnx_text_among(node->op, windows)   ? window
           : onnx_text_among(node->op, cuts)      ? onnx_known_cut
           : onnx_text_among(node->op, unit_dims) ? keep_others
           : onnx_text_among(node->op, reduced)   ? onnx_known_reduce
           : onnx_text_among(node->op, recurrent) ? recur
           : onnx_text_is(node->op, "Transpose")  ? onnx_known_transpose
           : onnx_text_is(node->op, "Concat")     ? put_together
           : onnx_text_is(node->op, "Gather")     ? pick
           : onnx_text_is(node->op, "Reshape")    ? reshape
                                                  : NULL;
}

static rule *onnx_known_rule(knowing *k)
{
    onnx_text op = k->node->op;
    if (op.size == 0)
        return NULL;
    met_rule *met = &k->met[(op.size * 7 + (uint8_t)op.text[0] + (uint8_t)op.text[op.size - 1] * (size_t)3) % MET];
    if (!onnx_text_same(met->op, op))
        *met = (met_rule){op, onnx_known_rule_of(k->node)};
    return met->its;
}

/* What the file says of the value: a number, or a name. */
static void take_declared(const knowing *k, uint32_t id)
{
    const graph_value *value = &k->g->values[id];
    onnx_text names[GRAPH_MAX_RANK] = {{0}};
    bool numbers[GRAPH_MAX_RANK] = {false};
    uint32_t count = graph_said_names(value, names, numbers);
    for (uint32_t i = 0; i < count && i < value->shape.rank && count == value->shape.rank; i++) {
        uint32_t hash = 2166136261u;
        for (size_t c = 0; c < names[i].size; c++)
            hash = (hash ^ (uint8_t)names[i].text[c]) * 16777619u;
        uint32_t *to = &onnx_known_dims_of(k, id)[i];
        if (numbers[i])
            *to = ONNX_NUMBER;
        else if (names[i].size && *to == ONNX_UNKNOWN)
            *to = hash > ONNX_NUMBER ? hash : ONNX_NUMBER + 1;
    }
}

/* Shapes that follow from contents are known where those are constant. */
static bool follows(const knowing *k)
{
    static const char filled[] = "ConstantOfShape Expand Range Tile Resize";
    bool all = true;
    for (uint32_t i = 0; i < k->node->input_count; i++) {
        uint32_t id = k->node->inputs[i];
        all &= id == GRAPH_NONE || onnx_known_is_number(k, id);
        if (id != GRAPH_NONE && onnx_text_among(k->node->op, filled) && (i > 0 || k->node->input_count == 1))
            all &= onnx_known_is_constant(&k->g->values[id]);
    }
    return all && k->node->captured_count == 0;
}

static void know_node(knowing *k)
{
    bool all = follows(k) || onnx_text_is(k->node->op, "Shape");
    rule *its = all ? NULL : onnx_known_rule(k);
    for (uint32_t i = 0; i < k->node->output_count; i++) {
        uint32_t id = k->node->outputs[i];
        if (id == GRAPH_NONE)
            continue;
        const graph_value *out = &k->g->values[id];
        if (all)
            for (uint32_t d = 0; d < out->shape.rank; d++)
                onnx_known_dims_of(k, id)[d] = ONNX_NUMBER;
        else if (its)
            its(k, out, onnx_known_dims_of(k, id));
        take_declared(k, id);
    }
}

uint32_t *onnx_known(graph *g)
{
    knowing k = {.g = g, .all = calloc((g->value_count + g->node_count + 1) * GRAPH_MAX_RANK, sizeof *k.all)};
    for (uint32_t i = 0; k.all && i < g->value_count; i++) {
        const graph_value *value = &g->values[i];
        if (value->maker != GRAPH_NONE)
            continue;
        bool open = value->input && !value->weight;
        for (uint32_t d = 0; !open && d < value->shape.rank; d++) /* those around a body too */
            onnx_known_dims_of(&k, i)[d] = ONNX_NUMBER;
        take_declared(&k, i);
    }
    for (uint32_t i = 0; k.all && i < g->node_count; i++) {
        k.node = &g->nodes[i];
        know_node(&k);
    }
    return k.all;
}
