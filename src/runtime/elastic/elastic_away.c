/* Pages of elastic blocks of a suspended client. */
#include "runtime/elastic/elastic.h"
#include "memory/space/stream_order.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 64 * WI_MIB }; /* of a piece: contents come back piece by piece */

/* Listing ---------------------------------------------------------------------------------------------------------- */

/* Adds a piece behind the last one; its run has the same number. The driver writes there. */
/* NOLINTNEXTLINE(readability-non-const-parameter) */
static weir_status pages_add(wi_away *pages, char *low, char *high, bool saved)
{
    size_t count = pages->piece_count;
    weir_status status = wi_away_room((void **)&pages->pieces, count, &pages->piece_room, sizeof(wi_piece));
    if (status == WEIR_OK)
        status = wi_away_room((void **)&pages->runs, count, &pages->run_room, sizeof(wi_run));
    if (status != WEIR_OK)
        return status;
    pages->pieces[count] = (wi_piece){.run = count, .run_count = 1, .low = low, .high = high};
    pages->runs[count] = (wi_run){low, (uint64_t)(high - low), saved};
    pages->run_count = ++pages->piece_count;
    pages->bytes += (uint64_t)(high - low);
    return WEIR_OK;
}

/* The last piece grows by a page of its block that adjoins it. False: none does. */
static bool pages_extend(wi_away *pages, const char *low, uint64_t page)
{
    size_t count = pages->piece_count;
    wi_piece *last = count > 0 ? &pages->pieces[count - 1] : NULL;
    if (!last || last->high != low || last->high - last->low >= LONGEST)
        return false;
    last->high += page;
    pages->runs[count - 1].bytes += page;
    pages->bytes += page;
    return true;
}

static weir_status pages_list_range(const wi_elastic_range *range, wi_away *pages,
                                    void (*point)(wi_event event, void *user), void *user)
{
    bool saved = !(pages->drop & WEIR_CLASS_BIT(range->memory_class));
    weir_status status = WEIR_OK;
    wi_event event;
    if (pages->stay & WEIR_CLASS_BIT(range->memory_class))
        return WEIR_OK;
    wi_base_lock(range->base);
    for (uint64_t i = 0; i < range->count && status == WEIR_OK; i++) {
        const wi_block *block = wi_elastic_live(range, i);
        char *low = wi_elastic_at(range, i);
        if (!block)
            continue;
        if (wi_stream_uses_held(block->stream_uses))
            status = weir_fail(WEIR_ERR_BUSY, "%s cannot be suspended: a page of \"%s\" is used by %s",
                               range->account->name, range->tag, wi_stream_uses_holder(block->stream_uses));
        for (uint32_t k = 0; wi_stream_uses_point(block->stream_uses, WEIR_ACCESS_WRITE, k, &event); k++)
            point(event, user);
        /* Another block may end where this one begins. */
        if (status == WEIR_OK && (i == 0 || !pages_extend(pages, low, range->page)))
            status = pages_add(pages, low, low + range->page, saved);
    }
    wi_base_unlock(range->base);
    return status;
}

static int pages_by_address(const void *a, const void *b)
{
    const wi_elastic_range *x = *(wi_elastic_range *const *)a, *y = *(wi_elastic_range *const *)b;
    return (x->range.start > y->range.start) - (x->range.start < y->range.start);
}

weir_status wi_elastic_away_list(weir_client *client, wi_away *pages, void (*point)(wi_event event, void *user),
                                 void *user)
{
    size_t count = 0, room = 0;
    wi_elastic_range **ranges = NULL;
    weir_status status = WEIR_OK;
    pages->piece_count = pages->run_count = 0;
    pages->bytes = 0;
    pthread_mutex_lock(&client->runtime->clients_lock);
    for (weir_elastic *e = client->elastics; e && status == WEIR_OK; e = e->next) {
        if (!e->range || e->ending) /* being made, or ended */
            continue;
        status = wi_away_room((void **)&ranges, count, &room, sizeof(wi_elastic_range *));
        if (status == WEIR_OK)
            ranges[count++] = e->range;
    }
    if (count > 1)
        qsort(ranges, count, sizeof(wi_elastic_range *), pages_by_address);
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = pages_list_range(ranges[i], pages, point, user);
    pthread_mutex_unlock(&client->runtime->clients_lock);
    free(ranges);
    return status;
}

/* Giving back and committing --------------------------------------------------------------------------------------- */

/* The elastic block at the address, and the offset there. The caller makes sure that the block is not ended
 * meanwhile. */
static weir_elastic *pages_owner(weir_client *client, const char *address, size_t *offset)
{
    weir_elastic *found = NULL;
    pthread_mutex_lock(&client->runtime->clients_lock);
    for (weir_elastic *e = client->elastics; e && !found; e = e->next) {
        const char *base = e->range ? wi_elastic_at(e->range, 0) : NULL;
        if (base && address >= base && address < base + e->range->page * e->range->count) {
            found = e;
            *offset = (size_t)(address - base);
        }
    }
    pthread_mutex_unlock(&client->runtime->clients_lock);
    return found;
}

