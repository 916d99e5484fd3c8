/* part_lending.c: memory that one client left behind, taken by another and given back to the device; and how much that
 * slows a kernel on a GPU. */
#include "bench.h"

#include "cli/replay/replay.h"
#include "cli/text.h"

#include <weir/weir.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* What one step did. */
typedef struct step {
    const char *what;
    uint64_t bytes, without_call, calls, moved;
    double microseconds;
} step;

enum { TAKE_ALL, TAKE_AGAIN, GIVE_BACK, STEPS };

typedef struct lending {
    weir_runtime *runtime;
    weir_client *first, *second;
    weir_stream streams[2];
    step steps[STEPS];
    bench_interference beside[BENCH_LENDS];
} lending;

static weir_stats part_lending_look(const lending *l)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    if (weir_snapshot(l->runtime, &stats, NULL, 0, NULL) != WEIR_OK)
        stats = (weir_stats){0};
    return stats;
}

/* What the first client left behind -------------------------------------------------------------------------------- */

static weir_status part_lending_allocate(void *user, const wi_replay_op *op, void **out)
{
    const lending *l = user;
    return weir_alloc(l->first, op->bytes, l->streams[0], (weir_class)op->memory_class, out);
}

static weir_status part_lending_release(void *user, const wi_replay_op *op, void *pointer)
{
    const lending *l = user;
    (void)op;
    return weir_free(l->first, pointer, l->streams[0]);
}

static weir_status part_lending_drain(void *user)
{
    const lending *l = user;
    return weir_stream_synchronize(l->streams[0]);
}

static weir_status part_lending_counts(void *user, wi_replay_counts *out)
{
    weir_stats stats = part_lending_look(user);
    *out = (wi_replay_counts){.driver_calls = stats.driver_calls, .peak_held = stats.peak_held};
    return WEIR_OK;
}

static weir_status part_lending_replay(lending *l, const char *path)
{
    wi_replay_plan plan = {0};
    wi_replay_pass pass;
    wi_replay_target target = {.user = l,
                               .allocate = part_lending_allocate,
                               .release = part_lending_release,
                               .drain = part_lending_drain,
                               .counts = part_lending_counts,
                               .detail = weir_detail};
    weir_status status = wi_replay_load(path, &plan);
    if (status == WEIR_OK)
        status = wi_replay_loop(&plan, &target, true, &pass);
    wi_replay_plan_clear(&plan);
    return status;
}

/* Without a trace: blocks of many sizes, 1.2 GiB or half the budget, of which every second is freed before the others.
 */
static weir_status allocate_and_free(lending *l)
{
    enum { BLOCKS = 512, UNITS = 64, MOST_UNIT = 80000 };
    static void *blocks[BLOCKS];
    uint64_t unit = cli_runtime(l->runtime).budget / ((uint64_t)BLOCKS * UNITS);
    weir_status status = WEIR_OK;
    unit = unit < MOST_UNIT ? unit : MOST_UNIT;
    for (uint64_t i = 0; i < BLOCKS && status == WEIR_OK; i++)
        status = weir_alloc(l->first, (1 + i * 7 % UNITS) * unit, l->streams[0], WEIR_CLASS_ACTIVATIONS, &blocks[i]);
    for (int half = 0; half < 2 && status == WEIR_OK; half++)
        for (int i = half; i < BLOCKS && status == WEIR_OK; i += 2)
            status = weir_free(l->first, blocks[i], l->streams[0]);
    return status == WEIR_OK ? weir_stream_synchronize(l->streams[0]) : status;
}

/* Steps ------------------------------------------------------------------------------------------------------------ */

static void part_lending_note(lending *l, step *s, const weir_stats *before, uint64_t start)
{
    s->microseconds = (double)(bench_now() - start) / 1000.0;
    weir_stats after = part_lending_look(l);
    s->calls = after.driver_calls - before->driver_calls;
    s->moved = after.moved - before->moved;
}

typedef struct side {
    weir_client *client;
    weir_stream stream;
} side;

/* One block, allocated and freed again. */
static weir_status take_one(lending *l, step *s, side by, uint64_t bytes)
{
    void *block;
    weir_stats before = part_lending_look(l);
    uint64_t start = bench_now();
    weir_status status = weir_alloc(by.client, bytes, by.stream, WEIR_CLASS_ACTIVATIONS, &block);
    if (status != WEIR_OK)
        return status;
    part_lending_note(l, s, &before, start);
    s->bytes = bytes;
    weir_stats after = part_lending_look(l);
    uint64_t created = after.held - (before.held < after.held ? before.held : after.held);
    s->without_call = s->calls == 0 ? bytes : bytes - (created < bytes ? created : bytes);
    status = weir_free(by.client, block, by.stream);
    return status == WEIR_OK ? weir_stream_synchronize(by.stream) : status;
}

