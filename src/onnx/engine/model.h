/* What the files of the plug-in onnx share, but for forecasts (foresee.h, rewrite.h): providers, the library,
 * settings, devices, weights, a model and its sessions. */
#ifndef WEIR_ONNX_MODEL_H
#define WEIR_ONNX_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <weir/engine.h>
#include <weir/onnxruntime.h>

#include "onnx/bridge/api.h"
#include "onnx/file/main_graph.h"

/* ---- provider.c -------------------------------------------------------------------------------------------------- */

/* The providers of ONNX Runtime: names in weir and in ONNX Runtime, and whether a provider can be used. */

struct onnx_library;

/* In the order in which the engine tells them. */
typedef enum onnx_provider {
    ONNX_TENSORRT, /* CUDA behind it */
    ONNX_CUDA,
    ONNX_ROCM,   /* ROCm's own or MIGraphX */
    ONNX_COREML, /* "metal", too; the CPU behind it */
    ONNX_DIRECTML,
    ONNX_OPENVINO,
    ONNX_CPU,
    ONNX_PROVIDERS
} onnx_provider;

/* A provider as built for ONNX Runtime: the name there, and the provider's file beside libonnxruntime.so. */
typedef struct onnx_provider_kind {
    const char *theirs;
    const char *file; /* NULL: inside libonnxruntime.so */
    const char *also; /* a library that the file opens by itself, and needs to run anything; NULL: none */
} onnx_provider_kind;

enum { ONNX_PROVIDER_KINDS = 2 };

const char *onnx_provider_name(onnx_provider provider);
/* Case does not matter. */
bool onnx_provider_find(const char *name, onnx_provider *out);
/* One of "CUDAExecutionProvider" and the like; ONNX_PROVIDERS for another. */
onnx_provider onnx_provider_of(const char *theirs);
/* Returns ONNX_PROVIDER_KINDS kinds, the preferred kind first; an unused entry has the member `theirs` NULL. */
const onnx_provider_kind *onnx_provider_kinds(onnx_provider provider);
/* "run scripts/engines --openvino onnxruntime-openvino" */
const char *onnx_provider_advice(onnx_provider provider);

/* What ONNX Runtime would not notice, or only by a crash: WEIR_ERR_CONFLICT where the providers of another ONNX Runtime
 * are in the process, and those of this library would be bound to it, WEIR_ERR_UNSUPPORTED where what the provider
 * opens by itself is not there. */
weir_status onnx_provider_check(const struct onnx_library *library, onnx_provider provider);
/* What the provider lacks to be used by that library, and how to get it; answers `text`. */
const char *onnx_provider_missing(const struct onnx_library *library, onnx_provider provider, char *text,
                                  size_t capacity);

/* The engine table's. */
weir_status onnx_provider_at(size_t index, weir_engine_provider *out);

/* ---- library.c --------------------------------------------------------------------------------------------------- */

/* The builds of ONNX Runtime and their environments. A build is found, opened and started at its first use.
 *
 * A build serves some providers: the plain one the CPU, that for CUDA also cuda and tensorrt, that for OpenVINO
 * openvino. A process can have several builds open, each with a separate interface, environment and allocators. */

typedef struct onnx_library {
    const ort_api *api;
    ort_env *env;
    ort_memory_info *host;        /* describes memory that the CPU addresses */
    ort_allocator *plain;         /* ONNX Runtime's own allocator; for names it hands out */
    unsigned minor;               /* of its version: 31 */
    uint32_t has[ONNX_PROVIDERS]; /* which of onnx_provider_kinds, as bits */
    char path[512];
    char version[64];
} onnx_library;

/* The library that runs models by the provider. WEIR_ERR_NOT_FOUND says where one was looked for and how to get it,
 * WEIR_ERR_UNSUPPORTED that those which are here are too old or lack the provider. Any thread. */
weir_status onnx_library_get(onnx_provider provider, const onnx_library **out);

/* The same without starting it: `env` and what follows from it may be unset. WEIR_OK with a library that lacks the
 * provider where only such are here. */
