/* allocators.h: the allocators that weir-bench measures, all through the table of peer.h, and the loads put on them. */
#ifndef WEIR_BENCH_COMMAND_ALLOCATORS_H
#define WEIR_BENCH_COMMAND_ALLOCATORS_H

#include "bench.h"
#include "peer.h"

#include "cli/text.h"

enum { BENCH_ALLOCATORS = 16 };

typedef struct bench_allocator {
    bench_peer by;
    bool own; /* weir, not a peer */
} bench_allocator;

typedef struct bench_allocators {
    bench_allocator at[BENCH_ALLOCATORS];
    size_t count;
    json_t *left_out; /* texts: the peers that are not measured, and why */
} bench_allocators;

/* Lists all allocators for the device. `paths`: shared objects, or folders of them. */
void bench_allocators_open(bench_allocators *all, const char *device, const char *resource, const bench_paths *paths);
void bench_allocators_close(bench_allocators *all);

/* Each fills in a table. NULL, or why there is no such allocator here. */
const char *bench_weir(const char *device, const char *resource, bool streams, bench_peer *out);
const char *bench_malloc(bench_peer *out);
const char *bench_mimalloc(bench_peer *out);
const char *bench_cuda_pool(int ordinal, bench_peer *out);   /* cuMemAllocAsync */
const char *bench_cuda_direct(int ordinal, bench_peer *out); /* cuMemAlloc */

/* Two streams of CUDA's driver, of which by turns one is made to wait for the other by an event, as programs do by
 * hand. NULL, or what failed. */
const char *bench_cuda_events_begin(int ordinal);
bool bench_cuda_events_order(void);
void bench_cuda_events_end(void);

/* The calling thread begins, and ends, to work with an allocator. */
void bench_enter_thread(const bench_peer *by);
void bench_leave_thread(const bench_peer *by);

/* Why the last allocation or free failed, as far as it can be known. */
const char *bench_why(const bench_peer *by);

/* Loads: loads.c --------------------------------------------------------------------------------------------------- */

/* Times are of batches of 16 units (64 where the work comes in batches of 64), so that the clock costs little; its cost
 * is subtracted. Quantiles are over batches: of each batch the time per unit. A measurement ends after a number of
 * batches or of milliseconds. */
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
    bool by_mean;  /* the figure that counts: the mean where units differ, else the median */
    size_t bytes;  /* of pairs */
    uint32_t live; /* blocks, of random loads */
    bool any_size; /* of those: not only powers of two */
    bool several;  /* threads at once */
    /* On an allocator that has begun. NULL, or what failed. */
    const char *(*run)(const struct bench_load *load, const bench_peer *by, const bench_limits *limits,
                       bench_figures *out);
} bench_load;

enum { BENCH_LOADS = 16, BENCH_BATCH = 16, BENCH_HANDED = 64, BENCH_THREADS = 16 };

/* The loads in the order of the table; answers their number. `threads`: the processors, at most 16. */
size_t bench_loads(bench_load *out, unsigned threads);
unsigned bench_processors(void);

#endif
