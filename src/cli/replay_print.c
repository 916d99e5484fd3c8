#include "replay_print.h"

#include "table.h"
#include "terminal.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

typedef struct sums {
    uint64_t nanoseconds, driver_calls, moves, failures, waits, ladder[WEIR_RUNG_COUNT];
} sums;

static void add_sums(sums *to, const sums *more)
{
    to->nanoseconds += more->nanoseconds;
    to->driver_calls += more->driver_calls;
    to->moves += more->moves;
    to->failures += more->failures;
    to->waits += more->waits;
    for (int i = 0; i < WEIR_RUNG_COUNT; i++)
        to->ladder[i] += more->ladder[i];
}

/* Of the passes from `first` on, up to `end`. */
static sums add_passes(const wi_replay_result *r, size_t first, size_t end)
{
    sums s = {0};
    for (size_t i = first; i < end; i++) {
        const wi_replay_pass *pass = &r->passes[i];
        s.nanoseconds += pass->nanoseconds;
        s.driver_calls += pass->driver_calls;
        s.moves += pass->moves;
        s.failures += pass->failures;
        s.waits += pass->waits;
        for (int k = 0; k < WEIR_RUNG_COUNT; k++)
            s.ladder[k] += pass->ladder[k];
    }
    return s;
}

uint64_t replay_failures(const replay_answer *answer)
{
    return add_passes(&answer->result, 0, answer->result.count).failures;
}

static double over(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : 0;
}

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *number_if(bool known, uint64_t value)
{
    return known ? number(value) : json_null();
}

static json_t *real_if(bool known, double value)
{
    return known ? json_real(value) : json_null();
}

/* JSON ------------------------------------------------------------------------------------------------------------- */

/* How blocks that were not parked were come by. */
static json_t *ladder_json(bool known, const sums *s)
{
    json_t *object = known ? json_object() : json_null();
    for (int i = 0; known && i < WEIR_RUNG_COUNT; i++)
        json_object_set_new(object, weir_rung_name((weir_rung)i), number(s->ladder[i]));
    return object;
}

static json_t *passes_json(const replay_answer *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->result.count; i++) {
        const wi_replay_pass *pass = &a->result.passes[i];
        json_array_append_new(list, json_pack("{s:f, s:o, s:o, s:o, s:o}", "ns_per_event",
                                              over(pass->nanoseconds, a->plan.count), "driver_calls",
                                              number(pass->driver_calls), "moves",
                                              number_if(a->result.counts_moves, pass->moves), "failures",
                                              number(pass->failures), "waits", number(pass->waits)));
    }
    return list;
}

static json_t *problems_json(const wi_replay_plan *plan)
{
    json_t *list = json_array();
    for (size_t i = 0; i < plan->problem_count && i < WI_REPLAY_PROBLEMS; i++)
        json_array_append_new(list, json_pack("{s:o, s:s}", plan->binary ? "event" : "line",
                                              number(plan->problems[i].line), "what", plan->problems[i].what));
    return list;
}

static json_t *trace_json(const replay_answer *a)
{
    const wi_replay_plan *plan = &a->plan;
    const wi_replay_result *r = &a->result;
    sums s = add_passes(r, 0, r->count);
    bool found = a->smallest.bytes != 0;
    json_t *object =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "trace",
                  text_json(plan->name), "events", number(plan->count), "allocations", number(plan->allocations),
                  "frees", number(plan->frees), "live_at_end", number(plan->left_count), "streams",
                  number(plan->streams), "peak_requested", number(plan->peak), "peak_reserved", number(r->peak_held),
                  "held_ratio", over(r->peak_held, plan->peak), "cap", number_if(a->cap, a->cap), "ns_per_event",
                  wi_replay_ns(plan, r), "loop_ns_per_event", a->own, "driver_calls", number(s.driver_calls), "moves",
                  number_if(r->counts_moves, s.moves), "failures", number(s.failures), "waits", number(s.waits),
                  "passes", passes_json(a));
    json_t *rest = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "ladder",
                             ladder_json(r->counts_moves, &s), "min_cap", number_if(found, a->smallest.bytes),
                             "min_cap_ratio", real_if(found, over(a->smallest.bytes, plan->peak)),
                             "min_cap_ns_per_event", real_if(found, a->smallest.ns), "refused_in_trace",
                             number(plan->refused), "malformed", number(plan->problem_count), "malformed_lines",
                             problems_json(plan), "lost", number(plan->lost), "cut_off", plan->cut);
    json_object_update(object, rest);
    json_decref(rest);
    return object;
}

/* Of all traces: counts are sums, peaks and caps those of the trace that has the largest. */
json_t *replay_json(const replay_answers *all)
{
    uint64_t events = 0, passed = 0, peak = 0, held = 0, smallest = 0;
    bool moves = true, found = true;
    sums t = {0};
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const replay_answer *a = &all->list[i];
        sums s = add_passes(&a->result, 0, a->result.count);
        events += a->plan.count;
        passed += a->plan.count * a->result.count;
        peak = a->plan.peak > peak ? a->plan.peak : peak;
        held = a->result.peak_held > held ? a->result.peak_held : held;
        smallest = a->smallest.bytes > smallest ? a->smallest.bytes : smallest;
        found &= a->smallest.bytes != 0;
        moves &= a->result.counts_moves;
        add_sums(&t, &s);
        json_array_append_new(list, trace_json(a));
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "device", all->device,
                     "ladder", ladder_json(moves, &t), "resource",
                     all->resource ? text_json(all->resource) : json_null(), "lag", number(all->lag), "events",
                     number(events), "peak_requested", number(peak), "peak_reserved", number(held), "ns_per_event",
                     over(t.nanoseconds, passed), "driver_calls", number(t.driver_calls), "moves",
                     number_if(moves, t.moves), "failures", number(t.failures), "waits", number(t.waits), "min_cap",
                     number_if(found, smallest), "traces", list);
}

