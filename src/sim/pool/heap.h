/* heap.h: future events, earliest first; events of the same time in the order of their heap_put. */
#ifndef SIM_POOL_HEAP_H
#define SIM_POOL_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct heap_event {
    uint64_t at, order;
    uint64_t what; /* the user's */
} heap_event;

/* A heap of zeros is empty. */
typedef struct heap {
    heap_event *list;
    size_t count, room;
    uint64_t order;
} heap;

bool heap_put(heap *it, uint64_t at, uint64_t what); /* false: no memory */
heap_event heap_take(heap *it);                      /* the first; there is one */
void heap_clear(heap *it);

/* When the first one is; UINT64_MAX: there is none. */
static inline uint64_t heap_next(const heap *it)
{
    return it->count > 0 ? it->list[0].at : UINT64_MAX;
}

#endif
