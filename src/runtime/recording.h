/* What a runtime knows of its traces: there may be one that the program opened, one that the option `trace` asks for, and
 * one of the adaptor "log" in its stack, whose events do not come from the ledger.
 *
 * A public call records what it did and, when enough events wait, hands them to the sinks before it returns. Handing out
 * has a lock of its own, under which no other lock is held but the ledger's for the moment of taking events; whoever finds
 * it taken leaves the work to its holder. The lock lives in the runtime, so that it outlives every trace. */
#ifndef WI_RECORDING_H
#define WI_RECORDING_H

#include "memory/ledger/record.h"
#include <weir/trace.h>

typedef enum wi_trace_place { WI_TRACE_OPENED, WI_TRACE_OF_OPTION, WI_TRACE_OF_LOG, WI_TRACE_PLACES } wi_trace_place;

typedef struct wi_recorder {
    pthread_mutex_t drain;
    _Atomic(weir_trace *) traces[WI_TRACE_PLACES]; /* changed under `drain` */
} wi_recorder;

/* Of a runtime that is being made, whose ledger is there. */
void wi_recorder_init(weir_runtime *runtime);
/* Opens the trace that the option asks for; what is wrong with that is for the log. No lock is held. */
void wi_recorder_start(weir_runtime *runtime);
/* WEIR_ERR_BUSY while a trace is open that the program opened, and inside what closes one. */
weir_status wi_recorder_check_end(const weir_runtime *runtime);
/* Closes the others; nothing more is recorded. */
void wi_recorder_end(weir_runtime *runtime);
void wi_trace_option_end(weir_runtime *runtime);
/* Whether this thread is closing the runtime's traces, as the process exits. */
bool wi_trace_exit_closes(const weir_runtime *runtime);
/* The trace of the adaptor "log", if the stack has one, with a sink for each file that it names. */
void wi_trace_log_start(weir_runtime *runtime);

/* Opens the runtime's trace in this place. */
weir_status wi_trace_open(weir_runtime *runtime, wi_trace_place place, const weir_trace_options *options,
                          weir_trace **out);

/* Records the event with `status` as its result, hands out what waits, and answers `status`. */
weir_status wi_record_call(weir_runtime *runtime, weir_status status, const weir_event *event);
/* A failed call of weir_alloc and its like is recorded, unless it was refused, which the ledger has recorded. */
weir_status wi_record_failure(weir_runtime *runtime, weir_status status, weir_action action, const void *pointer,
                              uint64_t bytes, weir_stream stream);

/* A copy: the bytes read and the bytes written. */
weir_status wi_record_copy(weir_runtime *runtime, weir_status status, void *to, const void *from, uint64_t bytes,
                           weir_stream stream);

/* Hands out what waits in the runtime's traces, if that is enough, and nobody else is at it. Leaves the thread's detail
 * alone. No lock is held. */
void wi_trace_hand_out(weir_runtime *runtime);
#define wi_hand_out(runtime)                                                                                           \
    (wi_unlikely(wi_recording(&(runtime)->ledger) & WI_EVENTS_WAITING) ? wi_trace_hand_out(runtime) : (void)0)

/* The end of a public call, whose runtime may be NULL. `status` is evaluated once. Without a trace it costs a load. */
#define wi_traced(runtime) wi_unlikely((runtime) && wi_recording(&(runtime)->ledger))
#define wi_recorded(runtime, status, ...)                                                                              \
    (wi_traced(runtime) ? wi_record_call((runtime), (status), &(weir_event){__VA_ARGS__}) : (status))
#define wi_recorded_copy(runtime, status, ...)                                                                         \
    (wi_traced(runtime) ? wi_record_copy((runtime), (status), __VA_ARGS__) : (status))
#define wi_recorded_failure(runtime, status, ...)                                                                      \
    (wi_traced(runtime) ? wi_record_failure((runtime), (status), __VA_ARGS__) : (status))

#endif
