/* bench_beside.h: what a kernel of one client feels of lends to another beside it. */
#ifndef WEIR_CLI_BENCH_BESIDE_H
#define WEIR_CLI_BENCH_BESIDE_H

#include "bench.h"

#include <weir/weir.h>

enum { BENCH_BESIDES = 2 };

typedef struct bench_beside {
    const char *what;
    unsigned pairs;               /* of runs of the kernel, one alone and one with lends beside it; 0: none was made */
    double alone, with;           /* milliseconds, medians */
    double slowed;                /* with over alone, the median of the pairs' */
    uint64_t lends, bytes, moved; /* beside all of them: how often, bytes of one, handles moved */
} bench_beside;

/* WEIR_ERR_UNSUPPORTED: there is no GPU. What failed is written to `why`. */
weir_status bench_beside_measure(const bench_options *options, bench_beside out[BENCH_BESIDES], char *why, size_t room);

#endif
