/* cores.h: what a model computes with: cores leased of weir's ledger (weir/cores.h), and a pool of ggml's threads for them. */
#ifndef WG_CORES_H
#define WG_CORES_H

#include "wg.h"

/* Cores that the process has. */
int wg_cores(void);

/* The model's line in the ledger, under the name of its client. A model that is all on devices has none: its few steps
 * on the host wait for nobody. */
weir_status wg_cores_open(weir_engine_model *model);
/* After the context is freed. */
void wg_cores_close(weir_engine_model *model);

/* Threads that a context is made with. */
int wg_threads(const weir_engine_model *model);

/* Before each step, on the thread that computes and without the model's lock: leases cores, or renews what `leased` says
 * that it holds, and has llama.cpp start as many threads. With an error, as when `stops` answers true, nothing is leased. */
weir_status wg_cores_take(weir_engine_model *model, bool (*stops)(void *user), void *user, bool *leased);
/* Before the thread does anything else. */
void wg_cores_give(weir_engine_model *model, bool *leased);

#endif
