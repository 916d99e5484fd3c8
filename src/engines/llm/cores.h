/* cores.h: the cores that a model computes with, of weir's ledger (weir/cores.h): as many as ONNX Runtime has threads for it. */
#ifndef WL_CORES_H
#define WL_CORES_H

#include "wl.h"

/* Before the model is made: how many threads it gets, by the setting `threads`, else the config, else the process's cores;
 * and its line, under the name of its client. On CUDA there is none: nothing waits. */
weir_status wl_cores_open(weir_engine_model *model, weir_client *client);
void wl_cores_close(weir_engine_model *model);

/* Leases cores, or renews the lease if *leased is true. Called before each step, on the computing thread, without
 * locks. With an error, as when `stops` answers true, nothing is leased. */
weir_status wl_cores_take(weir_engine_model *model, bool (*stops)(void *user), void *user, bool *leased);
/* Before the thread does anything else. */
void wl_cores_give(weir_engine_model *model, bool *leased);

#endif
