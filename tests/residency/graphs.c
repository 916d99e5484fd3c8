/* Memory of capture pools steps aside: what is live there and what the pools keep leaves with the option `graphs`, and what
 * was captured is launched again after the resume. */
#include "uses/graph.h"

#include <weir/residency.h>

enum { LONG = 4 * BLOCK };

static weir_residency suspend_with(weir_client *client, weir_suspend_options options)
{
    weir_residency receipt = WEIR_INIT(weir_residency);
    options.struct_size = sizeof options;
    ok(weir_client_suspend(client, &options, &receipt));
    return receipt;
}

static weir_residency suspend(fixture *f)
{
    return suspend_with(f->client, (weir_suspend_options){.graphs = true});
}

static bool stays_for(const weir_residency *receipt, const void *pointer, weir_stay why)
{
    for (uint32_t i = 0; i < receipt->stays; i++)
        if (receipt->stay[i].pointer == pointer)
            return receipt->stay[i].why == why;
    return false;
}

/* A graph with a block that lives, and one that was freed within. It writes 5 to the second, and copies that to the first. */
typedef struct captured {
    program p;
    char *lives, *kept;
} captured;

static captured capture(fixture *f)
{
    captured c;
    begin(f, f->graph, f->a, &c.p);
    c.lives = allocate(f->client, LONG, f->a, WEIR_CLASS_ACTIVATIONS);
    c.kept = allocate(f->client, LONG, f->a, WEIR_CLASS_ACTIVATIONS);
    put(f, &c.p, f->a, (operation){c.kept, NULL, 5});
    put(f, &c.p, f->a, (operation){c.lives, c.kept, 0});
    ok(weir_free(f->client, c.kept, f->a));
    end(f, f->graph, f->a, &c.p);
    graph_has(f->graph, LONG, 1);
    return c;
}

static void replay(fixture *f, captured *c)
{
    ok(weir_fill(f->runtime, c->lives, 9, BLOCK, f->a));
    launch(f, &c->p, f->a);
    ok(weir_stream_synchronize(f->a));
    holds(f, c->lives, 5);
}

static void drop(fixture *f, captured *c)
{
    destroy(f, &c->p);
    ok(weir_free(f->client, c->lives, f->a));
    ok(weir_stream_synchronize(f->a));
}

/* Everything else of the budget. */
static void others_may_have_it(fixture *f)
{
    void *all = allocate(f->other, BUDGET, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_fill(f->runtime, all, 77, BUDGET, WEIR_STREAM_HOST));
    ok(weir_free(f->other, all, WEIR_STREAM_HOST));
}

static void without_the_option_it_stays(void **state)
{
    fixture *f = *state;
    captured c = capture(f);
    replay(f, &c);
    weir_residency receipt = suspend_with(f->client, (weir_suspend_options){0});
    assert_int_equal(receipt.away, 0);
    assert_true(stays_for(&receipt, c.lives, WEIR_STAY_GRAPH));
    graph_has(f->graph, LONG, 1);
    ok(weir_client_resume(f->client, WEIR_STREAM_HOST));
    replay(f, &c);
    drop(f, &c);
}

static void it_leaves_and_is_launched_again(void **state)
{
    fixture *f = *state;
    captured c = capture(f);
    replay(f, &c);
    snapshot before = take_snapshot(f->runtime);
    for (int i = 0; i < 5; i++) {
        weir_stream on = i % 2 ? f->a : WEIR_STREAM_HOST;
        weir_residency receipt = suspend(f);
        assert_int_equal(receipt.away, 2 * LONG);
        assert_int_equal(receipt.stays, 0);
        graph_has(f->graph, LONG, 1);
        others_may_have_it(f);
        ok(weir_client_resume(f->client, on));
        ok(weir_stream_synchronize(f->a));
        holds(f, c.lives, 5); /* also what nobody writes again */
        holds(f, c.kept, 5);
        replay(f, &c);
        snapshot now = take_snapshot(f->runtime);
        check_sums(&now);
        assert_int_equal(now.device.live, before.device.live);
        assert_int_equal(now.device.pending, before.device.pending);
        assert_int_equal(now.device.away, 0);
        graph_has(f->graph, LONG, 1);
    }
    program next;
    begin(f, f->graph, f->a, &next); /* what it keeps serves the next capture, where it was */
    assert_ptr_equal(allocate(f->client, LONG, f->a, WEIR_CLASS_ACTIVATIONS), c.kept);
    end(f, f->graph, f->a, &next);
    destroy(f, &next);
    ok(weir_free(f->client, c.kept, f->a));
    drop(f, &c);
}

