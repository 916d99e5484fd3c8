/* Blocks that are freed and that the device is not past, oldest first: where a free becomes final, for all resources.
 *
 * A runtime has one list for all its stacks, whose blocks may count in different ledgers (members.h).
 *
 * Laws, true whenever the lock is free: the list holds exactly the blocks of the runtime that are pending, but for those that
 * a graph holds (runtime/graph.h), and those in the hands of a thread that releases them, which `working` counts; so whoever
 * sees pending bytes in the ledger that are not kept finds a block here or a thread to wait for. The lock comes before those of resources and the ledger. */
#ifndef WI_DEFERRED_H
#define WI_DEFERRED_H

#include "memory/resource.h"

typedef struct wi_pending {
    pthread_mutex_t lock;
    pthread_cond_t settled; /* a thread has released what it had in hand */
    const wi_driver *driver;
    wi_device *device;
    wi_block *first, *last;
    size_t working; /* threads with blocks in hand */
    size_t
        at_work[2]; /* the same, of the side on which they began; where nobody waits for all of one, that is `side` */
    unsigned region_number;
    bool finishing;       /* a thread waits for all of the other side */
    size_t thread_cached; /* lists in the hands of threads that wait for others here */
    uint64_t turns;       /* how often a thread has put down what it had in hand */
    uint64_t released;    /* bytes, in all */
    atomic_uint_fast64_t failures;
} wi_pending;

void wi_pending_init(wi_pending *pending, const wi_driver *driver, wi_device *device);
void wi_pending_destroy(wi_pending *pending);

/* Ends a taken block of the stack, freed on `stream`, the driver's `native`: it waits for *event (NULL: the device is past
 * everything) and for its marks. Cannot fail: what the driver refuses to take back stays pending and is tried again. */
void wi_pending_free(wi_pending *pending, wi_resource *stack, wi_block *block, weir_stream stream, void *native,
                     const wi_event *event);
/* The same for a block that the resource has retired itself: the tail of one that was cut. */
void wi_pending_add(wi_pending *pending, wi_resource *stack, wi_block *block, const wi_event *event);

/* Releases what has passed of the base's blocks (NULL: of any's); answers how many bytes that were. */
uint64_t wi_pending_reap(wi_pending *pending, const wi_resource *base);
/* How many bytes all threads have released so far. */
uint64_t wi_pending_released(wi_pending *pending);
/* Waits for other threads that have blocks in hand; false when there is none that does not wait here itself. */
bool wi_pending_drain(wi_pending *pending);
/* Waits for all threads that have blocks in hand now, and for none that takes some later; for nobody in a thread that has some
 * in hand itself. */
void wi_pending_finish(wi_pending *pending);
/* Waits for the oldest block (of the base, or of any; of `account`, or of anyone) until the clock reads `deadline`; false if
 * there is none but what the driver has refused to take back, or it cannot wait. */
bool wi_pending_wait(wi_pending *pending, const wi_resource *base, const wi_account *account, uint64_t deadline);

#endif
