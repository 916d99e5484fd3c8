/* Runs of one model at the same time, each in a session of its own over one set of weights: how many in a second, whether they
 * answer as one session does, and what they take. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu.h"

enum { ASKERS = 4, SLOTS_TRIED = 3 };

typedef struct asker {
    const served *model;
    const question *q;
    const answer *wanted;
    const atomic_bool *stop;
    uint64_t runs, different;
    double most;
    pthread_t thread;
} asker;

static void *ask_on(void *user)
{
    asker *a = user;
    while (!atomic_load(a->stop)) {
        answer got;
        run(a->model, a->q, &got);
        a->runs++;
        a->different += !same(a->wanted, &got, &a->most);
        free(got.values);
    }
    return NULL;
}

/* As many threads as ever, whatever there are sessions for. */
static void ask_for(asker *askers, const served *s, const question *q, const answer *wanted, double time)
{
    atomic_bool stop = false;
    for (int i = 0; i < ASKERS; i++) {
        askers[i] = (asker){.model = s, .q = q, .wanted = wanted, .stop = &stop};
        check(pthread_create(&askers[i].thread, NULL, ask_on, &askers[i]) == 0, "no thread");
    }
    usleep((useconds_t)(time * 1e6));
    atomic_store(&stop, true);
    for (int i = 0; i < ASKERS; i++)
        pthread_join(askers[i].thread, NULL);
}

static uint64_t weights(const served *s)
{
    weir_client_stats stats = {.struct_size = sizeof stats};
    must(weir_client_info(s->client, &stats), "statistics");
    return stats.live_class[WEIR_CLASS_WEIGHTS];
}

/* Prints one; the first one's answer is what the others are compared with. */
static double measure(const bed *b, const char *path, shape form, double time, int slots, answer *wanted)
{
    char setting[32];
    served s;
    question q;
    asker askers[ASKERS];
    uint64_t runs = 0, different = 0;
    double most = 0;
    snprintf(setting, sizeof setting, "concurrency=%d", slots);
    must(serve_try(b, path, 0, (const char *const[]){setting, NULL}, &s), path);
    check(s.model->slot_count == (size_t)slots, "not every session could be made");
    ask(&s, form, &q);
    if (!wanted->values)
        run(&s, &q, wanted);
    ask_for(askers, &s, &q, wanted, time / 4); /* kernels are chosen and plans of memory made */
    double start = seconds();
    ask_for(askers, &s, &q, wanted, time);
    double took = seconds() - start;
    for (int i = 0; i < ASKERS; i++) {
        runs += askers[i].runs;
        different += askers[i].different;
        most = askers[i].most > most ? askers[i].most : most;
    }
    printf("%s{\"concurrency\": %d, \"runs\": %llu, \"runs_per_second\": %.2f, \"weights\": %llu, \"held\": %llu, "
           "\"different\": %llu, \"most_different\": %.3g}",
           slots > 1 ? ", " : "", slots, (unsigned long long)runs, (double)runs / took, (unsigned long long)weights(&s),
           (unsigned long long)held(b), (unsigned long long)different, most);
    ask_end(&q);
    serve_end(&s);
    return most;
}

/* concurrency MODEL BATCH REST SECONDS: four threads that ask without a pause, with one, two and four runs at a time. */
int part_concurrency(const bed *b, int argc, char **argv)
{
    check(argc == 4, "concurrency MODEL BATCH REST SECONDS");
    static const int slots[SLOTS_TRIED] = {1, 2, 4};
    shape form = {strtoll(argv[1], NULL, 10), strtoll(argv[2], NULL, 10)};
    answer wanted = {0};
    double most = 0;
    printf("{\"part\": \"concurrency\", \"tried\": [");
    for (int i = 0; i < SLOTS_TRIED; i++) {
        double its = measure(b, argv[0], form, strtod(argv[3], NULL), slots[i], &wanted);
        most = its > most ? its : most;
    }
    printf("], \"most_different\": %.3g}\n", most);
    free(wanted.values);
    check(live(b) == 0, "the ledger is not back at zero");
    return 0; /* the stub of CUDA computes nothing that could be alike: scripts/gpu-onnx has the goal */
}
