/* timers.c: what the loop waits for. All timers of a kind are equally long, so that each list is in order of time. */
#include "parts.h"

#include <stddef.h>
#include <time.h>

uint64_t ws_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void ws_timer_clear(ws_timers *timers, ws_timer *timer)
{
    if (!timer->set)
        return;
    *(timer->previous ? &timer->previous->next : &timers->first[timer->kind]) = timer->next;
    *(timer->next ? &timer->next->previous : &timers->last[timer->kind]) = timer->previous;
    timer->set = false;
}

void ws_timer_set(ws_timers *timers, ws_timer *timer, ws_wait kind, uint64_t now)
{
    ws_timer_clear(timers, timer);
    *timer = (ws_timer){.previous = timers->last[kind], .due = now + timers->length[kind], .kind = kind, .set = true};
    *(timer->previous ? &timer->previous->next : &timers->first[kind]) = timer;
    timers->last[kind] = timer;
}

ws_timer *ws_timer_due(ws_timers *timers, uint64_t now)
{
    for (int kind = 0; kind < WS_WAITS; kind++) {
        ws_timer *first = timers->first[kind];
        if (first && first->due <= now) {
            ws_timer_clear(timers, first);
            return first;
        }
    }
    return NULL;
}

int64_t ws_timers_next(const ws_timers *timers, uint64_t now)
{
    int64_t next = -1;
    for (int kind = 0; kind < WS_WAITS; kind++) {
        const ws_timer *first = timers->first[kind];
        int64_t left = !first ? -1 : first->due > now ? (int64_t)(first->due - now) : 0;
        if (left >= 0 && (next < 0 || left < next))
            next = left;
    }
    return next;
}
