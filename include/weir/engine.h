/* weir/engine.h: the table by which an inference engine plugs into weir.
 *
 * A plug-in is a shared object named weir-engine-NAME.so that links to libweir and exports
 *     const weir_engine *weir_engine_entry(uint32_t abi);
 * It is looked for in the directories of the option `engine_path` (WEIR_ENGINE_PATH), in weir/ beside libweir, and in
 * engines/plugins of the store. A plug-in must do nothing when loaded but answer weir_engine_entry, which may register
 * and open other engines; the engine's own libraries are opened by `probe` or `load`. docs/guide/engines.md walks
 * through a complete one.
 *
 * Rules for every function of the table: it answers with a status and, if it fails, has set weir_detail() by
 * weir_fail(). Device memory comes from the clients it was given. It neither prints nor exits, and lets no foreign
 * exception through. Structures and texts it hands out stay valid as long as stated. Unless said otherwise it may be
 * called from any thread, and several calls may run at once on one model: an engine that cannot run calls in parallel
 * serialises the calls itself. */
#ifndef WEIR_ENGINE_H
#define WEIR_ENGINE_H

#include <weir/memory.h>

WEIR_BEGIN

/* Raised when the table gets a member at the end, or a structure here changes. weir takes tables from
 * WEIR_ENGINE_ABI_OLDEST on, the last version at which plug-ins and weir understood a structure differently (3: places
 * by class in weir_engine_plan), up to its own, and leaves alone what lies beyond a table's `struct_size`. */
enum { WEIR_ENGINE_ABI = 6, WEIR_ENGINE_ABI_OLDEST = 3 };

typedef struct weir_engine_model weir_engine_model; /* the engine's own */

/* A choice by name, as text: {"threads", "4"}. An engine refuses keys it does not know (WEIR_ERR_INVALID, with the
 * list). */
typedef struct weir_setting {
    const char *key, *value;
} weir_setting;

/* What `probe` found. */
typedef struct weir_engine_probe {
    size_t struct_size;
    bool available;
    char library[512]; /* the file of the engine itself; "" if none was found */
    char version[64];
    char missing[512]; /* if not available: what is missing, and how to get it */
} weir_engine_probe;

/* One device the model may use, with the account its bytes there are charged to. */
typedef struct weir_engine_place {
    weir_runtime *runtime;
    weir_client *client;
} weir_engine_place;

typedef struct weir_engine_load {
    size_t struct_size;
    const char *path; /* the model: a file, or a folder */
    const weir_engine_place *places;
    size_t place_count; /* for `load` at least 1; the first is where weights go unless a setting says otherwise */
    const weir_setting *settings;
    size_t setting_count;
    void (*progress)(double fraction, void *user); /* may be NULL; called from 0 to 1, on the loading thread */
    void *progress_user;
    const char *provider; /* since 2: a provider of the engine; NULL: the engine's choice for the first place */
    bool quick;           /* since 5, of a plan: of the model's file alone, in milliseconds; no library is opened */
    /* Since 5, of a load; may be NULL. Asked as often as suits the engine, on any thread, with progress_user: once it answers
     * true nobody wants the model any more, and the load should end soon, with WEIR_ERR_CANCELLED and nothing left. An engine
     * that never asks loads to the end. */
    bool (*stops)(void *user);
} weir_engine_load;

/* Since 2: one way in which the engine can run models. */
typedef enum weir_provider_state {
    WEIR_PROVIDER_HERE = 0,         /* the library is here, has the provider, and what that needs can be opened */
    WEIR_PROVIDER_NOT_BUILT = 1,    /* the library that is here does not have it */
    WEIR_PROVIDER_NOT_LOADABLE = 2, /* it has, and a library that it needs is missing or too old */
    WEIR_PROVIDER_NO_LIBRARY = 3    /* the engine's own library is not here */
} weir_provider_state;