static int part_lending_by_time(const void *a, const void *b)
{
    const step *x = a, *y = b;
    return x->microseconds < y->microseconds ? -1 : x->microseconds > y->microseconds;
}

/* Back and forth between the two: the median of the times, the sum of calls and moves. */
static weir_status part_lending_take_turns(lending *l, const side sides[2], uint64_t bytes)
{
    enum { TURNS = 15 };
    step turns[TURNS], *out = &l->steps[TAKE_AGAIN];
    uint64_t calls = 0, moves = 0;
    for (int i = 0; i < TURNS; i++) {
        turns[i] = *out;
        weir_status status = take_one(l, &turns[i], sides[i % 2], bytes);
        if (status != WEIR_OK)
            return status;
        calls += turns[i].calls;
        moves += turns[i].moved;
    }
    qsort(turns, TURNS, sizeof *turns, part_lending_by_time);
    *out = turns[TURNS / 2];
    out->calls = calls;
    out->moved = moves;
    return WEIR_OK;
}

static weir_status part_lending_run(lending *l)
{
    const side sides[2] = {{l->first, l->streams[0]}, {l->second, l->streams[1]}};
    weir_stats s = part_lending_look(l);
    uint64_t bytes = s.cached < GIB + GIB / 16 ? s.cached / 16 * 15 : GIB;
    weir_status status = take_one(l, &l->steps[TAKE_ALL], sides[1], bytes);
    if (status == WEIR_OK)
        status = part_lending_take_turns(l, sides, bytes);
    weir_stats before = part_lending_look(l);
    weir_trim_options options = {.struct_size = sizeof options, .keep = 64 * MIB};
    weir_trim_report report = {.struct_size = offsetof(weir_trim_report, left)};
    uint64_t start = bench_now();
    if (status == WEIR_OK)
        status = weir_runtime_trim(l->runtime, &options, &report);
    part_lending_note(l, &l->steps[GIVE_BACK], &before, start);
    l->steps[GIVE_BACK].bytes = report.released;
    return status;
}

/* Open and close --------------------------------------------------------------------------------------------------- */

static weir_status part_lending_open_client(lending *l, const char *name, weir_client **out, weir_stream *stream)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = name;
    weir_status status = weir_client_create(l->runtime, &options, out);
    return status == WEIR_OK ? weir_stream_acquire(l->runtime, stream) : status;
}

static weir_status part_lending_measure(lending *l, const bench_args *args)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.resource = args->resource;
    weir_status status = weir_runtime_create(args->device, &options, &l->runtime);
    if (status == WEIR_OK)
        status = part_lending_open_client(l, "lender", &l->first, &l->streams[0]);
    if (status == WEIR_OK)
        status = part_lending_open_client(l, "borrower", &l->second, &l->streams[1]);
    if (status == WEIR_OK)
        status = args->traces.count > 0 ? part_lending_replay(l, args->traces.at[0]) : allocate_and_free(l);
    return status == WEIR_OK ? part_lending_run(l) : status;
}

static void part_lending_end(lending *l)
{
    weir_client *clients[2] = {l->first, l->second};
    for (int i = 0; i < 2; i++) {
        if (l->streams[i].id)
            (void)!weir_stream_release(l->streams[i]);
        if (clients[i])
            (void)!weir_client_destroy(clients[i]);
    }
    if (l->runtime)
        (void)!weir_runtime_destroy(l->runtime);
}

static double us_per_gib(const step *s)
{
    return s->bytes ? s->microseconds * (double)GIB / (double)s->bytes : NAN;
}

static void print_steps(const lending *l)
{
    static const char *const titles[] = {"lending", "bytes", "us", "driver calls", "moved handles", "us per GiB"};
    table grid = {0};
    bench_titles(&grid, titles, sizeof titles / sizeof titles[0], 1);
    for (const step *s = l->steps; s < l->steps + STEPS; s++) {
        char size[24];
        table_row(&grid);
        table_cell(&grid, s->what, "", false);
        table_cell(&grid, weir_size_format(s->bytes, size, sizeof size), "", true);
        bench_number(&grid, s->microseconds, 1);
        bench_number(&grid, (double)s->calls, 0);
        bench_number(&grid, (double)s->moved, 0);
        bench_number(&grid, us_per_gib(s), 1);
    }
    table_print(&grid, stdout);
    table_clear(&grid);
}

