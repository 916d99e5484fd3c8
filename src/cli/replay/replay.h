/* replay.h: replays of allocation traces. A trace becomes a plan, a list of operations, and a loop has an allocator do
 * them. The verbs replay, bench and plan use it. */
#ifndef WEIR_CLI_REPLAY_REPLAY_H
#define WEIR_CLI_REPLAY_REPLAY_H

#include <weir/weir.h>

/* The plan: load.c ------------------------------------------------------------------------------------------------- */

/* An allocation or a free. Blocks are slots of an array, so that the loop looks nothing up. */
typedef struct wi_replay_op {
    uint64_t bytes; /* of a free: the bytes of its block */
    uint32_t slot;
    uint16_t stream; /* its number in the plan */
    uint8_t memory_class;
    bool frees;
} wi_replay_op;

/* An event of a trace that could not be used. */
typedef struct wi_replay_problem {
    uint64_t line; /* in a binary trace: the event's number */
    const char *what;
} wi_replay_problem;

/* Whose a block was in the trace; "" where it does not say. */
typedef struct wi_replay_name {
    const char *client, *tag;
} wi_replay_name;

enum { WI_REPLAY_STREAMS = 1000, WI_REPLAY_PROBLEMS = 16, WI_REPLAY_NO_STREAM = UINT16_MAX };

typedef struct wi_replay_plan {
    char *name;
    wi_replay_op *ops;
    size_t count;
    uint64_t *lines; /* of each operation: the line, or the event's number */
    size_t *left;    /* the allocations that are never freed, and their names */
    wi_replay_name *left_names;
    size_t left_count;
    uint32_t slots;
    uint16_t streams, host_stream; /* the number of streams; the number of WEIR_STREAM_HOST, or WI_REPLAY_NO_STREAM */
    uint64_t allocations, frees;
    uint64_t refused;         /* allocations that failed when the trace was recorded; they are no operations */
    uint64_t leaves, returns; /* blocks of clients that were suspended and resumed: frees and allocations here */
    uint64_t empty;           /* rows and events of no bytes at no address; they are no operations */
    uint64_t unknown;         /* entries of a snapshot whose action has no meaning here */
    uint64_t peak;            /* the most that was live at once, as requested */
    uint64_t held;            /* the most that was held when the trace was recorded; 0: it does not say */
    uint64_t problem_count;
    wi_replay_problem problems[WI_REPLAY_PROBLEMS]; /* the first ones */
    uint64_t lost;                                  /* events that are known to be missing */
    bool binary, cut;                               /* lines are numbers of events; the file is cut off */
    struct recording *texts;                        /* the names */
} wi_replay_plan;

/* Reads RMM's CSV (weir's own among it, plain or gzip), weir's binary trace or a snapshot of PyTorch's allocator, told
 * apart by their content. What is no row, a free of an unknown pointer and an allocation where a block is live are
 * counted in the plan and left out. Operations come in the order of weir's numbers where the file has numbers; else in
 * the order of the file, unless its times go back: then rows_sort defines the order. `device` selects a device
 * of a snapshot of several devices, or is RECORDING_NO_DEVICE. WEIR_ERR_SYSTEM, WEIR_ERR_CORRUPT, WEIR_ERR_UNSUPPORTED;
 * also for a trace without an allocation. */
weir_status wi_replay_load_device(const char *path, int device, wi_replay_plan *out);
/* The same of a file of one device. */
weir_status wi_replay_load(const char *path, wi_replay_plan *out);
void wi_replay_plan_clear(wi_replay_plan *plan);

/* The allocator ---------------------------------------------------------------------------------------------------- */

typedef struct wi_replay_counts {
    uint64_t driver_calls;
    uint64_t moves;                   /* chunks that were moved, where counts_moves */
    uint64_t ladder[WEIR_RUNG_COUNT]; /* blocks by rungs, where counts_moves */
    uint64_t peak_held;
    bool counts_moves;
} wi_replay_counts;

/* Lag gates: the work of each stream trails the host by some operations. */
typedef struct wi_replay_lag_gates {
    void *user;
    weir_status (*put)(void *user, uint16_t stream, uint64_t at); /* behind operation `at`, on its stream */
    void (*reach)(void *user, uint64_t at);                       /* the host is at operation `at` */
    void (*open)(void *user);       /* opens all gates put before this operation: the host must not wait for itself */
    void (*rest)(void *user);       /* opens all at the end; streams are drained before the next operation 0 */
    uint64_t (*forced)(void *user); /* how often gates were opened because the host made no progress */
    void (*end)(void *user);
} wi_replay_lag_gates;

/* An allocator. The replay makes all calls from the same thread; stream numbers are those of the plan. */
typedef struct wi_replay_target wi_replay_target;

