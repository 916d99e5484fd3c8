/* plan.c: the verb plan. */
#include "plan.h"

#include "cli/cli.h"
#include "cli/engine_file.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir plan FILE [OPTION…]\n\n"
    "Gives every tensor a place in one arena that is as small as can be, and says how small that is. FILE is\n"
    "  an ONNX model, or the name of one in the store's models/: its activations, step by step; weights are counted\n"
    "  apart;\n"
    "  a trace of allocations (RMM's CSV, plain or gzip, or weir's binary trace): what a plan would have needed,\n"
    "  beside what allocators held;\n"
    "  a list of buffers: MiniMalloc's CSV (id, lower, upper, size, and more);\n"
    "  a plan that was saved: it is checked, and shown as it is.\n\n"
    "  --dim NAME=N       the size of an open dimension of the model, as batch=1\n"
    "  --shape NAME=DIMS  the shape of a tensor that nothing tells, as mask=1x128, or 1x128:int64; NAME= is a scalar\n"
    "  --svg FILE         draws the arena: time across, address up, a rectangle for each tensor\n"
    "  --save FILE        the plan itself, for weir_plan_load and for this verb\n"
    "  --csv              the places, as MiniMalloc's CSV with the column offset\n"
    "  --align SIZE       places are multiples of it, a power of two (default 256; of a list 1)\n"
    "  --no-in-place      no output is written over an input of its operator\n"
    "  --no-replay        weir's own allocator is not asked to do a trace again\n"
    "  --quick            heuristics alone, no search for the optimum\n"
    "  --seconds N        ends the search with the best so far (default: by effort, some ten seconds)\n"
    "  --json             the answer as JSON: buffers, arena, lower_bound, unshared, proven, seconds, source …\n"
    "  --places           with --json, also places[]: every buffer with its life and its place\n\n"
    "Exit status: 0; 1 it failed, with one line on standard error; 2 bad usage.\n";

/* Words ------------------------------------------------------------------------------------------------------------ */

enum {
    W_DIM = 256,
    W_SHAPE,
    W_SVG,
    W_SAVE,
    W_CSV,
    W_ALIGN,
    W_NO_IN_PLACE,
    W_NO_REPLAY,
    W_QUICK,
    W_SECONDS,
    W_JSON,
    W_PLACES
};

static const struct option long_words[] = {{"dim", required_argument, NULL, W_DIM},
                                           {"shape", required_argument, NULL, W_SHAPE},
                                           {"svg", required_argument, NULL, W_SVG},
                                           {"save", required_argument, NULL, W_SAVE},
                                           {"csv", no_argument, NULL, W_CSV},
                                           {"align", required_argument, NULL, W_ALIGN},
                                           {"no-in-place", no_argument, NULL, W_NO_IN_PLACE},
                                           {"no-replay", no_argument, NULL, W_NO_REPLAY},
                                           {"quick", no_argument, NULL, W_QUICK},
                                           {"seconds", required_argument, NULL, W_SECONDS},
                                           {"json", no_argument, NULL, W_JSON},
                                           {"places", no_argument, NULL, W_PLACES},
                                           {"help", no_argument, NULL, 'h'},
                                           {NULL, 0, NULL, 0}};

/* "1x128x768"; an empty text has no dimensions. False: it is no such text. */
static bool read_dims(const char *text, plan_shape_arg *out)
{
    char *copy = text_copy(text), *rest = *text ? copy : NULL;
    bool good = true;
    for (char *word; good && (word = strsep(&rest, "x")) != NULL;) {
        uint64_t extent;
        good = out->rank < WEIR_MAX_RANK && text_number(word, 0, INT64_MAX, &extent);
        if (good)
            out->dims[out->rank++] = (int64_t)extent;
    }
    free(copy);
    return good;
}

static void clear_given(plan_shape_arg *given)
{
    free(given->name);
    free(given->type);
}

/* A name may have '=' in it: what is given stands behind the last one. Answers -1 to go on, else the exit status. */
static int read_given(const char *option, bool one, plan_shape_arg **list, size_t *count)
{
    plan_shape_arg given = {.name = text_copy(optarg)};
    char *equals = strrchr(given.name, '='), *colon = equals && !one ? strchr(equals, ':') : NULL;
    if (colon) {
        given.type = text_copy(colon + 1);
        *colon = '\0';
    }
    if (equals == NULL || equals == given.name || !read_dims(equals + 1, &given) || (one && given.rank != 1)) {
        clear_given(&given);
        return cli_usage("plan", "%s %s: %s is wanted", option, optarg,
                         one ? "NAME=N" : "NAME=NxNxN (or NAME= for a scalar)");
    }
    *equals = '\0';
    for (size_t i = 0; i < *count; i++)
        if (strcmp((*list)[i].name, given.name) == 0) {
            clear_given(&given);
            return cli_usage("plan", "%s %s: it was given twice", option, optarg);
        }
    *list = text_grow(*list, *count + 1, sizeof **list);
    (*list)[(*count)++] = given;
    return -1;
}

static int read_align(plan_args *args)
{
    if (weir_size_parse(optarg, &args->align) == WEIR_OK && args->align > 0 && (args->align & (args->align - 1)) == 0)
        return -1;
    return cli_usage("plan", "--align %s: a power of two is wanted", optarg);
}

