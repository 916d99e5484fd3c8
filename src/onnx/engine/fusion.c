/* Patterns of nodes that ONNX Runtime's optimizer fuses (rewrite.h). The patterns are those of usual exports, in the
 * order in which ONNX Runtime looks for them (seen in 1.31): what is computed into products and convolutions, Gelu by
 * Erf or by Tanh, normalisations of a layer, products of whole numbers. A pattern that is not found is foreseen by its
 * nodes, and so takes more rather than less. */
#include "rewrite.h"

#include <stdlib.h>

#include "onnx/shapes/graph.h"

enum { BASIC = 1, EXTENDED = 2 };

static uint32_t output_of(const rewrite *r, uint32_t node)
{
    return node == GRAPH_NONE ? GRAPH_NONE : r->g.nodes[node].outputs[0];
}

static uint32_t input_of(const rewrite *r, uint32_t node, uint32_t input)
{
    return input < r->g.nodes[node].input_count ? r->g.nodes[node].inputs[input] : GRAPH_NONE;
}

static const graph_shape *fusion_shape_of(const rewrite *r, uint32_t id)
{
    return &r->g.values[id].shape;
}

static bool with_constant(const rewrite *r, uint32_t node, uint32_t id)
{
    return rewrite_constant(r, rewrite_other(r, node, id));
}

static bool is_scalar(const rewrite *r, uint32_t id)
{
    return rewrite_constant(r, id) && r->g.values[id].elements == 1;
}

/* `last` is computed with `node`, whose output nobody else reads. */
static void join_two(rewrite *r, const char *op, uint32_t node, uint32_t last, bool stays)
{
    r->count = 0;
    if (rewrite_put(r, output_of(r, node)))
        rewrite_join(r, op, node, last, stays);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------------ */

/* A number for each filter. */
static bool is_for_each_filter(const rewrite *r, uint32_t id, const graph_shape *out)
{
    if (!rewrite_constant(r, id) || out->rank < 3)
        return false;
    const graph_shape *shape = fusion_shape_of(r, id);
    uint32_t of_image = out->rank - 2;
    return shape->rank > of_image && r->g.values[id].elements == (uint64_t)out->dims[1] &&
           shape->dims[shape->rank - 1 - of_image] == out->dims[1];
}

static bool all_constant(const rewrite *r, uint32_t node, uint32_t from)
{
    for (uint32_t k = from; k < r->g.nodes[node].input_count; k++)
        if (r->g.nodes[node].inputs[k] != GRAPH_NONE && !rewrite_constant(r, r->g.nodes[node].inputs[k]))
            return false;
    return true;
}

/* What can be computed into the filters: a normalisation, a factor or a summand of each. */
static void look_for_scaled(rewrite *r, uint32_t node)
{
    if (!rewrite_is(r, node, "Conv") || !all_constant(r, node, 1))
        return;
    for (;;) {
        uint32_t out = output_of(r, node), next = rewrite_reader(r, out);
        bool normalised = rewrite_is(r, next, "BatchNormalization") && all_constant(r, next, 1);
        bool scaled = rewrite_is(r, next, "Mul Add") &&
                      is_for_each_filter(r, rewrite_other(r, next, out), fusion_shape_of(r, out));
        uint32_t before = (uint32_t)r->used;
        if (normalised || scaled)
            join_two(r, NULL, node, next, true);
        if (r->used == before)
            return;
    }
}

static void look_for_bent(rewrite *r, uint32_t node)
{
    static const char kinds[] = "Relu Sigmoid Tanh LeakyRelu Clip HardSigmoid";
    uint32_t next = rewrite_is(r, node, "Conv") ? rewrite_reader(r, output_of(r, node)) : GRAPH_NONE;
    if (rewrite_is(r, next, kinds) && all_constant(r, next, 1))
        join_two(r, NULL, node, next, false);
}

/* ---- products ---------------------------------------------------------------------------------------------------------- */

/* Repeated along rows or columns it is as large as the product. */
static bool fits_product(const graph_shape *bias, const graph_shape *out)
{
    int64_t width = out->dims[out->rank - 1];
    if (bias->rank == 1 || out->rank != 2)
        return bias->rank == 1 && bias->dims[0] == width;
    return bias->rank == 2 && (bias->dims[1] == width || bias->dims[1] == 1) &&
           (bias->dims[0] == out->dims[0] || bias->dims[0] == 1);
}

/* A product of matrices and a sum are a Gemm. One of more dimensions is, as a matrix, if they are all in the file. */
static void look_for_sum(rewrite *r, uint32_t node)
{
    if (!rewrite_is(r, node, "MatMul") || r->g.nodes[node].input_count != 2)
        return;
    uint32_t out = output_of(r, node), next = rewrite_read_by(r, out, "Add"), b = input_of(r, node, 1);
    uint32_t bias = rewrite_other(r, next, out);
    uint32_t rank = fusion_shape_of(r, out)->rank;
    if (b == GRAPH_NONE || bias == GRAPH_NONE || bias == out || rank < 2 || fusion_shape_of(r, b)->rank != 2 ||
        (rank > 2 && r->known) || !fits_product(fusion_shape_of(r, bias), fusion_shape_of(r, out)))
        return;
    join_two(r, rank == 2 ? "Gemm" : NULL, node, next, false);
}

static void look_for_bent_product(rewrite *r, uint32_t node)
{
    static const char kinds[] = "Relu Sigmoid Tanh LeakyRelu HardSigmoid Elu Softplus Softsign ThresholdedRelu Selu";
    uint32_t next = rewrite_is(r, node, "Gemm") ? rewrite_reader(r, output_of(r, node)) : GRAPH_NONE;
    if (rewrite_is(r, next, kinds))
        join_two(r, NULL, node, next, false);
}

/* The rows and columns change places, or the first two of three dimensions. */
static bool transposes(const rewrite *r, uint32_t node)
{
    int64_t to[GRAPH_MAX_RANK];
    int rank = graph_ints(&r->g.nodes[node], "perm", to, GRAPH_MAX_RANK);
    if (rank < 2 || (uint32_t)rank != fusion_shape_of(r, output_of(r, node))->rank)
        return false;
    bool leads = true;
    for (int i = 0; i < rank - 2; i++)
        leads &= to[i] == i;
    return (leads && to[rank - 2] == rank - 1 && to[rank - 1] == rank - 2) ||
           (rank == 3 && to[0] == 1 && to[1] == 0 && to[2] == 2);
}

/* Fuses transpositions of the inputs into the product: the kernel reads the value before the Transpose, which stays for
 * further readers. */
static void look_for_turned(rewrite *r, uint32_t node)
{
    if (!rewrite_is(r, node, "MatMul") || r->g.values[output_of(r, node)].type != ONNX_FLOAT)
        return;
    bool found = false;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t maker = rewrite_maker(r, input_of(r, node, k));
        if (!rewrite_is(r, maker, "Transpose") || !transposes(r, maker))
            continue;
        rewrite_redirect(r, node, k, input_of(r, maker, 0));
        found = true;
    }
    r->count = 0;
    if (found)
        rewrite_join(r, "FusedMatMul", node, node, false);
}

