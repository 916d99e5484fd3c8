/* What bench/instructions.py counts the instructions of: allocations and frees by counted_alloc and counted_free, at
 * which callgrind is toggled. What is done before, and between, is not counted. */
#include <weir/weir.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIVE = 1000, WARM_UP = 10 * LIVE, SMALLEST = 512, DOUBLINGS = 13, BATCH = 64 };

static weir_client *client;
static weir_stream stream;

static void check(weir_status status)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "instructions: %s\n", weir_detail());
    exit(1);
}

static void *plain_alloc(size_t bytes)
{
    void *p = NULL;
    check(weir_alloc(client, bytes, stream, WEIR_CLASS_ACTIVATIONS, &p));
    return p;
}

/* External, so that a compiler leaves them as they are called. */
void *counted_alloc(size_t bytes);
void counted_free(void *p);

__attribute__((noinline)) void *counted_alloc(size_t bytes)
{
    return plain_alloc(bytes);
}

__attribute__((noinline)) void counted_free(void *p)
{
    check(weir_free(client, p, stream));
}

/* One block at a time. */
static void pairs(size_t bytes, unsigned long count)
{
    for (int i = 0; i < 100; i++)
        check(weir_free(client, plain_alloc(bytes), stream));
    for (unsigned long i = 0; i < count; i++)
        counted_free(counted_alloc(bytes));
}

/* Blocks that come and go at random, as in `weir bench`. */
static void at_random(unsigned long count)
{
    static void *blocks[LIVE];
    unsigned seed = 1;
    for (unsigned long i = 0; i < WARM_UP + count; i++) {
        unsigned at = (unsigned)rand_r(&seed) % LIVE;
        size_t bytes = (size_t)(SMALLEST * exp2((double)rand_r(&seed) / RAND_MAX * DOUBLINGS));
        bool counts = i >= WARM_UP;
        if (blocks[at] && counts)
            counted_free(blocks[at]);
        else if (blocks[at])
            check(weir_free(client, blocks[at], stream));
        blocks[at] = counts ? counted_alloc(bytes) : plain_alloc(bytes);
    }
    for (int i = 0; i < LIVE; i++)
        check(weir_free(client, blocks[i], stream));
}

/* From hand to hand: batches that this thread allocates and another one frees, in turn. */
typedef struct hand_over {
    void *blocks[BATCH];
    unsigned long count;
    pthread_barrier_t turn;
} hand_over;

static void *free_batches(void *user)
{
    hand_over *h = user;
    for (unsigned long done = 0; done < h->count; done += BATCH) {
        pthread_barrier_wait(&h->turn);
        for (int i = 0; i < BATCH; i++)
            counted_free(h->blocks[i]);
        pthread_barrier_wait(&h->turn);
    }
    return NULL;
}

static void handed(size_t bytes, unsigned long count)
{
    hand_over h = {.count = count};
    pthread_t other;
    pthread_barrier_init(&h.turn, NULL, 2);
    if (pthread_create(&other, NULL, free_batches, &h) != 0)
        exit(1);
    for (unsigned long done = 0; done < count; done += BATCH) {
        for (int i = 0; i < BATCH; i++)
            h.blocks[i] = counted_alloc(bytes);
        pthread_barrier_wait(&h.turn);
        pthread_barrier_wait(&h.turn);
    }
    pthread_join(other, NULL);
    pthread_barrier_destroy(&h.turn);
}

/* instructions pair|random|handed BYTES COUNT CACHE: how much thread caches keep, or "default". */
int main(int count, char **words)
{
    weir_runtime *runtime;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options named = WEIR_INIT(weir_client_options);
    if (count != 5)
        return 2;
    size_t bytes = strtoul(words[2], NULL, 10);
    unsigned long laps = strtoul(words[3], NULL, 10);
    if (strcmp(words[4], "default") != 0)
        check(weir_option_set("thread_cache", words[4]));
    check(weir_option_set("range", "4GiB")); /* valgrind has no more in one piece */
    options.budget = UINT64_C(2) << 30;
    named.name = "instructions";
    check(weir_runtime_create("host", &options, &runtime));
    check(weir_client_create(runtime, &named, &client));
    check(weir_stream_acquire(runtime, &stream));
    if (strcmp(words[1], "random") == 0)
        at_random(laps);
    else if (strcmp(words[1], "handed") == 0)
        handed(bytes, laps);
    else
        pairs(bytes, laps);
    check(weir_stream_synchronize(stream));
    check(weir_client_destroy(client));
    check(weir_stream_release(stream));
    check(weir_runtime_destroy(runtime));
    return 0;
}
