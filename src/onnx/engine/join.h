/* Runs that are computed together: with the setting `max_batch_size` runs whose inputs differ in their first extent alone
 * are put one behind the other, computed by one call of ONNX Runtime's, and each has its rows of the results.
 *
 * A run that can be joined waits in a line. When there are enough rows, or after waiting for
 * `max_queue_delay_microseconds`, the run at the head of the line takes the runs behind that fit, and computes the
 * group on its own thread; the other members wait. While as many such calls are under way as are allowed (the setting
 * `concurrency`; on cuda the slots; else one), the line grows.
 *
 * A cancelled run leaves at once; the call is stopped when all members are cancelled. If the call for a group fails,
 * for any reason, each member is computed by itself, so that no run fails because of another. */
#ifndef WEIR_ONNX_JOIN_H
#define WEIR_ONNX_JOIN_H

#include "model.h"
#include <weir/engine.h>

/* Makes model->join. WEIR_ERR_INVALID: an input or output has no open first extent; named. WEIR_ERR_SYSTEM. */
weir_status onnx_join_begin(weir_engine_model *model);
void onnx_join_end(weir_engine_model *model);

/* Computes a run, in a group or by itself. */
weir_status onnx_join_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out);
/* Runs that wait look whether they were cancelled. A model without model->join: nothing. */
void onnx_join_wake(weir_engine_model *model);

/* Says so in the results, where the caller's structure has room for it. */
void onnx_outputs_together(weir_outputs *out, uint64_t runs);

#endif
