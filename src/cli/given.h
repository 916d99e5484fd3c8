/* given.h: one --input as it was given: for which model and input, and what. */
#ifndef WEIR_CLI_GIVEN_H
#define WEIR_CLI_GIVEN_H

#include <weir/tensor.h>

enum { GIVEN_EVERY_MODEL = -1 };

typedef enum given_kind {
    GIVEN_TEXT = 0,  /* the words themselves, or numbers */
    GIVEN_LINES = 1, /* @FILE */
    GIVEN_SHAPE = 2, /* shape:2x16 */
    GIVEN_ARRAY = 3  /* FILE.npy */
} given_kind;

typedef struct given_input {
    const char *option; /* "--input" or "--prompt" */
    int model;          /* GIVEN_EVERY_MODEL: every one that has such an input */
    char *name;
    given_kind kind;
    char *value; /* as typed, or the content of the file for GIVEN_LINES */
    weir_tensor array;
    uint32_t rank;
    int64_t shape[WEIR_MAX_RANK];
    bool used;
} given_input;

/* Reads "shape:2x16", "file.npy", "@file" or text. WEIR_ERR_INVALID is bad usage; others mean that a file is at fault. */
weir_status given_read(const char *value, given_input *out);
void given_clear(given_input *given);

#endif
