/* Of shared blocks two and three of everything: streams that read one block, frees of one stream, caches of one pool, and
 * prompts in a heap. */
#include "blocks/shared.h"

#include <stdatomic.h>

enum { READERS = 3, PROMPTS = 8 };

static void note_that(void *user)
{
    atomic_store((atomic_bool *)user, true);
}

/* Readers ---------------------------------------------------------------------------------------------------------- */

/* Three streams have left, each twice: a write on a fourth comes behind the last of each. With the gates opened one by one
 * it may not run before all are. */
static void a_write_comes_behind_every_stream_that_has_left(void **state)
{
    fixture *f = *state;
    gate gates[READERS][2];
    weir_stream readers[READERS];
    atomic_bool written = false;
    uint32_t index = take(f->m), other = take(f->m), same;
    for (int s = 0; s < READERS; s++)
        ok(weir_stream_acquire(f->runtime, &readers[s]));
    for (int k = 0; k < 2; k++)
        for (int s = 0; s < READERS; s++) {
            const uint32_t both[] = {other, index}; /* the block is in the second run of what is freed together */
            gates[s][k] = (gate)GATE;
            ok(weir_block_pool_share(f->m, both, 2));
            ok(weir_call(f->runtime, pass_gate, &gates[s][k], readers[s]));
            ok(weir_block_pool_free(f->m, both, NULL, 2, 0, readers[s]));
        }
    ok(weir_block_pool_make_writable(f->m, index, f->stream, &same));
    assert_int_equal(same, index);
    ok(weir_call(f->runtime, note_that, &written, f->stream));
    for (int k = 0; k < 2; k++)
        for (int s = 0; s < READERS; s++) {
            assert_false(atomic_load(&written));
            open_gate(&gates[s][k]);
            if (k == 0)
                wait_for_gate(&gates[s][1]);
            else if (s + 1 < READERS)
                ok(weir_stream_synchronize(readers[s]));
        }
    ok(weir_stream_synchronize(f->stream));
    assert_true(atomic_load(&written));
    for (int s = 0; s < READERS; s++)
        ok(weir_stream_release(readers[s]));
    ok(drop(f->m, index, WEIR_STREAM_HOST));
    ok(drop(f->m, other, WEIR_STREAM_HOST));
}

