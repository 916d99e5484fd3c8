/* Runs that are captured into CUDA graphs, and launched again for the same shapes. */
#ifndef WEIR_ONNX_REPLAY_H
#define WEIR_ONNX_REPLAY_H

#include <stdatomic.h>

#include "model.h"
#include <weir/engine.h>

/* Sets of shapes with a graph each, at most, less the captures that failed for another reason than memory. A run with
 * further shapes goes without a graph. */
enum { ONNX_REPLAYS_MOST = 8 };

/* Makes model->replays; nothing is captured yet. WEIR_ERR_SYSTEM without host memory or a thread. */
weir_status onnx_replays_begin(weir_engine_model *model);
/* Before the session is released: no graph is launched any more. */
void onnx_replays_stop(weir_engine_model *model);
/* After it was: the memory. */
void onnx_replays_end(weir_engine_model *model);

/* What a run has answered; weir_outputs.engine_data. */
typedef struct onnx_results {
    struct onnx_results *next;
    size_t count;
    bool on_device;
    atomic_size_t others; /* further runs with a part of the values (join.h) */
    ort_value *values[];
} onnx_results;

/* Releases the values. Those on the device are freed on the model's stream, which refuses that while it is captured:
 * then at the end of the capture. Waits for no run, as it may be called inside one, in a pressure callback. NULL is
 * nothing. Any thread. */
void onnx_results_free(weir_engine_model *model, onnx_results *results);

/* Around each capture. */
void onnx_capture_begin(weir_engine_model *model);
void onnx_capture_end(weir_engine_model *model);

/* Runs it with inputs that were checked, capturing it the first time. *served false: there are graphs enough, and
 * nothing was done. outputs[i] gets a value of its own, on the device or on the host. Any thread with a turn
 * (buckets.h). What is captured or launched is not stopped on the way: a cancel is looked at before, between its steps
 * and after it. */
weir_status onnx_replay(weir_engine_model *model, const weir_inference *inference, const onnx_run *its, bool to_device,
                        ort_value **outputs, bool *served);

#endif
