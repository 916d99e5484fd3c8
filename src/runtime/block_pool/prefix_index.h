/* How prefix caches find blocks, and which blocks they evict first.
 *
 * A node stands for a cached block. It hangs below the node of the block before it, so that a node's tokens and its
 * parent together say all tokens from the beginning. Nodes are found by a hash of these and compared by the tokens, the
 * parent and, where there is none, the salt.
 *
 * Two locks. The pool's `caches_lock`, a mutex, is for finding nodes: rows, and what of a node never changes. The
 * pool's `lock` is for references: `used`, `children`, `place`, the heap, the counts. Entering or removing a node takes
 * both locks, caches_lock first; either lock is enough to see that a node is there.
 *
 * Invariants, while the pool's lock is free:
 *
 *   a block whose share has a node is held by the member of the node's cache, and the node is of that block
 *   a cache's `idle` is the number of its nodes to whose blocks nobody else has a reference
 *   of these, exactly those without children are in the heap: they can be evicted
 *   no node in the heap was used before its parent in the heap, by `used` */
#ifndef WI_PREFIX_INDEX_H
#define WI_PREFIX_INDEX_H

#include "runtime/block_pool/block_pool.h"

#include <weir/prefix_cache.h>

typedef struct wi_prefix_node {
    struct wi_prefix_node *next;   /* in its row; or in a list of removed ones */
    struct wi_prefix_node *parent; /* NULL: it is the first block */
    weir_prefix_cache *cache;
    uint64_t hash;
    wi_event written; /* behind the writes of the inserting caller */
    uint64_t used;    /* the pool's tick then */
    uint32_t block;
    uint32_t children;
    uint32_t place; /* in the heap, from 1; 0: it is not there */
    uint32_t salt_bytes;
    uint32_t tokens[]; /* the cache's number; the salt follows, where there is no parent */
} wi_prefix_node;

struct weir_prefix_cache {
    weir_block_pool_member *member;
    weir_prefix_cache *next; /* of the pool's */
    uint32_t tokens, most;
    uint32_t cached, idle;
    wi_prefix_node **rows; /* by hash */
    uint64_t mask;
    wi_prefix_node **heap; /* from 1: the least recently used of the evictable ones first */
    uint32_t evictable;
    uint64_t lookups, wanted, found, inserted;
};

static inline void wi_prefix_lock(weir_block_pool *pool)
{
    if (pool->shares)
        pthread_mutex_lock(&pool->caches_lock);
}
static inline void wi_prefix_unlock(weir_block_pool *pool)
{
    if (pool->shares)
        pthread_mutex_unlock(&pool->caches_lock);
}

/* What a block is looked for by. */
typedef struct wi_prefix_key {
    const wi_prefix_node *parent;
    uint64_t hash;
    const uint32_t *tokens;
    const void *salt;
    uint32_t salt_bytes;
} wi_prefix_key;

/* The hash of a block: of its tokens, and of the block before it; that of the salt for the first one. It may be the
 * same for other tokens. prefix_key.c. */
uint64_t wi_prefix_hash(uint64_t before, const uint32_t *tokens, uint32_t count);

/* caches_lock is held in the next two. */

wi_prefix_node *wi_prefix_find(const weir_prefix_cache *cache, const wi_prefix_key *key);
/* A node that is not entered yet; NULL: no host memory. */
wi_prefix_node *wi_prefix_make(weir_prefix_cache *cache, const wi_prefix_key *key, uint32_t block);

/* Both locks are held in the next four. */

/* Enters a node whose block has a reference of somebody's: adds the cache's own. */
void wi_prefix_enter(wi_prefix_node *node);
/* Takes a node without children out, and drops the cache's reference. It goes to the list *gone. */
void wi_prefix_remove(wi_prefix_node *node, wi_prefix_node **gone);
/* Removes the least recently used of those that can go. False: none can. */
bool wi_prefix_evict_one(weir_prefix_cache *cache, wi_prefix_node **gone);
/* Evicts for an allocation that found too little, as much as it takes at most, but one at least. False: nothing, as
 * there is nothing, or it would not be enough. *later counts the blocks that are pending now: a request that may wait
 * is better served by them than by more. */
bool wi_prefix_make_room(weir_block_pool_member *member, uint32_t count, uint32_t *later, wi_prefix_node **gone);

/* The pool's lock is held in the next seven. */

/* Somebody has taken a reference to a block that was the cache's alone; has dropped it; uses it. */
void wi_prefix_joined(wi_prefix_node *node);
void wi_prefix_left(wi_prefix_node *node);
/* A node has one more child, or one less: one that is or is not in the cache yet. */
void wi_prefix_pin(wi_prefix_node *node);
void wi_prefix_unpin(wi_prefix_node *node);
/* Executes the invariants of the block's node, if it has one; nothing without WEIR_INVARIANTS. */
void wi_prefix_check(const weir_block_pool *pool, uint32_t index);
/* The same of what caches count of their nodes, in a pool with shares. */
void wi_prefix_check_counts(const weir_block_pool *pool);
/* Whether the member has prefix caches. */
bool wi_prefix_any(const weir_block_pool_member *member);

/* Frees a list of removed nodes. No lock is held. */
void wi_prefix_free(wi_prefix_node *list);

#endif
