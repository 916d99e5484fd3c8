/* Block pools: equal blocks in one allocation, called by index (a slab), such as the pages of a KV cache.
 *
 * Invariants, while the lock is free:
 *
 *   a block is free (its bit in `free`), held (its bit in `held`), or neither: pending, or being cleared
 *   while a block is held, owners[] has the slot of its member
 *   for each member   used = held + pending <= min(peak, cap)
 *   over the members  used adds up to count - free.free, and pending to the pool's pending
 *   the runs of the waiting entries are exactly the pending blocks
 *   a stream's entries pass in their order, or an earlier one is freed late
 *
 * With the lock held, of drivers only `passed` is called, which never blocks, and no host memory is allocated. */
#ifndef WI_BLOCK_POOL_H
#define WI_BLOCK_POOL_H

#include "base/bitmap.h"
#include "runtime/runtime.h"

#include <weir/block_pool.h>

typedef struct wi_block_run {
    uint32_t first, count;
} wi_block_run;

/* Deferred frees: runs that were freed together, and wait for one event. The first entry of each stream is in the
 * pool's list, and later ones follow it in order. */
typedef struct wi_waiting {
    struct wi_waiting *next;      /* on the same stream; or in a list of reaped entries */
    struct wi_waiting *last;      /* of the first entry: the stream's last entry */
    struct wi_waiting *next_head; /* of the first entry: the first entry of another stream */
    wi_event event;
    uint64_t order;
    weir_block_pool_member *member;
    uint32_t run_count;
    wi_block_run runs[];
} wi_waiting;

struct weir_block_pool_member {
    weir_block_pool *pool;
    weir_client *client;
    const char *name;                  /* interned */
    uint16_t slot;                     /* from 1, unique among the members there are */
    uint32_t cap, used, pending, peak; /* used: held and pending */
    uint64_t taken;                    /* blocks allocated so far; the blocks that are no longer held were freed */
    atomic_uint_fast64_t refused;
    weir_block_pool_member *previous, *next;
};

struct weir_block_pool {
    atomic_uint locked; /* the lock: 1 while a thread has it */
    uint32_t count, pending, least_free;
    uint64_t *held;
    uint16_t
        *owners; /* the slot of the block's last owner, which decides whether the next one gets it cleared; 0: none */
    uint32_t *generations; /* how often each block was allocated; NULL without WEIR_BLOCK_POOL_NAMED */
    wi_bitmap free;
    uint64_t taken; /* by members that have left */
    atomic_uint_fast64_t refused;

    weir_runtime *runtime;
    weir_client *client; /* that the allocation belongs to */
    weir_block block;
    size_t bytes;
    const char *tag; /* interned */
    uint32_t flags;
    weir_block_pool_member *first, *last;
    uint32_t members;
    wi_bitmap slots; /* slot - 1 */
    wi_waiting *heads;
    uint64_t last_order;
    uint64_t changes; /* for the invariant checker */
};

/* Executes the invariant, with the lock held; nothing in builds without WEIR_INVARIANTS. */
void wi_blocks_check(weir_block_pool *pool);

/* The lock spins, for a few nanoseconds of work: one atomic operation to acquire, none to release. Waiters yield, so that
 * an owner that was preempted gets a processor. */
void wi_blocks_wait_for_lock(weir_block_pool *pool);

static inline void wi_blocks_lock(weir_block_pool *pool)
{
    if (wi_unlikely(atomic_exchange_explicit(&pool->locked, 1, memory_order_acquire)))
        wi_blocks_wait_for_lock(pool);
}
static inline void wi_blocks_unlock(weir_block_pool *pool)
{
    wi_blocks_check(pool);
    atomic_store_explicit(&pool->locked, 0, memory_order_release);
}

/* The lock is held in all of these. */

/* Reaps: frees the blocks of entries whose event has passed. The entries go to *done, for wi_waiting_free without the
 * lock. */
void wi_blocks_reap(weir_block_pool *pool, wi_waiting **done);
/* Makes blocks that are no longer held free. */
void wi_blocks_give(weir_block_pool_member *member, wi_block_run run);
/* Makes the entry's blocks, which are no longer held, pending. */
void wi_blocks_pend(wi_waiting *waiting);
/* The entry that was added first; NULL: none is pending. */
const wi_waiting *wi_blocks_oldest(const weir_block_pool *pool);
/* The member that has a block, held or pending. */
weir_block_pool_member *wi_blocks_owner(const weir_block_pool *pool, uint32_t index);

static inline bool wi_blocks_is_held(const weir_block_pool *pool, uint32_t index)
{
    return pool->held[index / 64] >> index % 64 & 1;
}

/* Sets the held bits. */
static inline void wi_blocks_hold(weir_block_pool *pool, wi_block_run run)
{
    for (uint32_t part; run.count > 0; run.first += part, run.count -= part) {
        part = (uint32_t)wi_min(run.count, 64 - run.first % 64);
        pool->held[run.first / 64] |= wi_bits(run.first % 64, part);
    }
}

/* The lock is not held in these. */

/* NULL when there is no host memory. */
wi_waiting *wi_waiting_make(weir_block_pool_member *member, uint32_t runs);
void wi_waiting_free(wi_waiting *waiting); /* the whole list */
/* Records an event on the stream into the entry. *wait: whether it has not passed yet. */
weir_status wi_waiting_fence(weir_block_pool *pool, void *native, wi_waiting *waiting, bool *wait);

/* Reaps. */
void wi_blocks_flush(weir_block_pool *pool);

static inline weir_block_pool_view wi_blocks_view(const weir_block_pool *pool)
{
    return (weir_block_pool_view){pool->block.pointer, pool->bytes, pool->count};
}

#endif
