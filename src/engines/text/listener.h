/* listener.h: by which others ask a model for memory: a pressure callback whose model may be unloaded while it runs. */
#ifndef WT_LISTENER_H
#define WT_LISTENER_H

#include <weir/runtime.h>

typedef struct wt_listener wt_listener;

/* Has give_up(model) called when a request of the runtime's finds no memory. It must wait for nobody for long, and for no
 * callback: the end waits for it. The same errors as weir_pressure_register_with; *out is NULL then. */
weir_status wt_listener_begin(weir_runtime *runtime, void (*give_up)(void *model), void *model, wt_listener **out);
/* When it returns, no call is in the model, and none will be: also inside a pressure callback, where the end of a
 * registration waits for nobody. NULL: nothing. */
void wt_listener_end(wt_listener *listener);

#endif
