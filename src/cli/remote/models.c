/* models.c: the verbs list, show, load, unload, stop, suspend, resume, pin and unpin: models of a server that runs. */
#include "remote.h"

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct remote_args {
    remote_server server;
    char **models;
    size_t count;
    uint64_t pid; /* 0: a server's models */
    bool json;
} remote_args;

static const arg option_list[] = {
    ARGS_REMOTE(remote_args, server),
    {"json", NULL, "one JSON object on standard output", ARG_FLAG, .at = offsetof(remote_args, json)},
    {.name = NULL}};

static const arg aside_list[] = {
    ARGS_REMOTE(remote_args, server),
    {"process", "PID", "idle clients of this process that can be watched, by name, instead of a server's models",
     ARG_NUMBER, .at = offsetof(remote_args, pid), .least = 1, .most = INT32_MAX},
    {"json", NULL, "one JSON object on standard output", ARG_FLAG, .at = offsetof(remote_args, json)},
    {.name = NULL}};

/* ---- of the state ------------------------------------------------------------------------------------------------ */

static bool remote_models_is(const json_t *model, const char *state)
{
    return strcmp(text_json_text(model, "state"), state) == 0;
}

static const json_t *model_of(const json_t *state, const char *name)
{
    size_t i;
    const json_t *model, *found = NULL;
    json_array_foreach(json_object_get(state, "models"), i, model)
    {
        if (strcmp(text_json_text(model, "name"), name) == 0 &&
            (!found || json_is_true(json_object_get(model, "current"))))
            found = model;
    }
    return found;
}

char *remote_until(const json_t *model)
{
    const json_t *expires = json_object_get(model, "expires");
    if (!json_is_number(expires))
        return text_copy(json_is_true(json_object_get(model, "pinned")) ? "pinned" : "forever");
    double seconds = json_number_value(expires);
    if (seconds < 90)
        return text_print("%.0f seconds from now", seconds);
    if (seconds < 5400)
        return text_print("%.0f minutes from now", seconds / 60);
    return text_print("%.0f hours from now", seconds / 3600);
}

/* With how far a load is. */
static char *state_text(const json_t *model)
{
    const json_t *progress = json_object_get(model, "progress");
    return json_is_number(progress) && json_number_value(progress) > 0
               ? text_print("%s %.0f%%", text_json_text(model, "state"), 100 * json_number_value(progress))
               : text_copy(text_json_text(model, "state"));
}

static char *remote_models_size_text(uint64_t bytes)
{
    char buffer[24];
    return text_copy(bytes ? weir_size_format(bytes, buffer, sizeof buffer) : "-");
}

static char *requests_text(const json_t *model)
{
    uint64_t running = text_json_number(model, "running"), waiting = text_json_number(model, "waiting");
    return running + waiting == 0 ? text_copy("-")
           : waiting == 0
               ? text_print("%llu running", (unsigned long long)running)
               : text_print("%llu running, %llu waiting", (unsigned long long)running, (unsigned long long)waiting);
}

static void model_row(table *grid, const json_t *model, bool all)
{
    char seconds[24];
    bool there = remote_models_is(model, "loaded");
    uint64_t peak = text_json_number(model, "measured_peak") ? text_json_number(model, "measured_peak")
                                                             : text_json_number(model, "predicted_peak");
    const char *back = remote_models_is(model, "suspended") ? "resume_seconds" : "load_seconds";
    table_row(grid);
    table_cell(grid, text_json_text(model, "name"), terminal_bold(), false);
    table_own(grid, remote_models_size_text(all ? peak : text_json_number(model, "size")), "", false);
    if (all)
        table_cell(grid, text_json_text(model, "device"), "", false);
    else
        /* as `ollama ps` says it */
        table_cell(grid, strcmp(text_json_text(model, "device"), "host") == 0 ? "100% CPU" : "100% GPU", "", false);
    table_own(grid, state_text(model),
              there                               ? terminal_green()
              : remote_models_is(model, "failed") ? terminal_red()
                                                  : "",
              false);
    if (all) {
        table_cell(grid, text_json_text(model, "engine"), "", false);
        table_own(grid,
                  text_copy(text_seconds(json_number_value(json_object_get(model, back)), seconds, sizeof seconds)), "",
                  false);
    } else {
        table_own(grid, there || remote_models_is(model, "suspended") ? remote_until(model) : text_copy("-"), "",
                  false);
    }
    table_own(grid, requests_text(model), "", false);
}