weir_status onnx_library_look(onnx_provider provider, const onnx_library **out);

/* Why a call of ONNX Runtime's failed. */
typedef struct onnx_attempt {
    int code;
    char text[1024];
} onnx_attempt;

/* Turns ONNX Runtime's status into words, and releases it; false for success. */
bool onnx_failed(const ort_api *api, ort_status *status, onnx_attempt *a);
#define FAILED(model, a, call) onnx_failed((model)->library->api, call, a)

/* ---- settings.c -------------------------------------------------------------------------------------------------- */

/* What a user may choose for a model, and for a run. */

/* On cuda so many runs of a model at a time, each in a session of its own. */
enum { ONNX_SLOTS_MOST = 64 };
/* So many rows of runs that are computed together. */
enum { ONNX_BATCH_MOST = 1024 };

typedef struct onnx_settings {
    bool prepack;        /* kernels keep their weights in a second, faster layout; that copy is charged as well */
    bool ours;           /* weights in the client's memory; otherwise ONNX Runtime reads them onto the heap */
    bool outside_counts; /* what a load takes of the heap is claimed of the client's memory */
    bool memory_pattern; /* one block for all activations of a run whose shapes were seen before */
    bool pattern_open;   /* nobody chose: as suits the model */
    int optimization;    /* ONNX Runtime's number for the level */
    bool level_open;     /* nobody chose it: lower where that level is known to be wrong */
    int threads;         /* 0: as many as cores */
    onnx_provider provider;
    bool cuda_graph;    /* runs are captured, and launched again with the same addresses */
    bool cpu_fallback;  /* the CPU runs what the provider does not take */
    bool cpu_arena_off; /* the setting says so; a session has no arena in any case */
    int concurrency;    /* runs at a time, on cuda in so many slots; 0: as many as come */
    int buckets;        /* sessions of a slot, each for the shapes of its bucket */
    int granularity;    /* extents but the first are rounded up to multiples of it */
    int bucket_dims;    /* and only so many are looked at */
    int batch;          /* rows of runs that are computed together, at most; up to 1: each by itself */
    int batch_delay;    /* microseconds in which a run waits for others */
} onnx_settings;

/* `cuda`: for a model on cuda, where other things are the default. `provider`: what the load asks for, NULL:
 * nothing. */
weir_status onnx_settings_read(const weir_setting *settings, size_t count, bool cuda, const char *provider,
                               onnx_settings *out);

/* Does the provider leave the weights to ONNX Runtime, and keep copies of its own, outside the account? */
bool onnx_settings_outside(const onnx_settings *settings);

/* "cudnn_conv_algo_search" for {"cuda.cudnn_conv_algo_search", …} and the provider "cuda"; NULL for another setting. */
const char *onnx_setting_option(const weir_setting *setting, const char *provider);

/* What one run may choose. */
typedef struct onnx_run_settings {
    bool device_outputs; /* outputs stay on the device that computed them */
} onnx_run_settings;

weir_status onnx_run_settings_read(const weir_setting *settings, size_t count, onnx_run_settings *out);

/* The highest level of optimization at which ONNX Runtime computes the model rightly, or `level` where that is not above
 * it: some graphs are known to be computed wrongly from some level on. `why` gets a remark when it is lower, else "". */
int onnx_level_right(const onnx_file *file, int level, const char **why);

/* ---- device.c ---------------------------------------------------------------------------------------------------- */

/* What a session on a CUDA device needs besides: the words for memory there, and its provider. */

typedef struct onnx_device {
    const char *name; /* "host", "cuda:0" */
    bool cuda;        /* else the host, where nothing below is set */
    int ordinal;
    ort_memory_info *memory; /* describes the device's memory */
} onnx_device;

/* For a model on `runtime`, of host or cuda; WEIR_ERR_UNSUPPORTED for another. On failure nothing is left. */
weir_status onnx_device_begin(const onnx_library *library, weir_runtime *runtime, onnx_device *device);
void onnx_device_end(const onnx_library *library, onnx_device *device);

