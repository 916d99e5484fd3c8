/* Pinned and pageable memory: ordered on the device's streams; resized, closed over, misused; failures and threads. */
#include "kinds.h"
#include <weir/trace.h>

/* In the order of streams ------------------------------------------------------------------------------------------ */

static void copies(void **state)
{
    fixture *f = *state;
    enum { BYTES = 100000 };
    if (f->sim)
        return; /* it has no bytes */
    void *on_device = take(f, WEIR_KIND_DEVICE, BYTES);
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++) {
        unsigned char *to = take(f, (weir_kind)kind, BYTES), *from = take(f, (weir_kind)kind, BYTES);
        memset(from, 40 + kind, BYTES);
        memset(to, 0, BYTES);
        ok(weir_copy(f->runtime, on_device, from, BYTES, f->stream));
        ok(weir_copy(f->runtime, to, on_device, BYTES, f->stream));
        ok(weir_free(f->client, from, f->stream));
        ok(weir_stream_synchronize(f->stream));
        for (int i = 0; i < BYTES; i++)
            assert_int_equal(to[i], 40 + kind);
        ok(weir_free(f->client, to, f->stream));
    }
    ok(weir_free(f->client, on_device, f->stream));
}

static void a_free_is_ordered(void **state)
{
    fixture *f = *state;
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++) {
        void *p = take(f, (weir_kind)kind, 3000), *d = take(f, WEIR_KIND_DEVICE, 4000);
        f->gate = (gate)GATE;
        hold_stream(f);
        ok(weir_fill(f->runtime, d, 1, 4000, f->stream));
        ok(weir_free(f->client, p, f->stream));
        snapshot s = take_snapshot(f->host);
        check_sums(&s);
        if (on_host()) { /* its own stream may have them at once */
            assert_int_equal(s.device.ordered, 3072);
        } else {
            assert_int_equal(s.device.pending, 3072);
            assert_int_equal(look(p).state, WEIR_BLOCK_PENDING);
        }
        let_go(f);
        (void)take_snapshot(f->runtime);
        s = take_snapshot(f->host);
        assert_int_equal(unpassed(&s), 0);
        ok(weir_free(f->client, d, WEIR_STREAM_HOST));
    }
}

static void declared_uses(void **state)
{
    fixture *f = *state;
    void *p = take(f, WEIR_KIND_PINNED, 3000), *d = take(f, WEIR_KIND_DEVICE, 3000);
    weir_stream other;
    weir_launch *launch;
    ok(weir_stream_acquire(f->runtime, &other));
    weir_use uses[] = {{{p, 0}, WEIR_ACCESS_READ}, {{d, 0}, WEIR_ACCESS_WRITE}};
    f->gate = (gate)GATE;
    hold_stream(f);
    ok(weir_launch_begin(f->runtime, f->stream, uses, 2, &launch));
    fails(WEIR_ERR_BUSY, weir_free(f->client, p, other));
    ok(weir_fill(f->runtime, d, 1, 3000, f->stream));
    ok(weir_launch_end(launch));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = p}, f->stream));
    ok(weir_free(f->client, p, other)); /* ordered behind the use, not only behind its own stream */
    ok(weir_free(f->client, d, other));
    assert_true(take_snapshot(f->host).device.pending >= 3072);
    let_go(f);
    (void)take_snapshot(f->runtime);
    assert_int_equal(take_snapshot(f->host).device.pending, 0);
    ok(weir_stream_release(other));
}

/* The host zeroes what no device has seen, at once: on a captured stream, too. */
static void zeros(void **state)
{
    fixture *f = *state;
    void *p;
    weir_client_options options = {.struct_size = sizeof options, .name = "secret", .scrub = WEIR_SCRUB_OTHERS};
    weir_client *secret;
    if (on_host())
        return;
    ok(weir_client_create(f->runtime, &options, &secret));
    ok(weir_capture_begin(f->stream, NULL));
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++)
        for (int scrubs = 0; scrubs < 2; scrubs++) {
            weir_client *client = scrubs ? secret : f->client;
            ok(take_with(f->client, (weir_kind)kind, 3000, WEIR_STREAM_HOST, 0, &p));
            memset(p, 0xa5, 3000);
            ok(weir_free(f->client, p, WEIR_STREAM_HOST));
            ok(take_with(client, (weir_kind)kind, 3000, f->stream, scrubs ? 0 : WEIR_ALLOC_ZEROED, &p));
            for (int i = 0; i < 3000; i++)
                assert_int_equal(((unsigned char *)p)[i], 0);
            ok(weir_free(client, p, WEIR_STREAM_HOST));
        }
    ok(weir_capture_end(f->stream, NULL));
    ok(weir_client_destroy(secret));
}

