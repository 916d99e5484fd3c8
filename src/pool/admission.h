/* admission.h: what a pool decides: which model is loaded, suspended or evicted, and which request runs, waits or is
 * refused.
 *
 * A state machine without threads, a clock, files or device memory. Whoever drives it tells it what happened and when
 * (wp_ask, wp_loaded …), and carries out the actions that it answers with (wp_next). The pool (pool.c) drives it with real
 * models, the simulator with doubles in virtual time, and a replay with the events of a trace. The same events in the same
 * order give the same actions: nothing in here depends on addresses, on hashes' order, or on a time that it was not told.
 *
 * Bytes. Each device has a ceiling: what the pool may take there. It changes with wp_ceiling. Taken are
 *   of a model   what it reserved, from the decision to load or resume it until that is done; then what was measured
 *                (never less than it is known to keep); of a suspended one what stayed; until it has left, all of it
 *   of a request what was promised, from the grant to its end
 *   of an unloaded model what it left behind (its residue), until another number is told; beside what it has when it is
 *                loaded again
 * Invariant: taken <= the ceiling at every decision that takes more. A ceiling may fall below what is taken, and what is
 * measured may be more than was reserved: then nothing more is taken, and idle models leave until it is met.
 *
 * A request that needs others to leave has a claim. Victims are chosen as a whole, and while they leave, the bytes that
 * they free, and those that were free before, are kept for the claim's model. If idle models are not enough and it has
 * waited for `passing`, those that are in the way get no new requests until they are idle (WP_WAITS_TURN).
 *
 * Not thread safe: its user holds one lock around each call. Units: bytes, nanoseconds. */
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

/* What may be done so that a model can be had, beyond loading the whole of it on its own device with what is free there. A
 * model has a list of them, which is gone through in its order: each step is allowed beside those before it, and the first
 * that leads to a way ends the search. What is not in the list is not done. */
typedef enum wp_step {
    WP_STEP_CONTEXT, /* a variant with other settings, as a shorter context */
    WP_STEP_LAYERS,  /* a variant with fewer layers on the device */
    WP_STEP_SUSPEND, /* others are suspended */
    WP_STEP_EVICT,   /* others leave in whichever way is cheapest: unloaded or suspended */
    WP_STEP_DEVICE,  /* it comes to another device */
    WP_STEP_WAIT,    /* last: the request waits for what is busy. Without it such a request is refused (WP_NO_ROOM) */
    WP_STEPS
} wp_step;

/* One way to have the model, cheapest loss first: 0 is as its manifest says on its own device, the others give something up,
 * or are on another device. A model that is loaded is never changed to another variant; the choice is made at each load. */
typedef struct wp_variant {
    uint64_t peak;     /* bytes while it is loaded */
    uint64_t resident; /* afterwards */
    uint32_t context;  /* tokens, for people; 0: none */
    int32_t layers;    /* on the device; -1: all */
    uint32_t on;       /* 0: on the model's own device; else on the device of that number less one */
    bool same;     /* it gives up what the one before it gives up, on another device: where either is possible without
                          victims the earlier goes first, else the one whose victims cost least */
    wp_step gives; /* what it gives up: WP_STEP_CONTEXT or WP_STEP_LAYERS; of the first and those that are the same:
                          nothing, whatever is here */
} wp_variant;

typedef struct wp_spec {
    char name[WP_NAME];
    uint32_t device; /* its own, which is asked first */
    wp_variant variants[WP_VARIANTS];
    uint32_t variant_count; /* at least one */
    uint64_t stays;         /* bytes that a suspend leaves on the device */
    uint64_t host;          /* bytes of the host that its copy takes while suspended */
    bool can_suspend, may_evict, pinned;
    wp_step steps[WP_STEPS];
    uint32_t step_count; /* 0: device, evict, context, layers, wait; */
    bool shrink_first;   /* then with true: device, context, layers, evict, wait */
    int32_t priority; /* of its requests: higher first; and a model of higher priority may end others' minimum stay */
    uint32_t weight;  /* its share of grants beside other models of its priority; from 1 */
    uint64_t load_time, resume_time, suspend_time; /* expected; what is measured replaces them */
    uint64_t evict_cost;                           /* nanoseconds that are added to the cost of throwing it out */
    uint64_t minimum_stay;  /* after a load or resume it is no victim for so long, but for a higher priority */
    uint64_t keep_alive;    /* after its last request it is unloaded so late; WP_FOREVER: never */
    uint64_t suspend_after; /* after its last request it is suspended so late; WP_FOREVER: never */
    uint32_t slots;         /* requests that it runs at once; the others wait */
} wp_spec;

