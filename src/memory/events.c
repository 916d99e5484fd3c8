#include "memory/events.h"
#include "base/system.h"

/* Law: taken <= added <= taken + capacity; event n stands in slot n % capacity. The array grows by doubling up to the
 * capacity, so that a short trace costs little. */
struct wi_events {
    weir_event *ring;
    size_t allocated, capacity;
    uint64_t added, taken, order;
    atomic_uint_fast64_t lost;
};

wi_events *wi_events_create(size_t capacity)
{
    wi_events *events = calloc(1, sizeof *events);
    if (events)
        events->capacity = capacity ? capacity : (size_t)1 << 20;
    return events;
}

void wi_events_destroy(wi_events *events)
{
    if (events)
        free(events->ring);
    free(events);
}

static bool grow(wi_events *events)
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

void wi_events_add(wi_events *events, weir_event event)
{
    event.size = sizeof event;
    event.order = ++events->order;
    event.nanoseconds = wi_now();
    event.thread = wi_thread_number();
    if (events->added - events->taken == events->allocated && !grow(events)) {
        atomic_fetch_add(&events->lost, 1);
        return;
    }
    events->ring[events->added++ % events->allocated] = event;
    wi_law(events->taken <= events->added && events->added <= events->taken + events->capacity);
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

uint64_t wi_events_lost(const wi_events *events)
{
    return atomic_load(&events->lost);
}