typedef struct weir_engine_provider {
    size_t struct_size;
    char name[32]; /* "cuda", "cpu"; weir/select.h lists the names */
    weir_provider_state state;
    char library[512]; /* the file that serves it; "" if none */
    char version[64];
    char missing
        [512]; /* unless it is here: what is missing, down to the file's name, the version wanted and the one found, and
                          how to get it */
} weir_engine_provider;

/* Since 2: how much of a model a provider runs. */
typedef struct weir_provider_share {
    const char *provider;
    uint64_t parts, of; /* nodes, or layers */
} weir_provider_share;

/* Since 5: where a figure comes from; the larger, the better. */
typedef enum weir_prediction_source {
    WEIR_PREDICTED_NOT = 0,      /* nobody can tell */
    WEIR_PREDICTED_SIZE = 1,     /* the size of the model's file */
    WEIR_PREDICTED_METADATA = 2, /* the structure of the file */
    WEIR_PREDICTED_DRY_RUN = 3,  /* the engine has laid it out without memory */
    WEIR_PREDICTED_MEASURED = 4, /* earlier loads of the same model with the same settings; weir/predict.h */
    WEIR_PREDICTED_COUNT = 5
} weir_prediction_source;

/* What the model will take, as far as it can be told before loading. An engine fills as much as `struct_size` has; what
 * is 0 in the members since 5 is not told. */
typedef struct weir_engine_plan {
    size_t struct_size;
    uint64_t bytes[WEIR_CLASS_MOST]; /* by weir_class, on the first place, at the moment at which it has the most */
    bool exact[WEIR_CLASS_MOST];     /* or else an estimate, or "at least" */
    /* Since 5: */
    uint64_t passing[WEIR_CLASS_MOST]; /* of `bytes`: used only while the model loads or runs */
    uint64_t host[WEIR_CLASS_MOST];    /* beside `bytes`, of a model on a device: what is on the host */
    /* For a class that grows with use, as an elastic cache: the bytes at full use; `bytes` is then the need of the
     * first run. 0: the class does not grow. */
    uint64_t whole[WEIR_CLASS_MOST];
    weir_prediction_source source[WEIR_CLASS_MOST];
    uint64_t context;   /* that it holds for: tokens of a sequence */
    uint32_t sequences; /* that go on together */
    uint32_t layers, layers_on_device;
    uint64_t settings; /* a number for those that count for memory: equal ones, equal bytes; 0: all of them may */
} weir_engine_plan;

typedef struct weir_port {
    const char *name;
    weir_type type;
    uint32_t rank;
    int64_t shape[WEIR_MAX_RANK]; /* -1: any extent */
    bool optional;
} weir_port;

/* Valid until the model is unloaded. */
typedef struct weir_model_details {
    size_t struct_size;
    const char *engine, *version, *provider; /* weir_model_info has the table's name for the first */
    const char *architecture;                /* "bert", "llama", "onnx graph of 214 nodes" */
    const weir_port *inputs;
    size_t input_count;
    const weir_port *outputs;
    size_t output_count;
    bool generates;                    /* it answers infer_stream piece by piece */
    const char *remarks;               /* one line on what stays outside the client's account and why; "" if nothing */
    const weir_provider_share *shares; /* since 2: by provider, the most parts first */
    size_t share_count;                /* 0: the engine cannot tell */
} weir_model_details;

/* One piece of a generated answer. */
typedef struct weir_piece {
    size_t struct_size;
    const char *text; /* UTF-8 bytes, not terminated; may end inside a character */
    size_t bytes;
    int32_t token;
    uint64_t index; /* from 0 */
} weir_piece;

/* Answers false to stop; the run then ends with what it has, as a success. Called on the calling thread of
 * infer_stream; it may call weir, but not this model. */
typedef bool (*weir_piece_fn)(const weir_piece *piece, void *user);

