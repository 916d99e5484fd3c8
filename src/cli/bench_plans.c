/* bench_plans.c: the part `plans`: how long static plans take and how near to the lower bound they come. */
#include "bench.h"
#include "bench_answer.h"
#include "bench_plan_graphs.h"
#include "bench_plan_peer.h"
#include "text.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A search for the optimum ends after this. */
static const double limit = 10;

typedef struct plans {
    table graphs, problems;
    bench_goals goals;
    json_t *graph_rows, *problem_rows;
    double fit_sum, beside_sum, peer_sum; /* the last two of what the peer solved */
    uint64_t rounds;
    const char *peer;
} plans;

static weir_status make(const weir_buffers *list, weir_plan_mode mode, uint64_t enough, weir_plan_summary *out)
{
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    weir_plan *plan = NULL;
    options.mode = mode;
    options.enough = enough;
    options.seconds = limit;
    options.effort = UINT64_MAX / 2;
    *out = WEIR_INIT(weir_plan_summary);
    weir_status status = weir_plan_make(list, &options, &plan);
    if (status == WEIR_OK)
        status = weir_plan_check(plan, list);
    if (status == WEIR_OK)
        status = weir_plan_summarize(plan, out);
    weir_plan_destroy(plan);
    return status;
}

static double over_bound(const weir_plan_summary *s)
{
    return s->lower_bound ? (double)s->arena / (double)s->lower_bound : 1;
}

static void size_cell(table *t, uint64_t bytes)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    table_cell(t, text, "", true);
}

/* Graphs ------------------------------------------------------------------------------------------------------------ */

static void graph_goals(plans *p, const bench_graph *graph, const weir_plan_summary *quick,
                        const weir_plan_summary *full)
{
    if (graph->buffers != 10000 || !graph->plain)
        return;
    bench_goal(&p->goals, graph->name, "10000 buffers, one pass: ms", graph->training ? 30 : 10, quick->seconds * 1e3);
    bench_goal(&p->goals, graph->name, "10000 buffers, one pass: arena / bound", 1.02, over_bound(quick));
    bench_goal(&p->goals, graph->name, "10000 buffers: ms", 1000, full->seconds * 1e3);
    bench_goal(&p->goals, graph->name, "10000 buffers: arena / bound", 1.01, over_bound(full));
}

static weir_status run_graph(plans *p, const bench_graph *graph)
{
    weir_buffers *list = graph->make(graph->buffers);
    weir_plan_summary quick, again, full;
    weir_status status = make(list, WEIR_PLAN_QUICK, 0, &quick);
    for (uint64_t i = 1; i < p->rounds && status == WEIR_OK; i++) {
        status = make(list, WEIR_PLAN_QUICK, 0, &again);
        quick.seconds = again.seconds < quick.seconds ? again.seconds : quick.seconds;
    }
    if (status == WEIR_OK)
        status = make(list, WEIR_PLAN_SEARCH, 0, &full);
    weir_buffers_destroy(list);
    if (status != WEIR_OK)
        return status;
    table_row(&p->graphs);
    table_cell(&p->graphs, graph->name, "", false);
    size_cell(&p->graphs, quick.buffers);
    bench_number(&p->graphs, quick.seconds * 1e3, 2);
    bench_number(&p->graphs, over_bound(&quick), 4);
    bench_number(&p->graphs, full.seconds * 1e3, 2);
    bench_number(&p->graphs, over_bound(&full), 4);
    graph_goals(p, graph, &quick, &full);
    json_array_append_new(p->graph_rows,
                          json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "graph", graph->name, "buffers",
                                    (json_int_t)quick.buffers, "quick_seconds", quick.seconds, "quick_over_bound",
                                    over_bound(&quick), "seconds", full.seconds, "over_bound", over_bound(&full)));
    return WEIR_OK;
}

/* Problems ---------------------------------------------------------------------------------------------------------- */

