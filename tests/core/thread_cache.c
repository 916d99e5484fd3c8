/* Blocks that threads keep for themselves: who gets them, who may take them away, and what the ledger says meanwhile. */
#include "core.h"
#include <weir/trace.h>
#include "trim.h"

#include <stdatomic.h>

enum { BUDGET = 64 << 20, ROOM = BUDGET / 64 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client, *other;
    weir_stream stream, second;
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
    ok(weir_stream_synchronize(f->second));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_client_destroy(f->other));
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 0);
    ok(weir_stream_release(f->stream));
    ok(weir_stream_release(f->second));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static void give(weir_client *client, void *p, weir_stream stream)
{
    ok(weir_free(client, p, stream));
}

static uint64_t thread_cached(const fixture *f)
{
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.thread_cached,
                     s.clients[0].thread_cached + (s.count > 1 ? s.clients[1].thread_cached : 0));
    assert_true(s.device.thread_cached <= s.device.cached);
    return s.device.thread_cached;
}

/* Serving ---------------------------------------------------------------------------------------------------------- */

static void a_freed_block_serves_the_same_stream_alone(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->stream)); /* what is freed behind it is not free for others */
    void *p = allocate(f->client, 5000, f->stream, WEIR_CLASS_KV);
    give(f->client, p, f->stream);
    assert_int_equal(thread_cached(f), 5120);
    void *elsewhere = allocate(f->client, 5000, f->second, WEIR_CLASS_KV),
         *others = allocate(f->other, 5000, f->stream, WEIR_CLASS_KV);
    void *host = allocate(f->client, 5000, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_true(elsewhere != p && others != p && host != p);
    assert_int_equal(thread_cached(f), 5120);
    void *larger = allocate(f->client, 5121, f->stream, WEIR_CLASS_KV),
         *weights = allocate(f->client, 5000, f->stream, WEIR_CLASS_WEIGHTS);
    assert_true(larger != p && weights != p);
    assert_ptr_equal(allocate(f->client, 5120, f->stream, WEIR_CLASS_SCRATCH),
                     p); /* the same charge, of another class */
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.thread_cached, 0);
    assert_int_equal(s.device.hits, 1);
    assert_int_equal(s.clients[0].live_class[WEIR_CLASS_SCRATCH], 5120);
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(p, &d));
    assert_int_equal(d.state, WEIR_BLOCK_LIVE);
    assert_int_equal(d.bytes, 5120);
    assert_int_equal(d.memory_class, WEIR_CLASS_SCRATCH);
    assert_int_equal(d.stream.id, f->stream.id);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    void *const all[] = {elsewhere, host, larger, weights, p};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        give(f->client, all[i], f->stream);
    give(f->other, others, f->stream);
}

static void what_no_hit_can_promise_is_not_served(void **state)
{
    fixture *f = *state;
    void *p = allocate(f->client, 1000, f->stream, WEIR_CLASS_KV);
    give(f->client, p, f->stream);
    const weir_request requests[] = {
        {.struct_size = sizeof(weir_request), .bytes = 1000, .stream = f->stream, .flags = WEIR_ALLOC_ZEROED},
        {.struct_size = sizeof(weir_request), .bytes = 1000, .stream = f->stream, .alignment = 4096},
        {.struct_size = sizeof(weir_request), .bytes = 1000, .stream = f->stream, .flags = WEIR_ALLOC_STABLE},
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        weir_block block;
        ok(weir_alloc_with(f->client, &requests[i], &block));
        assert_ptr_not_equal(block.pointer, p);
        ok(weir_free_block(f->client, block, WEIR_STREAM_HOST));
    }
    assert_int_equal(take_snapshot(f->runtime).device.hits, 0);
    weir_request plain = {.struct_size = sizeof plain, .bytes = 900, .stream = f->stream};
    weir_block first, second;
    ok(weir_alloc_with(f->client, &plain, &first));
    assert_ptr_equal(first.pointer, p);
    ok(weir_free_block(f->client, first, f->stream));
    ok(weir_alloc_with(f->client, &plain, &second));
    assert_ptr_equal(second.pointer, p);
    assert_true(second.generation != first.generation);
    fails(WEIR_ERR_STALE, weir_free_block(f->client, first, f->stream));
    ok(weir_free_block(f->client, second, f->stream));
    fails(WEIR_ERR_INVALID,
          weir_alloc_with(
              f->client,
              &(weir_request){.struct_size = sizeof plain, .bytes = 900, .flags = 1u << 9, .stream = f->stream},
              &first));
    fails(WEIR_ERR_INVALID, weir_alloc_with(f->client,
                                            &(weir_request){.struct_size = sizeof plain,
                                                            .bytes = 900,
                                                            .stream = f->stream,
                                                            .kind = (weir_kind)WEIR_KIND_COUNT},
                                            &first));
}

