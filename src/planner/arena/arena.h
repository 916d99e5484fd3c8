/* Shared by the files of arenas: the pool of their memory, stores of parameters, and ordered writes. */
#ifndef WI_PLANNER_ARENA_H
#define WI_PLANNER_ARENA_H

#include "base/internal.h"

#include <weir/arena.h>
#include <weir/uses.h>

/* The pool --------------------------------------------------------------------------------------------------------- */

/* Invariants, while the lock is free:
 *   kept is the sum of the idle blocks' charges
 *   the list has room for all that may come back to it
 *   idle[] is in the order of becoming idle, the longest first
 *   an idle block is live in its client's account, has no ticket, and carries the marks of all that was done with it
 * Under the lock nothing of weir's is called. */
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

/* Parameters ------------------------------------------------------------------------------------------------------- */

/* Of a block: beyond it no device has memory, and below it sums do not wrap. */
#define WI_LONGEST (UINT64_MAX / 4)

weir_runtime *wi_parameters_runtime(const weir_parameters *store);

/* Begins a run that reads the store (NULL: none). *uses gets room for `before` uses of the run's own, then the uses of
 * the store's blocks; the caller frees the list. WEIR_ERR_SYSTEM: the run does not begin. */
weir_status wi_parameters_begin_run(weir_parameters *store, size_t before, weir_use **uses, size_t *count);
void wi_parameters_end_run(weir_parameters *store);

/* Ordered writes --------------------------------------------------------------------------------------------------- */

/* Declares a write to a block: has the stream be behind all declared uses of the block, and the block's next use behind
 * the stream. In between `bytes` come to `to`, copied from `from`, or zeros where that is NULL; 0 bytes: nothing
 * does. */
weir_status wi_order_write(weir_runtime *runtime, weir_block block, void *to, const void *from, uint64_t bytes,
                           weir_stream stream);

#endif
