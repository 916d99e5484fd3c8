/* export.c: the verb export. */
#include "export.h"

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "base/values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Arguments -------------------------------------------------------------------------------------------------------- */

typedef enum export_format { AS_PERFETTO, AS_PICKLE, AS_CSV, AS_WEIR, FORMATS } export_format;

static const char *const format_names[FORMATS] = {"perfetto", "pickle", "csv", "weir"};

typedef struct export_args {
    const char *file, *output;
    export_format format; /* FORMATS: not given */
    int device;
    uint64_t least;
    bool json;
} export_args;

static int export_read_format(const arg *option, const char *value, void *to)
{
    int i = 0;
    while (i < FORMATS && strcmp(format_names[i], value) != 0)
        i++;
    if (i == FORMATS)
        return cli_usage("export", "--%s %s: perfetto, pickle, csv or weir is wanted", option->name, value);
    ((export_args *)to)->format = (export_format)i;
    return -1;
}

static int read_least(const arg *option, const char *value, void *to)
{
    if (wi_size_parse(value, &((export_args *)to)->least) != WEIR_OK)
        return cli_usage("export", "--%s %s: a size is wanted, such as 64KiB", option->name, value);
    return -1;
}

static int export_read_file_name(char **operands, size_t count, void *to)
{
    export_args *args = to;
    if (count == 0 || operands[0][0] == '\0')
        return cli_usage("export", "which trace?");
    if (count > 1)
        return cli_usage("export", "one trace is exported at a time, and '%s' is another", operands[1]);
    if (args->format == FORMATS)
        return cli_usage("export", "--format is needed: perfetto, pickle, csv or weir");
    if (!args->output)
        return cli_usage("export", "--output is needed: the file to write");
    if (args->least && args->format != AS_PERFETTO)
        return cli_usage("export", "--least is for --format perfetto");
    args->file = operands[0];
    return -1;
}

