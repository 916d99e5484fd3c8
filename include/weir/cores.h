/* weir/cores.h: one ledger of cores for the process; engines lease cores from the ledger to compute.
 *
 * Threads of a computation wait for each other by spinning. With more such threads than cores, a thread spins for a
 * thread that the system does not run, and models that take milliseconds in turn take seconds side by side. So a model
 * leases cores before it computes, starts no more threads than it has leased, and gives them back. Never are more
 * leased than the process has. A model alone gets all cores. Several models share the cores, or take turns where there
 * are fewer cores than models or where a model needs all cores; a model without cores sleeps. A model has one lease,
 * shared by all threads that run the model.
 *
 *     weir_cores *cores;                                      once for a model: weir_cores_open("bert", 1, 0, &cores)
 *     weir_cores_take(cores, stops, user, &n);                before it computes; waits
 *     for (;;) {
 *         compute_a_step(n);
 *         if (last || weir_cores_renew(cores, stops, user, &n) != WEIR_OK)  between two steps; may wait
 *             break;
 *     }
 *     weir_cores_give(cores);                                 also before anything that may block: a reader, a lock
 *
 * The process has the cores of the option `cores` (WEIR_CORES), or without it the physical ones that its affinity and
 * its cgroups leave to it. Numbers are cores; times are nanoseconds. */
#ifndef WEIR_CORES_H
#define WEIR_CORES_H

#include <weir/base.h>

WEIR_BEGIN

/* A model's line in the ledger. */
typedef struct weir_cores weir_cores;

/* Opens a line for a model that can compute with `least` to `most` cores. 1 and 0: its share, up to all. The same number
 * twice: that many, as an engine needs whose threads were made when the model was loaded; a number above the process's
 * cores leases all cores. `name` is copied, up to 63 bytes; NULL is "". Reads the option `cores`, the affinity and the
 * cgroups again. Errors: WEIR_ERR_INVALID (least 0, or more than a most that is not 0), WEIR_ERR_SYSTEM,
 * WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_cores_open(const char *name, uint32_t least, uint32_t most, weir_cores **out);

/* Ends a line that nobody holds a lease of or waits for. NULL is nothing. */
WEIR_API void weir_cores_close(weir_cores *of);

/* Leases cores for the line, whose model may compute with *cores threads until the calling thread gives them back; a lease
 * that there is already is joined, unless it would have to end (weir_cores_renew). Waits in turn: the line that was served
 * longest ago first, and of several such the one that came first. `stops`, which may be NULL, is asked on this thread before
 * each sleep and after weir_cores_wake, with no lock held; once it answers true nothing is leased, and the call answers
 * WEIR_ERR_CANCELLED, unless the lease came while it was asked. A thread that holds a lease, of whichever line,
 * computes within that one: it never waits, and gives back as often as it took. Errors also: WEIR_ERR_INVALID,
 * WEIR_ERR_FORKED. */
WEIR_API WEIR_NODISCARD weir_status weir_cores_take(weir_cores *of, bool (*stops)(void *user), void *user,
                                                    uint32_t *cores);

/* Between two steps of the thread that holds a lease of the line: the lease becomes its present share, which costs
 * nothing while nobody comes or goes. When others wait and its turn is over (WEIR_TURN), it gives all back and waits as in
 * weir_cores_take; with an error nothing is leased any more. */
WEIR_API WEIR_NODISCARD weir_status weir_cores_renew(weir_cores *of, bool (*stops)(void *user), void *user,
                                                     uint32_t *cores);

enum { WEIR_TURN = 10 * 1000 * 1000 };

/* Gives the calling thread's lease back; without one: nothing. */
WEIR_API void weir_cores_give(weir_cores *of);

/* Threads that wait for cores of this line ask their `stops` again. Any thread. */
WEIR_API void weir_cores_wake(weir_cores *of);

typedef struct weir_cores_totals {
    size_t struct_size;
    uint32_t cores;  /* that the process has */
    uint32_t leased; /* of them, now */
    uint32_t peak;   /* that were leased at once, ever */
    uint32_t lines;
    uint32_t waiting; /* threads that wait for cores */
    /* That a lease has at most, as other processes take the rest: threads that spin wait for all of theirs to be run. */
    uint32_t coupled;
} weir_cores_totals;

/* Errors: WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_cores_info(weir_cores_totals *out);

typedef struct weir_cores_stats {
    size_t struct_size;
    char name[64];
    uint32_t least, most; /* as opened */
    uint32_t now;         /* leased now */
    uint32_t last;        /* cores of the newest lease; 0: there was none */
    uint64_t leases;      /* taken, and renewed after a wait */
    uint64_t waits;       /* of `leases`: leases that had to wait */
    uint64_t waited;      /* the total time of these waits */
} weir_cores_stats;

/* The line number `index`, from 0, in the order in which they were opened. Errors: WEIR_ERR_NOT_FOUND past the last,
 * WEIR_ERR_INVALID, WEIR_ERR_FORKED. Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_cores_look(size_t index, weir_cores_stats *out);

WEIR_END
#endif
