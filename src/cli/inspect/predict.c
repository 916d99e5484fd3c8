/* predict.c: the verb predict: what a model will take, by class, and how it would fit. */
#include <weir/base.h>
#include <weir/manifest.h>
#include <weir/predict.h>

#include "base/values.h"
#include "cli/args.h"
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct predict_args {
    weir_predict_options options;
    weir_fit_options allowed;
    const char *model;
    weir_setting *settings;
    size_t setting_count;
    uint64_t fit, context, sequences; /* 0: not given */
    bool json;
} predict_args;

/* JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *prediction_json(const weir_prediction *p)
{
    json_t *sources = json_object(), *exact = json_object();
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        const char *name = weir_name_of(WEIR_NAMES_CLASS, i);
        json_object_set_new(sources, name, json_string(weir_name_of(WEIR_NAMES_SOURCE, (int)p->source[i])));
        json_object_set_new(exact, name, json_boolean(p->exact[i]));
    }
    json_t *object =
        json_pack("{s:o, s:o, s:o, s:o}", "engine", text_json(p->engine), "provider", text_json(p->provider), "device",
                  text_json(p->device), "version", text_json(p->version));
    json_object_set_new(object, "resident", cli_classes_json(p->resident));
    json_object_set_new(object, "peak", cli_classes_json(p->peak));
    json_object_set_new(object, "host", cli_classes_json(p->host));
    json_object_set_new(object, "least", cli_classes_json(p->least));
    json_object_set_new(object, "least_total", text_json_count(p->least_total));
    json_object_set_new(object, "resident_total", text_json_count(p->resident_total));
    json_object_set_new(object, "peak_total", text_json_count(p->peak_total));
    json_object_set_new(object, "host_total", text_json_count(p->host_total));
    json_object_set_new(object, "source", sources);
    json_object_set_new(object, "exact", exact);
    json_object_set_new(object, "context", text_json_count(p->context));
    json_object_set_new(object, "sequences", text_json_count(p->sequences));
    json_object_set_new(object, "layers", text_json_count(p->layers));
    json_object_set_new(object, "layers_on_device", text_json_count(p->layers_on_device));
    json_object_set_new(object, "loads", text_json_count(p->loads));
    return object;
}

static json_t *inspect_predict_answer_json(const weir_prediction *p, const weir_fit *fit)
{
    json_t *object = prediction_json(p);
    json_t *way = json_null();
    if (fit)
        way = json_pack("{s:b, s:o, s:o}", "fits", (int)fit->fits, "context",
                        fit->context > 0 ? text_json_count(fit->context) : json_null(), "gpu_layers",
                        fit->layers >= 0 ? json_integer((json_int_t)fit->layers) : json_null());
    json_object_set_new(object, "fit", way);
    return object;
}

/* Text ------------------------------------------------------------------------------------------------------------- */

static void inspect_predict_size_cell(table *grid, uint64_t bytes)
{
    char text[24];
    table_cell(grid, bytes > 0 ? weir_size_format(bytes, text, sizeof text) : "0", "", true);
}

static void inspect_predict_add_row(table *grid, const char *name, const weir_prediction *p, const uint64_t bytes[3],
                                    const char *from)
{
    table_row(grid);
    table_cell(grid, name, "", false);
    for (int i = 0; i < (p->host_total > 0 ? 3 : 2); i++)
        inspect_predict_size_cell(grid, bytes[i]);
    table_cell(grid, from, "", false);
}

static void inspect_predict_print_table(const weir_prediction *p)
{
    static const char *const heads[] = {"class", "resident", "peak", "on the host", "from"};
    table grid = {0};
    table_row(&grid);
    for (int i = 0; i < 5; i++)
        if (i != 3 || p->host_total > 0)
            table_cell(&grid, heads[i], terminal_faint(), i > 0 && i < 4);
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        char from[48];
        const uint64_t bytes[3] = {p->resident[i], p->peak[i], p->host[i]};
        if (bytes[0] + bytes[1] + bytes[2] == 0)
            continue;
        snprintf(from, sizeof from, "%s%s", weir_name_of(WEIR_NAMES_SOURCE, (int)p->source[i]),
                 p->exact[i] ? ", exact" : "");
        inspect_predict_add_row(&grid, weir_name_of(WEIR_NAMES_CLASS, i), p, bytes, from);
    }
    const uint64_t all[3] = {p->resident_total, p->peak_total, p->host_total};
    inspect_predict_add_row(&grid, "together", p, all, "");
    table_end(&grid);
}

static void inspect_predict_print_answer(const weir_prediction *p)
{
    printf("%s with %s on %s", p->engine, p->provider, p->device);
    if (p->context > 0)
        printf(", context %llu", (unsigned long long)p->context);
    if (p->sequences > 1)
        printf(", %u sequences", p->sequences);
    if (p->layers_on_device > 0)
        printf(", %u of %u layers there", p->layers_on_device, p->layers);
    if (p->loads > 0)
        printf("; %llu %s measured", (unsigned long long)p->loads, p->loads == 1 ? "load was" : "loads were");
    puts("\n");
    inspect_predict_print_table(p);
}

static void print_fit(const predict_args *args, const weir_fit *fit)
{
    char size[24];
    printf("\n%s %s", fit->fits ? "fits into" : "does not fit into", weir_size_format(args->fit, size, sizeof size));
    if (fit->context > 0)
        printf(", context=%llu", (unsigned long long)fit->context);
    if (fit->layers >= 0)
        printf(", gpu_layers=%lld", (long long)fit->layers);
    puts("");
}

/* The verb --------------------------------------------------------------------------------------------------------- */

