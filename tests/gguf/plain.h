/* plain.h: the same llama.cpp used directly, as any other part of a program would: on ggml's own malloc. */
#ifndef PLAIN_H
#define PLAIN_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <llama.h>

/* clang-format off */
#define PLAIN(X)                                                                                                   \
    X(llama_model_default_params) X(llama_context_default_params) X(llama_model_load_from_file)                    \
    X(llama_init_from_model) X(llama_model_free) X(llama_free) X(llama_decode) X(llama_encode)                     \
    X(llama_batch_init) X(llama_batch_free) X(llama_batch_get_one) X(llama_get_logits_ith)                         \
    X(llama_get_embeddings_seq) X(llama_model_get_vocab) X(llama_vocab_n_tokens) X(llama_model_n_embd_out)         \
    X(llama_tokenize) X(llama_get_memory) X(llama_memory_clear) X(ggml_blck_size) X(ggml_type_size)                \
    X(llama_sampler_init_greedy) X(llama_sampler_sample) X(llama_sampler_free)
/* clang-format on */

typedef struct plain {
#define MEMBER(name) __typeof__(&name) name;
    PLAIN(MEMBER)
#undef MEMBER
    struct llama_model *model;
    struct llama_context *context;
    const struct llama_vocab *vocab;
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
    it->context = it->llama_init_from_model(it->model, params);
    plain_need(it->context != NULL, "making a context");
}

static inline void plain_close(plain *it)
{
    it->llama_free(it->context);
    it->llama_model_free(it->model);
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
