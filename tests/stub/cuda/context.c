/* Primary contexts, each thread's stack of current ones, and its capture mode. */
#include "stream.h"

static _Thread_local struct CUctx_st *stack[STUB_MOST_CONTEXTS];
static _Thread_local size_t depth;
static _Thread_local int capture_mode; /* 0: global, as CUDA begins */

struct CUctx_st *stub_current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

bool stub_is_here(int device)
{
    return stub_current()->device == device;
}

size_t stub_context_depth(void)
{
    return depth;
}

int stub_capture_mode(void)
{
    return capture_mode;
}

CUresult stub_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    STUB_CALL(cuDevicePrimaryCtxRetain, 0);
    if (device < 0 || device >= stub.devices)
        return STUB_INVALID_DEVICE;
    pthread_mutex_lock(&stub.lock);
    stub.device[device].primary.retained++;
    pthread_mutex_unlock(&stub.lock);
    *context = &stub.device[device].primary;
    return CUDA_SUCCESS;
}

CUresult stub_cuDevicePrimaryCtxRelease(CUdevice device)
{
    STUB_CALL(cuDevicePrimaryCtxRelease, 0);
    if (device < 0 || device >= stub.devices)
        return STUB_INVALID_DEVICE;
    pthread_mutex_lock(&stub.lock);
    bool retained = stub.device[device].primary.retained > 0;
    stub.device[device].primary.retained -= retained;
    pthread_mutex_unlock(&stub.lock);
    return retained ? CUDA_SUCCESS : STUB_INVALID_CONTEXT;
}

/* A thread's stack works when the device is lost as well; without that no guard could put it back. */
CUresult stub_cuCtxGetCurrent(CUcontext *context)
{
    STUB_CALL(cuCtxGetCurrent, STUB_ANYTIME);
    *context = stub_current();
    return CUDA_SUCCESS;
}

CUresult stub_cuCtxPushCurrent(CUcontext context)
{
    STUB_CALL(cuCtxPushCurrent, STUB_ANYTIME);
    if (!context || context->retained == 0 || depth == STUB_MOST_CONTEXTS)
        return STUB_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult stub_cuCtxPopCurrent(CUcontext *context)
{
    STUB_CALL(cuCtxPopCurrent, STUB_ANYTIME);
    if (depth == 0)
        return STUB_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

CUresult stub_cuCtxSynchronize(void)
{
    STUB_CALL(cuCtxSynchronize, STUB_IN_CONTEXT | STUB_UNSAFE);
    stub_wait_for_all(stub_current()->device);
    return CUDA_SUCCESS;
}

CUresult stub_cuCtxGetDevice(CUdevice *device)
{
    STUB_CALL(cuCtxGetDevice, STUB_IN_CONTEXT);
    *device = stub_current()->device;
    return CUDA_SUCCESS;
}

/* In the place of the one that was current; none (NULL) takes that away. */
CUresult stub_cuCtxSetCurrent(CUcontext context)
{
    STUB_CALL(cuCtxSetCurrent, STUB_ANYTIME);
    if (context && context->retained == 0)
        return STUB_INVALID_CONTEXT;
    depth -= depth > 0;
    if (context)
        stack[depth++] = context;
    return CUDA_SUCCESS;
}

/* There is one for each device, which the stub has from the beginning. */
CUresult stub_cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    STUB_CALL(cuCtxCreate, 0);
    if (flags != 0 || device < 0 || device >= stub.devices || depth == STUB_MOST_CONTEXTS)
        return STUB_INVALID_VALUE;
    *context = stack[depth++] = &stub.device[device].foreign;
    return CUDA_SUCCESS;
}

CUresult stub_cuCtxDestroy(CUcontext context)
{
    STUB_CALL(cuCtxDestroy, 0);
    if (!context || !context->foreign)
        return STUB_INVALID_CONTEXT;
    if (stub_current() == context)
        depth--;
    return CUDA_SUCCESS;
}

CUresult stub_cuThreadExchangeStreamCaptureMode(int *mode)
{
    STUB_CALL(cuThreadExchangeStreamCaptureMode, STUB_ANYTIME);
    if (*mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return STUB_INVALID_VALUE;
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* No device reaches another one's memory; that two could is said where a test asks for it. */
CUresult stub_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    STUB_CALL(cuDeviceCanAccessPeer, 0);
    if (device < 0 || device >= stub.devices || peer < 0 || peer >= stub.devices)
        return STUB_INVALID_DEVICE;
    if (!can)
        return STUB_INVALID_VALUE;
    *can = device != peer && getenv("STUB_CUDA_PEERS") != NULL;
    return CUDA_SUCCESS;
}

CUresult stub_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    enum { PEER_ACCESS_UNSUPPORTED = 217 };
    STUB_CALL(cuCtxEnablePeerAccess, STUB_IN_CONTEXT);
    (void)peer;
    (void)flags;
    return getenv("STUB_CUDA_PEERS") ? CUDA_SUCCESS : PEER_ACCESS_UNSUPPORTED;
}

CUresult stub_cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice from, CUdevice to)
{
    enum { RANK = 1, RANK_OF_ALL = 7 };
    STUB_CALL(cuDeviceGetP2PAttribute, 0);
    CUresult result = stub_cuDeviceCanAccessPeer(value, from, to);
    if (result == CUDA_SUCCESS && attribute == RANK)
        *value = RANK_OF_ALL;
    return result;
}

/* What was there stays: a test looks whether it was called. */
CUresult stub_cuDevicePrimaryCtxReset(CUdevice device)
{
    STUB_CALL(cuDevicePrimaryCtxReset, 0);
    return device < 0 || device >= stub.devices ? STUB_INVALID_DEVICE : CUDA_SUCCESS;
}

/* Memory of the program's own that is page-locked; which is not kept. */