static void a_block_that_is_freed_meanwhile(void **state)
{
    fixture *f = *state;
    captured c = capture(f);
    (void)suspend(f);
    ok(weir_free(f->client, c.lives, f->a));
    graph_has(f->graph, 2 * LONG, 0);
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, c.lives, f->a));
    fails(WEIR_ERR_DOUBLE_FREE, weir_free(f->client, c.kept, f->a));
    graph_has(f->graph, 2 * LONG, 0);
    others_may_have_it(f);
    ok(weir_client_resume(f->client, WEIR_STREAM_HOST));
    graph_has(f->graph, 2 * LONG, 0);
    assert_int_equal(pending(f), 2 * LONG);
    launch(f, &c.p, f->a); /* its addresses are the pool's still */
    ok(weir_stream_synchronize(f->a));
    holds(f, c.lives, 5);
    destroy(f, &c.p);
}

/* The pool goes while it is away. */
static void a_pool_that_is_destroyed_meanwhile(void **state)
{
    fixture *f = *state;
    captured c = capture(f);
    destroy(f, &c.p);
    assert_int_equal(suspend(f).away, 2 * LONG);
    ok(weir_capture_pool_destroy(f->graph, WEIR_STREAM_ALL));
    ok(weir_capture_pool_create(f->client, &f->graph)); /* for the end */
    snapshot now = take_snapshot(f->runtime);
    check_sums(&now);
    assert_int_equal(now.device.away, LONG);
    ok(weir_client_resume(f->client, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(f->runtime).device.live, LONG);
    ok(weir_free(f->client, c.lives, WEIR_STREAM_HOST));
}

static void a_capture_is_open(void **state)
{
    fixture *f = *state;
    captured c = capture(f);
    program p;
    weir_suspend_options options = {.struct_size = sizeof options, .graphs = true};
    begin(f, f->graph, f->b, &p); /* the blocks are of another stream */
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_STREAM_MISUSE, weir_client_suspend(f->client, &options, NULL));
    snapshot now = take_snapshot(f->runtime);
    assert_int_equal(now.device.live, before.device.live);
    assert_int_equal(now.device.pending, before.device.pending);
    graph_has(f->graph, LONG, 1);
    end(f, f->graph, f->b, &p);
    destroy(f, &p);
    assert_int_equal(suspend(f).away, 2 * LONG);
    ok(weir_client_resume(f->client, f->a));
    replay(f, &c);
    drop(f, &c);
}

/* A launch holds the block that lives: what the pool keeps is kept again. */
static void a_suspend_that_fails(void **state)
{
    fixture *f = *state;
    captured c = capture(f);
    weir_suspend_options options = {.struct_size = sizeof options, .graphs = true};
    weir_use use = {.block = {.pointer = c.lives}, .access = WEIR_ACCESS_WRITE};
    weir_launch *launched;
    ok(weir_launch_begin(f->runtime, f->a, &use, 1, &launched));
    fails(WEIR_ERR_BUSY, weir_client_suspend(f->client, &options, NULL));
    graph_has(f->graph, LONG, 1);
    assert_int_equal(pending(f), LONG);
    ok(weir_launch_end(launched));
    ok(weir_stream_synchronize(f->a));
    replay(f, &c);
    drop(f, &c);
}

static void *open_it_later(void *user)
{
    (void)usleep(50000);
    open_gate(user);
    return NULL;
}

/* What the pool keeps was freed on another stream, whose work is waited for. */
static void work_on_what_it_keeps(void **state)
{
    fixture *f = *state;
    captured c = capture(f);
    gate g = GATE;
    pthread_t opener;
    weir_suspend_options options = {.struct_size = sizeof options, .graphs = true, .wait = 1000000};
    ok(weir_call(f->runtime, pass_gate, &g, f->b));
    ok(weir_fill(f->runtime, c.lives, 6, BLOCK, f->b));
    ok(weir_free(f->client, c.lives, f->b));
    fails(WEIR_ERR_BUSY, weir_client_suspend(f->client, &options, NULL));
    graph_has(f->graph, 2 * LONG, 0);
    assert_int_equal(pending(f), 2 * LONG);
    pthread_create(&opener, NULL, open_it_later, &g);
    assert_int_equal(suspend(f).away, 2 * LONG);
    pthread_join(opener, NULL);
    ok(weir_client_resume(f->client, WEIR_STREAM_HOST));
    holds(f, c.lives, 6);
    graph_has(f->graph, 2 * LONG, 0);
    destroy(f, &c.p);
}