static void check_tag(const void *p, const char *tag)
{
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(p, &d));
    assert_int_equal(d.state, WEIR_BLOCK_LIVE);
    assert_string_equal(d.tag, tag);
}

/* A tag, and what is true of each hit: the block goes round in the thread cache, and has each time its own tag. */
static void what_every_hit_promises_is_served(void **state)
{
    fixture *f = *state;
    weir_kind own = host_writes() ? WEIR_KIND_HOST : WEIR_KIND_DEVICE; /* the host has one by either name */
    const weir_request requests[] = {
        {.struct_size = sizeof(weir_request), .bytes = 1000, .stream = f->stream, .tag = "tagged"},
        {.struct_size = sizeof(weir_request), .bytes = 1000, .stream = f->stream, .tag = ""},
        {.struct_size = sizeof(weir_request), .bytes = 1000, .stream = f->stream, .tag = "otherwise"},
        {.struct_size = sizeof(weir_request), .bytes = 1000, .stream = f->stream, .flags = WEIR_ALLOC_NO_WAIT},
        {.struct_size = sizeof(weir_request), .bytes = 1000, .stream = f->stream, .kind = own},
    };
    enum { REQUESTS = sizeof requests / sizeof requests[0] };
    weir_block block;
    void *p = NULL;
    for (int i = 0; i < 2 * REQUESTS; i++) {
        const weir_request *r = &requests[i % REQUESTS];
        ok(weir_alloc_with(f->client, r, &block));
        assert_true(!p || block.pointer == p);
        check_tag(p = block.pointer, r->tag ? r->tag : "");
        ok(weir_free_block(f->client, block, f->stream));
        assert_int_equal(thread_cached(f), 1024);
    }
    assert_int_equal(take_snapshot(f->runtime).device.hits, 2 * REQUESTS - 1);
    assert_ptr_equal(allocate(f->client, 1000, f->stream, WEIR_CLASS_KV), p);
    check_tag(p, "");
    give(f->client, p, f->stream);
}

static void count_span(const weir_segment *segment, const weir_span *span, void *user)
{
    (void)segment;
    *(size_t *)user += span != NULL;
}

/* One block at a time comes and goes, in a way in which no thread cache serves it: none keeps it either. Else each round
 * would leave one more behind. */
static void what_is_not_served_is_not_kept(void **state)
{
    fixture *f = *state;
    enum { WAYS = 4, ROUNDS = 3000 };
    weir_layout_totals totals = WEIR_INIT(weir_layout_totals);
    size_t before = 0, after = 0;
    for (int round = 0; round <= ROUNDS; round++) {
        for (int way = 0; way < WAYS; way++) {
            weir_request request = {.struct_size = sizeof request, .bytes = 1000, .stream = WEIR_STREAM_HOST};
            weir_reservation *reservation = NULL;
            weir_block block;
            request.flags = way == 0 ? WEIR_ALLOC_ZEROED : 0;
            request.alignment = way == 1 ? 512 : 0;
            if (way == 2)
                ok(weir_reservation_create(f->client, 1024, 0, &reservation));
            request.reservation = reservation;
            ok(weir_alloc_with(f->client, &request, &block));
            assert_int_equal(take_snapshot(f->runtime).device.promised, 0); /* it is of the reservation's bytes */
            if (way == 3)
                ok(weir_resize(f->client, block.pointer, 600, WEIR_STREAM_HOST));
            ok(weir_free_block(f->client, block, WEIR_STREAM_HOST));
            ok(weir_reservation_destroy(reservation));
        }
        for (int i = 0; i < 2; i++) /* these are kept */
            give(f->client, allocate(f->client, i ? 1000 : 600, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST);
        if (round == 0)
            ok(weir_layout_walk(f->runtime, count_span, &before, &totals));
    }
    ok(weir_layout_walk(f->runtime, count_span, &after, &totals));
    assert_int_equal(after, before);
    assert_int_equal(thread_cached(f), 1024 + 768);
}

static void among_many_streams_each_has_its_own(void **state)
{
    fixture *f = *state;
    enum { MANY = 150 }; /* more than a thread finds at a glance */
    weir_stream streams[MANY];
    void *p[MANY];
    for (int i = 0; i < MANY; i++) {
        ok(weir_stream_acquire(f->runtime, &streams[i]));
        p[i] = allocate(f->client, 1000, streams[i], WEIR_CLASS_KV);
    }
    for (int i = 0; i < MANY; i++)
        give(f->client, p[i], streams[i]);
    assert_int_equal(thread_cached(f), MANY * 1024);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i++) {
            void *q = allocate(f->client, 1000, streams[i], WEIR_CLASS_KV);
            assert_ptr_equal(q, p[i]);
            give(f->client, q, streams[i]);
        }
    for (int i = 0; i < MANY; i++)
        ok(weir_stream_release(streams[i]));
    assert_int_equal(thread_cached(f), 0);
}

