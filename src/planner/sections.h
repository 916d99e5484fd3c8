/* Time cut into sections, and the lower bound. */
#ifndef WI_ARENA_SECTIONS_H
#define WI_ARENA_SECTIONS_H

#include "planner/storage.h"

/* Fills in the sections, spans and edges of the kind's items, and its bound. WEIR_SYSTEM without host memory. */
weir_status wi_sections_make(wi_stores *stores, weir_kind kind);

#endif