typedef struct wp_limits {
    uint32_t queue;       /* requests that may wait, in all; 0: none waits */
    uint64_t queue_bytes; /* promised bytes of those that wait; 0: only those without bytes may */
    uint64_t longest;     /* the longest that any request waits, nanoseconds */
    uint64_t retry;       /* a model that could not be loaded is not tried again for so long; twice as long after each
                             further failure in a row, up to sixteen times */
    uint64_t host;        /* bytes of the host for copies of suspended models */
    uint64_t passing; /* requests for models that are here pass one that needs a swap for at most so long: since that
                             came, or since the model came, whichever is later */
} wp_limits;

typedef struct wp_request {
    wp_model model;
    uint64_t bytes;    /* that it will take beside the model: KV growth, scratch */
    uint64_t deadline; /* time at which it is refused if it was not granted; WP_FOREVER: the pool's `longest` */
    int32_t priority;  /* added to the model's */
} wp_request;

typedef enum wp_cause {
    WP_GRANTED = 0,
    WP_WAITS_BUSY,    /* all slots of its model are taken */
    WP_WAITS_LOADING, /* its model is on its way in, or its turn comes when another's load has ended */
    WP_WAITS_ROOM,    /* what is in the way is busy, pinned or on its way */
    WP_WAITS_TURN,    /* others are before it */
    WP_NEVER_FITS, /* not even when all that may leave has left: `limit` is the ceiling less what stays (models that are
                         pinned and here), `need` the bytes, `fits` and `variant` the largest that would */
    WP_QUEUE_FULL, /* 429: too many wait, or too many bytes */
    WP_TOO_LATE,   /* 503: not granted within its time */
    WP_LOAD_FAILED, /* 503: the model could not be loaded; not tried again before `until` */
    WP_CANCELLED,
    WP_REMOVED, /* the model is going */
    WP_PINNED,  /* by hand: it is pinned, or cannot be suspended */
    WP_NO_ROOM, /* 503: it would have to wait for room, and its list of steps does not allow that */
    WP_CAUSES
} wp_cause;

/* What is known about a request. Numbers are of the moment of the decision. */
typedef struct wp_answer {
    wp_ticket ticket;
    wp_cause cause;
    uint32_t position;    /* of those that wait, from 1; 0: granted or refused */
    uint64_t expected;    /* nanoseconds until it is granted, as far as can be told; 0: now */
    uint64_t need, limit; /* bytes that are short against what; refusals */
    uint64_t fits;        /* never fits: the largest request that could be met, bytes; 0: none, or one without bytes */
    uint32_t variant;     /* never fits: the first variant that could be loaded; WP_VARIANTS: none */
    uint32_t context;     /* its context and layers */
    int32_t layers;
    uint64_t until; /* could not be loaded: it is not tried again before */
} wp_answer;

typedef enum wp_action_kind {
    WP_LOAD,    /* model in `variant`; answer with wp_loaded */
    WP_SUSPEND, /* answer with wp_suspended */
    WP_RESUME,  /* answer with wp_resumed */
    WP_UNLOAD,  /* answer with wp_unloaded */
    WP_GRANT,   /* the request may run; it is ended with wp_done */
    WP_REFUSE,  /* the request is over */
    WP_STOP /* nobody wants what is being loaded: it may be given up. Answer as if there were no such action, or with
                   wp_stopped */
} wp_action_kind;

typedef struct wp_action {
    wp_action_kind kind;
    wp_model model;
    uint32_t variant;
    uint32_t device; /* the model's, from here on */
    uint64_t bytes;  /* reserved for it, at least: the peak; of a resume what it had; of a suspend what stays; else 0 */
    wp_answer answer; /* of WP_GRANT and WP_REFUSE */
    wp_ticket why;    /* the request that it is done for; 0: time, a call, or the ceiling */
} wp_action;

/* ---- making ------------------------------------------------------------------------------------------------------ */

wp_admission *wp_admission_create(const wp_limits *limits, uint32_t devices); /* NULL: no memory */
void wp_admission_destroy(wp_admission *it);

