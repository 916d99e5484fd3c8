/* serve.c: the verb serve: models over HTTP, until a signal ends it. */
#include "serve.h"

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/text.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* ---- arguments ------------------------------------------------------------------------------------------------------- */

enum { MOST_KEYS = 16 };

typedef struct serve_args {
    char **words;
    size_t count;
    const char *config, *host, *certificate, *private_key;
    const char *keys[MOST_KEYS + 1];
    size_t key_count;
    unsigned port, workers, queue, drain, sequences, cores;
    bool load, shared_memory, json;
    weir_choice_options choice;
} serve_args;

static int add_key(const arg *option, const char *value, void *to)
{
    serve_args *args = to;
    (void)option;
    if (value[0] == '\0' || args->key_count == MOST_KEYS)
        return cli_usage("serve", "--key is a text, and given at most %d times", MOST_KEYS);
    args->keys[args->key_count++] = value;
    return -1;
}

static int serve_set_budget(const arg *option, const char *value, void *to)
{
    (void)option;
    (void)to;
    return weir_option_set("budget", value) == WEIR_OK ? -1 : cli_usage("serve", "--budget: %s", weir_detail());
}

static const arg options[] = {
    {"config", "FILE", "options, folders and models from this file; options given beside it go before it", ARG_FILE,
     .at = offsetof(serve_args, config)},
    {"host", "ADDRESS", "where to listen (default: 127.0.0.1, for this machine alone)", ARG_NAME,
     .at = offsetof(serve_args, host)},
    {"port", "N", "and at which port (default: 8000; 0: any that is free)", ARG_COUNT, .at = offsetof(serve_args, port),
     .least = 0, .most = 65535},
    {"budget", "SIZE", "of every device: all models together hold no more", ARG_CALL, .read = serve_set_budget},
    {"cores", "N", "that all models together compute with (default: those of the affinity and the cgroups)", ARG_COUNT,
     .at = offsetof(serve_args, cores), .least = 1, .most = 1024},
    {"load", NULL, "load all models before the first request, not when they are asked for", ARG_FLAG,
     .at = offsetof(serve_args, load)},
    {"shared-memory", NULL, "tensors may lie in shared memory of this machine, which clients name", ARG_FLAG,
     .at = offsetof(serve_args, shared_memory)},
    {"workers", "N", "requests that run at once (default: 16)", ARG_COUNT, .at = offsetof(serve_args, workers),
     .least = 1, .most = 4096},
    {"queue", "N", "requests that wait beside them; one more is refused (default: 512)", ARG_COUNT,
     .at = offsetof(serve_args, queue), .least = 0, .most = 1 << 20},
    {"sequences", "N",
     "runs of one language model that llama.cpp decodes together, unless its manifest has it (default: 8)", ARG_COUNT,
     .at = offsetof(serve_args, sequences), .least = 1, .most = 256},
    {"key", "TEXT", "requests need \"Authorization: Bearer TEXT\"; may be given again", ARG_CALL, .read = add_key},
    {"certificate", "FILE", "TLS, with this certificate in PEM", ARG_FILE, .at = offsetof(serve_args, certificate)},
    {"private-key", "FILE", "and its key", ARG_FILE, .at = offsetof(serve_args, private_key)},
    {"drain", "SECONDS", "what runs when a signal comes may go on for so long (default: 30)", ARG_COUNT,
     .at = offsetof(serve_args, drain), .least = 0, .most = 86400},
    ARGS_CHOICE(serve_args, choice),
    {"json", NULL, "one JSON object when it listens", ARG_FLAG, .at = offsetof(serve_args, json)},
    {0},
};

static int take_words(char **operands, size_t count, void *to)
{
    serve_args *args = to;
    if (count == 0 && !args->config)
        return cli_usage("serve", "which models?");
    args->words = operands;
    args->count = count;
    return -1;
}

static const args_table table = {
    .verb = "serve",
    .usage = "serve MODEL|MANIFEST|FOLDER… [options]\nserve --config FILE [MODEL…] [options]",
    .about = "Serves models over HTTP: the Open Inference Protocol (/v2), OpenAI's interface (/v1), Ollama's (/api), "
             "and /metrics.\n"
             "At / is a page that shows it all, live.\n"
             "A model is called by its manifest's name, else by its file's. It is loaded by the first request for it; "
             "where there\n"
             "is no room, idle ones are suspended or unloaded.",
    .options = options,
    .notes = "SIGINT or SIGTERM ends it: what runs may go on for --drain seconds. SIGHUP has the file of --config read "
             "again ('weir\n"
             "check FILE' looks whether it is good); models whose files change are replaced by themselves. Without "
             "--key, requests must come "
             "with an\n"
             "address or localhost as their Host, and from no other site's page.",
    .read_operands = take_words,
};

