/* Pressure callbacks: a list in the order of priority. */
#include "memory/ledger/ledger.h"

#include <limits.h>

struct wi_pressure_entry {
    int priority;
    uint64_t id;
    weir_pressure_fn fn;
    void *user;
    void (*gone)(void *user); /* NULL: nothing is to be done */
    unsigned running;         /* threads that run the callback */
    bool removed, awaited;    /* awaited: the remover ends the record; else the last thread to leave the callback */
    wi_pressure_entry *next;
};

const wi_pressure_round wi_pressure_begin = {.priority = INT_MIN}; /* ids start at 1 */

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

/* Of an entry that is out of the list, and that nobody is in: called with no lock held, once. The limits of a callback
 * hold, as this may be a thread that is in the middle of a request. */
static void pressure_gone(wi_pressure_entry *entry)
{
    bool outside = !inside;
    inside = true;
    if (entry->gone)
        entry->gone(entry->user);
    inside = !outside;
    free(entry);
}

void wi_pressures_clear(wi_pressures *pressures)
{
    pthread_mutex_lock(&pressures->lock);
    wi_pressure_entry *entry = pressures->first;
    pressures->first = NULL;
    pthread_mutex_unlock(&pressures->lock);
    for (wi_pressure_entry *next; entry; entry = next) {
        wi_assert(entry->running == 0);
        next = entry->next;
        pressure_gone(entry);
    }
}

void wi_pressures_destroy(wi_pressures *pressures)
{
    wi_pressures_clear(pressures);
    pthread_cond_destroy(&pressures->ended);
    pthread_mutex_destroy(&pressures->lock);
}

weir_status wi_pressures_add(wi_pressures *pressures, const weir_pressure_options *options, uint64_t *id)
{
    int priority = options->priority;
    wi_pressure_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a pressure callback");
    pthread_mutex_lock(&pressures->lock);
    *id = ++pressures->last_id;
    *entry = (wi_pressure_entry){
        .priority = priority, .id = *id, .fn = options->fn, .user = options->user, .gone = options->gone};
    wi_pressure_entry **link = &pressures->first;
    while (*link && (*link)->priority <= priority)
        link = &(*link)->next;
    entry->next = *link;
    *link = entry;
    pthread_mutex_unlock(&pressures->lock);
    return WEIR_OK;
}

/* Ends an entry that is out of the list. A thread inside a callback does not wait for running calls, as two that wait
 * for each other would wait for ever; `waits` says that it may. The lock is held. True: no thread runs the callback any
 * more. */
static bool pressure_end(wi_pressures *pressures, wi_pressure_entry *entry, bool waits)
{
    entry->removed = true;
    entry->awaited = waits || !inside;
    while (entry->awaited && entry->running > 0)
        pthread_cond_wait(&pressures->ended, &pressures->lock);
    return entry->running == 0;
}

weir_status wi_pressures_remove(wi_pressures *pressures, uint64_t id, bool waits)
{
    pthread_mutex_lock(&pressures->lock);
    wi_pressure_entry **link = &pressures->first, *entry;
    while (*link && (*link)->id != id)
        link = &(*link)->next;
    entry = *link;
    bool left = false;
    if (entry) {
        *link = entry->next;
        left = pressure_end(pressures, entry, waits);
    }
    pthread_mutex_unlock(&pressures->lock);
    if (left)
        pressure_gone(entry);
    return entry ? WEIR_OK
                 : weir_fail(WEIR_ERR_NOT_FOUND,
                             "no pressure callback has the number %llu; it was removed before, or never added",
                             (unsigned long long)id);
}

static bool pressure_is_next(const wi_pressure_entry *entry, const wi_pressure_round *round)
{
    if (entry->priority != round->priority)
        return entry->priority > round->priority;
    return entry->id > round->id || (entry->id == round->id && round->again);
}

/* Finds the next entry of the round and keeps its record until pressure_leave. */
static wi_pressure_entry *pressure_enter(wi_pressures *pressures, wi_pressure_round *round)
{
    pthread_mutex_lock(&pressures->lock);
    wi_pressure_entry *entry = pressures->first;
    while (entry && !pressure_is_next(entry, round))
        entry = entry->next;
    if (entry) {
        entry->running++;
        round->attempt = entry->id == round->id ? round->attempt + 1 : 1;
        round->priority = entry->priority;
        round->id = entry->id;
    }
    pthread_mutex_unlock(&pressures->lock);
    return entry;
}

static void pressure_leave(wi_pressures *pressures, wi_pressure_entry *entry)
{
    pthread_mutex_lock(&pressures->lock);
    bool last = --entry->running == 0, mine = last && entry->removed && !entry->awaited;
    if (last && entry->awaited)
        pthread_cond_broadcast(&pressures->ended);
    pthread_mutex_unlock(&pressures->lock);
    if (mine)
        pressure_gone(entry);
}

bool wi_pressures_call(wi_pressures *pressures, wi_pressure_round *round, weir_pressure *pressure)
{
    wi_pressure_entry *entry = pressure_enter(pressures, round);
    if (!entry)
        return false;
    pressure->attempt = round->attempt;
    inside = true;
    entry->fn(pressure, entry->user);
    inside = false;
    pressure_leave(pressures, entry);
    return true;
}
