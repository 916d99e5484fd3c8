/* Writing events into a ledger's rings. What the ledger does is written within its own step, the rest in a step of the
 * ledger's for itself: one lock gives all events of a runtime their order. */
#ifndef WI_RECORD_H
#define WI_RECORD_H

#include "memory/ledger/ledger.h"
#include <weir/trace.h>
#include "memory/resource.h"

/* A look without the lock: a trace that is opened meanwhile misses this event, which came before it. */
static inline unsigned wi_recording(const wi_ledger *ledger)
{
    return atomic_load_explicit(&ledger->recording, memory_order_relaxed);
}

/* With the ledger's lock held, and a ring there. Adds what the ledger, the clock and `block` (NULL: none) know to what the
 * event says. */
void wi_record_locked(wi_ledger *ledger, weir_event event, const wi_block *block);
void wi_record(wi_ledger *ledger, weir_event event, const wi_block *block);
/* Into one ring that is none of the ledger's, if there is one; *ring is read with the lock held. */
void wi_record_to(wi_ledger *ledger, wi_events **ring, weir_event event, const wi_block *block);

/* A ring more, which gets the ledger's live blocks first, in the step in which it begins to get all that is new; or less. */
void wi_record_into(wi_ledger *ledger, wi_events *events);
void wi_record_no_more(wi_ledger *ledger, wi_events *events);

#endif
