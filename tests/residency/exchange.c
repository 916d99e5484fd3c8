/* Two clients change places under a budget that does not hold both: what leaves, what comes, what stays, what is refused
 * and what is waited for. */
#include "residency/residency.h"

#include <weir/exchange.h>

#include <stdatomic.h>

enum { EACH = 40 << 20, ROUNDS = 6 }; /* of a budget of 64 MiB */

/* Blocks of a client, each of several chunks, and their contents. */
enum { BLOCKS = 5 };
typedef struct blocks {
    void *at[BLOCKS];
    uint64_t seed;
} blocks;

static blocks fill_client(fixture *f, weir_client *client, uint64_t seed)
{
    blocks b = {.seed = seed};
    for (int i = 0; i < BLOCKS; i++) {
        b.at[i] = allocate(client, EACH / BLOCKS, WEIR_STREAM_HOST, i % 2 ? WEIR_CLASS_KV : WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, b.at[i], EACH / BLOCKS, seed + (uint64_t)i);
    }
    return b;
}

static void holds(fixture *f, const blocks *b)
{
    for (int i = 0; i < BLOCKS; i++)
        block_holds(f->runtime, b->at[i], EACH / BLOCKS, b->seed + (uint64_t)i);
}

static void rewrite(fixture *f, blocks *b, uint64_t seed)
{
    b->seed = seed;
    for (int i = 0; i < BLOCKS; i++)
        write_block(f->runtime, b->at[i], EACH / BLOCKS, seed + (uint64_t)i);
}

static void free_blocks(weir_client *client, const blocks *b)
{
    for (int i = 0; i < BLOCKS; i++)
        ok(weir_free(client, b->at[i], WEIR_STREAM_HOST));
}

static weir_residency exchange_with(weir_client *leaves, weir_suspend_options how, weir_client *comes,
                                    weir_stream stream)
{
    weir_residency receipt = WEIR_INIT(weir_residency);
    how.struct_size = sizeof how;
    ok(weir_client_exchange(leaves, &how, comes, stream, &receipt));
    assert_int_equal(receipt.state, WEIR_SUSPENDED);
    assert_int_equal(residency(comes).state, WEIR_RESIDENT);
    assert_int_equal(residency(comes).away, 0);
    return receipt;
}

static weir_residency exchange(weir_client *leaves, weir_client *comes)
{
    return exchange_with(leaves, (weir_suspend_options){0}, comes, WEIR_STREAM_HOST);
}

/* The model is suspended, the other one is there: together they have more than the budget. */
static void fill_both(fixture *f, blocks *mine, blocks *its)
{
    *mine = fill_client(f, f->model, 10);
    (void)suspend(f->model);
    *its = fill_client(f, f->other, 20);
}

static void end_both(fixture *f, const blocks *mine, const blocks *its)
{
    if (residency(f->model).state == WEIR_SUSPENDED && residency(f->other).state == WEIR_RESIDENT)
        (void)exchange(f->other, f->model);
    free_blocks(f->model, mine);
    free_blocks(f->other, its);
    ok(weir_stream_synchronize(f->stream));
    trim(f->runtime);
}

static void they_change_places(void **state)
{
    fixture *f = *state;
    blocks mine, its;
    fill_both(f, &mine, &its);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_resume(f->model, WEIR_STREAM_HOST));
    for (uint64_t i = 0; i < ROUNDS; i++) {
        weir_client *leaves = i % 2 ? f->model : f->other, *comes = i % 2 ? f->other : f->model;
        weir_residency r =
            exchange_with(leaves, (weir_suspend_options){0}, comes, i % 3 ? f->stream : WEIR_STREAM_HOST);
        if (i % 3)
            ok(weir_stream_synchronize(f->stream));
        assert_int_equal(r.away, EACH);
        assert_int_equal(r.copied, EACH);
        assert_int_equal(r.stayed, 0);
        assert_true(r.released >= EACH);
        snapshot now = take_snapshot(f->runtime);
        check_sums(&now);
        assert_int_equal(now.device.live, EACH);
        assert_int_equal(now.device.away, EACH);
        assert_int_equal(now.device.promised, 0);
        assert_true(now.device.peak <= BUDGET && now.device.held <= BUDGET);
        blocks *there = i % 2 ? &its : &mine;
        holds(f, there);
        rewrite(f, there, 100 * i);
    }
    end_both(f, &mine, &its);
}

