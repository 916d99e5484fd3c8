/* load_speed.h: an engine by itself, for bench/load_speed.c. */
#ifndef BENCH_LOAD_SPEED_H
#define BENCH_LOAD_SPEED_H

#include <stdbool.h>

/* `threads`: of ONNX Runtime, with weir's level of optimization; 0: both are its own defaults. `cuda`: on the first device of
 * CUDA, with the engine's own memory; of ONNX Runtime and GenAI. */
typedef struct load_options {
    const char *path;
    int mmap, context, threads;
    bool cuda;
} load_options;

typedef struct load_plain_side {
    const char *name;
    /* The engine's library; for such a model. Ends the process on failure, as the others do. */
    void *(*open)(const load_options *options);
    void *(*load)(void *engine, const char *path);
    void (*unload)(void *engine, void *model);
} load_plain_side;

extern const load_plain_side load_plain_onnx, load_plain_gguf, load_plain_llm;

#endif
