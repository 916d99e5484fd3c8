/* A model, inside: the instances, the present one of which takes new runs, and the runs under way.
 *
 * An instance is a model as one engine has loaded it, with a client of its own. A model of weir_model_create has one
 * for its whole life. One of weir_model_create_chosen (open.h) may get another when a run fails; an instance that is
 * the model's no longer is unloaded by whoever uses it last, and its record goes, too, but for the present one's, which
 * stays until there is another. No lock is held while an engine works. */
#ifndef WI_MODEL_MODEL_H
#define WI_MODEL_MODEL_H

#include "base/internal.h"

#include <weir/model.h>
#include <weir/engine.h>
#include <weir/predict.h>

#include "factory/predict/forecast.h"

#include <stddef.h>
#include <stdatomic.h>

typedef struct wi_good wi_good; /* what the model has answered; good.c */

typedef enum wi_fault {
    WI_FAULT_UNKNOWN = 0, /* nothing is known to be good */
    WI_FAULT_REQUEST,     /* the instance answers good input */
    WI_FAULT_INSTANCE     /* it does not */
} wi_fault;

/* A copy of what an engine has said of its model. */
typedef struct wi_info_copy {
    weir_model_details info;
    size_t rank; /* of the candidate */
    bool answered;
    struct wi_info_copy *next;
    _Alignas(max_align_t) char memory[];
} wi_info_copy;

typedef struct wi_instance {
    const weir_engine *engine;
    weir_engine_model *loaded; /* NULL: not yet, or not any more */
    weir_client *client;
    atomic_bool *lent; /* the client is the caller's, and this says that it is in use; NULL: it is the instance's own */
    wi_forecast *forecast;        /* the prediction made before the load; NULL: none */
    size_t rank, attempt;         /* weir_model_create_chosen's: of its candidate, and in the record */
    _Atomic uint64_t failed_peak; /* the client's, as a run left it that failed; 0: none raised it */
    uint64_t on_cpu, of;          /* and the parts that its provider leaves to the processor; 0: none, or not known */

    /* Under the model's lock. */
    size_t users;       /* runs under way, results not released, and 1 while it is the present one */
    size_t outputs;     /* the results among them */
    uint64_t answered;  /* runs */
    bool present, lost; /* takes new runs; its device is gone */
    bool ended;         /* unloaded by its last user */
    /* Failures since it last worked, and what good input said of them; good.c. */
    _Atomic uint64_t judged;     /* failures in all */
    uint64_t failures, checks;   /* of good input, which have ended */
    bool checking;               /* good input is under way */
    wi_fault fault;              /* whose the failures were by the last check */
    weir_status fails_good_with; /* WEIR_OK: the last check, if any, did not fail */
    uint64_t number;             /* among all of the model's, from 1 */
    bool overflows;              /* WEIR_ROOM_AUTO: weights without room begin in memory of the host's */
    uint64_t room;               /* that the weights leave then, for what is not weights */
    struct wi_instance *older;
} wi_instance;

/* How a model that is shown comes back; coming.c. Under the model's lock, but for `order`, which is of who has the gate. */
typedef struct wi_coming {
    bool shown;      /* runs can use the away bytes */
    bool ready;      /* the classes that runs write are back: runs pass */
    bool wanted;     /* the rest is to come, between runs */
    bool by_run;     /* a run has begun it */
    bool has_thread; /* to be joined */
    bool some;       /* a step has come */
    pthread_t thread;
    uint64_t began, bytes, step;        /* a time; all bytes, and those of a step at most */
    uint64_t room;                      /* bytes that a run takes besides */
    uint32_t unwritten;                 /* classes that runs only read */
    uint64_t until;                     /* the end of the time that steps have before the next run */
    size_t answers;                     /* runs that have ended since the last step */
    size_t runs_waiting, calls_waiting; /* at the gate */
    uint64_t not_before;                /* the next try of a step that found memory in use; 0: none */
    weir_status stopped;
    uint64_t tries;     /* runs since the last step, where steps have stopped */
    const void **order; /* blocks that are shown, as they were loaded; NULL: none */
    size_t count, next;
} wi_coming;

