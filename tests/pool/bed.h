/* What the tests of pools share: a runtime with a budget, a pool on it whose events are kept, and an engine that the tests
 * make up. Each of its models has weights of a size, which its runs read; it fails where it is told to. */
#ifndef TESTS_POOL_BED_H
#define TESTS_POOL_BED_H

#include "core/core.h"

#include <weir/engine.h>
#include <weir/pool.h>

#include <stdatomic.h>

#define SECOND UINT64_C(1000000000)

enum { MOST_MODELS = 32 };

/* The engine: what it is told, and what it has seen. Set while nothing of it runs, or atomic. */
typedef struct engine_double {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_long loads, unloads, runs, suspends, resumes, plans;
    atomic_long loading, most_loading; /* loads at once */
    atomic_long stopped;               /* loads, when their weights were there */
    atomic_int fail_load;              /* so many loads fail from here on: before anything is allocated, */
    atomic_int fail_late;              /* after the weights, */
    atomic_int fail_warm, fail_suspend, fail_resume; /* or elsewhere; -1: all of them */
    atomic_int fault_every;                          /* every such call of a random step fails; 0: none */
    atomic_bool ill;                                 /* what `health` says of models that are loaded */
    bool holds_loads, holds_runs;                    /* they wait until they are let go; under the lock */
    int held_loads, held_runs;                       /* that wait */
    weir_client *leaks_into;                         /* a load leaves LEAK bytes there */
    bool keeps;                                      /* an unload leaves LEAK bytes in its client */
    weir_client *leaked_by;                          /* whose account has the last of these, */
    void *leak;                                      /* which is there */
} engine_double;

enum { LEAK = 64 << 10 };
extern engine_double e;

/* "pool-double", which can be suspended, and "pool-plain", which cannot. */
void register_engines(void);
void reset_engine(void);
void hold_loads(bool holds);
void hold_runs(bool holds);
void wait_for_loads(int count); /* until so many are held */
void wait_for_runs(int count);

/* A pool and its events. */
typedef struct bed {
    weir_runtime *runtime;
    weir_runtime *more[3]; /* of further devices */
    weir_pool *pool;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t counts[WEIR_POOL_EVENT_COUNT];
    char *lines; /* of its decisions */
    size_t length, room;
} bed;

/* `given` may be NULL; events and devices are the bed's. */
void make_bed(bed *b, uint64_t budget, const weir_pool_options *given);
/* The same on these devices, each with that budget; at most 4. */
void make_bed_on(bed *b, uint64_t budget, const weir_pool_options *given, const char *const *devices, size_t count);
/* Destroys the pool, and looks whether anything is left. */
void end_bed(bed *b);
/* The same in steps. */
void end_pool(bed *b);
void wait_for_event(bed *b, weir_pool_event_kind kind, size_t count);

/* A spec of a model with so many bytes of weights. It stays until the next call for the same name. */
weir_pool_spec spec_of(const char *name, uint64_t weights);
void add(bed *b, const char *name, uint64_t weights);
void add_spec(bed *b, weir_pool_spec spec);
weir_pool_request request_of(const char *name);
weir_lease *lease(bed *b, const char *name);
void infer_in(weir_lease *l);
weir_status try_infer(weir_lease *l);
/* Acquire, infer, release. */
weir_status use(bed *b, const char *name);

weir_pool_entry entry_of(bed *b, const char *name); /* the current one */
void in_state(bed *b, const char *name, weir_pool_state state);
void wait_for_state(bed *b, const char *name, weir_pool_state state);
uint64_t taken(bed *b);
/* The ledger against what the pool says: no more held than the budget, each loaded model's client as guaranteed. */
void check_books(bed *b);

/* A request on a thread of its own. */
typedef struct asker {
    pthread_t thread;
    bed *b;
    weir_pool_request request;
    weir_pool_answer answer;
    weir_lease *lease;
    weir_status status;
    char detail[1024];
} asker;
void start_asking(asker *a, bed *b, weir_pool_request request);
void end_asking(asker *a); /* joins; its lease stays */
void wait_for_waiting(bed *b, uint64_t id);

#endif
