/* PyTorch's seam, inside: the memory of captures' pools (torch_pools.c), streams that use a block besides its own (torch_uses.c), the
 * history (torch_history.c), and tensors that processes share (torch_ipc.c), beside what is allocated as ever (torch.c). */
#ifndef WSEAM_TORCH_H
#define WSEAM_TORCH_H

#include <weir/weir.h>

enum { WTORCH_DEVICES = 64 };

/* The client of the device; NULL: none was opened. */
weir_client *wtorch_client(int device);
/* The same, which is opened where there is none yet. NULL: it could not be; weir_detail says why. */
weir_client *wtorch_client_open(int device);

/* Allocates from the pool whose filter accepts the stream: the pool of a graph that is captured, or one that the program
 * has asked for. `stream` is weir's for `native`; WEIR_STREAM_HOST: captured, and weir does not know it. False: no pool is
 * filled by that stream, and nothing was done. Costs nothing while none is filled. */
bool wtorch_pool_alloc(int device, size_t bytes, void *native, weir_stream stream, weir_status *status, void **out);
/* False: the block is of no pool, and is the caller's to free. */
bool wtorch_pool_free(const void *pointer);
/* Gives back the memory of pools that nobody uses any more, where nothing is captured now. */
void wtorch_pools_reclaim(void);

/* Frees a block of PyTorch's behind the stream and what weir knows of its uses. */
void wtorch_give_back(weir_client *client, void *pointer, weir_stream stream);

/* record_stream (torch_uses.c). False: no host memory. */
bool wtorch_use_note(weir_client *client, void *pointer, void *native);
/* Frees the block behind what the noted streams have to do now. False: none was noted, and nothing was done. */
bool wtorch_use_free(void *pointer, weir_stream stream);
/* Frees what a capture has held up, where it is over. */
void wtorch_uses_again(void);

/* The history (torch_history.c). The caller holds no lock. Without a history each call is one load of a flag. */
void wtorch_history_allocated(const void *pointer, size_t bytes, int device, const void *native);
/* Called before the free, and before weir has the block back: from then on another allocation may have the address. */
void wtorch_history_freeing(const void *pointer, size_t bytes, int device, const void *native);
void wtorch_history_freed(const void *pointer);
/* Calls the observers too, which may change weir_detail. */
void wtorch_history_refused(size_t bytes, int device, const void *native, uint64_t total, uint64_t left);

/* States, and hooks for the pluggable allocator. */
void *wtorch_state_get(int device, const uint64_t *id);
void wtorch_state_drop(void *given);
void wtorch_state_set(void *given, void (*freed)(void *user, void *pointer),
                      void (*alive)(void *user, void *pointer, size_t bytes, void *native), void *user);

/* Tells those who listen to PyTorch's allocations (torch_told.c) of a block, behind its allocation or before its free: then
 * `bytes` is negative. No lock may be held, as Python may be called. Two looks where nobody listens. */
void wtorch_tell(void *pointer, int64_t bytes, int device);
void wtorch_tell_refused(size_t bytes, int device);

/* ---- torch_ipc.c: tensors that processes share ------------------------------------------------------------------- */

/* CUDA's handle of an allocation, for other processes (cudaIpcMemHandle_t). */
typedef struct wtorch_ipc {
    char bytes[64];
} wtorch_ipc;

/* The handle of the driver's allocation that `pointer` lies in, and the pointer's offset there. The memory is to stay as long
 * as another process has it. WEIR_ERR_UNSUPPORTED: CUDA has no handle of such memory; the detail says what to do. */
WEIR_NODISCARD weir_status wtorch_ipc_share(void *pointer, wtorch_ipc *handle, int64_t *offset);

/* Maps what another process has shared on PyTorch's current device. An allocation is mapped once, until the mapping has been
 * closed as often as opened. The memory is in no client's account. `text` is a handle of PyTorch's. */
typedef struct wtorch_ipc_memory wtorch_ipc_memory;
WEIR_NODISCARD weir_status wtorch_ipc_open(const char *text, size_t bytes, wtorch_ipc_memory **out, void **address);
void wtorch_ipc_close(wtorch_ipc_memory *memory);

/* Has PyTorch free what other processes have let go. Costs nothing where nothing was shared. */
void wtorch_ipc_collect(void);

/* ---- torch_abi.c: what PyTorch offers to C++ alone --------------------------------------------------------------- */

/* *to gets the address of a function or variable of a library that the process has loaded, or of what that
 * library needs; NULL: there is none. */
void wtorch_abi_symbol(const char *library, const char *name, void *to);

/* Finds the functions; the process has PyTorch with CUDA. False: it has not. */
bool wtorch_abi_find(void);

/* Throws c10::OutOfMemoryError, or c10::Error (a RuntimeError in Python). Only from functions that PyTorch's C++ calls.
 * Returns where the exception's parts were not found. */
void wtorch_abi_throw(bool out_of_memory, const char *text);

/* Whether its exceptions can be thrown. */
bool wtorch_abi_throws(void);

/* torch.cuda.ipc_collect(). */
void wtorch_abi_collect_shared(void);

/* PyTorch's current stream of the device; NULL: CUDA's legacy stream, or it cannot be asked. */
void *wtorch_abi_current_stream(int device);

/* A std::function<bool(cudaStream_t)>. */
typedef struct wtorch_filter {
    void *functor[2];
    bool (*manager)(void *to, const void *from, int what);
    bool (*invoker)(const void *functor, void *const *stream);
} wtorch_filter;

void wtorch_filter_copy(wtorch_filter *to, const void *std_function);
void wtorch_filter_drop(wtorch_filter *filter);
bool wtorch_filter_accepts(const wtorch_filter *filter, void *native);

/* What PyTorch's allocator is asked for, and cannot do by itself. */
typedef struct wtorch_calls {
    uint64_t (*largest)(int device);
    double (*fraction)(int device);
    void (*reset_peaks)(int device);
    void (*reset_accumulated)(int device);
    /* A pool's state: NULL and an exception, or what set_state and drop_state take. */
    void *(*get_state)(int device, const uint64_t *pool);
    void (*drop_state)(void *state);
    /* Blocks that are not in the state are freed, those that are in it and were freed live again. `freed` and `alive` are told
     * of each, and see to it by way of PyTorch's allocator. */
    void (*set_state)(void *state, void (*freed)(void *user, void *pointer),
                      void (*alive)(void *user, void *pointer, size_t bytes, void *native), void *user);
} wtorch_calls;

/* Replaces these functions in PyTorch's current allocator, which must be a pluggable one; `calls` stays. Answers how many of
 * WTORCH_REPLACED were found. */
enum { WTORCH_REPLACED = 8 };
int wtorch_abi_replace(const wtorch_calls *calls);

/* While a block is made to live again, PyTorch's allocator asks for memory to note it: the address it is to get. NULL: none. */
void *wtorch_abi_alive_again(void);

#endif
