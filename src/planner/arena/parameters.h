/* A store of parameters, as arenas see it. */
#ifndef WI_WORKSPACE_PARAMETERS_H
#define WI_WORKSPACE_PARAMETERS_H

#include "base/internal.h"

#include <weir/arena.h>
#include <weir/uses.h>

/* Of a block: beyond it no device has memory, and below it sums do not wrap. */
#define WI_LONGEST (UINT64_MAX / 4)

weir_runtime *wi_parameters_runtime(const weir_parameters *store);

/* Begins a run that reads the store (NULL: none). *uses gets room for `before` uses of the run's own, then the uses of
 * the store's blocks; the caller frees the list. WEIR_ERR_SYSTEM: the run does not begin. */
weir_status wi_parameters_begin_run(weir_parameters *store, size_t before, weir_use **uses, size_t *count);
void wi_parameters_end_run(weir_parameters *store);

#endif
