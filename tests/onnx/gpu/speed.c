/* How fast, and with how much memory: one model, the same question again and again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"

static shape read_shape(const char *batch, const char *rest)
{
    return (shape){strtoll(batch, NULL, 10), strtoll(rest, NULL, 10)};
}

static double timed(const served *s, const question *q)
{
    double start = seconds();
    run(s, q, NULL);
    return seconds() - start;
}

/* By turns in one process, so that both see the same machine; the order of each pair turns as well. */
static void pair_up(const served *ours, const served *alone, const question *q, size_t count, double *a, double *b)
{
    for (size_t i = 0; i < count; i++) {
        if (i % 2)
            a[i] = timed(ours, q);
        b[i] = timed(alone, q);
        if (i % 2 == 0)
            a[i] = timed(ours, q);
    }
}

/* What weir did for a run: allocations, those that a thread cache served, calls of the driver for memory, moves. */
static void print_work(const weir_stats *before, const weir_stats *after, size_t runs)
{
    double n = (double)runs;
    printf("\"allocations\": %.1f, \"hits\": %.1f, \"driver_calls\": %.2f, \"moved\": %.2f, \"ladder\": [",
           (double)(after->allocations - before->allocations) / n, (double)(after->hits - before->hits) / n,
           (double)(after->driver_calls - before->driver_calls) / n, (double)(after->moved - before->moved) / n);
    for (int i = 0; i < WEIR_RUNG_COUNT; i++)
        printf("%s%.2f", i ? ", " : "", (double)(after->ladder[i] - before->ladder[i]) / n);
    printf("], ");
}

static weir_stats stats_of(const bed *b)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    must(weir_snapshot(b->runtime, &stats, NULL, 0, NULL), "statistics");
    return stats;
}

static void print_ratios(const double *ratio, size_t count)
{
    printf(", \"ratios\": [");
    for (size_t i = 0; i < count; i++)
        printf("%s%.4f", i ? ", " : "", ratio[i]);
    printf("]}\n");
}

/* speed MODEL BATCH REST PAIRS [SETTING…]: the median of paired ratios with its 95 % interval, from the order of the ratios alone. */
int part_speed(const bed *b, int argc, char **argv)
{
    check(argc >= 4, "speed MODEL BATCH REST PAIRS [SETTING…]");
    size_t count = strtoul(argv[3], NULL, 10);
    bed other = *b;
    other.alone = true;
    served ours, alone = serve(&other, argv[0]);
    must(serve_try(b, argv[0], 0, (const char *const *)(argv + 4), &ours), argv[0]);
    question q;
    answer mine, theirs;
    double *a = calloc(count, sizeof *a), *p = calloc(count, sizeof *p), *ratio = calloc(count, sizeof *ratio);
    check(count >= 10 && a && p && ratio, "at least 10 pairs");
    ask(&ours, read_shape(argv[1], argv[2]), &q);
    for (int i = 0; i < 5; i++) {
        run(&ours, &q, NULL);
        run(&alone, &q, NULL);
    }
    run(&ours, &q, &mine);
    run(&alone, &q, &theirs);
    double most = 0;
    bool equal = same(&mine, &theirs, &most);
    weir_stats before = stats_of(b);
    pair_up(&ours, &alone, &q, count, a, p);
    weir_stats after = stats_of(b);
    for (size_t i = 0; i < count; i++)
        ratio[i] = a[i] / p[i];
    double half = 1.96 * sqrt((double)count) / 2 / (double)count;
    double low = percentile(ratio, count, 0.5 - half), middle = percentile(ratio, count, 0.5);
    double high = percentile(ratio, count, 0.5 + half);
    printf("{\"part\": \"speed\", \"model\": \"%s\", \"setting\": \"%s\", \"pairs\": %zu, ", ours.name,
           argc > 4 ? argv[4] : "", count);
    print_work(&before, &after, count);
    printf("\"weir_ms\": %.4f, "
           "\"plain_ms\": %.4f, "
           "\"ratio\": %.5f, \"low\": %.5f, \"high\": %.5f, \"bit_equal\": %s, \"most_different\": %.3g",
           percentile(a, count, 0.5) * 1e3, percentile(p, count, 0.5) * 1e3, middle, low, high,
           equal ? "true" : "false", most);
    print_ratios(ratio, count);
    ask_end(&q);
    serve_end(&ours);
    serve_end(&alone);
    free(mine.values);
    free(theirs.values);
    free(a);
    free(p);
    free(ratio);
    return 0;
}

/* hold MODEL BATCH REST RUNS [SETTING…]: what a session holds, and what its tensors took at their peak. */
int part_hold(const bed *b, int argc, char **argv)
{
    check(argc >= 4, "hold MODEL BATCH REST RUNS [SETTING…]");
    uint64_t before = taken(b), held_before = held(b);
    served s;
    question q;
    must(serve_try(b, argv[0], 0, (const char *const *)(argv + 4), &s), argv[0]);
    ask(&s, read_shape(argv[1], argv[2]), &q);
    for (unsigned long i = strtoul(argv[3], NULL, 10); i > 0; i--)
        run(&s, &q, NULL);
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_memory_stats memory = WEIR_INIT(weir_memory_stats);
    must(weir_snapshot(b->runtime, &stats, NULL, 0, NULL), "statistics");
    must(weir_memory_stats_info(b->runtime, &memory), "statistics");
    printf(
        "{\"part\": \"hold\", \"plain\": %s, \"model\": \"%s\", \"taken\": %llu, \"held\": %llu, \"peak_held\": %llu, "
        "\"peak_requested\": %llu, \"peak_charged\": %llu}\n",
        b->alone ? "true" : "false", s.name, (unsigned long long)(taken(b) - before),
        (unsigned long long)(held(b) - held_before), (unsigned long long)stats.peak_held,
        (unsigned long long)memory.requested_bytes.peak, (unsigned long long)memory.allocated_bytes.peak);
    ask_end(&q);
    serve_end(&s);
    check(live(b) == 0, "the ledger is not back at zero");
    return 0;
}

/* again MODEL BATCH REST RUNS: what a session takes of the device when the process has had it once before: without what CUDA and
 * its libraries keep from the first time. */
int part_again(const bed *b, int argc, char **argv)
{
    check(argc == 4, "again MODEL BATCH REST RUNS");
    uint64_t taken_by_it = 0;
    char name[256] = "";
    for (int time = 0; time < 2; time++) {
        question q;
        must(weir_runtime_trim(b->runtime, NULL, NULL), "trim");
        uint64_t before = taken(b);
        served s = serve(b, argv[0]);
        ask(&s, read_shape(argv[1], argv[2]), &q);
        for (unsigned long i = strtoul(argv[3], NULL, 10); i > 0; i--)
            run(&s, &q, NULL);
        taken_by_it = taken(b) - before;
        snprintf(name, sizeof name, "%s", s.name);
        ask_end(&q);
        serve_end(&s);
    }
    printf("{\"part\": \"again\", \"plain\": %s, \"model\": \"%s\", \"taken\": %llu}\n", b->alone ? "true" : "false",
           name, (unsigned long long)taken_by_it);
    return 0;
}
