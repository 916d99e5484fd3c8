/* Nodes of prefix caches: found by tokens, kept in a heap while they can be evicted. */
#include "runtime/block_pool/prefix_index.h"

/* Finding ---------------------------------------------------------------------------------------------------------- */

static bool index_is(const wi_prefix_node *node, const wi_prefix_key *key)
{
    size_t bytes = node->cache->tokens * sizeof node->tokens[0];
    if (node->hash != key->hash || node->parent != key->parent || memcmp(node->tokens, key->tokens, bytes) != 0)
        return false;
    return key->parent ||
           (node->salt_bytes == key->salt_bytes &&
            (key->salt_bytes == 0 || memcmp((char *)node->tokens + bytes, key->salt, key->salt_bytes) == 0));
}

wi_prefix_node *wi_prefix_find(const weir_prefix_cache *cache, const wi_prefix_key *key)
{
    wi_prefix_node *node = cache->rows[key->hash & cache->mask];
    while (node && !index_is(node, key))
        node = node->next;
    return node;
}

wi_prefix_node *wi_prefix_make(weir_prefix_cache *cache, const wi_prefix_key *key, uint32_t block)
{
    size_t bytes = cache->tokens * sizeof(uint32_t), salt_bytes = key->parent ? 0 : key->salt_bytes;
    wi_prefix_node *node = malloc(sizeof *node + bytes + salt_bytes);
    if (!node)
        return NULL;
    *node = (wi_prefix_node){.parent = (wi_prefix_node *)(uintptr_t)key->parent,
                             .cache = cache,
                             .hash = key->hash,
                             .block = block,
                             .salt_bytes = (uint32_t)salt_bytes};
    memcpy(node->tokens, key->tokens, bytes);
    if (salt_bytes > 0)
        memcpy((char *)node->tokens + bytes, key->salt, salt_bytes);
    return node;
}

void wi_prefix_free(wi_prefix_node *list)
{
    while (list) {
        wi_prefix_node *next = list->next;
        free(list);
        list = next;
    }
}

/* The heap --------------------------------------------------------------------------------------------------------- */

static bool index_before(const wi_prefix_node *one, const wi_prefix_node *other)
{
    return one->used < other->used;
}

static void index_put(weir_prefix_cache *cache, uint32_t place, wi_prefix_node *node)
{
    cache->heap[place] = node;
    node->place = place;
}

/* Puts the node at the place or where it belongs above or below it. */
static void index_sift(weir_prefix_cache *cache, uint32_t place, wi_prefix_node *node)
{
    while (place > 1 && index_before(node, cache->heap[place / 2])) {
        index_put(cache, place, cache->heap[place / 2]);
        place /= 2;
    }
    for (uint64_t child; (child = (uint64_t)place * 2) <= cache->evictable; place = (uint32_t)child) {
        if (child < cache->evictable && index_before(cache->heap[child + 1], cache->heap[child]))
            child++;
        if (!index_before(cache->heap[child], node))
            break;
        index_put(cache, place, cache->heap[child]);
    }
    index_put(cache, place, node);
}

static void index_push(wi_prefix_node *node)
{
    weir_prefix_cache *cache = node->cache;
    wi_assert(node->place == 0 && cache->evictable < cache->most);
    index_sift(cache, ++cache->evictable, node);
}

static void index_pull(wi_prefix_node *node)
{
    weir_prefix_cache *cache = node->cache;
    uint32_t place = node->place;
    if (place == 0)
        return;
    wi_prefix_node *last = cache->heap[cache->evictable--];
    node->place = 0;
    if (last != node)
        index_sift(cache, place, last);
}

/* Use -------------------------------------------------------------------------------------------------------------- */

static wi_block_share *index_share(const wi_prefix_node *node)
{
    return &node->cache->member->pool->shares[node->block];
}

static bool index_is_idle(const wi_prefix_node *node)
{
    return index_share(node)->references == 1;
}

void wi_prefix_joined(wi_prefix_node *node)
{
    node->cache->idle--;
    index_pull(node);
}

void wi_prefix_left(wi_prefix_node *node)
{
    node->cache->idle++;
    node->used = node->cache->member->pool->tick;
    if (node->children == 0)
        index_push(node);
}

void wi_prefix_pin(wi_prefix_node *node)
{
    node->children++;
    index_pull(node);
}

void wi_prefix_unpin(wi_prefix_node *node)
{
    wi_assert(node->children > 0);
    if (--node->children == 0 && index_is_idle(node))
        index_push(node);
}

/* Entering and removing -------------------------------------------------------------------------------------------- */

void wi_prefix_enter(wi_prefix_node *node)
{
    weir_prefix_cache *cache = node->cache;
    wi_prefix_node **row = &cache->rows[node->hash & cache->mask];
    wi_block_share *share = index_share(node);
    wi_assert(share->references > 0 && cache->cached < cache->most);
    node->next = *row;
    *row = node;
    if (node->parent)
        wi_prefix_pin(node->parent);
    share->references++;
    share->node = node;
    cache->cached++;
    cache->inserted++;
}

