/* Two and three of what the other tests have one of: members, streams with several frees each, blocks that lie apart, and
 * what lies beyond the first 4096. */
#include "blocks/blocks.h"

enum { STREAMS = 3, MANY = 5000 };

static bool all_are(const weir_block_pool_view *v, uint32_t index, unsigned char value)
{
    const unsigned char *p = weir_block_pool_at(v, index);
    for (size_t i = 0; i < v->bytes; i++)
        if (p[i] != value)
            return false;
    return true;
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

/* Each stream has three frees with a gate before each; a fourth gate tells that the third free is passed. */
static void frees_of_three_streams_pass_one_by_one(void **state)
{
    static const int order[] = {1, 2, 1, 0, 0, 2, 1, 0, 2}; /* whose gate is opened next */
    fixture *f = *state;
    gate gates[STREAMS][4];
    weir_stream streams[STREAMS];
    int opened[STREAMS] = {0};
    weir_block_pool *pool = make_pool(f->a, 4 * STREAMS);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    assert_int_equal(take_run(b, 3), 0);
    take_run(a, 9);
    for (int s = 0; s < STREAMS; s++)
        ok(weir_stream_acquire(f->runtime, &streams[s]));
    for (int k = 0; k < 4; k++)
        for (int s = 0; s < STREAMS; s++) {
            gates[s][k] = (gate)GATE;
            ok(weir_call(f->runtime, pass_gate, &gates[s][k], streams[s]));
            if (k < 3)
                ok(free_one(a, (uint32_t)(3 + 3 * s + k), streams[s]));
        }
    for (size_t i = 0; i < 9; i++) {
        int s = order[i], k = opened[s]++;
        open_gate(&gates[s][k]);
        wait_for_gate(&gates[s][k + 1]);
        for (int t = 0; t < STREAMS; t++)
            for (int j = 0; j < 3; j++)
                assert_int_equal(state_of(pool, (uint32_t)(3 + 3 * t + j)),
                                 j < opened[t] ? WEIR_BLOCK_FREE : WEIR_BLOCK_PENDING);
        assert_int_equal(member_stats(a).pending, 8 - i);
        assert_int_equal(pool_stats(pool).pending, 8 - i);
    }
    for (int s = 0; s < STREAMS; s++) {
        open_gate(&gates[s][3]);
        ok(weir_stream_release(streams[s]));
    }
    give(b, 0, 3);
    ok(weir_block_pool_destroy(pool));
}

/* What was freed first may pass first: others wait for that, one after the other, and not for the last one, which does not
 * come while they wait. */
static void a_shortage_waits_for_one_stream_after_the_other(void **state)
{
    fixture *f = *state;
    gate gates[STREAMS] = {GATE, GATE, GATE};
    weir_stream streams[STREAMS];
    pthread_t threads[2];
    uint32_t list[2];
    weir_block_pool *pool = make_pool_with(f->a, 4, 0);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    ok(weir_option_set("wait", "600s"));
    take_run(a, 4);
    for (int s = 0; s < STREAMS; s++) {
        ok(weir_stream_acquire(f->runtime, &streams[s]));
        ok(weir_call(f->runtime, pass_gate, &gates[s], streams[s]));
        ok(free_one(a, (uint32_t)s, streams[s]));
    }
    for (int s = 0; s < 2; s++)
        pthread_create(&threads[s], NULL, open_gate_later, &gates[s]);
    ok(weir_block_pool_alloc(b, 2, 0, WEIR_STREAM_HOST, list));
    for (int s = 0; s < 2; s++)
        pthread_join(threads[s], NULL);
    assert_int_equal(list[0] + list[1], 1);
    assert_int_equal(state_of(pool, 2), WEIR_BLOCK_PENDING);
    open_gate(&gates[2]);
    for (int s = 0; s < STREAMS; s++)
        ok(weir_stream_release(streams[s]));
    ok(weir_block_pool_free(b, list, NULL, 2, 0, WEIR_STREAM_HOST));
    give(a, 3, 1);
    ok(weir_block_pool_destroy(pool));
}

static void a_cap_that_pending_blocks_fill_is_waited_for(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    pthread_t thread;
    weir_block_pool *pool = make_pool_with(f->a, 100, 0);
    weir_block_pool_member *a = join(pool, f->a, 4);
    uint32_t first = take_run(a, 4);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(free_run(a, first, 4, f->stream));
    pthread_create(&thread, NULL, open_gate_later, &g);
    uint32_t next = take_run(a, 3);
    pthread_join(thread, NULL);
    assert_int_equal(member_stats(a).peak, 4);
    assert_int_equal(member_stats(a).held, 3);
    give(a, next, 3);
    ok(weir_block_pool_destroy(pool));
}

static void a_list_that_is_freed_on_a_stream_is_pending_as_a_whole(void **state)
{
    fixture *f = *state;
    gate first = GATE, second = GATE;
    weir_block_pool *pool = make_pool(f->a, 8);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    const uint32_t apart[] = {6, 1, 3}, more[] = {0, 7};
    take_run(a, 8);
    ok(weir_call(f->runtime, pass_gate, &first, f->stream));
    ok(weir_block_pool_free(a, apart, NULL, 3, 0, f->stream));
    ok(weir_call(f->runtime, pass_gate, &second, f->stream));
    ok(weir_block_pool_free(a, more, NULL, 2, 0, f->stream));
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(state_of(pool, i), i == 2 || i == 4 || i == 5 ? WEIR_BLOCK_LIVE : WEIR_BLOCK_PENDING);
    open_gate(&first);
    wait_for_gate(&second);
    for (size_t k = 0; k < 3; k++)
        assert_int_equal(state_of(pool, apart[k]), WEIR_BLOCK_FREE);
    assert_int_equal(member_stats(a).pending, 2);
    assert_int_equal(member_stats(a).held, 3);
    open_gate(&second);
    ok(weir_stream_synchronize(f->stream));
    uint32_t list[5];
    ok(weir_block_pool_alloc(b, 5, 0, WEIR_STREAM_HOST, list));
    ok(weir_block_pool_free(b, list, NULL, 5, 0, WEIR_STREAM_HOST));
    give(a, 2, 1);
    give(a, 4, 2);
    ok(weir_block_pool_destroy(pool));
}

/* Members ---------------------------------------------------------------------------------------------------------- */

static void members_leave_from_the_middle_and_are_told_in_order(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 16);
    weir_client *clients[] = {f->a, f->b, f->a, f->b};
    weir_block_pool_member *members[4];
    weir_block_pool_stats s = WEIR_INIT(weir_block_pool_stats);
    weir_block_pool_member_stats lines[4] = {{.struct_size = sizeof lines[0]}};
    size_t count;
    for (uint32_t i = 0; i < 4; i++) {
        members[i] = join(pool, clients[i], 2 + i);
        assert_int_equal(member_stats(members[i]).cap, 2 + i);
        take_run(members[i], 1 + i); /* of 0, 1 and 2, 3 to 5, 6 to 9 */
    }
    give(members[1], 1, 2);
    ok(weir_block_pool_member_destroy(members[1]));
    give(members[2], 3, 3);
    ok(weir_block_pool_member_destroy(members[2]));
    ok(weir_block_pool_info(pool, &s, lines, 4, &count));
    assert_int_equal(count, 2);
    assert_ptr_equal(lines[0].member, members[0]);
    assert_ptr_equal(lines[1].member, members[3]);
    assert_int_equal(lines[0].held, 1);
    assert_int_equal(lines[1].held, 4);
    assert_int_equal(s.allocations, 1 + 2 + 3 + 4);
    assert_int_equal(s.frees, 2 + 3);
    members[1] = join(pool, f->b, 0);
    ok(weir_block_pool_info(pool, &s, lines, 4, &count));
    assert_int_equal(count, 3);
    assert_ptr_equal(lines[2].member, members[1]);
    give(members[3], 6, 4);
    ok(weir_block_pool_member_destroy(members[3])); /* the middle again, whose neighbours have changed */
    give(members[0], 0, 1);
    ok(weir_block_pool_member_destroy(members[0]));
    ok(weir_block_pool_info(pool, &s, lines, 4, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(lines[0].member, members[1]);
    assert_int_equal(s.allocations, 10);
    ok(weir_block_pool_destroy(pool));
}

static void a_refusal_names_who_has_the_most(void **state)
{
    fixture *f = *state;
    weir_client *third = open_client(f->runtime, "carla", 0, 0);
    weir_block_pool *pool = make_pool(f->a, 8);
    weir_block_pool_member *a = join(pool, f->a, 0), *c = join(pool, third, 0), *b = join(pool, f->b, 0);
    uint32_t index;
    take_run(a, 2);
    take_run(c, 5);
    take(b);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(b, 1, 0, WEIR_STREAM_HOST, &index));
    detail_names("carla has 5");
    fails(WEIR_ERR_BUSY, weir_block_pool_destroy(pool));
    detail_names("most of them carla's");
    give(a, 0, 2);
    give(c, 2, 5);
    give(b, 7, 1);
    ok(weir_block_pool_destroy(pool)); /* and nobody's client is held by it any more */
    ok(weir_client_destroy(third));
}

static void each_block_has_its_owner_and_its_generation(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool_with(f->a, 130, WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_NAMED);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    take_run(a, 130);
    give(a, 10, 100);
    assert_int_equal(take_run(b, 100), 10);
    for (uint32_t i = 0; i < 130; i++) {
        weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
        ok(weir_block_pool_block_info(pool, i, &d));
        assert_ptr_equal(d.member, i >= 10 && i < 110 ? b : a);
        assert_int_equal(d.generation, i >= 10 && i < 110 ? 2 : 1);
    }
    /* A run of which the last block is another's, over the words of the bitmap; and the other one's middle. */
    fails(WEIR_ERR_FOREIGN, free_run(b, 50, 61, WEIR_STREAM_HOST));
    detail_names("block 110");
    fails(WEIR_ERR_FOREIGN, free_run(a, 0, 130, WEIR_STREAM_HOST));
    detail_names("block 10");
    ok(free_run(b, 20, 80, WEIR_STREAM_HOST));
    fails(WEIR_ERR_DOUBLE_FREE, free_run(b, 10, 100, WEIR_STREAM_HOST));
    detail_names("block 20");
    fails(WEIR_ERR_DOUBLE_FREE, free_run(b, 99, 2, WEIR_STREAM_HOST));
    detail_names("block 99");
    for (uint32_t i = 0; i < 130; i++)
        assert_int_equal(state_of(pool, i), i >= 20 && i < 100 ? WEIR_BLOCK_FREE : WEIR_BLOCK_LIVE);
    give(b, 10, 10);
    give(b, 100, 10);
    give(a, 0, 10);
    give(a, 110, 20);
    ok(weir_block_pool_destroy(pool));
}

static void a_refused_list_has_freed_nothing(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 8);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    uint32_t list[] = {0, 2, 5, 7}, none[4] = {1, 1, 1, 1};
    take_run(a, 5);
    take_run(b, 3);
    fails(WEIR_ERR_FOREIGN, weir_block_pool_free(a, list, NULL, 4, 0, WEIR_STREAM_HOST));
    detail_names("block 5");
    list[2] = 8;
    fails(WEIR_ERR_INVALID, weir_block_pool_free(a, list, NULL, 4, 0, WEIR_STREAM_HOST));
    assert_int_equal(pool_stats(pool).held, 8);
    assert_int_equal(member_stats(a).held, 5);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(a, 4, 0, WEIR_STREAM_HOST, none));
    for (size_t k = 0; k < 4; k++)
        assert_int_equal(none[k], WEIR_BLOCK_POOL_NONE);
    list[2] = 4;
    ok(weir_block_pool_free(a, list, NULL, 3, 0, WEIR_STREAM_HOST)); /* 0, 2 and 4, which do not lie in a row */
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(state_of(pool, i), i == 0 || i == 2 || i == 4 ? WEIR_BLOCK_FREE : WEIR_BLOCK_LIVE);
    give(a, 1, 1);
    give(a, 3, 1);
    give(b, 5, 3);
    ok(weir_block_pool_destroy(pool));
}

