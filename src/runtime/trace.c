/* Traces: opening, reading, closing. */
#include "runtime/trace.h"
#include "memory/adaptors/log.h"
#include "runtime/runtime.h"

#include <weir/base.h>
#include <weir/trace.h>

const char *weir_action_name(weir_action action)
{
    static const char *const names[WEIR_ACTION_COUNT] = {
        "allocate",    "deallocate",   "reap",        "resize",      "refuse",    "hold",      "fail",
        "stream-open", "stream-close", "synchronize", "use-begin",   "use-end",   "use-abort", "use-record",
        "copy",        "fill",         "call",        "note-record", "note-wait", "note-use"};
    return (unsigned)action < WEIR_ACTION_COUNT ? names[action] : "?";
}

static void trace_tell(const char text[WI_UNTOLD], bool untold)
{
    if (untold)
        weir_log(WEIR_LOG_WARNING, "%s", text);
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

static weir_status read_sink(const weir_sink *given, size_t stride, size_t index, weir_sink *out)
{
    const void *from = given ? (const char *)given + index * stride : NULL;
    weir_status status = wi_copy_in(out, sizeof *out, from, stride, "weir_trace", "weir_sink");
    if (status == WEIR_OK && !out->write)
        status = weir_fail(WEIR_ERR_INVALID, "sink %zu has no function to write with", index);
    out->struct_size = sizeof *out;
    return status;
}

static void trace_destroy(weir_trace *trace)
{
    if (!trace)
        return;
    while (trace->sinks) {
        wi_sink *o = trace->sinks;
        trace->sinks = o->next;
        free(o);
    }
    wi_events_destroy(trace->events);
    free(trace);
}

/* With its sinks, and not yet the runtime's. */
static weir_status trace_make(weir_runtime *runtime, wi_trace_place place, const weir_trace_options *options,
                              weir_trace **out)
{
    weir_trace *trace = calloc(1, sizeof *trace);
    *out = trace;
    if (!trace)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
    trace->runtime = runtime;
    trace->place = place;
    trace->events = wi_events_create(options->capacity);
    weir_status status = trace->events ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
    for (size_t i = 0; status == WEIR_OK && i < options->sink_count; i++) {
        weir_sink sink;
        status = read_sink(options->sinks, options->sinks ? options->sinks[0].struct_size : 0, i, &sink);
        if (status == WEIR_OK)
            status = wi_sinks_add(trace, &sink);
    }
    return status;
}

/* Where its events come from. */
static void trace_attach(weir_trace *trace)
{
    wi_resource *stack = trace->runtime->resource;
    if (trace->place == WI_TRACE_OF_LOG)
        wi_log_into(wi_log_find(stack), trace->events);
    else {
        wi_tcaches_shut(trace->runtime);
        wi_record_into(stack->ledger, trace->events);
        wi_tcaches_open(trace->runtime);
    }
}

static void trace_detach(weir_trace *trace)
{
    wi_resource *stack = trace->runtime->resource;
    if (trace->place == WI_TRACE_OF_LOG)
        wi_log_into(wi_log_find(stack), NULL);
    else
        wi_record_no_more(stack->ledger, trace->events);
}

weir_status wi_trace_open(weir_runtime *runtime, wi_trace_place place, const weir_trace_options *options,
                          weir_trace **out)
{
    wi_recorder *recorder = &runtime->recorder;
    weir_trace *trace;
    if (wi_sinks_inside())
        return weir_fail(WEIR_ERR_BUSY, "a trace cannot be opened inside a sink");
    weir_status status = trace_make(runtime, place, options, &trace);
    if (status == WEIR_OK) {
        pthread_mutex_lock(&recorder->drain);
        if (recorder->traces[place])
            status = weir_fail(WEIR_ERR_BUSY, "%s is being traced already; close that trace first", runtime->name);
        else {
            recorder->traces[place] = trace;
            trace_attach(trace);
        }
        pthread_mutex_unlock(&recorder->drain);
    }
    if (status != WEIR_OK)
        trace_destroy(trace);
    else
        *out = trace;
    return status;
}

weir_status weir_trace_create(weir_runtime *runtime, const weir_trace_options *options, weir_trace **out)
{
    WI_ENTER();
    weir_trace_options given = {0};
    if (!runtime || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_create: no runtime, or no place for the result");
    weir_status status = WI_COPY_OPTIONS_IN(weir_trace_options, &given, options, "weir_trace_create");
    return status != WEIR_OK ? status : wi_trace_open(runtime, WI_TRACE_OPENED, &given, out);
}

/* Using ------------------------------------------------------------------------------------------------------------ */

weir_status weir_trace_add_sink(weir_trace *trace, const weir_sink *sink)
{
    WI_ENTER();
    weir_sink copy;
    if (!trace)
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_add_sink: NULL");
    if (wi_sinks_inside())
        return weir_fail(WEIR_ERR_BUSY, "a sink cannot be added inside a sink");
    weir_status status = read_sink(sink, sink ? sink->struct_size : 0, 0, &copy);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&trace->runtime->recorder.drain);
    status = wi_sinks_add(trace, &copy);
    pthread_mutex_unlock(&trace->runtime->recorder.drain);
    return status;
}

weir_status weir_trace_read(weir_trace *trace, weir_event *events, size_t capacity, size_t *count)
{
    WI_ENTER();
    if (!trace || !events || !count || capacity == 0 || events[0].struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_read: NULL, no room, or member struct_size is not set");
    wi_ledger *ledger = &trace->runtime->ledger;
    pthread_mutex_lock(&ledger->lock);
    bool called = wi_events_called(trace->events);
    if (!called)
        *count = wi_events_take(trace->events, (char *)events, events[0].struct_size, capacity);
    pthread_mutex_unlock(&ledger->lock);
    return called ? weir_fail(WEIR_ERR_CONFLICT, "the events of this trace go to its sinks") : WEIR_OK;
}

void wi_trace_hand_out(weir_runtime *runtime)
{
    wi_recorder *recorder = &runtime->recorder;
    if (!(wi_recording(&runtime->ledger) & WI_EVENTS_WAITING) || wi_sinks_inside() ||
        pthread_mutex_trylock(&recorder->drain) != 0)
        return;
    char texts[WI_TRACE_PLACES][WI_UNTOLD];
    bool untold[WI_TRACE_PLACES] = {false};
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    atomic_fetch_and(&runtime->ledger.recording, ~(unsigned)WI_EVENTS_WAITING);
    for (int place = 0; place < WI_TRACE_PLACES; place++) {
        weir_trace *trace = recorder->traces[place];
        if (!trace || !trace->sinks)
            continue;
        (void)wi_sinks_drain(trace);
        untold[place] = wi_sinks_untold(trace, texts[place]);
    }
    pthread_mutex_unlock(&recorder->drain);
    for (int place = 0; place < WI_TRACE_PLACES; place++)
        trace_tell(texts[place], untold[place]);
    wi_detail_restore(&kept);
}

weir_status weir_trace_flush(weir_trace *trace)
{
    WI_ENTER();
    char text[WI_UNTOLD];
    if (!trace)
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_flush: NULL");
    if (wi_sinks_inside())
        return weir_fail(WEIR_ERR_BUSY, "a trace cannot be flushed inside a sink");
    pthread_mutex_lock(&trace->runtime->recorder.drain);
    weir_status status = wi_sinks_flush(trace);
    bool untold = wi_sinks_untold(trace, text);
    pthread_mutex_unlock(&trace->runtime->recorder.drain);
    trace_tell(text, untold);
    return status;
}

uint64_t weir_trace_lost(const weir_trace *trace)
{
    return trace ? wi_events_lost(trace->events) : 0;
}

uint64_t weir_trace_failed(const weir_trace *trace)
{
    return trace ? atomic_load(&trace->failed) : 0;
}

void wi_trace_close(weir_trace *trace)
{
    if (!trace || atomic_load(&wi_forked) || wi_sinks_inside())
        return;
    weir_runtime *runtime = trace->runtime;
    char text[WI_UNTOLD];
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    pthread_mutex_lock(&runtime->recorder.drain);
    runtime->recorder.traces[trace->place] = NULL;
    trace_detach(trace);
    pthread_mutex_unlock(&runtime->recorder.drain);
    (void)wi_sinks_flush(trace);
    wi_sinks_close(trace);
    while (wi_sinks_untold(trace, text))
        trace_tell(text, true);
    wi_detail_restore(&kept);
    trace_destroy(trace);
}

void weir_trace_destroy(weir_trace *trace)
{
    if (trace && trace->place != WI_TRACE_OF_LOG)
        wi_trace_close(trace);
}

/* The adaptor's ---------------------------------------------------------------------------------------------------- */

static weir_status open_log(weir_runtime *runtime, const wi_resource *log, weir_trace **out)
{
    weir_sink sinks[2] = {WEIR_INIT(weir_sink), WEIR_INIT(weir_sink)};
    weir_trace_options options = {.struct_size = sizeof options, .sinks = sinks};
    weir_status status = WEIR_OK;
    if (*wi_log_csv(log))
        status = weir_sink_csv(wi_log_csv(log), &sinks[options.sink_count++]);
    if (status == WEIR_OK && *wi_log_binary(log))
        status = weir_sink_binary(wi_log_binary(log), &sinks[options.sink_count++]);
    if (status == WEIR_OK)
        status = wi_trace_open(runtime, WI_TRACE_OF_LOG, &options, out);
    for (size_t i = 0; status != WEIR_OK && i < options.sink_count; i++)
        if (sinks[i].close)
            (void)sinks[i].close(sinks[i].user);
    return status;
}

void wi_trace_log_start(weir_runtime *runtime)
{
    const wi_resource *log = wi_log_find(runtime->resource);
    wi_kept_detail kept;
    weir_trace *trace;
    if (!log)
        return;
    wi_detail_keep(&kept);
    if (open_log(runtime, log, &trace) == WEIR_OK)
        wi_trace_watch_exit(runtime);
    else
        weir_log(WEIR_LOG_ERROR, "%s does not log: %s", runtime->name, weir_detail());
    wi_detail_restore(&kept);
}

weir_trace *weir_runtime_log(weir_runtime *runtime)
{
    return runtime && !atomic_load(&wi_forked) ? atomic_load(&runtime->recorder.traces[WI_TRACE_OF_LOG]) : NULL;
}
