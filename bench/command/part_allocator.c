/* part_allocator.c: every load by every allocator, round after round, and the goals set for weir. */
#include "allocators.h"
#include "bench.h"

#include "cli/terminal.h"

#include <weir/weir.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MILLISECONDS = 25 }; /* time limit for a load by an allocator in a round, without the warm-up */

typedef struct cell {
    bench_figures best;
    char failed[200]; /* why there are no figures; "": there are */
    bool measured;
} cell;

typedef struct grid {
    bench_allocators all;
    bench_load loads[BENCH_LOADS];
    size_t load_count;
    unsigned threads;
    cell cells[BENCH_LOADS][BENCH_ALLOCATORS];
} grid;

static double part_allocator_counts(const bench_load *load, const bench_figures *figures)
{
    return load->by_mean ? figures->mean : figures->p50;
}

/* Measuring -------------------------------------------------------------------------------------------------------- */

static void part_allocator_measure(const bench_load *load, const bench_peer *by, const bench_limits *limits, cell *out)
{
    bench_figures figures = {0};
    const char *failure = by->begin(by->self, 0);
    if (!failure) {
        bench_enter_thread(by);
        failure = load->run(load, by, limits, &figures);
        if (failure)
            snprintf(out->failed, sizeof out->failed, "%s", failure);
        bench_leave_thread(by);
        by->end(by->self);
    } else {
        snprintf(out->failed, sizeof out->failed, "%s", failure);
    }
    if (out->failed[0] ||
        (out->measured && part_allocator_counts(load, &out->best) <= part_allocator_counts(load, &figures)))
        return;
    out->best = figures;
    out->measured = true;
}

static void part_allocator_measure_all(grid *g, const bench_args *args)
{
    bench_limits limits = {.laps = args->laps, .milliseconds = MILLISECONDS, .threads = g->threads};
    size_t steps = args->rounds * g->load_count * g->all.count, step = 0;
    for (uint64_t round = 0; round < args->rounds; round++)
        for (size_t i = 0; i < g->load_count; i++)
            for (size_t j = 0; j < g->all.count; j++, step++) {
                terminal_progress("allocator", (double)step / (double)steps);
                if (!g->cells[i][j].failed[0])
                    part_allocator_measure(&g->loads[i], &g->all.at[j].by, &limits, &g->cells[i][j]);
            }
    terminal_progress_end();
}

/* Ratios and goals ------------------------------------------------------------------------------------------------- */

/* What counts, in nanoseconds; NAN: it failed. */
static double figure(const grid *g, size_t load, size_t by)
{
    const cell *c = &g->cells[load][by];
    return c->failed[0] ? NAN : part_allocator_counts(&g->loads[load], &c->best);
}

/* To weir's first row; NAN: there is none. */
static double of_weir(const grid *g, size_t load, size_t by)
{
    return figure(g, load, by) / figure(g, load, 0);
}

/* Returns the index of the first allocator whose name begins with `name`; all.count: none. */
static size_t called(const grid *g, const char *name)
{
    size_t i = 0;
    while (i < g->all.count && strncmp(g->all.at[i].by.name, name, strlen(name)) != 0)
        i++;
    return i;
}

typedef struct goal {
    const char *load; /* the beginning of its name */
    const char *own;  /* the row of weir's */
    const char *peer; /* beginning of the name of the peer to compare with; NULL: none */
    double most;      /* nanoseconds; with a peer, a multiple of the peer's figure */
    const char *what;
} goal;

static const goal device_goals[] = {{"pair, ", "weir", NULL, 25, "ns"},
                                    {"pair, ", "weir", "PyTorch", 1.0 / 10, "of PyTorch's"},
                                    {"random, ", "weir", NULL, 50, "ns"},
                                    {"random, ", "weir", "PyTorch", 1.0 / 8, "of PyTorch's"},
                                    {"threads", "weir", NULL, 50, "ns per thread"},
                                    {"freed by", "weir", NULL, 100, "ns"}};
static const goal host_goals[] = {{"pair, ", "weir, no stream", "mimalloc", 2, "of mimalloc's"}};

static bool meant(const goal *wanted, const bench_load *load)
{
    if (load->several)
        return strcmp(wanted->load, "threads") == 0;
    return strncmp(load->name, wanted->load, strlen(wanted->load)) == 0;
}

/* What was measured of the goal; NAN: it cannot be told here. */
static double measured(const grid *g, const goal *wanted, size_t load)
{
    size_t own = called(g, wanted->own), peer = wanted->peer ? called(g, wanted->peer) : 0;
    if (!meant(wanted, &g->loads[load]) || own == g->all.count || peer == g->all.count)
        return NAN;
    return wanted->peer ? figure(g, load, own) / figure(g, load, peer) : figure(g, load, own);
}

