/* The ring behind a trace: events in, under the ledger's lock; events out, oldest first. */
#ifndef WI_EVENTS_H
#define WI_EVENTS_H

#include "base/internal.h"

#include <weir/trace.h>

typedef struct wi_events wi_events;

wi_events *wi_events_create(size_t capacity); /* NULL: no memory */
void wi_events_destroy(wi_events *events);
/* Keeps the event, giving it its order, time and thread; counts it as lost when the ring is full. */
void wi_events_add(wi_events *events, weir_event event);
size_t wi_events_take(wi_events *events, char *out, size_t stride, size_t capacity);
uint64_t wi_events_lost(const wi_events *events);

#endif
