/* The contents of values that follow from dimensions and constants: the arithmetic that models do with shapes. */
#include "onnx/shapes/rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One operator's: false where something is not known. */
typedef bool graph_folder(step *s);

/* Room for an output's contents; NULL: it is not wanted, or not known. */
static graph_number *fold_room(step *s, unsigned output)
{
    graph_value *value = step_out(s, output);
    return value ? graph_contents_make(s->g, value) : NULL;
}

/* A walk over the places of a shape, which gives for each the place in a source that is laid out by strides. */
typedef struct fold_walk {
    graph_shape shape;
    int64_t index[GRAPH_MAX_RANK];
    int64_t strides[GRAPH_MAX_RANK];
    int64_t at; /* in the source */
} fold_walk;

/* Strides of a dense tensor. */
static void fold_dense(const graph_shape *shape, int64_t *strides)
{
    int64_t stride = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        strides[i] = stride;
        stride *= shape->dims[i];
    }
}

/* A walk over `shape` through a source that is broadcast to it. */
static fold_walk fold_broadcast(const graph_shape *shape, const graph_shape *source)
{
    fold_walk w = {.shape = *shape};
    int64_t strides[GRAPH_MAX_RANK];
    uint32_t behind = shape->rank - source->rank;
    fold_dense(source, strides);
    for (uint32_t i = 0; i < source->rank; i++)
        w.strides[i + behind] = source->dims[i] == 1 ? 0 : strides[i];
    return w;
}

static void fold_next(fold_walk *w)
{
    for (uint32_t i = w->shape.rank; i-- > 0;) {
        w->at += w->strides[i];
        if (++w->index[i] < w->shape.dims[i])
            return;
        w->at -= w->strides[i] * w->shape.dims[i];
        w->index[i] = 0;
    }
}

/* Operators that need only types and shapes of their inputs -------------------------------------------------------- */

static bool fold_shape(step *s)
{
    uint32_t from, to;
    graph_number *out = fold_room(s, 0);
    if (!out)
        return false;
    const graph_shape *shape = &step_in(s, 0)->shape;
    graph_shape_range(s->node, shape->rank, &from, &to);
    for (uint32_t i = from; i < to; i++)
        out[i - from].i = shape->dims[i];
    return true;
}

static bool fold_size(step *s)
{
    graph_number *out = fold_room(s, 0);
    if (out)
        out->i = (int64_t)step_in(s, 0)->elements;
    return out != NULL;
}

static bool fold_constant(step *s)
{
    onnx_text proto;
    int64_t ints[GRAPH_NUMBERS];
    double floats[GRAPH_NUMBERS];
    graph_value *value = step_out(s, 0);
    if (value && graph_tensor(s->node, "value", &proto)) {
        value->proto = (const uint8_t *)proto.text; /* read when somebody asks: most are weights */
        value->proto_size = proto.size;
        return true;
    }
    graph_number *out = fold_room(s, 0);
    if (!out)
        return false;
    /* The same attribute, in the same order, as the rule that made the shape. */
    if (graph_has(s->node, "value_int")) {
        out->i = graph_int(s->node, "value_int", 0);
        return true;
    }
    if (graph_has(s->node, "value_float")) {
        out->f = graph_float(s->node, "value_float", 0);
        return true;
    }
    int count = graph_ints(s->node, "value_ints", ints, GRAPH_NUMBERS);
    for (int i = 0; i < count; i++)
        out[i].i = ints[i];
    if (count >= 0)
        return true;
    count = graph_floats(s->node, "value_floats", floats, GRAPH_NUMBERS);
    for (int i = 0; i < count; i++)
        out[i].f = floats[i];
    return true;
}

static bool fold_constant_of_shape(step *s)
{
    onnx_text proto;
    graph_number *out = fold_room(s, 0);
    graph_value fill = {.elements = 0};
    if (!out)
        return false;
    graph_value *value = step_out(s, 0);
    if (graph_tensor(s->node, "value", &proto)) {
        fill = (graph_value){.type = value->type, .elements = 1};
        graph_contents_read(s->g, &fill, (const uint8_t *)proto.text, proto.size);
    }
    for (uint64_t i = 0; fill.data && i < value->elements; i++)
        out[i] = *fill.data;
    bool good = fill.data || !graph_has(s->node, "value"); /* without one it is zeros, as the room is */
    free(fill.data);
    return good;
}

