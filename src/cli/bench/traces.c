/* bench_traces.c: the part `traces`: each trace by each allocator without a cap, under caps, under the smallest cap
 * with which it completes, and with the streams' work behind the host. */
#include "traces.h"

#include "bench.h"
#include "cli/terminal.h"

#include <weir/weir.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct traces {
    bench_allocators all;
    bench_trace *list;
    size_t count;
    uint64_t lag;
} traces;

/* Reading ---------------------------------------------------------------------------------------------------------- */

static int read_trace(traces *t, const char *path)
{
    bench_trace read = {0};
    if (wi_replay_load(path, &read.plan) != WEIR_OK)
        return cli_fail("%s", weir_detail());
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    snprintf(read.name, sizeof read.name, "%.*s", (int)strcspn(file, "."), file);
    t->list = text_grow(t->list, t->count + 1, sizeof *t->list);
    t->list[t->count++] = read;
    return CLI_OK;
}

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* A file, or every file of a folder. */
static int read_path(traces *t, const char *path)
{
    struct stat status;
    struct dirent **entries = NULL;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        return read_trace(t, path);
    int count = scandir(path, &entries, is_file, alphasort), answer = count > 0 ? CLI_OK : CLI_FAILED;
    for (int i = 0; i < count; i++) {
        char *file = text_print("%s/%s", path, entries[i]->d_name);
        if (answer == CLI_OK)
            answer = read_trace(t, file);
        free(file);
        free(entries[i]);
    }
    free(entries);
    return count > 0 ? answer : cli_fail("%s: no trace is in that folder", path);
}

/* Measuring -------------------------------------------------------------------------------------------------------- */

typedef struct task {
    const wi_replay_plan *plan;
    const bench_allocator *by;
    wi_replay_settings settings;
    bench_replayed *out;
} task;

static void note(task *t)
{
    if (!t->out->failed[0])
        snprintf(t->out->failed, sizeof t->out->failed, "%s", weir_detail());
}

/* Nothing held: it could not be told. */
static double of_peak(const task *t, uint64_t bytes)
{
    return bytes ? (double)bytes / (double)t->plan->peak : NAN;
}

/* Two passes under a cap; 0: none. False: it failed, or refused an allocation. */
static bool two_passes(task *t, uint64_t cap, uint64_t lag, wi_replay_result *result)
{
    t->settings.cap = cap;
    t->settings.lag = lag;
    t->settings.repeat = 2;
    t->settings.stop = true;
    bool good = wi_replay_run(t->plan, &t->settings, result) == WEIR_OK;
    if (!good)
        note(t);
    return good && result->passes[result->count - 1].failures == 0;
}

static void without_cap(task *t)
{
    wi_replay_result result;
    bench_replayed *out = t->out;
    if (two_passes(t, 0, 0, &result)) {
        out->held = of_peak(t, result.peak_held);
        out->ns = wi_replay_ns(t->plan, &result);
        if (t->by->own)
            out->calls = (double)result.passes[1].driver_calls / (double)t->plan->allocations;
        if (result.counts_moves)
            out->moves = (double)result.passes[1].moves / (double)t->plan->allocations;
    }
    wi_replay_result_clear(&result);
}

static double under(task *t, double part)
{
    wi_replay_result result;
    bool good = two_passes(t, (uint64_t)(part * (double)t->plan->peak), 0, &result);
    double ns = good ? wi_replay_ns(t->plan, &result) : NAN;
    wi_replay_result_clear(&result);
    return ns;
}

static void smallest(task *t, uint64_t lag, double *cap, double *ns)
{
    wi_replay_cap found;
    t->settings.cap = 0;
    t->settings.lag = lag;
    t->settings.repeat = 1;
    if (wi_replay_min_cap(t->plan, &t->settings, NULL, &found) != WEIR_OK) {
        note(t);
    } else if (found.bytes > 0) {
        *cap = of_peak(t, found.bytes);
        *ns = found.ns;
    }
}

static void behind(task *t, uint64_t lag)
{
    wi_replay_result result;
    if (two_passes(t, 0, lag, &result))
        t->out->lag_held = of_peak(t, result.peak_held);
    wi_replay_result_clear(&result);
    smallest(t, lag, &t->out->lag_cap, &t->out->lag_cap_ns);
}

static void measure(task *t, uint64_t lag)
{
    *t->out = (bench_replayed){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, ""};
    without_cap(t);
    if (isnan(t->out->ns)) {
        if (!t->out->failed[0])
            snprintf(t->out->failed, sizeof t->out->failed, "it does not complete");
        return;
    }
    smallest(t, 0, &t->out->cap, &t->out->cap_ns);
    t->out->ns_105 = under(t, 1.05);
    t->out->ns_110 = under(t, 1.10);
    if (lag)
        behind(t, lag);
}

static void measure_all(traces *t, const bench_options *options)
{
    for (size_t i = 0; i < t->count; i++)
        for (size_t j = 0; j < t->all.count; j++) {
            const bench_allocator *by = &t->all.at[j];
            task next = {.plan = &t->list[i].plan,
                         .by = by,
                         .settings = {.device = options->device,
                                      .resource = options->resource,
                                      .maker = by->own ? NULL : bench_by_replay(&by->by)},
                         .out = &t->list[i].by[j]};
            terminal_progress(t->list[i].name, (double)j / (double)t->all.count);
            measure(&next, t->lag);
        }
    terminal_progress_end();
}

