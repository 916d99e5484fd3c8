/* wl.h: what the files of this plug-in share. */
#ifndef WL_WL_H
#define WL_WL_H

#include <pthread.h>
#include <stdatomic.h>

#include <weir/engine.h>
#include <weir/onnxruntime.h>
#include <weir/weir.h>

#include "engines/text/text.h"
#include "folder.h"
#include "memory.h"
#include "oga.h"
#include "onnx/bridge/api.h"

/* ---- library.c: ONNX Runtime GenAI, and the ONNX Runtime below it ------------------------------------------------ */

typedef struct wl_library {
    char file[512];     /* of libonnxruntime-genai.so */
    char version[96];   /* "ONNX Runtime 1.31.1"; GenAI does not tell its own */
    bool cuda;          /* both have it */
    const ort_api *api; /* ONNX Runtime's own */
    ort_env *env;
#define WL_MEMBER(name) __typeof__(&name) name;
    OGA_FUNCTIONS(WL_MEMBER)
#undef WL_MEMBER
} wl_library;

/* Opens GenAI and ONNX Runtime, once in a process; both libraries stay open. Called for each model; wl_library_leave
 * ends the model's use. WEIR_ERR_NOT_FOUND says how to get the libraries. */
weir_status wl_library_use(const wl_library **out);
void wl_library_leave(void);
/* Has GenAI end before CUDA does, at the end of the process. To be called when CUDA is there. */
void wl_library_end_before_cuda(void);
/* Finds GenAI's file and version without opening the libraries; the version is "" until they are open. `cuda`: whether
 * the libraries support CUDA. */
weir_status wl_library_look(char *file, size_t capacity, char *version, size_t version_capacity, bool *cuda);
/* True: a call of GenAI's has failed; copies the message, on a single line, and releases the result. False: the call
 * has succeeded. */
bool wl_failed(const wl_library *library, oga_result *result, char *text, size_t capacity);

/* ---- settings.c -------------------------------------------------------------------------------------------------- */

typedef struct wl_load_settings {
    int64_t threads;   /* 0: as the config has it, else the process's cores */
    int64_t context;   /* tokens of prompt and answer together; 0: the model's, at most 4096 */
    int64_t batch;     /* tokens of a prompt that are computed in one go; 0: all */
    int64_t sequences; /* that are decoded together */
} wl_load_settings;

typedef struct wl_run_settings {
    int64_t tokens, top_k, seed, logprobs, no_repeat_ngram;
    double temperature, top_p, repeat_penalty;
    bool ignore_eos, chat, logits;
    const char *stop, *chat_template, *json_schema, *regex, *lark;
    char *kept;
} wl_run_settings;

weir_status wl_settings_of_load(const weir_setting *settings, size_t count, wl_load_settings *load,
                                wl_run_settings *run);
/* A number for the settings of a load that count for its memory. */
uint64_t wl_settings_number(const wl_load_settings *load);
weir_status wl_settings_of_run(const weir_setting *settings, size_t count, wl_run_settings *run);
weir_status wl_settings_keep(wl_run_settings *run);
void wl_settings_drop(wl_run_settings *run);

/* ---- the model --------------------------------------------------------------------------------------------------- */

typedef struct wl_run {
    uint64_t id;
    atomic_bool stop;
    oga_generator *generator; /* while it computes, with the model's lock: what a cancel ends */
    pthread_cond_t wake;
    struct wl_run *next;
} wl_run;

struct wl_batch;

enum { WL_INPUTS = 3, WL_OUTPUTS = 9, WL_MOST_SEQUENCES = 256 };

struct weir_engine_model {
    const wl_library *library;
    wl_folder folder;
    wl_account *account; /* the model's memory is charged to this account */
    oga_model *model;
    oga_tokenizer *tokenizer;
    wl_load_settings load;
    wl_run_settings defaults;
    uint32_t longest;         /* tokens of prompt and answer together */
    int64_t threads;          /* that its session has; on CUDA 0: ONNX Runtime's choice */
    struct weir_cores *cores; /* its line in the ledger; NULL: it is on CUDA */
    bool cuda;
    bool on_device; /* wl_devices_open was called */

