/* yield.c: the verb yield: has processes that use weir give memory of a device back, for a program that wants it; and the verbs
 * suspend and resume for clients of a process. */
#include "remote.h"

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "cli/watch/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct yield_args {
    uint64_t bytes, pid, hold; /* hold: seconds; 0: as long as the process thinks */
    const char *device;
    bool given, json;
} yield_args;

/* Asking ----------------------------------------------------------------------------------------------------------- */

/* One process after the other, as what the first has given is free for the second one to see. */
static json_t *yield_ask(const yield_args *args, const watched *process)
{
    char request[64];
    watched_list found;
    const char *device = args->device ? args->device : "*";
    snprintf(request, sizeof request, "yield %llu %.30s", (unsigned long long)args->bytes, device);
    if (args->hold > 0)
        snprintf(request + strlen(request), sizeof request - strlen(request), " %llu", (unsigned long long)args->hold);
    watched_command(process->pid, request, &found);
    json_t *answer = found.count > 0 && found.list[0].answer ? json_incref(found.list[0].answer) : json_object();
    json_object_set_new(answer, "answers", json_boolean(json_object_get(answer, "runtimes") != NULL));
    json_object_set_new(answer, "pid", text_json_count(process->pid));
    json_object_set_new(answer, "command", text_json(process->command));
    watched_clear(&found);
    return answer;
}

/* For people ------------------------------------------------------------------------------------------------------- */

static void yield_part(char **line, const char *words, uint64_t bytes)
{
    char size[24];
    if (bytes == 0)
        return;
    char *longer =
        text_print("%s%s%s %s", *line, **line ? ", " : "", weir_size_format(bytes, size, sizeof size), words);
    free(*line);
    *line = longer;
}

static void yield_print_runtime(const json_t *process, const json_t *runtime)
{
    char given[24], available[24], lacks[24];
    char *how = text_copy(""), *stays = text_copy("");
    yield_part(&how, "cached", text_json_number(runtime, "trimmed"));
    yield_part(&how, "of idle clients", text_json_number(runtime, "suspended"));
    yield_part(&how, "by callbacks", text_json_number(runtime, "called"));
    yield_part(&stays, "in use", text_json_number(runtime, "live"));
    yield_part(&stays, "freed and not passed", text_json_number(runtime, "pending"));
    yield_part(&stays, "unused between blocks", text_json_number(runtime, "unused"));
    uint64_t short_of = text_json_number(runtime, "lacks");
    char *line = text_print(
        "%llu %s: gave %s%s%s%s; %s are free%s%s%s%s%s%s", (unsigned long long)text_json_number(process, "pid"),
        text_json_text(runtime, "device"), weir_size_format(text_json_number(runtime, "given"), given, sizeof given),
        *how ? " (" : "", how, *how ? ")" : "",
        weir_size_format(text_json_number(runtime, "available"), available, sizeof available),
        short_of ? ", and lacking " : "", short_of ? weir_size_format(short_of, lacks, sizeof lacks) : "",
        short_of && *stays ? ": it keeps " : "", short_of ? stays : "", *text_json_text(runtime, "why") ? "; " : "",
        text_json_text(runtime, "why"));
    char *clean = text_clean(line, strlen(line), false);
    puts(clean);
    free(clean);
    free(line);
    free(how);
    free(stays);
}

static void yield_print(const json_t *answers)
{
    for (size_t i = 0; i < json_array_size(answers); i++) {
        const json_t *process = json_array_get(answers, i), *runtimes = json_object_get(process, "runtimes");
        if (json_array_size(runtimes) == 0)
            printf("%llu %s\n", (unsigned long long)text_json_number(process, "pid"),
                   runtimes ? "has nothing on that device" : "does not answer, or is another user's");
        for (size_t k = 0; k < json_array_size(runtimes); k++)
            yield_print_runtime(process, json_array_get(runtimes, k));
    }
}

/* The verb --------------------------------------------------------------------------------------------------------- */

static int yield_read_operands(char **operands, size_t count, void *to)
{
    yield_args *args = to;
    if (count == 0 || count > 2)
        return cli_usage("yield", count == 0 ? "how much?" : "a size, and one process at most");
    args->given = true;
    if (weir_size_parse(operands[0], &args->bytes) != WEIR_OK)
        return cli_usage("yield", "%s", weir_detail());
    if (count == 2 && !text_number(operands[1], 1, INT32_MAX, &args->pid))
        return cli_usage("yield", "'%.40s' is no number of a process", operands[1]);
    return -1;
}

