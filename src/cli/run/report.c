/* report.c: fills in the page: page.html is the whole of it, with marks <!--weir:NAME--> for the parts of a run. */
#include "measure.h"
#include "run.h"

#include "cli/cli.h"
#include "cli/text.h"
#include "trace/timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Data ------------------------------------------------------------------------------------------------------------- */

enum { POINTS = 1600 }; /* more than a screen has columns */

/* A line of the picture: a client and a class. Those without a byte are left out. */
typedef struct shown {
    size_t client;
    weir_class memory_class;
} shown;

/* From the bottom up: the long-lived classes first. */
static const weir_class order[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_KV, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_SCRATCH,
                                   WEIR_CLASS_OTHER};

static bool run_report_is_used(const series *all, size_t client, weir_class memory_class)
{
    for (size_t i = 0; i < all->count; i++)
        if (series_value(all, i, client, memory_class) != 0)
            return true;
    return false;
}

static size_t run_report_choose(const series *all, shown *list)
{
    size_t count = 0;
    for (size_t i = 0; i < all->end->count; i++)
        for (size_t j = 0; j < sizeof order / sizeof order[0]; j++)
            if (run_report_is_used(all, i, order[j]))
                list[count++] = (shown){i, order[j]};
    return count;
}

static json_t *run_report_clients_json(const series *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->end->count; i++)
        json_array_append_new(list, text_json(all->end->clients[i].name));
    return list;
}

static json_t *run_report_series_json(const shown *list, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_pack("{s:I, s:s}", "client", (json_int_t)list[i].client, "class",
                                               weir_name_of(WEIR_NAMES_CLASS, list[i].memory_class)));
    return array;
}

/* [microseconds since the first, event, total, held, the series' values …] */
static json_t *points_json(const series *all, const shown *list, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const series_point *at = &all->points[i];
        uint64_t since = at->nanoseconds - all->points[0].nanoseconds;
        json_t *point = json_pack("[I,I,I,I]", (json_int_t)(since / 1000), (json_int_t)at->order, (json_int_t)at->total,
                                  (json_int_t)at->held);
        for (size_t j = 0; j < count; j++)
            json_array_append_new(point,
                                  json_integer((json_int_t)series_value(all, i, list[j].client, list[j].memory_class)));
        json_array_append_new(array, point);
    }
    return array;
}

/* The last event at that time. */
static uint64_t event_at(const series *all, uint64_t nanoseconds)
{
    uint64_t found = all->count > 0 ? all->points[0].order : 0;
    for (size_t i = 0; i < all->count && all->points[i].nanoseconds <= nanoseconds; i++)
        found = all->points[i].order;
    return found;
}

static json_t *phases_json(const run *all, const series *drawn)
{
    json_t *array = json_array();
    int64_t start = drawn->count > 0 ? (int64_t)drawn->points[0].nanoseconds : 0;
    for (size_t i = 0; drawn->count > 0 && i < all->phase_count; i++) {
        const run_phase *phase = &all->phases[i];
        json_array_append_new(array, json_pack("{s:o, s:I, s:I, s:I, s:I}", "label", text_json(phase->label), "from",
                                               (json_int_t)(((int64_t)phase->from - start) / 1000), "to",
                                               (json_int_t)(((int64_t)phase->to - start) / 1000), "first",
                                               (json_int_t)event_at(drawn, phase->from), "last",
                                               (json_int_t)event_at(drawn, phase->to)));
    }
    return array;
}

static void put_data(FILE *file, run *all)
{
    series drawn = {0};
    if (series_make(all->line, POINTS, &drawn) != WEIR_OK)
        drawn = (series){.end = timeline_end(all->line)};
    shown *list = text_zeroed(drawn.end->count * WEIR_CLASS_COUNT, sizeof *list);
    size_t count = run_report_choose(&drawn, list);
    json_t *object =
        json_pack("{s:I, s:I, s:o, s:o, s:o, s:o}", "budget", (json_int_t)all->budget, "peak", (json_int_t)drawn.peak,
                  "clients", run_report_clients_json(&drawn), "series", run_report_series_json(list, count), "points",
                  points_json(&drawn, list, count), "phases", phases_json(all, &drawn));
    text_html_json(file, object);
    json_decref(object);
    free(list);
    series_clear(&drawn);
}

/* Page ------------------------------------------------------------------------------------------------------------- */

static const weir_class columns[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_KV, WEIR_CLASS_SCRATCH,
                                     WEIR_CLASS_OTHER};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void run_report_put_title(FILE *file, run *all)
{
    fputs("Memory of ", file);
    for (size_t i = 0; i < all->count; i++) {
        if (i > 0)
            fputs(i + 1 == all->count ? " and " : ", ", file);
        text_html(file, all->models[i].args->name);
    }
}

static void put_command(FILE *file, run *all)
{
    text_html(file, all->args->command);
}

static void tile(FILE *file, const char *value, const char *label, double share)
{
    fprintf(file, "<div class=\"tile\"><b>%s</b><span>%s</span>", value, label);
    if (share >= 0)
        fprintf(file, "<progress max=\"1\" value=\"%.4f\"></progress>", share);
    fputs("</div>\n", file);
}

static void size_tile(FILE *file, uint64_t bytes, const char *label)
{
    char text[24];
    tile(file, weir_size_format(bytes, text, sizeof text), label, -1);
}

