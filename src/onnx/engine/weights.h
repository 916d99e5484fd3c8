/* The weights of a model on the host: in the client's memory for as long as ONNX Runtime has them.
 *
 * The model without its weights (strip.h) says of each where its bytes lie in a file. ONNX Runtime maps each weight
 * from the file, and unmaps a weight that is not read any more, because a kernel has packed the weight or the session
 * ends. Calls of mmap and munmap by ONNX Runtime come here through its import slots (interpose.h): mmap answers a block
 * of the client's with the bytes of the weight, and munmap frees the block. So memory has each weight once, and only as
 * long as needed, under any name and in any graph of the model. A weight that the optimizer has replaced by a
 * transposed or computed constant is never mapped.
 *
 * Weights that kernels are expected to pack (packed.h) are mapped from the file as they are, which saves their copy; where
 * that was wrong, the mapping is still there when the session has been made. */
#ifndef WEIR_ONNX_WEIGHTS_H
#define WEIR_ONNX_WEIGHTS_H

#include <weir/engine.h>

#include "library.h"
#include "onnx/file/main_graph.h"

struct weir_engine_model;

/* One weight in the client's memory, and what ONNX Runtime knows it by. */
typedef struct onnx_weight {
    char *name;
    void *data;       /* NULL: it is in no block of its own */
    ort_value *value; /* where it was handed over by its name; else NULL */

    /* Of those that it maps. */
    const onnx_tensor *tensor; /* while the model is loaded */
    const wi_stamp *file;      /* where its bytes lie; likewise */
    uint64_t end;              /* and where they end there */
    weir_client *client;
    bool *left; /* in the file, as a kernel is expected to pack it: the caller's word on that; NULL: it is not */
    void *
        base; /* where ONNX Runtime has it mapped; NULL: it has not. Guarded by a lock of the module's, like the rest below */
    size_t length;
    struct onnx_weight *next; /* mapped at the same place, in another length */
} onnx_weight;

/* Whether the library's mappings come here; the first call for a library sees to that. Any thread. */
bool onnx_weights_mapped(const onnx_library *library);

/* Between begin and end this thread's mappings are the model's weights, and ONNX Runtime is told of the model's files, which were opened
 * behind all links, that they lie where they lie. The list is sorted. */
void onnx_weights_begin(struct weir_engine_model *model, const onnx_file *file, const weir_engine_load *load);
/* WEIR_OK, or why a weight could not be placed: then the session was made without the client's memory for it.
 * WEIR_ERR_CANCELLED: the load was stopped. */
weir_status onnx_weights_end(struct weir_engine_model *model);

/* After the session was made. Answers how many weights it still reads from the file, each of which has *left set to false; *gone
 * gets the bytes of those that it has in no form that is in the file. */
size_t onnx_weights_settle(struct weir_engine_model *model, uint64_t *gone);
/* After the last session: frees what is left. */
void onnx_weights_free(struct weir_engine_model *model);

/* WEIR_ERR_CANCELLED: the load was stopped. */
weir_status onnx_goes_on(const struct weir_engine_model *model, const weir_engine_load *load);

/* A block of the client's with the bytes of the weight. */
weir_status onnx_weight_place(const struct weir_engine_model *model, const onnx_tensor *tensor, onnx_weight *weight);

#endif
