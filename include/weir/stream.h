/* weir/stream.h: streams, the order in which a device does its work.
 *
 * A stream is an id that carries its runtime, its place and its generation: a stale or foreign one is answered with
 * WEIR_STREAM_MISUSE and never resolves to another stream. Work on one stream happens in order; work on two does not,
 * unless something orders it. On the host driver every stream is a thread, so that work is truly asynchronous. */
#ifndef WEIR_STREAM_H
#define WEIR_STREAM_H

#include <weir/runtime.h>

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

/* Takes a stream from the runtime's pool; released streams are used again under a new id. At most 1024 at once, then
 * WEIR_BUSY; never a silent fallback to a default stream. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_acquire(weir_runtime *runtime, weir_stream *out);

/* Gives the stream back when its work is done: waits for that work. Blocks freed on it are final then; blocks allocated
 * on it stay live. WEIR_STREAM_MISUSE when it is not an acquired stream; WEIR_INVALID for WEIR_STREAM_HOST. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_release(weir_stream stream);

/* Waits until all work put on the stream so far is done. Blocks; holds no weir lock. On WEIR_STREAM_HOST: WEIR_OK. */
WEIR_API WEIR_NODISCARD weir_status weir_stream_synchronize(weir_stream stream);

/* The driver's own stream (a CUstream on cuda; NULL on host, for WEIR_STREAM_HOST and for a stale stream). */
WEIR_API void *weir_stream_native(weir_stream stream);

/* The three below queue work and return; the work happens in stream order. On WEIR_STREAM_HOST it is done at return.
 * The bytes are not checked against blocks: that they are live until the work is done is the caller's promise, kept by
 * freeing them on the same stream. `runtime` must be the stream's. Errors: WEIR_STREAM_MISUSE, WEIR_INVALID for NULL,
 * WEIR_DRIVER, WEIR_DEVICE_LOST. */
WEIR_API WEIR_NODISCARD weir_status weir_copy(weir_runtime *runtime, void *to, const void *from, size_t bytes,
                                              weir_stream stream);
WEIR_API WEIR_NODISCARD weir_status weir_fill(weir_runtime *runtime, void *to, uint8_t value, size_t bytes,
                                              weir_stream stream);
/* `fn` runs on a thread of the driver's; it must not call weir or the driver (a rule of CUDA's, kept on every driver so
 * that what works on one works on all), nor wait for another stream's: on cuda those of all streams run on one thread. */
WEIR_API WEIR_NODISCARD weir_status weir_call(weir_runtime *runtime, void (*fn)(void *user), void *user,
                                              weir_stream stream);

WEIR_END
#endif
