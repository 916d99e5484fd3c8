/* part_plans.c: how long static plans take, and how near to the lower bound they come. */
#include "bench.h"
#include <weir/plan.h>

#include "cli/text.h"
#include "cli/plan/plan.h"

#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Graphs ----------------------------------------------------------------------------------------------------------- */

/* What a list has beyond intervals and sizes: alignments of its own, gaps, conflicts, or a tenth of it fixed where an
 * earlier plan had it. */
typedef enum extra { PLAIN, ALIGNMENTS, GAPS, CONFLICTS, PINS } extra;

typedef struct graph {
    const char *name;
    size_t buffers; /* about so many */
    bool training;  /* activations are live until their gradients */
    extra extra;
    weir_buffers *(*make)(size_t buffers);
} graph;

/* A list of buffers as a graph of a usual shape has them, made from a seed. */
typedef struct maker {
    weir_buffers *list;
    uint64_t seed;
    uint64_t step;
} maker;

static uint64_t part_plans_next_random(uint64_t *seed, uint64_t sides)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % sides;
}

static uint64_t roll(maker *m, uint64_t sides)
{
    return part_plans_next_random(&m->seed, sides);
}

static void part_plans_add(maker *m, uint64_t begin, uint64_t end, uint64_t bytes)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    b.begin = begin;
    b.end = end;
    b.bytes = bytes;
    if (weir_buffers_add(m->list, &b, NULL) != WEIR_OK)
        text_out_of_memory();
}

static maker part_plans_begin(uint64_t seed)
{
    maker m = {.seed = seed};
    if (weir_buffers_create(&m.list) != WEIR_OK)
        text_out_of_memory();
    return m;
}

static bool wants_more(const maker *m, size_t buffers)
{
    return plan_list_info(m->list).count < buffers;
}

/* Blocks of convolutions with a shortcut around each, at four resolutions, with workspaces of all sizes. */
static weir_buffers *make_convolutions(size_t buffers)
{
    maker m = part_plans_begin(1);
    while (wants_more(&m, buffers)) {
        uint64_t at = m.step, size = UINT64_C(802816) >> ((size_t)plan_list_info(m.list).count * 4 / buffers);
        part_plans_add(&m, at, at + 5, size);
        part_plans_add(&m, at + 1, at + 3, size / 4);
        part_plans_add(&m, at + 2, at + 4, size / 4);
        part_plans_add(&m, at + 3, at + 5, size);
        for (uint64_t i = 1; i < 4; i++)
            part_plans_add(&m, at + i, at + i + 1, 512 * (1 + roll(&m, 300)));
        m.step += 4;
    }
    return m.list;
}

/* Attention and a feed-forward part, each with a shortcut around it. */
static weir_buffers *make_transformer(size_t buffers)
{
    const uint64_t hidden = UINT64_C(384) * 768 * 2, scores = UINT64_C(12) * 384 * 384 * 2;
    maker m = part_plans_begin(2);
    while (wants_more(&m, buffers)) {
        uint64_t at = m.step;
        part_plans_add(&m, at, at + 7, hidden);
        for (uint64_t i = 1; i < 4; i++)
            part_plans_add(&m, at + i, at + (i < 3 ? 5 : 6), hidden);
        part_plans_add(&m, at + 4, at + 6, scores);
        part_plans_add(&m, at + 5, at + 7, scores);
        part_plans_add(&m, at + 6, at + 8, hidden);
        part_plans_add(&m, at + 7, at + 12, hidden);
        part_plans_add(&m, at + 8, at + 10, 4 * hidden);
        part_plans_add(&m, at + 9, at + 11, 4 * hidden);
        part_plans_add(&m, at + 10, at + 12, hidden);
        part_plans_add(&m, at + 4 + roll(&m, 6), at + 11, 256 * (1 + roll(&m, 64)));
        m.step += 11;
    }
    return m.list;
}

/* Activations wait for the way back, where gradients come and go; optimizers take some of each layer at the end. */
static weir_buffers *make_training(size_t buffers)
{
    maker m = part_plans_begin(3);
    uint64_t layers = buffers / 5;
    for (uint64_t i = 0; i < layers; i++) {
        uint64_t back = 2 * layers - i, size = 512 * (8 + roll(&m, 1000));
        part_plans_add(&m, i, back + 1, size);
        part_plans_add(&m, i, back + 1, 512 * (1 + roll(&m, 40)));
        part_plans_add(&m, i, i + 1, 512 * (1 + roll(&m, 2000)));
        part_plans_add(&m, back - 1, back + 1, size);
        part_plans_add(&m, back, back + 1 + roll(&m, 3), 512 * (1 + roll(&m, 2000)));
    }
    return m.list;
}

