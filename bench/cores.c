/* cores.c: models that compute at once, beside the same runs in turn.
 *
 *   bench-cores [--rounds N] [--runs N] [--threads N] [--busy N] [--plain 1] MODEL…
 *
 * MODEL is FILE.onnx:FIRSTxREST (open extents of its inputs), FILE.gguf:PROMPT+TOKENS or, of a GenAI model, FOLDER:PROMPT+TOKENS;
 * each is loaded with the default settings, or with so many threads. A round makes the runs of every model one after the
 * other, and then all at once, each model on a thread of its own. Printed are the medians in milliseconds, and their ratio: 1
 * is as fast as in turn, and half of it twice as fast.
 *
 * With --busy so many processes compute beside all that, and the first of both columns is measured without them: what is left
 * for T threads of ours beside N busy ones on C cores is min(1, C / (T + N)) of a core each. With --plain 1 models of the engine gguf
 * are computed by llama.cpp alone, in a context each with as many threads as cores or as many as said, and in each round also through
 * weir with its default settings, in turn: the ratio of that is printed behind. */
#include "served.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weir/cores.h>

#include "plain.h"

enum { MODELS = 16, ROUNDS = 101, BUSY = 64, CONTEXT = 4096 };

typedef struct one {
    served through_weir;
    plain other;
    int32_t *words;
    bool is_plain;
    int runs;
    pthread_t thread;
} one;

typedef struct bench {
    int rounds, runs, busy, threads;
    bool plain;
    one models[MODELS];
    int count;
    pid_t others[BUSY];
} bench;

static double now_ms(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec * 1e-6;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count / 2];
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

static void generate_plain(one *it)
{
    plain *lib = &it->other;
    struct llama_sampler *sampler = lib->llama_sampler_init_greedy();
    int32_t token = 0, prompt = (int32_t)it->through_weir.first, more = (int32_t)it->through_weir.rest;
    lib->llama_memory_clear(lib->llama_get_memory(lib->context), false);
    plain_need(lib->llama_decode(lib->context, lib->llama_batch_get_one(it->words, prompt)) == 0, "decoding");
    for (int32_t i = 0; i < more; i++) {
        token = lib->llama_sampler_sample(sampler, lib->context, -1);
        if (i + 1 < more)
            plain_need(lib->llama_decode(lib->context, lib->llama_batch_get_one(&token, 1)) == 0, "decoding");
    }
    lib->llama_sampler_free(sampler);
}

static void *compute(void *user)
{
    one *it = user;
    for (int i = 0; i < it->runs; i++)
        if (it->is_plain)
            generate_plain(it);
        else
            WEIR(served_run(&it->through_weir));
    return NULL;
}

static double in_turn(bench *b)
{
    double from = now_ms();
    for (int i = 0; i < b->count; i++)
        compute(&b->models[i]);
    return now_ms() - from;
}

/* The same through weir. */
static double in_turn_through_weir(bench *b)
{
    for (int i = 0; i < b->count; i++)
        b->models[i].is_plain = false;
    double took = in_turn(b);
    for (int i = 0; i < b->count; i++)
        b->models[i].is_plain = b->plain;
    return took;
}

static double at_once(bench *b)
{
    double from = now_ms();
    for (int i = 0; i < b->count; i++)
        check(pthread_create(&b->models[i].thread, NULL, compute, &b->models[i]) == 0, "no thread");
    for (int i = 0; i < b->count; i++)
        pthread_join(b->models[i].thread, NULL);
    return now_ms() - from;
}

/* Others ----------------------------------------------------------------------------------------------------------- */

static void begin_others(bench *b)
{
    for (int i = 0; i < b->busy; i++) {
        b->others[i] = fork();
        if (b->others[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile uint64_t work = 0;; work++)
                ;
        }
    }
}

static void end_others(bench *b)
{
    for (int i = 0; i < b->busy; i++) {
        kill(b->others[i], SIGKILL);
        waitpid(b->others[i], NULL, 0);
    }
}

/* ------------------------------------------------------------------------------------------------------------------ */

