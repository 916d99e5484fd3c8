/* weir/runtime.h: the runtime, one per device and process, which owns the device's budget.
 *
 * Engines are clients of it (weir/client.h). It is made by the first weir_runtime_get and lives as long as the process:
 * nothing of it is torn down at exit, and no driver is called once exit has begun. What clients of any runtime have live
 * then, and where one cannot be destroyed for them, is told in the log, as warnings, by client and tag. In a child made by
 * fork every call answers WEIR_ERR_FORKED. */
#ifndef WEIR_RUNTIME_H
#define WEIR_RUNTIME_H

#include <weir/base.h>

WEIR_BEGIN

typedef struct weir_runtime weir_runtime;

typedef struct weir_runtime_options {
    size_t struct_size;
    uint64_t budget; /* bytes of device memory that all clients together may hold; 0: the option `budget`, else what
                             is free less the larger of 10 % and 512 MiB (on the host: of the cgroup's limit) */
    const char *resource; /* which resource serves the clients; NULL: the option `resource`, else "cache" */
    uint32_t streams; /* so many are made now, at most 1024: weir_stream_acquire hands those out and makes no others;
                             0: streams are made when they are acquired. Of weir_runtime_create alone */
    /* the runtime in whose ledger pinned and pageable memory counts (weir/memory.h): a runtime of "host", which
     * outlives this runtime; NULL: the process's. Of weir_runtime_create alone */
    weir_runtime *host;
} weir_runtime_options;

/* The process's runtime of `device`: "host", "cuda", "cuda:1" ("cuda" is "cuda:0"; ordinals go from 0 to 63, "host" has
 * 0 alone), or one of a driver of the program's own (weir/driver.h). The first call makes it, and it stays until the
 * process ends; nobody gives it back. `options` may be NULL. Later calls find it: members of the options that are 0 or
 * NULL agree with what it has, and another budget or resource is WEIR_ERR_CONFLICT, naming both. The budget can be
 * changed later with weir_runtime_set_budget.
 *
 * First callers of one device wait for each other and get the same runtime; callers for other devices do not wait.
 * Later calls are a table look-up without a lock. A failed start leaves nothing behind, and the next call tries again.
 * Other errors: WEIR_ERR_INVALID (a text that is no device), WEIR_ERR_NOT_FOUND (no such driver or ordinal here; the
 * detail says what is missing), WEIR_ERR_DRIVER, WEIR_ERR_SYSTEM. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_get(const char *device, const weir_runtime_options *options,
                                                     weir_runtime **out);

/* Makes a separate runtime, which weir_runtime_get does not find: for tests, and for embedders that partition a device
 * on purpose, and choose the resource and the number of streams for their part. The runtime has a budget of its own,
 * unknown to the process's runtime of that device. The caller owns the runtime. Errors as weir_runtime_get.
 * weir_runtime_destroy waits for queued work, and for calls of other threads that have begun, and gives everything back
 * to the driver. Memory that the driver does not take back (pages of elastic blocks excepted: see the errors) is the
 * driver's own from there on, and the log tells how much it is. Calls that begin during the destruction are
 * WEIR_ERR_INVALID; afterwards there must be none.
 * Errors of weir_runtime_destroy: WEIR_ERR_BUSY while a client is open, a stream acquired or registered, a trace open
 * or another runtime has this runtime for its host, and inside of a function that weir calls; WEIR_ERR_DRIVER while the
 * driver does not take back pages of elastic blocks that have ended, which the log tells by client and tag (on a lost
 * device the pages are told, and left); WEIR_ERR_INVALID for a runtime made by weir_runtime_get. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_create(const char *device, const weir_runtime_options *options,
                                                        weir_runtime **out);
WEIR_API WEIR_NODISCARD weir_status weir_runtime_destroy(weir_runtime *runtime);

typedef struct weir_runtime_details {
    size_t struct_size;
    const char *device; /* "host", "cuda:0"; valid as long as the runtime */
    int ordinal;
    uint32_t features; /* abilities of the device memory: a sum of WEIR_FEATURE_… */
    /* the device's handle in the vendor's libraries, for programs that use such libraries beside weir: the CUcontext on
     * cuda (the device's primary context, which weir retains), NULL on host; valid as long as the runtime */
    void *native;
    uint64_t budget; /* as it is now */
    /* of the adaptor "log" in its stack, to read from, flush or add sinks to (weir/trace.h): what reached the adaptor,
     * as WEIR_ACTION_ALLOCATE, WEIR_ACTION_DEALLOCATE, WEIR_ACTION_REAP, WEIR_ACTION_RESIZE, and WEIR_ACTION_REFUSE and
     * WEIR_ACTION_FAIL with their result. It is the runtime's: closing it does nothing. NULL without such an adaptor */
    struct weir_trace *log;
    char resource[256]; /* the stack in one line, with arguments: "budget(mapped)"; cut */
} weir_runtime_details;

