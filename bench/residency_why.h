/* Where the time of a call of weir's goes: the calls of CUDA's driver that the calling thread makes in it, and those of the C library
 * that wait or get memory, each with how often, how long, and when first and last. Faults can be planted in the driver's. */
#ifndef BENCH_RESIDENCY_WHY_H
#define BENCH_RESIDENCY_WHY_H

#include <stdbool.h>
#include <stdint.h>

/* Puts counting functions into weir's table of CUDA's functions. Behind the first runtime, which fills that. `timed`: they look
 * at the clock, too, which is some 50 ns a call. */
void why_begin(bool timed);

/* Forgets what this thread's calls were, */
void why_clear(void);
/* returns how many there were of the driver since, */
uint64_t why_calls(void);
/* and prints them as a table, with what is left of `seconds`: weir's own time. */
void why_tell(const char *what, double seconds);

/* From the function on that is called as the `at`th of those that can be refused, and beginning at 0, one call fails, or `all` do but
 * later unmaps: with them the driver cannot undo a map that has failed in part. The thread that plants alone is met. UINT64_MAX: none. */
void why_plant(uint64_t at, bool all);
/* How many of them were called since, and whether one has failed. */
uint64_t why_planted(void);
bool why_struck(void);

#endif
