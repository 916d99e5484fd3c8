/* The cores that a model's runs compute with, of weir's ledger (weir/cores.h).
 *
 * The threads of a session are made with it, so that it needs its cores all at once: with the setting `threads` that many,
 * else all of the process. Runs of one model share its threads and its lease; models take turns. */
#ifndef WEIR_ONNX_CORES_H
#define WEIR_ONNX_CORES_H

#include "model.h"

/* Before the first session: how many threads each gets, and the model's line. On cuda, and with a provider whose work is
 * not on this processor, there is none: nothing waits. */
weir_status onnx_cores_begin(weir_engine_model *model);
void onnx_cores_end(weir_engine_model *model);

/* For one run of its thread; with an error, which is WEIR_ERR_CANCELLED once the run is cancelled, nothing is taken. */
weir_status onnx_cores_take(weir_engine_model *model, onnx_run *its);
void onnx_cores_give(weir_engine_model *model);

/* Cores that the process has. */
int onnx_cores(void);

#endif