/* Names the provider, and the CPU's behind it, in the options of a session; on cuda its work is put on `stream`. The
 * load's settings have the provider's own options (onnx_setting_option). WEIR_ERR_UNSUPPORTED with ONNX Runtime's words
 * where it cannot be opened here. */
weir_status onnx_device_provide(const onnx_library *library, const onnx_device *device, weir_stream stream,
                                const onnx_settings *settings, const weir_engine_load *load,
                                ort_session_options *options);

/* ---- strip.c ----------------------------------------------------------------------------------------------------- */

/* The model without its weights: the same file with each large initializer, and each large constant of a node that was
 * read (onnx_graph_read_inner), replaced by a note of where its bytes lie. A lifted constant (onnx_uses_lift) is an initializer
 * of the main graph there. */

/* Smaller ones stay: ONNX Runtime's optimizer reads shapes and constants out of them, and they are no load. */
enum { ONNX_INLINE_BELOW = 1024 };

/* Is this one taken out and kept in weir's memory? */
bool onnx_moved(const onnx_tensor *tensor);

/* Whether the stripped model would be any different from the file. */
bool onnx_strips(const onnx_graph *graph);

/* Writes the stripped model. The notes are true: offset and length of the bytes in the model's own file, or in the file
 * beside it, as seen from file->folder, so that whatever part of ONNX Runtime follows one reads the right bytes. Small
 * tensors that lie beside are put inline. WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_strip(const onnx_file *file, const onnx_graph *graph, onnx_buffer *out);

/* ---- weights.c --------------------------------------------------------------------------------------------------- */

/* The weights of a model on the host: in the client's memory for as long as ONNX Runtime has them.
 *
 * The model without its weights (strip.c) says of each where its bytes lie in a file. ONNX Runtime maps each weight
 * from the file, and unmaps a weight that is not read any more, because a kernel has packed the weight or the session
 * ends. Calls of mmap and munmap by ONNX Runtime come here through its import slots (interpose.h): mmap answers a block
 * of the client's with the bytes of the weight, and munmap frees the block. So memory has each weight once, and only as
 * long as needed, under any name and in any graph of the model. A weight that the optimizer has replaced by a
 * transposed or computed constant is never mapped.
 *
 * Weights that kernels are expected to pack (onnx_packed) are mapped from the file as they are, which saves their copy; where
 * that was wrong, the mapping is still there when the session has been made. */

struct weir_engine_model;

/* One weight in the client's memory, and what ONNX Runtime knows it by. */
typedef struct onnx_weight {
    char *name;
    void *data;       /* NULL: it is in no block of its own */
    ort_value *value; /* where it was handed over by its name; else NULL */

    /* Of those that it maps. */
    const onnx_tensor *tensor; /* while the model is loaded */
    const wi_stamp *file;      /* where its bytes lie; likewise */
    uint64_t end;              /* and where they end there */
    weir_client *client;
    bool *
        left; /* the caller's flag: the weight was left in the file, as a kernel is expected to pack it; NULL: it was not left */
    void *
        base; /* where ONNX Runtime has it mapped; NULL: it has not. Guarded by a lock of the module's, like the rest below */
    size_t length;
    struct onnx_weight *next; /* mapped at the same place, in another length */
} onnx_weight;

/* Whether the library's mappings come here; the first call for a library sees to that. Any thread. */
bool onnx_weights_mapped(const onnx_library *library);

/* Between begin and end this thread's mappings are the model's weights, and ONNX Runtime is told of the model's files, which were opened
 * behind all links, that they lie where they lie. The list is sorted. */
void onnx_weights_begin(struct weir_engine_model *model, const onnx_file *file, const weir_engine_load *load);
/* WEIR_OK, or why a weight could not be placed: then the session was made without the client's memory for it.
 * WEIR_ERR_CANCELLED: the load was stopped. */
weir_status onnx_weights_end(struct weir_engine_model *model);