/* What replays cannot be made of: weir's second row, and what cannot tell what it holds. */
static void keep_measurable(bench_allocators *all)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->count; i++)
        if (all->at[i].by.peak_held && !(all->at[i].own && i > 0))
            all->at[kept++] = all->at[i];
    all->count = kept;
}

/* Answers ---------------------------------------------------------------------------------------------------------- */

static void print_row(const traces *t, const bench_trace *trace, size_t by, table *grid)
{
    const bench_replayed *r = &trace->by[by];
    table_row(grid);
    table_cell(grid, by == 0 ? trace->name : "", "", false);
    table_cell(grid, t->all.at[by].by.name, "", false);
    bench_number(grid, r->held, 3);
    bench_number(grid, r->ns, 0);
    bench_number(grid, r->cap, 3);
    bench_number(grid, r->cap_ns, 0);
    bench_number(grid, r->ns_105, 0);
    bench_number(grid, r->ns_110, 0);
    bench_number(grid, r->calls, 5);
    bench_number(grid, r->moves, 5);
    bench_number(grid, r->lag_held, 3);
    bench_number(grid, r->lag_cap, 3);
}

static void print_all(const traces *t, bench_goals *goals)
{
    static const char *const words[] = {"trace",    "by",       "no cap", "ns",    "least cap",   "ns there",
                                        "ns, 1.05", "ns, 1.10", "calls",  "moves", "lag: no cap", "least cap"};
    table grid = {0};
    bench_titles(&grid, words, sizeof words / sizeof words[0], 2);
    for (size_t i = 0; i < t->count; i++)
        for (size_t j = 0; j < t->all.count; j++)
            print_row(t, &t->list[i], j, &grid);
    table_print(&grid, stdout);
    table_clear(&grid);
    bench_goals_print(goals);
    printf("\nHeld without a cap, and caps, are over what was requested at the peak; the least cap is to 0.2 %%; times "
           "are per\n"
           "event. Calls of the driver and moves are per allocation in a second pass. Lag: the streams' work is %llu\n"
           "operations behind the host.\n",
           (unsigned long long)t->lag);
    bench_print_left_out(t->all.left_out);
    for (size_t i = 0; i < t->count; i++)
        for (size_t j = 0; j < t->all.count; j++)
            if (t->list[i].by[j].failed[0])
                printf("Failed: %s by %s: %s\n", t->list[i].name, t->all.at[j].by.name, t->list[i].by[j].failed);
}

static json_t *row_json(const bench_trace *trace, const bench_allocator *by, const bench_replayed *r)
{
    const struct {
        const char *name;
        double value;
    } figures[] = {{"held", r->held},
                   {"ns", r->ns},
                   {"min_cap", r->cap},
                   {"min_cap_ns", r->cap_ns},
                   {"ns_105", r->ns_105},
                   {"ns_110", r->ns_110},
                   {"driver_calls", r->calls},
                   {"moves", r->moves},
                   {"lag_held", r->lag_held},
                   {"lag_min_cap", r->lag_cap},
                   {"lag_min_cap_ns", r->lag_cap_ns}};
    json_t *row = json_pack("{s:o, s:o, s:b, s:I, s:I, s:I}", "trace", text_json(trace->name), "by",
                            text_json(by->by.name), "own", by->own, "events", (json_int_t)trace->plan.count, "streams",
                            (json_int_t)trace->plan.streams, "peak_requested", (json_int_t)trace->plan.peak);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        json_object_set_new(row, figures[i].name, bench_number_json(figures[i].value));
    if (r->failed[0])
        json_object_set_new(row, "failed", text_json(r->failed));
    return row;
}

static json_t *all_json(const traces *t, bench_goals *goals)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < t->count; i++)
        for (size_t j = 0; j < t->all.count; j++)
            json_array_append_new(rows, row_json(&t->list[i], &t->all.at[j], &t->list[i].by[j]));
    return json_pack("{s:I, s:o, s:o, s:O}", "lag", (json_int_t)t->lag, "rows", rows, "goals", bench_goals_json(goals),
                     "left_out", t->all.left_out);
}

static int verdict(const traces *t)
{
    for (size_t i = 0; i < t->count; i++)
        for (size_t j = 0; j < t->all.count; j++)
            if (t->all.at[j].own && t->list[i].by[j].failed[0])
                return cli_fail("%s by weir: %s", t->list[i].name, t->list[i].by[j].failed);
    return CLI_OK;
}

static void answer_all(const traces *t, json_t *answer)
{
    bench_goals goals;
    bench_goals_begin(&goals);
    for (size_t i = 0; i < t->count; i++)
        bench_trace_goals(&t->list[i], &t->all, &goals);
    if (answer)
        json_object_set_new(answer, "traces", all_json(t, &goals));
    else
        print_all(t, &goals);
    bench_goals_end(&goals);
}

int bench_part_traces(const bench_options *options, json_t *answer)
{
    traces t = {.lag = options->lag};
    int status = CLI_OK;
    for (size_t i = 0; i < options->trace_count && status == CLI_OK; i++)
        status = read_path(&t, options->traces[i]);
    if (status == CLI_OK) {
        bench_allocators_open(&t.all, options->device, options->resource, options->peers, options->peer_count);
        keep_measurable(&t.all);
        measure_all(&t, options);
        answer_all(&t, answer);
        status = verdict(&t);
        bench_allocators_close(&t.all);
    }
    for (size_t i = 0; i < t.count; i++)
        wi_replay_plan_clear(&t.list[i].plan);
    free(t.list);
    return status;
}
