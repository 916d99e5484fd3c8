/* Several threads at once. They count what goes wrong; the test looks at the counts when they have ended. */
#include "resources/contract.h"

#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 8, LIVE = 6 };

typedef struct owned {
    void *pointer;
    size_t bytes;
} owned;

typedef struct worker {
    fixture *f;
    weir_client *client;
    weir_stream stream;
    uint64_t random;
    uint8_t stamp;
    int rounds, failed, wrong, refused;
    owned live[LIVE];
} worker;

static void count(worker *w, weir_status status)
{
    if (status != WEIR_OK)
        w->failed++;
}

static void give(worker *w, owned *o)
{
    if (!o->pointer)
        return;
    count(w, weir_stream_synchronize(w->stream));
    w->wrong += !filled(w->f->runtime, o->pointer, w->stamp, o->bytes);
    count(w, weir_fill(w->f->runtime, o->pointer, (uint8_t)~w->stamp, o->bytes, w->stream));
    count(w, weir_free(w->client, o->pointer, w->stream));
    o->pointer = NULL;
}

static void get(worker *w, owned *o)
{
    static const size_t most[] = {1000, 10000, 70000, 300000};
    weir_block block;
    o->bytes = next_random(&w->random) % most[next_random(&w->random) % 4] + 1;
    weir_status status = try_take(w->client, o->bytes, w->stream, 0, &block);
    if (status ==
        WEIR_ERR_OUT_OF_MEMORY) { /* pieces of others in between: only a stack that moves nothing may say so */
        w->refused++;
        return;
    }
    count(w, status);
    o->pointer = status == WEIR_OK ? block.pointer : NULL;
    if (o->pointer)
        count(w, weir_fill(w->f->runtime, o->pointer, w->stamp, o->bytes, w->stream));
}

static void *come_and_go(void *user)
{
    worker *w = user;
    for (int i = 0; i < w->rounds; i++) {
        owned *o = &w->live[next_random(&w->random) % LIVE];
        give(w, o);
        get(w, o);
    }
    for (int i = 0; i < LIVE; i++)
        give(w, &w->live[i]);
    return NULL;
}

static void threads_do_not_disturb_one_another(void **state)
{
    fixture *f = *state;
    worker workers[THREADS];
    pthread_t threads[THREADS];
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.f = f,
                              .client = i % 2 ? f->one : f->two,
                              .random = 77 + (uint64_t)i,
                              .stamp = (uint8_t)(i + 1),
                              .rounds = UNDER_TSAN ? 60 : 250};
        ok(weir_stream_acquire(f->runtime, &workers[i].stream));
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].failed, 0);
        assert_int_equal(workers[i].wrong, 0);
        assert_int_equal(workers[i].refused, 0); /* eight times 1.8 MB in 64 MiB */
        ok(weir_stream_release(workers[i].stream));
    }
    snapshot s = drained(f);
    assert_int_equal(s.device.live + s.device.pending + s.device.thread_cached, 0);
    assert_int_equal(s.device.allocations, s.device.frees);
}

/* Frees of several streams against somebody who reaps all the time. */
typedef struct freer {
    fixture *f;
    weir_stream stream;
    int failed;
} freer;

static atomic_bool all_freed;

static void *free_many(void *user)
{
    freer *r = user;
    for (int i = 0; i < 200; i++) {
        void *p;
        weir_status status = weir_alloc(r->f->one, 5000, r->stream, WEIR_CLASS_SCRATCH, &p);
        if (status == WEIR_OK)
            status = weir_fill(r->f->runtime, p, 1, 5000, r->stream);
        if (status == WEIR_OK)
            status = weir_free(r->f->one, p, r->stream);
        r->failed += status != WEIR_OK;
    }
    return NULL;
}

static void *reap(void *user)
{
    freer *r = user;
    weir_stats s = WEIR_INIT(weir_stats);
    while (!atomic_load(&all_freed)) {
        r->failed += weir_runtime_trim(r->f->runtime,
                                       &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = MIB},
                                       NULL) != WEIR_OK;
        r->failed += weir_snapshot(r->f->runtime, &s, NULL, 0, NULL) != WEIR_OK;
        r->failed += s.held != s.live + s.pending + s.cached + s.spare || s.live + s.pending > s.peak;
    }
    return NULL;
}

static void reaping_beside_frees(void **state)
{
    enum { FREERS = 4 };
    fixture *f = *state;
    freer freers[FREERS], reaper = {.f = f};
    pthread_t threads[FREERS], reaping;
    atomic_store(&all_freed, false);
    assert_int_equal(pthread_create(&reaping, NULL, reap, &reaper), 0);
    for (int i = 0; i < FREERS; i++) {
        freers[i] = (freer){.f = f};
        ok(weir_stream_acquire(f->runtime, &freers[i].stream));
    }
    for (int i = 0; i < FREERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, free_many, &freers[i]), 0);
    for (int i = 0; i < FREERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&all_freed, true);
    pthread_join(reaping, NULL);
    assert_int_equal(reaper.failed, 0);
    for (int i = 0; i < FREERS; i++) {
        assert_int_equal(freers[i].failed, 0);
        ok(weir_stream_release(freers[i].stream));
    }
    snapshot s = drained(f);
    assert_int_equal(s.device.live + s.device.pending, 0);
    assert_int_equal(s.device.frees, FREERS * 200);
}

/* One block, two threads at the same moment: exactly one of them frees it. */
enum { RACES = 400 };

typedef struct race {
    fixture *f;
    void *blocks[RACES];
    atomic_int arrived, freed, told;
} race;

static void *free_each(void *user)
{
    race *r = user;
    for (int i = 0; i < RACES; i++) {
        atomic_fetch_add(&r->arrived, 1);
        while (atomic_load(&r->arrived) < 2 * (i + 1))
            sched_yield();
        weir_status status = weir_free(r->f->one, r->blocks[i], r->f->a);
        atomic_fetch_add(&r->freed, status == WEIR_OK);
        atomic_fetch_add(&r->told, status == WEIR_ERR_DOUBLE_FREE || status == WEIR_ERR_BUSY);
    }
    return NULL;
}

static void one_of_two_frees_wins(void **state)
{
    race *r = calloc(1, sizeof *r);
    pthread_t threads[2];
    r->f = *state;
    for (int i = 0; i < RACES; i++)
        r->blocks[i] = take(r->f->one, 3000, r->f->a);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, free_each, r), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&r->freed), RACES);
    assert_int_equal(atomic_load(&r->told), RACES);
    assert_int_equal(take_snapshot(r->f->runtime).device.live, 0);
    free(r);
}

int contract_threads(void)
{
    const struct CMUnitTest threads[] = {
        CASE(threads_do_not_disturb_one_another),
        CASE(reaping_beside_frees),
        CASE(one_of_two_frees_wins),
    };
    return cmocka_run_group_tests(threads, NULL, NULL);
}
