/* Transfers that share a link. */
#include "sim/pool/traffic.h"

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
