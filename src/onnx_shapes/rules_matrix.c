/* rules_matrix.c: products. */
#include "onnx_shapes/rules.h"

#include <inttypes.h>
#include <string.h>

static bool no_product(step *s, const graph_shape *a, const graph_shape *b)
{
    char one[GRAPH_SHAPE_TEXT], other[GRAPH_SHAPE_TEXT];
    return step_wrong(s, "%s times %s is no product", graph_shape_text(a, one, sizeof one),
                      graph_shape_text(b, other, sizeof other));
}

/* Swaps the last two dimensions. */
static void turn(graph_shape *shape)
{
    if (shape->rank < 2)
        return;
    int64_t last = shape->dims[shape->rank - 1];
    shape->dims[shape->rank - 1] = shape->dims[shape->rank - 2];
    shape->dims[shape->rank - 2] = last;
}

/* A vector is a row on the left and a column on the right, and that dimension goes again. */
static bool multiply(step *s, graph_shape a, graph_shape b, graph_shape *out)
{
    if (a.rank == 0 || b.rank == 0)
        return no_product(s, &a, &b);
    bool row = a.rank == 1, column = b.rank == 1;
    if (row)
        a = (graph_shape){2, {1, a.dims[0]}};
    if (column)
        b = (graph_shape){2, {b.dims[0], 1}};
    int64_t m = a.dims[a.rank - 2], k = a.dims[a.rank - 1], n = b.dims[b.rank - 1];
    if (k != b.dims[b.rank - 2])
        return no_product(s, &a, &b);
    a.rank -= 2;
    b.rank -= 2;
    *out = a;
    if (!step_broadcast(s, out, &b))
        return false;
    if (!row)
        out->dims[out->rank++] = m;
    if (!column)
        out->dims[out->rank++] = n;
    return true;
}

bool rule_matmul(step *s)
{
    bool quantized = onnx_text_is(s->node->op, "QLinearMatMul");
    if (!step_need(s, quantized ? 8 : 2))
        return false;
    const graph_value *x = step_in(s, 0);
    graph_shape a = x->shape, b = step_in(s, quantized ? 3 : 1)->shape, shape;
    if (graph_int(s->node, "transA", 0))
        turn(&a);
    if (graph_int(s->node, "transB", 0))
        turn(&b);
    int32_t type = quantized ? step_in(s, 7)->type : onnx_text_is(s->node->op, "MatMulInteger") ? ONNX_INT32 : x->type;
    return multiply(s, a, b, &shape) && step_give(s, 0, type, &shape);
}

