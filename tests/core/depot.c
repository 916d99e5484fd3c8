/* Blocks that one thread frees and another allocates: how they get there, who may take them away, and what the ledger says
 * meanwhile. */
#include "core.h"
#include <weir/trace.h>

#include <stdatomic.h>

enum { BUDGET = 64 << 20, ROOM = BUDGET / 64, COUNT = 300 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client, *other;
    weir_stream stream, second;
    void *blocks[COUNT];
    pthread_t thread; /* frees the blocks on `stream`, and stays until it may go */
    pthread_barrier_t barrier;
    weir_status status;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime_here(BUDGET);
    f->client = open_client(f->runtime, "one", 0, 0);
    f->other = open_client(f->runtime, "other", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    ok(weir_stream_acquire(f->runtime, &f->second));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_synchronize(f->stream));
    check_empty(f->runtime);
    if (f->client)
        ok(weir_client_destroy(f->client));
    ok(weir_client_destroy(f->other));
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 0);
    ok(weir_stream_release(f->stream));
    ok(weir_stream_release(f->second));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static snapshot look(const fixture *f)
{
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    return s;
}

static uint64_t thread_cached(const fixture *f)
{
    return look(f).device.thread_cached;
}

static void *free_them(void *user)
{
    fixture *f = user;
    for (int i = 0; i < COUNT && f->status == WEIR_OK; i++)
        f->status = weir_free(f->client, f->blocks[i], f->stream);
    pthread_barrier_wait(&f->barrier);
    pthread_barrier_wait(&f->barrier);
    return NULL;
}

/* The other thread has freed COUNT blocks of 1024 bytes; more of them than its thread cache keeps lie in the depot. */
static void begin(fixture *f)
{
    for (int i = 0; i < COUNT; i++)
        f->blocks[i] = allocate(f->client, 1000, f->stream, i % 2 ? WEIR_CLASS_KV : WEIR_CLASS_SCRATCH);
    f->status = WEIR_OK;
    pthread_barrier_init(&f->barrier, NULL, 2);
    pthread_create(&f->thread, NULL, free_them, f);
    pthread_barrier_wait(&f->barrier);
    ok(f->status);
    assert_int_equal(thread_cached(f), COUNT * 1024);
}

static void end(fixture *f)
{
    pthread_barrier_wait(&f->barrier);
    pthread_join(f->thread, NULL);
    pthread_barrier_destroy(&f->barrier);
}

static bool was_freed(const fixture *f, const void *pointer)
{
    bool found = false;
    for (int i = 0; i < COUNT && !found; i++)
        found = f->blocks[i] == pointer;
    return found;
}

/* Serving ---------------------------------------------------------------------------------------------------------- */

static void what_one_thread_frees_another_gets(void **state)
{
    fixture *f = *state;
    void *again[COUNT];
    uint64_t served = 0;
    begin(f);
    void *elsewhere = allocate(f->client, 1000, f->second, WEIR_CLASS_KV),
         *others = allocate(f->other, 1000, f->stream, WEIR_CLASS_KV);
    assert_false(was_freed(f, elsewhere) || was_freed(f, others));
    uint64_t frees = look(f).device.frees;
    for (int i = 0; i < COUNT; i++) {
        again[i] = allocate(f->client, 900, f->stream, WEIR_CLASS_OTHER);
        served += was_freed(f, again[i]);
    }
    snapshot s = look(f);
    assert_true(served >= COUNT - 64); /* the rest are in the other thread's thread cache */
    assert_int_equal(s.device.hits, served);
    assert_int_equal(s.device.thread_cached, (COUNT - served) * 1024);
    assert_int_equal(s.clients[0].live_class[WEIR_CLASS_OTHER], COUNT * 1024);
    assert_int_equal(s.clients[0].live_class[WEIR_CLASS_SCRATCH], 0);
    assert_int_equal(s.clients[0].blocks, COUNT + 1);
    assert_int_equal(s.device.frees, frees);
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(again[i], again[k]);
    for (int i = 0; i < COUNT; i++)
        ok(weir_free(f->client, again[i], f->stream));
    ok(weir_free(f->client, elsewhere, f->second));
    ok(weir_free(f->other, others, f->stream));
    end(f);
}

static void it_is_bounded(void **state)
{
    enum { MANY = 8 * ROOM / 10240 };
    fixture *f = *state;
    void *p[MANY];
    for (int i = 0; i < MANY; i++)
        p[i] = allocate(f->client, 10000, f->stream, WEIR_CLASS_KV);
    for (int i = 0; i < MANY; i++) {
        ok(weir_free(f->client, p[i], f->stream));
        assert_true(thread_cached(f) <= 2 * ROOM); /* the thread cache's and the depot's */
    }
    assert_true(thread_cached(f) > ROOM);
    for (int i = 0; i < MANY; i++) /* other sizes push out what lies there */
        p[i] = allocate(f->client, 15000, f->stream, WEIR_CLASS_KV);
    for (int i = 0; i < MANY; i++)
        ok(weir_free(f->client, p[i], f->stream));
    assert_true(thread_cached(f) <= 2 * ROOM);
    uint64_t hits = look(f).device.hits;
    for (int i = 0; i < 40; i++)
        p[i] = allocate(f->client, 15000, f->stream, WEIR_CLASS_KV);
    assert_int_equal(look(f).device.hits, hits + 40);
    for (int i = 0; i < 40; i++)
        ok(weir_free(f->client, p[i], f->stream));
}

