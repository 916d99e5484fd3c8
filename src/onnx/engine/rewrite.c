/* A graph rewritten as ONNX Runtime's optimizer does (rewrite.h). */
#include "rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "onnx/file/wire.h"
#include "onnx/shapes/graph.h"

enum { NODE_ATTRIBUTE = 5 };

/* ---- the copy ------------------------------------------------------------------------------------------------------- */

static void read_once(rewrite *r, uint32_t id, uint32_t node)
{
    if (id == GRAPH_NONE)
        return;
    r->readers[id]++;
    r->reader[id] = node;
}

static void find_readers(rewrite *r)
{
    const graph *g = &r->g;
    for (uint32_t id = 0; id < g->value_count; id++) {
        r->readers[id] = g->values[id].output;
        r->reader[id] = GRAPH_NONE;
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        for (uint32_t k = 0; k < g->nodes[i].input_count; k++)
            read_once(r, g->nodes[i].inputs[k], i);
        for (uint32_t k = 0; k < g->nodes[i].captured_count; k++)
            read_once(r, g->nodes[i].captured[k], i);
    }
}

static uint32_t *rewrite_take(rewrite *r, const uint32_t *from, uint32_t count)
{
    uint32_t *ids = r->ids + r->used;
    for (uint32_t i = 0; i < count; i++)
        ids[i] = from[i];
    r->used += count;
    return ids;
}

/* Room for three times as many nodes, a value more for each and, as each is joined a few times at the most, for all their inputs
 * again. */
static bool rewrite_copy(const graph *g, rewrite *r)
{
    size_t edges = 0;
    for (size_t i = 0; i < g->node_count; i++)
        edges += (size_t)g->nodes[i].input_count + g->nodes[i].captured_count + g->nodes[i].output_count;
    r->g = *g;
    r->node_room = 3 * g->node_count + 1;
    r->value_room = g->value_count + g->node_count;
    r->first_added = (uint32_t)g->value_count;
    r->room = 6 * edges + 1;
    r->g.nodes = calloc(r->node_room, sizeof *r->g.nodes);
    r->g.values = calloc(r->value_room + 1, sizeof *r->g.values);
    r->readers = calloc(r->value_room + 1, sizeof *r->readers);
    r->reader = calloc(r->value_room + 1, sizeof *r->reader);
    r->ids = calloc(r->room, sizeof *r->ids);
    r->like = calloc(g->node_count + 1, sizeof *r->like);
    if (!r->g.nodes || !r->g.values || !r->readers || !r->reader || !r->ids || !r->like)
        return false;
    if (g->value_count > 0)
        memcpy(r->g.values, g->values, g->value_count * sizeof *g->values);
    for (size_t i = 0; i < g->node_count; i++) {
        graph_node *node = &r->g.nodes[i];
        *node = g->nodes[i];
        node->inputs = rewrite_take(r, node->inputs, node->input_count);
        node->outputs = rewrite_take(r, node->outputs, node->output_count);
        node->captured = rewrite_take(r, node->captured, node->captured_count);
    }
    return true;
}

void rewrite_clear(rewrite *r)
{
    free(r->g.nodes);
    free(r->g.values);
    free(r->readers);
    free(r->reader);
    free(r->ids);
    free(r->like);
    *r = (rewrite){.used = 0};
}

/* ---- nodes that are left out ------------------------------------------------------------------------------------------ */

static void rewrite_leave_out(graph_node *node)
{
    node->input_count = node->output_count = node->captured_count = 0;
    node->folded = true;
}

/* The bytes of its next attribute. */
static bool next_attribute(onnx_wire *wire, onnx_field *out)
{
    while (onnx_wire_next(wire, out) == 1)
        if (out->number == NODE_ATTRIBUTE)
            return true;
    return false;
}

static bool same_attributes(const graph_node *a, const graph_node *b)
{
    onnx_wire one = onnx_wire_of(a->proto, a->proto_size), other = onnx_wire_of(b->proto, b->proto_size);
    onnx_field x, y;
    for (;;) {
        bool more = next_attribute(&one, &x);
        if (more != next_attribute(&other, &y))
            return false;
        if (!more)
            return true;
        if (x.size != y.size || memcmp(x.data, y.data, x.size) != 0)
            return false;
    }
}

