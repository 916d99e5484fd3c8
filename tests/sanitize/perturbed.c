/* With perturb.c preloaded: a thread runs what it was made for, and waits end though nobody has signalled. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

typedef struct pair {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned signals;
    bool over;
} pair;

static void *signal_until_over(void *user)
{
    pair *p = user;
    for (bool over = false; !over;) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL); /* a wait without a reason is over before */
        pthread_mutex_lock(&p->lock);
        over = p->over;
        p->signals += !over;
        pthread_cond_signal(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    return p;
}

static void test_waits_end_without_a_signal(void **state)
{
    enum { MOST = 2000 }; /* each one does with a chance of a sixteenth */
    (void)state;
    pair p = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false};
    pthread_t thread;
    void *result;
    bool by_itself = false;
    assert_int_equal(pthread_create(&thread, NULL, signal_until_over, &p), 0);
    pthread_mutex_lock(&p.lock);
    for (int waits = 0; waits < MOST && !by_itself; waits++) {
        unsigned before = p.signals;
        assert_int_equal(pthread_cond_wait(&p.changed, &p.lock), 0);
        by_itself = p.signals == before;
    }
    p.over = true;
    pthread_mutex_unlock(&p.lock);
    pthread_join(thread, &result);
    assert_true(by_itself);
    assert_ptr_equal(result, &p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_waits_end_without_a_signal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
