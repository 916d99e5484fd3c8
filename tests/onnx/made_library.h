/* What a test says of a made-up ONNX Runtime, and sees of what was done with it. */
#ifndef WEIR_TEST_ONNX_MADE_LIBRARY_H
#define WEIR_TEST_ONNX_MADE_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "onnx/bridge/api.h"

typedef struct made_library {
    char version[32], *providers[8];
    bool no_table;
    int calls, fails_at; /* fails_at: this one of the calls fails; 0: none */
    uint32_t asked;      /* the version of the table */
    int statuses_released, lists_released, places, environments;
    ort_log_fn log;
    void *log_user;
    int severity;
} made_library;

#endif
