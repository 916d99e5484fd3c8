/* wg.h: what the files of this plug-in share. The prefix wg_ keeps apart from ggml's own gguf_. */
#ifndef WG_WG_H
#define WG_WG_H

#include <pthread.h>
#include <stdatomic.h>

#include <ggml-backend-impl.h>
#include <ggml-cpu.h>
#include <llama.h>

#include <weir/weir.h>
#include <weir/engine.h>

#include "check.h"
#include "engines/text/text.h"
#include "interpose/cuda_redirect.h"

/* ---- library.c: llama.cpp, opened at run time, and the functions of it that are called ---------------------------- */

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

/* Where that folder of the store ("engines/llama/…") is. */
void wg_store_directory(const char *folder, char *out, size_t capacity);
/* Whether the file `commit` in the directory, where there is one, names that commit. */
weir_status wg_check_mark(const char *directory);

/* ---- settings.c -------------------------------------------------------------------------------------------------- */

typedef struct wg_load_settings {
    char llama[512];    /* directory of another llama.cpp; "": the store's */
    int64_t threads;    /* 0: the physical cores this process may use */
    int64_t context;    /* tokens; 0: by the model */
    int64_t batch;      /* tokens computed in one go; 0: by the model */
    int64_t gpu_layers; /* of a model on a device, the output layer counted; -1: all */
    bool mmap;
    bool direct;          /* what is not in the page cache is read past it */
    char llama_cuda[512]; /* directory of a libggml-cuda.so; "": the store's */
    char pooling[8];      /* "", "none", "mean", "cls", "last" */
    int64_t sequences;    /* number of sequences decoded together, with `context` cells per sequence */
    char flash_attention[8], cache_k[8], cache_v[8];
    char cache_memory[12];                            /* "elastic", "promised", "whole" */
    double rope_frequency_base, rope_frequency_scale; /* 0: the model's */
    bool swa_full; /* layers that look back through a window have cells for the whole context all the same */
} wg_load_settings;

typedef struct wg_run_settings {
    int64_t tokens;
    double temperature, top_p, min_p, typical_p, top_n_sigma, dynatemp_range, dynatemp_exponent;
    double xtc_probability, xtc_threshold, mirostat_tau, mirostat_eta;
    double repeat_penalty, frequency_penalty, presence_penalty, dry_multiplier, dry_base;
    int64_t top_k, seed, mirostat, repeat_last_n, dry_allowed_length, dry_penalty_last_n, logprobs;
    bool ignore_eos, chat, logits, state;
    bool normalize, truncate;
    /* The caller's texts, which live as long as its call; of a model's own settings, copies in `copies`. NULL: none. */
    const char *stop, *grammar, *logit_bias, *chat_template, *dry_sequence_breakers;
    char *copies;
} wg_run_settings;

extern const wt_choices wg_choices;

/* Fills in the defaults, then what the caller says. */
weir_status wg_settings_of_load(const weir_setting *settings, size_t count, wg_load_settings *load,
                                wg_run_settings *run);

/* ---- buffers.c: ggml's buffers out of the client ----------------------------------------------------------------- */

enum wg_stage { WG_IDLE = 0, WG_LOADING, WG_CONTEXT, WG_RUNNING, WG_PLANNING };

/* What the calling thread is doing for a model. llama.cpp allocates on the thread that calls it. */
typedef struct wg_phase {
    enum wg_stage stage;
    weir_engine_model *model;
    wi_cuda_scope scope;        /* of a model on devices */
    bool scoped;                /* it was entered */
    bool saw_tensor, saw_cache; /* since the last allocation; they tell the class of the next allocation */
    uint64_t planned_output;
    weir_status refusal;
    char detail[1024];
    struct wg_phase *outer;
} wg_phase;

/* From now on buffers of this type come from the model that the calling thread is at work for; once for each type. */
void wg_buffers_hook(const wg_library *from, ggml_backend_buffer_type_t type, bool of_host);
void wg_phase_begin(wg_phase *phase, enum wg_stage stage, weir_engine_model *model);
void wg_phase_end(wg_phase *phase);
/* That the calling thread is at work for; NULL: none. */
weir_engine_model *wg_phase_model(void);