static bool same_node(const graph_node *a, const graph_node *b)
{
    return onnx_text_same(a->op, b->op) && onnx_text_same(a->domain, b->domain) && a->input_count == b->input_count &&
           a->output_count == b->output_count &&
           memcmp(a->inputs, b->inputs, a->input_count * sizeof *a->inputs) == 0 && same_attributes(a, b);
}

/* Not where a body may do anything, or numbers are drawn, or somebody outside has its outputs. */
static bool rewrite_may_go(const graph *g, const graph_node *node)
{
    if (node->folded || !node->known || node->captured_count > 0 || node->branches.scratch != GRAPH_NONE ||
        node->input_count == 0 || node->inputs[0] == GRAPH_NONE || onnx_text_is(node->op, "Dropout") ||
        onnx_text_is(node->op, "If"))
        return false;
    for (uint32_t i = 0; i < node->output_count; i++)
        if (node->outputs[i] != GRAPH_NONE && g->values[node->outputs[i]].output)
            return false;
    return true;
}

/* By value: the first node in the file that reads it first of all, and by node the next such, of those that may be met again. */
typedef struct twins {
    uint32_t *head, *next;
    uint32_t *same; /* by value: the equal value to read instead; the value itself if none */
} twins;

static const graph_node *find_twin(const graph *g, const twins *t, const graph_node *node)
{
    enum { MOST = 32 };
    uint32_t at = t->head[node->inputs[0]];
    for (int i = 0; i < MOST && at != GRAPH_NONE; i++, at = t->next[at])
        if (same_node(&g->nodes[at], node))
            return &g->nodes[at];
    return NULL;
}

static bool is_neutral(graph *file, const graph_node *node, uint32_t input)
{
    double neutral = onnx_text_is(node->op, "Mul") || onnx_text_is(node->op, "Div") ? 1 : 0;
    bool both = onnx_text_is(node->op, "Mul") || onnx_text_is(node->op, "Add");
    const graph_value *value = &file->values[node->inputs[input]];
    if ((!both && input == 0) || !value->constant || value->elements != 1)
        return false;
    const graph_number *number = graph_contents(file, node->inputs[input]);
    double is = !number ? 2 : graph_real(value->type) ? number->f : (double)number->i;
    return is >= neutral && is <= neutral;
}

/* True: the node is a Slice with open ends, and takes the whole input. */
static bool takes_all(graph *file, const graph_node *node)
{
    if (!onnx_text_is(node->op, "Slice") || node->input_count < 3 || node->inputs[2] == GRAPH_NONE)
        return false;
    const graph_value *x = &file->values[node->inputs[0]], *out = &file->values[node->outputs[0]],
                      *ends = &file->values[node->inputs[2]];
    const graph_number *numbers = ends->constant ? graph_contents(file, node->inputs[2]) : NULL;
    bool all = numbers && x->shape.rank == out->shape.rank && x->elements == out->elements;
    for (uint64_t i = 0; all && i < ends->elements; i++)
        all = numbers[i].i >= INT32_MAX;
    return all;
}

/* The input that the node's output is a copy of: there is nothing to add, or it is multiplied with 1. GRAPH_NONE: there is none. */
static uint32_t rewrite_original(graph *file, const graph_node *node)
{
    if (node->output_count != 1 || node->outputs[0] == GRAPH_NONE)
        return GRAPH_NONE;
    if ((onnx_text_is(node->op, "Identity") && node->input_count == 1) || takes_all(file, node))
        return node->inputs[0];
    if (!onnx_text_among(node->op, "Add Sub Mul Div") || node->input_count != 2 || node->inputs[1] == GRAPH_NONE)
        return GRAPH_NONE;
    for (uint32_t k = 0; k < 2; k++) {
        const graph_value *rest = &file->values[node->inputs[!k]], *out = &file->values[node->outputs[0]];
        if (rest->elements == out->elements && rest->shape.rank == out->shape.rank && is_neutral(file, node, k))
            return node->inputs[!k];
    }
    return GRAPH_NONE;
}

