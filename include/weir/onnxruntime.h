/* weir/onnxruntime.h: ONNX Runtime's memory from weir, for a program that uses ONNX Runtime itself.
 *
 * A bridge is a client of weir as ONNX Runtime sees it: an OrtAllocator for the memory of the client's device ("Cpu"
 * on host, "Cuda" on cuda), and on cuda a second one for pinned memory of the host's ("CudaPinned"). Sessions take
 * part that are created with the configuration entry session.use_env_allocators = "1" while the bridge is registered
 * with their environment; a session keeps the bridge it began with for life. Two ways:
 *
 *   one client for a device     weir_onnxruntime_register, then sessions at will, and weir_onnxruntime_unregister
 *   a client for each session   weir_onnxruntime_create; enter, CreateSession, leave; …; weir_onnxruntime_destroy
 *
 * No header of ONNX Runtime's is needed here; the types of ONNX Runtime are declared below by name, so that a program
 * passes its own pointers.
 *
 * Memory that ONNX Runtime requests on a stream is WEIR_CLASS_ACTIVATIONS, on the stream. Memory requested without a
 * stream (for a captured graph see below), or reserved, is WEIR_CLASS_WEIGHTS: weir expects it to live long, and it may
 * be used on any stream at once. On host, where no request names a stream, memory requested between enter and leave, or
 * reserved, is WEIR_CLASS_WEIGHTS, and all else WEIR_CLASS_ACTIVATIONS. A request of zero bytes gets NULL. A refused
 * one is logged as an error with device, bytes and cause, and leaves as std::bad_alloc, which ONNX Runtime turns into a
 * failed status: NULL would crash it. A free of a pointer that the allocator did not hand out, or that was freed
 * before, is logged as a warning, counted and ignored, also where it is a block of the same client's.
 *
 * Streams. weir frees in the order of a stream, so that the next owner need not wait. A session whose stream weir
 * knows gets that in full: acquire one (weir_stream_acquire), name it in the options, and hand weir_stream_native of
 * it to the CUDA provider as user_compute_stream. Where ONNX Runtime makes streams of its own, which it destroys
 * without a word, the bridge touches them only in calls that name them, orders its own stream behind theirs and
 * theirs behind its own, and has a free without a stream wait for the device. Runs with
 * disable_synchronize_execution_providers are the caller's to order: values are to be released when the device is
 * past their use, as with ONNX Runtime's own allocator.
 *
 * Addresses of captured CUDA graphs stay when the known stream is captured for a capture pool (weir_capture_begin), on
 * the thread that runs the session: then what its kernels ask for without a stream is the graph's, too. Otherwise, and
 * with a pool of blocks, a request or a free on a captured stream is refused or stays, with a word in the log.
 *
 * The client, and the pool of blocks and the stream if there are such, are closed and released after the bridge. ONNX
 * Runtime 1.23 or later. Any thread may call these functions, and no function prints. ONNX Runtime finds the allocators
 * by the provider's device id, which is weir's ordinal: both count what CUDA_VISIBLE_DEVICES leaves. */
#ifndef WEIR_ONNXRUNTIME_H
#define WEIR_ONNXRUNTIME_H

#include <weir/block_pool.h>

/* ONNX Runtime's. */
struct OrtApi;
struct OrtEnv;
struct OrtAllocator;

WEIR_BEGIN

typedef struct weir_onnxruntime weir_onnxruntime;

/* The first version of ONNX Runtime's interface that has all that a bridge needs. */
enum { WEIR_ONNXRUNTIME_OLDEST = 23 };

typedef struct weir_onnxruntime_options {
    size_t struct_size;
    const struct OrtApi *api; /* what GetApi answered, */
    uint32_t version;         /* and the version it was asked for: ORT_API_VERSION, WEIR_ONNXRUNTIME_OLDEST or more */
    struct OrtEnv *env;
    weir_client *client; /* who is charged, of a runtime of host or cuda */
    /* NULL: the client's runtime serves. Else device memory is taken from this member's pool in runs of blocks; the
     * member is the client's, and its blocks are multiples of 256 bytes */
    weir_block_pool_member *blocks;
    weir_stream stream; /* of the sessions; WEIR_STREAM_HOST: weir knows none */
} weir_onnxruntime_options;

/* One client for a device ------------------------------------------------------------------------------------------ */

/* Makes the client serve the environment's sessions on the client's device. The same options again: WEIR_OK, and
 * nothing changes. The environment is pinned: it lives at least until weir_onnxruntime_unregister.
 * Errors (nothing changes): WEIR_ERR_CONFLICT, naming the device, when another client (or the same one otherwise) is
 * registered for it, or an allocator that is not weir's; WEIR_ERR_UNSUPPORTED for a device that is neither, an older
 * version, or where there is no std::bad_alloc to throw; WEIR_ERR_INVALID for a member that is missing, a client that
 * is closed, a granule (the bytes of one block of the pool, or the least charge of the runtime) that is no multiple of
 * 256, and an environment that is not ONNX Runtime's; WEIR_ERR_STREAM_MISUSE for a stream that is not its runtime's;
 * WEIR_ERR_ENGINE with ONNX Runtime's words and the step that failed; WEIR_ERR_BUSY between enter and leave on this
 * thread; WEIR_ERR_SYSTEM. */
