#include "memory/ledger/record.h"
#include <weir/trace.h>
#include "base/system.h"
#include "memory/ledger/members.h"

/* Adds what the ledger, the clock and the block know. */
static void record_complete(const wi_ledger *ledger, weir_event *event, const wi_block *block)
{
    event->struct_size = sizeof *event;
    event->nanoseconds = wi_now();
    event->thread = wi_thread_number();
    event->live = ledger->live;
    event->pending = ledger->pending;
    event->held = ledger->held;
    event->device = ledger->device;
    if (block) {
        event->memory_class = block->memory_class;
        event->pointer = block->pointer;
        event->bytes = block->bytes;
        event->charged = block->charged;
        event->generation = wi_block_generation(block);
        event->client = block->account->lasting;
        event->tag = block->tag;
    }
    event->client = event->client ? event->client : "";
    event->tag = event->tag ? event->tag : "";
}

static void record_add(wi_ledger *ledger, wi_events *ring, const weir_event *event)
{
    wi_events_add(ring, event);
    if (wi_events_calls(ring))
        atomic_fetch_or_explicit(&ledger->recording, WI_EVENTS_WAITING, memory_order_relaxed);
}

void wi_record_locked(wi_ledger *ledger, weir_event event, const wi_block *block)
{
    record_complete(ledger, &event, block);
    for (wi_events *ring = ledger->events; ring; ring = wi_events_next(ring))
        record_add(ledger, ring, &event);
}

void wi_record(wi_ledger *ledger, weir_event event, const wi_block *block)
{
    pthread_mutex_lock(&ledger->lock);
    if (ledger->events)
        wi_record_locked(ledger, event, block);
    pthread_mutex_unlock(&ledger->lock);
}

void wi_record_to(wi_ledger *ledger, wi_events **ring, weir_event event, const wi_block *block)
{
    pthread_mutex_lock(&ledger->lock);
    record_complete(ledger, &event, block);
    if (*ring)
        record_add(ledger, *ring, &event);
    pthread_mutex_unlock(&ledger->lock);
}

typedef struct walk {
    wi_ledger *ledger;
    wi_events *ring;
    uint64_t live; /* so far, as if they were allocated now, one after the other */
} walk;

static void add_live(wi_block *block, void *user)
{
    walk *w = user;
    const wi_block seen = wi_look_at(block); /* a thread cache may be parking it */
    if (!wi_block_is_live(&seen))
        return;
    weir_event event = {.action = WEIR_ACTION_ALLOCATE, .stream = WEIR_STREAM_HOST, .other = seen.stream};
    record_complete(w->ledger, &event, &seen);
    event.live = w->live += seen.charged;
    record_add(w->ledger, w->ring, &event);
}

void wi_record_into(wi_ledger *ledger, wi_events *events)
{
    wi_members_lock(ledger);
    pthread_mutex_lock(&ledger->lock);
    wi_members_each(ledger, add_live, &(walk){ledger, events, 0});
    wi_events_link(&ledger->events, events);
    atomic_fetch_or(&ledger->recording, WI_RECORDING);
    pthread_mutex_unlock(&ledger->lock);
    wi_members_unlock(ledger);
}

void wi_record_no_more(wi_ledger *ledger, wi_events *events)
{
    pthread_mutex_lock(&ledger->lock);
    wi_events_unlink(&ledger->events, events);
    if (!ledger->events)
        atomic_fetch_and(&ledger->recording, ~(unsigned)WI_RECORDING);
    pthread_mutex_unlock(&ledger->lock);
}
