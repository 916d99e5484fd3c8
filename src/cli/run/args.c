/* args.c: the arguments of weir run. */
#include "run.h"
#include <weir/engine.h>
#include <weir/select.h>

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "base/paths.h"
#include "base/values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static int add_budget(run_args *args, const char *device, size_t length, uint64_t bytes)
{
    for (size_t i = 0; i < args->budget_count; i++)
        if (strlen(args->budgets[i].device) == length && strncmp(args->budgets[i].device, device, length) == 0)
            return cli_usage("run", "--budget names %s twice", length > 0 ? args->budgets[i].device : "no device");
    args->budgets = text_grow(args->budgets, args->budget_count + 1, sizeof *args->budgets);
    args->budgets[args->budget_count++] = (run_budget){text_print("%.*s", (int)length, device), bytes};
    return -1;
}

const char *run_driver(const run_args *args)
{
    return args->driver != NULL ? args->driver : "host";
}

static bool any_selects(const run_args *args)
{
    for (size_t i = 0; i < args->model_count; i++)
        if (args->models[i].selects)
            return true;
    return false;
}

/* Reads "600MiB", or "host=600MiB", or several of the latter with commas between. A size alone is for --driver's
 * device; without --driver, if a model selects its device, for every device that models come to. */
static int run_args_read_budget(const arg *option, const char *value, void *to)
{
    run_args *args = to;
    (void)option;
    const char *standard = args->driver == NULL && any_selects(args) ? "" : run_driver(args);
    char *copy = text_copy(value), *rest = copy, *part;
    int status = -1;
    while (status < 0 && (part = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(part, '=');
        const char *size = equals != NULL ? equals + 1 : part;
        uint64_t bytes = 0;
        if (equals == part)
            status = cli_usage("run", "--budget %s names no device before '='", value);
        else if (wi_size_parse(size, &bytes) != WEIR_OK)
            status = cli_usage("run", "--budget %s: '%s' is no size such as 600MiB", value, size);
        else if (bytes == 0)
            status = cli_usage("run", "--budget %s: a budget of nothing serves nobody", value);
        else
            status = add_budget(args, equals != NULL ? part : standard,
                                equals != NULL ? (size_t)(equals - part) : strlen(standard), bytes);
    }
    free(copy);
    return status;
}

static int run_args_find_model(const run_args *args, const char *name, size_t length)
{
    for (size_t i = 0; i < args->model_count; i++)
        if (strlen(args->models[i].name) == length && strncmp(args->models[i].name, name, length) == 0)
            return (int)i;
    return -1;
}

static char *model_names(const run_args *args)
{
    char *all = text_copy("");
    for (size_t i = 0; i < args->model_count; i++)
        text_add(&all, "%s%s", i > 0 ? ", " : "", args->models[i].name);
    return all;
}

/* "MODEL:REST" where MODEL is one of the names (which may hold colons, as inputs' names may): answers its number and
 * moves *text to REST. The longest name wins. */
static int take_model(const run_args *args, const char **text)
{
    int found = INPUT_ARG_EVERY_MODEL;
    size_t best = 0;
    for (size_t i = 0; i < args->model_count; i++) {
        size_t length = strlen(args->models[i].name);
        if (length > best && strncmp(*text, args->models[i].name, length) == 0 && (*text)[length] == ':') {
            found = (int)i;
            best = length;
        }
    }
    *text += found >= 0 ? best + 1 : 0;
    return found;
}

/* --guarantee and --maximum NAME=SIZE; a name may contain '=': the last one divides. */
static int read_limit(const arg *option, const char *value, void *to)
{
    run_args *args = to;
    const char *equals = strrchr(value, '=');
    uint64_t bytes = 0;
    if (equals == NULL || equals == value)
        return cli_usage("run", "--%s %s: NAME=SIZE is wanted", option->name, value);
    if (wi_size_parse(equals + 1, &bytes) != WEIR_OK)
        return cli_usage("run", "--%s %s: '%s' is no size such as 600MiB", option->name, value, equals + 1);
    int model = run_args_find_model(args, value, (size_t)(equals - value));
    if (model < 0) {
        char *names = model_names(args);
        int status = cli_usage("run", "--%s %s names no model of this run (%s)", option->name, value, names);
        free(names);
        return status;
    }
    *(strcmp(option->name, "guarantee") == 0 ? &args->models[model].guaranteed : &args->models[model].maximum) = bytes;
    return -1;
}

static int run_args_read_setting(const arg *option, const char *value, void *to)
{
    run_args *args = to;
    (void)option;
    const char *key = value;
    int model = take_model(args, &key);
    const char *equals = strchr(key, '=');
    if (equals == NULL || equals == key)
        return cli_usage("run", "--set %s: KEY=VALUE or MODEL:KEY=VALUE is wanted", value);
    for (size_t i = 0; i < args->model_count; i++) {
        run_model_args *its = &args->models[i];
        if (model != INPUT_ARG_EVERY_MODEL && (size_t)model != i)
            continue;
        its->settings = text_grow(its->settings, its->setting_count + 1, sizeof *its->settings);
        its->settings[its->setting_count++] =
            (weir_setting){text_print("%.*s", (int)(equals - key), key), text_copy(equals + 1)};
    }
    return -1;
}

/* Whether both are for the same input, as far as words can tell: a name may have a '=' in it. */
static bool same_input(const input_arg *a, const input_arg *b)
{
    bool several = a->word != NULL && b->word != NULL && strchr(a->word + strlen(a->name) + 1, '=') != NULL &&
                   strchr(b->word + strlen(b->name) + 1, '=') != NULL;
    return a->model == b->model && strcmp(a->name, b->name) == 0 && !several;
}

/* `rest`: of the word, NAME=VALUE without a model. */
static int add_input(run_args *args, const char *option, const char *word, int model, char *name, const char *rest,
                     const char *value)
{
    args->inputs = text_grow(args->inputs, args->input_count + 1, sizeof *args->inputs);
    input_arg *input = &args->inputs[args->input_count++];
    *input = (input_arg){.option = option, .model = model, .word = rest != NULL ? text_copy(rest) : NULL};
    input->name = name;
    for (size_t i = 0; i + 1 < args->input_count; i++)
        if (same_input(&args->inputs[i], input))
            return cli_usage("run", "%s %s: that input is given twice", option, word);
    if (strcmp(option, "--prompt") == 0) {
        input->value = text_copy(value);
        return -1;
    }
    weir_status status = input_arg_read(value, input);
    if (status != WEIR_OK &&
        strchr(value, '=') != NULL) { /* the name may go on; it is read again when inputs are known */
        free(input->value);
        input->kind = INPUT_ARG_TEXT;
        input->value = text_copy(value);
        return -1;
    }
    if (status == WEIR_ERR_INVALID)
        return cli_usage("run", "%s %s %s", option, word, weir_detail());
    return status == WEIR_OK ? -1 : cli_fail("%s %s: %s", option, word, weir_detail());
}

static int run_args_read_prompt(const arg *option, const char *value, void *to)
{
    (void)option;
    return add_input(to, "--prompt", value, INPUT_ARG_EVERY_MODEL, text_copy("text"), NULL, value);
}

static int run_args_read_input(const arg *option, const char *value, void *to)
{
    const char *name = value;
    int model = take_model(to, &name);
    const char *equals = strchr(name, '=');
    (void)option;
    if (equals == NULL || equals == name)
        return cli_usage("run", "--input %s: NAME=VALUE or MODEL:NAME=VALUE is wanted", value);
    return add_input(to, "--input", value, model, text_print("%.*s", (int)(equals - name), name), name, equals + 1);
}

static bool ends_in(const char *path, const char *suffix)
{
    size_t length = strlen(path), tail = strlen(suffix);
    return length > tail && strcasecmp(path + length - tail, suffix) == 0;
}

/* True: the name is that of a manifest or a package. The content does not count, so that the meaning of a word does not
 * depend on the file. A folder is a model, and so is genai_config.json, by which a folder is known. */
static bool is_manifest(const char *path)
{
    return ends_in(path, ".aimod") || (ends_in(path, ".json") && !wi_suffix_of("genai_config.json", path));
}

enum { NAME_BYTES = 63 /* what a client's name holds */ };

static bool run_args_is_taken(const char *name, char *const *before, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(before[i], name) == 0)
            return true;
    return false;
}

