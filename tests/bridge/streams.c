/* The order of streams: what ONNX Runtime frees on a stream is nobody's too early, whether weir knows the stream or
 * ONNX Runtime made it itself. Streams are held by gates, so that work is truly late. On cuda over the stub, which
 * tells when a stream is named that has been destroyed. */
#include "info.h"
#include "rig.h"
#include <weir/onnxruntime.h>

#include <stdatomic.h>
#include <unistd.h>

/* Late work on the stream, a free behind it, and another stream that wants the same bytes: when the late work comes, it
 * must not find them another's. */
static void not_too_early(bool known)
{
    fixture f = begin(6 * MIB, known);
    void *native = known ? weir_stream_native(f.known) : make_native(&f);
    gate g = GATE;
    pthread_t opener;
    weir_stream other;
    ok(weir_stream_acquire(f.runtime, &other));
    void *p = alloc_on(&f, native, BYTES);
    hold(&f, native, &g);
    fill(&f, native, p, 0x11, BYTES);
    f.table->Free(f.table, p);
    pthread_create(&opener, NULL, open_gate_later, &g);
    void *q = allocate(f.b, BYTES, other, WEIR_CLASS_ACTIVATIONS); /* there is room for one of them alone */
    ok(weir_fill(f.runtime, q, 0x22, BYTES, other));
    pthread_join(opener, NULL);
    synchronize(&f, native);
    ok(weir_stream_synchronize(other));
    assert_true(holds(q, 0x22, BYTES));
    ok(weir_free(f.b, q, other));
    ok(weir_stream_release(other));
    if (!known)
        drop_native(&f, native);
    assert_int_equal(errors, 0);
    assert_int_equal(stats(&f).unknown, known ? 0 : 1);
    assert_int_equal(stats(&f).on_stream, 1);
    end(&f);
}

static void not_too_early_on_a_known_stream(void **state)
{
    (void)state;
    not_too_early(true);
}

static void not_too_early_on_theirs(void **state)
{
    (void)state;
    not_too_early(false);
}

/* The stream itself need not wait: its next request gets the bytes although the work before is held up. */
static void served_again_in_order(bool known)
{
    fixture f = begin(6 * MIB, known);
    void *native = known ? weir_stream_native(f.known) : make_native(&f);
    gate g = GATE;
    void *p = alloc_on(&f, native, BYTES);
    hold(&f, native, &g);
    for (int i = 0; i < 20; i++) {
        fill(&f, native, p, (unsigned char)i, BYTES);
        f.table->Free(f.table, p);
        void *next = alloc_on(&f, native, BYTES);
        assert_ptr_equal(next, p);
    }
    fill(&f, native, p, 0x33, BYTES);
    open_gate(&g);
    synchronize(&f, native);
    assert_true(holds(p, 0x33, BYTES));
    f.table->Free(f.table, p);
    if (!known)
        drop_native(&f, native);
    assert_int_equal(errors, 0);
    end(&f);
}

static void served_again_in_order_on_a_known_stream(void **state)
{
    (void)state;
    served_again_in_order(true);
}

static void served_again_in_order_on_theirs(void **state)
{
    (void)state;
    served_again_in_order(false);
}

/* Two sessions with streams of their own; the second gets what the first has freed, behind the work there. */
static void from_one_of_theirs_to_another(void **state)
{
    (void)state;
    fixture f = begin(6 * MIB, false);
    void *first = make_native(&f), *second = make_native(&f);
    gate g = GATE;
    pthread_t opener;
    void *p = alloc_on(&f, first, BYTES);
    hold(&f, first, &g);
    fill(&f, first, p, 0x11, BYTES);
    f.table->Free(f.table, p);
    pthread_create(&opener, NULL, open_gate_later, &g);
    void *q = alloc_on(&f, second, BYTES);
    fill(&f, second, q, 0x22, BYTES);
    pthread_join(opener, NULL);
    synchronize(&f, first);
    synchronize(&f, second);
    assert_true(holds(q, 0x22, BYTES));
    f.table->Free(f.table, q);
    drop_native(&f, first);
    drop_native(&f, second);
    assert_int_equal(errors, 0);
    end(&f);
}