static bool fold_range(step *s)
{
    const graph_number *from = step_contents(s, 0), *by = step_contents(s, 2);
    graph_number *out = from && by ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    const graph_value *value = step_out(s, 0);
    for (uint64_t i = 0; i < value->elements; i++) {
        if (graph_real(value->type))
            out[i].f = from->f + (double)i * by->f;
        else
            out[i].i = (int64_t)((uint64_t)from->i + i * (uint64_t)by->i);
    }
    return true;
}

/* The same numbers in the same order. */
static bool fold_copy(step *s)
{
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in && !step_out(s, 1) ? fold_room(s, 0) : NULL;
    if (out)
        memcpy(out, in, (size_t)step_out(s, 0)->elements * sizeof *out);
    return out != NULL;
}

/* Arithmetic, element by element: whole numbers wrap, floats are rounded to floats, as a runtime does it ----------- */

typedef enum {
    ADD,
    SUB,
    MUL,
    DIV,
    MOD,
    POW,
    MIN,
    MAX,
    EQ,
    LT,
    GT,
    LE,
    GE,
    AND,
    OR,
    XOR,
    TWO,
    NEG,
    ABS,
    FLOOR,
    CEIL,
    ROUND,
    SQRT,
    NOT,
    RECIPROCAL,
    SIGN
} operation;

static const char *const names[] = {
    [ADD] = "Add",    [SUB] = "Sub",        [MUL] = "Mul",           [DIV] = "Div",  [MOD] = "Mod",
    [POW] = "Pow",    [MIN] = "Min",        [MAX] = "Max",           [EQ] = "Equal", [LT] = "Less",
    [GT] = "Greater", [LE] = "LessOrEqual", [GE] = "GreaterOrEqual", [AND] = "And",  [OR] = "Or",
    [XOR] = "Xor",    [TWO] = "",           [NEG] = "Neg",           [ABS] = "Abs",  [FLOOR] = "Floor",
    [CEIL] = "Ceil",  [ROUND] = "Round",    [SQRT] = "Sqrt",         [NOT] = "Not",  [RECIPROCAL] = "Reciprocal",
    [SIGN] = "Sign",
};

/* -1: none of them. */
static int fold_operation_of(const graph_node *node)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (i != TWO && onnx_text_is(node->op, names[i]))
            return (int)i;
    return -1;
}

/* Two numbers ------------------------------------------------------------------------------------------------------ */

static int64_t whole_power(int64_t base, int64_t exponent)
{
    uint64_t result = 1, factor = (uint64_t)base;
    for (; exponent > 0; exponent >>= 1, factor *= factor)
        result *= exponent & 1 ? factor : 1;
    return (int64_t)result;
}

/* The sign of the divisor, as Python has it, unless fmod is asked for. */
static int64_t whole_rest(int64_t a, int64_t b, bool fmod_like)
{
    int64_t rest = b == -1 ? 0 : a % b;
    return rest != 0 && !fmod_like && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* Of two whole numbers that may be put together so. */
static int64_t fold_whole(operation op, bool fmod_like, int64_t a, int64_t b)
{
    switch (op) {
    case ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case DIV:
        return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    case MOD:
        return whole_rest(a, b, fmod_like);
    case POW:
        return whole_power(a, b);
    case MIN:
        return a < b ? a : b;
    default: /* MAX */
        return a > b ? a : b;
    }
}

static double fold_real(operation op, double a, double b)
{
    switch (op) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case MUL:
        return a * b;
    case DIV:
        return a / b;
    case MOD:
        return fmod(a, b);
    case POW:
        return pow(a, b);
    case MIN:
        return fmin(a, b);
    default: /* MAX */
        return fmax(a, b);
    }
}

/* `order`: -1, 0 or 1, or 2 where one of the two is no number. */
static int64_t truth(operation op, int order, bool a, bool b)
{
    switch (op) {
    case EQ:
        return order == 0;
    case LT:
        return order == -1;
    case GT:
        return order == 1;
    case LE:
        return order == -1 || order == 0;
    case GE:
        return order == 1 || order == 0;
    case AND:
        return a && b;
    case OR:
        return a || b;
    default:
        return a != b;
    }
}

/* A number of the type, as it would be stored. */
static graph_number stored(int32_t type, double value)
{
    return (graph_number){.f = type == ONNX_FLOAT ? (double)(float)value : value};
}