/* Table ------------------------------------------------------------------------------------------------------------ */

static void cell(table *grid, char *text)
{
    table_cell(grid, text, "", true);
    free(text);
}

static char *count_text(uint64_t value)
{
    return text_print("%llu", (unsigned long long)value);
}

static char *size_text(uint64_t bytes)
{
    char text[24];
    return text_copy(weir_size_format(bytes, text, sizeof text));
}

static void titles(table *grid, bool min_cap)
{
    static const char *const all[] = {"trace",        "events", "peak",    "held",    "ratio", "ns/event",
                                      "driver calls", "moves",  "refused", "min cap", "ratio", "ns/event"};
    table_row(grid);
    for (size_t i = 0; i < (min_cap ? 12 : 9); i++)
        table_cell(grid, all[i], terminal_bold(), i > 0);
}

/* Counts are those of all the passes, or of one of them on average. */
static void pass_cells(table *grid, const replay_answer *a, size_t first, size_t end, bool each)
{
    size_t count = end - first, parts = each ? count : 1;
    sums s = add_passes(&a->result, first, end);
    cell(grid, text_print("%.1f", over(s.nanoseconds, a->plan.count * count)));
    cell(grid, text_print("%.7g", over(s.driver_calls, parts)));
    cell(grid, a->result.counts_moves ? text_print("%.7g", over(s.moves, parts)) : text_copy("?"));
    cell(grid, text_print("%.7g", over(s.failures, parts)));
}

static void pass_row(table *grid, const replay_answer *a, const char *name, size_t first, size_t end)
{
    table_row(grid);
    table_cell(grid, name, terminal_faint(), false);
    for (int i = 0; i < 4; i++)
        table_cell(grid, "", "", true);
    pass_cells(grid, a, first, end, true);
}

static void trace_rows(table *grid, const replay_answer *a)
{
    const char *slash = strrchr(a->plan.name, '/');
    size_t passes = a->result.count;
    table_row(grid);
    table_cell(grid, slash && slash[1] ? slash + 1 : a->plan.name, "", false);
    cell(grid, count_text(a->plan.count));
    cell(grid, size_text(a->plan.peak));
    cell(grid, size_text(a->result.peak_held));
    cell(grid, text_print("%.3f", over(a->result.peak_held, a->plan.peak)));
    pass_cells(grid, a, 0, passes, false);
    if (a->min_cap && a->smallest.bytes) {
        cell(grid, size_text(a->smallest.bytes));
        cell(grid, text_print("%.3f", over(a->smallest.bytes, a->plan.peak)));
        cell(grid, text_print("%.1f", a->smallest.ns));
    } else if (a->min_cap) {
        table_cell(grid, "none", terminal_red(), true);
    }
    if (passes > 1) {
        pass_row(grid, a, "  first pass", 0, 1);
        pass_row(grid, a, "  each later one", 1, passes);
    }
}

/* What was left out of the trace, and what may have been wrong with it. */
static void print_remarks(const replay_answer *a, uint64_t lag)
{
    const wi_replay_plan *plan = &a->plan;
    char *name = text_clean(plan->name, strlen(plan->name), false);
    uint64_t waits = add_passes(&a->result, 0, a->result.count).waits;
    if (lag)
        printf("%s: streams %llu operations behind; %llu times that was too far, and they were let come up\n", name,
               (unsigned long long)lag, (unsigned long long)waits);
    for (size_t i = 0; i < plan->problem_count && i < WI_REPLAY_PROBLEMS; i++)
        printf("%s: %s %llu: %s\n", name, plan->binary ? "event" : "line", (unsigned long long)plan->problems[i].line,
               plan->problems[i].what);
    if (plan->problem_count)
        printf("%s: %llu %s left out\n", name, (unsigned long long)plan->problem_count,
               plan->binary ? "events were" : "lines were");
    if (plan->refused)
        printf("%s: %llu allocations that failed when it was recorded were left out\n", name,
               (unsigned long long)plan->refused);
    if (plan->lost)
        printf("%s: %llu events are missing\n", name, (unsigned long long)plan->lost);
    if (plan->cut)
        printf("%s: the file is cut off\n", name);
    free(name);
}

void replay_print(const replay_answers *all)
{
    table grid = {0};
    double own = 0;
    titles(&grid, all->list[0].min_cap);
    for (size_t i = 0; i < all->count; i++) {
        trace_rows(&grid, &all->list[i]);
        own = all->list[i].own > own ? all->list[i].own : own;
    }
    table_print(&grid, stdout);
    table_clear(&grid);
    printf("\nThe loop itself takes %.1f ns an event.\n", own);
    for (size_t i = 0; i < all->count; i++)
        print_remarks(&all->list[i], all->lag);
}
