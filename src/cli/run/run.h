/* run.h: common declarations of the verb run: the arguments, the run of a model, the whole run and the answer. */
#ifndef WEIR_CLI_RUN_RUN_H
#define WEIR_CLI_RUN_RUN_H

#include "tensors.h"

#include "trace/timeline.h"

#include <weir/weir.h>
#include <weir/cores.h>
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>

/* Arguments: args.c ------------------------------------------------------------------------------------------------ */

enum { RUN_MODELS_MOST = 64 };

typedef struct run_model_args {
    char *path;
    char *name; /* of its client: the file's name; the second model of that name gets "#2" */
    uint64_t guaranteed, maximum;
    weir_setting *settings;
    size_t setting_count;
    bool selects; /* engine, provider and device are selected: it is a manifest, or an option asks for it */
} run_model_args;

typedef struct run_budget {
    char *device; /* "": every device that models come to */
    uint64_t bytes;
} run_budget;

typedef struct run_args {
    run_model_args *models;
    size_t model_count;
    run_budget *budgets; /* by device */
    size_t budget_count;
    input_arg *inputs; /* --input and --prompt */
    size_t input_count;
    uint64_t tokens; /* 0: the engine's default */
    uint64_t repeat;
    bool serial, json, stream;
    bool suspend_idle;          /* with serial */
    bool prepare;               /* with suspend_idle */
    bool show_idle;             /* with suspend_idle */
    bool overflows;             /* --residency auto */
    const char *driver;         /* the device's name, as weir_runtime_get takes it; NULL: not given */
    weir_choice_options choice; /* the options that select engine, provider and device */
    bool no_fallback;
    const char *output, *trace, *report;
    char *command; /* as typed, for the report */
} run_args;

/* The device of models that need no selection. */
const char *run_driver(const run_args *args);

/* Checks what can be checked before a model is loaded. Answers -1 to go on, else the exit status. */
int run_args_read(int argc, char **argv, run_args *out);
void run_args_clear(run_args *args);

/* Failures: failure.c ---------------------------------------------------------------------------------------------- */

/* The failure of a model, copied on the thread on which the call failed. */
typedef struct failure {
    weir_status status; /* WEIR_OK: none */
    const char *stage;  /* "load", "inputs", "first run", "run", "output" */
    char *detail;
    weir_refusal refusal; /* of WEIR_ERR_OUT_OF_MEMORY */
    char *suggestion;     /* the limit that would do; NULL: there is no suggestion beside the detail */
} failure;

/* Copies the calling thread's detail and refusal. A failure that is already noted stays. */
void failure_note(failure *out, weir_status status, const char *stage);

/* One line on standard error. */
void failure_print(const failure *failed, const char *model);

/* {status, detail, model, stage, remedy, refusal} */
json_t *failure_json(const failure *failed, const char *model);

void failure_clear(failure *failed);

/* Generated text: model_run.c -------------------------------------------------------------------------------------- */

/* Printed as it comes: plainly from one model, line by line after its name from several. */
typedef struct stream_print {
    FILE *file;
    const char *label; /* NULL: plainly */
    char *line;        /* the part of a labelled line that has come so far */
    size_t used, capacity;
} stream_print;

/* A time for which a model was suspended; seconds since the first load. */
typedef struct aside {
    double suspended_at, suspend_seconds;
    double resumed_at, resume_seconds; /* if it was */
    bool resumed;
    uint64_t away, released, copied, trusted, dropped, shown; /* as in weir_residency, */
    uint64_t stayed, outside, graphs;                         /* and these */
} aside;

/* One model: model_run.c, selected_model.c ------------------------------------------------------------------------- */

typedef struct model_run {
    const run_args *run_args;
    const run_model_args *args;
    int index;
    const char *path; /* the model's file */
    weir_runtime *runtime;
    weir_client *client; /* its account, opened before any model is loaded; NULL: not open */
    weir_model *model;   /* NULL unless it is loaded */
    failure failed;

    /* Copies, which outlive the model. */
    char *engine, *version, *provider, *architecture, *remarks;
    json_t *shares; /* how much of the model each provider runs */
    bool loaded;    /* it once was; the copies are made */
    bool generates;

    /* Only where engine, provider and device are selected. */
    weir_manifest *manifest;
    char **notices; /* while the model is opened */
    size_t notice_count;
    json_t *attempts; /* NULL: none */
    size_t left_out;  /* attempts that the record does not list */
    bool moved;       /* the model's device has changed since the choice: another device, or none */
    bool last_resort; /* it is on the processor, which was not asked for */

    inputs in;
    outputs out; /* of the last run */
    weir_client_stats stats;
    weir_cores_stats cores; /* struct_size 0: it has no line in the ledger of cores */
    uint64_t outside;       /* what the model took outside weir, on its device */
    uint64_t outside_once;  /* what the engine took when it was opened, if this model was the first to use it */
    uint64_t outside_host;  /* what the model took on the host, where `outside` is on another device */
    bool measured;
    double load_seconds, first_seconds, seconds; /* the last: of all runs but the first */
    uint64_t runs;                               /* those */
    aside *asides;
    size_t aside_count;
    bool is_aside; /* it is suspended now */
    stream_print stream;
} model_run;

