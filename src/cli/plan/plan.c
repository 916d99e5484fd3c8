/* plan.c: the verb plan. */
#include "plan.h"
#include <weir/plan.h>

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "base/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "1x128x768"; an empty text has no dimensions. False: it is no such text. */
static bool plan_read_dims(const char *text, plan_shape_arg *out)
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

static void clear_shape_arg(plan_shape_arg *given)
{
    free(given->name);
    free(given->type);
}

/* --dim and --shape. A name may contain '=': the last one divides. */
static int read_shape_arg(const arg *option, const char *value, void *to)
{
    plan_args *args = to;
    bool one = strcmp(option->name, "dim") == 0;
    plan_shape_arg **list = one ? &args->dims : &args->shapes, given = {.name = text_copy(value)};
    size_t *count = one ? &args->dim_count : &args->shape_count;
    char *equals = strrchr(given.name, '='), *colon = equals && !one ? strchr(equals, ':') : NULL;
    if (colon) {
        given.type = text_copy(colon + 1);
        *colon = '\0';
    }
    if (equals == NULL || equals == given.name || !plan_read_dims(equals + 1, &given) || (one && given.rank != 1)) {
        clear_shape_arg(&given);
        return cli_usage("plan", "--%s %s: %s is wanted", option->name, value,
                         one ? "NAME=N" : "NAME=NxNxN (or NAME= for a scalar)");
    }
    *equals = '\0';
    for (size_t i = 0; i < *count; i++)
        if (strcmp((*list)[i].name, given.name) == 0) {
            clear_shape_arg(&given);
            return cli_usage("plan", "--%s %s: it was given twice", option->name, value);
        }
    *list = text_grow(*list, *count + 1, sizeof **list);
    (*list)[(*count)++] = given;
    return -1;
}

static int read_align(const arg *option, const char *value, void *to)
{
    uint64_t *align = &((plan_args *)to)->align;
    (void)option;
    if (wi_size_parse(value, align) == WEIR_OK && *align > 0 && (*align & (*align - 1)) == 0)
        return -1;
    return cli_usage("plan", "--align %s: a power of two is wanted", value);
}

static int read_seconds(const arg *option, const char *value, void *to)
{
    char *end;
    double *seconds = &((plan_args *)to)->seconds;
    (void)option;
    *seconds = strtod(value, &end);
    if (end != value && *end == '\0' && *seconds > 0 && isfinite(*seconds))
        return -1;
    return cli_usage("plan", "--seconds %s: a number above 0 is wanted", value);
}

static int plan_read_file_name(char **operands, size_t count, void *to)
{
    plan_args *args = to;
    if (args->csv && args->json)
        return cli_usage("plan", "--csv and --json: both are standard output");
    if (args->places && !args->json)
        return cli_usage("plan", "--places belongs to --json");
    if (count != 1)
        return count == 0 ? cli_usage("plan", "which file?")
                          : cli_usage("plan", "one file at a time: %s", operands[count - 1]);
    args->file = engine_file_named(operands[0]);
    return -1;
}

#define AT(member) .at = offsetof(plan_args, member)