/* From hand to hand ------------------------------------------------------------------------------------------------ */

enum { HANDED = 16, BATCHES = UNDER_TSAN ? 300 : 3000, BYTES = 5000, CHARGE = 5120 };

typedef struct channel {
    fixture *f;
    _Atomic(void **) slot;
    int wrong;
} channel;

static void *receive(void *user)
{
    channel *c = user;
    for (int i = 0; i < BATCHES; i++) {
        void **batch;
        while (!(batch = atomic_exchange(&c->slot, NULL)))
            sched_yield();
        for (int k = 0; k < HANDED; k++) {
            c->wrong += host_writes() && *(int *)batch[k] != i;
            c->wrong += weir_free(c->f->client, batch[k], c->f->stream) != WEIR_OK;
        }
        free(batch);
    }
    return NULL;
}

static void neither_thread_drifts_away(void **state)
{
    fixture *f = *state;
    channel c = {.f = f};
    pthread_t thread;
    pthread_create(&thread, NULL, receive, &c);
    for (int i = 0; i < BATCHES; i++) {
        void **batch = malloc(HANDED * sizeof *batch), **none = NULL;
        for (int k = 0; k < HANDED; k++) {
            batch[k] = allocate(f->client, BYTES, f->stream, k % 2 ? WEIR_CLASS_SCRATCH : WEIR_CLASS_KV);
            if (host_writes())
                *(int *)batch[k] = i;
        }
        while (!atomic_compare_exchange_weak(&c.slot, &none, batch)) {
            none = NULL;
            sched_yield();
        }
        if (i % 100 == 0) {
            snapshot s = look(f);
            assert_true(s.device.live <= 3 * HANDED * CHARGE);
        }
    }
    pthread_join(thread, NULL);
    assert_int_equal(c.wrong, 0);
    snapshot s = look(f);
    assert_int_equal(s.device.live, 0);
    assert_int_equal(s.device.allocations, BATCHES * HANDED);
    assert_int_equal(s.device.frees, BATCHES * HANDED);
    assert_true(s.device.hits > BATCHES * HANDED / 2);
    assert_true(s.device.peak <= 3 * HANDED * CHARGE + 3 * ROOM); /* two thread caches' and a depot's bounds */
    weir_memory_stats m = WEIR_INIT(weir_memory_stats);
    ok(weir_memory_stats_info(f->runtime, &m));
    assert_int_equal(m.requested_bytes.current, 0);
    assert_int_equal(m.requested_bytes.allocated, (uint64_t)BATCHES * HANDED * BYTES);
}

/* Taking away ------------------------------------------------------------------------------------------------------ */

static void a_starved_request_gets_it(void **state)
{
    fixture *f = *state;
    begin(f);
    void *all = allocate(f->other, BUDGET, f->second, WEIR_CLASS_KV);
    assert_int_equal(thread_cached(f), 0);
    assert_true(look(f).device.emptied >= COUNT * 1024);
    ok(weir_free(f->other, all, f->second));
    end(f);
}

static void a_closing_client_takes_it_along(void **state)
{
    fixture *f = *state;
    begin(f);
    ok(weir_client_destroy(f->client));
    f->client = NULL;
    assert_int_equal(thread_cached(f), 0);
    end(f);
}

static void a_stream_takes_it_along(void **state)
{
    fixture *f = *state;
    begin(f);
    ok(weir_stream_release(f->stream));
    assert_int_equal(thread_cached(f), 0);
    end(f);
    ok(weir_stream_acquire(f->runtime, &f->stream));
}

static void a_trace_empties_it(void **state)
{
    fixture *f = *state;
    weir_trace *trace;
    begin(f);
    ok(weir_trace_create(f->runtime, NULL, &trace));
    assert_int_equal(thread_cached(f), 0);
    weir_trace_destroy(trace);
    end(f);
}

/* The last thread takes it along; before that the others keep it. */
static void threads_end(void **state)
{
    fixture *f = *state;
    begin(f);
    end(f);
    assert_int_equal(thread_cached(f), 0);
    begin(f);
    void *mine = allocate(f->client, 1000, f->stream, WEIR_CLASS_KV);
    end(f);
    uint64_t left = thread_cached(f);
    assert_true(left >= 128 * 1024 && left < COUNT * 1024);
    for (int i = 0; i < 100; i++)
        assert_true(was_freed(f, f->blocks[i] = allocate(f->client, 1000, f->stream, WEIR_CLASS_KV)));
    assert_int_equal(thread_cached(f), left - 100 * 1024);
    for (int i = 0; i < 100; i++)
        ok(weir_free(f->client, f->blocks[i], f->stream));
    ok(weir_free(f->client, mine, f->stream));
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(what_one_thread_frees_another_gets),
        test(it_is_bounded),
        test(neither_thread_drifts_away),
        test(a_starved_request_gets_it),
        test(a_closing_client_takes_it_along),
        test(a_stream_takes_it_along),
        test(a_trace_empties_it),
        test(threads_end),
    };
    return cmocka_run_group_tests_name("depot", tests, NULL, NULL);
}
