/* What is written in place: which storages lie over others, and how that is told to the solvers. */
#ifndef WI_ARENA_IN_PLACE_H
#define WI_ARENA_IN_PLACE_H

#include "planner/storage.h"

/* Fills in covers, leaders, shifts, roots and what follows from pins. WEIR_SYSTEM without host memory. */
weir_status wi_in_place_join(wi_stores *stores);

#endif
