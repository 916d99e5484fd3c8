/* check.c: the verb check: everything that is wrong with a manifest, with its place, or with a server's configuration. */
#include <weir/base.h>
#include <weir/engine.h>
#include <weir/manifest.h>

#include "cli/args.h"
#include "cli/cli.h"
#ifdef WEIR_SERVE
#include "cli/serve/config.h"
#endif
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* The engine ------------------------------------------------------------------------------------------------------- */

/* What the engines here say of a manifest. Nothing is loaded, and no device is asked. */
typedef struct check_engine {
    char *name;     /* of the engine that the model is for; NULL: not looked for */
    bool here;      /* it could run a model, with one provider at least */
    char **remarks; /* what is not here, and how to get it */
    size_t remark_count;
} check_engine;

WEIR_PRINTF(2, 3)
static void inspect_check_remark(check_engine *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    out->remarks = text_grow(out->remarks, out->remark_count + 1, sizeof *out->remarks);
    out->remarks[out->remark_count++] = text_vprint(format, arguments);
    va_end(arguments);
}

/* What is not here ------------------------------------------------------------------------------------------------- */

static bool inspect_check_find_provider(const weir_engine *engine, const char *name, weir_engine_provider *out)
{
    for (size_t i = 0; engine_provider_at(engine, i, out) == WEIR_OK; i++)
        if (strcasecmp(out->name, name) == 0)
            return true;
    return false;
}

static bool has_any(const weir_engine *engine)
{
    weir_engine_provider provider;
    for (size_t i = 0; engine_provider_at(engine, i, &provider) == WEIR_OK; i++)
        if (provider.state == WEIR_PROVIDER_HERE)
            return true;
    return false;
}

/* Names what the processor's provider lacks, which every machine could have. */
static void remark_missing(check_engine *out, const weir_engine *engine)
{
    weir_engine_provider provider;
    bool known =
        inspect_check_find_provider(engine, "cpu", &provider) || engine_provider_at(engine, 0, &provider) == WEIR_OK;
    inspect_check_remark(out, "the engine %s cannot run a model here: %s", out->name,
                         known ? provider.missing : "it has no provider");
}

/* Remarks on a provider that the manifest names and that is not here. */
static void remark_provider(check_engine *out, const weir_engine *engine, const char *name)
{
    weir_engine_provider provider;
    if (strcasecmp(name, "cpu") == 0)
        return;
    if (!inspect_check_find_provider(engine, name, &provider))
        inspect_check_remark(out, "the engine %s has no provider %s", out->name, name);
    else if (provider.state != WEIR_PROVIDER_HERE)
        inspect_check_remark(out, "the provider %s of the engine %s is not here: %s", name, out->name,
                             provider.missing);
}

static void look_at_providers(check_engine *out, const weir_engine *engine, const weir_requirements *needs)
{
    out->here = has_any(engine);
    if (!out->here)
        remark_missing(out, engine);
    if (needs->preferred_provider)
        remark_provider(out, engine, needs->preferred_provider);
    for (size_t i = 0; i < needs->fallback_count; i++)
        if (!needs->preferred_provider || strcasecmp(needs->preferred_provider, needs->fallback_providers[i]) != 0)
            remark_provider(out, engine, needs->fallback_providers[i]);
}

/* Settings --------------------------------------------------------------------------------------------------------- */

/* Other failures of the prediction are left to the load. */
static bool takes_settings(const weir_engine *engine, const weir_manifest *manifest, const char *provider)
{
    weir_engine_plan plan = WEIR_INIT(weir_engine_plan);
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    load.path = manifest->model_file;
    load.settings = manifest->settings;
    load.setting_count = manifest->setting_count;
    load.provider = provider;
    return engine->plan(&load, &plan) != WEIR_ERR_INVALID;
}

typedef struct asking {
    check_engine *out;
    const weir_engine *engine;
    const weir_manifest *manifest;
    char *why; /* the first refusal; NULL: none yet */
} asking;

static bool inspect_check_ask(asking *it, const char *provider, bool named)
{
    if (takes_settings(it->engine, it->manifest, provider))
        return true;
    if (named)
        inspect_check_remark(it->out, "the provider %s is passed over, as the settings are not for it: %s", provider,
                             weir_detail());
    if (!it->why)
        it->why = text_copy(weir_detail());
    return false;
}

