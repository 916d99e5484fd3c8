/* simulate.c: the verb simulate: random or scripted steps on the simulated device, and the check of recorded programs.
 */
#include "simulate.h"

#include "cli/args.h"
#include <weir/trace.h>
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "trace/race_check.h"
#include "sim/simulate.h"
#include "trace/readers.h"
#include "trace/recording.h"
#include "base/values.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Recorded programs ------------------------------------------------------------------------------------------------ */

typedef struct checked {
    uint64_t events, lost, cut_at;
    bool cut;
    race_check *races;
} checked;

/* WEIR_OK at the end of the file, also if it is cut off. */
static weir_status simulate_check(reader *r, checked *all)
{
    weir_event event;
    bool got = true;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && got) {
        status = reader_next(r, &event, &got);
        if (status != WEIR_OK || !got)
            continue;
        all->events++;
        status = race_check_event(all->races, &event);
    }
    all->cut = reader_cut(r, &all->cut_at);
    all->lost = reader_lost(r);
    return status;
}

static json_t *simulate_finding_json(const race_finding *f)
{
    char pointer[24];
    snprintf(pointer, sizeof pointer, "0x%llx", (unsigned long long)f->pointer);
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:o}", "kind", race_kind_name(f->kind), "pointer",
                     pointer, "bytes", (json_int_t)f->bytes, "client", text_json(f->client), "tag", text_json(f->tag),
                     "stream", (json_int_t)f->stream, "other_stream", (json_int_t)f->other_stream, "order_first",
                     (json_int_t)f->order_first, "order_second", (json_int_t)f->order_second, "text",
                     text_json(f->text));
}

/* As other findings are reported: the kind, then the text. */
static json_t *simulate_first_json(const race_finding *f)
{
    char *text = text_print("%s: %s", race_kind_name(f->kind), f->text);
    json_t *value = text_json(text);
    free(text);
    return value;
}

static json_t *simulate_trace_json(const checked *all)
{
    size_t count;
    const race_finding *found = race_check_found(all->races, &count);
    json_t *findings = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(findings, simulate_finding_json(&found[i]));
    return json_pack("{s:I, s:I, s:o, s:o, s:I, s:o}", "events", (json_int_t)all->events, "violations",
                     (json_int_t)race_check_violations(all->races), "first_violation",
                     count > 0 ? simulate_first_json(&found[0]) : json_null(), "findings", findings, "lost",
                     (json_int_t)all->lost, "cut_at", all->cut ? json_integer((json_int_t)all->cut_at) : json_null());
}

static void print_trace(const checked *all)
{
    size_t count;
    const race_finding *found = race_check_found(all->races, &count);
    uint64_t violations = race_check_violations(all->races);
    printf("%llu events: ", (unsigned long long)all->events);
    if (violations == 0)
        puts("nothing found");
    else
        printf("%llu found\n", (unsigned long long)violations);
    if (all->lost > 0)
        printf("%llu events are missing: what was found may be wrong, and something may not have been found\n",
               (unsigned long long)all->lost);
    if (all->cut)
        printf("the file is cut off at byte %llu: what came after that is not known\n",
               (unsigned long long)all->cut_at);
    for (size_t i = 0; i < count; i++) {
        char *text = text_clean(found[i].text, strlen(found[i].text), false);
        printf("%s%s: %s\n", i == 0 ? "\n" : "", race_kind_name(found[i].kind), text);
        free(text);
    }
    if (violations > count)
        printf("and %llu more\n", (unsigned long long)(violations - count));
}

static int answer_trace(const checked *all, bool json)
{
    int status = json ? cli_print_json(simulate_trace_json(all)) : (print_trace(all), cli_flush(CLI_OK));
    uint64_t violations = race_check_violations(all->races);
    if (status != CLI_OK || violations == 0)
        return status;
    size_t count;
    const race_finding *first = race_check_found(all->races, &count);
    return cli_fail("%s: %s", race_kind_name(first->kind), first->text);
}

