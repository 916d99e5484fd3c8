/* soon.h: how long to wait for a condition. */
#ifndef WT_SOON_H
#define WT_SOON_H

#include <time.h>

/* For pthread_cond_timedwait. */
static inline struct timespec wt_soon(long milliseconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_nsec += milliseconds * 1000000;
    now.tv_sec += now.tv_nsec / 1000000000;
    now.tv_nsec %= 1000000000;
    return now;
}

#endif
