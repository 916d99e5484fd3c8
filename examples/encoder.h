/* encoder.h: the parts of the example encoder: a model's graph, its plan, the arena it runs in, and work that is queued. */
#ifndef EXAMPLE_ENCODER_H
#define EXAMPLE_ENCODER_H

#include <weir/weir.h>
#include <weir/plan.h>
#include <weir/arena.h>

#include "onnx/shapes/graph.h"

#include "encoder_kernels.h"

typedef struct encoder {
    onnx_file file;
    graph_given dims[2]; /* batch, sequence */
    graph_givens givens;
    graph graph;
    graph_memory memory;
    weir_plan *plan;

    bool on_gpu;
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    weir_parameters *weights;
    weir_arena *arena;
    void **at; /* by value: its bytes on the device */
} encoder;

/* One node's work as kernels take it. WEIR_ERR_UNSUPPORTED names an operator that the example does not know. */
weir_status encoder_work_of(encoder *e, const graph_node *node, encoder_work *out);
/* Makes the kernels for a GPU ready, behind the stream's acquiring. WEIR_ERR_NOT_FOUND names what is not here. */
weir_status encoder_cuda_open(encoder *e, int device);
weir_status encoder_cuda_queue(encoder *e, encoder_work *work);
/* Queues it on the stream: on the host, a call of the kernel's loop. `work` stays as it is until that is done. */
weir_status encoder_queue(encoder *e, encoder_work *work);

/* Is the node's output the very bytes of its first input? */
bool encoder_is_view(const graph_node *node);

#endif