static uint64_t hits(const fixture *f)
{
    weir_stats stats = {.struct_size = sizeof stats};
    ok(weir_snapshot(f->runtime, &stats, NULL, 0, NULL));
    return stats.hits;
}

/* A thread has no more thread caches than so many: the one that it made first makes way for the newest. */
static void the_oldest_thread_cache_makes_way(void **state)
{
    fixture *f = *state;
    enum { STREAMS = 130, CLIENTS = 8 }; /* more than the 1024 that it may have */
    weir_stream streams[STREAMS];
    weir_client *clients[CLIENTS];
    void *p = NULL;
    for (int i = 0; i < STREAMS; i++)
        ok(weir_stream_acquire(f->runtime, &streams[i]));
    for (int k = 0; k < CLIENTS; k++) {
        clients[k] = open_client(f->runtime, "many", 0, 0);
        for (int i = 0; i < STREAMS; i++) {
            p = allocate(clients[k], 1000, streams[i], WEIR_CLASS_KV);
            give(clients[k], p, streams[i]);
        }
    }
    uint64_t before = hits(f);
    void *q = allocate(clients[CLIENTS - 1], 1000, streams[STREAMS - 1], WEIR_CLASS_KV);
    assert_ptr_equal(q, p);
    assert_int_equal(hits(f), before + 1);
    give(clients[CLIENTS - 1], q, streams[STREAMS - 1]);
    for (int k = 0; k < CLIENTS; k++)
        ok(weir_client_destroy(clients[k]));
    for (int i = 0; i < STREAMS; i++)
        ok(weir_stream_release(streams[i]));
}

/* Half of a thread's streams end: the others' blocks are found as before, for each of the clients. */
static void when_thread_caches_go_the_others_are_found(void **state)
{
    fixture *f = *state;
    enum { STREAMS = 31, CLIENTS = 8 }; /* as many as the table takes before it grows: many are not where they belong */
    weir_stream streams[STREAMS];
    weir_client *clients[CLIENTS];
    void *p[CLIENTS][STREAMS];
    for (int i = 0; i < STREAMS; i++)
        ok(weir_stream_acquire(f->runtime, &streams[i]));
    for (int k = 0; k < CLIENTS; k++) {
        clients[k] = open_client(f->runtime, "many", 0, 0);
        for (int i = 0; i < STREAMS; i++) {
            p[k][i] = allocate(clients[k], 1000, streams[i], WEIR_CLASS_KV);
            give(clients[k], p[k][i], streams[i]);
        }
    }
    for (int i = 0; i < STREAMS; i += 2)
        ok(weir_stream_release(streams[i]));
    uint64_t before = hits(f);
    for (int k = 0; k < CLIENTS; k++)
        for (int i = 1; i < STREAMS; i += 2)
            assert_ptr_equal(allocate(clients[k], 1000, streams[i], WEIR_CLASS_KV), p[k][i]);
    assert_int_equal(hits(f), before + CLIENTS * (STREAMS / 2));
    for (int k = 0; k < CLIENTS; k++) {
        for (int i = 1; i < STREAMS; i += 2)
            give(clients[k], p[k][i], streams[i]);
        ok(weir_client_destroy(clients[k]));
    }
    for (int i = 1; i < STREAMS; i += 2)
        ok(weir_stream_release(streams[i]));
}

