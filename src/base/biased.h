/* A lock that one thread, its owner, enters all the time, and others claim now and then.
 *
 * The owner's way in is a store and a load, without a read-modify-write or a fence: who claims has the system put a
 * fence into every thread that runs (membarrier). Where the system cannot, or under ThreadSanitizer, which would not
 * see it, the owner pays for the fence.
 *
 * Contract: wi_biased_init was called for each lock before it was used. Owner: enter, and leave if that answered true;
 * never nested, and nothing in between that waits. Claimers: one at a time, by a lock of their own; ask for as many as
 * they want, then one wi_biased_fence, then wait for each; from then on what the lock protects is theirs, until
 * release. The owner may do without entering while it has the claimers' lock. */
#ifndef WI_BIASED_H
#define WI_BIASED_H

#include "base/internal.h"

#if defined __SANITIZE_THREAD__
#define WI_BIASED_ALWAYS_FENCED 1
#elif defined __has_feature
#if __has_feature(thread_sanitizer)
#define WI_BIASED_ALWAYS_FENCED 1
#endif
#endif
#ifndef WI_BIASED_ALWAYS_FENCED
#define WI_BIASED_ALWAYS_FENCED 0
#endif

typedef struct wi_biased {
    atomic_uint busy;    /* the owner's to write */
    atomic_uint claimed; /* the claimers' */
    bool fenced;         /* the owner has to pay */
} wi_biased;

void wi_biased_init(wi_biased *lock);

/* False: it is claimed, and the owner has not entered. */
static inline bool wi_biased_enter(wi_biased *lock)
{
    if (WI_BIASED_ALWAYS_FENCED || wi_unlikely(lock->fenced)) {
        (void)atomic_exchange(&lock->busy, 1);
    } else {
        atomic_store_explicit(&lock->busy, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst); /* the other half is wi_biased_fence */
    }
    if (wi_likely(!atomic_load(&lock->claimed)))
        return true;
    atomic_store_explicit(&lock->busy, 0, memory_order_release);
    return false;
}

static inline void wi_biased_leave(wi_biased *lock)
{
    atomic_store_explicit(&lock->busy, 0, memory_order_release);
}

void wi_biased_ask(wi_biased *lock);
void wi_biased_fence(void);
void wi_biased_wait(wi_biased *lock);
void wi_biased_release(wi_biased *lock);

#endif