/* WEIR_ERR_INVALID for NULL, or when member struct_size is not set; WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_info(const weir_runtime *runtime, weir_runtime_details *out);

/* Makes the device current on the calling thread, for libraries that work on the one that is, as CUDA's own and
 * engines over it do: on cuda its primary context; on host nothing happens. Leave has the thread as it was, whatever
 * such a library has made current in between; on the same thread, after each enter that succeeded, the last one
 * first. weir's own functions need neither, and change nothing of what is current. Errors: WEIR_ERR_INVALID for NULL,
 * WEIR_ERR_DRIVER, WEIR_ERR_DEVICE_LOST, WEIR_ERR_FORKED. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_enter(weir_runtime *runtime);
WEIR_API void weir_runtime_leave(weir_runtime *runtime);

/* Changes the budget while in use. Cached memory is given up as far as needed; below what clients have live, pending,
 * promised or guaranteed: WEIR_ERR_OUT_OF_MEMORY with those numbers, and the old budget stays. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_set_budget(weir_runtime *runtime, uint64_t budget);

/* Makes frees final. At return, what was freed before the call and is known to have passed is free: no thread keeps it
 * in its cache, it is not pending, not in a guard's quarantine, and no more in the order of a stream. `left` (may be
 * NULL) gets the bytes that were freed and are not final, 0 when there are none: so where all work before the frees was
 * waited for beforehand (weir_stream_synchronize) and nobody frees meanwhile. Bytes that were freed and taken again on
 * one stream may count each time. What the driver refuses to take back is tried again here, and is among them; what
 * graphs hold (weir/stream.h) is not.
 *
 * It waits for no work on any stream, and for no free that is made after it has begun; it does wait for threads that
 * at its start are making such frees final themselves, and for what the driver's own calls wait for (cuMemFree: the
 * resource direct, pinned and pageable memory). Inside of the log's function it waits for no thread. Order stays as
 * it was: what thread caches have is freed on its streams, behind the work that is there now. A free that follows
 * the order of its stream alone has passed once an event behind it has; where there is none yet one is recorded here,
 * and what the device has not told by the end of the call is left for the next one. Blocks that are given back to
 * pools (weir/block_pool.h) are the pools' matter. Errors: WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_drain(weir_runtime *runtime, uint64_t *left);

/* ------------------------------------------------------------------------------------------------------------------ */

/* What serves the blocks of a runtime: resources, and adaptors around them.
 *
 * A stack is written as text, outermost first: "budget(log(async))". The bases:
 *   cache     the default: `mapped`, or `segments` on a device without virtual-memory management
 *   mapped    handles mapped into a large range of addresses; memory moves to where it is needed. WEIR_ERR_UNSUPPORTED
 *             without virtual-memory management
 *   segments  pieces of the driver's of 2 MiB, 20 MiB and more, cut into blocks of multiples of 512 bytes; memory stays
 *             where it is
 *   direct    one allocation of the driver's per block, for sanitizers; each goes back by a free of the driver's, which
 *             may wait for the whole device (cuMemFree), in weir_free or in a later call that finds the block's free
 *             passed
 *   async     one allocation of a stream-ordered pool of the driver's per block; the pool is the runtime's own
 * The adaptors:
 *   budget    claims a request in the ledger before anything below it is asked, and climbs the ladder before it
 *             refuses. A stack has one; where the text has none it is the outermost
 *   log       records each allocation, free and reap that reaches it, and how it went: "log(binary=PATH, async)"; with
 *             "csv=PATH" in RMM's words, which has none for a reap (weir/trace.h)
 *   guard     red zones around blocks, poison, quarantine: "guard(direct)", "guard(zone=1KiB, quarantine=64MiB, cache)"
 * A program adds its own: bases with weir_base_register (below), adaptors with weir_adaptor_register (weir/adaptor.h).
 * Budget(Logging(Async)) is the recommended order: the log then has what was really asked of the device. */