/* A call of weir_model_infer or weir_model_warm_up, on its caller's stack. */
typedef struct wi_run {
    uint64_t id;                     /* the inference's id, by which a caller cancels the run */
    wi_instance *instance;           /* a user of it; NULL: between two. Changed under the model's lock */
    const weir_inference *inference; /* the caller's, and then `asked` */
    weir_inference asked;            /* a copy; for an instance on another device without the stream */
    weir_piece_fn piece;             /* NULL: the answer comes whole */
    void *user;
    weir_outputs *out;
    bool warms;        /* a warm-up: there are no results */
    bool delivered;    /* a piece has been handed out */
    bool entered;      /* it has passed the gate; residency.c */
    double ms;         /* that the engine took last */
    uint64_t failures; /* of the instance since it last worked, up to this run's */
    uint64_t judged;   /* the instance's, when the engine was asked last */
    /* Set under the model's lock while the run is in the list of runs. A run with the mark answers WEIR_ERR_CANCELLED,
     * on whatever instance. */
    atomic_bool cancelled;
    /* The last cancel that named the run, and the last cancel sent to the run's engine; under the lock. */
    uint64_t cancel_marked, cancel_sent;
    pthread_t thread; /* that has called */
    struct wi_run *next, **link;
} wi_run;

/* What weir_model_create_chosen adds to a model. Called with no lock held. */
typedef struct wi_failover {
    /* A run on its instance failed, or there was none that could take it (then `instance` is NULL), with the detail
     * set. Answers how the request ends, made again or not; with WEIR_OK the run has the instance that answered. */
    weir_status (*recover)(weir_model *model, wi_run *run, weir_status status);
    /* An instance has answered its first or second run, or a warm-up before those (`answered` 0). */
    void (*ran)(weir_model *model, const wi_instance *instance, uint64_t answered, double ms);
    void (*end)(weir_model *model);
} wi_failover;

struct weir_model {
    const wi_failover *failover; /* NULL: of weir_model_create */
    const char *name;            /* with failover: as the manifest has it */
    struct wi_opening *opening;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    wi_instance *present; /* the last that was, where there is none */
    wi_instance *newest;  /* of all */
    uint64_t instances;   /* that there ever were */
    wi_good *good;        /* the smallest so far */
    bool warm;            /* a warm-up has worked on some instance of it */
    atomic_bool lent;     /* a caller's client is in use by an instance */
    wi_info_copy *infos;  /* of each candidate before and after it has answered: engines learn from a first run */
    /* The present one's, for who looks without the lock; no client where there is none. */
    _Atomic(weir_client *) client;
    _Atomic(const weir_engine *) engine;
    _Atomic uint64_t good_bytes; /* of `good`; 0: none */
    wi_run *under_way;
    size_t runs, outputs;
    size_t calls;  /* that are prepared */
    size_t visits; /* other calls that are inside; unloading waits for them, as they are short */
    uint64_t cancels;
    bool unloading;
    bool failing_over;         /* somebody looks for another instance */
    uint64_t failed_failovers; /* times that none was found */
    char *left_behind;         /* how the first instance failed to close that left memory behind; NULL: none did */
    weir_engine_metrics past;  /* of the instances that are gone */
    /* Whether its memory is there; residency.c. Who sets WEIR_MOVING has the gate until he sets another state. */
    weir_model_presence presence;
    size_t inside;     /* runs that have passed the gate */
    bool refuses_runs; /* while it is suspended */
    bool arriving;     /* contents may be on their way */
    wi_coming coming;
};

/* ---- instances; instance.c ---- */

/* Makes an instance with a client and no model yet: opens a client, or takes `given` if not NULL, and then sets *lent,
 * which is false, until the instance is closed. */
weir_status wi_instance_open(const weir_engine *engine, weir_runtime *runtime, const weir_client_options *options,
                             weir_client *given, atomic_bool *lent, wi_instance **out);
/* Loads the model: `load` without places. What it will take is predicted before (`quick`: of the file alone), and what
 * it has taken remembered. On failure the instance is as before. */