static bool ask_named(asking *it, const char *provider, bool *named)
{
    if (!provider || strcasecmp(provider, "cpu") == 0)
        return false;
    *named = true;
    return inspect_check_ask(it, provider, true);
}

/* With any provider that the model may come to: those that the manifest names and the processor; if it names none, all.
 */
static bool takes_settings_somehow(asking *it)
{
    const weir_requirements *needs = &it->manifest->requirements;
    weir_engine_provider provider;
    bool named = false, taken = ask_named(it, needs->preferred_provider, &named);
    for (size_t i = 0; i < needs->fallback_count; i++)
        taken |= ask_named(it, needs->fallback_providers[i], &named);
    if (!taken && needs->cpu != WEIR_CPU_FORBIDDEN)
        taken = inspect_check_ask(it, "cpu", false);
    for (size_t i = 0; !named && !taken && engine_provider_at(it->engine, i, &provider) == WEIR_OK; i++)
        taken = inspect_check_ask(it, provider.name, false);
    return taken;
}

static weir_status look_at_settings(check_engine *out, const weir_engine *engine, const weir_manifest *manifest)
{
    asking it = {.out = out, .engine = engine, .manifest = manifest};
    bool asks = manifest->setting_count > 0 && engine->plan != NULL;
    weir_status status = WEIR_OK;
    if (asks && !takes_settings_somehow(&it))
        status = weir_fail(WEIR_ERR_INVALID, "%s: tuning: %s", manifest->path, it.why ? it.why : "nobody takes it");
    free(it.why);
    return status;
}

/* WEIR_ERR_UNSUPPORTED: no engine here knows the model. WEIR_ERR_INVALID: the engine refuses the settings with every
 * provider that the manifest allows. A missing engine is a remark. */
static weir_status check_engine_look(const weir_manifest *manifest, check_engine *out)
{
    const weir_engine *engine = NULL;
    *out = (check_engine){.name = NULL};
    if (manifest->framework) {
        out->name = text_copy(manifest->framework);
        if (weir_engine_get(out->name, &engine) != WEIR_OK) {
            inspect_check_remark(out, "%s", weir_detail());
            return WEIR_OK;
        }
    } else if ((engine = engine_for_file(manifest->model_file)) == NULL) {
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s is neither a manifest nor a model that an engine here takes; 'weir engines' lists them",
                         manifest->model_file);
    } else {
        out->name = text_copy(engine->name);
    }
    look_at_providers(out, engine, &manifest->requirements);
    return look_at_settings(out, engine, manifest);
}

static void check_engine_clear(check_engine *engine)
{
    for (size_t i = 0; i < engine->remark_count; i++)
        free(engine->remarks[i]);
    free(engine->remarks);
    free(engine->name);
    *engine = (check_engine){.name = NULL};
}

/* The verb --------------------------------------------------------------------------------------------------------- */

static json_t *problem_json(uint32_t line, uint32_t column, const char *text)
{
    return json_pack("{s:I, s:I, s:o}", "line", (json_int_t)line, "column", (json_int_t)column, "text",
                     text_json(text));
}

/* Asks the engines here about the manifest, or about a model that weir itself does not know. */
static weir_status ask_engines(const char *path, check_engine *out)
{
    weir_manifest *manifest = NULL;
    weir_status status = manifest_read(path, &manifest);
    if (status == WEIR_OK)
        status = check_engine_look(manifest, out);
    manifest_release(manifest);
    return status;
}

static json_t *engine_json(const check_engine *engine)
{
    return engine->name ? json_pack("{s:o, s:b}", "name", text_json(engine->name), "here", engine->here) : json_null();
}

static json_t *remarks_json(const check_engine *engine)
{
    json_t *remarks = json_array();
    for (size_t i = 0; i < engine->remark_count; i++)
        json_array_append_new(remarks, text_json(engine->remarks[i]));
    return remarks;
}

static int inspect_check_answer_json(const weir_manifest_problems *list, const check_engine *engine)
{
    json_t *errors = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(errors,
                              problem_json(list->problems[i].line, list->problems[i].column, list->problems[i].text));
    return cli_print_json(json_pack("{s:b, s:o, s:o, s:I, s:o, s:o}", "good", list->count == 0, "path",
                                    text_json(list->path), "errors", errors, "more", (json_int_t)list->more, "engine",
                                    engine_json(engine), "remarks", remarks_json(engine)));
}

