/* The parts of a redirect: what it is made of and its functions for the module (cuda_redirect.c), memory
 * (cuda_redirect_memory.c), streams and captures (cuda_redirect_streams.c). CUDA's types and numbers are declared
 * here as its headers have them (driver_types.h, CUDA 12 and 13), so that nothing of CUDA is needed to build. */
#ifndef WI_CUDA_REDIRECT_PARTS_H
#define WI_CUDA_REDIRECT_PARTS_H

#include "base/internal.h"
#include "base/maps.h"
#include "interpose/cuda_redirect.h"
#include "interpose/interpose.h"

enum {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_MEMORY_ALLOCATION = 2,
    CUDA_CAPTURE_WRONG_THREAD = 908,

    CUDA_HOST_ALLOC_FLAGS = 7, /* portable, mapped, write-combined */
    CUDA_MANAGED_GLOBAL = 1,
    CUDA_MANAGED_HOST = 2,
    CUDA_ATTRIBUTE_VIRTUAL_MEMORY = 102,
};

/* name, parameters, arguments behind the redirect. The functions are replaced in this order, and restored in reverse
 * order: frees come before allocations, so that no other thread has CUDA free memory of weir. */
#define WI_CUDA_CALLS(X)                                                                                               \
    X(cudaFree, (void *pointer), (r, pointer))                                                                         \
    X(cudaFreeHost, (void *pointer), (r, pointer))                                                                     \
    X(cudaGetLastError, (void), (r))                                                                                   \
    X(cudaPeekAtLastError, (void), (r))                                                                                \
    X(cudaStreamDestroy, (void *stream), (r, stream))                                                                  \
    X(cudaStreamEndCapture, (void *stream, void **graph), (r, stream, graph))                                          \
    X(cudaStreamBeginCapture, (void *stream, int mode), (r, stream, mode))                                             \
    X(cudaStreamCreate, (void **out), (r, out))                                                                        \
    X(cudaStreamCreateWithFlags, (void **out, unsigned flags), (r, out, flags))                                        \
    X(cudaStreamCreateWithPriority, (void **out, unsigned flags, int priority), (r, out, flags, priority))             \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device), (r, value, attribute, device))                    \
    X(cudaMemGetInfo, (size_t * available, size_t * total), (r, available, total))                                     \
    X(cudaMalloc, (void **out, size_t bytes), (r, out, bytes))                                                         \
    X(cudaMallocHost, (void **out, size_t bytes), (r, out, bytes))                                                     \
    X(cudaHostAlloc, (void **out, size_t bytes, unsigned flags), (r, out, bytes, flags))                               \
    X(cudaMallocManaged, (void **out, size_t bytes, unsigned flags), (r, out, bytes, flags))

typedef enum wi_cuda_call {
#define X(name, parameters, arguments) WI_CUDA_##name,
    WI_CUDA_CALLS(X)
#undef X
        WI_CUDA_CALL_COUNT
} wi_cuda_call;

/* CUDA's own, as the module would have called them; NULL: it has no such function. */
typedef struct wi_cuda_real {
#define X(name, parameters, arguments) int(*name) parameters;
    WI_CUDA_CALLS(X)
#undef X
    int (*cudaGetDevice)(int *device);
    int (*cudaGraphDestroy)(void *graph);
} wi_cuda_real;

/* A call may come late, when the redirect begins for another module. */
#define wi_real(r, name) __atomic_load_n(&(r)->real.name, __ATOMIC_RELAXED)

/* A block that the module has, or has freed where it could not be freed yet. */
typedef struct wi_cuda_block {
    void *pointer;
    weir_client *client;
    size_t bytes;
    weir_kind kind;
    bool managed;
    bool granted;          /* CUDA's own memory, past the budget */
    wi_cuda_source source; /* with `give_back`: the engine's own memory */
    bool waits;            /* counted among those that wait, also while a thread tries to free it */
    bool freed;            /* `behind` is valid */
    uint64_t behind;       /* a bit for each of the first streams: its work at the free needs no waiting for any more */
    struct wi_cuda_block *next; /* in the list of waiting blocks, or of granted blocks */
} wi_cuda_block;

typedef struct wi_cuda_stream_entry {
    bool used; /* false: a free entry; entries never move, so that a walk misses no entry */
    bool captured;
    pthread_t capturer; /* while it is */
    unsigned held;      /* threads that are putting a free behind it: before a capture they are waited for */
    bool leaving;       /* its work is being waited for, and it will be gone */
    void *native;       /* NULL: the legacy default stream of its device */
    weir_runtime *runtime;
    weir_stream id;
} wi_cuda_stream_entry;

/* ENDING: requests go on to CUDA already, frees are still taken. ENDED: everything goes on to CUDA, as a thread may
 * come late. LEFT: the same for good, as the module still calls these functions. */
