/* The stub of CUDA's runtime library, inside: the functions that ONNX Runtime's CUDA provider and llama.cpp's CUDA module
 * import from libcudart.so.13, over the stub of libcuda.so.1, so that they run their allocations, copies, streams and
 * events where no GPU is. Kernels do nothing but take time: what a model computes with them is not there, what it copies
 * is.
 *
 * The environment: STUB_CUDA_KERNEL_US, how many microseconds a launch takes its stream (0).
 *
 * Values are CUDA's: an error of the driver's interface has the same number in the runtime's where both have one. */
#ifndef CUDART_H
#define CUDART_H

#include "../cuda/users.h"

#define CUDART_API __attribute__((visibility("default")))

/* What is here of the driver's interface. */
typedef struct cudart_driver {
#define X(name, version, parameters) CUresult(*name) parameters;
    WI_CUDA_FUNCTIONS(X) STUB_USERS(X)
#undef X
} cudart_driver;

/* The driver, with the thread's device current: each call of the runtime begins with it. */
const cudart_driver *cudart_enter(void);
/* What a caller calls NULL is the legacy stream. */
CUstream cudart_stream(CUstream stream);
/* Makes the context of the stream current; to be left. */
const cudart_driver *cudart_enter_stream(CUstream stream, bool *entered);
int cudart_leave_stream(const cudart_driver *d, bool entered, CUresult result);
/* The primary context of a device; NULL: there are fewer. */
CUcontext cudart_primary(int ordinal);
/* Keeps an error for cudaGetLastError, and answers it. */
int cudart_keep(CUresult result);
/* The size of a kernel's launch is of no matter: it is work of some time on the stream. */
int cudart_launch(CUstream stream);

/* A function that succeeds and does nothing; whatever it is passed. */
#define CUDART_NOTHING(name)                                                                                           \
    CUDART_API int name(void);                                                                                         \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return 0;                                                                                                      \
    }

/* A function, with the declaration that no header has. */
#define CUDART_FUNCTION(type, name, parameters)                                                                        \
    CUDART_API type name parameters;                                                                                   \
    type name parameters

#endif
