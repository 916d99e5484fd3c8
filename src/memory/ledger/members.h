/* Members of a ledger: the resources whose blocks the ledger counts. The resource of the device's own runtime is a
 * member. The ledger of the host's runtime has more members: the pinned and the pageable memory of other runtimes,
 * whose deferred frees wait in the lists of those runtimes.
 *
 * The lock on the members comes before the locks of bases. No driver is called with it held. A member that a thread
 * looks at cannot go: its removal waits. */
#ifndef WI_MEMBERS_H
#define WI_MEMBERS_H

#include "memory/space/pending.h"

typedef struct wi_member {
    wi_ledger *ledger;
    wi_base *base;
    wi_pending *pending; /* the deferred frees of its blocks, shared with other bases of its runtime */
    unsigned users;      /* threads that use the record now */
    struct wi_member *previous, *next;
} wi_member;

/* Adds a stack that a ledger is attached to. The record is the caller's memory until it is removed. */
void wi_members_add(wi_member *member, wi_resource *stack, wi_pending *pending);
void wi_members_remove(wi_member *member);

/* Reaps deferred frees: of the list `whole` (may be NULL) all blocks, of other lists those of the member's base. */
uint64_t wi_members_reap(wi_ledger *ledger, const wi_pending *whole);
bool wi_members_drain(wi_ledger *ledger);
/* How many stream-ordered bytes, so far, have become free for all streams. */
uint64_t wi_members_released(wi_ledger *ledger);
/* Waits for the threads that release blocks now, in all lists except `whole`. */
void wi_members_finish(wi_ledger *ledger, const wi_pending *whole);
/* Waits for the oldest deferred free of the first member that has one. */
bool wi_members_wait(wi_ledger *ledger, uint64_t deadline);

/* resource.h's `pass` for all members: makes free what streams are past. *left: stream-ordered bytes that remain. */
uint64_t wi_members_pass(wi_ledger *ledger, uint64_t *left);
/* How many held bytes the bases of all members could give back. */
uint64_t wi_members_idle(wi_ledger *ledger);
/* Records events behind the frees of ended streams, where that is possible. True: there were such frees. */
bool wi_members_bound(wi_ledger *ledger);
bool wi_members_await(wi_ledger *ledger, uint64_t deadline);

/* Locks all bases, so that the set of the ledger's blocks cannot change. */
void wi_members_lock(wi_ledger *ledger);
void wi_members_unlock(wi_ledger *ledger);
/* Calls fn for every live and pending block, between lock and unlock. */
void wi_members_each(wi_ledger *ledger, void (*fn)(wi_block *block, void *user), void *user);

#endif