/* After the session was made. Answers how many weights it still reads from the file, each of which has *left set to false; *gone
 * gets the bytes of those that it has in no form that is in the file. */
size_t onnx_weights_settle(struct weir_engine_model *model, uint64_t *gone);
/* After the last session: frees what is left. */
void onnx_weights_free(struct weir_engine_model *model);

/* WEIR_ERR_CANCELLED: the load was stopped. */
weir_status onnx_goes_on(const struct weir_engine_model *model, const weir_engine_load *load);

/* A block of the client's with the bytes of the weight. */
weir_status onnx_weight_place(const struct weir_engine_model *model, const onnx_tensor *tensor, onnx_weight *weight);

/* ---- uses.c ------------------------------------------------------------------------------------------------------ */

/* What the nodes of a model do with its weights. */

/* By whom a weight is read, as bits. */
enum {
    ONNX_USE_RIGHT = 1,   /* the right-hand side of a MatMul, Gemm or MatMulInteger of the main graph */
    ONNX_USE_OPERAND = 2, /* another input of such a product, of a convolution or a recurrent layer of the main graph */
    ONNX_USE_TABLE = 4,   /* what a Gather of the main graph reads from */
    ONNX_USE_OTHER = 8,   /* any other node, a subgraph, the graph's inputs and outputs */
    ONNX_USE_GATES = 32,  /* weight by which a recurrent layer of the main graph multiplies input or last state */
    ONNX_USE_HIDDEN = 16  /* a subgraph has an initializer of the same name; OTHER as well */
};

typedef struct onnx_use {
    unsigned kinds, count;
    bool valued; /* the numbers may decide a shape: not every reader only computes with them */
} onnx_use;

typedef struct onnx_uses {
    onnx_use *
        of; /* for each of graph->weights, and then of graph->inner; an Identity's readers are readers of what it reads */
    bool transposes; /* there is a Transpose somewhere, or a function or a node of another domain, which may have one */
    bool constants;  /* of 1 KiB and more beside the weights: there are, or may be, in nodes, subgraphs or functions */
} onnx_uses;

/* Reads them; free(out->of) in any case. WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_uses_read(const onnx_graph *graph, onnx_uses *out);

/* Marks the weights that are left to ONNX Runtime. Whole numbers that may decide a shape are marked, as ONNX Runtime
 * infers shapes from numbers in the file itself, and refuses a model whose sizes, axes or repeats lie elsewhere (1.31).
 * With `handed_over`, where the client's memory takes the weights' place, also marks weights that the optimizer may
 * write again under the same name: the optimizer moves transpositions through a graph and into constants, where a
 * weight that was handed over would keep the old layout (1.23 to 1.31). Weights that are read only by nodes through
 * which no transposition moves are not marked. From level 3 of `optimization` on, the optimizer also makes
 * transpositions, around quantized convolutions. With `handed_over` at any level, also marks weights whose name an
 * initializer of a subgraph has, too: a weight that is handed over goes by its name into every graph of the model. */
weir_status onnx_uses_mark(onnx_graph *graph, int optimization, bool handed_over);

/* Marks the constants of graphs inside the main graph's nodes, as of the branches of an If, that the stripped model has in its
 * main graph: constants that only products and recurrent layers of the same inner graph multiply by, and whose name nothing else has. ONNX
 * Runtime keeps a weight of an inner graph beside the form into which a kernel has packed it; a weight of the main graph is
 * freed, unless a graph within an inner graph reads it (1.31). Before IR 4, an initializer of the main graph had to be an input,
 * too: nothing is marked. WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_uses_lift(onnx_graph *graph);

/* Marks packed[i] for each of graph->weights, and behind them of graph->inner, that ONNX Runtime is not expected to keep, as a
 * kernel is all but certain to pack it where that is on: a matrix that is the right-hand side of products of the main graph, or
 * the gates of its recurrent layers, and nothing else. The packed copy is made in the client's memory (Reserve), so such a
 * weight can be read straight from the file. Of others that are packed, the weight is freed when it has been.
 * WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_packed(const onnx_graph *graph, bool *packed);

/* ---- a model: engine.c, session.c -------------------------------------------------------------------------------- */

