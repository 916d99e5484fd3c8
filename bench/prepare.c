/* The first suspend of a client, with host memory that was prepared and without, beside a later one that copies as much.
 *
 *     bench-prepare [--device cuda:0] [--mib 16384] [--rounds 3]
 *
 * Each round opens a client with blocks of 1 to 64 MiB, filled from page-locked memory as a load does it, and suspends it twice. The exit
 * status is 1 when a goal is missed: a prepared first suspend takes at most 1.2 of a later one, a load that prepares 1.02 of one
 * that does not. */
#include <weir/residency.h>
#include <weir/weir.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)

enum { MOST_BLOCKS = 4096, MOST_ROUNDS = 99, STAGE = 64 << 20 };

static weir_runtime *runtime;
static uint64_t bytes = 16384 * MIB;
static int rounds = 3;

typedef struct times {
    double load, ready, first, later;
} times;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(weir_status status, const char *what)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "bench-prepare: %s: %s\n", what, weir_detail());
    exit(2);
}
#define MUST(call) must((call), #call)

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of one member of all rounds. */
static double middle(const times *all, size_t member)
{
    double values[MOST_ROUNDS] = {0};
    for (int i = 0; i < rounds; i++)
        memcpy(&values[i], (const char *)&all[i] + member, sizeof values[i]);
    qsort(values, (size_t)rounds, sizeof *values, by_size);
    return values[rounds / 2];
}

/* Allocates and fills as many blocks as fit into the bytes; returns their number. */
static size_t load(weir_client *client, const void *stage, void **blocks)
{
    size_t count = 0;
    for (uint64_t left = bytes, each; left >= MIB && count < MOST_BLOCKS; left -= each) {
        each = MIB << (count % 7);
        each = each < left ? each : left;
        MUST(weir_alloc(client, each, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &blocks[count]));
        MUST(weir_copy(runtime, blocks[count], stage, each, WEIR_STREAM_HOST));
        count++;
    }
    return count;
}

static double suspend(weir_client *client)
{
    double began = now();
    MUST(weir_client_suspend(client, NULL, NULL));
    double took = now() - began;
    MUST(weir_client_resume(client, WEIR_STREAM_HOST));
    return took;
}

static void run(const void *stage, bool prepared, times *t)
{
    static void *blocks[MOST_BLOCKS];
    weir_client_options who = WEIR_INIT(weir_client_options);
    weir_preparation told = WEIR_INIT(weir_preparation);
    weir_client *client;
    who.name = "model";
    MUST(weir_client_create(runtime, &who, &client));
    double began = now();
    size_t count = load(client, stage, blocks);
    if (prepared)
        MUST(weir_client_prepare(client, NULL));
    t->load = now() - began;
    do
        MUST(weir_client_preparation(client, &told));
    while (told.coming > 0 && nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL) == 0);
    if (told.status != WEIR_OK)
        fprintf(stderr, "bench-prepare: %s\n", told.why);
    t->ready = now() - began - t->load;
    t->first = suspend(client);
    t->later = suspend(client);
    (void)weir_client_forget_copies(client);
    while (count > 0)
        MUST(weir_free(client, blocks[--count], WEIR_STREAM_HOST));
    MUST(weir_client_destroy(client));
}

static void print(const char *name, const times *all)
{
    double gb = (double)bytes / 1e9, first = middle(all, offsetof(times, first)),
           later = middle(all, offsetof(times, later));
    printf("%-12s  load %7.3f s, ready after %6.3f s, first suspend %7.3f s (%5.2f GB/s), later %7.3f s (%5.2f GB/s): "
           "%.2f\n",
           name, middle(all, offsetof(times, load)), middle(all, offsetof(times, ready)), first, gb / first, later,
           gb / later, first / later);
}

int main(int argc, char **argv)
{
    static times without[MOST_ROUNDS], with[MOST_ROUNDS], warm;
    const char *device = "cuda:0";
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_request request = {.struct_size = sizeof request, .bytes = STAGE, .kind = WEIR_KIND_PINNED};
    weir_client_options who = WEIR_INIT(weir_client_options);
    weir_client *stager;
    weir_block stage;
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--device") == 0)
            device = argv[i + 1];
        else if (strcmp(argv[i], "--mib") == 0)
            bytes = strtoull(argv[i + 1], NULL, 10) * MIB;
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = atoi(argv[i + 1]);
    rounds = rounds < 1 ? 1 : rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
    MUST(weir_runtime_create(device, &options, &runtime));
    who.name = "stage";
    MUST(weir_client_create(runtime, &who, &stager));
    MUST(weir_alloc_with(stager, &request, &stage));
    memset(stage.pointer, 7, STAGE);
    run(stage.pointer, false, &warm);
    for (int i = 0; i < rounds; i++) {
        run(stage.pointer, false, &without[i]);
        run(stage.pointer, true, &with[i]);
    }
    print("not prepared", without);
    print("prepared", with);
    double first = middle(with, offsetof(times, first)) / middle(with, offsetof(times, later)),
           loads = middle(with, offsetof(times, load)) / middle(without, offsetof(times, load));
    printf("first over later %.2f (goal 1.2), load with it %.3f (goal 1.02)\n", first, loads);
    MUST(weir_free_block(stager, stage, WEIR_STREAM_HOST));
    MUST(weir_client_destroy(stager));
    MUST(weir_runtime_destroy(runtime));
    return first > 1.2 || loads > 1.02;
}
