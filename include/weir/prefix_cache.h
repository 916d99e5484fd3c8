/* weir/prefix_cache.h: finding blocks of keys and values by their tokens, so that sequences with the same beginning
 * share blocks.
 *
 * A prefix cache belongs to one membership in a block pool (weir/block_pool.h) with WEIR_BLOCK_POOL_SHARED. The cache
 * has one reference to every cached block. A block has `tokens` tokens of all layers, and is found by all tokens from
 * the beginning to its own last one and by the caller's salt: the tokens themselves are compared, so that no two
 * prompts share a block because numbers computed from them are equal. The salt says what else the contents depend on:
 * model, adapter, type of the elements, tenant.
 *
 * What is cached counts once under the cap of the cache's member, whoever uses it; tenants that share prefixes join the
 * pool as one member, tenants that must not share prefixes use a salt or a membership per tenant. A block to which a
 * sequence has a reference is never evicted, nor is one before another one that is cached still. Of the others the
 * least recently used goes first: when an allocation finds too few free blocks or its cap reached, when an insertion
 * finds the cache full, or when weir_prefix_cache_evict is called. An evicted block is free at once, or pending while
 * streams are not past the references that were dropped on them.
 *
 * Lookups and insertions are done one after the other in a pool; allocations and frees go on meanwhile. */
#ifndef WEIR_PREFIX_CACHE_H
#define WEIR_PREFIX_CACHE_H

#include <weir/block_pool.h>

WEIR_BEGIN

typedef struct weir_prefix_cache weir_prefix_cache;

typedef struct weir_prefix_cache_options {
    size_t struct_size;
    uint32_t tokens; /* in a block; not 0 */
    uint32_t most;   /* blocks that it may have; 0: as many as the pool, and the member's cap, allow */
} weir_prefix_cache_options;

/* What a sequence is found by. */
typedef struct weir_prefix {
    size_t struct_size;
    const uint32_t *tokens;
    size_t count;     /* tokens; those behind the last full block are not looked at */
    const void *salt; /* read during the call; NULL: none */
    size_t salt_bytes;
} weir_prefix;

/* Makes an empty cache; the cache takes 24 bytes of host memory per block that it may have, and per cached block the
 * block's tokens and some 100 bytes. Errors: WEIR_ERR_INVALID names the member at fault, WEIR_ERR_UNSUPPORTED in a pool
 * without WEIR_BLOCK_POOL_SHARED, WEIR_ERR_SYSTEM. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_prefix_cache_create(weir_block_pool_member *member,
                                                             const weir_prefix_cache_options *options,
                                                             weir_prefix_cache **out);

/* Drops the cache's references. Blocks that sequences hold stay theirs. No other thread uses the cache; allocations
 * from the pool may go on. A membership or pool with a cache cannot be destroyed (WEIR_ERR_BUSY). WEIR_ERR_INVALID
 * for NULL. */
WEIR_API WEIR_NODISCARD weir_status weir_prefix_cache_destroy(weir_prefix_cache *cache);

/* Finds the longest beginning of the prefix whose blocks are cached, at most `capacity` blocks. Writes their indices,
 * adds a reference to each, which is the caller's to free (weir_block_pool_free), and *found gets their number, which
 * may be 0. Work on `stream` comes behind the writes of the found blocks; on WEIR_STREAM_HOST the call waits for
 * these writes. A caller that wants to compute at least the last token asks with one token less.
 * Errors: WEIR_ERR_INVALID, WEIR_ERR_STREAM_MISUSE (also on a stream that is being captured), WEIR_ERR_DRIVER and
 * WEIR_ERR_DEVICE_LOST, with no reference added.
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_prefix_cache_acquire(weir_prefix_cache *cache, const weir_prefix *prefix,
                                                              weir_stream stream, uint32_t *indices, uint32_t capacity,
                                                              uint32_t *found);

/* Inserts the full blocks of a sequence: indices[k] has tokens k * tokens and on, of `count` blocks that the caller
 * holds, and whose contents are written by work that is on `stream` now. The cache adds a reference of its own to each
 * block that it did not have; the caller's stay the caller's, in any case. Where it has a block of these tokens
 * already, that one stays, and the sequence's is left alone. A full cache evicts; a block without room is left out,
 * with all later blocks. *inserted (may be NULL) gets how many were added. Blocks in a cache are not written to
 * (weir_block_pool_make_writable gives a copy).
 * Errors (nothing changes): WEIR_ERR_INVALID (NULL; a block that is not held), WEIR_ERR_FOREIGN (another member's),
 * WEIR_ERR_CONFLICT (a block named twice, or cached for other tokens), WEIR_ERR_STREAM_MISUSE, WEIR_ERR_DRIVER,
 * WEIR_ERR_SYSTEM.
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_prefix_cache_insert(weir_prefix_cache *cache, const weir_prefix *prefix,
                                                             const uint32_t *indices, uint32_t count,
                                                             weir_stream stream, uint32_t *inserted);

/* Evicts up to `most` blocks, least recently used first, of those that can go; *evicted (may be NULL) gets their
 * number. Calls no driver, so that pressure callbacks (weir/pressure.h) may call it at no cost. The bytes stay the
 * pool's. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_prefix_cache_evict(weir_prefix_cache *cache, uint32_t most, uint32_t *evicted);

typedef struct weir_prefix_cache_details {
    size_t struct_size;
    uint32_t tokens, most;  /* as at creation; `most` is never 0 */
    uint32_t cached;        /* blocks that it has */
    uint32_t idle;          /* of `cached`: blocks to which only the cache has a reference */
    uint64_t lookups;       /* calls of weir_prefix_cache_acquire */
    uint64_t wanted, found; /* full blocks asked for, and full blocks found */
    uint64_t inserted;      /* blocks, ever */
    uint64_t evicted;       /* blocks, ever; `inserted` less `cached` */
} weir_prefix_cache_details;

/* A look at a moment. WEIR_ERR_INVALID for NULL, or when member struct_size is not set. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_prefix_cache_info(weir_prefix_cache *cache, weir_prefix_cache_details *out);

WEIR_END
#endif
