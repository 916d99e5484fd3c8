/* The pool of arenas' memory, inside.
 *
 * Invariants, while the lock is free:
 *   kept is the sum of the idle blocks' charges
 *   the list has room for all that may come back to it
 *   idle[] is in the order of becoming idle, the longest first
 *   an idle block is live in its client's account, has no ticket, and carries the marks of all that was done with it
 * Under the lock nothing of weir's is called. */
#ifndef WI_WORKSPACE_ARENA_POOL_H
#define WI_WORKSPACE_ARENA_POOL_H

#include "base/internal.h"

#include <weir/arena.h>

typedef struct wi_idle {
    weir_client *client;
    weir_block block;
    uint64_t bytes;          /* that it serves with */
    uint64_t charged;        /* as the ledger counts them; the pool looks itself */
    weir_class memory_class; /* class under which the ledger counts the block */
} wi_idle;

/* The smallest block of the client's that serves the request, ordered before what comes on its stream and, with
 * WEIR_ALLOC_ZEROED, zero there. block->pointer is NULL when none does. WEIR_OK, or the errors of ordering and
 * clearing, with which it stays idle. */
weir_status wi_arena_pool_take(weir_arena_pool *pool, weir_client *client, const weir_request *request,
                               weir_block *block, uint64_t *capacity);
/* The block becomes idle behind the work on `stream`, and others may be freed for it, or it itself. On failure it is
 * the caller's as before. */
weir_status wi_arena_pool_give(weir_arena_pool *pool, const wi_idle *given, weir_stream stream);

/* One user more, for an arena. */
void wi_arena_pool_hold(weir_arena_pool *pool);
weir_runtime *wi_arena_pool_runtime(const weir_arena_pool *pool);

#endif
