/* explain.c: the verb explain: what would be selected for a model, and why not the others. */
#include <weir/base.h>
#include <weir/cores.h>
#include <weir/manifest.h>
#include <weir/predict.h>
#include <weir/select.h>

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

/* JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *exact_json(const weir_candidate *c)
{
    json_t *exact = c->predicted ? json_object() : json_null();
    for (int i = 0; c->predicted && i < WEIR_CLASS_COUNT; i++)
        json_object_set_new(exact, weir_name_of(WEIR_NAMES_CLASS, i), json_boolean(c->exact[i]));
    return exact;
}

/* Where each figure comes from: the candidate is asked for once more, which engines remember. */
static json_t *explain_source_json(const weir_manifest *manifest, const weir_choice_options *asked,
                                   const weir_candidate *c)
{
    weir_prediction said = WEIR_INIT(weir_prediction);
    weir_predict_options options = WEIR_INIT(weir_predict_options);
    options.manifest = manifest;
    options.candidate = c;
    options.settings = asked->settings;
    options.setting_count = asked->setting_count;
    if (!c->predicted || weir_predict(NULL, &options, &said) != WEIR_OK)
        return json_null();
    json_t *source = json_object();
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        json_object_set_new(source, weir_name_of(WEIR_NAMES_CLASS, i),
                            json_string(weir_name_of(WEIR_NAMES_SOURCE, (int)said.source[i])));
    return source;
}

static json_t *explain_place_json(const weir_candidate *c)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "engine", text_json(c->engine), "provider", text_json(c->provider),
                     "device", text_json(c->device), "runtime", text_json(c->runtime));
}

static json_t *candidate_json(const weir_manifest *manifest, const weir_choice_options *asked, const weir_candidate *c)
{
    json_t *object = explain_place_json(c);
    json_object_set_new(object, "library", text_json(c->library));
    json_object_set_new(object, "version", text_json(c->version));
    json_object_set_new(object, "verdict", json_string(weir_name_of(WEIR_NAMES_VERDICT, c->verdict)));
    json_object_set_new(object, "reason", text_json(c->reason));
    json_object_set_new(object, "rank", json_integer(c->rank));
    json_object_set_new(object, "bytes", c->predicted ? cli_classes_json(c->bytes) : json_null());
    json_object_set_new(object, "exact", exact_json(c));
    json_object_set_new(object, "source", explain_source_json(manifest, asked, c));
    json_object_set_new(object, "obtainable",
                        c->obtainable == WEIR_BYTES_UNKNOWN ? json_null() : json_integer((json_int_t)c->obtainable));
    return object;
}

/* Finds the cores of the process, and the least and the most that a model of the best candidate computes with; 0: all cores of the process.
 * False: the model leases no cores, or the number is unknown. docs/guide/cores.md has the settings of each engine. */
static bool cores_of(const weir_manifest *manifest, const weir_choice_options *asked, const weir_choice *choice,
                     unsigned *process, unsigned *least, unsigned *most)
{
    weir_cores_totals all = WEIR_INIT(weir_cores_totals);
    const weir_candidate *c = &choice->candidates[0];
    const char *fixed = NULL;
    if (weir_cores_info(&all) != WEIR_OK || choice->accepted == 0 || strcmp(c->runtime, "host") != 0)
        return false;
    bool shares = strcmp(c->engine, "gguf") == 0;
    if (!shares && strcmp(c->engine, "onnx") != 0 && strcmp(c->engine, "llm") != 0)
        return false;
    for (size_t i = 0; i < manifest->setting_count; i++)
        if (strcmp(manifest->settings[i].key, "threads") == 0)
            fixed = manifest->settings[i].value;
    for (size_t i = 0; i < asked->setting_count; i++)
        if (strcmp(asked->settings[i].key, "threads") == 0)
            fixed = asked->settings[i].value;
    *process = all.cores;
    *most = fixed ? (unsigned)strtoul(fixed, NULL, 10) : 0;
    *least = shares && *most == 0 ? 1 : *most;
    return true;
}

static json_t *explain_cores_json(const weir_manifest *manifest, const weir_choice_options *asked,
                                  const weir_choice *choice)
{
    unsigned process, least, most;
    if (!cores_of(manifest, asked, choice, &process, &least, &most))
        return json_null();
    return json_pack("{s:I, s:I, s:I}", "process", (json_int_t)process, "least", (json_int_t)least, "most",
                     (json_int_t)most);
}