/* Lifetimes of all lengths, the short ones more often, and sizes over five orders of magnitude. */
static weir_buffers *make_random(size_t buffers)
{
    maker m = part_plans_begin(4);
    for (uint64_t i = 0; wants_more(&m, buffers); i++) {
        uint64_t length = 1 + roll(&m, UINT64_C(1) << (1 + roll(&m, roll(&m, 16) ? 5 : 11)));
        part_plans_add(&m, i / 2, i / 2 + length, 64 * (1 + roll(&m, UINT64_C(1) << (1 + roll(&m, 16)))));
    }
    return m.list;
}

static void decorate(maker *to, uint32_t i, weir_buffer *b, const weir_plan *plan, extra how)
{
    weir_slot slot = WEIR_INIT(weir_slot);
    weir_status status = WEIR_OK;
    if (how == ALIGNMENTS)
        b->alignment = UINT64_C(1) << roll(to, 13);
    if (how == PINS && roll(to, 10) == 0) {
        status = weir_plan_slot(plan, i, &slot);
        b->fixed = true;
        b->offset = slot.offset;
    }
    if (status == WEIR_OK)
        status = weir_buffers_add(to->list, b, NULL);
    if (status == WEIR_OK && how == GAPS && b->end - b->begin > 3 && roll(to, 2))
        status = weir_buffers_gap(to->list, i, b->begin + 1, b->end - 1);
    if (status == WEIR_OK && how == CONFLICTS && i > 50 && roll(to, 5) == 0)
        status = weir_buffers_conflict(to->list, i, i - 1 - (uint32_t)roll(to, 50));
    if (status != WEIR_OK)
        text_out_of_memory();
}

static weir_buffers *make_list(const graph *g)
{
    weir_buffers *plain = g->make(g->buffers);
    if (g->extra == PLAIN)
        return plain;
    weir_plan_options options = {.struct_size = sizeof options, .mode = WEIR_PLAN_QUICK};
    weir_plan *plan = NULL;
    maker m = part_plans_begin(5);
    weir_status status = weir_plan_create(plain, &options, &plan);
    for (uint32_t i = 0; status == WEIR_OK && i < plan_list_info(plain).count; i++) {
        weir_buffer b = WEIR_INIT(weir_buffer);
        status = weir_buffer_info(plain, i, &b);
        decorate(&m, i, &b, plan, g->extra);
    }
    weir_plan_destroy(plan);
    weir_buffers_destroy(plain);
    return m.list;
}

static const graph graphs[] = {
    {"convolutions", 10000, false, PLAIN, make_convolutions},
    {"transformer", 10000, false, PLAIN, make_transformer},
    {"random graph", 10000, false, PLAIN, make_random},
    {"training", 10000, true, PLAIN, make_training},
    {"convolutions", 60000, false, PLAIN, make_convolutions},
    {"transformer", 60000, false, PLAIN, make_transformer},
    {"random graph", 60000, false, PLAIN, make_random},
    {"training", 60000, true, PLAIN, make_training},
    {"training, alignments", 10000, true, ALIGNMENTS, make_training},
    {"training, gaps", 10000, true, GAPS, make_training},
    {"training, conflicts", 10000, true, CONFLICTS, make_training},
    {"training, pins", 10000, true, PINS, make_training},
    {"random graph, alignments", 60000, false, ALIGNMENTS, make_random},
    {"random graph, pins", 60000, false, PINS, make_random},
};
enum { GRAPHS = sizeof graphs / sizeof graphs[0] };

/* MiniMalloc ------------------------------------------------------------------------------------------------------- */

/* Seconds that MiniMalloc takes for a problem; NAN if it finds no plan in `limit` seconds. */
static double run_minimalloc(const char *program, const char *problem, uint64_t capacity, double limit)
{
    char *words[] = {text_copy(program),
                     text_print("--capacity=%llu", (unsigned long long)capacity),
                     text_print("--input=%s", problem),
                     text_print("--output=/dev/null"),
                     text_print("--timeout=%.0fs", limit),
                     NULL};
    posix_spawn_file_actions_t files;
    pid_t child;
    int status = 1;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    uint64_t start = bench_now();
    bool ran = posix_spawn(&child, program, &files, NULL, words, environ) == 0 && waitpid(child, &status, 0) == child;
    double seconds = (double)(bench_now() - start) * 1e-9;
    posix_spawn_file_actions_destroy(&files);
    for (size_t i = 0; words[i]; i++)
        free(words[i]);
    return ran && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? seconds : (double)NAN;
}