typedef struct weir_inference {
    size_t struct_size;
    uint64_t id; /* the caller's name for this run, for `cancel`; 0: only a cancel of every run stops this run */
    const weir_tensor *inputs;
    size_t input_count;
    const weir_setting *settings;
    size_t setting_count;
    weir_stream stream; /* what the inputs are ordered on; WEIR_STREAM_HOST if they are ready */
    /* For weir_model_infer: takes the answer piece by piece. NULL: it comes whole. An engine gets it as an argument of
     * infer_stream, and leaves these alone. */
    weir_piece_fn piece;
    void *piece_user;
} weir_inference;

/* The results of one run: `tensors` and their data belong to the engine until `release_outputs`. */
typedef struct weir_outputs {
    size_t struct_size;
    weir_tensor *tensors;
    size_t count;
    void *engine_data; /* the engine's */
    void *instance;    /* since 2: weir's own, to find who gave them out; engines and callers leave it alone */
    /* Since 6: the number of runs that one call of the engine's library has computed together, this run included; 0:
     * the engine does not tell, or computes every run by itself. */
    uint64_t together;
} weir_outputs;

typedef struct weir_engine_metrics {
    size_t struct_size;
    uint64_t runs, failures, cancelled;
    uint64_t tokens_in, tokens_out; /* 0 for engines that have none */
    double busy_seconds;
    uint64_t sessions;        /* that the engine has now beside the first, and */
    uint64_t sessions_failed; /* how often one could not be made: those that are there serve. 0: it makes none */
} weir_engine_metrics;

/* Since 4: what an engine says of a model whose memory is to leave the device. Sums of WEIR_CLASS_BIT
 * (weir/residency.h); all begin as 0: everything is kept. */
typedef struct weir_engine_leaving {
    size_t struct_size;
    uint32_t stay;      /* classes that stay on the device */
    uint32_t drop;      /* classes that no later run reads before writing: zeros come back */
    uint32_t unwritten; /* classes that runs only read: the first copy stays valid */
} weir_engine_leaving;