/* The path's own, cut to what a client's name holds; "#2", "#3" … behind a name that is taken. */
static char *model_name(const char *path, char *const *before, size_t count)
{
    size_t length;
    const char *own = wi_path_model_name(path, &length);
    bool leads_on = strspn(own, "./") >= length; /* "..", which is no name of a file that could be written */
    char *base = leads_on ? text_copy("model") : text_clean(own, length, false);
    char *name = text_copy(base);
    text_cut(name, NAME_BYTES);
    for (unsigned number = 2; run_args_is_taken(name, before, count); number++) {
        char *tail = text_print("#%u", number);
        char *head = text_copy(base);
        text_cut(head, NAME_BYTES - strlen(tail));
        free(name);
        name = text_print("%s%s", head, tail);
        free(head);
        free(tail);
    }
    free(base);
    return name;
}

static int run_args_read_residency(const arg *option, const char *value, void *to)
{
    run_args *args = to;
    (void)option;
    args->overflows = strcmp(value, "auto") == 0;
    if (!args->overflows && strcmp(value, "whole") != 0)
        return cli_usage("run", "--residency %s: it is whole or auto", value);
    return -1;
}

/* Engine, provider and device are selected for every model. */
static bool selects(const run_args *args)
{
    const weir_choice_options *c = &args->choice;
    return c->engine || c->provider || c->device || c->policy || c->order || c->no_cpu || args->no_fallback;
}

