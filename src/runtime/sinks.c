/* Handing a trace's events to its sinks. */
#include "runtime/runtime.h"
#include <weir/trace.h>
#include "runtime/trace.h"

#include <stdio.h>

static _Thread_local bool inside;

bool wi_sinks_inside(void)
{
    return inside;
}

/* Counts what a sink answered. Answers the failure that came first of `status` and this one. */
static weir_status sinks_heard(weir_trace *trace, wi_sink *o, weir_status answer, weir_status status)
{
    if (answer == WEIR_OK)
        return status;
    atomic_fetch_add(&trace->failed, 1);
    if (!o->failed) {
        o->failed = true;
        o->status = answer;
        snprintf(o->detail, sizeof o->detail, "%s", weir_detail());
    }
    return status != WEIR_OK ? status : answer;
}

static size_t sinks_waiting(weir_trace *trace)
{
    wi_ledger *ledger = &trace->runtime->ledger;
    pthread_mutex_lock(&ledger->lock);
    size_t count = wi_events_count(trace->events);
    pthread_mutex_unlock(&ledger->lock);
    return count;
}

static size_t sinks_take(weir_trace *trace, size_t most)
{
    wi_ledger *ledger = &trace->runtime->ledger;
    pthread_mutex_lock(&ledger->lock);
    size_t count = wi_events_take(trace->events, (char *)trace->batch, sizeof trace->batch[0], most);
    pthread_mutex_unlock(&ledger->lock);
    return count;
}

weir_status wi_sinks_drain(weir_trace *trace)
{
    weir_status status = WEIR_OK;
    size_t left = sinks_waiting(trace), count;
    inside = true;
    for (; left > 0 && (count = sinks_take(trace, wi_min(left, WI_TRACE_BATCH))) > 0; left -= count)
        for (wi_sink *o = trace->sinks; o; o = o->next)
            status = sinks_heard(trace, o, o->sink.write(o->sink.user, trace->batch, count), status);
    inside = false;
    return status;
}

weir_status wi_sinks_flush(weir_trace *trace)
{
    weir_status status = wi_sinks_drain(trace);
    inside = true;
    for (wi_sink *o = trace->sinks; o; o = o->next)
        if (o->sink.flush)
            status = sinks_heard(trace, o, o->sink.flush(o->sink.user), status);
    inside = false;
    return status;
}

void wi_sinks_close(weir_trace *trace)
{
    uint64_t lost = wi_events_lost(trace->events);
    inside = true;
    for (wi_sink *o = trace->sinks; o; o = o->next) {
        if (o->sink.lost)
            o->sink.lost(o->sink.user, lost);
        if (o->sink.close)
            (void)sinks_heard(trace, o, o->sink.close(o->sink.user), WEIR_OK);
    }
    inside = false;
}

weir_status wi_sinks_add(weir_trace *trace, const weir_sink *sink)
{
    wi_ledger *ledger = &trace->runtime->ledger;
    wi_sink *o = calloc(1, sizeof *o), **end = &trace->sinks;
    if (!o)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a sink");
    o->sink = *sink;
    while (*end)
        end = &(*end)->next;
    *end = o;
    pthread_mutex_lock(&ledger->lock);
    wi_events_call(trace->events);
    pthread_mutex_unlock(&ledger->lock);
    return WEIR_OK;
}

bool wi_sinks_untold(weir_trace *trace, char text[WI_UNTOLD])
{
    for (wi_sink *o = trace->sinks; o; o = o->next)
        if (o->failed && !o->told) {
            o->told = true;
            snprintf(text, WI_UNTOLD, "a sink of the trace of %s failed, and what it was given may be lost: %s%s%s",
                     trace->runtime->name, weir_status_name(o->status), o->detail[0] ? ", " : "", o->detail);
            return true;
        }
    return false;
}