static void part_allocator_add_goals(const grid *g, bool host, bench_goals *out)
{
    const goal *goals = host ? host_goals : device_goals;
    size_t count = host ? sizeof host_goals / sizeof *host_goals : sizeof device_goals / sizeof *device_goals;
    for (size_t i = 0; i < count; i++)
        for (size_t load = 0; load < g->load_count; load++)
            bench_goal(out, g->loads[load].name, goals[i].what, goals[i].most, measured(g, &goals[i], load));
}

/* Answers ---------------------------------------------------------------------------------------------------------- */

static void part_allocator_print_cell(const grid *g, size_t load, size_t by, table *t)
{
    const cell *c = &g->cells[load][by];
    table_row(t);
    table_cell(t, by == 0 ? g->loads[load].name : "", "", false);
    table_cell(t, g->all.at[by].by.name, "", false);
    if (c->failed[0]) {
        table_cell(t, "failed", terminal_red(), true);
        return;
    }
    bench_number(t, figure(g, load, by), 1);
    bench_number(t, c->best.p50, 1);
    bench_number(t, c->best.p99, 1);
    bench_number(t, of_weir(g, load, by), 2);
}

static void print_notes(const grid *g)
{
    printf("\nThe median counts of pairs on one thread, the mean of what is mixed or on several. A quantile is one of\n"
           "batches of %d (%d where blocks are handed over). At random: blocks of 512 B * 2^u, u uniform in 0...13,\n"
           "a whole number, or any where it says so.\n",
           BENCH_BATCH, BENCH_HANDED);
    if (g->threads < BENCH_THREADS)
        printf("%u threads, as there are so many processors; %d are meant.\n", g->threads, BENCH_THREADS);
    bench_print_left_out(g->all.left_out);
    for (size_t i = 0; i < g->load_count; i++)
        for (size_t j = 0; j < g->all.count; j++)
            if (g->cells[i][j].failed[0])
                printf("Failed: %s by %s: %s\n", g->loads[i].name, g->all.at[j].by.name, g->cells[i][j].failed);
}

static void part_allocator_print_all(const grid *g, bench_goals *goals)
{
    static const char *const titles[] = {"load", "by", "ns", "p50", "p99", "of weir's"};
    table t = {0};
    bench_titles(&t, titles, sizeof titles / sizeof titles[0], 2);
    for (size_t i = 0; i < g->load_count; i++)
        for (size_t j = 0; j < g->all.count; j++)
            part_allocator_print_cell(g, i, j, &t);
    table_print(&t, stdout);
    table_clear(&t);
    bench_goals_print(goals);
    print_notes(g);
}

static json_t *cell_json(const grid *g, size_t load, size_t by)
{
    const cell *c = &g->cells[load][by];
    json_t *row = json_pack("{s:s, s:o, s:b, s:o, s:o}", "load", g->loads[load].name, "by",
                            text_json(g->all.at[by].by.name), "own", g->all.at[by].own, "ns",
                            bench_number_json(figure(g, load, by)), "of_weir", bench_number_json(of_weir(g, load, by)));
    if (c->failed[0])
        json_object_set_new(row, "failed", text_json(c->failed));
    else
        json_object_update_new(
            row, json_pack("{s:f, s:f, s:f}", "p50", c->best.p50, "p99", c->best.p99, "mean", c->best.mean));
    return row;
}

static json_t *part_allocator_all_json(const grid *g, bench_goals *goals)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < g->load_count; i++)
        for (size_t j = 0; j < g->all.count; j++)
            json_array_append_new(rows, cell_json(g, i, j));
    return json_pack("{s:i, s:o, s:o, s:O}", "threads", (int)g->threads, "rows", rows, "goals", bench_goals_json(goals),
                     "left_out", g->all.left_out);
}

/* A peer that fails is told; weir must not. */
static int part_allocator_verdict(const grid *g)
{
    for (size_t i = 0; i < g->load_count; i++)
        for (size_t j = 0; j < g->all.count; j++)
            if (g->all.at[j].own && g->cells[i][j].failed[0])
                return cli_fail("%s by %s: %s", g->loads[i].name, g->all.at[j].by.name, g->cells[i][j].failed);
    return CLI_OK;
}

int bench_part_allocator(const bench_args *args, json_t *answer)
{
    grid *g = text_zeroed(1, sizeof *g);
    unsigned processors = bench_processors();
    g->threads = processors < BENCH_THREADS ? processors : BENCH_THREADS;
    g->load_count = bench_loads(g->loads, g->threads);
    bench_allocators_open(&g->all, args->device, args->resource, &args->peers);
    part_allocator_measure_all(g, args);
    bench_goals goals;
    bench_goals_begin(&goals);
    part_allocator_add_goals(g, strcmp(args->device, "host") == 0, &goals);
    if (answer)
        json_object_set_new(answer, "allocator", part_allocator_all_json(g, &goals));
    else
        part_allocator_print_all(g, &goals);
    bench_goals_end(&goals);
    int status = part_allocator_verdict(g);
    bench_allocators_close(&g->all);
    free(g);
    return status;
}