/* Clearing --------------------------------------------------------------------------------------------------------- */

/* Of a run each block that was another's is cleared, wherever it lies between one's own. */
static void blocks_of_others_are_cleared_between_ones_own(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool_with(f->a, 12, WEIR_BLOCK_POOL_CLEAR | WEIR_BLOCK_POOL_NAMED);
    weir_block_pool_member *a = join(pool, f->a, 0), *b = join(pool, f->b, 0);
    weir_block_pool_view v = view_of(pool);
    take_run(a, 12);
    memset(weir_block_pool_at(&v, 0), 1, 12 * v.bytes);
    const uint32_t theirs[] = {1, 4, 5, 6, 9};
    ok(weir_block_pool_free(a, theirs, NULL, 5, 0, WEIR_STREAM_HOST));
    uint32_t got[5];
    ok(weir_block_pool_alloc(b, 5, 0, WEIR_STREAM_HOST, got));
    for (size_t k = 0; k < 5; k++)
        memset(weir_block_pool_at(&v, got[k]), 2, v.bytes);
    ok(weir_block_pool_free(b, got, NULL, 5, 0, WEIR_STREAM_HOST));
    give(a, 0, 1);
    give(a, 2, 2);
    give(a, 7, 2);
    give(a, 10, 2);
    assert_int_equal(take_run(a, 12), 0);
    for (uint32_t i = 0; i < 12; i++) {
        weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
        bool was_theirs = i == 1 || (i >= 4 && i <= 6) || i == 9;
        assert_true(all_are(&v, i, was_theirs ? 0 : 1));
        ok(weir_block_pool_block_info(pool, i, &d));
        assert_int_equal(d.state, WEIR_BLOCK_LIVE);
        assert_int_equal(d.generation, was_theirs ? 3 : 2);
    }
    give(a, 0, 12);
    ok(weir_block_pool_destroy(pool));
}

