/* A module as libggml-cuda.so is one: it imports CUDA's functions and calls them. The test finds each of its own
 * under the name of CUDA's with module_ before it. */
#include <stddef.h>

#define API __attribute__((visibility("default")))

/* name, parameters, arguments */
#define CALLS(X)                                                                                                       \
    X(cudaMalloc, (void **out, size_t bytes), (out, bytes))                                                            \
    X(cudaFree, (void *pointer), (pointer))                                                                            \
    X(cudaMallocHost, (void **out, size_t bytes), (out, bytes))                                                        \
    X(cudaHostAlloc, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))                                  \
    X(cudaFreeHost, (void *pointer), (pointer))                                                                        \
    X(cudaMallocManaged, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))                              \
    X(cudaMemGetInfo, (size_t * available, size_t * total), (available, total))                                        \
    X(cudaGetLastError, (void), ())                                                                                    \
    X(cudaPeekAtLastError, (void), ())                                                                                 \
    X(cudaSetDevice, (int device), (device))                                                                           \
    X(cudaStreamCreate, (void **out), (out))                                                                           \
    X(cudaStreamCreateWithFlags, (void **out, unsigned flags), (out, flags))                                           \
    X(cudaStreamCreateWithPriority, (void **out, unsigned flags, int priority), (out, flags, priority))                \
    X(cudaStreamDestroy, (void *stream), (stream))                                                                     \
    X(cudaStreamSynchronize, (void *stream), (stream))                                                                 \
    X(cudaStreamBeginCapture, (void *stream, int mode), (stream, mode))                                                \
    X(cudaStreamEndCapture, (void *stream, void **graph), (stream, graph))                                             \
    X(cudaGraphDestroy, (void *graph), (graph))                                                                        \
    X(cudaLaunchHostFunc, (void *stream, void (*fn)(void *), void *user), (stream, fn, user))                          \
    X(cudaMemsetAsync, (void *to, int value, size_t bytes, void *stream), (to, value, bytes, stream))                  \
    X(cudaMallocFromPoolAsync, (void **out, size_t bytes, void *pool, void *stream), (out, bytes, pool, stream))       \
    X(cuMemAlloc_v2, (unsigned long long *out, size_t bytes), (out, bytes))                                            \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device), (value, attribute, device))

#ifdef MODULE_STATIC
/* The runtime is a part of the module, as the linker does it by itself. */
static int linked_in;
#define X(name, parameters, arguments)                                                                                 \
    static int name parameters                                                                                         \
    {                                                                                                                  \
        return linked_in;                                                                                              \
    }
#else
#define X(name, parameters, arguments) int name parameters;
#endif
CALLS(X)
#undef X

#define X(name, parameters, arguments)                                                                                 \
    API int module_##name parameters;                                                                                  \
    int module_##name parameters                                                                                       \
    {                                                                                                                  \
        return name arguments;                                                                                         \
    }
CALLS(X)
#undef X

#ifdef MODULE_PER_THREAD
extern int cudaLaunchKernel_ptsz(void) __attribute__((weak));
API int module_launches(void);
int module_launches(void)
{
    return cudaLaunchKernel_ptsz ? cudaLaunchKernel_ptsz() : 0;
}
#endif
