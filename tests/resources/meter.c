/* The adaptor stats, on a clock that the test sets: counts, times, frames, and the line of text. On the device that
 * WEIR_TEST_DEVICE names, or the host. */
#include "core.h"
#include "base/system.h"
#include "memory/meter.h"

#include <stdatomic.h>

/* Each look at the clock takes so long. */
static atomic_uint_fast64_t step = 1, now;

static uint64_t ticking(void)
{
    return atomic_fetch_add(&now, atomic_load(&step));
}

static weir_runtime *make_with(const char *resource, uint64_t budget)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget, .resource = resource};
    weir_runtime *runtime;
    ok(weir_runtime_create(device ? device : "host", &options, &runtime));
    return runtime;
}

static weir_statistics read_all(weir_runtime *runtime, const weir_client *client, weir_class memory_class)
{
    weir_statistics s = WEIR_INIT(weir_statistics);
    ok(weir_statistics_read(runtime, client, memory_class, &s));
    return s;
}

static void counts_by_client_and_class(void **state)
{
    (void)state;
    weir_runtime *runtime = make_with("stats(mapped)", 8 * MIB);
    weir_client *one = open_client(runtime, "one", 0, 0), *two = open_client(runtime, "two", 0, 0);
    void *p = allocate(one, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV),
         *q = allocate(one, 257, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *r = allocate(two, 4096, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(one, p, WEIR_STREAM_HOST));
    p = allocate(one, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV); /* where the first was */
    weir_statistics all = read_all(runtime, NULL, WEIR_CLASS_COUNT), kv = read_all(runtime, one, WEIR_CLASS_KV);
    assert_int_equal(all.allocations, 4);
    assert_int_equal(all.frees, 1);
    assert_int_equal(all.allocated, 6353);
    assert_int_equal(all.freed, 1000);
    assert_int_equal(all.hits + all.misses, 4);
    assert_int_equal(kv.allocations, 2);
    assert_int_equal(kv.allocated, 2000);
    assert_int_equal(kv.hits, 1);
    assert_int_equal(kv.misses, 1);
    assert_int_equal(kv.sizes[10], 2);  /* 513 to 1024 */
    assert_int_equal(all.sizes[9], 1);  /* 257 to 512 */
    assert_int_equal(all.sizes[12], 1); /* 2049 to 4096 */
    assert_int_equal(read_all(runtime, two, WEIR_CLASS_COUNT).allocations, 1);
    assert_int_equal(read_all(runtime, two, WEIR_CLASS_WEIGHTS).allocations, 0);
    assert_int_equal(read_all(runtime, NULL, WEIR_CLASS_WEIGHTS).allocations, 1);
    ok(weir_resize(one, p, 300, WEIR_STREAM_HOST));
    ok(weir_resize(one, p, 310, WEIR_STREAM_HOST));
    kv = read_all(runtime, one, WEIR_CLASS_KV);
    assert_int_equal(kv.allocations - kv.frees, 1);
    assert_int_equal(kv.allocated - kv.freed, 310);
    ok(weir_free(one, p, WEIR_STREAM_HOST));
    ok(weir_free(one, q, WEIR_STREAM_HOST));
    ok(weir_free(two, r, WEIR_STREAM_HOST));
    all = read_all(runtime, NULL, WEIR_CLASS_COUNT);
    assert_int_equal(all.allocations, all.frees);
    assert_int_equal(all.allocated, all.freed);
    ok(weir_client_close(one));
    ok(weir_client_close(two));
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

static void refusals_are_counted_where_the_adaptor_stands(void **state)
{
    (void)state;
    static const struct {
        const char *resource;
        uint64_t refusals;
    } cases[] = {{"stats(budget(mapped))", 1}, {"budget(stats(mapped))", 0}}; /* the budget does not ask below itself */
    for (int i = 0; i < 2; i++) {
        weir_runtime *runtime = make_with(cases[i].resource, 8 * MIB);
        weir_client *client = open_client(runtime, "x", 0, 0);
        void *p;
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 9 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
        weir_statistics s = read_all(runtime, NULL, WEIR_CLASS_KV);
        assert_int_equal(s.refusals, cases[i].refusals);
        assert_int_equal(s.allocations + s.failures + s.hits + s.misses + s.allocate.count, 0);
        ok(weir_client_close(client));
        ok(weir_runtime_destroy(runtime));
    }
}

static void times_are_exact_to_an_eighth(void **state)
{
    (void)state;
    weir_runtime *runtime = make_with("stats(mapped)", 8 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    for (int i = 0; i < 100; i++) {
        atomic_store(&step, i < 50 ? 100 : i < 98 ? 1000 : 10001);
        void *p = allocate(client, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        atomic_store(&step, 7);
        ok(weir_free(client, p, WEIR_STREAM_HOST));
    }
    atomic_store(&step, 1);
    weir_statistics s = read_all(runtime, client, WEIR_CLASS_KV);
    assert_int_equal(s.allocate.count, 100);
    assert_int_equal(s.allocate.total, 50 * 100 + 48 * 1000 + 2 * 10001);
    assert_int_equal(s.allocate.p50, 103); /* 96 to 103 */
    assert_int_equal(s.allocate.p99, 10001);
    assert_int_equal(s.allocate.max, 10001);
    assert_int_equal(s.free.count, 100);
    assert_int_equal(s.free.p50, 7);
    assert_int_equal(s.free.max, 7);
    assert_int_equal(s.release.count, 0); /* gone with the free */
    atomic_store(&step, UINT64_C(1) << 50);
    void *p = allocate(client, 100, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    atomic_store(&step, 1);
    s = read_all(runtime, client, WEIR_CLASS_SCRATCH);
    assert_int_equal(s.allocate.p50, UINT64_C(1) << 50);
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_close(client));
    ok(weir_runtime_destroy(runtime));
}

/* Every time falls into a bucket whose end is not below it and at most an eighth above it. */
static void buckets_are_narrow(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int i = 0; i < 3000; i++) {
        uint64_t time = next_random(&seed) >> (24 + i % 39);
        weir_runtime *runtime = i % 1000 == 0 ? make_with("stats(mapped)", 8 * MIB) : NULL;
        static weir_runtime *last;
        if (runtime) {
            if (last)
                ok(weir_runtime_destroy(last));
            last = runtime;
        }
        weir_client *client = open_client(last, "x", 0, 0);
        atomic_store(&step, time);
        void *p = allocate(client, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        atomic_store(&step, 2 * time + 3); /* so that the longest does not bound what is looked at */
        void *q = allocate(client, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        atomic_store(&step, 1);
        uint64_t p50 = read_all(last, client, WEIR_CLASS_KV).allocate.p50;
        assert_true(p50 >= time && p50 <= time + time / 8);
        ok(weir_free(client, p, WEIR_STREAM_HOST));
        ok(weir_free(client, q, WEIR_STREAM_HOST));
        ok(weir_client_close(client));
        if (i == 2999)
            ok(weir_runtime_destroy(last));
    }
}

static void frames_nest(void **state)
{
    (void)state;
    weir_runtime *runtime = make_with("stats(mapped)", 8 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    weir_statistics_frame frame = WEIR_INIT(weir_statistics_frame);
    fails(WEIR_ERR_INVALID, weir_statistics_pop(runtime, &frame));
    void *before = allocate(client, 5000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_statistics_push(runtime));
    void *p = allocate(client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_statistics_push(runtime));
    void *q = allocate(client, 3000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_free(client, q, WEIR_STREAM_HOST));
    q = allocate(client, 700, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_resize(client, q, 600, WEIR_STREAM_HOST));
    ok(weir_statistics_pop(runtime, &frame));
    assert_int_equal(frame.live_blocks, 1);
    assert_int_equal(frame.live_bytes, 600);
    assert_int_equal(frame.peak_blocks, 1);
    assert_int_equal(frame.peak_bytes, 3000);
    assert_int_equal(frame.total_blocks, 2);
    assert_int_equal(frame.total_bytes, 3700);
    ok(weir_free(client, before, WEIR_STREAM_HOST));
    ok(weir_statistics_pop(runtime, &frame));
    assert_int_equal(frame.live_blocks, 1);
    assert_int_equal(frame.live_bytes, 1000 + 600 - 5000);
    assert_int_equal(frame.peak_blocks, 2);
    assert_int_equal(frame.peak_bytes, 4000);
    assert_int_equal(frame.total_blocks, 3);
    assert_int_equal(frame.total_bytes, 4700);
    for (int i = 0; i < WI_METER_FRAMES; i++)
        ok(weir_statistics_push(runtime));
    fails(WEIR_ERR_BUSY, weir_statistics_push(runtime));
    frame.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_statistics_pop(runtime, &frame));
    for (int i = 0; i < WI_METER_FRAMES; i++)
        ok(weir_statistics_pop(runtime, NULL));
    fails(WEIR_ERR_INVALID, weir_statistics_pop(runtime, NULL));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_free(client, q, WEIR_STREAM_HOST));
    ok(weir_client_close(client));
    ok(weir_runtime_destroy(runtime));
}

enum { PASSING = 4 * WI_METER_LINES };

static void *clients_pass(void *user)
{
    weir_runtime *runtime = user;
    for (int i = 0; i < PASSING; i++) {
        weir_client *client = open_client(runtime, "passing", 0, 0);
        void *q = allocate(client, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        assert_int_equal(read_all(runtime, client, WEIR_CLASS_COUNT).allocations, 1);
        ok(weir_free(client, q, WEIR_STREAM_HOST));
        ok(weir_client_close(client));
    }
    return NULL;
}

/* The figures of clients that are gone make room, and theirs are nobody else's. */
static void clients_without_end(void **state)
{
    (void)state;
    weir_runtime *runtime = make_with("stats(mapped)", 8 * MIB);
    weir_client *kept = open_client(runtime, "kept", 0, 0);
    weir_statistics s = WEIR_INIT(weir_statistics);
    fails(WEIR_ERR_NOT_FOUND, weir_statistics_read(runtime, kept, WEIR_CLASS_KV, &s));
    detail_names("kept");
    void *p = allocate(kept, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, clients_pass, runtime), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(read_all(runtime, kept, WEIR_CLASS_COUNT).allocations, 1);
    assert_int_equal(read_all(runtime, NULL, WEIR_CLASS_COUNT).allocations, 2 * PASSING + 1);
    ok(weir_free(kept, p, WEIR_STREAM_HOST));
    ok(weir_client_close(kept));
    ok(weir_runtime_destroy(runtime));
}

static void the_line_of_text(void **state)
{
    (void)state;
    weir_runtime *runtime = make_with("stats(mapped)", 8 * MIB);
    weir_client *client = open_client(runtime, "x", 0, 0);
    char text[300], expected[300], shorter[20];
    void *p = NULL;
    for (int i = 0; i < 10; i++) {
        atomic_store(&step, i < 8 ? 120 : 2100);
        if (p)
            ok(weir_free(client, p, WEIR_STREAM_HOST));
        p = allocate(client, MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    }
    atomic_store(&step, 1);
    ok(weir_statistics_format(runtime, text, sizeof text));
    snprintf(expected, sizeof expected,
             "%s budget(stats(mapped)): 1 live 1 MiB, peak 1 MiB, 10 allocations, 90.0 %% hits, p50 127 ns, p99 2.1 µs",
             weir_runtime_device(runtime));
    assert_string_equal(text, expected);
    ok(weir_statistics_format(runtime, shorter, sizeof shorter));
    assert_int_equal(strlen(shorter), sizeof shorter - 1);
    fails(WEIR_ERR_INVALID, weir_statistics_format(runtime, NULL, 10));
    ok(weir_free(client, p, WEIR_STREAM_HOST));
    ok(weir_client_close(client));
    ok(weir_runtime_destroy(runtime));
}

static void bad_calls(void **state)
{
    (void)state;
    weir_runtime *runtime = make_with("stats(mapped)", 8 * MIB), *plain = make_with("mapped", 8 * MIB);
    weir_client *other = open_client(plain, "other", 0, 0);
    weir_statistics s = WEIR_INIT(weir_statistics);
    weir_statistics_frame frame = WEIR_INIT(weir_statistics_frame);
    char text[10];
    fails(WEIR_ERR_UNSUPPORTED, weir_statistics_read(plain, NULL, WEIR_CLASS_KV, &s));
    detail_names("WEIR_RESOURCE=stats(");
    fails(WEIR_ERR_UNSUPPORTED, weir_statistics_push(plain));
    fails(WEIR_ERR_UNSUPPORTED, weir_statistics_pop(plain, &frame));
    fails(WEIR_ERR_UNSUPPORTED, weir_statistics_format(plain, text, sizeof text));
    fails(WEIR_ERR_INVALID, weir_statistics_read(NULL, NULL, WEIR_CLASS_KV, &s));
    fails(WEIR_ERR_INVALID, weir_statistics_read(runtime, other, WEIR_CLASS_KV, &s));
    detail_names("another runtime");
    fails(WEIR_ERR_INVALID, weir_statistics_read(runtime, NULL, (weir_class)6, &s));
    fails(WEIR_ERR_INVALID, weir_statistics_read(runtime, NULL, WEIR_CLASS_KV, NULL));
    s.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_statistics_read(runtime, NULL, WEIR_CLASS_KV, &s));
    assert_int_equal(weir_runtime_features(runtime), weir_runtime_features(plain));
    ok(weir_client_close(other));
    ok(weir_runtime_destroy(plain));
    ok(weir_runtime_destroy(runtime));
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB, .resource = "stats(x=1, mapped)"};
    fails(WEIR_ERR_INVALID, weir_runtime_create("host", &options, &runtime));
}

typedef struct worker {
    weir_client *client;
    weir_stream stream;
} worker;

enum { ROUNDS = 2000 };

static void *work(void *user)
{
    const worker *w = user;
    for (int i = 0; i < ROUNDS; i++) {
        void *p = allocate(w->client, 1 + (size_t)i % 3000, w->stream, (weir_class)(i % WEIR_CLASS_COUNT));
        ok(weir_free(w->client, p, w->stream));
    }
    return NULL;
}

static void threads_are_counted_exactly(void **state)
{
    (void)state;
    enum { WORKERS = 4 };
    weir_runtime *runtime = make_with("stats(mapped)", 64 * MIB);
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i].client = open_client(runtime, "x", 0, 0);
        ok(weir_stream_acquire(runtime, &workers[i].stream));
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        ok(weir_stream_release(workers[i].stream));
    }
    weir_statistics all = read_all(runtime, NULL, WEIR_CLASS_COUNT);
    assert_int_equal(all.allocations, WORKERS * ROUNDS);
    assert_int_equal(all.frees, WORKERS * ROUNDS);
    assert_int_equal(all.allocated, all.freed);
    assert_int_equal(all.hits + all.misses, WORKERS * ROUNDS);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(read_all(runtime, workers[i].client, WEIR_CLASS_COUNT).allocations, ROUNDS);
        assert_int_equal(read_all(runtime, workers[i].client, WEIR_CLASS_KV).frees, ROUNDS / WEIR_CLASS_COUNT);
        ok(weir_client_close(workers[i].client));
    }
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_by_client_and_class),
        cmocka_unit_test(refusals_are_counted_where_the_adaptor_stands),
        cmocka_unit_test(times_are_exact_to_an_eighth),
        cmocka_unit_test(buckets_are_narrow),
        cmocka_unit_test(frames_nest),
        cmocka_unit_test(clients_without_end),
        cmocka_unit_test(the_line_of_text),
        cmocka_unit_test(bad_calls),
        cmocka_unit_test(threads_are_counted_exactly),
    };
    wi_clock = ticking;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
