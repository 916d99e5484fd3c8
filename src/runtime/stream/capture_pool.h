/* Capture pools, inside: private memory of captured graphs. Blocks that are freed in a capture are held, since the
 * graph still uses them.
 *
 * Invariants: a held block has the phase WI_PENDING; it counts as pending and as kept in the ledger; it is in its
 * pool's list and not in that of deferred frees; its free is among its stream uses if it was on a stream outside of
 * the capture. A closed pool holds nothing. Its record lives while the pool is open, allocations for it are under
 * way, or blocks of it are live.
 * A kept block whose request named the pool (graph_named) is in the order of its stream: it serves requests of that stream
 * that name the pool, and is joined with such blocks alone.
 *
 * A pool's lock comes before those of streams, resources and the ledger. Of drivers, only `passed` is called with
 * it. */
#ifndef WI_CAPTURE_POOL_H
#define WI_CAPTURE_POOL_H

#include "memory/resource.h"

#include <weir/stream.h>

struct wi_stream_facts;

/* Reference count of the pool's record. */
void wi_capture_pool_hold(weir_capture_pool *graph);
void wi_capture_pool_drop(weir_capture_pool *graph);
const weir_client *wi_capture_pool_client(const weir_capture_pool *graph);
weir_status wi_capture_pool_check_runtime(const weir_capture_pool *graph, const weir_runtime *runtime,
                                          weir_stream stream, const char *call);
/* WEIR_ERR_BUSY while the client has an open pool, which it names. */
weir_status wi_graphs_check_none(const weir_client *client);

/* Allocates from what the pool holds; *out as from wi_allocate. WEIR_ERR_NO_ROOM: nothing fits. */
weir_status wi_capture_pool_allocate(weir_capture_pool *graph, wi_resource *stack, wi_placement *placement,
                                     wi_block **out);
/* The claimed block belongs to the pool from now on, unless the pool was closed. `named`: as wi_placement.graph_named. */
void wi_capture_pool_adopt(weir_capture_pool *graph, wi_block *block, bool named);
/* Frees a claimed block of the pool, open or closed. On failure the block is still claimed. */
weir_status wi_capture_pool_free(weir_capture_pool *graph, wi_resource *stack, wi_block *block,
                                 const struct wi_stream_facts *at);
/* The claimed block is in use until the event. Called before the block is shrunk, so that its tail has the use as
 * well. */
weir_status wi_capture_pool_note(wi_block *block, wi_event event);
/* The pool keeps the pending tail of a live block, after the block was shrunk. False: the pool was closed, and the
 * tail is the caller's to free. */
bool wi_capture_pool_keep(weir_capture_pool *graph, wi_resource *stack, wi_block *tail);

/* weir_capture_begin and weir_capture_end with a pool. */
weir_status wi_capture_pool_begin(weir_capture_pool *graph, weir_stream stream);
weir_status wi_capture_pool_end(weir_capture_pool *graph, weir_stream stream);

#endif