static void it_is_shown_and_launched(void **state)
{
    fixture *f = *state;
    captured c = capture(f);
    weir_residency receipt = suspend_with(f->client, (weir_suspend_options){.graphs = true, .show = true});
    assert_int_equal(receipt.shown, 2 * LONG);
    replay(f, &c); /* over the link */
    ok(weir_client_resume(f->client, WEIR_STREAM_HOST));
    holds(f, c.lives, 5);
    (void)weir_client_forget_copies(f->client); /* on the host they are of the same budget */
    replay(f, &c);
    drop(f, &c);
}

/* Threads --------------------------------------------------------------------------------------------------------- */

typedef struct user {
    fixture *f;
    weir_capture_pool *pool; /* NULL: one of its own each time */
    weir_stream stream;
    int served;
} user;

/* Takes blocks from a pool, and frees them, also while they are away. An allocation is refused meanwhile, a free never. */
static void *use_a_pool(void *of)
{
    enum { TURNS = 300 };
    user *u = of;
    for (int i = 0; i < TURNS; i++) {
        weir_capture_pool *pool = u->pool;
        weir_block block[2] = {{NULL, 0}, {NULL, 0}};
        if (!pool)
            ok(weir_capture_pool_create(u->f->client, &pool));
        weir_request request = {.struct_size = sizeof request,
                                .bytes = (size_t)(i % 3 + 1) * BLOCK,
                                .stream = u->stream,
                                .memory_class = WEIR_CLASS_ACTIVATIONS,
                                .pool = pool};
        for (int k = 0; k < 2; k++) {
            weir_status status = weir_alloc_with(u->f->client, &request, &block[k]);
            assert_true(status == WEIR_OK || status == WEIR_ERR_BUSY);
            u->served += status == WEIR_OK;
        }
        for (int k = 0; k < 2; k++)
            ok(weir_free_block(u->f->client, block[k], u->stream));
        if (!u->pool)
            ok(weir_capture_pool_destroy(pool, WEIR_STREAM_ALL));
    }
    return NULL;
}

static void threads_use_pools_meanwhile(void **state)
{
    enum { THREADS = 3, TIMES = 60 };
    fixture *f = *state;
    user users[THREADS] = {{f, f->graph, f->b, 0}, {f, f->graph, f->a, 0}, {f, NULL, f->b, 0}};
    pthread_t threads[THREADS];
    captured c = capture(f);
    replay(f, &c);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_a_pool, &users[i]), 0);
    for (int i = 0; i < TIMES; i++) {
        assert_true(suspend_with(f->client, (weir_suspend_options){.graphs = true, .show = i % 4 == 3}).away > 0);
        if (i % 8 == 7)
            (void)sched_yield();
        ok(weir_client_resume(f->client, i % 2 ? f->b : WEIR_STREAM_HOST));
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ok(weir_stream_synchronize(f->b));
    holds(f, c.lives, 5);
    assert_int_equal(info(f->graph).live_blocks, 1);
    snapshot now = take_snapshot(f->runtime);
    check_sums(&now);
    assert_int_equal(now.device.away, 0);
    (void)weir_client_forget_copies(f->client);
    replay(f, &c);
    drop(f, &c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(without_the_option_it_stays, "budget(mapped)"),
        CASE(it_leaves_and_is_launched_again, "budget(mapped)"),
        CASE(a_block_that_is_freed_meanwhile, "budget(mapped)"),
        CASE(a_pool_that_is_destroyed_meanwhile, "budget(mapped)"),
        CASE(a_capture_is_open, "budget(mapped)"),
        CASE(a_suspend_that_fails, "budget(mapped)"),
        CASE(work_on_what_it_keeps, "budget(mapped)"),
        CASE(it_is_shown_and_launched, "budget(mapped)"),
        CASE(threads_use_pools_meanwhile, "budget(mapped)"),
    };
    return cmocka_run_group_tests_name("residency-graphs", tests, NULL, NULL);
}