/* An output that outlives the session is freed when the stream is gone: nobody names the stream to the driver then. The
 * next session may have a stream at the same place. */
static void freed_after_the_stream(void **state)
{
    (void)state;
    fixture f = begin(64 * MIB, false);
    for (int i = 0; i < 50; i++) {
        void *native = make_native(&f);
        void *output = alloc_on(&f, native, 10000), *scratch = alloc_on(&f, native, 5000);
        fill(&f, native, output, 1, 10000);
        f.table->Free(f.table, scratch);
        drop_native(&f, native);
        f.table->Free(f.table, output);
        assert_int_equal(stats(&f).live, 0);
    }
    assert_int_equal(errors + warnings, 0);
    /* A weight that is freed, as when a session ends, takes along all that waits. */
    void *weight = f.table->Reserve(f.table, 1000);
    f.table->Free(f.table, weight);
    weir_client_stats s = {.struct_size = sizeof s};
    ok(weir_client_info(f.a, &s));
    assert_int_equal(s.live + s.pending, 0);
    end(&f);
}

/* Programs with a new session for each request: what follows their streams does not add up, whether blocks are left of
 * them or not, and one whose stream is still there goes on. */
static void streams_that_never_come_again(void **state)
{
    (void)state;
    enum { ROUNDS = 200, KEPT = 40 };
    fixture f = begin(64 * MIB, false);
    void *steady = make_native(&f), *outputs[KEPT], *p = alloc_on(&f, steady, 5000);
    for (int i = 0; i < ROUNDS; i++) {
        void *native = make_native(&f), *scratch = alloc_on(&f, native, 5000), *more = alloc_on(&f, native, 7000);
        fill(&f, native, more, 1, 7000);
        f.table->Free(f.table, scratch);
        if (i < KEPT)
            outputs[i] = more;
        else
            f.table->Free(f.table, more);
        drop_native(&f, native);
        if (i == KEPT + 1)
            for (int k = 0; k < KEPT; k++)
                f.table->Free(f.table, outputs[k]);
        f.table->Free(f.table, p);
        p = alloc_on(&f, steady, 5000);
        assert_true(f.bridge->followers.count <= 2 * KEPT + WI_ORT_FOLLOWERS_MANY);
    }
    assert_true(f.bridge->followers.count <= WI_ORT_FOLLOWERS_MANY + 1);
    assert_int_equal(stats(&f).live, 1);
    fill(&f, steady, p, 0x44, 5000);
    synchronize(&f, steady);
    assert_true(holds(p, 0x44, 5000));
    f.table->Free(f.table, p);
    drop_native(&f, steady);
    assert_int_equal(errors + warnings, 0);
    end(&f);
}

