/* top.c: the verb top: one process at a time, live. */
#include "watch.h"

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum top_form { TOP_SCREEN, TOP_LINES } top_form;

typedef struct top_args {
    uint64_t pid;      /* 0: all */
    uint64_t interval; /* milliseconds */
    top_form form;
    bool once, json;
    remote_server server;
} top_args;

typedef struct top {
    const top_args *args;
    watched_list found;
    view view;
    uint64_t shown; /* the process's pid; 0: the first one */
    size_t scrolled;
    bool paused;
} top;

static void top_look(top *t)
{
    watched_clear(&t->found);
    watched_find(t->args->pid, "stats", &t->found);
    json_t *state = t->args->pid == 0 ? remote_state(&t->args->server) : NULL;
    if (state)
        watched_add_server(&t->found, t->args->server.url, state);
    view_note(&t->view, &t->found);
}

/* Which of them is shown: the same as before, or the next one if that is gone. */
static size_t shown(const top *t)
{
    size_t i = 0;
    while (i + 1 < t->found.count && t->found.list[i].pid < t->shown)
        i++;
    return i;
}

static int none(const top *t)
{
    if (t->found.problem != NULL)
        return cli_fail("%s", t->found.problem);
    if (t->args->pid != 0)
        return cli_fail("process %llu cannot be watched: it is not there, or not this user's, or was started without "
                        "WEIR_WATCH=1",
                        (unsigned long long)t->args->pid);
    return cli_fail("no server answers at %s, and no process can be watched: start one with WEIR_WATCH=1",
                    t->args->server.url);
}

/* Without a screen ------------------------------------------------------------------------------------------------- */

static json_t *top_answer_json(const top *t)
{
    struct timespec now;
    json_t *list = json_array();
    clock_gettime(CLOCK_REALTIME, &now);
    for (size_t i = 0; i < t->found.count; i++)
        if (t->found.list[i].answer != NULL)
            json_array_append(list, t->found.list[i].answer);
    return json_pack("{s:f, s:o}", "time", (double)now.tv_sec + (double)now.tv_nsec / 1e9, "processes", list);
}

static char *name_line(const watched *process)
{
    if (process->pid == 0)
        return text_print("%s%s%s", terminal_bold(), process->command, terminal_plain());
    return text_print("%s%s%s (%llu)", terminal_bold(), process->command, terminal_plain(),
                      (unsigned long long)process->pid);
}

static int print_once(top *t)
{
    view_lines lines = {0};
    t->view.by_client = t->view.by_class = true;
    view_clear(&t->view); /* one point is no line */
    for (size_t i = 0; i < t->found.count; i++) {
        view_line(&t->view, &lines, name_line(&t->found.list[i]));
        view_process(&t->view, &t->found.list[i], &lines);
    }
    for (size_t i = 0; i < lines.count; i++)
        puts(lines.list[i]);
    view_lines_clear(&lines);
    return cli_flush(CLI_OK);
}

