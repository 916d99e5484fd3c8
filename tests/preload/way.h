/* How a program of these tests comes to CUDA's functions: linked with the library, by dlsym, or by cuGetProcAddress, for
 * which NULL may be the default stream of the thread. */
#ifndef WAY_H
#define WAY_H

#include "interpose/preload/functions.h"
#include "stub/cuda/control.h"

#include <stdio.h>

/* What programs call besides. */
#define WAY_FUNCTIONS(X)                                                                                               \
    X(cuInit, cuInit, 2000, (unsigned flags))                                                                          \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device))                \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext context))                                                     \
    X(cuCtxCreate_v2, cuCtxCreate, 3020, (CUcontext * context, unsigned flags, CUdevice device))                       \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                                                \
    X(cuStreamCreate, cuStreamCreate, 2000, (CUstream * stream, unsigned flags))                                       \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream stream))                                               \
    X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, (CUstream stream, void (*fn)(void *), void *user))                    \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020,                                                                 \
      (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags))

typedef struct way {
#define X(symbol, name, version, per_thread, parameters, arguments) CUresult(*symbol) parameters;
    WP_CUDA_FUNCTIONS(X)
#undef X
#define X(symbol, name, version, parameters) CUresult(*symbol) parameters;
    WAY_FUNCTIONS(X)
#undef X
} way;
extern way cu;

/* Of the stub, which the program steers. */
typedef struct steer {
#define X(type, name, parameters) type(*name) parameters;
    STUB_CONTROLS(X)
#undef X
} steer;
extern steer stub;

/* Finds all of them by that way: "linked", "dlsym", "proc", "proc-thread"; ends the program otherwise. */
void find_way(const char *name);
/* A context of the device is current from then on. */
void use_device(int ordinal);

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            _exit(99);                                                                                                 \
        }                                                                                                              \
    } while (0)
#define MIB(n) ((size_t)(n) << 20)

#endif
