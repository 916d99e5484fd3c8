/* print.c: the answer of a run: as JSON, whose keys are stable because scripts and measurements read them, and as a
 * table. */
#include "measure.h"
#include "run.h"

#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *run_print_client_json(const model_run *m)
{
    const weir_client_stats *stats = &m->stats;
    json_t *object = json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "name", text_json(m->args->name), "engine",
                               text_json(m->engine), "version", text_json(m->version), "provider",
                               text_json(m->provider), "device", cli_runtime(m->runtime).device, "architecture",
                               text_json(m->architecture), "peak", text_json_count(stats->peak));
    json_t *by_class = cli_classes_json(stats->peak_class);
    json_object_update(object, by_class);
    json_decref(by_class);
    json_object_set_new(object, "outside", m->measured ? text_json_count(m->outside) : json_null());
    if (measure_is_device(m->runtime))
        json_object_set_new(object, "outside_host", m->measured ? text_json_count(m->outside_host) : json_null());
    json_object_set_new(object, "outside_once", m->measured ? text_json_count(m->outside_once) : json_null());
    json_object_set_new(object, "outside_method", text_json(m->measured ? stats->outside_method : "not measured here"));
    json_object_set_new(object, "remarks", text_json(m->remarks));
    json_object_set_new(object, "guaranteed", text_json_count(stats->guaranteed));
    json_object_set_new(object, "maximum", text_json_count(stats->maximum));
    json_object_set_new(object, "allocations", text_json_count(stats->allocations));
    json_object_set_new(object, "refusals", text_json_count(stats->refusals));
    json_object_set_new(object, "load_seconds", json_real(m->load_seconds));
    json_object_set_new(object, "first_run_seconds", json_real(m->first_seconds));
    json_object_set_new(object, "seconds", json_real(m->seconds));
    json_object_set_new(object, "runs", text_json_count(m->runs));
    json_object_set_new(object, "cores", m->cores.struct_size == 0 ? json_null() : cores_line_json(&m->cores));
    json_object_set_new(object, "suspensions", aside_json(m));
    json_object_set_new(object, "shares", m->shares != NULL ? json_incref(m->shares) : json_array());
    json_object_set_new(object, "attempts", m->attempts != NULL ? json_incref(m->attempts) : json_array());
    json_object_set_new(object, "left_out", text_json_count(m->left_out));
    json_object_set_new(object, "last_resort", json_boolean(m->last_resort));
    json_object_set_new(object, "outputs", outputs_json(&m->out));
    if (m->failed.status != WEIR_OK)
        json_object_set_new(object, "error", failure_json(&m->failed, m->args->name));
    return object;
}

static json_t *peak_clients_json(const run *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++) {
        uint64_t by_class[WEIR_CLASS_COUNT];
        uint64_t bytes = run_peak_share(all, all->models[i].args->name, by_class);
        if (bytes == 0)
            continue;
        json_t *object =
            json_pack("{s:o, s:o}", "name", text_json(all->models[i].args->name), "bytes", text_json_count(bytes));
        json_t *classes = cli_classes_json(by_class);
        json_object_update(object, classes);
        json_decref(classes);
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *failures_json(const run *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++)
        if (all->models[i].failed.status != WEIR_OK)
            json_array_append_new(list, failure_json(&all->models[i].failed, all->models[i].args->name));
    return list;
}

static json_t *devices_json(const run *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->device_count; i++) {
        const run_device *one = &all->devices[i];
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:o, s:o, s:o}", "device", cli_runtime(one->runtime).device, "budget",
                            text_json_count(one->budget), "peak", text_json_count(one->end.peak), "peak_held",
                            text_json_count(one->end.peak_held), "live_at_end", text_json_count(one->end.live)));
    }
    return list;
}