/* Plans ------------------------------------------------------------------------------------------------------------ */

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

static weir_status part_plans_make(const weir_buffers *list, weir_plan_mode mode, uint64_t enough,
                                   weir_plan_details *out)
{
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    weir_plan *plan = NULL;
    options.mode = mode;
    options.enough = enough;
    options.seconds = limit;
    options.effort = UINT64_MAX / 2;
    *out = WEIR_INIT(weir_plan_details);
    weir_status status = weir_plan_create(list, &options, &plan);
    if (status == WEIR_OK)
        status = weir_plan_check(plan, list);
    if (status == WEIR_OK)
        status = weir_plan_info(plan, out);
    weir_plan_destroy(plan);
    return status;
}

static double over_bound(const weir_plan_details *s)
{
    return s->lower_bound ? (double)s->arena / (double)s->lower_bound : 1;
}

static void part_plans_size_cell(table *t, uint64_t bytes)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    table_cell(t, text, "", true);
}

static void graph_goals(plans *p, const graph *g, const weir_plan_details *quick, const weir_plan_details *full)
{
    if (g->buffers != 10000 || g->extra != PLAIN)
        return;
    bench_goal(&p->goals, g->name, "10000 buffers, one pass: ms", g->training ? 30 : 10, quick->seconds * 1e3);
    bench_goal(&p->goals, g->name, "10000 buffers, one pass: arena / bound", 1.02, over_bound(quick));
    bench_goal(&p->goals, g->name, "10000 buffers: ms", 1000, full->seconds * 1e3);
    bench_goal(&p->goals, g->name, "10000 buffers: arena / bound", 1.01, over_bound(full));
}

static weir_status part_plans_run_graph(plans *p, const graph *g)
{
    weir_buffers *list = make_list(g);
    weir_plan_details quick, again, full;
    weir_status status = part_plans_make(list, WEIR_PLAN_QUICK, 0, &quick);
    for (uint64_t i = 1; i < p->rounds && status == WEIR_OK; i++) {
        status = part_plans_make(list, WEIR_PLAN_QUICK, 0, &again);
        quick.seconds = again.seconds < quick.seconds ? again.seconds : quick.seconds;
    }
    if (status == WEIR_OK)
        status = part_plans_make(list, WEIR_PLAN_SEARCH, 0, &full);
    weir_buffers_destroy(list);
    if (status != WEIR_OK)
        return status;
    table_row(&p->graphs);
    table_cell(&p->graphs, g->name, "", false);
    part_plans_size_cell(&p->graphs, quick.buffers);
    bench_number(&p->graphs, quick.seconds * 1e3, 2);
    bench_number(&p->graphs, over_bound(&quick), 4);
    bench_number(&p->graphs, full.seconds * 1e3, 2);
    bench_number(&p->graphs, over_bound(&full), 4);
    graph_goals(p, g, &quick, &full);
    json_array_append_new(p->graph_rows,
                          json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "graph", g->name, "buffers",
                                    (json_int_t)quick.buffers, "quick_seconds", quick.seconds, "quick_over_bound",
                                    over_bound(&quick), "seconds", full.seconds, "over_bound", over_bound(&full)));
    return WEIR_OK;
}

/* Problems --------------------------------------------------------------------------------------------------------- */

/* The number between the last two dots of the name, as MiniMalloc's problems have it; 0: none. */
static uint64_t capacity_of(const char *path)
{
    const char *last = strrchr(path, '.'), *from = last;
    while (from && from > path && from[-1] >= '0' && from[-1] <= '9')
        from--;
    return from && from > path && from < last && from[-1] == '.' ? strtoull(from, NULL, 10) : 0;
}

/* An equivalent problem: rows in another order, time reversed, sizes scaled. Gaps are lost. */
static weir_status transform(const weir_buffers *list, bool shuffle, bool reverse, uint64_t scale, weir_buffers **out)
{
    uint32_t count = plan_list_info(list).count;
    uint32_t *order = text_zeroed(count, sizeof *order);
    uint64_t steps = plan_list_info(list).steps, seed = 1;
    weir_status status = weir_buffers_create(out);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = shuffle ? (uint32_t)part_plans_next_random(&seed, i + 1) : i;
        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < count && status == WEIR_OK; i++) {
        weir_buffer b = WEIR_INIT(weir_buffer);
        status = weir_buffer_info(list, order[i], &b);
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

/* The longest time that an equivalent problem takes to fit. */
static weir_status worst_transformed(const weir_buffers *list, uint64_t capacity, double *seconds)
{
    static const struct {
        bool shuffle, reverse;
        uint64_t scale;
    } ways[] = {{true, false, 1}, {false, true, 1}, {false, false, 3}, {true, true, 5}};
    weir_status status = WEIR_OK;
    *seconds = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] && status == WEIR_OK; i++) {
        weir_buffers *other = NULL;
        weir_plan_details s = WEIR_INIT(weir_plan_details);
        status = transform(list, ways[i].shuffle, ways[i].reverse, ways[i].scale, &other);
        if (status == WEIR_OK)
            status = part_plans_make(other, WEIR_PLAN_SEARCH, capacity * ways[i].scale, &s);
        if (status == WEIR_OK && s.seconds > *seconds)
            *seconds = s.seconds;
        weir_buffers_destroy(other);
    }
    return status;
}

