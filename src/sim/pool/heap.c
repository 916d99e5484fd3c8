/* A binary heap of events. */
#include "sim/pool/traffic.h"
#include "base/internal.h"

#include <stdlib.h>

static bool heap_before(const heap_event *a, const heap_event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

bool heap_put(heap *it, uint64_t at, uint64_t what)
{
    if (!wi_make_room(&it->list, it->count, &it->room, sizeof *it->list))
        return false;
    heap_event event = {at, it->order++, what};
    size_t i = it->count++;
    for (; i > 0 && heap_before(&event, &it->list[(i - 1) / 2]); i = (i - 1) / 2)
        it->list[i] = it->list[(i - 1) / 2];
    it->list[i] = event;
    return true;
}

heap_event heap_take(heap *it)
{
    heap_event first = it->list[0], last = it->list[--it->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < it->count; i = child) {
        if (child + 1 < it->count && heap_before(&it->list[child + 1], &it->list[child]))
            child++;
        if (!heap_before(&it->list[child], &last))
            break;
        it->list[i] = it->list[child];
    }
    if (it->count > 0)
        it->list[i] = last;
    return first;
}

void heap_clear(heap *it)
{
    free(it->list);
    *it = (heap){0};
}
