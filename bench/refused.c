/* refused.c: what requests that can never fit cost those that are served.
 *
 *   bench-refused [--seconds N] [--clients N] [--every MS] MODEL.gguf MODEL.gguf
 *
 * A pool has both models, and a third one whose peak is more than the device has. Two threads ask the two models again and
 * again, each with one thread of its engine. In every second turn of a second so many clients ask for the third one, each as
 * often as `every` says. Printed are a line of JSON: refusals, the 50th and 99th percentile of their times in milliseconds (and of the processor's),
 * what was evicted, and the answers per second of the two with and without the clients. Exit status 1: something was evicted or
 * a request was not refused as it should be; 77: the engine is not here. */
#include <weir/weir.h>
#include <weir/pool.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 1000, SAMPLES = 20000 };
#define SECOND UINT64_C(1000000000)

typedef struct client {
    pthread_t thread;
    float *took; /* milliseconds, and of those the thread's own of the processor */
    float *own;
    size_t count;
} client;

static weir_pool *pool;
static uint64_t every = SECOND / 10;
static atomic_bool over, asking;
static atomic_ulong answers[2]; /* without clients, and with them */
static client clients[CLIENTS];

static uint64_t now(clockid_t of)
{
    struct timespec t;
    clock_gettime(of, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void pause_for(uint64_t nanoseconds)
{
    struct timespec t = {(time_t)(nanoseconds / SECOND), (long)(nanoseconds % SECOND)};
    nanosleep(&t, NULL);
}

static void must(weir_status status, const char *what)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, weir_detail());
    exit(status == WEIR_ERR_NOT_FOUND ? 77 : 1);
}

static void use(const char *name)
{
    static char text[] = "once upon a time";
    static const weir_setting few[] = {{"tokens", "2"}};
    bool generates = strcmp(name, "first") == 0;
    weir_pool_request request = WEIR_INIT(weir_pool_request);
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_tensor input = {.struct_size = sizeof input, .name = "text", .type = WEIR_TYPE_TEXT, .rank = 1};
    weir_lease *lease;
    input.shape[0] = (int64_t)(input.bytes = strlen(text));
    input.data = text;
    inference.inputs = &input;
    inference.input_count = 1;
    inference.settings = few;
    inference.setting_count = generates;
    request.name = name;
    must(weir_pool_infer(pool, &request, &inference, &out, NULL, &lease), name);
    weir_lease_release(lease);
}

static void *serve(void *user)
{
    while (!atomic_load(&over)) {
        bool with = atomic_load(&asking);
        use(user);
        atomic_fetch_add(&answers[with], 1);
    }
    return NULL;
}

static void *ask(void *user)
{
    client *it = user;
    weir_pool_request request = WEIR_INIT(weir_pool_request);
    request.name = "large";
    pause_for((uint64_t)(it - clients) * every / CLIENTS);
    for (; !atomic_load(&over); pause_for(every)) {
        weir_pool_answer answer = WEIR_INIT(weir_pool_answer);
        weir_lease *lease = NULL;
        if (!atomic_load(&asking))
            continue;
        uint64_t begun = now(CLOCK_MONOTONIC), own = now(CLOCK_THREAD_CPUTIME_ID);
        weir_status status = weir_pool_acquire(pool, &request, &answer, &lease);
        uint64_t took = now(CLOCK_MONOTONIC) - begun;
        own = now(CLOCK_THREAD_CPUTIME_ID) - own;
        if (status != WEIR_ERR_OUT_OF_MEMORY || answer.cause != WEIR_POOL_NEVER_FITS) {
            fprintf(stderr, "not refused: %s\n", weir_detail());
            exit(1);
        }
        if (it->count == SAMPLES)
            continue;
        it->own[it->count] = (float)((double)own / 1e6);
        it->took[it->count++] = (float)((double)took / 1e6);
    }
    return NULL;
}

