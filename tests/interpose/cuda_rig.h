/* A module over the stubs of CUDA, a runtime of weir's on the stub's device with a host's of its own, and a
 * redirect. */
#ifndef TESTS_INTERPOSE_CUDA_RIG_H
#define TESTS_INTERPOSE_CUDA_RIG_H

#include "core/core.h"
#include "interpose/redirect_stats.h"
#include "stub/cuda/control.h"

#define MODULE_CALLS(X)                                                                                                \
    X(cudaMalloc, (void **out, size_t bytes))                                                                          \
    X(cudaFree, (void *pointer))                                                                                       \
    X(cudaMallocHost, (void **out, size_t bytes))                                                                      \
    X(cudaHostAlloc, (void **out, size_t bytes, unsigned flags))                                                       \
    X(cudaFreeHost, (void *pointer))                                                                                   \
    X(cudaMallocManaged, (void **out, size_t bytes, unsigned flags))                                                   \
    X(cudaMemGetInfo, (size_t * available, size_t * total))                                                            \
    X(cudaGetLastError, (void))                                                                                        \
    X(cudaPeekAtLastError, (void))                                                                                     \
    X(cudaSetDevice, (int device))                                                                                     \
    X(cudaStreamCreate, (void **out))                                                                                  \
    X(cudaStreamCreateWithFlags, (void **out, unsigned flags))                                                         \
    X(cudaStreamCreateWithPriority, (void **out, unsigned flags, int priority))                                        \
    X(cudaStreamDestroy, (void *stream))                                                                               \
    X(cudaStreamSynchronize, (void *stream))                                                                           \
    X(cudaStreamBeginCapture, (void *stream, int mode))                                                                \
    X(cudaStreamEndCapture, (void *stream, void **graph))                                                              \
    X(cudaGraphDestroy, (void *graph))                                                                                 \
    X(cudaLaunchHostFunc, (void *stream, void (*fn)(void *), void *user))                                              \
    X(cudaMemsetAsync, (void *to, int value, size_t bytes, void *stream))                                              \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))

/* The functions of a module, by which it calls CUDA's; or CUDA's own. */
typedef struct calls {
#define X(name, parameters) int(*name) parameters;
    MODULE_CALLS(X)
#undef X
} calls;

typedef struct stub_control {
#define X(type, name, parameters) type(*name) parameters;
    STUB_CONTROLS(X)
#undef X
} stub_control;

extern stub_control control;
extern int warnings;   /* messages since the fixture began, */
extern char said[512]; /* and the last one */

enum { DEVICES = 2, NON_BLOCKING = 1, RELAXED = 2 };

typedef struct fixture {
    weir_runtime *host, *runtime[DEVICES];
    weir_client *client[DEVICES];
    size_t devices;
    void *handle;
    char path[512];
    calls m;    /* the module's */
    calls real; /* CUDA's */
    wi_cuda_redirect *redirect;
} fixture;

/* `setup` of a group: finds the stub; skips nothing, as the stub is built with the test. */
int find_stub(void **state);

char *module_path(const char *name, char *path, size_t capacity);
/* Opens everything but the redirect. */
fixture prepare(uint64_t budget, size_t devices, const char *resource);
weir_status redirect_with(fixture *f, wi_cuda_redirect_options options);
/* With one device and the class "other". */
fixture begin(uint64_t budget);
fixture begin_on(const char *resource);
/* Ends the redirect, if there is one; everything is given back. */
void end(fixture *f);

wi_cuda_redirect_stats stats(const fixture *f);
weir_client_stats account(weir_client *client);
/* What the client has in the host's ledger. */
uint64_t pinned_of(const fixture *f, weir_client *client);
void *get(const fixture *f, size_t bytes);
void *make_stream(const fixture *f);
void wait_until_reached(gate *g);
/* Frees are final: what is not, counted. */
uint64_t left(const fixture *f);

#endif