static void put_tiles(FILE *file, run *all)
{
    char text[24];
    double share = all->budget == 0 ? 0 : (double)all->end.peak / (double)all->budget;
    char *label = text_print("peak, %.0f %% of budget", 100 * share);
    uint64_t outside = 0;
    for (size_t i = 0; i < all->count; i++)
        outside += all->models[i].outside;
    tile(file, weir_size_format(all->end.peak, text, sizeof text), label, share);
    size_tile(file, all->budget, "budget");
    size_tile(file, all->end.peak_held, "held at most");
    size_tile(file, outside, "outside weir");
    size_tile(file, all->end.live, "live at the end");
    tile(file, text_seconds(all->seconds, text, sizeof text),
         all->args->serial ? "one after another" : "all models at once", -1);
    free(label);
}

static void run_report_size_cell(FILE *file, uint64_t bytes, const char *class_name)
{
    char text[24];
    fprintf(file, "<td class=\"%s\">%s</td>", bytes == 0 ? "zero" : class_name,
            bytes == 0 ? "–" : weir_size_format(bytes, text, sizeof text));
}

static void put_row(FILE *file, const run *all, const model_run *m)
{
    fputs("<tr><td>", file);
    text_html(file, m->args->name);
    if (m->failed.status != WEIR_OK) {
        fputs("<small class=\"bad\">", file);
        text_html(file, m->failed.detail);
        fputs("</small>", file);
    }
    fputs("</td><td>", file);
    text_html(file, m->loaded ? m->engine : "not loaded");
    if (m->loaded) {
        fputs("<small>", file);
        text_html(file, m->provider);
        fputs("</small>", file);
    }
    fputs("</td>", file);
    for (int i = 0; i < COLUMNS; i++)
        run_report_size_cell(file, m->loaded ? m->stats.peak_class[columns[i]] : 0, "");
    run_report_size_cell(file, m->loaded ? m->stats.peak : 0, "strong");
    run_report_size_cell(file, run_peak_share(all, m->args->name, NULL), "");
    run_report_size_cell(file, m->outside, "");
    fputs("</tr>\n", file);
}

static void put_table(FILE *file, run *all)
{
    fputs("<tr><th>model</th><th>engine</th>", file);
    for (int i = 0; i < COLUMNS; i++)
        fprintf(file, "<th>%s</th>", weir_name_of(WEIR_NAMES_CLASS, columns[i]));
    fputs("<th>peak</th><th>of the whole peak</th><th>outside</th></tr>\n", file);
    uint64_t outside = 0;
    for (size_t i = 0; i < all->count; i++) {
        put_row(file, all, &all->models[i]);
        outside += all->models[i].outside;
    }
    fprintf(file, "<tr class=\"sum\"><td>together</td><td></td><td colspan=\"%d\"></td>", COLUMNS + 1);
    run_report_size_cell(file, all->end.peak, "");
    run_report_size_cell(file, outside, "");
    fputs("</tr>\n", file);
}

static void put_asides(FILE *file, const model_run *m)
{
    for (size_t i = 0; i < m->aside_count; i++) {
        char *text = aside_text(&m->asides[i]);
        fputs("<p class=\"notes\">", file);
        text_html(file, m->args->name);
        fprintf(file, ": %s.</p>\n", text);
        free(text);
    }
}

static void put_notes(FILE *file, run *all)
{
    for (size_t i = 0; i < all->count; i++)
        put_asides(file, &all->models[i]);
    fprintf(file,
            "<p class=\"notes\">The classes of a model add up to its own peak; the peaks of two models need not fall "
            "on the same moment. Outside is what an engine took without asking weir: %s.</p>\n",
            measure_method(all->runtime));
    char once[24];
    for (size_t i = 0; i < all->count; i++)
        if (all->models[i].loaded && all->models[i].outside_once > 0)
            fprintf(
                file,
                "<p class=\"notes\">The engine %s itself took %s when it was opened, once for all its models.</p>\n",
                all->models[i].engine, weir_size_format(all->models[i].outside_once, once, sizeof once));
    for (size_t i = 0; i < all->count; i++)
        if (all->models[i].loaded && all->models[i].remarks[0] != '\0') {
            fputs("<p class=\"notes\">", file);
            text_html(file, all->models[i].args->name);
            fputs(": ", file);
            text_html(file, all->models[i].remarks);
            fputs("</p>\n", file);
        }
    if (timeline_lost(all->line) > 0)
        fprintf(file, "<p class=\"notes bad\">%" PRIu64 " events were lost: the picture has holes.</p>\n",
                timeline_lost(all->line));
}

static void put_footer(FILE *file, run *all)
{
    fprintf(file, "weir %s on %s; %" PRIu64 " events", weir_version(), cli_runtime(all->runtime).device,
            timeline_events(all->line));
    for (size_t i = 0; i < all->count; i++)
        if (all->models[i].loaded) {
            fputs("; ", file);
            text_html(file, all->models[i].args->name);
            fputs(": ", file);
            text_html(file, all->models[i].architecture);
            fputs(" on ", file);
            text_html(file, all->models[i].engine);
            fputs(" ", file);
            text_html(file, all->models[i].version);
        }
}

static const struct {
    const char *mark;
    void (*put)(FILE *file, run *all);
} parts[] = {
    {"title", run_report_put_title},
    {"command", put_command},
    {"tiles", put_tiles},
    {"table", put_table},
    {"notes", put_notes},
    {"footer", put_footer},
    {"data", put_data},
};

static void run_report_put_part(FILE *file, const char *mark, void *user)
{
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(parts[i].mark, mark) == 0)
            parts[i].put(file, user);
}

weir_status report_write(run *all, const char *path)
{
    FILE *file = output_file_open(path, "the report");
    if (file == NULL)
        return WEIR_ERR_SYSTEM;
    text_page(file, report_page, run_report_put_part, all);
    return output_file_close(file, path, "the report", 0);
}
