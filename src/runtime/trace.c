/* Traces: recorded calls, sinks, opening and closing, and notes of the program. */
#include "runtime/trace.h"
#include "base/texts.h"
#include "memory/adaptors/adaptors.h"
#include "runtime/runtime.h"

#include <weir/base.h>
#include <weir/trace.h>

#include <stdio.h>

/* Recorded calls --------------------------------------------------------------------------------------------------- */

void wi_recorder_init(weir_runtime *runtime)
{
    pthread_mutex_init(&runtime->recorder.drain, NULL);
    const char *lasting = wi_intern_as(WI_DEVICE_NAME, runtime->name, sizeof runtime->name);
    runtime->ledger.device = lasting ? lasting : WI_LOST_NAME; /* no host memory to keep it; there are few such names */
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

/* Sinks ------------------------------------------------------------------------------------------------------------ */

static _Thread_local bool inside;

bool wi_sinks_inside(void)
{
    return inside;
}

/* Counts the answer of a sink. Returns the first failure. */
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
                     trace->runtime->name, weir_name_of(WEIR_NAMES_STATUS, o->status), o->detail[0] ? ", " : "",
                     o->detail);
            return true;
        }
    return false;
}

/* Traces ----------------------------------------------------------------------------------------------------------- */

static void trace_tell(const char text[WI_UNTOLD], bool untold)
{
    if (untold)
        weir_log(WEIR_LOG_WARNING, "%s", text);
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

static weir_status sinks_read(const weir_sink *given, size_t stride, size_t index, weir_sink *out)
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

/* Makes a trace and its sinks. The runtime does not know it yet. */
static weir_status trace_make(weir_runtime *runtime, wi_trace_origin origin, const weir_trace_options *options,
                              weir_trace **out)
{
    weir_trace *trace = calloc(1, sizeof *trace);
    *out = trace;
    if (!trace)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
    trace->runtime = runtime;
    trace->origin = origin;
    trace->events = wi_events_create(options->capacity);
    weir_status status = trace->events ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a trace");
    for (size_t i = 0; status == WEIR_OK && i < options->sink_count; i++) {
        weir_sink sink;
        status = sinks_read(options->sinks, options->sinks ? options->sinks[0].struct_size : 0, i, &sink);
        if (status == WEIR_OK)
            status = wi_sinks_add(trace, &sink);
    }
    return status;
}

/* Connects the trace to the ledger, or to the adaptor "log". */
static void trace_attach(weir_trace *trace)
{
    wi_resource *stack = trace->runtime->resource;
    if (trace->origin == WI_TRACE_OF_LOG)
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
    if (trace->origin == WI_TRACE_OF_LOG)
        wi_log_into(wi_log_find(stack), NULL);
    else
        wi_record_no_more(stack->ledger, trace->events);
}

weir_status wi_trace_open(weir_runtime *runtime, wi_trace_origin origin, const weir_trace_options *options,
                          weir_trace **out)
{
    wi_recorder *recorder = &runtime->recorder;
    weir_trace *trace;
    if (wi_sinks_inside())
        return weir_fail(WEIR_ERR_BUSY, "a trace cannot be opened inside a sink");
    weir_status status = trace_make(runtime, origin, options, &trace);
    if (status == WEIR_OK) {
        pthread_mutex_lock(&recorder->drain);
        if (recorder->traces[origin])
            status = weir_fail(WEIR_ERR_BUSY, "%s is being traced already; close that trace first", runtime->name);
        else {
            recorder->traces[origin] = trace;
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
    if (status == WEIR_OK)
        status = wi_check_list(given.sinks, given.sink_count, "weir_trace_create", "sinks");
    if (status != WEIR_OK)
        return status;
    WI_VISIT(runtime);
    return wi_trace_open(runtime, WI_TRACE_OPENED, &given, out);
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
    weir_status status = sinks_read(sink, sink ? sink->struct_size : 0, 0, &copy);
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
    char texts[WI_TRACE_ORIGINS][WI_UNTOLD];
    bool untold[WI_TRACE_ORIGINS] = {false};
    wi_saved_detail saved;
    wi_detail_save(&saved);
    atomic_fetch_and(&runtime->ledger.recording, ~(unsigned)WI_EVENTS_WAITING);
    for (int origin = 0; origin < WI_TRACE_ORIGINS; origin++) {
        weir_trace *trace = recorder->traces[origin];
        if (!trace || !trace->sinks)
            continue;
        (void)wi_sinks_drain(trace);
        untold[origin] = wi_sinks_untold(trace, texts[origin]);
    }
    pthread_mutex_unlock(&recorder->drain);
    for (int origin = 0; origin < WI_TRACE_ORIGINS; origin++)
        trace_tell(texts[origin], untold[origin]);
    wi_detail_restore(&saved);
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

weir_status weir_trace_info(const weir_trace *trace, weir_trace_details *out)
{
    WI_ENTER();
    if (!trace || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_info: NULL");
    weir_trace_details details = {.lost = wi_events_lost(trace->events), .failed = atomic_load(&trace->failed)};
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_info: member struct_size is not set");
    return WEIR_OK;
}

void wi_trace_close(weir_trace *trace)
{
    if (!trace || atomic_load(&wi_forked) || wi_sinks_inside())
        return;
    weir_runtime *runtime = trace->runtime;
    char text[WI_UNTOLD];
    wi_saved_detail saved;
    wi_detail_save(&saved);
    pthread_mutex_lock(&runtime->recorder.drain);
    runtime->recorder.traces[trace->origin] = NULL;
    trace_detach(trace);
    pthread_mutex_unlock(&runtime->recorder.drain);
    (void)wi_sinks_flush(trace);
    wi_sinks_close(trace);
    while (wi_sinks_untold(trace, text))
        trace_tell(text, true);
    wi_detail_restore(&saved);
    trace_destroy(trace);
}

void weir_trace_destroy(weir_trace *trace)
{
    if (!trace || trace->origin == WI_TRACE_OF_LOG)
        return;
    weir_runtime *runtime = trace->runtime;
    bool visits = wi_runtime_visit(runtime, "weir_trace_destroy") == WEIR_OK;
    wi_trace_close(trace);
    if (visits)
        wi_runtime_visit_end(runtime);
}

/* The adaptor "log" ------------------------------------------------------------------------------------------------ */

static weir_status trace_open_log(weir_runtime *runtime, const wi_resource *log, weir_trace **out)
{
    weir_sink sinks[2] = {WEIR_INIT(weir_sink), WEIR_INIT(weir_sink)};
    weir_trace_options options = {.struct_size = sizeof options, .sinks = sinks};
    weir_status status = WEIR_OK;
    if (*wi_log_csv(log))
        status = weir_sink_file(wi_log_csv(log), WEIR_SINK_CSV, &sinks[options.sink_count++]);
    if (status == WEIR_OK && *wi_log_binary(log))
        status = weir_sink_file(wi_log_binary(log), WEIR_SINK_BINARY, &sinks[options.sink_count++]);
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
    wi_saved_detail saved;
    weir_trace *trace;
    if (!log)
        return;
    wi_detail_save(&saved);
    if (trace_open_log(runtime, log, &trace) == WEIR_OK)
        wi_trace_watch_exit(runtime);
    else
        weir_log(WEIR_LOG_ERROR, "%s does not log: %s", runtime->name, weir_detail());
    wi_detail_restore(&saved);
}

weir_trace *wi_runtime_log(weir_runtime *runtime)
{
    return runtime && !atomic_load(&wi_forked) ? atomic_load(&runtime->recorder.traces[WI_TRACE_OF_LOG]) : NULL;
}

/* Notes ------------------------------------------------------------------------------------------------------------ */

/* Notes: work of the program that weir does not see. */

/* Whether no trace is open. */
static bool notes_idle(const weir_runtime *runtime)
{
    return runtime && wi_likely(wi_recording(&runtime->ledger) == 0);
}

static weir_status note_check_use(const weir_note *note)
{
    if (!note->pointer || note->bytes == 0)
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_note: a use of NULL, or of no bytes");
    if (note->access < WEIR_ACCESS_READ || note->access > WEIR_ACCESS_READ_WRITE)
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_note: %d is no access; see weir_access", (int)note->access);
    return WEIR_OK;
}

static weir_status note_check(const weir_note *note)
{
    switch (note->action) {
    case WEIR_ACTION_NOTE_RECORD:
    case WEIR_ACTION_NOTE_WAIT:
        return WEIR_OK;
    case WEIR_ACTION_NOTE_USE:
        return note_check_use(note);
    default:
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_note: %s is no note",
                         weir_name_of(WEIR_NAMES_ACTION, (int)note->action));
    }
}

weir_status weir_trace_note(weir_runtime *runtime, const weir_note *note)
{
    WI_ENTER();
    if (notes_idle(runtime))
        return WEIR_OK;
    weir_note n = {0};
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_trace_note: NULL");
    weir_status status = WI_COPY_IN(weir_note, &n, note, "weir_trace_note");
    if (status == WEIR_OK)
        status = note_check(&n);
    if (status != WEIR_OK)
        return status;
    WI_VISIT(runtime);
    bool use = n.action == WEIR_ACTION_NOTE_USE;
    weir_event event = {.action = n.action,
                        .object = use ? 0 : n.event,
                        .pointer = use ? (void *)(uintptr_t)n.pointer : NULL,
                        .bytes = use ? n.bytes : 0,
                        .stream = n.stream,
                        .access = use ? n.access : 0};
    void *ignored;
    status = wi_streams_resolve(&runtime->streams, n.stream, runtime->name, &ignored);
    return wi_record_call(runtime, status, &event);
}
