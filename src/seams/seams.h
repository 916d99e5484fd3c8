/* libweir-seams: weir's memory for frameworks that take an allocator. What the Python package calls, and weir/rmm.hpp; no
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
WEIR_API void wseam_torch_set_fraction(double fraction, int device);
WEIR_API void *wseam_torch_base(void *pointer, size_t *bytes);
WEIR_API void wseam_torch_record_stream(void *pointer, void *native);
WEIR_API void wseam_torch_begin_pool(int device, uint64_t first, uint64_t second, const void *filter);
WEIR_API void wseam_torch_end_pool(int device, uint64_t first, uint64_t second);
WEIR_API void wseam_torch_release_pool(int device, uint64_t first, uint64_t second);

/* The live blocks of a pool: how many there are; as many as there is room for are put into `blocks`. */
WEIR_API size_t wseam_torch_pool_blocks(int device, uint64_t first, uint64_t second, void **blocks, size_t room);

/* The pool that the block at that address is of, in `id`. 0: of none. 1: it was freed, and is kept for a state. 2: it is live. */
WEIR_API int wseam_torch_pool_of(const void *pointer, uint64_t id[2]);

/* Of a device, in the words of torch.cuda.memory_stats; bytes. By PyTorch's kinds: all, small (up to 1 MiB), large. */
typedef struct wseam_torch_counts {
    weir_gauge allocation[3], allocated_bytes[3], requested_bytes[3];
    uint64_t retries, failures;
} wseam_torch_counts;

/* Zeros where PyTorch has allocated nothing. */
WEIR_API void wseam_torch_count(int device, wseam_torch_counts *out);
/* `what`: WEIR_RESET_PEAKS or WEIR_RESET_ACCUMULATED, also for the runtime. */
WEIR_API void wseam_torch_reset(int device, uint32_t what);

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
