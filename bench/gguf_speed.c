/* gguf_speed.c: the gguf engine in weir's memory beside the same llama.cpp on its own malloc: the same library, the same
 * parameters, one run of each in turn, so that whatever else the machine does falls on both.
 *
 *   bench-gguf-speed [RUNS [THREADS]] */
#include <string.h>
#include <time.h>

#include <weir/weir.h>
#include <weir/engine.h>

#include "plain.h"

enum { TEXT_TOKENS = 64, PROMPT = 32, NEW = 32, CONTEXT = 2048, BATCH = 512 };

typedef struct sides {
    const char *name;
    const weir_engine *engine;
    weir_engine_model *model;
    weir_client *client;
    plain other;
    int32_t tokens[TEXT_TOKENS];
    float *vector;
} sides;

static void need(weir_status status)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "%s: %s\n", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    exit(1);
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void through_weir(sides *it, int count, bool generates)
{
    static const weir_setting settings[] = {{"tokens", "32"}, {"ignore_eos", "1"}};
    weir_tensor input = {.struct_size = sizeof input,
                         .name = "tokens",
                         .type = WEIR_TYPE_I32,
                         .rank = 1,
                         .shape = {count},
                         .data = it->tokens,
                         .bytes = (size_t)count * sizeof *it->tokens};
    weir_inference inference = {.struct_size = sizeof inference,
                                .inputs = &input,
                                .input_count = 1,
                                .settings = settings,
                                .setting_count = generates ? 2 : 0};
    weir_outputs outputs = {.struct_size = sizeof outputs};
    need(it->engine->infer(it->model, &inference, &outputs));
    it->engine->release_outputs(it->model, &outputs);
}

static void embed_plain(sides *it)
{
    plain *lib = &it->other;
    struct llama_batch batch = lib->llama_batch_init(512, 0, 1);
    plain_add(&batch, it->tokens, TEXT_TOKENS, 0);
    plain_need(lib->llama_encode(lib->context, batch) == 0, "encoding");
    memcpy(it->vector, lib->llama_get_embeddings_seq(lib->context, 0),
           (size_t)lib->llama_model_n_embd_out(lib->model) * sizeof(float));
    lib->llama_batch_free(batch);
}

static void generate_plain(sides *it)
{
    plain *lib = &it->other;
    struct llama_sampler *sampler = lib->llama_sampler_init_greedy();
    int32_t token = 0;
    lib->llama_memory_clear(lib->llama_get_memory(lib->context), false);
    plain_need(lib->llama_decode(lib->context, lib->llama_batch_get_one(it->tokens, PROMPT)) == 0, "decoding");
    for (int i = 0; i < NEW; i++) {
        token = lib->llama_sampler_sample(sampler, lib->context, -1);
        if (i + 1 < NEW)
            plain_need(lib->llama_decode(lib->context, lib->llama_batch_get_one(&token, 1)) == 0, "decoding");
    }
    lib->llama_sampler_free(sampler);
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void compare(sides *it, bool generates, int runs)
{
    double *weir = calloc((size_t)runs, sizeof *weir), *plain_ = calloc((size_t)runs, sizeof *plain_);
    double *ratio = calloc((size_t)runs, sizeof *ratio);
    for (int i = -2; i < runs; i++) {
        double spent[2];
        for (int half = 0; half < 2; half++) {
            bool ours = (i + half) % 2 == 0;
            double begin = now();
            if (ours)
                through_weir(it, generates ? PROMPT : TEXT_TOKENS, generates);
            else if (generates)
                generate_plain(it);
            else
                embed_plain(it);
            spent[ours] = now() - begin;
        }
        if (i < 0)
            continue;
        weir[i] = spent[1];
        plain_[i] = spent[0];
        ratio[i] = spent[0] / spent[1];
    }
    double ours = median(weir, runs), theirs = median(plain_, runs);
    printf("%-28s plain %8.2f ms   weir %8.2f ms   speed %.3f of plain (median of the pairs %.3f, %d runs)\n", it->name,
           theirs * 1e3, ours * 1e3, theirs / ours, median(ratio, runs), runs);
    free(weir);
    free(plain_);
    free(ratio);
}

static void measure(const weir_engine *engine, weir_runtime *runtime, const char *file, bool generates, int runs,
                    int threads)
{
    char path[600], text[16];
    weir_client_options client = WEIR_INIT(weir_client_options);
    weir_engine_load load = WEIR_INIT(weir_engine_load);
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    sides it = {.name = generates ? "tiny-llama, 32 new tokens" : "minilm, 64 tokens", .engine = engine};
    snprintf(path, sizeof path, "%s/models/%s", WEIR_BENCH_STORE, file);
    snprintf(text, sizeof text, "%d", threads);
    weir_setting settings[] = {{"threads", text}};
    client.name = file;
    need(engine->probe(&probe));
    need(weir_client_create(runtime, &client, &it.client));
    weir_engine_place place = {runtime, it.client};
    load.path = path;
    load.places = &place;
    load.place_count = 1;
    load.settings = settings;
    load.setting_count = 1;
    need(engine->load(&load, &it.model));
    it.other = plain_library(probe.library);
    plain_open(&it.other, path, !generates, generates ? CONTEXT : 512, BATCH, threads);
    it.vector = calloc((size_t)it.other.llama_model_n_embd_out(it.other.model), sizeof *it.vector);
    for (int i = 0; i < TEXT_TOKENS; i++)
        it.tokens[i] = 1000 + i * 37;
    compare(&it, generates, runs);
    free(it.vector);
    plain_close(&it.other);
    engine->unload(it.model);
    need(weir_client_destroy(it.client));
}

int main(int argc, char **argv)
{
    int runs = argc > 1 ? atoi(argv[1]) : 60, threads = argc > 2 ? atoi(argv[2]) : 1;
    const weir_engine *engine = NULL;
    weir_runtime *runtime = NULL;
    need(weir_engine_get("gguf", &engine));
    need(weir_runtime_get("host", NULL, &runtime));
    measure(engine, runtime, "minilm.gguf", false, runs, threads);
    measure(engine, runtime, "tiny-llama.gguf", true, runs, threads);
    return 0;
}
