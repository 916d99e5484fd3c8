/* weir/outside.h: other processes on the device: their memory is looked at, and memory is given back to them.
 *
 * A program that takes memory of a device without knowing weir finds none where weir's clients have it all. Where that
 * is watched (the option `outside`, or weir_outside_watch), weir keeps a reserve free on the device. A process that
 * takes of the reserve has it filled up again: cached memory goes back to the driver, then idle clients are suspended,
 * and then pressure callbacks (weir/pressure.h) are asked, of pools among them. Meanwhile the budget is lower, so that
 * nothing in this process takes at once what was given; it rises again when the other has gone: after five looks in a
 * row with enough free, or at once for a request that would be refused. Suspended clients come back when they are used.
 *
 * Nothing is suspended that its owner has not offered: by weir_client_idle, or inside a pressure callback, or as a
 * model of a pool that may leave. Sizes are bytes, times nanoseconds. Any thread, where not said otherwise; every call
 * answers WEIR_ERR_FORKED in a child made by fork, and WEIR_ERR_INVALID for NULL and structures without a size. */
#ifndef WEIR_OUTSIDE_H
#define WEIR_OUTSIDE_H

#include <weir/residency.h>

WEIR_BEGIN

/* ---- watching ---------------------------------------------------------------------------------------------------- */

typedef struct weir_outside_options {
    size_t struct_size;
    uint64_t reserve; /* kept free on the device; 0: a 32nd of its memory */
    bool by_hand;     /* no thread looks; the program calls weir_outside_look */
} weir_outside_options;

/* Watches the runtime's device from here on, or changes how. A thread of the process looks at what is free (cuMemGetInfo on
 * cuda): every 50 ms while nothing moves, every 10 ms while it does. `options` may be NULL. WEIR_ERR_SYSTEM: no thread, no
 * host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_outside_watch(weir_runtime *runtime, const weir_outside_options *options);

/* Ends that, and what weir_yield was asked for: the budget is again what the program has set. Without watching: WEIR_OK. */
WEIR_API WEIR_NODISCARD weir_status weir_outside_end(weir_runtime *runtime);

/* What was seen last, and what came of it since the runtime was made. */
typedef struct weir_outside {
    size_t struct_size;
    bool watched;
    uint64_t total, available; /* of the device: all, and free for everybody */
    uint64_t others;           /* what others have: all but `available` and what this runtime holds */
    uint64_t reserve;          /* to be kept free */
    uint64_t asked;            /* besides: bytes of weir_yield that other processes have not taken yet */
    uint64_t budget;           /* as the program has set it */
    /* The part of `budget` that other processes leave. The runtime's budget is this part, or what clients have and are
     * guaranteed, if that is more. */
    uint64_t allowed;
    uint64_t lacks;         /* of the reserve and of what was asked for, after the last look */
    uint64_t looks, shorts; /* looks; looks that found too little free */
    uint64_t given;         /* bytes given back to the driver for others */
    uint64_t suspends;      /* suspends of idle clients */
    uint64_t rises;         /* times that the budget rose again */
} weir_outside;

/* Tells what was seen last; looks at nothing. */
WEIR_API WEIR_NODISCARD weir_status weir_outside_info(weir_runtime *runtime, weir_outside *out);

/* Looks once, as the thread does: gives back what the reserve lacks, and moves the budget. `out` may be NULL. Errors:
 * WEIR_ERR_INVALID (it is not watched), WEIR_ERR_BUSY (inside a pressure callback, or of this thread inside a look),
 * and those of the driver: nothing has changed. */
WEIR_API WEIR_NODISCARD weir_status weir_outside_look(weir_runtime *runtime, weir_outside *out);

/* ---- giving back on request -------------------------------------------------------------------------------------- */

typedef struct weir_yield_options {
    size_t struct_size;
    uint64_t bytes; /* to be free on the device, beside the reserve if it is watched; 0: takes an earlier call back */
    uint64_t hold;  /* this process does not take them for so long, or until other processes have; 0: 10 s */
    uint64_t wait;  /* so long the call waits for what leaves by other threads, as models of a pool; 0: 250 ms */
} weir_yield_options;

/* What came of it. given = trimmed + suspended + called, as far as the driver has it back. */
typedef struct weir_yielded {
    size_t struct_size;
    uint64_t available;  /* free on the device now */
    uint64_t given;      /* given back to the driver by this call: */
    uint64_t trimmed;    /* cached memory, */
    uint64_t suspended;  /* memory of idle clients, */
    uint64_t called;     /* and what pressure callbacks made free, or pools */
    uint64_t clients;    /* that were suspended */
    uint64_t lacks;      /* of what was asked for; 0: all of it is free */
    uint64_t held;       /* stays, of this runtime, and why: */
    uint64_t live;       /* blocks of clients that nobody has offered, or that are in use */
    uint64_t pending;    /* freed, and the device is not past it */
    uint64_t unused;     /* in segments with live blocks */
    uint64_t guaranteed; /* promised to clients beyond their blocks: not held, and a floor of the budget */
    char why[256];       /* of the last idle client that could not be suspended; "" */
} weir_yielded;

/* Makes so many bytes free on the device, for another process; what is free already counts. It switches watching on, with a
 * reserve of 0, until the others have come and gone, or `hold` is over; then the budget rises again.
 *
 * WEIR_OK also where not all of it can be given: weir_yielded.lacks. Errors as weir_outside_look. */
WEIR_API WEIR_NODISCARD weir_status weir_yield(weir_runtime *runtime, const weir_yield_options *options,
                                               weir_yielded *out);

/* ---- who may leave ----------------------------------------------------------------------------------------------- */

/* Offers the client: until weir_client_busy it has no work on the device and gets none, and may be suspended at any
 * moment, as by weir_client_suspend with `how` (may be NULL). Cheapest first: a client of which nothing has to be
 * copied, as the copies are good (`unwritten`) or not kept (`drop`), then the fewest bytes to copy, then the longest
 * idle time. A second call changes `how`. The offer ends with the client. WEIR_ERR_SYSTEM: no host memory. */
WEIR_API WEIR_NODISCARD weir_status weir_client_idle(weir_client *client, const weir_suspend_options *how);

/* Takes the offer back, and has the client resident: waits for a suspend that is under way, and resumes the client if
 * it is suspended, as weir_client_resume does, whose errors it has. On failure the offer is taken back, and the client
 * is suspended. */
WEIR_API WEIR_NODISCARD weir_status weir_client_busy(weir_client *client, weir_stream stream);

WEIR_END
#endif