static const arg option_list[] = {
    {"dim", "NAME=N", "the size of an open dimension of the model, as batch=1", ARG_CALL, .read = read_shape_arg},
    {"shape", "NAME=DIMS", "the shape of a tensor that nothing tells, as mask=1x128, or 1x128:int64; NAME= is a scalar",
     ARG_CALL, .read = read_shape_arg},
    {"svg", "FILE", "draws the arena: time across, address up, a rectangle for each tensor", ARG_TEXT, AT(svg)},
    {"save", "FILE", "the plan itself, for weir_plan_load and for this verb", ARG_TEXT, AT(save)},
    {"csv", NULL, "the places, as MiniMalloc's CSV with the column offset", ARG_FLAG, AT(csv)},
    {"align", "SIZE", "places are multiples of it, a power of two (default 256; of a list 1)", ARG_CALL,
     .read = read_align},
    {"no-in-place", NULL, "no output is written over an input of its operator", ARG_CLEAR, AT(in_place)},
    {"no-replay", NULL, "weir's own allocator is not asked to do a trace again", ARG_CLEAR, AT(replay)},
    {"quick", NULL, "heuristics alone, no search for the optimum", ARG_FLAG, AT(quick)},
    {"seconds", "N", "ends the search with the best so far (default: by effort, some ten seconds)", ARG_CALL,
     .read = read_seconds},
    {"json", NULL, "the answer as JSON: buffers, arena, lower_bound, unshared, proven, seconds, source …", ARG_FLAG,
     AT(json)},
    {"places", NULL, "with --json, also places[]: every buffer with its life and its place", ARG_FLAG, AT(places)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "plan",
    .usage = "plan FILE [OPTION…]",
    .about =
        "Gives every tensor a place in one arena that is as small as can be, and says how small that is. FILE is\n"
        "  an ONNX model, a folder with genai_config.json, or the name of one in the store's models/: its activations, "
        "step by step; weights are counted apart;\n"
        "  a trace of allocations (RMM's CSV, plain or gzip, or weir's binary trace): what a plan would have needed, "
        "beside what allocators held;\n"
        "  a list of buffers: MiniMalloc's CSV (id, lower, upper, size, and more);\n"
        "  a plan that was saved: it is checked, and shown as it is.",
    .options = option_list,
    .notes = "Exit status: 0; 1 it failed, with one line on standard error; 2 bad usage.",
    .read_operands = plan_read_file_name};

static void clear_args(plan_args *args)
{
    for (size_t i = 0; i < args->dim_count; i++)
        clear_shape_arg(&args->dims[i]);
    for (size_t i = 0; i < args->shape_count; i++)
        clear_shape_arg(&args->shapes[i]);
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
static bool plan_show_progress(const weir_plan_progress *progress, void *user)
{
    const plan_args *args = user;
    double passed = args->seconds > 0 ? progress->seconds / args->seconds : 0;
    terminal_progress_of("planning", plan_file_name(args), passed > progress->done ? passed : progress->done);
    return true;
}

static weir_status plan_make(plan_answer *answer)
{
    const plan_args *args = answer->args;
    answer->summary = WEIR_INIT(weir_plan_details);
    if (answer->source->plan) {
        answer->plan = answer->source->plan;
        return weir_plan_info(answer->plan, &answer->summary);
    }
    weir_plan_options options = WEIR_INIT(weir_plan_options);
    options.mode = args->quick ? WEIR_PLAN_QUICK : WEIR_PLAN_SEARCH;
    options.alignment = args->align ? args->align : answer->source->kind == PLAN_LIST ? 1 : 256;
    options.seconds = args->seconds;
    options.progress = plan_show_progress;
    options.user = (void *)args;
    weir_status status = weir_plan_create(answer->source->buffers, &options, &answer->plan);
    terminal_progress_end();
    if (status == WEIR_OK) /* checks the plan independently of the planner */
        status = weir_plan_check(answer->plan, answer->source->buffers);
    return status == WEIR_OK ? weir_plan_info(answer->plan, &answer->summary) : status;
}

static int plan_answer_all(const plan_answer *answer)
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
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status < 0) {
        bool good = plan_graph_find(&args) == WEIR_OK && plan_source_load(&args, &source) == WEIR_OK &&
                    plan_make(&answer) == WEIR_OK;
        const char *said = weir_detail();
        status = good                                  ? plan_answer_all(&answer)
                 : strstr(said, plan_file_name(&args)) ? cli_fail("%s", said)
                                                       : cli_fail("%s: %s", args.file, said);
    }
    if (answer.plan != source.plan)
        weir_plan_destroy(answer.plan);
    plan_source_clear(&source);
    clear_args(&args);
    return status;
}