/* What was promised as unwritten gives its memory without a copy; what has changed is copied. */
static void a_good_copy_gives_at_once(void **state)
{
    fixture *f = *state;
    blocks mine, its;
    const uint64_t weights = 3 * (EACH / BLOCKS);
    weir_suspend_options unwritten = {.unwritten = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)};
    fill_both(f, &mine, &its);
    (void)exchange(f->other, f->model);
    (void)exchange(f->model, f->other);
    for (int i = 1; i < BLOCKS; i += 2)
        write_block(f->runtime, its.at[i], EACH / BLOCKS, its.seed + (uint64_t)i + 50);
    weir_residency r = exchange_with(f->other, unwritten, f->model, WEIR_STREAM_HOST);
    assert_int_equal(r.trusted, weights);
    assert_int_equal(r.copied, EACH - weights);
    holds(f, &mine);
    r = exchange_with(f->model, (weir_suspend_options){.unwritten = 0x1f}, f->other, WEIR_STREAM_HOST);
    assert_int_equal(r.copied, 0);
    for (int i = 0; i < BLOCKS; i++)
        block_holds(f->runtime, its.at[i], EACH / BLOCKS, its.seed + (uint64_t)i + (i % 2 ? 50 : 0));
    end_both(f, &mine, &its);
}