static void mistakes_are_answered(void **state)
{
    fixture *f = *state;
    weir_block_details d = WEIR_INIT(weir_block_details);
    char *p = allocate(f->client, 3000, f->stream, WEIR_CLASS_KV);
    give(f->client, p, f->stream);
    assert_true(thread_cached(f) > 0);
    ok(weir_block_info(p, &d));
    assert_int_equal(d.state, WEIR_BLOCK_FREE);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, p, f->stream));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, p, f->second));
    fails(WEIR_ERR_DOUBLE_FREE, weir_resize(f->client, p, 100, f->stream));
    assert_ptr_equal(allocate(f->client, 3000, f->stream, WEIR_CLASS_KV), p);
    fails(WEIR_ERR_INTERIOR, weir_free(f->client, p + 256, f->stream));
    fails(WEIR_ERR_INTERIOR, weir_free(f->client, p + 1, f->stream));
    fails(WEIR_ERR_FOREIGN, weir_free(f->other, p, f->stream));
    fails(WEIR_ERR_FOREIGN, weir_free(f->client, f, f->stream));
    fails(WEIR_ERR_STALE, weir_free_block(f->client, (weir_block){p, UINT64_MAX >> 8}, f->stream));
    give(f->client, p, f->stream);
}

static void a_block_in_use_is_not_cached(void **state)
{
    fixture *f = *state;
    weir_request request = {.struct_size = sizeof request, .bytes = 3000, .stream = f->stream};
    weir_block block;
    weir_launch *launch;
    ok(weir_alloc_with(f->client, &request, &block));
    ok(weir_free_block(f->client, block, f->stream)); /* there is a thread cache now */
    ok(weir_alloc_with(f->client, &request, &block));
    weir_use use = {.block = block, .access = WEIR_ACCESS_WRITE};
    ok(weir_launch_begin(f->runtime, f->second, &use, 1, &launch));
    fails(WEIR_ERR_BUSY, weir_free_block(f->client, block, f->stream));
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->second));
    ok(weir_launch_end(launch));
    ok(weir_free_block(f->client, block, f->stream));
    assert_int_equal(thread_cached(f), 0);
    assert_int_equal(take_snapshot(f->runtime).device.pending, 3072);
    void *q = allocate(f->client, 3000, f->stream, WEIR_CLASS_KV);
    assert_ptr_not_equal(q, block.pointer);
    open_gate(&g);
    ok(weir_stream_synchronize(f->second));
    give(f->client, q, f->stream);
}

/* The ledger ------------------------------------------------------------------------------------------------------- */

static void peaks_of_one_thread_are_exact(void **state)
{
    fixture *f = *state;
    void *p[8];
    ok(weir_stats_reset(f->runtime, WEIR_RESET_PEAKS));
    for (int i = 0; i < 8; i++)
        p[i] = allocate(f->client, 4096, f->stream, WEIR_CLASS_KV);
    for (int i = 0; i < 8; i++)
        give(f->client, p[i], f->stream);
    ok(weir_stats_reset(f->runtime, WEIR_RESET_PEAKS));
    for (int i = 0; i < 3; i++)
        p[i] = allocate(f->client, 4096, f->stream, i == 2 ? WEIR_CLASS_KV : WEIR_CLASS_SCRATCH);
    for (int i = 0; i < 3; i++)
        give(f->client, p[i], f->stream);
    void *q = allocate(f->client, 4096, f->stream, WEIR_CLASS_KV),
         *r = allocate(f->client, 1000, f->second, WEIR_CLASS_KV);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.peak, 3 * 4096);
    assert_int_equal(s.clients[0].peak, 3 * 4096);
    assert_int_equal(s.clients[0].peak_class[WEIR_CLASS_SCRATCH], 2 * 4096);
    assert_int_equal(s.clients[0].peak_class[WEIR_CLASS_KV], 4096);
    assert_int_equal(s.clients[0].live, 4096 + 1024);
    assert_int_equal(s.device.thread_cached, 7 * 4096);
    give(f->client, q, f->stream);
    give(f->client, r, f->second);
}

enum { THREADS = 4, HELD = 40, STEPS = UNDER_TSAN ? 4000 : 40000 };

typedef struct worker {
    fixture *f;
    uint64_t random, live, wrong;
    weir_stream stream;
    _Atomic(void *) *shared; /* blocks that any of them may free */
    void *held[HELD];
    uint64_t bytes[HELD];
} worker;

