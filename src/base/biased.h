/* A biased lock (asymmetric lock): its owner thread enters often; other threads revoke the lock now and then.
 *
 * The owner enters with a plain store and a load. A revoker pays instead: it has the system put a memory barrier into
 * every running thread (membarrier). Where the system cannot do that, or under ThreadSanitizer, which cannot see it,
 * the owner executes the barrier itself.
 *
 * Contract: wi_biased_init is called before a lock is used. Owner: enter, and leave if enter returned true; never
 * nested, and it waits for nothing in between. Revokers: one at a time, by a lock of their own. A revoker asks for as
 * many locks as it wants, calls wi_biased_fence once, and waits for each; from then on what these locks protect is its
 * own, until release. An owner that holds the revokers' lock need not enter. */
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
    atomic_uint busy;    /* written by the owner */
    atomic_uint revoked; /* written by revokers */
    bool fenced;         /* the owner executes the barrier itself */
} wi_biased;

void wi_biased_init(wi_biased *lock);

/* False: another thread has revoked the lock, and the owner has not entered. */
static inline bool wi_biased_enter(wi_biased *lock)
{
    if (WI_BIASED_ALWAYS_FENCED || wi_unlikely(lock->fenced)) {
        (void)atomic_exchange(&lock->busy, 1);
    } else {
        atomic_store_explicit(&lock->busy, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst); /* pairs with the barrier of wi_biased_fence */
    }
    if (wi_likely(!atomic_load(&lock->revoked)))
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