weir_status wi_instance_load(wi_instance *instance, const weir_engine_load *load, bool quick);
/* The record of an instance, and what was predicted of it; NULL is nothing. */
void wi_instance_free(wi_instance *instance);
/* Has host memory for its first suspend made in the background, unless its engine cannot step aside. */
void wi_instance_prepare(const wi_instance *instance);
/* Unloads what is loaded and closes the client; the record stays. WEIR_ERR_ENGINE when the engine has kept memory,
 * which is logged with its bytes and left charged. */
weir_status wi_instance_close(wi_instance *instance);

/* Returns the most bytes that the client had at once. */
uint64_t wi_instance_peak(const wi_instance *instance);
/* A run has failed, before which the peak was `before`. */
void wi_instance_failed_run(wi_instance *instance, uint64_t before);
/* WEIR_ERR_UNSUPPORTED: the engine has no such function. */
weir_status wi_engine_lacks(const weir_engine *engine, const char *what);

/* ---- models; model.c ---- */

/* A model without an instance yet. */
weir_status wi_model_make(weir_model **out);
void wi_model_free(weir_model *model);
/* For messages; also where it has no client. */
const char *wi_model_name(const weir_model *model);
/* Makes the instance known to the model, with one user: whoever calls. */
void wi_model_add(weir_model *model, wi_instance *instance);
/* Makes `instance` the present one, if it is not NULL, and lets the old instance go. */
void wi_model_switch(weir_model *model, wi_instance *instance);
/* Drops a user. The last user of an instance that is not present unloads the instance, which may be gone afterwards. */
void wi_model_leave(weir_model *model, wi_instance *instance);
/* Returns the present instance, with one user more; NULL: the model has no present instance, or a lost one. With the
 * model's lock held. */
wi_instance *wi_model_join_locked(weir_model *model);

/* A call that is no run begins and ends, so that the model stays while it looks. WEIR_ERR_INVALID: it is being
 * unloaded. */
weir_status wi_model_visit(weir_model *model, const char *call);
void wi_model_visit_end(weir_model *model);

/* Copies a request in; its inputs and settings stay the caller's. Errors name `call`. */
weir_status wi_request_check(const weir_inference *asked, const char *call, weir_inference *out);
/* Makes the run on its instance, unless it has been cancelled. */
weir_status wi_run_make(wi_run *run);
/* Whether the engine of its instance has no such call at all. */
bool wi_run_lacks(const wi_run *run);
/* Whether its inputs can be read by an instance on the device `to`: WEIR_ERR_INVALID names an input on another device.
 * `from` is the device of memory that is not weir's. */
weir_status wi_run_check_inputs(const weir_model *model, const wi_run *run, const char *from, const char *to);

/* ---- whose fault a failure is; good.c ---- */

/* The run has been answered, and its inputs are still there: they may be kept as good input. */
void wi_good_keep(weir_model *model, const wi_run *run);
void wi_good_free(weir_model *model);
/* Of a run that has failed and is still on its instance, which may be asked with good input; the detail stays. *status
 * may change: to WEIR_ERR_INVALID for an engine's failure that is the request's, and to WEIR_ERR_DEVICE_LOST. */
wi_fault wi_fault_of(weir_model *model, wi_run *run, weir_status *status);
/* Whether at so many failures in a row something is tried that may be in vain: at each power of two, and each 16th. */
bool wi_fault_looks_again(uint64_t failures);
/* With the lock held. The instance has answered a run. */
void wi_fault_forget_locked(wi_instance *at);
/* Returns the result of the instance's last check with good input: WEIR_OK, WEIR_ERR_ENGINE, WEIR_ERR_DRIVER. */
weir_status wi_fault_health(weir_model *model, wi_instance *at);

/* ---- suspending; residency.c ---- */

/* A run passes the gate, and gets an instance, if there is one: a suspended model is resumed. With WEIR_ERR_DEVICE_LOST,
 * too. Otherwise it has not entered. */
