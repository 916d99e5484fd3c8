/* Suspending and resuming clients, beside what page-locked copies of the same machine do in the same run.
 *
 *     bench-residency [--device cuda:0] [--mib 8192] [--rounds 5] [--models 10] [--room 3] [--turns 100]
 *                     [--cases one,places,beside,turns] [--seconds 300] [--why]
 *
 * Prints a table. Every byte is looked at when it is back; the exit status is 1 when one is another. --cases: these alone, in their
 * order. --seconds: no case begins later than that. --why: which calls of CUDA's driver the time went to. */
#include "residency_why.h"

#include <weir/pressure.h>
#include <weir/residency.h>
#include <weir/weir.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)

enum { MOST_BLOCKS = 4096, MOST_ROUNDS = 99, MOST_MODELS = 64, LOOK = 64 << 20 };

static const char *device = "cuda:0";
static uint64_t model_bytes;
static int rounds = 5, model_count = 10, room = 3, turns = 100;
static double out, in; /* GB/s of page-locked copies out of the device and into it */

/* A client with blocks of many sizes, as models have them. */
typedef struct model {
    weir_client *client;
    void *blocks[MOST_BLOCKS];
    uint64_t sizes[MOST_BLOCKS], bytes;
    size_t count;
    uint8_t seed;
    uint64_t used; /* the turn of its last use */
} model;

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
    fprintf(stderr, "bench-residency: %s: %s\n", what, weir_detail());
    exit(1);
}
#define MUST(call) must((call), #call)

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count / 2];
}

static void line(const char *what, double value, const char *unit, double part, const char *of)
{
    printf("%-58s %9.2f %-5s", what, value, unit);
    if (of)
        printf("  %5.3f %s", part, of);
    printf("\n");
    fflush(stdout);
}

/* Models ----------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint8_t value_of(const model *m, size_t block)
{
    return (uint8_t)(m->seed * UINT64_C(31) + block * 7 + 1);
}

/* Blocks from 256 KiB to an eighth of the model, in the proportions of a network's weights. */
static void load(weir_runtime *runtime, model *m, const char *name, uint64_t bytes, uint8_t seed)
{
    weir_client_options options = {.struct_size = sizeof options, .name = name};
    uint64_t random = seed + UINT64_C(88172645463325252), left = bytes;
    m->seed = seed;
    MUST(weir_client_create(runtime, &options, &m->client));
    while (left > 0 && m->count < MOST_BLOCKS) {
        uint64_t size = (256 * 1024) << next_random(&random) % 12;
        size = size > bytes / 8 ? bytes / 8 : size;
        size = size > left || m->count == MOST_BLOCKS - 1 ? left : size;
        MUST(weir_alloc(m->client, size, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &m->blocks[m->count]));
        MUST(weir_fill(runtime, m->blocks[m->count], value_of(m, m->count), size, WEIR_STREAM_HOST));
        m->sizes[m->count++] = size;
        left -= size;
    }
    m->bytes = bytes;
}

static void unload(model *m)
{
    for (size_t i = 0; i < m->count; i++)
        MUST(weir_free(m->client, m->blocks[i], WEIR_STREAM_HOST));
    MUST(weir_client_destroy(m->client));
    *m = (model){0};
}

/* Every byte is what it was. `most`: of each block, from its start. */
static void check(weir_runtime *runtime, const model *m, uint64_t most)
{
    static _Thread_local unsigned char *seen;
    seen = seen ? seen : malloc(LOOK);
    for (size_t i = 0; i < m->count; i++) {
        uint64_t end = m->sizes[i] < most ? m->sizes[i] : most;
        for (uint64_t at = 0; at < end; at += LOOK) {
            uint64_t bytes = end - at < LOOK ? end - at : LOOK;
            memset(seen, value_of(m, i) + 1, bytes);
            MUST(weir_copy(runtime, seen, (char *)m->blocks[i] + at, bytes, WEIR_STREAM_HOST));
            if (seen[0] != value_of(m, i) || memcmp(seen, seen + 1, bytes - 1) != 0) {
                fprintf(stderr, "bench-residency: block %zu of model %u holds other bytes\n", i, m->seed);
                exit(1);
            }
        }
    }
}

static weir_runtime *make_runtime(uint64_t budget)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget};
    weir_runtime *runtime;
    MUST(weir_runtime_create(device, &options, &runtime));
    return runtime;
}

static const weir_suspend_options changed = {.struct_size = sizeof changed},
                                  unwritten = {.struct_size = sizeof unwritten,
                                               .unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)};

static double suspend(const model *m, const weir_suspend_options *options)
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

