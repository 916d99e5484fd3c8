/* Events: the rings behind traces. Events go in under the ledger's lock and come out oldest first. */
#ifndef WI_EVENTS_H
#define WI_EVENTS_H

#include "base/internal.h"

#include <weir/trace.h>

typedef struct wi_events wi_events;

enum { WI_EVENTS_STANDARD = 1 << 20 }; /* the default capacity */

/* Flags of a ledger's `recording`: one load tells a call whether there is anything to do. */
enum {
    WI_RECORDING = 1u << 0,      /* a trace is open */
    WI_EVENTS_WAITING = 1u << 1, /* many events wait: the next call should hand them to the sinks */
    WI_TCACHES_SHUT = 1u << 2    /* a trace is about to open: thread caches serve nothing */
};

wi_events *wi_events_create(size_t capacity); /* NULL: no memory */
void wi_events_destroy(wi_events *events);
/* Adds an event and numbers it. A full ring counts it as lost. */
void wi_events_add(wi_events *events, const weir_event *event);
size_t wi_events_take(wi_events *events, char *out, size_t stride, size_t capacity);
size_t wi_events_count(const wi_events *events); /* events that have not been handed out */
uint64_t wi_events_lost(const wi_events *events);
/* From now on WI_EVENTS_WAITING is set when many events wait. */
void wi_events_call(wi_events *events);
bool wi_events_called(const wi_events *events); /* whether wi_events_call was called */
bool wi_events_calls(const wi_events *events);  /* whether many events wait now */

/* Links of a ledger's list of rings. */
wi_events *wi_events_next(const wi_events *events);
void wi_events_link(wi_events **list, wi_events *events);
void wi_events_unlink(wi_events **list, wi_events *events);

#endif
