/* Several references of one block, and copies before it is written. */
#include "blocks/shared.h"

#include "runtime/block_pool/block_pool.h"

static void a_block_is_freed_with_its_last_reference(void **state)
{
    fixture *f = *state;
    uint32_t index = take(f->m);
    assert_int_equal(references(f->pool, index), 1);
    ok(weir_block_pool_share(f->m, &index, 1));
    ok(weir_block_pool_share(f->m, &index, 1));
    assert_int_equal(references(f->pool, index), 3);
    assert_int_equal(member_stats(f->m).held, 1); /* one block, whoever uses it */
    ok(drop(f->m, index, WEIR_STREAM_HOST));
    ok(drop(f->m, index, WEIR_STREAM_HOST));
    assert_int_equal(pool_stats(f->pool).held, 1);
    assert_int_equal(references(f->pool, index), 1);
    ok(drop(f->m, index, WEIR_STREAM_HOST));
    assert_int_equal(pool_stats(f->pool).free, 8);
    fails(WEIR_ERR_DOUBLE_FREE, drop(f->m, index, WEIR_STREAM_HOST));
    assert_int_equal(take(f->m), index); /* a new life begins with one */
    assert_int_equal(references(f->pool, index), 1);
    ok(drop(f->m, index, WEIR_STREAM_HOST));
}

static void a_reference_is_dropped_for_each_time_that_a_block_is_named(void **state)
{
    fixture *f = *state;
    uint32_t one = take(f->m), two = take(f->m), pair[] = {one, one}, list[] = {one, two, one, two};
    ok(weir_block_pool_share(f->m, pair, 2));
    assert_int_equal(references(f->pool, one), 3);
    fails(WEIR_ERR_DOUBLE_FREE, weir_block_pool_free(f->m, list, NULL, 4, 0, WEIR_STREAM_HOST));
    detail_names("named in the same call");
    assert_int_equal(references(f->pool, one), 3); /* all or nothing */
    assert_int_equal(references(f->pool, two), 1);
    ok(weir_block_pool_free(f->m, list, NULL, 3, 0, WEIR_STREAM_HOST));
    assert_int_equal(references(f->pool, one), 1);
    assert_int_equal(details_of(f->pool, two).state, WEIR_BLOCK_FREE);
    ok(drop(f->m, one, f->stream));
}

static void a_share_of_a_bad_list_changes_nothing(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    uint32_t mine = take(f->m), theirs = take(b), list[] = {mine, theirs}, free_one[] = {mine, 7}, far = 8;
    fails(WEIR_ERR_FOREIGN, weir_block_pool_share(f->m, list, 2));
    detail_names("held by bert, not by anna");
    fails(WEIR_ERR_INVALID, weir_block_pool_share(f->m, free_one, 2));
    detail_names("block 7");
    fails(WEIR_ERR_INVALID, weir_block_pool_share(f->m, &far, 1));
    fails(WEIR_ERR_INVALID, weir_block_pool_share(f->m, &mine, 0));
    fails(WEIR_ERR_INVALID, weir_block_pool_share(f->m, NULL, 1));
    fails(WEIR_ERR_INVALID, weir_block_pool_share(NULL, &mine, 1));
    assert_int_equal(references(f->pool, mine), 1);
    fails(WEIR_ERR_FOREIGN, drop(f->m, theirs, WEIR_STREAM_HOST));
    ok(drop(f->m, mine, WEIR_STREAM_HOST));
    ok(drop(b, theirs, WEIR_STREAM_HOST));
}

static void a_pool_without_the_flag_shares_nothing(void **state)
{
    fixture *f = *state;
    weir_block_pool_options options = {.struct_size = sizeof options, .bytes = BLOCK, .count = 2};
    weir_block_pool *pool;
    uint32_t same;
    ok(weir_block_pool_create(f->a, &options, &pool));
    weir_block_pool_member *m = join(pool, f->a, 0);
    uint32_t index = take(m);
    fails(WEIR_ERR_UNSUPPORTED, weir_block_pool_share(m, &index, 1));
    detail_names("WEIR_BLOCK_POOL_SHARED");
    weir_prefix_cache_options cache = {.struct_size = sizeof cache, .tokens = 1};
    weir_prefix_cache *none;
    fails(WEIR_ERR_UNSUPPORTED, weir_prefix_cache_create(m, &cache, &none));
    assert_null(none);
    assert_int_equal(references(pool, index), 1);
    ok(weir_block_pool_make_writable(m, index, WEIR_STREAM_HOST, &same));
    assert_int_equal(same, index);
    ok(drop(m, index, WEIR_STREAM_HOST));
    ok(weir_block_pool_destroy(pool));
}