int run_print_json(const run *all)
{
    const char *model = NULL;
    const failure *failed = run_failure(all, &model);
    json_t *object = json_object(), *clients = json_array();
    if (failed != NULL) {
        json_object_set_new(object, "error", failure_json(failed, model));
        json_object_set_new(object, "errors", failures_json(all));
    }
    for (size_t i = 0; i < all->count; i++)
        if (all->models[i].loaded)
            json_array_append_new(clients, run_print_client_json(&all->models[i]));
    json_object_set_new(object, "budget", text_json_count(all->budget));
    json_object_set_new(object, "peak", text_json_count(all->end.peak));
    json_object_set_new(object, "peak_held", text_json_count(all->end.peak_held));
    json_object_set_new(object, "peak_clients", peak_clients_json(all));
    json_object_set_new(object, "live_at_end", text_json_count(all->end.live));
    json_object_set_new(object, "devices", devices_json(all));
    json_object_set_new(object, "seconds", json_real(all->seconds));
    json_object_set_new(object, "events", text_json_count(timeline_events(all->line)));
    json_object_set_new(object, "events_lost", text_json_count(timeline_lost(all->line)));
    json_object_set_new(object, "driver_calls", text_json_count(all->end.driver_calls));
    json_object_set_new(object, "trace", all->trace != NULL ? text_json(all->trace) : json_null());
    json_object_set_new(object, "report", all->report != NULL ? text_json(all->report) : json_null());
    json_object_set_new(object, "clients", clients);
    return cli_print_json(object);
}

/* Table ------------------------------------------------------------------------------------------------------------ */

/* In the order in which a model allocates. */
static const weir_class columns[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_KV, WEIR_CLASS_SCRATCH,
                                     WEIR_CLASS_OTHER};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void print_outputs(const run *all)
{
    bool streamed = all->args->stream;
    char time[24];
    for (size_t i = 0; i < all->count; i++) {
        const model_run *m = &all->models[i];
        if (m->out.count == 0)
            continue;
        printf("%s%s%s", terminal_bold(), m->args->name, terminal_plain());
        printf("%s  %llu run%s in %s%s\n", terminal_faint(), (unsigned long long)m->runs, m->runs == 1 ? "" : "s",
               text_seconds(m->seconds, time, sizeof time), terminal_plain());
        outputs_print(&m->out, streamed && m->generates);
    }
    puts("");
}

static void run_print_head(table *grid)
{
    table_row(grid);
    table_cell(grid, "model", terminal_bold(), false);
    table_cell(grid, "engine", terminal_bold(), false);
    for (int i = 0; i < COLUMNS; i++)
        table_cell(grid, weir_name_of(WEIR_NAMES_CLASS, columns[i]), terminal_bold(), true);
    table_cell(grid, "peak", terminal_bold(), true);
    table_cell(grid, "outside", terminal_bold(), true);
}

static void model_run_row(table *grid, const model_run *m)
{
    table_row(grid);
    table_cell(grid, m->args->name, "", false);
    if (!m->loaded) {
        table_cell(grid, m->failed.status == WEIR_OK ? "not loaded" : "failed", terminal_red(), false);
        return;
    }
    bool good = m->failed.status == WEIR_OK;
    bool tells = m->args->selects; /* then the table shows what was selected */
    char *engine = text_print("%s%s%s%s%s%s", m->engine, tells ? "/" : "", tells ? m->provider : "",
                              tells ? " on " : "", tells ? cli_runtime(m->runtime).device : "",
                              good                                     ? ""
                              : m->failed.status == WEIR_ERR_CANCELLED ? ", stopped"
                                                                       : ", failed");
    table_own(grid, engine, good ? "" : terminal_red(), false);
    for (int i = 0; i < COLUMNS; i++)
        table_size(grid, m->stats.peak_class[columns[i]], "");
    table_size(grid, m->stats.peak, terminal_bold());
    if (m->measured)
        table_size(grid, m->outside, terminal_faint());
    else
        table_cell(grid, "?", terminal_faint(), true);
}

static void print_total(const run *all, const run_device *one)
{
    char peak[24], budget[24], held[24], live[24];
    const weir_stats *end = &one->end;
    double share = one->budget == 0 ? 0 : 100.0 * (double)end->peak / (double)one->budget;
    const char *colour = share < 75 ? terminal_green() : share < 95 ? terminal_yellow() : terminal_red();
    bool several = all->device_count > 1;
    printf("total %s%s%s%s%s of budget %s %s(%.0f %%)%s at the peak; held at most %s; %s live at the end\n",
           several ? cli_runtime(one->runtime).device : "", several ? " " : "", terminal_bold(),
           weir_size_format(end->peak, peak, sizeof peak), terminal_plain(),
           weir_size_format(one->budget, budget, sizeof budget), colour, share, terminal_plain(),
           weir_size_format(end->peak_held, held, sizeof held), weir_size_format(end->live, live, sizeof live));
}

