/* weir/resource.h: what serves the blocks of a runtime: resources, and adaptors around them.
 *
 * A stack is written as text, outermost first: "budget(log(async))". The bases:
 *   cache     the default: `mapped`, or `segments` on a device without virtual-memory management; weir_runtime_resource tells
 *   mapped    handles mapped into a large range of addresses; memory moves to where it is needed. WEIR_ERR_UNSUPPORTED without
 *             virtual-memory management
 *   segments  pieces of the driver's of 2 MiB, 20 MiB and more, cut into blocks of multiples of 512 bytes; memory stays where it
 *             is
 *   direct    one allocation of the driver's per block, for sanitizers; each goes back by a free of the driver's, which may
 *             wait for the whole device (cuMemFree), in weir_free or in a later call that finds the block's free passed
 *   async     one allocation of a stream-ordered pool of the driver's per block; the pool is the runtime's own
 * The adaptors:
 *   budget    claims a request in the ledger before anything below it is asked, and climbs the ladder before it refuses.
 *             A stack has one; where the text has none it is the outermost
 *   log       records each allocation, free and reap that reaches it, and how it went: "log(binary=PATH, async)"; with
 *             "csv=PATH" in RMM's words, which has none for a reap (weir/trace.h)
 *   guard     red zones around blocks, poison, quarantine: "guard(direct)", "guard(zone=1KiB, quarantine=64MiB, cache)"
 * Budget(Logging(Async)) is the recommended order: the log then has what was really asked of the device. */
#ifndef WEIR_RESOURCE_H
#define WEIR_RESOURCE_H

#include <weir/stream.h>

WEIR_BEGIN

/* What a stack can do; weir_runtime_features. */
enum {
    WEIR_FEATURE_TRACKS_USES =
        1u << 0,                    /* launches and weir_use_record; without it they answer WEIR_ERR_STREAM_MISUSE */
    WEIR_FEATURE_ZEROES = 1u << 1,  /* WEIR_ALLOC_ZEROED */
    WEIR_FEATURE_SHRINKS = 1u << 2, /* weir_resize to less takes the tail off what the block is charged. With direct and
                                      async the memory stays with the block, cached, until the block is freed */
    WEIR_FEATURE_GROWS = 1u << 3, /* weir_resize to more, where there is room: with those two, up to what it once had */
    WEIR_FEATURE_MOVES_MEMORY = 1u << 4, /* free memory in pieces can serve a request as large as their sum */
    /* The next block on the same stream may have the bytes of a free that the device is not past, and waits for nothing:
     * mapped, segments and async, but not under a guard. With async they count as pending besides until then. */
    WEIR_FEATURE_STREAM_ORDERED = 1u << 5,
    WEIR_FEATURE_CAPTURABLE = 1u << 6, /* allocates on a stream that is being captured */
    WEIR_FEATURE_GUARDS = 1u << 7,     /* writes past a block are found */
    WEIR_FEATURE_TRIMS = 1u << 8       /* keeps memory that weir_runtime_trim gives back */
};

/* What the runtime's device memory can do: a sum of the above; 0 for NULL. Any thread. */
WEIR_API uint32_t weir_runtime_features(const weir_runtime *runtime);

/* A base of the program's own ------------------------------------------------------------------------------------------
 *
 * A pair of functions that allocate and free device memory becomes a base of that name in stacks: "mine", "guard(mine)",
 * "log(mine)". weir puts its ledger, its budget and its adaptors around it, and keeps one allocation of it per block. */

enum {
    WEIR_BASE_STREAM_ORDERED = 1u << 0, /* allocate and release take effect in the order of their stream, as
                                           cudaMallocAsync does; else weir calls release when the device is past the free */
    WEIR_BASE_CAPTURABLE = 1u << 1      /* allocate may be called while a stream of the thread is being captured */
};

/* Where a base is made: for which runtime's device. */
typedef struct weir_base_place {
    size_t struct_size;
    const char *driver; /* "host", "cuda" */
    void *native;       /* the device's CUcontext on cuda, NULL on host */
} weir_base_place;

/* All functions are called from any thread, from several at once, and with no lock of weir's held. They must not call weir,
 * but for weir_fail and weir_log. On cuda the device is current on the thread during the call. `state` is what `create` has made. Sizes are bytes. `stream` is the driver's own (a CUstream
 * on cuda): what is allocated with it is used by work that is queued there afterwards, and what is released with it may still
 * be used by work that is queued there already. NULL: at once. It is always NULL without WEIR_BASE_STREAM_ORDERED, and on the
 * host, whose streams are weir's own. */
typedef struct weir_base_table {
    size_t struct_size;
    const char *name; /* in stacks: lower-case letters, digits and '-', at most 31; none of weir's names; copied */
    uint32_t flags;   /* WEIR_BASE_… */
    void *user;       /* for `create` */
    /* Makes what a runtime's base needs. NULL: `state` is `user`. */
    weir_status (*create)(void *user, const weir_base_place *place, void **state);
    /* Allocates; *address is a multiple of 256. WEIR_ERR_OUT_OF_MEMORY sends weir up its ladder (weir/stats.h) and, in the end,
     * to a refusal; other failures are the request's answer, with the detail of weir_fail. */
    weir_status (*allocate)(void *state, size_t bytes, void *stream, void **address);
    /* Frees what allocate gave, with the same size. A failure leaves it allocated, and weir tries again. */
    weir_status (*release)(void *state, void *address, size_t bytes, void *stream);
    /* How many bytes it has from the device: what is allocated and what it keeps of released memory, which counts as cached.
     * NULL: it keeps nothing. */
    weir_status (*held)(void *state, uint64_t *bytes);
    /* Gives what it keeps back to the device until it has at most `keep` bytes, and tells how many it has then. Together with
     * `held`, or NULL. */
    weir_status (*trim)(void *state, uint64_t keep, uint64_t *bytes);
    /* The last call: everything is released. NULL: there is nothing to do. */
    void (*destroy)(void *state);
} weir_base_table;

/* Makes the base known under its name, for as long as the process lives; the table is copied. Errors: WEIR_ERR_INVALID (NULL, a
 * function or a name that is missing or ill-formed, one of `held` and `trim` without the other), WEIR_ERR_CONFLICT (the name is
 * taken), WEIR_ERR_BUSY (there are 16 already), WEIR_ERR_UNSUPPORTED (members or flags of a later version). Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_base_register(const weir_base_table *table);

/* The runtime's stack in one line, "budget(mapped)", with its arguments; written into `text` and returned. Always
 * terminated, cut at the capacity. Any thread. */
WEIR_API char *weir_runtime_resource(const weir_runtime *runtime, char *text, size_t capacity);

WEIR_END
#endif