/* Multiplied with a number, or divided by it, before or behind. */
static void look_for_number(rewrite *r, uint32_t node)
{
    static const char products[] = "MatMul FusedMatMul";
    static const char kinds[] = "Mul Div";
    if (!rewrite_is(r, node, products) || r->g.values[output_of(r, node)].type != ONNX_FLOAT)
        return;
    uint32_t out = output_of(r, node), next = rewrite_reader(r, out), last = node;
    r->count = 0;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t id = input_of(r, node, k), maker = rewrite_maker(r, id);
        if (rewrite_is(r, maker, kinds) && is_scalar(r, input_of(r, maker, 1)) && rewrite_reader(r, id) == node)
            rewrite_put(r, id);
    }
    if (rewrite_is(r, next, kinds) && is_scalar(r, rewrite_other(r, next, out)) && rewrite_put(r, out))
        last = next;
    if (r->count > 0)
        rewrite_join(r, "FusedMatMul", node, last, false);
}

/* ---- whole numbers ----------------------------------------------------------------------------------------------------- */

static bool is_quantizer(const rewrite *r, uint32_t node)
{
    return node != GRAPH_NONE && !r->g.nodes[node].folded &&
           onnx_text_is(r->g.nodes[node].op, "DynamicQuantizeLinear") && r->g.nodes[node].output_count == 3;
}

/* Everything that the quantizer makes goes into the product alone. */
static bool put_quantized(rewrite *r, uint32_t quantizer, uint32_t product, uint32_t scales)
{
    const graph_node *node = &r->g.nodes[quantizer];
    for (uint32_t k = 0; k < 3; k++)
        if (node->outputs[k] == GRAPH_NONE || rewrite_reader(r, node->outputs[k]) != (k == 1 ? scales : product))
            return false;
    for (uint32_t k = 0; k < 3; k++)
        rewrite_put(r, node->outputs[k]);
    return true;
}

