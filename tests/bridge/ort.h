/* A program's own ONNX Runtime: opened, run and compared without weir's engine. */
#ifndef TESTS_BRIDGE_ORT_H
#define TESTS_BRIDGE_ORT_H

#include "onnx/bridge/api.h"
#include <weir/onnxruntime.h>
#include "core/core.h"

enum { SKIPPED = 77, MOST_PORTS = 8 };

extern const ort_api *ort;
extern ort_env *ort_environment;

/* Opens engines/NAME/current of the store, or what WEIR_ONNXRUNTIME names. 0, or the exit status of a test that cannot
 * run, with a line that says why. */
int ort_open(const char *name);

/* NULL for success; else the words of the failure, in static storage of the thread. */
const char *ort_words(ort_status *status);
#define ort_ok(call)                                                                                                   \
    do {                                                                                                               \
        const char *words_ = ort_words(call);                                                                          \
        if (words_)                                                                                                    \
            fail_msg("%s: %s", #call, words_);                                                                         \
    } while (0)

/* Options with the environment's allocators, or without; levels and threads such that runs are equal to the bit. */
ort_session_options *ort_options(bool shared);
/* tests/data/onnx/NAME.onnx, or the path itself if it holds a slash. */
const char *ort_model(const char *name);
/* Creates it, and releases the options. */
ort_status *ort_create(const char *name, ort_session_options *options, ort_session **out);
ort_session *ort_session_of(const char *name, bool shared);

/* Values for the ports of a session: inputs in the host's memory, filled from a seed; open extents are `extent`. */
typedef struct ort_ports {
    char *names[MOST_PORTS];
    ort_value *values[MOST_PORTS];
    void *data[MOST_PORTS];
    size_t count;
} ort_ports;
void ort_inputs(ort_session *session, unsigned seed, int64_t extent, ort_ports *out);
/* The names alone. */
void ort_outputs(ort_session *session, ort_ports *out);
/* NULL for success. */
ort_status *ort_run(ort_session *session, const ort_ports *inputs, ort_ports *outputs);
void ort_release_values(ort_ports *ports);
void ort_release(ort_ports *ports);

/* Bytes of what a run answered, in the host's memory: equal? */
bool ort_equal(const ort_ports *a, const ort_ports *b);

/* What the model answers without weir. */
void ort_plain_answers(const char *model, unsigned seed, int64_t extent, ort_ports *out);

/* From now on request number `nth` for memory of that kind, of whatever sort, is one that no device can serve. Ends
 * with ort_fail_no_more, which answers how many there were. One bridge at a time. */
void ort_fail_from(weir_onnxruntime *bridge, weir_kind kind, int nth);
int ort_fail_no_more(void);

uint64_t ort_live(weir_client *client);
weir_onnxruntime_options ort_bridge(weir_client *client);

#endif