/* A block without a stream may have been used on any: its free waits for all. */
static void freed_without_a_stream(void **state)
{
    (void)state;
    fixture f = begin(6 * MIB, false);
    void *native = make_native(&f);
    gate g = GATE;
    pthread_t opener;
    void *p = f.table->Alloc(f.table, BYTES);
    hold(&f, native, &g);
    fill(&f, native, p, 0x11, BYTES);
    pthread_create(&opener, NULL, open_gate_later, &g);
    f.table->Free(f.table, p);
    void *q = allocate(f.b, BYTES, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    memset(q, 0x22, BYTES);
    pthread_join(opener, NULL);
    synchronize(&f, native);
    assert_true(holds(q, 0x22, BYTES));
    ok(weir_free(f.b, q, WEIR_STREAM_HOST));
    drop_native(&f, native);
    assert_int_equal(errors, 0);
    end(&f);
}

/* On a known stream a weight's free is behind the stream, and waits for nothing. */
static void freed_behind_the_known_stream(void **state)
{
    (void)state;
    fixture f = begin(6 * MIB, true);
    void *native = weir_stream_native(f.known);
    gate g = GATE;
    pthread_t opener;
    void *p = f.table->Alloc(f.table, BYTES);
    hold(&f, native, &g);
    fill(&f, native, p, 0x11, BYTES);
    f.table->Free(f.table, p);
    assert_int_equal(stats(&f).live, 0);
    pthread_create(&opener, NULL, open_gate_later, &g);
    void *q = allocate(f.b, BYTES, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    memset(q, 0x22, BYTES);
    pthread_join(opener, NULL);
    synchronize(&f, native);
    assert_true(holds(q, 0x22, BYTES));
    ok(weir_free(f.b, q, WEIR_STREAM_HOST));
    end(&f);
}

/* Sessions on threads of their own, with streams of their own, out of one small budget; each checks what it has
 * written. */
typedef struct worker {
    const fixture *f;
    int number;
    bool wrong;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    uint64_t random = 77 + (uint64_t)w->number;
    void *native = make_native(w->f);
    unsigned char value = (unsigned char)(w->number + 1);
    for (int i = 0; i < 60; i++) {
        size_t bytes = 1000 + next_random(&random) % 300000;
        void *p = alloc_on(w->f, native, bytes), *q = alloc_on(w->f, native, bytes);
        unsigned char *copy = malloc(bytes);
        fill(w->f, native, p, value, bytes);
        enter(w->f);
        wi_cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)q, (CUdeviceptr)(uintptr_t)p, bytes, native);
        w->f->table->Free(w->f->table, p);
        wi_cuda.cuMemcpyAsync((CUdeviceptr)(uintptr_t)copy, (CUdeviceptr)(uintptr_t)q, bytes, native);
        leave();
        w->f->table->Free(w->f->table, q);
        synchronize(w->f, native);
        w->wrong |= !holds(copy, value, bytes);
        free(copy);
    }
    drop_native(w->f, native);
    return NULL;
}

static void threads_with_streams(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    fixture f = begin(8 * MIB, false);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){&f, i, false};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(workers[i].wrong);
    }
    assert_int_equal(errors, 0);
    assert_int_equal(stats(&f).live, 0);
    end(&f);
}

/* Threads of one session share a stream where the provider has one for all (use_ep_level_unified_stream): it has one
 * follower all the same, whose hand the next request empties. */
typedef struct sharer {
    const fixture *f;
    pthread_barrier_t *start;
    void *native;
    pthread_t thread;
} sharer;

static void *share_a_stream(void *argument)
{
    const sharer *s = argument;
    pthread_barrier_wait(s->start);
    s->f->table->Free(s->f->table, alloc_on(s->f, s->native, 1000));
    return NULL;
}

static void threads_on_one_stream(void **state)
{
    (void)state;
    enum { THREADS = 4, ROUNDS = 12 };
    fixture f = begin(64 * MIB, false);
    void *natives[ROUNDS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, THREADS);
    for (int round = 0; round < ROUNDS; round++) {
        sharer sharers[THREADS];
        natives[round] = make_native(&f);
        for (int i = 0; i < THREADS; i++) {
            sharers[i] = (sharer){&f, &start, natives[round], 0};
            pthread_create(&sharers[i].thread, NULL, share_a_stream, &sharers[i]);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(sharers[i].thread, NULL);
        assert_int_equal(f.bridge->followers.count, round + 1);
    }
    for (int round = 0; round < ROUNDS; round++)
        drop_native(&f, natives[round]);
    pthread_barrier_destroy(&start);
    assert_int_equal(errors + warnings, 0);
    end(&f);
}

/* Freed twice at once, a pinned block is kept once, or two runs would get it. */
typedef struct freer {
    ort_allocator *table;
    pthread_barrier_t *start;
    void *pointer;
    pthread_t thread;
} freer;

static void *free_it(void *argument)
{
    const freer *f = argument;
    pthread_barrier_wait(f->start);
    f->table->Free(f->table, f->pointer);
    return NULL;
}

static void pinned_memory_freed_twice_at_once(void **state)
{
    (void)state;
    enum { ROUNDS = 300 };
    fixture f = begin(64 * MIB, true);
    ort_allocator *pinned = (ort_allocator *)bridge_allocator(f.bridge, WEIR_KIND_PINNED);
    void *weight = f.table->Alloc(f.table, 1000);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, 2);
    for (int round = 0; round < ROUNDS; round++) {
        freer both[2];
        void *p = pinned->Alloc(pinned, 5000);
        for (int i = 0; i < 2; i++) {
            both[i] = (freer){.table = pinned, .start = &start, .pointer = p};
            pthread_create(&both[i].thread, NULL, free_it, &both[i]);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(both[i].thread, NULL);
        assert_int_equal(stats(&f).foreign, round + 1);
        assert_int_equal(stats(&f).live, 1);
        ok(weir_stream_synchronize(f.known));
    }
    pthread_barrier_destroy(&start);
    f.table->Free(f.table, weight);
    assert_int_equal(errors, 0);
    end(&f);
}

/* Closing inside a callback of the program's. */
typedef struct closer {
    fixture *f;
    weir_client *client; /* of the host's, who asks for too much */
    pthread_t thread;
    atomic_bool begun, closed;
} closer;

static void close_the_bridge(const weir_pressure *pressure, void *user)
{
    closer *c = user;
    if (pressure->attempt > 1)
        return;
    atomic_store(&c->begun, true);
    if (weir_onnxruntime_destroy(c->f->bridge) == WEIR_OK)
        atomic_store(&c->closed, true);
}

static void *ask_for_too_much(void *argument)
{
    closer *c = argument;
    void *p;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(c->client, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &p));
    return NULL;
}

