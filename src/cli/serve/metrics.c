/* metrics.c: figures of the server and of its models, as Prometheus reads them. */
#include "serve.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void metrics_say(FILE *file, const char *name, const char *type, const char *help, uint64_t value)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name, type, name, value);
}

static void say_server(FILE *file, ws_server *server)
{
    ws_server_stats s;
    ws_server_info(server, &s);
    metrics_say(file, "weir_http_connections", "gauge", "Connections now.", s.connections);
    metrics_say(file, "weir_http_connections_total", "counter", "Connections ever.", s.accepted);
    metrics_say(file, "weir_http_requests_total", "counter", "Requests whose head was understood.", s.requests);
    metrics_say(file, "weir_http_requests_waiting", "gauge", "Requests that wait for a worker.", s.waiting);
    metrics_say(file, "weir_http_requests_running", "gauge", "Requests that a handler has.", s.handled);
    metrics_say(file, "weir_http_streams", "gauge", "Answers in pieces that are not over.", s.streams);
    metrics_say(file, "weir_http_cancelled_total", "counter", "Requests whose client went before the answer was there.",
                s.cancelled);
    metrics_say(file, "weir_http_timeouts_total", "counter", "Connections that were closed for being slow.",
                s.timed_out);
    fputs("# HELP weir_http_answers_total Answers by the hundred of their status.\n# TYPE weir_http_answers_total "
          "counter\n",
          file);
    for (int i = 1; i < 6; i++)
        fprintf(file, "weir_http_answers_total{status=\"%dxx\"} %" PRIu64 "\n", i, s.answered[i]);
}

static void say_cores(FILE *file)
{
    weir_cores_totals all = WEIR_INIT(weir_cores_totals);
    if (weir_cores_info(&all) != WEIR_OK)
        return;
    metrics_say(file, "weir_cores", "gauge", "Cores that all models together compute with.", all.cores);
    metrics_say(file, "weir_cores_leased", "gauge", "Of them, those that models compute with now.", all.leased);
    metrics_say(file, "weir_cores_waiting", "gauge", "Runs that wait for cores.", all.waiting);
}

/* In a label's value a backslash, a quote and a newline are escaped. */
static void label(FILE *file, const char *text)
{
    for (; *text; text++)
        if (*text == '\n')
            fputs("\\n", file);
        else
            fprintf(file, "%s%c", *text == '\\' || *text == '"' ? "\\" : "", *text);
}

/* The models, and for each model the statistics of its runs, its cores and its entry in the pool. */
typedef struct listed {
    served_model **models;
    served_statistics *statistics;
    weir_cores_stats *cores;
    weir_pool_entry *entries;
    size_t count;
} listed;

/* Writes a metric with a value for each model, from its statistics, its entry in the pool or its cores. */
static void say_models(FILE *file, const listed *all, const char *name, const char *type, const char *help,
                       double (*of)(const served_statistics *runs, const weir_pool_entry *entry,
                                    const weir_cores_stats *cores))
{
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    for (size_t i = 0; i < all->count; i++) {
        fprintf(file, "%s{model=\"", name);
        label(file, all->models[i]->name);
        fprintf(file, "\"} %.17g\n", of(&all->statistics[i], &all->entries[i], &all->cores[i]));
    }
}

#define FIGURE(name, expression)                                                                                       \
    static double name(const served_statistics *runs, const weir_pool_entry *entry, const weir_cores_stats *cores)     \
    {                                                                                                                  \
        (void)runs, (void)entry, (void)cores;                                                                          \
        return (double)(expression);                                                                                   \
    }
FIGURE(runs_of, runs->runs)
FIGURE(failures_of, runs->failures)
FIGURE(cancelled_of, runs->cancelled)
FIGURE(seconds_of, (double)runs->computed * 1e-9)
FIGURE(loaded_of, entry->state == WEIR_POOL_LOADED)
FIGURE(bytes_of, entry->taken)
FIGURE(predicted_of, entry->predicted_peak)
FIGURE(promised_of, entry->promised)
FIGURE(waiting_of, entry->waiting)
FIGURE(loads_of, entry->loads)
FIGURE(evictions_of, entry->evictions)
FIGURE(cores_of, cores->now)
FIGURE(core_leases_of, cores->leases)
FIGURE(core_waits_of, cores->waits)
FIGURE(core_seconds_of, (double)cores->waited * 1e-9)

void metrics_page(ws_request *request, void *user)
{
    served *all = user;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = text_stream(&text, &bytes);
    listed of = {.models = served_list(all, &of.count)};
    of.entries = text_grow(NULL, of.count + 1, sizeof *of.entries);
    of.statistics = text_grow(NULL, of.count + 1, sizeof *of.statistics);
    of.cores = text_grow(NULL, of.count + 1, sizeof *of.cores);
    for (size_t i = 0; i < of.count; i++) {
        served_counted(of.models[i], &of.statistics[i]);
        (void)cores_of_model(of.models[i]->name, &of.cores[i]); /* all 0 where it leases none */
        (void)served_look(all, of.models[i], &of.entries[i]);   /* all 0 where the pool knows nothing */
    }
    say_server(file, ws_server_of(request));
    say_cores(file);
    say_models(file, &of, "weir_model_loaded", "gauge", "Whether the model is loaded.", loaded_of);
    say_models(file, &of, "weir_model_memory_bytes", "gauge", "Bytes of the device that the model has taken.",
               bytes_of);
    say_models(file, &of, "weir_model_predicted_bytes", "gauge", "Bytes that a load was predicted to take.",
               predicted_of);
    say_models(file, &of, "weir_model_promised_bytes", "gauge", "Of those taken: for requests that run.", promised_of);
    say_models(file, &of, "weir_model_requests_waiting", "gauge", "Requests that wait for the model.", waiting_of);
    say_models(file, &of, "weir_model_loads_total", "counter", "Loads of the model.", loads_of);
    say_models(file, &of, "weir_model_evictions_total", "counter", "Unloads to make room for others.", evictions_of);
    say_models(file, &of, "weir_model_runs_total", "counter", "Runs of the model.", runs_of);
    say_models(file, &of, "weir_model_failures_total", "counter", "Runs that failed.", failures_of);
    say_models(file, &of, "weir_model_cancelled_total", "counter", "Runs that were cancelled.", cancelled_of);
    say_models(file, &of, "weir_model_run_seconds_total", "counter", "Time in runs.", seconds_of);
    say_models(file, &of, "weir_model_cores", "gauge", "Cores that the model computes with now.", cores_of);
    say_models(file, &of, "weir_model_core_leases_total", "counter", "Leases of cores.", core_leases_of);
    say_models(file, &of, "weir_model_core_waits_total", "counter", "Leases that had to wait for cores.",
               core_waits_of);
    say_models(file, &of, "weir_model_core_wait_seconds_total", "counter", "Time in which runs waited for cores.",
               core_seconds_of);
    free(of.cores);
    free(of.entries);
    free(of.statistics);
    served_list_free(of.models, of.count);
    fclose(file);
    ws_answer_own(request, 200, "text/plain; version=0.0.4; charset=utf-8", text, bytes);
}
