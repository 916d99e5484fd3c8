/* Where threads of tests wait for one another, as readers of texts that models go on with: gates, which the test opens, and meetings. */
#ifndef TESTS_TEXT_MEETINGS_H
#define TESTS_TEXT_MEETINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

/* Readers wait here until the test opens it; the test waits until all have come. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int come;
    bool open;
} gate;
#define GATE                                                                                                           \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false                                                  \
    }

static inline void pass(gate *at)
{
    pthread_mutex_lock(&at->lock);
    at->come++;
    pthread_cond_broadcast(&at->change);
    while (!at->open)
        pthread_cond_wait(&at->change, &at->lock);
    pthread_mutex_unlock(&at->lock);
}

/* A run that has ended without a piece is not waited for. */
static inline void miss(gate *at)
{
    pthread_mutex_lock(&at->lock);
    at->come++;
    pthread_cond_broadcast(&at->change);
    pthread_mutex_unlock(&at->lock);
}

static inline void wait_for(gate *at, int count)
{
    pthread_mutex_lock(&at->lock);
    while (at->come < count)
        pthread_cond_wait(&at->change, &at->lock);
    pthread_mutex_unlock(&at->lock);
}

static inline void open_gate(gate *at)
{
    pthread_mutex_lock(&at->lock);
    at->open = true;
    pthread_cond_broadcast(&at->change);
    pthread_mutex_unlock(&at->lock);
}

/* Where readers meet: everybody waits there until so many have come, or for so long that it has failed. */
enum { MEETING_SECONDS = 60 };
typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t all;
    int come, wanted;
    bool missed;
} meeting;
#define MEETING(count)                                                                                                 \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, count, false                                           \
    }

static inline void meet(meeting *it)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MEETING_SECONDS;
    pthread_mutex_lock(&it->lock);
    it->come++;
    pthread_cond_broadcast(&it->all);
    while (it->come < it->wanted && !it->missed)
        it->missed = pthread_cond_timedwait(&it->all, &it->lock, &until) != 0;
    pthread_mutex_unlock(&it->lock);
}

static inline int come(meeting *it)
{
    pthread_mutex_lock(&it->lock);
    int count = it->come;
    pthread_mutex_unlock(&it->lock);
    return count;
}

/* Nobody waits there any more. */
static inline void open_meeting(meeting *it)
{
    pthread_mutex_lock(&it->lock);
    it->wanted = 0;
    pthread_cond_broadcast(&it->all);
    pthread_mutex_unlock(&it->lock);
}

#endif
