/* Runs that are computed together: with the setting `max_batch_size` runs whose inputs differ in their first extent alone
 * are put one behind the other, computed by one call of ONNX Runtime's, and each has its rows of the results.
 *
 * A run that can be joined waits in a line. The first of it takes those behind it that fit, when there are rows enough, or
 * when it has waited `max_queue_delay_microseconds`, and computes for all on its own thread; the others wait. While as
 * many such calls are under way as there may be (the setting `concurrency`; on cuda the slots; else one), the line grows.
 *
 * A run that is cancelled leaves at once; the call is stopped when nobody is left who wants it. Where a call for several
 * fails, whatever the reason, each of them is computed by itself, so that none fails for another's sake. */
#ifndef WEIR_ONNX_JOIN_H
#define WEIR_ONNX_JOIN_H

#include "model.h"
#include <weir/engine.h>

/* Makes model->join. WEIR_ERR_INVALID: an input or output has no open first extent; named. WEIR_ERR_SYSTEM. */
weir_status onnx_join_begin(weir_engine_model *model);
void onnx_join_end(weir_engine_model *model);

/* One run, together with others or not. */
weir_status onnx_join_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out);
/* Runs that wait look whether they were cancelled. A model without model->join: nothing. */
void onnx_join_wake(weir_engine_model *model);

/* Says so in the results, where the caller's structure has room for it. */
void onnx_outputs_together(weir_outputs *out, uint64_t runs);

#endif
