/* wl.h: what the files of this plug-in share. */
#ifndef WL_WL_H
#define WL_WL_H

#include <pthread.h>
#include <stdatomic.h>

#include <jansson.h>

#include <weir/engine.h>
#include <weir/onnxruntime.h>
#include <weir/weir.h>

#include "engines/text/text.h"
#include "interpose/cuda_redirect.h"
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

/* ---- folder.c: genai_config.json, the graph it names and the tokenizer beside them, checked before GenAI sees them  */

#define WL_CONFIG "genai_config.json"

typedef struct wl_folder {
    char path[512];
    char type[64];      /* "llama", "phi3" */
    char model[256];    /* the graph's file, in the folder */
    int64_t context;    /* tokens that the model has positions for */
    int64_t vocabulary; /* tokens */
    int64_t layers, kv_heads, head_size;
    int64_t threads;       /* that the config gives ONNX Runtime; 0: none */
    int64_t top_k;         /* of the search section, that GenAI begins with */
    bool shares_cache;     /* keys and values lie in one buffer for the whole context */
    bool paged;            /* "dynamic_batching": its graph takes a table of blocks */
    int64_t block;         /* tokens of such a block */
    uint64_t weight_bytes; /* in the graph and beside it */
    uint64_t table_bytes;  /* of these, tables of tokens and positions, and scales: no matrix product uses them */
    uint64_t token_bytes;  /* of a token's keys and values in all layers, as the graph has them */
    uint64_t state_bytes;  /* of what a sequence has however long it is: states of layers that keep no keys */
    uint64_t nodes;
    bool flat; /* the graph and its files lie in the folder itself */
} wl_folder;

/* Reads `path`, the folder or its genai_config.json. WEIR_ERR_CORRUPT for what is not well-formed, WEIR_ERR_UNSUPPORTED
 * for what this engine does not run, each with the file and the place. */
weir_status wl_folder_read(const char *path, wl_folder *out);

/* known.c: sums that change when a file of the folder changes. A subfolder counts with its own attributes, without its
 * files. */
typedef struct wl_files {
    uint64_t sums[2];
    bool settled; /* no file was written just now, so that the sums are reliable */
} wl_files;
void wl_files_look(const char *path, wl_files *out);
/* True: the folder at folder->path was found good with the same files; *folder gets the result of that reading. Any
 * thread. */
bool wl_folder_recall(const wl_files *files, wl_folder *folder);
/* Remembers a folder that was found good. `files` is from before the reading. */
void wl_folder_keep(const wl_files *files, const wl_folder *folder);

/* An object of JSON in the folder; `flags` are jansson's. */
weir_status wl_folder_json(const wl_folder *folder, const char *name, int64_t most, size_t flags, json_t **out);
/* config.c: whether each word of genai_config.json that has a rule keeps it, what has none is harmless, and all go
 * together. */
weir_status wl_config_check(const wl_folder *folder, const json_t *root);
/* Whether it is a whole number, which may be written as 256.0. */
bool wl_config_whole(const json_t *value, int64_t *out);
/* tokenizer.c */
weir_status wl_tokenizer_check(const wl_folder *folder);
/* Whether the template is one that GenAI can read; `what` names it. */
weir_status wl_template_check(const char *what, const char *text);

/* Bytes of the cache of one sequence of so many tokens; UINT64_MAX where they are beyond all measure. */
uint64_t wl_folder_cache(const wl_folder *folder, uint64_t tokens);

/* ---- memory.c: GenAI's memory, out of the client of the model that the calling thread works for ------------------ */

/* Whose memory it is. */
typedef struct wl_account wl_account;

/* What the calling thread does. */
typedef enum wl_stage {
    WL_LOADING, /* sessions that are made get the account's bridge */
    WL_RUNNING
} wl_stage;

typedef struct wl_phase {
    wl_account *account;
    wl_stage stage;
    uint64_t refused_before; /* by the bridge */
    wi_cuda_scope scope;     /* of a model on CUDA */
    weir_client *client;     /* the scope's */
    bool scoped;
    weir_status refusal; /* of a request of this thread's */
    char detail[1024];
    struct wl_phase *outer;
} wl_phase;