weir_status wi_elastic_away_release(weir_client *client, const wi_away *pages)
{
    wi_block *list = NULL, **end = &list;
    wi_base *base = NULL;
    weir_status status = WEIR_OK;
    size_t offset = 0;
    for (size_t i = 0; i < pages->piece_count && status == WEIR_OK; i++) {
        const wi_piece *p = &pages->pieces[i];
        const weir_elastic *e = pages_owner(client, p->low, &offset);
        base = e ? e->range->base : base;
        if (e)
            status = wi_elastic_acquire(e, offset, (size_t)(p->high - p->low), &end);
    }
    if (status == WEIR_OK)
        wi_elastic_free_acquired(client->runtime, list);
    else
        wi_elastic_let_go(base, list);
    return status;
}

weir_status wi_elastic_away_commit(weir_client *client, const wi_away *pages)
{
    weir_status status = WEIR_OK;
    size_t offset = 0;
    for (size_t i = 0; i < pages->piece_count && status == WEIR_OK; i++) {
        const wi_piece *p = &pages->pieces[i];
        weir_elastic *e = pages_owner(client, p->low, &offset);
        if (e)
            status = weir_elastic_commit(e, offset, (size_t)(p->high - p->low), WEIR_STREAM_HOST);
    }
    return status;
}

/* Calls fn for each page, with the lock of its base held. */
static void pages_each(weir_client *client, const wi_away *pages,
                       void (*fn)(const wi_elastic_range *range, uint64_t index, void *user), void *user)
{
    size_t offset = 0;
    for (size_t i = 0; i < pages->piece_count; i++) {
        const wi_piece *p = &pages->pieces[i];
        const weir_elastic *e = pages_owner(client, p->low, &offset);
        if (!e)
            continue;
        wi_base_lock(e->range->base);
        for (uint64_t at = offset; at < offset + (uint64_t)(p->high - p->low); at += e->range->page)
            fn(e->range, at / e->range->page, user);
        wi_base_unlock(e->range->base);
    }
}

typedef struct move {
    const wi_event *event;
    weir_status status;
} move;

static void page_moved(const wi_elastic_range *range, uint64_t index, void *user)
{
    move *m = user;
    wi_block *block = wi_elastic_live(range, index);
    if (block && m->status == WEIR_OK)
        m->status = wi_stream_uses_moved(&block->stream_uses, m->event);
}

weir_status wi_elastic_away_moved(weir_client *client, const wi_away *pages, const wi_event *event)
{
    move m = {event, WEIR_OK};
    pages_each(client, pages, page_moved, &m);
    return m.status;
}

/* Forgetting ------------------------------------------------------------------------------------------------------- */

/* Removes piece `i`, whose run has the same number. */
static void pages_remove(wi_away *pages, size_t i)
{
    size_t behind = --pages->piece_count - i;
    memmove(&pages->pieces[i], &pages->pieces[i + 1], behind * sizeof(wi_piece));
    memmove(&pages->runs[i], &pages->runs[i + 1], behind * sizeof(wi_run));
    pages->run_count = pages->piece_count;
    for (; i < pages->piece_count; i++)
        pages->pieces[i].run = i;
}

/* The part of piece `i` from `high` on becomes a piece of its own. Without host memory for its record it is forgotten, and
 * holds zeros when it is committed the next time. */
static uint64_t pages_split(wi_away *pages, size_t i, char *high)
{
    wi_piece *p = &pages->pieces[i];
    wi_piece rest = *p;
    uint64_t bytes = (uint64_t)(p->high - high);
    rest.low = high;
    p->high = high;
    pages->runs[i].bytes = (uint64_t)(high - p->low);
    bool saved = pages->runs[i].saved;
    if (wi_away_room((void **)&pages->pieces, pages->piece_count, &pages->piece_room, sizeof(wi_piece)) != WEIR_OK ||
        wi_away_room((void **)&pages->runs, pages->piece_count, &pages->run_room, sizeof(wi_run)) != WEIR_OK)
        return bytes;
    size_t behind = pages->piece_count++ - (i + 1);
    memmove(&pages->pieces[i + 2], &pages->pieces[i + 1], behind * sizeof(wi_piece));
    memmove(&pages->runs[i + 2], &pages->runs[i + 1], behind * sizeof(wi_run));
    pages->pieces[i + 1] = rest;
    pages->runs[i + 1] = (wi_run){high, bytes, saved};
    pages->run_count = pages->piece_count;
    for (size_t k = i + 1; k < pages->piece_count; k++)
        pages->pieces[k].run = k;
    return 0;
}

uint64_t wi_elastic_away_forget(wi_away *pages, const char *low, const char *high)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < pages->piece_count;) {
        wi_piece *p = &pages->pieces[i];
        if (p->high <= low || p->low >= high) {
            i++;
        } else if (p->low < low) { /* its second part is looked at next */
            bytes += pages_split(pages, i, (char *)low);
            i++;
        } else {
            if (p->high > high)
                bytes += pages_split(pages, i, (char *)high);
            bytes += (uint64_t)(pages->pieces[i].high - pages->pieces[i].low);
            pages_remove(pages, i);
        }
    }
    pages->bytes -= bytes;
    return bytes;
}