WEIR_API WEIR_NODISCARD weir_status weir_onnxruntime_register(const weir_onnxruntime_options *options);

/* The bridge that is registered for the device ("host", "cuda:0") and is the one that ONNX Runtime has, or one that was
 * entered has its place; NULL if there is none. env NULL: with any environment. weir_onnxruntime_info tells its client,
 * so that another engine joins the same account or the same runtime. Valid until it is unregistered. Waits while
 * another thread is between enter and leave. */
WEIR_API weir_onnxruntime *weir_onnxruntime_registered(const struct OrtEnv *env, const char *device);

/* Ends it and gives everything back: later sessions get what they would without weir. WEIR_ERR_BUSY while blocks are
 * live that ONNX Runtime took, naming how many: sessions and values are to be released first; everything is as before
 * then. A session that outlives this all the same is refused memory from then on: a few thousand bytes stay for it.
 * WEIR_ERR_NOT_FOUND names the device. An allocator that somebody else put in its place meanwhile stays. */
WEIR_API WEIR_NODISCARD weir_status weir_onnxruntime_unregister(const struct OrtEnv *env, const char *device);

/* A client for each session ---------------------------------------------------------------------------------------- */

/* Makes a bridge. Errors as for weir_onnxruntime_register, but for conflicts. The environment is pinned until the
 * close. */
WEIR_API WEIR_NODISCARD weir_status weir_onnxruntime_create(const weir_onnxruntime_options *options,
                                                            weir_onnxruntime **out);

/* Sessions that are created between these two get the bridge, whatever else is registered for the device; leave puts
 * back what weir had there before. One thread at a time is between them, in the whole process; others wait in enter.
 * Leave is called on the same thread. Errors of enter: WEIR_ERR_CONFLICT, naming the device, when an allocator is
 * registered that is not weir's, WEIR_ERR_BUSY on a thread that has entered, WEIR_ERR_ENGINE. Leave cannot fail: what
 * ONNX Runtime has against it is logged as a warning. */
WEIR_API WEIR_NODISCARD weir_status weir_onnxruntime_enter(weir_onnxruntime *bridge);
WEIR_API void weir_onnxruntime_leave(weir_onnxruntime *bridge);

/* Ends the bridge, once its sessions and their values are released. WEIR_ERR_BUSY, as weir_onnxruntime_unregister,
 * while blocks of it are live, and for one that is registered or entered. NULL is nothing. Where ONNX Runtime did not
 * give its allocator up in leave, which was logged, a few thousand bytes stay for that, as a second warning says: it
 * refuses memory from then on. Both may be called inside a pressure callback (weir/pressure.h); the bridge's own is
 * waited for, if another thread is in it. */
WEIR_API WEIR_NODISCARD weir_status weir_onnxruntime_destroy(weir_onnxruntime *bridge);

/* Looking
 * ------------------------------------------------------------------------------------------------------------ */

typedef struct weir_onnxruntime_details {
    size_t struct_size;
    uint64_t live;      /* blocks that ONNX Runtime has */
    uint64_t blocks;    /* ever taken by ONNX Runtime, of any kind */
    uint64_t on_stream; /* of `blocks`: requested on a stream */
    uint64_t unknown;   /* of `on_stream`: on streams that weir does not know */
    uint64_t reserved;  /* bytes requested through Reserve */
    uint64_t foreign;   /* frees of pointers that the allocator did not hand out, which were ignored */
    uint64_t refused;   /* requests that were refused */
    weir_client *client;
    /* The OrtAllocators themselves, to be called or passed on, as to CreateTensorAsOrtValue, by kind of memory: of
     * WEIR_KIND_DEVICE and WEIR_KIND_PINNED; NULL for a kind that the bridge has not. They live as long as the
     * bridge. */
    struct OrtAllocator *allocators[WEIR_KIND_MOST];
} weir_onnxruntime_details;

/* Each number is exact at rest. WEIR_ERR_INVALID for NULL or a size that is not set. */
WEIR_API WEIR_NODISCARD weir_status weir_onnxruntime_info(weir_onnxruntime *bridge, weir_onnxruntime_details *out);

/* A call of ONNX Runtime has failed with the words in `text`. If that was because a request of this thread, or of one
 * that worked for it, was refused since `refused` was as given: writes the refusal's words there instead, and answers
 * with its status. WEIR_OK: it was not. */
WEIR_API weir_status weir_onnxruntime_explain(weir_onnxruntime *bridge, uint64_t refused, char *text, size_t capacity);

WEIR_END
#endif
