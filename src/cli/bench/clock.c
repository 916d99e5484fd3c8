#include "clock.h"

#include <stdlib.h>
#include <time.h>

uint64_t bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

uint64_t bench_clock_cost(void)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t start = bench_now(), took = bench_now() - start;
        best = took < best ? took : best;
    }
    return best;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void bench_sort(uint64_t *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, by_size);
}
