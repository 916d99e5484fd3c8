/* ONNX Runtime's own table, in which a test puts functions of its own: to note calls, hold them up, or fail them. */
#ifndef WEIR_TEST_ONNX_WATCH_H
#define WEIR_TEST_ONNX_WATCH_H

#include "common.h"

#include <stdatomic.h>

extern ort_api watched;     /* what the engine calls */
extern const ort_api *real; /* what ONNX Runtime has */
extern atomic_bool held_up; /* a call to ONNX Runtime, until the test has seen what goes on meanwhile */

/* For cmocka: the library of WEIR_TEST_DEVICE is watched, and is not any more. */
int watch(void **state);
int unwatch(void **state);

/* For watched.Run: the first of them stays in ONNX Runtime until held_up is false again. */
ort_status *slow_run(ort_session *session, const ort_run_options *options, const char *const *input_names,
                     const ort_value *const *inputs, size_t input_count, const char *const *output_names,
                     size_t output_count, ort_value **outputs);
/* Until a call is held up. */
void wait_for_it(void);

/* A run of its own number, for a thread: of `x`, one row of 16. */
typedef struct numbered {
    const loaded *l;
    uint64_t id;
    weir_status status;
} numbered;

void *run_numbered(void *user);

#endif