static void explain_print_cores(const weir_manifest *manifest, const weir_choice_options *asked,
                                const weir_choice *choice)
{
    unsigned process, least, most;
    if (!cores_of(manifest, asked, choice, &process, &least, &most))
        return;
    printf("cores: %u for all models of a process; this one computes with ", process);
    if (most > 0)
        printf("%u, as its setting threads says\n", most);
    else
        puts(least == 1 ? "its share of them" : "all of them in its turn");
}

static json_t *explain_choice_json(const weir_manifest *manifest, const weir_choice_options *asked,
                                   const weir_choice *choice)
{
    json_t *list = json_array();
    for (size_t i = 0; i < choice->count; i++)
        json_array_append_new(list, candidate_json(manifest, asked, &choice->candidates[i]));
    json_t *chosen = choice->accepted > 0 ? explain_place_json(&choice->candidates[0]) : json_null();
    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "policy", choice->policy, "rule", text_json(choice->rule), "chosen",
                     chosen, "cores", explain_cores_json(manifest, asked, choice), "candidates", list);
}

/* Text ------------------------------------------------------------------------------------------------------------- */

static void print_wrapped(const char *text, size_t columns)
{
    char *clean = text_clean(text, strlen(text), false);
    for (const char *rest = clean; *rest != '\0';) {
        size_t length = text_line(rest, columns);
        printf("%.*s\n", (int)length, rest);
        rest += length;
        rest += *rest == ' ';
    }
    free(clean);
}

enum { REASON_LEAST = 36 }; /* columns */

static bool same_refusal(const weir_candidate *a, const weir_candidate *b)
{
    return a->rank < 0 && a->verdict == b->verdict && strcmp(a->engine, b->engine) == 0 &&
           strcmp(a->reason, b->reason) == 0;
}

/* How many candidates from this one on were refused for the same reason. */
static size_t same_count(const weir_choice *choice, size_t at)
{
    size_t count = 1;
    while (at + count < choice->count && same_refusal(&choice->candidates[at], &choice->candidates[at + count]))
        count++;
    return count;
}

/* The runtime's name is shorter than a key of NVML's, which is too long for a column. */
static const char *explain_device_name(const weir_candidate *c, size_t count)
{
    if (count > 1)
        return "any";
    if (c->device[0] == '\0')
        return "-";
    return strcmp(c->runtime, "host") == 0 ? c->device : c->runtime;
}

static void bytes_text(const weir_candidate *c, char *text, size_t capacity)
{
    uint64_t sum = 0;
    bool exact = true;
    char size[24];
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        sum += c->bytes[i];
        exact = exact && c->exact[i];
    }
    snprintf(text, capacity, "%s%s", exact ? "" : "from ", weir_size_format(sum, size, sizeof size));
    if (!c->predicted)
        snprintf(text, capacity, "-");
}

static void explain_add_row(table *grid, const weir_candidate *c, size_t count)
{
    char rank[16] = "", bytes[40], device[24];
    bool taken = c->verdict == WEIR_VERDICT_ACCEPTED;
    if (taken)
        snprintf(rank, sizeof rank, "%d", (int)c->rank);
    snprintf(device, sizeof device, "%.20s", explain_device_name(c, count));
    bytes_text(c, bytes, sizeof bytes);
    table_row(grid);
    table_cell(grid, rank, terminal_bold(), true);
    table_cell(grid, c->engine, "", false);
    table_cell(grid, strcmp(c->provider, c[count - 1].provider) == 0 ? c->provider : "any", "", false);
    table_cell(grid, device, "", false);
    table_cell(grid, taken ? "accepted" : weir_name_of(WEIR_NAMES_VERDICT, c->verdict),
               taken ? terminal_green() : terminal_red(), false);
    table_cell(grid, bytes, "", true);
    table_cell(grid, c->reason, "", false);
}

/* The rule, then a row for each candidate. Refused candidates of an engine with the same reason share a row. */
static void print_choice(const weir_choice *choice)
{
    static const char *const heads[] = {"rank", "engine", "provider", "device", "verdict", "bytes", "reason"};
    table grid = {0};
    size_t screen = (size_t)terminal_columns();
    print_wrapped(choice->rule, screen > 40 ? screen : 40);
    putchar('\n');
    table_row(&grid);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        table_cell(&grid, heads[i], terminal_faint(), i == 0 || i == 5);
    for (size_t i = 0, count; i < choice->count; i += count) {
        count = same_count(choice, i);
        explain_add_row(&grid, &choice->candidates[i], count);
    }
    table_print_within(&grid, screen, REASON_LEAST, stdout);
    table_clear(&grid);
}

