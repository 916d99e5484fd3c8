/* cuda_llama.h: the store's llama.cpp with its CUDA module, both opened at run time, and the memory of the module sent to
 * a client by what it is for. One of them in a process, as the module registers with llama.cpp for good. */
#ifndef CUDA_LLAMA_H
#define CUDA_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ggml-backend-impl.h>
#include <ggml-cuda.h>
#include <llama.h>

#include "interpose/cuda_redirect.h"

/* clang-format off */
#define CUDA_LLAMA(X)                                                                                              \
    X(llama_backend_init) X(llama_log_set) X(llama_model_default_params) X(llama_context_default_params)           \
    X(llama_model_load_from_file) X(llama_init_from_model) X(llama_model_free) X(llama_free) X(llama_decode)       \
    X(llama_batch_get_one) X(llama_get_logits_ith) X(llama_model_get_vocab) X(llama_vocab_n_tokens)                \
    X(llama_get_memory) X(llama_memory_clear) X(llama_synchronize) X(llama_n_ctx) X(llama_n_batch)                 \
    X(ggml_backend_register) X(ggml_backend_reg_dev_get) X(ggml_backend_reg_dev_count)                             \
    X(ggml_backend_dev_buffer_type) X(ggml_backend_dev_memory) X(ggml_backend_dev_description)                     \
    X(ggml_set_abort_callback)
/* clang-format on */

typedef struct cuda_llama {
#define X(name) __typeof__(&name) name;
    CUDA_LLAMA(X)
#undef X
    void *llama, *module;
    char path[600]; /* of the module */
    ggml_backend_dev_t device;
} cuda_llama;

/* Opens libllama.so there; the reason when it is not. */
const char *cuda_llama_open(cuda_llama *it, const char *folder);
/* Opens libggml-cuda.so there. Nothing has called CUDA then: a redirect begins now. */
const char *cuda_llama_open_module(cuda_llama *it, const char *folder);
/* Registers the module with llama.cpp; its first device is `device`. */
const char *cuda_llama_register(cuda_llama *it);

/* What is allocated on this thread is for that, until it is for something else; NULL for the redirect ends it. Where it
 * is not the weights, the KV cache has a class of its own. */
void cuda_llama_is_for(cuda_llama *it, wi_cuda_redirect *redirect, weir_class memory_class);
/* Whether this thread is just allocating a KV cache. */
bool cuda_llama_for_kv(void);

#endif
