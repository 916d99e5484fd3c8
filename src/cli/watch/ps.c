/* ps.c: the verb ps: a table of the watchable processes and their memory. */
#include "watch.h"

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ps_args {
    bool json, layout, processes;
    remote_server server;
} ps_args;

/* JSON ------------------------------------------------------------------------------------------------------------- */

static json_t *process_json(const watched *process)
{
    json_t *object = process->answer != NULL ? json_incref(process->answer) : json_pack("{s:[]}", "runtimes");
    json_object_set_new(object, "pid", text_json_count(process->pid));
    json_object_set_new(object, "command", text_json(process->command));
    json_object_set_new(object, "answers", json_boolean(process->answer != NULL));
    return object;
}

static int ps_print_json(const watched_list *found, const ps_args *args, const json_t *state)
{
    json_t *list = json_array(), *models = json_object_get(state, "models");
    for (size_t i = 0; i < found->count; i++)
        json_array_append_new(list, process_json(&found->list[i]));
    return cli_print_json(json_pack("{s:o, s:O*, s:O*, s:o}", "server",
                                    state ? json_string(args->server.url) : json_null(), "cores",
                                    json_object_get(state, "cores"), "models", models, "processes", list));
}

/* For people ------------------------------------------------------------------------------------------------------- */

static void ps_bytes_cell(table *grid, const json_t *runtime, const char *key)
{
    char text[24];
    table_cell(grid, weir_size_format(text_json_number(runtime, key), text, sizeof text), "", true);
}

static void begin_row(table *grid, const watched *process)
{
    enum { COMMAND_COLUMNS = 40 };
    char *command = text_copy(process->command);
    text_cut(command, COMMAND_COLUMNS);
    table_row(grid);
    table_count(grid, process->pid, terminal_bold());
    table_own(grid, command, "", false);
}

static void process_rows(table *grid, const watched *process, bool away)
{
    static const char *const sizes[] = {"budget", "live", "held", "peak", "away"};
    const json_t *runtimes = json_object_get(process->answer, "runtimes");
    if (json_array_size(runtimes) == 0) {
        begin_row(grid, process);
        table_cell(grid, process->answer != NULL ? "none" : "does not answer", terminal_yellow(), false);
    }
    for (size_t i = 0; i < json_array_size(runtimes); i++) {
        const json_t *runtime = json_array_get(runtimes, i);
        begin_row(grid, process);
        table_cell(grid, text_json_text(runtime, "device"), "", false);
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0] - !away; k++)
            ps_bytes_cell(grid, runtime, sizes[k]);
        table_count(grid, text_json_number(runtime, "client_count"), "");
        table_count(grid, text_json_number(runtime, "refusals"),
                    text_json_number(runtime, "refusals") > 0 ? terminal_red() : "");
    }
}

/* Without suspended clients there is no column of them. */
static bool any_away(const watched_list *found)
{
    for (size_t i = 0; i < found->count; i++)
        if (watched_sum(json_object_get(found->list[i].answer, "runtimes"), NULL, "away") > 0)
            return true;
    return false;
}

static void ps_print_table(const watched_list *found)
{
    static const char *const titles[] = {"pid",  "command", "device", "budget",  "live",
                                         "held", "peak",    "away",   "clients", "refusals"};
    enum { AWAY = 7 };
    bool away = any_away(found);
    table grid = {0};
    table_row(&grid);
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
        if (i != AWAY || away)
            table_cell(&grid, titles[i], terminal_bold(), i == 0 || i >= 3);
    for (size_t i = 0; i < found->count; i++)
        process_rows(&grid, &found->list[i], away);
    table_end(&grid);
}

/* Behind the table, a line for each process with models that have leased cores. */
static void ps_print_cores(const watched_list *found)
{
    for (size_t i = 0; i < found->count; i++) {
        char title[40];
        snprintf(title, sizeof title, "cores of %llu", (unsigned long long)found->list[i].pid);
        cores_print(title, json_object_get(found->list[i].answer, "cores"));
    }
}

static void print_none(const ps_args *args)
{
    if (args->processes || args->server.off)
        puts("no process can be watched: start one with WEIR_WATCH=1");
    else
        printf("no server answers at %s ('weir serve' starts one), and no process can be watched: start one with "
               "WEIR_WATCH=1\n",
               args->server.url);
}

/* What a server has, and below it the processes. */
static int print_tables(const watched_list *found, const ps_args *args, const json_t *state)
{
    if (state) {
        remote_print_models(state, false);
        cores_print("cores", json_object_get(state, "cores"));
    }
    if (state && found->count > 0)
        puts("");
    if (found->count > 0) {
        ps_print_table(found);
        ps_print_cores(found);
    } else if (!state) {
        print_none(args);
    }
    return cli_flush(CLI_OK);
}

/* The verb --------------------------------------------------------------------------------------------------------- */

static int ps_read_format(const arg *option, const char *value, void *to)
{
    ps_args *args = to;
    if (strcmp(value, "json") != 0 && strcmp(value, "table") != 0)
        return cli_usage("ps", "--%s %s: json or table is wanted", option->name, value);
    args->json = strcmp(value, "json") == 0;
    return -1;
}

static const arg option_list[] = {
    ARGS_REMOTE(ps_args, server),
    {"processes", NULL, "processes alone: no server is asked", ARG_FLAG, .at = offsetof(ps_args, processes)},
    {"format", "NAME", "table (default), or json", ARG_CALL, .read = ps_read_format},
    {"layout", NULL, "adds to the JSON where memory lies: segments, and bytes by the state of spans", ARG_FLAG,
     .at = offsetof(ps_args, layout)},
    {"json", NULL, "one JSON object on standard output", ARG_FLAG, .at = offsetof(ps_args, json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "ps",
    .usage = "ps [--server URL] [--processes] [--format NAME] [--layout] [--json]",
    .about =
        "Lists the models that a running server (weir serve) has loaded: their size, where they are, until when, and "
        "their "
        "requests. 'weir list' also lists those that are not loaded.\n\n"
        "Lists the processes that can be watched, a line for each of their devices: the budget, what is live and held "
        "of it, the most that was live, the clients, and how many requests were refused.",
    .options = option_list,
    .notes =
        "Where no server is named by --server or WEIR_SERVER, and none answers at http://127.0.0.1:8000, the processes "
        "alone are listed.\n\n"
        "A process can be watched if it was started with WEIR_WATCH=1 (or set the option `watch`), has a runtime, and "
        "is of the same user. Root can set XDG_RUNTIME_DIR to another user's. Sockets of processes that are gone "
        "are removed."};

int verb_ps(int argc, char **argv)
{
    ps_args args = {0};
    watched_list found;
    json_t *state = NULL;
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status < 0)
        status = remote_defaults(&args.server, "ps");
    if (status < 0 && !args.processes)
        status = remote_look(&args.server, &state);
    if (status >= 0)
        return status;
    watched_find(0, args.layout ? "layout" : "stats", &found);
    if (found.count == 0 && found.problem != NULL && !state)
        status = cli_fail("%s", found.problem);
    else
        status = args.json ? ps_print_json(&found, &args, state) : print_tables(&found, &args, state);
    json_decref(state);
    watched_clear(&found);
    return status;
}
