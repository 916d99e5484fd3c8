/* What the nodes of a model do with its weights. */
#ifndef WEIR_ONNX_USES_H
#define WEIR_ONNX_USES_H

#include "onnx/file/main_graph.h"

/* By whom a weight is read, as bits. */
enum {
    ONNX_USE_RIGHT = 1,   /* the right-hand side of a MatMul, Gemm or MatMulInteger of the main graph */
    ONNX_USE_OPERAND = 2, /* any other input of one, of a convolution or of a recurrent layer there */
    ONNX_USE_TABLE = 4,   /* what a Gather of the main graph reads from */
    ONNX_USE_OTHER = 8,   /* any other node, a subgraph, the graph's inputs and outputs */
    ONNX_USE_GATES = 32,  /* what a recurrent layer there multiplies its input or its last step by */
    ONNX_USE_HIDDEN = 16  /* a subgraph has an initializer of the same name; OTHER as well */
};

typedef struct onnx_use {
    unsigned kinds, count;
    bool valued; /* its numbers may decide a shape: some reader is none that only computes with them */
} onnx_use;

typedef struct onnx_uses {
    onnx_use *
        of; /* for each of graph->weights, and then of graph->inner; an Identity's readers are readers of what it reads */
    bool transposes; /* there is a Transpose somewhere, or a function or a node of another domain, which may have one */
    bool constants;  /* of 1 KiB and more beside the weights: there are, or may be, in nodes, subgraphs or functions */
} onnx_uses;

/* Reads them; free(out->of) in any case. WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_uses_read(const onnx_graph *graph, onnx_uses *out);

/* Marks the weights that are left to ONNX Runtime. Those of whole numbers that may decide a shape: it infers shapes of
 * what the file itself holds, and refuses a model whose sizes, axes or repeats lie elsewhere (1.31). With `handed_over`,
 * where the client's memory takes their place, also those that its optimizer may write again under their own names: it
 * moves transpositions through a graph and into constants, where one that was handed over would keep the old layout (1.23
 * to 1.31). Those that only nodes read through which it moves none are not touched. From level 3 of `optimization` on it
 * makes transpositions itself, around quantized convolutions. And at any level those by whose name a subgraph has one of
 * its own: what is handed over goes by the name, into every graph of the model. */
weir_status onnx_uses_mark(onnx_graph *graph, int optimization, bool handed_over);

#endif
