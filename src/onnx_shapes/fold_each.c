/* fold_each.c: arithmetic, element by element. Whole numbers wrap, floats are rounded to floats, as a runtime does it. */
#include "onnx_shapes/fold.h"

#include <math.h>

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
static int operation_of(const graph_node *node)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (i != TWO && onnx_text_is(node->op, names[i]))
            return (int)i;
    return -1;
}

bool fold_is_each(const graph_node *node)
{
    return operation_of(node) >= 0;
}

/* Two numbers ------------------------------------------------------------------------------------------------------------ */

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

static bool whole(operation op, bool fmod_like, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case ADD:
        *out = (int64_t)((uint64_t)a + (uint64_t)b);
        return true;
    case SUB:
        *out = (int64_t)((uint64_t)a - (uint64_t)b);
        return true;
    case MUL:
        *out = (int64_t)((uint64_t)a * (uint64_t)b);
        return true;
    case DIV:
        *out = b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
        return b != 0;
    case MOD:
        *out = b == 0 ? 0 : whole_rest(a, b, fmod_like);
        return b != 0;
    case POW:
        *out = whole_power(a, b);
        return b >= 0;
    case MIN:
        *out = a < b ? a : b;
        return true;
    case MAX:
        *out = a > b ? a : b;
        return true;
    default:
        return false;
    }
}

static bool real(operation op, double a, double b, double *out)
{
    switch (op) {
    case ADD:
        *out = a + b;
        return true;
    case SUB:
        *out = a - b;
        return true;
    case MUL:
        *out = a * b;
        return true;
    case DIV:
        *out = a / b;
        return true;
    case MOD:
        *out = fmod(a, b);
        return true;
    case POW:
        *out = pow(a, b);
        return true;
    case MIN:
        *out = fmin(a, b);
        return true;
    case MAX:
        *out = fmax(a, b);
        return true;
    default:
        return false;
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
    double value = 0;
    if (op >= EQ) {
        int order = is_real ? (a.f < b.f ? -1 : a.f > b.f ? 1 : a.f == b.f ? 0 : 2) : (a.i > b.i) - (a.i < b.i);
        out->i = truth(op, order, a.i != 0, b.i != 0);
        return true;
    }
    if (!is_real)
        return whole(op, fmod_like, a.i, b.i, &out->i);
    bool good = real(op, a.f, b.f, &value);
    *out = stored(type, value);
    return good;
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

/* One number -------------------------------------------------------------------------------------------------------------- */

static bool one(operation op, int32_t type, graph_number a, graph_number *out)
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

bool fold_each(step *s)
{
    operation op = (operation)operation_of(s->node);
    if (op < TWO)
        return fold_pairs(s, op);
    const graph_number *in = step_contents(s, 0);
    graph_number *out = in ? fold_room(s, 0) : NULL;
    if (!out)
        return false;
    const graph_value *value = step_out(s, 0);
    for (uint64_t i = 0; i < value->elements; i++)
        if (!one(op, value->type, in[i], &out[i]))
            return false;
    return true;
}

/* Types and choices -------------------------------------------------------------------------------------------------------- */

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

bool fold_cast(step *s)
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

bool fold_where(step *s)
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
bool fold_clip(step *s)
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