/* ---- reads.c: a model's file past the page cache ------------------------------------------------------------------ */

/* From now on what llama.cpp reads of the file on this thread comes past the page cache. Answers false where nothing does; an end
 * belongs to each in any case, on the same thread. */
bool wg_reads_begin(wt_ring *ring, const wg_library *library, const char *path);
void wg_reads_end(wt_ring *ring);

/* ---- devices.c: CUDA, where a model asks for it ------------------------------------------------------------------ */

enum { WG_DEVICES = 16 };

/* Where a model lies. */
typedef struct wg_devices {
    weir_client *host; /* what is on the host is charged to it, */
    weir_kind kind;    /* as memory of this kind: WEIR_KIND_DEVICE on the host's own runtime */
    size_t count;      /* 0: the whole model is on the host */
    weir_client *clients[WG_DEVICES];
    weir_reservation *reserves[WG_DEVICES]; /* for scratch, which cannot be refused; NULL: none */
    ggml_backend_dev_t list[WG_DEVICES + 1];
    bool held; /* by wg_devices_open */
} wg_devices;

/* Reads the devices that a load names, and checks that this engine supports them. Opens no library. */
weir_status wg_devices_read(const weir_engine_load *load, bool planning, wg_devices *out);
/* Opens llama.cpp's library for CUDA, the first time, and has its memory come from the devices' clients, until
 * wg_devices_close. Without devices: nothing. */
weir_status wg_devices_open(const wg_library *library, const char *directory, wg_devices *devices);
void wg_devices_close(wg_devices *devices);
/* Waits until what llama.cpp has freed has gone back to the clients. */
void wg_devices_settle(const wg_devices *devices);
/* The file of that library; WEIR_ERR_NOT_FOUND says how to get it. Opens nothing. */
weir_status wg_devices_find(const char *directory, char *path, size_t capacity);
/* Whether what that library needs of CUDA can be opened; if not, `missing` says what is missing. */
weir_status wg_devices_needs(char *missing, size_t capacity);
/* The redirect while there are models on devices; NULL: none. */
wi_cuda_redirect *wg_devices_redirect(void);
/* Bytes that the redirect's scratch takes now on the devices, one after the other. */
void wg_devices_scratch(const wg_devices *devices, uint64_t *bytes);

/* ---- scratch.c, scratch_known.c ---------------------------------------------------------------------------------- */

/* By device: what the largest batch takes beside the buffers of its graph, and what a full context takes beyond that. */
typedef struct wg_scratch {
    uint64_t taken[WG_DEVICES], grows[WG_DEVICES];
} wg_scratch;

/* scratch_known.c: what an earlier load of the same file has measured, with the same settings, libraries and kind of
 * devices. The model has its fingerprint. False: nothing is known, or nothing is remembered (the option `predictions`). */
bool wg_scratch_recall(const weir_engine_model *model, wg_scratch *out);
void wg_scratch_remember(const weir_engine_model *model, const wg_scratch *known);

/* Has the devices' scratch allocated, and what a full context may take reserved. Of a model on the host: nothing. */
weir_status wg_scratch_measure(weir_engine_model *model);

/* ---- border.cpp: where foreign exceptions end -------------------------------------------------------------------- */

/* Calls fn(user) and answers true; false when it threw, with the words in `text`. While it runs, an assertion of ggml's
 * on this thread is such an exception too, unless it comes from inside a computation, where other threads take part. */
bool wg_guarded(void (*fn)(void *user), void *user, char *text, size_t capacity);
/* The same where llama.cpp computes with one thread, so that an assertion inside a computation is an exception too. */
bool wg_guarded_alone(void (*fn)(void *user), void *user, char *text, size_t capacity);
/* ggml's abort callback. */
void wg_on_abort(const char *message);
/* Adds up the bytes of a context made with no_alloc, in buffers of `type` or, with NULL, of all types; every buffer is
 * rounded up as weir charges it. */
bool wg_breakdown(void *function, const struct llama_context *context, ggml_backend_buffer_type_t type,
                  uint64_t *weights, uint64_t *cache, uint64_t *compute);

