/* Pressure callbacks: a list in the order of priority. */
#include "memory/ledger/pressure.h"

#include <limits.h>

struct wi_pressure_entry {
    int priority;
    uint64_t id;
    weir_pressure_fn fn;
    void *user;
    unsigned running;      /* threads that run the callback */
    bool removed, awaited; /* awaited: the remover frees the record; otherwise the last thread that leaves it */
    wi_pressure_entry *next;
};

const wi_pressure_turn wi_pressure_begin = {.priority = INT_MIN}; /* ids start at 1 */

static _Thread_local bool inside;

bool wi_pressures_inside(void)
{
    return inside;
}

void wi_pressures_init(wi_pressures *pressures)
{
    *pressures = (wi_pressures){0};
    pthread_mutex_init(&pressures->lock, NULL);
    pthread_cond_init(&pressures->ended, NULL);
}

void wi_pressures_destroy(wi_pressures *pressures)
{
    for (wi_pressure_entry *e = pressures->first, *next; e; e = next) {
        wi_assert(e->running == 0);
        next = e->next;
        free(e);
    }
    pthread_cond_destroy(&pressures->ended);
    pthread_mutex_destroy(&pressures->lock);
}

weir_status wi_pressures_add(wi_pressures *pressures, int priority, weir_pressure_fn fn, void *user, uint64_t *id)
{
    wi_pressure_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a pressure callback");
    pthread_mutex_lock(&pressures->lock);
    *id = ++pressures->last_id;
    *entry = (wi_pressure_entry){.priority = priority, .id = *id, .fn = fn, .user = user};
    wi_pressure_entry **link = &pressures->first;
    while (*link && (*link)->priority <= priority)
        link = &(*link)->next;
    entry->next = *link;
    *link = entry;
    pthread_mutex_unlock(&pressures->lock);
    return WEIR_OK;
}

/* Removes an entry. A thread inside a callback does not wait for running calls, as two that wait for each other would
 * wait for ever; `waits` says that it may. The lock is held. */
static void pressure_end(wi_pressures *pressures, wi_pressure_entry *entry, bool waits)
{
    entry->removed = true;
    entry->awaited = waits || !inside;
    while (entry->awaited && entry->running > 0)
        pthread_cond_wait(&pressures->ended, &pressures->lock);
    if (entry->running == 0)
        free(entry);
}

weir_status wi_pressures_remove(wi_pressures *pressures, uint64_t id, bool waits)
{
    pthread_mutex_lock(&pressures->lock);
    wi_pressure_entry **link = &pressures->first, *entry;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    entry = *link;
    if (entry) {
        *link = entry->next;
        pressure_end(pressures, entry, waits);
    }
    pthread_mutex_unlock(&pressures->lock);
    return entry ? WEIR_OK
                 : weir_fail(WEIR_ERR_NOT_FOUND,
                             "no pressure callback has the number %llu; it was removed before, or never added",
                             (unsigned long long)id);
}

static bool pressure_is_next(const wi_pressure_entry *entry, const wi_pressure_turn *turn)
{
    if (entry->priority != turn->priority)
        return entry->priority > turn->priority;
    return entry->id > turn->id || (entry->id == turn->id && turn->again);
}

/* Finds the next entry of the turn and keeps its record until pressure_leave. */
static wi_pressure_entry *pressure_enter(wi_pressures *pressures, wi_pressure_turn *turn)
{
    pthread_mutex_lock(&pressures->lock);
    wi_pressure_entry *entry = pressures->first;
    while (entry && !pressure_is_next(entry, turn))
        entry = entry->next;
    if (entry) {
        entry->running++;
        turn->attempt = entry->id == turn->id ? turn->attempt + 1 : 1;
        turn->priority = entry->priority;
        turn->id = entry->id;
    }
    pthread_mutex_unlock(&pressures->lock);
    return entry;
}

static void pressure_leave(wi_pressures *pressures, wi_pressure_entry *entry)
{
    pthread_mutex_lock(&pressures->lock);
    bool last = --entry->running == 0;
    if (last && entry->awaited)
        pthread_cond_broadcast(&pressures->ended);
    else if (last && entry->removed)
        free(entry);
    pthread_mutex_unlock(&pressures->lock);
}

bool wi_pressures_call(wi_pressures *pressures, wi_pressure_turn *turn, weir_pressure *pressure)
{
    wi_pressure_entry *entry = pressure_enter(pressures, turn);
    if (!entry)
        return false;
    pressure->attempt = turn->attempt;
    inside = true;
    entry->fn(pressure, entry->user);
    inside = false;
    pressure_leave(pressures, entry);
    return true;
}
