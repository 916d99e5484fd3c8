/* bench_serve.c: `weir bench serve`: clients that send a running server one request after another, and the times of
 * their waits. */
#include "bench.h"

#include "cli/args.h"
#include "cli/remote/remote.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct load_args {
    remote_server server;
    const char *model, *prompt, *kind;
    unsigned clients, seconds, tokens, timeout;
    bool json;
} load_args;

/* Times in nanoseconds. */
typedef struct samples {
    uint64_t *list;
    size_t count, room;
} samples;

/* Why requests failed, and how many each. */
enum { MOST_REASONS = 8 };

typedef struct reasons {
    struct {
        char *text;
        uint64_t count;
    } list[MOST_REASONS];
    size_t count;
} reasons;

typedef struct figures {
    samples first, between, whole;
    uint64_t answered, failed, tokens;
    reasons why;
} figures;

typedef struct load_client {
    const load_args *args;
    const char *path, *body;
    uint64_t until; /* no request begins later */
    pthread_t thread;
    figures found;
    /* Of the request that is under way: */
    uint64_t began, last;
    char line[16]; /* as much of the line that comes as says what it is */
    size_t used;
    bool speaks; /* the line has a text that is not empty */
    char tail[12];
} load_client;

static void bench_serve_add(samples *to, uint64_t value)
{
    if (to->count == to->room) {
        to->room = 2 * to->room + 256;
        to->list = text_grow(to->list, to->room, sizeof *to->list);
    }
    to->list[to->count++] = value;
}

static void bench_serve_join(samples *to, samples *from)
{
    for (size_t i = 0; i < from->count; i++)
        bench_serve_add(to, from->list[i]);
    free(from->list);
}

static void add_reason(reasons *to, const char *text, uint64_t count)
{
    size_t i = 0;
    while (i < to->count && strcmp(to->list[i].text, text) != 0)
        i++;
    if (i == MOST_REASONS)
        i = MOST_REASONS - 1; /* what is left over is counted with the last */
    if (i == to->count)
        to->list[to->count++].text = text_copy(text);
    to->list[i].count += count;
}

/* ---- one client -------------------------------------------------------------------------------------------------- */

/* A line of the stream has ended: "data: {…}" is a piece, if it has a text. The first one of a chat and the last one have
 * none. */
static void end_line(load_client *client)
{
    uint64_t now = bench_now();
    bool piece = client->used > 6 && strncmp(client->line, "data: {", 7) == 0 && client->speaks;
    client->used = 0;
    client->speaks = false;
    memset(client->tail, 0, sizeof client->tail);
    if (!piece)
        return;
    client->found.tokens++;
    if (client->last == 0)
        bench_serve_add(&client->found.first, now - client->began);
    else
        bench_serve_add(&client->found.between, now - client->last);
    client->last = now;
}

static bool bench_serve_ends_with(const load_client *client, const char *text)
{
    size_t bytes = strlen(text);
    return memcmp(client->tail + sizeof client->tail - bytes, text, bytes) == 0;
}

static bool take_part(const char *data, size_t bytes, void *user)
{
    load_client *client = user;
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] == '\n') {
            end_line(client);
            continue;
        }
        if (client->used < sizeof client->line)
            client->line[client->used++] = data[i];
        if (data[i] != '"' &&
            (bench_serve_ends_with(client, "\"text\":\"") || bench_serve_ends_with(client, "\"content\":\"")))
            client->speaks = true;
        memmove(client->tail, client->tail + 1, sizeof client->tail - 1);
        client->tail[sizeof client->tail - 1] = data[i];
    }
    return true;
}

static void bench_serve_note_failure(load_client *client, const remote_answer *answer)
{
    char *why = remote_refusal(&client->args->server, answer);
    char *text = answer->status ? text_print("%ld: %s", answer->status, why) : text_copy(why);
    client->found.failed++;
    text_cut(text, 200);
    add_reason(&client->found.why, text, 1);
    free(text);
    free(why);
}

