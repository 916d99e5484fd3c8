/* run.h: a whole run, as the table, the JSON and the report show it. */
#ifndef WEIR_CLI_RUN_H
#define WEIR_CLI_RUN_H

#include "job.h"

#include "trace/timeline.h"

/* A stretch of time with a name: "load bert.onnx", "all at once", "unload". */
typedef struct run_phase {
    char label[96];
    uint64_t from, to; /* nanoseconds of the trace's clock */
} run_phase;

/* A device that models were on, when everything was unloaded. */
typedef struct run_device {
    weir_runtime *runtime;
    weir_stats end;
    uint64_t budget;
} run_device;

typedef struct run {
    const run_options *options;
    const char *trace, *report; /* that were written; NULL: none */
    weir_runtime *runtime;      /* the models', or of the first of them: the trace and the report are of it */
    run_device devices[2 * RUN_MODELS_MOST + 1]; /* that one first */
    size_t device_count;
    job *jobs;
    size_t count;
    timeline *line;
    run_phase phases[RUN_MODELS_MOST + 2];
    size_t phase_count;
    weir_stats end; /* when everything was unloaded */
    uint64_t budget;
    double seconds; /* of the runs together, after loading */
    bool leaked;
} run;

/* The clients' places in the whole's peak, as the trace saw it; 0 for one that it did not see. */
uint64_t run_peak_share(const run *all, const char *client, uint64_t by_class[WEIR_CLASS_COUNT]);

/* The first thing that failed, and of which model; NULL if nothing did. */
const failure *run_failure(const run *all, const char **model);

/* run_start.c: runtimes, budgets, and where the models will be that are chosen for. Answers -1 to go on, else the exit
 * status, which has been told. */
int run_prepare(run *all);

/* run_devices.c: a device that a model is on; and what they say when everything was unloaded. */
void run_uses_device(run *all, weir_runtime *runtime);
void run_close_devices(run *all);

int run_print_json(const run *all);
void run_print_table(const run *all);

#endif
