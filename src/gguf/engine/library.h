/* library.h: llama.cpp, opened at run time, and the functions of it that are called. */
#ifndef WG_LIBRARY_H
#define WG_LIBRARY_H

#include <ggml-backend-impl.h>
#include <ggml-cpu.h>
#include <llama.h>

#include <weir/base.h>

/* clang-format off */
#define WG_FUNCTIONS(X)                                                                                           \
    X(ggml_version) X(ggml_commit) X(ggml_nbytes) X(ggml_set_abort_callback) X(ggml_backend_cpu_buffer_type)      \
    X(ggml_backend_cpu_buffer_from_ptr) X(ggml_backend_reg_dev_count) X(ggml_backend_reg_dev_get)                 \
    X(ggml_backend_dev_buffer_type) X(ggml_backend_dev_host_buffer_type) X(ggml_backend_dev_memory)               \
    X(ggml_backend_dev_description)                                                                                    \
    X(llama_version) X(llama_backend_init) X(llama_log_set) X(llama_synchronize) \
    X(llama_model_default_params) X(llama_context_default_params) X(llama_sampler_chain_default_params)           \
    X(llama_model_load_from_file) X(llama_init_from_model) X(llama_model_free) X(llama_free)                      \
    X(llama_model_get_vocab) X(llama_model_desc) X(llama_model_has_encoder) X(llama_model_has_decoder)            \
    X(llama_model_n_embd_out) X(llama_model_chat_template) X(llama_get_memory) X(llama_memory_clear)              \
    X(llama_n_ctx_seq) X(llama_set_n_threads) X(llama_batch_init) X(llama_batch_free) X(llama_batch_get_one)      \
    X(llama_encode)                                                                                               \
    X(llama_attach_threadpool) X(llama_detach_threadpool) X(ggml_threadpool_params_default)                        \
    X(ggml_threadpool_new) X(ggml_threadpool_free)                                                                \
    X(llama_decode) X(llama_get_logits_ith) X(llama_get_embeddings_seq) X(llama_chat_apply_template)              \
    X(llama_vocab_n_tokens) X(llama_vocab_is_eog) X(llama_vocab_bos) X(llama_tokenize) X(llama_token_to_piece)    \
    X(llama_sampler_chain_init) X(llama_sampler_chain_add) X(llama_sampler_init_greedy)                           \
    X(llama_sampler_init_dist) X(llama_sampler_init_top_k) X(llama_sampler_init_top_p)                            \
    X(llama_sampler_init_min_p) X(llama_sampler_init_temp) X(llama_sampler_init_penalties)                        \
    X(llama_sampler_init_logit_bias) X(llama_sampler_free) X(llama_sampler_apply) X(llama_sampler_accept)         \
    X(llama_sampler_init_typical) X(llama_sampler_init_top_n_sigma) X(llama_sampler_init_temp_ext)                \
    X(llama_sampler_init_xtc) X(llama_sampler_init_mirostat) X(llama_sampler_init_mirostat_v2)                    \
    X(llama_sampler_init_dry) X(llama_sampler_init_grammar) X(llama_chat_builtin_templates)                       \
    X(llama_memory_seq_rm) X(llama_memory_seq_pos_max) X(llama_memory_seq_pos_min) X(llama_state_seq_get_size) X(llama_state_seq_get_data) X(llama_state_seq_set_data)
/* clang-format on */

typedef struct wg_library {
    char file[512]; /* of libllama */
    char version[64];
    void *handle;
    void *breakdown; /* a C++ function: border.cpp */
#define WG_MEMBER(name) __typeof__(&name) name;
    WG_FUNCTIONS(WG_MEMBER)
#undef WG_MEMBER
} wg_library;

/* The library this plug-in was compiled for, out of `directory` ("": the store). Opened once in a process and never
 * closed. WEIR_ERR_NOT_FOUND says how to get it; WEIR_ERR_UNSUPPORTED for a library of another commit names both
 * commits. */
weir_status wg_library_get(const char *directory, const wg_library **out);

/* "0c1e57098bba": what this plug-in was compiled for. */
const char *wg_library_commit(void);

/* Where that folder of the store ("engines/llama/…") is. */
void wg_store_directory(const char *folder, char *out, size_t capacity);
/* Whether the file `commit` in the directory, where there is one, names that commit. */
weir_status wg_check_mark(const char *directory);

#endif
