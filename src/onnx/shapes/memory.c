/* See graph.h. */
#include "onnx/shapes/rules.h"
#include <weir/plan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lifetime of a value, and the value that owns the bytes. */
typedef struct life {
    uint64_t begin, end; /* steps; end 0: it is not in the list */
    uint64_t root_end;   /* of a root: with all its views */
    uint32_t root;       /* value whose bytes it is a view of; itself */
    uint32_t buffer;
    bool outside;    /* a weight, a constant, or a view of one */
    bool read;       /* by a node that runs */
    bool is_output;  /* of a root: an output shows it, and nothing may be written over it */
    bool handed_out; /* of a root: an output of a body shows it, which is the node's: its bytes are counted there */
} life;

typedef struct maker {
    const graph *g;
    graph_memory *out;
    life *lives;
    bool in_place;
    const uint32_t *nodes; /* in their order; NULL: as in the file */
} maker;

static uint32_t shapes_memory_node_at(const maker *m, uint32_t place)
{
    return m->nodes ? m->nodes[place] : place;
}

/* Is the first output the first input's very bytes? Dropout is meant as it runs, not as it trains. An operator without a
 * rule here may share its name with an operator of another domain, and nothing else. */
static bool shapes_memory_is_view(const graph *g, const graph_node *node)
{
    static const char views[] = "Reshape Flatten Squeeze Unsqueeze Identity Dropout";
    static const char casts[] = "Cast CastLike";
    if (node->input_count == 0 || node->output_count == 0 || node->inputs[0] == GRAPH_NONE ||
        node->outputs[0] == GRAPH_NONE)
        return false;
    for (uint32_t i = 1; i < node->output_count; i++)
        if (node->outputs[i] != GRAPH_NONE) /* the mask of a Dropout has to be written */
            return false;
    bool same = g->values[node->inputs[0]].type == g->values[node->outputs[0]].type;
    return node->known && (onnx_text_among(node->op, views) || (same && onnx_text_among(node->op, casts)));
}

static bool shapes_memory_is_in_place(const graph_node *node)
{
    const graph_operator *op = node->known ? graph_operator_of(node) : NULL;
    return op && op->in_place;
}

/* Lives ------------------------------------------------------------------------------------------------------------ */

static void shapes_memory_use(maker *m, uint32_t id, uint64_t when)
{
    life *l = &m->lives[id];
    l->read = true;
    if (l->outside)
        return;
    l->end = when + 1 > l->end ? when + 1 : l->end;
    life *root = &m->lives[l->root];
    root->root_end = l->end > root->root_end ? l->end : root->root_end;
}

static void shapes_memory_begin(maker *m, uint32_t id, uint64_t when, uint32_t root)
{
    m->lives[id].begin = when;
    m->lives[id].root = root;
    shapes_memory_use(m, id, when);
    m->lives[id].read = false;
}

/* Begins the life of a view. A view takes no step, and lives as early as the viewed value. */
static void shapes_memory_look(maker *m, const graph_node *node)
{
    const life *in = &m->lives[node->inputs[0]];
    uint32_t id = node->outputs[0];
    m->lives[id].outside = in->outside;
    m->lives[node->inputs[0]].read = true; /* or a weight that is only looked at would not count */
    shapes_memory_begin(m, id, in->begin, in->root);
}

static void run_node(maker *m, uint32_t number)
{
    const graph_node *node = &m->g->nodes[number];
    uint64_t when = m->out->steps;
    if (shapes_memory_is_view(m->g, node)) {
        shapes_memory_look(m, node);
        return;
    }
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != GRAPH_NONE)
            shapes_memory_use(m, node->inputs[i], when);
    for (uint32_t i = 0; i < node->captured_count; i++)
        shapes_memory_use(m, node->captured[i], when);
    for (uint32_t i = 0; i < node->output_count; i++) {
        uint32_t id = node->outputs[i];
        if (id == GRAPH_NONE)
            continue;
        shapes_memory_begin(m, id, when, id);
    }
    if (node->branches.scratch != GRAPH_NONE)
        shapes_memory_begin(m, node->branches.scratch, when, node->branches.scratch);
    m->out->order[m->out->steps++] = number;
}

