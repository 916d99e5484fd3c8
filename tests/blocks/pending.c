/* Gives behind work that is not done: pending, counted under the cap, nobody's before their time, waited for. */
#include "blocks/blocks.h"
#include <weir/block_pool.h>

static void a_given_block_is_pending_until_the_stream_is_past_it(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_block_pool *pool = make_pool(f->a, 4);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    uint32_t index;
    take_run(a, 4);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(free_run(a, 1, 2, f->stream));
    uint32_t last = 3;
    ok(weir_block_pool_free(a, &last, NULL, 1, 0, f->stream));
    weir_block_pool_stats s = pool_stats(pool);
    assert_int_equal(s.pending, 3);
    assert_int_equal(s.held, 1);
    assert_int_equal(s.frees, 3);
    assert_int_equal(member_stats(a).pending, 3);
    assert_int_equal(state_of(pool, 2), WEIR_BLOCK_PENDING);
    weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
    ok(weir_block_pool_block_info(pool, 2, &d));
    assert_ptr_equal(d.member, a);
    /* Nobody gets it, the owner neither; nor is it given twice. */
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(b, 1, 0, WEIR_STREAM_HOST, &index));
    detail_names("3 pending");
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(a, 1, 0, WEIR_STREAM_HOST, &index));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(b, 2, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &index));
    fails(WEIR_ERR_DOUBLE_FREE, free_one(a, 1, f->stream));
    detail_names("pending");
    fails(WEIR_ERR_DOUBLE_FREE, free_one(b, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_BUSY, weir_block_pool_member_destroy(a));
    detail_names("anna holds 1 blocks of the pool kv and 3 are pending");
    fails(WEIR_ERR_BUSY, weir_block_pool_destroy(pool));
    detail_names("of the 4 blocks of the pool kv 1 are held and 3 pending, most of them anna's");
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_member_set_cap(a, 3));
    detail_names("a cap of 3 blocks of the pool kv: it holds 1, and 3 are pending");
    ok(weir_block_pool_member_set_cap(a, 4));
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(take_run(b, 3), 1);
    assert_int_equal(pool_stats(pool).pending, 0);
    give(b, 1, 3);
    give(a, 0, 1);
    ok(weir_block_pool_member_destroy(a));
    ok(weir_block_pool_destroy(pool));
}

static void finished_work_pends_nothing(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 4);
    weir_block_pool_member *a = join(pool, f->a, 0);
    take_run(a, 4);
    ok(weir_stream_synchronize(f->stream));
    ok(free_run(a, 0, 4, f->stream));
    assert_int_equal(pool_stats(pool).free, 4);
    ok(weir_block_pool_destroy(pool));
}

static void the_cap_counts_what_is_pending(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_block_pool *pool = make_pool(f->a, 100);
    weir_block_pool_member *a = join(pool, f->a, 4);
    uint32_t index, first = take_run(a, 4);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(free_run(a, first, 3, f->stream));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(a, 1, 0, WEIR_STREAM_HOST, &index));
    detail_names("its cap is 4, it holds 1 and 3 are pending");
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    uint32_t more = take_run(a, 3);
    assert_int_equal(member_stats(a).peak, 4);
    give(a, more, 3);
    give(a, first + 3, 1);
    ok(weir_block_pool_destroy(pool));
}

static void streams_pass_in_their_own_order(void **state)
{
    fixture *f = *state;
    gate g = GATE, h = GATE;
    weir_stream other;
    weir_block_pool *pool = make_pool(f->a, 6);
    weir_block_pool_member *a = join(pool, f->a, 0);
    ok(weir_stream_acquire(f->runtime, &other));
    take_run(a, 6);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_call(f->runtime, pass_gate, &h, other));
    ok(free_one(a, 0, f->stream));
    ok(free_one(a, 1, other));
    ok(free_one(a, 2, f->stream));
    ok(free_one(a, 3, other));
    open_gate(&h);
    ok(weir_stream_synchronize(other));
    assert_int_equal(pool_stats(pool).pending, 2);
    assert_int_equal(state_of(pool, 1), WEIR_BLOCK_FREE);
    assert_int_equal(state_of(pool, 3), WEIR_BLOCK_FREE);
    assert_int_equal(state_of(pool, 0), WEIR_BLOCK_PENDING);
    ok(free_one(a, 4, f->stream));
    open_gate(&g);
    ok(weir_stream_release(other));
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(pool_stats(pool).free, 5);
    give(a, 5, 1);
    ok(weir_block_pool_destroy(pool));
}

static void takes_wait_for_pending_blocks(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    pthread_t thread;
    weir_block_pool *pool = make_pool_with(f->a, 4, 0);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    take_run(a, 4);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(free_run(a, 0, 4, f->stream));
    pthread_create(&thread, NULL, open_gate_later, &g);
    assert_int_equal(take_run(b, 4), 0);
    pthread_join(thread, NULL);
    assert_true(g.open);
    give(b, 0, 4);
    ok(weir_block_pool_destroy(pool));
}

static void waiting_ends(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_block_pool *pool = make_pool_with(f->a, 4, 0);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    uint32_t index;
    ok(weir_option_set("wait", "50ms"));
    take_run(a, 4);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(free_run(a, 0, 3, f->stream));
    uint64_t start = now_ns();
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(b, 1, 0, WEIR_STREAM_HOST, &index));
    assert_true(now_ns() - start >= 45 * 1000000u);
    /* What cannot come true is not waited for. */
    ok(weir_option_set("wait", "60s"));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(b, 4, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &index));
    give(a, 3, 1);
    fails(WEIR_ERR_BUSY, weir_block_pool_destroy(pool));
    detail_names("0 are held and 3 pending");
    fails(WEIR_ERR_BUSY, weir_block_pool_member_destroy(a));
    detail_names("3 are pending");
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    ok(weir_block_pool_destroy(pool));
}

/* A block's next owner writes after the work that was queued before the give. */
static void the_next_owner_finds_the_work_done(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool_with(f->a, 8, 0);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    weir_block_pool_view v = view_of(pool);
    for (int round = 0; round < 200; round++) {
        uint32_t index;
        ok(weir_block_pool_alloc(a, 8, WEIR_BLOCK_POOL_RUN, f->stream, &index));
        ok(weir_fill(f->runtime, weir_block_pool_at(&v, index), 1, (size_t)8 * BLOCK, f->stream));
        ok(free_run(a, index, 8, f->stream));
        ok(weir_block_pool_alloc(b, 8, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &index));
        unsigned char *p = weir_block_pool_at(&v, index);
        for (int i = 0; i < 8 * BLOCK; i++)
            assert_int_equal(p[i], 1);
        memset(p, 2, (size_t)8 * BLOCK);
        give(b, index, 8);
    }
    ok(weir_block_pool_destroy(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_given_block_is_pending_until_the_stream_is_past_it),
        TEST(finished_work_pends_nothing),
        TEST(the_cap_counts_what_is_pending),
        TEST(streams_pass_in_their_own_order),
        TEST(takes_wait_for_pending_blocks),
        TEST(waiting_ends),
        TEST(the_next_owner_finds_the_work_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
