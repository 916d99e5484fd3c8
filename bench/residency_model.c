/* Clients that look like models, and the machine's own copies. */
#include "residency.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOKERS = 8, LOOK = 16 << 20, MOST_GOALS = 32 };

bench_words asked = {
    .device = "cuda:0", .rounds = 5, .models = 10, .room = 3, .turns = 100, .changes = 100, .end = 1e300};
bench_link machine;

const weir_suspend_options changed = {.struct_size = sizeof changed},
                           unwritten = {.struct_size = sizeof unwritten,
                                        .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)};

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void must(weir_status status, const char *what)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "bench-residency: %s: %s\n", what, weir_detail());
    exit(1);
}

uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Tables ----------------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quantile(double *values, int count, double part)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    int at = (int)(part * count);
    return values[at < count ? at : count - 1];
}

double median(double *values, int count)
{
    return quantile(values, count, 0.5);
}

void line(const char *what, double value, const char *unit, double part, const char *of)
{
    printf("%-64s %9.2f %-5s", what, value, unit);
    if (of)
        printf("  %5.3f %s", part, of);
    printf("\n");
    fflush(stdout);
}

static struct goal_line {
    const char *what, *unit;
    double figure, wanted;
    bool most;
} goals[MOST_GOALS];
static int goal_count;

void goal(const char *what, double figure, const char *unit, double wanted, bool most)
{
    if (goal_count < MOST_GOALS)
        goals[goal_count++] = (struct goal_line){what, unit, figure, wanted, most};
}

void tell_goals(void)
{
    if (goal_count > 0)
        printf("| %.2f GiB | figure | goal | |\n|---|---:|---:|---|\n",
               (double)asked.model_bytes / (1024.0 * (double)MIB));
    for (int i = 0; i < goal_count; i++) {
        const struct goal_line *g = &goals[i];
        bool met = g->most ? g->figure <= g->wanted : g->figure >= g->wanted;
        printf("| %s | %.3f %s | %s %g | %s |\n", g->what, g->figure, g->unit, g->most ? "at most" : "at least",
               g->wanted, met ? "met" : "not met");
    }
}

/* Models ----------------------------------------------------------------------------------------------------------- */

static uint8_t value_of(const model *m, size_t block)
{
    return (uint8_t)(m->seed * UINT64_C(31) + block * 7 + 1);
}

weir_runtime *make_runtime(uint64_t budget)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget};
    weir_runtime *runtime;
    MUST(weir_runtime_create(asked.device, &options, &runtime));
    return runtime;
}

void rewrite(weir_runtime *runtime, model *m, uint8_t seed)
{
    m->seed = seed;
    for (size_t i = 0; i < m->count; i++)
        MUST(weir_fill(runtime, m->blocks[i], value_of(m, i), m->sizes[i], WEIR_STREAM_HOST));
}

void load(weir_runtime *runtime, model *m, const char *name, uint64_t bytes, uint8_t seed)
{
    weir_client_options options = {.struct_size = sizeof options, .name = name};
    uint64_t random = seed + UINT64_C(88172645463325252), left = bytes;
    *m = (model){.bytes = bytes};
    MUST(weir_client_create(runtime, &options, &m->client));
    while (left > 0 && m->count < MOST_BLOCKS) {
        uint64_t size = (256 * 1024) << next_random(&random) % 12;
        size = size > bytes / 8 ? bytes / 8 : size;
        size = size > left || m->count == MOST_BLOCKS - 1 ? left : size;
        MUST(weir_alloc(m->client, size, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &m->blocks[m->count]));
        m->sizes[m->count++] = size;
        left -= size;
    }
    rewrite(runtime, m, seed);
}

void unload(model *m)
{
    for (size_t i = 0; i < m->count; i++)
        MUST(weir_free(m->client, m->blocks[i], WEIR_STREAM_HOST));
    MUST(weir_client_destroy(m->client));
    *m = (model){0};
}

/* Looking at every byte: a part of a block goes to a page-locked piece of each thread's. */
typedef struct look {
    weir_runtime *runtime;
    const model *m;
    weir_client *client;
    uint64_t most;
    atomic_size_t next;
    atomic_ullong differ;
} look;

static bool look_at(const look *l, size_t block, unsigned char *seen, weir_stream stream)
{
    const model *m = l->m;
    uint64_t end = m->sizes[block] < l->most ? m->sizes[block] : l->most;
    unsigned char value = value_of(m, block);
    for (uint64_t at = 0; at < end; at += LOOK) {
        uint64_t bytes = end - at < LOOK ? end - at : LOOK;
        memset(seen, value + 1, bytes);
        MUST(weir_copy(l->runtime, seen, (char *)m->blocks[block] + at, bytes, stream));
        MUST(weir_stream_synchronize(stream));
        if (seen[0] != value || memcmp(seen, seen + 1, bytes - 1) != 0) {
            fprintf(stderr, "bench-residency: block %zu of model %u holds other bytes\n", block, m->seed);
            return false;
        }
    }
    return true;
}