void model_run_begin(model_run *m, const run_args *args, int index);

/* Opens its client with its limits, on the device that it is likely to come to. */
weir_status model_run_open(model_run *m);

/* Loads the model, runs it once, and measures what its engine takes outside weir: one model at a time. */
void model_run_load(model_run *m, input_arg *args, size_t arg_count);

/* Runs it as often as asked for and keeps the last outputs. Any thread. */
void model_run_run(model_run *m);

/* Notes the client's statistics, unloads and closes the client. Bytes that the engine leaves behind are a failure. */
void model_run_unload(model_run *m);

void model_run_clear(model_run *m);

/* It was loaded, and nothing has failed since. */
bool model_run_good(const model_run *m);

double run_clock(void); /* seconds, monotonic */

/* Shows how far the load of the model_run `user` is. */
void model_run_progress(double fraction, void *user);

/* Reads the model's manifest and makes the selection, so that its likely device is known. A failure becomes the
 * model's. Answers -1 to go on, CLI_USAGE where options were wrong, which has been printed. */
int selected_model_prepare(model_run *m);

/* Opens the model on the first candidate that takes it. */
weir_status selected_model_open(model_run *m);

/* Notes where the model is now, and how it came there. */
void selected_model_follow(model_run *m);

void selected_model_clear(model_run *m);

/* failure.c: after a refusal, notes the limit under which the model would have worked: exact where the engine's
 * prediction is exact, else "at least so much more". */
void suggestion_find(model_run *m);

/* Signals: interrupt.c --------------------------------------------------------------------------------------------- */

/* Handles SIGINT and SIGTERM on a thread of its own: running inferences are cancelled and models unloaded before the
 * command ends; a second signal ends it at once. Call before any other thread is made, as threads inherit the mask. */
void interrupt_begin(void);

bool interrupt_seen(void);

/* A signal cancels the runs of this model, until it is removed, which must come before the unload. */
void interrupt_add(weir_model *model);
void interrupt_remove(weir_model *model);

/* The whole run: run.c --------------------------------------------------------------------------------------------- */

/* A span of time with a name: "load bert.onnx", "all at once", "unload". */
typedef struct run_phase {
    char label[96];
    uint64_t from, to; /* nanoseconds of the trace's clock */
} run_phase;

/* A device that models were on, after everything was unloaded. */
typedef struct run_device {
    weir_runtime *runtime;
    weir_stats end;
    uint64_t budget;
} run_device;

typedef struct run {
    const run_args *args;
    const char *trace, *report; /* files that were written; NULL: none */
    weir_runtime *runtime;      /* of the models, or of the first: the trace and the report are about it */
    run_device devices[2 * RUN_MODELS_MOST + 1]; /* that one first */
    size_t device_count;
    model_run *models;
    size_t count;
    timeline *line;
    run_phase phases[5 * RUN_MODELS_MOST + 2];
    size_t phase_count;
    weir_stats end; /* after everything was unloaded */
    uint64_t budget;
    double began;   /* the first load, by run_clock */
    double seconds; /* of the runs together, without the loads */
    bool leaked;
} run;

/* Suspends the model, and resumes it; what that did is noted, a failure becomes the model's. aside.c, as those below. */
void aside_suspend(const run *all, model_run *m);
void aside_resume(const run *all, model_run *m);
/* Both at once: `leaves` is suspended while `comes` is resumed. False: `comes` is still suspended, and so may be `leaves`
 * (is_aside), without a failure of either; then the two calls above are for the rest. */
bool aside_exchange(const run *all, model_run *leaves, model_run *comes);
/* [{suspended_at, suspend_seconds, away, …}]; and one of them as words, to be freed. */
json_t *aside_json(const model_run *m);
char *aside_text(const aside *one);

/* The client's share of the whole run's peak, from the trace; 0: the trace has no such client. */
uint64_t run_peak_share(const run *all, const char *client, uint64_t by_class[WEIR_CLASS_COUNT]);

/* The first failure, and its model; NULL: none. */
const failure *run_failure(const run *all, const char **model);

/* The answer: print.c, report.c ------------------------------------------------------------------------------------ */

int run_print_json(const run *all);
void run_print_table(const run *all);

/* Writes the run as one self-contained page. Its timeline has to be stopped and kept. After a failure there is no file.
 */
weir_status report_write(run *all, const char *path);

/* page.html, made into a text by the build. */
extern const char report_page[];

#endif
