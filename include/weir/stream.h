/* weir/stream.h: streams, the order in which a device does its work; copies and fills on them; captures and their
 * pools.
 *
 * A stream is an id that carries a runtime, an entry and a generation: a stale or foreign one is answered with
 * WEIR_ERR_STREAM_MISUSE and never resolves to another stream. Work on one stream happens in order; work on two does
 * not, unless something orders it. On the host driver every stream is a thread, so that work is truly asynchronous. */
#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include <weir/client.h>

WEIR_BEGIN

typedef struct weir_stream {
    uint64_t id;
} weir_stream;

/* For engines that have no streams: what the caller did is done when the call is made, so a free on it is final at
 * return and an allocation may be touched at once. Valid with every runtime. */
#ifdef __cplusplus
#define WEIR_STREAM_HOST (weir_stream{0})
#else
#define WEIR_STREAM_HOST ((weir_stream){0})
#endif

/* Takes a stream from the runtime's pool; released streams are used again under a new id. At most 1024 at once, those
 * that are registered counted in, then WEIR_ERR_BUSY; never a silent fallback to a default stream. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_acquire(weir_runtime *runtime, weir_stream *out);

/* Gives the stream back when its work is done: waits for that work, and for calls of other threads that are queuing
 * work on the stream; later calls are WEIR_ERR_STREAM_MISUSE, and change nothing. Blocks freed on it are final then;
 * blocks allocated on it stay live.
 * WEIR_ERR_STREAM_MISUSE when it is not an acquired stream, or captured; WEIR_ERR_INVALID for WEIR_STREAM_HOST;
 * WEIR_ERR_DRIVER and WEIR_ERR_DEVICE_LOST when the wait fails, and the stream stays acquired. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_release(weir_stream stream);

/* Makes a stream known that somebody else made (a CUstream) and keeps; frees and uses can then be ordered on it. The
 * caller keeps it alive until it is unregistered. Registered twice, it has the same id and must be unregistered
 * twice. A stream that has the address of a registered one that is gone is told apart, where the driver can: it gets
 * an id of its own, and the old one answers WEIR_ERR_STREAM_MISUSE from then on. What was freed, used or queued by
 * weir on that one still waits for its work. No event can tell of the end of a destroyed stream's work, so that some
 * of this waits for a point behind all work of the device, which weir asks the driver for when memory is short or
 * given back (weir/pressure.h), and not while it knows of a capture: a launch that uses a block which waits so is
 * WEIR_ERR_STREAM_MISUSE until the capture has ended. Unregister streams before you destroy them, and nothing of this
 * happens. Errors: WEIR_ERR_INVALID for NULL, for what CUDA's headers call default streams (ask weir_stream_default
 * for those) and for the runtime's own, WEIR_ERR_STREAM_MISUSE for a stream of another context, and on cuda for one
 * that is being captured (the capture goes on: register before it), WEIR_ERR_UNSUPPORTED on host, whose streams are
 * weir's own, WEIR_ERR_BUSY as weir_stream_acquire. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_register(weir_runtime *runtime, void *native, weir_stream *out);

/* Ends a registration when the work put on the stream so far is done; waits for the work as weir_stream_release does.
 * WEIR_ERR_STREAM_MISUSE when it is not registered, or captured; WEIR_ERR_INVALID for WEIR_STREAM_HOST; WEIR_ERR_DRIVER
 * and WEIR_ERR_DEVICE_LOST when the wait fails, and the stream stays registered.
 * Any thread. A per-thread stream is waited for by its own thread alone: others, which may unregister it when that
 * thread has ended or no longer works on it, wait for what weir has recorded there (frees, launches, uses, zeros of
 * allocations), and not for work that was put on it since. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_unregister(weir_stream stream);

/* Makes one of CUDA's default streams known, for programs that work on default streams; weir itself never does. The id
 * is as from weir_stream_register: unregister it. The per-thread stream is the calling thread's, and its id serves that
 * thread alone; on others it is WEIR_ERR_STREAM_MISUSE, but for weir_stream_unregister.
 * Errors: WEIR_ERR_INVALID for NULL and for what is none, WEIR_ERR_UNSUPPORTED on devices without, WEIR_ERR_BUSY as
 * weir_stream_acquire.
 * Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_default(weir_runtime *runtime, weir_default_stream which,
                                                        weir_stream *out);

/* Waits until all work put on the stream so far is done. Blocks; holds no weir lock. On WEIR_STREAM_HOST: WEIR_OK.
 * WEIR_ERR_STREAM_MISUSE while it is captured. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_synchronize(weir_stream stream);

/* The driver's own stream (a CUstream on cuda; NULL on host, for WEIR_STREAM_HOST and for a stale stream). */
WEIR_API void *weir_stream_native(weir_stream stream);

/* Between these two a stream is being captured into a graph: its work happens when the graph is launched, once, often
 * or never, so that no event on it tells anything about now. What would need one is refused with
 * WEIR_ERR_STREAM_MISUSE: freeing a block on it, launches (declare them around the launch of the graph),
 * weir_use_record, waiting for it, releasing it, and allocations for which something must be queued (zeros, and all
 * of a resource that allocates in stream order). Other allocations serve without waiting; weir_copy, weir_fill and
 * weir_call become part of the graph, on drivers that capture. With a `pool` the graph has memory of its own besides,
 * which can be freed within: see below. weir also looks itself whether a stream is being
 * captured, where the driver can tell, but not each time for what a thread frees and allocates there again and again;
 * begin says so beforehand, and works on every driver. The caller starts and ends the driver's own capture, inside.
 * begin is WEIR_ERR_BUSY while the stream is captured already, WEIR_ERR_INVALID for WEIR_STREAM_HOST,
 * WEIR_ERR_STREAM_MISUSE for CUDA's legacy stream, which cannot be captured; end is WEIR_ERR_INVALID without a begin
 * for the same pool, or without one for none. Any thread. */
