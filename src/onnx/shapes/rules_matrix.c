/* The rules of matrix products, attention and recurrent layers. */
#include "onnx/shapes/rules.h"

#include <inttypes.h>
#include <string.h>

/* Products --------------------------------------------------------------------------------------------------------- */

static bool no_product(step *s, const graph_shape *a, const graph_shape *b)
{
    char one[GRAPH_SHAPE_TEXT], other[GRAPH_SHAPE_TEXT];
    return step_wrong(s, "%s times %s is no product", graph_shape_text(a, one, sizeof one),
                      graph_shape_text(b, other, sizeof other));
}

/* Swaps the last two dimensions. */
static void rules_matrix_transpose(graph_shape *shape)
{
    if (shape->rank < 2)
        return;
    int64_t last = shape->dims[shape->rank - 1];
    shape->dims[shape->rank - 1] = shape->dims[shape->rank - 2];
    shape->dims[shape->rank - 2] = last;
}

/* A vector is a row on the left and a column on the right, and that dimension goes again. */
static bool rules_matrix_multiply(step *s, graph_shape a, graph_shape b, graph_shape *out)
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
    const graph_value *x = step_in(s, 0);
    graph_shape a = x->shape, b = step_in(s, quantized ? 3 : 1)->shape, shape;
    if (graph_int(s->node, "transA", 0))
        rules_matrix_transpose(&a);
    if (graph_int(s->node, "transB", 0))
        rules_matrix_transpose(&b);
    bool whole = onnx_text_is(s->node->op, "MatMulInteger") || onnx_text_is(s->node->op, "MatMulInteger16");
    int32_t type = quantized ? step_in(s, 7)->type : whole ? ONNX_INT32 : x->type;
    return rules_matrix_multiply(s, a, b, &shape) && step_give(s, 0, type, &shape);
}

