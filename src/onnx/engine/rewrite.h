/* Forecasts of ONNX Runtime's work on a graph: the nodes that its optimizer makes, the order of running, known sizes, and the
 * workspaces of kernels. */
#ifndef WEIR_ONNX_REWRITE_H
#define WEIR_ONNX_REWRITE_H

#include "onnx/shapes/graph.h"

/* ---- rewrite.c --------------------------------------------------------------------------------------------------- */

/* A graph rewritten the way ONNX Runtime's optimizer does. Several nodes are joined into a new node, behind all nodes
 * of the graph or in the place of the first joined node. Values between the joined nodes have no maker afterwards. */

enum { REWRITE_MOST = 16 };

typedef struct rewrite {
    graph
        g; /* a copy of an inferred graph, with nodes and values of its own; the rest is the other's, which outlives it */
    graph *file;           /* the other, and */
    const uint32_t *known; /* onnx_known's of it; for fusion.c */
    uint32_t *readers;     /* by value: how often it is read, or handed out */
    uint32_t *reader;      /* by value: the last node known to read it */
    uint32_t *ids;         /* inputs of the nodes, one after the other */
    uint32_t *like,
        first_added; /* by value that was added, from the first on: the file's value of the same type and shape */
    size_t used, room, node_room, value_room;
    uint32_t inside[REWRITE_MOST], count; /* values between the nodes that are looked at */
} rewrite;

/* Copies the graph. `known` is onnx_known's, NULL: all dimensions are numbers in the file; values that depend on
 * open dimensions are computed in each run. With `optimized`, duplicates of a node and nodes that only copy are left
 * out. Nodes without a kernel are replaced by the nodes that run instead. false: no host memory. rewrite_clear is
 * needed in any case. */
bool rewrite_begin(graph *g, const uint32_t *known, bool optimized, rewrite *out);
void rewrite_clear(rewrite *r);

/* A weight, or made of nothing but weights. */
bool rewrite_constant(const rewrite *r, uint32_t id);
/* The node that makes it; GRAPH_NONE: none that runs. */
uint32_t rewrite_maker(const rewrite *r, uint32_t id);
/* The node is there, of one of those kinds (onnx_text_among), and has a first input and one output. */
bool rewrite_is(const rewrite *r, uint32_t node, const char *kinds);
/* The only node that reads the value, whose only output it is; GRAPH_NONE: there are several, or it is handed out. */
uint32_t rewrite_reader(const rewrite *r, uint32_t id);
/* The only reader of the value, if of one of the kinds; GRAPH_NONE: otherwise. */
uint32_t rewrite_read_by(const rewrite *r, uint32_t id, const char *kinds);
/* Of a node with two inputs, the input beside `id`; GRAPH_NONE: the node has not two inputs, or is none. */
uint32_t rewrite_other(const rewrite *r, uint32_t node, uint32_t id);

/* Another value is between the nodes that are looked at. false: there are too many. */
bool rewrite_put(rewrite *r, uint32_t id);
/* The makers of all that was put, and `first` and `last`, become one node with the outputs of `last`, and with the attributes and,
 * before all others, the inputs of `first`. It is called `op`; NULL: as `first` is. `stays`: in its place. */
void rewrite_join(rewrite *r, const char *op, uint32_t first, uint32_t last, bool stays);
/* Merges nodes with the same first input into a node that reads this input alone and makes the first outputs of all. */
void rewrite_merge(rewrite *r, const char *op, const uint32_t *nodes, uint32_t count);
/* Makes the node read the value `id` as this input. The maker of the former value is left out, if the value is its only
 * output and has no reader any more. */
void rewrite_redirect(rewrite *r, uint32_t node, uint32_t input, uint32_t id);

/* ---- fusion.c ---------------------------------------------------------------------------------------------------- */

/* What ONNX Runtime's optimizer makes of a graph, as far as it decides what a run takes. */

/* Rewrites the graph into the graph that runs at a level of optimization (ONNX Runtime's number). Nodes that ONNX
 * Runtime fuses become a single node. A fused node comes after all nodes of the file where ONNX Runtime places it
 * there. `known` is onnx_known's, NULL: all dimensions are numbers in the file. rewrite_clear is needed in any case.
 * false: no host memory. */
bool onnx_fuse(graph *g, const uint32_t *known, int optimization, bool cuda, rewrite *out);

/* ---- known.c ----------------------------------------------------------------------------------------------------- */

/* Which dimensions ONNX Runtime knows before a run: numbers in the file, dimensions that follow from numbers, and
 * dimensions with the name of an input's open dimension. Values of shapes that are not known share no place. */

/* By value and dimension (GRAPH_MAX_RANK of each value): ONNX_UNKNOWN, ONNX_NUMBER, or else the same for the same name. */
enum { ONNX_UNKNOWN, ONNX_NUMBER };

/* Of an inferred graph, as it is in the file, with room for a value more for each node; for free. NULL: no host memory. */
uint32_t *onnx_known(graph *g);

/* ---- order.c ----------------------------------------------------------------------------------------------------- */

/* In which order ONNX Runtime runs the nodes of a graph. */

/* Fills `order`, which has room for all nodes of an inferred graph. false: no host memory. */
bool onnx_order(const graph *g, uint32_t *order);

/* ---- numbers of bytes, which saturate ----------------------------------------------------------------------------- */

static inline uint64_t onnx_plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- workspace.c ------------------------------------------------------------------------------------------------- */

/* What the CPU's kernels work in beside their inputs and outputs. */

/* Bytes that the node's kernel has at a time, each block as it is charged, in an inferred graph; saturates. 0: none that is known. */
uint64_t onnx_workspace(const graph *g, const graph_node *node, int threads);

/* LSTM or GRU of the standard. */
bool onnx_is_recurrent(const graph_node *node);

#endif
