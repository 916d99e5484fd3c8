/* The parts of libweir-preload.so: the way from a program's call to weir's function and on to CUDA's (symbols.c,
 * dlsym.c), devices and what counts on them (devices.c), memory that weir serves (serve.c), streams and captures
 * (streams.c), memory that stays CUDA's and counts (counted.c, handles.c), what programs are told about memory
 * (answers.c, pools.c), the table at exit (table.c), all processes under one budget (tree.c), for which libweir's own calls
 * of CUDA count as well (weirs.c). */
#ifndef WP_PRELOAD_H
#define WP_PRELOAD_H

#include "interpose/preload/functions.h"

#include <weir/weir.h>

/* Functions -------------------------------------------------------------------------------------------------------- */

enum wp_function {
#define X(symbol, name, version, per_thread, parameters, arguments) WP_##symbol,
    WP_CUDA_FUNCTIONS(X)
#undef X
#define X(symbol, parameters, arguments) WP_##symbol,
        WP_NVML_FUNCTIONS(X)
#undef X
            WP_FUNCTIONS
};

/* CUDA's own; NULL: this driver has no such function. */
typedef struct wp_functions {
#define X(symbol, name, version, per_thread, parameters, arguments) CUresult(*symbol) parameters;
    WP_CUDA_FUNCTIONS(X)
#undef X
#define X(symbol, parameters, arguments) int(*symbol) parameters;
    WP_NVML_FUNCTIONS(X)
#undef X
#define X(name, version, parameters) CUresult(*name) parameters;
    WP_USED_FUNCTIONS(X)
#undef X
} wp_functions;
extern wp_functions wp_real;

/* Weir's functions, by the names of CUDA's. */
#define WP_EXPORT                                                   __attribute__((visibility("default")))
#define X(symbol, name, version, per_thread, parameters, arguments) WP_EXPORT CUresult symbol parameters;
WP_CUDA_FUNCTIONS(X)
#undef X
#define X(symbol, parameters, arguments) WP_EXPORT int symbol parameters;
WP_NVML_FUNCTIONS(X)
#undef X

