/* scratch.h: what is known of the scratch that a model takes on its devices; scratch.c measures it. */
#ifndef WG_SCRATCH_H
#define WG_SCRATCH_H

#include "wg.h"

enum { WG_SCRATCH_KEY = 33 }; /* with the byte behind it */

/* By place: what the largest batch takes beside the buffers of its graph, and what a full context takes beyond that. */
typedef struct wg_scratch {
    uint64_t taken[WG_DEVICES], grows[WG_DEVICES];
} wg_scratch;

/* scratch_known.c: what an earlier load of the same file has measured, with the same settings, libraries and kind of
 * devices. The model has its fingerprint. False: nothing is known, or nothing is remembered (the option `predictions`). */
bool wg_scratch_recall(const weir_engine_model *model, wg_scratch *out);
void wg_scratch_remember(const weir_engine_model *model, const wg_scratch *known);

#endif