/* What a stack can do; weir_runtime_details.features. */
enum {
    WEIR_FEATURE_TRACKS_USES =
        1u << 0,                    /* launches and weir_use_record; without it they answer WEIR_ERR_STREAM_MISUSE */
    WEIR_FEATURE_ZEROES = 1u << 1,  /* WEIR_ALLOC_ZEROED */
    WEIR_FEATURE_SHRINKS = 1u << 2, /* weir_resize to less takes the tail off what the block is charged. With direct and
                                      async the memory stays with the block, cached, until the block is freed */
    WEIR_FEATURE_GROWS = 1u << 3, /* weir_resize to more, where there is room: with direct and async, up to the block's
                                     first charge */
    WEIR_FEATURE_MOVES_MEMORY = 1u << 4, /* free memory in pieces can serve a request as large as their sum */
    /* The next block on the same stream may have the bytes of a free that the device is not past, and waits for
     * nothing: mapped, segments and async, but not under a guard. With async they count as pending besides until
     * then. */
    WEIR_FEATURE_STREAM_ORDERED = 1u << 5,
    WEIR_FEATURE_CAPTURABLE = 1u << 6, /* allocates on a stream that is being captured */
    WEIR_FEATURE_GUARDS = 1u << 7,     /* writes past a block are found */
    WEIR_FEATURE_TRIMS = 1u << 8       /* keeps memory that weir_runtime_trim gives back */
};

/* A base of the program's own
 * ------------------------------------------------------------------------------------------
 *
 * A pair of functions that allocate and free device memory becomes a base of that name in stacks: "mine",
 * "guard(mine)", "log(mine)". weir puts its ledger, its budget and its adaptors around it, and keeps one allocation
 * of it per block. */

enum {
    /* allocate and release take effect in the order of their stream, as cudaMallocAsync does; else weir calls release
     * when the device is past the free */
    WEIR_BASE_STREAM_ORDERED = 1u << 0,
    WEIR_BASE_CAPTURABLE = 1u << 1 /* allocate may be called while a stream of the thread is being captured */
};

/* Where a base is made: for which runtime's device. */
typedef struct weir_base_place {
    size_t struct_size;
    const char *driver; /* "host", "cuda" */
    void *native;       /* the device's CUcontext on cuda, NULL on host */
} weir_base_place;

/* All functions are called from any thread, from several at once, and with no lock of weir's held. They must not call
 * weir, but for weir_fail and weir_log. On cuda the device is current on the thread during the call. `state` is what
 * `create` has made. Sizes are bytes. `stream` is the driver's own (a CUstream on cuda): work queued on `stream` later
 * uses the allocated memory, and work queued there already may still use the released memory. NULL: at once. `stream`
 * is always NULL without WEIR_BASE_STREAM_ORDERED, and on the host, whose streams are weir's own. */
typedef struct weir_base_table {
    size_t struct_size;
    const char *name; /* in stacks: lower-case letters, digits and '-', at most 31; none of weir's names; copied */
    uint32_t flags;   /* WEIR_BASE_… */
    void *user;       /* for `create` */
    /* Makes what a runtime's base needs. NULL: `state` is `user`. */
    weir_status (*create)(void *user, const weir_base_place *place, void **state);
    /* Allocates; *address is a multiple of 256. WEIR_ERR_OUT_OF_MEMORY sends weir up its ladder (weir/stats.h) and, in
     * the end, to a refusal; other failures are the request's answer, with the detail of weir_fail. */
    weir_status (*allocate)(void *state, size_t bytes, void *stream, void **address);
    /* Frees what allocate gave, with the same size. A failure leaves it allocated, and weir tries again. */
    weir_status (*release)(void *state, void *address, size_t bytes, void *stream);
    /* Tells the bytes that the base has from the device: allocated memory, and released memory that the base keeps,
     * which counts as cached. NULL: the base keeps nothing. */
    weir_status (*held)(void *state, uint64_t *bytes);
    /* Gives what it keeps back to the device until it has at most `keep` bytes, and tells how many it has then.
     * Together with `held`, or NULL. */
    weir_status (*trim)(void *state, uint64_t keep, uint64_t *bytes);
    /* The last call: everything is released. NULL: there is nothing to do. */
    void (*destroy)(void *state);
} weir_base_table;

/* Makes the base known under its name, for as long as the process lives; the table is copied. Errors: WEIR_ERR_INVALID
 * (NULL, a function or a name that is missing or ill-formed, one of `held` and `trim` without the other),
 * WEIR_ERR_CONFLICT (the name is taken), WEIR_ERR_BUSY (there are 16 bases and adaptors already), WEIR_ERR_UNSUPPORTED
 * (members or flags of a later version). Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_base_register(const weir_base_table *table);

WEIR_END
#endif
