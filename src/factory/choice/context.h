/* The context of a choice: everything that the choice looks at, and its results. Verdicts, ranks and the record are
 * functions of the context alone. */
#ifndef WI_CHOICE_CONTEXT_H
#define WI_CHOICE_CONTEXT_H

#include <weir/engine.h>
#include <weir/predict.h>
#include <weir/select.h>
#include "base/texts.h"
#include "factory/choice/criteria.h"

/* What engines tell of themselves ---------------------------------------------------------------------------------- */

typedef struct wi_engine_info {
    const char *name;
    const weir_engine *table; /* NULL: the plug-in is not here */
    char missing[1024];       /* if it is not: why, and how to get it */
    bool takes_file;
    bool asked;                                   /* whether the engine was asked for its providers */
    weir_engine_provider providers[WI_PROVIDERS]; /* `name` "": the engine has no such provider */
} wi_engine_info;

typedef struct wi_engines {
    wi_engine_info *all;
    size_t count;
} wi_engines;

/* Lists every engine that can be opened here or that weir knows by name, once, and marks the engines that take the
 * file: by its name, of a folder by the names in it, else by its first bytes. Free the list with wi_engines_free, also
 * on failure. WEIR_ERR_SYSTEM. */
weir_status wi_engines_find(const char *path, wi_engines *out);
/* Asks an engine for its providers, if that has not been done. Opens its libraries. */
void wi_engine_ask(wi_engine_info *engine);
void wi_engines_free(wi_engines *engines);

/* WEIR_ERR_INVALID, with the names of the listed engines: none has this name. */
weir_status wi_engines_check(const wi_engines *engines, const char *what, const char *name);

/* The context ------------------------------------------------------------------------------------------------------ */

/* What an engine says a model will take with one of its providers. */
typedef struct wi_prediction {
    bool asked, known;    /* known: `said` is filled */
    weir_verdict verdict; /* of an engine that cannot read the file, or does not take the settings */
    const char *reason;   /* the same, or why nothing is known */
    weir_prediction said;
    uint64_t bytes; /* bytes that the model has to have, of all classes */
} wi_prediction;

typedef struct wi_candidate {
    wi_engine_info *engine;
    wi_provider provider;
    const weir_hardware_device *device; /* NULL: there is none of the kind, or of the ordinal */
    wi_prediction *prediction;          /* the engine's, with this provider */
    uint64_t obtainable;                /* of the device */
    weir_verdict verdict;
    const char *reason;
} wi_candidate;

typedef struct wi_context {
    wi_criteria criteria;
    /* The client for the model; bytes guaranteed to the client are obtainable. NULL: the model opens a client. */
    const weir_client *client;
    const weir_hardware *hardware;
    /* The hardware's devices, sorted by kind, ordinal and key. */
    const weir_hardware_device **devices;
    const weir_hardware_device *processor; /* NULL: the hardware has none */
    uint64_t *obtainable;                  /* by device; of the processor's memory `host`, too */
    uint64_t host;
    wi_engines engines;
    wi_prediction *predictions; /* by engine and provider */
    uint64_t file_bytes;        /* of the model; of a folder, of the files in it */
    wi_candidate *candidates;
    size_t count, accepted;
    wi_string_pool strings; /* what candidates say */
} wi_context;

/* Bytes that could be had of a device, less margins. */
uint64_t wi_obtainable(const wi_context *context, const weir_hardware_device *device);

/* Asks once. The detail is left alone. */
void wi_predict(wi_context *context, const wi_engine_info *engine, wi_provider provider, wi_prediction *prediction);

/* What a provider runs on. */
typedef struct wi_provider_needs {
    const char *wants; /* "a CUDA device" */
    unsigned kinds;    /* a bit for each */
    bool elsewhere;    /* weir runs on no platform that has it */
} wi_provider_needs;
extern const wi_provider_needs wi_provider_needs_of[WI_PROVIDERS];

/* Whether the provider runs on devices of the kind. */
bool wi_provider_on(wi_provider provider, weir_hardware_kind kind);

/* Fills `candidates`: every engine with every provider on every device of its kinds, and one without a device where
 * there is none. WEIR_ERR_SYSTEM. */
weir_status wi_candidates_list(wi_context *context);

/* The runtime that a candidate's client is of: "cuda:0", or "host" where weir has no driver for the device. */
const char *wi_candidate_runtime(const wi_candidate *candidate);

/* Writes the verdict: of the first rule that refuses the candidate, or WEIR_VERDICT_ACCEPTED. */
void wi_judge(wi_context *context, wi_candidate *candidate);

/* What is predicted, or what the file alone says. */
uint64_t wi_candidate_bytes(const wi_context *context, const wi_candidate *candidate);

/* Sorts: accepted ones by rank, then the refused ones. Writes for each accepted candidate the reason for its rank. */
void wi_rank(wi_context *context);

/* What decided, as a sentence; a string of the context's. */
const char *wi_explain(wi_context *context);

/* Lists, judges and ranks the candidates. WEIR_ERR_SYSTEM. */
weir_status wi_decide(wi_context *context);
/* Frees what it holds, but for the criteria and the hardware. */
void wi_context_clear(wi_context *context);

#endif