static double resume(const model *m)
{
    why_clear();
    double start = now();
    MUST(weir_client_resume(m->client, WEIR_STREAM_HOST));
    return now() - start;
}

/* The machine ------------------------------------------------------------------------------------------------------ */

/* GB/s of page-locked copies out of the device and into it. */
static void measure_link(weir_runtime *runtime)
{
    model m = {0};
    weir_client_options options = {.struct_size = sizeof options, .name = "link"};
    uint64_t bytes = model_bytes < 1024 * MIB ? model_bytes : 1024 * MIB;
    weir_request pinned = {.struct_size = sizeof pinned, .bytes = bytes, .kind = WEIR_KIND_PINNED};
    weir_block there, here;
    double outs[MOST_ROUNDS] = {0}, ins[MOST_ROUNDS] = {0};
    weir_stream stream;
    MUST(weir_client_create(runtime, &options, &m.client));
    MUST(weir_alloc_with(m.client, &pinned, &here));
    pinned.kind = WEIR_KIND_DEVICE;
    MUST(weir_alloc_with(m.client, &pinned, &there));
    MUST(weir_stream_acquire(runtime, &stream));
    MUST(weir_fill(runtime, there.pointer, 1, bytes, WEIR_STREAM_HOST));
    for (int i = -1; i < rounds; i++) {
        double start = now();
        MUST(weir_copy(runtime, here.pointer, there.pointer, bytes, stream));
        MUST(weir_stream_synchronize(stream));
        double middle = now();
        MUST(weir_copy(runtime, there.pointer, here.pointer, bytes, stream));
        MUST(weir_stream_synchronize(stream));
        if (i >= 0) {
            outs[i] = (double)bytes / 1e9 / (middle - start);
            ins[i] = (double)bytes / 1e9 / (now() - middle);
        }
    }
    out = median(outs, rounds);
    in = median(ins, rounds);
    MUST(weir_free_block(m.client, here, WEIR_STREAM_HOST));
    MUST(weir_free_block(m.client, there, WEIR_STREAM_HOST));
    MUST(weir_stream_release(stream));
    MUST(weir_client_destroy(m.client));
    line("page-locked copy out of the device", out, "GB/s", 0, NULL);
    line("page-locked copy into the device", in, "GB/s", 0, NULL);
}

/* One model -------------------------------------------------------------------------------------------------------- */

static void one_model(weir_runtime *runtime)
{
    model m = {0};
    double outs[MOST_ROUNDS] = {0}, ins[MOST_ROUNDS] = {0}, goods[MOST_ROUNDS] = {0},
           gigabytes = (double)model_bytes / 1e9;
    uint64_t calls = 0;
    load(runtime, &m, "model", model_bytes, 1);
    double first = suspend(&m, &changed), last = 0;
    why_tell("the first suspend", first);
    line("suspend, the first time (the host's memory is made)", gigabytes / first, "GB/s", gigabytes / first / out,
         "of the copy out");
    (void)resume(&m);
    check(runtime, &m, UINT64_MAX);
    for (int i = 0; i < rounds; i++) {
        outs[i] = gigabytes / (last = suspend(&m, &changed));
        if (i == rounds - 1)
            why_tell("the last suspend with contents changed", last);
        ins[i] = gigabytes / (last = resume(&m));
        if (i == rounds - 1)
            why_tell("the last resume", last);
    }
    check(runtime, &m, UINT64_MAX);
    line("suspend, contents changed", median(outs, rounds), "GB/s", median(outs, rounds) / out, "of the copy out");
    line("resume, until the contents are there", median(ins, rounds), "GB/s", median(ins, rounds) / in,
         "of the copy in");
    for (int i = 0; i < rounds; i++) {
        goods[i] = 1e3 * (last = suspend(&m, &unwritten));
        calls = why_calls();
        if (i == 0 || i == rounds - 1)
            why_tell(i ? "the last suspend with a good copy" : "the first suspend with a good copy", last);
        (void)resume(&m);
    }
    check(runtime, &m, UINT64_MAX);
    line("suspend, the host's copy is still good", median(goods, rounds), "ms", 0, NULL);
    line("calls of CUDA's driver in it", (double)calls, "", 0, NULL);
    unload(&m);
}

/* Two models ------------------------------------------------------------------------------------------------------- */

static void *suspend_it(void *user)
{
    (void)suspend(user, &changed);
    return NULL;
}