/* Without an engine; takes the errors. */
static int check_errors_json(const char *path, json_t *errors)
{
    return cli_print_json(json_pack("{s:b, s:o, s:o, s:i, s:n, s:[]}", "good", json_array_size(errors) == 0, "path",
                                    text_json(path), "errors", errors, "more", 0, "engine", "remarks"));
}

/* It could not be looked at; the detail says why. */
static int inspect_check_fail(const char *path, bool json)
{
    if (json)
        (void)check_errors_json(path, json_pack("[o]", problem_json(0, 0, weir_detail())));
    return cli_fail("%s", weir_detail());
}

/* "PATH:LINE:COLUMN: TEXT"; `place` is ":LINE:COLUMN", or "". */
static void check_print(const char *path, const char *place, const char *before, const char *text)
{
    char *clean = text_clean(text, strlen(text), false), *where = text_clean(path, strlen(path), false);
    printf("%s%s%s:%s %s%s\n", terminal_bold(), where, place, terminal_plain(), before, clean);
    free(where);
    free(clean);
}

static void check_print_good(const char *path)
{
    char *clean = text_clean(path, strlen(path), false);
    printf("%s is %sgood%s\n", clean, terminal_green(), terminal_plain());
    free(clean);
}

static int inspect_check_answer(const weir_manifest_problems *list, const check_engine *engine)
{
    for (size_t i = 0; i < list->count; i++) {
        char place[32];
        snprintf(place, sizeof place, ":%u:%u", list->problems[i].line, list->problems[i].column);
        check_print(list->path, place, "", list->problems[i].text);
    }
    if (list->count == 0)
        check_print_good(list->path);
    for (size_t i = 0; i < engine->remark_count; i++)
        check_print(list->path, "", "remark: ", engine->remarks[i]);
    return cli_flush(CLI_OK);
}

static int inspect_check_answer_all(const weir_manifest_problems *list, const check_engine *engine, bool json)
{
    size_t all = list->count + list->more;
    int status = json ? inspect_check_answer_json(list, engine) : inspect_check_answer(list, engine);
    if (status == CLI_OK && all > 0)
        status = cli_fail("%s has %zu problem%s%s", list->path, all, all == 1 ? "" : "s",
                          list->more > 0 ? "; the first are listed" : "");
    return status;
}

static int inspect_check(const char *path, bool json)
{
    weir_manifest_problems *list = NULL;
    check_engine engine = {.name = NULL};
    if (manifest_check(path, &list) != WEIR_OK)
        return inspect_check_fail(path, json);
    bool good = list->count > 0 || ask_engines(path, &engine) == WEIR_OK;
    int status = good ? inspect_check_answer_all(list, &engine, json) : inspect_check_fail(path, json);
    check_engine_clear(&engine);
    manifest_problems_release(list);
    return status;
}

/* A server's configuration ----------------------------------------------------------------------------------------- */

#ifdef WEIR_SERVE

/* Adds a problem to the configuration for each missing folder and for each fault in the file of a model. */
static void check_models(server_config *file)
{
    const char *name;
    json_t *model;
    struct stat found;
    for (size_t i = 0; i < file->folder_count; i++)
        if (stat(file->folders[i], &found) != 0 || !S_ISDIR(found.st_mode))
            config_problem(file, "folders: there is no folder %s", file->folders[i]);
    json_object_foreach(file->models, name, model)
    {
        weir_manifest_problems *list = NULL;
        weir_status status = manifest_check(config_text(model, "path"), &list);
        if (status != WEIR_OK)
            config_problem(file, "models.%.80s.path: %s", name, weir_detail());
        for (size_t i = 0; status == WEIR_OK && i < list->count; i++)
            config_problem(file, "models.%.80s.path: %s:%u:%u: %s", name, list->path, list->problems[i].line,
                           list->problems[i].column, list->problems[i].text);
        manifest_problems_release(list);
    }
}

static int answer_config_json(const char *path, const server_config *file)
{
    json_t *errors = json_array();
    for (size_t i = 0; i < file->problem_count; i++)
        json_array_append_new(errors, problem_json(0, 0, file->problems[i]));
    return check_errors_json(path, errors);
}

