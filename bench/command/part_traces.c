/* part_traces.c: each trace by each allocator: without a cap, under caps, under the smallest cap, and with lag. */
#include "allocators.h"
#include "bench.h"

#include "cli/replay/replay.h"
#include "cli/terminal.h"

#include <weir/weir.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 64 };

/* One trace by one allocator. What was not measured is NAN. Held and caps are over what was requested at the peak;
 * times are nanoseconds per event. */
typedef struct replayed {
    double held, ns;                      /* without a cap, over two passes */
    double calls, moves;                  /* per allocation in the second of them */
    double cap, cap_ns;                   /* the smallest cap, and the time under it */
    double ns_105, ns_110;                /* under caps of 1.05 and 1.10; NAN too if the trace does not complete */
    double lag_held, lag_cap, lag_cap_ns; /* with lag gates */
    char failed[200];
} replayed;

typedef struct trace {
    wi_replay_plan plan;
    char name[64]; /* of its file, without suffixes */
    replayed by[BENCH_ALLOCATORS];
} trace;

/* An allocator of the bench in a replay ---------------------------------------------------------------------------- */

static struct {
    const bench_peer *by;
    weir_runtime *helper; /* NULL without gates */
    wi_replay_lag_gates *gates;
    weir_stream known[STREAMS];
    uint64_t streams[STREAMS];
    uint16_t count;
    char detail[256];
} current;

static const char *detail(void)
{
    return current.detail;
}

static weir_status part_traces_fail(weir_status status, const char *what)
{
    snprintf(current.detail, sizeof current.detail, "%s: %s", current.by->name, what);
    return status;
}

/* What the loop calls ---------------------------------------------------------------------------------------------- */

static weir_status part_traces_allocate_now(void *user, const wi_replay_op *op, void **out)
{
    const bench_peer *by = user;
    *out = by->allocate(by->self, op->bytes, current.streams[op->stream]);
    return __builtin_expect(*out != NULL, 1) ? WEIR_OK : part_traces_fail(WEIR_ERR_OUT_OF_MEMORY, "it refused a block");
}

static weir_status part_traces_allocate(void *user, const wi_replay_op *op, void **out)
{
    const bench_peer *by = user;
    weir_status status = part_traces_allocate_now(user, op, out);
    if (__builtin_expect(status != WEIR_OK, 0) && by->retry && by->retry(by->self))
        status = part_traces_allocate_now(user, op, out);
    return status;
}

static weir_status part_traces_release(void *user, const wi_replay_op *op, void *pointer)
{
    const bench_peer *by = user;
    return by->release(by->self, pointer, op->bytes, current.streams[op->stream])
               ? WEIR_OK
               : part_traces_fail(WEIR_ERR_DRIVER, "it did not take a block back");
}

static weir_status part_traces_drain(void *user)
{
    const bench_peer *by = user;
    if (by->synchronize)
        by->synchronize(by->self);
    return WEIR_OK;
}

static weir_status part_traces_counts(void *user, wi_replay_counts *out)
{
    const bench_peer *by = user;
    *out = (wi_replay_counts){.peak_held = by->peak_held(by->self)};
    return WEIR_OK;
}

/* Begun and ended -------------------------------------------------------------------------------------------------- */

static weir_status end_replay(void)
{
    const bench_peer *by = current.by;
    if (current.gates)
        current.gates->end(current.gates->user);
    current.gates = NULL;
    for (uint16_t i = 0; i < current.count; i++)
        if (current.known[i].id)
            (void)!weir_stream_unregister(current.known[i]);
    if (current.helper)
        (void)!weir_runtime_destroy(current.helper);
    current.helper = NULL;
    bench_leave_thread(by);
    by->end(by->self);
    return WEIR_OK;
}