static uint64_t any_size(uint64_t *random)
{
    uint64_t power = next_random(random) % 11;
    return 1 + next_random(random) % (256u << power);
}

static void *mix(void *user)
{
    worker *w = user;
    for (int step = 0; step < STEPS; step++) {
        size_t i = next_random(&w->random) % HELD;
        if (w->held[i]) {
            w->wrong += host_writes() && *(uint64_t *)w->held[i] != (uintptr_t)&w->held[i];
            w->wrong += weir_free(w->f->client, w->held[i], w->stream) != WEIR_OK;
            w->held[i] = NULL;
        } else if (next_random(&w->random) % 8 == 0) { /* one for another thread to free */
            void *p = NULL;
            w->wrong += weir_alloc(w->f->client, any_size(&w->random), w->stream, WEIR_CLASS_KV, &p) != WEIR_OK;
            p = atomic_exchange(w->shared, p);
            w->wrong += p && weir_free(w->f->client, p, w->stream) != WEIR_OK;
        } else {
            w->bytes[i] = any_size(&w->random);
            w->wrong +=
                weir_alloc(w->f->client, w->bytes[i], w->stream, (weir_class)(step % 3 + 1), &w->held[i]) != WEIR_OK;
            if (host_writes())
                *(uint64_t *)w->held[i] = (uintptr_t)&w->held[i];
        }
    }
    for (size_t i = 0; i < HELD; i++)
        w->live += w->held[i] ? (w->bytes[i] + UNIT - 1) / UNIT * UNIT : 0;
    return NULL;
}

static void the_ledger_is_exact_at_rest(void **state)
{
    fixture *f = *state;
    static worker w[THREADS];
    static _Atomic(void *) shared;
    pthread_t threads[THREADS];
    uint64_t live = 0;
    for (int i = 0; i < THREADS; i++) {
        w[i] = (worker){.f = f, .random = (uint64_t)i + 1, .stream = i % 2 ? f->stream : f->second, .shared = &shared};
        pthread_create(&threads[i], NULL, mix, &w[i]);
    }
    for (int i = 0; i < 20; i++) { /* while they are at it, too */
        snapshot s = take_snapshot(f->runtime);
        assert_true(s.device.live <= s.device.held && s.device.held <= BUDGET);
        assert_true(s.clients[0].live + s.clients[0].pending + s.clients[0].thread_cached <= BUDGET);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(w[i].wrong, 0);
        live += w[i].live;
    }
    void *p = atomic_exchange(&shared, NULL);
    if (p)
        give(f->client, p, f->stream);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, live);
    assert_int_equal(s.clients[0].allocations - s.clients[0].frees, s.clients[0].blocks);
    assert_true(s.device.hits > STEPS / 10);
    for (int i = 0; i < THREADS; i++)
        for (size_t k = 0; k < HELD; k++)
            if (w[i].held[k])
                give(f->client, w[i].held[k], w[i].stream);
    assert_int_equal(take_snapshot(f->runtime).device.live, 0);
}

/* Taking away ------------------------------------------------------------------------------------------------------ */

static void a_starved_request_gets_what_is_cached(void **state)
{
    fixture *f = *state;
    void *p[4];
    for (int round = 0; round < 2; round++) {
        weir_client *limited = open_client(f->runtime, "limited", 0, 1 * MIB);
        for (int i = 0; i < 4; i++)
            p[i] = allocate(limited, 256 * KIB, f->stream, WEIR_CLASS_KV);
        for (int i = 0; i < 4; i++)
            give(limited, p[i], f->stream);
        assert_true(take_snapshot(f->runtime).device.thread_cached >= 768 * KIB);
        void *all = allocate(limited, MIB, f->second, WEIR_CLASS_KV); /* its own maximum */
        give(limited, all, f->second);
        ok(weir_client_destroy(limited));
    }
    for (int i = 0; i < 4; i++)
        p[i] = allocate(f->client, 200 * KIB, f->stream, WEIR_CLASS_KV);
    for (int i = 0; i < 4; i++)
        give(f->client, p[i], f->stream);
    assert_true(thread_cached(f) > 700 * KIB);
    void *all = allocate(f->other, BUDGET, f->stream, WEIR_CLASS_KV); /* another client's */
    assert_true(take_snapshot(f->runtime).device.emptied > 700 * KIB);
    give(f->other, all, f->stream);
}

