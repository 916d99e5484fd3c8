/* weir/pool.h: more models than the device can hold, called by name.
 *
 * A program adds models to a pool, and asks it for one by name. The pool loads it when it is asked for, keeps it while there
 * is room, and suspends or unloads what has no work when something else wants the room. A request is granted, waits in a
 * queue that has an end, or is refused with numbers. What a request is granted is a lease: while it lasts the model stays
 * where it is. Several leases of one model run in the same loaded model: its weights are there once.
 *
 * What it takes. Before a load the bytes that it is predicted to take at its peak are guaranteed to the model's client
 * (weir/client.h), so that no other client gets them meanwhile; then what was measured. A request may say how many bytes its
 * run will take beside; they are guaranteed from the grant to the end of the lease. What the pool may take of a device is its
 * budget, less what clients that are no models of the pool have or are guaranteed there; that is looked at again for each
 * decision that is a millisecond after the last.
 *
 * What can never fit is refused at once, and nothing is moved for it. A model with a lease, a pinned one, and one that came a
 * moment ago (minimum_stay) is no victim. Of the others the set goes that is cheapest to bring back. docs/guide/pool.md
 * shows all that at work; docs/decisions.md says why.
 *
 * A pool has one lock, which is held while it decides and never while anything of an engine or a device is called. Loads,
 * suspends and unloads are made by threads of the pool, several at once. Unless said otherwise a function may be called from
 * any thread, and answers WEIR_ERR_FORKED in a child of the process and WEIR_ERR_INVALID for NULL and structures without a
 * size. Times are nanoseconds. Names and texts that are given are copied. */
#ifndef WEIR_POOL_H
#define WEIR_POOL_H

#include <weir/model.h>

WEIR_BEGIN

typedef struct weir_pool weir_pool;
typedef struct weir_lease weir_lease;

#define WEIR_POOL_NONE UINT64_MAX /* of a limit that is 0 by default: none at all */

/* Where a model is in its life. */
typedef enum weir_pool_state {
    WEIR_POOL_UNLOADED = 0,
    WEIR_POOL_LOADING = 1,
    WEIR_POOL_LOADED = 2,
    WEIR_POOL_SUSPENDING = 3,
    WEIR_POOL_SUSPENDED = 4,
    WEIR_POOL_RESUMING = 5,
    WEIR_POOL_UNLOADING = 6,
    WEIR_POOL_FAILED =
        7, /* could not be loaded; tried again for a request, but not at once (weir_pool_options.retry) */
    WEIR_POOL_STATE_COUNT
} weir_pool_state;

/* The outcome of a request, or the reason for its wait. */
typedef enum weir_pool_cause {
    WEIR_POOL_GRANTED = 0,
    WEIR_POOL_WAITS_BUSY = 1,    /* no slot of the model is free */
    WEIR_POOL_WAITS_LOADING = 2, /* its model is on its way in, or waits for another one's load */
    WEIR_POOL_WAITS_ROOM = 3,    /* what is in the way is busy, pinned or on its way */
    WEIR_POOL_WAITS_TURN = 4,    /* others are before it */
    WEIR_POOL_NEVER_FITS = 5,    /* not with an empty device */
    WEIR_POOL_QUEUE_FULL = 6,    /* too many wait, or too many bytes */
    WEIR_POOL_TOO_LATE = 7,      /* not granted within its time */
    WEIR_POOL_LOAD_FAILED = 8,
    WEIR_POOL_CANCELLED = 9,
    WEIR_POOL_REMOVED = 10,
    WEIR_POOL_PINNED = 11,  /* by hand: it is pinned, or cannot be suspended; of no request */
    WEIR_POOL_NO_ROOM = 12, /* it would have to wait for room, and what its model may give up has no wait */
    WEIR_POOL_CAUSE_COUNT
} weir_pool_cause;

/* "loaded", "never-fits"; "?" for a number that is none. Static storage. */
WEIR_API const char *weir_pool_state_name(weir_pool_state state);
WEIR_API const char *weir_pool_cause_name(weir_pool_cause cause);

