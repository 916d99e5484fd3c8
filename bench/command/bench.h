/* bench.h: what the parts of weir-bench share: arguments, clock, tables, goals. */
#ifndef WEIR_BENCH_COMMAND_BENCH_H
#define WEIR_BENCH_COMMAND_BENCH_H

#include "cli/cli.h"
#include "cli/terminal.h"

enum { BENCH_PATHS = 16 };

/* Files, or folders of them. */
typedef struct bench_paths {
    const char *at[BENCH_PATHS];
    size_t count;
} bench_paths;

typedef struct bench_args {
    const char *device;
    const char *resource; /* NULL: the default */
    bench_paths peers;    /* shared objects */
    bench_paths traces;
    bench_paths problems;   /* CSV files of buffers */
    const char *minimalloc; /* its program; NULL: not measured */
    uint64_t lag;           /* of replays, in operations; 0: without */
    uint64_t rounds, laps;
} bench_args;

/* Measures a part, in part_NAME.c. Prints the table of the part, or with `answer` sets the members of `answer` that are
 * named here. Returns an exit status. */
int bench_part_allocator(const bench_args *args, json_t *answer);  /* `allocator` */
int bench_part_operations(const bench_args *args, json_t *answer); /* `rows` */
int bench_part_lending(const bench_args *args, json_t *answer);    /* `lending` */
int bench_part_bounds(const bench_args *args, json_t *answer);     /* `bounds` */
int bench_part_traces(const bench_args *args, json_t *answer);     /* `traces` */
int bench_part_plans(const bench_args *args, json_t *answer);      /* `plans` */

/* `weir bench serve`, in bench_serve.c: puts load on a running server. argv[0] is `serve`. */
int bench_serve(int argc, char **argv);

/* Files: figures.c ------------------------------------------------------------------------------------------------- */

/* The path itself, or if it is a folder the visible files in it that end in `suffix`, sorted. For bench_files_free. */
char **bench_files(const char *path, const char *suffix, size_t *count);
void bench_files_free(char **files, size_t count);

/* Time: figures.c -------------------------------------------------------------------------------------------------- */

uint64_t bench_now(void); /* nanoseconds, monotonic */

/* What one reading of the clock adds to a sample. */
uint64_t bench_clock_cost(void);

/* In place, smallest first. */
void bench_sort(uint64_t *samples, size_t count);

/* Tables and goals: figures.c. A figure that does not exist is NAN ------------------------------------------------- */

/* The title row. Titles from number `left` on are right-aligned. */
void bench_titles(table *t, const char *const *titles, size_t count, size_t left);
void bench_number(table *t, double number, int digits); /* a cell; empty for NAN */
json_t *bench_number_json(double number);               /* null for NAN */

/* A line for each text. */
void bench_print_left_out(const json_t *texts);

typedef struct bench_goals {
    table grid;
    json_t *list;
} bench_goals;

void bench_goals_begin(bench_goals *goals);
/* Adds a goal: at most `wanted` of `what` by `load`. Left out if it was not measured (NAN). */
void bench_goal(bench_goals *goals, const char *load, const char *what, double wanted, double measured);
void bench_goals_print(bench_goals *goals);
json_t *bench_goals_json(bench_goals *goals); /* a reference for the caller */
void bench_goals_end(bench_goals *goals);

/* Interference: interference.c ------------------------------------------------------------------------------------- */

enum { BENCH_LENDS = 2 };

/* How much lending to another client slows a kernel that runs at the same time. */
typedef struct bench_interference {
    const char *what;
    unsigned pairs;               /* runs of the kernel, alone and with lends beside it; 0: not measured */
    double alone, with;           /* milliseconds, medians */
    double slowed;                /* with over alone, the median of the pairs */
    uint64_t lends, bytes, moved; /* during all of them: lends, bytes of one lend, moved chunks */
} bench_interference;

/* WEIR_ERR_UNSUPPORTED: there is no GPU. `why` gets what failed. */
weir_status bench_interference_measure(const bench_args *args, bench_interference out[BENCH_LENDS], char *why,
                                       size_t room);

#endif
