/* Frees behind work that is not done: pending, counted, not reused before its time; waiting for them, and refusing to. */
#include "core.h"

enum { BUDGET = 4 << 20, HALF = 2 << 20 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime(BUDGET);
    f->client = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_option_set("wait", NULL));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_stream_release(f->stream));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static void *block_behind_gate(fixture *f, size_t bytes, gate *g)
{
    void *p = allocate(f->client, bytes, f->stream, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, g, f->stream));
    free_behind(f->client, p, f->stream);
    return p;
}

static void a_free_is_pending_until_the_device_is_past_it(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    void *p = block_behind_gate(f, HALF, &g);
    weir_block_details d = WEIR_INIT(weir_block_details);
    for (int i = 0; i < 3; i++) {
        snapshot s = take_snapshot(f->runtime);
        check_sums(&s);
        assert_int_equal(s.device.pending, HALF);
        assert_int_equal(s.device.live, 0);
        assert_int_equal(s.clients[0].pending, HALF);
        assert_int_equal(s.clients[0].blocks, 0);
        ok(weir_block_info(p, &d));
        assert_int_equal(d.state, WEIR_BLOCK_PENDING);
        assert_ptr_equal(d.client, f->client);
    }
    /* A trim does not touch it, a later block does not get it. */
    ok(weir_runtime_trim(f->runtime, NULL, NULL));
    assert_int_equal(take_snapshot(f->runtime).device.pending, HALF);
    char *q = allocate(f->client, HALF, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_true(q >= (char *)p + HALF || q + HALF <= (char *)p);
    ok(weir_free(f->client, q, WEIR_STREAM_HOST));
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(take_snapshot(f->runtime).device.pending, 0);
    ok(weir_block_info(p, &d));
    assert_int_equal(d.state, WEIR_BLOCK_FREE);
}

static void a_free_of_finished_work_is_free_at_once(void **state)
{
    fixture *f = *state;
    void *p = allocate(f->client, HALF, f->stream, WEIR_CLASS_KV);
    ok(weir_fill(f->runtime, p, 1, HALF, f->stream));
    ok(weir_stream_synchronize(f->stream));
    ok(weir_free(f->client, p, f->stream));
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(unpassed(&s), 0);
}

static void a_free_on_the_host_is_final(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    void *p = allocate(f->client, HALF, f->stream, WEIR_CLASS_KV);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST)); /* the caller says that nothing uses it */
    assert_int_equal(take_snapshot(f->runtime).device.pending, 0);
    assert_ptr_equal(allocate(f->client, HALF, WEIR_STREAM_HOST, WEIR_CLASS_KV), p);
    ok(weir_free(f->client, p, WEIR_STREAM_HOST));
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
}

/* One that waited all the same would do so for an hour. */
static void refused_when_waiting_is_not_allowed(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    (void)block_behind_gate(f, 3 << 20, &g);
    snapshot before = take_snapshot(f->runtime);
    weir_request request = {.struct_size = sizeof request,
                            .bytes = HALF,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = WEIR_ALLOC_NO_WAIT,
                            .stream = f->stream};
    weir_block block;
    ok(weir_option_set("wait", "3600s"));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->client, &request, &block));
    assert_null(block.pointer);
    weir_refusal r = last_refusal();
    assert_int_equal(r.cause, WEIR_CAUSE_PENDING);
    assert_int_equal(r.largest, MIB);
    detail_names("wait");
    ok(weir_option_set("wait", "0"));
    void *p;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, HALF, f->stream, WEIR_CLASS_KV, &p));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    before.device.refusals += 2;
    before.clients[0].refusals += 2;
    unchanged(f->runtime, before);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    ok(weir_alloc_with(f->client, &request, &block)); /* no wait is needed */
    ok(weir_free_block(f->client, block, WEIR_STREAM_HOST));
}

static void waiting_ends_with_the_option(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    (void)block_behind_gate(f, 3 << 20, &g);
    ok(weir_option_set("wait", "50ms"));
    void *p;
    uint64_t start = now_ns();
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, HALF, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_true(now_ns() - start >= 45000000u); /* and not before */
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
}