/* The last reference is dropped where nothing is under way; an earlier one was dropped behind work that is. */
static void a_block_waits_for_every_stream_that_left_it(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    uint32_t index = take(f->m), all[8];
    ok(weir_block_pool_share(f->m, &index, 1));
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(drop(f->m, index, f->stream));
    assert_int_equal(references(f->pool, index), 1);
    assert_int_equal(pool_stats(f->pool).pending, 0); /* somebody has it */
    ok(drop(f->m, index, WEIR_STREAM_HOST));
    assert_int_equal(details_of(f->pool, index).state, WEIR_BLOCK_PENDING);
    assert_int_equal(member_stats(f->m).pending, 1);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(f->m, 8, 0, WEIR_STREAM_HOST, all));
    fails(WEIR_ERR_DOUBLE_FREE, drop(f->m, index, WEIR_STREAM_HOST));
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(pool_stats(f->pool).free, 8);
}

static void references_dropped_behind_work_are_dropped_once(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    uint32_t index = take(f->m), twice[] = {index, index};
    ok(weir_block_pool_share(f->m, twice, 2));
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_block_pool_free(f->m, twice, NULL, 2, 0, f->stream));
    ok(drop(f->m, index, f->stream));
    assert_int_equal(pool_stats(f->pool).pending, 1);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(pool_stats(f->pool).free, 8);
    assert_int_equal(member_stats(f->m).frees, 1);
}

static void names_and_runs_hold_for_references(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_shared(f->a, 8, WEIR_BLOCK_POOL_NAMED | WEIR_BLOCK_POOL_CLEAR);
    weir_block_pool_member *m = join(pool, f->a, 0);
    uint32_t first, named[] = {1, 1};
    ok(weir_block_pool_alloc(m, 4, WEIR_BLOCK_POOL_RUN, f->stream, &first));
    uint32_t list[] = {first, first + 1}, stale[] = {1, 2};
    assert_int_equal(references(pool, first), 1);
    ok(weir_block_pool_share(m, list, 2));
    fails(WEIR_ERR_STALE, weir_block_pool_free(m, list, stale, 2, 0, f->stream));
    assert_int_equal(references(pool, first), 2);
    ok(weir_block_pool_free(m, list, named, 2, 0, f->stream));
    ok(weir_block_pool_free(m, &first, NULL, 4, WEIR_BLOCK_POOL_RUN, f->stream));
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(pool_stats(pool).free, 8);
    ok(weir_block_pool_destroy(pool));
}

/* Copy-on-write ---------------------------------------------------------------------------------------------------- */

static void a_block_that_is_mine_alone_stays(void **state)
{
    fixture *f = *state;
    uint32_t index = take(f->m), same;
    ok(weir_block_pool_make_writable(f->m, index, f->stream, &same));
    assert_int_equal(same, index);
    assert_int_equal(member_stats(f->m).allocations, 1);
    ok(drop(f->m, index, f->stream));
}

static void a_shared_block_is_copied_before_it_is_written(void **state)
{
    fixture *f = *state;
    uint32_t index = take(f->m), fresh;
    paint(f, index, 7, f->stream);
    ok(weir_block_pool_share(f->m, &index, 1));
    ok(weir_block_pool_make_writable(f->m, index, f->stream, &fresh));
    assert_int_not_equal(fresh, index);
    assert_int_equal(references(f->pool, index), 1);
    assert_int_equal(references(f->pool, fresh), 1);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(color(f->m, fresh), 7);
    paint(f, fresh, 8, WEIR_STREAM_HOST);
    assert_int_equal(color(f->m, index), 7); /* the other one's */
    uint32_t again;
    ok(weir_block_pool_make_writable(f->m, index, f->stream, &again));
    assert_int_equal(again, index); /* nobody else has it any more */
    ok(drop(f->m, index, f->stream));
    ok(drop(f->m, fresh, f->stream));
}

static void the_copy_comes_behind_the_writes_before_it(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    uint32_t index = take(f->m), fresh;
    paint(f, index, 1, WEIR_STREAM_HOST);
    ok(weir_block_pool_share(f->m, &index, 1));
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    paint(f, index, 2, f->stream);
    ok(weir_block_pool_make_writable(f->m, index, f->stream, &fresh));
    ok(drop(f->m, index, WEIR_STREAM_HOST)); /* the copy still reads it */
    assert_int_equal(details_of(f->pool, index).state, WEIR_BLOCK_PENDING);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(color(f->m, fresh), 2);
    ok(drop(f->m, fresh, WEIR_STREAM_HOST));
}

static void a_copy_at_the_cap_is_refused_and_changes_nothing(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 2);
    uint32_t one = take(b), two = take(b), out = 0;
    ok(weir_block_pool_share(b, &one, 1));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_make_writable(b, one, f->stream, &out));
    detail_names("its cap is 2");
    assert_int_equal(out, WEIR_BLOCK_POOL_NONE);
    assert_int_equal(references(f->pool, one), 2);
    assert_int_equal(member_stats(b).held, 2);
    ok(drop(b, two, WEIR_STREAM_HOST));
    ok(weir_block_pool_make_writable(b, one, f->stream, &out));
    assert_int_equal(references(f->pool, one), 1);
    ok(drop(b, one, f->stream));
    ok(drop(b, out, f->stream));
}

