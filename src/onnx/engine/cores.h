/* The cores that a model's runs compute with, of weir's ledger (weir/cores.h).
 *
 * A session creates its threads once, so a run needs all cores of the session at once: as many as the setting `threads`
 * says, else all cores of the process. Runs of the same model share the threads and the lease; models take turns. */
#ifndef WEIR_ONNX_CORES_H
#define WEIR_ONNX_CORES_H

#include "model.h"

/* Before the first session: how many threads each gets, and the model's line. On cuda, and with a provider whose work is
 * not on this processor, there is none: nothing waits. */
weir_status onnx_cores_begin(weir_engine_model *model);
void onnx_cores_end(weir_engine_model *model);

/* Takes the cores for a run on the calling thread. On an error nothing is taken; WEIR_ERR_CANCELLED: the run was
 * cancelled. */
weir_status onnx_cores_take(weir_engine_model *model, onnx_run *its);
void onnx_cores_give(weir_engine_model *model);

/* Cores that the process has. */
int onnx_cores(void);

#endif
