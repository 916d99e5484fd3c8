/* graph.h: a model's graph as planning sees it: values with types and shapes, nodes in the order in which they run.
 *
 * It is read from an ONNX file whose open dimensions have been given, and inference then finds the shape of every
 * value, so that a graph that was inferred has no unknown left in it. Texts and bytes point into the file, which
 * outlives it. */
#ifndef WI_ONNX_SHAPES_GRAPH_H
#define WI_ONNX_SHAPES_GRAPH_H

#include <weir/plan.h>

#include "onnx/file/main_graph.h"

enum { GRAPH_MAX_RANK = 16 };
#define GRAPH_NONE UINT32_MAX /* no value: an optional input that was left out, or an output that nobody wants */

/* A number of a value whose contents are known: whole numbers and bool in `i`, floats in `f`. */
typedef union graph_number {
    int64_t i;
    double f;
} graph_number;

typedef struct graph_shape {
    uint32_t rank;
    int64_t dims[GRAPH_MAX_RANK]; /* -1: open */
} graph_shape;

typedef struct graph_value {
    onnx_text name;
    int32_t type;       /* ONNX's number of the element type; 0: not known yet */
    bool shaped;        /* `shape`, elements and bytes are known */
    bool declared;      /* the file says something of its shape */
    bool input, output; /* of the graph */
    bool weight;        /* an initializer */
    bool constant;      /* the same in every run: a weight, or made of nothing but weights */
    graph_shape shape, said;
    onnx_text info; /* the ValueInfoProto that declares it */
    uint64_t elements, bytes;
    graph_number *data; /* its contents, where they follow from the dimensions alone and are few; else NULL */
    const uint8_t *proto;
    size_t proto_size;    /* the TensorProto of a weight, or of a node's constant */
    uint32_t maker;       /* node; GRAPH_NONE for inputs and weights */
    struct graph *around; /* of a body: the graph that has this value, as `captured`; NULL: this one has it itself */
    uint32_t captured;
} graph_value;

/* What the branches of a node need, beside what is around them. */
typedef struct graph_branches {
    uint32_t scratch; /* a value as large as the larger branch's arena; GRAPH_NONE: no branches, or no arena needed */
    uint32_t weight_count;
    uint64_t weights, constants; /* bytes of the branches' own, over all branches */
} graph_branches;

typedef struct graph_node {
    onnx_text name, op, domain;
    uint32_t *inputs, *outputs; /* values */
    uint32_t *captured; /* values that the bodies take from the graph around; known once the graph is inferred */
    uint32_t input_count, output_count, captured_count;
    const uint8_t *proto;
    size_t proto_size; /* for attributes */
    uint32_t before; /* values that were named before its outputs were: what its bodies may take has a smaller number */
    graph_branches branches;
    bool known;    /* its operator has a rule; found by inference */
    bool folded;   /* its outputs are constant, or follow from dimensions: it does not run */
    bool branched; /* its branches were planned */
} graph_node;

/* Names of values, and of nothing else. */
typedef struct graph_names {
    uint32_t *slots; /* value + 1; 0: empty */
    size_t capacity; /* a power of two, or 0 */
} graph_names;

/* Values, one after the other. */
typedef struct graph_ids {
    uint32_t *list;
    size_t count, room;
} graph_ids;

/* What the user says of a dimension by its name, or of a value's shape. */
typedef struct graph_given {
    char *name;
    int64_t size;      /* of a dimension */
    graph_shape shape; /* of a value */
    int32_t type;      /* of a value; 0: not told */
    bool used;
} graph_given;

typedef struct graph_givens {
    graph_given *dims, *shapes;
    size_t dim_count, shape_count;
} graph_givens;

typedef struct graph {
    onnx_file *file;
    struct graph *outer; /* whose body it is; NULL: the model's own */
    graph_givens *given;
    graph_value *values;
    graph_node *nodes;
    size_t value_count, value_room, node_count;
    uint32_t *outputs;
    size_t output_count;
    graph_names names;
    graph_ids ids;       /* what the nodes' inputs and outputs point into, */
    graph_ids captures;  /* and their captured values */
    bool functions;      /* the model has operators of its own */
    size_t numbers_left; /* how many numbers may still be kept: a hostile file must not fill the memory */
    size_t bodies;       /* nodes with graphs inside, whose own values are not looked at */
    size_t inside;       /* so many are made there */
    size_t branched;     /* nodes with graphs inside that were planned */
    uint64_t effort;     /* steps of the search that those may still take together; 0: none is searched for */
    uint64_t alignment;  /* of places inside those; 0: 256 */
    bool apart;          /* in branches, no output is written over an input */
    /* What a run of an inferred body takes beside its outputs; false: no host memory. NULL: the arena of its plan. With it the weights
     * and constants of bodies are not counted (graph_branches). */
    bool (*takes)(struct graph *body, const void *user, uint64_t *bytes);
    const void *user;
    size_t guesses; /* values whose shape the file gives otherwise than its operators do */
    uint32_t first_guess;
} graph;

/* Reads the graph of a file that onnx_check found good. The named dimensions get the sizes in `given`; a name without a
 * size there stays open. WEIR_ERR_CORRUPT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_SYSTEM; on failure *out is empty. */
weir_status graph_read(onnx_file *file, graph_givens *given, graph *out);
/* Only its inputs, each with member `input` unless an initializer is its default. Otherwise as graph_read. */
weir_status graph_read_inputs(onnx_file *file, graph_givens *given, graph *out);
/* Reads a body of a node, which takes its values' types and shapes from the graph around it as far as that was
 * inferred; that one outlives it. Errors as above. */
weir_status graph_read_body(graph *outer, onnx_text body, graph *out);
void graph_clear(graph *g);

