/* See cuda_record.h. */
#include "cuda_record.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <weir/weir.h>

#include "cuda_llama.h"
#include "interpose/interpose.h"

/* dim3 */
typedef struct extent {
    unsigned x, y, z;
} extent;

/* name, parameters, arguments */
#define CALLS(X)                                                                                                       \
    X(cudaMalloc, (void **out, size_t bytes), (out, bytes))                                                            \
    X(cudaFree, (void *pointer), (pointer))                                                                            \
    X(cudaMallocHost, (void **out, size_t bytes), (out, bytes))                                                        \
    X(cudaFreeHost, (void *pointer), (pointer))                                                                        \
    X(cudaMemGetInfo, (size_t * available, size_t * total), (available, total))                                        \
    X(cudaStreamCreateWithFlags, (void **out, unsigned flags), (out, flags))                                           \
    X(cudaStreamDestroy, (void *stream), (stream))                                                                     \
    X(cudaStreamSynchronize, (void *stream), (stream))                                                                 \
    X(cudaStreamBeginCapture, (void *stream, int mode), (stream, mode))                                                \
    X(cudaStreamEndCapture, (void *stream, void **graph), (stream, graph))                                             \
    X(cudaGraphLaunch, (void *executable, void *stream), (executable, stream))                                         \
    X(cudaMemsetAsync, (void *to, int value, size_t bytes, void *stream), (to, value, bytes, stream))                  \
    X(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int direction, void *stream),                        \
      (to, from, bytes, direction, stream))                                                                            \
    X(cudaLaunchKernelExC, (const void *config, const void *function, void **arguments),                               \
      (config, function, arguments))                                                                                   \
    X(__cudaLaunchKernel,                                                                                              \
      (const void *function, extent grid, extent block, void **arguments, size_t shared, void *stream),                \
      (function, grid, block, arguments, shared, stream))                                                              \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device), (value, attribute, device))

/* cudaLaunchConfig_t, as far as its stream. */
typedef struct launch {
    extent grid, block;
    size_t shared;
    void *stream;
} launch;

enum { VIRTUAL_MEMORY = 102, MOST = 4096 };
enum {
#define X(name, parameters, arguments) OF_##name,
    CALLS(X)
#undef X
        FUNCTIONS
};

static struct {
#define X(name, parameters, arguments) int(*name) parameters;
    CALLS(X)
#undef X
} real;
static wi_interpose *slots;

/* Blocks and streams have numbers by their order. A block that is free has none; the number of the next is not used again. */
typedef struct numbers {
    struct {
        char *at;
        size_t bytes;
    } known[MOST];
    size_t count;
} numbers;
static numbers blocks, streams;

static size_t enter(numbers *of, void *at, size_t bytes)
{
    if (at && of->count < MOST) {
        of->known[of->count].at = at;
        of->known[of->count].bytes = bytes;
        of->count++;
    }
    return of->count;
}

/* From 1; 0 is none. */
static size_t number_of(const numbers *of, const void *at)
{
    for (size_t i = of->count; i > 0; i--)
        if (of->known[i - 1].at && (const char *)at >= of->known[i - 1].at &&
            (const char *)at < of->known[i - 1].at + of->known[i - 1].bytes)
            return i;
    return 0;
}

static size_t leave(numbers *of, const void *at)
{
    size_t number = number_of(of, at);
    if (number)
        of->known[number - 1].at = NULL;
    return number;
}

/* A line that says the same as the one before is counted. */
static void line(const char *what, size_t number, size_t bytes, size_t stream)
{
    static char last[128];
    static unsigned times;
    char text[128];
    snprintf(text, sizeof text, "%s %zu %zu %zu", what, number, bytes, stream);
    if (strcmp(text, last) == 0) {
        times++;
        return;
    }
    if (last[0])
        printf("%s %u\n", last, times);
    times = 1;
    snprintf(last, sizeof last, "%s", *what ? text : "");
}