struct weir_capture_pool;
WEIR_API WEIR_NODISCARD weir_status weir_capture_begin(weir_stream stream, struct weir_capture_pool *pool);
WEIR_API WEIR_NODISCARD weir_status weir_capture_end(weir_stream stream, struct weir_capture_pool *pool);

/* The three below queue work and return; the work happens in stream order. On WEIR_STREAM_HOST it is done at return.
 * On cuda a copy from or to memory of the host's that is not pinned (weir/base.h) may itself return only when the
 * stream has come to it. The bytes are not checked against blocks: that they are live until the work is done is the
 * caller's promise, kept by freeing them on the same stream. `runtime` must be the stream's. Errors:
 * WEIR_ERR_STREAM_MISUSE, WEIR_ERR_INVALID for NULL, WEIR_ERR_DRIVER, WEIR_ERR_DEVICE_LOST. */
WEIR_API WEIR_NODISCARD weir_status weir_copy(weir_runtime *runtime, void *to, const void *from, size_t bytes,
                                              weir_stream stream);
WEIR_API WEIR_NODISCARD weir_status weir_fill(weir_runtime *runtime, void *to, uint8_t value, size_t bytes,
                                              weir_stream stream);
/* `fn` runs on a thread of the driver's; it must not call weir or the driver (a rule of CUDA's, kept on every driver
 * so that what works on one works on all), nor wait for a function of another stream: on cuda one thread runs the
 * functions of all streams. */
WEIR_API WEIR_NODISCARD weir_status weir_call(weir_runtime *runtime, void (*fn)(void *user), void *user,
                                              weir_stream stream);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Memory for what is captured into graphs.
 *
 * A captured graph has the addresses of its blocks in it, and uses them whenever it is launched, also those of blocks
 * that were freed while it was captured. So a client's allocations on a stream that is captured for a
 * weir_capture_pool come from a pool of that graph's own, and what of it is freed, then or later, stays the pool's:
 * pending in the client's account, its addresses untouched, and used again by later allocations of captures for the
 * same weir_capture_pool alone, until it is closed.
 *
 * Several captures may share a weir_capture_pool in sequence, which saves memory: a later graph may have the bytes that
 * an earlier graph has freed. The graphs are then launched so that no two run at once, and the content of a block that
 * a later graph leaves is good until an earlier graph is launched again. Graphs that run side by side have a
 * weir_capture_pool each.
 *
 * Live blocks stay where they are, as everywhere in weir, so that a graph may also use blocks that were allocated
 * outside of captures; the program keeps such blocks until the last launch.
 *
 * A bridge to a framework often learns of a capture only from the requests, on several streams that join it, or keeps
 * what is not captured in the same pool. It names the pool in the request (weir_request.pool), without begin and end.
 * Such a block is kept in the order of its stream: freed on that stream, captured or not, it is the pool's at once, and
 * serves requests that name the pool on the same stream. Freed on another stream, the block is used again when the
 * device is past the free. Blocks that the pool has by begin and end serve no request that names it, nor the other way
 * round. */

typedef struct weir_capture_pool weir_capture_pool;

/* Opens a pool for captures of the client's, in its runtime's device memory. Nothing is taken before it is needed. A
 * client with an open one cannot be closed (WEIR_ERR_BUSY). Errors: WEIR_ERR_INVALID (NULL, a closed client),
 * WEIR_ERR_UNSUPPORTED where the runtime's resource allocates nothing in captures (WEIR_FEATURE_CAPTURABLE),
 * WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_capture_pool_create(weir_client *client, weir_capture_pool **out);

/* Between weir_capture_begin with the pool and weir_capture_end the client's allocations of device memory on the stream
 * are of the graph's pool. Blocks of the pool may be freed on the stream meanwhile, behind all that was captured so
 * far; other blocks may not. A request with a reservation is met with new memory. Allocations of other clients, or on
 * other streams that join the capture, are as in any capture. begin is WEIR_ERR_BUSY besides while another capture for
 * the pool has not ended, WEIR_ERR_STREAM_MISUSE for a stream of another runtime; end also works where the stream has
 * gone meanwhile. */

/* Stands for all work put on the device so far, on every stream, also on streams that weir does not know: for
 * weir_free, weir_free_block and weir_capture_pool_destroy. The driver is asked for a point behind it; where it has
 * none (CUDA before 12.5, the host) the call waits for the device. WEIR_ERR_STREAM_MISUSE while a stream is
 * captured. */
#ifdef __cplusplus
#define WEIR_STREAM_ALL (weir_stream{UINT64_MAX})
#else
#define WEIR_STREAM_ALL ((weir_stream){UINT64_MAX})
#endif

/* What was captured will not be launched again, and its last launches are done when the work is that is on `stream`
 * now (WEIR_STREAM_HOST: are done; WEIR_STREAM_ALL: on every stream).
 * What the pool holds goes back in that order, and behind the uses that were
 * declared; nothing waits. Live blocks of the pool become ordinary blocks, which are freed behind the last launch like
 * any block that the graph uses. The graph is gone afterwards: no call may be using it, and none may name it again;
 * frees of its blocks may go on. NULL is nothing. WEIR_ERR_BUSY while a capture for it has not ended,
 * WEIR_ERR_STREAM_MISUSE, WEIR_ERR_DRIVER, WEIR_ERR_DEVICE_LOST, each of which leaves it open. Any thread. */
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
