/* What is put on the stub's streams, and the events between it. */
#include "stream.h"

#include <stdatomic.h>
#include <unistd.h>

/* Work ------------------------------------------------------------------------------------------------------------- */

static void run_copy(stub_work *work)
{
    memmove(work->to, work->from, work->bytes);
}

static void run_fill(stub_work *work)
{
    memset(work->to, work->value, work->bytes);
}

static void run_call(stub_work *work)
{
    stub_in_host_function = true;
    work->fn(work->to);
    stub_in_host_function = false;
}

void stub_run_wait(stub_work *work)
{
    stub_wait(work->line, work->sequence);
}

/* As GPUs do it: by looking, and as differences of 32 bits. */
static void run_wait_value(stub_work *work)
{
    const _Atomic uint32_t *word = work->from;
    while ((int32_t)(atomic_load(word) - (uint32_t)work->sequence) < 0)
        usleep(100);
}

/* The one work that the real one takes, and says so, on a stream of a device that is not the current one. */
CUresult stub_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    STUB_CALL(cuMemcpyAsync, STUB_IN_CONTEXT);
    return stub_put_anywhere(stream, (stub_work){.run = run_copy,
                                                 .to = (void *)(uintptr_t)to,
                                                 .from = (const void *)(uintptr_t)from,
                                                 .bytes = bytes});
}

/* As the real one, it takes no default stream. No captured stream either, and no order of reading but the stream's. */
/* NOLINTBEGIN(readability-non-const-parameter): CUDA says so */
CUresult stub_cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                                 CUmemcpyAttributes *attributes, size_t *firsts, size_t attribute_count, size_t *failed,
                                 CUstream stream)
/* NOLINTEND(readability-non-const-parameter) */
{
    STUB_CALL(cuMemcpyBatchAsync, STUB_IN_CONTEXT);
    *failed = SIZE_MAX;
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || count == 0 || attribute_count != 1 ||
        firsts[0] != 0 || attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
        return STUB_INVALID_VALUE;
    CUresult result = stub_find_stream(&stream);
    if (result == CUDA_SUCCESS && stream->capture != CU_STREAM_CAPTURE_STATUS_NONE)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (size_t i = count; result == CUDA_SUCCESS && i-- > 0;) /* in no order that the caller may count on */
        result = bytes[i] == 0 ? STUB_INVALID_VALUE
                               : stub_put_anywhere(stream, (stub_work){.run = run_copy,
                                                                       .to = (void *)(uintptr_t)to[i],
                                                                       .from = (const void *)(uintptr_t)from[i],
                                                                       .bytes = bytes[i]});
    return result;
}

/* No device here reaches another one's memory. (Copies go through the host, where there is no other way.) */
static bool is_reached(CUdeviceptr address)
{
    pthread_mutex_lock(&stub.lock);
    int mapped = stub.devices > 1 ? stub_mapped_on(address) : -1;
    int device = stub.devices > 1 && mapped < 0 ? stub_allocated_on(address) : mapped;
    pthread_mutex_unlock(&stub.lock);
    return device < 0 || stub_is_here(device);
}

CUresult stub_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    STUB_CALL(cuMemsetD8Async, STUB_IN_CONTEXT);
    if (!is_reached(to))
        return STUB_INVALID_VALUE;
    return stub_put(stream, (stub_work){.run = run_fill, .to = (void *)(uintptr_t)to, .bytes = bytes, .value = value});
}

CUresult stub_cuLaunchHostFunc(CUstream stream, void (*fn)(void *), void *user)
{
    STUB_CALL(cuLaunchHostFunc, STUB_IN_CONTEXT);
    return fn ? stub_put(stream, (stub_work){.run = run_call, .to = user, .fn = fn}) : STUB_INVALID_VALUE;
}

CUresult stub_cuStreamWaitValue32(CUstream stream, CUdeviceptr word, uint32_t value, unsigned flags)
{
    enum { WAIT_VALUE_GEQ = 0 };
    STUB_CALL(cuStreamWaitValue32, STUB_IN_CONTEXT);
    if (flags != WAIT_VALUE_GEQ || word % sizeof value != 0)
        return STUB_INVALID_VALUE;
    return stub_put(stream,
                    (stub_work){.run = run_wait_value, .from = (const void *)(uintptr_t)word, .sequence = value});
}

CUresult stub_put_wait(CUstream stream, stub_line *other, uint64_t sequence)
{
    return stub_put(stream, (stub_work){.run = stub_run_wait, .line = other, .sequence = sequence});
}

/* Events ----------------------------------------------------------------------------------------------------------- */

static struct CUevent_st *events; /* all that ever were */

