/* failure.h: what went wrong with one model, taken from the thread on which it did. */
#ifndef WEIR_CLI_FAILURE_H
#define WEIR_CLI_FAILURE_H

#include <weir/weir.h>

#include <jansson.h>

typedef struct failure {
    weir_status status; /* WEIR_OK: none */
    const char *stage;  /* "load", "inputs", "first run", "run", "output" */
    char *detail;
    weir_refusal refusal; /* of WEIR_ERR_OUT_OF_MEMORY */
    char *remedy;         /* what would do; NULL: the detail says all there is */
} failure;

/* Takes the calling thread's detail and refusal. The first failure stays. */
void failure_take(failure *out, weir_status status, const char *stage);

/* Tells it as one line on standard error. */
void failure_tell(const failure *failed, const char *model);

/* {status, detail, model, stage, remedy, refusal} */
json_t *failure_json(const failure *failed, const char *model);

void failure_clear(failure *failed);

#endif
