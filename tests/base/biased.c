/* The biased lock: what its owner and revokers do never overlaps. */
#include "base/biased.h"
#include "core/core.h"

#include <sched.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#endif
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

enum { REVOKES = UNDER_TSAN ? 500 : 20000, LOCKS = 2 };

typedef struct shared {
    wi_biased lock;
    uint64_t first, second; /* equal whenever nobody is inside */
    uint64_t entered;       /* the owner's count */
    uint64_t wrong;
    atomic_bool begun; /* the owner was inside */
    int number;
} shared;

static atomic_bool stop;

/* Stores to memory that is in no cache keep those behind them from others for a while: without the revoker's fence it
 * would see an owner outside who is in. */
enum { FAR_BYTES = 32 << 20, FAR_STORES = 12 };
static volatile char far_away[LOCKS][FAR_BYTES];

static void store_far(int lock, uint64_t *random)
{
    for (int i = 0; i < FAR_STORES; i++)
        far_away[lock][next_random(random) % FAR_BYTES] = 1;
}

static void change(shared *s, uint64_t *wrong)
{
    *wrong += s->first != s->second;
    s->first++;
    atomic_signal_fence(memory_order_seq_cst); /* two stores, for the other to come between */
    s->second++;
}

static void *own(void *user)
{
    shared *s = user;
    uint64_t wrong = 0, random = (uint64_t)s->number + 1;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        store_far(s->number, &random);
        if (wi_biased_enter(&s->lock)) {
            change(s, &wrong);
            s->entered++;
            atomic_store_explicit(&s->begun, true, memory_order_relaxed);
            wi_biased_leave(&s->lock);
        }
    }
    s->wrong = wrong;
    return NULL;
}

static void owners_and_a_revoker_exclude_each_other(void **state)
{
    (void)state;
    static shared s[LOCKS];
    pthread_t threads[LOCKS];
    uint64_t wrong = 0;
    for (int i = 0; i < LOCKS; i++)
        wi_biased_init(&s[i].lock);
    for (int i = 0; i < LOCKS; i++) {
        s[i].number = i;
        pthread_create(&threads[i], NULL, own, &s[i]);
    }
    for (int i = 0; i < LOCKS; i++) /* on a busy machine a thread may come late */
        while (!atomic_load_explicit(&s[i].begun, memory_order_relaxed))
            sched_yield();
    for (int revoke = 0; revoke < REVOKES; revoke++) {
        for (int i = 0; i < LOCKS; i++)
            wi_biased_ask(&s[i].lock);
        wi_biased_fence();
        for (int i = 0; i < LOCKS; i++)
            wi_biased_wait(&s[i].lock);
        for (int i = 0; i < LOCKS; i++)
            change(&s[i], &wrong);
        for (int i = 0; i < LOCKS; i++)
            wi_biased_release(&s[i].lock);
        if (revoke % 16 == 0)
            sched_yield();
    }
    atomic_store(&stop, true);
    for (int i = 0; i < LOCKS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(s[i].wrong, 0);
        assert_true(s[i].entered > 0);
        assert_int_equal(s[i].first, s[i].entered + REVOKES); /* no step was lost */
        assert_int_equal(s[i].second, s[i].first);
    }
    assert_int_equal(wrong, 0);
}

static void a_revoked_lock_is_not_entered(void **state)
{
    (void)state;
    wi_biased lock;
    wi_biased_init(&lock);
    wi_biased_ask(&lock);
    wi_biased_fence();
    wi_biased_wait(&lock);
    assert_false(wi_biased_enter(&lock));
    assert_int_equal(atomic_load(&lock.busy), 0);
    wi_biased_release(&lock);
    assert_true(wi_biased_enter(&lock));
    wi_biased_leave(&lock);
}

#if defined(SYS_membarrier) && __has_include(<sys/single_threaded.h>)
enum { PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 }; /* of linux/membarrier.h */

static bool membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

/* The first test: no lock was made. A barrier is refused to a process that is not registered, and to be registered takes one with
 * threads milliseconds. */
static void the_process_is_registered_before_it_has_threads(void **state)
{
    (void)state;
    bool alone = __libc_single_threaded, registered = membarrier(PRIVATE_EXPEDITED);
    if (UNDER_TSAN || !alone || !membarrier(REGISTER_PRIVATE_EXPEDITED))
        skip();
    assert_true(registered);
}
#else
static void the_process_is_registered_before_it_has_threads(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_process_is_registered_before_it_has_threads),
        cmocka_unit_test(a_revoked_lock_is_not_entered),
        cmocka_unit_test(owners_and_a_revoker_exclude_each_other),
    };
    return cmocka_run_group_tests_name("biased", tests, NULL, NULL);
}