/* The number between the last two dots of the name, as MiniMalloc's problems have it; 0: none. */
static uint64_t capacity_of(const char *path)
{
    const char *last = strrchr(path, '.'), *from = last;
    while (from && from > path && from[-1] >= '0' && from[-1] <= '9')
        from--;
    return from && from > path && from < last && from[-1] == '.' ? strtoull(from, NULL, 10) : 0;
}

static uint64_t roll(uint64_t *seed, uint64_t sides)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % sides;
}

/* The same problem told otherwise: rows in another order, time backwards, sizes larger. Gaps are lost. */
static weir_status retell(const weir_buffers *list, bool shuffle, bool reverse, uint64_t scale, weir_buffers **out)
{
    uint32_t count = weir_buffers_count(list);
    uint32_t *order = text_zeroed(count, sizeof *order);
    uint64_t steps = weir_buffers_steps(list), seed = 1;
    weir_status status = weir_buffers_create(out);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = shuffle ? (uint32_t)roll(&seed, i + 1) : i;
        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
        weir_buffer b = WEIR_INIT(weir_buffer);
        status = weir_buffers_get(list, order[i], &b);
        uint64_t begin = b.begin;
        b.begin = reverse ? steps - b.end : b.begin;
        b.end = reverse ? steps - begin : b.end;
        b.bytes *= scale;
        if (status == WEIR_OK)
            status = weir_buffers_add(*out, &b, NULL);
    }
    free(order);
    return status;
}

/* The longest that any of the retold problems takes to fit. */
static weir_status worst_retold(const weir_buffers *list, uint64_t capacity, double *seconds)
{
    static const struct {
        bool shuffle, reverse;
        uint64_t scale;
    } ways[] = {{true, false, 1}, {false, true, 1}, {false, false, 3}, {true, true, 5}};
    weir_status status = WEIR_OK;
    *seconds = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] && status == WEIR_OK; i++) {
        weir_buffers *other = NULL;
        weir_plan_summary s = WEIR_INIT(weir_plan_summary);
        status = retell(list, ways[i].shuffle, ways[i].reverse, ways[i].scale, &other);
        if (status == WEIR_OK)
            status = make(other, WEIR_PLAN_SEARCH, capacity * ways[i].scale, &s);
        if (status == WEIR_OK && s.seconds > *seconds)
            *seconds = s.seconds;
        weir_buffers_destroy(other);
    }
    return status;
}

static void problem_row(plans *p, const char *path, const weir_plan_summary *fit, const weir_plan_summary *full,
                        double worst, double peer)
{
    const char *slash = strrchr(path, '/');
    table *t = &p->problems;
    table_row(t);
    table_cell(t, slash ? slash + 1 : path, "", false);
    size_cell(t, full->buffers);
    size_cell(t, full->lower_bound);
    bench_number(t, fit->seconds * 1e3, 2);
    bench_number(t, worst * 1e3, 2);
    bench_number(t, peer * 1e3, 2);
    size_cell(t, full->arena);
    table_cell(t, full->proven ? "proven" : "", "", false);
    bench_number(t, full->seconds * 1e3, 2);
    json_array_append_new(p->problem_rows,
                          json_pack("{s:o, s:I, s:I, s:I, s:b, s:f, s:f, s:f, s:o}", "problem",
                                    text_json(slash ? slash + 1 : path), "buffers", (json_int_t)full->buffers,
                                    "lower_bound", (json_int_t)full->lower_bound, "arena", (json_int_t)full->arena,
                                    "proven", full->proven, "seconds", full->seconds, "fit_seconds", fit->seconds,
                                    "retold_seconds", worst, "peer_seconds", bench_number_json(peer)));
}

