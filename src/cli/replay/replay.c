/* replay.c: the verb replay: its arguments, the replays, their answer, and where memory lies at their end. */
#include "replay.h"

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "base/maps.h"
#include "base/values.h"
#include "trace/recording.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layout ----------------------------------------------------------------------------------------------------------- */

typedef struct replay_layout {
    json_t *traces; /* an array with an object for each walk */
    const wi_replay_plan *plan;
} replay_layout;

static json_t *replay_address(const void *pointer)
{
    char text[24];
    snprintf(text, sizeof text, "%p", pointer);
    return pointer ? json_string(text) : json_null();
}

/* `name`: whose the block was in the trace; NULL: that is not known. */
static json_t *span_json(const weir_span *span, const wi_replay_name *name)
{
    const char *client = name && name->client[0] ? name->client : span->client_name;
    const char *tag = name && name->tag[0] ? name->tag : span->tag;
    json_t *object = json_pack("{s:s, s:o, s:o}", "state", weir_name_of(WEIR_NAMES_SPAN, span->state), "address",
                               replay_address(span->address), "bytes", text_json_count(span->bytes));
    if (span->state == WEIR_SPAN_ORDERED || span->block.pointer)
        json_object_set_new(object, "stream", text_json_count(span->stream.id));
    if (!span->block.pointer)
        return object;
    json_t *block =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "block", replay_address(span->block.pointer), "generation",
                  text_json_count(span->block.generation), "charged", text_json_count(span->charged), "requested",
                  text_json_count(span->requested), "client", text_json(client), "tag", text_json(tag), "class",
                  weir_name_of(WEIR_NAMES_CLASS, span->memory_class));
    json_object_update(object, block);
    json_decref(block);
    return object;
}

/* The segments of one walk. */
typedef struct walk {
    json_t *segments, *spans; /* spans: of the last one */
    const wi_replay_plan *plan;
    wi_pointer_map left; /* which of the plan's blocks that are left lies where */
} walk;

static void add_span(const weir_segment *segment, const weir_span *span, void *user)
{
    walk *l = user;
    if (json_array_size(l->segments) <= segment->number) {
        l->spans = json_array();
        json_array_append_new(l->segments, json_pack("{s:o, s:o, s:o}", "address", replay_address(segment->address),
                                                     "bytes", text_json_count(segment->bytes), "spans", l->spans));
    }
    uint64_t place;
    bool live = span->state == WEIR_SPAN_LIVE && wi_pointer_map_get(&l->left, span->block.pointer, &place);
    json_array_append_new(l->spans, span_json(span, live ? &l->plan->left_names[place] : NULL));
}

/* Adds the layout of the target: at_end of wi_replay_settings. */
static weir_status layout_add(void *user, const wi_replay_target *target, void *const *blocks)
{
    replay_layout *layout = user;
    weir_layout_totals totals = WEIR_INIT(weir_layout_totals);
    walk l = {.segments = json_array(), .plan = layout->plan};
    for (size_t i = 0; i < l.plan->left_count; i++)
        (void)wi_pointer_map_put(&l.left, blocks[l.plan->ops[l.plan->left[i]].slot], i);
    weir_status status = target->walk(target->user, add_span, &l, &totals);
    wi_pointer_map_clear(&l.left);
    json_t *bytes = json_object();
    for (int state = 0; state < WEIR_SPAN_COUNT; state++)
        json_object_set_new(bytes, weir_name_of(WEIR_NAMES_SPAN, state), text_json_count(totals.bytes[state]));
    json_array_append_new(layout->traces,
                          json_pack("{s:o, s:o, s:o, s:o, s:o}", "trace", text_json(layout->plan->name), "held",
                                    text_json_count(totals.held), "in_hand", text_json_count(totals.in_hand), "bytes",
                                    bytes, "segments", l.segments));
    return status;
}

/* False: the file cannot be written. */
static bool layout_write(const replay_layout *layout, const char *path)
{
    json_t *object = json_pack("{s:O}", "traces", layout->traces);
    bool written = json_dump_file(object, path, JSON_INDENT(1)) == 0;
    json_decref(object);
    return written;
}

/* Answer ----------------------------------------------------------------------------------------------------------- */

