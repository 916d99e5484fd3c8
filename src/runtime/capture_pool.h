/* Graphs, inside: pools of what was freed in captures, and is still in what they captured.
 *
 * Invariants: a held block has the phase WI_PENDING, counts as pending and as kept in the ledger, is in its graph's list and not in
 * that of pending blocks, and has its free among its marks where that was on a stream of its own time. A graph that is closed
 * holds nothing. Its record lives while it is open, allocations for it are under way, or blocks of its pool are live.
 *
 * A graph's lock comes before those of streams, resources and the ledger. Of drivers, `passed` alone is called with it. */
#ifndef WI_CAPTURE_POOL_H
#define WI_CAPTURE_POOL_H

#include "memory/resource.h"

#include <weir/stream.h>

/* One more who has it in hand, or one less. */
void wi_graph_hold(weir_capture_pool *graph);
void wi_graph_drop(weir_capture_pool *graph);
const weir_client *wi_graph_client(const weir_capture_pool *graph);
weir_status wi_graph_check_runtime(const weir_capture_pool *graph, const weir_runtime *runtime, weir_stream stream,
                                   const char *call);
/* WEIR_ERR_BUSY while the client has an open one, which it names. */
weir_status wi_graphs_check_none(const weir_client *client);

/* From what the graph holds. WEIR_ERR_NO_ROOM: nothing of it fits. *out is as from wi_allocate. */
weir_status wi_graph_allocate(weir_capture_pool *graph, wi_resource *stack, wi_placement *placement, wi_block **out);
/* The block in hand is of its pool from now on, unless it was closed. */
void wi_graph_adopt(weir_capture_pool *graph, wi_block *block);
/* Ends a taken block of its pool, or of what was its pool; a failure leaves it in hand. */
weir_status wi_graph_free(weir_capture_pool *graph, wi_resource *stack, wi_block *block, weir_stream stream);
/* The taken block is used until the event; before wi_graph_keep of what is cut off it. */
weir_status wi_graph_note(wi_block *block, wi_event event);
/* Holds a tail, pending and in hand, of a live block of its pool. False: it was closed, and the tail is nobody's. */
bool wi_graph_keep(weir_capture_pool *graph, wi_resource *stack, wi_block *tail);

#endif