typedef enum wi_cuda_state {
    WI_CUDA_FREE,
    WI_CUDA_STARTING,
    WI_CUDA_ACTIVE,
    WI_CUDA_ENDING,
    WI_CUDA_ENDED,
    WI_CUDA_LEFT
} wi_cuda_state;

/* Invariants: a block is in `blocks`, in the list of those that wait, or in the hands of the thread that frees it, and
 * counted in the numbers of live blocks in all three; `captures` is how many streams are marked captured, and
 * `overrun_bytes` what the blocks in the list of granted ones have. */
struct wi_cuda_redirect {
    atomic_uint state;
    unsigned number;
    uint64_t ended; /* when, among all that have */
    wi_interpose *interpose;
    wi_cuda_real real;
    weir_class memory_class; /* where no scope says another */
    bool managed_on_device, pinned_passes;
    weir_client *_Atomic clients[WI_CUDA_DEVICES]; /* NULL: none for the device */
    weir_runtime *runtimes[WI_CUDA_DEVICES];       /* theirs, written before */
    atomic_uint serving; /* requests, and creations of streams, that began while it was active */
    atomic_uint captures;
    atomic_uint_fast64_t waiting;
    atomic_uint_fast64_t allocations, frees, refused, passed_on, hidden, overruns;

    pthread_mutex_t lock;  /* all below; held over no call of weir's or CUDA's */
    wi_pointer_map blocks; /* records of blocks by pointer */
    uint64_t live[WEIR_KIND_COUNT], live_bytes[WEIR_KIND_COUNT], overrun_bytes;
    wi_cuda_block *waiting_blocks, *granted_blocks;
    uint64_t rounds; /* how often the blocks that wait were looked at */
    wi_cuda_stream_entry *streams;
    size_t stream_count;
    char refusal[1024];
};

/* Lets other threads go on: for a loop that waits for what takes them a moment, in its spin number `spin`. */
void wi_cuda_yield(int spin);
/* Whether a request is weir's; then it has to be ended by `leave`. */
bool wi_cuda_enter(wi_cuda_redirect *r);
void wi_cuda_leave(wi_cuda_redirect *r);
/* The ordinal of the current device; -1: none, or none that can be told. */
int wi_cuda_device(const wi_cuda_redirect *r);
/* The innermost scope of this thread; NULL: there is none. */
wi_cuda_scope *wi_cuda_scope_of(const wi_cuda_redirect *r);
/* The client that serves this thread on that device, its class, tag and reservation; false: none does. */
bool wi_cuda_request(wi_cuda_redirect *r, int device, weir_client **client, weir_request *request);
/* Makes it the module's last error, and answers it. */
int wi_cuda_fail(wi_cuda_redirect *r, int error);

/* cuda_redirect_memory.c */
int wi_on_cudaMalloc(wi_cuda_redirect *r, void **out, size_t bytes);
int wi_on_cudaFree(wi_cuda_redirect *r, void *pointer);
int wi_on_cudaMallocHost(wi_cuda_redirect *r, void **out, size_t bytes);
int wi_on_cudaHostAlloc(wi_cuda_redirect *r, void **out, size_t bytes, unsigned flags);
int wi_on_cudaFreeHost(wi_cuda_redirect *r, void *pointer);
int wi_on_cudaMallocManaged(wi_cuda_redirect *r, void **out, size_t bytes, unsigned flags);
int wi_on_cudaMemGetInfo(wi_cuda_redirect *r, size_t *available, size_t *total);
/* Frees what waits, as far as it can be by now. */
void wi_cuda_free_waiting(wi_cuda_redirect *r);

/* cuda_redirect_streams.c */
int wi_on_cudaStreamCreate(wi_cuda_redirect *r, void **out);
int wi_on_cudaStreamCreateWithFlags(wi_cuda_redirect *r, void **out, unsigned flags);
int wi_on_cudaStreamCreateWithPriority(wi_cuda_redirect *r, void **out, unsigned flags, int priority);
int wi_on_cudaStreamDestroy(wi_cuda_redirect *r, void *stream);
int wi_on_cudaStreamBeginCapture(wi_cuda_redirect *r, void *stream, int mode);
int wi_on_cudaStreamEndCapture(wi_cuda_redirect *r, void *stream, void **graph);
/* The legacy default stream of the runtime's device becomes known. */
weir_status wi_cuda_streams_begin(wi_cuda_redirect *r, weir_runtime *runtime);
/* No stream is known any more; waits for their work. */
void wi_cuda_streams_end(wi_cuda_redirect *r);
/* Puts the free of the block behind the work that was on the module's streams when it was first asked to.
 * WEIR_ERR_STREAM_MISUSE: one of them is captured; it is left for the next call, and the others are not. */
weir_status wi_cuda_order_free(wi_cuda_redirect *r, wi_cuda_block *block);
/* Whether the calling thread has begun a capture that has not ended. */
bool wi_cuda_captures_here(wi_cuda_redirect *r);

#endif
