#include "memory/ledger/events.h"
#include <weir/trace.h>

/* Invariants: taken <= added <= taken + capacity; event n stands in slot n % capacity. The array grows by doubling up to the
 * capacity, so that a short trace costs little. */
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
    weir_event *kept = &events->ring[events->added++ % events->allocated];
    *kept = *event;
    kept->order = events->order;
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