/* As many streams as are noted, and one more: a lookup ends before that one's block, and a write is not in place. */
static void of_so_many_streams_each_is_waited_for(void **state)
{
    enum { MOST = 32 };
    fixture *f = *state;
    gate g = GATE;
    weir_stream streams[MOST + 1];
    uint32_t tokens[(MOST + 1) * TOKENS], list[MOST + 1], got[MOST + 1], found, index = take(f->m), same;
    unsigned char bytes[BLOCK] = {0};
    weir_block_pool *pool = make_shared(f->a, MOST + 1, WEIR_ALLOC_NO_WAIT);
    weir_block_pool_member *m = join(pool, f->a, 0);
    weir_prefix_cache *cache = make_cache(m, 0);
    weir_prefix p = {.struct_size = sizeof p, .tokens = tokens};
    ok(weir_block_pool_alloc(m, MOST + 1, 0, WEIR_STREAM_HOST, list));
    for (uint32_t i = 0; i < (MOST + 1) * TOKENS; i++)
        tokens[i] = i;
    for (uint32_t s = 0; s <= MOST; s++) {
        ok(weir_stream_acquire(f->runtime, &streams[s]));
        ok(weir_call(f->runtime, pass_gate, &g, streams[s]));
        p.count += TOKENS;
        ok(weir_prefix_cache_insert(cache, &p, list, s + 1, streams[s], &found));
        assert_int_equal(found, 1);
        if (s == MOST) {
            ok(weir_block_pool_make_writable(f->m, index, f->stream, &same));
            assert_int_equal(same, index);
        }
        ok(weir_block_pool_share(f->m, &index, 1));
        ok(drop(f->m, index, streams[s]));
    }
    ok(weir_prefix_cache_acquire(cache, &p, f->other, got, MOST + 1, &found));
    assert_int_equal(found, MOST);
    assert_int_equal(cache_details(cache).found, MOST);
    assert_int_equal(cache_details(cache).wanted, MOST + 1);
    assert_memory_equal(got, list, MOST * sizeof *got);
    fails(WEIR_ERR_BUSY, weir_block_pool_upload(f->m, &index, 1, bytes, f->stream));
    ok(weir_block_pool_make_writable(f->m, index, f->stream, &same));
    assert_int_not_equal(same, index);
    open_gate(&g);
    for (uint32_t s = 0; s <= MOST; s++)
        ok(weir_stream_release(streams[s]));
    ok(weir_block_pool_free(m, got, NULL, MOST, 0, f->other));
    ok(weir_stream_synchronize(f->other));
    ok(weir_stream_synchronize(f->stream));
    ok(weir_block_pool_free(m, list, NULL, MOST + 1, 0, WEIR_STREAM_HOST));
    ok(drop(f->m, same, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
    ok(weir_block_pool_destroy(pool));
}

static void references_of_a_run_are_each_blocks_own(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    uint32_t first, list[] = {0, 2, 2};
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    ok(weir_block_pool_alloc(b, 4, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &first));
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(references(f->pool, first + i), 1);
    ok(weir_block_pool_share(b, list, 3));
    const uint32_t wanted[] = {2, 1, 3, 1};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(references(f->pool, i), wanted[i]);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_block_pool_free(b, &first, NULL, 4, WEIR_BLOCK_POOL_RUN, f->stream));
    const uint32_t left[] = {1, 0, 2, 0};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(references(f->pool, i), left[i]);
    assert_int_equal(member_stats(b).pending, 2);
    assert_int_equal(pool_stats(f->pool).pending, 2);
    ok(weir_block_pool_free(b, list, NULL, 3, 0, WEIR_STREAM_HOST));
    assert_int_equal(member_stats(b).pending, 4);
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(pool_stats(f->pool).free, 8);
    assert_int_equal(member_stats(b).pending, 0);
    ok(weir_block_pool_member_destroy(b));
}

/* Moves ------------------------------------------------------------------------------------------------------------ */

static void every_block_of_a_list_is_moved_and_checked(void **state)
{
    fixture *f = *state;
    static unsigned char bytes[6 * BLOCK], back[6 * BLOCK];
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    uint32_t first;
    ok(weir_block_pool_alloc(f->m, 7, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &first));
    uint32_t theirs = take(b), list[] = {5, 0, 1, 2, 6, 3}, mixed[] = {0, 1, theirs}, beyond[] = {0, 1, 8};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(1 + i / BLOCK);
    ok(weir_block_pool_upload(f->m, list, 6, bytes, WEIR_STREAM_HOST));
    for (size_t k = 0; k < 6; k++)
        assert_int_equal(color(f->m, list[k]), 1 + k);
    ok(weir_block_pool_download(f->m, list, 6, back, WEIR_STREAM_HOST));
    assert_memory_equal(back, bytes, sizeof bytes);
    fails(WEIR_ERR_FOREIGN, weir_block_pool_upload(f->m, mixed, 3, bytes, WEIR_STREAM_HOST));
    fails(WEIR_ERR_FOREIGN, weir_block_pool_copy(f->m, list, f->m, mixed, 3, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_download(f->m, beyond, 3, back, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_block_pool_share(f->m, beyond, 3));
    assert_int_equal(references(f->pool, 0), 1);
    assert_int_equal(color(f->m, 0), 2);
    ok(drop(b, theirs, WEIR_STREAM_HOST));
    ok(weir_block_pool_member_destroy(b));
    ok(weir_block_pool_free(f->m, &first, NULL, 7, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST));
}

/* Caches ----------------------------------------------------------------------------------------------------------- */

static void caches_end_in_any_order(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    weir_prefix_cache *caches[] = {make_cache(f->m, 0), make_cache(b, 0), make_cache(f->m, 0)};
    uint32_t blocks[2], found[2];
    leave_behind(caches[0], f->m, "abcdefgh", blocks);
    leave_behind(caches[1], b, "ABCDEFGH", blocks);
    leave_behind(caches[2], f->m, "12345678", blocks);
    fails(WEIR_ERR_BUSY, weir_block_pool_member_destroy(b)); /* its cache is not the newest */
    ok(weir_prefix_cache_destroy(caches[0]));
    assert_int_equal(pool_stats(f->pool).free, 4);
    fails(WEIR_ERR_BUSY, weir_block_pool_member_destroy(b));
    assert_int_equal(acquire(caches[2], "12345678", found), 2);
    ok(weir_block_pool_free(f->m, found, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(caches[1]));
    fails(WEIR_ERR_BUSY, weir_block_pool_destroy(f->pool));
    detail_names("prefix caches");
    ok(weir_block_pool_member_destroy(b));
    ok(weir_prefix_cache_destroy(caches[2]));
}

/* Each prompt has a block; they are left in one order, and go in it, however they lay in the heap before. */
static void prompts_go_in_the_order_in_which_they_were_left(void **state)
{
    static const char *const texts[PROMPTS] = {"aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff", "gggg", "hhhh"};
    fixture *f = *state;
    uint64_t seed = 1;
    for (int round = 0; round < 40; round++) {
        weir_prefix_cache *cache = make_cache(f->m, 0);
        uint32_t blocks[PROMPTS], n;
        int order[PROMPTS];
        for (int i = 0; i < PROMPTS; i++) {
            leave_behind(cache, f->m, texts[i], &blocks[i]);
            order[i] = i;
        }
        for (int i = PROMPTS - 1; i > 0; i--) {
            int k = (int)(next_random(&seed) % (unsigned)(i + 1)), other = order[k];
            order[k] = order[i];
            order[i] = other;
        }
        for (int i = 0; i < PROMPTS; i++)
            leave_behind(cache, f->m, texts[order[i]], &blocks[order[i]]);
        for (int i = 0; i < PROMPTS; i++) {
            ok(weir_prefix_cache_evict(cache, 1, &n));
            assert_int_equal(n, 1);
            for (int k = 0; k < PROMPTS; k++)
                assert_int_equal(details_of(f->pool, blocks[order[k]]).cached, k > i);
        }
        ok(weir_prefix_cache_destroy(cache));
    }
}

/* What begins alike has one parent with several children, which stays until the last of them has gone. */
static void a_block_stays_while_any_child_does(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t one[2], two[2], three[2], n;
    leave_behind(cache, f->m, "aaaabbbb", one);
    leave_behind(cache, f->m, "aaaacccc", two);
    leave_behind(cache, f->m, "aaaadddd", three);
    assert_int_equal(cache_details(cache).cached, 4);
    for (uint32_t left = 4; left-- > 1;) {
        ok(weir_prefix_cache_evict(cache, 1, &n));
        assert_int_equal(n, 1);
        assert_int_equal(cache_details(cache).cached, left);
        assert_true(details_of(f->pool, one[0]).cached);
    }
    ok(weir_prefix_cache_evict(cache, 3, &n));
    assert_int_equal(n, 1);
    ok(weir_prefix_cache_destroy(cache));
}

static void lookups_add_up_and_hold_every_block(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t blocks[3], found[4];
    leave_behind(cache, f->m, "aaaabbbbcccc", blocks);
    uint64_t before = cache_details(cache).found;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(acquire(cache, "aaaabbbbccccdddd", found), 3);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(references(f->pool, blocks[k]), 2 + i);
    }
    assert_int_equal(cache_details(cache).found - before, 6);
    assert_int_equal(cache_details(cache).idle, 0);
    for (int i = 0; i < 2; i++)
        ok(weir_block_pool_free(f->m, found, NULL, 3, 0, WEIR_STREAM_HOST));
    assert_int_equal(cache_details(cache).idle, 3);
    ok(weir_prefix_cache_destroy(cache));
}

/* All blocks of an insertion are behind their writes, and the second of a prompt may be another's. */
static void what_is_inserted_together_is_checked_and_ordered_as_a_whole(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t tokens[64], mine[3], theirs = take(b), inserted, found[3];
    ok(weir_block_pool_alloc(f->m, 3, 0, WEIR_STREAM_HOST, mine));
    uint32_t mixed[] = {mine[0], theirs, mine[2]};
    weir_prefix p = prompt(tokens, "aaaabbbbcccc");
    fails(WEIR_ERR_FOREIGN, weir_prefix_cache_insert(cache, &p, mixed, 3, WEIR_STREAM_HOST, &inserted));
    assert_int_equal(inserted, 0);
    assert_int_equal(insert(cache, "aaaa", mine), 1);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    paint(f, mine[2], 5, f->stream);
    assert_int_equal(insert_on(cache, "aaaabbbbcccc", mine, f->stream), 2); /* behind the first, which is there */
    assert_int_equal(acquire_on(cache, "aaaabbbbcccc", found, f->other), 3);
    for (size_t k = 0; k < 3; k++)
        assert_int_equal(found[k], mine[k]);
    pthread_t thread;
    pthread_create(&thread, NULL, open_gate_later, &g);
    paint(f, mine[2], 6, f->other);
    ok(weir_stream_synchronize(f->other));
    pthread_join(thread, NULL);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(color(f->m, mine[2]), 6);
    ok(weir_block_pool_free(f->m, mine, NULL, 3, 0, WEIR_STREAM_HOST));
    ok(weir_block_pool_free(f->m, mine, NULL, 3, 0, WEIR_STREAM_HOST));
    ok(drop(b, theirs, WEIR_STREAM_HOST));
    ok(weir_block_pool_member_destroy(b));
    ok(weir_prefix_cache_destroy(cache));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_write_comes_behind_every_stream_that_has_left),
        TEST(of_so_many_streams_each_is_waited_for),
        TEST(references_of_a_run_are_each_blocks_own),
        TEST(every_block_of_a_list_is_moved_and_checked),
        TEST(caches_end_in_any_order),
        TEST(prompts_go_in_the_order_in_which_they_were_left),
        TEST(a_block_stays_while_any_child_does),
        TEST(lookups_add_up_and_hold_every_block),
        TEST(what_is_inserted_together_is_checked_and_ordered_as_a_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