static void *look_on(void *user)
{
    look *l = user;
    weir_request pinned = {.struct_size = sizeof pinned, .bytes = LOOK, .kind = WEIR_KIND_PINNED};
    weir_block stage = {0};
    weir_stream stream;
    bool device = strcmp(asked.device, "host") != 0; /* there it would be of the models' budget */
    if (device)
        MUST(weir_alloc_with(l->client, &pinned, &stage));
    unsigned char *seen = device ? stage.pointer : malloc(LOOK);
    if (!seen)
        abort();
    MUST(weir_stream_acquire(l->runtime, &stream));
    for (size_t i; (i = atomic_fetch_add(&l->next, 1)) < l->m->count;)
        if (!look_at(l, i, seen, stream))
            atomic_fetch_add(&l->differ, 1);
    MUST(weir_stream_release(stream));
    if (device)
        MUST(weir_free_block(l->client, stage, WEIR_STREAM_HOST));
    else
        free(seen);
    return NULL;
}

uint64_t differing(weir_runtime *runtime, const model *m, uint64_t most)
{
    weir_client_options options = {.struct_size = sizeof options, .name = "looks"};
    look l = {.runtime = runtime, .m = m, .most = most};
    pthread_t threads[LOOKERS];
    MUST(weir_client_create(runtime, &options, &l.client));
    for (int i = 0; i < LOOKERS; i++)
        if (pthread_create(&threads[i], NULL, look_on, &l) != 0)
            abort();
    for (int i = 0; i < LOOKERS; i++)
        pthread_join(threads[i], NULL);
    MUST(weir_client_destroy(l.client));
    return atomic_load(&l.differ);
}

void check(weir_runtime *runtime, const model *m, uint64_t most)
{
    if (differing(runtime, m, most) > 0)
        exit(1);
}

double suspend(const model *m, const weir_suspend_options *options)
{
    weir_residency r = {.struct_size = sizeof r};
    why_clear();
    double start = now();
    MUST(weir_client_suspend(m->client, options, &r));
    double seconds = now() - start;
    if (r.stayed > m->bytes / 50)
        printf("  (%.1f %% of the model stayed, as it shares chunks)\n", 100.0 * (double)r.stayed / (double)m->bytes);
    return seconds;
}

double resume(const model *m)
{
    why_clear();
    double start = now();
    MUST(weir_client_resume(m->client, WEIR_STREAM_HOST));
    return now() - start;
}

/* The machine ------------------------------------------------------------------------------------------------------ */

typedef struct link_way {
    weir_runtime *runtime;
    weir_client *client;
    weir_block here, there;
    weir_stream stream;
    uint64_t bytes;
} link_way;

static link_way link_open(weir_runtime *runtime, weir_client *client, uint64_t bytes)
{
    link_way w = {.runtime = runtime, .client = client, .bytes = bytes};
    weir_request request = {.struct_size = sizeof request, .bytes = bytes, .kind = WEIR_KIND_PINNED};
    MUST(weir_alloc_with(client, &request, &w.here));
    request.kind = WEIR_KIND_DEVICE;
    MUST(weir_alloc_with(client, &request, &w.there));
    MUST(weir_stream_acquire(runtime, &w.stream));
    MUST(weir_fill(runtime, w.there.pointer, 1, bytes, WEIR_STREAM_HOST));
    return w;
}

static void link_close(link_way *w)
{
    MUST(weir_stream_release(w->stream));
    MUST(weir_free_block(w->client, w->here, WEIR_STREAM_HOST));
    MUST(weir_free_block(w->client, w->there, WEIR_STREAM_HOST));
}

static void link_queue(const link_way *w, bool out)
{
    MUST(weir_copy(w->runtime, (out ? w->here : w->there).pointer, (out ? w->there : w->here).pointer, w->bytes,
                   w->stream));
}

/* Seconds until both are done; NULL: there is one alone. */
static double link_time(const link_way *out, const link_way *in)
{
    double start = now();
    if (out)
        link_queue(out, true);
    if (in)
        link_queue(in, false);
    if (out)
        MUST(weir_stream_synchronize(out->stream));
    if (in)
        MUST(weir_stream_synchronize(in->stream));
    return now() - start;
}

void measure_link(weir_runtime *runtime)
{
    weir_client_options options = {.struct_size = sizeof options, .name = "link"};
    weir_client *client;
    uint64_t bytes = asked.model_bytes < 1024 * MIB ? asked.model_bytes : 1024 * MIB;
    double rates[3][MOST_ROUNDS], gigabytes = (double)bytes / 1e9;
    MUST(weir_client_create(runtime, &options, &client));
    link_way a = link_open(runtime, client, bytes), b = link_open(runtime, client, bytes);
    for (int i = -1; i < asked.rounds; i++) {
        double seconds[3] = {link_time(&a, NULL), link_time(NULL, &b), link_time(&a, &b)};
        for (int way = 0; i >= 0 && way < 3; way++)
            rates[way][i] = gigabytes / seconds[way];
    }
    machine =
        (bench_link){median(rates[0], asked.rounds), median(rates[1], asked.rounds), median(rates[2], asked.rounds)};
    link_close(&a);
    link_close(&b);
    MUST(weir_client_destroy(client));
    line("page-locked copy out of the device", machine.out, "GB/s", 0, NULL);
    line("page-locked copy into the device", machine.in, "GB/s", 0, NULL);
    line("page-locked copies both ways at once, each of them", machine.both, "GB/s", 0, NULL);
}