/* Resizing, closing, misuse ------------------------------------------------------------------------------------------ */

static void resizing(void **state)
{
    fixture *f = *state;
    void *p = take(f, WEIR_KIND_PINNED, 3000);
    ok(weir_resize(f->client, p, 3072, f->stream));
    ok(weir_resize(f->client, p, 1000, f->stream));
    ok(weir_stream_synchronize(f->stream));
    (void)take_snapshot(f->runtime);
    assert_int_equal(take_snapshot(f->host).device.live, 1024);
    assert_int_equal(look(p).bytes, 1000);
    if (!on_host())
        fails(WEIR_ERR_NO_ROOM, weir_resize(f->client, p, 4000, f->stream));
    ok(weir_free(f->client, p, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

static void closing_a_client(void **state)
{
    fixture *f = *state;
    weir_client *client = open_client(f->runtime, "leaving", 0, 0);
    void *p;
    size_t before = take_snapshot(f->host).count;
    ok(take_with(client, WEIR_KIND_PINNED, 3000, f->stream, 0, &p));
    fails(WEIR_ERR_BUSY, weir_client_destroy(client));
    detail_names("leaving has 1 blocks of 3 KiB");
    detail_names("staging");
    if (!on_host())
        detail_names("in the memory of host");
    f->gate = (gate)GATE;
    hold_stream(f);
    ok(weir_free(client, p, f->stream));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, open_gate_later, &f->gate), 0);
    ok(weir_client_destroy(client)); /* waits for the free */
    pthread_join(thread, NULL);
    assert_int_equal(take_snapshot(f->host).count, on_host() ? before - 1 : before);
    fails(WEIR_ERR_INVALID, take_with(client, WEIR_KIND_PINNED, 1, f->stream, 0, &p));
}

static void calls_that_are_wrong(void **state)
{
    fixture *f = *state;
    weir_client *other = open_client(f->runtime, "other", 0, 0);
    char *p = take(f, WEIR_KIND_PINNED, 3000);
    void *q;
    weir_reservation *reservation;
    ok(weir_reservation_create(f->client, 4096, 0, &reservation));
    snapshot before = take_snapshot(f->host);
    fails(WEIR_ERR_INTERIOR, weir_free(f->client, p + 8, f->stream));
    fails(WEIR_ERR_FOREIGN, weir_free(other, p, f->stream));
    fails(WEIR_ERR_INVALID, take_with(f->client, WEIR_KIND_COUNT, 1, f->stream, 0, &q));
    weir_request request = {
        .struct_size = sizeof request, .bytes = 1, .reservation = reservation, .kind = WEIR_KIND_HOST};
    weir_block block;
    if (!on_host())
        fails(WEIR_ERR_INVALID, weir_alloc_with(f->client, &request, &block));
    unchanged(f->host, before);
    ok(weir_reservation_destroy(reservation));
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(other));
}

static void hosts_that_are_none(void **state)
{
    fixture *f = *state;
    weir_runtime *runtime = f->host, *host = make_runtime(HOST_BUDGET);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .host = host};
    fails(WEIR_ERR_INVALID, weir_runtime_create("host", &options, &runtime));
    assert_null(runtime);
    fails(WEIR_ERR_INVALID, weir_runtime_get(device(), &options, &runtime));
    if (!on_host()) {
        options.host = f->runtime;
        fails(WEIR_ERR_INVALID, weir_runtime_create(device(), &options, &runtime));
        fails(WEIR_ERR_BUSY, weir_runtime_destroy(f->host));
        detail_names("is the host of 1 others");
    }
    ok(weir_runtime_destroy(host));
}

/* Failures and threads ----------------------------------------------------------------------------------------------- */