static void changing_places(weir_runtime *runtime)
{
    static model a, b;
    double rates[MOST_ROUNDS] = {0};
    load(runtime, &a, "one", model_bytes, 2);
    load(runtime, &b, "two", model_bytes, 3);
    (void)suspend(&b, &changed);
    (void)suspend(&a, &changed);
    (void)resume(&a);
    for (int i = 0; i < rounds; i++) {
        model *leaves = i % 2 ? &b : &a, *comes = i % 2 ? &a : &b;
        pthread_t thread;
        double start = now();
        pthread_create(&thread, NULL, suspend_it, leaves);
        (void)resume(comes);
        pthread_join(thread, NULL);
        rates[i] = (double)model_bytes / 1e9 / (now() - start);
    }
    line("two models changing places, each way at once", median(rates, rounds), "GB/s", 0, NULL);
    if (rounds % 2)
        (void)resume(&a);
    else
        (void)resume(&b);
    check(runtime, &a, UINT64_MAX);
    check(runtime, &b, UINT64_MAX);
    unload(&a);
    unload(&b);
}

/* A neighbour ------------------------------------------------------------------------------------------------------ */

typedef struct neighbour {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    weir_block from, to;
    uint64_t bytes;
    atomic_bool stop;
    double work[100000], calls[100000];
    int worked, called;
} neighbour;

/* Work within the device that its memory bounds, and allocations beside. */
static void *live_beside(void *user)
{
    neighbour *n = user;
    n->worked = n->called = 0;
    while (!atomic_load(&n->stop) && n->worked < 100000) {
        double start = now();
        MUST(weir_copy(n->runtime, n->to.pointer, n->from.pointer, n->bytes, n->stream));
        MUST(weir_stream_synchronize(n->stream));
        n->work[n->worked++] = now() - start;
        void *block;
        start = now();
        MUST(weir_alloc(n->client, 3 * MIB + 512 * (uint64_t)(n->worked % 7), n->stream, WEIR_CLASS_SCRATCH, &block));
        MUST(weir_free(n->client, block, n->stream));
        n->calls[n->called++] = now() - start;
    }
    return NULL;
}

static void beside(weir_runtime *runtime)
{
    static neighbour n;
    model m = {0};
    weir_client_options options = {.struct_size = sizeof options, .name = "neighbour"};
    weir_request request = {.struct_size = sizeof request, .bytes = model_bytes / 16};
    pthread_t thread;
    double work[2];
    n.runtime = runtime;
    n.bytes = model_bytes / 16;
    MUST(weir_client_create(runtime, &options, &n.client));
    MUST(weir_stream_acquire(runtime, &n.stream));
    MUST(weir_alloc_with(n.client, &request, &n.from));
    MUST(weir_alloc_with(n.client, &request, &n.to));
    load(runtime, &m, "model", model_bytes, 4);
    (void)suspend(&m, &changed);
    (void)resume(&m);
    for (int moving = 0; moving < 2; moving++) {
        atomic_store(&n.stop, false);
        pthread_create(&thread, NULL, live_beside, &n);
        for (double end = now() + 1; now() < end;)
            if (moving) {
                (void)suspend(&m, &changed);
                (void)resume(&m);
            }
        atomic_store(&n.stop, true);
        pthread_join(thread, NULL);
        work[moving] = median(n.work, n.worked);
    }
    qsort(n.calls, (size_t)n.called, sizeof *n.calls, by_size);
    line("a neighbour's work in device memory beside, over alone", work[1] / work[0], "x", 0, NULL);
    line("a neighbour's allocation and free beside, 99 of 100", 1e3 * n.calls[n.called * 99 / 100], "ms", 0, NULL);
    check(runtime, &m, UINT64_MAX);
    unload(&m);
    MUST(weir_free_block(n.client, n.from, n.stream));
    MUST(weir_free_block(n.client, n.to, n.stream));
    MUST(weir_stream_release(n.stream));
    MUST(weir_client_destroy(n.client));
}

/* Turns ------------------------------------------------------------------------------------------------------------ */

static model fleet[MOST_MODELS];
static int loaded;

/* Suspends the model that was used longest ago. */
static void make_room(const weir_pressure *pressure, void *user)
{
    model *oldest = NULL;
    (void)user;
    for (int i = 0; i < loaded; i++) {
        weir_residency r = {.struct_size = sizeof r};
        MUST(weir_client_residency(fleet[i].client, &r));
        if (fleet[i].client != pressure->client && r.state == WEIR_RESIDENT &&
            (!oldest || fleet[i].used < oldest->used))
            oldest = &fleet[i];
    }
    if (oldest)
        (void)suspend(oldest, &unwritten);
}

