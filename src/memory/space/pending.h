/* Deferred frees: blocks that are freed while the device is not past them, oldest first. Every free that cannot be
 * final at once passes through here.
 *
 * A runtime has one list for all its stacks, whose blocks may count in different ledgers (members.h).
 *
 * Invariants, while the lock is free: the list holds exactly the pending blocks of the runtime, except those that a
 * capture pool keeps (runtime/stream/streams.h), pages that a commit has taken back for a moment
 * (runtime/elastic/elastic_pages.c), and those that a thread is releasing, which `working` counts. So a thread that sees pending bytes in the ledger, beyond the kept ones, finds a block here or a thread to wait for.
 *
 * The lock comes before those of resources and of the ledger. */
#ifndef WI_PENDING_H
#define WI_PENDING_H

#include "memory/resource.h"

typedef struct wi_pending {
    pthread_mutex_t lock;
    pthread_cond_t released; /* a thread has released its blocks */
    const wi_driver *driver;
    wi_device *device;
    wi_block *first, *last;
    atomic_size_t count; /* of the list; to be looked at without the lock */
    size_t working;      /* threads that release blocks now */
    size_t at_work[2];   /* the same, by the side on which they began */
    unsigned side;
    bool finishing; /* a thread waits until the other side is empty */
    size_t waiting; /* lists of threads that wait for others here */
    uint64_t ends;  /* how often a thread has finished */
    atomic_uint_fast64_t failures;
} wi_pending;

void wi_pending_init(wi_pending *pending, const wi_driver *driver, wi_device *device);
void wi_pending_destroy(wi_pending *pending);

/* Frees an acquired block on `stream`, the driver's `native`. The block waits for *event (NULL: the device is past
 * everything) and for its stream uses. Cannot fail: a block that the driver refuses to take back stays pending and is
 * tried again. */
void wi_pending_free(wi_pending *pending, wi_resource *stack, wi_block *block, weir_stream stream, void *native,
                     const wi_event *event);
/* The same for a block that the resource has retired already: the tail of a block that was shrunk. */
void wi_pending_add(wi_pending *pending, wi_resource *stack, wi_block *block, const wi_event *event);

/* With the lock held: takes a pending block out, which is the caller's then, and pending still. False: a thread is releasing
 * it. */
bool wi_pending_take(wi_pending *pending, wi_block *block);
/* With the lock held: puts it back, behind *event as in wi_pending_free. */
void wi_pending_put_back(wi_pending *pending, wi_resource *stack, wi_block *block, const wi_event *event);

/* Reaps: releases the blocks of the base (NULL: of every base) that the device is past. Returns their bytes. */
uint64_t wi_pending_reap(wi_pending *pending, const wi_base *base);
/* The same for an allocation that may want more memory: looks at the oldest only, gives up after a few that the device is
 * not past, and leaves alone what the driver has refused. Costs nothing while nothing is pending. */
uint64_t wi_pending_reap_oldest(wi_pending *pending, const wi_base *base);
/* Waits until another thread has released its blocks; false: every releasing thread is waiting here. */
bool wi_pending_drain(wi_pending *pending);
/* Waits for the threads that release blocks now, but not for threads that begin later. Does nothing in a thread that is
 * releasing blocks itself. */
void wi_pending_finish(wi_pending *pending);
/* Waits for the oldest block (of the base, or of any; of `account`, or of anyone) until the clock reads `deadline`;
 * false if there is none but what the driver has refused to take back, or it cannot wait. */
bool wi_pending_wait(wi_pending *pending, const wi_base *base, const wi_account *account, uint64_t deadline);

#endif