static void print_beside(const lending *l)
{
    static const char *const titles[] = {"a kernel beside lends", "alone, ms", "beside, ms", "ratio", "lends",
                                         "moved handles"};
    table grid = {0};
    bench_titles(&grid, titles, sizeof titles / sizeof titles[0], 1);
    for (const bench_interference *b = l->beside; b < l->beside + BENCH_LENDS; b++) {
        table_row(&grid);
        table_cell(&grid, b->what, "", false);
        bench_number(&grid, b->alone, 3);
        bench_number(&grid, b->with, 3);
        bench_number(&grid, b->slowed, 4);
        bench_number(&grid, (double)b->lends, 0);
        bench_number(&grid, (double)b->moved, 0);
    }
    puts("");
    table_print(&grid, stdout);
    table_clear(&grid);
}

/* What is asked of a GPU. */
static void set_goals(const lending *l, bench_goals *goals)
{
    const step *again = &l->steps[TAKE_AGAIN], *back = &l->steps[GIVE_BACK];
    bench_goal(goals, again->what, "us per GiB", 10, us_per_gib(again));
    bench_goal(goals, back->what, "ms per GiB", 150, us_per_gib(back) / 1000);
    for (const bench_interference *b = l->beside; b < l->beside + BENCH_LENDS; b++)
        bench_goal(goals, "a kernel beside lends", b->what, 1.01, b->pairs ? b->slowed : NAN);
}

static json_t *part_lending_as_json(const lending *l)
{
    json_t *rows = json_array();
    for (const step *s = l->steps; s < l->steps + STEPS; s++)
        json_array_append_new(rows, json_pack("{s:s, s:I, s:f, s:I, s:I, s:I}", "what", s->what, "bytes",
                                              (json_int_t)s->bytes, "us", s->microseconds, "driver_calls",
                                              (json_int_t)s->calls, "moved", (json_int_t)s->moved,
                                              "without_driver_call", (json_int_t)s->without_call));
    return rows;
}

static json_t *beside_json(const lending *l)
{
    json_t *rows = json_array();
    for (const bench_interference *b = l->beside; b < l->beside + BENCH_LENDS && b->pairs; b++)
        json_array_append_new(rows, json_pack("{s:s, s:I, s:f, s:f, s:f, s:I, s:I, s:I}", "what", b->what, "pairs",
                                              (json_int_t)b->pairs, "alone_ms", b->alone, "beside_ms", b->with,
                                              "slowed", b->slowed, "lends", (json_int_t)b->lends, "bytes",
                                              (json_int_t)b->bytes, "moved", (json_int_t)b->moved));
    return rows;
}

static void part_lending_answer_all(const lending *l, bool gpu, json_t *answer)
{
    bool beside = l->beside[0].pairs > 0;
    bench_goals goals;
    bench_goals_begin(&goals);
    if (gpu)
        set_goals(l, &goals);
    if (answer) {
        json_object_set_new(answer, "lending", part_lending_as_json(l));
        json_object_set_new(answer, "lending_beside", beside_json(l));
        json_object_set_new(answer, "lending_goals", bench_goals_json(&goals));
    } else {
        print_steps(l);
        if (beside)
            print_beside(l);
        bench_goals_print(&goals);
    }
    bench_goals_end(&goals);
}

int bench_part_lending(const bench_args *args, json_t *answer)
{
    lending l = {.steps = {{.what = "taken over by another client, in one block"},
                           {.what = "taken back and forth, where it fits; the median"},
                           {.what = "given back to the device, but for 64 MiB"}}};
    bool gpu = strncmp(args->device, "cuda", 4) == 0;
    char why[1024];
    weir_status status = part_lending_measure(&l, args);
    snprintf(why, sizeof why, "%s", weir_detail());
    if (status == WEIR_OK && gpu)
        status = bench_interference_measure(args, l.beside, why, sizeof why);
    if (status == WEIR_ERR_UNSUPPORTED) /* without kernels the rest counts */
        status = WEIR_OK;
    int verdict = status == WEIR_OK ? CLI_OK : cli_fail("lending: %s", why);
    if (status == WEIR_OK)
        part_lending_answer_all(&l, gpu, answer);
    part_lending_end(&l);
    return verdict;
}