/* Counts the call and finds CUDA's own functions; false: the library of the function is not loaded. */
bool wp_enter(enum wp_function function);
#define WP_ENTER(function)                                                                                             \
    do {                                                                                                               \
        if (!wp_enter(WP_##function) || !wp_real.function)                                                             \
            return WP_NOT_INITIALIZED;                                                                                 \
    } while (0)
/* Finds CUDA's own functions, if the program or weir has loaded CUDA. */
bool wp_find_cuda(void);
/* What libweir gets as cuGetProcAddress where there is a tree of processes. */
CUresult wp_get_for_weir(const char *name, void **function, int version, uint64_t flags, int *found);
uint64_t wp_calls(enum wp_function function);
const char *wp_function_name(enum wp_function function);

/* How dlsym goes on: `answered` with an address or NULL, else as if weir were not there. */
typedef struct wp_found {
    void *address;
    uintptr_t answered;
} wp_found;
wp_found wp_find_symbol(void *handle, const char *name, const void *caller);

/* Settings --------------------------------------------------------------------------------------------------------- */

/* From the environment as it is at the first call, which `weir exec` sets: WEIR_EXEC is a list of words with commas between,
 * WEIR_EXEC_STATS a file (empty: standard error). The budget is weir's option. */
typedef struct wp_settings {
    bool direct;     /* nothing is served by weir, everything counts */
    bool free_waits; /* cuMemFree waits for the device, as CUDA's does */
    bool quiet;      /* no table */
    bool json;       /* the table as a JSON object */
    char *tree;      /* WEIR_EXEC_TREE: the file in which all processes share a budget; NULL: each has its own */
    char *budgets;   /* WEIR_EXEC_BUDGET: of all processes, as `weir exec` was given it; NULL: it was not */
} wp_settings;
const wp_settings *wp_settings_of(void);
/* What the option budget says of a device, which this process may have to itself; 0: nothing. */
uint64_t wp_budget_given(const char *device);
/* The budget of a device for all processes together, as `weir exec` was given it; 0: none. */
uint64_t wp_tree_budget_given(const char *device);

/* Devices ---------------------------------------------------------------------------------------------------------- */

enum { WP_DEVICES = 64 };

/* What counts and is CUDA's. */
typedef enum wp_kind {
    WP_KIND_HANDLE,  /* cuMemCreate */
    WP_KIND_MANAGED, /* cuMemAllocManaged */
    WP_KIND_ARRAY,   /* arrays, mipmapped ones too */
    WP_KIND_DIRECT,  /* cuMemAlloc and its like, where weir does not serve */
    WP_KIND_PINNED,  /* of the host's: cuMemHostAlloc, cuMemAllocHost */
    WP_KIND_REGISTERED,
    WP_KINDS
} wp_kind;

/* Live and most, in bytes. */
typedef struct wp_gauge {
    uint64_t bytes, peak;
} wp_gauge;

typedef struct wp_device {
    int ordinal;
    char name[16];
    pthread_mutex_t lock; /* starting, and the members up to `total` */
    bool failed;          /* weir cannot serve the device, so all requests are refused */
    atomic_bool ready;    /* the members below up to `event` are valid, and stay */
    weir_runtime *runtime;
    weir_client *client;
    CUcontext context;  /* the primary one */
    weir_stream behind; /* frees that are behind all work of the device; WEIR_STREAM_HOST: none */
    CUevent event;      /* with `free_lock` */
    pthread_mutex_t free_lock;
    weir_stream legacy; /* with the lock of streams.c */
    bool legacy_known;
    uint64_t total; /* the budget, of which the runtime has what CUDA's own memory leaves */
    uint64_t foreign, foreign_peak;
    wp_gauge kinds[WP_KINDS];
} wp_device;

/* The device, with its runtime; NULL: weir cannot start there, and has said why. */
wp_device *wp_device_start(int ordinal);
/* The same if it has started. */
wp_device *wp_device_started(int ordinal);
/* That of the current context, started; NULL: there is no context (*result is CUDA's word for it), or weir cannot start
 * (*result is CUDA_ERROR_OUT_OF_MEMORY). *primary: the context is the one that weir works in. */
wp_device *wp_device_here(bool *primary, CUresult *result);
/* Finds the device of a client; NULL: none. */
wp_device *wp_device_of(const weir_client *client);

/* Claims bytes of the device's budget for CUDA's own memory, of which weir's gets so much less; false: refused. */
bool wp_charge(wp_device *device, wp_kind kind, uint64_t bytes);
void wp_uncharge(wp_device *device, wp_kind kind, uint64_t bytes);
/* The same of the host, by its budget if one is given. */
bool wp_charge_host(wp_kind kind, uint64_t bytes);
void wp_uncharge_host(wp_kind kind, uint64_t bytes);
wp_gauge wp_host_gauge(wp_kind kind);

/* Replaces CUDA's figures of the device, free bytes and size, by the free bytes of the budget and the budget. Both are
 * at most the device's own figures; memory that weir holds unused counts as free. */
void wp_left(wp_device *device, size_t *available, size_t *total);

/* Notes a refusal with weir's detail, and what other processes have of the device (or of WP_HOST). Answers
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult wp_refuse(int ordinal, const char *function, size_t bytes);

/* What the table tells of. */
typedef enum wp_event {
    WP_EVENT_SERVED, /* blocks of weir's */
    WP_EVENT_FREED,  /* and their frees */
    WP_EVENT_REFUSED,
    WP_EVENT_GRAPH,   /* allocations that became memory of graphs */
    WP_EVENT_WAITED,  /* frees for which the device was waited for */
    WP_EVENT_HELD_UP, /* frees that waited for captures */
    WP_EVENT_NO_IPC,  /* exports of served memory, refused */
    WP_EVENTS
} wp_event;
void wp_note(wp_event event);
uint64_t wp_noted(wp_event event);
/* The last refusal's; empty: there was none. */
typedef struct wp_reason {
    char text[1024];
} wp_reason;
wp_reason wp_last_refusal(void);
/* Has the table printed at exit: called before the first memory is asked for. */
void wp_watch_exit(void);
/* Watches for the exit of the process, from which on blocks are not freed, but go with the process. Called when a
 * runtime has started. */
void wp_watch_runtime(void);
bool wp_is_exiting(void);

/* Served memory ---------------------------------------------------------------------------------------------------- */

CUresult wp_serve(wp_device *device, const char *function, weir_stream stream, CUdeviceptr *out, size_t bytes);
/* What block of the preload's client is at the address (or around it); false: none. */
bool wp_block_at(CUdeviceptr address, weir_block_details *out, wp_device **device);
/* Frees what waited for captures. */
void wp_free_held_up(void);

/* Streams and captures --------------------------------------------------------------------------------------------- */

typedef enum wp_stream_kind {
    WP_STREAM_KNOWN,    /* weir can order on it */
    WP_STREAM_UNKNOWN,  /* it cannot: per-thread default streams, other contexts */
    WP_STREAM_CAPTURED, /* allocations on the stream belong to a graph */
} wp_stream_kind;
/* Finds the kind of a stream; of a known stream also its device and weir's id. `per_thread`: NULL is the default stream
 * of the thread. */
wp_stream_kind wp_stream_of(CUstream stream, bool per_thread, wp_device **device, weir_stream *out);
bool wp_capturing(void);
/* While it is held no capture begins; false: one goes on, and it is not held. */
bool wp_captures_shut(void);
void wp_captures_open(void);

/* Pools ------------------------------------------------------------------------------------------------------------ */

/* Whether weir may serve what is asked of the pool; NULL: of the device's current one. */
bool wp_pool_is_plain(const wp_device *device, CUmemoryPool pool);
/* The ordinal of the device of which memory of the pool is, or WP_HOST; NULL: of the device's current pool. Of a pool whose
 * place is not known memory is taken for the device's. */
int wp_pool_place(const wp_device *device, CUmemoryPool pool);

/* CUDA's own memory that counts ------------------------------------------------------------------------------------ */

/* Notes memory under an address or handle; false: no host memory. */
bool wp_count_noted(wp_kind kind, uint64_t key, wp_device *device, uint64_t bytes);
/* The note of an address or handle that CUDA is asked to free. The note is taken out before the free, as CUDA may give
 * the address to another thread at once. */
typedef struct wp_leaving {
    wp_kind kind;
    uint64_t key;
    void *note; /* NULL: there was none */
} wp_leaving;
/* Takes it out. */
wp_leaving wp_count_leave(wp_kind kind, uint64_t key);
/* By CUDA's answer to the free: its bytes go back to the budget, or it is noted again. Without host memory for a note they go back all
 * the same. Returns `result`. */
CUresult wp_count_left(wp_leaving leaving, CUresult result);
/* What the driver is taken to spend on an allocation of its own. */
uint64_t wp_spent(uint64_t bytes);

/* The common budget ------------------------------------------------------------------------------------------------ */

/* Devices are named by their ordinals here; the host is one, too. Without a tree everything fits, and others have nothing. */
enum { WP_HOST = -1 };

/* Whether there is a tree. */
bool wp_tree_is(void);
/* The detail says why a process cannot be in its tree; it gets no memory then. */
weir_status wp_tree_join(int ordinal);

/* Takes bytes of the tree's budget for memory that is about to be made; false: the others leave too little. */
bool wp_tree_take(int ordinal, uint64_t bytes);
/* Gives bytes back to the budget, when the driver has the memory back. */
void wp_tree_give(int ordinal, uint64_t bytes);

/* The budget of a device, and the bytes that processes have of it. */
typedef struct wp_tree_view {
    uint64_t budget; /* UINT64_MAX: nobody has said it */
    uint64_t mine, others;
    uint64_t peak; /* the most that the processes had together */
} wp_tree_view;
wp_tree_view wp_tree_look(int ordinal);
/* Makes the budget that a process has measured the tree's budget, unless the tree already has a budget. */
void wp_tree_measured(int ordinal, uint64_t budget);
/* Appends to a text who else has what, with numbers and names of processes. */
void wp_tree_say(int ordinal, char *text, size_t capacity);

/* Asks the other processes to give up idle memory of the device, and waits for the answers; false: no other process has
 * memory. */
bool wp_tree_ask(int ordinal, uint64_t bytes);
/* From now on `give` is called, by a thread of its own, when another process asks for bytes. Once for a process. */
void wp_tree_listen(void (*give)(int ordinal, uint64_t bytes));

#endif