/* ---- making ------------------------------------------------------------------------------------------------------ */

typedef struct weir_pool_device {
    const char *device;    /* "host", "cuda:0" */
    weir_runtime *runtime; /* use this one instead of weir_runtime_get(device); stays open as long as the pool */
} weir_pool_device;

/* Something that happened, for logs and statistics. Texts are valid during the call. */
typedef enum weir_pool_event_kind {
    WEIR_POOL_EVENT_DECIDED = 0,   /* an input of the state machine, or an action of it: `line` alone is set */
    WEIR_POOL_EVENT_LOADING = 1,   /* bytes: reserved, as predicted */
    WEIR_POOL_EVENT_LOADED = 2,    /* bytes: measured, and guaranteed from here on */
    WEIR_POOL_EVENT_FAILED = 3,    /* a load, a resume or a suspend; detail: why */
    WEIR_POOL_EVENT_SUSPENDED = 4, /* bytes: that stayed */
    WEIR_POOL_EVENT_RESUMED = 5,   /* bytes: measured */
    WEIR_POOL_EVENT_UNLOADED = 6,  /* bytes: that came back */
    WEIR_POOL_EVENT_REMOVED = 7,   /* the model is no longer listed; the pool needs nothing of its spec any longer */
    WEIR_POOL_EVENT_UNHEALTHY = 8, /* it is taken out, and loaded again for the next request; detail: why */
    WEIR_POOL_EVENT_REFUSED = 9,   /* a request; detail: the sentence given to the caller */
    WEIR_POOL_EVENT_STOPPED =
        10, /* a load, as no request waits for the model any longer; nothing of the load is left. bytes: that were
               reserved */
    WEIR_POOL_EVENT_PROMISED = 11, /* a request with bytes is granted; bytes: its own */
    WEIR_POOL_EVENT_COUNT
} weir_pool_event_kind;

typedef struct weir_pool_event {
    size_t struct_size;
    weir_pool_event_kind kind;
    uint64_t time;                       /* of the system's monotonic clock */
    const char *name, *version, *device; /* "" where none is meant */
    uint64_t bytes;
    const char *detail; /* "" */
    /* Of WEIR_POOL_EVENT_DECIDED: a line of the decisions' log, in the order in which they were made. All lines of a pool,
     * one behind the other in a file, are what a replay needs. The first says how the pool was made. */
    const char *line;
} weir_pool_event;

typedef struct weir_pool_options {
    size_t struct_size;
    const weir_pool_device *devices; /* that models may be on; none: the host */
    size_t device_count;
    uint64_t queue;        /* most requests that may wait; 0: 512; WEIR_POOL_NONE */
    uint64_t queue_bytes;  /* most bytes that waiting requests may ask for together; 0: no limit */
    uint64_t longest_wait; /* of any request; 0: 60 s */
    /* How long requests for loaded models go before a request that needs another model's place; 0: 1 s;
     * WEIR_POOL_NONE: not at all */
    uint64_t passing;
    /* A model that could not be loaded is not tried again for so long, twice as long after each further failure in a row, up to
     * sixteen times. 0: 5 s; WEIR_POOL_NONE. */
    uint64_t retry;
    uint64_t
        host_bytes; /* for copies of suspended models; 0: as many as the host's budget has; WEIR_POOL_NONE: no model is
                              suspended */
    uint32_t threads; /* loads, suspends and unloads at once; 0: 4; at most 64 */
    /* Gets every event in order, one at a time, with no lock held, on a thread that has made an event: it should be
     * quick. It may call the pool, but for weir_pool_destroy. */
    void (*event)(const weir_pool_event *event, void *user);
    void *user;
} weir_pool_options;

/* Makes a pool. `options` may be NULL. Errors: those of weir_runtime_get; WEIR_ERR_INVALID (a device twice), WEIR_ERR_SYSTEM
 * (threads, host memory). */