bool rule_gemm(step *s)
{
    graph_shape a = step_in(s, 0)->shape, b = step_in(s, 1)->shape;
    if (a.rank != 2 || b.rank != 2)
        return no_product(s, &a, &b);
    if (graph_int(s->node, "transA", 0))
        rules_matrix_transpose(&a);
    if (graph_int(s->node, "transB", 0))
        rules_matrix_transpose(&b);
    if (a.dims[1] != b.dims[0])
        return no_product(s, &a, &b);
    graph_shape shape = {2, {a.dims[0], b.dims[1]}};
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

bool rule_matmul_nbits(step *s)
{
    graph_shape shape = step_in(s, 0)->shape;
    int64_t k = graph_int(s->node, "K", -1);
    if (shape.rank == 0 || shape.dims[shape.rank - 1] != k)
        return step_wrong(s, "its K is %" PRId64 ", and its input has another last dimension", k);
    shape.dims[shape.rank - 1] = graph_int(s->node, "N", -1);
    return step_give(s, 0, step_in(s, 0)->type, &shape);
}

/* Einsum ----------------------------------------------------------------------------------------------------------- */

typedef struct letters {
    int64_t extent[128];
    bool known[128];
    graph_shape rest;   /* what "..." stands for */
    unsigned seen[128]; /* how often a letter occurs */
} letters;

/* Splits off the next term of an Einsum equation. Writes the letters without blanks, and "." for the ellipsis, of which
 * a term has at most one, and returns how many; -1: malformed. */
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

/* Attention, in the forms of ONNX and of ONNX Runtime, and recurrent layers ---------------------------------------- */

/* A dimension from the past that the new ones are added to. */
static int64_t past_length(const step *s, unsigned i)
{
    const graph_value *past = step_in(s, i);
    return past && past->shape.rank >= 2 ? past->shape.dims[past->shape.rank - 2] : 0;
}

/* ai.onnx: queries, keys and values in three dimensions (heads side by side) or four. */
static bool standard(step *s)
{
    if (!step_has(s, 2))
        return step_wrong(s, "its input 2 is missing");
    const graph_value *q = step_in(s, 0), *k = step_in(s, 1), *v = step_in(s, 2);
    bool flat = q->shape.rank == 3;
    if ((!flat && q->shape.rank != 4) || k->shape.rank != q->shape.rank || v->shape.rank != q->shape.rank)
        return step_odd(s, "query, key or value");
    int64_t heads = flat ? graph_int(s->node, "q_num_heads", 0) : q->shape.dims[1];
    int64_t kv_heads = flat ? graph_int(s->node, "kv_num_heads", 0) : k->shape.dims[1];
    if (heads < 1 || kv_heads < 1)
        return step_wrong(s, "it has %" PRId64 " heads and %" PRId64 " for keys", heads, kv_heads);
    uint32_t last = q->shape.rank - 1, row = last - 1;
    int64_t size = flat ? v->shape.dims[last] / kv_heads : v->shape.dims[last];
    int64_t key_size = flat ? k->shape.dims[last] / kv_heads : k->shape.dims[last];
    int64_t batch = q->shape.dims[0], queries = q->shape.dims[row], total = k->shape.dims[row] + past_length(s, 4),
            width;
    if (__builtin_mul_overflow(heads, size, &width))
        return step_odd(s, "value");
    graph_shape wide = {3, {batch, queries, width}}, deep = {4, {batch, heads, queries, size}};
    graph_shape keys = {4, {batch, kv_heads, total, key_size}}, values = {4, {batch, kv_heads, total, size}};
    graph_shape scores = {4, {batch, heads, queries, total}};
    return step_give(s, 0, q->type, flat ? &wide : &deep) && step_give(s, 1, k->type, &keys) &&
           step_give(s, 2, v->type, &values) && step_give(s, 3, q->type, &scores);
}

/* com.microsoft: one product makes queries, keys and values. */
static bool packed(step *s)
{
    const graph_value *x = step_in(s, 0), *weights = step_in(s, 1);
    int64_t sizes[3], heads = graph_int(s->node, "num_heads", 0);
    int count = step_ints(s, "qkv_hidden_sizes", -1, sizes, 3);
    if (x->shape.rank != 3 || weights->shape.rank != 2 || heads < 1)
        return step_odd(s, "input, weights or number of heads");
    if (count == -2)
        return false;
    int64_t width = count == 3 ? sizes[2] : weights->shape.dims[1] / 3;
    int64_t batch = x->shape.dims[0], length = x->shape.dims[1];
    graph_shape shape = {3, {batch, length, width}};
    graph_shape present = {5, {2, batch, heads, length + past_length(s, 4), width / heads}};
    return step_give(s, 0, x->type, &shape) && step_give(s, 1, x->type, &present);
}

bool rule_attention(step *s)
{
    return s->node->domain.size == 0 || onnx_text_is(s->node->domain, "ai.onnx") ? standard(s) : packed(s);
}

/* How long the keys are, and how wide all values together; they may come packed with the queries, or keys with
 * values. */
static bool multi_head_sizes(step *s, int64_t heads, int64_t *length, int64_t *width)
{
    const graph_shape *q = &step_in(s, 0)->shape;
    const graph_shape *k = step_has(s, 1) ? &step_in(s, 1)->shape : q, *v = step_has(s, 2) ? &step_in(s, 2)->shape : k;
    *length = k->rank == 4 ? k->dims[2] : k->dims[1];
    if (v->rank == 3)
        *width = v->dims[2];
    else if (v->rank == 4 ? __builtin_mul_overflow(v->dims[1], v->dims[3], width)
                          : v->rank != 5 || __builtin_mul_overflow(heads, v->dims[4], width))
        return step_odd(s, "query, key or value");
    return true;
}

bool rule_multi_head(step *s)
{
    int64_t heads = graph_int(s->node, "num_heads", 0), length, width;
    const graph_value *q = step_in(s, 0);
    if ((q->shape.rank != 3 && q->shape.rank != 5) || heads < 1)
        return step_odd(s, "query or number of heads");
    for (unsigned i = 1; i < 3; i++)
        if (step_has(s, i) && step_in(s, i)->shape.rank < 3)
            return step_odd(s, i == 1 ? "key" : "value");
    if (!multi_head_sizes(s, heads, &length, &width))
        return false;
    int64_t batch = q->shape.dims[0], queries = q->shape.dims[1], total = length + past_length(s, 6);
    graph_shape shape = {3, {batch, queries, width}}, present = {4, {batch, heads, total, width / heads}};
    graph_shape scores = {4, {batch, heads, queries, total}};
    return step_give(s, 0, q->type, &shape) && step_give(s, 1, q->type, &present) &&
           step_give(s, 2, q->type, &present) && step_give(s, 3, q->type, &scores);
}

/* Its present keys are as long as the past's buffer, or as what input 6 says. */
bool rule_group_query(step *s)
{
    int64_t heads = graph_int(s->node, "num_heads", 0), kv_heads = graph_int(s->node, "kv_num_heads", 0), total[1];
    const graph_value *q = step_in(s, 0), *past = step_in(s, 3);
    if (q->shape.rank != 3 || heads < 1 || kv_heads < 1 || heads > INT32_MAX || kv_heads > INT32_MAX)
        return step_odd(s, "query or number of heads");
    bool together = !step_has(s, 1);
    int64_t size = q->shape.dims[2] / (together ? heads + 2 * kv_heads : heads);
    graph_shape shape = {3, {q->shape.dims[0], q->shape.dims[1], size * heads}};
    if (!step_give(s, 0, q->type, &shape))
        return false;
    if (!step_out(s, 1) && !step_out(s, 2))
        return true;
    int known = step_ints(s, NULL, 6, total, 1);
    if (known != 1 && !past)
        return step_unknown(s, "how long its keys are, only a run knows");
    int64_t length = known == 1 ? total[0] : 0;
    if (past && past->shape.rank == 4 && past->shape.dims[2] > length)
        length = past->shape.dims[2];
    graph_shape present = {4, {q->shape.dims[0], kv_heads, length, size}};
    return step_give(s, 1, q->type, &present) && step_give(s, 2, q->type, &present);
}

bool rule_recurrent(step *s)
{
    const graph_value *x = step_in(s, 0), *w = step_in(s, 1), *r = step_in(s, 2);
    if (x->shape.rank != 3 || w->shape.rank != 3 || r->shape.rank != 3)
        return step_odd(s, "input, weights or recurrence");
    if (w->shape.dims[2] != x->shape.dims[2])
        return step_wrong(s, "its weights are for rows of %" PRId64 ", not of %" PRId64, w->shape.dims[2],
                          x->shape.dims[2]);
    int64_t ways = onnx_text_is(graph_text(s->node, "direction"), "bidirectional") ? 2 : 1, width = r->shape.dims[2];
    bool batch_first = graph_int(s->node, "layout", 0) == 1;
    int64_t batch = x->shape.dims[batch_first ? 0 : 1], length = x->shape.dims[batch_first ? 1 : 0];
    graph_shape all = {4, {length, ways, batch, width}}, last = {3, {ways, batch, width}};
    if (batch_first) {
        all = (graph_shape){4, {batch, length, ways, width}};
        last = (graph_shape){3, {batch, ways, width}};
    }
    return step_give(s, 0, x->type, &all) && step_give(s, 1, x->type, &last) && step_give(s, 2, x->type, &last);
}
