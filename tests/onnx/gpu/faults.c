/* Models that come and go, that are refused memory, that several threads use, and that are held up. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

static shape read_shape(const char *batch, const char *rest)
{
    return (shape){strtoll(batch, NULL, 10), strtoll(rest, NULL, 10)};
}

/* Resident bytes of the process, without what malloc keeps free. */
static uint64_t resident(void)
{
    malloc_trim(0);
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    check(file && fscanf(file, "%*u %llu", &pages) == 1, "/proc/self/statm cannot be read");
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Bytes that malloc has given out. */
static double heap(void)
{
    struct mallinfo2 now = mallinfo2();
    return (double)now.uordblks + (double)now.hblkhd;
}

/* cycles MODEL BATCH REST COUNT [SETTING…]: what each load, run and unload leaves behind, the first excluded; and those of the second
 * half, where no more than WEIR_TEST_HEAP_GROWTH bytes of the heap each are right, if that is set: ONNX Runtime's own, and
 * those of the libraries of CUDA. Likewise WEIR_TEST_LEFT_GROWTH bytes of the last two thirds, as the tool of tests/onnx/left
 * counts them, without what malloc keeps for itself. */
int part_cycles(const bed *b, int argc, char **argv)
{
    check(argc >= 4, "cycles MODEL BATCH REST COUNT [SETTING…]");
    unsigned long count = strtoul(argv[3], NULL, 10);
    uint64_t host = 0, half = 0;
    double start = seconds(), heap_half = 0, device = 0;
    const char *most = getenv("WEIR_TEST_HEAP_GROWTH"), *most_left = getenv("WEIR_TEST_LEFT_GROWTH");
    check(count > 1, "at least two cycles");
    for (unsigned long i = 0; i < count; i++) {
        served s;
        question q;
        must(serve_try(b, argv[0], 0, (const char *const *)(argv + 4), &s), argv[0]);
        ask(&s, read_shape(argv[1], argv[2]), &q);
        run(&s, &q, NULL);
        ask_end(&q);
        serve_end(&s);
        check(live(b) == 0, "the ledger is not back at zero");
        if (i == count / 2 - 1) {
            half = resident();
            heap_half = heap();
        }
        if (i == count / 3)
            looked_mark();
        if (i == 0) {
            host = resident();
            device = (double)taken(b) - (double)held(b);
        }
    }
    unsigned long first = count / 2;
    double left = looked_report(count - count / 3 - 1);
    double more = (double)(count - 1), later = (double)(count - first), heap_growth = (heap() - heap_half) / later;
    printf("{\"part\": \"cycles\", \"model\": \"%s\", \"cycles\": %lu, \"seconds\": %.2f, \"host_growth\": %.0f, "
           "\"host_growth_later\": %.0f, \"heap_growth_later\": %.0f, \"device_growth\": %.0f, \"left\": %.0f}\n",
           argv[0], count, seconds() - start, ((double)resident() - (double)host) / more,
           ((double)resident() - (double)half) / later, heap_growth,
           ((double)taken(b) - (double)held(b) - device) / more, left);
    check(!most_left || (left >= 0 && left <= strtod(most_left, NULL)), "each cycle leaves more");
    check(!most || heap_growth <= strtod(most, NULL), "the heap grows with each cycle");
    return 0;
}

/* refusals MODEL BATCH REST COUNT: the model under that many different limits, from nothing to all that it needs. Each time
 * it answers rightly or is refused in words, and leaves nothing. */
int part_refusals(const bed *b, int argc, char **argv)
{
    check(argc == 4, "refusals MODEL BATCH REST COUNT");
    unsigned long count = strtoul(argv[3], NULL, 10), loads = 0, runs = 0, fine = 0;
    shape form = read_shape(argv[1], argv[2]);
    question q;
    answer wanted, got;
    served s = serve(b, argv[0]);
    ask(&s, form, &q);
    run(&s, &q, NULL);
    run(&s, &q, &wanted);
    weir_client_stats stats = {.struct_size = sizeof stats};
    must(weir_client_info(s.client, &stats), "statistics");
    serve_end(&s);
    for (unsigned long i = 1; i <= count; i++) {
        weir_status status = serve_try(b, argv[0], stats.peak * i / count, NULL, &s);
        if (status == WEIR_OK) {
            ask_end(&q); /* the names in it are of the model before */
            ask(&s, form, &q);
            status = run_try(&s, &q, &got);
            runs += status == WEIR_ERR_OUT_OF_MEMORY;
            fine += status == WEIR_OK;
            if (status == WEIR_OK) {
                double most = 0;
                check(same(&wanted, &got, &most) || most < 1e-3, "another answer near the limit");
                free(got.values);
            }
            serve_end(&s);
        } else {
            loads += status == WEIR_ERR_OUT_OF_MEMORY;
        }
        check(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY, weir_detail());
        check(live(b) == 0, "the ledger is not back at zero");
    }
    printf("{\"part\": \"refusals\", \"model\": \"%s\", \"tried\": %lu, \"loads_refused\": %lu, \"runs_refused\": %lu, "
           "\"fine\": %lu}\n",
           argv[0], count, loads, runs, fine);
    ask_end(&q);
    free(wanted.values);
    return fine > 0 && loads > 0 ? 0 : 1;
}

/* graph TEXTS IMAGES ROUNDS: captured runs, between which another model fills what memory is free: a launch that used bytes
 * which became another's would answer otherwise, or spoil the other's answer. */
int part_graph(const bed *b, int argc, char **argv)
{
    check(argc == 3, "graph TEXTS IMAGES ROUNDS");
    served captured, other = serve(b, argv[1]);
    must(serve_try(b, argv[0], 0, (const char *const[]){"cuda_graph=on", NULL}, &captured), argv[0]);
    question q[2], others;
    answer wanted[2], others_wanted, got;
    double most = 0;
    unsigned long rounds = strtoul(argv[2], NULL, 10), different = 0;
    ask(&other, (shape){8, 224}, &others);
    run(&other, &others, &others_wanted);
    for (int i = 0; i < 2; i++) {
        ask(&captured, (shape){1 + i, 64}, &q[i]);
        run(&captured, &q[i], &wanted[i]);
    }
    for (unsigned long i = 0; i < rounds; i++) {
        run(&other, &others, &got);
        different += !same(&others_wanted, &got, &most);
        free(got.values);
        run(&captured, &q[i % 2], &got);
        different += !same(&wanted[i % 2], &got, &most);
        free(got.values);
    }
    printf("{\"part\": \"graph\", \"rounds\": %lu, \"different\": %lu, \"most_different\": %.3g}\n", rounds, different,
           most);
    for (int i = 0; i < 2; i++) {
        ask_end(&q[i]);
        free(wanted[i].values);
    }
    ask_end(&others);
    free(others_wanted.values);
    serve_end(&captured);
    serve_end(&other);
    check(live(b) == 0, "the ledger is not back at zero");
    return most < 1e-3 ? 0 : 1;
}

/* ---- several threads ------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    const served *model;
    const question *q;
    const answer *wanted;
    unsigned long runs, different;
    double most;
} worker;

static void *work(void *user)
{
    worker *w = user;
    for (unsigned long i = 0; i < w->runs; i++) {
        answer got;
        run(w->model, w->q, &got);
        w->different += !same(w->wanted, &got, &w->most);
        free(got.values);
    }
    return NULL;
}

/* threads MODEL BATCH REST RUNS [SETTING…]: two threads on one session and a third on a second session, all at once. */
int part_threads(const bed *b, int argc, char **argv)
{
    enum { THREADS = 3 };
    check(argc >= 4, "threads MODEL BATCH REST RUNS [SETTING…]");
    served one, two;
    must(serve_try(b, argv[0], 0, (const char *const *)(argv + 4), &one), argv[0]);
    must(serve_try(b, argv[0], 0, (const char *const *)(argv + 4), &two), argv[0]);
    question q;
    answer wanted;
    ask(&one, read_shape(argv[1], argv[2]), &q);
    run(&one, &q, &wanted);
    worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){i < 2 ? &one : &two, &q, &wanted, strtoul(argv[3], NULL, 10), 0, 0};
        check(pthread_create(&threads[i], NULL, work, &workers[i]) == 0, "no thread");
    }
    unsigned long different = 0;
    double most = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        different += workers[i].different;
        most = workers[i].most > most ? workers[i].most : most;
    }
    printf("{\"part\": \"threads\", \"model\": \"%s\", \"setting\": \"%s\", \"runs\": %lu, \"different\": %lu, "
           "\"by_thread\": [%lu, %lu, %lu], \"most_different\": %.3g}\n",
           one.name, argc > 4 ? argv[4] : "", THREADS * workers[0].runs, different, workers[0].different,
           workers[1].different, workers[2].different, most);
    ask_end(&q);
    serve_end(&two);
    serve_end(&one);
    free(wanted.values);
    check(live(b) == 0, "the ledger is not back at zero");
    return most < 1e-3 ? 0 : 1;
}