/* A product of whole numbers, made a float, times both scales, and with a sum behind it. */
static void look_for_floats(rewrite *r, uint32_t node)
{
    if (!rewrite_is(r, node, "MatMulInteger"))
        return;
    uint32_t whole = output_of(r, node), cast = rewrite_read_by(r, whole, "Cast");
    uint32_t last = rewrite_read_by(r, output_of(r, cast), "Mul");
    uint32_t scale = rewrite_other(r, last, output_of(r, cast));
    uint32_t scales = rewrite_maker(r, scale), quantizer = rewrite_maker(r, input_of(r, node, 0));
    if (scale == GRAPH_NONE || !rewrite_is(r, scales, "Mul") || !is_quantizer(r, quantizer))
        return;
    r->count = 0;
    rewrite_put(r, whole);
    rewrite_put(r, output_of(r, cast));
    bool joined =
        rewrite_reader(r, scale) == last && rewrite_put(r, scale); /* else it still reads what the quantizer makes */
    bool alone = joined && put_quantized(r, quantizer, node, scales);
    uint32_t sum = rewrite_read_by(r, output_of(r, last), "Add");
    if (sum != GRAPH_NONE && with_constant(r, sum, output_of(r, last)) &&
        fusion_shape_of(r, rewrite_other(r, sum, output_of(r, last)))->rank == 1 && rewrite_put(r, output_of(r, last)))
        last = sum;
    rewrite_join(r, alone ? "DynamicQuantizeMatMul" : "MatMulIntegerToFloat", alone ? quantizer : node, last, false);
}

static bool is_unpacked(const rewrite *r, uint32_t id)
{
    return rewrite_is(r, rewrite_maker(r, id), "DequantizeLinear");
}

/* Products of what was unpacked: the kernel multiplies whole numbers instead, each reader with its own. */
static void look_for_unpacked(rewrite *r, uint32_t node)
{
    static const char products[] = "MatMul Gemm Conv";
    if (!rewrite_is(r, node, products) || !is_unpacked(r, input_of(r, node, 0)) ||
        !is_unpacked(r, input_of(r, node, 1)))
        return;
    for (uint32_t k = 0; k < 2; k++)
        rewrite_redirect(r, node, k, input_of(r, rewrite_maker(r, input_of(r, node, k)), 0));
    r->count = 0;
    uint32_t next = rewrite_read_by(r, output_of(r, node), "QuantizeLinear");
    bool packed = next != GRAPH_NONE && rewrite_put(r, output_of(r, node));
    rewrite_join(r, NULL, node, packed ? next : node, false);
}

/* ---- Gelu -------------------------------------------------------------------------------------------------------------- */

/* From the sum with the bent value on: times x and a half, in either order. Answers the last node, and x. */
static uint32_t fusion_find_end(rewrite *r, uint32_t sum, uint32_t *x)
{
    uint32_t added = output_of(r, sum), product = rewrite_read_by(r, added, "Mul");
    uint32_t other = rewrite_other(r, product, added);
    if (other == GRAPH_NONE || rewrite_constant(r, other) || !rewrite_put(r, added))
        return GRAPH_NONE;
    uint32_t half = rewrite_maker(r, other), behind = rewrite_read_by(r, output_of(r, product), "Mul");
    if (rewrite_is(r, half, "Mul") && rewrite_reader(r, other) == product && rewrite_put(r, other))
        for (uint32_t k = 0; k < 2; k++)
            if (is_scalar(r, input_of(r, half, k))) {
                *x = input_of(r, half, !k);
                return product;
            }
    *x = other;
    if (!is_scalar(r, rewrite_other(r, behind, output_of(r, product))) || !rewrite_put(r, output_of(r, product)))
        return GRAPH_NONE;
    return behind;
}

static bool computes_alone(const rewrite *r, uint32_t node)
{
    static const char kinds[] = "Add Mul Div Pow";
    return rewrite_is(r, node, kinds);
}

