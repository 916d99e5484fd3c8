/* libweir-seams: weir's memory for frameworks that take an allocator. What the Python package calls, and weir/cccl.hpp; no
 * interface for programs, and none of CUDA's headers is needed.
 *
 * A function that answers a status leaves the reason in weir_detail(). */
#ifndef WSEAM_SEAMS_H
#define WSEAM_SEAMS_H

#include <weir/weir.h>

WEIR_BEGIN

/* The version of the libweir that this library was built with. */
WEIR_API const char *wseam_version(void);

/* How many streams frameworks have made known to weir. */
WEIR_API size_t wseam_streams(void);
/* Does the frees that can be done now, and returns how many still wait for the end of a capture. */
WEIR_API size_t wseam_waiting(void);

/* As wseam_places_forget. */
WEIR_API WEIR_NODISCARD weir_status wseam_forget(weir_runtime *runtime);

/* As wseam_places_end. */
WEIR_API void wseam_end_stream(void *native);

/* ---- with a stream (RMM) ----------------------------------------------------------------------------------------- */

/* Allocates on CUDA's stream `native`, of the client's device. As weir_alloc_with, and errors of a stream. */
WEIR_API WEIR_NODISCARD weir_status wseam_alloc(weir_client *client, size_t bytes, size_t alignment, void *native,
                                                void **out);

/* Frees in the order of that stream; see places.h for what happens where that cannot be. */
WEIR_API void wseam_free_on(weir_client *client, void *pointer, void *native);

/* ---- without one (Numba) ----------------------------------------------------------------------------------------- */

/* Memory that any stream may use at once, as cuMemAlloc's. */
WEIR_API WEIR_NODISCARD weir_status wseam_alloc_for_all(weir_client *client, size_t bytes, void **out);

/* Frees behind the work of all streams. */
WEIR_API void wseam_free_behind(weir_client *client, void *pointer);

/* ---- CuPy -------------------------------------------------------------------------------------------------------- */

typedef struct wseam_cupy wseam_cupy;

/* What is asked of the interpreter. */
typedef struct wseam_cupy_calls {
    intptr_t (*current_stream)(void);  /* of the current device; CuPy's. -1: an exception is set */
    intptr_t (*stream_of)(int device); /* likewise of any device; NULL: this CuPy has none */
    void *(*leave)(void);              /* PyEval_SaveThread and PyEval_RestoreThread */
    void (*come_back)(void *thread);
} wseam_cupy_calls;

/* An account for CuPy's allocations: a client for each device. It stays as long as the process, as CuPy's memory has its
 * address. */
WEIR_API WEIR_NODISCARD weir_status wseam_cupy_create(const wseam_cupy_calls *calls, wseam_cupy **out);

/* From now on allocations on the device are the client's. A device that has a client keeps its client. */
WEIR_API WEIR_NODISCARD weir_status wseam_cupy_give(wseam_cupy *it, int device, weir_client *client);

/* CFunctionAllocator's functions; the interpreter's lock is held, and released while memory is waited for. NULL: it failed,
 * and wseam_cupy_status says how: WEIR_ERR_NOT_FOUND for a device without a client. -1: an exception of CuPy's own is set. A free is in the order of the stream on which the block was allocated, as in CuPy's own
 * pool, and behind what is on the current one. */
WEIR_API void *wseam_cupy_malloc(void *it, size_t bytes, int device);
WEIR_API void wseam_cupy_free(void *it, void *pointer, int device);

/* Of the calling thread's last wseam_cupy_malloc. */
WEIR_API weir_status wseam_cupy_status(void);

/* The interpreter ends: CuPy's current stream is not asked for any more. */
WEIR_API void wseam_cupy_end(void);

/* ---- PyTorch ----------------------------------------------------------------------------------------------------- */

/* PyTorch's pluggable allocator calls the functions below by their addresses; the functions are not for other callers.
 * Failures are thrown as PyTorch's own C++ errors. */

/* Opens the client of a device that is used for the first time, and gives it by wseam_torch_give. */
typedef void (*wseam_torch_open)(int device);
WEIR_API WEIR_NODISCARD weir_status wseam_torch_begin(wseam_torch_open open);
WEIR_API WEIR_NODISCARD weir_status wseam_torch_give(int device, weir_client *client);