/* An account of the client's: on `host`, or on cuda:0 with what is on the host charged in the host's ledger. */
weir_status wl_account_make(const ort_api *api, ort_env *env, uint32_t version, weir_client *client, wl_account **out);
/* Gives it back; what GenAI still holds of it stays until it is freed, and is logged. NULL is nothing. */
void wl_account_drop(wl_account *account);
weir_client *wl_account_client(const wl_account *account);
/* Made with the first call, of what is known then; NULL: weir_detail says why. */
weir_onnxruntime *wl_account_bridge(wl_account *account);
/* Waits for what GenAI has put on the device, before what that uses is freed. On the host: nothing. */
void wl_account_settle(const wl_account *account);

void wl_phase_begin(wl_phase *phase, wl_stage stage, wl_account *account);
void wl_phase_end(wl_phase *phase);
/* The status of the refusal, where what has failed in the phase is one; its words are `text` then. WEIR_OK: it is none. */
weir_status wl_phase_refused(const wl_phase *phase, char *text, size_t capacity);

/* The table that GenAI gets for ONNX Runtime's. Before GenAI is opened. */
weir_status wl_table_make(const ort_base *base, void *handle);

/* ---- memory.c, for table.c --------------------------------------------------------------------------------------- */

weir_status wl_memory_begin(const ort_api *api);
/* What the calling thread is at work for; NULL: nothing of ours. */
wl_phase *wl_memory_phase(void);
/* The class of what the calling thread asks for from now on; answers what it was. */
weir_class wl_memory_class(weir_class next);
/* GenAI's allocators, of the host and of the device, and what ONNX Runtime had for the latter. */
ort_allocator *wl_memory_of_host(void);
ort_allocator *wl_memory_of_device(ort_allocator *theirs);
ort_allocator *wl_memory_theirs(ort_allocator *allocator);
/* GenAI works on this stream (a cudaStream_t) from now on. */
void wl_memory_stream(void *native);

/* ---- devices.c: GenAI's library for CUDA, and its memory --------------------------------------------------------- */

/* Whether what ONNX Runtime and GenAI need of CUDA can be opened; if not, `missing` says what is missing. */
weir_status wl_devices_needs(char *missing, size_t capacity);
/* Opens the library that lies beside GenAI's, the first time, and has its memory come from models' clients until as many
 * closes. WEIR_ERR_UNSUPPORTED for another device than the first; WEIR_ERR_BUSY where models are in another runtime. */
weir_status wl_devices_open(const char *genai, weir_client *client);
void wl_devices_close(void);
/* While there are models on CUDA; NULL: none. */
wi_cuda_redirect *wl_devices_redirect(void);

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
    char *copies;
} wl_run_settings;

extern const wt_choices wl_choices;

weir_status wl_settings_of_load(const weir_setting *settings, size_t count, wl_load_settings *load,
                                wl_run_settings *run);
/* A number for the settings of a load that count for its memory. */
uint64_t wl_settings_number(const wl_load_settings *load);
weir_status wl_settings_of_run(const weir_setting *settings, size_t count, wl_run_settings *run);

/* ---- the model --------------------------------------------------------------------------------------------------- */

struct wl_batch;

enum { WL_INPUTS = WT_PROMPT_PORTS, WL_OUTPUTS = WT_ANSWER_PORTS + 1, WL_MOST_SEQUENCES = 256 };

struct weir_engine_model {
    const wl_library *library;
    wl_folder folder;
    wl_account *account; /* the model's memory is charged to this account */
    oga_model *model;
    oga_tokenizer *tokenizer;
    wl_load_settings load;
    wl_run_settings defaults;
    uint32_t longest;  /* tokens of prompt and answer together */
    int64_t threads;   /* that its session has; on CUDA 0: ONNX Runtime's choice */
    weir_cores *cores; /* its line in the ledger; NULL: it is on CUDA */
    bool cuda;
    bool on_device; /* wl_devices_open was called */

    pthread_mutex_t words; /* held while the tokenizer is at work */
    wt_runs runs;          /* its lock also guards the batch */

    struct wl_batch *batch; /* NULL: one run at a time */
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
    wt_run *run;
    weir_piece_fn piece;
    void *user;
    wl_prompt prompt;
    wt_answer answer;
    oga_tokenizer_stream *stream;
    float *logits;      /* of the last token; NULL: not asked for */
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
/* Decodes it alone; the model computes for this thread. */
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
