/* The option `trace`: every runtime records into a file; all files are closed when the process exits. */
#include "base/values.h"
#include "runtime/runtime.h"
#include "runtime/trace.h"

#include <weir/base.h>
#include <weir/trace.h>

#include <stdio.h>
#include <unistd.h>

enum { PATH = 512, RING = 65536, WATCHED = 64 };

/* Runtimes whose traces are closed when the process exits. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weir_runtime *runtimes[WATCHED];
static bool watching;
/* The runtime whose traces the exiting thread is closing; it is not destroyed meanwhile. */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static weir_runtime *closing;
static _Thread_local bool exiting;
/* File names that were used, and how often, so that no runtime overwrites another one's file. */
static struct used_name {
    char path[PATH];
    unsigned count;
} names[64];

/* Names ------------------------------------------------------------------------------------------------------------ */

/* Expands %d to the device's name without colon, and %p to the process id. */
static void trace_option_expand(const char *pattern, const char *device, char out[PATH])
{
    size_t used = 0;
    for (const char *p = pattern; *p && used + 1 < PATH; p++) {
        char number[16];
        const char *part = *p != '%' ? NULL : p[1] == 'd' ? device : p[1] == 'p' ? number : NULL;
        snprintf(number, sizeof number, "%ld", (long)getpid());
        if (!part) {
            out[used++] = *p;
            continue;
        }
        for (p++; *part && used + 1 < PATH; part++)
            out[used++] = (char)(*part == ':' ? '-' : *part);
    }
    out[used] = '\0';
}

/* The second runtime that would write trace.weir writes trace.2.weir. The lock is held. */
static void trace_option_unique(char path[PATH])
{
    struct used_name *n = names, *end = names + sizeof names / sizeof names[0];
    while (n < end && n->path[0] && strcmp(n->path, path) != 0)
        n++;
    if (n == end)
        return;
    memcpy(n->path, path, PATH);
    if (++n->count == 1)
        return;
    char ending[PATH] = "";
    char *dot = strrchr(path, '.');
    if (dot && !strchr(dot, '/')) {
        snprintf(ending, sizeof ending, "%s", dot);
        *dot = '\0';
    }
    size_t length = strlen(path);
    snprintf(path + length, PATH - length, ".%u%s", n->count, ending);
}

/* Exit ------------------------------------------------------------------------------------------------------------- */

static void trace_option_close(weir_runtime *runtime)
{
    for (int origin = WI_TRACE_OF_OPTION; origin < WI_TRACE_ORIGINS; origin++)
        wi_trace_close(atomic_load(&runtime->recorder.traces[origin]));
}

/* Takes the next runtime whose traces are to be closed; NULL: none is left. The lock is held. */
static weir_runtime *trace_option_take_watched(void)
{
    weir_runtime *runtime = NULL;
    for (size_t i = 0; i < WATCHED && !runtime; i++) {
        runtime = runtimes[i];
        runtimes[i] = NULL;
    }
    return runtime;
}

/* At exit: finishes the files; no driver is called. Sinks and the log's function, which run without the lock, may make
 * runtimes. Their traces are closed as well. */
static void trace_option_at_exit(void)
{
    if (atomic_load(&wi_forked) || wi_sinks_inside())
        return;
    exiting = true;
    for (int look = 0; look < 2 * WATCHED; look++) {
        pthread_mutex_lock(&lock);
        weir_runtime *runtime = closing = trace_option_take_watched();
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (!runtime)
            break;
        trace_option_close(runtime);
    }
    pthread_mutex_lock(&lock);
    closing = NULL;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

bool wi_trace_exit_closes(const weir_runtime *runtime)
{
    pthread_mutex_lock(&lock);
    bool closes = exiting && closing == runtime;
    pthread_mutex_unlock(&lock);
    return closes;
}

void wi_trace_watch_exit(weir_runtime *runtime)
{
    pthread_mutex_lock(&lock);
    if (!watching)
        watching = atexit(trace_option_at_exit) == 0;
    for (size_t i = 0; i < WATCHED; i++)
        if (!runtimes[i] || runtimes[i] == runtime) {
            runtimes[i] = runtime;
            break;
        }
    pthread_mutex_unlock(&lock);
}

void wi_trace_option_end(weir_runtime *runtime)
{
    pthread_mutex_lock(&lock);
    while (closing == runtime)
        pthread_cond_wait(&changed, &lock);
    for (size_t i = 0; i < WATCHED; i++)
        if (runtimes[i] == runtime)
            runtimes[i] = NULL;
    pthread_mutex_unlock(&lock);
    trace_option_close(runtime);
}

/* Start ------------------------------------------------------------------------------------------------------------ */

static weir_status trace_option_open_sink(const char *path, weir_sink *sink)
{
    const char *dot = strrchr(path, '.');
    return weir_sink_file(path, dot && strcmp(dot, ".csv") == 0 ? WEIR_SINK_CSV : WEIR_SINK_BINARY, sink);
}

void wi_recorder_start(weir_runtime *runtime)
{
    weir_option option = {.struct_size = sizeof option};
    char path[PATH];
    weir_sink sink = {.struct_size = sizeof sink};
    weir_trace *trace;
    wi_saved_detail saved;
    wi_trace_log_start(runtime);
    if (weir_option_info("trace", 0, &option) != WEIR_OK || !option.value[0])
        return;
    wi_detail_save(&saved);
    trace_option_expand(option.value, runtime->name, path);
    pthread_mutex_lock(&lock);
    trace_option_unique(path);
    pthread_mutex_unlock(&lock);
    weir_trace_options options = {.struct_size = sizeof options, .capacity = RING, .sinks = &sink, .sink_count = 1};
    weir_status status = trace_option_open_sink(path, &sink);
    if (status == WEIR_OK) {
        status = wi_trace_open(runtime, WI_TRACE_OF_OPTION, &options, &trace);
        if (status != WEIR_OK)
            (void)sink.close(sink.user);
    }
    if (status == WEIR_OK)
        wi_trace_watch_exit(runtime);
    else
        weir_log(WEIR_LOG_ERROR, "%s is not traced: %s", runtime->name, weir_detail());
    wi_detail_restore(&saved);
}
