/* Prefix caches: making and ending them, lookups, insertions, evictions. */
#include "runtime/block_pool/prefix_index.h"
#include "base/texts.h"

/* Caches ----------------------------------------------------------------------------------------------------------- */

static void prefix_free_record(weir_prefix_cache *cache)
{
    free(cache->rows);
    free(cache->heap);
    free(cache);
}

static weir_prefix_cache *prefix_make_record(weir_block_pool_member *member, const weir_prefix_cache_options *o)
{
    uint32_t count = member->pool->count;
    weir_prefix_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->member = member;
    cache->tokens = o->tokens;
    cache->most = o->most == 0 ? count : (uint32_t)wi_min(o->most, count);
    cache->mask = 1;
    while (cache->mask < cache->most)
        cache->mask *= 2;
    cache->rows = wi_table_make(cache->mask, sizeof(wi_prefix_node *));
    cache->heap = wi_table_make((size_t)cache->most + 1, sizeof(wi_prefix_node *));
    cache->mask--;
    if (cache->rows && cache->heap)
        return cache;
    prefix_free_record(cache);
    return NULL;
}

weir_status weir_prefix_cache_create(weir_block_pool_member *member, const weir_prefix_cache_options *options,
                                     weir_prefix_cache **out)
{
    WI_ENTER();
    weir_prefix_cache_options o;
    if (!member || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_prefix_cache_create: NULL");
    *out = NULL;
    weir_status status = WI_COPY_IN(weir_prefix_cache_options, &o, options, "weir_prefix_cache_create");
    if (status != WEIR_OK)
        return status;
    weir_block_pool *pool = member->pool;
    if (o.tokens == 0 || o.tokens > UINT32_C(1) << 24)
        return weir_fail(WEIR_ERR_INVALID, "weir_prefix_cache_create: %u tokens in a block; from 1 to 2^24", o.tokens);
    if (!pool->shares)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "weir_prefix_cache_create: make the pool %s with WEIR_BLOCK_POOL_SHARED, and its blocks have "
                         "references",
                         pool->tag);
    weir_prefix_cache *cache = prefix_make_record(member, &o);
    if (!cache)
        return weir_fail(WEIR_ERR_SYSTEM, "weir_prefix_cache_create: no host memory for a prefix cache");
    wi_prefix_lock(pool);
    wi_blocks_lock(pool);
    cache->next = pool->caches;
    pool->caches = cache;
    wi_blocks_unlock(pool);
    wi_prefix_unlock(pool);
    *out = cache;
    return WEIR_OK;
}

/* Removes all nodes of a row, even if their blocks are in use. Children may go after their parents here, as every node
 * goes. The locks are held. */
static void prefix_empty_row(weir_prefix_cache *cache, uint64_t row, wi_prefix_node **gone)
{
    for (wi_prefix_node *node; (node = cache->rows[row]) != NULL;) {
        wi_block_share *share = &cache->member->pool->shares[node->block];
        cache->rows[row] = node->next;
        share->node = NULL;
        wi_blocks_unreference(cache->member, node->block);
        node->next = *gone;
        *gone = node;
    }
}

weir_status weir_prefix_cache_destroy(weir_prefix_cache *cache)
{
    WI_ENTER();
    if (!cache)
        return weir_fail(WEIR_ERR_INVALID, "weir_prefix_cache_destroy: NULL");
    weir_block_pool *pool = cache->member->pool;
    wi_prefix_node *gone = NULL;
    wi_prefix_lock(pool);
    wi_blocks_lock(pool);
    weir_prefix_cache **link = &pool->caches;
    while (*link != cache)
        link = &(*link)->next;
    *link = cache->next;
    for (uint64_t row = 0; row <= cache->mask; row++)
        prefix_empty_row(cache, row, &gone);
    wi_blocks_unlock(pool);
    wi_prefix_unlock(pool);
    wi_prefix_free(gone);
    prefix_free_record(cache);
    return WEIR_OK;
}