typedef struct grace {
    fixture *f;
    pthread_barrier_t barrier;
} grace;

static void *fill_and_wait(void *user)
{
    grace *t = user;
    void *p = allocate(t->f->client, 300 * KIB, t->f->stream, WEIR_CLASS_KV),
         *q = allocate(t->f->client, 1000, t->f->stream, WEIR_CLASS_KV);
    give(t->f->client, p, t->f->stream);
    give(t->f->client, q, t->f->stream);
    pthread_barrier_wait(&t->barrier);
    pthread_barrier_wait(&t->barrier);
    if (weir_alloc(t->f->client, 300 * KIB, t->f->stream, WEIR_CLASS_KV, &p) == WEIR_OK)
        give(t->f->client, p, t->f->stream);
    return NULL;
}

static void begin_grace(grace *t, fixture *f, pthread_t *thread)
{
    t->f = f;
    pthread_barrier_init(&t->barrier, NULL, 2);
    pthread_create(thread, NULL, fill_and_wait, t);
    pthread_barrier_wait(&t->barrier);
    assert_int_equal(take_snapshot(f->runtime).clients[0].thread_cached, 301 * KIB);
}

static void end_grace(grace *t, pthread_t thread)
{
    pthread_barrier_wait(&t->barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&t->barrier);
}

static void another_threads_blocks_are_given_up(void **state)
{
    fixture *f = *state;
    grace t;
    pthread_t thread;
    begin_grace(&t, f, &thread);
    void *all = allocate(f->other, BUDGET, f->second, WEIR_CLASS_KV);
    assert_int_equal(thread_cached(f), 0);
    give(f->other, all, f->second);
    end_grace(&t, thread);
    assert_int_equal(thread_cached(f), 0); /* the thread has ended */
    begin_grace(&t, f, &thread);
    uint64_t released = 0;
    ok(trim_keeping(f->runtime, 0, &released));
    assert_int_equal(take_snapshot(f->runtime).device.held, 0);
    end_grace(&t, thread);
    begin_grace(&t, f, &thread);
    weir_client_options options = {.struct_size = sizeof options, .name = "sure", .guaranteed = BUDGET};
    weir_client *sure;
    ok(weir_client_create(f->runtime, &options, &sure));
    ok(weir_client_destroy(sure));
    end_grace(&t, thread);
}

static void a_closing_client_takes_its_blocks_along(void **state)
{
    fixture *f = *state;
    grace t;
    pthread_t thread;
    begin_grace(&t, f, &thread);
    void *p = allocate(f->client, 5000, f->second, WEIR_CLASS_KV);
    give(f->client, p, f->second);
    fixture closing = *f;
    ok(weir_client_destroy(f->client));
    assert_int_equal(take_snapshot(f->runtime).device.thread_cached, 0);
    void *none;
    fails(WEIR_ERR_INVALID, weir_alloc(closing.client, 5000, closing.second, WEIR_CLASS_KV, &none));
    fails(WEIR_ERR_INVALID, weir_alloc(closing.client, 5000, closing.stream, WEIR_CLASS_KV, &none));
    end_grace(&t, thread); /* it finds its client closed */
    f->client = open_client(f->runtime, "one again", 0, 0);
}

static void a_stream_takes_its_blocks_along(void **state)
{
    fixture *f = *state;
    grace t;
    pthread_t thread;
    void *none;
    begin_grace(&t, f, &thread);
    ok(weir_stream_release(f->stream));
    assert_int_equal(thread_cached(f), 0);
    fails(WEIR_ERR_STREAM_MISUSE, weir_alloc(f->client, 300 * KIB, f->stream, WEIR_CLASS_KV, &none));
    end_grace(&t, thread);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    void *p = allocate(f->client, 300 * KIB, f->stream, WEIR_CLASS_KV); /* the same driver's stream, perhaps */
    give(f->client, p, f->stream);
}

static void a_captured_stream_caches_nothing(void **state)
{
    fixture *f = *state;
    void *p = allocate(f->client, 1000, f->stream, WEIR_CLASS_KV),
         *q = allocate(f->client, 1000, f->stream, WEIR_CLASS_KV);
    give(f->client, p, f->stream);
    assert_int_equal(thread_cached(f), 1024);
    ok(weir_capture_begin(f->stream, NULL));
    assert_int_equal(thread_cached(f), 0);
    fails(WEIR_ERR_STREAM_MISUSE, weir_free(f->client, q, f->stream));
    ok(weir_capture_end(f->stream, NULL));
    give(f->client, q, f->stream);
    assert_int_equal(thread_cached(f), 1024);
}

