/* Members of a ledger: the resources whose blocks count in it. The resource of a device's own runtime is one. The
 * ledger of the host's runtime also has the pinned and the pageable memory of other runtimes, whose deferred frees
 * wait in their lists.
 *
 * The lock on the members comes before the locks of bases. No driver is called with it held. A member that a thread
 * looks at cannot go: its removal waits. */
#ifndef WI_MEMBERS_H
#define WI_MEMBERS_H

#include "memory/space/deferred.h"

typedef struct wi_member {
    wi_ledger *ledger;
    wi_resource *base;
    wi_pending *pending; /* where its frees wait, and those of other bases */
    unsigned users;      /* threads that look at it */
    struct wi_member *previous, *next;
} wi_member;

/* Adds a stack that a ledger is attached to. The record is the caller's memory until it is removed. */
void wi_members_add(wi_member *member, wi_resource *stack, wi_pending *pending);
void wi_members_remove(wi_member *member);

/* The calls of deferred.h for all members. `whole`: a list that is reaped completely, or NULL. */
uint64_t wi_members_reap(wi_ledger *ledger, const wi_pending *whole);
bool wi_members_drain(wi_ledger *ledger);
/* How many bytes that were freed in the order of a stream any stream may use, so far. */
uint64_t wi_members_released(wi_ledger *ledger);
/* All but `whole`. */
void wi_members_finish(wi_ledger *ledger, const wi_pending *whole);
/* Waits for the oldest block of one list alone. */
bool wi_members_wait(wi_ledger *ledger, uint64_t deadline);

/* What was freed in the order of streams: resource.h, pass and await. *left: the bytes that have not passed. */
uint64_t wi_members_pass(wi_ledger *ledger, uint64_t *left);
/* Records points behind what ended streams have freed, where that is possible; whether there were any. */
bool wi_members_bound(wi_ledger *ledger);
bool wi_members_await(wi_ledger *ledger, uint64_t deadline);

/* Locks all bases, so that no block of the ledger comes or goes. */
void wi_members_lock(wi_ledger *ledger);
void wi_members_unlock(wi_ledger *ledger);
/* Meanwhile: every live and pending block. */
void wi_members_each(wi_ledger *ledger, void (*fn)(wi_block *block, void *user), void *user);

#endif
