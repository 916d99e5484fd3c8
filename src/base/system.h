/* The operating system, as far as it is not a device: clock, threads, forks. */
#ifndef WI_SYSTEM_H
#define WI_SYSTEM_H

#include "base/internal.h"

uint64_t wi_now(void);           /* monotonic nanoseconds */
double wi_real_seconds(void);    /* the same in seconds, whatever wi_clock says */
uint64_t wi_thread_number(void); /* 1 for the first thread that asks, 2 for the second … */

/* Waits one turn, counted from 0, for another thread that is doing something short. That thread may need this
 * processor and have a lower priority, so that yielding is replaced by sleeping after a few turns. */
void wi_pause(unsigned turn);

/* Replaces the system's clock in wi_now if set: simulated time. Set before anything else of weir is called. */
extern uint64_t (*wi_clock)(void);

/* Set where one thread plays all threads, as in the simulator: waiting for another thread would never end. Such waits
 * return at once then, as if that thread were done. */
extern bool wi_alone;

#endif