/* Whether refusals can be thrown to this PyTorch, which takes NULL for memory. */
WEIR_API bool wseam_torch_throws(void);

/* When PyTorch's allocator is the pluggable allocator with these functions: adds up to eight functions that the pluggable
 * allocator lacks, and returns their number. */
WEIR_API int wseam_torch_complete(void);

WEIR_API void *wseam_torch_alloc(size_t bytes, int device, void *native);
WEIR_API void wseam_torch_free(void *pointer, size_t bytes, int device, void *native);
WEIR_API void wseam_torch_empty_cache(void);
/* Off: blocks that are allocated from then on are in no count, and a free gives back to the driver what nobody uses. */
WEIR_API void wseam_torch_set_caching(bool on);
WEIR_API void wseam_torch_set_fraction(double fraction, int device);
WEIR_API void *wseam_torch_base(void *pointer, size_t *bytes);
WEIR_API void wseam_torch_record_stream(void *pointer, void *native);
WEIR_API void wseam_torch_begin_pool(int device, uint64_t first, uint64_t second, const void *filter);
WEIR_API void wseam_torch_end_pool(int device, uint64_t first, uint64_t second);
WEIR_API void wseam_torch_release_pool(int device, uint64_t first, uint64_t second);
/* Makes the pool stay until another wseam_torch_release_pool, as each begin does; users: begins and keeps without a release. */
WEIR_API WEIR_NODISCARD weir_status wseam_torch_keep_pool(int device, uint64_t first, uint64_t second);
WEIR_API unsigned wseam_torch_pool_users(int device, uint64_t first, uint64_t second);

/* Called of each block, behind its allocation and before its free, once PyTorch's GPU trace is active; NULL: nobody. */
typedef void (*wseam_torch_traced)(void *pointer, bool freed);
WEIR_API void wseam_torch_trace(wseam_torch_traced call);

/* The live blocks of a pool: how many there are; as many as there is room for are put into `blocks`. */
WEIR_API size_t wseam_torch_pool_blocks(int device, uint64_t first, uint64_t second, void **blocks, size_t room);

/* The pool that the block at that address is of, in `id`. 0: of none. 1: it was freed, and is kept for a state. 2: it is live. */
WEIR_API int wseam_torch_pool_of(const void *pointer, uint64_t id[2]);

/* Of a device, in the words of torch.cuda.memory_stats; bytes. `emptied`: how often the cache was emptied. */
typedef struct wseam_torch_counts {
    weir_gauge allocation, allocated_bytes, requested_bytes;
    uint64_t retries, failures, emptied;
} wseam_torch_counts;

/* Zeros where PyTorch has allocated nothing. */
WEIR_API void wseam_torch_count(int device, wseam_torch_counts *out);
/* `what`: WEIR_RESET_PEAKS or WEIR_RESET_ACCUMULATED, also for the runtime. */
WEIR_API void wseam_torch_reset(int device, uint32_t what);

/* ---- the history of PyTorch's allocations, and its refusals ------------------------------------------------------ */

/* Functions of the interpreter, by Python's names. */
typedef struct wseam_torch_interpreter {
    int (*ready)(void);           /* Py_IsInitialized */
    int (*enter)(void);           /* PyGILState_Ensure */
    void (*leave)(int before);    /* PyGILState_Release */
    void *(*thread)(void);        /* PyThreadState_Get */
    void *(*first)(void *thread); /* PyThreadState_GetFrame */
    void *(*outer)(void *frame);  /* PyFrame_GetBack */
    void *(*code)(void *frame);   /* PyFrame_GetCode */
    int (*place)(void *frame);    /* PyFrame_GetLasti, or where there is none PyFrame_GetLineNumber */
    void (*drop)(void *object);   /* Py_DecRef */
} wseam_torch_interpreter;

enum { /* for what frames are gathered; each value includes the values before */
       WSEAM_TORCH_OF_NOTHING,
       WSEAM_TORCH_OF_LIVE,        /* live blocks, in snapshots */
       WSEAM_TORCH_OF_ALLOCATIONS, /* events too; the event of a free has the frames of the allocation */
       WSEAM_TORCH_OF_ALL          /* the event of a free has the frames of the free */
};