/* Everything between x and the value is inside. */
static bool put_back_to(rewrite *r, uint32_t id, uint32_t x) // NOLINT(misc-no-recursion): as deep as REWRITE_MOST
{
    if (id == x || rewrite_constant(r, id))
        return true;
    uint32_t node = rewrite_maker(r, id);
    if (!computes_alone(r, node) || rewrite_reader(r, id) == GRAPH_NONE || !rewrite_put(r, id))
        return false;
    for (uint32_t i = 0; i < r->g.nodes[node].input_count; i++)
        if (!put_back_to(r, input_of(r, node, i), x))
            return false;
    return true;
}

static void look_for_gelu(rewrite *r, uint32_t node, const char *bent, const char *name)
{
    if (!rewrite_is(r, node, bent))
        return;
    uint32_t out = output_of(r, node), sum = rewrite_read_by(r, out, "Add"), x = GRAPH_NONE;
    bool good = is_scalar(r, rewrite_other(r, sum, out));
    r->count = 0;
    uint32_t last = good && rewrite_put(r, out) ? fusion_find_end(r, sum, &x) : GRAPH_NONE;
    if (last != GRAPH_NONE && x != GRAPH_NONE && put_back_to(r, input_of(r, node, 0), x))
        rewrite_join(r, name, node, last, false);
}

/* Erf(x / √2) alone. */
static void look_for_exact_gelu(rewrite *r, uint32_t node)
{
    uint32_t before = rewrite_is(r, node, "Erf") ? rewrite_maker(r, input_of(r, node, 0)) : GRAPH_NONE;
    if (rewrite_is(r, before, "Div") && is_scalar(r, input_of(r, before, 1)))
        look_for_gelu(r, node, "Erf", "Gelu");
}

/* x times the sigmoid of x, or of x times a number. */
static void look_for_quick_gelu(rewrite *r, uint32_t node)
{
    if (!rewrite_is(r, node, "Sigmoid"))
        return;
    uint32_t out = output_of(r, node), last = rewrite_read_by(r, out, "Mul"), in = input_of(r, node, 0);
    uint32_t x = rewrite_other(r, last, out), times = rewrite_maker(r, in);
    r->count = 0;
    if (x == GRAPH_NONE || !rewrite_put(r, out))
        return;
    bool scaled =
        rewrite_is(r, times, "Mul") && rewrite_reader(r, in) == node && is_scalar(r, rewrite_other(r, times, x));
    if (x == in || (scaled && rewrite_put(r, in)))
        rewrite_join(r, "QuickGelu", node, last, false);
}

/* A vector is added to what the node reads. */
static uint32_t summed(const rewrite *r, uint32_t id)
{
    uint32_t sum = rewrite_maker(r, id);
    if (!rewrite_is(r, sum, "Add") || rewrite_reader(r, id) == GRAPH_NONE)
        return GRAPH_NONE;
    for (uint32_t k = 0; k < 2; k++)
        if (rewrite_constant(r, input_of(r, sum, k)) && fusion_shape_of(r, input_of(r, sum, k))->rank == 1)
            return sum;
    return GRAPH_NONE;
}

static void look_for_bias(rewrite *r, uint32_t node)
{
    if (rewrite_is(r, node, "Gelu") && summed(r, input_of(r, node, 0)) != GRAPH_NONE)
        join_two(r, "BiasGelu", summed(r, input_of(r, node, 0)), node, false);
}

/* ---- normalisations of a layer ----------------------------------------------------------------------------------------- */

/* The value is divided by the deviation, or multiplied with one over it: the quotient's node. */
static uint32_t find_quotient(rewrite *r, uint32_t deviation, uint32_t value)
{
    uint32_t quotient = rewrite_read_by(r, deviation, "Div"), over = rewrite_read_by(r, deviation, "Reciprocal");
    if (!rewrite_put(r, deviation))
        return GRAPH_NONE;
    if (quotient != GRAPH_NONE && input_of(r, quotient, 0) == value)
        return quotient;
    if (quotient != GRAPH_NONE && rewrite_constant(r, input_of(r, quotient, 0)))
        over = quotient;
    uint32_t product = rewrite_read_by(r, output_of(r, over), "Mul");
    if (product == GRAPH_NONE || rewrite_other(r, product, output_of(r, over)) != value ||
        !rewrite_put(r, output_of(r, over)))
        return GRAPH_NONE;
    return product;
}

