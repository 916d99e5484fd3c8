/* The public face of the ledger's event ring. */
#include "runtime/runtime.h"

struct weir_trace {
    weir_runtime *runtime;
    wi_events *events;
};

weir_status weir_trace_open(weir_runtime *runtime, size_t capacity, weir_trace **out)
{
    WI_ENTER();
    if (!runtime || !out)
        return weir_fail(WEIR_INVALID, "weir_trace_open: NULL");
    weir_trace *trace = calloc(1, sizeof *trace);
    wi_events *events = wi_events_create(capacity);
    bool taken = false;
    if (trace && events) {
        *trace = (weir_trace){runtime, events};
        pthread_mutex_lock(&runtime->ledger.lock);
        taken = runtime->ledger.events != NULL;
        if (!taken)
            runtime->ledger.events = events;
        pthread_mutex_unlock(&runtime->ledger.lock);
    }
    if (!trace || !events || taken) {
        free(trace);
        wi_events_destroy(events);
        return taken ? weir_fail(WEIR_BUSY, "%s is being traced already; close that trace first", runtime->name)
                     : weir_fail(WEIR_SYSTEM, "no host memory for a trace");
    }
    *out = trace;
    return WEIR_OK;
}

weir_status weir_trace_read(weir_trace *trace, weir_event *events, size_t capacity, size_t *count)
{
    WI_ENTER();
    if (!trace || !events || !count || capacity == 0 || events[0].size < 2 * sizeof(size_t))
        return weir_fail(WEIR_INVALID, "weir_trace_read: NULL, no room, or member size is not set");
    pthread_mutex_lock(&trace->runtime->ledger.lock);
    *count = wi_events_take(trace->events, (char *)events, events[0].size, capacity);
    pthread_mutex_unlock(&trace->runtime->ledger.lock);
    return WEIR_OK;
}

uint64_t weir_trace_lost(const weir_trace *trace)
{
    return trace ? wi_events_lost(trace->events) : 0;
}

void weir_trace_close(weir_trace *trace)
{
    if (!trace || atomic_load(&wi_forked))
        return;
    pthread_mutex_lock(&trace->runtime->ledger.lock);
    trace->runtime->ledger.events = NULL;
    pthread_mutex_unlock(&trace->runtime->ledger.lock);
    wi_events_destroy(trace->events);
    free(trace);
}
