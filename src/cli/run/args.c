/* args.c: the arguments of weir run. */
#include "run.h"

#include "cli/choice_words.h"
#include "cli/cli.h"
#include "cli/engine_file.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "usage: weir run MODEL|MANIFEST… [OPTION]…\n"
    "\n"
    "Loads the models into one process under one budget, runs them at the same time and shows where the memory went.\n"
    "\n"
    "      --driver DEVICE         where the models run: host (default), cuda, cuda:1; of manifests: exactly there\n"
    "      --engine NAME           exactly this engine: onnx, gguf …; or an error\n"
    "      --provider NAME         exactly this provider: tensorrt, cuda, rocm, coreml, directml, openvino, cpu\n"
    "      --device NAME           exactly this device: cuda:0, cpu, a key of 'weir devices', or an ordinal\n"
    "      --policy NAME           fastest (default), manifest or memory; weir explain has more\n"
    "      --order LIST            providers for models that name none\n"
    "      --no-cpu                the processor is no last resort\n"
    "      --no-fallback           the first choice or an error, also when a run fails\n"
    "      --budget SIZE           what all models together may hold: 600MiB, 2g; or by device: host=2g,cuda:0=6g\n"
    "      --guarantee NAME=SIZE   bytes that are kept for that model\n"
    "      --maximum NAME=SIZE     the most that model may have\n"
    "      --input [MODEL:]NAME=V  an input; V is FILE.npy, shape:2x16 (filled), @FILE (lines of text), a text, or\n"
    "                              numbers: 1,2,3. What is not given is filled with a fixed pattern\n"
    "      --prompt TEXT           the input 'text' of every model that has one\n"
    "      --tokens N              at most so many generated tokens\n"
    "      --repeat N              runs of each model after its first, warming one (default 1)\n"
    "      --serial                one model after the other instead of all at once\n"
    "      --set [MODEL:]KEY=VALUE a setting of the engine\n"
    "      --output DIR            write each output as DIR/NAME.npy; DIR/MODEL/NAME.npy with several models\n"
    "      --trace FILE            write every allocation as CSV, in the columns that RMM's tools read\n"
    "      --report FILE.html      write a page with the picture of memory over time\n"
    "      --stream                print generated text as it comes\n"
    "      --json                  one JSON object on standard output instead of the table\n"
    "      --help                  this text\n"
    "\n"
    "MODEL is a file, or the name of one in the store's models/ (weir options tells where that is). MANIFEST ends in\n"
    ".json or .aimod, or is a folder. Where a manifest, or any of --engine to --no-fallback is given, engine, "
    "provider\n"
    "and device are chosen for the model as 'weir explain' shows it; else it runs on --driver.\n"
    "NAME of a model is its file's name; the second of the same name is NAME#2.\n"
    "Exit status: 0; 1 something failed, told on standard error, and the other models went on; 2 bad usage.\n"
    "docs/guide/run.md has examples.\n";

enum {
    BUDGET = 256,
    DRIVER,
    GUARANTEE,
    MAXIMUM,
    INPUT,
    PROMPT,
    TOKENS,
    REPEAT,
    SERIAL,
    SET,
    OUTPUT,
    TRACE,
    REPORT,
    STREAM,
    JSON,
    NO_FALLBACK
};

