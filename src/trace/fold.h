/* fold.h: who holds what, followed event by event.
 *
 * Every event carries the runtime's totals after it, in ledger order: what the totals changed by belongs to the event's
 * client and class. That is exact for every action, pending bytes included, as long as no event was lost. */
#ifndef WEIR_TRACE_FOLD_H
#define WEIR_TRACE_FOLD_H

#include <weir/trace.h>

typedef struct fold_client {
    const char *name;                /* of the trace: lives as long as the process */
    int64_t bytes[WEIR_CLASS_COUNT]; /* live + pending */
} fold_client;

typedef struct fold {
    fold_client *clients; /* in the order in which they were first seen */
    size_t count, capacity;
    uint64_t total; /* live + pending of the runtime */
    uint64_t held;
    uint64_t nanoseconds, order; /* of the last event */
} fold;

/* Takes the next event in. False when there is no memory for a new client. */
bool fold_event(fold *state, const weir_event *event);

/* The place of a client of that name; `count` if it was not seen. */
size_t fold_find(const fold *state, const char *name);

/* live + pending of one client. */
int64_t fold_client_total(const fold_client *client);

/* Makes `to` as `from` is; false when there is no memory. */
bool fold_copy(fold *to, const fold *from);

void fold_clear(fold *state);

#endif