static void top_wait_for(uint64_t milliseconds)
{
    struct timespec left = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

/* A line for each look, until there is nothing to look at. */
static int top_print_lines(top *t)
{
    int status = CLI_OK;
    while (status == CLI_OK && t->found.count > 0) {
        json_t *object = top_answer_json(t);
        char *text = json_dumps(object, JSON_COMPACT);
        json_decref(object);
        if (text != NULL)
            puts(text);
        else
            text_out_of_memory();
        free(text);
        status = cli_flush(CLI_OK);
        if (t->args->once)
            break;
        top_wait_for(t->args->interval);
        top_look(t);
    }
    return status;
}

/* On a screen ------------------------------------------------------------------------------------------------------ */

static void head_line(const top *t, view_lines *out)
{
    char interval[24];
    char *name = t->found.count > 0 ? name_line(&t->found.list[shown(t)])
                                    : text_copy("no process can be watched: start one with WEIR_WATCH=1");
    view_line(&t->view, out,
              text_print("%sweir top%s  %s  %zu/%zu  %s%s", terminal_bold(), terminal_plain(), name,
                         t->found.count > 0 ? shown(t) + 1 : 0, t->found.count, t->paused ? "paused" : "every ",
                         t->paused ? "" : text_seconds((double)t->args->interval / 1000, interval, sizeof interval)));
    free(name);
}

static void foot_line(const top *t, view_lines *out)
{
    const char *sideways = t->view.unicode ? "←→" : "left/right", *along = t->view.unicode ? "↑↓" : "up/down";
    view_line(&t->view, out,
              text_print("%sq quit  s sort: %s  c %s  p %s  %s process  %s scroll%s", terminal_faint(),
                         view_sort_name(t->view.sort), t->view.by_client ? "classes" : "clients",
                         t->paused ? "go on" : "pause", sideways, along, terminal_plain()));
}

/* The first line, the last line, and between them as much of the process as there are rows for. */
static bool top_draw(top *t)
{
    view_lines body = {0}, all = {0};
    int rows, columns;
    screen_size(&rows, &columns);
    t->view.columns = columns;
    if (t->found.count > 0)
        view_process(&t->view, &t->found.list[shown(t)], &body);
    size_t room = rows > 2 ? (size_t)rows - 2 : 0, last = body.count > room ? body.count - room : 0;
    t->scrolled = t->scrolled > last ? last : t->scrolled;
    head_line(t, &all);
    for (size_t i = 0; i < room; i++)
        view_line(&t->view, &all, text_copy(t->scrolled + i < body.count ? body.list[t->scrolled + i] : ""));
    foot_line(t, &all);
    bool drawn = screen_draw(all.list, all.count);
    view_lines_clear(&body);
    view_lines_clear(&all);
    return drawn;
}

static void go_to(top *t, size_t index)
{
    if (index < t->found.count) {
        t->shown = t->found.list[index].pid;
        t->scrolled = 0;
    }
}

/* Acts on a key. False: the key ends the command. */
static bool obey(top *t, int key)
{
    switch (key) {
    case 's':
        t->view.sort = (t->view.sort + 1) % VIEW_SORTS;
        return true;
    case 'c':
        t->view.by_client = !t->view.by_client;
        t->view.by_class = !t->view.by_client;
        return true;
    case 'p':
        t->paused = !t->paused;
        return true;
    case SCREEN_UP:
        t->scrolled -= t->scrolled > 0;
        return true;
    case SCREEN_DOWN:
        t->scrolled++;
        return true;
    case SCREEN_LEFT:
        go_to(t, shown(t) - 1); /* before the first there is none: the number is too large */
        return true;
    case SCREEN_RIGHT:
        go_to(t, shown(t) + 1);
        return true;
    default:
        return key != 'q' && key != SCREEN_END;
    }
}

/* Until a key or a signal ends it, or the one process that was asked for is gone. */
static bool top_follow(top *t)
{
    uint64_t next = cli_now() / 1000000 + t->args->interval;
    for (bool going = true; going;) {
        if (!top_draw(t))
            return true;
        uint64_t now = cli_now() / 1000000;
        int key = screen_key_pressed(t->paused ? -1 : next > now ? (int)(next - now) : 0);
        going = obey(t, key);
        if (going && !t->paused && cli_now() / 1000000 >= next) {
            top_look(t);
            next = cli_now() / 1000000 + t->args->interval;
        }
        if (t->args->pid != 0 && t->found.count == 0)
            return false;
    }
    return true;
}

static int top_show(top *t)
{
    char *name = t->args->pid != 0 ? name_line(&t->found.list[0]) : NULL;
    t->view.by_client = true;
    screen_enter();
    bool there = top_follow(t);
    screen_leave();
    screen_obey();
    if (!there)
        printf("%s has ended\n", name);
    free(name);
    return cli_flush(CLI_OK);
}

/* The verb --------------------------------------------------------------------------------------------------------- */

enum { INTERVAL_LEAST = 100, INTERVAL_MOST = 3600 * 1000 };

static int read_interval(const arg *option, const char *value, void *to)
{
    top_args *args = to;
    char *end = NULL;
    double number = value[0] >= '0' && value[0] <= '9' ? strtod(value, &end) : -1;
    double unit = end == NULL || number < 0               ? 0
                  : strcmp(end, "ms") == 0                ? 1
                  : strcmp(end, "s") == 0 || *end == '\0' ? 1000
                                                          : 0;
    if (!(number * unit >= INTERVAL_LEAST && number * unit <= INTERVAL_MOST))
        return cli_usage("top", "--%s %s: 100ms to 3600s are wanted", option->name, value);
    args->interval = (uint64_t)(number * unit);
    return -1;
}

static int read_form(const arg *option, const char *value, void *to)
{
    top_args *args = to;
    if (strcmp(value, "json") != 0 && strcmp(value, "screen") != 0)
        return cli_usage("top", "--%s %s: json or screen is wanted", option->name, value);
    args->form = strcmp(value, "json") == 0 ? TOP_LINES : TOP_SCREEN;
    return -1;
}

static int read_pid(char **operands, size_t count, void *to)
{
    top_args *args = to;
    if (count > 1)
        return cli_usage("top", "one process at a time");
    if (count == 1 && !text_number(operands[0], 1, INT32_MAX, &args->pid))
        return cli_usage("top", "'%s' is no process's number; 'weir ps' lists them", operands[0]);
    return -1;
}

static const arg option_list[] = {
    ARGS_REMOTE(top_args, server),
    {"once", NULL, "one look, without taking the screen", ARG_FLAG, .at = offsetof(top_args, once)},
    {"interval", "TIME", "how often it is looked: 500ms, 2s (default: 1s)", ARG_CALL, .read = read_interval},
    {"format", "NAME", "screen (default), or json: a JSON object in a line for each look", ARG_CALL, .read = read_form},
    {"json", NULL, "one look, as one JSON object on standard output", ARG_FLAG, .at = offsetof(top_args, json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "top",
    .usage = "top [PID] [--server URL] [--once] [--interval TIME] [--format NAME] [--json]",
    .about =
        "Shows a running server (weir serve), a process that can be watched, or all of them by turns: of a server also "
        "its models and requests; for each device the budget, with what is live "
        "and held of it now and was before, and a bar for each client or class; where a client is suspended, "
        "what is away of each. Bars of clients and classes are as "
        "long as the largest among them needs. Where standard output is no terminal there is one look.",
    .options = option_list,
    .notes =
        "Keys: q quits, s sorts the clients otherwise, c shows classes or clients, p pauses; the arrows to the left "
        "and right choose the process, those up and down scroll.\n\n"
        "'weir ps' says which processes can be watched. A server is asked at --server, WEIR_SERVER or "
        "http://127.0.0.1:8000.",
    .read_operands = read_pid};

int verb_top(int argc, char **argv)
{
    top_args args = {.interval = 1000};
    json_t *state = NULL;
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status < 0)
        status = remote_defaults(&args.server, "top");
    if (status < 0 && args.server.chosen && args.pid == 0)
        status = remote_look(&args.server, &state); /* says why none answers */
    json_decref(state);
    if (status >= 0)
        return status;
    top t = {.args = &args, .view = {.unicode = view_is_unicode(), .columns = terminal_columns()}};
    bool screen = args.form == TOP_SCREEN && !args.once && !args.json && screen_is_there();
    top_look(&t);
    if (t.found.count == 0 && (!screen || args.pid != 0 || t.found.problem != NULL))
        status = none(&t);
    else if (screen)
        status = top_show(&t);
    else if (args.json)
        status = cli_print_json(top_answer_json(&t));
    else
        status = args.form == TOP_LINES ? top_print_lines(&t) : print_once(&t);
    watched_clear(&t.found);
    view_clear(&t.view);
    return status;
}
