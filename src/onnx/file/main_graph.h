/* The main graph of a checked ONNX file: what weir needs to know before and beside ONNX Runtime. */
#ifndef WI_ONNX_FILE_MAIN_GRAPH_H
#define WI_ONNX_FILE_MAIN_GRAPH_H

#include "onnx/file/tensor.h"

typedef struct onnx_value {
    onnx_text name;
    const uint8_t *at;
    enum { ONNX_VALUE_TENSOR, ONNX_VALUE_NOT_TENSOR, ONNX_VALUE_UNTYPED } kind;
    const char *what; /* "sequence" … when it is no tensor */
    int32_t type;
    bool shaped; /* its rank is known */
    uint32_t rank;
    int64_t shape[ONNX_MAX_RANK]; /* -1: any extent */
} onnx_value;

typedef struct onnx_graph {
    const uint8_t *data; /* of the GraphProto */
    size_t size;
    const uint8_t *begin, *end; /* the whole field in the model */
    size_t nodes;
    uint64_t ir;    /* version of the format; 0: not said */
    bool functions; /* the model defines functions */
    bool plain;     /* as of the file */
    onnx_value *inputs, *outputs;
    size_t input_count, output_count;
    onnx_tensor *weights; /* the initializers, in order */
    size_t weight_count;
    onnx_tensor *inner; /* onnx_graph_read_inner */
    size_t inner_count;
} onnx_graph;

/* Fields of a node; of several inputs and outputs the last. */
typedef struct onnx_node {
    onnx_text kind, domain, input, output;
} onnx_node;

onnx_node onnx_node_read(const onnx_field *node);
/* Whether the operator is ONNX's own. */
bool onnx_node_is_standard(const onnx_node *node);

weir_status onnx_graph_read(onnx_file *file, onnx_graph *out);
void onnx_graph_free(onnx_graph *graph);

/* Reads what else the nodes have of constants of `least` bytes and more, in the file's order: initializers of graphs
 * inside nodes, by their names, and the tensors of Constant nodes at any depth, by the names of the nodes' outputs.
 * Whole numbers of 32 and 64 bits and bool are left out, as shapes may be made of such constants. Constants in a
 * model's functions are left out, too. WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_graph_read_inner(onnx_file *file, onnx_graph *graph, uint64_t least);

/* Reads what nodes and functions have of tensors that lie beside the model and are not among `inner` yet: whole numbers, small
 * ones, and where `inner` was not read all. They are marked to stay. WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_graph_read_beside(onnx_file *file, onnx_graph *graph);

/* Refuses inputs and outputs that weir's tensors cannot carry, by name. */
weir_status onnx_graph_supported(const onnx_file *file, const onnx_graph *graph);

#endif