static const arg option_list[] = {
    {"device", "NAME", "on this device alone: cuda:0 (default: each that the process has, but the host)", ARG_NAME,
     .at = offsetof(yield_args, device)},
    {"hold", "SECONDS", "how long it stays free for whoever takes it (default: 10)", ARG_NUMBER,
     .at = offsetof(yield_args, hold), .least = 1, .most = 3600},
    {"json", NULL, "one JSON object on standard output", ARG_FLAG, .at = offsetof(yield_args, json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "yield",
    .usage = "yield SIZE [PID] [--device NAME] [--hold SECONDS] [--json]",
    .about =
        "Has the processes of this user that can be watched (WEIR_WATCH=1), or one of them, give so much memory back "
        "that SIZE is "
        "free on the device, for a program that is to be started: cached memory, idle clients and models that may be "
        "suspended, and what callbacks give up. What was suspended comes back when it is used.",
    .options = option_list,
    .notes = "Exit status 1: not all of it could be given. 'weir yield 0' takes an earlier yield back.",
    .read_operands = yield_read_operands};

static uint64_t yield_lacks(const json_t *answers)
{
    uint64_t most = 0;
    for (size_t i = 0; i < json_array_size(answers); i++) {
        const json_t *runtimes = json_object_get(json_array_get(answers, i), "runtimes");
        most = json_array_size(runtimes) == 0 && json_array_size(answers) == 1 ? 1 : most;
        for (size_t k = 0; k < json_array_size(runtimes); k++) {
            uint64_t lacks = text_json_number(json_array_get(runtimes, k), "lacks");
            most = lacks > most ? lacks : most;
        }
    }
    return most;
}

int verb_yield(int argc, char **argv)
{
    yield_args args = {0};
    watched_list found;
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status < 0 && !args.given)
        status = cli_usage("yield", "how much?");
    if (status >= 0)
        return status;
    watched_find(args.pid, "stats", &found);
    json_t *answers = json_array();
    for (size_t i = 0; i < found.count; i++)
        json_array_append_new(answers, yield_ask(&args, &found.list[i]));
    if (found.count == 0 && !args.json)
        status = cli_fail("%s", args.pid ? "that process cannot be watched: start it with WEIR_WATCH=1"
                                         : "no process can be watched: start one with WEIR_WATCH=1");
    else if (args.json)
        status = cli_print_json(json_pack("{s:O}", "processes", answers));
    else {
        yield_print(answers);
        status = cli_flush(CLI_OK);
    }
    if (status == CLI_OK && (found.count == 0 || yield_lacks(answers) > 0))
        status = CLI_FAILED;
    json_decref(answers);
    watched_clear(&found);
    return status;
}

/* Clients of a process --------------------------------------------------------------------------------------------- */

/* Prints what became of the clients of one name. Returns how many were moved; *wrong: some could not be. */
static size_t yield_print_moved(const json_t *answer, const char *name, bool away, bool *wrong)
{
    size_t moved = 0;
    const json_t *runtimes = json_object_get(answer, "runtimes");
    for (size_t i = 0; i < json_array_size(runtimes); i++) {
        const json_t *runtime = json_array_get(runtimes, i), *clients = json_object_get(runtime, "clients");
        for (size_t k = 0; k < json_array_size(clients); k++) {
            char size[24];
            const json_t *client = json_array_get(clients, k);
            bool good = json_is_true(json_object_get(client, "moved"));
            char *line = good ? text_print("%s on %s: %s %s", name, text_json_text(runtime, "device"),
                                           weir_size_format(text_json_number(client, "bytes"), size, sizeof size),
                                           away ? "have left" : "came back")
                              : text_print("%s on %s: %s", name, text_json_text(runtime, "device"),
                                           text_json_text(client, "why"));
            char *clean = text_clean(line, strlen(line), false);
            puts(clean);
            free(clean);
            free(line);
            moved += good;
            *wrong |= !good;
        }
    }
    return moved;
}

int remote_move_clients(uint64_t pid, const char *verb, char *const *names, size_t count, bool json)
{
    json_t *answers = json_array();
    bool wrong = false;
    int status = -1;
    for (size_t i = 0; i < count && status < 0; i++) {
        watched_list found;
        char *request = text_print("%s %.50s", verb, names[i]);
        watched_command(pid, request, &found);
        free(request);
        const json_t *answer = found.count > 0 ? found.list[0].answer : NULL;
        if (!answer)
            status = cli_fail(
                "process %llu does not answer, or is another user's; 'weir ps' lists those that can be watched",
                (unsigned long long)pid);
        else if (json)
            json_array_append(answers, found.list[0].answer);
        else if (yield_print_moved(answer, names[i], strcmp(verb, "suspend") == 0, &wrong) == 0 && !wrong)
            status = cli_fail("process %llu has no idle client '%.50s'", (unsigned long long)pid, names[i]);
        watched_clear(&found);
    }
    if (status < 0)
        status = json ? cli_print_json(json_pack("{s:O}", "processes", answers)) : cli_flush(CLI_OK);
    json_decref(answers);
    return status == CLI_OK && wrong ? CLI_FAILED : status;
}