static void look_for_twin(graph *file, graph *g, twins *t, uint32_t number)
{
    graph_node *node = &g->nodes[number];
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] != GRAPH_NONE)
            node->inputs[k] = t->same[node->inputs[k]];
    for (uint32_t k = 0; k < node->captured_count; k++)
        node->captured[k] = t->same[node->captured[k]];
    if (!rewrite_may_go(g, node))
        return;
    const graph_node *twin = find_twin(g, t, node);
    uint32_t same = rewrite_original(file, node);
    if (same != GRAPH_NONE) {
        t->same[node->outputs[0]] = same;
        rewrite_leave_out(node);
    } else if (twin) {
        for (uint32_t k = 0; k < node->output_count; k++)
            if (node->outputs[k] != GRAPH_NONE && twin->outputs[k] != GRAPH_NONE)
                t->same[node->outputs[k]] = twin->outputs[k];
        rewrite_leave_out(node);
    } else {
        t->next[number] = t->head[node->inputs[0]];
        t->head[node->inputs[0]] = number;
    }
}

static bool leave_twins_out(graph *file, graph *g)
{
    twins t = {.head = calloc(g->value_count + 1, sizeof *t.head),
               .next = calloc(g->node_count + 1, sizeof *t.next),
               .same = calloc(g->value_count + 1, sizeof *t.same)};
    bool good = t.head && t.next && t.same;
    for (uint32_t i = 0; good && i < g->value_count; i++) {
        t.head[i] = GRAPH_NONE;
        t.same[i] = i;
    }
    for (uint32_t i = 0; good && i < g->node_count; i++)
        look_for_twin(file, g, &t, i);
    free(t.head);
    free(t.next);
    free(t.same);
    return good;
}

/* ---- nodes that run all the same -------------------------------------------------------------------------------------- */

static bool rewrite_is_number(const rewrite *r, const uint32_t *known, uint32_t id)
{
    bool all = true;
    for (uint32_t i = 0; i < r->g.values[id].shape.rank; i++)
        all &= known[(size_t)id * GRAPH_MAX_RANK + i] == ONNX_NUMBER;
    return all;
}

/* What follows from the sizes of a run is worked out there; in the order of the file, makers come first. */
static void run_what_depends(rewrite *r, const uint32_t *known)
{
    for (size_t i = 0; i < r->g.node_count; i++) {
        graph_node *node = &r->g.nodes[i];
        bool measures = onnx_text_is(node->op, "Shape") || onnx_text_is(node->op, "Size"); /* one input, if folded */
        bool runs = node->folded && measures && !rewrite_is_number(r, known, node->inputs[0]);
        for (uint32_t k = 0; node->folded && !measures && k < node->input_count; k++)
            runs |= rewrite_maker(r, node->inputs[k]) != GRAPH_NONE;
        if (runs)
            node->folded = false;
    }
}

/* Adds a value with the type and shape of `id`; GRAPH_NONE: no room. */
static uint32_t add_value(rewrite *r, uint32_t id, uint32_t maker)
{
    if (r->g.value_count == r->value_room)
        return GRAPH_NONE;
    uint32_t added = (uint32_t)r->g.value_count++;
    r->g.values[added] = r->g.values[id];
    r->g.values[added].output = false;
    r->g.values[added].maker = maker;
    r->like[added - r->first_added] = id;
    return added;
}

