/* simulate.c: `weir simulate`. */
#include "trace.h"

#include "cli/cli.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "sim/simulate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir simulate [OPTION…]\n"
    "       weir simulate --trace FILE [--json]\n\n"
    "Uses a simulated device at random, as several clients on several streams would, and watches with an oracle that\n"
    "knows of every byte whose it is and what may still be using it. What it finds is printed with the shortest "
    "script\n"
    "that shows it.\n\n"
    "  --steps N        how many steps (default 1000000)\n"
    "  --seed S         which ones; the same seed is the same run (default 1)\n"
    "  --clients N      clients, 1 to 64 (default 4)\n"
    "  --streams N      streams, 1 to 62 (default 8)\n"
    "  --budget SIZE    of the runtime, on a device of 256 MiB or four times that (default 64 MiB)\n"
    "  --resource STACK the resources that serve the clients, as \"guard(direct)\" (default: a world for each of "
    "several,\n"
    "                   over which the steps are divided)\n"
    "  --no-faults      no driver call is made to fail\n"
    "  --plant BUG      has the runtime make a mistake, to see it found: early-reuse, drop-wait, unmap-under-use,\n"
    "                   lost-reader, free-under-use\n"
    "  --script FILE    the steps of a file instead of random ones\n"
    "  --trace FILE     instead of all that: the check of a program that recorded itself (WEIR_TRACE=FILE) for uses\n"
    "                   that nothing orders\n"
    "  --json           the answer as JSON\n\n"
    "Exit status: 0 nothing was found, or with --plant something was; 1 the other way round; 2 bad usage.\n";

typedef struct words {
    simulate_options options;
    const char *script, *trace;
    bool json, others; /* words that --trace has no use for */
} words;

enum {
    W_STEPS = 256,
    W_SEED,
    W_CLIENTS,
    W_STREAMS,
    W_BUDGET,
    W_RESOURCE,
    W_NO_FAULTS,
    W_PLANT,
    W_SCRIPT,
    W_TRACE,
    W_JSON
};

static const struct option long_words[] = {{"steps", required_argument, NULL, W_STEPS},
                                           {"seed", required_argument, NULL, W_SEED},
                                           {"clients", required_argument, NULL, W_CLIENTS},
                                           {"streams", required_argument, NULL, W_STREAMS},
                                           {"budget", required_argument, NULL, W_BUDGET},
                                           {"resource", required_argument, NULL, W_RESOURCE},
                                           {"no-faults", no_argument, NULL, W_NO_FAULTS},
                                           {"plant", required_argument, NULL, W_PLANT},
                                           {"script", required_argument, NULL, W_SCRIPT},
                                           {"trace", required_argument, NULL, W_TRACE},
                                           {"json", no_argument, NULL, W_JSON},
                                           {"help", no_argument, NULL, 'h'},
                                           {NULL, 0, NULL, 0}};

/* Answers -1, or the exit status. */
static int read_number(const char *option, const char *value, uint64_t least, uint64_t most, uint64_t *out)
{
    if (text_number(value, least, most, out))
        return -1;
    return cli_usage("simulate", "%s %s: a whole number from %llu to %llu is wanted", option, value,
                     (unsigned long long)least, (unsigned long long)most);
}

static int read_count(const char *option, const char *value, uint64_t most, unsigned *out)
{
    uint64_t number = 0;
    int status = read_number(option, value, 1, most, &number);
    *out = (unsigned)number;
    return status;
}

static int read_budget(const char *value, world_options *o)
{
    uint64_t bytes;
    if (weir_size_parse(value, &bytes) != WEIR_OK || bytes < o->granule || bytes > UINT64_C(1) << 40)
        return cli_usage("simulate", "--budget %s: a size from 2 MiB to 1 TiB is wanted", value);
    o->budget = bytes;
    while (o->device < 4 * bytes)
        o->device *= 2;
    return -1;
}

