/* What the parts of test-onnx-gpu share: models that are served through weir or by ONNX Runtime with its own arena, asked the
 * same questions, and the numbers that come of it, one JSON object a line. scripts/gpu-onnx runs the parts. */
#ifndef WEIR_TEST_ONNX_GPU_H
#define WEIR_TEST_ONNX_GPU_H

#include <weir/weir.h>
#include <weir/engine.h>

#include "../plain.h"
#include "onnx/engine/model.h"

typedef struct bed {
    const char *device; /* "cuda", or "host", on which most parts run too */
    bool alone;         /* ONNX Runtime with its own arena, and weir not asked */
    weir_runtime *runtime;
    const onnx_library *library;
    const weir_engine *engine;
} bed;

/* A model that is there, either way. */
typedef struct served {
    const bed *bed;
    const char *path, *name;
    weir_client *client;
    weir_engine_model *model; /* with `alone` only its ports and its session are there */
} served;

enum { INPUTS_MOST = 8 };

/* What a model is asked: its open extents, the first of each input and those behind it. */
typedef struct shape {
    int64_t first, rest;
} shape;

typedef struct question {
    weir_tensor inputs[INPUTS_MOST];
    size_t count;
} question;

/* The first output of a run. */
typedef struct answer {
    float *values;
    size_t bytes;
} answer;

/* Ends the program with weir's words unless `status` is WEIR_OK; as skipped where something is not there. */
void must(weir_status status, const char *what);
/* Ends it with these words unless `good`. */
void check(bool good, const char *what);

bed bed_make(const char *device, bool alone);
/* `maximum` 0: the budget. Settings are "KEY=VALUE" up to NULL; NULL: none. */
weir_status serve_try(const bed *b, const char *path, uint64_t maximum, const char *const *settings, served *out);
served serve(const bed *b, const char *path);
void serve_end(served *s);

void ask(const served *s, shape form, question *out);
void ask_end(question *q);
/* One run; `out` may be NULL, and its values are the caller's. */
weir_status run_try(const served *s, const question *q, answer *out);
void run(const served *s, const question *q, answer *out);

/* Are the outputs the same bits? The largest difference in *most, if that is not NULL. */
bool same(const answer *a, const answer *b, double *most);

uint64_t live(const bed *b);
uint64_t held(const bed *b);
/* What is taken on the device, by whomever; 0 on host. */
uint64_t taken(const bed *b);

double seconds(void);
int by_value(const void *a, const void *b);
/* Sorts the list; the value below which `share` of it is. */
double percentile(double *list, size_t count, double share);

/* A gate on a stream: work behind it waits until it is open. Names and types are cuda.h's. delayed.c. */
typedef struct gate {
    volatile uint32_t *word;
    weir_block block;
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*wait)(void *stream, unsigned long long at, uint32_t value, unsigned flags);
} gate;

void gate_close(gate *g, const bed *b, weir_client *client, weir_stream stream);
void gate_open(gate *g);
void gate_end(gate *g, weir_client *client, weir_stream stream);

/* Where the tool of tests/onnx/left is preloaded: what is there from now on is old; and what each round since has left of malloc's
 * bytes, told by whom to the tool's file. Without it nothing, and -1. */
void looked_mark(void);
double looked_report(unsigned long rounds);

/* The parts: each prints its line. Words that follow the models are its own. */
int part_speed(const bed *b, int argc, char **argv);
int part_hold(const bed *b, int argc, char **argv);
int part_again(const bed *b, int argc, char **argv);
int part_serve(const bed *b, int argc, char **argv);
int part_shortage(const bed *b, int argc, char **argv);
int part_cycles(const bed *b, int argc, char **argv);
int part_refusals(const bed *b, int argc, char **argv);
int part_threads(const bed *b, int argc, char **argv);
int part_where(const bed *b, int argc, char **argv);
int part_graph(const bed *b, int argc, char **argv);
int part_delayed(const bed *b, int argc, char **argv);
int part_cancel(const bed *b, int argc, char **argv);
int part_buckets(const bed *b, int argc, char **argv);
int part_concurrency(const bed *b, int argc, char **argv);
int part_handles(const bed *b, int argc, char **argv);
int part_witness(const bed *b, int argc, char **argv);

#endif