weir_status wi_model_enter(weir_model *model, wi_run *run);
/* With the lock held: a run that has entered is over. */
void wi_model_exit_locked(weir_model *model, const wi_run *run);
/* Resumes the whole instance, with the gate taken; opens the gate. `began` and `bytes` are noted. */
weir_status wi_model_bring_back(weir_model *model, wi_instance *at, weir_stream stream, bool by_run, uint64_t began,
                                uint64_t bytes);
/* With the lock held: notes that the instance is back. The gate stays as it is. */
void wi_model_note_back_locked(weir_model *model, uint64_t began, uint64_t bytes, bool by_run);
/* The away bytes of the client. */
uint64_t wi_model_away_of(weir_client *client);
/* Whether this thread is inside of a run of the model, as in the reader of its pieces, other than this one. With the lock
 * held. */
bool wi_model_is_in_a_run(const weir_model *model, const wi_run *other);

/* ---- shown, and coming back between runs; coming.c ---- */

/* Before a suspend with `show`: lists the blocks that will be shown, by age. Without host memory there is no list. */
void wi_coming_list(weir_model *model, const wi_instance *at, uint32_t unwritten);
/* The model has been suspended with such options; with the lock held. */
void wi_coming_left_locked(weir_model *model, const wi_instance *at, const weir_model_suspend_options *o);
/* Brings the classes that runs write, and begins to bring the rest. With the gate taken; opens the gate. */
weir_status wi_coming_begin(weir_model *model, wi_instance *at, bool by_run);
/* Begins to bring what a load has left in memory of the host's; nothing where it has left none. Nobody has the model yet. */
weir_status wi_coming_loaded(weir_model *model, wi_instance *at);
/* Brings all the rest, with the gate taken, no run inside and no result out. The gate stays taken. */
weir_status wi_coming_finish(weir_model *model, const wi_instance *at, weir_stream stream);
/* With the lock held and the gate free: whether runs pass before the model is back. */
bool wi_coming_serves(const weir_model *model);
/* With the lock held: whether the run that begins here is to let a step come first. */
bool wi_coming_is_first(const weir_model *model, const wi_run *run);
/* With the lock held: a run has ended. */
void wi_coming_answered_locked(weir_model *model, const wi_run *run);
/* With the lock held: makes no further step until a later run or resume. */
void wi_coming_stop_locked(weir_model *model, weir_status why);
/* With the lock held: lets steps go on that have stopped. */
void wi_coming_again_locked(weir_model *model);
/* With the lock held: ends the return; the model is back, or on another device. */
void wi_coming_over_locked(weir_model *model);
/* Whether the unload of the model would wait for a step, which may be waiting for this thread. With the lock held. */
bool wi_coming_keeps(const weir_model *model);
/* Ends the thread of a model that is being unloaded. */
void wi_coming_end(weir_model *model);

/* ---- copies of what callers ask and engines say; instance.c ---- */

/* A tensor of a list, whose structures are as long as the first one says. */
static inline const weir_tensor *wi_tensor_at(const weir_tensor *first, size_t index)
{
    return (const void *)((const char *)first + index * first->struct_size);
}
/* A caller whose header is older has no such member. */
static inline bool wi_tensor_on_device(const weir_tensor *tensor)
{
    return tensor->struct_size > offsetof(weir_tensor, on_device) && tensor->on_device;
}

enum { WI_DATA_ALIGNMENT = 64 };

/* One piece of memory that copies go to; without memory their bytes are counted. */
typedef struct wi_packer {
    char *memory; /* NULL: there is none yet */
    size_t used;
} wi_packer;

/* Copies a request with its texts, and with `data` the bytes of its inputs, each at a multiple of WI_DATA_ALIGNMENT. */
void wi_request_pack(wi_packer *to, const weir_inference *from, bool data, weir_inference *out);

/* Copies what was said of a candidate, which had answered or not; NULL without host memory. */
wi_info_copy *wi_info_copy_make(const weir_model_details *info, size_t rank, bool answered);
/* In a list; NULL: not there. */
const wi_info_copy *wi_info_copy_find(const wi_info_copy *list, size_t rank, bool answered);
void wi_info_copy_free(wi_info_copy *list);

#endif