static void a_driver_that_fails(void **state)
{
    (void)state;
    weir_runtime *runtime, *host = make_runtime(HOST_BUDGET);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .host = host};
    void *p;
    faults_reset(-1);
    ok(wi_runtime_create_over(&faulty_driver, 0, &options, &runtime));
    weir_client *client = open_client(runtime, "one", 0, 0);
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++) {
        fault.fail_at = fault.calls;
        fails(WEIR_ERR_DRIVER, take_with(client, (weir_kind)kind, 3000, WEIR_STREAM_HOST, 0, &p));
        fault.fail_at = -1;
        snapshot s = take_snapshot(host);
        check_sums(&s);
        assert_int_equal(s.device.live + s.device.promised + s.device.held, 0);
        ok(take_with(client, (weir_kind)kind, 3000, WEIR_STREAM_HOST, 0, &p));
        fault.fail_at = fault.calls; /* what the driver does not take back stays pending, and is tried again */
        ok(weir_free(client, p, WEIR_STREAM_HOST));
        fault.fail_at = -1;
        assert_int_equal(look(p).state, WEIR_BLOCK_PENDING);
        s = take_snapshot(host);
        assert_int_equal(s.device.pending + s.device.held, 0);
        assert_int_equal(take_snapshot(runtime).device.failed_frees, kind);
    }
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    ok(weir_runtime_destroy(host));
    assert_true(faults_nothing_left());
}

enum { THREADS = 4, ROUNDS = UNDER_TSAN ? 100 : 500 };

static void *take_and_free(void *user)
{
    fixture *f = user;
    for (int i = 0; i < ROUNDS; i++) {
        void *p;
        weir_kind kind = (weir_kind)(i % WEIR_KIND_COUNT);
        if (take_with(f->client, kind, 1000 + (size_t)i, f->stream, 0, &p) != WEIR_OK)
            abort();
        if (weir_free(f->client, p, i % 2 ? f->stream : WEIR_STREAM_HOST) != WEIR_OK)
            abort();
    }
    return NULL;
}

static void several_threads(void **state)
{
    fixture *f = *state;
    pthread_t threads[THREADS];
    if (f->sim)
        return; /* its world is one thread's */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_free, f), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ok(weir_stream_synchronize(f->stream));
    (void)take_snapshot(f->runtime);
    snapshot s = take_snapshot(f->host);
    check_sums(&s);
    assert_int_equal(s.device.live + s.device.pending + s.device.promised, 0);
    assert_true(s.device.allocations >= THREADS * ROUNDS / 3);
}

typedef struct coming_and_going {
    weir_runtime *host;
    atomic_bool over;
} coming_and_going;

static void *look_at_all(void *user)
{
    coming_and_going *c = user;
    weir_client *client = open_client(c->host, "looking", 0, 0);
    while (!atomic_load(&c->over)) {
        void *p;
        weir_trace *trace;
        if (weir_alloc(client, HOST_BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p) == WEIR_OK)
            ok(weir_free(client, p, WEIR_STREAM_HOST));
        if (weir_trace_create(c->host, NULL, &trace) == WEIR_OK)
            weir_trace_destroy(trace);
    }
    ok(weir_client_destroy(client));
    return NULL;
}

/* A runtime that goes is not lost to those who look at what it has of the host's. */
static void runtimes_that_come_and_go(void **state)
{
    enum { TIMES = UNDER_TSAN ? 20 : 100 };
    fixture *f = *state;
    pthread_t threads[2];
    coming_and_going c = {.host = f->host};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .host = f->host};
    if (f->sim || on_host())
        return;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, look_at_all, &c), 0);
    for (int i = 0; i < TIMES; i++) {
        weir_runtime *runtime;
        void *p;
        ok(weir_runtime_create(device(), &options, &runtime));
        weir_client *client = open_client(runtime, "passing", 0, 0);
        for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++)
            if (take_with(client, (weir_kind)kind, 1000, WEIR_STREAM_HOST, 0, &p) == WEIR_OK)
                ok(weir_free(client, p, WEIR_STREAM_HOST));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
    }
    atomic_store(&c.over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    setenv("WEIR_THREAD_CACHE", "0", 1); /* what is freed is pending, and no thread cache keeps it */
    const struct CMUnitTest tests[] = {
        CASE(copies),
        CASE(a_free_is_ordered),
        CASE(declared_uses),
        CASE(zeros),
        CASE(resizing),
        CASE(closing_a_client),
        CASE(calls_that_are_wrong),
        CASE(hosts_that_are_none),
        cmocka_unit_test(a_driver_that_fails),
        CASE(several_threads),
        CASE(runtimes_that_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
