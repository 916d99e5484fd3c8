/* What happens next: a heap of events, and transfers that share a link. */
#include "sim/pool/traffic.h"
#include "base/internal.h"

#include <stdlib.h>

/* A binary heap ---------------------------------------------------------------------------------------------------- */

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

/* A link ----------------------------------------------------------------------------------------------------------- */

static void link_go_on(shared_link *it, uint64_t now)
{
    if (it->count > 0 && now > it->now) {
        unsigned __int128 each = (unsigned __int128)(now - it->now) * LINK_PARTS / it->count;
        for (uint32_t i = 0; i < it->count; i++)
            it->list[i].left -= it->list[i].left < each ? it->list[i].left : each;
    }
    it->now = now;
}

bool link_begin(shared_link *it, uint64_t now, uint32_t who, uint64_t alone)
{
    if (it->count == LINK_MOST)
        return false;
    link_go_on(it, now);
    it->list[it->count].left = (unsigned __int128)alone * LINK_PARTS;
    it->list[it->count++].who = who;
    return true;
}

uint64_t link_next(const shared_link *it)
{
    if (it->count == 0)
        return UINT64_MAX;
    unsigned __int128 least = it->list[0].left;
    for (uint32_t i = 1; i < it->count; i++)
        least = it->list[i].left < least ? it->list[i].left : least;
    return it->now + (uint64_t)((least * it->count + LINK_PARTS - 1) / LINK_PARTS);
}

bool link_end(shared_link *it, uint64_t now, uint32_t *who)
{
    link_go_on(it, now);
    for (uint32_t i = 0; i < it->count; i++) {
        if (it->list[i].left > 0)
            continue;
        *who = it->list[i].who;
        for (it->count--; i < it->count; i++)
            it->list[i] = it->list[i + 1];
        return true;
    }
    return false;
}
