/* run_table.c: a run as people read it: what came out, then who held what. */
#include "run.h"

#include "table.h"
#include "terminal.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The order in which a model comes by its memory. */
static const weir_class columns[] = {WEIR_CLASS_WEIGHTS, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_KV, WEIR_CLASS_SCRATCH,
                                     WEIR_CLASS_OTHER};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void print_outputs(const run *all)
{
    bool streamed = all->options->stream;
    char time[24];
    for (size_t i = 0; i < all->count; i++) {
        const job *work = &all->jobs[i];
        if (work->out.count == 0)
            continue;
        printf("%s%s%s", terminal_bold(), work->words->name, terminal_plain());
        printf("%s  %llu run%s in %s%s\n", terminal_faint(), (unsigned long long)work->runs, work->runs == 1 ? "" : "s",
               text_seconds(work->seconds, time, sizeof time), terminal_plain());
        outputs_print(&work->out, streamed && work->generates);
    }
    puts("");
}

static void size_cell(table *grid, uint64_t bytes, const char *colour)
{
    char text[24];
    table_cell(grid, bytes == 0 ? "-" : weir_size_format(bytes, text, sizeof text), colour, true);
}

static void head(table *grid)
{
    table_row(grid);
    table_cell(grid, "model", terminal_bold(), false);
    table_cell(grid, "engine", terminal_bold(), false);
    for (int i = 0; i < COLUMNS; i++)
        table_cell(grid, weir_class_name(columns[i]), terminal_bold(), true);
    table_cell(grid, "peak", terminal_bold(), true);
    table_cell(grid, "outside", terminal_bold(), true);
}

static void job_row(table *grid, const job *work)
{
    table_row(grid);
    table_cell(grid, work->words->name, "", false);
    if (!work->loaded) {
        table_cell(grid, work->failed.status == WEIR_OK ? "not loaded" : "failed", terminal_red(), false);
        return;
    }
    bool good = work->failed.status == WEIR_OK;
    bool tells = work->words->chosen; /* what was chosen is worth a word */
    char *engine = text_print("%s%s%s%s%s%s", work->engine, tells ? "/" : "", tells ? work->provider : "",
                              tells ? " on " : "", tells ? weir_runtime_device(work->runtime) : "",
                              good                                        ? ""
                              : work->failed.status == WEIR_ERR_CANCELLED ? ", stopped"
                                                                          : ", failed");
    table_cell(grid, engine, good ? "" : terminal_red(), false);
    free(engine);
    for (int i = 0; i < COLUMNS; i++)
        size_cell(grid, work->stats.peak_class[columns[i]], "");
    size_cell(grid, work->stats.peak, terminal_bold());
    if (work->measured)
        size_cell(grid, work->outside, terminal_faint());
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
           several ? weir_runtime_device(one->runtime) : "", several ? " " : "", terminal_bold(),
           weir_size_format(end->peak, peak, sizeof peak), terminal_plain(),
           weir_size_format(one->budget, budget, sizeof budget), colour, share, terminal_plain(),
           weir_size_format(end->peak_held, held, sizeof held), weir_size_format(end->live, live, sizeof live));
}

/* "openvino runs 3 of 4 parts, cpu 1", where that was told. */
static void print_shares(const job *work)
{
    size_t index;
    json_t *share;
    if (json_array_size(work->shares) == 0)
        return;
    printf("%s%s: ", terminal_faint(), work->words->name);
    json_array_foreach(work->shares, index, share)
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

/* Why an engine keeps bytes to itself, in its own words, and what it took before it saw a model. */
static void print_remarks(const run *all)
{
    char once[24];
    for (size_t i = 0; i < all->count; i++)
        if (all->jobs[i].loaded && all->jobs[i].outside_once > 0)
            printf("%s%s: the engine itself took %s when it was opened, once for all its models%s\n", terminal_faint(),
                   all->jobs[i].engine, weir_size_format(all->jobs[i].outside_once, once, sizeof once),
                   terminal_plain());
    for (size_t i = 0; i < all->count; i++)
        if (all->jobs[i].loaded)
            print_shares(&all->jobs[i]);
    for (size_t i = 0; i < all->count; i++)
        if (all->jobs[i].loaded && all->jobs[i].remarks[0] != '\0')
            printf("%s%s: %s%s\n", terminal_faint(), all->jobs[i].words->name, all->jobs[i].remarks, terminal_plain());
    if (timeline_lost(all->line) > 0)
        printf("%s%llu events were lost: the trace has holes%s\n", terminal_yellow(),
               (unsigned long long)timeline_lost(all->line), terminal_plain());
}

void run_print_table(const run *all)
{
    table grid = {0};
    print_outputs(all);
    head(&grid);
    for (size_t i = 0; i < all->count; i++)
        job_row(&grid, &all->jobs[i]);
    table_print(&grid, stdout);
    table_clear(&grid);
    for (size_t i = 0; i < all->device_count; i++)
        print_total(all, &all->devices[i]);
    print_remarks(all);
    if (all->trace != NULL)
        printf("trace: %s\n", all->trace);
    if (all->report != NULL)
        printf("report: %s\n", all->report);
}
