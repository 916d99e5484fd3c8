/* Streams that are captured into graphs: what is put on them meanwhile runs when the graph is launched, and a call that
 * needs the stream's own time breaks the capture, as with the real one. */
#include "stream.h"

struct CUgraph_st {
    stub_work *first;
    uint64_t holders; /* the graph itself and what was instantiated from it */
};

/* With the lock held. */
static void free_captured(stub_work *work)
{
    while (work) {
        stub_work *next = work->next;
        free(work);
        work = next;
    }
}

CUresult stub_break_capture(struct CUstream_st *stream, CUresult result)
{
    pthread_mutex_lock(&stub.lock);
    bool captured = stream->capture != CU_STREAM_CAPTURE_STATUS_NONE;
    if (captured) {
        stream->capture = STUB_CAPTURE_INVALIDATED;
        stub.captures_broken++;
    }
    pthread_mutex_unlock(&stub.lock);
    return captured ? result : CUDA_SUCCESS;
}

bool stub_captured(struct CUstream_st *stream, stub_work *work)
{
    pthread_mutex_lock(&stub.lock);
    bool captured = stream->capture != CU_STREAM_CAPTURE_STATUS_NONE;
    if (captured) {
        stub_work **end = &stream->captured;
        while (*end)
            end = &(*end)->next;
        *end = work;
    }
    pthread_mutex_unlock(&stub.lock);
    return captured;
}

CUresult stub_cuStreamIsCapturing(CUstream stream, int *status)
{
    STUB_CALL(cuStreamIsCapturing, STUB_IN_CONTEXT);
    CUresult result = stub_find_stream(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&stub.lock);
    *status = stream->capture;
    pthread_mutex_unlock(&stub.lock);
    return CUDA_SUCCESS;
}

CUresult stub_cuStreamBeginCapture(CUstream stream, int mode)
{
    STUB_CALL(cuStreamBeginCapture, STUB_IN_CONTEXT);
    if (stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = stub_find_stream(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&stub.lock);
    bool captured = stream->capture != CU_STREAM_CAPTURE_STATUS_NONE;
    if (!captured) {
        stream->capture = STUB_CAPTURE_ACTIVE;
        stub.capturing = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    }
    pthread_mutex_unlock(&stub.lock);
    return captured ? STUB_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult stub_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    STUB_CALL(cuStreamEndCapture, STUB_IN_CONTEXT);
    CUresult result = stub_find_stream(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    *graph = calloc(1, sizeof **graph);
    if (!*graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&stub.lock);
    if (stream->capture == STUB_CAPTURE_ACTIVE)
        **graph = (struct CUgraph_st){stream->captured, 1};
    else
        free_captured(stream->captured);
    if (stream->capture != STUB_CAPTURE_ACTIVE) {
        result = stream->capture ? STUB_CAPTURE_BROKEN : STUB_INVALID_VALUE;
        free(*graph);
        *graph = NULL;
    }
    stream->captured = NULL;
    stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
    stub.graphs += *graph != NULL;
    stub.capturing = false;
    pthread_mutex_unlock(&stub.lock);
    return result;
}

CUresult stub_cuStreamBeginCapture_ptsz(CUstream stream, int mode)
{
    return stub_cuStreamBeginCapture(stream ? stream : CU_STREAM_PER_THREAD, mode);
}

/* The graph stays as it is: what was captured is in the one that the end of the capture gives. */
CUresult stub_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const void *behind, const void *edges,
                                          size_t count, int mode)
{
    STUB_CALL(cuStreamBeginCaptureToGraph, STUB_IN_CONTEXT);
    if (!graph || behind || edges || count > 0)
        return STUB_INVALID_VALUE;
    return stub_cuStreamBeginCapture(stream, mode);
}

CUresult stub_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const void *behind, const void *edges,
                                               size_t count, int mode)
{
    return stub_cuStreamBeginCaptureToGraph(stream ? stream : CU_STREAM_PER_THREAD, graph, behind, edges, count, mode);
}

CUresult stub_cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void (*fn)(void *), void *user)
{
    STUB_CALL(cuStreamBeginRecaptureToGraph, STUB_IN_CONTEXT);
    (void)fn;
    (void)user;
    return graph ? stub_cuStreamBeginCapture(stream, mode) : STUB_INVALID_VALUE;
}

CUresult stub_cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void (*fn)(void *),
                                                 void *user)
{
    return stub_cuStreamBeginRecaptureToGraph(stream ? stream : CU_STREAM_PER_THREAD, mode, graph, fn, user);
}

CUresult stub_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return stub_cuStreamEndCapture(stream ? stream : CU_STREAM_PER_THREAD, graph);
}

static void let_go(CUgraph graph)
{
    pthread_mutex_lock(&stub.lock);
    bool last = --graph->holders == 0;
    stub.graphs -= last;
    pthread_mutex_unlock(&stub.lock);
    if (last) {
        free_captured(graph->first);
        free(graph);
    }
}

CUresult stub_cuGraphDestroy(CUgraph graph)
{
    STUB_CALL(cuGraphDestroy, 0);
    let_go(graph);
    return CUDA_SUCCESS;
}

CUresult stub_cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    STUB_CALL(cuGraphInstantiateWithFlags, STUB_IN_CONTEXT);
    if (!graph || flags != 0)
        return STUB_INVALID_VALUE;
    pthread_mutex_lock(&stub.lock);
    graph->holders++;
    pthread_mutex_unlock(&stub.lock);
    *executable = (CUgraphExec)graph;
    return CUDA_SUCCESS;
}

CUresult stub_cuGraphExecDestroy(CUgraphExec executable)
{
    STUB_CALL(cuGraphExecDestroy, 0);
    let_go((CUgraph)executable);
    return CUDA_SUCCESS;
}

CUresult stub_cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    STUB_CALL(cuGraphLaunch, STUB_IN_CONTEXT);
    CUresult result = CUDA_SUCCESS;
    for (const stub_work *work = ((CUgraph)executable)->first; work && result == CUDA_SUCCESS; work = work->next)
        result = stub_put(stream, *work);
    return result;
}