typedef struct replay_answer {
    wi_replay_plan plan;
    wi_replay_result result;
    wi_replay_cap smallest;
    uint64_t cap; /* 0: none */
    double own;   /* nanoseconds per event of the loop itself, which are part of every figure */
    bool min_cap; /* it was searched for */
} replay_answer;

typedef struct replay_answers {
    const char *device, *resource;
    uint64_t lag;
    const replay_answer *list;
    size_t count;
} replay_answers;

typedef struct sums {
    uint64_t nanoseconds, driver_calls, moves, failures, waits, ladder[WEIR_RUNG_COUNT];
} sums;

/* Adds the passes [first, end). */
static void add_passes(sums *to, const wi_replay_result *r, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        const wi_replay_pass *pass = &r->passes[i];
        to->nanoseconds += pass->nanoseconds;
        to->driver_calls += pass->driver_calls;
        to->moves += pass->moves;
        to->failures += pass->failures;
        to->waits += pass->waits;
        for (int k = 0; k < WEIR_RUNG_COUNT; k++)
            to->ladder[k] += pass->ladder[k];
    }
}

static sums replay_sums_of(const wi_replay_result *r, size_t first, size_t end)
{
    sums s = {0};
    add_passes(&s, r, first, end);
    return s;
}

/* The operation that was refused first; NULL: none was. *pass counts from 1. */
static const wi_replay_op *first_refused(const replay_answer *a, size_t *pass)
{
    for (size_t i = 0; i < a->result.count; i++)
        if (a->result.passes[i].failures > 0) {
            *pass = i + 1;
            return &a->plan.ops[a->result.passes[i].first];
        }
    return NULL;
}

/* What the trace had live before an operation. */
static uint64_t live_before(const wi_replay_plan *plan, const wi_replay_op *end)
{
    uint64_t live = 0;
    for (const wi_replay_op *op = plan->ops; op < end; op++)
        live += op->frees ? -op->bytes : op->bytes;
    return live;
}

static uint64_t count_failures(const replay_answer *answer)
{
    return replay_sums_of(&answer->result, 0, answer->result.count).failures;
}

static double replay_over(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : 0;
}

static json_t *number_if(bool known, uint64_t value)
{
    return known ? text_json_count(value) : json_null();
}

static json_t *real_if(bool known, double value)
{
    return known ? json_real(value) : json_null();
}

/* JSON ------------------------------------------------------------------------------------------------------------- */

/* The rungs by which blocks were found that no thread cache had. */
static json_t *ladder_json(bool known, const sums *s)
{
    json_t *object = known ? json_object() : json_null();
    for (int i = 0; known && i < WEIR_RUNG_COUNT; i++)
        json_object_set_new(object, weir_name_of(WEIR_NAMES_RUNG, i), text_json_count(s->ladder[i]));
    return object;
}

static json_t *passes_json(const replay_answer *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->result.count; i++) {
        const wi_replay_pass *pass = &a->result.passes[i];
        json_array_append_new(list, json_pack("{s:f, s:o, s:o, s:o, s:o}", "ns_per_event",
                                              replay_over(pass->nanoseconds, a->plan.count), "driver_calls",
                                              text_json_count(pass->driver_calls), "moves",
                                              number_if(a->result.counts_moves, pass->moves), "failures",
                                              text_json_count(pass->failures), "waits", text_json_count(pass->waits)));
    }
    return list;
}

static json_t *replay_problems_json(const wi_replay_plan *plan)
{
    json_t *list = json_array();
    for (size_t i = 0; i < plan->problem_count && i < WI_REPLAY_PROBLEMS; i++)
        json_array_append_new(list, json_pack("{s:o, s:s}", plan->binary ? "event" : "line",
                                              text_json_count(plan->problems[i].line), "what", plan->problems[i].what));
    return list;
}

static json_t *replay_first_json(const replay_answer *a)
{
    size_t pass;
    const wi_replay_op *op = first_refused(a, &pass);
    if (!op)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o}", a->plan.binary ? "event" : "line",
                     text_json_count(a->plan.lines[op - a->plan.ops]), "bytes", text_json_count(op->bytes), "live",
                     text_json_count(live_before(&a->plan, op)), "pass", text_json_count(pass));
}