static void *be_client(void *user)
{
    enum { REST_NS = 20000000 };
    load_client *client = user;
    bool streams = strcmp(client->args->kind, "embeddings") != 0;
    void *keep = NULL;
    remote_request request = {.method = "POST",
                              .path = client->path,
                              .body = client->body,
                              .seconds = client->args->timeout,
                              .part = streams ? take_part : NULL,
                              .user = client};
    while (bench_now() < client->until) {
        remote_answer answer;
        client->began = bench_now();
        client->last = 0;
        remote_ask(&client->args->server, &request, &keep, &answer);
        if (answer.answered && answer.status == 200) {
            client->found.answered++;
            bench_serve_add(&client->found.whole, bench_now() - client->began);
        } else {
            bench_serve_note_failure(client, &answer);
            nanosleep(&(struct timespec){0, REST_NS}, NULL); /* a server that refuses is not to be flooded */
        }
        free(answer.body);
    }
    remote_end(keep);
    return NULL;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static char *body_of(const load_args *args)
{
    json_t *object = json_pack("{s:o, s:b}", "model", text_json(args->model), "stream", true);
    if (strcmp(args->kind, "embeddings") == 0) {
        json_object_del(object, "stream");
        json_object_set_new(object, "input", text_json(args->prompt));
    } else if (strcmp(args->kind, "chat") == 0) {
        json_object_set_new(object, "messages",
                            json_pack("[{s:s, s:o}]", "role", "user", "content", text_json(args->prompt)));
    } else {
        json_object_set_new(object, "prompt", text_json(args->prompt));
    }
    if (json_object_get(object, "stream"))
        json_object_set_new(object, "max_tokens", json_integer(args->tokens));
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

static void bench_serve_show_progress(const load_args *args, uint64_t began, uint64_t until)
{
    enum { STEP_NS = 100000000 };
    for (uint64_t now = bench_now(); now < until; now = bench_now()) {
        uint64_t left = until - now < STEP_NS ? until - now : STEP_NS;
        terminal_progress_of("asking", args->model, (double)(now - began) / (double)(until - began));
        nanosleep(&(struct timespec){0, (long)left}, NULL);
    }
    terminal_progress_end();
}

/* Answers how long it took until the last answer was there. */
static double bench_serve_load(const load_args *args, figures *all)
{
    static const char *const paths[][2] = {
        {"completions", "/v1/completions"}, {"chat", "/v1/chat/completions"}, {"embeddings", "/v1/embeddings"}};
    const char *path = NULL;
    char *body = body_of(args);
    load_client *clients = text_zeroed(args->clients, sizeof *clients);
    uint64_t began = bench_now(), until = began + (uint64_t)args->seconds * 1000000000;
    unsigned started = 0;
    for (size_t i = 0; i < 3; i++)
        path = strcmp(paths[i][0], args->kind) == 0 ? paths[i][1] : path;
    for (; started < args->clients; started++) {
        clients[started] = (load_client){.args = args, .path = path, .body = body, .until = until};
        if (pthread_create(&clients[started].thread, NULL, be_client, &clients[started]) != 0)
            break;
    }
    if (started > 0)
        bench_serve_show_progress(args, began, until);
    for (unsigned i = 0; i < started; i++) {
        figures *found = &clients[i].found;
        pthread_join(clients[i].thread, NULL);
        bench_serve_join(&all->first, &found->first);
        bench_serve_join(&all->between, &found->between);
        bench_serve_join(&all->whole, &found->whole);
        all->answered += found->answered;
        all->failed += found->failed;
        all->tokens += found->tokens;
        for (size_t k = 0; k < found->why.count; k++) {
            add_reason(&all->why, found->why.list[k].text, found->why.list[k].count);
            free(found->why.list[k].text);
        }
    }
    if (started < args->clients)
        add_reason(&all->why, "threads for further clients could not be made", args->clients - started);
    free(clients);
    free(body);
    return (double)(bench_now() - began) * 1e-9;
}

/* ---- what the server did meanwhile ------------------------------------------------------------------------------- */

static json_int_t bench_serve_count_of(const json_t *state, const char *name, const char *key)
{
    size_t i;
    const json_t *model;
    json_int_t sum = 0;
    json_array_foreach(json_object_get(state, "models"), i, model)
    {
        if (strcmp(json_string_value(json_object_get(model, "name")), name) == 0)
            sum += json_integer_value(json_object_get(model, key));
    }
    return sum;
}

/* Returns the loads, resumes, suspends, evictions and failures since `before`, for each current model that had any. */
static json_t *meanwhile(const json_t *before, const json_t *after)
{
    static const char *const keys[] = {"loads", "resumes", "suspends", "evictions", "failures"};
    size_t i;
    const json_t *model;
    json_t *list = json_array();
    json_array_foreach(json_object_get(after, "models"), i, model)
    {
        const char *name = json_string_value(json_object_get(model, "name"));
        json_t *row = json_pack("{s:s}", "model", name);
        json_int_t sum = 0;
        bool current = json_is_true(json_object_get(model, "current"));
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            json_int_t grown = bench_serve_count_of(after, name, keys[k]) - bench_serve_count_of(before, name, keys[k]);
            json_object_set_new(row, keys[k], json_integer(grown));
            sum += grown;
        }
        if (sum > 0 && current)
            json_array_append(list, row);
        json_decref(row);
    }
    return list;
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static double quantile(const samples *sorted, double share)
{
    if (sorted->count == 0)
        return NAN;
    size_t at = (size_t)ceil(share * (double)sorted->count);
    return (double)sorted->list[at > 0 ? at - 1 : 0] * 1e-9;
}

static json_t *bench_serve_seconds_json(samples *of)
{
    static const double shares[] = {0.5, 0.9, 0.99, 1};
    static const char *const names[] = {"p50", "p90", "p99", "most"};
    json_t *object = json_object();
    if (of->count > 0)
        bench_sort(of->list, of->count);
    for (size_t i = 0; i < 4; i++)
        json_object_set_new(object, names[i], bench_number_json(quantile(of, shares[i])));
    json_object_set_new(object, "count", text_json_count(of->count));
    return object;
}

static json_t *bench_serve_answer_json(const load_args *args, figures *all, double seconds, json_t *moved)
{
    json_t *why = json_array();
    for (size_t i = 0; i < all->why.count; i++)
        json_array_append_new(why, json_pack("{s:o, s:o}", "reason", text_json(all->why.list[i].text), "count",
                                             text_json_count(all->why.list[i].count)));
    return json_pack("{s:s, s:o, s:s, s:i, s:f, s:o, s:o, s:o, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "server",
                     args->server.url, "model", text_json(args->model), "kind", args->kind, "clients",
                     (int)args->clients, "seconds", seconds, "answered", text_json_count(all->answered), "failed",
                     text_json_count(all->failed), "tokens", text_json_count(all->tokens), "requests_per_second",
                     (double)all->answered / seconds, "tokens_per_second", (double)all->tokens / seconds, "first_token",
                     bench_serve_seconds_json(&all->first), "between_tokens", bench_serve_seconds_json(&all->between),
                     "whole", bench_serve_seconds_json(&all->whole), "failures", why, "meanwhile", moved);
}

static void bench_serve_print_row(table *grid, const char *title, const json_t *of)
{
    static const char *const names[] = {"p50", "p90", "p99", "most"};
    char text[24];
    if (json_integer_value(json_object_get(of, "count")) == 0)
        return;
    table_row(grid);
    table_cell(grid, title, "", false);
    for (size_t i = 0; i < 4; i++)
        table_cell(grid, text_seconds(json_real_value(json_object_get(of, names[i])), text, sizeof text), "", true);
}

static void bench_serve_print_moved(const json_t *moved)
{
    size_t i;
    const json_t *row, *count;
    const char *key;
    if (json_array_size(moved) == 0)
        puts("meanwhile no model came or went");
    json_array_foreach(moved, i, row)
    {
        char *name = text_clean(json_string_value(json_object_get(row, "model")),
                                json_string_length(json_object_get(row, "model")), false);
        printf("meanwhile %s:", name);
        free(name);
        json_object_foreach((json_t *)(uintptr_t)row, key, count)
        {
            if (json_integer_value(count) > 0)
                printf(" %s %lld", key, (long long)json_integer_value(count));
        }
        puts("");
    }
}

static void bench_serve_print_answer(const json_t *answer)
{
    static const char *const titles[] = {"", "p50", "p90", "p99", "most"};
    size_t i;
    const json_t *one;
    table grid = {0};
    printf("%lld answered, %lld failed, by %lld clients in %.1f s: %.2f requests/s, %.1f tokens/s\n",
           (long long)json_integer_value(json_object_get(answer, "answered")),
           (long long)json_integer_value(json_object_get(answer, "failed")),
           (long long)json_integer_value(json_object_get(answer, "clients")),
           json_real_value(json_object_get(answer, "seconds")),
           json_real_value(json_object_get(answer, "requests_per_second")),
           json_real_value(json_object_get(answer, "tokens_per_second")));
    bench_titles(&grid, titles, 5, 1);
    bench_serve_print_row(&grid, "first token", json_object_get(answer, "first_token"));
    bench_serve_print_row(&grid, "between tokens", json_object_get(answer, "between_tokens"));
    bench_serve_print_row(&grid, "whole answer", json_object_get(answer, "whole"));
    if (grid.count > 1)
        table_print(&grid, stdout);
    table_clear(&grid);
    json_array_foreach(json_object_get(answer, "failures"), i, one)
    {
        const json_t *reason = json_object_get(one, "reason");
        char *text = text_clean(json_string_value(reason), json_string_length(reason), false);
        printf("failed %lld times: %s\n", (long long)json_integer_value(json_object_get(one, "count")), text);
        free(text);
    }
    bench_serve_print_moved(json_object_get(answer, "meanwhile"));
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static int read_kind(const arg *option, const char *value, void *to)
{
    load_args *args = to;
    args->kind = value;
    return strcmp(value, "completions") == 0 || strcmp(value, "chat") == 0 || strcmp(value, "embeddings") == 0
               ? -1
               : cli_usage("bench serve", "--%s %s: completions, chat or embeddings are wanted", option->name, value);
}

static const arg option_list[] = {
    ARGS_REMOTE(load_args, server),
    {"model", "NAME", "that is asked for", ARG_NAME, .at = offsetof(load_args, model)},
    {"clients", "N", "that ask at once, each one request after the other (default 4)", ARG_COUNT,
     .at = offsetof(load_args, clients), .least = 1, .most = 4096},
    {"seconds", "S", "for which requests begin (default 10)", ARG_COUNT, .at = offsetof(load_args, seconds), .least = 1,
     .most = 86400},
    {"kind", "NAME", "completions (default), chat, or embeddings", ARG_CALL, .read = read_kind},
    {"prompt", "TEXT", "that is sent", ARG_NAME, .at = offsetof(load_args, prompt)},
    {"tokens", "N", "that an answer has at most (default 32)", ARG_COUNT, .at = offsetof(load_args, tokens), .least = 1,
     .most = 1 << 20},
    {"timeout", "S", "after which a request has failed (default 120)", ARG_COUNT, .at = offsetof(load_args, timeout),
     .least = 1, .most = 86400},
    {"json", NULL, "one JSON object on standard output", ARG_FLAG, .at = offsetof(load_args, json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "bench serve",
    .usage = "bench serve --model NAME [--server URL] [--clients N] [--seconds S] [OPTION…]",
    .about =
        "Asks a running server (weir serve) for a model from several clients at once, and prints how much came, how "
        "long "
        "the first token and each further one was waited for, which requests failed and why, and which models were "
        "loaded, suspended or unloaded meanwhile.",
    .options = option_list,
    .notes = "The exit status is 1 if no request was answered."};

int bench_serve(int argc, char **argv)
{
    load_args args = {
        .clients = 4, .seconds = 10, .tokens = 32, .timeout = 120, .kind = "completions", .prompt = "Once upon a time"};
    json_t *before = NULL, *after = NULL;
    figures all = {0};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status < 0 && !args.model)
        status = cli_usage("bench serve", "--model says which");
    if (status < 0)
        status = remote_defaults(&args.server, "bench serve");
    if (status < 0)
        status = remote_get(&args.server, "/weir/state", &before);
    if (status >= 0)
        return status;
    double seconds = bench_serve_load(&args, &all);
    status = remote_get(&args.server, "/weir/state", &after);
    json_t *answer = bench_serve_answer_json(&args, &all, seconds, meanwhile(before, after));
    if (args.json)
        (void)cli_print_json(json_incref(answer));
    else
        bench_serve_print_answer(answer);
    if (status < 0)
        status = all.answered > 0 ? cli_flush(CLI_OK) : cli_fail("no request was answered");
    json_decref(answer);
    json_decref(before);
    json_decref(after);
    for (size_t i = 0; i < all.why.count; i++)
        free(all.why.list[i].text);
    free(all.first.list);
    free(all.between.list);
    free(all.whole.list);
    return status;
}