void remote_print_models(const json_t *state, bool all)
{
    static const char *const titles[2][7] = {{"NAME", "SIZE", "PROCESSOR", "STATE", "UNTIL", "REQUESTS"},
                                             {"NAME", "SIZE", "DEVICE", "STATE", "ENGINE", "BACK IN", "REQUESTS"}};
    size_t i, shown = 0;
    const json_t *model;
    table grid = {0};
    table_titles(&grid, titles[all], all ? 7 : 6, terminal_bold(), 7);
    json_array_foreach(json_object_get(state, "models"), i, model)
    {
        if (!all && (remote_models_is(model, "unloaded") || remote_models_is(model, "failed")))
            continue;
        model_row(&grid, model, all);
        shown++;
    }
    if (shown > 0)
        table_print(&grid, stdout);
    else
        printf("%s has no model loaded: 'weir list' names what it serves\n", text_json_text(state, "address"));
    table_clear(&grid);
}

/* ---- list and show ----------------------------------------------------------------------------------------------- */

static const args_table list_arguments = {
    .verb = "list",
    .usage = "list [--server URL] [--json]",
    .about =
        "Lists the models that a running server has (weir serve), loaded or not: what each takes or took, its state, "
        "and how long it would take to have it back.",
    .options = option_list,
    .notes = "'weir ps' lists those alone that are there."};

int verb_list(int argc, char **argv)
{
    remote_args args = {0};
    json_t *state;
    int status = args_read(&list_arguments, argc, argv, &args, NULL);
    if (status < 0)
        status = remote_defaults(&args.server, "list");
    if (status < 0)
        status = remote_get(&args.server, "/weir/state", &state);
    if (status >= 0)
        return status;
    if (args.json) {
        status = cli_print_json(
            json_pack("{s:s, s:O}", "server", args.server.url, "models", json_object_get(state, "models")));
    } else {
        remote_print_models(state, true);
        status = cli_flush(CLI_OK);
    }
    json_decref(state);
    return status;
}

static int remote_models_read_models(char **operands, size_t count, void *to)
{
    remote_args *args = to;
    args->models = operands;
    args->count = count;
    return -1;
}

static const args_table show_arguments = {
    .verb = "show",
    .usage = "show MODEL… [--server URL] [--json]",
    .about =
        "Shows all that a running server (weir serve) knows of a model: where it is and why, its memory by class as "
        "predicted and measured, what it takes to have it back, and how often it came and went.",
    .options = option_list,
    .read_operands = remote_models_read_models};

static void line(const char *title, char *content)
{
    char *clean = text_clean(content, strlen(content), false);
    printf("  %-14s %s\n", title, clean);
    free(clean);
    free(content);
}

static void class_line(const char *title, const json_t *model, const char *total, const char *by)
{
    char buffer[24], *content = remote_models_size_text(text_json_number(model, total));
    const char *name;
    const json_t *bytes;
    json_object_foreach(json_object_get(model, by), name, bytes)
    {
        if (json_integer_value(bytes) <= 0)
            continue;
        text_add(&content, ", %s %s", name,
                 weir_size_format((uint64_t)json_integer_value(bytes), buffer, sizeof buffer));
    }
    line(title, content);
}