/* Behind the quotient: scale and, with a mean, the shift. Answers the last node. */
static uint32_t find_scaled(rewrite *r, uint32_t quotient, bool shifted)
{
    uint32_t out = output_of(r, quotient), scale = rewrite_read_by(r, out, "Mul");
    if (!with_constant(r, scale, out) || !rewrite_put(r, out) || !shifted)
        return with_constant(r, scale, out) && !shifted ? scale : GRAPH_NONE;
    uint32_t scaled = output_of(r, scale), shift = rewrite_read_by(r, scaled, "Add");
    return with_constant(r, shift, scaled) && rewrite_put(r, scaled) ? shift : GRAPH_NONE;
}

/* Puts the value, a difference from a mean, and the mean between the nodes to be joined. False: another pattern,
 * further readers of the mean, or no room. */
static bool put_difference(rewrite *r, uint32_t value)
{
    uint32_t less = rewrite_maker(r, value), mean = input_of(r, less, 1);
    return rewrite_is(r, rewrite_maker(r, mean), "ReduceMean") && rewrite_reader(r, mean) == less &&
           input_of(r, rewrite_maker(r, mean), 0) == input_of(r, less, 0) && rewrite_put(r, value) &&
           rewrite_put(r, mean);
}

/* Looks for a normalisation, beginning at the squares: the mean of the squares plus a small number, and the square
 * root. */
static void look_for_normalisation(rewrite *r, uint32_t squares, bool shifted)
{
    if (!rewrite_is(r, squares, "Pow") || !is_scalar(r, input_of(r, squares, 1)))
        return;
    uint32_t value = input_of(r, squares, 0), square = output_of(r, squares),
             mean = rewrite_read_by(r, square, "ReduceMean");
    uint32_t sum = rewrite_read_by(r, output_of(r, mean), "Add");
    uint32_t root = rewrite_read_by(r, output_of(r, sum), "Sqrt");
    r->count = 0;
    if (root == GRAPH_NONE || shifted != rewrite_is(r, rewrite_maker(r, value), "Sub") ||
        (shifted && (r->readers[value] != 2 || !put_difference(r, value))))
        return;
    rewrite_put(r, square);
    rewrite_put(r, output_of(r, mean));
    rewrite_put(r, output_of(r, sum));
    uint32_t quotient = find_quotient(r, output_of(r, root), value);
    uint32_t last = quotient == GRAPH_NONE ? GRAPH_NONE : find_scaled(r, quotient, shifted);
    if (last != GRAPH_NONE)
        rewrite_join(r, shifted ? "LayerNormalization" : "SimplifiedLayerNormalization", squares, last, false);
}

static bool fusion_same_shape(const graph_shape *a, const graph_shape *b)
{
    bool same = a->rank == b->rank;
    for (uint32_t i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i];
    return same;
}

