/* Streams, events and graphs. */
#include "cudart.h"

CUstream cudart_stream(CUstream stream)
{
    return stream ? stream : CU_STREAM_LEGACY;
}

/* Waiting for a stream, ordering it and ending it work from any device, as the real library has it; launches, and records
 * of events, do not. */
const cudart_driver *cudart_enter_stream(CUstream stream, bool *entered)
{
    const cudart_driver *d = cudart_enter();
    CUcontext context = NULL;
    *entered = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD &&
               d->cuStreamGetCtx(stream, &context) == CUDA_SUCCESS && d->cuCtxPushCurrent(context) == CUDA_SUCCESS;
    return d;
}

int cudart_leave_stream(const cudart_driver *d, bool entered, CUresult result)
{
    CUcontext context;
    if (entered)
        d->cuCtxPopCurrent(&context);
    return cudart_keep(result);
}

/* Blocking or not: nothing here works on the legacy stream without waiting for it. */
CUDART_FUNCTION(int, cudaStreamCreateWithFlags, (CUstream * stream, unsigned flags))
{
    (void)flags;
    return cudart_keep(cudart_enter()->cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
}

CUDART_FUNCTION(int, cudaStreamCreate, (CUstream * stream))
{
    return cudaStreamCreateWithFlags(stream, 0);
}

CUDART_FUNCTION(int, cudaStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority))
{
    (void)priority;
    return cudaStreamCreateWithFlags(stream, flags);
}

CUDART_FUNCTION(int, cudaStreamDestroy, (CUstream stream))
{
    bool entered;
    const cudart_driver *d = cudart_enter_stream(stream, &entered);
    return cudart_leave_stream(d, entered, d->cuStreamDestroy(stream));
}

CUDART_FUNCTION(int, cudaStreamSynchronize, (CUstream stream))
{
    bool entered;
    const cudart_driver *d = cudart_enter_stream(stream, &entered);
    return cudart_leave_stream(d, entered, d->cuStreamSynchronize(cudart_stream(stream)));
}

/* Kernels do nothing here, so that nobody has to wait for one. */
CUDART_NOTHING(cudaStreamQuery)

CUDART_FUNCTION(int, cudaStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))
{
    bool entered;
    const cudart_driver *d = cudart_enter_stream(stream, &entered);
    return cudart_leave_stream(d, entered, d->cuStreamWaitEvent(cudart_stream(stream), event, flags));
}

CUDART_FUNCTION(int, cudaLaunchHostFunc, (CUstream stream, void (*fn)(void *), void *user))
{
    return cudart_keep(cudart_enter()->cuLaunchHostFunc(cudart_stream(stream), fn, user));
}

/* Events ----------------------------------------------------------------------------------------------------------- */

enum { INVALID_HANDLE = 400 };

/* Waiting for an event and ending it work from any device, too; an event does not say of which it is. */
static int on_any_device(CUresult (*call)(CUevent event), CUevent event)
{
    const cudart_driver *d = cudart_enter();
    CUresult result = call(event);
    int count = 0;
    d->cuDeviceGetCount(&count);
    for (int i = 0; i < count && result == INVALID_HANDLE; i++) {
        CUcontext context;
        if (d->cuCtxPushCurrent(cudart_primary(i)) != CUDA_SUCCESS)
            continue;
        result = call(event);
        d->cuCtxPopCurrent(&context);
    }
    return cudart_keep(result);
}

CUDART_FUNCTION(int, cudaEventCreateWithFlags, (CUevent * event, unsigned flags))
{
    (void)flags;
    return cudart_keep(cudart_enter()->cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
}

CUDART_FUNCTION(int, cudaEventCreate, (CUevent * event))
{
    return cudaEventCreateWithFlags(event, 0);
}

CUDART_FUNCTION(int, cudaEventDestroy, (CUevent event))
{
    return on_any_device(cudart_enter()->cuEventDestroy, event);
}

CUDART_FUNCTION(int, cudaEventRecord, (CUevent event, CUstream stream))
{
    return cudart_keep(cudart_enter()->cuEventRecord(event, cudart_stream(stream)));
}

CUDART_FUNCTION(int, cudaEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags))
{
    (void)flags;
    return cudaEventRecord(event, stream);
}

CUDART_FUNCTION(int, cudaEventQuery, (CUevent event))
{
    return on_any_device(cudart_enter()->cuEventQuery, event);
}

CUDART_FUNCTION(int, cudaEventSynchronize, (CUevent event))
{
    return on_any_device(cudart_enter()->cuEventSynchronize, event);
}

CUDART_FUNCTION(int, cudaEventElapsedTime, (float *milliseconds, CUevent from, CUevent to))
{
    (void)from;
    (void)to;
    *milliseconds = 0;
    return 0;
}

/* Graphs ----------------------------------------------------------------------------------------------------------- */

CUDART_FUNCTION(int, cudaStreamBeginCapture, (CUstream stream, int mode))
{
    return cudart_keep(cudart_enter()->cuStreamBeginCapture(cudart_stream(stream), mode));
}

CUDART_FUNCTION(int, cudaStreamEndCapture, (CUstream stream, CUgraph *graph))
{
    return cudart_keep(cudart_enter()->cuStreamEndCapture(cudart_stream(stream), graph));
}

CUDART_FUNCTION(int, cudaStreamIsCapturing, (CUstream stream, int *status))
{
    return cudart_keep(cudart_enter()->cuStreamIsCapturing(cudart_stream(stream), status));
}

CUDART_FUNCTION(int, cudaGraphInstantiate, (CUgraphExec * executable, CUgraph graph, unsigned long long flags))
{
    return cudart_keep(cudart_enter()->cuGraphInstantiateWithFlags(executable, graph, flags));
}

/* cudaGraphExecUpdateResultInfo, whose result is first. An executable graph takes up the graph that it was made from, and no
 * other: programs then make a new one. */
CUDART_FUNCTION(int, cudaGraphExecUpdate, (CUgraphExec executable, CUgraph graph, int *info))
{
    enum { SIZE = 24, UPDATE_FAILED = 910 };
    bool same = (CUgraph)executable == graph;
    memset(info, 0, SIZE);
    *info = !same;
    return same ? 0 : cudart_keep(UPDATE_FAILED);
}

CUDART_FUNCTION(int, cudaGraphLaunch, (CUgraphExec executable, CUstream stream))
{
    return cudart_keep(cudart_enter()->cuGraphLaunch(executable, cudart_stream(stream)));
}

CUDART_FUNCTION(int, cudaGraphExecDestroy, (CUgraphExec executable))
{
    return cudart_keep(cudart_enter()->cuGraphExecDestroy(executable));
}

CUDART_FUNCTION(int, cudaGraphDestroy, (CUgraph graph))
{
    return cudart_keep(cudart_enter()->cuGraphDestroy(graph));
}
