/* Pressure callbacks: the list, and calling them; weir/pressure.h says what they are.
 *
 * Invariants: the list is in the order of priority, then of registration; a callback's record lives as long as a thread is in it.
 * None is called with the lock held. */
#ifndef WI_PRESSURE_H
#define WI_PRESSURE_H

#include "base/internal.h"

#include <weir/pressure.h>

#include <pthread.h>

typedef struct wi_pressure_entry wi_pressure_entry;

typedef struct wi_pressures {
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a call of one that somebody wants to remove */
    wi_pressure_entry *first;
    uint64_t last_id;
} wi_pressures;

/* Where a request has got to in the list. It begins as wi_pressure_begin. */
typedef struct wi_pressure_turn {
    int priority;
    uint64_t id;
    unsigned attempt;
    bool again; /* the same one once more, if it is still there */
} wi_pressure_turn;

extern const wi_pressure_turn wi_pressure_begin;

void wi_pressures_init(wi_pressures *pressures);
void wi_pressures_destroy(wi_pressures *pressures); /* nobody calls any */

weir_status wi_pressures_add(wi_pressures *pressures, int priority, weir_pressure_fn fn, void *user, uint64_t *id);
/* WEIR_ERR_NOT_FOUND: there is none of that id. `waits`: calls of it have ended, also when this is inside a callback of somebody
 * else's, which is for those whose function waits for nobody. */
weir_status wi_pressures_remove(wi_pressures *pressures, uint64_t id, bool waits);

/* Calls the one whose turn it is, having written the attempt into *pressure; false: there is none left. */
bool wi_pressures_call(wi_pressures *pressures, wi_pressure_turn *turn, weir_pressure *pressure);
/* Whether this thread is in a callback, of whichever list. */
bool wi_pressures_inside(void);

#endif