/* A loaded model. */

/* A run under way; a cancel looks for the run in the model's list. */
typedef struct onnx_run {
    struct onnx_run *next;
    uint64_t id;
    ort_run_options *options; /* while ONNX Runtime has it under way and can be told to stop; else NULL */
    bool cancelled;
    /* Of a member of a group (join.c): the group's run, which stops when all members are cancelled. */
    struct onnx_run *within;
    pthread_cond_t *wake; /* condition on which a run that can be joined waits (join.c); else NULL */
    bool of_several;      /* the run of a group: not found by a cancel */
    size_t wanted;        /* of a group's run: members that are not cancelled */
} onnx_run;

typedef struct onnx_ports {
    weir_port *list;
    const char **names; /* the same names, as ONNX Runtime wants them */
    bool *any_rank;     /* of inputs: the model leaves even the rank open, which then is 0 here */
    size_t count;
} onnx_ports;

/* What a request of ONNX Runtime is charged; saturates. */
uint64_t onnx_charge(uint64_t bytes, bool cuda);

/* A slot. Sessions that work at the same time have separate streams, and so separate bridges: a free of ONNX Runtime's
 * names no stream, and is ordered behind the bridge's stream. A model on host has a single slot, for any number of runs
 * at a time. A model on cuda has as many slots as the setting `concurrency` says, each for a single run at a time. */
typedef struct onnx_slot {
    weir_onnxruntime *bridge; /* serves the slot's sessions */
    weir_stream stream;       /* on cuda: takes all work of the slot's sessions, copies too */
    ort_session *session;
    ort_session_options *options; /* with several buckets: what further sessions are made of; else NULL */
} onnx_slot;

typedef struct onnx_replays onnx_replays; /* replay.c */
typedef struct onnx_buckets onnx_buckets; /* buckets.c */
typedef struct onnx_join onnx_join;       /* join.c */

struct weir_engine_model {
    const onnx_library *library;
    onnx_device device;
    onnx_settings settings;
    weir_client *client;
    char name[64]; /* the client's */
    weir_runtime *runtime;
    bool maps; /* weights are those that ONNX Runtime maps (weights.c); else they are handed over by name */
    onnx_weight *weights;
    size_t weight_count;
    uint64_t outside;                 /* of the process's heap that the load has taken; 0: not known */
    weir_reservation *counted;        /* as much of the client's, with the setting `outside`; else NULL */
    uint64_t turned;                  /* bytes of weights that the optimizer has replaced; at least */
    onnx_slot slots[ONNX_SLOTS_MOST]; /* the first always exists, and its session owns the shared weights */
    size_t slot_count;
    size_t slots_failed;      /* that the setting wanted and that could not be made */
    struct weir_cores *cores; /* its line in the ledger; NULL: none */
    onnx_buffer stripped;     /* with several buckets: the model without its weights; else nothing */
    onnx_origins *origins;    /* with several sessions: the files where its notes say that the weights lie; else NULL */
    onnx_buckets *buckets;
    weir_provider_share shares[ONNX_PROVIDERS];
    size_t share_count;
    onnx_replays *replays; /* with the setting cuda_graph; else NULL */
    onnx_join *join;       /* with the setting max_batch_size; else NULL */
    onnx_ports inputs, outputs;
    bool texts; /* constants of it are texts: objects of ONNX Runtime's inside the client's memory */
    char architecture[64];
    char remarks[768];
    const char *level;    /* why it is optimized at a lower level than others, or "" */
    pthread_mutex_t lock; /* guards what follows */
    onnx_run *runs;
    weir_engine_metrics metrics;
    weir_status last; /* how the last run ended, if it was the engine's doing */
};

/* session.c: makes model->weights and the session of the first slot, whose memory is there (onnx_slot_begin), and
 * further slots as the settings want them. On failure what was made stays for onnx_session_end. */
