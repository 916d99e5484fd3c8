/* admission.h: what a pool decides: which model is loaded, suspended or evicted, and which request runs, waits or is
 * refused.
 *
 * A state machine without threads, a clock, files or device memory. The driver reports each event with the time
 * (wp_ask, wp_loaded …), and carries out the actions that wp_next returns. The pool (pool.c) drives the machine with
 * real models, the simulator with doubles in virtual time, and a replay with the events of a trace. The same events in
 * the same order give the same actions: no decision depends on addresses, on hashes' order, or on a time that was not
 * told.
 *
 * Bytes. Each device has a ceiling: the bytes that the pool may take there. wp_ceiling changes it. Bytes are taken
 *   for a model   the reservation, from the decision to load or resume the model until that move has ended; then the
 *                measured bytes (never less than the model is known to keep); of a suspended model the bytes that
 *                stayed; and until a leaving model has left, all of its bytes
 *   for a request   the promised bytes, from the grant to the end of the request
 *   for an unloaded model   the residue that it left behind, until another number is told; when the model is loaded
 *                again, the residue counts beside its bytes
 * Invariant: taken <= the ceiling at every decision that takes more. A ceiling may fall below the taken bytes, and the
 * measured bytes may exceed the reservation: then nothing more is taken, and idle models leave until the ceiling is
 * met.
 *
 * A request that needs other models to leave has an earmark. Victims are chosen as a whole. While they leave, the bytes
 * that they free, and the bytes that were free before, are kept for the earmark's model. If idle models are not enough
 * and the request has waited for `passing`, the models in the way get no new requests until they are idle
 * (WP_WAITS_OTHERS).
 *
 * Not thread safe: the caller holds one lock around every call. Units: bytes, nanoseconds. */
#ifndef WEIR_POOL_ADMISSION_H
#define WEIR_POOL_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WP_FOREVER UINT64_MAX
enum { WP_VARIANTS = 16, WP_NAME = 64 };

typedef struct wp_admission wp_admission;
typedef uint32_t wp_model;  /* a model on its device: a place in the table, used again when it was removed */
typedef uint64_t wp_ticket; /* a request; from 1, never used again */

typedef enum wp_state {
    WP_UNLOADED = 0,
    WP_LOADING = 1,
    WP_LOADED = 2,
    WP_SUSPENDING = 3,
    WP_SUSPENDED = 4,
    WP_RESUMING = 5,
    WP_UNLOADING = 6,
    WP_FAILED = 7, /* a load failed: it is tried again for a request after `retry` */
    WP_STATES
} wp_state;

/* What the pool may do to load a model, beyond loading the whole model on its own device into free bytes. A model has a
 * list of steps, tried in order: each step is allowed beside the earlier steps, and the first step that leads to a way
 * ends the search. A step that is not in the list is not taken. */
typedef enum wp_step {
    WP_STEP_CONTEXT, /* a variant with other settings, as a shorter context */
    WP_STEP_LAYERS,  /* a variant with fewer layers on the device */
    WP_STEP_SUSPEND, /* other models are suspended */
    WP_STEP_EVICT,   /* other models leave in the cheapest way: unloaded or suspended */
    WP_STEP_DEVICE,  /* the model comes to another device */
    /* Last: the request waits for busy models. Without this step such a request is refused (WP_NO_ROOM). */
    WP_STEP_WAIT,
    WP_STEPS
} wp_step;

/* One way to load the model, cheapest loss first: variant 0 is as the manifest says on the model's own device, the
 * others give something up, or are on another device. A model that is loaded is never changed to another variant; the
 * choice is made at each load. */
typedef struct wp_variant {
    uint64_t peak;     /* bytes while it is loaded */
    uint64_t resident; /* afterwards */
    uint32_t context;  /* tokens, for people; 0: none */
    int32_t layers;    /* on the device; -1: all */
    uint32_t on;       /* 0: on the model's own device; else on the device of that number less one */
    /* Gives up the same as the variant before, on another device. Of such variants the first that needs no victims is
     * taken, else the variant with the cheapest victims. */
    bool same;
    /* What the variant gives up: WP_STEP_CONTEXT or WP_STEP_LAYERS; of variant 0 and its `same` variants: nothing,
     * whatever the value. */
    wp_step gives;
} wp_variant;

