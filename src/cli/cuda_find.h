/* cuda_find.h: functions of CUDA's driver, found at run time, for what the command itself does on a GPU. */
#ifndef WEIR_CLI_CUDA_FIND_H
#define WEIR_CLI_CUDA_FIND_H

#include <stdbool.h>
#include <stddef.h>

typedef struct cuda_wanted {
    const char *name;
    void *to; /* the pointer to a function that is filled in */
} cuda_wanted;

/* From libcuda.so.1, in the version of their interface that CUDA 12.0 has. False: it is not here, or lacks one. */
bool cuda_find(const cuda_wanted *wanted, size_t count);

#endif