struct wi_replay_target {
    void *user;
    weir_status (*allocate)(void *user, const wi_replay_op *op, void **out);     /* may wait for pending frees */
    weir_status (*allocate_now)(void *user, const wi_replay_op *op, void **out); /* refuses instead; only with gates */
    weir_status (*release)(void *user, const wi_replay_op *op, void *pointer);
    weir_status (*drain)(void *user); /* waits for all streams */
    weir_status (*counts)(void *user, wi_replay_counts *out);
    const char *(*detail)(void); /* why the last call failed */
    wi_replay_lag_gates *gates;  /* NULL: none */
    /* As weir_layout_walk; NULL: not supported. */
    weir_status (*walk)(void *user, weir_layout_fn fn, void *to, weir_layout_totals *totals);
    /* Called after a pass, before what the trace leaves live is freed, with the blocks by their slots; NULL: nothing. */
    weir_status (*at_end)(void *user, const wi_replay_target *target, void *const *blocks);
    void *at_end_user;
};

/* How the allocator is opened: with a stream for each of the plan's. */
typedef struct wi_replay_world {
    const char *device;
    const char *resource;  /* NULL: weir's default */
    uint64_t budget;       /* 0: weir's default */
    uint64_t device_bytes; /* of a simulated device */
    uint64_t lag;          /* 0: no gates */
    uint16_t streams, host_stream;
} wi_replay_world;

typedef struct wi_replay_maker {
    weir_status (*open)(const wi_replay_world *how, wi_replay_target *out); /* on failure: detail() says why */
    weir_status (*close)(wi_replay_target *target);
    const char *(*detail)(void);
} wi_replay_maker;

/* Does nothing: measures the cost of the loop itself. */
extern const wi_replay_target wi_replay_null_target;

/* On the host and on GPUs, for a lag above 0. `streams`: weir's, by the plan's numbers. */
weir_status wi_replay_lag_gates_make(const wi_replay_world *how, weir_runtime *runtime, const weir_stream *streams,
                                     wi_replay_lag_gates **out);

/* What the simulated device needs around a replay. */
typedef struct wi_replay_device {
    void (*begin)(const wi_replay_world *how); /* before its runtime is made */
    void (*end)(void);
    weir_status (*make_gates)(const wi_replay_world *how, weir_runtime *runtime, const weir_stream *streams,
                              wi_replay_lag_gates **out);
} wi_replay_device;

/* NULL in programs without the simulated device. */
extern const wi_replay_device *wi_replay_simulated;

/* The loop: loop.c, run.c ------------------------------------------------------------------------------------------ */

typedef struct wi_replay_pass {
    uint64_t nanoseconds; /* of the loop alone, without the gates */
    uint64_t driver_calls, moves, ladder[WEIR_RUNG_COUNT];
    uint64_t failures; /* allocations that were refused; their frees are skipped */
    size_t first;      /* the operation that was refused first, where one was */
    uint64_t waits;    /* gates that opened early: for a request that was refused at once, or a call that waited */
} wi_replay_pass;

/* Makes one pass. Blocks that the trace leaves live are freed after it and counted nowhere. `stop`: at the first
 * failure. WEIR_OK also with failures; any other status means a broken allocator, and the detail says how. */
weir_status wi_replay_loop(const wi_replay_plan *plan, const wi_replay_target *target, bool stop, wi_replay_pass *out);

enum { WI_REPLAY_PASSES = 1000 };

typedef struct wi_replay_settings {
    const char *device;           /* "host", "cuda:1", "sim" */
    const char *resource;         /* NULL: weir's default */
    uint64_t cap;                 /* bytes; 0: none */
    uint64_t lag;                 /* in operations; 0: no lag gates */
    unsigned repeat;              /* passes; 0 is 1 */
    bool stop;                    /* at the first failure */
    const wi_replay_maker *maker; /* another allocator; NULL: weir's, by the device */
    weir_status (*at_end)(void *user, const wi_replay_target *target, void *const *blocks); /* of the last pass */
    void *at_end_user;
} wi_replay_settings;

typedef struct wi_replay_result {
    wi_replay_pass *passes;
    size_t count;
    uint64_t peak_held;
    bool counts_moves;
} wi_replay_result;

/* Replays the plan on a fresh runtime. The result is the caller's to clear, also after a failure. */
weir_status wi_replay_run(const wi_replay_plan *plan, const wi_replay_settings *settings, wi_replay_result *out);
void wi_replay_result_clear(wi_replay_result *result);
double wi_replay_ns(const wi_replay_plan *plan, const wi_replay_result *result); /* per event, over all passes */

/* The smallest cap: cap.c ------------------------------------------------------------------------------------------ */

typedef struct wi_replay_cap {
    uint64_t bytes; /* 0: there is none up to 64 times what was requested */
    double ns;      /* per event under it */
    unsigned attempts;
} wi_replay_cap;

/* Searches the smallest of the caps peak, peak + step, peak + 2 steps … under which the trace completes, where a step
 * is 0.2 % of the peak and the next cap completes, too. Each attempt has a fresh runtime. A smaller cap may exist, as
 * the attempts need not be monotone in the cap. `progress` (may be NULL) hears how far the search is. */
weir_status wi_replay_min_cap(const wi_replay_plan *plan, const wi_replay_settings *settings,
                              void (*progress)(double fraction), wi_replay_cap *out);

#endif