/* The streams as the gates want them. */
static weir_status begin_gates(const wi_replay_world *how)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = UINT64_C(64) << 20, .resource = "direct"};
    weir_status status = weir_runtime_create(how->device, &options, &current.helper);
    for (uint16_t i = 0; i < how->streams && status == WEIR_OK; i++) {
        const bench_peer *by = current.by;
        void *native = by->native ? by->native(by->self, current.streams[i]) : (void *)(uintptr_t)current.streams[i];
        status = weir_stream_register(current.helper, native, &current.known[i]);
    }
    if (status == WEIR_OK)
        status = wi_replay_lag_gates_make(how, current.helper, current.known, &current.gates);
    return status == WEIR_OK ? status : part_traces_fail(status, weir_detail());
}

static weir_status open_replay(const wi_replay_world *how, wi_replay_target *out)
{
    const bench_peer *by = current.by;
    current.count = 0;
    memset(current.known, 0, sizeof current.known);
    if (how->streams > STREAMS)
        return part_traces_fail(WEIR_ERR_UNSUPPORTED, "there are not so many streams here");
    const char *failure = by->begin(by->self, how->budget);
    if (failure)
        return part_traces_fail(WEIR_ERR_DRIVER, failure);
    bench_enter_thread(by);
    for (; current.count < how->streams && !failure; current.count++)
        failure = by->stream(by->self, current.count, &current.streams[current.count]);
    weir_status status = failure ? part_traces_fail(WEIR_ERR_DRIVER, failure) : how->lag ? begin_gates(how) : WEIR_OK;
    if (status != WEIR_OK) {
        (void)end_replay();
        return status;
    }
    *out = (wi_replay_target){.user = (void *)by,
                              .allocate = part_traces_allocate,
                              .allocate_now = part_traces_allocate_now,
                              .release = part_traces_release,
                              .drain = part_traces_drain,
                              .counts = part_traces_counts,
                              .detail = detail,
                              .gates = current.gates};
    return WEIR_OK;
}

static weir_status close_replay(wi_replay_target *target)
{
    *target = (wi_replay_target){0};
    return end_replay();
}

/* Returns a maker that replays with this allocator, whose peak_held must not be NULL. Only the allocator of the last
 * call is in use. */
static const wi_replay_maker *part_traces_maker_of(const bench_peer *by)
{
    static const wi_replay_maker maker = {open_replay, close_replay, detail};
    current.by = by;
    return &maker;
}

/* Goals ------------------------------------------------------------------------------------------------------------ */

typedef struct sides {
    const replayed *own, *torch, *expandable, *pool; /* NULL: not there */
} sides;

static sides find_sides(const trace *t, const bench_allocators *all)
{
    sides s = {0};
    for (size_t i = 0; i < all->count; i++) {
        const char *name = all->at[i].by.name;
        if (all->at[i].own && !s.own)
            s.own = &t->by[i];
        else if (strstr(name, "PyTorch") && strstr(name, "expandable"))
            s.expandable = &t->by[i];
        else if (strstr(name, "PyTorch"))
            s.torch = &t->by[i];
        else if (strstr(name, "cuMemAllocAsync"))
            s.pool = &t->by[i];
    }
    return s;
}

static double of(const replayed *r, size_t member)
{
    double value = NAN;
    if (r)
        memcpy(&value, (const char *)r + member, sizeof value);
    return value;
}

/* Over the best of the peers; NAN without peers. */
static double of_best(const sides *s, size_t member)
{
    double best = fmin(fmin(of(s->torch, member), of(s->expandable, member)), of(s->pool, member));
    return of(s->own, member) / best; /* fmin leaves NANs out */
}

/* What a small cap may cost. bert_serve, whose blocks hardly fit, has goals of its own. */
static void cost_goals(const trace *t, const replayed *own, bench_goals *goals)
{
    const char *name = t->name;
    if (strcmp(name, "bert_serve") == 0) {
        bench_goal(goals, name, "ns per event, cap 1.05", 400, own->ns_105);
        bench_goal(goals, name, "ns per event, cap 1.10", 200, own->ns_110);
    } else {
        bench_goal(goals, name, "cost under 1.05, of that without", 1.2, own->ns_105 / own->ns);
        bench_goal(goals, name, "cost under 1.10, of that without", 1.2, own->ns_110 / own->ns);
    }
}