static void an_allocation_waits_for_pending_bytes(void **state)
{
    fixture *f = *state;
    ok(weir_option_set("wait", "20s"));
    weir_fail(WEIR_ERR_BUSY, "as it was");
    for (int by_budget = 0; by_budget < 2; by_budget++) {
        gate g = GATE;
        pthread_t opener;
        /* Bytes that the budget lacks, or that are there but in two pieces: beside the pending ones, and elsewhere. */
        void *elsewhere = allocate(f->client, UNIT, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        (void)block_behind_gate(f, by_budget ? 3 << 20 : BUDGET - GRANULE - 4096, &g);
        pthread_create(&opener, NULL, open_gate_later, &g);
        void *p = allocate(f->client, by_budget ? HALF : 69000, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        pthread_join(opener, NULL);
        ok(weir_free(f->client, p, WEIR_STREAM_HOST));
        ok(weir_free(f->client, elsewhere, WEIR_STREAM_HOST));
    }
    assert_string_equal(weir_detail(), "as it was"); /* a successful call leaves the detail */
}

/* Nor here. */
static void no_waiting_that_could_not_help(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    (void)block_behind_gate(f, MIB, &g);
    void *p;
    ok(weir_option_set("wait", "3600s"));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, BUDGET + 1, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
}

static void closing_waits_for_pending_frees(void **state)
{
    fixture *f = *state;
    weir_client *other = open_client(f->runtime, "other", 0, 0);
    gate g = GATE;
    pthread_t opener;
    void *p = allocate(other, 1000, f->stream, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    free_behind(other, p, f->stream);
    pthread_create(&opener, NULL, open_gate_later, &g);
    ok(weir_client_destroy(other));
    assert_true(g.open);
    pthread_join(opener, NULL);
    assert_int_equal(take_snapshot(f->runtime).device.pending, 0);
}

typedef struct gate_opener {
    gate done, *stuck;
} gate_opener;

/* Opens the gate after a while, unless it is told before that nobody waits for it. */
static void *open_gate_unless_done(void *user)
{
    gate_opener *r = user;
    struct timespec limit;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 5;
    pthread_mutex_lock(&r->done.lock);
    while (!r->done.open && !late)
        late = pthread_cond_timedwait(&r->done.changed, &r->done.lock, &limit);
    pthread_mutex_unlock(&r->done.lock);
    if (late)
        open_gate(r->stuck);
    return NULL;
}

static void closing_waits_for_no_frees_of_others(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    gate_opener r = {.done = GATE, .stuck = &g};
    pthread_t helper;
    weir_client *other = open_client(f->runtime, "other", 0, 0);
    (void)block_behind_gate(f, MIB, &g);
    pthread_create(&helper, NULL, open_gate_unless_done, &r);
    ok(weir_client_destroy(other));
    open_gate(&r.done);
    pthread_join(helper, NULL);
    assert_false(g.open);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
}

static void busy_close_is_answered_at_once(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    (void)block_behind_gate(f, MIB, &g);
    weir_request request = {
        .struct_size = sizeof request, .bytes = 5000, .memory_class = WEIR_CLASS_KV, .tag = "cache.7"};
    weir_block block;
    void *small = allocate(f->client, 100, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_alloc_with(f->client, &request, &block));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_BUSY, weir_client_destroy(f->client)); /* the gate is shut: this must not wait for it */
    detail_names("one");
    detail_names("2 blocks");
    detail_names("5.3 KiB");
    detail_names("cache.7");
    unchanged(f->runtime, before);
    ok(weir_free_block(f->client, block, WEIR_STREAM_HOST));
    ok(weir_free(f->client, small, WEIR_STREAM_HOST));
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
}

static void releasing_a_stream_makes_its_frees_final(void **state)
{
    fixture *f = *state;
    weir_stream own;
    ok(weir_stream_acquire(f->runtime, &own));
    void *kept = allocate(f->client, 1000, own, WEIR_CLASS_KV);
    gate g = GATE;
    pthread_t opener;
    void *p = allocate(f->client, 1000, own, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, own));
    void *q = allocate(f->client, 1000, own, WEIR_CLASS_KV);
    free_behind(f->client, p, own);
    ok(weir_free(f->client, q, own));
    pthread_create(&opener, NULL, open_gate_later, &g);
    ok(weir_stream_release(own));
    assert_true(g.open);
    pthread_join(opener, NULL);
    weir_stats stats = WEIR_INIT(weir_stats);
    ok(weir_snapshot(f->runtime, &stats, NULL, 0, NULL));
    assert_int_equal(stats.pending + stats.ordered, 0);
    assert_int_equal(stats.live, 1024); /* blocks allocated on it stay live */
    weir_stream next;
    ok(weir_stream_acquire(f->runtime, &next));
    assert_int_not_equal(next.id, own.id); /* the pool's stream again, under another id */
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_synchronize(own));
    ok(weir_free(f->client, kept, next));
    ok(weir_stream_release(next));
}