static void add(const char *name, const char *path, uint64_t peak)
{
    static const weir_setting one[] = {{"threads", "1"}};
    weir_pool_spec spec = WEIR_INIT(weir_pool_spec);
    spec.name = name;
    spec.path = path;
    spec.peak = peak;
    spec.settings = one;
    spec.setting_count = 1;
    must(weir_pool_add(pool, &spec), path);
    if (!peak)
        use(name);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* All clients' samples in order, and how many; freed by the caller. */
static float *sorted(size_t clients_count, bool own, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < clients_count; i++)
        *count += clients[i].count;
    float *all = calloc(*count + 1, sizeof *all), *at = all;
    for (size_t i = 0; all && i < clients_count; i++) {
        memcpy(at, own ? clients[i].own : clients[i].took, clients[i].count * sizeof *at);
        at += clients[i].count;
    }
    if (all)
        qsort(all, *count, sizeof *all, by_value);
    return all;
}

static int print(size_t count, uint64_t seconds)
{
    size_t all, entries_count;
    weir_pool_entry entries[4];
    uint64_t evictions = 0;
    float *times = sorted(count, false, &all), *own = sorted(count, true, &all);
    if (!times || !own || all == 0)
        return 1;
    entries[0].struct_size = sizeof *entries;
    must(weir_pool_list(pool, entries, 4, &entries_count), "the list");
    for (size_t i = 0; i < entries_count; i++)
        evictions += entries[i].evictions + entries[i].suspends + (entries[i].loads > 1);
    double alone = (double)atomic_load(&answers[0]) / (double)seconds;
    double beside = (double)atomic_load(&answers[1]) / (double)seconds;
    printf("{\"clients\": %zu, \"refusals\": %zu, \"refused_ms_p50\": %.4f, \"refused_ms_p99\": %.4f, "
           "\"refused_processor_ms_p99\": %.4f, \"evictions\": %llu, \"answers_per_second_alone\": %.2f, "
           "\"answers_per_second_beside\": %.2f, \"ratio\": %.4f}\n",
           count, all, (double)times[all / 2], (double)times[all * 99 / 100], (double)own[all * 99 / 100],
           (unsigned long long)evictions, alone, beside, beside / alone);
    free(times);
    free(own);
    for (size_t i = 0; i < count; i++) {
        free(clients[i].took);
        free(clients[i].own);
    }
    return evictions > 0;
}

int main(int argc, char **argv)
{
    static char first[] = "first", second[] = "second";
    uint64_t seconds = 60;
    size_t count = 100;
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        uint64_t value = strtoull(argv[at + 1], NULL, 10);
        if (strcmp(argv[at], "--seconds") == 0)
            seconds = value;
        else if (strcmp(argv[at], "--clients") == 0)
            count = value;
        else if (strcmp(argv[at], "--every") == 0)
            every = value * SECOND / 1000;
    }
    if (argc - at != 2 || count == 0 || count > CLIENTS || seconds == 0)
        return fprintf(stderr, "bench-refused [--seconds N] [--clients N] [--every MS] MODEL.gguf MODEL.gguf\n"), 2;
    must(weir_pool_create(NULL, &pool), "the pool");
    add(first, argv[at], 0);
    add(second, argv[at + 1], 0);
    add("large", argv[at], UINT64_C(1) << 50);
    pthread_t servers[2];
    pthread_create(&servers[0], NULL, serve, first);
    pthread_create(&servers[1], NULL, serve, second);
    for (size_t i = 0; i < count; i++) {
        clients[i].took = calloc(SAMPLES, sizeof(float));
        clients[i].own = calloc(SAMPLES, sizeof(float));
        if (!clients[i].took || !clients[i].own)
            return 1;
        pthread_create(&clients[i].thread, NULL, ask, &clients[i]);
    }
    for (uint64_t i = 0; i < 2 * seconds; i++) {
        atomic_store(&asking, i % 2 == 1);
        pause_for(SECOND);
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < count; i++)
        pthread_join(clients[i].thread, NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(servers[i], NULL);
    int code = print(count, seconds);
    must(weir_pool_destroy(pool), "the end");
    return code;
}