static void part_traces_add_goals(const trace *t, const bench_allocators *all, bench_goals *goals)
{
    sides s = find_sides(t, all);
    const replayed *own = s.own;
    const char *name = t->name;
    if (!own)
        return;
    bench_goal(goals, name, "least cap over requested", t->plan.streams > 1 ? 1.03 : 1.01, own->cap);
    bench_goal(goals, name, "cost there, of expandable segments' at theirs", 2,
               own->cap_ns / of(s.expandable, offsetof(replayed, cap_ns)));
    bench_goal(goals, name, "least cap with lag, of the best peer's", 1, of_best(&s, offsetof(replayed, lag_cap)));
    cost_goals(t, own, goals);
    bench_goal(goals, name, "held without a cap, of the best peer's", 1, of_best(&s, offsetof(replayed, held)));
    bench_goal(goals, name, "held without a cap over requested", 1.10, own->held);
    bench_goal(goals, name, "moves per allocation", 0.002, own->moves);
    bench_goal(goals, name, "driver calls per allocation", 0.001, own->calls);
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

typedef struct traces {
    bench_allocators all;
    trace *list;
    size_t count;
    uint64_t lag;
} traces;

static int read_trace(traces *t, const char *path)
{
    trace read = {0};
    if (wi_replay_load(path, &read.plan) != WEIR_OK)
        return cli_fail("%s", weir_detail());
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    snprintf(read.name, sizeof read.name, "%.*s", (int)strcspn(file, "."), file);
    t->list = text_grow(t->list, t->count + 1, sizeof *t->list);
    t->list[t->count++] = read;
    return CLI_OK;
}

/* A file, or every file of a folder. */
static int part_traces_read_path(traces *t, const char *path)
{
    size_t count;
    char **files = bench_files(path, "", &count);
    int status = count > 0 ? CLI_OK : cli_fail("%s: no trace is in that folder", path);
    for (size_t i = 0; i < count && status == CLI_OK; i++)
        status = read_trace(t, files[i]);
    bench_files_free(files, count);
    return status;
}

/* Measuring -------------------------------------------------------------------------------------------------------- */

typedef struct task {
    const wi_replay_plan *plan;
    const bench_allocator *by;
    wi_replay_settings settings;
    replayed *out;
} task;

static void part_traces_note(task *t)
{
    if (!t->out->failed[0])
        snprintf(t->out->failed, sizeof t->out->failed, "%s", weir_detail());
}

/* NAN for 0: it is not known. */
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
        part_traces_note(t);
    return good && result->passes[result->count - 1].failures == 0;
}

static void without_cap(task *t)
{
    wi_replay_result result;
    replayed *out = t->out;
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
        part_traces_note(t);
    } else if (found.bytes > 0) {
        *cap = of_peak(t, found.bytes);
        *ns = found.ns;
    }
}

static void part_traces_behind(task *t, uint64_t lag)
{
    wi_replay_result result;
    if (two_passes(t, 0, lag, &result))
        t->out->lag_held = of_peak(t, result.peak_held);
    wi_replay_result_clear(&result);
    smallest(t, lag, &t->out->lag_cap, &t->out->lag_cap_ns);
}

static void part_traces_measure(task *t, uint64_t lag)
{
    *t->out = (replayed){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, ""};
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
        part_traces_behind(t, lag);
}

static void part_traces_measure_all(traces *t, const bench_args *args)
{
    for (size_t i = 0; i < t->count; i++)
        for (size_t j = 0; j < t->all.count; j++) {
            const bench_allocator *by = &t->all.at[j];
            task next = {.plan = &t->list[i].plan,
                         .by = by,
                         .settings = {.device = args->device,
                                      .resource = args->resource,
                                      .maker = by->own ? NULL : part_traces_maker_of(&by->by)},
                         .out = &t->list[i].by[j]};
            terminal_progress(t->list[i].name, (double)j / (double)t->all.count);
            part_traces_measure(&next, t->lag);
        }
    terminal_progress_end();
}