/* ---- routes ---------------------------------------------------------------------------------------------------------- */

static void healthy(ws_request *request, void *all)
{
    (void)all;
    answer_json(request, 200, json_pack("{s:s}", "status", "ok"));
}

static void openapi(ws_request *request, void *all)
{
    (void)all;
    ws_answer(request, 200, "application/json", serve_openapi, strlen(serve_openapi));
}

#define JSON_BODY   (UINT64_C(16) << 20)
#define TENSOR_BODY (UINT64_C(1) << 30)

#define POST_JSON(its_path, its_handler)                                                                               \
    {                                                                                                                  \
        .method = "POST", .path = its_path, .handler = its_handler, .most_body = JSON_BODY                             \
    }

#define LACKING(its_path, its_method)                                                                                  \
    {                                                                                                                  \
        .method = its_method, .path = its_path, .handler = v2_lacking, .most_body = JSON_BODY, .on_loop = true         \
    }

static const ws_route routes[] = {
    {.method = "GET", .path = "/healthz", .handler = healthy, .on_loop = true, .open = true},
    {.method = "GET", .path = "/health", .handler = healthy, .on_loop = true, .open = true},
    {.method = "GET", .path = "/openapi.json", .handler = openapi, .on_loop = true, .open = true},
    {.method = "GET", .path = "/metrics", .handler = metrics_page},
    {.method = "GET", .path = "/", .handler = state_page, .on_loop = true, .open = true},
    {.method = "GET", .path = "/weir/state", .handler = state_now, .on_loop = true},
    {.method = "GET", .path = "/weir/history", .handler = state_history},
    {.method = "POST", .path = "/weir/models/{}/{}", .handler = state_action, .on_loop = true, .most_body = 1024},
    {.method = "GET", .path = "/v2", .handler = v2_server, .on_loop = true},
    {.method = "GET", .path = "/v2/health/live", .handler = v2_live, .on_loop = true, .open = true},
    {.method = "GET", .path = "/v2/health/ready", .handler = v2_live, .on_loop = true, .open = true},
    {.method = "GET", .path = "/v2/models/stats", .handler = v2_statistics},
    {.method = "GET", .path = "/v2/models/{}/stats", .handler = v2_statistics},
    {.method = "GET", .path = "/v2/models/{}/versions/{}/stats", .handler = v2_statistics},
    {.method = "GET", .path = "/v2/models/{}/config", .handler = v2_configuration},
    {.method = "GET", .path = "/v2/models/{}/versions/{}/config", .handler = v2_configuration},
    {.method = "GET", .path = "/v2/models/{}", .handler = v2_model},
    {.method = "GET", .path = "/v2/models/{}/versions/{}", .handler = v2_model},
    {.method = "GET", .path = "/v2/models/{}/ready", .handler = v2_model_ready},
    {.method = "GET", .path = "/v2/models/{}/versions/{}/ready", .handler = v2_model_ready},
    {.method = "POST", .path = "/v2/models/{}/infer", .handler = v2_infer, .most_body = TENSOR_BODY},
    {.method = "POST", .path = "/v2/models/{}/versions/{}/infer", .handler = v2_infer, .most_body = TENSOR_BODY},
    POST_JSON("/v2/models/{}/generate", v2_generate),
    POST_JSON("/v2/models/{}/versions/{}/generate", v2_generate),
    POST_JSON("/v2/models/{}/generate_stream", v2_generate_stream),
    POST_JSON("/v2/models/{}/versions/{}/generate_stream", v2_generate_stream),
    {.method = "GET", .path = "/v2/systemsharedmemory/status", .handler = shared_status},
    {.method = "GET", .path = "/v2/systemsharedmemory/region/{}/status", .handler = shared_status},
    POST_JSON("/v2/systemsharedmemory/region/{}/register", shared_register),
    POST_JSON("/v2/systemsharedmemory/region/{}/unregister", shared_unregister),
    POST_JSON("/v2/systemsharedmemory/unregister", shared_unregister),
    LACKING("/v2/cudasharedmemory/status", "GET"),
    LACKING("/v2/cudasharedmemory/unregister", "POST"),
    LACKING("/v2/cudasharedmemory/region/{}/status", "GET"),
    LACKING("/v2/cudasharedmemory/region/{}/register", "POST"),
    LACKING("/v2/cudasharedmemory/region/{}/unregister", "POST"),
    LACKING("/v2/trace/setting", "GET"),
    LACKING("/v2/trace/setting", "POST"),
    LACKING("/v2/models/{}/trace/setting", "GET"),
    LACKING("/v2/models/{}/trace/setting", "POST"),
    LACKING("/v2/logging", "GET"),
    LACKING("/v2/logging", "POST"),
    POST_JSON("/v2/repository/index", v2_index),
    POST_JSON("/v2/repository/models/{}/load", v2_load),
    POST_JSON("/v2/repository/models/{}/unload", v2_unload),
    {.method = "GET", .path = "/v1/models", .handler = openai_models},
    {.method = "GET", .path = "/v1/models/{}", .handler = openai_model},
    POST_JSON("/v1/completions", openai_completions),
    POST_JSON("/v1/chat/completions", openai_chat),
    POST_JSON("/v1/embeddings", openai_embeddings),
    {.method = "GET", .path = "/api/version", .handler = ollama_version, .on_loop = true},
    {.method = "GET", .path = "/api/tags", .handler = ollama_tags},
    {.method = "GET", .path = "/api/ps", .handler = ollama_ps},
    POST_JSON("/api/show", ollama_show),
    POST_JSON("/api/generate", ollama_generate),
    POST_JSON("/api/chat", ollama_chat),
    POST_JSON("/api/embed", ollama_embed),
    POST_JSON("/api/embeddings", ollama_embeddings),
    POST_JSON("/api/pull", ollama_registry),
    POST_JSON("/api/push", ollama_registry),
    POST_JSON("/api/create", ollama_registry),
    POST_JSON("/api/copy", ollama_registry),
    {.method = "DELETE", .path = "/api/delete", .handler = ollama_registry, .most_body = JSON_BODY},
    {0},
};

