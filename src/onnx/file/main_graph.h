/* The main graph of a checked ONNX file: what weir needs to know before and beside ONNX Runtime. */
#ifndef WI_ONNX_FILE_MAIN_GRAPH_H
#define WI_ONNX_FILE_MAIN_GRAPH_H

#include "onnx/file/file.h"

/* ---- tensor.c: type and shape as declared, checked against the data ------------------------------------------------------- */

/* ONNX's element types, as TensorProto.data_type and ONNX Runtime number them. */
enum {
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT8 = 3,
    ONNX_UINT16 = 4,
    ONNX_INT16 = 5,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_STRING = 8,
    ONNX_BOOL = 9,
    ONNX_FLOAT16 = 10,
    ONNX_DOUBLE = 11,
    ONNX_UINT32 = 12,
    ONNX_UINT64 = 13,
    ONNX_COMPLEX64 = 14,
    ONNX_COMPLEX128 = 15,
    ONNX_BFLOAT16 = 16,
    ONNX_UINT4 = 21,
    ONNX_INT4 = 22,
    ONNX_UINT2 = 25,
    ONNX_INT2 = 26,
    ONNX_FLOAT6E2M3 = 27,
    ONNX_FLOAT6E3M2 = 28,
    ONNX_TYPE_COUNT = 29
};

/* "float16", "?" for a number that is none. */
const char *onnx_type_name(int32_t type);
/* Bits of one element; 0 for strings and unknown types. */
unsigned onnx_type_bits(int32_t type);
/* WEIR_TYPE_NONE for what weir's tensors do not carry. */
weir_type onnx_type_to_weir(int32_t type);
int32_t onnx_type_from_weir(weir_type type);

enum { ONNX_MAX_RANK = 32 };

typedef enum onnx_location {
    ONNX_LOCATION_NONE,   /* no elements */
    ONNX_LOCATION_BYTES,  /* `data`: the elements as they are in memory */
    ONNX_LOCATION_TYPED,  /* a list of varints or texts, one for each element */
    ONNX_LOCATION_BESIDE, /* in another file; `data` points into its mapping */
} onnx_location;

typedef struct onnx_tensor {
    onnx_text name;
    int32_t type;
    uint32_t rank;
    int64_t shape[ONNX_MAX_RANK];
    uint64_t elements, bytes;
    onnx_location location;
    const uint8_t *data;
    bool beside; /* said to be in another file; of one without elements that is not opened */
    const onnx_side_file *side;
    const uint8_t *begin, *end; /* the whole field in the list that holds it; set by the reader of the list */
    const uint8_t *maker; /* begin of the Constant node's field; NULL: no such node's; set by onnx_graph_read_inner */
    unsigned deep;        /* so many nodes have a graph around it; set by onnx_graph_read_inner */
    bool sole;            /* initializer, or the only value of a Constant node; set by onnx_graph_read_inner */
    bool lifted;          /* moved into the main graph when the model is stripped (onnx_uses_lift) */
    bool stays;           /* ONNX Runtime has to have it itself (onnx_uses_mark) */
} onnx_tensor;

/* Reads a TensorProto whose wire format and schema were checked already. WEIR_ERR_CORRUPT or WEIR_ERR_UNSUPPORTED name
 * the tensor and the byte. */
weir_status onnx_tensor_read(onnx_file *file, const uint8_t *data, size_t size, onnx_tensor *out);

/* ---- main_graph.c ---------------------------------------------------------------------------------------------------- */

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
