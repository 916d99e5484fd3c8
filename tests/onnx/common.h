/* What the tests of the engine onnx share: a runtime of their own, models, tensors. */
#ifndef WEIR_TEST_ONNX_COMMON_H
#define WEIR_TEST_ONNX_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <weir/weir.h>
#include <weir/engine.h>

#include "onnx/engine/model.h"
#include "plain.h"

/* The exit status by which ctest knows a test that could not run. */
enum { SKIPPED = 77 };

const weir_engine *weir_engine_entry(uint32_t abi);

/* 0 when ONNX Runtime is here; else the exit status of the test, with a line that says so. */
int need_onnxruntime(void);
/* The same of its build for CUDA, on WEIR_TEST_DEVICE. */
int need_cuda_build(void);
/* Whether a test may not be skipped for want of an engine or a model: WEIR_REQUIRE_ENGINES=1. */
bool engines_are_required(void);
/* Within a test: skipped for want of `what`, or failed. */
void skip_without(const char *what);

/* TBB, which OpenVINO brings, opens a library in a way (RTLD_DEEPBIND) at which the sanitizers end the process. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

/* A model with the account and the runtime it draws from. */
typedef struct loaded {
    const weir_engine *engine;
    weir_runtime *runtime;
    weir_client *client;
    weir_engine_model *model;
} loaded;

enum { MAX_SETTINGS = 8 };

/* tests/data/onnx/NAME.onnx, or the path itself if it holds a slash; in static storage of the thread. */
const char *model_path(const char *name);

/* A path for a file of this process, in a directory where the file lies beside a copy of beside.data. */
const char *scratch_path(void);
void scratch_clear(void);

/* Opens runtime and client, on WEIR_TEST_DEVICE or host; `budget` 0 is 1 GiB. */
loaded open_client(uint64_t budget);
/* Loads into it; `settings` are "key=value" texts up to a NULL, or NULL. */
weir_status load_into(loaded *l, const char *name, const char *const *settings);
/* Both, and it must work. */
loaded load_model(const char *name, const char *const *settings);
/* Unloads, and asserts that nothing is live. */
void unload_model(loaded *l);
void close_client(loaded *l);

uint64_t live(const loaded *l);
uint64_t live_class(const loaded *l, weir_class memory_class);

/* Runs it with these inputs. */
weir_status infer(const loaded *l, const weir_tensor *inputs, size_t count, weir_outputs *out);
const weir_tensor *output(const weir_outputs *outputs, const char *name);

/* A tensor over `data`. */
weir_tensor tensor(const char *name, weir_type type, uint32_t rank, const int64_t *shape, void *data);
#define SHAPE(...)                                                                                                     \
    (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                        \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* For every input of the model: extents that are open become `extent` (the first: 1), values are small and fixed. */
size_t make_inputs(const loaded *l, int64_t extent, weir_tensor *inputs, size_t capacity);
void free_inputs(weir_tensor *inputs, size_t count);

#define assert_ok(status)                                                                                              \
    do {                                                                                                               \
        weir_status status_ = (status);                                                                                \
        if (status_ != WEIR_OK)                                                                                        \
            fail_msg("%s: %s", weir_name_of(WEIR_NAMES_STATUS, status_), weir_detail());                               \
    } while (0)

#define assert_status(status, wanted)                                                                                  \
    do {                                                                                                               \
        weir_status status_ = (status);                                                                                \
        if (status_ != (wanted))                                                                                       \
            fail_msg("%s instead of %s: %s", weir_name_of(WEIR_NAMES_STATUS, status_),                                 \
                     weir_name_of(WEIR_NAMES_STATUS, wanted), weir_detail());                                          \
    } while (0)

#define assert_detail(part)                                                                                            \
    do {                                                                                                               \
        if (!strstr(weir_detail(), part))                                                                              \
            fail_msg("\"%s\" is not in: %s", part, weir_detail());                                                     \
    } while (0)

#endif