weir_status onnx_session_begin(weir_engine_model *model, const onnx_file *file, const onnx_graph *graph,
                               const weir_engine_load *load);
void onnx_session_end(weir_engine_model *model);
/* With several buckets: one more session of the slot, over the same weights. */
weir_status onnx_session_another(weir_engine_model *model, onnx_slot *slot, ort_session **out);
/* Statistics of the slot's bridge. */
weir_onnxruntime_details onnx_session_stats(const onnx_slot *slot);
/* The words and code of a failed call as weir's status: WEIR_ERR_OUT_OF_MEMORY if a request of this thread was refused
 * since. A session works on the calling thread, so a refusal on another thread belongs to another call. */
weir_status onnx_session_failed(weir_engine_model *model, const onnx_slot *slot, uint64_t refusals_before, int code,
                                const char *text, const char *doing);

/* ports.c */
weir_status onnx_ports_read(weir_engine_model *model, const onnx_graph *graph);
void onnx_ports_free(onnx_ports *ports);
/* By the monotonic clock. */
double onnx_seconds(void);
/* Writes "[2, ?, 384]". */
char *onnx_shape_text(uint32_t rank, const int64_t *shape, char *text, size_t capacity);

/* infer.c */
const weir_tensor *onnx_input_at(const weir_inference *inference, size_t index);
const weir_tensor *onnx_input_named(const weir_inference *inference, const char *name); /* NULL: it is not given */
/* The output number `index`: its name, type, shape and data, as a run left it. */
weir_status onnx_describe_output(weir_engine_model *model, size_t index, ort_value *value, weir_tensor *tensor);
weir_status onnx_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out);
/* As it is, without others. `its`: in the list of runs already; NULL: the call puts one there. */
weir_status onnx_infer_alone(weir_engine_model *model, const weir_inference *inference, onnx_run *its,
                             weir_outputs *out);
/* Settings, stream and inputs of a run, as before it is made. *to_host: its results go to the host. */
weir_status onnx_check_run(weir_engine_model *model, const weir_inference *inference, bool *to_host);
void onnx_release_outputs(weir_engine_model *model, weir_outputs *outputs);
weir_status onnx_cancel(weir_engine_model *model, uint64_t id);
void onnx_enlist(weir_engine_model *model, onnx_run *run);
void onnx_strike(weir_engine_model *model, const onnx_run *run); /* also where it is no more in the list */
/* Adds runs that ended with this status to the metrics. */
void onnx_count_runs(weir_engine_model *model, weir_status status, uint64_t runs, double took);
/* WEIR_ERR_CANCELLED when somebody has. */
weir_status onnx_check_cancelled(weir_engine_model *model, const onnx_run *its);
/* The same of a run that has been computed, and takes it out of the list, so that no cancel finds it that would change nothing. */
weir_status onnx_strike_done(weir_engine_model *model, const onnx_run *its);
weir_status onnx_warm_up(weir_engine_model *model);

/* ---- buckets.c --------------------------------------------------------------------------------------------------- */

/* Turns at the slots, and the session of each run: with the setting `buckets` a slot has a session for each bucket of
 * shapes, over the same weights.
 *
 * Turns are given in the order of arrival. A slot on cuda has a single run at a time, the slot on host as many as the
 * setting `concurrency` says. A run takes the first free slot, so further slots work only when the first are busy.
 *
 * In each slot the shapes that come first have the slot's own session for good. Further shapes get a session when they
 * first come. If a slot then has more sessions than the setting allows, the least recently used session goes, but only
 * after the new session was made. So a session that cannot be made costs no other session, unless memory was short:
 * then the oldest session goes, and the new session is tried again. Shapes for which no session could be made are not
 * tried again for a while, each time twice as long. No run waits until another run has made a session: a run that makes
 * a session leaves its slot meanwhile, and a run that finds no ready session runs in the slot's own. */

typedef struct onnx_bucket onnx_bucket;

