/* Clock, threads and their memory, forks. */
#include "base/system.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

/* Clock and threads ------------------------------------------------------------------------------------------------ */

uint64_t (*wi_clock)(void);
bool wi_alone;

static uint64_t system_real_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

uint64_t wi_now(void)
{
    return wi_clock ? wi_clock() : system_real_now();
}

double wi_real_seconds(void)
{
    return (double)system_real_now() / 1e9;
}

enum { YIELDS = 16, FIRST_PAUSE = 20 * 1000, DOUBLINGS = 5 }; /* nanoseconds */

void wi_pause(unsigned spin)
{
    if (spin < YIELDS) {
        sched_yield();
        return;
    }
    unsigned doublings = spin - YIELDS < DOUBLINGS ? spin - YIELDS : DOUBLINGS;
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)FIRST_PAUSE << doublings}, NULL);
}

uint64_t wi_thread_number(void)
{
    static atomic_uint_fast64_t last;
    static _Thread_local uint64_t mine;
    if (mine == 0)
        mine = atomic_fetch_add(&last, 1) + 1;
    return mine;
}

int wi_thread_start(pthread_t *joined, void *(*fn)(void *user), void *user)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread has the mask of its maker */
    int failure = pthread_create(joined ? joined : &thread, NULL, fn, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure == 0 && !joined)
        pthread_detach(thread);
    return failure;
}

/* Forks ------------------------------------------------------------------------------------------------------------ */

atomic_bool wi_forked;

static void system_in_child(void)
{
    atomic_store(&wi_forked, true);
    wi_detail_in_child();
}

static void watch_forks_once(void)
{
    pthread_atfork(NULL, NULL, system_in_child);
}

void wi_watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks_once);
}

void wi_fail_forked(void)
{
    (void)weir_fail(WEIR_ERR_FORKED,
                    "this process was forked from one that used weir, and device memory and threads do "
                    "not survive a fork; use exec, or fork before the first call");
}

/* Memory of a thread ----------------------------------------------------------------------------------------------- */

/* Before each piece of memory. */
typedef struct owned {
    struct owned *next; /* of the same thread */
    void **pointer;
    _Alignas(max_align_t) char bytes[];
} owned;

static pthread_key_t key; /* the thread's list */
static bool usable;

/* Destructors of other libraries may run after this and need the memory again. The thread then gets a new list, and
 * the system calls this again. */
static void end_thread(void *list)
{
    for (owned *o = list, *next; o; o = next) {
        next = o->next;
        *o->pointer = NULL;
        free(o);
    }
}

static void base_own_make_key(void)
{
    usable = pthread_key_create(&key, end_thread) == 0;
}

void *wi_own(void **pointer, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (wi_likely(*pointer))
        return *pointer;
    pthread_once(&once, base_own_make_key);
    owned *o = usable ? calloc(1, sizeof *o + bytes) : NULL;
    if (!o)
        return NULL;
    *o = (owned){.next = pthread_getspecific(key), .pointer = pointer};
    if (pthread_setspecific(key, o) != 0) {
        free(o);
        return NULL;
    }
    return *pointer = o->bytes;
}