/* Says why a file cannot be checked, and what else reads it. */
static int tell_other(const char *path)
{
    recording_file kind;
    lines *l;
    rmm_columns columns;
    char *detail = text_copy(weir_detail());
    const char *form = NULL;
    if (recording_file_look(path, &kind) == WEIR_OK && kind != RECORDING_FILE_BINARY) {
        weir_status status = kind == RECORDING_FILE_TEXT ? rmm_open(path, &l, &columns) : WEIR_OK;
        if (status == WEIR_OK)
            form = kind == RECORDING_FILE_TEXT ? "a CSV" : "a snapshot of PyTorch's allocator";
        if (status == WEIR_OK && kind == RECORDING_FILE_TEXT)
            lines_close(l);
        if (status == WEIR_ERR_UNSUPPORTED) {
            free(detail);
            detail = text_copy(weir_detail());
        }
    }
    int code = form ? cli_fail("%s: %s and no binary trace of weir (WEIR_TRACE=FILE.weir), which alone has the uses of "
                               "memory that are checked here; 'weir replay' and 'weir report' read it",
                               path, form)
                    : cli_fail("%s", detail);
    free(detail);
    return code;
}

/* Answers the exit status: CLI_OK if nothing was found. */
static int check_trace(const char *path, bool json)
{
    reader *r;
    checked all = {.races = race_check_create()};
    if (!all.races)
        return cli_fail("no memory to follow %s", path);
    weir_status status = reader_open(path, &r);
    if (status != WEIR_OK) {
        race_check_destroy(all.races);
        return tell_other(path);
    }
    status = simulate_check(r, &all);
    int code = status == WEIR_OK ? answer_trace(&all, json) : cli_fail("%s", weir_detail());
    race_check_destroy(all.races);
    reader_close(r);
    return code;
}

/* Arguments -------------------------------------------------------------------------------------------------------- */

typedef struct simulate_args {
    simulate_options options;
    const char *script, *trace;
    bool json;
} simulate_args;

static int simulate_read_budget(const arg *option, const char *value, void *to)
{
    world_options *o = &((simulate_args *)to)->options.world;
    uint64_t bytes;
    (void)option;
    if (wi_size_parse(value, &bytes) != WEIR_OK || bytes < o->granule || bytes > UINT64_C(1) << 40)
        return cli_usage("simulate", "--budget %s: a size from 2 MiB to 1 TiB is wanted", value);
    o->budget = bytes;
    while (o->device < 4 * bytes)
        o->device *= 2;
    return -1;
}

static int read_plant(const arg *option, const char *value, void *to)
{
    simulate_args *args = to;
    (void)option;
    args->options.plant = simulate_words.defect_called(value);
    return args->options.plant != WI_BUGS ? -1 : cli_usage("simulate", "--plant %s: there is no such bug", value);
}

#define AT(member) .at = offsetof(simulate_args, member)