WEIR_API WEIR_NODISCARD weir_status weir_pool_create(const weir_pool_options *options, weir_pool **out);

/* Ends the pool: refuses waiting requests as cancelled, stops loads under way or waits for them, then unloads all
 * models.
 * Errors: WEIR_ERR_BUSY while leases are out: nothing has changed; or when loads, or results that are not released,
 * last longer than the pool's longest wait: the pool takes no requests any more, and this function is to be called
 * again. WEIR_ERR_ENGINE: the pool is gone, but an engine has kept memory, which stays charged; the detail names the
 * first.
 * No other call may begin meanwhile; calls that wait in the pool answer first. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_destroy(weir_pool *pool);

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* What may be done so that a model can be had, where what is free on its device is not enough for the whole of it. */
typedef enum weir_pool_step {
    WEIR_POOL_STEP_CONTEXT = 0, /* a variant with other settings, as a shorter context */
    WEIR_POOL_STEP_LAYERS = 1,  /* a variant with fewer layers on the device */
    WEIR_POOL_STEP_SUSPEND = 2, /* other models are suspended */
    WEIR_POOL_STEP_EVICT = 3,   /* other models leave in whichever way is cheapest: unloaded, or suspended */
    WEIR_POOL_STEP_DEVICE = 4,  /* the model comes to another of its devices */
    WEIR_POOL_STEP_WAIT = 5,    /* its requests wait for room; else they are refused then (WEIR_POOL_NO_ROOM) */
    WEIR_POOL_STEP_COUNT
} weir_pool_step;

/* "context", "evict"; "?" for a number that is none. Static storage. */
WEIR_API const char *weir_pool_step_name(weir_pool_step step);

/* Another way to have a model, that gives something up: settings that replace or join those of the model. */
typedef struct weir_pool_variant {
    size_t struct_size;
    const weir_setting *settings;
    size_t setting_count;
    uint64_t peak;        /* bytes; 0: the engine is asked */
    uint32_t context;     /* tokens, for people and refusals; 0 */
    int32_t layers;       /* on the device, for people; -1 */
    weir_pool_step gives; /* WEIR_POOL_STEP_CONTEXT (0) or WEIR_POOL_STEP_LAYERS: the step that it is */
} weir_pool_variant;

/* A model as the pool is to know it. 0 and NULL stand for what is usual. */
typedef struct weir_pool_spec {
    size_t struct_size;
    const char *name;    /* by which it is asked for, up to 63 bytes; NULL: the manifest's, else the file's */
    const char *version; /* for people, and to replace one by another; NULL: the manifest's, else "" */
    /* What is loaded: the model at `path` (as of weir_model_create), or the manifest's, which stays valid until
     * WEIR_POOL_EVENT_REMOVED, or until the pool is destroyed. A manifest's model is chosen for (weir/select.h) at each
     * load, on the device of that load alone. */
    const char *path;
    const weir_manifest *manifest;
    const char *engine;           /* NULL: by the file, or as the manifest has it */
    const char *device;           /* one of the pool's; NULL: its first */
    const weir_setting *settings; /* before the manifest's of the same key */
    size_t setting_count;
    /* What may be given up where there is no room for all of it, cheapest loss first; at most 7. A loaded model is never
     * changed to another variant. */
    const weir_pool_variant *variants;
    size_t variant_count;
    bool
        shrink_first; /* a later variant that needs no victims goes before an earlier one that does; without gives_up */
    uint64_t peak;    /* bytes that a load takes at most; 0: the engine is asked, else the size of the file */
    uint64_t guaranteed, maximum; /* of its client while it is loaded, at least and at most; 0: what is measured; the
                                     budget. With a manifest: 0 is the manifest's */
    uint32_t slots;               /* leases at once; 0: 1 */
    bool pinned;                  /* never a victim, nor unloaded for lack of requests */
    bool stays;                   /* never suspended */
    bool first_run;               /* the engine's warm-up is part of the load */
    bool load_now;                /* weir_pool_add loads it, and fails if that fails */
    int32_t priority;             /* of its requests: higher first; and it may end another's minimum stay */
    uint32_t weight;              /* share of grants among models of the same priority; 0: 1 */
    uint64_t keep_alive;          /* time from the last lease to an unload; 0: never */
    uint64_t suspend_after;       /* time from the last lease to a suspend; 0: never */
    uint64_t minimum_stay;        /* no victim for so long after it came; 0: 1 s; WEIR_POOL_NONE: none */
    uint64_t evict_cost;          /* added to the time that bringing it back takes, when victims are looked for */
    /* Others of the pool's devices that it may be on, beside `device`, which is asked first. Of several that would do without
     * others leaving the first is taken, else the one where that costs least. A loaded model does not move. Every
     * variant is predicted for every device; variants times devices are at most 16. */
    const char *const *devices;
    size_t device_count;
    /* What may be given up for it, in this order; each once, and a wait last. Each step is allowed beside those before it,
     * and the first that leads to a way ends the search; what is not listed is not done. None: device, evict, context, layers,
     * wait; with shrink_first device, context, layers, evict, wait. A step that nothing stands for is WEIR_ERR_INVALID
     * (context without variants, device without other devices), as is a variant that no step allows. Layers without a
     * variant of that kind: the pool makes up to four, with as many layers on the device as fit into all, three quarters, a
     * half and a quarter of what it may take there (weir_predict_fit). */
    const weir_pool_step *gives_up;
    size_t gives_up_count;
    bool prepare; /* each load has host memory for the first suspend made in the background, as in weir_model_options */
} weir_pool_spec;

