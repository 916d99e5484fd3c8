/* A model that was chosen for: what it was opened with, its candidates, and what became of them.
 *
 * A request that fails for a reason that another candidate might not have is *tried* on the next ones, each loaded for it,
 * while the model stays where it is; the first that answers takes the model over. So a request that nobody can answer moves
 * nothing. Where the instance is lost, the model is *replaced*: the next candidate that loads gets it, and what has failed is
 * made there. In both one thread moves the model; what fails meanwhile waits for it. */
#ifndef WI_CHOICE_OPEN_H
#define WI_CHOICE_OPEN_H

#include "model/model.h"

#include <weir/model.h>
#include <weir/manifest.h>
#include <weir/select.h>

/* Of an accepted candidate. Looked at by whoever opens or moves the model, alone. */
typedef struct wi_chance {
    bool dead; /* it failed for a reason that would come again */
    /* A bit for each status with which requests failed that it could not answer either: it is no place to try another such one,
     * but one for a model that lost its own. */
    uint32_t tried;
    bool lost; /* its device */
} wi_chance;

#define WI_TRIED_FOR_ALL UINT32_MAX
_Static_assert(WEIR_STATUS_COUNT <= 31, "a bit for each status, and one for numbers that are none");

static inline uint32_t wi_tried(weir_status status)
{
    return UINT32_C(1) << ((unsigned)status < WEIR_STATUS_COUNT ? (unsigned)status : 31);
}

/* How an instance failed, as it was where it came from. */
typedef struct wi_failure {
    weir_status status;
    weir_stage stage;
    double ms;
    wi_kept_detail detail;
} wi_failure;

/* An attempt, by its number among all that were ever made. */
typedef struct wi_attempt {
    weir_attempt told;
    size_t number;
} wi_attempt;

typedef struct wi_attempt_list wi_attempt_list; /* one that was handed out; open_record.c */

typedef struct wi_opening {
    weir_choice *choice;
    weir_manifest manifest;     /* what loads need of it: path, name, settings, level; copies */
    weir_choice_options asked;  /* the settings; copies */
    weir_opening_options given; /* without the choice's */
    uint64_t guaranteed, maximum;
    double coverage;
    bool looks;         /* at the machine, whether a device is still there */
    bool cpu_asked;     /* the processor was named */
    bool cpu_forbidden; /* also as what runs all of a model that is another provider's by name */
    wi_chance *chances;

    /* Under the model's lock. */
    wi_failure lost; /* of the present instance, if that is lost */
    char loss[512];  /* how the model came to be on no device */

    pthread_mutex_t lock; /* of what follows */
    wi_attempt *attempts; /* that are listed */
    size_t attempt_count, attempt_room;
    size_t attempts_made;
    size_t attempts_repeated; /* that were not listed, as one like them is, and have no number */
    size_t adrift;            /* attempts made when the model lost its place; SIZE_MAX while it has one */
    uint64_t changes;         /* of the list */
    wi_attempt_list *lists;   /* the newest first */
    bool on_cpu;              /* as the last resort */
} wi_opening;

extern const wi_route wi_opening_route;
void wi_opening_end(weir_model *model);
/* The model is on that instance from here on. */
void wi_opening_settle(weir_model *model, wi_instance *instance);

/* ---- one candidate; open_try.c ---- */

/* Goes through the stages up to the load (and the first run, if `warm`), and records it where it fails. The instance is
 * nobody's yet, and in the record as the one that serves. */
weir_status wi_open_try(wi_opening *opening, size_t rank, bool warm, wi_instance **out);
/* A candidate failed so: whether it, and others on its device, will be taken again. */
void wi_open_spoil(wi_opening *opening, size_t rank, weir_status status);
/* Tells whoever wants to know. */
void wi_open_failed(wi_opening *opening, size_t rank, const weir_attempt *attempt);

/* ---- the record; open_record.c ---- */

/* Adds what became of a candidate; answers its number, SIZE_MAX without host memory. */
size_t wi_record_add(wi_opening *opening, size_t rank, const weir_attempt *attempt);
/* One that serves has reached a stage, or has failed in it. */
void wi_record_note(wi_opening *opening, size_t number, const weir_attempt *now);
/* The model has lost its place, or has one. */
void wi_record_adrift(wi_opening *opening, bool adrift);
/* Attempts that have a number, also those that are not listed any more. */
size_t wi_record_count(wi_opening *opening);
void wi_record_clear(wi_opening *opening);

/* ---- sentences; open_told.c ---- */

/* "onnx with cuda on cuda:0" into `text`, which it answers. */
enum { WI_TOLD_BYTES = 160 };
const char *wi_told_candidate(const weir_candidate *candidate, char text[WI_TOLD_BYTES]);
/* Fails with `status`: `lead`, and how each of the candidates tried since the attempt number `first` failed last. */
weir_status wi_told_attempts(wi_opening *opening, size_t first, weir_status status, const char *lead);
void wi_told_notice(const wi_opening *opening, const char *format, ...) WEIR_PRINTF(2, 3);

#endif
