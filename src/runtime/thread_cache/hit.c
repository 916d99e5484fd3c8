/* Thread cache, hit path: allocation and free that need nothing shared. */
#include "runtime/thread_cache/thread_cache.h"
#include "base/probes.h"
#include "memory/ledger/ledger.h"

/* Compiled with TLS descriptors, so that this access is cheap in a library that was opened late, too:
 * src/CMakeLists.txt. */
_Thread_local wi_tcache_thread *wi_tcache_mine;

/* This thread's cache for the client and stream, with the thread's own lock entered; NULL: there is none, or caches
 * are shut. */
static inline __attribute__((always_inline)) wi_tcache *tcache_enter(const weir_client *client, weir_stream stream)
{
    wi_tcache_thread *mine = wi_tcache_mine;
    if (wi_unlikely(!mine) || wi_unlikely(!wi_biased_enter(&mine->lock)))
        return NULL;
    wi_tcache *cache = wi_tcache_find(mine, client, stream);
    if (wi_likely(cache) && wi_likely(atomic_load_explicit(cache->recording, memory_order_relaxed) == 0))
        return cache;
    wi_biased_leave(&mine->lock);
    return NULL;
}

static inline void tcache_leave(const wi_tcache *cache)
{
    wi_biased_leave(&cache->thread->lock);
}

static void raise_high(wi_delta *delta)
{
    delta->high = delta->live;
    memcpy(delta->high_class, delta->live_class, sizeof delta->high_class);
    delta->high_requested = delta->requested - delta->returned;
    delta->high_blocks = delta->hits - delta->frees;
}

/* The cached block becomes live again, with a new generation. */
static inline uint64_t tcache_revive(wi_tcache *cache, wi_block *block, uint64_t charged, uint64_t bytes,
                                     weir_class memory_class, const char *tag)
{
    uint64_t generation = wi_next_generation(&cache->thread->generation);
    if (tag) {
        wi_store(block->tag, tag);
        block->tagged = true;
    }
    wi_store(block->bytes, bytes);
    wi_store(block->memory_class, memory_class);
    *wi_tcache_recent(cache, block->pointer) = block;
    atomic_store_explicit(&block->word, generation << WI_GENERATION_SHIFT | WI_LIVE, memory_order_release);
    wi_tcache_lose(cache, charged);
    cache->large_hits += charged > WI_TCACHE_SMALL;
    cache->delta.hits++;
    cache->delta.taken += charged;
    cache->delta.requested += bytes;
    cache->delta.live_class[memory_class] += (int64_t)charged;
    cache->delta.live += (int64_t)charged;
    if (cache->delta.live > cache->delta.high)
        raise_high(&cache->delta);
    return generation;
}

static inline __attribute__((always_inline)) void *tcache_serve(weir_client *client, uint64_t bytes, weir_stream stream,
                                                                weir_class memory_class, const char *tag,
                                                                uint64_t *generation)
{
    void *pointer = NULL;
    if (wi_unlikely(bytes - 1 >= UINT64_MAX / 4) || (unsigned)memory_class >= WEIR_CLASS_COUNT ||
        memory_class == WEIR_CLASS_WEIGHTS)
        return NULL;
    wi_tcache *cache = tcache_enter(client, stream);
    if (!cache)
        return NULL;
    uint64_t charged = wi_round_up(bytes, WI_UNIT);
    wi_tcache_bin *bin = wi_tcache_bin_of(cache, charged);
    wi_block *block = bin->charged == charged ? bin->first : NULL;
    if (wi_unlikely(!block) && wi_depot_may_have(cache->depot, charged) && wi_depot_take(cache, charged))
        block = bin->first;
    if (wi_likely(block)) {
        bin->first = block->pending_next;
        bin->count--;
        pointer = block->pointer;
        *generation = tcache_revive(cache, block, charged, bytes, memory_class, tag);
    }
    tcache_leave(cache);
    return pointer;
}

void *wi_tcache_alloc(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                      uint64_t *generation)
{
    return tcache_serve(client, bytes, stream, memory_class, NULL, generation);
}

void *wi_tcache_alloc_tagged(weir_client *client, uint64_t bytes, weir_stream stream, weir_class memory_class,
                             const char *tag, uint64_t *generation)
{
    return tcache_serve(client, bytes, stream, memory_class, tag, generation);
}

/* Whether `pointer` names the live block, and the cache may take it. */
static inline bool tcache_suits(const wi_tcache *cache, const wi_block *block, uint64_t word, const void *pointer,
                                uint64_t generation)
{
    return (word & (WI_TRACKED | 7)) == WI_LIVE && wi_load(block->pointer) == pointer &&
           wi_load(block->account) == cache->account && wi_load(block->plain) &&
           (generation == 0 || generation == word >> WI_GENERATION_SHIFT) &&
           (!wi_load(block->ordered) || wi_load(block->stream.id) == cache->stream.id);
}

/* The bin for one more block of that charge; NULL: the bin is full (the depot may have room), or the cache is. */
static inline wi_tcache_bin *bin_with_room(wi_tcache *cache, uint64_t charged)
{
    wi_tcache_bin *bin = wi_tcache_bin_of(cache, charged);
    bool room = bin->charged == charged && bin->count < bin->most && charged <= cache->room;
    return wi_likely(room) || wi_depot_put(cache, charged) ? bin : NULL;
}

/* Puts a block into the bin. The block's phase is WI_THREAD_CACHED already, which keeps other threads away. */
static inline void tcache_keep(wi_tcache *cache, wi_tcache_bin *bin, wi_block *block)
{
    uint64_t charged = bin->charged;
    wi_store(block->stream.id, cache->stream.id);
    wi_store(block->ordered, true);
    if (wi_unlikely(block->tagged)) {
        wi_store(block->tag, cache->no_tag);
        block->tagged = false;
    }
    block->pending_next = bin->first;
    bin->first = block;
    bin->count++;
    wi_tcache_gain(cache, charged);
    cache->delta.frees++;
    cache->delta.returned += block->bytes;
    cache->delta.live_class[block->memory_class] -= (int64_t)charged;
    cache->delta.live -= (int64_t)charged;
}

/* The record may be of another thread's block, or of none: the word tells. */
static inline bool tcache_keep_acquired(wi_tcache *cache, wi_block *block, const void *pointer, uint64_t generation)
{
    uint64_t word = atomic_load_explicit(&block->word, memory_order_acquire), charged = wi_load(block->charged);
    wi_tcache_bin *bin = tcache_suits(cache, block, word, pointer, generation) ? bin_with_room(cache, charged) : NULL;
    wi_window(WI_WINDOW_BLOCK_CHOSEN);
    if (wi_unlikely(!bin) || wi_tcache_declines(cache, charged) ||
        !atomic_compare_exchange_strong(&block->word, &word, (word & ~UINT64_C(15)) | WI_THREAD_CACHED))
        return false;
    if (wi_unlikely(block->charged != charged)) { /* resized in between */
        wi_block_set_phase(block, WI_LIVE);
        return false;
    }
    tcache_keep(cache, bin, block);
    return true;
}

bool wi_tcache_free(weir_client *client, void *pointer, uint64_t generation, weir_stream stream)
{
    wi_tcache *cache = tcache_enter(client, stream);
    if (!cache)
        return false;
    wi_block *block = *wi_tcache_recent(cache, pointer);
    if (wi_unlikely(!block || wi_load(block->pointer) != pointer))
        block = cache->base->table->peek(cache->base, pointer);
    bool thread_cached = wi_likely(block) && tcache_keep_acquired(cache, block, pointer, generation);
    tcache_leave(cache);
    return thread_cached;
}