bool rule_gemm(step *s)
{
    if (!step_need(s, 2))
        return false;
    graph_shape a = step_in(s, 0)->shape, b = step_in(s, 1)->shape;
    if (a.rank != 2 || b.rank != 2)
        return no_product(s, &a, &b);
    if (graph_int(s->node, "transA", 0))
        turn(&a);
    if (graph_int(s->node, "transB", 0))
        turn(&b);
    if (a.dims[1] != b.dims[0])
        return no_product(s, &a, &b);
    graph_shape shape = {2, {a.dims[0], b.dims[1]}};
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_matmul_nbits(step *s)
{
    if (!step_need(s, 2))
        return false;
    graph_shape shape = step_in(s, 0)->shape;
    int64_t k = graph_int(s->node, "K", -1);
    if (shape.rank == 0 || shape.dims[shape.rank - 1] != k)
        return step_wrong(s, "its K is %" PRId64 ", and its input has another last dimension", k);
    shape.dims[shape.rank - 1] = graph_int(s->node, "N", -1);
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

/* Einsum ------------------------------------------------------------------------------------------------------------- */

typedef struct letters {
    int64_t extent[128];
    bool known[128];
    graph_shape rest;   /* what "..." stands for */
    unsigned seen[128]; /* how often a letter occurs */
} letters;

/* Splits off the next term. Answers its letters without blanks, "." for its one ellipsis; -1: it is none. */
static int next_term(onnx_text *equation, char *out)
{
    int count = 0;
    while (equation->size > 0 && *equation->text != ',' && *equation->text != '-') {
        char c = *equation->text;
        size_t step_by = 1;
        if (c == '.') {
            if (equation->size < 3 || memcmp(equation->text, "...", 3) != 0 || memchr(out, '.', (size_t)count))
                return -1;
            step_by = 3;
        }
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.';
        if ((!letter && c != ' ') || count == GRAPH_MAX_RANK)
            return -1;
        if (letter)
            out[count++] = c;
        equation->text += step_by;
        equation->size -= step_by;
    }
    return count;
}

/* Takes the extents of one input's letters. */
static bool take_term(step *s, letters *all, const char *term, int count, const graph_shape *shape)
{
    bool dots = memchr(term, '.', (size_t)count) != NULL;
    if ((int)shape->rank < count - dots || (!dots && (int)shape->rank != count))
        return step_wrong(s, "its equation gives an input %d dimensions, and it has %u", count, shape->rank);
    uint32_t at = 0;
    for (int i = 0; i < count; i++) {
        unsigned char c = (unsigned char)term[i];
        if (c == '.') {
            graph_shape rest = {.rank = shape->rank - (uint32_t)(count - 1)};
            memcpy(rest.dims, shape->dims + at, rest.rank * sizeof *rest.dims);
            at += rest.rank;
            if (!step_broadcast(s, &all->rest, &rest))
                return false;
            continue;
        }
        int64_t extent = shape->dims[at++];
        if (all->known[c] && all->extent[c] != extent && all->extent[c] != 1 && extent != 1)
            return step_wrong(s, "its %c is %" PRId64 " and %" PRId64, c, all->extent[c], extent);
        all->extent[c] = all->known[c] && extent == 1 ? all->extent[c] : extent;
        all->known[c] = true;
        all->seen[c]++;
    }
    return true;
}

static bool put_term(step *s, const letters *all, const char *term, int count, graph_shape *out)
{
    out->rank = 0;
    for (int i = 0; i < count; i++) {
        unsigned char c = (unsigned char)term[i];
        uint32_t more = c == '.' ? all->rest.rank : 1;
        if (out->rank + more > GRAPH_MAX_RANK || (c != '.' && !all->known[c]))
            return step_wrong(s, "its equation makes a dimension of nothing");
        if (c == '.')
            memcpy(out->dims + out->rank, all->rest.dims, more * sizeof *out->dims);
        else
            out->dims[out->rank] = all->extent[c];
        out->rank += more;
    }
    return true;
}

/* Without an arrow: the ellipsis, then the letters that occur once, in the order of the alphabet. */
static int implied(const letters *all, char *term)
{
    int count = 0;
    if (all->rest.rank > 0)
        term[count++] = '.';
    for (int c = 'A'; c <= 'z' && count < GRAPH_MAX_RANK; c++)
        if (all->seen[c] == 1)
            term[count++] = (char)c;
    return count;
}

bool rule_einsum(step *s)
{
    onnx_text equation = graph_text(s->node, "equation");
    letters all = {.rest = {.rank = 0}};
    char term[GRAPH_MAX_RANK];
    int count;
    if (!step_need(s, s->node->input_count ? s->node->input_count : 1))
        return false;
    for (unsigned i = 0; i < s->node->input_count; i++) {
        if ((count = next_term(&equation, term)) < 0)
            return step_wrong(s, "its equation cannot be read");
        if (!take_term(s, &all, term, count, &step_in(s, i)->shape))
            return false;
        bool more = i + 1 < s->node->input_count;
        if (more && (equation.size == 0 || *equation.text != ','))
            return step_wrong(s, "its equation has fewer terms than there are inputs");
        equation.text += more;
        equation.size -= more;
    }
    if (equation.size >= 2 && memcmp(equation.text, "->", 2) == 0) {
        equation.text += 2;
        equation.size -= 2;
        count = next_term(&equation, term);
    } else {
        count = implied(&all, term);
    }
    graph_shape shape;
    if (count < 0 || equation.size > 0)
        return step_wrong(s, "its equation cannot be read");
    return put_term(s, &all, term, count, &shape) && step_give(s, 0, step_in(s, 0)->type, &shape);
}