static void frees_on_several_streams(void **state)
{
    fixture *f = *state;
    weir_stream streams[8];
    gate gates[8];
    void *blocks[8];
    for (int i = 0; i < 8; i++) {
        gates[i] = (gate)GATE;
        ok(weir_stream_acquire(f->runtime, &streams[i]));
        blocks[i] = allocate(f->client, 1000, streams[i], WEIR_CLASS_KV);
        ok(weir_call(f->runtime, pass_gate, &gates[i], streams[i]));
        if (i % 2)
            free_behind(f->client, blocks[i], streams[i]);
        else
            ok(weir_free(f->client, blocks[i], streams[i]));
    }
    for (int i = 7; i >= 0; i--) { /* the youngest first: each is freed when its own stream is past it */
        open_gate(&gates[i]);
        ok(weir_stream_synchronize(streams[i]));
        snapshot s = take_snapshot(f->runtime);
        assert_int_equal(s.device.pending, (uint64_t)(i / 2) * 1024);
        assert_int_equal(s.device.ordered, (uint64_t)((i + 1) / 2) * 1024);
        ok(weir_stream_release(streams[i]));
    }
}

static void copies_fills_and_calls_in_stream_order(void **state)
{
    fixture *f = *state;
    unsigned char *a = allocate(f->client, 100000, f->stream, WEIR_CLASS_KV);
    unsigned char *b = allocate(f->client, 100000, f->stream, WEIR_CLASS_KV);
    gate g = GATE;
    memset(a, 1, 100000);
    memset(b, 2, 100000);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_copy(f->runtime, b, a, 100000, f->stream));
    ok(weir_fill(f->runtime, a, 9, 50000, f->stream));
    assert_int_equal(b[0], 2); /* queued, not done */
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(b[99999], 1);
    assert_int_equal(b[0], 1);
    assert_int_equal(a[49999], 9);
    assert_int_equal(a[50000], 1);
    ok(weir_fill(f->runtime, a, 4, 10, WEIR_STREAM_HOST)); /* done at return */
    assert_int_equal(a[9], 4);
    gate open = GATE;
    open.open = true;
    ok(weir_call(f->runtime, pass_gate, &open, WEIR_STREAM_HOST));
    assert_true(open.reached);
    ok(weir_stream_synchronize(WEIR_STREAM_HOST));
    assert_null(weir_stream_native(f->stream));
    assert_null(weir_stream_native(WEIR_STREAM_HOST));
    ok(weir_free(f->client, a, f->stream));
    ok(weir_free(f->client, b, f->stream));
}

int main(void)
{
    setenv("WEIR_THREAD_CACHE", "0", 1); /* what is freed is pending, and no thread cache keeps it */
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        test(a_free_is_pending_until_the_device_is_past_it),
        test(a_free_of_finished_work_is_free_at_once),
        test(a_free_on_the_host_is_final),
        test(refused_when_waiting_is_not_allowed),
        test(waiting_ends_with_the_option),
        test(an_allocation_waits_for_pending_bytes),
        test(no_waiting_that_could_not_help),
        test(closing_waits_for_pending_frees),
        test(closing_waits_for_no_frees_of_others),
        test(busy_close_is_answered_at_once),
        test(releasing_a_stream_makes_its_frees_final),
        test(frees_on_several_streams),
        test(copies_fills_and_calls_in_stream_order),
    };
    return cmocka_run_group_tests_name("pending", tests, NULL, NULL);
}
