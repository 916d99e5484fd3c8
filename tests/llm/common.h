/* common.h: what the tests of the engine llm share. */
#ifndef LLM_COMMON_H
#define LLM_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/engine.h>
#include <weir/weir.h>

#include "ok.h"

/* The models of the store: 2 layers, 2 heads of 16 keys and values, f32, 448 tokens, 256 places. */
enum {
    LAYERS = 2,
    KV_HEADS = 2,
    HEAD = 16,
    WIDTH = 64,
    VOCABULARY = 448,
    CONTEXT = 256,
    TOKEN_OF_CACHE = 2 * 2 * 2 * 16 * 4
};
static const char *const model_names[] = {"tiny-llm", "tiny-llm-concat"};
enum { SHARED, CONCAT, MODELS };

static inline void assert_words(const char *text, const char *words)
{
    if (!strstr(text, words))
        print_error("'%s' is not in: %s\n", words, text);
    assert_non_null(strstr(text, words));
}

/* A skipped test, or under WEIR_REQUIRE_ENGINES=1 a failed one. */
static inline void missing(const char *what)
{
    const char *required = getenv("WEIR_REQUIRE_ENGINES");
    print_message("not here: %s\n", what);
    if (required && strcmp(required, "1") == 0)
        fail_msg("WEIR_REQUIRE_ENGINES is set");
    skip();
}

static inline const weir_engine *the_engine(void)
{
    const weir_engine *engine = NULL;
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    if (weir_engine_get("llm", &engine) != WEIR_OK)
        missing(weir_detail());
    else if (engine->probe(&probe) != WEIR_OK || !probe.available)
        missing(probe.missing);
    return engine;
}

/* The store's model, in static memory. */
static inline const char *the_model(int which)
{
    static char paths[MODELS][512];
    char config[600];
    snprintf(paths[which], sizeof paths[which], "%s/models/%s", WEIR_TEST_STORE, model_names[which]);
    snprintf(config, sizeof config, "%s/genai_config.json", paths[which]);
    if (access(config, R_OK) != 0)
        missing(config);
    return paths[which];
}

/* ---- a runtime of its own with one client, and a model in it ----------------------------------------------------- */

typedef struct bench {
    const weir_engine *engine;
    weir_runtime *runtime;
    weir_client *client;
    weir_engine_place place;
    weir_engine_load load;
    weir_engine_model *model;
} bench;

/* `resource` NULL: the usual one. */
static inline bench bench_on(const char *path, uint64_t budget, const char *resource)
{
    bench it = {.engine = the_engine()};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    options.budget = budget;
    options.resource = resource;
    client.name = "model";
    OK(weir_runtime_create("host", &options, &it.runtime));
    OK(weir_client_create(it.runtime, &client, &it.client));
    it.load = WEIR_INIT(weir_engine_load);
    it.load.path = path;
    return it;
}

static inline weir_status bench_load(bench *it, const weir_setting *settings, size_t count)
{
    it->place = (weir_engine_place){it->runtime, it->client};
    it->load.places = &it->place;
    it->load.place_count = 1;
    it->load.settings = settings;
    it->load.setting_count = count;
    it->model = NULL;
    return it->engine->load(&it->load, &it->model);
}

static inline void bench_unload(bench *it)
{
    it->engine->unload(it->model);
    it->model = NULL;
}

static const weir_setting one_thread[] = {{"threads", "1"}};

static inline bench bench_open(const char *path)
{
    bench it = bench_on(path, 1ull << 30, NULL);
    OK(bench_load(&it, one_thread, 1));
    return it;
}

static inline weir_client_stats stats_of_client(weir_client *client)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    OK(weir_client_info(client, &stats));
    return stats;
}

static inline weir_client_stats stats_of(const bench *it)
{
    return stats_of_client(it->client);
}

/* Closing succeeds only when every byte came back. */
static inline void bench_close(bench *it)
{
    if (it->model)
        bench_unload(it);
    assert_int_equal(stats_of(it).live, 0);
    OK(weir_client_destroy(it->client));
    OK(weir_runtime_destroy(it->runtime));
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

static inline weir_tensor bytes_input(const char *name, const char *text)
{
    return (weir_tensor){.struct_size = sizeof(weir_tensor),
                         .name = name,
                         .type = WEIR_TYPE_TEXT,
                         .rank = 1,
                         .shape = {(int64_t)strlen(text)},
                         .data = (void *)text,
                         .bytes = strlen(text)};
}

static inline weir_tensor text_input(const char *text)
{
    return bytes_input("text", text);
}

static inline weir_tensor token_input(const int32_t *tokens, size_t count)
{
    return (weir_tensor){.struct_size = sizeof(weir_tensor),
                         .name = "tokens",
                         .type = WEIR_TYPE_I32,
                         .rank = 1,
                         .shape = {(int64_t)count},
                         .data = (void *)tokens,
                         .bytes = count * sizeof *tokens};
}

static inline weir_inference inference_of(const weir_tensor *input, const weir_setting *settings, size_t count)
{
    return (weir_inference){.struct_size = sizeof(weir_inference),
                            .inputs = input,
                            .input_count = 1,
                            .settings = settings,
                            .setting_count = count};
}

static inline weir_status infer(const bench *it, const weir_tensor *input, const weir_setting *settings, size_t count,
                                weir_outputs *outputs)
{
    weir_inference inference = inference_of(input, settings, count);
    *outputs = (weir_outputs){.struct_size = sizeof *outputs};
    return it->engine->infer(it->model, &inference, outputs);
}

static inline void release(const bench *it, weir_outputs *outputs)
{
    it->engine->release_outputs(it->model, outputs);
}

static inline const weir_tensor *find_output(const weir_outputs *outputs, const char *name)
{
    for (size_t i = 0; i < outputs->count; i++)
        if (strcmp(outputs->tensors[i].name, name) == 0)
            return &outputs->tensors[i];
    return NULL;
}

static inline const weir_tensor *output_named(const weir_outputs *outputs, const char *name)
{
    const weir_tensor *found = find_output(outputs, name);
    if (!found)
        fail_msg("no output '%s'", name);
    return found;
}

#define GREEDY(count)                                                                                                  \
    {"tokens", count},                                                                                                 \
    {                                                                                                                  \
        "temperature", "0"                                                                                             \
    }

/* A prompt of so many tokens, none of them special. */
static inline void fill_prompt(int32_t *tokens, size_t count, int seed)
{
    for (size_t i = 0; i < count; i++)
        tokens[i] = 60 + (int32_t)((i * 37 + (size_t)seed * 101) % 300);
}

/* Until the thread of that number sleeps: it waits, where nothing else makes it wait while the rest is held; or has ended. */
static inline void until_asleep(const atomic_long *number)
{
    char file[64], state = 0;
    for (int seen = 0; seen < 20;) {
        usleep(2000);
        long thread = atomic_load(number);
        snprintf(file, sizeof file, "/proc/self/task/%ld/stat", thread);
        FILE *stat = thread ? fopen(file, "r") : NULL;
        if (thread && !stat)
            return;
        if (stat && fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        if (stat)
            fclose(stat);
        seen = state == 'S' ? seen + 1 : 0;
    }
}

#endif
