/* bench_loads.c: which loads there are, how batches are timed, and pairs on one thread. */
#include "loads.h"

#include "clock.h"

#include <weir/weir.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, WARM_UP = 4 };

unsigned bench_processors(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? (unsigned)count : 1;
}

size_t bench_loads(bench_load *out, unsigned threads)
{
    static const bench_load all[] = {
        {"pair, 512 B", false, 512, 0, false, bench_run_pair},
        {"pair, 64 KiB", false, 65536, 0, false, bench_run_pair},
        {"pair, 1 MiB", false, MIB, 0, false, bench_run_pair},
        {"pair, 64 MiB", false, (size_t)64 * MIB, 0, false, bench_run_pair},
        {"pair, 777 B", false, 777, 0, false, bench_run_pair},
        {"pair, 70001 B", false, 70001, 0, false, bench_run_pair},
        {"pair, 1200007 B", false, 1200007, 0, false, bench_run_pair},
        {"pair, 66000001 B", false, 66000001, 0, false, bench_run_pair},
        {"random, 1000 live", true, 0, 1000, false, bench_run_random},
        {"random, 10000 live", true, 0, 10000, false, bench_run_random},
        {"random, 1000 live, any size", true, 0, 1000, true, bench_run_random},
        {"random, 10000 live, any size", true, 0, 10000, true, bench_run_random},
        {"", true, 65536, 0, false, bench_run_threads},
        {"freed by another thread, in batches of 64", true, 65536, 0, false, bench_run_handed},
    };
    size_t count = sizeof all / sizeof all[0];
    memcpy(out, all, sizeof all);
    for (size_t i = 0; i < count; i++)
        if (out[i].run == bench_run_threads)
            snprintf(out[i].name, sizeof out[i].name, "pair, %u threads, a stream each", threads);
    return count;
}

/* Samples ---------------------------------------------------------------------------------------------------------- */

void bench_samples_begin(bench_samples *samples, const bench_limits *limits)
{
    *samples = (bench_samples){
        .at = text_zeroed(limits->laps, sizeof *samples->at), .room = limits->laps, .cost = bench_clock_cost()};
    samples->start = bench_now();
    samples->until = samples->start + limits->milliseconds * 1000000;
}

bool bench_samples_more(const bench_samples *samples)
{
    return samples->count < samples->room && (samples->count == 0 || samples->start < samples->until);
}

void bench_samples_add(bench_samples *samples, uint64_t started)
{
    uint64_t end = bench_now(), took = end - started;
    samples->at[samples->count++] = took > samples->cost ? took - samples->cost : 0;
    samples->start = end; /* the last look at the clock */
}

void bench_samples_end(bench_samples *samples, unsigned threads, uint64_t units, bench_figures *out)
{
    size_t count = 0, filled = 0;
    for (unsigned i = 0; i < threads; i++)
        count += samples[i].count;
    uint64_t *all = text_zeroed(count, sizeof *all), total = 0;
    for (unsigned i = 0; i < threads; i++) {
        if (samples[i].count > 0)
            memcpy(all + filled, samples[i].at, samples[i].count * sizeof *all);
        filled += samples[i].count;
        free(samples[i].at);
    }
    for (size_t i = 0; i < count; i++)
        total += all[i];
    bench_sort(all, count);
    if (count > 0) {
        size_t half = count / 2, last = count - 1 - count / 100;
        out->p50 = (double)all[half] / (double)units;
        out->p99 = (double)all[last] / (double)units;
        out->mean = (double)total / (double)(count * units);
    }
    free(all);
}

/* Pairs ------------------------------------------------------------------------------------------------------------ */

const char *bench_why(const bench_peer *by)
{
    return strncmp(by->name, "weir", 4) == 0 ? weir_detail() : "it refused a block";
}

bool bench_pairs(const bench_peer *by, size_t bytes, uint64_t stream)
{
    for (int i = 0; i < BENCH_BATCH; i++) {
        void *pointer = by->allocate(by->self, bytes, stream);
        if (!pointer || !by->release(by->self, pointer, bytes, stream))
            return false;
    }
    return true;
}

const char *bench_run_pair(const bench_load *load, const bench_peer *by, const bench_limits *limits, bench_figures *out)
{
    bench_samples samples;
    uint64_t stream;
    const char *failure = by->stream(by->self, 0, &stream);
    for (int i = 0; i < WARM_UP && !failure; i++)
        failure = bench_pairs(by, load->bytes, stream) ? NULL : bench_why(by);
    bench_samples_begin(&samples, limits);
    while (!failure && bench_samples_more(&samples)) {
        uint64_t start = bench_now();
        failure = bench_pairs(by, load->bytes, stream) ? NULL : bench_why(by);
        bench_samples_add(&samples, start);
    }
    bench_samples_end(&samples, 1, BENCH_BATCH, out);
    return failure;
}
