/* The rings behind traces: events in, under the ledger's lock; events out, oldest first. */
#ifndef WI_EVENTS_H
#define WI_EVENTS_H

#include "base/internal.h"

#include <weir/trace.h>

typedef struct wi_events wi_events;

enum { WI_EVENTS_STANDARD = 1 << 20 }; /* the capacity, when nobody says one */

/* What a ledger's `recording` says, so that one load tells a call that nothing is to be done. */
enum {
    WI_RECORDING = 1u << 0,      /* a ring is there */
    WI_EVENTS_WAITING = 1u << 1, /* so many events wait in a ring that somebody should hand them out */
    WI_TCACHES_SHUT = 1u << 2    /* a ring is about to be there: thread caches do nothing */
};

wi_events *wi_events_create(size_t capacity); /* NULL: no memory */
void wi_events_destroy(wi_events *events);
/* Keeps the event, giving it its order; counts it as lost when the ring is full. */
void wi_events_add(wi_events *events, const weir_event *event);
size_t wi_events_take(wi_events *events, char *out, size_t stride, size_t capacity);
size_t wi_events_count(const wi_events *events); /* that wait */
uint64_t wi_events_lost(const wi_events *events);
/* From now on WI_EVENTS_WAITING is wanted whenever a good many wait. */
void wi_events_call(wi_events *events);
bool wi_events_called(const wi_events *events); /* somebody wants that */
bool wi_events_calls(const wi_events *events);  /* and it is so now */

/* A ledger's rings hang together; these are the links of the list. */
wi_events *wi_events_next(const wi_events *events);
void wi_events_link(wi_events **list, wi_events *events);
void wi_events_unlink(wi_events **list, wi_events *events);

#endif