typedef struct wp_spec {
    char name[WP_NAME];
    uint32_t device; /* the model's own device, which is tried first */
    wp_variant variants[WP_VARIANTS];
    uint32_t variant_count; /* at least one */
    uint64_t stays;         /* bytes that a suspend leaves on the device */
    uint64_t host;          /* bytes of the host that the copy takes while suspended */
    bool can_suspend, may_evict, pinned;
    wp_step steps[WP_STEPS];
    uint32_t step_count; /* 0: device, evict, context, layers, wait; */
    bool shrink_first;   /* then with true: device, context, layers, evict, wait */
    /* Priority of the model's requests: higher first; and a model of higher priority may end others' minimum stay. */
    int32_t priority;
    uint32_t weight;                               /* share of grants among models of the same priority; from 1 */
    uint64_t load_time, resume_time, suspend_time; /* expected; what is measured replaces them */
    uint64_t evict_cost;                           /* nanoseconds added to the cost of an eviction */
    /* Time after a load or resume in which the model is no victim, but for a higher priority. */
    uint64_t minimum_stay;
    uint64_t keep_alive;    /* time from the last request to the unload; WP_FOREVER: never */
    uint64_t suspend_after; /* time from the last request to the suspend; WP_FOREVER: never */
    uint32_t slots;         /* requests that run at once; further requests wait */
} wp_spec;

typedef struct wp_limits {
    uint32_t queue;       /* most waiting requests of the pool; 0: none waits */
    uint64_t queue_bytes; /* most promised bytes of waiting requests; 0: only requests without bytes may wait */
    uint64_t longest;     /* longest wait of a request, nanoseconds */
    /* Time until a model that could not be loaded is tried again; doubled after each further failure in a row, up to
     * sixteen times. */
    uint64_t retry;
    uint64_t host; /* bytes of the host for copies of suspended models */
    /* How long requests for loaded models may pass a request that needs a swap: since that request came, or since the
     * loaded model came, whichever is later. */
    uint64_t passing;
} wp_limits;

typedef struct wp_request {
    wp_model model;
    uint64_t bytes;    /* bytes that the request will take beside the model: KV growth, scratch */
    uint64_t deadline; /* time at which the request is refused if not granted; WP_FOREVER: the pool's `longest` */
    int32_t priority;  /* added to the model's */
} wp_request;

typedef enum wp_cause {
    WP_GRANTED = 0,
    WP_WAITS_BUSY,    /* all slots of the model are taken */
    WP_WAITS_LOADING, /* the model is on its way in, or comes when another model's load has ended */
    WP_WAITS_ROOM,    /* the models in the way are busy, pinned or moving */
    WP_WAITS_OTHERS,  /* other requests go first */
    /* Not even when every model that may leave has left: `limit` is the ceiling less the bytes that stay (pinned models
     * that are here), `need` the bytes, `fits` and `variant` the largest that would fit. */
    WP_NEVER_FITS,
    WP_QUEUE_FULL,  /* 429: too many wait, or too many bytes */
    WP_TOO_LATE,    /* 503: not granted within its time */
    WP_LOAD_FAILED, /* 503: the model could not be loaded; not tried again before `until` */
    WP_CANCELLED,
    WP_REMOVED, /* the model is going */
    WP_PINNED,  /* by hand: it is pinned, or cannot be suspended */
    WP_NO_ROOM, /* 503: the request would have to wait for room, and the model's steps do not allow that */
    WP_CAUSES
} wp_cause;

/* What is known about a request. Numbers are of the moment of the decision. */
typedef struct wp_answer {
    wp_ticket ticket;
    wp_cause cause;
    uint32_t position; /* among waiting requests, from 1; 0: granted or refused */
    uint64_t expected; /* nanoseconds until the grant, as far as can be told; 0: now */
    /* Refusals: the needed bytes and the limit that they exceed; a full queue: also numbers of requests. */
    uint64_t need, limit;
    uint64_t fits;    /* never fits: the largest request that could be met, bytes; 0: none, or one without bytes */
    uint32_t variant; /* never fits: the first variant that could be loaded; WP_VARIANTS: none */
    uint32_t context; /* its context and layers */
    int32_t layers;
    uint64_t until; /* load failed: time before which the model is not tried again */
} wp_answer;

typedef enum wp_action_kind {
    WP_LOAD,    /* model in `variant`; answer with wp_loaded */
    WP_SUSPEND, /* answer with wp_suspended */
    WP_RESUME,  /* answer with wp_resumed */
    WP_UNLOAD,  /* answer with wp_unloaded */
    WP_GRANT,   /* the request may run; it is ended with wp_done */
    WP_REFUSE,  /* the request is over */
    /* No request wants the model that is being loaded: the load may be given up. Answer as if there were no such
     * action, or with wp_stopped. */
    WP_STOP
} wp_action_kind;

typedef struct wp_action {
    wp_action_kind kind;
    wp_model model;
    uint32_t variant;
    uint32_t device; /* the model's, from here on */
    /* Reserved for the model, at least: of a load the peak, of a resume the resident bytes, of a suspend the bytes that
     * stay; else 0. */
    uint64_t bytes;
    wp_answer answer; /* of WP_GRANT and WP_REFUSE */
    wp_ticket why;    /* the request that caused the action; 0: time, a call, or the ceiling */
} wp_action;

/* ---- making ------------------------------------------------------------------------------------------------------ */

wp_admission *wp_admission_create(const wp_limits *limits, uint32_t devices); /* NULL: no memory */
void wp_admission_destroy(wp_admission *it);