static void inspect_predict_add_setting(predict_args *args, const char *key, const char *value)
{
    args->settings = text_grow(args->settings, args->setting_count + 1, sizeof *args->settings);
    args->settings[args->setting_count++] = (weir_setting){key, value};
}

static int inspect_predict_read_setting(const arg *option, const char *value, void *to)
{
    const char *equals = strchr(value, '=');
    (void)option;
    if (equals == NULL || equals == value)
        return cli_usage("predict", "--set %s: KEY=VALUE is wanted", value);
    inspect_predict_add_setting(to, text_print("%.*s", (int)(equals - value), value), text_copy(equals + 1));
    return -1;
}

static int read_fit(const arg *option, const char *value, void *to)
{
    predict_args *args = to;
    (void)option;
    if (wi_size_parse(value, &args->fit) != WEIR_OK || args->fit == 0)
        return cli_usage("predict", "--fit %s: a size is wanted, as 6GiB", value);
    return -1;
}

static int inspect_predict_read_model(char **operands, size_t count, void *to)
{
    predict_args *args = to;
    if (count != 1)
        return cli_usage("predict", count == 0 ? "which manifest or model?" : "one manifest or model at a time");
    args->model = operands[0];
    return args->model[0] != '\0' ? -1 : cli_usage("predict", "'' is no manifest or model");
}

#define AT(member) .at = offsetof(predict_args, member)

static const arg option_list[] = {
    {"engine", "NAME", "this engine (default: by the file)", ARG_NAME, AT(options.engine)},
    {"provider", "NAME", "this provider of it (default: cpu, or cuda on a CUDA device)", ARG_NAME,
     AT(options.provider)},
    {"device", "NAME", "host (default), cuda:0", ARG_NAME, AT(options.device)},
    {"context", "N", "tokens of one sequence", ARG_NUMBER, AT(context), 1, 1 << 24},
    {"sequences", "N", "that go on together", ARG_NUMBER, AT(sequences), 1, 256},
    {"set", "KEY=VALUE", "a setting of the engine, as at a load; dims=batch=1,sequence=128 of an ONNX model", ARG_CALL,
     .read = inspect_predict_read_setting},
    {"quick", NULL, "of the file alone: no engine's library is opened", ARG_FLAG, AT(options.quick)},
    {"cold", NULL, "leave out what earlier loads have measured", ARG_FLAG, AT(options.cold)},
    {"fit", "SIZE", "also how it would fit into SIZE", ARG_CALL, .read = read_fit},
    {"least-context", "N", "with --fit: the context may be as small as that", ARG_NUMBER, AT(allowed.least_context), 1,
     1 << 24},
    {"layers", NULL, "with --fit: layers may stay on the host (gguf on a device)", ARG_FLAG, AT(allowed.layers)},
    {"json", NULL, "the answer as JSON: resident, peak, source, exact, fit …", ARG_FLAG, AT(json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "predict",
    .usage = "predict MANIFEST|MODEL [OPTION…]",
    .about = "Shows what a model will take, by class, before it is loaded, and where each figure comes from: earlier "
             "loads of it, the engine's own dry run, the structure of the file, its size. Nothing is loaded and no "
             "device memory is touched.",
    .options = option_list,
    .notes = "MODEL is a file, a folder with genai_config.json, or the name of one in the store's models/. What loads "
             "have measured is in the store's file predictions, unless WEIR_PREDICTIONS is 0.\n\n"
             "Exit status: 0; 1 the model cannot be looked at, or does not fit; 2 bad usage.",
    .read_operands = inspect_predict_read_model};

static int inspect_predict_answer(const predict_args *args, const weir_prediction *p, const weir_fit *fit)
{
    int status = CLI_OK;
    if (args->json) {
        status = cli_print_json(inspect_predict_answer_json(p, fit));
    } else {
        inspect_predict_print_answer(p);
        if (fit)
            print_fit(args, fit);
    }
    if (fit && !fit->fits && status == CLI_OK)
        return cli_fail("%s does not fit", args->model);
    return args->json ? status : cli_flush(status);
}

static int inspect_predict(predict_args *args, const char *path)
{
    weir_manifest *manifest = NULL;
    weir_prediction p = WEIR_INIT(weir_prediction);
    weir_fit fit = WEIR_INIT(weir_fit);
    if (args->context > 0)
        inspect_predict_add_setting(args, text_copy("context"), text_print("%llu", (unsigned long long)args->context));
    if (args->sequences > 0)
        inspect_predict_add_setting(args, text_copy("sequences"),
                                    text_print("%llu", (unsigned long long)args->sequences));
    args->options.settings = args->settings;
    args->options.setting_count = args->setting_count;
    weir_status status = manifest_read(path, &manifest);
    args->options.manifest = manifest;
    if (status == WEIR_OK)
        status = weir_predict(NULL, &args->options, &p);
    if (status == WEIR_OK && args->fit > 0)
        status = weir_predict_fit(NULL, &args->options, args->fit, &args->allowed, &fit);
    int code = status == WEIR_OK ? inspect_predict_answer(args, &p, args->fit > 0 ? &fit : NULL)
                                 : cli_fail("%s", weir_detail());
    manifest_release(manifest);
    return code;
}

int verb_predict(int argc, char **argv)
{
    predict_args args = {.options = WEIR_INIT(weir_predict_options), .allowed = WEIR_INIT(weir_fit_options)};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status < 0) {
        char *path = engine_file_named(args.model);
        status = inspect_predict(&args, path);
        free(path);
    }
    for (size_t i = 0; i < args.setting_count; i++) {
        free((char *)args.settings[i].key);
        free((char *)args.settings[i].value);
    }
    free(args.settings);
    return status;
}