static int run_args_read_models(char **paths, size_t count, void *to)
{
    run_args *args = to;
    if (args->driver != NULL && args->choice.device != NULL)
        return cli_usage("run", "--driver %s and --device %s: one of them is enough", args->driver,
                         args->choice.device);
    if (args->suspend_idle && !args->serial)
        return cli_usage("run", "--suspend-idle is for models that run one after the other: with --serial");
    if (args->prepare && !args->suspend_idle)
        return cli_usage("run", "--prepare is for models that are suspended: with --serial --suspend-idle");
    if (args->show_idle && !args->suspend_idle)
        return cli_usage("run", "--show-idle says how idle models are suspended: with --suspend-idle");
    if (args->overflows && args->suspend_idle)
        return cli_usage("run", "--residency auto is for models that stay: without --suspend-idle");
    if (count == 0)
        return cli_usage("run", "which model?");
    if (count > RUN_MODELS_MOST)
        return cli_usage("run", "%zu models; at most %d are run at once", count, RUN_MODELS_MOST);
    char *names[RUN_MODELS_MOST];
    args->models = text_zeroed(count, sizeof *args->models);
    for (size_t i = 0; i < count; i++) {
        if (paths[i][0] == '\0')
            return cli_usage("run", "'' is no model's file");
        names[i] = model_name(paths[i], names, i);
        run_model_args *model = &args->models[i];
        *model = (run_model_args){.path = engine_file_named(paths[i]), .name = names[i]};
        model->selects = selects(args) || is_manifest(model->path);
        args->model_count++;
    }
    if (args->overflows && any_selects(args))
        return cli_usage("run",
                         "--residency auto is for models whose device is named: with --driver, without a manifest");
    return -1;
}

static char *command_as_typed(int argc, char **argv)
{
    char *all = text_copy("weir");
    for (int i = 0; i < argc; i++)
        text_add(&all, strchr(argv[i], ' ') != NULL ? " '%s'" : " %s", argv[i]);
    return all;
}

static int run_args_set_cores(const arg *option, const char *value, void *to)
{
    (void)option;
    (void)to;
    return weir_option_set("cores", value) == WEIR_OK ? -1 : cli_usage("run", "--cores: %s", weir_detail());
}

#define AT(member) .at = offsetof(run_args, member)