/* ---- log.c ------------------------------------------------------------------------------------------------------- */

void wg_on_log(enum ggml_log_level level, const char *text, void *user);
/* The last error llama.cpp logged on this thread since wg_log_forget; "" if none. */
const char *wg_log_first_error(void);
void wg_log_forget(void);

/* ---- the model --------------------------------------------------------------------------------------------------- */

struct wg_batch;

enum { WG_EMBED_SEQUENCES = 16, WG_EMBED_PACK = 128, WG_BATCH = 512, WG_MOST_SEQUENCES = 256 };
enum { WG_INPUTS = WT_RESUMES, WG_OUTPUTS = WT_ANSWER_PORTS + 5 };

struct weir_engine_model {
    const wg_library *library;
    wg_devices devices;
    struct llama_model *model;
    struct llama_context *context;
    const struct llama_vocab *vocab;
    struct weir_cores *cores; /* its line in the ledger; NULL: it is all on devices */
    /* Of the thread that computes. */
    struct ggml_threadpool *pool; /* NULL: none yet, or there were no threads for it */
    int pool_threads, threads;    /* threads: that the context was told last; 0: none of these here */
    wg_facts facts;
    wg_load_settings load;
    wg_run_settings defaults;
    bool embeds;
    uint32_t longest; /* tokens of one text, or of prompt and answer together */
    uint32_t pack;    /* tokens in one batch */
    uint32_t step;    /* tokens in one call of llama.cpp; on a device several batches, queued */
    uint32_t width;   /* of an embedding */

    wt_runs runs; /* its lock also guards the batch */

    atomic_bool broken;     /* an exception left a run half done */
    atomic_bool overran;    /* llama.cpp has scratch past the budget, which is noted in its accounts */
    struct wg_cache *cache; /* NULL: its memory is all there */
    struct wg_batch *batch; /* of a model that generates: the runs that are decoded together */
    uint64_t fingerprint;   /* of the file and of how its cache is laid out */
    weir_port inputs[WG_INPUTS], outputs[WG_OUTPUTS];
    uint32_t input_count, output_count;
    weir_provider_share shares[2]; /* of its layers */
    size_t share_count;
    char architecture[160], version[64], remarks[256];
};

/* ---- load.c, plan.c ---------------------------------------------------------------------------------------------- */

weir_status wg_load(const weir_engine_load *load, weir_engine_model **out);
weir_status wg_plan(const weir_engine_load *load, weir_engine_plan *out);
void wg_unload(weir_engine_model *model);

/* The steps that load and plan share: devices, provider and settings; the file; the library, which is opened. */
weir_status wg_read_request(const weir_engine_load *load, bool planning, weir_engine_model *model);
weir_status wg_look(const weir_engine_load *load, weir_engine_model *model);
weir_status wg_open(weir_engine_model *model);
weir_status wg_make_model(weir_engine_model *model, const weir_engine_load *load, wg_phase *phase, bool no_alloc);
weir_status wg_make_context(weir_engine_model *model, wg_phase *phase);
void wg_drop(weir_engine_model *model);

/* ---- run.c: what every run does ---------------------------------------------------------------------------------- */

/* WEIR_ERR_ENGINE: an exception has left a run half done. */
weir_status wg_health(weir_engine_model *model);
weir_status wg_cancel(weir_engine_model *model, uint64_t id);
bool wg_stopped(void *model);

/* At least one of the inputs is there. */
weir_status wg_the_inputs(const weir_engine_model *model, const weir_inference *inference, wt_inputs *out);
/* Tokenizes a text, into malloc memory. With `marks` the vocabulary's special tokens frame the text; with `special` the
 * names of special tokens inside the text are read as these tokens. */
weir_status wg_tokenize(const weir_engine_model *model, const char *text, size_t bytes, bool marks, bool special,
                        int32_t **tokens, size_t *count);
/* Why llama_decode or llama_encode answered `code`. */
weir_status wg_run_failed(weir_engine_model *model, const wg_phase *phase, int code);

/* ---- cores.c: cores leased of weir's ledger (weir/cores.h), and a pool of ggml's threads for them ----------------- */