/* A reader on one stream has dropped its reference; the block is written in place on another. */
static void writes_in_place_come_behind_readers_that_have_left(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    uint32_t index = take(f->m), to = take(f->m), same;
    paint(f, index, 1, WEIR_STREAM_HOST);
    ok(weir_block_pool_share(f->m, &index, 1));
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_block_pool_copy(f->m, &to, f->m, &index, 1, f->stream));
    ok(drop(f->m, index, f->stream));
    ok(weir_block_pool_make_writable(f->m, index, f->other, &same));
    assert_int_equal(same, index);
    paint(f, index, 2, f->other);
    pthread_t thread;
    pthread_create(&thread, NULL, open_gate_later, &g);
    ok(weir_stream_synchronize(f->other));
    pthread_join(thread, NULL);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(color(f->m, to), 1);
    assert_int_equal(color(f->m, index), 2);
    ok(drop(f->m, index, WEIR_STREAM_HOST));
    ok(drop(f->m, to, WEIR_STREAM_HOST));
}

static void what_cannot_be_made_writable_is_named(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    uint32_t mine = take(f->m), theirs = take(b), out;
    fails(WEIR_ERR_FOREIGN, weir_block_pool_make_writable(f->m, theirs, f->stream, &out));
    assert_int_equal(out, WEIR_BLOCK_POOL_NONE);
    fails(WEIR_ERR_INVALID, weir_block_pool_make_writable(f->m, 7, f->stream, &out));
    fails(WEIR_ERR_INVALID, weir_block_pool_make_writable(f->m, 8, f->stream, &out));
    fails(WEIR_ERR_INVALID, weir_block_pool_make_writable(f->m, mine, f->stream, NULL));
    fails(WEIR_ERR_INVALID, weir_block_pool_make_writable(NULL, mine, f->stream, &out));
    fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_make_writable(f->m, mine, (weir_stream){77}, &out));
    ok(weir_capture_begin(f->stream, NULL));
    ok(weir_block_pool_make_writable(f->m, mine, f->stream, &out)); /* nothing has to be queued */
    ok(weir_block_pool_share(f->m, &mine, 1));
    fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_make_writable(f->m, mine, f->stream, &out));
    ok(weir_capture_end(f->stream, NULL));
    assert_int_equal(references(f->pool, mine), 2);
    assert_int_equal(member_stats(f->m).held, 1);
    ok(drop(f->m, mine, f->stream));
    ok(drop(f->m, mine, f->stream));
    ok(drop(b, theirs, f->stream));
}

static void references_have_a_most(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t index = take(f->m), other = take(f->m), list[] = {other, index}, found[1];
    uint32_t *count = &f->pool->shares[index].references;
    assert_int_equal(insert(cache, "abcd", &index), 1);
    *count = INT32_MAX;
    fails(WEIR_ERR_BUSY, weir_block_pool_share(f->m, list, 2));
    assert_int_equal(acquire(cache, "abcd", found), 0);
    assert_int_equal(*count, INT32_MAX);
    assert_int_equal(references(f->pool, other), 1);
    *count = INT32_MAX - 1;
    ok(weir_block_pool_share(f->m, list, 2));
    assert_int_equal(*count, INT32_MAX);
    assert_int_equal(references(f->pool, other), 2);
    *count = INT32_MAX - 1;
    assert_int_equal(acquire(cache, "abcd", found), 1);
    assert_int_equal(*count, INT32_MAX);
    *count = 2; /* the caller's and the cache's */
    ok(weir_prefix_cache_destroy(cache));
    ok(weir_block_pool_free(f->m, list, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(drop(f->m, other, WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_block_is_freed_with_its_last_reference),
        TEST(a_reference_is_dropped_for_each_time_that_a_block_is_named),
        TEST(a_share_of_a_bad_list_changes_nothing),
        TEST(a_pool_without_the_flag_shares_nothing),
        TEST(references_have_a_most),
        TEST(a_block_waits_for_every_stream_that_left_it),
        TEST(references_dropped_behind_work_are_dropped_once),
        TEST(names_and_runs_hold_for_references),
        TEST(a_block_that_is_mine_alone_stays),
        TEST(a_shared_block_is_copied_before_it_is_written),
        TEST(the_copy_comes_behind_the_writes_before_it),
        TEST(a_copy_at_the_cap_is_refused_and_changes_nothing),
        TEST(writes_in_place_come_behind_readers_that_have_left),
        TEST(what_cannot_be_made_writable_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
