/* See window.h. */
#include "base/window.h"

#ifdef WEIR_INVARIANTS
void (*wi_window_turn)(wi_window_place place);
#endif
