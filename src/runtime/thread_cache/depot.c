/* Depots: magazines that pass from a thread's cache to another thread's cache.
 *
 * The frees of a list's blocks are in the delta of the thread cache that put the list there. When another cache takes
 * the list, the frees move to its delta. Then neither delta grows without end where one thread only allocates and
 * another only frees. */
#include "runtime/runtime.h"

static void depot_lock(wi_depot *depot)
{
    pthread_mutex_lock(&depot->lock);
}

static void depot_unlock(wi_depot *depot)
{
    pthread_mutex_unlock(&depot->lock);
}

/* The frees of the list's blocks, once more or once less. */
static void add_frees(wi_delta *delta, const wi_depot_list *list, int sign)
{
    delta->frees += (uint64_t)(sign * (int64_t)list->count);
    delta->returned += (uint64_t)(sign * (int64_t)list->requested);
    delta->live -= sign * (int64_t)(list->count * list->charged);
    for (int c = 0; c < WEIR_CLASS_COUNT; c++)
        delta->live_class[c] -= sign * (int64_t)(list->of_class[c] * list->charged);
}

static void add_delta(wi_delta *delta, const wi_delta *more)
{
    delta->frees += more->frees;
    delta->returned += more->returned;
    delta->live += more->live;
    for (int c = 0; c < WEIR_CLASS_COUNT; c++)
        delta->live_class[c] += more->live_class[c];
}

/* Lists ------------------------------------------------------------------------------------------------------------ */

/* With the lock held. */
static wi_depot_list depot_take_out(wi_depot *depot, uint32_t index)
{
    wi_depot_list list = depot->lists[index];
    uint64_t there = 0;
    memmove(&depot->lists[index], &depot->lists[index + 1], (--depot->count - index) * sizeof depot->lists[0]);
    for (uint32_t i = 0; i < depot->count; i++)
        there |= wi_depot_bit(depot->lists[i].charged);
    atomic_store_explicit(&depot->there, there, memory_order_relaxed);
    atomic_fetch_sub_explicit(&depot->of->lists, 1, memory_order_relaxed);
    depot->room += list.count * list.charged;
    return list;
}

static void depot_prepend(const wi_depot_list *from, wi_block **list)
{
    wi_block *last = from->first;
    while (last->pending_next)
        last = last->pending_next;
    last->pending_next = *list;
    *list = from->first;
}

/* Leaving and taking ----------------------------------------------------------------------------------------------- */

/* Lists the older half of the bin. The blocks are still in the bin, from *link on. */
static wi_depot_list older_half(wi_tcache_bin *bin, uint32_t count, wi_block ***link)
{
    wi_depot_list list = {.charged = bin->charged, .count = count - count / 2};
    *link = &bin->first;
    for (uint32_t i = 0; i < count / 2; i++)
        *link = &(**link)->pending_next;
    list.first = **link;
    for (const wi_block *block = list.first; block; block = block->pending_next) {
        list.of_class[block->memory_class]++;
        list.requested += block->bytes;
    }
    return list;
}

static void depot_merge_returned(wi_tcache *cache)
{
    add_delta(&cache->delta, &cache->returned);
    cache->returned = (wi_delta){0};
}

void wi_depot_merge_returned(wi_tcache *cache)
{
    if (cache->depot->caches == 1 && cache->returned.frees == 0)
        return; /* no other cache of the depot can add frees meanwhile */
    depot_lock(cache->depot);
    depot_merge_returned(cache);
    depot_unlock(cache->depot);
}

bool wi_depot_put(wi_tcache *cache, uint64_t charged)
{
    wi_depot *depot = cache->depot;
    wi_tcache_bin *bin = wi_tcache_bin_of(cache, charged);
    uint32_t count = bin->charged == charged ? bin->count : 0;
    wi_block **link;
    if (charged > WI_TCACHE_HANDED || count < 2)
        return false;
    wi_depot_list list = older_half(bin, count, &link);
    uint64_t bytes = list.count * charged;
    list.by = cache;
    depot_lock(depot);
    depot_merge_returned(cache);
    bool fits = depot->count < WI_DEPOT_LISTS && bytes <= depot->room;
    if (fits) {
        depot->lists[depot->count++] = list;
        depot->room -= bytes;
        atomic_fetch_or_explicit(&depot->there, wi_depot_bit(charged), memory_order_relaxed);
        atomic_fetch_add_explicit(&depot->of->lists, 1, memory_order_relaxed);
    }
    depot_unlock(depot);
    if (fits) {
        *link = NULL;
        bin->count -= list.count;
        cache->room += bytes;
        cache->large -= charged > WI_TCACHE_SMALL ? list.count : 0;
    }
    return fits;
}