static int read_seconds(plan_args *args)
{
    char *end;
    args->seconds = strtod(optarg, &end);
    if (end != optarg && *end == '\0' && args->seconds > 0 && isfinite(args->seconds))
        return -1;
    return cli_usage("plan", "--seconds %s: a number above 0 is wanted", optarg);
}

static int read_word(int code, plan_args *args)
{
    switch (code) {
    case W_DIM:
        return read_given("--dim", true, &args->dims, &args->dim_count);
    case W_SHAPE:
        return read_given("--shape", false, &args->shapes, &args->shape_count);
    case W_SVG:
        args->svg = optarg;
        return -1;
    case W_SAVE:
        args->save = optarg;
        return -1;
    case W_ALIGN:
        return read_align(args);
    case W_SECONDS:
        return read_seconds(args);
    case W_NO_IN_PLACE:
        args->in_place = false;
        return -1;
    case W_NO_REPLAY:
        args->replay = false;
        return -1;
    default:
        args->csv |= code == W_CSV;
        args->quick |= code == W_QUICK;
        args->json |= code == W_JSON;
        args->places |= code == W_PLACES;
        return -1;
    }
}

static int read_words(int argc, char **argv, plan_args *args)
{
    opterr = 0;
    optind = 1;
    for (int code; (code = getopt_long(argc, argv, ":h", long_words, NULL)) != -1;) {
        if (code == 'h') {
            fputs(help, stdout);
            return cli_flush(CLI_OK);
        }
        if (code == '?' || code == ':')
            return cli_bad_option("plan", code, argv);
        int status = read_word(code, args);
        if (status >= 0)
            return status;
    }
    if (args->csv && args->json)
        return cli_usage("plan", "--csv and --json: both are standard output");
    if (args->places && !args->json)
        return cli_usage("plan", "--places belongs to --json");
    if (optind + 1 != argc)
        return cli_usage("plan", optind == argc ? "which file?" : "one file at a time: %s", argv[argc - 1]);
    args->file = engine_file_named(argv[optind]);
    return -1;
}

static void clear_words(plan_args *args)
{
    for (size_t i = 0; i < args->dim_count; i++)
        clear_given(&args->dims[i]);
    for (size_t i = 0; i < args->shape_count; i++)
        clear_given(&args->shapes[i]);
    free(args->dims);
    free(args->shapes);
    free(args->file);
}

const char *plan_file_name(const plan_args *args)
{
    const char *file = args->file ? args->file : "", *slash = strrchr(file, '/');
    return slash && slash[1] ? slash + 1 : file;
}

/* Planning --------------------------------------------------------------------------------------------------------- */

/* Whichever ends it first: the effort or the clock. */
static bool show_progress(const weir_plan_progress *progress, void *user)
{
    const plan_args *args = user;
    double passed = args->seconds > 0 ? progress->seconds / args->seconds : 0;
    terminal_progress_of("planning", plan_file_name(args), passed > progress->done ? passed : progress->done);
    return true;
}

static weir_status make(plan_answer *answer)
{
    const plan_args *args = answer->args;
    answer->summary = WEIR_INIT(weir_plan_summary);
    if (answer->source->plan) {
        answer->plan = answer->source->plan;
        return weir_plan_summarize(answer->plan, &answer->summary);
    }
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    options.mode = args->quick ? WEIR_PLAN_QUICK : WEIR_PLAN_SEARCH;
    options.alignment = args->align ? args->align : answer->source->kind == PLAN_LIST ? 1 : 256;
    options.seconds = args->seconds;
    options.progress = show_progress;
    options.user = (void *)args;
    weir_status status = weir_plan_make(answer->source->buffers, &options, &answer->plan);
    terminal_progress_end();
    if (status == WEIR_OK) /* whatever the planner thinks of its work */
        status = weir_plan_check(answer->plan, answer->source->buffers);
    return status == WEIR_OK ? weir_plan_summarize(answer->plan, &answer->summary) : status;
}

static int answer_all(const plan_answer *answer)
{
    const plan_args *args = answer->args;
    if (args->svg && plan_draw(answer, args->svg) != WEIR_OK)
        return cli_fail("%s", weir_detail());
    if (args->save && weir_plan_save(answer->plan, args->save) != WEIR_OK)
        return cli_fail("%s", weir_detail());
    if (args->json)
        return cli_print_json(plan_json(answer));
    if (args->csv)
        plan_print_csv(answer);
    else
        plan_print(answer);
    return cli_flush(CLI_OK);
}

int verb_plan(int argc, char **argv)
{
    plan_args args = {.in_place = true, .replay = true};
    plan_source source = {.buffers = NULL};
    plan_answer answer = {.args = &args, .source = &source};
    int status = read_words(argc, argv, &args);
    if (status < 0) {
        bool good = plan_source_load(&args, &source) == WEIR_OK && make(&answer) == WEIR_OK;
        const char *said = weir_detail();
        status = good                                  ? answer_all(&answer)
                 : strstr(said, plan_file_name(&args)) ? cli_fail("%s", said)
                                                       : cli_fail("%s: %s", args.file, said);
    }
    if (answer.plan != source.plan)
        weir_plan_destroy(answer.plan);
    plan_source_clear(&source);
    clear_words(&args);
    return status;
}