/* "openvino runs 3 of 4 nodes or layers, cpu 1", if the engine tells. */
static void print_shares(const model_run *m)
{
    size_t index;
    json_t *share;
    if (json_array_size(m->shares) == 0)
        return;
    printf("%s%s: ", terminal_faint(), m->args->name);
    json_array_foreach(m->shares, index, share)
    {
        json_int_t parts = json_integer_value(json_object_get(share, "parts"));
        json_int_t of = json_integer_value(json_object_get(share, "of"));
        const char *provider = json_string_value(json_object_get(share, "provider"));
        if (index == 0)
            printf("%s runs %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT " nodes or layers", provider, parts, of);
        else
            printf(", %s %" JSON_INTEGER_FORMAT, provider, parts);
    }
    printf("%s\n", terminal_plain());
}

static void print_asides(const model_run *m)
{
    for (size_t i = 0; i < m->aside_count; i++) {
        char *text = aside_text(&m->asides[i]);
        printf("%s: %s\n", m->args->name, text);
        free(text);
    }
}

/* "cores: 2; a.onnx computed with 2, b.gguf with 1". */
static void run_print_cores(const run *all)
{
    weir_cores_totals totals = WEIR_INIT(weir_cores_totals);
    const char *before = "; ";
    if (weir_cores_info(&totals) != WEIR_OK)
        return;
    printf("%scores: %u", terminal_faint(), totals.cores);
    for (size_t i = 0; i < all->count; i++) {
        const weir_cores_stats *line = &all->models[i].cores;
        char waited[24];
        if (line->leases == 0)
            continue;
        printf("%s%s computed with %u", before, all->models[i].args->name, line->last);
        if (line->waits > 0)
            printf(" and waited for them for %s", text_seconds((double)line->waited / 1e9, waited, sizeof waited));
        before = ", ";
    }
    printf("%s\n", terminal_plain());
}

/* Prints the bytes that each engine took when it was opened, the shares of providers, the remarks of engines on memory
 * of their own, and the number of events that the trace lost. */
static void run_print_remarks(const run *all)
{
    char once[24];
    for (size_t i = 0; i < all->count; i++)
        if (all->models[i].loaded && all->models[i].outside_once > 0)
            printf("%s%s: the engine itself took %s when it was opened, once for all its models%s\n", terminal_faint(),
                   all->models[i].engine, weir_size_format(all->models[i].outside_once, once, sizeof once),
                   terminal_plain());
    for (size_t i = 0; i < all->count; i++)
        if (all->models[i].loaded)
            print_shares(&all->models[i]);
    for (size_t i = 0; i < all->count; i++)
        if (all->models[i].loaded && all->models[i].remarks[0] != '\0')
            printf("%s%s: %s%s\n", terminal_faint(), all->models[i].args->name, all->models[i].remarks,
                   terminal_plain());
    if (timeline_lost(all->line) > 0)
        printf("%s%llu events were lost: the trace has holes%s\n", terminal_yellow(),
               (unsigned long long)timeline_lost(all->line), terminal_plain());
}

void run_print_table(const run *all)
{
    table grid = {0};
    print_outputs(all);
    run_print_head(&grid);
    for (size_t i = 0; i < all->count; i++)
        model_run_row(&grid, &all->models[i]);
    table_end(&grid);
    for (size_t i = 0; i < all->device_count; i++)
        print_total(all, &all->devices[i]);
    for (size_t i = 0; i < all->count; i++)
        print_asides(&all->models[i]);
    run_print_cores(all);
    run_print_remarks(all);
    if (all->trace != NULL)
        printf("trace: %s\n", all->trace);
    if (all->report != NULL)
        printf("report: %s\n", all->report);
}