CUresult stub_check_event(struct CUevent_st *event)
{
    pthread_mutex_lock(&stub.lock);
    bool good = event && event->alive && event->context == stub_current();
    pthread_mutex_unlock(&stub.lock);
    return good ? CUDA_SUCCESS : STUB_INVALID_HANDLE;
}

/* With the lock held. */
static struct CUevent_st *take_record(void)
{
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (event) {
        event->next = events;
        events = event;
    }
    return event;
}

CUresult stub_cuEventCreate(CUevent *out, unsigned flags)
{
    STUB_CALL(cuEventCreate, STUB_IN_CONTEXT | STUB_UNSAFE);
    if (flags != CU_EVENT_DISABLE_TIMING)
        return STUB_INVALID_VALUE;
    pthread_mutex_lock(&stub.lock);
    struct CUevent_st *event = take_record();
    if (event) {
        event->context = stub_current();
        event->alive = true;
        stub.device[event->context->device].count.events++;
    }
    pthread_mutex_unlock(&stub.lock);
    *out = event;
    return event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stub_cuEventDestroy(CUevent event)
{
    STUB_CALL(cuEventDestroy, STUB_IN_CONTEXT | STUB_UNSAFE);
    CUresult result = stub_check_event(event);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&stub.lock);
    event->alive = false;
    stub.device[event->context->device].count.events--;
    pthread_mutex_unlock(&stub.lock);
    return CUDA_SUCCESS;
}

CUresult stub_cuEventRecord(CUevent event, CUstream stream)
{
    STUB_CALL(cuEventRecord, STUB_IN_CONTEXT);
    CUresult result = stub_check_event(event);
    if (result == CUDA_SUCCESS)
        result = stub_find_stream(&stream);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&stub.lock);
    event->captured = stream->capture != CU_STREAM_CAPTURE_STATUS_NONE;
    event->line = stream->line;
    event->sequence = stub_queued(stream->line);
    pthread_mutex_unlock(&stub.lock);
    return CUDA_SUCCESS;
}

CUresult stub_cuCtxRecordEvent(CUcontext context, CUevent event)
{
    STUB_CALL(cuCtxRecordEvent, STUB_IN_CONTEXT);
    CUresult result = stub_check_event(event);
    if (result == CUDA_SUCCESS && context != event->context)
        result = STUB_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = stub_break_captures(context->device, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (result != CUDA_SUCCESS)
        return result;
    stub_line *line = stub_line_behind_all(context->device);
    if (!line)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&stub.lock);
    event->captured = false;
    event->line = line;
    event->sequence = stub_queued(line);
    pthread_mutex_unlock(&stub.lock);
    return CUDA_SUCCESS;
}

/* What the event stands for now. */
/* Events are asked about, and waited for, whichever context is current, as the real driver has it. */
static CUresult read_event(CUevent event, stub_line **line, uint64_t *sequence)
{
    pthread_mutex_lock(&stub.lock);
    bool alive = event && event->alive, captured = alive && event->captured;
    if (alive) {
        *line = event->line;
        *sequence = event->sequence;
    }
    pthread_mutex_unlock(&stub.lock);
    return !alive ? STUB_INVALID_HANDLE : captured ? STUB_CAPTURED_EVENT : CUDA_SUCCESS;
}

CUresult stub_cuEventQuery(CUevent event)
{
    STUB_CALL(cuEventQuery, STUB_IN_CONTEXT | STUB_UNSAFE);
    stub_line *line = NULL;
    uint64_t sequence = 0;
    CUresult result = read_event(event, &line, &sequence);
    if (result == CUDA_SUCCESS && line && !stub_done(line, sequence))
        result = CUDA_ERROR_NOT_READY;
    return result;
}

CUresult stub_cuEventSynchronize(CUevent event)
{
    STUB_CALL(cuEventSynchronize, STUB_IN_CONTEXT | STUB_UNSAFE);
    stub_line *line = NULL;
    uint64_t sequence = 0;
    CUresult result = read_event(event, &line, &sequence);
    if (result == CUDA_SUCCESS && line)
        stub_wait(line, sequence);
    return result;
}

CUresult stub_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    STUB_CALL(cuStreamWaitEvent, STUB_IN_CONTEXT);
    stub_line *other = NULL;
    uint64_t sequence = 0;
    CUresult result = flags == 0 ? read_event(event, &other, &sequence) : STUB_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = stub_find_stream(&stream);
    if (result == CUDA_SUCCESS)
        result = stub_break_capture(stream, STUB_CAPTURE_ISOLATION);
    return result == CUDA_SUCCESS && other ? stub_put_wait(stream, other, sequence) : result;
}