/* A sum of two values of three dimensions, which nobody else reads, and a vector with them. */
static void look_for_skip(rewrite *r, uint32_t node)
{
    if (!rewrite_is(r, node, "LayerNormalization"))
        return;
    uint32_t id = input_of(r, node, 0), sum = rewrite_maker(r, id);
    if (!rewrite_is(r, sum, "Add") || rewrite_reader(r, id) != node || r->g.nodes[sum].input_count != 2)
        return;
    uint32_t a = input_of(r, sum, 0), b = input_of(r, sum, 1);
    if (b == GRAPH_NONE || rewrite_constant(r, a) || rewrite_constant(r, b) || fusion_shape_of(r, a)->rank != 3 ||
        !fusion_same_shape(fusion_shape_of(r, a), fusion_shape_of(r, b)))
        return;
    r->count = 0;
    rewrite_put(r, id);
    if (summed(r, a) != GRAPH_NONE)
        rewrite_put(r, a);
    else if (summed(r, b) != GRAPH_NONE)
        rewrite_put(r, b);
    rewrite_join(r, "SkipLayerNormalization", node, node, false);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------------ */

enum { MOST_PIECES = 256, MOST_APART = 4096 };

/* A number that is in the file; false: there is none. */
static bool fusion_read_number(const rewrite *r, uint32_t node, uint32_t input, int64_t *out)
{
    uint32_t id = input_of(r, node, input);
    const graph_number *number = is_scalar(r, id) && id < r->file->value_count ? graph_contents(r->file, id) : NULL;
    return number && graph_whole(r->file->values[id].type, *number, out);
}

typedef struct piece {
    int64_t axis, begin, end;
} piece;

/* Counted from the end where it is negative. */
static int64_t within(int64_t number, int64_t all)
{
    number = number < 0 && number >= -all ? number + all : number;
    return number < 0 ? 0 : number > all ? all : number;
}

static bool read_piece(const rewrite *r, uint32_t node, piece *out)
{
    int64_t step = 1;
    if (!rewrite_is(r, node, "Slice Gather"))
        return false;
    const graph_shape *shape = fusion_shape_of(r, input_of(r, node, 0));
    *out = (piece){.axis = graph_int(&r->g.nodes[node], "axis", 0)};
    bool one = rewrite_is(r, node, "Gather"), good = fusion_read_number(r, node, 1, &out->begin);
    if (one)
        good = good && fusion_shape_of(r, input_of(r, node, 1))->rank == 0;
    else
        good = good && fusion_read_number(r, node, 2, &out->end) && fusion_read_number(r, node, 3, &out->axis) &&
               (input_of(r, node, 4) == GRAPH_NONE || fusion_read_number(r, node, 4, &step)) && step == 1;
    out->axis += out->axis < 0 ? shape->rank : 0;
    if (!good || out->axis < 0 || out->axis >= shape->rank || r->g.values[output_of(r, node)].output)
        return false;
    int64_t all = shape->dims[out->axis];
    out->begin = within(out->begin, all);
    out->end = one ? out->begin + 1 : within(out->end, all);
    return true;
}

/* Merges pieces of a value, made by Slice or by Gather with a single index, into a Split, if the pieces add up to the
 * value and the value has no further reader. */
static void look_for_pieces(rewrite *r, uint32_t node)
{
    piece first, next;
    uint32_t nodes[MOST_PIECES], count = 1, x = rewrite_is(r, node, "Slice Gather") ? input_of(r, node, 0) : GRAPH_NONE;
    if (x == GRAPH_NONE || r->readers[x] < 2 || r->readers[x] > MOST_PIECES || rewrite_constant(r, x) ||
        !read_piece(r, node, &first) || x >= r->file->value_count ||
        (r->known && r->known[(size_t)x * GRAPH_MAX_RANK + (size_t)first.axis] != ONNX_NUMBER))
        return;
    int64_t size = first.end - first.begin;
    nodes[0] = node;
    for (uint32_t i = node + 1; i < r->g.node_count && i - node < MOST_APART && count < r->readers[x]; i++)
        if (!r->g.nodes[i].folded && r->g.nodes[i].input_count > 0 && r->g.nodes[i].inputs[0] == x) {
            if (!read_piece(r, i, &next) || next.axis != first.axis)
                return;
            size += next.end - next.begin;
            nodes[count++] = i;
        }
    if (count == r->readers[x] && size == fusion_shape_of(r, x)->dims[first.axis])
        rewrite_merge(r, "Split", nodes, count);
}

/* ---- in order ---------------------------------------------------------------------------------------------------------- */

static void look_for_shifted(rewrite *r, uint32_t node)
{
    look_for_normalisation(r, node, true);
}

static void look_for_simple(rewrite *r, uint32_t node)
{
    look_for_normalisation(r, node, false);
}

static void look_for_fast_gelu(rewrite *r, uint32_t node)
{
    look_for_gelu(r, node, "Tanh", "FastGelu");
}

/* Looks for a pattern that begins at the node. */
typedef void fusion_pass(rewrite *r, uint32_t node);

enum { BASIC_PASSES = 2 }; /* the others are of the level above */

static fusion_pass *const passes[] = {look_for_scaled, look_for_sum,       look_for_unpacked,   look_for_bent_product,
                                      look_for_floats, look_for_bent,      look_for_exact_gelu, look_for_shifted,
                                      look_for_simple, look_for_pieces,    look_for_turned,     look_for_bias,
                                      look_for_skip,   look_for_fast_gelu, look_for_quick_gelu, look_for_number};

bool onnx_fuse(graph *g, const uint32_t *known, int optimization, bool cuda, rewrite *out)
{
    bool good = rewrite_begin(g, cuda ? NULL : known, optimization >= BASIC && !cuda, out);
    out->file = g;
    out->known = known;
    for (size_t which = 0; good && which < sizeof passes / sizeof *passes; which++) {
        if (optimization < (which < BASIC_PASSES ? BASIC : EXTENDED) || (cuda && passes[which] != look_for_unpacked))
            continue;
        size_t count = out->g.node_count; /* without the nodes that are added meanwhile */
        for (uint32_t i = 0; i < count; i++)
            if (!out->g.nodes[i].folded)
                passes[which](out, i);
    }
    return good;
}
