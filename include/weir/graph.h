/* weir/graph.h: memory for what is captured into graphs.
 *
 * A captured graph has the addresses of its blocks in it, and uses them whenever it is launched, also those of blocks that were
 * freed while it was captured. So a client's allocations on a stream that is captured for a weir_capture_pool come from a pool of
 * that graph's own, and what of it is freed, then or later, stays the pool's: pending in the client's account, its addresses
 * untouched, and used again by later allocations of captures for the same weir_capture_pool alone, until it is closed.
 *
 * Several captures may share one weir_capture_pool, one after another, which saves memory: a later one may have the bytes that an
 * earlier one has freed. They are then launched so that no two of them run at once, and the content of a block that a later one
 * leaves is good until an earlier one is launched again. What is to run side by side has a weir_capture_pool each.
 *
 * Live blocks stay where they are, as everywhere in weir, so that a graph may also use blocks that were allocated outside
 * of captures; it is the program that keeps those until the last launch. */
#ifndef WEIR_GRAPH_H
#define WEIR_GRAPH_H

#include <weir/memory.h>

WEIR_BEGIN

typedef struct weir_capture_pool weir_capture_pool;

/* Opens a pool for captures of the client's, in its runtime's device memory. Nothing is taken before it is needed. A client
 * with an open one cannot be closed (WEIR_ERR_BUSY). Errors: WEIR_ERR_INVALID (NULL, a closed client), WEIR_ERR_UNSUPPORTED where the
 * runtime's resource allocates nothing in captures (WEIR_FEATURE_CAPTURABLE), WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_capture_pool_create(weir_client *client, weir_capture_pool **out);

/* weir_capture_begin (weir/stream.h, which has its errors and what a captured stream refuses), and until weir_capture_pool_end the
 * client's allocations of device memory on the stream are of the graph's pool. Blocks of the pool may be freed on the stream
 * meanwhile, behind all that was captured so far; other blocks may not. A request with a reservation is met with new memory.
 * Other clients' allocations, and those on other streams that join the capture, are as in any capture. Errors besides: WEIR_ERR_BUSY
 * while another capture for the graph has not ended, WEIR_ERR_STREAM_MISUSE for a stream of another runtime. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_capture_pool_begin(weir_capture_pool *graph, weir_stream stream);

/* Ends that capture; also where the stream has gone meanwhile. WEIR_ERR_INVALID when the graph does not capture this stream. Any
 * thread. */
WEIR_API WEIR_NODISCARD weir_status weir_capture_pool_end(weir_capture_pool *graph, weir_stream stream);

/* What was captured will not be launched again, and its last launches are done when the work is that is on `stream` now
 * (WEIR_STREAM_HOST: are done). What the pool holds goes back in that order, and behind the uses that were declared; nothing
 * waits. Blocks of it that are live become ordinary ones, which are freed behind the last launch like any that it uses. The
 * graph is gone afterwards: no call may be using it, and none may name it again; frees of its blocks may go on. NULL is
 * nothing. WEIR_ERR_BUSY while a capture for it has not ended, WEIR_ERR_STREAM_MISUSE, WEIR_ERR_DRIVER, WEIR_ERR_DEVICE_LOST, each of which
 * leaves it open. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_capture_pool_destroy(weir_capture_pool *graph, weir_stream stream);

typedef struct weir_capture_pool_details {
    size_t struct_size;
    uint64_t number;      /* by which details call it; unique within the process, from 1 */
    uint64_t held;        /* bytes that were freed and wait for later captures; pending in the client's account */
    uint64_t held_blocks; /* in so many pieces */
    uint64_t live_blocks; /* of its pool */
    weir_stream stream;   /* that is being captured; WEIR_STREAM_HOST: none is */
} weir_capture_pool_details;

/* A look at a moment. WEIR_ERR_INVALID for NULL, or when member struct_size is not set. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_capture_pool_info(weir_capture_pool *graph, weir_capture_pool_details *out);

WEIR_END
#endif
