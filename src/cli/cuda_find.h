/* cuda_find.h: functions of CUDA's driver, found at run time, for what the command itself does on a GPU. */
#ifndef WEIR_CLI_CUDA_FIND_H
#define WEIR_CLI_CUDA_FIND_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cuda_wanted {
    const char *name;
    void *to; /* the pointer to a function that is filled in */
} cuda_wanted;

/* Finds the functions in libcuda.so.1, with the interface of CUDA 12.0. False: the library is not here, or lacks a
 * function. */
bool cuda_find(const cuda_wanted *wanted, size_t count);

#endif