/* The slot of a member that has left serves the next one, which inherits nothing, not even far behind. */
static void a_successor_inherits_nothing_of_many_blocks(void **state)
{
    static const uint32_t looked_at[] = {0, 100, 4095, 4096, 4500, MANY - 2};
    fixture *f = *state;
    weir_block_pool *pool = make_pool_with(f->a, MANY, WEIR_BLOCK_POOL_CLEAR);
    weir_block_pool_member *stays = join(pool, f->a, 0), *leaves = join(pool, f->a, 0);
    weir_block_pool_view v = view_of(pool);
    take_run(leaves, MANY - 1);
    uint32_t own = take(stays);
    assert_int_equal(own, MANY - 1);
    memset(weir_block_pool_at(&v, 0), 7, MANY * v.bytes);
    give(leaves, 0, MANY - 1);
    give(stays, own, 1);
    ok(weir_block_pool_member_destroy(leaves));
    weir_block_pool_member *next = join(pool, f->b, 0);
    take_run(next, MANY - 1);
    for (size_t i = 0; i < sizeof looked_at / sizeof *looked_at; i++)
        assert_true(all_are(&v, looked_at[i], 0));
    assert_int_equal(take(stays), own);
    assert_true(all_are(&v, own, 7)); /* it was its own, and stays so when others leave */
    give(next, 0, MANY - 1);
    give(stays, own, 1);
    ok(weir_block_pool_destroy(pool));
}

