/* Pressure callbacks: the list and its calls; weir/pressure.h is their contract.
 *
 * Invariants: the list is in the order of priority, then of registration; a record lives as long as a thread is in
 * its callback, and its `gone` is called when it ends. Neither runs with the lock held. */
#ifndef WI_PRESSURE_H
#define WI_PRESSURE_H

#include "base/internal.h"

#include <weir/pressure.h>

#include <pthread.h>

typedef struct wi_pressure_entry wi_pressure_entry;

typedef struct wi_pressures {
    pthread_mutex_t lock;
    pthread_cond_t ended; /* signalled when a call of a removed callback ends */
    wi_pressure_entry *first;
    uint64_t last_id;
} wi_pressures;

/* The position of a request in the list; starts as wi_pressure_begin. */
typedef struct wi_pressure_turn {
    int priority;
    uint64_t id;
    unsigned attempt;
    bool again; /* call the same callback again, if it is still registered */
} wi_pressure_turn;

extern const wi_pressure_turn wi_pressure_begin;

void wi_pressures_init(wi_pressures *pressures);
void wi_pressures_clear(wi_pressures *pressures); /* removes all; no callback may be running */
void wi_pressures_destroy(wi_pressures *pressures);

/* `options` are whole and checked. */
weir_status wi_pressures_add(wi_pressures *pressures, const weir_pressure_options *options, uint64_t *id);
/* Removes a callback and waits for its running calls. Inside another callback, waits only if `waits` is set, which is
 * for callbacks that never wait for other callbacks. Its `gone` is called before the return, or by the
 * last call that leaves it. WEIR_ERR_NOT_FOUND: no such id. */
weir_status wi_pressures_remove(wi_pressures *pressures, uint64_t id, bool waits);

/* Calls the next callback; false: none is left. pressure->attempt is set by this function. */
bool wi_pressures_call(wi_pressures *pressures, wi_pressure_turn *turn, weir_pressure *pressure);
/* Whether this thread runs a pressure callback of any list. */
bool wi_pressures_inside(void);

#endif
