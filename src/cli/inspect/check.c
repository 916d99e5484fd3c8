/* check.c: `weir check`: everything that is wrong with a manifest, with its place. */
#include "check_engine.h"

#include "cli/cli.h"
#include "cli/engine_file.h"
#include "cli/manifest.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <weir/options.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir check MANIFEST [--json]\n"
    "       weir check --clear [--json]\n\n"
    "Looks whether a manifest is good: a JSON file, a package (.aimod) or a model, which may be the name of one in\n"
    "the store's models/. Every problem is a line on standard output, PATH:LINE:COLUMN: what is wrong. The model has\n"
    "to be there; it is not loaded, and no device is asked. Its engine is asked whether it takes the settings.\n"
    "That the engine, or a provider that the manifest names, is not here is a remark, with the way to get it.\n\n"
    "A package is unpacked into the store, where it stays for later runs. --clear removes all unpacked packages that\n"
    "nothing uses; WEIR_UNPACKED and WEIR_UNPACKED_AGE ('weir options') bound what stays by itself.\n\n"
    "Exit status: 0 it is good; 1 it has problems, or cannot be read; 2 bad usage.\n";

static json_t *problem_json(uint32_t line, uint32_t column, const char *text)
{
    return json_pack("{s:I, s:I, s:o}", "line", (json_int_t)line, "column", (json_int_t)column, "text",
                     text_json(text));
}

/* What is neither a manifest nor a model that weir knows is for the engines that are here. */
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

static int answer_json(const weir_manifest_problems *list, const check_engine *engine)
{
    json_t *errors = json_array();
    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(errors,
                              problem_json(list->problems[i].line, list->problems[i].column, list->problems[i].text));
    return cli_print_json(json_pack("{s:b, s:o, s:o, s:I, s:o, s:o}", "good", list->count == 0, "path",
                                    text_json(list->path), "errors", errors, "more", (json_int_t)list->more, "engine",
                                    engine_json(engine), "remarks", remarks_json(engine)));
}

/* It could not be looked at, for the reason that the detail has. */
static int fail(const char *path, bool json)
{
    if (json)
        (void)cli_print_json(json_pack("{s:b, s:o, s:[o], s:i, s:n, s:[]}", "good", false, "path", text_json(path),
                                       "errors", problem_json(0, 0, weir_detail()), "more", 0, "engine", "remarks"));
    return cli_fail("%s", weir_detail());
}

static void print_problem(const char *path, const weir_manifest_problem *problem)
{
    char *clean = text_clean(problem->text, strlen(problem->text), false);
    char *where = text_clean(path, strlen(path), false);
    printf("%s%s:%u:%u:%s %s\n", terminal_bold(), where, problem->line, problem->column, terminal_plain(), clean);
    free(where);
    free(clean);
}

static void print_remark(const char *path, const char *text)
{
    char *clean = text_clean(text, strlen(text), false);
    char *where = text_clean(path, strlen(path), false);
    printf("%s%s:%s remark: %s\n", terminal_bold(), where, terminal_plain(), clean);
    free(where);
    free(clean);
}

static int answer(const weir_manifest_problems *list, const check_engine *engine)
{
    for (size_t i = 0; i < list->count; i++)
        print_problem(list->path, &list->problems[i]);
    if (list->count == 0) {
        char *clean = text_clean(list->path, strlen(list->path), false);
        printf("%s is %sgood%s\n", clean, terminal_green(), terminal_plain());
        free(clean);
    }
    for (size_t i = 0; i < engine->remark_count; i++)
        print_remark(list->path, engine->remarks[i]);
    return cli_flush(CLI_OK);
}

static int tell(const weir_manifest_problems *list, const check_engine *engine, bool json)
{
    size_t all = list->count + list->more;
    int status = json ? answer_json(list, engine) : answer(list, engine);
    if (status == CLI_OK && all > 0)
        status = cli_fail("%s has %zu problem%s%s", list->path, all, all == 1 ? "" : "s",
                          list->more > 0 ? "; the first are listed" : "");
    return status;
}

static int check(const char *path, bool json)
{
    weir_manifest_problems *list = NULL;
    check_engine engine = {.name = NULL};
    if (manifest_check(path, &list) != WEIR_OK)
        return fail(path, json);
    bool good = list->count > 0 || ask_engines(path, &engine) == WEIR_OK;
    int status = good ? tell(list, &engine, json) : fail(path, json);
    check_engine_clear(&engine);
    manifest_problems_release(list);
    return status;
}

/* unpacked packages ------------------------------------------------------------------------------------------------ */

static int clear(bool json)
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

static int read_words(int argc, char **argv, bool *clears, bool *json)
{
    static const struct option words[] = {{"clear", no_argument, NULL, 'c'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    opterr = 0;
    optind = 1;
    for (int code; (code = getopt_long(argc, argv, ":h", words, NULL)) != -1;) {
        if (code == 'h') {
            fputs(help, stdout);
            return cli_flush(CLI_OK);
        }
        if (code != 'c' && code != 'j')
            return cli_bad_option(argv[0], code, argv);
        *(code == 'c' ? clears : json) = true;
    }
    return -1;
}

int verb_check(int argc, char **argv)
{
    bool clears = false, json = false;
    int status = read_words(argc, argv, &clears, &json);
    if (status >= 0)
        return status;
    if (clears)
        return optind == argc ? clear(json) : cli_usage(argv[0], "--clear takes no manifest");
    if (optind + 1 != argc)
        return cli_usage(argv[0], optind == argc ? "which manifest?" : "one manifest at a time");
    if (argv[optind][0] == '\0')
        return cli_usage(argv[0], "'' is no manifest or model");
    char *path = engine_file_named(argv[optind]);
    status = check(path, json);
    free(path);
    return status;
}