typedef struct onnx_entered {
    onnx_slot *slot;
    ort_session *session;
    onnx_bucket *bucket; /* NULL: the slot's own session */
} onnx_entered;

/* Of sessions beside the slots' own. */
typedef struct onnx_bucket_stats {
    uint64_t made, ended, failed;
    uint64_t spared; /* times that none was tried, because it had failed not long ago */
    size_t now;
    size_t waiting; /* runs that have no slot yet */
} onnx_bucket_stats;

/* Failed shapes that are remembered, at most; seconds until the first retry, and the most seconds until a retry. */
enum { ONNX_FAILURES_KEPT = 16, ONNX_FAILURE_FIRST = 1, ONNX_FAILURE_MOST = 256 };

/* Makes model->buckets; WEIR_ERR_SYSTEM without host memory. */
weir_status onnx_buckets_begin(weir_engine_model *model);
void onnx_buckets_end(weir_engine_model *model);

/* Waits while no slot is free, or the one that is wanted (NULL: any). WEIR_ERR_CANCELLED when somebody has: then there
 * is no slot to leave. */
weir_status onnx_slot_enter(weir_engine_model *model, const weir_inference *inference, const onnx_run *its,
                            onnx_slot *wanted, onnx_entered *out);
void onnx_slot_leave(weir_engine_model *model, onnx_entered entered);
/* Wakes the runs that wait for a slot, so that cancelled runs leave. */
void onnx_slots_wake(weir_engine_model *model);

onnx_bucket_stats onnx_buckets_look(weir_engine_model *model);

/* "f32:2:1,64;" for an input of 1 by 50 with granularity 64. */
void onnx_bucket_key(const weir_engine_model *model, const weir_inference *inference, char *text, size_t capacity);

/* ---- model.c ----------------------------------------------------------------------------------------------------- */

/* The slot's stream and bridge. On failure nothing is left. */
weir_status onnx_slot_begin(weir_engine_model *model, onnx_slot *slot);
/* Frees the slot's options, bridge and stream, as far as set. Call after the slot's sessions and their values are
 * released. */
void onnx_slot_end(weir_engine_model *model, onnx_slot *slot);

/* Bytes of the process's heap that are in use; 0: nobody knows. */
uint64_t onnx_heap_used(void);
/* What the heap has grown by since `before` is told of the client, and with the setting claimed of its memory.
 * WEIR_ERR_OUT_OF_MEMORY as from weir_reservation_create, with what it is for. */
weir_status onnx_outside_note(weir_engine_model *model, uint64_t before);
void onnx_outside_end(weir_engine_model *model);

/* Whether sessions have to note who runs which node. */
bool onnx_shares_asked(const weir_engine_model *model);
/* Fills model->shares, where ONNX Runtime tells that (1.24). On the CPU all `nodes` of the file are its own. */
void onnx_shares_read(weir_engine_model *model, uint64_t nodes);

/* The cores that a model's runs compute with, of weir's ledger (weir/cores.h).
 *
 * A session creates its threads once, so a run needs all cores of the session at once: as many as the setting `threads`
 * says, else all cores of the process. Runs of the same model share the threads and the lease; models take turns. */

/* Before the first session: how many threads each gets, and the model's line. On cuda, and with a provider whose work is
 * not on this processor, there is none: nothing waits. */
weir_status onnx_cores_begin(weir_engine_model *model);
void onnx_cores_end(weir_engine_model *model);

/* Takes the cores for a run on the calling thread. On an error nothing is taken; WEIR_ERR_CANCELLED: the run was
 * cancelled. */
weir_status onnx_cores_take(weir_engine_model *model, onnx_run *its);
void onnx_cores_give(weir_engine_model *model);

/* Cores that the process has. */
int onnx_cores(void);

/* ---- join.c ------------------------------------------------------------------------------------------------------ */

