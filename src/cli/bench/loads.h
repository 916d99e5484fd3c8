/* bench_loads.h: what is done with every allocator, and how it is timed.
 *
 * Times are of batches of 16 units (64 where the work itself comes in batches of 64), so that a reading of the clock
 * costs little; what it costs is taken off. A quantile is one of batches: of each batch the time per unit. A
 * measurement ends after a number of batches, or of milliseconds. */
#ifndef WEIR_CLI_BENCH_LOADS_H
#define WEIR_CLI_BENCH_LOADS_H

#include "by.h"

typedef struct bench_figures {
    double p50, p99, mean; /* nanoseconds per unit */
} bench_figures;

typedef struct bench_limits {
    uint64_t laps;         /* batches */
    uint64_t milliseconds; /* whichever ends first */
    unsigned threads;      /* of loads with several */
} bench_limits;

typedef struct bench_load {
    char name[72];
    bool by_mean;  /* what counts of its figures: the mean, where the units differ; else the median */
    size_t bytes;  /* of pairs */
    uint32_t live; /* blocks, of what allocates at random */
    bool any_size; /* of those: not powers of two alone */
    /* On an allocator that has begun. NULL, or what failed. */
    const char *(*run)(const struct bench_load *load, const bench_peer *by, const bench_limits *limits,
                       bench_figures *out);
} bench_load;

enum { BENCH_LOADS = 16, BENCH_BATCH = 16, BENCH_HANDED = 64, BENCH_THREADS = 16 };

/* The loads, in the order of the table; answers how many. `threads`: as many as the processor has, and at most 16. */
size_t bench_loads(bench_load *out, unsigned threads);
unsigned bench_processors(void);

const char *bench_run_pair(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                           bench_figures *out);
const char *bench_run_random(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                             bench_figures *out);
const char *bench_run_threads(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                              bench_figures *out);
const char *bench_run_handed(const bench_load *load, const bench_peer *by, const bench_limits *limits,
                             bench_figures *out);

/* Samples of one thread. */
typedef struct bench_samples {
    uint64_t *at;
    size_t count, room;
    uint64_t start, until, cost;
} bench_samples;

void bench_samples_begin(bench_samples *samples, const bench_limits *limits);
bool bench_samples_more(const bench_samples *samples); /* a further batch fits into the limits */
void bench_samples_add(bench_samples *samples, uint64_t started);
/* The figures of several threads' samples together, of `units` each; frees them. */
void bench_samples_end(bench_samples *samples, unsigned threads, uint64_t units, bench_figures *out);

/* A batch of pairs. */
bool bench_pairs(const bench_peer *by, size_t bytes, uint64_t stream);

/* Why the last allocation or free failed, as far as anybody can tell. */
const char *bench_why(const bench_peer *by);

#endif
