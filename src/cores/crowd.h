/* The cores that this process may compute on, and how many threads may wait for one another where other processes compute, too.
 *
 * Threads that spin until all of them have come this far lose a slice of the scheduler's whenever one of them is not
 * run. The leading thread shows the loss: it was put off its processor although it never slept, and ran for less time
 * than passed. Then fewer threads do more. Now and then a window with more threads is tried; after each attempt in
 * vain, the next attempt is put off twice as long. */
#ifndef WI_CORES_CROWD_H
#define WI_CORES_CROWD_H

#include "base/internal.h"

enum { WI_CROWD_WINDOW = 20 * 1000 * 1000 }; /* nanoseconds that are judged together */

typedef struct wi_crowd_sample {
    uint64_t passed, ran; /* nanoseconds: by the clock, and of processor time of the leading thread */
    uint64_t put_off;     /* how often the system preempted the leading thread */
} wi_crowd_sample;

typedef struct wi_crowd {
    uint32_t limit; /* threads that may be coupled */
    wi_crowd_sample window;
    uint32_t most;  /* threads that were coupled in it, at most */
    uint64_t quiet; /* nanoseconds without a crowd since the last change */
    uint64_t delay; /* and so many are wanted before more are tried */
    bool trying;    /* the window is the first with more */
} wi_crowd;

/* What the calling thread has seen until `now`, since it and the clock began: a sample is the difference of two. */
wi_crowd_sample wi_crowd_look(uint64_t now);
void wi_crowd_begin(wi_crowd *crowd, uint32_t cores);
/* Adds what a lease of so many threads has seen. True: the limit has changed. */
bool wi_crowd_add(wi_crowd *crowd, uint32_t cores, uint32_t threads, const wi_crowd_sample *sample);

/* Physical cores among the processors of the process's affinity, and no more than its cgroups' share of time fills; at
 * least 1. Hardware threads of one core share its multipliers, so that a matrix product gains nothing from the second.
 * `root` is what stands before /sys and /proc: "". */
uint32_t wi_cores_of_machine(const char *root);

#endif
