/* perturb.c: preloaded into every test by `scripts/check --perturb SEED`. Threads are held at random where they begin, lock, unlock and
 * signal, some of them far more often than others, as on a machine that has much else to do; and waits for a condition end without a
 * reason, which POSIX allows. A test that takes the usual order of threads for granted, or code that does, fails then.
 * A held thread stays runnable: it is not asleep for who looks whether it waits. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Held in a process: often up to the first, seldom up to the other, and then no more. */
enum { FIRST_US = 2000000, MOST_US = 6000000 };

static atomic_uint perturb_threads, perturb_held;
static _Thread_local uint64_t perturb_state;
static _Thread_local uint32_t perturb_odds; /* one call in so many is held */

static uint64_t perturb_next(void)
{
    if (perturb_state == 0) {
        static const uint32_t odds[] = {8, 64, 512};
        const char *seed = getenv("PERTURB");
        uint64_t number = atomic_fetch_add(&perturb_threads, 1) + 1;
        perturb_state = ((seed ? strtoull(seed, NULL, 10) : 0) + 1) * 0x9e3779b97f4a7c15u;
        perturb_state ^= number * 0xbf58476d1ce4e5b9u ^ (uint64_t)getpid() << 20;
        perturb_state |= 1;
        for (int i = 0; i < 4; i++)
            (void)perturb_next();
        perturb_odds = odds[perturb_next() % 3];
    }
    perturb_state ^= perturb_state << 13;
    perturb_state ^= perturb_state >> 7;
    perturb_state ^= perturb_state << 17;
    return perturb_state >> 11;
}

static uint64_t perturb_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

static void perturb_hold(uint32_t us)
{
    int before = errno;
    if (atomic_fetch_add(&perturb_held, us) > MOST_US)
        return;
    for (uint64_t until = perturb_now_us() + us; perturb_now_us() < until;)
        sched_yield();
    errno = before;
}

static void perturb(void)
{
    uint64_t random = perturb_next();
    uint32_t odds = atomic_load(&perturb_held) > FIRST_US ? perturb_odds * 64 : perturb_odds;
    if (random % odds == 0)
        perturb_hold(30 + (uint32_t)(random >> 20) % 1500);
}

/* The function that the program would have called: libc's, or a sanitizer's in front of it. */
#define REAL(name, ...)                                                                                                \
    static _Atomic(void *) found;                                                                                      \
    int (*real)(__VA_ARGS__);                                                                                          \
    void *symbol = atomic_load_explicit(&found, memory_order_relaxed);                                                 \
    if (!symbol)                                                                                                       \
        atomic_store_explicit(&found, symbol = dlsym(RTLD_NEXT, #name), memory_order_relaxed);                         \
    memcpy(&real, &symbol, sizeof real)

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's names are reserved
int pthread_mutex_lock(pthread_mutex_t *lock)
{
    REAL(pthread_mutex_lock, pthread_mutex_t *);
    perturb();
    return real(lock);
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    REAL(pthread_mutex_unlock, pthread_mutex_t *);
    int status = real(lock);
    perturb();
    return status;
}

int pthread_cond_signal(pthread_cond_t *condition)
{
    REAL(pthread_cond_signal, pthread_cond_t *);
    perturb();
    return real(condition);
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
    REAL(pthread_cond_broadcast, pthread_cond_t *);
    perturb();
    return real(condition);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    REAL(pthread_cond_wait, pthread_cond_t *, pthread_mutex_t *);
    if (perturb_next() % 16 != 0)
        return real(condition, lock);
    pthread_mutex_unlock(lock);
    sched_yield();
    return pthread_mutex_lock(lock);
}

typedef struct perturb_start {
    void *(*run)(void *);
    void *argument;
} perturb_start;

static void *perturb_begin(void *user)
{
    perturb_start start = *(perturb_start *)user;
    uint64_t random = perturb_next();
    free(user);
    if (random % 4 == 0)
        perturb_hold(100 + (uint32_t)(random >> 20) % 5000);
    return start.run(start.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    REAL(pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    perturb_start *start = malloc(sizeof *start);
    if (!start)
        return real(thread, attributes, run, argument);
    *start = (perturb_start){run, argument};
    int status = real(thread, attributes, perturb_begin, start);
    uint64_t random = perturb_next();
    if (status)
        free(start);
    else if (random % 8 == 0)
        perturb_hold(100 + (uint32_t)(random >> 20) % 3000);
    return status;
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
