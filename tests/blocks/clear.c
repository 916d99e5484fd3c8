/* Clearing on change of owner: nobody reads what another left, and one's own stays. */
#include "blocks/blocks.h"
#include <weir/block_pool.h>

static bool is_filled(const weir_block_pool_view *v, uint32_t index, unsigned char value)
{
    const unsigned char *p = weir_block_pool_at(v, index);
    for (size_t i = 0; i < v->bytes; i++)
        if (p[i] != value)
            return false;
    return true;
}

static void scribble(const weir_block_pool_view *v, uint32_t index, uint32_t count, int value)
{
    memset(weir_block_pool_at(v, index), value, count * v->bytes);
}

static void blocks_are_zero_for_a_new_owner(void **state)
{
    fixture *f = *state;
    /* The client's own past: bytes that the pool's allocation finds there. */
    void *past = allocate(f->a, 64 * BLOCK, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    memset(past, 9, 64 * BLOCK);
    ok(weir_free(f->a, past, WEIR_STREAM_HOST));
    weir_block_pool *pool = make_pool_with(f->a, 64, WEIR_BLOCK_POOL_CLEAR);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    weir_block_pool_view v = view_of(pool);
    uint32_t first = take_run(a, 64);
    for (uint32_t i = 0; i < 64; i++)
        assert_true(is_filled(&v, i, 0));
    scribble(&v, first, 64, 1);
    give(a, 0, 64);
    uint32_t own = take(a);
    assert_true(is_filled(&v, own, 1)); /* it was its own */
    uint32_t list[20];
    ok(weir_block_pool_alloc(b, 20, 0, WEIR_STREAM_HOST, list));
    for (int i = 0; i < 20; i++)
        assert_true(is_filled(&v, list[i], 0));
    assert_true(is_filled(&v, own, 1));
    assert_int_equal(pool_stats(pool).held, 21);
    ok(weir_block_pool_free(b, list, NULL, 20, 0, WEIR_STREAM_HOST));
    give(a, own, 1);
    /* A run of both: the part that was b's is cleared, the other is not. */
    take_run(a, 64);
    uint32_t zero = 0, one = 0;
    for (uint32_t i = 0; i < 64; i++) {
        zero += is_filled(&v, i, 0);
        one += is_filled(&v, i, 1);
    }
    assert_int_equal(zero, 20);
    assert_int_equal(one, 44);
    give(a, 0, 64);
    ok(weir_block_pool_destroy(pool));
}

static void the_zeros_come_in_the_takers_order(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_block_pool *pool = make_pool_with(f->a, 4, WEIR_BLOCK_POOL_CLEAR);
    weir_block_pool_member *a = join(pool, f->a, 0);
    weir_block_pool_view v = view_of(pool);
    uint32_t index;
    scribble(&v, 0, 4, 7);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_block_pool_alloc(a, 1, 0, f->stream, &index));
    assert_true(is_filled(&v, index, 7)); /* not before the stream gets there */
    ok(weir_fill(f->runtime, weir_block_pool_at(&v, index), 3, 16, f->stream));
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    unsigned char *p = weir_block_pool_at(&v, index);
    assert_int_equal(p[15], 3);
    assert_int_equal(p[16], 0);
    ok(free_one(a, index, f->stream));
    ok(weir_block_pool_destroy(pool));
}

/* A member's place in the books is used again by the next one, who is not it. */
static void a_successor_inherits_nothing(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool_with(f->a, 5000, WEIR_BLOCK_POOL_CLEAR);
    weir_block_pool_view v = view_of(pool);
    for (int i = 0; i < 3; i++) {
        weir_block_pool_member *m = join(pool, i % 2 ? f->a : f->b, 0);
        take_run(m, 5000);
        for (uint32_t k = 0; k < 5000; k++)
            assert_true(is_filled(&v, k, 0));
        scribble(&v, 0, 5000, 5);
        give(m, 0, 5000);
        ok(weir_block_pool_member_destroy(m));
    }
    ok(weir_block_pool_destroy(pool));
}

static void without_the_flag_nothing_is_touched(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 4);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    weir_block_pool_view v = view_of(pool);
    uint32_t index = take(a);
    scribble(&v, index, 1, 4);
    give(a, index, 1);
    assert_int_equal(take(b), index);
    assert_true(is_filled(&v, index, 4));
    give(b, index, 1);
    ok(weir_block_pool_destroy(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_are_zero_for_a_new_owner),
        TEST(the_zeros_come_in_the_takers_order),
        TEST(a_successor_inherits_nothing),
        TEST(without_the_flag_nothing_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
