/* A loaded model. */
#ifndef WEIR_ONNX_MODEL_H
#define WEIR_ONNX_MODEL_H

#include <time.h>

#include <pthread.h>

#include <weir/onnxruntime.h>
#include <weir/engine.h>

#include "device.h"
#include "onnx/file/main_graph.h"
#include "strip.h"
#include "weights.h"

/* A run under way; a cancel looks for the run in the model's list. */
typedef struct onnx_run {
    struct onnx_run *next;
    uint64_t id;
    ort_run_options *options; /* while ONNX Runtime has it under way and can be told to stop; else NULL */
    bool cancelled;
    /* Of a member of a group (join.h): the group's run, which stops when all members are cancelled. */
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

typedef struct onnx_replays onnx_replays; /* replay.h */
typedef struct onnx_buckets onnx_buckets; /* buckets.h */
typedef struct onnx_join onnx_join;       /* join.h */

struct weir_engine_model {
    const onnx_library *library;
    onnx_device device;
    onnx_settings settings;
    weir_client *client;
    char name[64]; /* the client's */
    weir_runtime *runtime;
    bool maps; /* weights are those that ONNX Runtime maps (weights.h); else they are handed over by name */
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

/* slots.c: the slot's stream and bridge. On failure nothing is left. */
weir_status onnx_slot_begin(weir_engine_model *model, onnx_slot *slot);
/* Frees the slot's options, bridge and stream, as far as set. Call after the slot's sessions and their values are
 * released. */
void onnx_slot_end(weir_engine_model *model, onnx_slot *slot);

/* outside.c: bytes of the process's heap that are in use; 0: nobody knows. */
uint64_t onnx_heap_used(void);
/* What the heap has grown by since `before` is told of the client, and with the setting claimed of its memory.
 * WEIR_ERR_OUT_OF_MEMORY as from weir_reservation_create, with what it is for. */
weir_status onnx_outside_note(weir_engine_model *model, uint64_t before);
void onnx_outside_end(weir_engine_model *model);

/* shares.c: whether sessions have to note who runs which node. */
bool onnx_shares_asked(const weir_engine_model *model);
/* Fills model->shares, where ONNX Runtime tells that (1.24). On the CPU all `nodes` of the file are its own. */
void onnx_shares_read(weir_engine_model *model, uint64_t nodes);

/* ports.c */
weir_status onnx_ports_read(weir_engine_model *model, const onnx_graph *graph);
void onnx_ports_free(onnx_ports *ports);
/* By the monotonic clock. */
double onnx_seconds(void);
/* Writes "[2, ?, 384]". */
char *onnx_shape_text(uint32_t rank, const int64_t *shape, char *text, size_t capacity);

/* infer.c */
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

#endif