/* Walking along a prefix ------------------------------------------------------------------------------------------- */

typedef struct prefix_walk {
    weir_prefix_cache *cache;
    weir_prefix prefix;
    uint32_t blocks; /* full ones, at most as many as were asked for */
    wi_prefix_key key;
} prefix_walk;

static weir_status prefix_begin(prefix_walk *w, weir_prefix_cache *cache, const weir_prefix *prefix, uint32_t most,
                                const char *call)
{
    weir_status status = WI_COPY_IN(weir_prefix, &w->prefix, prefix, call);
    if (status != WEIR_OK)
        return status;
    if ((!w->prefix.tokens && w->prefix.count > 0) || (!w->prefix.salt && w->prefix.salt_bytes > 0) ||
        w->prefix.salt_bytes > UINT32_MAX)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL tokens, or a salt that is NULL or beyond 4 GiB", call);
    w->cache = cache;
    w->blocks = (uint32_t)wi_min(w->prefix.count / cache->tokens, most);
    w->key = (wi_prefix_key){.hash = wi_fnv1a(w->prefix.salt, w->prefix.salt_bytes),
                             .salt = w->prefix.salt,
                             .salt_bytes = (uint32_t)w->prefix.salt_bytes};
    return WEIR_OK;
}

/* The key becomes that of block k, behind the one before. */
static void prefix_step(prefix_walk *w, uint32_t k, const wi_prefix_node *parent)
{
    w->key.parent = parent;
    w->key.tokens = w->prefix.tokens + (size_t)k * w->cache->tokens;
    w->key.hash = wi_prefix_hash(w->key.hash, w->key.tokens, w->cache->tokens);
}

/* Lookups ---------------------------------------------------------------------------------------------------------- */

enum { MOST_REFERENCES = INT32_MAX };

/* Adds a reference to the node's block, and the point behind its writes. False: it cannot be had. */
static bool prefix_join(wi_prefix_node *node, wi_block_points *points)
{
    weir_block_pool *pool = node->cache->member->pool;
    wi_block_share *share = &pool->shares[node->block];
    if (share->references == MOST_REFERENCES)
        return false;
    if (node->written.stream && pool->runtime->driver->passed(pool->runtime->device, node->written))
        node->written = (wi_event){NULL, 0};
    if (node->written.stream && !wi_blocks_add_point(points, node->written))
        return false;
    if (share->references == 1)
        wi_prefix_joined(node);
    share->references++;
    return true;
}

weir_status weir_prefix_cache_acquire(weir_prefix_cache *cache, const weir_prefix *prefix, weir_stream stream,
                                      uint32_t *indices, uint32_t capacity, uint32_t *found)
{
    static const char call[] = "weir_prefix_cache_acquire";
    prefix_walk w;
    void *native = NULL;
    wi_block_points points = {.count = 0};
    WI_ENTER();
    if (!cache || !found || (!indices && capacity > 0))
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    *found = 0;
    weir_status status = prefix_begin(&w, cache, prefix, capacity, call);
    weir_block_pool *pool = cache->member->pool;
    if (status == WEIR_OK && stream.id != 0)
        status = wi_streams_resolve_now(pool->runtime, stream, call, &native);
    if (status != WEIR_OK)
        return status;
    uint32_t k = 0;
    wi_prefix_lock(pool);
    for (const wi_prefix_node *node = NULL; k < w.blocks; k++) {
        prefix_step(&w, k, node);
        node = wi_prefix_find(cache, &w.key);
        if (!node)
            break;
        indices[k] = node->block;
    }
    uint32_t there = k;
    wi_blocks_lock(pool);
    pool->tick++;
    for (k = 0; k < there && prefix_join(pool->shares[indices[k]].node, &points); k++) {
    }
    cache->lookups++;
    cache->wanted += w.blocks;
    cache->found += k;
    wi_blocks_unlock(pool);
    wi_prefix_unlock(pool);
    status = wi_blocks_order(pool, native, &points);
    if (status == WEIR_OK)
        *found = k;
    else if (k > 0) /* nothing has used them */
        (void)!weir_block_pool_free(cache->member, indices, NULL, k, 0, WEIR_STREAM_HOST);
    return status;
}