/* More models than fit, one after the other. */
static void in_turn(weir_runtime *ignored)
{
    (void)ignored;
    weir_runtime *runtime = make_runtime(model_bytes * (uint64_t)room + model_bytes / 8);
    uint64_t id, moved = 0, random = 5;
    MUST(weir_pressure_register(runtime, 0, make_room, NULL, &id));
    for (loaded = 0; loaded < model_count; loaded++) {
        char name[24];
        snprintf(name, sizeof name, "model %d", loaded);
        load(runtime, &fleet[loaded], name, model_bytes, (uint8_t)(loaded + 10));
        fleet[loaded].used = (uint64_t)loaded;
    }
    for (int i = 0; i < model_count; i++) { /* each has a copy by then */
        (void)resume(&fleet[i]);
        fleet[i].used = (uint64_t)model_count + (uint64_t)i;
    }
    double start = now();
    for (int turn = 0; turn < turns; turn++) {
        model *m = &fleet[next_random(&random) % (uint64_t)model_count];
        weir_residency r = {.struct_size = sizeof r};
        MUST(weir_client_residency(m->client, &r));
        moved += r.away;
        m->used = 2 * (uint64_t)model_count + (uint64_t)turn;
        (void)resume(m);
        check(runtime, m, 4096);
    }
    double seconds = now() - start;
    char what[80];
    snprintf(what, sizeof what, "%d models in turn where %d fit, %d turns", model_count, room, turns);
    line(what, (double)moved / 1e9 / seconds, "GB/s", (double)moved / 1e9 / seconds / in, "of the copy in");
    for (int i = 0; i < model_count; i++) {
        (void)resume(&fleet[i]);
        check(runtime, &fleet[i], UINT64_MAX);
    }
    MUST(weir_pressure_unregister(runtime, id));
    for (int i = 0; i < model_count; i++)
        unload(&fleet[i]);
    MUST(weir_runtime_destroy(runtime));
}

/* Which cases, and for how long ------------------------------------------------------------------------------------- */

static const struct bench_case {
    const char *name;
    void (*run)(weir_runtime *runtime);
} cases[] = {{"one", one_model}, {"places", changing_places}, {"beside", beside}, {"turns", in_turn}};

enum { CASES = sizeof cases / sizeof cases[0] };

static const char *chosen = "one,places,beside,turns";
static double end_of_time;

/* The cases of `chosen`, in its order. */
static void run_chosen(void)
{
    char list[256], *rest = NULL;
    snprintf(list, sizeof list, "%s", chosen);
    for (const char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        int i = 0;
        while (i < CASES && strcmp(cases[i].name, name) != 0)
            i++;
        if (i == CASES) {
            fprintf(stderr, "bench-residency: there is no case %s\n", name);
            exit(2);
        }
        if (now() > end_of_time) {
            printf("%s: skipped, the time is over\n", name);
            continue;
        }
        weir_runtime *runtime = make_runtime(model_bytes * 5 / 2);
        double start = now();
        cases[i].run(runtime);
        printf("  (%s took %.0f s)\n", name, now() - start);
        MUST(weir_runtime_destroy(runtime));
    }
}

static bool take_word(const char *name, const char *value)
{
    if (strcmp(name, "--device") == 0)
        device = value;
    else if (strcmp(name, "--mib") == 0)
        model_bytes = strtoull(value, NULL, 10) * MIB;
    else if (strcmp(name, "--rounds") == 0)
        rounds = atoi(value) < MOST_ROUNDS ? atoi(value) : MOST_ROUNDS;
    else if (strcmp(name, "--models") == 0)
        model_count = atoi(value) < MOST_MODELS ? atoi(value) : MOST_MODELS;
    else if (strcmp(name, "--room") == 0)
        room = atoi(value);
    else if (strcmp(name, "--turns") == 0)
        turns = atoi(value);
    else if (strcmp(name, "--cases") == 0)
        chosen = value;
    else if (strcmp(name, "--seconds") == 0)
        end_of_time = now() + atof(value);
    else
        return false;
    return true;
}

int main(int count, char **words)
{
    bool why = false;
    end_of_time = now() + 1e9;
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--why") == 0) {
            why = true;
        } else if (i + 1 == count || !take_word(words[i], words[i + 1])) {
            fprintf(stderr, "bench-residency: %s is no option\n", words[i]);
            return 2;
        } else {
            i++;
        }
    }
    model_bytes = model_bytes ? model_bytes : (strcmp(device, "host") == 0 ? 256 : 8192) * MIB;
    weir_runtime *runtime = make_runtime(model_bytes * 5 / 2);
    why_begin(why);
    printf("%s, models of %.2f GiB, medians of %d rounds\n", device, (double)model_bytes / (1024.0 * (double)MIB),
           rounds);
    measure_link(runtime);
    MUST(weir_runtime_destroy(runtime));
    run_chosen();
    return 0;
}