enum {
    WSEAM_TORCH_ALLOC,
    WSEAM_TORCH_FREE_REQUESTED,
    WSEAM_TORCH_FREE_COMPLETED, /* weir has the block back */
    WSEAM_TORCH_OOM,
    WSEAM_TORCH_SNAPSHOT,
    WSEAM_TORCH_ACTIONS
};

typedef struct wseam_torch_history {
    wseam_torch_interpreter python; /* of the first begin */
    int context;                    /* WSEAM_TORCH_OF_... */
    bool clear;                     /* forgets the earlier events */
    bool native;                    /* frames of C and C++, too */
    uint32_t skipped;               /* bit 1 << action: events of that action are left out */
    uint64_t entries;               /* the last so many events of each device are kept */
} wseam_torch_history;

typedef struct wseam_torch_stack wseam_torch_stack;

typedef struct wseam_torch_frame {
    void *code;    /* of Python's, owned; NULL: a frame of C or C++ */
    int64_t place; /* in the code; of a frame of C or C++ the address of its call */
} wseam_torch_frame;

/* From the innermost frame outward, those of C and C++ before those of Python. */
typedef struct wseam_torch_frames {
    size_t count;
    const wseam_torch_frame *frames;
} wseam_torch_frames;

typedef struct wseam_torch_event {
    uint32_t action;
    int32_t device;
    uint64_t address;                              /* WSEAM_TORCH_OOM: the bytes that weir's limits left to PyTorch */
    uint64_t bytes, native, pool[2], microseconds; /* since 1970 */
    wseam_torch_stack *stack;                      /* NULL: no frames */
} wseam_torch_event;

/* Begins a history, or goes on with other options. Without a history an allocation pays one load of a flag. */
WEIR_API void wseam_torch_history_begin(const wseam_torch_history *options);
/* Ends and forgets the history. */
WEIR_API void wseam_torch_history_end(void);
WEIR_API bool wseam_torch_history_on(void);

/* Returns the number of the device's events, and copies the events, oldest first, to `out` if `room` is enough. */
WEIR_API size_t wseam_torch_history_read(int device, wseam_torch_event *out, size_t room);
/* Copies the allocation of a live block. False: unknown. */
WEIR_API bool wseam_torch_history_of(const void *pointer, wseam_torch_event *out);
WEIR_API const wseam_torch_frames *wseam_torch_stack_frames(const wseam_torch_stack *stack);
/* Releases the stacks of events from the two functions above. */
WEIR_API void wseam_torch_history_done(const wseam_torch_event *events, size_t count);

/* Adds the event of a snapshot; `bytes` were active. */
WEIR_API void wseam_torch_history_snapshot(int device, uint64_t bytes);

/* Called when memory is refused, before PyTorch's error, on the thread that has asked and without a lock held. `total` is the
 * budget, `left` the bytes that weir's limits leave to PyTorch. NULL: nobody is called. */
typedef void (*wseam_torch_observer)(int device, uint64_t bytes, uint64_t total, uint64_t left);
WEIR_API void wseam_torch_observe(wseam_torch_observer observer);
/* Whether CUDA can share the memory at `pointer` with other processes. `segment`: a block of weir's is a segment of PyTorch's
 * own allocator, which shares it as an allocation of the driver's. NULL, and what is not weir's in that case: WEIR_OK.
 * WEIR_ERR_UNSUPPORTED: the detail says why not, and what to do. */
WEIR_API WEIR_NODISCARD weir_status wseam_torch_shareable(void *pointer, bool segment);

/* For a MemPool of PyTorch's own, which asks for segments: one of 32 places for clients. *place goes into the names of its two
 * functions. WEIR_ERR_BUSY: all are taken. */
WEIR_API WEIR_NODISCARD weir_status wseam_torch_place(weir_client *client, int *place);
WEIR_API WEIR_NODISCARD weir_status wseam_torch_leave_place(int place);
WEIR_API WEIR_NODISCARD weir_status wseam_torch_place_functions(int place, void **alloc, void **release);

WEIR_END
#endif