typedef struct taker {
    fixture *f;
    pthread_t thread;
    void *block;
} taker;

static void *take_what_waits(void *argument)
{
    taker *t = argument;
    t->block = allocate(t->f->b, BYTES, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    return NULL;
}

/* A program that unloads a model for want of memory does so inside a pressure callback, while the bridge's own may be
 * under way on another thread: that one is waited for, as what it works with is gone afterwards. */
static void closed_while_it_gives_up(void **state)
{
    (void)state;
    fixture f = begin(6 * MIB, false);
    weir_runtime *host = make_runtime(4 * MIB);
    closer c = {.f = &f, .client = open_client(host, "otto", 0, 0)};
    taker t = {.f = &f};
    uint64_t id;
    gate g = GATE;
    void *native = make_native(&f), *p = alloc_on(&f, native, BYTES);
    hold(&f, native, &g);
    f.table->Free(f.table, p);
    ok(weir_pressure_register(host, 0, close_the_bridge, &c, &id));
    uint64_t waits = control.stub_count("cuCtxSynchronize");
    pthread_create(&t.thread, NULL, take_what_waits, &t);
    while (control.stub_count("cuCtxSynchronize") == waits)
        usleep(100);
    pthread_create(&c.thread, NULL, ask_for_too_much, &c);
    while (!atomic_load(&c.begun))
        usleep(100);
    usleep(20000);
    assert_false(atomic_load(&c.closed));
    open_gate(&g);
    pthread_join(t.thread, NULL);
    pthread_join(c.thread, NULL);
    assert_true(atomic_load(&c.closed));
    f.bridge = NULL;
    ok(weir_free(f.b, t.block, WEIR_STREAM_HOST));
    drop_native(&f, native);
    ok(weir_pressure_unregister(host, id));
    ok(weir_client_destroy(c.client));
    ok(weir_runtime_destroy(host));
    assert_int_equal(errors + warnings, 0);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_too_early_on_a_known_stream),
        cmocka_unit_test(not_too_early_on_theirs),
        cmocka_unit_test(served_again_in_order_on_a_known_stream),
        cmocka_unit_test(served_again_in_order_on_theirs),
        cmocka_unit_test(from_one_of_theirs_to_another),
        cmocka_unit_test(freed_after_the_stream),
        cmocka_unit_test(streams_that_never_come_again),
        cmocka_unit_test(freed_without_a_stream),
        cmocka_unit_test(freed_behind_the_known_stream),
        cmocka_unit_test(threads_with_streams),
        cmocka_unit_test(threads_on_one_stream),
        cmocka_unit_test(pinned_memory_freed_twice_at_once),
        cmocka_unit_test(closed_while_it_gives_up),
    };
    return cmocka_run_group_tests(tests, rig_find_stub, NULL);
}