/* The verb --------------------------------------------------------------------------------------------------------- */

typedef struct explain_args {
    weir_choice_options options;
    const char *sysroot, *model;
    bool json;
} explain_args;

static int explain_read_model(char **operands, size_t count, void *to)
{
    explain_args *args = to;
    if (count != 1)
        return cli_usage("explain", count == 0 ? "which manifest or model?" : "one manifest or model at a time");
    args->model = operands[0];
    return args->model[0] != '\0' ? -1 : cli_usage("explain", "'' is no manifest or model");
}

#define AT(member) .at = offsetof(explain_args, member)

static const arg option_list[] = {
    ARGS_CHOICE(explain_args, options),
    {"sysroot", "DIR", "of the machine whose files are below DIR", ARG_NAME, AT(sysroot)},
    {"json", NULL, "the answer as JSON: policy, rule, chosen, cores, candidates[]", ARG_FLAG, AT(json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "explain",
    .usage = "explain MANIFEST|MODEL [OPTION…]",
    .about =
        "Shows which engine, provider and device a model would get, in the order in which they would be tried, and "
        "why each other one would not do, with the bytes that the engine predicts. Nothing is loaded and no device "
        "memory is touched.",
    .options = option_list,
    .notes = "MODEL is a file, a folder with genai_config.json, or the name of one in the store's models/. Defaults of "
             "--policy and --order: WEIR_POLICY "
             "and WEIR_PROVIDERS.\n\n"
             "Exit status: 0; 1 nothing is accepted, or the model cannot be looked at; 2 bad usage.",
    .read_operands = explain_read_model};

/* The model could not be looked at; the detail says why. */
static int explain_fail(const explain_args *args)
{
    if (args->json)
        (void)cli_print_json(json_pack("{s:s, s:o, s:n, s:n, s:[]}", "policy", "", "rule", text_json(weir_detail()),
                                       "chosen", "cores", "candidates"));
    return cli_fail("%s", weir_detail());
}

/* Bad usage, if the choice works without the options. */
static int fail_choice(const explain_args *args, const weir_manifest *manifest, weir_status status)
{
    weir_choice_options plain = WEIR_INIT(weir_choice_options);
    weir_choice *choice = NULL;
    plain.hardware = args->options.hardware;
    char *reason = text_copy(weir_detail());
    bool usage = status == WEIR_ERR_INVALID && weir_choice_create(manifest, &plain, &choice) == WEIR_OK;
    weir_choice_destroy(choice);
    (void)weir_fail(status, "%s", reason);
    int answer = usage ? cli_usage("explain", "%s", reason) : explain_fail(args);
    free(reason);
    return answer;
}

static int explain_answer(const explain_args *args, const weir_manifest *manifest, const weir_choice *choice)
{
    int status = CLI_OK;
    if (args->json)
        status = cli_print_json(explain_choice_json(manifest, &args->options, choice));
    else {
        print_choice(choice);
        explain_print_cores(manifest, &args->options, choice);
    }
    if (choice->accepted == 0 && status == CLI_OK)
        return cli_fail("%s: no engine, provider and device will do; %s", args->model,
                        args->json ? "the rule says why" : "the table says why");
    return args->json ? status : cli_flush(status);
}

static int inspect_explain(explain_args *args, const char *path)
{
    weir_manifest *manifest = NULL;
    weir_hardware *machine = NULL;
    weir_choice *choice = NULL;
    weir_hardware_options where = WEIR_INIT(weir_hardware_options);
    where.sysroot = args->sysroot;
    where.limit_ms = WEIR_HARDWARE_PATIENT_MS; /* as a choice looks */
    int status;
    weir_status looked = manifest_read(path, &manifest);
    if (looked == WEIR_OK)
        looked = weir_hardware_create(&where, &machine);
    args->options.hardware = machine;
    if (looked != WEIR_OK)
        status = explain_fail(args);
    else if ((looked = weir_choice_create(manifest, &args->options, &choice)) != WEIR_OK)
        status = fail_choice(args, manifest, looked);
    else
        status = explain_answer(args, manifest, choice);
    weir_choice_destroy(choice);
    weir_hardware_destroy(machine);
    manifest_release(manifest);
    return status;
}

int verb_explain(int argc, char **argv)
{
    explain_args args = {.options = WEIR_INIT(weir_choice_options)};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status >= 0)
        return status;
    char *path = engine_file_named(args.model);
    status = inspect_explain(&args, path);
    free(path);
    return status;
}
