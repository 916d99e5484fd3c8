/* A model that was chosen for: the options of its opening, the candidates, and the attempts to load them.
 *
 * Failover: a request that fails for a reason that another candidate might not have is *tried* on the next ones, each
 * loaded for it, while the model stays where it is; the first that answers takes the model over. So a request that no
 * candidate can answer changes nothing. A lost instance is *replaced*: the next candidate that loads gets the model,
 * and the failed request is made there. In both cases a single thread makes the failover, and requests that fail
 * meanwhile wait for the outcome. */
#ifndef WI_MODEL_OPEN_H
#define WI_MODEL_OPEN_H

#include "factory/model/model.h"

#include <weir/model.h>
#include <weir/manifest.h>
#include <weir/select.h>

/* Of an accepted candidate. Looked at by whoever opens the model or makes the failover, alone. */
typedef struct wi_candidate_state {
    bool excluded; /* it failed for a reason that would come again */
    /* A bit for each status of failed requests that the candidate could not answer, either. The candidate is not tried
     * again for a request with such a status, but may get a model that is on no device. */
    uint32_t failed_with;
    bool device_lost;
} wi_candidate_state;

/* An attempt, with its number among all attempts ever made. */
typedef struct wi_numbered_attempt {
    weir_attempt attempt;
    size_t number;
} wi_numbered_attempt;

typedef struct wi_attempt_list wi_attempt_list; /* one that was handed out; attempts.c */

typedef struct wi_opening {
    weir_choice *choice;
    weir_manifest manifest;             /* what loads need of it: path, name, settings, level; copies */
    weir_choice_options choice_options; /* the settings; copies */
    weir_opening_options options;       /* without the choice's */
    uint64_t guaranteed, maximum;
    atomic_bool *lent; /* the model's, of the options' client */
    double coverage;
    bool checks_devices; /* whether an attempt looks first if the device is still there */
    bool cpu_asked;      /* the processor was named */
    /* The processor is forbidden, also to run the whole model under another provider's name. */
    bool cpu_forbidden;
    wi_candidate_state *states; /* by rank */

    char loss_text[512]; /* how the model came to be on no device; under the model's lock */

    pthread_mutex_t lock;          /* of what follows */
    wi_numbered_attempt *attempts; /* that are listed */
    size_t attempt_count, attempt_room;
    size_t attempts_made;
    uint64_t changes;       /* of the list */
    wi_attempt_list *lists; /* the newest first */
} wi_opening;

extern const wi_failover wi_opening_failover;
void wi_opening_end(weir_model *model);
/* The model is on that instance from here on. */
void wi_opening_adopt(weir_model *model, wi_instance *instance);
/* Whether the candidate is the processor and the caller has not asked for the processor. */
bool wi_opening_last_resort(const wi_opening *opening, size_t rank);

/* ---- one candidate; open.c ---- */

/* An attempt: goes through the stages up to the load (and the first run, if `warm`), and records it where it fails. The
 * model does not have the instance yet; the record says that the candidate serves. */
weir_status wi_attempt_load(wi_opening *opening, size_t rank, bool warm, wi_instance **out);
/* Records a candidate's failure: excludes the candidate, except after a lack of memory. After a lost device also marks
 * every candidate on the device: the next attempt with a marked candidate fails at once. */
void wi_exclude(wi_opening *opening, size_t rank, weir_status status);
/* To the caller's notice function. */
void wi_report_failure(wi_opening *opening, size_t rank, const weir_attempt *attempt);

/* ---- the record, and sentences; attempts.c ---- */

/* Adds what became of a candidate; answers its number, SIZE_MAX without host memory. */
size_t wi_attempts_add(wi_opening *opening, size_t rank, const weir_attempt *attempt);
/* A serving candidate has reached a stage, or has failed in the stage. True: the record has changed. */
bool wi_attempts_update(wi_opening *opening, size_t number, const weir_attempt *now);
/* Returns the number of attempts ever made, listed or not. */
size_t wi_attempts_count(wi_opening *opening);
void wi_attempts_clear(wi_opening *opening);

/* "onnx with cuda on cuda:0" into `text`, which it answers. */
enum { WI_CANDIDATE_TEXT = 160 };
const char *wi_candidate_text(const weir_candidate *candidate, char text[WI_CANDIDATE_TEXT]);
/* Fails with `status`: `lead`, and how each of the candidates tried since the attempt number `first` failed last. */
weir_status wi_attempts_fail(wi_opening *opening, size_t first, weir_status status, const char *lead);
void wi_notify(const wi_opening *opening, const char *format, ...) WEIR_PRINTF(2, 3);

#endif