static const arg option_list[] = {
    {"steps", "N", "how many steps (default 1000000)", ARG_NUMBER, AT(options.steps), 1, UINT64_C(1000000000000)},
    {"seed", "S", "which ones; the same seed is the same run (default 1)", ARG_NUMBER, AT(options.world.seed), 0,
     UINT64_MAX},
    {"clients", "N", "clients, 1 to 64 (default 4)", ARG_COUNT, AT(options.world.clients), 1, WORLD_CLIENTS},
    {"streams", "N", "streams, 1 to 62 (default 8)", ARG_COUNT, AT(options.world.streams), 1, WORLD_STREAMS - 1},
    {"budget", "SIZE", "of the runtime, on a device of 256 MiB or four times that (default 64 MiB)", ARG_CALL,
     .read = simulate_read_budget},
    {"resource", "STACK",
     "the resources that serve the clients, as \"guard(direct)\" (default: a world for each of several, over which the "
     "steps are divided)",
     ARG_TEXT, AT(options.world.resource)},
    {"no-faults", NULL, "no driver call is made to fail", ARG_CLEAR, AT(options.world.faults)},
    {"plant", "BUG",
     "has the runtime make a mistake, to see it found: early-reuse, drop-wait, unmap-under-use, lost-reader, "
     "free-under-use, leave-early, arrive-late, exchange-early",
     ARG_CALL, .read = read_plant},
    {"script", "FILE", "the steps of a file instead of random ones", ARG_TEXT, AT(script)},
    {"trace", "FILE",
     "instead of all that: the check of a program that recorded itself (WEIR_TRACE=FILE) for uses that nothing orders",
     ARG_TEXT, AT(trace)},
    {"json", NULL, "the answer as JSON", ARG_FLAG, AT(json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "simulate",
    .usage = "simulate [OPTION…]\nsimulate --trace FILE [--json]\nsimulate pool [OPTION…]",
    .about =
        "Uses a simulated device at random, as several clients on several streams would, and watches with an oracle "
        "that "
        "knows of every byte whose it is and what may still be using it. What it finds is printed with the shortest "
        "script that shows it.",
    .options = option_list,
    .notes = "Exit status: 0 nothing was found, or with --plant something was; 1 the other way round; 2 bad usage."};

/* The simulator ---------------------------------------------------------------------------------------------------- */

/* NULL: it could not be read, which has been reported. */
static char *read_script(const char *path)
{
    enum { MOST = 64 << 20 };
    FILE *file = fopen(path, "re");
    char *text = text_grow(NULL, 1, 1);
    size_t bytes = 0, room = 0;
    while (file && !feof(file) && !ferror(file) && bytes < MOST) {
        room = room ? 2 * room : 65536;
        text = text_grow(text, room + 1, 1);
        bytes += fread(text + bytes, 1, room - bytes, file);
    }
    if (!file || ferror(file) || bytes >= MOST) {
        cli_fail("%s: %s", path, bytes >= MOST ? "longer than any script" : strerror(errno));
        free(text);
        text = NULL;
    } else {
        text[bytes] = '\0';
    }
    if (file)
        fclose(file);
    return text;
}

/* Answers ---------------------------------------------------------------------------------------------------------- */

static json_t *counts_json(const uint64_t *counts, unsigned count, bool ladder)
{
    json_t *object = json_object();
    for (unsigned i = 0; i < count; i++) {
        const char *name = ladder ? simulate_words.rung((ladder_rung)i) : simulate_words.operation(i);
        if (strcmp(name, "?") != 0)
            json_object_set_new(object, name, json_integer((json_int_t)counts[i]));
    }
    return object;
}

static json_t *reuse_json(const simulate_result *r)
{
    json_t *object = json_object();
    for (unsigned i = 0; i < ORACLE_REUSES; i++)
        json_object_set_new(object, simulate_words.reuse((oracle_reuse)i), json_integer((json_int_t)r->reuse[i]));
    return object;
}

static json_t *parts_json(const simulate_result *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < r->part_count; i++)
        json_array_append_new(array,
                              json_pack("{s:s, s:I, s:I, s:o}", "resource", r->parts[i].resource, "steps",
                                        (json_int_t)r->parts[i].steps, "violations", (json_int_t)r->parts[i].violations,
                                        "ladder", counts_json(r->parts[i].ladder, LADDER_RUNGS, true)));
    return array;
}

static json_t *simulate_answer_json(const simulate_args *args, const simulate_result *r)
{
    json_t *first = r->found.first[0] ? text_json(r->found.first) : json_null();
    json_t *object = json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:f}", "steps", (json_int_t)r->steps, "violations",
        (json_int_t)r->found.violations, "first_violation", first, "ladder", counts_json(r->ladder, LADDER_RUNGS, true),
        "operations", counts_json(r->done, sizeof r->done / sizeof r->done[0], false), "resources", parts_json(r),
        "faults", (json_int_t)r->faults, "user_errors", (json_int_t)r->found.count[ORACLE_USER], "seconds", r->seconds);
    json_object_set_new(object, "reuse", reuse_json(r));
    if (!args->options.script)
        json_object_set_new(object, "seed", json_integer((json_int_t)args->options.world.seed));
    if (r->plant)
        json_object_set_new(object, "plant", json_string(simulate_words.defect(r->plant)));
    if (r->script)
        json_object_set_new(object, "script", text_json(r->script));
    return object;
}