#define AT(member) .at = offsetof(export_args, member)
static const arg option_list[] = {
    {"format", "NAME", "perfetto, pickle, csv or weir", ARG_CALL, .read = export_read_format},
    {"output", "FILE", "the file to write; also -o", ARG_FILE, AT(output), .letter = 'o'},
    {"least", "SIZE", "with perfetto: smaller blocks are counted, and have no slice of their own", ARG_CALL,
     .read = read_least},
    {"device", "N", "which one, of a snapshot of several devices", ARG_COUNT, AT(device), 0, 1023},
    {"json", NULL, "the answer as JSON: trace, output, format, events, allocations, malformed, lost, cut_off", ARG_FLAG,
     AT(json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "export",
    .usage = "export TRACE --format NAME -o FILE [OPTION…]",
    .about =
        "Writes a trace in another form. TRACE is weir's binary trace, the CSV of RMM or of weir, plain or gzip, or a "
        "snapshot of PyTorch's allocator (torch.cuda.memory._dump_snapshot). The forms are\n"
        "  perfetto  trace events as JSON, for ui.perfetto.dev: counters, a slice for each block, refusals, what is "
        "away\n"
        "  pickle    a snapshot as PyTorch makes them, for pytorch.org/memory_viz and torch.cuda._memory_viz\n"
        "  csv       RMM's columns and weir's behind them, for weir replay, weir plan and RMM's own replay\n"
        "  weir      weir's binary trace, for weir replay, weir report and weir simulate --trace",
    .options = option_list,
    .notes = "Exit status: 0; 1 it failed, with one line on standard error; 2 bad usage.",
    .read_operands = export_read_file_name};

/* Steps ------------------------------------------------------------------------------------------------------------ */

static int export_by_event(const void *a, const void *b)
{
    const export_step *x = a, *y = b;
    if (x->event != y->event)
        return x->event < y->event ? -1 : 1;
    if (x->block != y->block)
        return x->block < y->block ? -1 : 1;
    return x->kind < y->kind ? -1 : x->kind > y->kind;
}

export_step *export_steps(const lifetimes *blocks, size_t *count)
{
    export_step *list = text_zeroed(3 * blocks->count + blocks->move_count, sizeof *list);
    *count = 0;
    for (size_t i = 0; i < blocks->count; i++) {
        const lifetime *one = &blocks->list[i];
        if (one->charged == 0 || one->freed == one->begin)
            continue;
        list[(*count)++] = (export_step){one->begin, (uint32_t)i, EXPORT_BEGIN};
        if (one->freed != LIFETIMES_NEVER)
            list[(*count)++] = (export_step){one->freed, (uint32_t)i, EXPORT_FREE};
        if (one->end != LIFETIMES_NEVER)
            list[(*count)++] = (export_step){one->end, (uint32_t)i, EXPORT_END};
    }
    for (size_t i = 0; i < blocks->move_count; i++) {
        const lifetime_move *m = &blocks->moves[i];
        if (m->before == 0)
            list[(*count)++] = (export_step){m->event, m->block, EXPORT_LEAVE};
        else if (m->after == 0 && m->event < blocks->list[m->block].freed)
            list[(*count)++] = (export_step){m->event, m->block, EXPORT_RETURN};
    }
    qsort(list, *count, sizeof *list, export_by_event);
    return list;
}

/* Writing ---------------------------------------------------------------------------------------------------------- */

/* weir's own forms are written by the sinks that record. */
static weir_status write_sink(const recording *trace, const export_args *args)
{
    weir_sink sink = WEIR_INIT(weir_sink);
    weir_status status = weir_sink_file(args->output, args->format == AS_CSV ? WEIR_SINK_CSV : WEIR_SINK_BINARY, &sink);
    if (status != WEIR_OK)
        return status;
    if (trace->count > 0)
        status = sink.write(sink.user, trace->events, trace->count);
    if (sink.lost)
        sink.lost(sink.user, trace->lost);
    weir_status closed = sink.close(sink.user);
    status = status != WEIR_OK ? status : closed;
    if (status != WEIR_OK)
        output_file_remove(args->output);
    return status;
}

static weir_status export_write_file(const recording *trace, const lifetimes *blocks, const export_args *args)
{
    FILE *file = output_file_open(args->output, "the trace");
    if (!file)
        return WEIR_ERR_SYSTEM;
    weir_status status = args->format == AS_PICKLE ? export_snapshot(file, trace, blocks)
                                                   : export_perfetto(file, trace, blocks, args->least);
    weir_status closed = output_file_close(file, args->output, "the trace", 0);
    return status != WEIR_OK ? status : closed;
}

static int export_answer(const export_args *args, const recording *trace, const lifetimes *blocks)
{
    if (args->json)
        return cli_print_json(json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:b}", "trace", text_json(args->file),
                                        "output", text_json(args->output), "format", format_names[args->format],
                                        "events", (json_int_t)trace->count, "allocations",
                                        (json_int_t)blocks->allocations, "malformed", (json_int_t)trace->problem_count,
                                        "lost", (json_int_t)trace->lost, "cut_off", trace->cut));
    char *name = text_clean(args->output, strlen(args->output), false);
    printf("%s: %zu events, %" PRIu64 " allocations\n", name, trace->count, blocks->allocations);
    if (trace->problem_count || trace->lost || trace->cut)
        printf("%" PRIu64 " events could not be used, %" PRIu64 " are missing%s\n", trace->problem_count, trace->lost,
               trace->cut ? ", and the trace is cut off" : "");
    if (trace->problem_count)
        printf("the first of them is %s %" PRIu64 ": %s\n", trace->format == RECORDING_CSV ? "line" : "event",
               trace->problems[0].line, trace->problems[0].what);
    free(name);
    return cli_flush(CLI_OK);
}

int verb_export(int argc, char **argv)
{
    export_args args = {.format = FORMATS, .device = RECORDING_NO_DEVICE};
    recording trace = {.format = RECORDING_WEIR};
    lifetimes blocks = {.of = &trace};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status >= 0)
        return status;
    weir_status done = output_file_check(args.output, "the trace");
    if (done == WEIR_OK)
        done = recording_load(args.file, args.device, &trace);
    if (done == WEIR_OK)
        done = lifetimes_make(&trace, &blocks);
    if (done == WEIR_OK)
        done = args.format == AS_CSV || args.format == AS_WEIR ? write_sink(&trace, &args)
                                                               : export_write_file(&trace, &blocks, &args);
    status = done == WEIR_OK ? export_answer(&args, &trace, &blocks) : cli_fail("%s", weir_detail());
    lifetimes_clear(&blocks);
    recording_clear(&trace);
    return status;
}
