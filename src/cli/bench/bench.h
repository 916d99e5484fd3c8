/* bench.h: the verb's words, as its parts take them. A part prints its table, or sets its members of the answer. */
#ifndef WEIR_CLI_BENCH_H
#define WEIR_CLI_BENCH_H

#include "cli/cli.h"

enum { BENCH_PATHS = 16 };

typedef struct bench_options {
    const char *device;
    const char *resource;           /* NULL: the default */
    const char *peers[BENCH_PATHS]; /* shared objects, or folders of them */
    size_t peer_count;
    const char *traces[BENCH_PATHS]; /* files, or folders of them */
    size_t trace_count;
    const char *problems[BENCH_PATHS]; /* CSV files of buffers, or folders of them */
    size_t problem_count;
    const char *minimalloc; /* its program; NULL: not measured */
    uint64_t lag;           /* of replays, in operations; 0: without */
    uint64_t rounds, laps;
} bench_options;

/* Each answers an exit status; `answer` NULL: prints. */
int bench_part_operations(const bench_options *options, json_t *answer); /* bench_operations.c: `rows` */
int bench_part_allocator(const bench_options *options, json_t *answer);  /* bench_allocator.c: `allocator` */
int bench_part_lending(const bench_options *options, json_t *answer);    /* bench_lending.c: `lending` */
int bench_part_bounds(const bench_options *options, json_t *answer);     /* bench_bounds.c: `bounds` */
int bench_part_traces(const bench_options *options, json_t *answer);     /* bench_traces.c: `traces` */
int bench_part_plans(const bench_options *options, json_t *answer);      /* bench_plans.c: `plans` */

#endif
