/* Sends what one loaded module asks of CUDA's memory to clients of weir, by its import slots (interpose.h): a module
 * such as libggml-cuda.so, which imports libcudart.so and has no allocator to plug into.
 *
 *   cudaMalloc, cudaFree                    device memory of the client of the current device; the class is the scope's
 *   cudaMallocHost, cudaHostAlloc,          pinned memory of it, which counts in the host's ledger
 *     cudaFreeHost
 *   cudaMallocManaged                       pinned memory, which host and device reach, or device memory (an option)
 *   cudaMemGetInfo                          what the client may still have, and its limit
 *   cudaStreamCreate…, cudaStreamDestroy    go on to CUDA; weir learns the streams; a capture of one that is destroyed is
 *                                           ended before, and its graph destroyed
 *   cudaStreamBeginCapture, …EndCapture     go on to CUDA; weir learns when a stream is captured
 *   cudaGetLastError, cudaPeekAtLastError   know refusals as the runtime's own errors
 *   cuDeviceGetAttribute                    answers 0 for virtual-memory management of every device, as a module that
 *                                           finds it takes memory past cudaMalloc
 *
 * A refusal is cudaErrorMemoryAllocation, and weir's reason is logged and kept (in the scope). On a device
 * of which there is no client everything goes on to CUDA, and so does what the module had before.
 *
 * Where a scope says so, what is refused is granted by CUDA itself, past the budget, while the device has it: for modules
 * that end the process over a refusal. It is counted and logged, and goes back to CUDA.
 *
 * A free returns without waiting. The memory is pending until the work that is on the module's streams now is done:
 * on all that it has created since the redirect began, and on the legacy default stream. Streams of another device
 * are waited for in the call, as no event of theirs can be had for the block; so are all where the resource tracks no
 * uses. While one of the streams is captured nothing can be ordered behind it: what is freed then stays the client's
 * until the capture has ended. Work on the per-thread default stream, and on streams that the module did not create
 * itself, has to be done before it frees what that uses; modules that were built for per-thread default streams are
 * refused.
 *
 * Any thread, where nothing else is said. */
#ifndef WI_CUDA_REDIRECT_H
#define WI_CUDA_REDIRECT_H

#include <weir/weir.h>

typedef struct wi_cuda_redirect wi_cuda_redirect;

/* So many at a time in a process: each has functions of its own, by which calls are told apart. */
enum { WI_CUDA_REDIRECTS = 4 };
/* Devices of CUDA, by their ordinals, that a redirect can have clients for. */
enum { WI_CUDA_DEVICES = 64 };

typedef struct wi_cuda_redirect_options {
    const char *module;          /* as for wi_interpose_open */
    weir_client *const *clients; /* of runtimes on cuda, at most one for a device; they have to outlive the redirect */
    size_t client_count;         /* at least 1 */
    weir_class memory_class;     /* where no scope says another */
    bool managed_on_device;      /* the module never touches managed memory on the host */
    bool pinned_passes; /* pinned memory goes on to CUDA: of a module that keeps it for as long as the process */
} wi_cuda_redirect_options;

/* Begins it, at best right after the module was opened (with RTLD_NOW): streams and memory that it had before are not
 * known. Errors: those of wi_interpose_open, which requires cudaMalloc and cudaFree; WEIR_ERR_INVALID for clients
 * that are none, not on cuda, or two for one device; WEIR_ERR_BUSY when there are WI_CUDA_REDIRECTS already;
 * WEIR_ERR_UNSUPPORTED for per-thread default streams. Nothing has changed then. */
weir_status wi_cuda_redirect_begin(const wi_cuda_redirect_options *options, wi_cuda_redirect **out);

/* Adds a device, which `client` serves from now on. Errors: WEIR_ERR_INVALID as above, also where the device has one;
 * those of weir_stream_default. Nothing has changed then. Not while another thread adds a device. */
weir_status wi_cuda_redirect_add(wi_cuda_redirect *redirect, weir_client *client);
/* The client for the device of that runtime; NULL: none. One of another runtime of the same device counts. */
weir_client *wi_cuda_redirect_client(const wi_cuda_redirect *redirect, const weir_runtime *runtime);

/* Ends it: the module's calls go to CUDA again. WEIR_ERR_BUSY while the module has memory of it; WEIR_ERR_CONFLICT when
 * somebody has put other functions in place of these (wi_interpose_undo); WEIR_ERR_STREAM_MISUSE while a stream is
 * captured. It goes on then. Waits for the work on the module's streams. Not from a function that the module or weir
 * calls. NULL is nothing. */
weir_status wi_cuda_redirect_end(wi_cuda_redirect *redirect);

/* Frees what waits for captures, and waits, at most `most_ms`, until nothing does: for a module's user who wants the
 * memory of what was freed back now. False: some still waits. Not from a thread that captures. */
bool wi_cuda_redirect_settle(wi_cuda_redirect *redirect, uint32_t most_ms);

/* What the calling thread's requests are for, between enter and leave: which clients', which class. Scopes nest; the
 * innermost of a redirect counts. A client of a scope is of the same runtime as the redirect's for that device
 * (WEIR_ERR_INVALID else), and where the scope has none for a device, the redirect's own serves. */

/* Memory of the engine's own that a request for device memory gets instead of a block: addresses that are committed
 * piece by piece. `give_back` is called when the module has freed it and the work on its streams is done. */
typedef struct wi_cuda_source {
    weir_status (*take)(void *user, size_t bytes, void **pointer);
    void (*give_back)(void *user, void *pointer);
    void *user;
} wi_cuda_source;

typedef struct wi_cuda_scope {
    weir_client *const *clients; /* the caller's, until the scope ends */
    size_t client_count;         /* 0: the redirect's */
    weir_class memory_class;
    const char *tag; /* of the blocks; NULL is none */
    /* A reservation for each of the clients, or NULL: device memory comes out of it as long as it lasts, and then from
     * the budget. NULL: none has one. */
    weir_reservation *const *reservations;
    bool overruns;                /* device memory that is refused is granted by CUDA, past the budget */
    const wi_cuda_source *source; /* what device memory is; NULL: blocks */
    /* Written by the redirect: bytes that were granted so in this scope, requests for device memory that were refused
     * in it, and status and reason of the last one. */
    uint64_t overrun, refused;
    weir_status status;
    char refusal[512];
    /* The redirect's own. */
    wi_cuda_redirect *redirect;
    struct wi_cuda_scope *outer;
} wi_cuda_scope;

weir_status wi_cuda_scope_enter(wi_cuda_redirect *redirect, wi_cuda_scope *scope);
/* The one that was entered last, on the same thread. An error that the module has not asked for is forgotten. */
void wi_cuda_scope_leave(wi_cuda_scope *scope);

/* Bytes that CUDA granted past the budget for this client, and that are live. Before it has ended. */
uint64_t wi_cuda_redirect_overrun(wi_cuda_redirect *redirect, const weir_client *client);

/* What CUDA needs -------------------------------------------------------------------------------------------------- */

/* The libraries that a library built for CUDA needs. If one of them is missing, the dynamic linker says so in a single
 * line; this check, made before, names the missing library. */

/* The first library that cannot be opened: of the driver's, and those of CUDA that all engines need, then of `more`,
 * which ends with NULL; NULL for none. NULL: all are here. What was opened stays open for good, as whoever asks is about
 * to use it: to open libcublasLt once more takes 80 ms. */
const char *wi_cuda_missing(const char *const *more);

#endif