static void open_one(bench *b, one *it, weir_runtime *runtime)
{
    static char threads[16];
    served *model = &it->through_weir;
    it->runs = b->runs;
    it->is_plain = b->plain;
    snprintf(threads, sizeof threads, "%d", b->threads);
    model->threads = b->threads && !b->plain ? threads : "";
    model->any_answer = true; /* sums may be in another order with other threads */
    WEIR(served_load(model, runtime));
    if (!b->plain)
        return;
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    weir_cores_totals totals = WEIR_INIT(weir_cores_totals);
    check(model->generates && !model->folder, "--plain is for models of the engine gguf");
    WEIR(model->engine->probe(&probe));
    WEIR(weir_cores_info(&totals));
    it->words = model->inputs[0].data;
    it->other = plain_library(probe.library);
    plain_open(&it->other, model->path, false, CONTEXT, 512, b->threads ? b->threads : (int)totals.cores);
}

typedef struct figures {
    double turn, once, through_weir; /* milliseconds; the last is 0 without --plain */
} figures;

static figures measure(bench *b)
{
    double turns[ROUNDS] = {0}, onces[ROUNDS] = {0}, ours[ROUNDS] = {0};
    for (int i = 0; i < b->rounds; i++) {
        turns[i] = in_turn(b);
        ours[i] = b->plain ? in_turn_through_weir(b) : 0;
        onces[i] = b->count > 1 ? at_once(b) : turns[i];
    }
    return (figures){median(turns, b->rounds), median(onces, b->rounds), median(ours, b->rounds)};
}

static void read_options(bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int *to = strcmp(argv[i], "--rounds") == 0    ? &b->rounds
                  : strcmp(argv[i], "--runs") == 0    ? &b->runs
                  : strcmp(argv[i], "--threads") == 0 ? &b->threads
                  : strcmp(argv[i], "--busy") == 0    ? &b->busy
                                                      : NULL;
        if (strcmp(argv[i], "--plain") == 0 && i + 1 < argc)
            b->plain = atoi(argv[++i]) != 0;
        else if (to && i + 1 < argc)
            *to = atoi(argv[++i]);
        else if (b->count < MODELS)
            served_read(&b->models[b->count++].through_weir, argv[i]);
    }
    check(b->count > 0 && b->rounds >= 1 && b->rounds <= ROUNDS && b->runs >= 1 && b->busy >= 0 && b->busy <= BUSY,
          "usage: bench-cores [--rounds N] [--runs N] [--threads N] [--busy N] [--plain 1] MODEL…");
}

int main(int argc, char **argv)
{
    static bench b = {.rounds = 5, .runs = 4};
    weir_runtime *runtime;
    weir_cores_totals totals = WEIR_INIT(weir_cores_totals);
    read_options(&b, argc, argv);
    WEIR(weir_runtime_get("host", NULL, &runtime));
    for (int i = 0; i < b.count; i++)
        open_one(&b, &b.models[i], runtime);
    in_turn(&b);
    figures alone = measure(&b);
    WEIR(weir_cores_info(&totals));
    printf("%s%2d models on %u cores  in turn %9.2f ms   at once %9.2f ms   %.3f", b.plain ? "plain " : "", b.count,
           totals.cores, alone.turn, alone.once, alone.once / alone.turn);
    if (b.plain)
        printf("   through weir in turn %.2f ms, %.3f", alone.through_weir, alone.through_weir / alone.turn);
    if (b.busy > 0) {
        begin_others(&b);
        figures busy = measure(&b);
        end_others(&b);
        printf("   beside %d busy: in turn %.2f ms (%.2f times)   at once %.2f ms (%.2f times)", b.busy, busy.turn,
               busy.turn / alone.turn, busy.once, busy.once / alone.once);
    }
    printf("   %d runs each, median of %d\n", b.runs, b.rounds);
    for (int i = 0; i < b.count; i++) {
        if (b.plain)
            plain_close(&b.models[i].other);
        served_unload(&b.models[i].through_weir);
        served_forget(&b.models[i].through_weir);
    }
    return 0;
}