#define RECORD(name, parameters, arguments, written)                                                                   \
    static int on_##name parameters                                                                                    \
    {                                                                                                                  \
        int result = real.name arguments;                                                                              \
        written;                                                                                                       \
        return result;                                                                                                 \
    }
RECORD(cudaMalloc, (void **out, size_t bytes), (out, bytes),
       line(cuda_llama_for_kv() ? "malloc-kv" : "malloc", enter(&blocks, *out, bytes), bytes, 0))
RECORD(cudaMallocHost, (void **out, size_t bytes), (out, bytes),
       line("malloc-host", enter(&blocks, *out, bytes), bytes, 0))
RECORD(cudaMemGetInfo, (size_t * available, size_t *total), (available, total), line("ask", 0, 0, 0))
RECORD(cudaStreamCreateWithFlags, (void **out, unsigned flags), (out, flags),
       line("stream", 0, 0, enter(&streams, *out, 1)))
RECORD(cudaStreamSynchronize, (void *stream), (stream), line("wait", 0, 0, number_of(&streams, stream)))
RECORD(cudaStreamBeginCapture, (void *stream, int mode), (stream, mode),
       line("capture", 0, 0, number_of(&streams, stream)))
RECORD(cudaStreamEndCapture, (void *stream, void **graph), (stream, graph),
       line("end-capture", 0, 0, number_of(&streams, stream)))
RECORD(cudaGraphLaunch, (void *executable, void *stream), (executable, stream),
       line("launch-graph", 0, 0, number_of(&streams, stream)))
RECORD(cudaMemsetAsync, (void *to, int value, size_t bytes, void *stream), (to, value, bytes, stream),
       line("write", number_of(&blocks, to), bytes, number_of(&streams, stream)))
RECORD(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int direction, void *stream),
       (to, from, bytes, direction, stream), line("write", number_of(&blocks, to), bytes, number_of(&streams, stream)))
RECORD(cudaLaunchKernelExC, (const void *config, const void *function, void **arguments), (config, function, arguments),
       line("kernel", 0, 0, number_of(&streams, ((const launch *)config)->stream)))
RECORD(__cudaLaunchKernel,
       (const void *function, extent grid, extent block, void **arguments, size_t shared, void *stream),
       (function, grid, block, arguments, shared, stream), line("kernel", 0, 0, number_of(&streams, stream)))

/* What is given back is written down before, as another thread could have it next. */
static int on_cudaFree(void *pointer)
{
    if (pointer)
        line("free", leave(&blocks, pointer), 0, 0);
    return real.cudaFree(pointer);
}

static int on_cudaFreeHost(void *pointer)
{
    if (pointer)
        line("free-host", leave(&blocks, pointer), 0, 0);
    return real.cudaFreeHost(pointer);
}

static int on_cudaStreamDestroy(void *stream)
{
    line("destroy", 0, 0, leave(&streams, stream));
    return real.cudaStreamDestroy(stream);
}

/* As the redirect has it: the module then takes its memory by cudaMalloc. */
static int on_cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int result = real.cuDeviceGetAttribute(value, attribute, device);
    if (result == 0 && attribute == VIRTUAL_MEMORY)
        *value = 0;
    return result;
}

const char *record_begin(const char *module)
{
    static const wi_replacement replacements[] = {
#define X(name, parameters, arguments) {#name, (void (*)(void))on_##name, false},
        CALLS(X)
#undef X
    };
    if (wi_interpose_open(module, replacements, FUNCTIONS, &slots) != WEIR_OK)
        return weir_detail();
    void (*found)(void);
#define X(name, parameters, arguments)                                                                                 \
    found = wi_interpose_found(slots, OF_##name).original;                                                             \
    memcpy(&real.name, &found, sizeof found);
    CALLS(X)
#undef X
    return wi_interpose_apply(slots) == WEIR_OK ? NULL : weir_detail();
}

void record_phase(const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "phase-%s", name);
    line(text, 0, 0, 0);
}

void record_end(void)
{
    line("", 0, 0, 0);
    fflush(stdout);
    if (wi_interpose_undo(slots) == WEIR_OK)
        (void)wi_interpose_close(slots);
}