static json_t *replay_trace_json(const replay_answer *a)
{
    const wi_replay_plan *plan = &a->plan;
    const wi_replay_result *r = &a->result;
    sums s = replay_sums_of(r, 0, r->count);
    bool found = a->smallest.bytes != 0;
    json_t *object =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "trace",
                  text_json(plan->name), "events", text_json_count(plan->count), "allocations",
                  text_json_count(plan->allocations), "frees", text_json_count(plan->frees), "live_at_end",
                  text_json_count(plan->left_count), "streams", text_json_count(plan->streams), "peak_requested",
                  text_json_count(plan->peak), "peak_reserved", text_json_count(r->peak_held), "held_ratio",
                  replay_over(r->peak_held, plan->peak), "cap", number_if(a->cap, a->cap), "ns_per_event",
                  wi_replay_ns(plan, r), "loop_ns_per_event", a->own, "driver_calls", text_json_count(s.driver_calls),
                  "moves", number_if(r->counts_moves, s.moves), "failures", text_json_count(s.failures), "waits",
                  text_json_count(s.waits), "passes", passes_json(a));
    json_t *rest = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "ladder",
                             ladder_json(r->counts_moves, &s), "first_refused", replay_first_json(a), "empty",
                             text_json_count(plan->empty), "unknown", text_json_count(plan->unknown), "min_cap",
                             number_if(found, a->smallest.bytes), "min_cap_ratio",
                             real_if(found, replay_over(a->smallest.bytes, plan->peak)), "min_cap_ns_per_event",
                             real_if(found, a->smallest.ns), "refused_in_trace", text_json_count(plan->refused), "left",
                             text_json_count(plan->leaves), "returned", text_json_count(plan->returns), "malformed",
                             text_json_count(plan->problem_count), "malformed_lines", replay_problems_json(plan),
                             "lost", text_json_count(plan->lost), "cut_off", plan->cut);
    json_object_update(object, rest);
    json_decref(rest);
    return object;
}

/* Counts are sums over all traces; peaks and caps are those of the trace with the largest. */
static json_t *answers_json(const replay_answers *all)
{
    uint64_t events = 0, passed = 0, peak = 0, held = 0, smallest = 0;
    bool moves = true, found = true;
    sums t = {0};
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const replay_answer *a = &all->list[i];
        events += a->plan.count;
        passed += a->plan.count * a->result.count;
        peak = a->plan.peak > peak ? a->plan.peak : peak;
        held = a->result.peak_held > held ? a->result.peak_held : held;
        smallest = a->smallest.bytes > smallest ? a->smallest.bytes : smallest;
        found &= a->smallest.bytes != 0;
        moves &= a->result.counts_moves;
        add_passes(&t, &a->result, 0, a->result.count);
        json_array_append_new(list, replay_trace_json(a));
    }
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "device", all->device, "ladder",
        ladder_json(moves, &t), "resource", all->resource ? text_json(all->resource) : json_null(), "lag",
        text_json_count(all->lag), "events", text_json_count(events), "peak_requested", text_json_count(peak),
        "peak_reserved", text_json_count(held), "ns_per_event", replay_over(t.nanoseconds, passed), "driver_calls",
        text_json_count(t.driver_calls), "moves", number_if(moves, t.moves), "failures", text_json_count(t.failures),
        "waits", text_json_count(t.waits), "min_cap", number_if(found, smallest), "traces", list);
}

/* Table ------------------------------------------------------------------------------------------------------------ */

static char *replay_size_text(uint64_t bytes)
{
    char text[24];
    return text_copy(weir_size_format(bytes, text, sizeof text));
}

/* Counts are sums over the passes, or with `each` the average of one pass. */
static void pass_cells(table *grid, const replay_answer *a, size_t first, size_t end, bool each)
{
    size_t count = end - first, parts = each ? count : 1;
    sums s = replay_sums_of(&a->result, first, end);
    table_own(grid, text_print("%.1f", replay_over(s.nanoseconds, a->plan.count * count)), "", true);
    table_own(grid, text_print("%.7g", replay_over(s.driver_calls, parts)), "", true);
    table_own(grid, a->result.counts_moves ? text_print("%.7g", replay_over(s.moves, parts)) : text_copy("?"), "",
              true);
    table_own(grid, text_print("%.7g", replay_over(s.failures, parts)), "", true);
}

