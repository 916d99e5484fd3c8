#include "run_options.h"

#include "choice_words.h"
#include "cli.h"
#include "engine_file.h"
#include "names.h"
#include "text.h"

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

static int add_budget(run_options *options, const char *device, size_t length, uint64_t bytes)
{
    for (size_t i = 0; i < options->budget_count; i++)
        if (strlen(options->budgets[i].device) == length && strncmp(options->budgets[i].device, device, length) == 0)
            return cli_usage("run", "--budget names %s twice", length > 0 ? options->budgets[i].device : "no device");
    options->budgets = text_grow(options->budgets, options->budget_count + 1, sizeof *options->budgets);
    options->budgets[options->budget_count++] = (run_budget){text_print("%.*s", (int)length, device), bytes};
    return -1;
}

const char *run_driver(const run_options *options)
{
    return options->driver != NULL ? options->driver : "host";
}

static bool any_chosen(const run_options *options)
{
    for (size_t i = 0; i < options->model_count; i++)
        if (options->models[i].chosen)
            return true;
    return false;
}

/* "600MiB", "host=600MiB" or several of the latter with commas between. A size alone is for --driver's device; where models
 * come to devices that nobody knows yet, for each of those. */
static int read_budget(run_options *options, const char *value)
{
    const char *standard = options->driver == NULL && any_chosen(options) ? "" : run_driver(options);
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
            status = add_budget(options, equals != NULL ? part : standard,
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

static int find_model(const run_options *options, const char *name, size_t length)
{
    for (size_t i = 0; i < options->model_count; i++)
        if (strlen(options->models[i].name) == length && strncmp(options->models[i].name, name, length) == 0)
            return (int)i;
    return -1;
}

static char *model_names(const run_options *options)
{
    char *all = text_copy("");
    for (size_t i = 0; i < options->model_count; i++) {
        char *more = text_print("%s%s%s", all, i > 0 ? ", " : "", options->models[i].name);
        free(all);
        all = more;
    }
    return all;
}

/* "MODEL:REST" where MODEL is one of the names (which may hold colons, as inputs' names may): answers its number and
 * moves *text to REST. The longest name wins. */
static int take_model(const run_options *options, const char **text)
{
    int found = GIVEN_EVERY_MODEL;
    size_t best = 0;
    for (size_t i = 0; i < options->model_count; i++) {
        size_t length = strlen(options->models[i].name);
        if (length > best && strncmp(*text, options->models[i].name, length) == 0 && (*text)[length] == ':') {
            found = (int)i;
            best = length;
        }
    }
    *text += found >= 0 ? best + 1 : 0;
    return found;
}

/* --guarantee and --maximum NAME=SIZE; the last '=' divides, names may hold one. */
static int read_limit(run_options *options, int code, const char *value)
{
    const char *option = code == GUARANTEE ? "--guarantee" : "--maximum";
    const char *equals = strrchr(value, '=');
    uint64_t bytes = 0;
    if (equals == NULL || equals == value)
        return cli_usage("run", "%s %s: NAME=SIZE is wanted", option, value);
    if (weir_size_parse(equals + 1, &bytes) != WEIR_OK)
        return cli_usage("run", "%s %s: '%s' is no size such as 600MiB", option, value, equals + 1);
    int model = find_model(options, value, (size_t)(equals - value));
    if (model < 0) {
        char *names = model_names(options);
        int status = cli_usage("run", "%s %s names no model of this run (%s)", option, value, names);
        free(names);
        return status;
    }
    if (code == GUARANTEE)
        options->models[model].guaranteed = bytes;
    else
        options->models[model].maximum = bytes;
    return -1;
}

static void add_setting(run_model_words *model, const char *key, size_t length, const char *value)
{
    model->settings = text_grow(model->settings, model->setting_count + 1, sizeof *model->settings);
    model->settings[model->setting_count++] = (weir_setting){text_print("%.*s", (int)length, key), text_copy(value)};
}

static int read_setting(run_options *options, const char *value)
{
    const char *key = value;
    int model = take_model(options, &key);
    const char *equals = strchr(key, '=');
    if (equals == NULL || equals == key)
        return cli_usage("run", "--set %s: KEY=VALUE or MODEL:KEY=VALUE is wanted", value);
    for (size_t i = 0; i < options->model_count; i++)
        if (model == GIVEN_EVERY_MODEL || (size_t)model == i)
            add_setting(&options->models[i], key, (size_t)(equals - key), equals + 1);
    return -1;
}

static int add_input(run_options *options, const char *option, const char *word, int model, char *name,
                     const char *value)
{
    options->inputs = text_grow(options->inputs, options->input_count + 1, sizeof *options->inputs);
    given_input *given = &options->inputs[options->input_count++];
    *given = (given_input){.option = option, .model = model, .name = name};
    for (size_t i = 0; i + 1 < options->input_count; i++)
        if (options->inputs[i].model == model && strcmp(options->inputs[i].name, name) == 0)
            return cli_usage("run", "%s %s: that input is given twice", option, word);
    if (strcmp(option, "--prompt") == 0) {
        given->value = text_copy(value);
        return -1;
    }
    weir_status status = given_read(value, given);
    if (status == WEIR_ERR_INVALID)
        return cli_usage("run", "%s %s %s", option, word, weir_detail());
    return status == WEIR_OK ? -1 : cli_fail("%s %s: %s", option, word, weir_detail());
}

static int read_input(run_options *options, const char *value)
{
    const char *name = value;
    int model = take_model(options, &name);
    const char *equals = strchr(name, '=');
    if (equals == NULL || equals == name)
        return cli_usage("run", "--input %s: NAME=VALUE or MODEL:NAME=VALUE is wanted", value);
    return add_input(options, "--input", value, model, text_print("%.*s", (int)(equals - name), name), equals + 1);
}

static int read_late(run_options *options, const late_word *word)
{
    switch (word->code) {
    case BUDGET:
        return read_budget(options, word->value);
    case GUARANTEE:
    case MAXIMUM:
        return read_limit(options, word->code, word->value);
    case SET:
        return read_setting(options, word->value);
    case PROMPT:
        return add_input(options, "--prompt", word->value, GIVEN_EVERY_MODEL, text_copy("text"), word->value);
    default:
        return read_input(options, word->value);
    }
}

/* Answers whether the word is about the choice. */
static bool read_choice(run_options *options, int code)
{
    bool is_one = code == NO_FALLBACK || choice_word_read(code, &options->choice);
    options->no_fallback |= code == NO_FALLBACK;
    options->chooses |= is_one;
    return is_one;
}

static int read_word(run_options *options, late_words *late, int code, int at, char **argv)
{
    if (read_choice(options, code))
        return optarg != NULL && optarg[0] == '\0' ? cli_usage("run", "--%s: an empty word", words[at].name) : -1;
    switch (code) {
    case 'h':
        fputs(help, stdout);
        return cli_flush(CLI_OK);
    case DRIVER:
        options->driver = optarg;
        return -1;
    case TOKENS:
        return read_count("--tokens", optarg, 1u << 30, &options->tokens);
    case REPEAT:
        return read_count("--repeat", optarg, UINT64_C(1) << 40, &options->repeat);
    case SERIAL:
        options->serial = true;
        return -1;
    case STREAM:
        options->stream = true;
        return -1;
    case JSON:
        options->json = true;
        return -1;
    case OUTPUT:
    case TRACE:
    case REPORT:
        if (optarg[0] == '\0')
            return cli_usage("run", "--%s needs a file name", words[at].name);
        *(code == OUTPUT ? &options->output : code == TRACE ? &options->trace : &options->report) = optarg;
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

static int read_models(run_options *options, char **paths, size_t count)
{
    if (count == 0)
        return cli_usage("run", "which model?");
    if (count > RUN_MODELS_MOST)
        return cli_usage("run", "%zu models; at most %d are run at once", count, RUN_MODELS_MOST);
    char *names[RUN_MODELS_MOST];
    options->models = text_zeroed(count, sizeof *options->models);
    for (size_t i = 0; i < count; i++) {
        if (paths[i][0] == '\0')
            return cli_usage("run", "'' is no model's file");
        names[i] = names_of_model(paths[i], names, i);
        run_model_words *model = &options->models[i];
        *model = (run_model_words){.path = engine_file_named(paths[i]), .name = names[i]};
        model->chosen = options->chooses || is_manifest(model->path);
        options->model_count++;
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

int run_options_read(int argc, char **argv, run_options *out)
{
    late_words late = {0};
    int code, at = 0, status = -1;
    *out =
        (run_options){.repeat = 1, .choice = WEIR_INIT(weir_choice_options), .command = command_as_typed(argc, argv)};
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

void run_options_clear(run_options *options)
{
    for (size_t i = 0; i < options->model_count; i++) {
        run_model_words *model = &options->models[i];
        for (size_t j = 0; j < model->setting_count; j++) {
            free((char *)model->settings[j].key);
            free((char *)model->settings[j].value);
        }
        free(model->settings);
        free(model->path);
        free(model->name);
    }
    for (size_t i = 0; i < options->budget_count; i++)
        free(options->budgets[i].device);
    for (size_t i = 0; i < options->input_count; i++)
        given_clear(&options->inputs[i]);
    free(options->models);
    free(options->budgets);
    free(options->inputs);
    free(options->command);
    *options = (run_options){0};
}
