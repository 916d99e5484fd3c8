/* The part of CUDA's driver interface that weir does not use, but programs beside it do: in the stub as in the real one it
 * is found through cuGetProcAddress. Graphs, contexts of one's own, whose an address is, and waiting for a word. */
#ifndef STUB_USERS_H
#define STUB_USERS_H

#include "driver/cuda_api.h"

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9
};

/* And what weir makes use of where a driver has it. */
#define STUB_USERS(X)                                                                                                  \
    X(cuCtxRecordEvent, 12050, (CUcontext context, CUevent event))                                                     \
    X(cuCtxCreate, 3020, (CUcontext * context, unsigned flags, CUdevice device))                                       \
    X(cuCtxDestroy, 4000, (CUcontext context))                                                                         \
    X(cuCtxGetDevice, 2000, (CUdevice * device))                                                                       \
    X(cuCtxSetCurrent, 4000, (CUcontext context))                                                                      \
    X(cuPointerGetAttribute, 4000, (void *value, int attribute, CUdeviceptr address))                                  \
    X(cuStreamWaitValue32, 11070, (CUstream stream, CUdeviceptr word, uint32_t value, unsigned flags))                 \
    X(cuStreamBeginCapture, 10010, (CUstream stream, int mode))                                                        \
    X(cuStreamEndCapture, 10000, (CUstream stream, CUgraph * graph))                                                   \
    X(cuGraphInstantiateWithFlags, 11040, (CUgraphExec * executable, CUgraph graph, unsigned long long flags))         \
    X(cuGraphLaunch, 10000, (CUgraphExec executable, CUstream stream))                                                 \
    X(cuGraphExecDestroy, 10000, (CUgraphExec executable))                                                             \
    X(cuGraphDestroy, 10000, (CUgraph graph))

#endif