/* Finds the type and shape of every value, in the order of the nodes, and the contents of those that follow from
 * dimensions. WEIR_ERR_INVALID: the first value without a shape, with what to do; WEIR_ERR_CORRUPT: an operator that
 * cannot be. */
weir_status graph_infer(graph *g);

/* Value by name; GRAPH_NONE if there is none. */
uint32_t graph_find(const graph *g, onnx_text name);

/* Adds a value. The graph has no value of that name yet; an empty name is allowed. WEIR_ERR_SYSTEM without host
 * memory. */
weir_status graph_value_add(graph *g, onnx_text name, uint32_t *out);

/* Appends a number to a list of the graph's. WEIR_ERR_SYSTEM without host memory. */
weir_status graph_id_add(const graph *g, graph_ids *to, uint32_t id);

/* branches.c: lists what the bodies of all nodes take from the graph, and counts the bodies that were not planned. WEIR_ERR_SYSTEM
 * without host memory. */
weir_status graph_capture(graph *g);

/* Lists the names of the value's open dimensions, in order, with an empty text for a dimension without a name. Returns
 * how many dimensions are open. */
uint32_t graph_open_names(const graph_value *value, onnx_text names[GRAPH_MAX_RANK]);
/* What the file says of each of the value's dimensions: a name, or that it is a number; neither: nothing. Answers how many it has. */
uint32_t graph_said_names(const graph_value *value, onnx_text names[GRAPH_MAX_RANK], bool numbers[GRAPH_MAX_RANK]);
/* Writes the names that the inputs' dimensions have, each behind ", ". Answers how many. */
size_t graph_dim_names(const graph *g, char *text, size_t capacity);

/* Where `at` stands in the file, for messages. */
static inline size_t graph_offset(const graph *g, const uint8_t *at)
{
    return (size_t)(at - g->file->data);
}

/* ---- attributes.c: the attributes of a node; one that is not there, or is of another type, is not found ----------------- */

int64_t graph_int(const graph_node *node, const char *name, int64_t otherwise);
double graph_float(const graph_node *node, const char *name, double otherwise);
/* An empty text if the attribute is missing. */
onnx_text graph_text(const graph_node *node, const char *name);

/* Up to `capacity` numbers. -1: not there; -2: more than that. */
int graph_ints(const graph_node *node, const char *name, int64_t *out, int capacity);
int graph_floats(const graph_node *node, const char *name, double *out, int capacity);

/* How many elements a list of whole numbers, floats or texts has; 0 also if the attribute is missing. */
int64_t graph_length(const graph_node *node, const char *name);

/* The TensorProto. False: not there. */
bool graph_tensor(const graph_node *node, const char *name, onnx_text *out);
/* The GraphProto. False: not there. */
bool graph_body(const graph_node *node, const char *name, onnx_text *out);
/* True: the node has an attribute of this name. */
bool graph_has(const graph_node *node, const char *name);

/* ---- contents.c: values whose contents are known before anything runs ------------------------------------------------ */

/* Constants, and what follows from dimensions. Kept only where they are few, as shape arithmetic is. */

enum { GRAPH_NUMBERS = 4096 }; /* most numbers in the contents of a value */

/* Whether numbers of the type are kept in `f`; others of known types are in `i`. */
bool graph_real(int32_t type);

/* Makes room for the contents of a value that has its type and shape. NULL: too many, or no host memory; that is no
 * failure, they are just not known then. */
graph_number *graph_contents_make(graph *g, graph_value *value);

/* The contents of a value, read from the file where it is a weight or a constant that was not read before; NULL: not known. */
const graph_number *graph_contents(graph *g, uint32_t id);

/* Reads a TensorProto's numbers into the value, which has its type and shape. */
void graph_contents_read(graph *g, graph_value *value, const uint8_t *proto, size_t size);

/* The number as a whole one; false: it is none, or beyond what can be. */
bool graph_whole(int32_t type, graph_number number, int64_t *out);

/* ---- memory.c: what the values of an inferred graph take, and when: the list of buffers that is planned ---------------- */

/* Steps are the nodes that run, in the given order, but for those that unpack weights (DequantizeLinear), each of which comes
 * right before the first node that reads it; views take none. Not in the list, because they are no activations:
 * - weights, and views of them;
 * - values that are made of weights alone, and small ones that follow from dimensions: they are worked out once, unless
 *   they are an output.
 * Inputs live from the first step to their last use, outputs up to the last step. Views (Reshape, Flatten, Squeeze,
 * Unsqueeze, Identity, Dropout, a Cast to the same type) share the bytes of what they look at. Where an operator works
 * element by element or row by row and its input is of no use to anybody else, its output may be written over it.
 * The branches of an If are planned by themselves, and the larger arena is one buffer, live in the node's step. */
typedef struct graph_memory {
    weir_buffers *buffers;
    uint32_t *values; /* by buffer */
    uint32_t *order;  /* by step: the node that runs */
    uint32_t count, views;
    size_t steps, folded;        /* nodes that run, and that were worked out */
    uint64_t weights, constants; /* bytes read by nodes that run */
    uint64_t inputs, outputs;    /* bytes of the list that are the graph's */
    uint32_t weight_count;
} graph_memory;

/* `in_place` false: no output is written over an input. `order`: every node once, makers before readers; NULL: as in the file.
 * WEIR_ERR_SYSTEM without host memory; on failure *out is empty. */
weir_status graph_memory_make(const graph *g, bool in_place, const uint32_t *order, graph_memory *out);
void graph_memory_clear(graph_memory *memory);

/* Where a value comes from: "Conv", "input". */
onnx_text graph_origin(const graph *g, uint32_t id);

#endif