/* ---- from the beginning to the end ------------------------------------------------------------------------------------- */

static char *serve_read_text(const char *path)
{
    char *text = NULL, part[4096];
    size_t bytes = 0, got;
    FILE *file = path ? fopen(path, "re") : NULL, *all;
    if (!file)
        return NULL;
    all = text_stream(&text, &bytes);
    while ((got = fread(part, 1, sizeof part, file)) > 0)
        fwrite(part, 1, got, all);
    fclose(all);
    fclose(file);
    return text;
}

/* Each connection is a file. */
static void allow_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        weir_log(WEIR_LOG_INFO, "serve: as many files as before");
}

static int serve_begin(const serve_args *args, served *all, char *texts[2])
{
    ws_options wanted = {.host = args->host,
                         .port = (uint16_t)args->port,
                         .routes = routes,
                         .user = all,
                         .limits = ws_limits_default(),
                         .keys = args->key_count ? args->keys : NULL,
                         .refusal = write_refusal};
    wanted.limits.workers = args->workers;
    wanted.limits.waiting = args->queue;
    const char *files[2] = {args->certificate, args->private_key};
    for (int i = 0; i < 2; i++) {
        texts[i] = serve_read_text(files[i]);
        if (files[i] && !texts[i])
            return cli_fail("%s cannot be read", files[i]);
    }
    if ((texts[0] != NULL) != (texts[1] != NULL))
        return cli_usage("serve", "--certificate and --private-key belong together");
    wanted.certificate = texts[0];
    wanted.key = texts[1];
    return ws_server_create(&wanted, &all->server) == WEIR_OK ? -1 : cli_fail("%s", weir_detail());
}

static int say_address(served *all, bool json)
{
    size_t count;
    served_model **models = served_list(all, &count);
    json_t *names = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(names, text_json(models[i]->name));
    if (!json) {
        printf("listening at %s\n", ws_server_address(all->server));
        for (size_t i = 0; i < count; i++)
            printf("  %s\n", models[i]->name);
    }
    served_list_free(models, count);
    if (json)
        return cli_print_json(json_pack("{s:s, s:o}", "address", ws_server_address(all->server), "models", names));
    json_decref(names);
    return cli_flush(CLI_OK);
}

