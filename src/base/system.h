/* The operating system, as far as it is not a device: clock, threads, forks. */
#ifndef WI_SYSTEM_H
#define WI_SYSTEM_H

#include "base/internal.h"

uint64_t wi_now(void);           /* monotonic nanoseconds */
uint64_t wi_thread_number(void); /* 1 for the first thread that asks, 2 for the second … */

/* One more turn, from 0 on, of waiting for another thread that is at work on something short: it may need this
 * processor, and be of a lower priority, so that giving up the rest of a turn is soon not enough. */
void wi_pause(unsigned turn);

/* What wi_now asks instead of the system's clock when it is set: simulated time. Set before anything of weir runs. */
extern uint64_t (*wi_clock)(void);

/* Set where one thread plays all of a program's, as the simulator does: another thread's work never gets done while
 * this one waits for it. Such waits then answer at once, as they do when nobody is at work. */
extern bool wi_alone;

#endif