static void simulate_print_answer(const simulate_result *r)
{
    char time[24];
    bool found = r->found.first[0] != '\0';
    printf("%llu steps in %s: %s\n", (unsigned long long)r->steps, text_seconds(r->seconds, time, sizeof time),
           found ? r->found.first : "nothing found");
    if (r->script)
        printf("\nThe shortest script that shows it (weir simulate --script FILE), %zu steps:\n\n%s", r->script_steps,
               r->script);
    if (found)
        return;
    puts("\nHow requests were met, and why others were not:");
    for (unsigned i = 0; i < LADDER_RUNGS; i++)
        printf("  %-22s %12llu\n", simulate_words.rung((ladder_rung)i), (unsigned long long)r->ladder[i]);
    printf("  %-22s %12llu\n", "faults of the driver", (unsigned long long)r->faults);
    puts("\nBlocks with bytes that were freed in the order of a stream:");
    printf("  %-22s %12llu\n", "there, at once", (unsigned long long)r->reuse[ORACLE_REUSE_AT_ONCE]);
    printf("  %-22s %12llu\n", "elsewhere, passed", (unsigned long long)r->reuse[ORACLE_REUSE_PASSED]);
    printf("  %-22s %12llu\n", "kept by a thread", (unsigned long long)r->reuse[ORACLE_REUSE_CACHED]);
    puts("\nSteps by resource:");
    for (size_t i = 0; i < r->part_count; i++)
        printf("  %-22s %12llu\n", r->parts[i].resource, (unsigned long long)r->parts[i].steps);
}

static int simulate_answer(const simulate_args *args, simulate_result *r)
{
    bool found = r->found.violations + r->found.count[ORACLE_USER] > 0;
    int status =
        args->json ? cli_print_json(simulate_answer_json(args, r)) : (simulate_print_answer(r), cli_flush(CLI_OK));
    free(r->script);
    if (status != CLI_OK || found == (r->plant != WI_BUG_NONE))
        return status;
    return found ? cli_fail("%s", r->found.first)
                 : cli_fail("the planted bug %s was not found", simulate_words.defect(r->plant));
}

static int simulate_run(simulate_args *args)
{
    char *text = args->script ? read_script(args->script) : NULL;
    if (args->script && !text)
        return CLI_FAILED;
    args->options.script = text;
    simulate_result result;
    int status;
    if (simulate(&args->options, &result))
        status = simulate_answer(args, &result);
    else
        status =
            args->script ? cli_fail("%s: %s", args->script, result.error) : cli_usage("simulate", "%s", result.error);
    free(text);
    return status;
}

int verb_simulate(int argc, char **argv)
{
    simulate_args args = {0};
    uint64_t seen;
    if (argc > 1 && strcmp(argv[1], "pool") == 0)
        return simulate_pool(argc - 1, argv + 1);
    simulate_defaults(&args.options);
    int status = args_read(&arguments, argc, argv, &args, &seen);
    if (status >= 0)
        return status;
    if (!args.trace)
        return simulate_run(&args);
    if (seen & ~(args_bit(&arguments, "trace") | args_bit(&arguments, "json")))
        return cli_usage("simulate", "--trace goes with --json alone");
    return check_trace(args.trace, args.json);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static const cli_verb verbs[] = {{"simulate", "", verb_simulate}, {"replay", "", verb_replay}};

int main(int argc, char **argv)
{
    wi_replay_simulated = &simulate_replays;
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return cli_end(verbs[i].main(argc - 1, argv + 1), argv + 1);
    return cli_usage(NULL, "weir-sim is the part of weir that simulates and replays");
}