static void a_trace_sees_every_call(void **state)
{
    fixture *f = *state;
    weir_trace *trace;
    weir_event events[32];
    size_t count;
    void *p = allocate(f->client, 1000, f->stream, WEIR_CLASS_KV);
    give(f->client, p, f->stream);
    assert_int_equal(thread_cached(f), 1024);
    ok(weir_trace_create(f->runtime, NULL, &trace));
    assert_int_equal(thread_cached(f), 0);
    for (int i = 0; i < 5; i++)
        give(f->client, allocate(f->client, 1000, f->stream, WEIR_CLASS_KV), f->stream);
    assert_int_equal(thread_cached(f), 0);
    events[0].struct_size = sizeof events[0];
    ok(weir_trace_read(trace, events, 32, &count));
    int allocated = 0, freed = 0;
    for (size_t i = 0; i < count; i++) {
        allocated += events[i].action == WEIR_ACTION_ALLOCATE;
        freed += events[i].action == WEIR_ACTION_DEALLOCATE;
    }
    assert_int_equal(allocated, 5);
    assert_int_equal(freed, 5);
    weir_trace_destroy(trace);
    give(f->client, allocate(f->client, 1000, f->stream, WEIR_CLASS_KV), f->stream);
    assert_int_equal(thread_cached(f), 1024);
}

/* Large blocks ----------------------------------------------------------------------------------------------------- */

/* A request of another size finds the free memory in one piece. */
static void large_blocks_are_cached_for_their_size(void **state)
{
    enum { LARGE = 100 * KIB };
    fixture *f = *state;
    for (int i = 0; i < 3; i++) { /* which pays */
        void *p = allocate(f->client, LARGE, f->stream, WEIR_CLASS_KV);
        give(f->client, p, f->stream);
    }
    assert_int_equal(thread_cached(f), LARGE);
    void *small = allocate(f->client, 1000, f->stream, WEIR_CLASS_KV);
    assert_int_equal(thread_cached(f), LARGE); /* which the small ones do not stand in */
    void *other = allocate(f->client, 2 * LARGE, f->stream, WEIR_CLASS_KV);
    assert_int_equal(thread_cached(f), 0);
    give(f->client, small, f->stream);
    give(f->client, other, f->stream);
}

/* Of sizes that never come again none is cached, but for one free in so many, which finds out when that changes. */
static void large_blocks_are_cached_where_that_pays(void **state)
{
    enum { FREES = 200, FEW = 12, LARGE = 50 * KIB };
    fixture *f = *state;
    int kept = 0;
    for (int i = 0; i < FREES; i++) {
        void *p = allocate(f->client, (size_t)LARGE + (size_t)i * 256, f->stream, WEIR_CLASS_KV);
        give(f->client, p, f->stream);
        kept += thread_cached(f) >= LARGE;
    }
    assert_true(kept >= 3 && kept <= FEW);
    uint64_t hits = take_snapshot(f->runtime).device.hits;
    for (int i = 0; i < FREES; i++)
        give(f->client, allocate(f->client, LARGE, f->stream, WEIR_CLASS_KV), f->stream);
    assert_true(take_snapshot(f->runtime).device.hits > hits + FREES / 2);
}

/* What a run of a model allocates, in its order. */
static void run_model(weir_client *client, weir_stream stream)
{
    void *input = allocate(client, 600 * KIB, stream, WEIR_CLASS_ACTIVATIONS);
    void *values = allocate(client, 2400 * KIB, stream, WEIR_CLASS_ACTIVATIONS);
    for (int kernel = 0; kernel < 2; kernel++)
        give(client, allocate(client, 1400 * KIB, stream, WEIR_CLASS_ACTIVATIONS), stream);
    give(client, values, stream);
    give(client, input, stream);
    ok(weir_stream_synchronize(stream));
}

/* A thread runs two models by turns. Each gets what the thread caches of the other keep, so that both together hold
 * what one of them takes, and a little more. */