/* A HardSwish is a HardSigmoid and a product. */
static void spell_out(rewrite *r, uint32_t number)
{
    graph_node *node = &r->g.nodes[number];
    if (!rewrite_is(r, number, "HardSwish") || r->g.node_count + 2 > r->node_room || r->room - r->used < 4)
        return;
    uint32_t first = (uint32_t)r->g.node_count, last = first + 1, x = node->inputs[0], out = node->outputs[0];
    uint32_t between = add_value(r, out, first);
    if (between == GRAPH_NONE)
        return;
    uint32_t ids[] = {x, between, x, between};
    uint32_t *copied = rewrite_take(r, ids, 4);
    r->g.nodes[first] = *node;
    r->g.nodes[first].op = (onnx_text){"HardSigmoid", 11};
    r->g.nodes[first].inputs = copied;
    r->g.nodes[first].outputs = copied + 1;
    r->g.nodes[last] = *node;
    r->g.nodes[last].op = (onnx_text){"Mul", 3};
    r->g.nodes[last].inputs = copied + 2;
    r->g.nodes[last].input_count = 2;
    r->g.values[out].maker = last;
    r->g.node_count += 2;
    rewrite_leave_out(node);
}

bool rewrite_begin(graph *g, const uint32_t *known, bool optimized, rewrite *out)
{
    *out = (rewrite){.used = 0};
    bool good = rewrite_copy(g, out);
    if (good && known)
        run_what_depends(out, known);
    good = good && (!optimized || leave_twins_out(g, &out->g));
    for (uint32_t i = 0; good && i < g->node_count; i++)
        spell_out(out, i);
    if (good)
        find_readers(out);
    return good;
}

/* ---- looking around --------------------------------------------------------------------------------------------------- */

bool rewrite_constant(const rewrite *r, uint32_t id)
{
    if (id == GRAPH_NONE)
        return false;
    const graph_value *value = &r->g.values[id];
    return value->constant || (value->maker != GRAPH_NONE && r->g.nodes[value->maker].folded);
}

uint32_t rewrite_maker(const rewrite *r, uint32_t id)
{
    uint32_t maker = id == GRAPH_NONE || r->g.values[id].around ? GRAPH_NONE : r->g.values[id].maker;
    return maker == GRAPH_NONE || r->g.nodes[maker].folded ? GRAPH_NONE : maker;
}

bool rewrite_is(const rewrite *r, uint32_t node, const char *kinds)
{
    const graph_node *it = node == GRAPH_NONE ? NULL : &r->g.nodes[node];
    return it && !it->folded && onnx_text_among(it->op, kinds) && it->output_count == 1 && it->input_count > 0 &&
           it->inputs[0] != GRAPH_NONE && it->outputs[0] != GRAPH_NONE;
}

uint32_t rewrite_reader(const rewrite *r, uint32_t id)
{
    return id == GRAPH_NONE || r->readers[id] != 1 ? GRAPH_NONE : r->reader[id];
}

uint32_t rewrite_read_by(const rewrite *r, uint32_t id, const char *kinds)
{
    uint32_t node = rewrite_reader(r, id);
    return rewrite_is(r, node, kinds) ? node : GRAPH_NONE;
}

uint32_t rewrite_other(const rewrite *r, uint32_t node, uint32_t id)
{
    const graph_node *it = node == GRAPH_NONE ? NULL : &r->g.nodes[node];
    return !it || it->input_count != 2 ? GRAPH_NONE : it->inputs[it->inputs[0] == id];
}

/* ---- joining ---------------------------------------------------------------------------------------------------------- */

bool rewrite_put(rewrite *r, uint32_t id)
{
    if (r->count == REWRITE_MOST)
        return false;
    r->inside[r->count++] = id;
    return true;
}

static bool rewrite_among(const uint32_t *list, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (list[i] == id)
            return true;
    return false;
}

/* Lists the nodes to be joined, beginning with `first`. */
static uint32_t members(const rewrite *r, uint32_t first, uint32_t last, uint32_t *out)
{
    uint32_t count = 0;
    out[count++] = first;
    for (uint32_t i = 0; i < r->count; i++) {
        uint32_t maker = r->g.values[r->inside[i]].maker;
        if (maker != GRAPH_NONE && !rewrite_among(out, count, maker))
            out[count++] = maker;
    }
    if (!rewrite_among(out, count, last))
        out[count++] = last;
    return count;
}