/* Adds a model, or another version of a model, and predicts its memory. Without `load_now` the model is
 * not loaded yet.
 *
 * Where the name is there already with another version, this replaces it without a gap: if the one that is there is loaded,
 * on its way in, or has requests, the new one is loaded beside it, and only then gets the requests, also those that wait;
 * the old one ends what runs, and is unloaded. The call waits for the load, up to the pool's longest wait. On failure the
 * old one goes on as if nothing had been.
 *
 * Errors: WEIR_ERR_CONFLICT (the name with this version is there, or is being replaced), WEIR_ERR_NOT_FOUND (file, engine,
 * device), WEIR_ERR_OUT_OF_MEMORY (load_now or a replacement: no room; the detail has the numbers), WEIR_ERR_UNSUPPORTED (a
 * manifest whose device here has another runtime than the process's, or that no engine takes), WEIR_ERR_CANCELLED (the pool
 * ends, or the model was removed meanwhile), what the engine says of the file and of settings, and what a load fails with. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_add(weir_pool *pool, const weir_pool_spec *spec);

/* What has become of the memory of a model. */
enum { WEIR_POOL_HOLDERS = 8 };

typedef struct weir_pool_receipt {
    size_t struct_size;
    bool complete;                    /* all came back: kept and elsewhere are 0 */
    uint64_t before[WEIR_CLASS_MOST]; /* by weir_class: live and away when its last run had ended */
    uint64_t before_total;            /* the sum of `before`, and the pending bytes */
    uint64_t returned;                /* of before_total: bytes that have left the account */
    uint64_t kept;                    /* bytes still in the account, as the engine did not free them */
    /* Bytes that accounts other than the pool's models have gained on that device since the load: by the model's
     * engine, or by other work of the program. */
    uint64_t elsewhere;
    uint32_t holders; /* so many of holder[] are filled, the most bytes first */
    struct {
        char client[64];
        uint64_t bytes;
        bool own; /* its own account: part of `kept`; else of `elsewhere` */
    } holder[WEIR_POOL_HOLDERS];
    double drain_ms, unload_ms; /* until its last lease had ended; and that the unload took */
} weir_pool_receipt;