static bool pair(step *s, operation op, graph_number a, graph_number b, graph_number *out)
{
    int32_t type = step_in(s, 0)->type;
    bool is_real = graph_real(type), fmod_like = op == MOD && graph_int(s->node, "fmod", 0) != 0;
    if (op >= EQ) {
        int order = is_real ? (a.f < b.f ? -1 : a.f > b.f ? 1 : a.f == b.f ? 0 : 2) : (a.i > b.i) - (a.i < b.i);
        out->i = truth(op, order, a.i != 0, b.i != 0);
        return true;
    }
    if (!is_real && ((b.i == 0 && (op == DIV || op == MOD)) || (b.i < 0 && op == POW)))
        return false;
    *out = is_real ? stored(type, fold_real(op, a.f, b.f)) : (graph_number){.i = fold_whole(op, fmod_like, a.i, b.i)};
    return true;
}

static bool fold_pairs(step *s, operation op)
{
    const graph_number *a = step_contents(s, 0), *b = step_contents(s, 1);
    bool fits = a && b && s->node->input_count == 2 && (op == POW || step_in(s, 0)->type == step_in(s, 1)->type) &&
                graph_real(step_in(s, 0)->type) == graph_real(step_in(s, 1)->type);
    graph_number *out = fits ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    const graph_value *value = step_out(s, 0);
    fold_walk x = fold_broadcast(&value->shape, &step_in(s, 0)->shape);
    fold_walk y = fold_broadcast(&value->shape, &step_in(s, 1)->shape);
    for (uint64_t i = 0; i < value->elements; i++, fold_next(&x), fold_next(&y))
        if (!pair(s, op, a[x.at], b[y.at], &out[i]))
            return false;
    return true;
}

/* One number ------------------------------------------------------------------------------------------------------- */

static bool fold_one(operation op, int32_t type, graph_number a, graph_number *out)
{
    double value = 0;
    bool is_real = graph_real(type);
    switch (op) {
    case NEG:
        value = -a.f;
        out->i = (int64_t)(0 - (uint64_t)a.i);
        break;
    case ABS:
        value = fabs(a.f);
        out->i = a.i < 0 ? (int64_t)(0 - (uint64_t)a.i) : a.i;
        break;
    case SIGN:
        value = (a.f > 0) - (a.f < 0);
        out->i = (a.i > 0) - (a.i < 0);
        break;
    case NOT:
        out->i = a.i == 0;
        return !is_real;
    default:
        if (!is_real)
            return false;
        value = op == FLOOR   ? floor(a.f)
                : op == CEIL  ? ceil(a.f)
                : op == ROUND ? nearbyint(a.f)
                : op == SQRT  ? sqrt(a.f)
                              : 1 / a.f;
        break;
    }
    if (is_real)
        *out = stored(type, value);
    return true;
}

static bool fold_each(step *s)
{
    operation op = (operation)fold_operation_of(s->node);
    if (op < TWO)
        return fold_pairs(s, op);
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    const graph_value *value = step_out(s, 0);
    for (uint64_t i = 0; i < value->elements; i++)
        if (!fold_one(op, value->type, in[i], &out[i]))
            return false;
    return true;
}

/* Types and choices ------------------------------------------------------------------------------------------------ */

static int64_t narrowed(int32_t type, int64_t value)
{
    unsigned bits = onnx_type_bits(type);
    if (type == ONNX_BOOL)
        return value != 0;
    if (bits >= 64)
        return value;
    uint64_t low = (uint64_t)value & ((UINT64_C(1) << bits) - 1), top = UINT64_C(1) << (bits - 1);
    bool has_sign = type == ONNX_INT8 || type == ONNX_INT16 || type == ONNX_INT32;
    return has_sign && (low & top) ? (int64_t)(low | ~((top << 1) - 1)) : (int64_t)low;
}

static bool fold_cast(step *s)
{
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    int32_t from = step_in(s, 0)->type, to = step_out(s, 0)->type;
    for (uint64_t i = 0; i < step_out(s, 0)->elements; i++) {
        int64_t number;
        if (graph_real(to)) {
            out[i] = stored(to, graph_real(from) ? in[i].f : (double)in[i].i);
        } else if (to == ONNX_BOOL && graph_real(from)) {
            out[i].i = in[i].f != 0;
        } else {
            if (!graph_whole(from, in[i], &number))
                return false;
            out[i].i = narrowed(to, number);
        }
    }
    return true;
}