/* Lists the inputs of the joined node, and takes the nodes to be joined out of the counts of readers. */
static uint32_t rewrite_gather(rewrite *r, const uint32_t *nodes, uint32_t count, uint32_t *inputs)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        graph_node *node = &r->g.nodes[nodes[i]];
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t id = node->inputs[k];
            if (id == GRAPH_NONE)
                continue;
            r->readers[id]--;
            if (!rewrite_among(r->inside, r->count, id) && !rewrite_among(inputs, found, id))
                inputs[found++] = id;
        }
    }
    return found;
}

void rewrite_join(rewrite *r, const char *op, uint32_t first, uint32_t last, bool stays)
{
    uint32_t nodes[REWRITE_MOST + 2], count = members(r, first, last, nodes), *inputs = r->ids + r->used;
    size_t most = 0;
    for (uint32_t i = 0; i < count; i++)
        most += r->g.nodes[nodes[i]].input_count;
    if (most > r->room - r->used || (!stays && r->g.node_count == r->node_room))
        return;
    uint32_t at = stays ? first : (uint32_t)r->g.node_count++;
    graph_node joined = r->g.nodes[first];
    joined.inputs = inputs;
    joined.input_count = rewrite_gather(r, nodes, count, inputs);
    joined.outputs = r->g.nodes[last].outputs;
    joined.output_count = r->g.nodes[last].output_count;
    joined.op = op ? (onnx_text){op, strlen(op)} : joined.op;
    r->used += joined.input_count;
    for (uint32_t i = 0; i < count; i++)
        rewrite_leave_out(&r->g.nodes[nodes[i]]);
    for (uint32_t i = 0; i < r->count; i++)
        r->g.values[r->inside[i]].maker = GRAPH_NONE;
    r->g.nodes[at] = joined;
    for (uint32_t k = 0; k < joined.input_count; k++)
        read_once(r, joined.inputs[k], at);
    for (uint32_t k = 0; k < joined.output_count; k++)
        if (joined.outputs[k] != GRAPH_NONE)
            r->g.values[joined.outputs[k]].maker = at;
}

void rewrite_merge(rewrite *r, const char *op, const uint32_t *nodes, uint32_t count)
{
    if (r->room - r->used < count + 1 || r->g.node_count == r->node_room)
        return;
    uint32_t at = (uint32_t)r->g.node_count++, id = r->g.nodes[nodes[0]].inputs[0];
    graph_node merged = r->g.nodes[nodes[0]];
    merged.op = (onnx_text){op, strlen(op)};
    merged.inputs = rewrite_take(r, &id, 1);
    merged.input_count = 1;
    merged.outputs = r->ids + r->used;
    merged.output_count = count;
    for (uint32_t i = 0; i < count; i++) {
        graph_node *node = &r->g.nodes[nodes[i]];
        rewrite_take(r, node->outputs, 1);
        r->g.values[node->outputs[0]].maker = at;
        for (uint32_t k = 0; k < node->input_count; k++)
            if (node->inputs[k] != GRAPH_NONE)
                r->readers[node->inputs[k]]--;
        rewrite_leave_out(node);
    }
    r->g.nodes[at] = merged;
    read_once(r, id, at);
}

/* Leaves out a node whose output has no reader any more. */
static void rewrite_drop(rewrite *r, uint32_t node)
{
    graph_node *it = &r->g.nodes[node];
    for (uint32_t k = 0; k < it->input_count; k++)
        if (it->inputs[k] != GRAPH_NONE)
            r->readers[it->inputs[k]]--;
    rewrite_leave_out(it);
}

void rewrite_redirect(rewrite *r, uint32_t node, uint32_t input, uint32_t id)
{
    uint32_t before = r->g.nodes[node].inputs[input], maker = rewrite_maker(r, before);
    if (r->reader[before] == node)
        r->reader[before] = GRAPH_NONE;
    r->g.nodes[node].inputs[input] = id;
    read_once(r, id, node);
    if (--r->readers[before] == 0 && maker != GRAPH_NONE && r->g.nodes[maker].output_count == 1)
        rewrite_drop(r, maker);
}