static int answer_config(const char *path, const server_config *file)
{
    for (size_t i = 0; i < file->problem_count; i++)
        check_print(path, "", "", file->problems[i]);
    if (file->problem_count == 0)
        check_print_good(path);
    return cli_flush(CLI_OK);
}

static int inspect_check_config(const char *path, bool json)
{
    server_config *file = serve_config(path);
    if (!file)
        return inspect_check_fail(path, json);
    check_models(file);
    size_t count = file->problem_count;
    int status = json ? answer_config_json(path, file) : answer_config(path, file);
    if (status == CLI_OK && count > 0)
        status = cli_fail("%s has %zu problem%s", path, count, count == 1 ? "" : "s");
    config_free(file);
    return status;
}

#else

static bool config_is(const char *path)
{
    (void)path;
    return false;
}

static int inspect_check_config(const char *path, bool json)
{
    return inspect_check(path, json);
}

#endif

/* Unpacked packages ------------------------------------------------------------------------------------------------ */

static int inspect_check_clear(bool json)
{
    char gone[24], left[24];
    weir_manifest_cleared c = WEIR_INIT(weir_manifest_cleared);
    if (manifest_clear(&c) != WEIR_OK)
        return cli_fail("%s", weir_detail());
    if (json)
        return cli_print_json(json_pack("{s:I, s:I, s:I, s:I, s:I}", "cleared", (json_int_t)c.cleared, "cleared_bytes",
                                        (json_int_t)c.cleared_bytes, "kept", (json_int_t)c.kept, "kept_bytes",
                                        (json_int_t)c.kept_bytes, "in_use", (json_int_t)c.in_use));
    printf("%zu unpacked package%s cleared (%s)", c.cleared, c.cleared == 1 ? "" : "s",
           weir_size_format(c.cleared_bytes, gone, sizeof gone));
    if (c.kept > 0)
        printf(", %zu in use (%s)", c.kept, weir_size_format(c.kept_bytes, left, sizeof left));
    puts("");
    return cli_flush(CLI_OK);
}

/* Arguments -------------------------------------------------------------------------------------------------------- */

typedef struct check_args {
    const char *path;
    bool clears, json;
} check_args;

static int inspect_check_read_path(char **operands, size_t count, void *to)
{
    check_args *args = to;
    if (args->clears)
        return count == 0 ? -1 : cli_usage("check", "--clear takes no manifest");
    if (count != 1)
        return cli_usage("check", count == 0 ? "which manifest?" : "one manifest at a time");
    args->path = operands[0];
    return args->path[0] != '\0' ? -1 : cli_usage("check", "'' is no manifest or model");
}

static const arg option_list[] = {
    {"clear", NULL, "removes all unpacked packages that nothing uses", ARG_FLAG, .at = offsetof(check_args, clears)},
    {"json", NULL, "one JSON object on standard output", ARG_FLAG, .at = offsetof(check_args, json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "check",
    .usage = "check MANIFEST|CONFIGURATION [--json]\ncheck --clear [--json]",
    .about =
        "Looks whether a manifest is good: a JSON file, a package (.aimod) or a model, which may be the name of one in "
        "the "
        "store's models/; or whether a server's configuration is (a JSON file with models or folders, "
        "'weir serve --config'). Every problem is a line on standard output, PATH:LINE:COLUMN: what is wrong. The "
        "model has "
        "to "
        "be there; it is not loaded, and no device is asked. Its engine is asked whether it takes the settings. That "
        "the engine, or a provider that the manifest names, is not here is a remark, with the way to get it.\n\n"
        "A package is unpacked into the store, where it stays for later runs; WEIR_UNPACKED and WEIR_UNPACKED_AGE "
        "('weir options') bound what stays by itself.",
    .options = option_list,
    .notes = "Exit status: 0 it is good; 1 it has problems, or cannot be read; 2 bad usage.",
    .read_operands = inspect_check_read_path};

int verb_check(int argc, char **argv)
{
    check_args args = {0};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status >= 0)
        return status;
    if (args.clears)
        return inspect_check_clear(args.json);
    char *path = engine_file_named(args.path);
    status = config_is(path) ? inspect_check_config(path, args.json) : inspect_check(path, args.json);
    free(path);
    return status;
}