static void problem_row(plans *p, const char *path, const weir_plan_details *fit, const weir_plan_details *full,
                        double worst, double peer)
{
    const char *slash = strrchr(path, '/');
    table *t = &p->problems;
    table_row(t);
    table_cell(t, slash ? slash + 1 : path, "", false);
    part_plans_size_cell(t, full->buffers);
    part_plans_size_cell(t, full->lower_bound);
    bench_number(t, fit->seconds * 1e3, 2);
    bench_number(t, worst * 1e3, 2);
    bench_number(t, peer * 1e3, 2);
    part_plans_size_cell(t, full->arena);
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
    weir_plan_details fit, full;
    double worst = 0, peer = NAN;
    uint64_t capacity = capacity_of(path);
    weir_status status = weir_buffers_read_csv(path, &list);
    if (status == WEIR_OK)
        status = part_plans_make(list, WEIR_PLAN_SEARCH, capacity, &fit);
    if (status == WEIR_OK)
        status = worst_transformed(list, capacity, &worst);
    if (status == WEIR_OK)
        status = part_plans_make(list, WEIR_PLAN_SEARCH, 0, &full);
    if (status == WEIR_OK && p->peer)
        peer = run_minimalloc(p->peer, path, capacity ? capacity : full.arena, 10 * limit);
    if (status == WEIR_OK) {
        problem_row(p, path, &fit, &full, worst, peer);
        p->fit_sum += fit.seconds;
        p->beside_sum += isnan(peer) ? 0 : fit.seconds;
        p->peer_sum += isnan(peer) ? 0 : peer;
    }
    weir_buffers_destroy(list);
    return status;
}

/* A file, or every CSV file of a folder. */
static weir_status run_path(plans *p, const char *path)
{
    size_t count;
    char **files = bench_files(path, ".csv", &count);
    weir_status status = count > 0 ? WEIR_OK : weir_fail(WEIR_ERR_NOT_FOUND, "%s: no CSV file is in that folder", path);
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = run_problem(p, files[i]);
    bench_files_free(files, count);
    return status;
}

/* All of it -------------------------------------------------------------------------------------------------------- */

static void part_plans_answer_all(plans *p, json_t *answer)
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

/* Problems come first, as their files may be bad. */
int bench_part_plans(const bench_args *args, json_t *answer)
{
    static const char *const graph_titles[] = {"graph", "buffers", "one pass, ms", "/ bound", "search, ms", "/ bound"};
    static const char *const problem_titles[] = {
        "problem", "buffers", "lower bound", "fits, ms", "retold, worst, ms", "MiniMalloc, ms", "arena", "", "in ms"};
    plans p = {
        .rounds = args->rounds, .peer = args->minimalloc, .graph_rows = json_array(), .problem_rows = json_array()};
    weir_status status = WEIR_OK;
    bench_goals_begin(&p.goals);
    bench_titles(&p.graphs, graph_titles, sizeof graph_titles / sizeof graph_titles[0], 1);
    bench_titles(&p.problems, problem_titles, sizeof problem_titles / sizeof problem_titles[0], 1);
    for (size_t i = 0; i < args->problems.count && status == WEIR_OK; i++)
        status = run_path(&p, args->problems.at[i]);
    for (size_t i = 0; i < GRAPHS && status == WEIR_OK; i++)
        status = part_plans_run_graph(&p, &graphs[i]);
    bench_goal(&p.goals, "the problems", "sum of ms, of MiniMalloc's", 1,
               p.peer_sum > 0 ? p.beside_sum / p.peer_sum : NAN);
    if (status == WEIR_OK)
        part_plans_answer_all(&p, answer);
    else
        cli_fail("%s", weir_detail());
    bench_goals_end(&p.goals);
    table_clear(&p.graphs);
    table_clear(&p.problems);
    json_decref(p.graph_rows);
    json_decref(p.problem_rows);
    return status == WEIR_OK ? CLI_OK : CLI_FAILED;
}
