/* bench_plan_graphs.h: lists of buffers as graphs of usual shapes have them, made from a seed. */
#ifndef WEIR_CLI_BENCH_PLAN_GRAPHS_H
#define WEIR_CLI_BENCH_PLAN_GRAPHS_H

#include <weir/weir.h>

typedef struct bench_graph {
    const char *name;
    size_t buffers; /* about so many */
    bool training;  /* activations are live until their gradients */
    bool plain;     /* intervals and sizes, and nothing else */
    weir_buffers *(*make)(size_t buffers);
} bench_graph;

extern const bench_graph bench_graphs[];
extern const size_t bench_graph_count;

#endif