/* Takes a model out of the pool: refuses new requests for the model, refuses waiting requests as removed, waits for
 * leases, then unloads the model.
 * `wait`: the limit of the wait for leases; 0: not at all.
 * `receipt`: may be NULL; all 0 for a model that was not loaded.
 * Errors: WEIR_ERR_BUSY (leases or results are still out; the model gets no more requests, and goes when they end),
 * WEIR_ERR_NOT_FOUND (no such name). */
WEIR_API WEIR_NODISCARD weir_status weir_pool_remove(weir_pool *pool, const char *name, uint64_t wait,
                                                     weir_pool_receipt *receipt);

/* By hand, and done at return, for which `wait` is the limit (0: the pool's longest wait). Load also resumes. Unload and
 * suspend wait for leases; requests that come meanwhile may be granted first. A model that is there already, or gone
 * already, is WEIR_OK. Unload takes a pinned model as well, and it stays pinned; suspend does not. Errors: WEIR_ERR_NOT_FOUND;
 * WEIR_ERR_BUSY (in use or moving longer than `wait`; suspend: pinned); WEIR_ERR_OUT_OF_MEMORY (load: no room beside
 * what is in use); WEIR_ERR_UNSUPPORTED (suspend: its engine cannot); what a load or resume fails with. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_load(weir_pool *pool, const char *name, uint64_t wait);
WEIR_API WEIR_NODISCARD weir_status weir_pool_suspend(weir_pool *pool, const char *name, uint64_t wait);
WEIR_API WEIR_NODISCARD weir_status weir_pool_unload(weir_pool *pool, const char *name, uint64_t wait,
                                                     weir_pool_receipt *receipt);
/* Whether it is pinned from here on. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_pin(weir_pool *pool, const char *name, bool pinned);
/* Unloaded so long after its last lease from here on, instead of the spec's `keep_alive`. 0: as soon as nothing runs or waits;
 * WEIR_POOL_NONE: never for lack of requests, though it may still make room for others. WEIR_ERR_NOT_FOUND: no such name. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_keep(weir_pool *pool, const char *name, uint64_t keep_alive);

/* ---- requests ---------------------------------------------------------------------------------------------------- */

typedef struct weir_pool_request {
    size_t struct_size;
    const char *name;
    uint64_t id;      /* the caller's name for it, for weir_pool_cancel; 0: none */
    uint64_t bytes;   /* of device memory that the run will take beside the model; guaranteed while the lease lasts */
    uint64_t wait;    /* 0: the pool's longest wait; WEIR_POOL_NONE: not at all */
    int32_t priority; /* added to the model's */
} weir_pool_request;

/* How it went. */
typedef struct weir_pool_answer {
    size_t struct_size;
    weir_pool_cause cause;
    uint32_t position;    /* of those that wait, from 1: when it was asked; 0: it did not wait */
    uint64_t expected;    /* time that it was expected to wait then; 0: none, or nobody can tell */
    uint64_t waited;      /* time that it did */
    uint64_t need, limit; /* refused: bytes needed, and bytes allowed */
    /* Refused for its size: the most bytes that a request of the model could ask for (0: none, or one without bytes); and the
     * context of the first variant that could be loaded (0: none, or it is not told). */
    uint64_t fits;
    uint32_t context;
    uint64_t retry_after; /* refused: time until it may be worth while to ask again; 0: not known */
} weir_pool_answer;

/* Asks for a model. WEIR_OK: *out is a lease, to be given back with weir_lease_release. `answer` may be NULL; it is filled
 * in either case. Refusals, by their cause: WEIR_ERR_OUT_OF_MEMORY (NEVER_FITS; or WAITS_ROOM: clients outside of the pool
 * have taken the bytes meanwhile), WEIR_ERR_BUSY (QUEUE_FULL, TOO_LATE; with `wait` WEIR_POOL_NONE any that waits),
 * WEIR_ERR_CANCELLED (CANCELLED), WEIR_ERR_NOT_FOUND (no such name; REMOVED), and what the load failed with (LOAD_FAILED).
 * The detail says it in words. Not from inside a run of a model of the pool that waits for the answer. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_acquire(weir_pool *pool, const weir_pool_request *request,
                                                      weir_pool_answer *answer, weir_lease **out);

/* The model, for weir_model_infer and what else only looks at it or stops runs; not to be suspended or destroyed. Valid
 * until the lease is released. */