static void print_model(const json_t *model)
{
    static const char *const counts[] = {"loads",    "resumes", "suspends",    "evictions",
                                         "failures", "runs",    "runs_failed", "runs_cancelled"};
    static const char *const times[] = {"load_seconds", "resume_seconds"};
    char seconds[24];
    char *name = text_clean(text_json_text(model, "name"), strlen(text_json_text(model, "name")), false);
    printf("%s%s%s\n", terminal_bold(), name, terminal_plain());
    free(name);
    if (text_json_text(model, "version")[0])
        line("version", text_copy(text_json_text(model, "version")));
    line("engine", text_print("%s, %s, on %s", text_json_text(model, "engine"), text_json_text(model, "provider"),
                              text_json_text(model, "device")));
    line("state", state_text(model));
    if (text_json_text(model, "why")[0])
        line("why", text_copy(text_json_text(model, "why")));
    line("taken", remote_models_size_text(text_json_number(model, "size")));
    line("until", remote_until(model));
    line("requests", requests_text(model));
    class_line("predicted", model, "predicted_peak", "predicted");
    class_line("measured", model, "measured_peak", "measured");
    for (size_t i = 0; i < 2; i++)
        line(i ? "to resume" : "to load",
             text_copy(text_seconds(json_number_value(json_object_get(model, times[i])), seconds, sizeof seconds)));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char *title = text_copy(counts[i]);
        for (char *at = title; *at; at++)
            *at = *at == '_' ? ' ' : *at;
        line(title, text_print("%llu", (unsigned long long)text_json_number(model, counts[i])));
        free(title);
    }
}

int verb_show(int argc, char **argv)
{
    remote_args args = {0};
    json_t *state, *list = json_array();
    int status = args_read(&show_arguments, argc, argv, &args, NULL);
    if (status < 0 && args.count == 0)
        status = cli_usage("show", "which model? 'weir list' names them");
    if (status < 0)
        status = remote_defaults(&args.server, "show");
    if (status < 0)
        status = remote_get(&args.server, "/weir/state", &state);
    if (status >= 0) {
        json_decref(list);
        return status;
    }
    for (size_t i = 0; i < args.count && status < 0; i++) {
        const json_t *model = model_of(state, args.models[i]);
        if (!model)
            status = cli_fail("%s has no model '%s'; 'weir list' names them", args.server.url, args.models[i]);
        else if (args.json)
            json_array_append(list, (json_t *)(uintptr_t)model);
        else
            print_model(model);
    }
    if (status < 0)
        status = args.json ? cli_print_json(json_pack("{s:s, s:O}", "server", args.server.url, "models", list))
                           : cli_flush(CLI_OK);
    json_decref(list);
    json_decref(state);
    return status;
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

#define ASIDE(name, sentence)                                                                                          \
    {                                                                                                                  \
        .verb = name, .usage = name " MODEL… [--server URL] [--json]\n" name " CLIENT… --process PID [--json]",        \
        .about = sentence, .options = aside_list, .read_operands = remote_models_read_models                           \
    }
#define MOVE(name, sentence)                                                                                           \
    {                                                                                                                  \
        .verb = name, .usage = name " MODEL… [--server URL] [--json]", .about = sentence, .options = option_list,      \
        .read_operands = remote_models_read_models                                                                     \
    }

static const args_table moves[] = {
    MOVE("load",
         "Has a running server (weir serve) load models, or resume them, and waits for that. Idle models make room "
         "for them."),
    MOVE("unload",
         "Has a running server (weir serve) unload models, and says what came back. What runs in them may end "
         "first; requests that come later load them again."),
    MOVE("stop",
         "The same as unload: a model of a running server is unloaded when what runs in it has ended. The server "
         "itself is ended by SIGINT or SIGTERM."),
    ASIDE("suspend",
          "Has a running server (weir serve) suspend models: their memory leaves the device, and comes back at "
          "the next request. Of a process, clients that it has said to be idle, until it uses them."),
    ASIDE("resume", "Has a running server (weir serve) bring suspended models back, or load them, and waits for that. "
                    "Of a process, "
                    "idle clients that were suspended."),
    MOVE("pin", "Has a running server (weir serve) never unload these models to make room for others."),
    MOVE("unpin", "Has a running server (weir serve) unload these models for others again."),
};

/* How far a load is, from another thread, while the call waits. */
typedef struct follower {
    const remote_server *server;
    const char *model;
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool done;
} follower;

static void *remote_models_follow(void *user)
{
    enum { EVERY_NS = 200000000 };
    follower *it = user;
    void *keep = NULL;
    pthread_mutex_lock(&it->lock);
    while (!it->done) {
        remote_answer answer;
        pthread_mutex_unlock(&it->lock);
        remote_ask(it->server, &(remote_request){.method = "GET", .path = "/weir/state", .seconds = 5}, &keep, &answer);
        json_t *state = answer.body ? json_loadb(answer.body, answer.bytes, 0, NULL) : NULL;
        const json_t *model = model_of(state, it->model), *progress = json_object_get(model, "progress");
        if (json_is_number(progress))
            terminal_progress(it->model, json_number_value(progress));
        json_decref(state);
        free(answer.body);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += EVERY_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&it->lock);
        if (!it->done)
            pthread_cond_timedwait(&it->over, &it->lock, &until);
    }
    pthread_mutex_unlock(&it->lock);
    remote_end(keep);
    return NULL;
}

