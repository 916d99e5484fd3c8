/* part_bounds.c: the worst time of calls that must not wait for what other threads do: a refusal, the release of a
 * stream, the emptying of the cache; beside twelve threads that allocate and free. */
#include "bench.h"

#include <weir/weir.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)

enum { CHURNERS = 12, SLOTS = 64, MOST_SAMPLES = 1 << 16 };
static const uint64_t budget = 256 * MIB, asked = 64 * MIB;

/* One kind of call. */
typedef struct bound {
    const char *what;
    double goal; /* milliseconds, of its worst, or of the 99.9th percentile */
    bool percentile;
    weir_status (*once)(weir_runtime *runtime, weir_client *client, uint64_t *nanoseconds);
    size_t count;
    double mean, p999, worst; /* milliseconds */
} bound;

typedef struct churn {
    weir_runtime *runtime;
    weir_client *client;
    atomic_bool stop;
    atomic_uint begun;
    atomic_uint_fast64_t operations;
    pthread_t threads[CHURNERS];
    unsigned started;
} churn;

/* Threads that come and go at their memory ------------------------------------------------------------------------- */

static uint64_t part_bounds_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* All together hold at most what leaves half of `asked`. Some is refused all the same, as memory is in pieces. */
static void *run_churner(void *argument)
{
    churn *c = argument;
    weir_stream stream;
    void *blocks[SLOTS] = {0};
    uint64_t random = atomic_fetch_add(&c->begun, 1) + 88172645463325252u, operations = 0;
    const uint64_t most = (budget - asked / 2) / CHURNERS / SLOTS;
    if (weir_stream_acquire(c->runtime, &stream) != WEIR_OK)
        return NULL;
    for (; !atomic_load_explicit(&c->stop, memory_order_relaxed); operations++) {
        void **block = &blocks[part_bounds_next(&random) % SLOTS];
        if (*block) {
            if (weir_free(c->client, *block, stream) == WEIR_OK)
                *block = NULL;
        } else if (weir_alloc(c->client, most / (1 + part_bounds_next(&random) % 16), stream, WEIR_CLASS_SCRATCH,
                              block) != WEIR_OK) {
            *block = NULL;
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (blocks[i])
            (void)!weir_free(c->client, blocks[i], stream);
    atomic_fetch_add(&c->operations, operations);
    (void)!weir_stream_release(stream);
    return NULL;
}

static weir_status part_bounds_start(churn *c, const bench_args *args)
{
    weir_runtime_options o = WEIR_INIT(weir_runtime_options);
    weir_client_options named = WEIR_INIT(weir_client_options);
    o.budget = budget;
    o.resource = args->resource;
    named.name = "churn";
    weir_status status = weir_runtime_create(args->device, &o, &c->runtime);
    if (status == WEIR_OK)
        status = weir_client_create(c->runtime, &named, &c->client);
    while (status == WEIR_OK && c->started < CHURNERS)
        if (pthread_create(&c->threads[c->started], NULL, run_churner, c) == 0)
            c->started++;
        else
            return WEIR_ERR_SYSTEM;
    return status;
}

static void part_bounds_stop(churn *c)
{
    atomic_store(&c->stop, true);
    for (unsigned i = 0; i < c->started; i++)
        pthread_join(c->threads[i], NULL);
    if (c->client)
        (void)!weir_client_destroy(c->client);
    if (c->runtime)
        (void)!weir_runtime_destroy(c->runtime);
}

/* What is timed ---------------------------------------------------------------------------------------------------- */

static weir_status part_bounds_refuse(weir_runtime *runtime, weir_client *client, uint64_t *nanoseconds)
{
    weir_request request = WEIR_INIT(weir_request);
    weir_block block;
    (void)runtime;
    request.bytes = asked;
    request.flags = WEIR_ALLOC_NO_WAIT;
    request.memory_class = WEIR_CLASS_KV;
    uint64_t from = bench_now();
    weir_status status = weir_alloc_with(client, &request, &block);
    *nanoseconds = bench_now() - from;
    if (status == WEIR_OK)
        return weir_free(client, block.pointer, WEIR_STREAM_HOST);
    return status == WEIR_ERR_OUT_OF_MEMORY ? WEIR_OK : status;
}

static weir_status part_bounds_release(weir_runtime *runtime, weir_client *client, uint64_t *nanoseconds)
{
    weir_stream stream;
    void *block;
    weir_status status = weir_stream_acquire(runtime, &stream);
    if (status != WEIR_OK)
        return status;
    if (weir_alloc(client, 4096, stream, WEIR_CLASS_SCRATCH, &block) == WEIR_OK)
        status = weir_free(client, block, stream);
    uint64_t from = bench_now();
    weir_status released = weir_stream_release(stream);
    *nanoseconds = bench_now() - from;
    return status == WEIR_OK ? released : status;
}

static weir_status part_bounds_empty(weir_runtime *runtime, weir_client *client, uint64_t *nanoseconds)
{
    (void)client;
    uint64_t from = bench_now();
    weir_status status = weir_runtime_trim(runtime, NULL, NULL);
    *nanoseconds = bench_now() - from;
    return status;
}

static weir_status part_bounds_measure(const churn *c, bound *b, uint64_t seconds, uint64_t *samples)
{
    double sum = 0;
    uint64_t end = bench_now() + seconds * UINT64_C(1000000000);
    for (b->count = 0; b->count < MOST_SAMPLES && bench_now() < end; b->count++) {
        weir_status status = b->once(c->runtime, c->client, &samples[b->count]);
        if (status != WEIR_OK)
            return status;
        sum += (double)samples[b->count];
    }
    bench_sort(samples, b->count);
    b->mean = sum / (double)b->count / 1e6;
    size_t beyond = b->count / 1000;
    b->p999 = (double)samples[b->count - 1 - beyond] / 1e6;
    b->worst = (double)samples[b->count - 1] / 1e6;
    return WEIR_OK;
}

/* The answer ------------------------------------------------------------------------------------------------------- */

static void part_bounds_print(const bound *bounds, size_t count)
{
    static const char *const titles[] = {"beside 12 threads that allocate and free", "calls", "mean ms", "p99.9 ms",
                                         "worst ms"};
    table grid = {0};
    bench_titles(&grid, titles, 5, 1);
    for (const bound *b = bounds; b < bounds + count; b++) {
        table_row(&grid);
        table_cell(&grid, b->what, "", false);
        bench_number(&grid, (double)b->count, 0);
        bench_number(&grid, b->mean, 3);
        bench_number(&grid, b->p999, 3);
        bench_number(&grid, b->worst, 3);
    }
    table_print(&grid, stdout);
    table_clear(&grid);
}

static json_t *part_bounds_as_json(const bound *bounds, size_t count)
{
    json_t *rows = json_array();
    for (const bound *b = bounds; b < bounds + count; b++)
        json_array_append_new(rows,
                              json_pack("{s:s, s:I, s:f, s:f, s:f}", "what", b->what, "calls", (json_int_t)b->count,
                                        "mean_ms", b->mean, "p999_ms", b->p999, "worst_ms", b->worst));
    return rows;
}

static void part_bounds_answer_all(const bound *bounds, size_t count, json_t *answer)
{
    bench_goals goals;
    bench_goals_begin(&goals);
    for (const bound *b = bounds; b < bounds + count; b++)
        bench_goal(&goals, b->what, b->percentile ? "p99.9, ms" : "worst, ms", b->goal,
                   b->percentile ? b->p999 : b->worst);
    if (answer) {
        json_object_set_new(answer, "bounds", part_bounds_as_json(bounds, count));
        json_object_set_new(answer, "bounds_goals", bench_goals_json(&goals));
    } else {
        part_bounds_print(bounds, count);
        bench_goals_print(&goals);
    }
    bench_goals_end(&goals);
}

int bench_part_bounds(const bench_args *args, json_t *answer)
{
    bound bounds[] = {{.what = "a request that is refused, and does not wait",
                       .goal = 5,
                       .percentile = true,
                       .once = part_bounds_refuse},
                      {.what = "the release of a stream", .goal = 10, .once = part_bounds_release},
                      {.what = "the cache is emptied", .goal = 50, .once = part_bounds_empty}};
    enum { BOUNDS = sizeof bounds / sizeof bounds[0] };
    churn c = {0};
    char why[1024];
    uint64_t *samples = malloc(MOST_SAMPLES * sizeof *samples);
    weir_status status = samples ? part_bounds_start(&c, args) : WEIR_ERR_SYSTEM;
    for (size_t i = 0; i < BOUNDS && status == WEIR_OK; i++)
        status = part_bounds_measure(&c, &bounds[i], args->rounds, samples);
    snprintf(why, sizeof why, "%s", status == WEIR_ERR_SYSTEM ? "no memory, or no thread" : weir_detail());
    part_bounds_stop(&c);
    free(samples);
    if (status != WEIR_OK)
        return cli_fail("bounds: %s", why);
    part_bounds_answer_all(bounds, BOUNDS, answer);
    return CLI_OK;
}
