/* What the tests of opening share: a machine with a device of every kind, and an engine that fails where it is told to.
 *
 * The engine calls itself "onnx" and has all seven providers. It takes real memory from its client, so that ledgers
 * have something to say. All devices are of the runtime that WEIR_TEST_DEVICE names but the processor, which is of the
 * host's. */
#ifndef TESTS_OPENING_BED_H
#define TESTS_OPENING_BED_H

#include "choice/machine.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>

enum { WEIGHTS = 256 * 1024, OUTPUT = 4096, MOST_TEXTS = 64 };
enum { SESSIONS = 3, SESSIONS_FAILED = 2 }; /* of each model, by its metrics */

/* One fault. `provider` NULL: none; "": any. A run that fails so leaves a model of which a warm-up fails likewise until
 * its next run, unless the fault is the run's own (`alone`). */
typedef struct fault_plan {
    const char *provider;
    weir_stage stage;
    weir_status status;
    int times;   /* -1: always */
    int pieces;  /* handed out before a run fails */
    bool keeps;  /* a failed load keeps its memory */
    bool breaks; /* nothing works on that model from then on */
    bool alone;  /* other runs work */
} fault_plan;

enum { MOST_FAULTS = 4 };

typedef struct bed {
    machine m;
    weir_runtime *host, *device;
    fault_plan faults[MOST_FAULTS];
    pthread_mutex_t lock; /* of the faults and the counts */
    int loads, unloads, runs, answers, releases, cancels, alive;
    int warm_ups, pieces;
    int pieces_of_runs; /* that a streamed answer has */
    bool deaf;          /* its `cancel` finds no run */
    bool ill;           /* what `health` says of those that have failed */
    gate *inside_run, *inside_load, *inside_cancel;
    gate *inside_metrics; /* of the first call */
    bool holds_warm_ups;  /* and no runs */
    int hold_from;        /* the run number from which the gate holds */
    char hidden[64];      /* the device that is gone at the second look */
    const char *keeper;   /* the provider whose models keep their memory when they are unloaded */
    int looks, constructs;
    int fail_construct; /* the number of the client that cannot be opened, from 1; 0: none */
    uint64_t weights;   /* of a model */
    uint64_t scratch;   /* of a run */
    size_t output;      /* bytes of a result; 0: OUTPUT */
    bool on_host;       /* where a result lies; its bytes are the number of the answer then */
    double share;       /* that the provider runs; 0: not told */
    char settings[200]; /* of the last load: "key=value " each */
    char asked[400];    /* of the last run: "input:text " and "setting=value " each */
    void *kept;         /* by a failed load, and of whom */
    weir_client *kept_by;
    char notices[MOST_TEXTS][512];
    size_t notice_count;
} bed;
extern bed b;

extern weir_engine double_onnx; /* as registered; each test begins with the whole table */

int bed_begin(void **state); /* of a group */
int bed_end(void **state);
int bed_reset(void **state); /* of a test */

void bed_fault(const char *provider, weir_stage stage, weir_status status, int times);

/* A manifest that lists the providers between spaces. */
typedef struct wanted {
    char text[200];
    const char *rest[8];
    weir_manifest manifest;
} wanted;
const weir_manifest *wants(wanted *w, const char *providers);

/* With the machine as it is, notices noted. */
weir_opening_options opening_options(weir_choice_options *choice);
weir_model *open_model(const weir_manifest *manifest, const weir_opening_options *options);
weir_record record_of(weir_model *model);
/* "cuda/load/WEIR_ERR_ENGINE" of an attempt. */
void check_attempt(const weir_record *record, size_t place, const char *provider, weir_stage stage, weir_status status);

/* On the providers between spaces alone. */
weir_model *opened_on(const char *providers);
const char *provider_of(weir_model *model);

/* A request by a thread. */
enum { REQUEST = 7 };
typedef struct request {
    weir_model *model;
    weir_status status;
    weir_outputs out;
} request;
void *make_request(void *user);
void wait_for(gate *g);

weir_status infer_once(weir_model *model, weir_outputs *out);
void infer_and_release(weir_model *model);
/* The provider on which an output was made. */
const char *made_on(const weir_outputs *out);

/* What a ledger says of clients and of what they have. */
typedef struct books {
    uint64_t live[2], pending[2], promised[2], guaranteed[2];
    uint32_t clients[2];
} books;
books take_books(void);
void check_books(const books *before);

#endif
