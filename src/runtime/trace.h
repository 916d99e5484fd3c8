/* Traces of a runtime, inside: one that the program opened, one of the option `trace`, and one of the adaptor "log"
 * in its stack, whose events do not come from the ledger.
 *
 * A public call records its actions as events. When enough events wait, the call hands them to the sinks before it
 * returns. Handing over takes a lock of its own, under which no other lock is held but the ledger's, for the moment of
 * taking events. A thread that finds the lock taken leaves the work to its owner. The lock is in the runtime, so that
 * it outlives every trace. */
#ifndef WI_TRACE_H
#define WI_TRACE_H

#include "memory/ledger/ledger.h"

#include <weir/trace.h>

typedef enum wi_trace_origin { WI_TRACE_OPENED, WI_TRACE_OF_OPTION, WI_TRACE_OF_LOG, WI_TRACE_ORIGINS } wi_trace_origin;

typedef struct wi_recorder {
    pthread_mutex_t drain;
    _Atomic(weir_trace *) traces[WI_TRACE_ORIGINS]; /* changed under `drain` */
} wi_recorder;

/* For a new runtime, after its ledger. */
void wi_recorder_init(weir_runtime *runtime);
/* Opens the trace of the option; failures go to the log. No lock is held. */
void wi_recorder_start(weir_runtime *runtime);
/* WEIR_ERR_BUSY while the program has a trace open, and inside a sink or the closing of one. */
weir_status wi_recorder_check_end(const weir_runtime *runtime);
/* Closes the other traces; nothing is recorded any more. */
void wi_recorder_end(weir_runtime *runtime);
void wi_trace_option_end(weir_runtime *runtime);
/* Whether this thread is closing the runtime's traces, as the process exits. */
bool wi_trace_exit_closes(const weir_runtime *runtime);
/* The trace of the adaptor "log", if the stack has one, with a sink for each file that it names. */
void wi_trace_log_start(weir_runtime *runtime);

/* Opens the runtime's trace of that origin. */
weir_status wi_trace_open(weir_runtime *runtime, wi_trace_origin origin, const weir_trace_options *options,
                          weir_trace **out);

/* Records the event with the result `status`, hands out what waits, and returns `status`. */
weir_status wi_record_call(weir_runtime *runtime, weir_status status, const weir_event *event);
/* A failed call of weir_alloc and its like is recorded, unless it was refused, which the ledger has recorded. */
weir_status wi_record_failure(weir_runtime *runtime, weir_status status, weir_action action, const void *pointer,
                              uint64_t bytes, weir_stream stream);

/* A copy: the bytes read and the bytes written. */
weir_status wi_record_copy(weir_runtime *runtime, weir_status status, void *to, const void *from, uint64_t bytes,
                           weir_stream stream);

/* Hands waiting events to the sinks, if there are many, and if no other thread is doing it. Does not change the
 * detail. No lock is held. */
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

/* Sinks ------------------------------------------------------------------------------------------------------------ */

/* A sink and its state; a trace is a ring of events and its sinks. */

enum { WI_TRACE_BATCH = 256 };

/* The state of a sink. */
typedef struct wi_sink {
    weir_sink sink;
    bool failed, told; /* told: the first failure was logged */
    weir_status status;
    char detail[256];
    struct wi_sink *next;
} wi_sink;

struct weir_trace {
    weir_runtime *runtime;
    wi_trace_origin origin;
    wi_events *events;
    wi_sink *sinks; /* in the order of adding; under the recorder's lock */
    atomic_uint_fast64_t failed;
    weir_event batch[WI_TRACE_BATCH];
};

/* weir_trace_destroy for any trace; NULL: nothing to do. */
void wi_trace_close(weir_trace *trace);
/* Has the runtime's traces closed when the process exits in order. */
void wi_trace_watch_exit(weir_runtime *runtime);

/* Whether this thread is inside a sink. */
bool wi_sinks_inside(void);

/* For these the recorder's lock is held, or no other thread knows the trace. */

/* Hands out the events that wait now, but none that come meanwhile, as those may never end. Returns the first
 * failure. */
weir_status wi_sinks_drain(weir_trace *trace);
weir_status wi_sinks_flush(weir_trace *trace);
void wi_sinks_close(weir_trace *trace);
/* Adds a checked sink. */
weir_status wi_sinks_add(weir_trace *trace, const weir_sink *sink);
/* The text of a first failure that is not logged yet; false: there is none. The caller logs it without a lock. */
enum { WI_UNTOLD = 512 };
bool wi_sinks_untold(weir_trace *trace, char text[WI_UNTOLD]);

#endif
