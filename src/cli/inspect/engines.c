/* engines.c: the verb engines: the engine plug-ins, and what is missing of them; and the engine of a file. */
#include "cli/args.h"
#include <weir/engine.h>
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "engines/command.h"
#include "base/paths.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const args_table arguments = {
    .verb = "engines",
    .usage = "engines [--json]\nengines get [NAME…] [OPTION…]",
    .about =
        "Lists the engine plug-ins that are found here: whether the engine's own library is there, its version and its "
        "file, and what to do if it is missing. 'get' puts what the named engines need into the store, each of a "
        "pinned "
        "version and by its hash: onnx, llm, gguf (all if none is named). 'weir engines get --help' tells its options.",
    .options = args_json};

/* One engine: it was opened (table) and probed, or one of the two failed (problem). */
typedef struct finding {
    char *name;
    const weir_engine *table;
    weir_engine_probe probe;
    char *problem;
} finding;

static finding inspect_engines_look_at(const char *name)
{
    finding found = {.name = text_copy(name), .probe = WEIR_INIT(weir_engine_probe)};
    if (weir_engine_get(name, &found.table) != WEIR_OK) {
        found.table = NULL;
        found.problem = text_copy(weir_detail());
    } else if (found.table->probe(&found.probe) != WEIR_OK) {
        found.probe.available = false;
        found.problem = text_copy(weir_detail());
    } else if (!found.probe.available) {
        found.problem = text_copy(found.probe.missing);
    }
    return found;
}

static json_t *inspect_engines_finding_json(const finding *found)
{
    const weir_engine *engine = found->table;
    json_t *object =
        json_pack("{s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o}", "name", text_json(found->name), "opened", engine != NULL,
                  "available", found->probe.available, "version", text_json(found->probe.version), "library",
                  text_json(found->probe.library), "summary", text_json(engine != NULL ? engine->summary : ""),
                  "suffixes", text_json(engine != NULL ? engine->suffixes : ""), "missing",
                  text_json(found->problem != NULL ? found->problem : ""));
    return object;
}

static void print_finding(const finding *found)
{
    const weir_engine *engine = found->table;
    printf("%s%-10s%s ", terminal_bold(), found->name, terminal_plain());
    if (found->probe.available)
        printf("%sready%s    %s\n", terminal_green(), terminal_plain(), found->probe.version);
    else
        printf("%smissing%s  %s\n", terminal_red(), terminal_plain(), found->problem);
    if (engine != NULL)
        printf("           %s; takes %s\n", engine->summary, engine->suffixes);
    if (found->probe.library[0] != '\0')
        printf("           %s\n", found->probe.library);
}

static json_t *inspect_engines_list_engines(bool json, size_t *count)
{
    json_t *list = json_array();
    const char *name;
    for (*count = 0; (name = weir_engine_name_at(*count)) != NULL; ++*count) {
        finding found = inspect_engines_look_at(name);
        if (json)
            json_array_append_new(list, inspect_engines_finding_json(&found));
        else
            print_finding(&found);
        free(found.name);
        free(found.problem);
    }
    return list;
}

int verb_engines(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "get") == 0)
        return beside_become_engines(argv + 2);
    bool json = false;
    int status = args_read(&arguments, argc, argv, &json, NULL);
    if (status >= 0)
        return status;
    size_t count = 0;
    json_t *list = inspect_engines_list_engines(json, &count);
    weir_option path = WEIR_INIT(weir_option);
    bool named = weir_option_info("engine_path", 0, &path) == WEIR_OK && path.value[0] != '\0';
    if (json)
        return cli_print_json(
            json_pack("{s:o, s:o}", "engines", list, "engine_path", text_json(named ? path.value : "")));
    json_decref(list);
    if (count == 0)
        printf("no engine plug-in found (weir-engine-NAME.so): 'make' builds weir's own beside "
               "libweir, " WEIR_ENGINES_COMMAND "\n"
               "gets the engines they open; other places to look in are named by WEIR_ENGINE_PATH%s%s\n",
               named ? ", now " : "", named ? path.value : "");
    return cli_flush(CLI_OK);
}

/* ---- model files before they are loaded -------------------------------------------------------------------------- */

const weir_engine *engine_for_file(const char *path)
{
    const char *name;
    const weir_engine *engine;
    for (size_t i = 0; (name = weir_engine_name_at(i)) != NULL; i++)
        if (weir_engine_get(name, &engine) == WEIR_OK && wi_path_taken(engine->suffixes, path))
            return engine;
    return NULL;
}

/* An engine without the function `provider` has only the processor, in the state that `probe` tells. */
static weir_status provider_by_probe(const weir_engine *engine, size_t index, weir_engine_provider *out)
{
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    if (index > 0)
        return WEIR_ERR_NOT_FOUND;
    weir_status status = engine->probe(&probe);
    snprintf(out->name, sizeof out->name, "cpu");
    snprintf(out->library, sizeof out->library, "%s", probe.library);
    snprintf(out->version, sizeof out->version, "%s", probe.version);
    snprintf(out->missing, sizeof out->missing, "%s", status == WEIR_OK ? probe.missing : weir_detail());
    out->state = status == WEIR_OK && probe.available ? WEIR_PROVIDER_HERE : WEIR_PROVIDER_NO_LIBRARY;
    return WEIR_OK;
}

weir_status engine_provider_at(const weir_engine *engine, size_t index, weir_engine_provider *out)
{
    *out = WEIR_INIT(weir_engine_provider);
    bool tells =
        engine->struct_size >= offsetof(weir_engine, provider) + sizeof engine->provider && engine->provider != NULL;
    return tells ? engine->provider(index, out) : provider_by_probe(engine, index, out);
}

void engine_open_library(const char *path)
{
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    const weir_engine *engine = engine_for_file(path);
    if (engine != NULL)
        (void)engine->probe(&probe);
}

char *engine_file_named(const char *word)
{
    char stored[PATH_MAX];
    return text_copy(wi_path_meant(word, stored));
}