/* With the lock held: the delta goes with the list. */
static void hand_delta(wi_depot *depot, const wi_depot_list *list, wi_tcache *to)
{
    if (list->by == to)
        return;
    add_frees(list->by ? &list->by->returned : &depot->delta, list, -1);
    add_frees(&to->delta, list, 1);
}

bool wi_depot_take(wi_tcache *cache, uint64_t charged)
{
    wi_depot *depot = cache->depot;
    wi_tcache_bin *bin = wi_tcache_bin_of(cache, charged);
    wi_depot_list list = {.count = 0};
    if (bin->first)
        return false;
    depot_lock(depot);
    uint32_t i = depot->count;
    while (i > 0 && depot->lists[i - 1].charged != charged)
        i--;
    if (i > 0 && depot->lists[i - 1].count * charged <= cache->room) {
        list = depot_take_out(depot, i - 1);
        hand_delta(depot, &list, cache);
    }
    depot_unlock(depot);
    if (list.count == 0)
        return false;
    uint64_t bytes = list.count * charged;
    bin->first = list.first;
    bin->charged = charged;
    bin->count = list.count;
    bin->most = wi_tcache_most(charged);
    cache->room -= bytes;
    cache->large += charged > WI_TCACHE_SMALL ? list.count : 0;
    return true;
}

bool wi_depot_push_out(wi_depot *depot, uint64_t charged, wi_block **list)
{
    uint32_t i = 0;
    depot_lock(depot);
    while (i < depot->count && depot->lists[i].charged == charged)
        i++;
    bool any = i < depot->count;
    wi_depot_list out = any ? depot_take_out(depot, i) : (wi_depot_list){0};
    depot_unlock(depot);
    if (any)
        depot_prepend(&out, list);
    return any;
}

/* Depots ----------------------------------------------------------------------------------------------------------- */

wi_depot *wi_depot_find(const wi_tcaches *caches, const weir_client *client, weir_stream stream)
{
    wi_depot *depot = caches->depots;
    while (depot && (depot->client != client || depot->stream.id != stream.id))
        depot = depot->next;
    return depot;
}

wi_depot *wi_depot_make(weir_client *client, weir_stream stream)
{
    wi_tcaches *caches = &client->runtime->caches;
    wi_depot *depot = calloc(1, sizeof *depot);
    if (!depot)
        return NULL;
    *depot = (wi_depot){.client = client, .stream = stream, .of = caches, .next = caches->depots, .room = caches->room};
    pthread_mutex_init(&depot->lock, NULL);
    return caches->depots = depot;
}

void wi_depot_forget(wi_tcache *cache)
{
    wi_depot *depot = cache->depot;
    depot_lock(depot);
    for (uint32_t i = 0; i < depot->count; i++)
        if (depot->lists[i].by == cache)
            depot->lists[i].by = NULL;
    add_delta(&depot->delta, &cache->returned); /* since it was merged */
    depot_unlock(depot);
    depot->caches--;
}

void wi_depot_empty(wi_depot *depot, uint64_t above, wi_block **list)
{
    depot_lock(depot);
    for (uint32_t i = depot->count; i-- > 0;)
        if (depot->lists[i].charged > above) {
            wi_depot_list out = depot_take_out(depot, i);
            depot_prepend(&out, list);
        }
    depot_unlock(depot);
}

void wi_depot_merge(wi_depot *depot)
{
    depot_lock(depot);
    wi_ledger_merge(&depot->client->runtime->ledger, &depot->client->account, &depot->delta);
    depot_unlock(depot);
}

void wi_depot_end(wi_depot *depot)
{
    wi_depot **link = &depot->of->depots;
    while (*link != depot)
        link = &(*link)->next;
    *link = depot->next;
    wi_depot_merge(depot);
    wi_assert(depot->count == 0 && depot->caches == 0);
    pthread_mutex_destroy(&depot->lock);
    free(depot);
}