static const arg option_list[] = {
    {"driver", "DEVICE", "where the models run: host (default), cuda, cuda:1; of manifests: exactly there", ARG_TEXT,
     AT(driver)},
    ARGS_CHOICE(run_args, choice),
    {"no-fallback", NULL, "the first choice or an error, also when a run fails", ARG_FLAG, AT(no_fallback)},
    {"budget", "SIZE", "what all models together may hold: 600MiB, 2g; or by device: host=2g,cuda:0=6g", ARG_LATE,
     .read = run_args_read_budget},
    {"cores", "N", "that all models together compute with (default: those of the affinity and the cgroups)", ARG_CALL,
     .read = run_args_set_cores},
    {"guarantee", "NAME=SIZE", "bytes that are kept for that model", ARG_LATE, .read = read_limit},
    {"maximum", "NAME=SIZE", "the most that model may have", ARG_LATE, .read = read_limit},
    {"input", "[MODEL:]NAME=V",
     "an input; V is FILE.npy, shape:2x16 (filled), @FILE (lines of text), a text, or numbers: 1,2,3. What is not "
     "given is "
     "filled with a fixed pattern, of an extent that the model takes",
     ARG_LATE, .read = run_args_read_input},
    {"prompt", "TEXT", "the input 'text' of every model that has one", ARG_LATE, .read = run_args_read_prompt},
    {"tokens", "N", "at most so many generated tokens", ARG_NUMBER, AT(tokens), 1, 1u << 30},
    {"repeat", "N", "runs of each model after its first, warming one (default 1)", ARG_NUMBER, AT(repeat), 1,
     UINT64_C(1) << 40},
    {"serial", NULL, "one model after the other instead of all at once", ARG_FLAG, AT(serial)},
    {"suspend-idle", NULL, "with --serial: a model's memory leaves the device while another one is loaded or runs",
     ARG_FLAG, AT(suspend_idle)},
    {"prepare", NULL, "with --suspend-idle: host memory for a model's first suspend is made ready behind its load",
     ARG_FLAG, AT(prepare)},
    {"show-idle", NULL,
     "with --suspend-idle: a model answers from memory of the host's while it comes back, where the device can",
     ARG_FLAG, AT(show_idle)},
    {"residency", "whole|auto",
     "auto: weights without room on the device begin in memory of the host's, and come as room appears", ARG_CALL,
     .read = run_args_read_residency},
    {"set", "[MODEL:]KEY=VALUE", "a setting of the engine", ARG_LATE, .read = run_args_read_setting},
    {"output", "DIR", "write each output as DIR/NAME.npy; DIR/MODEL/NAME.npy with several models", ARG_FILE,
     AT(output)},
    {"trace", "FILE", "write every allocation as CSV, in the columns that RMM's tools read", ARG_FILE, AT(trace)},
    {"report", "FILE.html", "write a page with the picture of memory over time", ARG_FILE, AT(report)},
    {"stream", NULL, "print generated text as it comes", ARG_FLAG, AT(stream)},
    {"json", NULL, "one JSON object on standard output instead of the table", ARG_FLAG, AT(json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "run",
    .usage = "run MODEL|MANIFEST… [OPTION]…",
    .about = "Loads the models into one process under one budget, runs them at the same time and shows where the "
             "memory went.",
    .options = option_list,
    .notes =
        "MODEL is a file, a folder with genai_config.json, or the name of one in the store's models/ (weir options "
        "tells where that is). MANIFEST ends in .json or .aimod. Where a manifest, or any of --engine to --no-fallback "
        "is given, engine, provider and device are chosen for the model as 'weir explain' shows it; else it runs on "
        "--driver. NAME of a model is its file's or folder's name; the second of the same name is NAME#2.\n\n"
        "Exit status: 0; 1 something failed, told on standard error, and the other models went on; 2 bad usage.\n"
        "docs/guide/run.md has examples.",
    .read_operands = run_args_read_models};

int run_args_read(int argc, char **argv, run_args *out)
{
    *out = (run_args){.repeat = 1, .choice = WEIR_INIT(weir_choice_options), .command = command_as_typed(argc, argv)};
    return args_read(&arguments, argc, argv, out, NULL);
}

void run_args_clear(run_args *args)
{
    for (size_t i = 0; i < args->model_count; i++) {
        run_model_args *model = &args->models[i];
        for (size_t j = 0; j < model->setting_count; j++) {
            free((char *)model->settings[j].key);
            free((char *)model->settings[j].value);
        }
        free(model->settings);
        free(model->path);
        free(model->name);
    }
    for (size_t i = 0; i < args->budget_count; i++)
        free(args->budgets[i].device);
    for (size_t i = 0; i < args->input_count; i++)
        input_arg_clear(&args->inputs[i]);
    free(args->models);
    free(args->budgets);
    free(args->inputs);
    free(args->command);
    *args = (run_args){0};
}
