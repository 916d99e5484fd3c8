/* weir/arena_pool.h: the memory of closed arenas, kept for the next ones.
 *
 * A process has one pool for each runtime, which arenas (weir/arena.h) name in their options. What an arena had when it was
 * closed stays live in its client's account, as one block of its real length, and the client's next arena takes the smallest
 * block of the same class that is long enough, unless more of it would lie idle than the bound on waste allows. Memory goes
 * from one client to another by being freed, so that the ledger always says whose it is. The kept bytes have a cap, beyond
 * which the block goes that has been idle longest; and when any request of the runtime finds no memory, a pressure callback
 * (weir/pressure.h) gives up what would cover it. Nothing here waits for a stream: blocks carry the marks of their last runs
 * (weir/uses.h). Device memory alone is kept. */
#ifndef WEIR_ARENA_POOL_H
#define WEIR_ARENA_POOL_H

#include <weir/memory.h>

WEIR_BEGIN

typedef struct weir_arena_pool weir_arena_pool;

typedef struct weir_arena_pool_options {
    size_t struct_size;
    uint64_t cap; /* of kept bytes; 0: an eighth of the runtime's budget as it is at the first get */
    uint32_t
        waste; /* a block may be longer than what is asked for by so many percent of that; 0: 25, half the step of sizes by
                       powers of two, on average */
    int priority; /* of the pressure callback */
} weir_arena_pool_options;

/* The runtime's pool, which the first get makes; `options` NULL: the defaults, or what it has. Each get is put back once,
 * before the runtime ends. Errors: WEIR_ERR_INVALID (NULL, a waste beyond 1000), WEIR_ERR_CONFLICT naming both (it is there with
 * other options), WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_pool_acquire(weir_runtime *runtime,
                                                            const weir_arena_pool_options *options,
                                                            weir_arena_pool **out);

/* With the last put, which counts open arenas in, all that is kept is freed and the pool is gone. Errors as weir_free: it
 * stays. NULL is nothing. Any thread, and not from a pressure callback. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_pool_release(weir_arena_pool *pool);

/* Frees kept blocks, those idle longest first, until at most `keep` bytes are left: the client's alone (a client has to have
 * none before it can be closed), or, with NULL, everybody's. `freed` (may be NULL) gets how many. Errors: WEIR_ERR_INVALID, and as
 * weir_free. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_pool_trim(weir_arena_pool *pool, weir_client *client, uint64_t keep,
                                                         uint64_t *freed);

typedef struct weir_arena_pool_details {
    size_t struct_size;
    uint64_t cap;
    uint64_t kept;          /* bytes, as the ledger counts them; so do the cap and trimming */
    uint64_t taken, missed; /* arenas that found a block here, and that did not */
    uint64_t dropped;       /* blocks freed because of the cap */
    uint64_t given_up;      /* blocks freed under pressure */
    uint32_t blocks;        /* kept */
    uint32_t waste;
} weir_arena_pool_details;

/* A look at a moment. WEIR_ERR_INVALID for NULL. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_arena_pool_info(weir_arena_pool *pool, weir_arena_pool_details *out);

WEIR_END
#endif
