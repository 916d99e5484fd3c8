/* bench_clock.h: what the parts of `weir bench` time with. */
#ifndef WEIR_CLI_BENCH_CLOCK_H
#define WEIR_CLI_BENCH_CLOCK_H

#include <weir/base.h>

/* Nanoseconds of a clock that only goes forward. */
uint64_t bench_now(void);

/* What a reading of it takes of every sample. */
uint64_t bench_clock_cost(void);

/* In place, smallest first. */
void bench_sort(uint64_t *samples, size_t count);

#endif
