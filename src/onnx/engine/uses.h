/* What the nodes of a model do with its weights. */
#ifndef WEIR_ONNX_USES_H
#define WEIR_ONNX_USES_H

#include "onnx/file/main_graph.h"

/* By whom a weight is read, as bits. */
enum {
    ONNX_USE_RIGHT = 1,   /* the right-hand side of a MatMul, Gemm or MatMulInteger of the main graph */
    ONNX_USE_OPERAND = 2, /* another input of such a product, of a convolution or a recurrent layer of the main graph */
    ONNX_USE_TABLE = 4,   /* what a Gather of the main graph reads from */
    ONNX_USE_OTHER = 8,   /* any other node, a subgraph, the graph's inputs and outputs */
    ONNX_USE_GATES = 32,  /* weight by which a recurrent layer of the main graph multiplies input or last state */
    ONNX_USE_HIDDEN = 16  /* a subgraph has an initializer of the same name; OTHER as well */
};

typedef struct onnx_use {
    unsigned kinds, count;
    bool valued; /* the numbers may decide a shape: not every reader only computes with them */
} onnx_use;

typedef struct onnx_uses {
    onnx_use *
        of; /* for each of graph->weights, and then of graph->inner; an Identity's readers are readers of what it reads */
    bool transposes; /* there is a Transpose somewhere, or a function or a node of another domain, which may have one */
    bool constants;  /* of 1 KiB and more beside the weights: there are, or may be, in nodes, subgraphs or functions */
} onnx_uses;

/* Reads them; free(out->of) in any case. WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_uses_read(const onnx_graph *graph, onnx_uses *out);

/* Marks the weights that are left to ONNX Runtime. Whole numbers that may decide a shape are marked, as ONNX Runtime
 * infers shapes from numbers in the file itself, and refuses a model whose sizes, axes or repeats lie elsewhere (1.31).
 * With `handed_over`, where the client's memory takes the weights' place, also marks weights that the optimizer may
 * write again under the same name: the optimizer moves transpositions through a graph and into constants, where a
 * weight that was handed over would keep the old layout (1.23 to 1.31). Weights that are read only by nodes through
 * which no transposition moves are not marked. From level 3 of `optimization` on, the optimizer also makes
 * transpositions, around quantized convolutions. With `handed_over` at any level, also marks weights whose name an
 * initializer of a subgraph has, too: a weight that is handed over goes by its name into every graph of the model. */
weir_status onnx_uses_mark(onnx_graph *graph, int optimization, bool handed_over);

#endif