/* Weights are unpacked where they are read: it depends on nothing, and what it makes is several times as large. */
static bool shapes_memory_waits(const maker *m, const graph_node *node)
{
    if (!node->known || !onnx_text_is(node->op, "DequantizeLinear") || node->folded)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != GRAPH_NONE && !m->lives[node->inputs[i]].outside)
            return false;
    return true;
}

/* Runs the waiting nodes whose values the node or its bodies read. */
static void run_waiting(maker *m, const graph_node *node)
{
    for (uint32_t i = 0; i < node->input_count + node->captured_count; i++) {
        uint32_t id = i < node->input_count ? node->inputs[i] : node->captured[i - node->input_count];
        uint32_t made_by = id == GRAPH_NONE ? GRAPH_NONE : m->g->values[id].maker;
        if (made_by != GRAPH_NONE && m->lives[id].end == 0 && !m->g->nodes[made_by].folded &&
            shapes_memory_waits(m, &m->g->nodes[made_by]))
            run_node(m, made_by);
    }
}

/* Those whose values are outputs of the graph, or that nobody reads, come at the end. */
static void run_rest(maker *m)
{
    for (uint32_t i = 0; i < m->g->node_count; i++) {
        const graph_node *node = &m->g->nodes[i];
        if (shapes_memory_waits(m, node) && node->outputs[0] != GRAPH_NONE && m->lives[node->outputs[0]].end == 0)
            run_node(m, i);
    }
}

/* Makes the outputs live to the last step. An output that is a weight or folded value gets a buffer in the last
 * step. */
static void keep_outputs(maker *m)
{
    uint64_t last = m->out->steps ? m->out->steps - 1 : 0;
    for (size_t i = 0; i < m->g->output_count; i++) {
        life *l = &m->lives[m->g->outputs[i]];
        if (l->outside) {
            l->outside = false;
            shapes_memory_begin(m, m->g->outputs[i], last, m->g->outputs[i]);
        }
        shapes_memory_use(m, m->g->outputs[i], last);
        m->lives[l->root].is_output = true;
    }
}

/* The outputs of a body are written where those of its node lie. */
static void leave_outputs(maker *m)
{
    for (size_t i = 0; i < m->g->output_count; i++) {
        life *root = &m->lives[m->lives[m->g->outputs[i]].root];
        root->is_output = root->handed_out = true;
    }
    for (uint32_t i = 0; i < m->g->value_count; i++)
        if (m->lives[m->lives[i].root].handed_out)
            m->lives[i].end = 0;
}

static void live(maker *m)
{
    const graph *g = m->g;
    for (uint32_t i = 0; i < g->value_count; i++) {
        const graph_value *value = &g->values[i];
        m->lives[i] = (life){.root = i};
        m->lives[i].outside =
            value->weight || value->around || (value->maker != GRAPH_NONE && g->nodes[value->maker].folded);
        if (value->input)
            shapes_memory_begin(m, i, 0, i);
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        uint32_t number = shapes_memory_node_at(m, i);
        if (g->nodes[number].folded) {
            m->out->folded++;
        } else if (!shapes_memory_waits(m, &g->nodes[number])) {
            run_waiting(m, &g->nodes[number]);
            run_node(m, number);
        }
    }
    run_rest(m);
    if (g->outer)
        leave_outputs(m);
    else
        keep_outputs(m);
}

/* The list --------------------------------------------------------------------------------------------------------- */

/* The first input that the output may be written over; GRAPH_NONE: there is none. */
static uint32_t written_over(const maker *m, uint32_t id)
{
    const graph_value *value = &m->g->values[id];
    const graph_node *node = value->maker == GRAPH_NONE ? NULL : &m->g->nodes[value->maker];
    if (!m->in_place || !node || node->outputs[0] != id || node->folded || !shapes_memory_is_in_place(node))
        return GRAPH_NONE;
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t in = node->inputs[i];
        if (in == GRAPH_NONE || m->lives[in].outside || m->g->values[in].bytes != value->bytes ||
            m->g->values[in].elements != value->elements)
            continue;
        uint32_t root = m->lives[in].root; /* as long as its views: none of them is a part */
        if (!m->lives[root].is_output && m->lives[root].root_end == m->lives[id].begin + 1)
            return root;
    }
    return GRAPH_NONE;
}

