/* The end of a recorded call. */
#include "runtime/runtime.h"
#include <weir/trace.h>
#include "base/intern.h"
#include "runtime/trace.h"

void wi_recorder_init(weir_runtime *runtime)
{
    pthread_mutex_init(&runtime->recorder.drain, NULL);
    const char *lasting = wi_intern_as(WI_DEVICE_NAME, runtime->name, sizeof runtime->name);
    runtime->ledger.device = lasting ? lasting : WI_LOST_NAME; /* no host memory: there are few such names */
}

weir_status wi_recorder_check_end(const weir_runtime *runtime)
{
    if (wi_sinks_inside())
        return weir_fail(WEIR_ERR_BUSY, "the runtime %s cannot be destroyed inside a sink", runtime->name);
    if (wi_trace_exit_closes(runtime))
        return weir_fail(WEIR_ERR_BUSY, "the runtime %s cannot be destroyed while the exit closes its trace",
                         runtime->name);
    if (atomic_load(&runtime->recorder.traces[WI_TRACE_OPENED]))
        return weir_fail(WEIR_ERR_BUSY, "the runtime %s is being traced; close the trace first", runtime->name);
    return WEIR_OK;
}

void wi_recorder_end(weir_runtime *runtime)
{
    wi_trace_option_end(runtime);
    pthread_mutex_destroy(&runtime->recorder.drain);
}

weir_status wi_record_call(weir_runtime *runtime, weir_status status, const weir_event *event)
{
    weir_event recorded = *event;
    recorded.result = status;
    wi_record(&runtime->ledger, recorded, NULL);
    wi_trace_hand_out(runtime);
    return status;
}

weir_status wi_record_copy(weir_runtime *runtime, weir_status status, void *to, const void *from, uint64_t bytes,
                           weir_stream stream)
{
    static atomic_uint_fast64_t last;
    weir_event event = {
        .action = WEIR_ACTION_COPY, .stream = stream, .bytes = bytes, .object = atomic_fetch_add(&last, 1) + 1};
    event.pointer = (void *)(uintptr_t)from;
    event.access = WEIR_ACCESS_READ;
    event.result = status;
    wi_record(&runtime->ledger, event, NULL);
    event.pointer = to;
    event.access = WEIR_ACCESS_WRITE;
    return wi_record_call(runtime, status, &event);
}

weir_status wi_record_failure(weir_runtime *runtime, weir_status status, weir_action action, const void *pointer,
                              uint64_t bytes, weir_stream stream)
{
    if (status != WEIR_OK && status != WEIR_ERR_OUT_OF_MEMORY)
        return wi_record_call(runtime, status,
                              &(weir_event){.action = WEIR_ACTION_FAIL,
                                            .object = (uint64_t)action,
                                            .pointer = (void *)(uintptr_t)pointer,
                                            .bytes = bytes,
                                            .stream = stream});
    wi_trace_hand_out(runtime);
    return status;
}