/* Waits for a signal that ends the server. SIGHUP reads the configuration again. */
static void wait_for_signal(const sigset_t *signals, sources *from)
{
    siginfo_t info;
    while (sigwaitinfo(signals, &info) < 0 || info.si_signo == SIGHUP)
        if (info.si_signo == SIGHUP)
            sources_again(from);
}

/* From when it listens. */
static int serve_run(const serve_args *args, served *all, sources *from, const sigset_t *signals)
{
    state_watch(all);
    if (sources_watch(from) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "serve: %s", weir_detail());
    int status = say_address(all, args->json);
    if (status == CLI_OK)
        wait_for_signal(signals, from);
    ws_server_destroy(all->server, args->drain * 1000);
    sources_unwatch(from);
    return status;
}

static int serve_set_cores(unsigned cores)
{
    char text[16];
    snprintf(text, sizeof text, "%u", cores);
    return cores == 0 || weir_option_set("cores", text) == WEIR_OK ? -1 : cli_fail("%s", weir_detail());
}

/* Takes the configuration. */
static int serve_serve(const serve_args *args, server_config *file)
{
    served all = {.choice = &args->choice,
                  .runs = args->workers,
                  .sequences = args->sequences,
                  .began = (int64_t)time(NULL),
                  .state = state_create(),
                  .regions = args->shared_memory ? shared_create() : NULL,
                  .lock = PTHREAD_MUTEX_INITIALIZER};
    sources *from = sources_create(&all, args->words, args->count, args->config, file, options);
    char *texts[2] = {NULL};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    allow_files();
    int status = serve_set_cores(args->cores);
    if (status < 0)
        status = sources_begin(from, args->load);
    if (status < 0)
        status = serve_begin(args, &all, texts);
    if (status < 0)
        status = serve_run(args, &all, from, &signals);
    state_unwatch(all.state);
    if (served_clear(&all) != WEIR_OK)
        cli_fail("%s", weir_detail());
    sources_free(from);
    state_free(all.state);
    shared_free(all.regions);
    free(texts[0]);
    free(texts[1]);
    return status;
}

/* ---- the configuration --------------------------------------------------------------------------------------------------- */

static const serve_args usual = {.port = 8000,
                                 .workers = 16,
                                 .queue = 512,
                                 .drain = 30,
                                 .sequences = 8,
                                 .choice = {.struct_size = sizeof(weir_choice_options)}};

server_config *serve_config(const char *path)
{
    server_config *file = NULL;
    return config_read(path, options, &file) == WEIR_OK ? file : NULL;
}

static int serve_refuse(const char *path, const server_config *file)
{
    for (size_t i = 0; i < file->problem_count; i++)
        (void)cli_fail("%s: %s", path, file->problems[i]);
    return CLI_FAILED;
}

/* Reads the arguments once more behind the words of the configuration, so that they go before it. */
static int read_both(const server_config *file, int argc, char **argv, serve_args *args)
{
    size_t count = (size_t)argc + file->word_count;
    char **words = text_zeroed(count + 1, sizeof *words);
    words[0] = argv[0];
    if (file->word_count)
        memcpy(words + 1, file->words, file->word_count * sizeof *words);
    memcpy(words + 1 + file->word_count, argv + 1, ((size_t)argc - 1) * sizeof *words);
    *args = usual;
    int status = args_read(&table, (int)count, words, args, NULL);
    char **operands = text_zeroed(args->count + 1, sizeof *operands);
    for (size_t i = 0; i < args->count; i++)
        operands[i] = args->words[i];
    args->words = operands;
    free(words);
    return status;
}

int verb_serve(int argc, char **argv)
{
    serve_args args = usual;
    int status = args_read(&table, argc, argv, &args, NULL);
    if (status >= 0 || !args.config)
        return status >= 0 ? status : serve_serve(&args, NULL);
    const char *path = args.config;
    server_config *file = serve_config(path);
    if (!file)
        return cli_fail("%s", weir_detail());
    status = file->problem_count ? serve_refuse(path, file) : read_both(file, argc, argv, &args);
    if (status >= 0) {
        config_free(file);
        return status;
    }
    char **operands = args.words;
    status = serve_serve(&args, file);
    free(operands);
    return status;
}
