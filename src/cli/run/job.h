/* job.h: one model of a run, from its load to its end. */
#ifndef WEIR_CLI_JOB_H
#define WEIR_CLI_JOB_H

#include "failure.h"
#include "inputs.h"
#include "outputs.h"
#include "options.h"
#include "stream_print.h"

typedef struct job {
    const run_options *options;
    const run_model_words *words;
    int index;
    const char *path; /* the model's file */
    weir_runtime *runtime;
    weir_model *model; /* NULL unless it is loaded */
    failure failed;

    /* What it is: copies, for after it is unloaded. */
    char *engine, *version, *provider, *architecture, *remarks;
    bool loaded; /* it once was; the texts above are set */
    bool generates;

    /* Of one that is chosen for; placing.h. */
    weir_manifest *manifest;
    char **notices; /* while it is opened */
    size_t notice_count;
    json_t *attempts;        /* NULL: none */
    bool moved, last_resort; /* it came to be elsewhere; on the processor, which nobody asked for */
    size_t left_out;         /* attempts that the record does not list */
    json_t *shares;          /* of any model: what each provider runs */

    inputs in;
    outputs out; /* of the last run */
    weir_client_stats stats;
    uint64_t outside, outside_once; /* the model's; its engine's, when this job was the first to open it */
    uint64_t outside_host;          /* the model's on the host, where `outside` is on a device */
    bool measured;
    double load_seconds, first_seconds, seconds; /* the last one over all runs but the first */
    uint64_t runs;                               /* those */
    stream_print stream;
} job;

void job_begin(job *work, const run_options *options, int index);

/* Loads it and runs it once, measuring what the engine takes outside weir: one job at a time. */
void job_load(job *work, given_input *given, size_t given_count);

/* Runs it as often as wanted and keeps the last outputs. From any thread. */
void job_run(job *work);

/* Notes the client's numbers and unloads. What an engine leaves behind is a failure. */
void job_unload(job *work);

void job_clear(job *work);

/* Did it load, and has everything since worked? */
bool job_good(const job *work);

double job_clock(void); /* seconds, monotonic */

/* Draws how far the load of the job `user` is. */
void job_progress(double fraction, void *user);

#endif