void wi_prefix_remove(wi_prefix_node *node, wi_prefix_node **gone)
{
    weir_prefix_cache *cache = node->cache;
    wi_prefix_node **link = &cache->rows[node->hash & cache->mask];
    wi_assert(node->children == 0);
    while (*link != node)
        link = &(*link)->next;
    *link = node->next;
    if (index_is_idle(node))
        wi_prefix_joined(node); /* it counts as idle no more */
    if (node->parent)
        wi_prefix_unpin(node->parent);
    index_share(node)->node = NULL;
    wi_blocks_unreference(cache->member, node->block);
    cache->cached--;
    node->next = *gone;
    *gone = node;
}

bool wi_prefix_evict_one(weir_prefix_cache *cache, wi_prefix_node **gone)
{
    if (cache->evictable == 0)
        return false;
    wi_prefix_remove(cache->heap[1], gone);
    return true;
}

/* Shortage --------------------------------------------------------------------------------------------------------- */

/* The cache with the least recently used block; of one member's, or with NULL of all. NULL: none can be evicted. */
static weir_prefix_cache *index_coldest(const weir_block_pool *pool, const weir_block_pool_member *member)
{
    weir_prefix_cache *coldest = NULL;
    for (weir_prefix_cache *c = pool->caches; c; c = c->next)
        if (c->evictable > 0 && (!member || c->member == member) &&
            (!coldest || index_before(c->heap[1], coldest->heap[1])))
            coldest = c;
    return coldest;
}

/* Whether the request could be met if all idle blocks were evicted, and pending ones, if it may wait, were free. */
static bool index_would_do(const weir_block_pool_member *member, uint32_t count)
{
    const weir_block_pool *pool = member->pool;
    bool waits = !(pool->flags & WEIR_ALLOC_NO_WAIT);
    uint64_t own = (uint64_t)(member->cap - member->used) + (waits ? member->pending : 0);
    uint64_t all = (uint64_t)pool->free.free + (waits ? pool->pending : 0);
    for (const weir_prefix_cache *c = pool->caches; c; c = c->next) {
        all += c->idle;
        own += c->member == member ? c->idle : 0;
    }
    return count <= own && count <= all;
}

bool wi_prefix_make_room(weir_block_pool_member *member, uint32_t count, uint32_t *later, wi_prefix_node **gone)
{
    weir_block_pool *pool = member->pool;
    bool any = false;
    if (!index_would_do(member, count))
        return false;
    for (;;) {
        uint64_t coming = pool->flags & WEIR_ALLOC_NO_WAIT ? 0 : *later;
        bool capped = count > member->cap - member->used + coming;
        if (!capped && count <= pool->free.free + coming && (any || coming > 0))
            return any;
        weir_prefix_cache *cache = index_coldest(pool, capped ? member : NULL);
        if (!cache)
            return any;
        (void)wi_prefix_evict_one(cache, gone);
        *later += pool->shares[(*gone)->block].leaving > 0;
        any = true;
    }
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

bool wi_prefix_any(const weir_block_pool_member *member)
{
    const weir_prefix_cache *cache = member->pool->caches;
    while (cache && cache->member != member)
        cache = cache->next;
    return cache != NULL;
}

void wi_prefix_check(const weir_block_pool *pool, uint32_t index)
{
    const wi_prefix_node *node = pool->shares[index].node;
    if (!node)
        return;
    const weir_prefix_cache *cache = node->cache;
    bool idle = index_is_idle(node);
    wi_assert(node->block == index && pool->owners[index] == cache->member->slot);
    wi_assert(pool->shares[index].references > 0 && (!node->parent || node->parent->children > 0));
    wi_assert((node->place > 0) == (idle && node->children == 0));
    wi_assert(node->place == 0 || (node->place <= cache->evictable && cache->heap[node->place] == node));
    wi_assert(node->place < 2 || !index_before(node, cache->heap[node->place / 2]));
    wi_assert(cache->evictable <= cache->idle && cache->idle <= cache->cached && cache->cached <= cache->most);
    (void)cache; /* for builds that execute none of this */
    (void)idle;
}

void wi_prefix_check_counts(const weir_block_pool *pool)
{
    for (const weir_prefix_cache *cache = pool->caches; cache; cache = cache->next) {
        uint32_t cached = 0, idle = 0, evictable = 0;
        for (uint32_t i = 0; i < pool->count; i++) {
            const wi_prefix_node *node = pool->shares[i].node;
            if (!node || node->cache != cache)
                continue;
            cached++;
            idle += index_is_idle(node);
            evictable += node->place > 0;
        }
        wi_assert(cached == cache->cached && idle == cache->idle && evictable == cache->evictable);
        (void)cached, (void)idle, (void)evictable;
    }
}
