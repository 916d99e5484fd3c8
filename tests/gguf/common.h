/* common.h: what the tests of the gguf engine share. */
#ifndef GGUF_COMMON_H
#define GGUF_COMMON_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <weir/weir.h>
#include <weir/engine.h>

#include "ok.h"
#include "writer.h"

/* Two threads of llama.cpp beside another test wait for one another, spinning, most of the time; with one processor it has one. */
static inline __attribute__((constructor)) void stay_on_one_processor(void)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    if (getenv("WEIR_TEST_ONE_PROCESSOR"))
        (void)sched_setaffinity(0, sizeof here, &here);
}

/* For weir_log_set: counts errors in the int that `count` points to, and prints them. */
static inline void log_errors(weir_log_level level, const char *text, void *count)
{
    if (level != WEIR_LOG_ERROR)
        return;
    ++*(int *)count;
    print_error("%s\n", text);
}

/* The engine, or a skipped test (a failed one under WEIR_REQUIRE_ENGINES=1) when llama.cpp is not there. */
static inline const weir_engine *the_engine(void)
{
    const weir_engine *engine = NULL;
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    bool there = weir_engine_get("gguf", &engine) == WEIR_OK && engine->probe(&probe) == WEIR_OK && probe.available;
    if (there)
        return engine;
    const char *required = getenv("WEIR_REQUIRE_ENGINES");
    print_message("no gguf engine: %s\n", engine ? probe.missing : weir_detail());
    if (required && strcmp(required, "1") == 0)
        fail_msg("WEIR_REQUIRE_ENGINES is set");
    skip();
    return NULL;
}

/* A runtime of its own with one client, and a model in it. */
typedef struct bench {
    const weir_engine *engine;
    weir_runtime *runtime;
    weir_client *client;
    weir_engine_place place;
    weir_engine_load load;
} bench;

static inline bench bench_open(const char *path, uint64_t budget)
{
    bench it = {.engine = the_engine()};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    options.budget = budget;
    client.name = "model";
    OK(weir_runtime_create("host", &options, &it.runtime));
    OK(weir_client_create(it.runtime, &client, &it.client));
    it.load = WEIR_INIT(weir_engine_load);
    it.load.path = path;
    return it;
}

static inline weir_status bench_load(bench *it, const weir_setting *settings, size_t count, weir_engine_model **out)
{
    it->place = (weir_engine_place){it->runtime, it->client};
    it->load.places = &it->place;
    it->load.place_count = 1;
    it->load.settings = settings;
    it->load.setting_count = count;
    return it->engine->load(&it->load, out);
}

static inline weir_client_stats stats_of(const bench *it)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    OK(weir_client_info(it->client, &stats));
    return stats;
}

/* Closing succeeds only when every byte came back. */
static inline void bench_close(bench *it)
{
    assert_int_equal(stats_of(it).live, 0);
    OK(weir_client_destroy(it->client));
    OK(weir_runtime_destroy(it->runtime));
}

static inline weir_tensor text_input(const char *text)
{
    return (weir_tensor){.struct_size = sizeof(weir_tensor),
                         .name = "text",
                         .type = WEIR_TYPE_TEXT,
                         .rank = 1,
                         .shape = {(int64_t)strlen(text)},
                         .data = (void *)text,
                         .bytes = strlen(text)};
}

static inline weir_inference inference_of(const weir_tensor *input, const weir_setting *settings, size_t count)
{
    return (weir_inference){.struct_size = sizeof(weir_inference),
                            .inputs = input,
                            .input_count = 1,
                            .settings = settings,
                            .setting_count = count};
}

static inline const weir_tensor *output_named(const weir_outputs *outputs, const char *name)
{
    for (size_t i = 0; i < outputs->count; i++)
        if (strcmp(outputs->tensors[i].name, name) == 0)
            return &outputs->tensors[i];
    fail_msg("no output '%s'", name);
    return NULL;
}

typedef struct fixture {
    bench it;
    weir_engine_model *model;
} fixture;

static inline fixture fixture_open(const char *path, const weir_setting *settings, size_t count)
{
    fixture its = {.it = bench_open(path, 1ull << 30)};
    OK(bench_load(&its.it, settings, count, &its.model));
    return its;
}

static inline void fixture_close(fixture *its)
{
    its->it.engine->unload(its->model);
    bench_close(&its->it);
}

static inline weir_status infer(const fixture *its, const weir_tensor *input, const weir_setting *settings,
                                size_t count, weir_outputs *outputs)
{
    weir_inference inference = inference_of(input, settings, count);
    *outputs = (weir_outputs){.struct_size = sizeof *outputs};
    return its->it.engine->infer(its->model, &inference, outputs);
}

static inline void release(const fixture *its, weir_outputs *outputs)
{
    its->it.engine->release_outputs(its->model, outputs);
}

static inline weir_tensor token_input(const int32_t *tokens, int64_t rows, int64_t columns)
{
    weir_tensor it = {.struct_size = sizeof it, .name = "tokens", .type = WEIR_TYPE_I32, .data = (void *)tokens};
    it.rank = rows ? 2 : 1;
    it.shape[0] = rows ? rows : columns;
    it.shape[1] = columns;
    it.bytes = (size_t)((rows ? rows : 1) * columns) * sizeof *tokens;
    return it;
}

static inline bool store_model(const char *name, char *path, size_t capacity)
{
    snprintf(path, capacity, "%s/models/%s", WEIR_TEST_STORE, name);
    FILE *file = fopen(path, "rb");
    if (file)
        fclose(file);
    return file != NULL;
}

#endif