/* Adds a model, which may be asked for from now on. The number of its device is below `devices`. False: no memory. */
bool wp_add(wp_admission *it, uint64_t now, const wp_spec *spec, wp_model *out);
/* Changes the spec, but for the model's device and the devices of existing variants. Moves no bytes; the next decision
 * sees the new spec. */
void wp_change(wp_admission *it, uint64_t now, wp_model model, const wp_spec *spec);
/* Removes a model: new requests (WP_REMOVED) and waiting requests are refused. The model is unloaded when idle, pinned
 * or not, and forgotten when it is unloaded and has no residue. A load of the model is stopped. */
void wp_remove(wp_admission *it, uint64_t now, wp_model model);
void wp_ceiling(wp_admission *it, uint64_t now, uint32_t device, uint64_t bytes);

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

/* Makes a request. The answer is granted, waits or refused; a waiting request gets an action later. Never calls for an
 * eviction that does not lead to the grant: a request that can never fit is refused first. */
wp_answer wp_ask(wp_admission *it, uint64_t now, const wp_request *request);
void wp_done(wp_admission *it, uint64_t now, wp_ticket ticket); /* a granted request has ended */
/* Cancels a waiting request: WP_REFUSE follows. With `stops` also WP_STOP follows, if the model is being loaded for
 * requests and this was the last of them. Do not set `stops` for a request whose time is over: else a model that loads
 * longer than its requests wait would never be loaded. False: no such request waits. */
bool wp_cancel(wp_admission *it, uint64_t now, wp_ticket ticket, bool stops);
/* The present state of a waiting request. */
wp_answer wp_look(const wp_admission *it, uint64_t now, wp_ticket ticket);

/* By hand: WP_LOADED (loaded or resumed without a request), WP_SUSPENDED, WP_UNLOADED. True: the model has that state,
 * or is on its way to it. False, with the cause: the model is busy, on another way, or pinned, or there is no room
 * without a victim that is not idle. */
bool wp_want(wp_admission *it, uint64_t now, wp_model model, wp_state state, wp_answer *why);

/* ---- what has happened ------------------------------------------------------------------------------------------- */

/* `resident`: bytes measured; `took`: nanoseconds, 0: not known. A failure frees what was reserved: a model that could
 * not be resumed is unloaded next, one that could not be suspended stays loaded. `residue`: bytes that stayed behind.
 *
 * After a load that failed for want of memory, `resident` is the least that the load would have needed (0: the load
 * failed for another reason). This becomes the variant's peak, and the model's requests are looked at again at once: a
 * smaller variant, or the same with more bytes. After as many such failures as the model has variants, the next counts
 * as an ordinary failure. */
void wp_loaded(wp_admission *it, uint64_t now, wp_model model, bool ok, uint64_t resident, uint64_t took);
/* The load was given up for a WP_STOP, and left no bytes. This is no failure; requests that came meanwhile load the
 * model again. */
void wp_stopped(wp_admission *it, uint64_t now, wp_model model);
void wp_suspended(wp_admission *it, uint64_t now, wp_model model, bool ok, uint64_t stays, uint64_t took);
void wp_resumed(wp_admission *it, uint64_t now, wp_model model, bool ok, uint64_t resident, uint64_t took);
void wp_unloaded(wp_admission *it, uint64_t now, wp_model model, uint64_t residue);
/* Reports the measured bytes of a loaded model, at any time, or the residue of an unloaded model. */
void wp_measured(wp_admission *it, uint64_t now, wp_model model, uint64_t resident);
void wp_tick(wp_admission *it, uint64_t now); /* time has passed: keep-alive, deadlines, retries */
uint64_t wp_wake(const wp_admission *it);     /* when wp_tick is to be called at the latest; WP_FOREVER */

/* The next action, in order; false: none. Call it until then after each of the calls above. */
bool wp_next(wp_admission *it, wp_action *out);

/* ---- looking ----------------------------------------------------------------------------------------------------- */

typedef struct wp_view {
    wp_state state;
    uint32_t device; /* present or last device */
    uint32_t variant, running, waiting;
    uint64_t taken, promised, resident; /* bytes; taken without what is promised; resident when it is loaded */
    uint64_t used, since;               /* times at which the last request ended and the state began */
    uint64_t loads, resumes, suspends, failures;
    uint64_t evictions; /* unloads for another model or for the ceiling */
    uint64_t load_time, resume_time, suspend_time;
    uint64_t retry; /* failed: when it may be tried again */
} wp_view;

wp_view wp_see(const wp_admission *it, wp_model model);
uint64_t wp_taken(const wp_admission *it, uint32_t device);
uint64_t wp_bound(const wp_admission *it, uint32_t device); /* the ceiling */
bool wp_invariants(const wp_admission *it); /* for tests and debug builds: sums, states, queues; without side effects */

#endif
