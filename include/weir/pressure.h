/* weir/pressure.h: giving memory up: callbacks that are asked to before a request waits or is refused; and trimming,
 * which gives cached memory back to the driver.
 *
 * An engine that keeps memory it could do without (cached sequences, a second copy of its weights) registers a
 * function. When a request finds no memory, and nothing that costs nobody anything has helped, the functions are
 * called one by one; after each that made memory available the request is tried again. The functions report nothing:
 * weir itself looks at the memory. */
#ifndef WEIR_PRESSURE_H
#define WEIR_PRESSURE_H

#include <weir/memory.h>

WEIR_BEGIN

typedef struct weir_pressure {
    size_t struct_size;
    uint64_t bytes;            /* requested, as they would be charged */
    uint64_t shortfall;        /* at least so many more have to be free, or free in one piece; never 0 */
    const weir_client *client; /* who asks; NULL: another process (weir/outside.h) */
    const char *device;        /* whose memory: "cuda:0" */
    weir_class memory_class;
    unsigned attempt; /* which call of this function it is for this request, from 1 */
} weir_pressure;

/* Called on the requesting thread with no lock of weir's held; it may call weir, free, allocate and trim, with these
 * limits: a request made inside one calls no callbacks, and neither the requesting client's close nor the runtime's
 * end may be waited for. `pressure` is valid during the call. It may take its time; the request waits for it. Memory
 * that it frees on a stream helps when the device is past that, or before, where the request's own stream can be
 * ordered behind it. */
typedef void (*weir_pressure_fn)(const weir_pressure *pressure, void *user);

/* Registers the function with the runtime whose memory it can make room in: "host" for pinned and pageable memory.
 * The lowest priority is asked first, of equal ones the one registered first. One that made room is asked again, up
 * to 64 times, before the next is. Called for weir_alloc, weir_alloc_with and weir_reservation_create, after free and
 * freed memory of everybody was looked at, moved and given up by other threads, and before pending frees are waited
 * for. Not for requests with WEIR_ALLOC_NO_WAIT, on a stream that is being captured, nor for weir_resize. Called also for
 * another process that wants memory of the device (weir/outside.h), on the thread that looks: `client` is NULL then. Errors:
 * WEIR_ERR_INVALID for NULL, WEIR_ERR_SYSTEM, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_pressure_register(weir_runtime *runtime, int priority, weir_pressure_fn fn,
                                                           void *user, uint64_t *id);

typedef struct weir_pressure_options {
    size_t struct_size;
    int priority;
    weir_pressure_fn fn;
    void *user;
    /* The last call for `user`, once, when no thread is in `fn` and none will be: what `fn` looks at is freed here. On
     * the thread that ends the registration, or, where that cannot wait, on the thread whose call is the last to leave.
     * The limits of a callback hold. NULL: nothing is to be done */
    void (*gone)(void *user);
} weir_pressure_options;

/* The same for a function whose `user` is freed some day, maybe inside a callback: by `gone`, which the registration
 * calls once it has succeeded, and not otherwise. Errors as above. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_pressure_register_with(weir_runtime *runtime,
                                                                const weir_pressure_options *options, uint64_t *id);

/* Ends that: the function is called no more. Waits for calls of it on other threads to end, and has `gone` called
 * before it returns; except when called inside a pressure callback, this or another one: then such calls may still be
 * running, and the last of them has `gone` called when it leaves. The end of a runtime ends the registrations that are
 * left. WEIR_ERR_NOT_FOUND for an id that is none or was removed; other errors as above. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_pressure_unregister(weir_runtime *runtime, uint64_t id);

/* ------------------------------------------------------------------------------------------------------------------ */

/* Giving memory back to the driver, and what keeps the rest of it.
 *
 * What goes back goes back in segments (weir/stats.h) that are wholly free. Each of these calls first frees what is
 * pending and passed, and empties the thread caches; none waits for work on a stream. */

/* So much wholly free memory is kept when the device is short of it though the budget is not used up, and when the
 * budget is lowered: enough for the small change of engines, little beside a device. */
#define WEIR_IDLE_KEPT (UINT64_C(64) << 20)

/* A block that keeps segments from being wholly free. A segment counts for the live block with the largest part of the
 * segment, so that the blocks' `pinned` add up to weir_trim_report.pinned; when that block goes, smaller blocks may
 * still keep the segment. */
typedef struct weir_pin {
    weir_block block;
    uint64_t charged; /* the block itself */
    uint64_t pinned;  /* unused bytes around the block */
    const weir_client *client;
    char client_name[64];
    char tag[48]; /* "" is none */
    weir_class memory_class;
    weir_stream stream; /* where it was allocated */
} weir_pin;

enum { WEIR_TRIM_PINS = 8 };

typedef struct weir_trim_report {
    size_t struct_size;
    uint64_t released; /* bytes given back by this call */
    uint64_t left;     /* cached and spare bytes afterwards: the sum of the next five */
    uint64_t pinned;   /* unused, in segments with live blocks */
    uint64_t
        unpassed;   /* unused, in segments from which only blocks or frees are to go that the device, or another thread,
                          has not done with */
    uint64_t idle;  /* in segments that are wholly free: up to `keep`, and what the driver did not take back */
    uint64_t spare; /* in segments that are mapped nowhere: the same */
    uint64_t busy;  /* in the hands of other threads */
    uint64_t pending; /* freed bytes that the device is not past; they are not among those left, but will be */
    uint64_t pinning; /* blocks that pin anything */
    uint32_t pins;    /* so many of pin[] are filled, those that pin the most first */
    weir_pin pin[WEIR_TRIM_PINS];
} weir_trim_report;

typedef struct weir_trim_options {
    size_t struct_size;
    uint64_t keep; /* bytes of cached and spare memory that may be left */
    bool
        idle_only; /* instead: wholly free segments go until at most WEIR_IDLE_KEPT bytes of such are left, however much
                       else is cached. weir does so by itself when the driver has no more memory although the budget
                       allows it, and when the budget is lowered */
} weir_trim_options;

/* Gives cached and spare memory back to the driver. `options` NULL: all that can go. `out` (may be NULL) says how
 * much that was, and what stays why. Making the report costs what weir_layout_walk costs; one whose struct_size ends
 * before the member `left` gets `released` alone, and costs nothing. Errors: WEIR_ERR_INVALID; WEIR_ERR_SYSTEM
 * without host memory for the report, when the memory has been given back all the same; WEIR_ERR_FORKED. Waits for no
 * work. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_runtime_trim(weir_runtime *runtime, const weir_trim_options *options,
                                                      weir_trim_report *out);

WEIR_END
#endif
