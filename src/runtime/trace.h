/* Traces, inside: a ring of events, and the sink through which they leave it. */
#ifndef WI_TRACE_H
#define WI_TRACE_H

#include "runtime/recording.h"
#include <weir/trace.h>

enum { WI_TRACE_BATCH = 256 };

/* A sink, and what it has come to. */
typedef struct wi_sink {
    weir_sink sink;
    bool failed, told; /* the log is told of the first failure */
    weir_status status;
    char detail[256];
    struct wi_sink *next;
} wi_sink;

struct weir_trace {
    weir_runtime *runtime;
    wi_trace_place place;
    wi_events *events;
    wi_sink *sinks; /* in the order of adding; under the recorder's lock */
    atomic_uint_fast64_t failed;
    weir_event batch[WI_TRACE_BATCH];
};

/* As weir_trace_destroy, of any trace; NULL is nothing. */
void wi_trace_close(weir_trace *trace);
/* Its traces are closed when the process exits in order. */
void wi_trace_watch_exit(weir_runtime *runtime);

/* Whether this thread is inside a sink. */
bool wi_sinks_inside(void);

/* The next ones with the recorder's lock held, or for a trace that nobody else can reach. */

/* Hands out what waits now, and no more: others may record for ever. Answers the first failure. */
weir_status wi_sinks_drain(weir_trace *trace);
weir_status wi_sinks_flush(weir_trace *trace);
void wi_sinks_close(weir_trace *trace);
/* Adds a checked sink. */
weir_status wi_sinks_add(weir_trace *trace, const weir_sink *sink);
/* Words for a first failure that the log has not heard of; false when there is none. The log is told without a lock. */
enum { WI_UNTOLD = 512 };
bool wi_sinks_untold(weir_trace *trace, char text[WI_UNTOLD]);

#endif
