/* report.c: fills in the page: page.html is the whole of it, with marks <!--weir:NAME--> where a run's own go. */
#include "report.h"

#include "html.h"
#include "measure.h"
#include "page.h"
#include "report_data.h"
#include "text.h"

#include "trace/output_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const weir_class columns[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_KV, WEIR_CLASS_SCRATCH,
                                     WEIR_CLASS_OTHER};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void put_title(FILE *file, run *all)
{
    fputs("Memory of ", file);
    for (size_t i = 0; i < all->count; i++) {
        if (i > 0)
            fputs(i + 1 == all->count ? " and " : ", ", file);
        html_text(file, all->jobs[i].words->name);
    }
}

static void put_command(FILE *file, run *all)
{
    html_text(file, all->options->command);
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
        outside += all->jobs[i].outside;
    tile(file, weir_size_format(all->end.peak, text, sizeof text), label, share);
    size_tile(file, all->budget, "budget");
    size_tile(file, all->end.peak_held, "held at most");
    size_tile(file, outside, "outside weir");
    size_tile(file, all->end.live, "live at the end");
    tile(file, text_seconds(all->seconds, text, sizeof text),
         all->options->serial ? "one after another" : "all models at once", -1);
    free(label);
}

static void size_cell(FILE *file, uint64_t bytes, const char *class_name)
{
    char text[24];
    fprintf(file, "<td class=\"%s\">%s</td>", bytes == 0 ? "zero" : class_name,
            bytes == 0 ? "–" : weir_size_format(bytes, text, sizeof text));
}

static void put_row(FILE *file, const run *all, const job *work)
{
    fputs("<tr><td>", file);
    html_text(file, work->words->name);
    if (work->failed.status != WEIR_OK) {
        fputs("<small class=\"bad\">", file);
        html_text(file, work->failed.detail);
        fputs("</small>", file);
    }
    fputs("</td><td>", file);
    html_text(file, work->loaded ? work->engine : "not loaded");
    if (work->loaded) {
        fputs("<small>", file);
        html_text(file, work->provider);
        fputs("</small>", file);
    }
    fputs("</td>", file);
    for (int i = 0; i < COLUMNS; i++)
        size_cell(file, work->loaded ? work->stats.peak_class[columns[i]] : 0, "");
    size_cell(file, work->loaded ? work->stats.peak : 0, "strong");
    size_cell(file, run_peak_share(all, work->words->name, NULL), "");
    size_cell(file, work->outside, "");
    fputs("</tr>\n", file);
}

static void put_table(FILE *file, run *all)
{
    fputs("<tr><th>model</th><th>engine</th>", file);
    for (int i = 0; i < COLUMNS; i++)
        fprintf(file, "<th>%s</th>", weir_class_name(columns[i]));
    fputs("<th>peak</th><th>of the whole peak</th><th>outside</th></tr>\n", file);
    uint64_t outside = 0;
    for (size_t i = 0; i < all->count; i++) {
        put_row(file, all, &all->jobs[i]);
        outside += all->jobs[i].outside;
    }
    fprintf(file, "<tr class=\"sum\"><td>together</td><td></td><td colspan=\"%d\"></td>", COLUMNS + 1);
    size_cell(file, all->end.peak, "");
    size_cell(file, outside, "");
    fputs("</tr>\n", file);
}

static void put_notes(FILE *file, run *all)
{
    fprintf(file,
            "<p class=\"notes\">The classes of a model add up to its own peak; the peaks of two models need not fall "
            "on the same moment. Outside is what an engine took without asking weir: %s.</p>\n",
            measure_method(all->runtime));
    char once[24];
    for (size_t i = 0; i < all->count; i++)
        if (all->jobs[i].loaded && all->jobs[i].outside_once > 0)
            fprintf(
                file,
                "<p class=\"notes\">The engine %s itself took %s when it was opened, once for all its models.</p>\n",
                all->jobs[i].engine, weir_size_format(all->jobs[i].outside_once, once, sizeof once));
    for (size_t i = 0; i < all->count; i++)
        if (all->jobs[i].loaded && all->jobs[i].remarks[0] != '\0') {
            fputs("<p class=\"notes\">", file);
            html_text(file, all->jobs[i].words->name);
            fputs(": ", file);
            html_text(file, all->jobs[i].remarks);
            fputs("</p>\n", file);
        }
    if (timeline_lost(all->line) > 0)
        fprintf(file, "<p class=\"notes bad\">%" PRIu64 " events were lost: the picture has holes.</p>\n",
                timeline_lost(all->line));
}

static void put_footer(FILE *file, run *all)
{
    fprintf(file, "weir %s on %s; %" PRIu64 " events", weir_version(), weir_runtime_device(all->runtime),
            timeline_events(all->line));
    for (size_t i = 0; i < all->count; i++)
        if (all->jobs[i].loaded) {
            fputs("; ", file);
            html_text(file, all->jobs[i].words->name);
            fputs(": ", file);
            html_text(file, all->jobs[i].architecture);
            fputs(" on ", file);
            html_text(file, all->jobs[i].engine);
            fputs(" ", file);
            html_text(file, all->jobs[i].version);
        }
}

static const struct {
    const char *mark;
    void (*put)(FILE *file, run *all);
} parts[] = {
    {"title", put_title}, {"command", put_command}, {"tiles", put_tiles},      {"table", put_table},
    {"notes", put_notes}, {"footer", put_footer},   {"data", report_put_data},
};

static void put_part(FILE *file, run *all, const char *mark, size_t length)
{
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strlen(parts[i].mark) == length && strncmp(parts[i].mark, mark, length) == 0)
            parts[i].put(file, all);
}

static void put_page(FILE *file, run *all)
{
    static const char open[] = "<!--weir:", close[] = "-->";
    const char *at = page_html, *mark;
    while ((mark = strstr(at, open)) != NULL) {
        const char *name = mark + sizeof open - 1, *end = strstr(name, close);
        fwrite(at, 1, (size_t)(mark - at), file);
        put_part(file, all, name, (size_t)(end - name));
        at = end + sizeof close - 1;
    }
    fputs(at, file);
}

weir_status report_write(run *all, const char *path)
{
    FILE *file = sink_open(path, "the report");
    if (file == NULL)
        return WEIR_ERR_SYSTEM;
    put_page(file, all);
    return sink_close(file, path, "the report", 0);
}