    pthread_mutex_t words; /* held while the tokenizer is at work */
    pthread_mutex_t lock;  /* guards what follows */
    pthread_cond_t turn;
    wl_run *runs; /* under way or waiting */
    wl_run *active;
    weir_engine_metrics metrics;

    struct wl_batch *batch; /* NULL: runs take turns */
    weir_port inputs[WL_INPUTS], outputs[WL_OUTPUTS];
    weir_provider_share share;
    char architecture[128], remarks[256];
};

/* ---- load.c ------------------------------------------------------------------------------------------------------ */

weir_status wl_load(const weir_engine_load *load, weir_engine_model **out);
weir_status wl_plan(const weir_engine_load *load, weir_engine_plan *out);
void wl_unload(weir_engine_model *model);

/* ---- run.c: what every run does ---------------------------------------------------------------------------------- */

weir_status wl_run_model(weir_engine_model *model, const weir_inference *inference, weir_piece_fn piece, void *user,
                         weir_outputs *out);
weir_status wl_cancel(weir_engine_model *model, uint64_t id);
double wl_seconds_now(void);

/* ---- prompt.c ---------------------------------------------------------------------------------------------------- */

typedef struct wl_prompt {
    int32_t *tokens; /* malloc memory */
    size_t count;
} wl_prompt;

weir_status wl_prompt_read(weir_engine_model *model, const weir_inference *inference, const wl_run_settings *settings,
                           wl_prompt *out);
/* GenAI has failed in `doing`: reports weir's refusal of memory, if the phase had a refusal, or else GenAI's
 * message. */
weir_status wl_explain(weir_engine_model *model, const wl_phase *phase, const char *text, const char *doing);

/* ---- generate.c, batch.c ----------------------------------------------------------------------------------------- */

/* One run that goes on with a text. */
typedef struct wl_generation {
    weir_engine_model *model;
    const wl_run_settings *settings;
    wl_run *run;
    weir_piece_fn piece;
    void *user;
    wl_prompt prompt;
    wt_answer answer;
    oga_tokenizer_stream *stream;
    float *logits; /* of the last token; NULL: not asked for */
    size_t delivered;
    bool quit;          /* its reader wants no more, */
    bool lost;          /* or there was no memory for a piece, */
    atomic_bool leaves; /* and the thread that computes is to know */
} wl_generation;

/* Adds a token that the model has made, in a phase of the calling thread's. */
weir_status wl_generation_add(wl_generation *it, const wl_phase *phase, int32_t token, const float *logits);
/* Why a run could not begin. */
weir_status wl_generation_refused(const wl_generation *it, const wl_phase *phase, const char *text);
/* True: the run has decided tokens that its reader wants. The reader of a cancelled run gets nothing more. */
bool wl_generation_has_pieces(const wl_generation *it);
/* Hands what is decided to the reader, on the run's own thread. */
void wl_generation_deliver(wl_generation *it);
/* Decodes it alone; the model's turn is this thread's. */
weir_status wl_generate_alone(wl_generation *it);

weir_status wl_batch_make(weir_engine_model *model);
void wl_batch_drop(weir_engine_model *model);
/* Decodes the run together with other runs; the calling thread waits. */
weir_status wl_batch_run(wl_generation *it);
/* An idle model gives up the blocks of keys and values that it has for runs to come; answers their bytes. Any thread. */
uint64_t wl_batch_rest(weir_engine_model *model);
/* The same, without runs, and however long it takes. */
void wl_batch_settle(weir_engine_model *model);
/* A run was cancelled. Without a batch: nothing. */
void wl_batch_wake(weir_engine_model *model);

#endif
