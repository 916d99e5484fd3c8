/* What the parts of bench-residency share: clients that look like models, the machine's own copies, and the tables. */
#ifndef BENCH_RESIDENCY_H
#define BENCH_RESIDENCY_H

#include "residency_why.h"

#include <weir/pressure.h>
#include <weir/residency.h>
#include <weir/weir.h>

#define MIB ((uint64_t)1 << 20)

enum { MOST_BLOCKS = 4096, MOST_ROUNDS = 99, MOST_MODELS = 64 };

/* What was asked for. */
typedef struct bench_words {
    const char *device;
    uint64_t model_bytes;
    int rounds, models, room, turns, changes;
    double end; /* of all cases, by `now` */
} bench_words;

extern bench_words asked;

/* GB/s of page-locked copies out of the device, into it, and of the slower way when both are under way. */
typedef struct bench_link {
    double out, in, both;
} bench_link;

extern bench_link machine;

/* A client with blocks of many sizes, as models have them. */
typedef struct model {
    weir_client *client;
    void *blocks[MOST_BLOCKS];
    uint64_t sizes[MOST_BLOCKS], bytes;
    size_t count;
    uint8_t seed;  /* of what its bytes are */
    uint64_t used; /* the turn of its last use */
} model;

double now(void);
void must(weir_status status, const char *what);
#define MUST(call) must((call), #call)
uint64_t next_random(uint64_t *state);
double median(double *values, int count);
/* The value behind `part` of them. */
double quantile(double *values, int count, double part);

/* A line of the table. `of`: of what `part` is the part; NULL: of nothing. */
void line(const char *what, double value, const char *unit, double part, const char *of);
/* A line of the last table. `most`: the figure may be no more than the goal, else no less. */
void goal(const char *what, double figure, const char *unit, double wanted, bool most);
void tell_goals(void);

weir_runtime *make_runtime(uint64_t budget);
/* Blocks from 256 KiB to an eighth of the model, in the proportions of a network's weights. */
void load(weir_runtime *runtime, model *m, const char *name, uint64_t bytes, uint8_t seed);
void unload(model *m);
/* Writes other bytes, those of that seed. */
void rewrite(weir_runtime *runtime, model *m, uint8_t seed);
/* Blocks of which any byte is not what it was; several threads look. `most`: of each block, from its start. */
uint64_t differing(weir_runtime *runtime, const model *m, uint64_t most);
/* The same; the program ends when there is one. */
void check(weir_runtime *runtime, const model *m, uint64_t most);

extern const weir_suspend_options changed, unwritten;
/* Seconds that it took. */
double suspend(const model *m, const weir_suspend_options *options);
double resume(const model *m);

/* Fills `machine`. */
void measure_link(weir_runtime *runtime);

/* The cases, each with a runtime of its own. */
void one_model(weir_runtime *runtime);
void first_kernel(weir_runtime *runtime);
void changing_places(weir_runtime *runtime);
void exchanging_places(weir_runtime *runtime);
void is_asked(weir_runtime *runtime);
void small_pages(weir_runtime *runtime);
void beside(weir_runtime *runtime);
void faults(weir_runtime *runtime);
void in_turn(weir_runtime *runtime);

#endif