static int read_word(int code, words *w)
{
    world_options *o = &w->options.world;
    w->others |= code != W_TRACE && code != W_JSON;
    switch (code) {
    case W_STEPS:
        return read_number("--steps", optarg, 1, UINT64_C(1000000000000), &w->options.steps);
    case W_SEED:
        return read_number("--seed", optarg, 0, UINT64_MAX, &o->seed);
    case W_CLIENTS:
        return read_count("--clients", optarg, WORLD_CLIENTS, &o->clients);
    case W_STREAMS:
        return read_count("--streams", optarg, WORLD_STREAMS - 1, &o->streams);
    case W_BUDGET:
        return read_budget(optarg, o);
    case W_RESOURCE:
        o->resource = optarg;
        return -1;
    case W_NO_FAULTS:
        o->faults = false;
        return -1;
    case W_PLANT:
        w->options.plant = simulate_words.defect_called(optarg);
        return w->options.plant != WI_DEFECTS ? -1 : cli_usage("simulate", "--plant %s: there is no such bug", optarg);
    case W_SCRIPT:
        w->script = optarg;
        return -1;
    case W_TRACE:
        w->trace = optarg;
        return -1;
    default:
        w->json = true;
        return -1;
    }
}

static int read_words(int argc, char **argv, words *out)
{
    int code;
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, ":h", long_words, NULL)) != -1) {
        if (code == 'h') {
            fputs(help, stdout);
            return cli_flush(CLI_OK);
        }
        if (code == '?' || code == ':')
            return cli_bad_option("simulate", code, argv);
        int status = read_word(code, out);
        if (status >= 0)
            return status;
    }
    if (optind < argc)
        return cli_usage("simulate", "there is no place for '%s'", argv[optind]);
    return out->trace && out->others ? cli_usage("simulate", "--trace goes with --json alone") : -1;
}

/* NULL, which has been told. */
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

static json_t *answer_json(const words *w, const simulate_result *r)
{
    json_t *first = r->found.first[0] ? text_json(r->found.first) : json_null();
    json_t *object = json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:f}", "steps", (json_int_t)r->steps, "violations",
        (json_int_t)r->found.violations, "first_violation", first, "ladder", counts_json(r->ladder, LADDER_RUNGS, true),
        "operations", counts_json(r->done, sizeof r->done / sizeof r->done[0], false), "resources", parts_json(r),
        "faults", (json_int_t)r->faults, "user_errors", (json_int_t)r->found.count[ORACLE_USER], "seconds", r->seconds);
    json_object_set_new(object, "reuse", reuse_json(r));
    if (!w->options.script)
        json_object_set_new(object, "seed", json_integer((json_int_t)w->options.world.seed));
    if (r->plant)
        json_object_set_new(object, "plant", json_string(simulate_words.defect(r->plant)));
    if (r->script)
        json_object_set_new(object, "script", text_json(r->script));
    return object;
}

static void print_answer(const simulate_result *r)
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
    printf("  %-22s %12llu\n", "kept by a thread", (unsigned long long)r->reuse[ORACLE_REUSE_KEPT]);
    puts("\nSteps by resource:");
    for (size_t i = 0; i < r->part_count; i++)
        printf("  %-22s %12llu\n", r->parts[i].resource, (unsigned long long)r->parts[i].steps);
}

static int answer(const words *w, simulate_result *r)
{
    bool found = r->found.violations + r->found.count[ORACLE_USER] > 0;
    int status = w->json ? cli_print_json(answer_json(w, r)) : (print_answer(r), cli_flush(CLI_OK));
    free(r->script);
    if (status != CLI_OK || found == (r->plant != WI_PLANT_NOTHING))
        return status;
    return found ? cli_fail("%s", r->found.first)
                 : cli_fail("the planted bug %s was not found", simulate_words.defect(r->plant));
}

int verb_simulate(int argc, char **argv)
{
    words w = {0};
    simulate_defaults(&w.options);
    int status = read_words(argc, argv, &w);
    if (status >= 0)
        return status;
    if (w.trace)
        return simulate_trace(w.trace, w.json);
    char *text = w.script ? read_script(w.script) : NULL;
    if (w.script && !text)
        return CLI_FAILED;
    w.options.script = text;
    simulate_result result;
    if (simulate(&w.options, &result))
        status = answer(&w, &result);
    else
        status = w.script ? cli_fail("%s: %s", w.script, result.error) : cli_usage("simulate", "%s", result.error);
    free(text);
    return status;
}
