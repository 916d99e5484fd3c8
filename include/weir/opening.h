/* weir/opening.h: a model that was chosen for, and that moves on to the next candidate when one fails.
 *
 * weir_model_load (weir/model.h) loads exactly what it is told. weir_model_open asks weir/choice.h and tries the accepted
 * candidates by rank. A model that it made is used by the functions of weir/model.h as any other; when a run fails because
 * of the device (lost, out of memory, an operator that it does not have), the model is loaded on the next candidate and the
 * run is made there: a request is answered or has failed once, and never runs again after a piece of its answer was handed
 * out. A candidate that failed for a reason that would come again is not tried again. */
#ifndef WEIR_OPENING_H
#define WEIR_OPENING_H

#include <weir/choice.h>
#include <weir/model.h>

WEIR_BEGIN

typedef enum weir_stage {
    WEIR_STAGE_DETECT = 0,    /* the device was there when it was chosen, and is not any more */
    WEIR_STAGE_CONSTRUCT = 1, /* engine, runtime, client */
    WEIR_STAGE_LOAD = 2,
    WEIR_STAGE_FIRST_RUN = 3,
    WEIR_STAGE_LATER_RUN = 4,
    WEIR_STAGES
} weir_stage;

/* What became of a candidate. Texts are the model's, until it is unloaded. */
typedef struct weir_attempt {
    size_t size;
    const char *engine, *provider, *device;
    weir_stage stage;   /* that it failed in; of the one that serves, the last it has reached */
    weir_status status; /* WEIR_OK: it serves */
    const char *reason; /* the detail; "" */
    double ms;          /* that the stage took */
    uint64_t bytes;     /* that its client had at most; what it was given back is not in it */
} weir_attempt;

typedef struct weir_record {
    size_t size;
    const weir_choice *choice;
    const weir_attempt *attempts; /* in order */
    size_t attempt_count;
    bool on_cpu_unasked; /* it runs on the processor as the last resort */
} weir_record;

typedef struct weir_opening_options {
    size_t size;
    const weir_choice_options *choice;
    bool no_fallback; /* the first accepted candidate or none */
    bool
        first_run; /* make the first run while opening (the engine's warm_up), so that what fails there falls back here */
    uint64_t guaranteed, maximum; /* instead of the manifest's; 0: the manifest's */
    void (*progress)(double fraction, void *user);
    /* Told of each attempt when it has failed, and of a last resort on the processor: a sentence. On the thread that
     * called; no lock is held. */
    void (*notice)(const char *text, void *user);
    void *user;
} weir_opening_options;

/* Opens a model. `options` may be NULL. On failure nothing is left of it, the ledgers are as before, and the detail names
 * every candidate with its reason. Errors: those of weir_choice_make; WEIR_UNSUPPORTED when no candidate was accepted, else what
 * the last one failed with. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_open(const weir_manifest *manifest, const weir_opening_options *options,
                                                    weir_model **out);

/* How the model came to be where it is. Valid until it is unloaded; the arrays grow while runs fall back, so what is read must
 * be copied by whoever runs it on several threads. WEIR_UNSUPPORTED for one of weir_model_load's. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_model_record(weir_model *model, weir_record *out);

/* "detect", "construct", "load", "first-run", "later-run"; "?" for a number that is none. */
WEIR_API const char *weir_stage_name(weir_stage stage);

WEIR_END
#endif
