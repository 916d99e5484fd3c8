/* What PyTorch offers to C++ alone, by the addresses of its functions: its error for memory, the filters of its capture
 * pools, and functions of its pluggable allocator that throw unless somebody replaces them.
 *
 * No header of PyTorch's and no compiler is needed. The mangled name of a function contains the types of its arguments.
 * A function whose types change is not found, and features that need the function are not offered. The layouts are
 * those of the Itanium C++ ABI and of libstdc++ (std::function, std::string, std::shared_ptr, std::vector), which have
 * been the same since GCC 5. */
#ifndef WSEAM_TORCH_ABI_H
#define WSEAM_TORCH_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds the functions; the process has PyTorch with CUDA. False: it has not. */
bool wtorch_abi_find(void);

/* Throws c10::OutOfMemoryError, or c10::Error (a RuntimeError in Python). Only from functions that PyTorch's C++ calls.
 * Returns where the exception's parts were not found. */
void wtorch_abi_throw(bool out_of_memory, const char *text);

/* Whether its exceptions can be thrown. */
bool wtorch_abi_throws(void);

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
enum { WTORCH_REPLACED = 6 };
int wtorch_abi_replace(const wtorch_calls *calls);

/* While a block is made to live again, PyTorch's allocator asks for memory to note it: the address it is to get. NULL: none. */
void *wtorch_abi_alive_again(void);

#endif