/* The longest run is told also where as many blocks are free as are asked for, and of more runs than one. */
static void a_refused_run_tells_the_longest(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_pool(f->a, 8);
    weir_block_pool_member *m = join(pool, f->a, 0);
    uint32_t first;
    take_run(m, 8);
    give(m, 1, 1);
    give(m, 3, 2);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(m, 3, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &first));
    detail_names("3 of 8 are free and 0 pending, but the longest run is 2");
    assert_int_equal(first, WEIR_BLOCK_POOL_NONE);
    give(m, 6, 1);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(m, 3, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &first));
    detail_names("4 of 8 are free and 0 pending, but the longest run is 2");
    give(m, 0, 1);
    give(m, 2, 1);
    give(m, 5, 1);
    give(m, 7, 1);
    ok(weir_block_pool_destroy(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(frees_of_three_streams_pass_one_by_one),
        TEST(a_shortage_waits_for_one_stream_after_the_other),
        TEST(a_cap_that_pending_blocks_fill_is_waited_for),
        TEST(a_list_that_is_freed_on_a_stream_is_pending_as_a_whole),
        TEST(members_leave_from_the_middle_and_are_told_in_order),
        TEST(a_refusal_names_who_has_the_most),
        TEST(a_refused_run_tells_the_longest),
        TEST(each_block_has_its_owner_and_its_generation),
        TEST(a_refused_list_has_freed_nothing),
        TEST(blocks_of_others_are_cleared_between_ones_own),
        TEST(a_successor_inherits_nothing_of_many_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