/* Cores that the process has. */
int wg_cores(void);

/* The model's line in the ledger, under the name of its client. A model that is all on devices has none: its few steps
 * on the host wait for nobody. */
weir_status wg_cores_open(weir_engine_model *model);
/* After the context is freed. */
void wg_cores_close(weir_engine_model *model);

/* Threads that a context is made with. */
int wg_threads(const weir_engine_model *model);

/* Before each step, on the thread that computes and without the model's lock: leases cores, or renews what `leased` says
 * that it holds, and has llama.cpp start as many threads. With an error, as when `stops` answers true, nothing is leased. */
weir_status wg_cores_take(weir_engine_model *model, bool (*stops)(void *user), void *user, bool *leased);

/* ---- embed.c, generate.c ----------------------------------------------------------------------------------------- */

weir_status wg_embed(weir_engine_model *model, const weir_inference *inference, const wg_run_settings *settings,
                     wt_run *run, weir_outputs *out, uint64_t *tokens_in);
weir_status wg_generate(weir_engine_model *model, const weir_inference *inference, const wg_run_settings *settings,
                        wt_run *run, weir_piece_fn piece, void *user, weir_outputs *out, uint64_t *tokens_in,
                        uint64_t *tokens_out);

/* ---- context.c, batch.c, state.c: what load.c asks of those who use the context ---------------------------------- */

/* The settings of a load that are llama.cpp's context parameters: names checked; then filled in. */
weir_status wg_context_check(const wg_load_settings *load, const char *path);
void wg_context_fill(const weir_engine_model *model, struct llama_context_params *params);

weir_status wg_batch_make(weir_engine_model *model);
void wg_batch_drop(weir_engine_model *model);
/* Whether all runs of the decode under way are cancelled; asked on the thread that computes. */
bool wg_batch_stopped(const struct wg_batch *batch);

/* What a saved sequence must find again: samples of the file, and how the cache is laid out. */
weir_status wg_fingerprint(weir_engine_model *model, const char *path);

/* ---- cache.c ----------------------------------------------------------------------------------------------------- */

struct wg_cache;

/* Whether the model's cache is to be elastic ('cache_memory'). */
bool wg_cache_wanted(const weir_engine_model *model);
/* Whether the cache is elastic without a promise, so that it takes memory only for cells in use. */
bool wg_cache_grows(const weir_engine_model *model);
/* A buffer of the cache on the host. WEIR_ERR_UNSUPPORTED: memory cannot be mapped there. */
weir_status wg_cache_on_host(weir_engine_model *model, ggml_backend_buffer_type_t type, size_t bytes,
                             ggml_backend_buffer_t *out);
/* Memory for one on the client's device, for the scope in which ggml makes it; the same errors. Then what came of it. */
weir_status wg_cache_on_device(weir_engine_model *model, weir_client *client, size_t bytes, const wi_cuda_source **out);
void wg_cache_made(const wi_cuda_source *source, ggml_backend_buffer_t buffer);
/* The context is made: what is not elastic is committed, and others' need for memory is listened to from now on. */
weir_status wg_cache_settle(weir_engine_model *model);
/* Before the context goes, and when it is gone. */
void wg_cache_silence(weir_engine_model *model);
void wg_cache_drop(weir_engine_model *model);

/* The following functions are called by the computing thread. Commits, before a decode, the pages for the `cells` cells
 * that the sequence will use after the decode. A refusal fails the run that needs the pages. Not between begin and
 * end. */
weir_status wg_cache_grow(weir_engine_model *model, int32_t sequence, uint32_t cells);
/* Around a decode; the device is idle at the end. */
void wg_cache_begin(weir_engine_model *model);
void wg_cache_end(weir_engine_model *model);
/* Cells of a sequence were given up, `cells` are still in use. */
void wg_cache_shrink(weir_engine_model *model, int32_t sequence, uint32_t cells);
/* The model has nothing to do: pages that no sequence uses go, but for the first of sequence 0; that, too, with `all`.
 * Returns the bytes. During a decode nothing is done. Any thread. */
uint64_t wg_cache_rest(weir_engine_model *model, bool all);

