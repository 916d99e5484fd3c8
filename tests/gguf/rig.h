/* rig.h: what the tests of the gguf engine on CUDA share: a model on the device WEIR_TEST_DEVICE names, with the library for
 * CUDA that is in the store or in the folder WEIR_LLAMA_CUDA. */
#ifndef GGUF_RIG_H
#define GGUF_RIG_H

#include "common.h"

enum {
    PROMPT = 40,
    MADE = 24,
    CONTEXT = 512,
    BATCH = 128,
    MOST_PROMPT = 6000,
    END = 2 /* the vocabulary's end token */
};

static const model_shape gpu_shape = {
    .layers = 4, .width = 256, .heads = 4, .heads_kv = 2, .wide = 512, .context = 4096};
typedef struct variant {
    const char *layers, *attention, *k, *v;
} variant;

/* Over the stub of CUDA kernels compute nothing. */
static inline void same(const char *one, const char *other)
{
    if (!getenv("STUB_CUDA_TOTAL"))
        assert_string_equal(one, other);
}

static inline void fill_prompt(int32_t *tokens, int count, int seed)
{
    for (int i = 0; i < count; i++)
        tokens[i] = 3 + (i * 7 + seed * 13) % 200;
}

static inline uint64_t checksum(const void *data, size_t length)
{
    const unsigned char *at = data;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

/* ---- through weir ------------------------------------------------------------------------------------------------ */

typedef struct rig {
    bench it;
    weir_runtime *host;
    weir_engine_model *model;
} rig;

static inline rig rig_open(const char *path, uint64_t budget)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    rig its = {.it = {.engine = the_engine(), .load = WEIR_INIT(weir_engine_load)}};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options client = WEIR_INIT(weir_client_options);
    client.name = "model";
    options.budget = 1ull << 30;
    OK(weir_runtime_create("host", &options, &its.host));
    options.budget = budget;
    options.host = its.host;
    OK(weir_runtime_create(device ? device : "cuda:0", &options, &its.it.runtime));
    OK(weir_client_create(its.it.runtime, &client, &its.it.client));
    its.it.load.path = path;
    return its;
}

static inline weir_client_stats host_account(const rig *its)
{
    weir_stats all = WEIR_INIT(weir_stats);
    weir_client_stats clients[8] = {WEIR_INIT(weir_client_stats)}, none = WEIR_INIT(weir_client_stats);
    size_t count = 0;
    OK(weir_snapshot(its->host, &all, clients, 8, &count));
    for (size_t i = 0; i < count; i++)
        if (strcmp(clients[i].name, "model") == 0)
            return clients[i];
    return none;
}

/* Only when every byte came back, on the device and on the host. */
static inline void rig_close(rig *its)
{
    assert_int_equal(host_account(its).live, 0);
    bench_close(&its->it);
    OK(weir_runtime_destroy(its->host));
}

static inline size_t settings_of(const variant *v, const char *context, weir_setting *out)
{
    size_t count = 0;
    out[count++] = (weir_setting){"gpu_layers", v->layers};
    out[count++] = (weir_setting){"flash_attention", v->attention};
    out[count++] = (weir_setting){"cache_k", v->k};
    out[count++] = (weir_setting){"cache_v", v->v};
    out[count++] = (weir_setting){"context", context};
    out[count++] = (weir_setting){"batch", "128"};
    out[count++] = (weir_setting){"threads", "2"};
    if (getenv("WEIR_LLAMA_CUDA"))
        out[count++] = (weir_setting){"llama_cuda", getenv("WEIR_LLAMA_CUDA")};
    return count;
}
enum { SETTINGS = 12 };

static inline void rig_load(rig *its, const variant *v, const char *context)
{
    weir_setting settings[SETTINGS];
    size_t count = settings_of(v, context, settings);
    OK(bench_load(&its->it, settings, count, &its->model));
}

/* Tokens and the logits' checksum as run_plain prints them. */
static inline void ask_weir_long(const rig *its, int seed, int count, char *line, size_t capacity)
{
    static const weir_setting settings[] = {
        {"tokens", "24"}, {"temperature", "0"}, {"ignore_eos", "1"}, {"logits", "1"}};
    int32_t prompt[MOST_PROMPT];
    fill_prompt(prompt, count, seed);
    weir_tensor input = token_input(prompt, 0, count);
    weir_inference inference = inference_of(&input, settings, 4);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    OK(its->it.engine->infer(its->model, &inference, &outputs));
    const weir_tensor *tokens = output_named(&outputs, "tokens"), *logits = output_named(&outputs, "logits");
    size_t used = 0;
    for (size_t i = 0; i < tokens->bytes / sizeof(int32_t); i++)
        used += (size_t)snprintf(line + used, capacity - used, "%d ", ((const int32_t *)tokens->data)[i]);
    snprintf(line + used, capacity - used, "%llx\n", (unsigned long long)checksum(logits->data, logits->bytes));
    its->it.engine->release_outputs(its->model, &outputs);
}

static inline void ask_weir(const rig *its, int seed, char *line, size_t capacity)
{
    ask_weir_long(its, seed, PROMPT, line, capacity);
}

#endif
