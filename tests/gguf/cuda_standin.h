/* cuda_standin.h: a STAND-IN for llama.cpp's libggml-cuda.so, for machines whose store has none: a module that imports the
 * same functions of CUDA's runtime for its memory and calls them as a recording of the real one says. */
#ifndef CUDA_STANDIN_H
#define CUDA_STANDIN_H

#include <stddef.h>

/* A line of the recording. */
typedef struct standin_line {
    char what[32];
    size_t number, bytes, stream; /* of a block, of a stream: from 1 */
    unsigned times;
} standin_line;

/* What the module exports. standin_call: 0, or CUDA's error. standin_end: frees what is left, as an object of ggml's does
 * that was not finished. */
#define STANDIN_FUNCTIONS(X)                                                                                           \
    X(standin_call, (const standin_line *line))                                                                        \
    X(standin_free_memory, (size_t * available, size_t * total))                                                       \
    X(standin_end, (void))

#endif