static int move_followed(const remote_server *server, const char *model, const char *path, json_t **out)
{
    follower it = {.server = server, .model = model};
    pthread_t thread;
    pthread_mutex_init(&it.lock, NULL);
    pthread_cond_init(&it.over, NULL);
    bool follows = terminal_shows_progress() && pthread_create(&thread, NULL, remote_models_follow, &it) == 0;
    int status = remote_post(server, path, out);
    pthread_mutex_lock(&it.lock);
    it.done = true;
    pthread_cond_broadcast(&it.over);
    pthread_mutex_unlock(&it.lock);
    if (follows)
        pthread_join(thread, NULL);
    terminal_progress_end();
    pthread_cond_destroy(&it.over);
    pthread_mutex_destroy(&it.lock);
    return status;
}

/* A name in a path. */
static char *escaped(const char *name)
{
    char *path = text_zeroed(3 * strlen(name) + 1, 1), *end = path;
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("-._~", c);
        end += plain ? sprintf(end, "%c", c) : sprintf(end, "%%%02X", c);
    }
    return path;
}

static void remote_models_print_moved(const json_t *answer)
{
    char returned[24], kept[24];
    const json_t *receipt = json_object_get(answer, "receipt");
    char *said = text_print("%s is %s%s", text_json_text(answer, "model"), text_json_text(answer, "state"),
                            json_is_true(json_object_get(answer, "pinned")) ? ", and pinned" : "");
    char *clean = text_clean(said, strlen(said), false);
    fputs(clean, stdout);
    free(clean);
    free(said);
    if (text_json_number(receipt, "before") > 0)
        printf(": %s came back", weir_size_format(text_json_number(receipt, "returned"), returned, sizeof returned));
    if (text_json_number(receipt, "kept") > 0)
        printf(", %s did not", weir_size_format(text_json_number(receipt, "kept"), kept, sizeof kept));
    puts("");
}

static int remote_models_move(const remote_args *args, const char *action, json_t *answers)
{
    int status = -1;
    for (size_t i = 0; i < args->count && status < 0; i++) {
        char *name = escaped(args->models[i]), *path = text_print("/weir/models/%s/%s", name, action);
        json_t *answer = NULL;
        status = move_followed(&args->server, args->models[i], path, &answer);
        if (status < 0 && !args->json)
            remote_models_print_moved(answer);
        if (status < 0)
            json_array_append(answers, answer);
        json_decref(answer);
        free(path);
        free(name);
    }
    return status;
}

int verb_move(int argc, char **argv)
{
    size_t which = 0;
    remote_args args = {0};
    while (which + 1 < sizeof moves / sizeof *moves && strcmp(moves[which].verb, argv[0]) != 0)
        which++;
    const args_table *arguments = &moves[which];
    int status = args_read(arguments, argc, argv, &args, NULL);
    if (status < 0 && args.count == 0)
        status = cli_usage(arguments->verb, "which model? 'weir list' names them");
    if (status < 0 && args.pid > 0)
        return remote_move_clients(args.pid, argv[0], args.models, args.count, args.json);
    if (status < 0)
        status = remote_defaults(&args.server, arguments->verb);
    if (status >= 0)
        return status;
    json_t *answers = json_array();
    status = remote_models_move(&args, strcmp(argv[0], "stop") == 0 ? "unload" : argv[0], answers);
    if (status < 0)
        status = args.json ? cli_print_json(json_pack("{s:s, s:O}", "server", args.server.url, "models", answers))
                           : cli_flush(CLI_OK);
    json_decref(answers);
    return status;
}