typedef struct weir_engine {
    uint32_t abi;         /* WEIR_ENGINE_ABI of the header it was compiled against */
    uint32_t struct_size; /* sizeof(weir_engine) there */
    const char *name;     /* "onnx"; [a-z0-9-] */
    const char *summary;  /* one line for people */
    /* Models it takes: ".onnx" or ".gguf .ggml" by the end of the file's name. A word that begins with no point is the
     * whole name of a file, which stands for its folder: the engine is given the path of either. */
    const char *suffixes;

    /* Is the engine's own library here, and which version? Fills *out; WEIR_OK also when it is not available. */
    weir_status (*probe)(weir_engine_probe *out);
    /* Optional. Reads the model file, checks its structure and predicts bytes; no device memory is touched. Since 2 it
     * is asked without a place (place_count 0), before there is a runtime: `provider` says what the bytes are of.
     * WEIR_ERR_INVALID is for settings, WEIR_ERR_CORRUPT and WEIR_ERR_UNSUPPORTED for the file. */
    weir_status (*plan)(const weir_engine_load *load, weir_engine_plan *out);
    /* Loads the model. On failure nothing of it is left: the clients' ledgers are as before. WEIR_ERR_CORRUPT for a
     * file that is not well-formed, WEIR_ERR_UNSUPPORTED for what it cannot run, WEIR_ERR_OUT_OF_MEMORY with the
     * refusal set. */
    weir_status (*load)(const weir_engine_load *load, weir_engine_model **out);
    /* Runs it once. Inputs by name, in any order; WEIR_ERR_INVALID names a missing, unknown or ill-shaped one. */
    weir_status (*infer)(weir_engine_model *model, const weir_inference *inference, weir_outputs *out);
    /* Optional. The same, piece by piece. */
    weir_status (*infer_stream)(weir_engine_model *model, const weir_inference *inference, weir_piece_fn piece,
                                void *user, weir_outputs *out);
    /* Gives the results of one run back. */
    void (*release_outputs)(weir_engine_model *model, weir_outputs *outputs);
    /* Optional. Stops the run of that id (0: every run) as soon as the engine can; that run answers WEIR_ERR_CANCELLED.
     * A run that has not begun or has ended is not affected: WEIR_ERR_NOT_FOUND. */
    weir_status (*cancel)(weir_engine_model *model, uint64_t id);
    /* Optional. Runs several inferences together; out[i] belongs to inferences[i], and statuses[i] tells how it
     * went. */
    weir_status (*batch)(weir_engine_model *model, const weir_inference *inferences, size_t count, weir_outputs *out,
                         weir_status *statuses);
    /* Optional. Does what the first run would have to do otherwise. */
    weir_status (*warm_up)(weir_engine_model *model);
    /* Optional. Gives back memory it can do without; `released` gets the bytes. */
    weir_status (*trim)(weir_engine_model *model, uint64_t wanted, uint64_t *released);
    /* Optional, and for a table of abi 4 or later: without it the model cannot be suspended. The memory of its client is
     * about to leave the device (weir_model_suspend). No run is under way, no output is out, and neither comes before
     * `resume`. The engine gives up what it keeps for later, waits for work of its own on the device and on its
     * threads, and says what need not be kept. From the return of `suspend` until `resume` the engine touches no part
     * of that memory; info, health, metrics, cancel and unload may be called then, and unload frees without reading. A
     * failure refuses: the model stays as it is. */
    weir_status (*suspend)(weir_engine_model *model, weir_engine_leaving *out);
    /* Optional. The memory is back at the same addresses, is shown there, or has never left. Its contents may still be on
     * their way; they are there when the next run begins. What it answers, weir_model_resume does; the memory is back in any case. */
    weir_status (*resume)(weir_engine_model *model);
    /* Optional. WEIR_OK if the next run can be expected to work. A failed run alone is no reason for an error: its
     * input may have been at fault, and weir checks that with input that the model has answered before
     * (weir/model.h). */
    weir_status (*health)(weir_engine_model *model);
    /* Optional. */
    weir_status (*metrics)(weir_engine_model *model, weir_engine_metrics *out);
    /* What the model is. */
    weir_status (*info)(weir_engine_model *model, weir_model_details *out);
    /* Frees everything. Called once, with no run under way and all outputs released; cannot fail. */
    void (*unload)(weir_engine_model *model);
    /* Since 2. Optional: an engine without this function has the provider "cpu" alone, in the state told by `probe`.
     * The provider number `index`, from 0; WEIR_ERR_NOT_FOUND past the last. Opens libraries, but makes no context on a
     * device. */
    weir_status (*provider)(size_t index, weir_engine_provider *out);
} weir_engine;

/* The function that a plug-in exports. Returns NULL for an abi that the plug-in cannot serve. */
typedef const weir_engine *(*weir_engine_entry_fn)(uint32_t abi);

/* Finds and opens the plug-in of an engine; an opened one stays for the life of the process. WEIR_ERR_NOT_FOUND says
 * where it was looked for and how to get it; WEIR_ERR_ENGINE when the file is there and no plug-in, or links to
 * another libweir than the one that is running; WEIR_ERR_CONFLICT when a plug-in asks, while it is being opened, for
 * itself or for one that waits for it. Any thread: several threads that ask for a plug-in at once open it once, and do
 * not delay threads that ask for another plug-in. */
WEIR_API WEIR_NODISCARD weir_status weir_engine_get(const char *name, const weir_engine **out);

/* Registers an engine that is linked into the program. The table must stay valid. WEIR_ERR_CONFLICT if the name is
 * taken; a plug-in of that name that is being opened gives way to it. */
WEIR_API WEIR_NODISCARD weir_status weir_engine_register(const weir_engine *engine);

/* The name of the engine number `index` of those that can be opened here, from 0; NULL past the last. Reads the
 * directories each time it is asked for 0. The text is valid until the calling thread asks for 0 again; that a
 * plug-in does so while it is opened makes no difference. */
WEIR_API const char *weir_engine_name_at(size_t index);

WEIR_END
#endif