static void pass_row(table *grid, const replay_answer *a, const char *name, size_t first, size_t end)
{
    table_row(grid);
    table_cell(grid, name, terminal_faint(), false);
    for (int i = 0; i < 4; i++)
        table_cell(grid, "", "", true);
    pass_cells(grid, a, first, end, true);
}

static void replay_trace_rows(table *grid, const replay_answer *a)
{
    const char *slash = strrchr(a->plan.name, '/');
    size_t passes = a->result.count;
    table_row(grid);
    table_cell(grid, slash && slash[1] ? slash + 1 : a->plan.name, "", false);
    table_count(grid, a->plan.count, "");
    table_own(grid, replay_size_text(a->plan.peak), "", true);
    table_own(grid, replay_size_text(a->result.peak_held), "", true);
    table_own(grid, text_print("%.3f", replay_over(a->result.peak_held, a->plan.peak)), "", true);
    pass_cells(grid, a, 0, passes, false);
    if (a->min_cap && a->smallest.bytes) {
        table_own(grid, replay_size_text(a->smallest.bytes), "", true);
        table_own(grid, text_print("%.3f", replay_over(a->smallest.bytes, a->plan.peak)), "", true);
        table_own(grid, text_print("%.1f", a->smallest.ns), "", true);
    } else if (a->min_cap) {
        table_cell(grid, "none", terminal_red(), true);
    }
    if (passes > 1) {
        pass_row(grid, a, "  first pass", 0, 1);
        pass_row(grid, a, "  each later one", 1, passes);
    }
}

/* What was left out of the trace, and why. */
static void replay_print_remarks(const replay_answer *a, uint64_t lag)
{
    const wi_replay_plan *plan = &a->plan;
    char *name = text_clean(plan->name, strlen(plan->name), false);
    uint64_t waits = replay_sums_of(&a->result, 0, a->result.count).waits;
    if (lag)
        printf("%s: streams %llu operations behind; %llu times that was too far, and they were let come up\n", name,
               (unsigned long long)lag, (unsigned long long)waits);
    for (size_t i = 0; i < plan->problem_count && i < WI_REPLAY_PROBLEMS; i++)
        printf("%s: %s %llu: %s\n", name, plan->binary ? "event" : "line", (unsigned long long)plan->problems[i].line,
               plan->problems[i].what);
    if (plan->problem_count)
        printf("%s: %llu %s left out\n", name, (unsigned long long)plan->problem_count,
               plan->binary ? "events were" : "lines were");
    if (plan->empty)
        printf("%s: %llu %s of no bytes at no address were passed over\n", name, (unsigned long long)plan->empty,
               plan->binary ? "events" : "rows");
    if (plan->unknown)
        printf("%s: %llu entries with an action that has no meaning here were passed over\n", name,
               (unsigned long long)plan->unknown);
    if (plan->refused)
        printf("%s: %llu allocations that failed when it was recorded were left out\n", name,
               (unsigned long long)plan->refused);
    if (plan->leaves || plan->returns)
        printf("%s: clients were suspended and resumed: %llu blocks that left were freed here, and %llu that returned "
               "were allocated again\n",
               name, (unsigned long long)plan->leaves, (unsigned long long)plan->returns);
    if (plan->lost)
        printf("%s: %llu events are missing\n", name, (unsigned long long)plan->lost);
    if (plan->cut)
        printf("%s: the file is cut off\n", name);
    free(name);
}

static void print_answers(const replay_answers *all)
{
    static const char *const titles[] = {"trace",        "events", "peak",    "held",    "ratio", "ns/event",
                                         "driver calls", "moves",  "refused", "min cap", "ratio", "ns/event"};
    table grid = {0};
    double own = 0;
    table_titles(&grid, titles, all->list[0].min_cap ? 12 : 9, terminal_bold(), 1);
    for (size_t i = 0; i < all->count; i++) {
        replay_trace_rows(&grid, &all->list[i]);
        own = all->list[i].own > own ? all->list[i].own : own;
    }
    table_end(&grid);
    printf("\nThe loop itself takes %.1f ns an event.\n", own);
    for (size_t i = 0; i < all->count; i++)
        replay_print_remarks(&all->list[i], all->lag);
}