/* Insertions ------------------------------------------------------------------------------------------------------- */

/* Makes nodes for the blocks from k on, in a list. False: no host memory; *list has the nodes made so far. */
static bool prefix_make_nodes(prefix_walk *w, uint32_t k, wi_prefix_node *parent, const uint32_t *indices,
                              wi_prefix_node **list)
{
    wi_prefix_node **end = list;
    *list = NULL;
    for (; k < w->blocks; k++) {
        *end = wi_prefix_make(w->cache, &w->key, indices[k]);
        if (!*end)
            return false;
        parent = *end;
        end = &parent->next;
        if (k + 1 < w->blocks)
            prefix_step(w, k + 1, parent);
    }
    return true;
}

/* Whether all the nodes' blocks can be cached: they are the caller's, each once, and not cached. During the check, each
 * block is marked with its node, so that a second naming is found. */
static wi_block_fault prefix_check_blocks(const weir_prefix_cache *cache, wi_prefix_node *list)
{
    weir_block_pool *pool = cache->member->pool;
    wi_block_fault fault = {WEIR_OK, 0, ""};
    wi_prefix_node *node = list;
    for (; node && fault.status == WEIR_OK; node = node->next)
        if (pool->shares[node->block].node)
            fault = (wi_block_fault){WEIR_ERR_CONFLICT, node->block, ""};
        else if (!wi_blocks_has(cache->member, node->block))
            fault = wi_blocks_fault(cache->member, node->block);
        else
            pool->shares[node->block].node = node;
    for (node = list; node; node = node->next)
        if (pool->shares[node->block].node == node)
            pool->shares[node->block].node = NULL;
    return fault;
}

/* Enters the nodes of the list while there is room, and leaves the rest in the list. Both locks are held. */
static uint32_t prefix_enter_list(weir_prefix_cache *cache, wi_prefix_node **list, wi_event written,
                                  wi_prefix_node **gone)
{
    uint32_t entered = 0;
    wi_prefix_node *pinned = *list ? (*list)->parent : NULL;
    if (pinned) /* it is not to make room for its own child */
        wi_prefix_pin(pinned);
    for (wi_prefix_node *node; (node = *list) != NULL; entered++) {
        if (cache->cached == cache->most && !wi_prefix_evict_one(cache, gone))
            break;
        *list = node->next;
        node->written = written;
        wi_prefix_enter(node);
    }
    if (pinned)
        wi_prefix_unpin(pinned);
    return entered;
}

/* The blocks that are there already have been used once more. */
static void prefix_touch(wi_prefix_node *node)
{
    for (; node; node = node->parent) {
        wi_prefix_pin(node); /* its place in the heap changes */
        node->used = node->cache->member->pool->tick;
        wi_prefix_unpin(node);
    }
}

static weir_status prefix_insert(prefix_walk *w, const uint32_t *indices, wi_event written, uint32_t *inserted)
{
    weir_prefix_cache *cache = w->cache;
    weir_block_pool *pool = cache->member->pool;
    wi_prefix_node *node = NULL, *parent = NULL, *list = NULL, *gone = NULL;
    wi_block_fault fault = {WEIR_OK, 0, ""};
    uint32_t k = 0;
    wi_prefix_lock(pool);
    for (; k < w->blocks; k++, parent = node) {
        prefix_step(w, k, parent);
        node = wi_prefix_find(cache, &w->key);
        if (!node)
            break;
    }
    bool made = prefix_make_nodes(w, k, parent, indices, &list);
    wi_blocks_lock(pool);
    if (made)
        fault = prefix_check_blocks(cache, list);
    if (made && fault.status == WEIR_OK) {
        pool->tick++;
        prefix_touch(parent);
        *inserted = prefix_enter_list(cache, &list, written, &gone);
    }
    wi_blocks_unlock(pool);
    wi_prefix_unlock(pool);
    wi_prefix_free(list);
    wi_prefix_free(gone);
    if (!made)
        return weir_fail(WEIR_ERR_SYSTEM, "weir_prefix_cache_insert: no host memory for %u blocks", w->blocks - k);
    return wi_blocks_report(cache->member, &fault, "weir_prefix_cache_insert");
}

