/* The order in which ONNX Runtime runs the nodes of a graph (rewrite.h). The walk goes from the last node without
 * readers back to the makers of its inputs, first to the maker that comes last in the file, and runs a node when all
 * inputs of the node are made. So a branch is run to its end before the next branch begins, in any order of the file.
 * The order decides how many bytes are live at a time (seen in 1.23 to 1.31). */
#include "rewrite.h"

#include <stdlib.h>

typedef struct entry {
    uint32_t node;
    bool runs; /* all inputs are made; false: the node is to be visited */
} entry;

typedef struct walk {
    const graph *g;
    entry *stack;
    uint32_t *order, *makers; /* of the node that is looked at */
    bool *seen;
    size_t height, count;
} walk;

/* Values with contents that are known take no node. */
static uint32_t onnx_order_maker_of(const graph *g, uint32_t id)
{
    uint32_t node = id == GRAPH_NONE || g->values[id].around ? GRAPH_NONE : g->values[id].maker;
    return node == GRAPH_NONE || g->nodes[node].folded ? GRAPH_NONE : node;
}

static int onnx_order_by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void onnx_order_look_at(walk *w, uint32_t number)
{
    const graph_node *node = &w->g->nodes[number];
    uint32_t count = 0;
    w->stack[w->height++] = (entry){number, true};
    for (uint32_t i = 0; i < node->input_count + node->captured_count; i++) {
        uint32_t id = i < node->input_count ? node->inputs[i] : node->captured[i - node->input_count];
        uint32_t maker = onnx_order_maker_of(w->g, id);
        if (maker != GRAPH_NONE && !w->seen[maker])
            w->makers[count++] = maker;
    }
    qsort(w->makers, count, sizeof *w->makers, onnx_order_by_number);
    for (uint32_t i = 0; i < count; i++)
        w->stack[w->height++] = (entry){w->makers[i], false};
}

static void onnx_order_go(walk *w)
{
    while (w->height > 0) {
        entry top = w->stack[--w->height];
        if (top.runs) {
            w->order[w->count++] = top.node;
        } else if (!w->seen[top.node]) {
            w->seen[top.node] = true;
            onnx_order_look_at(w, top.node);
        }
    }
}

/* Puts the nodes that do not run first in the order, and the nodes without readers on the stack. */
static void onnx_order_begin(walk *w, bool *read)
{
    const graph *g = w->g;
    for (uint32_t i = 0; i < g->node_count; i++)
        for (uint32_t k = 0; !g->nodes[i].folded && k < g->nodes[i].input_count + g->nodes[i].captured_count; k++) {
            const graph_node *node = &g->nodes[i];
            uint32_t id = k < node->input_count ? node->inputs[k] : node->captured[k - node->input_count];
            uint32_t maker = onnx_order_maker_of(g, id);
            if (maker != GRAPH_NONE)
                read[maker] = true;
        }
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].folded)
            w->order[w->count++] = i;
        else if (!read[i])
            w->stack[w->height++] = (entry){i, false};
}

bool onnx_order(const graph *g, uint32_t *order)
{
    size_t edges = 0;
    for (size_t i = 0; i < g->node_count; i++)
        edges += (size_t)g->nodes[i].input_count + g->nodes[i].captured_count;
    walk w = {.g = g};
    w.order = order;
    bool *read = calloc(g->node_count + 1, sizeof *read);
    w.stack = calloc(edges + 2 * g->node_count + 1, sizeof *w.stack);
    w.makers = calloc(edges + 1, sizeof *w.makers);
    w.seen = calloc(g->node_count + 1, sizeof *w.seen);
    bool good = read && w.stack && w.makers && w.seen;
    if (good) {
        onnx_order_begin(&w, read);
        onnx_order_go(&w);
    }
    free(read);
    free(w.stack);
    free(w.makers);
    free(w.seen);
    return good;
}