/* The verb --------------------------------------------------------------------------------------------------------- */

enum { LAG_MOST = 1 << 20 };

typedef struct replay_args {
    char **traces;
    size_t count;
    const char *device, *resource, *layout;
    int ordinal; /* of a snapshot of several devices */
    uint64_t cap_bytes, lag, repeat;
    double cap_times; /* of the peak; 0: none */
    bool min_cap, json;
} replay_args;

static int read_traces(char **operands, size_t count, void *to)
{
    replay_args *args = to;
    args->traces = operands;
    args->count = count;
    return count > 0 ? -1 : cli_usage("replay", "which trace?");
}

static int read_cap(const arg *option, const char *value, void *to)
{
    replay_args *args = to;
    size_t length = strlen(value);
    (void)option;
    args->cap_bytes = 0;
    args->cap_times = 0;
    if (length > 1 && value[length - 1] == 'x' && strspn(value, "0123456789.") == length - 1) {
        char *end;
        args->cap_times = strtod(value, &end);
        if (end == value + length - 1 && args->cap_times > 0 && args->cap_times <= 1000)
            return -1;
    } else if (wi_size_parse(value, &args->cap_bytes) == WEIR_OK && args->cap_bytes > 0) {
        return -1;
    }
    return cli_usage("replay", "--cap %s: a size, or a multiple of the peak such as 1.05x, is wanted", value);
}

#define AT(member) .at = offsetof(replay_args, member)