/* A model that may be asked for. False: no memory. Its device's number is below `devices`. */
bool wp_add(wp_admission *it, uint64_t now, const wp_spec *spec, wp_model *out);
/* Changes all but the devices of variants that are there. What it has is not moved; the next decision sees the new one. */
void wp_change(wp_admission *it, uint64_t now, wp_model model, const wp_spec *spec);
/* No new request is taken (WP_REMOVED), and those that wait are refused; it is unloaded when it is idle, pinned or not, and
 * forgotten when that is done and nothing is left of it. A load of it is stopped. */
void wp_remove(wp_admission *it, uint64_t now, wp_model model);
void wp_ceiling(wp_admission *it, uint64_t now, uint32_t device, uint64_t bytes);

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

/* A request. The answer is granted, waits or refused; one that waits has an action later. Never calls for an eviction that
 * does not lead to the grant: what can never fit is refused first. */
wp_answer wp_ask(wp_admission *it, uint64_t now, const wp_request *request);
void wp_done(wp_admission *it, uint64_t now, wp_ticket ticket); /* a granted one has ended */
/* One that waits: WP_REFUSE follows; with `stops` also WP_STOP, if its model is being loaded for requests, and it was the last
 * of them. Without it is for a request whose time is over: else a model that takes longer to come than its requests wait
 * would never come. False: none waits. */
bool wp_cancel(wp_admission *it, uint64_t now, wp_ticket ticket, bool stops);
wp_answer wp_look(const wp_admission *it, uint64_t now, wp_ticket ticket); /* one that waits, as it is now */

/* By hand: WP_LOADED (loaded or resumed without a request), WP_SUSPENDED, WP_UNLOADED. True: it is so, or on its way. False,
 * with the cause: it is busy, on another way, pinned, or there is no room without a victim that is not idle. */
bool wp_want(wp_admission *it, uint64_t now, wp_model model, wp_state state, wp_answer *why);

/* ---- what has happened ------------------------------------------------------------------------------------------- */

/* `resident`: bytes measured; `took`: nanoseconds, 0: not known. A failure frees what was reserved: a model that could not be
 * resumed is unloaded next, one that could not be suspended stays loaded. `residue`: bytes of it that stayed behind.
 *
 * A load that failed for want of memory says with `resident` what it would have had to have, at least (0: it failed for another
 * reason). That is the variant's peak from then on, and its requests have another turn at once: a smaller variant, or the
 * same with more bytes. It fails like any other when that has gone on for as often as it has variants. */
void wp_loaded(wp_admission *it, uint64_t now, wp_model model, bool ok, uint64_t resident, uint64_t took);
/* The load was given up for a WP_STOP, and nothing of it is left. It is no failure; who has come to want it has it loaded again. */
void wp_stopped(wp_admission *it, uint64_t now, wp_model model);
void wp_suspended(wp_admission *it, uint64_t now, wp_model model, bool ok, uint64_t stays, uint64_t took);
void wp_resumed(wp_admission *it, uint64_t now, wp_model model, bool ok, uint64_t resident, uint64_t took);
void wp_unloaded(wp_admission *it, uint64_t now, wp_model model, uint64_t residue);
/* Of a loaded one, at any time; of an unloaded one its residue. */
void wp_measured(wp_admission *it, uint64_t now, wp_model model, uint64_t resident);
void wp_tick(wp_admission *it, uint64_t now); /* time has passed: keep-alive, deadlines, retries */
uint64_t wp_wake(const wp_admission *it);     /* when wp_tick is to be called at the latest; WP_FOREVER */

/* The next action, in order; false: none. Call it until then after each of the calls above. */
bool wp_next(wp_admission *it, wp_action *out);

/* ---- looking ----------------------------------------------------------------------------------------------------- */

typedef struct wp_view {
    wp_state state;
    uint32_t device; /* where it is, or was last */
    uint32_t variant, running, waiting;
    uint64_t taken, promised, resident; /* bytes; taken without what is promised; resident when it is loaded */
    uint64_t used, since;               /* time of its last request's end, and of its state */
    uint64_t loads, resumes, suspends, failures;
    uint64_t evictions; /* unloaded for another's sake, or the ceiling's */
    uint64_t load_time, resume_time, suspend_time;
    uint64_t retry; /* failed: when it may be tried again */
} wp_view;

wp_view wp_see(const wp_admission *it, wp_model model);
uint64_t wp_taken(const wp_admission *it, uint32_t device);
uint64_t wp_bound(const wp_admission *it, uint32_t device); /* the ceiling */
bool wp_invariants(const wp_admission *it); /* for tests and debug builds: sums, states, queues; without side effects */

#endif