/* Leaves out weir's second row, and allocators that cannot tell what they hold. */
static void keep_measurable(bench_allocators *all)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->count; i++) {
        const bench_peer *by = &all->at[i].by;
        if (by->peak_held && !(all->at[i].own && i > 0))
            all->at[kept++] = all->at[i];
        else if (by->close)
            by->close(by->self);
    }
    all->count = kept;
}

/* Answers ---------------------------------------------------------------------------------------------------------- */

static void part_traces_print_row(const traces *t, const trace *one, size_t by, table *grid)
{
    const replayed *r = &one->by[by];
    table_row(grid);
    table_cell(grid, by == 0 ? one->name : "", "", false);
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

static void part_traces_print_all(const traces *t, bench_goals *goals)
{
    static const char *const titles[] = {"trace",    "by",       "no cap", "ns",    "least cap",   "ns there",
                                         "ns, 1.05", "ns, 1.10", "calls",  "moves", "lag: no cap", "least cap"};
    table grid = {0};
    bench_titles(&grid, titles, sizeof titles / sizeof titles[0], 2);
    for (size_t i = 0; i < t->count; i++)
        for (size_t j = 0; j < t->all.count; j++)
            part_traces_print_row(t, &t->list[i], j, &grid);
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

static json_t *part_traces_row_json(const trace *one, const bench_allocator *by, const replayed *r)
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
    json_t *row = json_pack("{s:o, s:o, s:b, s:I, s:I, s:I}", "trace", text_json(one->name), "by",
                            text_json(by->by.name), "own", by->own, "events", (json_int_t)one->plan.count, "streams",
                            (json_int_t)one->plan.streams, "peak_requested", (json_int_t)one->plan.peak);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        json_object_set_new(row, figures[i].name, bench_number_json(figures[i].value));
    if (r->failed[0])
        json_object_set_new(row, "failed", text_json(r->failed));
    return row;
}

static json_t *part_traces_all_json(const traces *t, bench_goals *goals)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < t->count; i++)
        for (size_t j = 0; j < t->all.count; j++)
            json_array_append_new(rows, part_traces_row_json(&t->list[i], &t->all.at[j], &t->list[i].by[j]));
    return json_pack("{s:I, s:o, s:o, s:O}", "lag", (json_int_t)t->lag, "rows", rows, "goals", bench_goals_json(goals),
                     "left_out", t->all.left_out);
}

static int part_traces_verdict(const traces *t)
{
    for (size_t i = 0; i < t->count; i++)
        for (size_t j = 0; j < t->all.count; j++)
            if (t->all.at[j].own && t->list[i].by[j].failed[0])
                return cli_fail("%s by weir: %s", t->list[i].name, t->list[i].by[j].failed);
    return CLI_OK;
}

static void part_traces_answer_all(const traces *t, json_t *answer)
{
    bench_goals goals;
    bench_goals_begin(&goals);
    for (size_t i = 0; i < t->count; i++)
        part_traces_add_goals(&t->list[i], &t->all, &goals);
    if (answer)
        json_object_set_new(answer, "traces", part_traces_all_json(t, &goals));
    else
        part_traces_print_all(t, &goals);
    bench_goals_end(&goals);
}

int bench_part_traces(const bench_args *args, json_t *answer)
{
    traces t = {.lag = args->lag};
    int status = CLI_OK;
    for (size_t i = 0; i < args->traces.count && status == CLI_OK; i++)
        status = part_traces_read_path(&t, args->traces.at[i]);
    if (status == CLI_OK) {
        bench_allocators_open(&t.all, args->device, args->resource, &args->peers);
        keep_measurable(&t.all);
        part_traces_measure_all(&t, args);
        part_traces_answer_all(&t, answer);
        status = part_traces_verdict(&t);
        bench_allocators_close(&t.all);
    }
    for (size_t i = 0; i < t.count; i++)
        wi_replay_plan_clear(&t.list[i].plan);
    free(t.list);
    return status;
}
