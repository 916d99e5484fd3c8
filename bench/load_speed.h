/* load_speed.h: an engine by itself, for bench/load_speed.c. */
#ifndef BENCH_LOAD_SPEED_H
#define BENCH_LOAD_SPEED_H

typedef struct load_plain_side {
    const char *name;
    /* The engine's library; for such a model. `threads`: of ONNX Runtime, with weir's level of optimization; 0: both are its own
     * defaults. Ends the process on failure, as the others do. */
    void *(*open)(const char *path, int mmap, int context, int threads);
    void *(*load)(void *engine, const char *path);
    void (*unload)(void *engine, void *model);
} load_plain_side;

extern const load_plain_side load_plain_onnx, load_plain_gguf, load_plain_llm;

#endif