WEIR_API weir_model *weir_lease_model(const weir_lease *lease);
/* The version that serves; valid as long. */
WEIR_API const char *weir_lease_version(const weir_lease *lease);

/* Ends the lease; NULL is nothing. Results of its runs are to be released before, but for those of weir_pool_infer, which it
 * releases. Asks the model for its health: one that is not well is unloaded when its other leases have ended, and requests
 * from here on get one that is loaded again. */
WEIR_API void weir_lease_release(weir_lease *lease);

/* Acquire and infer: *out are the results, which stay until *lease is released. On failure there is no lease. A cancel by
 * the request's id reaches the wait; one by the inference's id (weir_model_cancel) the run. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_infer(weir_pool *pool, const weir_pool_request *request,
                                                    const weir_inference *inference, weir_outputs *out,
                                                    weir_pool_answer *answer, weir_lease **lease);

/* Ends the waiting of all requests with that id, which answer WEIR_ERR_CANCELLED at once. A load that was begun for them, and
 * that nobody else waits for, is stopped where its engine can do that (gguf and onnx can), and nothing of it is left; a
 * request whose time is over stops none. WEIR_ERR_NOT_FOUND: none waits. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_cancel(weir_pool *pool, uint64_t id);
/* How a request with that id that waits stands now: cause, position, expected and waited. WEIR_ERR_NOT_FOUND: none waits. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_waiting(weir_pool *pool, uint64_t id, weir_pool_answer *out);

/* ---- looking ----------------------------------------------------------------------------------------------------- */

typedef struct weir_pool_entry {
    size_t struct_size;
    char name[64], version[64], device[32]; /* the device that it is on, or was last; else its first */
    weir_pool_state state;
    char why[256]; /* of one that failed, or is being taken out for its health: the reason; "" */
    bool current;  /* this version gets the requests of the name; else it is being replaced or removed, or about to
                      replace */
    bool pinned;
    uint32_t variant;                                    /* variant of the last load; 0: the whole model */
    uint64_t predicted_peak, predicted[WEIR_CLASS_MOST]; /* before its first load; by class, where the engine tells */
    uint64_t measured_peak, measured[WEIR_CLASS_MOST];   /* by its last load; 0: none yet. By class when it was done */
    uint64_t taken;    /* of the device now: reserved, measured or what stayed, and promised */
    uint64_t promised; /* of `taken`, for running requests */
    uint32_t running, waiting;
    uint64_t expires; /* time from now until it is suspended or unloaded for lack of requests; WEIR_POOL_NONE: not so */
    uint64_t load_time, resume_time; /* expected, from what was measured */
    uint64_t loads, resumes, suspends, evictions, failures;
    bool can_suspend; /* whether engine, spec and pool allow a suspend */
    double progress;  /* of a load that is under way, from 0 to 1, as its engine tells; else 0 */
} weir_pool_entry;

/* Lists all models, in the order of weir_pool_add: `entries` (may be NULL with capacity 0) gets up to `capacity`, with
 * entries[0].struct_size set by the caller; `count` gets how many there are. One moment. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_list(weir_pool *pool, weir_pool_entry *entries, size_t capacity,
                                                   size_t *count);

typedef struct weir_pool_usage {
    size_t struct_size;
    char device[32];
    uint64_t ceiling; /* what the pool may take now */
    uint64_t taken;
    uint32_t waiting; /* requests of the pool, on all devices */
} weir_pool_usage;

/* The device number `index` of the pool, from 0; WEIR_ERR_NOT_FOUND past the last. Looks at the ceiling again. */
WEIR_API WEIR_NODISCARD weir_status weir_pool_usage_info(weir_pool *pool, size_t index, weir_pool_usage *out);

WEIR_END
#endif