static const struct option words[] = {{"budget", required_argument, NULL, BUDGET},
                                      {"driver", required_argument, NULL, DRIVER},
                                      {"guarantee", required_argument, NULL, GUARANTEE},
                                      {"maximum", required_argument, NULL, MAXIMUM},
                                      {"input", required_argument, NULL, INPUT},
                                      {"prompt", required_argument, NULL, PROMPT},
                                      {"tokens", required_argument, NULL, TOKENS},
                                      {"repeat", required_argument, NULL, REPEAT},
                                      {"serial", no_argument, NULL, SERIAL},
                                      {"set", required_argument, NULL, SET},
                                      {"output", required_argument, NULL, OUTPUT},
                                      {"trace", required_argument, NULL, TRACE},
                                      {"report", required_argument, NULL, REPORT},
                                      {"stream", no_argument, NULL, STREAM},
                                      {"json", no_argument, NULL, JSON},
                                      {"no-fallback", no_argument, NULL, NO_FALLBACK},
                                      CHOICE_WORDS,
                                      {"help", no_argument, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

/* A word whose meaning needs the models' names or the device, which are known when all words have been read. */
typedef struct late_word {
    int code;
    char *value;
} late_word;

typedef struct late_words {
    late_word *list;
    size_t count;
} late_words;

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

/* "600MiB", "host=600MiB" or several of the latter with commas between. A size alone is for --driver's device; where
 * models come to devices that nobody knows yet, for each of those. */
static int read_budget(run_args *args, const char *value)
{
    const char *standard = args->driver == NULL && any_selects(args) ? "" : run_driver(args);
    char *copy = text_copy(value), *rest = copy, *part;
    int status = -1;
    while (status < 0 && (part = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(part, '=');
        const char *size = equals != NULL ? equals + 1 : part;
        uint64_t bytes = 0;
        if (equals == part)
            status = cli_usage("run", "--budget %s names no device before '='", value);
        else if (weir_size_parse(size, &bytes) != WEIR_OK)
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

static int read_count(const char *option, const char *value, uint64_t most, uint64_t *out)
{
    if (text_number(value, 1, most, out))
        return -1;
    return cli_usage("run", "%s %s: a whole number from 1 to %llu is wanted", option, value, (unsigned long long)most);
}

static int find_model(const run_args *args, const char *name, size_t length)
{
    for (size_t i = 0; i < args->model_count; i++)
        if (strlen(args->models[i].name) == length && strncmp(args->models[i].name, name, length) == 0)
            return (int)i;
    return -1;
}

static char *model_names(const run_args *args)
{
    char *all = text_copy("");
    for (size_t i = 0; i < args->model_count; i++) {
        char *more = text_print("%s%s%s", all, i > 0 ? ", " : "", args->models[i].name);
        free(all);
        all = more;
    }
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

/* --guarantee and --maximum NAME=SIZE; the last '=' divides, names may hold one. */
static int read_limit(run_args *args, int code, const char *value)
{
    const char *option = code == GUARANTEE ? "--guarantee" : "--maximum";
    const char *equals = strrchr(value, '=');
    uint64_t bytes = 0;
    if (equals == NULL || equals == value)
        return cli_usage("run", "%s %s: NAME=SIZE is wanted", option, value);
    if (weir_size_parse(equals + 1, &bytes) != WEIR_OK)
        return cli_usage("run", "%s %s: '%s' is no size such as 600MiB", option, value, equals + 1);
    int model = find_model(args, value, (size_t)(equals - value));
    if (model < 0) {
        char *names = model_names(args);
        int status = cli_usage("run", "%s %s names no model of this run (%s)", option, value, names);
        free(names);
        return status;
    }
    if (code == GUARANTEE)
        args->models[model].guaranteed = bytes;
    else
        args->models[model].maximum = bytes;
    return -1;
}

static void add_setting(run_model_args *model, const char *key, size_t length, const char *value)
{
    model->settings = text_grow(model->settings, model->setting_count + 1, sizeof *model->settings);
    model->settings[model->setting_count++] = (weir_setting){text_print("%.*s", (int)length, key), text_copy(value)};
}

static int read_setting(run_args *args, const char *value)
{
    const char *key = value;
    int model = take_model(args, &key);
    const char *equals = strchr(key, '=');
    if (equals == NULL || equals == key)
        return cli_usage("run", "--set %s: KEY=VALUE or MODEL:KEY=VALUE is wanted", value);
    for (size_t i = 0; i < args->model_count; i++)
        if (model == INPUT_ARG_EVERY_MODEL || (size_t)model == i)
            add_setting(&args->models[i], key, (size_t)(equals - key), equals + 1);
    return -1;
}

static int add_input(run_args *args, const char *option, const char *word, int model, char *name, const char *value)
{
    args->inputs = text_grow(args->inputs, args->input_count + 1, sizeof *args->inputs);
    input_arg *given = &args->inputs[args->input_count++];
    *given = (input_arg){.option = option, .model = model, .name = name};
    for (size_t i = 0; i + 1 < args->input_count; i++)
        if (args->inputs[i].model == model && strcmp(args->inputs[i].name, name) == 0)
            return cli_usage("run", "%s %s: that input is given twice", option, word);
    if (strcmp(option, "--prompt") == 0) {
        given->value = text_copy(value);
        return -1;
    }
    weir_status status = input_arg_read(value, given);
    if (status == WEIR_INVALID)
        return cli_usage("run", "%s %s %s", option, word, weir_detail());
    return status == WEIR_OK ? -1 : cli_fail("%s %s: %s", option, word, weir_detail());
}

static int read_input(run_args *args, const char *value)
{
    const char *name = value;
    int model = take_model(args, &name);
    const char *equals = strchr(name, '=');
    if (equals == NULL || equals == name)
        return cli_usage("run", "--input %s: NAME=VALUE or MODEL:NAME=VALUE is wanted", value);
    return add_input(args, "--input", value, model, text_print("%.*s", (int)(equals - name), name), equals + 1);
}

static int read_late(run_args *args, const late_word *word)
{
    switch (word->code) {
    case BUDGET:
        return read_budget(args, word->value);
    case GUARANTEE:
    case MAXIMUM:
        return read_limit(args, word->code, word->value);
    case SET:
        return read_setting(args, word->value);
    case PROMPT:
        return add_input(args, "--prompt", word->value, INPUT_ARG_EVERY_MODEL, text_copy("text"), word->value);
    default:
        return read_input(args, word->value);
    }
}

/* Answers whether the word is about the choice. */
static bool read_choice(run_args *args, int code)
{
    bool is_one = code == NO_FALLBACK || choice_word_read(code, &args->choice);
    args->no_fallback |= code == NO_FALLBACK;
    args->chooses |= is_one;
    return is_one;
}

static int read_word(run_args *args, late_words *late, int code, int at, char **argv)
{
    if (read_choice(args, code))
        return optarg != NULL && optarg[0] == '\0' ? cli_usage("run", "--%s: an empty word", words[at].name) : -1;
    switch (code) {
    case 'h':
        fputs(help, stdout);
        return cli_flush(CLI_OK);
    case DRIVER:
        args->driver = optarg;
        return -1;
    case TOKENS:
        return read_count("--tokens", optarg, 1u << 30, &args->tokens);
    case REPEAT:
        return read_count("--repeat", optarg, UINT64_C(1) << 40, &args->repeat);
    case SERIAL:
        args->serial = true;
        return -1;
    case STREAM:
        args->stream = true;
        return -1;
    case JSON:
        args->json = true;
        return -1;
    case OUTPUT:
    case TRACE:
    case REPORT:
        if (optarg[0] == '\0')
            return cli_usage("run", "--%s needs a file name", words[at].name);
        *(code == OUTPUT ? &args->output : code == TRACE ? &args->trace : &args->report) = optarg;
        return -1;
    case BUDGET:
    case GUARANTEE:
    case MAXIMUM:
    case INPUT:
    case PROMPT:
    case SET:
        late->list = text_grow(late->list, late->count + 1, sizeof *late->list);
        late->list[late->count++] = (late_word){code, optarg};
        return -1;
    default:
        return cli_bad_option("run", code, argv);
    }
}

static bool ends_in(const char *path, const char *suffix)
{
    size_t length = strlen(path), tail = strlen(suffix);
    return length > tail && strcasecmp(path + length - tail, suffix) == 0;
}

/* By its name, so that what a word means does not hang on what is in a file. */
static bool is_manifest(const char *path)
{
    struct stat about;
    return ends_in(path, ".json") || ends_in(path, ".aimod") || (stat(path, &about) == 0 && S_ISDIR(about.st_mode));
}

enum { NAME_BYTES = 63 /* what a client's name holds */ };

static bool is_taken(const char *name, char *const *before, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(before[i], name) == 0)
            return true;
    return false;
}

/* The last component of the path, cut to what a client's name holds; "#2", "#3" … behind a name that is taken. */
static char *model_name(const char *path, char *const *before, size_t count)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    char *base = end > start ? text_clean(path + start, end - start, false) : text_copy("model");
    char *name = text_copy(base);
    text_cut(name, NAME_BYTES);
    for (unsigned number = 2; is_taken(name, before, count); number++) {
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

static int read_models(run_args *args, char **paths, size_t count)
{
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
        model->selects = args->chooses || is_manifest(model->path);
        args->model_count++;
    }
    return -1;
}

static char *command_as_typed(int argc, char **argv)
{
    char *all = text_copy("weir");
    for (int i = 0; i < argc; i++) {
        char *more = text_print(strchr(argv[i], ' ') != NULL ? "%s '%s'" : "%s %s", all, argv[i]);
        free(all);
        all = more;
    }
    return all;
}

int run_args_read(int argc, char **argv, run_args *out)
{
    late_words late = {0};
    int code, at = 0, status = -1;
    *out = (run_args){.repeat = 1, .choice = WEIR_INIT(weir_choice_options), .command = command_as_typed(argc, argv)};
    opterr = 0;
    optind = 1;
    while (status < 0 && (code = getopt_long(argc, argv, ":h", words, &at)) != -1)
        status = read_word(out, &late, code, at, argv);
    if (status < 0 && out->driver != NULL && out->choice.device != NULL)
        status =
            cli_usage("run", "--driver %s and --device %s: one of them is enough", out->driver, out->choice.device);
    if (status < 0)
        status = read_models(out, argv + optind, (size_t)(argc - optind));
    for (size_t i = 0; status < 0 && i < late.count; i++)
        status = read_late(out, &late.list[i]);
    free(late.list);
    return status;
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