static weir_status run_problem(plans *p, const char *path)
{
    weir_buffers *list = NULL;
    weir_plan_summary fit, full;
    double worst = 0, peer = NAN;
    uint64_t capacity = capacity_of(path);
    weir_status status = weir_buffers_read_csv(path, &list);
    if (status == WEIR_OK)
        status = make(list, WEIR_PLAN_SEARCH, capacity, &fit);
    if (status == WEIR_OK)
        status = worst_retold(list, capacity, &worst);
    if (status == WEIR_OK)
        status = make(list, WEIR_PLAN_SEARCH, 0, &full);
    if (status == WEIR_OK && p->peer)
        peer = bench_plan_peer(p->peer, path, capacity ? capacity : full.arena, 10 * limit);
    if (status == WEIR_OK) {
        problem_row(p, path, &fit, &full, worst, peer);
        p->fit_sum += fit.seconds;
        p->beside_sum += isnan(peer) ? 0 : fit.seconds;
        p->peer_sum += isnan(peer) ? 0 : peer;
    }
    weir_buffers_destroy(list);
    return status;
}

static int is_sheet(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".csv") == 0;
}

static weir_status run_path(plans *p, const char *path)
{
    struct stat status;
    struct dirent **entries = NULL;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        return run_problem(p, path);
    int count = scandir(path, &entries, is_sheet, alphasort);
    weir_status answer = count > 0 ? WEIR_OK : weir_fail(WEIR_ERR_NOT_FOUND, "%s: no CSV file is in that folder", path);
    for (int i = 0; i < count; i++) {
        char *file = text_print("%s/%s", path, entries[i]->d_name);
        if (answer == WEIR_OK)
            answer = run_problem(p, file);
        free(file);
        free(entries[i]);
    }
    free(entries);
    return answer;
}

/* All of it --------------------------------------------------------------------------------------------------------- */

static void tell(plans *p, json_t *answer)
{
    if (answer) {
        json_object_set_new(answer, "plans",
                            json_pack("{s:O, s:O, s:o}", "graphs", p->graph_rows, "problems", p->problem_rows, "goals",
                                      bench_goals_json(&p->goals)));
        return;
    }
    table_print(&p->graphs, stdout);
    if (json_array_size(p->problem_rows) > 0) {
        puts("");
        table_print(&p->problems, stdout);
        printf("sum of \"fits\": %.2f ms", p->fit_sum * 1e3);
        if (p->peer_sum > 0)
            printf("; of what MiniMalloc solves: %.2f ms, and MiniMalloc %.2f ms", p->beside_sum * 1e3,
                   p->peer_sum * 1e3);
        puts("");
    }
    puts("");
    bench_goals_print(&p->goals);
}

/* Problems first, as their files may be none. */
int bench_part_plans(const bench_options *options, json_t *answer)
{
    static const char *const graphs[] = {"graph", "buffers", "one pass, ms", "/ bound", "search, ms", "/ bound"};
    static const char *const problems[] = {
        "problem", "buffers", "lower bound", "fits, ms", "retold, worst, ms", "MiniMalloc, ms", "arena", "", "in ms"};
    plans p = {.rounds = options->rounds,
               .peer = options->minimalloc,
               .graph_rows = json_array(),
               .problem_rows = json_array()};
    weir_status status = WEIR_OK;
    bench_goals_begin(&p.goals);
    bench_titles(&p.graphs, graphs, sizeof graphs / sizeof graphs[0], 1);
    bench_titles(&p.problems, problems, sizeof problems / sizeof problems[0], 1);
    for (size_t i = 0; i < options->problem_count && status == WEIR_OK; i++)
        status = run_path(&p, options->problems[i]);
    for (size_t i = 0; i < bench_graph_count && status == WEIR_OK; i++)
        status = run_graph(&p, &bench_graphs[i]);
    bench_goal(&p.goals, "the problems", "sum of ms, of MiniMalloc's", 1,
               p.peer_sum > 0 ? p.beside_sum / p.peer_sum : NAN);
    if (status == WEIR_OK)
        tell(&p, answer);
    else
        cli_fail("%s", weir_detail());
    bench_goals_end(&p.goals);
    table_clear(&p.graphs);
    table_clear(&p.problems);
    json_decref(p.graph_rows);
    json_decref(p.problem_rows);
    return status == WEIR_OK ? CLI_OK : CLI_FAILED;
}
