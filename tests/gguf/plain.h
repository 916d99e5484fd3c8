/* plain.h: the same llama.cpp used directly, as any other part of a program would: on ggml's own malloc. */
#ifndef PLAIN_H
#define PLAIN_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <llama.h>

#include <weir/engine.h>

/* clang-format off */
#define PLAIN(X)                                                                                                   \
    X(llama_model_default_params) X(llama_context_default_params) X(llama_model_load_from_file)                    \
    X(llama_init_from_model) X(llama_model_free) X(llama_free) X(llama_decode) X(llama_encode)                     \
    X(llama_batch_init) X(llama_batch_free) X(llama_batch_get_one) X(llama_get_logits_ith)                         \
    X(llama_get_embeddings_seq) X(llama_model_get_vocab) X(llama_vocab_n_tokens) X(llama_model_n_embd_out)         \
    X(llama_tokenize) X(llama_get_memory) X(llama_memory_clear) X(ggml_blck_size) X(ggml_type_size)                \
    X(llama_sampler_init_greedy) X(llama_sampler_sample) X(llama_sampler_free) X(llama_sampler_accept)             \
    X(llama_sampler_chain_default_params) X(llama_sampler_chain_init) X(llama_sampler_chain_add)                   \
    X(llama_sampler_init_dist) X(llama_sampler_init_top_k) X(llama_sampler_init_top_p) X(llama_sampler_init_min_p) \
    X(llama_sampler_init_temp) X(llama_sampler_init_typical) X(llama_sampler_init_top_n_sigma)                     \
    X(llama_sampler_init_temp_ext) X(llama_sampler_init_xtc) X(llama_sampler_init_mirostat)                        \
    X(llama_sampler_init_mirostat_v2) X(llama_sampler_init_penalties) X(llama_sampler_init_dry)                    \
    X(llama_sampler_init_grammar) X(llama_sampler_init_logit_bias) X(llama_chat_apply_template)                    \
    X(llama_memory_seq_rm)
/* clang-format on */

typedef struct plain {
#define MEMBER(name) __typeof__(&name) name;
    PLAIN(MEMBER)
#undef MEMBER
    struct llama_model *model;
    struct llama_context *context;
    const struct llama_vocab *vocab;
    void (*adjust)(struct llama_context_params *params); /* the last word on them */
} plain;

static inline void plain_need(bool there, const char *what)
{
    if (there)
        return;
    fprintf(stderr, "llama.cpp by itself: %s failed\n", what);
    abort();
}

static inline plain plain_library(const char *file)
{
    plain it = {0};
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    plain_need(handle != NULL, file);
#define TAKE(name)                                                                                                     \
    *(void **)&it.name = dlsym(handle, #name);                                                                         \
    plain_need(it.name != NULL, #name);
    PLAIN(TAKE)
#undef TAKE
    return it;
}

/* The library that the engine runs. */
static inline plain plain_of(const weir_engine *engine)
{
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    plain_need(engine->probe(&probe) == WEIR_OK && probe.available, "the probe");
    return plain_library(probe.library);
}

/* With the parameters that the engine chooses for such a model: docs/guide/gguf.md. */
static inline void plain_open(plain *it, const char *path, bool embeds, uint32_t context, uint32_t batch, int threads)
{
    static ggml_backend_dev_t no_devices[1];
    struct llama_model_params model = it->llama_model_default_params();
    struct llama_context_params params = it->llama_context_default_params();
    model.load_mode = LLAMA_LOAD_MODE_NONE;
    model.devices = no_devices;
    model.n_gpu_layers = 0;
    it->model = it->llama_model_load_from_file(path, model);
    plain_need(it->model != NULL, "loading");
    it->vocab = it->llama_model_get_vocab(it->model);
    params.n_ctx = context;
    params.n_batch = params.n_ubatch = embeds ? context : batch;
    params.n_threads = params.n_threads_batch = threads;
    params.no_perf = true;
    params.embeddings = embeds;
    if (embeds) {
        params.n_seq_max = 16;
        params.kv_unified = true;
    } else {
        params.n_outputs_max = 1;
    }
    if (it->adjust)
        it->adjust(&params);
    it->context = it->llama_init_from_model(it->model, params);
    plain_need(it->context != NULL, "making a context");
}

static inline void plain_close(plain *it)
{
    it->llama_free(it->context);
    it->llama_model_free(it->model);
}

/* The likeliest token at the last place but for `never`, as by llama.cpp's greedy sampler: the first of equals. */
static inline int32_t plain_likeliest(const plain *it, int32_t never)
{
    const float *logits = it->llama_get_logits_ith(it->context, -1);
    int32_t best = never == 0 ? 1 : 0;
    for (int32_t i = best; i < it->llama_vocab_n_tokens(it->vocab); i++)
        if (i != never && logits[i] > logits[best])
            best = i;
    return best;
}

/* The tokens as sequence 0, `batch` at a time. */
static inline void plain_read(plain *it, const int32_t *tokens, int length, int batch)
{
    for (int at = 0; at < length; at += batch) {
        int step = length - at < batch ? length - at : batch;
        plain_need(it->llama_decode(it->context, it->llama_batch_get_one((int32_t *)tokens + at, step)) == 0,
                   "a decode");
    }
}

/* The prompt, and then `count` times the likeliest token but for `never` (-1: none). */
static inline void plain_greedy(plain *it, const int32_t *prompt, int length, int batch, int32_t never, int32_t *out,
                                int count)
{
    it->llama_memory_clear(it->llama_get_memory(it->context), false);
    plain_read(it, prompt, length, batch);
    for (int i = 0; i < count; i++) {
        out[i] = plain_likeliest(it, never);
        if (i + 1 < count)
            plain_read(it, &out[i], 1, 1);
    }
}

/* One text's tokens as sequence `sequence` at the end of the batch. */
static inline void plain_add(struct llama_batch *batch, const int32_t *tokens, int count, int sequence)
{
    for (int i = 0; i < count; i++) {
        int at = batch->n_tokens++;
        batch->token[at] = tokens[i];
        batch->pos[at] = i;
        batch->n_seq_id[at] = 1;
        batch->seq_id[at][0] = sequence;
        batch->logits[at] = 1;
    }
}

#endif