/* Of a client that leaves, some stays, and the receipt says why; classes are dropped. */
static void what_stays_is_told(void **state)
{
    fixture *f = *state;
    weir_request stable = {.struct_size = sizeof stable,
                           .bytes = 4 * MIB,
                           .stream = WEIR_STREAM_HOST,
                           .memory_class = WEIR_CLASS_WEIGHTS,
                           .flags = WEIR_ALLOC_STABLE};
    weir_block fixed;
    blocks mine = fill_client(f, f->model, 10);
    (void)suspend(f->model);
    ok(weir_alloc_with(f->other, &stable, &fixed));
    void *kv = allocate(f->other, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    void *scratch = allocate(f->other, 24 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    write_block(f->runtime, fixed.pointer, 4 * MIB, 1);
    write_block(f->runtime, kv, 8 * MIB, 2);
    weir_residency r = exchange_with(
        f->other,
        (weir_suspend_options){.stay = WEIR_CLASS_BIT(WEIR_CLASS_KV), .drop = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH)},
        f->model, WEIR_STREAM_HOST);
    assert_int_equal(r.away, 24 * MIB);
    assert_int_equal(r.dropped, 24 * MIB);
    assert_int_equal(r.copied, 0);
    assert_int_equal(r.stayed, 12 * MIB);
    assert_int_equal(r.stays, 2);
    assert_int_equal(r.stay[0].why + r.stay[1].why, WEIR_STAY_STABLE + WEIR_STAY_CLASS);
    block_holds(f->runtime, fixed.pointer, 4 * MIB, 1);
    block_holds(f->runtime, kv, 8 * MIB, 2);
    holds(f, &mine);
    (void)exchange(f->model, f->other);
    block_holds_zeros(f->runtime, scratch, 24 * MIB);
    ok(weir_free_block(f->other, fixed, WEIR_STREAM_HOST));
    ok(weir_free(f->other, kv, WEIR_STREAM_HOST));
    ok(weir_free(f->other, scratch, WEIR_STREAM_HOST));
    free_blocks(f->model, &mine);
    trim(f->runtime);
}

static void same_books(fixture *f, const snapshot *before)
{
    snapshot now = take_snapshot(f->runtime);
    check_sums(&now);
    assert_int_equal(now.device.live, before->device.live);
    assert_int_equal(now.device.away, before->device.away);
    assert_int_equal(now.device.pending, before->device.pending);
    assert_int_equal(now.device.promised, before->device.promised);
    assert_int_equal(now.device.guaranteed, before->device.guaranteed);
    assert_int_equal(now.device.held, before->device.held);
    assert_int_equal(now.device.allocations, before->device.allocations);
    assert_int_equal(now.device.frees, before->device.frees);
}

/* Refusals change nothing. */
static void refused(fixture *f, weir_status status, weir_client *leaves, weir_suspend_options how, weir_client *comes)
{
    weir_residency receipt = WEIR_INIT(weir_residency);
    snapshot before = take_snapshot(f->runtime);
    weir_residency_state was[2] = {residency(f->model).state, residency(f->other).state};
    how.struct_size = sizeof how;
    fails(status, weir_client_exchange(leaves, &how, comes, f->stream, &receipt));
    if (status == WEIR_ERR_OUT_OF_MEMORY) /* refusals are counted */
        same_books(f, &before);
    else
        unchanged(f->runtime, before);
    assert_int_equal(residency(f->model).state, was[0]);
    assert_int_equal(residency(f->other).state, was[1]);
}

static void what_is_refused(void **state)
{
    fixture *f = *state;
    blocks mine, its;
    weir_residency unset = {0};
    weir_suspend_options none = {0};
    weir_launch *launch;
    refused(f, WEIR_ERR_BUSY, f->model, none, f->other); /* was never suspended */
    detail_names("is not suspended");
    fill_both(f, &mine, &its);
    refused(f, WEIR_ERR_BUSY, f->model, none, f->other);
    refused(f, WEIR_ERR_INVALID, f->other, none, f->other);
    refused(f, WEIR_ERR_INVALID, f->other, (weir_suspend_options){.show = true}, f->model);
    refused(f, WEIR_ERR_INVALID, f->other, (weir_suspend_options){.drop = 1u << 30}, f->model);
    fails(WEIR_ERR_INVALID, weir_client_exchange(NULL, NULL, f->model, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_INVALID, weir_client_exchange(f->other, NULL, NULL, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_INVALID, weir_client_exchange(f->other, NULL, f->model, WEIR_STREAM_HOST, &unset));
    weir_use use = {.block = {.pointer = its.at[0]}, .access = WEIR_ACCESS_READ};
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    refused(f, WEIR_ERR_BUSY, f->other, none, f->model);
    ok(weir_launch_end(launch));
    (void)suspend(f->other);
    refused(f, WEIR_ERR_BUSY, f->other, none, f->model);
    ok(weir_client_resume(f->other, WEIR_STREAM_HOST));
    weir_runtime *away = make_runtime(BUDGET);
    weir_client *stranger = open_client(away, "stranger", 0, 0);
    refused(f, WEIR_ERR_INVALID, stranger, none, f->model);
    ok(weir_client_destroy(stranger));
    ok(weir_runtime_destroy(away));
    holds(f, &its);
    end_both(f, &mine, &its);
}

/* A capture on the stream behind which the one comes, or on a stream of the one that leaves. */
static void streams_that_are_captured(void **state)
{
    fixture *f = *state;
    blocks mine, its;
    fill_both(f, &mine, &its);
    ok(weir_capture_begin(f->stream, NULL));
    refused(f, WEIR_ERR_STREAM_MISUSE, f->other, (weir_suspend_options){0}, f->model);
    ok(weir_capture_end(f->stream, NULL));
    holds(f, &its);
    void *block = allocate(f->other, 6 * MIB, f->stream, WEIR_CLASS_WEIGHTS);
    ok(weir_capture_begin(f->stream, NULL));
    weir_residency receipt = WEIR_INIT(weir_residency);
    fails(WEIR_ERR_STREAM_MISUSE, weir_client_exchange(f->other, NULL, f->model, WEIR_STREAM_HOST, &receipt));
    ok(weir_capture_end(f->stream, NULL));
    holds(f, &its);
    ok(weir_free(f->other, block, f->stream));
    ok(weir_stream_synchronize(f->stream));
    end_both(f, &mine, &its);
}

/* The one that comes needs more than the other gives, and a third has the rest: both stay as they were. */
static void one_that_needs_more(void **state)
{
    fixture *f = *state;
    weir_client *third = open_client(f->runtime, "third", 0, 0);
    void *large = allocate(f->model, 48 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, large, 48 * MIB, 1);
    (void)suspend(f->model);
    void *small = allocate(f->other, 32 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    void *its = allocate(third, 20 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    write_block(f->runtime, small, 32 * MIB, 2);
    write_block(f->runtime, its, 20 * MIB, 3);
    refused(f, WEIR_ERR_OUT_OF_MEMORY, f->other, (weir_suspend_options){0}, f->model);
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_BUDGET);
    block_holds(f->runtime, small, 32 * MIB, 2);
    ok(weir_free(third, its, WEIR_STREAM_HOST));
    (void)exchange(f->other, f->model);
    block_holds(f->runtime, large, 48 * MIB, 1);
    (void)exchange(f->model, f->other); /* what it gives beyond that is everybody's */
    block_holds(f->runtime, small, 32 * MIB, 2);
    its = allocate(third, 30 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    ok(weir_free(third, its, WEIR_STREAM_HOST));
    ok(weir_free(f->other, small, WEIR_STREAM_HOST));
    ok(weir_free(f->model, large, WEIR_STREAM_HOST));
    trim(f->runtime);
    ok(weir_client_destroy(third));
}

/* Both are guaranteed more than half of the budget, one at a time. */
static void guarantees_change_places(void **state)
{
    fixture *f = *state;
    blocks mine, its;
    ok(weir_client_set_limits(f->model, 60 * MIB, 0));
    mine = fill_client(f, f->model, 10);
    (void)suspend(f->model);
    ok(weir_client_set_limits(f->other, 50 * MIB, 0));
    its = fill_client(f, f->other, 20);
    for (int i = 0; i < 4; i++) {
        weir_client *leaves = i % 2 ? f->model : f->other, *comes = i % 2 ? f->other : f->model;
        (void)exchange(leaves, comes);
        snapshot now = take_snapshot(f->runtime);
        check_sums(&now);
        assert_int_equal(now.device.guaranteed, (i % 2 ? 50 : 60) * MIB);
        assert_int_equal(now.device.promised, 0);
        holds(f, i % 2 ? &its : &mine);
    }
    /* kept, the guarantee is in the way */
    refused(f, WEIR_ERR_OUT_OF_MEMORY, f->other, (weir_suspend_options){.keep_guarantee = true}, f->model);
    holds(f, &its);
    assert_int_equal(take_snapshot(f->runtime).device.guaranteed, 50 * MIB);
    end_both(f, &mine, &its);
}

/* The model keeps its guarantee while it is away, and comes into it and into memory of the other one. */
static void a_kept_guarantee_is_come_into(void **state)
{
    const weir_suspend_options keeps = {.keep_guarantee = true};
    fixture *f = *state;
    blocks mine = fill_client(f, f->model, 10), its;
    ok(weir_client_set_limits(f->model, 20 * MIB, 0));
    (void)suspend_with(f->model, keeps);
    its = fill_client(f, f->other, 20);
    for (int i = 0; i < 4; i++) {
        (void)exchange_with(i % 2 ? f->model : f->other, keeps, i % 2 ? f->other : f->model, WEIR_STREAM_HOST);
        snapshot now = take_snapshot(f->runtime);
        check_sums(&now);
        assert_int_equal(now.device.guaranteed, 20 * MIB);
        assert_int_equal(now.device.promised, 0);
        holds(f, i % 2 ? &its : &mine);
    }
    end_both(f, &mine, &its);
}

/* Pages of elastic blocks of both. */
static void pages_change_places(void **state)
{
    enum { PAGES = 4 };
    fixture *f = *state;
    weir_client *clients[2] = {f->model, f->other};
    weir_elastic *e[2];
    char *base[2];
    void *weights[2];
    weir_elastic_options o = {.struct_size = sizeof o, .bytes = PAGES * 2 * MIB, .page = 2 * MIB};
    for (int i = 0; i < 2; i++) {
        weir_elastic_stats stats = WEIR_INIT(weir_elastic_stats);
        weights[i] = allocate(clients[i], 30 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
        ok(weir_elastic_create(clients[i], &o, &e[i]));
        ok(weir_elastic_commit(e[i], 0, o.bytes, WEIR_STREAM_HOST));
        ok(weir_elastic_info(e[i], &stats));
        base[i] = (char *)stats.base;
        write_block(f->runtime, weights[i], 30 * MIB, 5 + (uint64_t)i);
        write_block(f->runtime, base[i], o.bytes, 7 + (uint64_t)i);
        if (i == 0)
            (void)suspend(f->model);
    }
    for (int i = 0; i < 4; i++) {
        weir_residency r = exchange(clients[1 - i % 2], clients[i % 2]);
        assert_int_equal(r.away, 38 * MIB);
        block_holds(f->runtime, weights[i % 2], 30 * MIB, 5 + (uint64_t)(i % 2));
        block_holds(f->runtime, base[i % 2], o.bytes, 7 + (uint64_t)(i % 2));
    }
    for (int i = 0; i < 2; i++) {
        ok(weir_elastic_destroy(e[i], WEIR_STREAM_HOST));
        ok(weir_free(clients[i], weights[i], WEIR_STREAM_HOST));
    }
    trim(f->runtime);
}

/* The work of the one that leaves is waited for; other work is not, which the closed gate would show. */
static void whose_work_is_waited_for(void **state)
{
    fixture *f = *state;
    blocks mine, its;
    weir_stream busy;
    gate g = GATE, idle = GATE;
    weir_suspend_options soon = {.struct_size = sizeof soon, .wait = 5 * 1000 * 1000};
    weir_client *third = open_client(f->runtime, "third", 0, 0);
    ok(weir_stream_acquire(f->runtime, &busy));
    void *work = allocate(third, 2 * MIB, busy, WEIR_CLASS_SCRATCH);
    mine = fill_client(f, f->model, 10);
    (void)suspend(f->model);
    its = fill_client(f, f->other, 20);
    weir_use use = {.block = {.pointer = its.at[0]}, .access = WEIR_ACCESS_WRITE};
    weir_launch *launch;
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_launch_end(launch));
    ok(weir_call(f->runtime, pass_gate, &idle, busy)); /* of the third */
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_BUSY, weir_client_exchange(f->other, &soon, f->model, WEIR_STREAM_HOST, NULL));
    unchanged(f->runtime, before);
    open_gate(&g);
    (void)exchange(f->other, f->model);
    holds(f, &mine);
    open_gate(&idle);
    ok(weir_free(third, work, busy));
    ok(weir_stream_synchronize(busy));
    ok(weir_stream_release(busy));
    end_both(f, &mine, &its);
    ok(weir_client_destroy(third));
}

/* One that was shown comes back from where it is shown. On the host its copies are in the same budget. */
static void one_that_is_shown_comes(void **state)
{
    fixture *f = *state;
    if (host_writes())
        skip();
    blocks mine = fill_client(f, f->model, 10);
    weir_residency r = suspend_with(f->model, (weir_suspend_options){.show = true});
    assert_int_equal(r.shown, EACH);
    blocks its = fill_client(f, f->other, 20);
    rewrite(f, &mine, 70); /* where it is shown */
    (void)exchange(f->other, f->model);
    holds(f, &mine);
    (void)exchange(f->model, f->other);
    holds(f, &its);
    end_both(f, &mine, &its);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

typedef struct greedy {
    fixture *f;
    weir_client *client;
    atomic_bool stop;
    atomic_uint granted;
} greedy;

/* Takes all that it can get, again and again. */
static void *take_all(void *user)
{
    greedy *g = user;
    while (!atomic_load(&g->stop))
        for (uint64_t bytes = 32 * MIB; bytes >= 64 * KIB && !atomic_load(&g->stop); bytes /= 2) {
            void *block;
            if (take_at_once(g->client, bytes, WEIR_STREAM_HOST, &block) != WEIR_OK)
                continue;
            atomic_fetch_add(&g->granted, 1);
            ok(weir_free(g->client, block, WEIR_STREAM_HOST));
        }
    return NULL;
}

/* Nobody gets what passes from one to the other; as much as both have is free at no time. */
static void a_third_takes_what_it_can(void **state)
{
    fixture *f = *state;
    blocks mine, its;
    pthread_t thread;
    fill_both(f, &mine, &its);
    greedy g = {f, open_client(f->runtime, "greedy", 0, 0), false, 0};
    pthread_create(&thread, NULL, take_all, &g);
    for (int i = 0; i < 10 || (atomic_load(&g.granted) == 0 && i < 100000); i++) {
        (void)exchange(i % 2 ? f->model : f->other, i % 2 ? f->other : f->model);
        snapshot now = take_snapshot(f->runtime);
        assert_true(now.device.held <= BUDGET && now.device.live + now.device.promised <= BUDGET);
        if (i < 10)
            holds(f, i % 2 ? &its : &mine);
    }
    atomic_store(&g.stop, true);
    pthread_join(thread, NULL);
    end_both(f, &mine, &its);
    ok(weir_client_destroy(g.client));
}

typedef struct side {
    weir_client *leaves, *comes;
    atomic_uint *changes;
} side;

static void *change_places(void *user)
{
    side *s = user;
    for (int i = 0; i < 20; i++) {
        weir_status status = weir_client_exchange(s->leaves, NULL, s->comes, WEIR_STREAM_HOST, NULL);
        if (status == WEIR_OK)
            atomic_fetch_add(s->changes, 1);
        else if (status != WEIR_ERR_BUSY)
            ok(status);
    }
    return NULL;
}

/* Each wants the other to leave: one of them is there at any time. */
static void both_ways_at_once(void **state)
{
    fixture *f = *state;
    blocks mine, its;
    pthread_t threads[2];
    atomic_uint changes = 0;
    fill_both(f, &mine, &its);
    side sides[2] = {{f->model, f->other, &changes}, {f->other, f->model, &changes}};
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, change_places, &sides[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_true(changes > 0);
    assert_true((residency(f->model).state == WEIR_RESIDENT) != (residency(f->other).state == WEIR_RESIDENT));
    holds(f, residency(f->model).state == WEIR_RESIDENT ? &mine : &its);
    end_both(f, &mine, &its);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(they_change_places),       CASE(a_good_copy_gives_at_once),     CASE(what_stays_is_told),
        CASE(what_is_refused),          CASE(streams_that_are_captured),     CASE(one_that_needs_more),
        CASE(guarantees_change_places), CASE(a_kept_guarantee_is_come_into), CASE(pages_change_places),
        CASE(whose_work_is_waited_for), CASE(one_that_is_shown_comes),       CASE(a_third_takes_what_it_can),
        CASE(both_ways_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