static const arg option_list[] = {
    {"driver", "NAME", "host, sim, cuda, cuda:1 (default sim)", ARG_TEXT, AT(device)},
    {"resource", "STACK", "the resources that serve the blocks, as \"log(async)\" (default: weir's)", ARG_TEXT,
     AT(resource)},
    {"cap", "SIZE", "the budget: bytes, or times what the trace had live at its peak, as 1.05x (default: none)",
     ARG_CALL, .read = read_cap},
    {"min-cap", NULL, "also looks for the smallest cap under which the trace completes, to 0.2 %", ARG_FLAG,
     AT(min_cap)},
    {"lag", "N", "the work of each stream trails the host by N operations (default 0: it is done at once)", ARG_NUMBER,
     AT(lag), 0, LAG_MOST},
    {"repeat", "N", "so many passes; the first and the later ones are told apart (default 1)", ARG_NUMBER, AT(repeat),
     1, WI_REPLAY_PASSES},
    {"device", "N", "which one, of a snapshot of several devices", ARG_COUNT, AT(ordinal), 0, 1023},
    {"layout", "FILE", "writes where memory lies at the end of each trace, as JSON", ARG_TEXT, AT(layout)},
    {"json", NULL,
     "the answer as JSON: events, peak_requested, peak_reserved, ns_per_event, driver_calls, moves, failures, min_cap, "
     "lag, traces[]",
     ARG_FLAG, AT(json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "replay",
    .usage = "replay TRACE… [OPTION…]",
    .about =
        "Has a resource do again what a trace recorded, and says what it took: physical memory at the peak, time, "
        "calls "
        "of the driver. A trace is RMM's CSV log, plain or gzip, what 'weir run --trace' wrote, weir's binary trace, "
        "or a snapshot of PyTorch's allocator (torch.cuda.memory._dump_snapshot). "
        "Each stream of the trace is a stream of its own; nothing is put on the streams but what --lag puts there.",
    .options = option_list,
    .notes = "Exit status: 0; 1 also where an allocation was refused, or no cap was found; 2 bad usage.",
    .read_operands = read_traces};

/* Replays ---------------------------------------------------------------------------------------------------------- */

static const char *searched; /* the trace whose smallest cap is searched for */

static void show_search(double fraction)
{
    terminal_progress_of("replaying", searched, fraction);
}

/* The best of some passes with the null target. */
static weir_status measure_loop(replay_answer *a)
{
    enum { PASSES = 3 };
    uint64_t best = UINT64_MAX;
    weir_status status = WEIR_OK;
    for (int i = 0; i < PASSES && status == WEIR_OK; i++) {
        wi_replay_pass pass;
        status = wi_replay_loop(&a->plan, &wi_replay_null_target, false, &pass);
        best = pass.nanoseconds < best ? pass.nanoseconds : best;
    }
    a->own = (double)best / (double)a->plan.count;
    return status;
}

static weir_status replay_one(const char *path, const replay_args *args, replay_layout *layout, replay_answer *a)
{
    weir_status status = wi_replay_load_device(path, args->ordinal, &a->plan);
    if (status != WEIR_OK)
        return status;
    a->cap = args->cap_times > 0 ? (uint64_t)ceil(args->cap_times * (double)a->plan.peak) : args->cap_bytes;
    a->min_cap = args->min_cap;
    wi_replay_settings settings = {.device = args->device,
                                   .resource = args->resource,
                                   .cap = a->cap,
                                   .lag = args->lag,
                                   .repeat = (unsigned)args->repeat};
    layout->plan = &a->plan;
    settings.at_end = args->layout ? layout_add : NULL;
    settings.at_end_user = layout;
    status = measure_loop(a);
    if (status == WEIR_OK)
        status = wi_replay_run(&a->plan, &settings, &a->result);
    if (status != WEIR_OK || !args->min_cap)
        return status;
    settings.repeat = 1;
    settings.at_end = NULL;
    searched = a->plan.name;
    status = wi_replay_min_cap(&a->plan, &settings, show_search, &a->smallest);
    terminal_progress_end();
    return status;
}

/* How many allocations were refused, and the first of them. */
static int tell_refused(const replay_answer *a)
{
    char bytes[24], live[24];
    size_t pass = 0;
    const wi_replay_op *op = first_refused(a, &pass);
    uint64_t asked = a->plan.allocations * a->result.count;
    return cli_fail(
        "%s: %llu of %llu allocations were refused; the first, in pass %zu, is %s %llu: %s, where the trace has "
        "%s live",
        a->plan.name, (unsigned long long)count_failures(a), (unsigned long long)asked, pass,
        a->plan.binary ? "event" : "line", (unsigned long long)a->plan.lines[op - a->plan.ops],
        weir_size_format(op->bytes, bytes, sizeof bytes),
        weir_size_format(live_before(&a->plan, op), live, sizeof live));
}

/* One line for what failed in the answer that was just printed. */
static int replay_judge(const replay_answers *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const replay_answer *a = &all->list[i];
        if (count_failures(a) > 0)
            return tell_refused(a);
        if (a->min_cap && a->smallest.bytes == 0)
            return cli_fail("%s: no cap was found under which it completes", a->plan.name);
    }
    return CLI_OK;
}

int verb_replay(int argc, char **argv)
{
    replay_args args = {.device = "sim", .repeat = 1, .ordinal = RECORDING_NO_DEVICE};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status >= 0)
        return status;
    if (strncmp(args.device, "sim", 3) == 0 && wi_replay_simulated == NULL)
        return beside_become_sim(argv);
    size_t count = args.count;
    replay_answer *answers = text_zeroed(count, sizeof *answers);
    replay_answers all = {
        .device = args.device, .resource = args.resource, .lag = args.lag, .list = answers, .count = count};
    replay_layout layout = {.traces = json_array()};
    status = CLI_OK;
    for (size_t i = 0; i < count && status == CLI_OK; i++) {
        const char *path = args.traces[i];
        if (replay_one(path, &args, &layout, &answers[i]) != WEIR_OK)
            status =
                strstr(weir_detail(), path) ? cli_fail("%s", weir_detail()) : cli_fail("%s: %s", path, weir_detail());
    }
    if (status == CLI_OK && args.layout && !layout_write(&layout, args.layout))
        status = cli_fail("%s: %s", args.layout, strerror(errno));
    json_decref(layout.traces);
    if (status == CLI_OK)
        status = args.json ? cli_print_json(answers_json(&all)) : (print_answers(&all), cli_flush(CLI_OK));
    if (status == CLI_OK)
        status = replay_judge(&all);
    for (size_t i = 0; i < count; i++) {
        wi_replay_plan_clear(&answers[i].plan);
        wi_replay_result_clear(&answers[i].result);
    }
    free(answers);
    return status;
}