/* Runs that are computed together: with the setting `max_batch_size` runs whose inputs differ in their first extent alone
 * are put one behind the other, computed by one call of ONNX Runtime's, and each has its rows of the results.
 *
 * A run that can be joined waits in a line. When there are enough rows, or after waiting for
 * `max_queue_delay_microseconds`, the run at the head of the line takes the runs behind that fit, and computes the
 * group on its own thread; the other members wait. While as many such calls are under way as are allowed (the setting
 * `concurrency`; on cuda the slots; else one), the line grows.
 *
 * A cancelled run leaves at once; the call is stopped when all members are cancelled. If the call for a group fails,
 * for any reason, each member is computed by itself, so that no run fails because of another. */

/* Makes model->join. WEIR_ERR_INVALID: an input or output has no open first extent; named. WEIR_ERR_SYSTEM. */
weir_status onnx_join_begin(weir_engine_model *model);
void onnx_join_end(weir_engine_model *model);

/* Computes a run, in a group or by itself. */
weir_status onnx_join_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out);
/* Runs that wait look whether they were cancelled. A model without model->join: nothing. */
void onnx_join_wake(weir_engine_model *model);

/* Says so in the results, where the caller's structure has room for it. */
void onnx_outputs_together(weir_outputs *out, uint64_t runs);

/* ---- replay.c ---------------------------------------------------------------------------------------------------- */

/* Runs that are captured into CUDA graphs, and launched again for the same shapes. */

/* Sets of shapes with a graph each, at most, less the captures that failed for another reason than memory. A run with
 * further shapes goes without a graph. */
enum { ONNX_REPLAYS_MOST = 8 };

/* Makes model->replays; nothing is captured yet. WEIR_ERR_SYSTEM without host memory or a thread. */
weir_status onnx_replays_begin(weir_engine_model *model);
/* Before the session is released: no graph is launched any more. */
void onnx_replays_stop(weir_engine_model *model);
/* After it was: the memory. */
void onnx_replays_end(weir_engine_model *model);

/* What a run has answered; weir_outputs.engine_data. */
typedef struct onnx_results {
    struct onnx_results *next;
    size_t count;
    bool on_device;
    atomic_size_t others; /* further runs with a part of the values (join.c) */
    ort_value *values[];
} onnx_results;

/* Releases the values. Those on the device are freed on the model's stream, which refuses that while it is captured:
 * then at the end of the capture. Waits for no run, as it may be called inside one, in a pressure callback. NULL is
 * nothing. Any thread. */
void onnx_results_free(weir_engine_model *model, onnx_results *results);

/* Around each capture. */
void onnx_capture_begin(weir_engine_model *model);
void onnx_capture_end(weir_engine_model *model);

/* Runs it with inputs that were checked, capturing it the first time. *served false: there are graphs enough, and
 * nothing was done. outputs[i] gets a value of its own, on the device or on the host. Any thread in a slot
 * (buckets.c). What is captured or launched is not stopped on the way: a cancel is looked at before, between its steps
 * and after it. */
weir_status onnx_replay(weir_engine_model *model, const weir_inference *inference, const onnx_run *its, bool to_device,
                        ort_value **outputs, bool *served);

/* ---- shared.c ---------------------------------------------------------------------------------------------------- */

/* The weights that a model's further sessions on cuda read where its first one has them. */

/* May a session be told where a weight lies whose bytes were found on the device? `unlike`: no other weight of the
 * model has the same bytes. `elsewhere` are the operators that other providers than cuda run; true only if none of them
 * could read it, as ONNX Runtime would let it. */
bool onnx_shared_allowed(const onnx_use *use, bool unlike, const char *const *elsewhere, size_t count);

/* Could the bytes of no other weight of the model, and of nothing that is computed, be taken for those of this one? */
bool onnx_shared_unlike(const onnx_graph *graph, size_t index);

/* Lists the weights that the first session shares in model->weights, and in the options of the first slot, if any. Call
 * after the first session was made. WEIR_ERR_UNSUPPORTED before ONNX Runtime 1.24. */
weir_status onnx_shared_begin(weir_engine_model *model, const onnx_graph *graph);

#endif