static void models_in_turn_share_what_is_cached(void **state)
{
    enum { ONE = 4400 * KIB, TURNS = 200 };
    (void)state;
    weir_runtime *runtime = make_runtime(512 * MIB);
    weir_client *clients[2] = {open_client(runtime, "one", 0, 0), open_client(runtime, "two", 0, 0)};
    weir_stream streams[2];
    for (int i = 0; i < 2; i++)
        ok(weir_stream_acquire(runtime, &streams[i]));
    for (int i = 0; i < TURNS; i++)
        run_model(clients[i % 2], streams[i % 2]);
    assert_in_range(take_snapshot(runtime).device.held, ONE, ONE * 5 / 4);
    for (int i = 0; i < 2; i++) {
        ok(weir_client_destroy(clients[i]));
        ok(weir_stream_release(streams[i]));
    }
    ok(weir_runtime_destroy(runtime));
}

/* Bounds ----------------------------------------------------------------------------------------------------------- */

static void a_thread_cache_is_bounded(void **state)
{
    fixture *f = *state;
    enum { MANY = 1000 };
    static void *p[MANY + 20];
    for (uint64_t bytes = 256; bytes <= 128 * KIB; bytes *= 4) {
        uint64_t count = MANY * 256 / bytes + 20;
        for (uint64_t i = 0; i < count; i++)
            p[i] = allocate(f->client, bytes, f->stream, WEIR_CLASS_KV);
        for (uint64_t i = 0; i < count; i++) {
            give(f->client, p[i], f->stream);
            assert_true(i % 50 != 0 || thread_cached(f) <= 2 * ROOM); /* the thread cache's and the depot's */
        }
        assert_true(thread_cached(f) >= bytes);
    }
    void *large = allocate(f->client, ROOM + 256, f->stream, WEIR_CLASS_KV);
    uint64_t before = thread_cached(f);
    give(f->client, large, f->stream); /* too large */
    assert_true(thread_cached(f) <= before);
}

static void *be_brief(void *user)
{
    fixture *f = user;
    void *p = NULL;
    for (int i = 0; i < 2; i++)
        if (weir_alloc(f->client, 20000, f->stream, WEIR_CLASS_KV, &p) == WEIR_OK)
            give(f->client, p, f->stream);
    return NULL;
}

static uint64_t resident(void)
{
    unsigned long long all, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(file, "%llu %llu", &all, &pages), 2);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void threads_leave_nothing(void **state)
{
    fixture *f = *state;
    const char *sanitized = getenv("WEIR_SANITIZED"); /* which are slow, and keep memory of their own */
    const bool plain = !UNDER_TSAN && !(sanitized && *sanitized);
    const int lives = plain ? 100000 : 2000, warm = 500;
    uint64_t before = 0;
    for (int i = 0; i < lives; i++) {
        pthread_t thread;
        if (i == warm)
            before = resident();
        assert_int_equal(pthread_create(&thread, NULL, be_brief, f), 0);
        pthread_join(thread, NULL);
    }
    assert_int_equal(thread_cached(f), 0);
    snapshot s = take_snapshot(f->runtime);
    assert_int_equal(s.device.hits, lives);
    assert_true(!plain || resident() < before + 8 * MIB);
}

#define test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_freed_block_serves_the_same_stream_alone),
        test(what_no_hit_can_promise_is_not_served),
        test(what_every_hit_promises_is_served),
        test(what_is_not_served_is_not_kept),
        test(among_many_streams_each_has_its_own),
        test(the_oldest_thread_cache_makes_way),
        test(when_thread_caches_go_the_others_are_found),
        test(mistakes_are_answered),
        test(a_block_in_use_is_not_cached),
        test(peaks_of_one_thread_are_exact),
        test(the_ledger_is_exact_at_rest),
        test(a_starved_request_gets_what_is_cached),
        test(another_threads_blocks_are_given_up),
        test(a_closing_client_takes_its_blocks_along),
        test(a_stream_takes_its_blocks_along),
        test(a_captured_stream_caches_nothing),
        test(a_trace_sees_every_call),
        test(large_blocks_are_cached_for_their_size),
        test(large_blocks_are_cached_where_that_pays),
        cmocka_unit_test(models_in_turn_share_what_is_cached),
        test(a_thread_cache_is_bounded),
        test(threads_leave_nothing),
    };
    return cmocka_run_group_tests_name("thread-cache", tests, NULL, NULL);
}