/* The point behind what is on the stream now; {NULL, 0} when that is done. */
static weir_status prefix_point(weir_block_pool *pool, weir_stream stream, wi_event *out)
{
    const weir_runtime *runtime = pool->runtime;
    void *native;
    *out = (wi_event){NULL, 0};
    if (stream.id == 0)
        return WEIR_OK;
    weir_status status = wi_streams_resolve_recorded(pool->runtime, stream, "weir_prefix_cache_insert", &native);
    if (status == WEIR_OK)
        status = runtime->driver->record(runtime->device, native, out);
    if (status == WEIR_OK && runtime->driver->passed(runtime->device, *out))
        *out = (wi_event){NULL, 0};
    return status;
}

weir_status weir_prefix_cache_insert(weir_prefix_cache *cache, const weir_prefix *prefix, const uint32_t *indices,
                                     uint32_t count, weir_stream stream, uint32_t *inserted)
{
    static const char call[] = "weir_prefix_cache_insert";
    prefix_walk w;
    wi_event written = {NULL, 0};
    uint32_t entered = 0;
    WI_ENTER();
    if (inserted)
        *inserted = 0;
    if (!cache || (!indices && count > 0))
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    weir_status status = prefix_begin(&w, cache, prefix, count, call);
    if (status == WEIR_OK && w.blocks > 0)
        status = wi_blocks_check_list(cache->member, indices, w.blocks, call);
    if (status == WEIR_OK)
        status = prefix_point(cache->member->pool, stream, &written);
    if (status == WEIR_OK && w.blocks > 0)
        status = prefix_insert(&w, indices, written, &entered);
    if (inserted)
        *inserted = entered;
    return status;
}

/* Evictions -------------------------------------------------------------------------------------------------------- */

weir_status weir_prefix_cache_evict(weir_prefix_cache *cache, uint32_t most, uint32_t *evicted)
{
    WI_ENTER();
    if (!cache)
        return weir_fail(WEIR_ERR_INVALID, "weir_prefix_cache_evict: NULL");
    weir_block_pool *pool = cache->member->pool;
    wi_prefix_node *gone = NULL;
    uint32_t count = 0;
    wi_prefix_lock(pool);
    wi_blocks_lock(pool);
    while (count < most && wi_prefix_evict_one(cache, &gone))
        count++;
    wi_blocks_unlock(pool);
    wi_prefix_unlock(pool);
    wi_prefix_free(gone);
    if (evicted)
        *evicted = count;
    return WEIR_OK;
}

weir_status weir_prefix_cache_info(weir_prefix_cache *cache, weir_prefix_cache_details *out)
{
    WI_ENTER();
    if (!cache || !out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_prefix_cache_info: NULL, or member struct_size is not set");
    weir_block_pool *pool = cache->member->pool;
    wi_blocks_lock(pool);
    weir_prefix_cache_details details = {.struct_size = sizeof details,
                                         .tokens = cache->tokens,
                                         .most = cache->most,
                                         .cached = cache->cached,
                                         .idle = cache->idle,
                                         .lookups = cache->lookups,
                                         .wanted = cache->wanted,
                                         .found = cache->found,
                                         .inserted = cache->inserted,
                                         .evicted = cache->inserted - cache->cached};
    wi_blocks_unlock(pool);
    wi_copy_out(out, out->struct_size, &details, sizeof details);
    return WEIR_OK;
}