static weir_status shapes_memory_add(maker *m, uint32_t id)
{
    life *l = &m->lives[id];
    const graph_value *value = &m->g->values[id];
    char name[256];
    size_t length = value->name.size < sizeof name ? value->name.size : sizeof name - 1;
    while (length > 0 && length < value->name.size && (value->name.text[length] & 0xc0) == 0x80)
        length--; /* not in the middle of a character */
    snprintf(name, sizeof name, "%.*s", (int)length, length ? value->name.text : "");
    weir_buffer buffer = {
        .struct_size = sizeof buffer, .name = name, .bytes = value->bytes, .begin = l->begin, .end = l->end};
    uint32_t over = l->root == id ? written_over(m, id) : GRAPH_NONE;
    if (l->root != id) {
        buffer.sharing = WEIR_SHARING_VIEW;
        buffer.of = m->lives[l->root].buffer;
        m->out->views++;
    } else if (over != GRAPH_NONE) {
        buffer.sharing = WEIR_SHARING_IN_PLACE;
        buffer.of = m->lives[over].buffer;
    }
    l->buffer = m->out->count;
    m->out->values[m->out->count++] = id;
    m->out->inputs += value->input ? value->bytes : 0;
    m->out->outputs += value->output ? value->bytes : 0;
    return weir_buffers_add(m->out->buffers, &buffer, NULL);
}

/* Adds the buffers in the order of the nodes that make the values, so that a shared buffer is added before the buffers
 * that share it. */
static weir_status shapes_memory_add_all(maker *m)
{
    const graph *g = m->g;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < g->value_count; i++)
        if (g->values[i].maker == GRAPH_NONE && m->lives[i].end > 0)
            status = shapes_memory_add(m, i);
    for (uint32_t i = 0; status == WEIR_OK && i < g->node_count; i++) {
        const graph_node *node = &g->nodes[shapes_memory_node_at(m, i)];
        for (uint32_t k = 0; status == WEIR_OK && k <= node->output_count; k++) {
            uint32_t id = k < node->output_count ? node->outputs[k] : node->branches.scratch;
            if (id != GRAPH_NONE && m->lives[id].end > 0)
                status = shapes_memory_add(m, id);
        }
    }
    if (status != WEIR_OK || m->out->steps == 0) /* no node runs: all buffers live in a single step */
        return status;
    return weir_buffers_schedule(m->out->buffers, m->out->order, m->out->steps);
}

static void count_weights(const maker *m)
{
    for (uint32_t i = 0; i < m->g->value_count; i++) {
        const graph_value *value = &m->g->values[i];
        if (!m->lives[i].read || m->lives[i].root != i || value->around || !(m->lives[i].outside || value->weight))
            continue;
        m->out->weight_count += value->weight;
        *(value->weight ? &m->out->weights : &m->out->constants) += value->bytes;
    }
    for (size_t i = 0; i < m->g->node_count; i++) {
        const graph_branches *branches = &m->g->nodes[i].branches;
        m->out->weight_count += branches->weight_count;
        m->out->weights += branches->weights;
        m->out->constants += branches->constants;
    }
}

weir_status graph_memory_make(const graph *g, bool in_place, const uint32_t *order, graph_memory *out)
{
    *out = (graph_memory){.count = 0};
    maker m = {.g = g, .out = out, .in_place = in_place, .nodes = order};
    m.lives = calloc(g->value_count + 1, sizeof *m.lives);
    out->order = calloc(g->node_count + 1, sizeof *out->order);
    out->values = calloc(g->value_count + 1, sizeof *out->values);
    weir_status status = m.lives && out->order && out->values
                             ? weir_buffers_create(&out->buffers)
                             : weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its buffers", g->file->name);
    if (status == WEIR_OK) {
        live(&m);
        status = shapes_memory_add_all(&m);
        count_weights(&m);
    }
    free(m.lives);
    if (status != WEIR_OK)
        graph_memory_clear(out);
    return status;
}

void graph_memory_clear(graph_memory *memory)
{
    weir_buffers_destroy(memory->buffers);
    free(memory->values);
    free(memory->order);
    *memory = (graph_memory){.count = 0};
}

onnx_text graph_origin(const graph *g, uint32_t id)
{
    static const onnx_text input = {"input", 5};
    uint32_t node = g->values[id].maker;
    return node == GRAPH_NONE ? input : g->nodes[node].op;
}
