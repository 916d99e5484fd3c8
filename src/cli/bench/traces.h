/* bench_traces.h: the part `traces` of `weir bench`: recorded traces replayed by weir and by its peers
 * (bench_traces.c), and the goals that are set for that (bench_trace_goals.c). What was not measured is NAN. */
#ifndef WEIR_CLI_BENCH_TRACES_H
#define WEIR_CLI_BENCH_TRACES_H

#include "answer.h"
#include "by.h"

/* Held is over what was requested at the peak, and so are caps; times are nanoseconds per event. */
typedef struct bench_replayed {
    double held, ns;       /* without a cap, over two passes */
    double calls, moves;   /* per allocation in the second of them */
    double cap, cap_ns;    /* the smallest cap, and the time under it */
    double ns_105, ns_110; /* under 1.05 and 1.10 of what was requested; NAN too when it does not complete */
    double lag_held, lag_cap, lag_cap_ns; /* with the streams behind the host */
    char failed[200];
} bench_replayed;

typedef struct bench_trace {
    wi_replay_plan plan;
    char name[64]; /* of its file, without what says its format */
    bench_replayed by[BENCH_ALLOCATORS];
} bench_trace;

void bench_trace_goals(const bench_trace *trace, const bench_allocators *all, bench_goals *goals);

#endif
