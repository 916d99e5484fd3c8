/* Streams, events and graphs. */
#include "cudart.h"

CUstream cudart_stream(CUstream stream)
{
    return stream ? stream : CU_STREAM_LEGACY;
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
    return cudart_keep(cudart_enter()->cuStreamDestroy(stream));
}

CUDART_FUNCTION(int, cudaStreamSynchronize, (CUstream stream))
{
    return cudart_keep(cudart_enter()->cuStreamSynchronize(cudart_stream(stream)));
}

CUDART_FUNCTION(int, cudaStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))
{
    return cudart_keep(cudart_enter()->cuStreamWaitEvent(cudart_stream(stream), event, flags));
}

CUDART_FUNCTION(int, cudaLaunchHostFunc, (CUstream stream, void (*fn)(void *), void *user))
{
    return cudart_keep(cudart_enter()->cuLaunchHostFunc(cudart_stream(stream), fn, user));
}

/* Events ----------------------------------------------------------------------------------------------------------- */

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
    return cudart_keep(cudart_enter()->cuEventDestroy(event));
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

CUDART_FUNCTION(int, cudaEventSynchronize, (CUevent event))
{
    return cudart_keep(cudart_enter()->cuEventSynchronize(event));
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