/* ---- prompt.c: what a run begins with ---------------------------------------------------------------------------- */

typedef struct wg_prompt {
    int32_t *tokens;
    size_t count;
    size_t restored;      /* of them stand in `saved` */
    const uint8_t *saved; /* llama.cpp's bytes of a sequence, in the caller's input; NULL: none */
    size_t saved_bytes;
} wg_prompt;

weir_status wg_prompt_read(const weir_engine_model *model, const weir_inference *inference,
                           const wg_run_settings *settings, wg_prompt *out);
void wg_prompt_drop(wg_prompt *prompt);

/* ---- sampling.c ------------------------------------------------------------------------------------------------ */

typedef struct wg_sampler {
    struct llama_sampler *chain;
    struct llama_sampler *grammar; /* NULL: none */
    bool likeliest;                /* the likeliest token, whatever came before: no sampler is needed for that */
} wg_sampler;

weir_status wg_sampler_make(const weir_engine_model *model, const wg_run_settings *settings, const wg_prompt *prompt,
                            wg_sampler *out);
void wg_sampler_drop(const weir_engine_model *model, wg_sampler *sampler);
/* The next token by its logits; `room` is for as many candidates as the vocabulary has. May throw: to be guarded. */
int32_t wg_sampler_take(const weir_engine_model *model, const wg_sampler *sampler, const float *logits,
                        llama_token_data *room);

/* ---- generate.c, batch.c ----------------------------------------------------------------------------------------- */

/* A run. Some members belong to the run's own thread, some to the computing thread, some to the thread that has the
 * lock. */
typedef struct wg_generation {
    weir_engine_model *model;
    const wg_run_settings *settings;
    wt_run *run;
    weir_piece_fn piece;
    void *user;
    bool in_step; /* goes on only when its pieces are delivered: logits or state must belong to the last piece */
    wg_prompt prompt;

    /* Of the thread that computes, between the run's arrival and its end. */
    wg_sampler sampler;
    int32_t sequence, row; /* -1: none */
    bool begun, ready, finished;
    size_t computed; /* of the tokens of prompt and answer, one behind the other */
    size_t step;     /* of them in the decode under way */
    int32_t token;   /* chosen last */
    float *logits;
    uint8_t *saved;
    size_t saved_bytes;

    /* Of whoever has the model's lock. What is in the answer is written by the thread that computes, with the lock. */
    wt_answer answer;
    bool done, lost; /* lost: there was no memory for a piece */
    weir_status status;
    char detail[1024];
    struct wg_generation *next;

    atomic_bool quit; /* its reader wants no more */
} wg_generation;

/* Decodes a run to its end, together with the others of its model. The calling thread waits, or computes for all. */
weir_status wg_batch_run(wg_generation *it);
int32_t wg_token_at(const wg_generation *it, size_t place);
size_t wg_token_count(const wg_generation *it);

/* ---- state.c: a sequence saved ------------------------------------------------------------------------------------ */

/* The header of a saved sequence: behind it come the tokens, i32, and llama.cpp's bytes. */
typedef struct wg_state_head {
    char magic[8];
    uint32_t version;
    uint32_t tokens;   /* that it stands for: prompt and answer */
    uint32_t computed; /* of them are in the cache; the last one that was made is not */
    uint32_t none;
    uint64_t fingerprint;
    uint64_t bytes; /* of llama.cpp's */
    uint64_t sum;   /* over the members above and the bytes behind the header */
} wg_state_head;

/* Reads the head of a saved state, whose tokens come out in malloc memory; everything is checked that can be before
 * llama.cpp gets the bytes. */
weir_status wg_state_open(const weir_engine_model *model, const weir_tensor *saved, wg_prompt *out);
/* Puts the saved sequence into the run's; answers false, and the sequence is as it was, if llama.cpp refuses it. May
 * throw: to be guarded. */
bool wg_state_restore(wg_generation *it);
/* The run's sequence with its tokens, into it->saved. May throw: to be guarded. */
weir_status wg_state_save(wg_generation *it);
/* The tokens that a state of ours stands for. */
const int32_t *wg_state_tokens(const uint8_t *saved, size_t *count);

#endif
