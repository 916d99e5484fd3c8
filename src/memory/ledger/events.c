/* Traces: the ring that events go into, and the functions that record. */
#include "memory/ledger/ledger.h"
#include <weir/trace.h>
#include "base/system.h"
#include "memory/ledger/members.h"

/* Invariants: taken <= added <= taken + capacity; event n is in slot n % capacity. The array starts small and doubles
 * up to the capacity, so that a short trace costs little. */
struct wi_events {
    wi_events *next;
    weir_event *ring;
    size_t allocated, capacity;
    uint64_t added, taken, order, call_at;
    atomic_uint_fast64_t lost;
};

wi_events *wi_events_create(size_t capacity)
{
    wi_events *events = calloc(1, sizeof *events);
    if (events) {
        events->capacity = capacity ? capacity : WI_EVENTS_STANDARD;
        events->call_at = UINT64_MAX;
    }
    return events;
}

void wi_events_destroy(wi_events *events)
{
    if (events)
        free(events->ring);
    free(events);
}

static bool events_grow(wi_events *events)
{
    size_t wanted = wi_min(events->allocated ? events->allocated * 2 : 1024, events->capacity);
    weir_event *ring = wanted > events->allocated ? malloc(wanted * sizeof *ring) : NULL;
    if (!ring)
        return false;
    for (uint64_t n = events->taken; events->allocated > 0 && n < events->added; n++)
        ring[n % wanted] = events->ring[n % events->allocated];
    free(events->ring);
    events->ring = ring;
    events->allocated = wanted;
    return true;
}

void wi_events_add(wi_events *events, const weir_event *event)
{
    events->order++;
    if (events->added - events->taken == events->allocated && !events_grow(events)) {
        atomic_fetch_add(&events->lost, 1);
        return;
    }
    weir_event *stored = &events->ring[events->added++ % events->allocated];
    *stored = *event;
    stored->order = events->order;
    wi_assert(events->taken <= events->added && events->added <= events->taken + events->capacity);
}

size_t wi_events_take(wi_events *events, char *out, size_t stride, size_t capacity)
{
    size_t count = 0;
    for (; count < capacity && events->taken < events->added; count++) {
        wi_copy_out(out + count * stride, stride, &events->ring[events->taken++ % events->allocated],
                    sizeof(weir_event));
        memcpy(out + count * stride, &stride, sizeof stride);
    }
    return count;
}

size_t wi_events_count(const wi_events *events)
{
    return (size_t)(events->added - events->taken);
}

uint64_t wi_events_lost(const wi_events *events)
{
    return atomic_load(&events->lost);
}

void wi_events_call(wi_events *events)
{
    events->call_at = wi_min(1024, (events->capacity + 1) / 2);
}

bool wi_events_called(const wi_events *events)
{
    return events->call_at != UINT64_MAX;
}

bool wi_events_calls(const wi_events *events)
{
    return wi_events_count(events) >= events->call_at;
}

wi_events *wi_events_next(const wi_events *events)
{
    return events->next;
}

void wi_events_link(wi_events **list, wi_events *events)
{
    events->next = *list;
    *list = events;
}

void wi_events_unlink(wi_events **list, wi_events *events)
{
    while (*list != events)
        list = &(*list)->next;
    *list = events->next;
    events->next = NULL;
}

/* Recording -------------------------------------------------------------------------------------------------------- */

/* Adds what the ledger, the clock and the block know. */
static void events_complete(const wi_ledger *ledger, weir_event *event, const wi_block *block)
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

static void events_record(wi_ledger *ledger, wi_events *ring, const weir_event *event)
{
    wi_events_add(ring, event);
    if (wi_events_calls(ring))
        atomic_fetch_or_explicit(&ledger->recording, WI_EVENTS_WAITING, memory_order_relaxed);
}

void wi_record_locked(wi_ledger *ledger, weir_event event, const wi_block *block)
{
    events_complete(ledger, &event, block);
    for (wi_events *ring = ledger->events; ring; ring = wi_events_next(ring))
        events_record(ledger, ring, &event);
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
    events_complete(ledger, &event, block);
    if (*ring)
        events_record(ledger, *ring, &event);
    pthread_mutex_unlock(&ledger->lock);
}

typedef struct walk {
    wi_ledger *ledger;
    wi_events *ring;
    uint64_t live; /* the sum so far, as if the live blocks were allocated one after the other */
} walk;

static void events_add_live(wi_block *block, void *user)
{
    walk *w = user;
    const wi_block seen = wi_look_at(block); /* a copy: a thread cache may change the block meanwhile */
    if (!wi_block_is_live(&seen))
        return;
    weir_event event = {.action = WEIR_ACTION_ALLOCATE, .stream = WEIR_STREAM_HOST, .other = seen.stream};
    events_complete(w->ledger, &event, &seen);
    event.live = w->live += seen.charged;
    events_record(w->ledger, w->ring, &event);
    if (block->away == 0)
        return;
    event.action = WEIR_ACTION_LEAVE;
    event.object = block->away;
    event.live = w->live -= block->away;
    events_record(w->ledger, w->ring, &event);
}

void wi_record_into(wi_ledger *ledger, wi_events *events)
{
    wi_members_lock(ledger);
    pthread_mutex_lock(&ledger->lock);
    wi_members_each(ledger, events_add_live, &(walk){ledger, events, 0});
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