static bool fold_where(step *s)
{
    const graph_number *which = step_contents(s, 0), *yes = step_contents(s, 1), *no = step_contents(s, 2);
    graph_number *out = which && yes && no ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    const graph_value *value = step_out(s, 0);
    fold_walk w = fold_broadcast(&value->shape, &step_in(s, 0)->shape);
    fold_walk y = fold_broadcast(&value->shape, &step_in(s, 1)->shape);
    fold_walk n = fold_broadcast(&value->shape, &step_in(s, 2)->shape);
    for (uint64_t i = 0; i < value->elements; i++, fold_next(&w), fold_next(&y), fold_next(&n))
        out[i] = which[w.at].i ? yes[y.at] : no[n.at];
    return true;
}

/* With bounds as inputs; those of older operator sets are floats and nothing that shapes are made of. */
static bool fold_clip(step *s)
{
    const graph_number *in = step_contents(s, 0), *least = step_contents(s, 1), *most = step_contents(s, 2);
    bool known = in && (least || !step_has(s, 1)) && (most || !step_has(s, 2)) && !graph_real(step_in(s, 0)->type);
    graph_number *out = known ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    for (uint64_t i = 0; i < step_out(s, 0)->elements; i++) {
        int64_t value = in[i].i;
        value = least && value < least->i ? least->i : value;
        out[i].i = most && value > most->i ? most->i : value;
    }
    return true;
}

/* Known numbers picked, cut, put together and summed up ------------------------------------------------------------ */

/* Copies by a walk whose strides and start have been set. */
static void shapes_fold_copy(const graph_value *value, fold_walk *w, const graph_number *in, graph_number *out)
{
    w->shape = value->shape;
    for (uint64_t i = 0; i < value->elements; i++, fold_next(w))
        out[i] = in[w->at];
}

static bool fold_gather(step *s)
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

static bool fold_slice(step *s)
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
    shapes_fold_copy(step_out(s, 0), &w, in, out);
    return true;
}

static bool fold_concat(step *s)
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

static bool fold_split(step *s)
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
        shapes_fold_copy(step_out(s, i), &w, in, out);
        begin += step_out(s, i)->shape.dims[axis];
    }
    return true;
}

static bool fold_transpose(step *s)
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
    shapes_fold_copy(step_out(s, 0), &w, in, out);
    return true;
}

static bool fold_expand(step *s)
{
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    fold_walk w = fold_broadcast(&step_out(s, 0)->shape, &step_in(s, 0)->shape);
    shapes_fold_copy(step_out(s, 0), &w, in, out);
    return true;
}

static bool fold_tile(step *s)
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

/* Reductions ------------------------------------------------------------------------------------------------------- */

static void shapes_fold_reduce(const graph_node *node, bool is_real, graph_number more, bool first, graph_number *sum)
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

static bool fold_reduce(step *s)
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
        shapes_fold_reduce(s->node, graph_real(x->type), in[i], !begun[w.at], &out[w.at]);
        begun[w.at] = true;
    }
    return true;
}

static bool fold_nonzero(step *s)
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

/* All -------------------------------------------------------------------------------------------------------------- */

static const struct entry {
    const char *op;
    graph_folder *fold;
} table[] = {
    {"Shape", fold_shape},       {"Size", fold_size},
    {"Constant", fold_constant}, {"ConstantOfShape", fold_constant_of_shape},
    {"Range", fold_range},       {"Identity", fold_copy},
    {"Reshape", fold_copy},      {"Squeeze", fold_copy},
    {"Unsqueeze", fold_copy},    {"Flatten", fold_copy},
    {"Dropout", fold_copy},      {"Cast", fold_cast},
    {"CastLike", fold_cast},     {"Where", fold_where},
    {"Clip", fold_clip},         {"Gather", fold_gather},
    {"Slice", fold_slice},       {"Concat", fold_concat},
    {"Split", fold_split},       {"Transpose", fold_transpose},
    {"Expand", fold_expand},     {"Tile", fold_tile},
    {"ReduceSum", fold_reduce},  {"ReduceProd", fold_reduce},
    {"ReduceMax", fold_reduce},  {"ReduceMin", fold_reduce},
    {"NonZero", fold_nonzero},
};

static graph_folder *fold_folder_of(const graph_node *node)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (onnx_text_is(node->op, table[i].op))
            return table[i].fold;
    return fold_operation_of(node) >= 0 ? fold_each : NULL;
}

void graph_fold(step *s)
{
    graph_folder *fold = fold_folder_of(s->node);
    bool good = fold && fold(s);
    for (uint32_t i = 0; i < s->node->output_count; i++) {
        graph_value *value = step_out(s, i);
        if (value && !good) {
            free(value->data);
            value->data = NULL;
            value->proto = NULL;
        }
        good &= !value || value->data || value->proto;
    }
    s->node->folded = good;
}
