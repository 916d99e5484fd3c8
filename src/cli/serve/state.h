/* state.h: the state and the actions of a server at /weir: the state in one JSON object, memory over time, past events,
 * and models that are loaded, suspended, unloaded and pinned by hand. docs/guide/serve.md has the keys. */
#ifndef WEIR_CLI_SERVE_STATE_H
#define WEIR_CLI_SERVE_STATE_H

#include "serve.h"

/* Before the pool is made: its events and runs are noted from here on. NULL: no memory; nothing is noted then. */
served_state *state_create(void);
/* Once the pool is there: looks at the memory of its devices every second, until state_free. A thread; without one there is
 * no past to see. */
void state_watch(served *all);
/* Ends the thread, before the pool goes; frees it, after the pool, which tells events to the end. NULL is allowed. */
void state_unwatch(served_state *state);
void state_free(served_state *state);

/* Of the pool, on any thread. Decisions are not kept. */
void state_event(served_state *state, const weir_pool_event *event);

/* ---- history.c --------------------------------------------------------------------------------------------------- */

/* The past bytes of each client and class on each device. */
typedef struct history history;

history *history_create(void);
void history_free(history *past);
/* Looks at the devices, and notes it. */
void history_look(history *past, weir_pool *pool, double time);
/* Every second, each client's bytes by class, the newest last, as docs/guide/serve.md shows it. */
json_t *history_json(history *past);

/* Returns a device's memory now: the statistics of the runtime and of its clients. NULL: there is no such runtime. */
json_t *device_json(weir_pool *pool, size_t index);

#endif
