/* Prefix caches: which blocks a prompt finds, who holds them, and whose cap they are under. */
#include "blocks/shared.h"
#include "blocks/edge.h"

static void a_prompt_finds_the_full_blocks_of_its_beginning(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t mine[3], found[4];
    ok(weir_block_pool_alloc(f->m, 3, 0, WEIR_STREAM_HOST, mine));
    assert_int_equal(insert(cache, "abcdefghij", mine), 2); /* the third is not full */
    assert_int_equal(references(f->pool, mine[0]), 2);
    assert_int_equal(references(f->pool, mine[2]), 1);
    assert_true(details_of(f->pool, mine[1]).cached && !details_of(f->pool, mine[2]).cached);
    assert_int_equal(acquire(cache, "abcdefghijkl", found), 2);
    assert_int_equal(found[0], mine[0]);
    assert_int_equal(found[1], mine[1]);
    assert_int_equal(references(f->pool, mine[1]), 3);
    assert_int_equal(member_stats(f->m).held, 3);
    ok(weir_block_pool_free(f->m, found, NULL, 2, 0, WEIR_STREAM_HOST));
    assert_int_equal(acquire(cache, "abcdefg", found), 1);
    ok(drop(f->m, found[0], WEIR_STREAM_HOST));
    assert_int_equal(acquire(cache, "abc", found), 0);
    assert_int_equal(acquire(cache, "xbcdefgh", found), 0);
    assert_int_equal(acquire(cache, "efgh", found), 0);     /* it is no beginning */
    assert_int_equal(acquire(cache, "abcdabcd", found), 1); /* nor is it the second block */
    ok(drop(f->m, found[0], WEIR_STREAM_HOST));
    weir_prefix_cache_details d = cache_details(cache);
    assert_int_equal(d.lookups, 6);
    assert_int_equal(d.wanted, 3 + 1 + 0 + 2 + 1 + 2);
    assert_int_equal(d.found, 2 + 1 + 0 + 0 + 0 + 1);
    ok(weir_block_pool_free(f->m, mine, NULL, 3, 0, WEIR_STREAM_HOST));
    assert_int_equal(pool_stats(f->pool).held, 2); /* the cache's */
    assert_int_equal(cache_details(cache).idle, 2);
    ok(weir_prefix_cache_destroy(cache));
    assert_int_equal(pool_stats(f->pool).held, 0);
}

static void a_salt_keeps_prompts_apart(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t tokens[8], one[2], two[2], found[2], n;
    weir_prefix p = prompt(tokens, "abcdefgh");
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, one));
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, two));
    p.salt = "llama";
    p.salt_bytes = 5;
    ok(weir_prefix_cache_insert(cache, &p, one, 2, WEIR_STREAM_HOST, &n));
    assert_int_equal(n, 2);
    p.salt_bytes = 4;
    ok(weir_prefix_cache_acquire(cache, &p, WEIR_STREAM_HOST, found, 2, &n));
    assert_int_equal(n, 0);
    p.salt = "qwen3";
    p.salt_bytes = 5;
    ok(weir_prefix_cache_insert(cache, &p, two, 2, WEIR_STREAM_HOST, &n));
    assert_int_equal(n, 2);
    ok(weir_prefix_cache_acquire(cache, &p, WEIR_STREAM_HOST, found, 2, &n));
    assert_int_equal(n, 2);
    assert_memory_equal(found, two, sizeof two);
    assert_int_equal(acquire(cache, "abcdefgh", one), 0); /* without any */
    ok(weir_block_pool_free(f->m, found, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
    const uint32_t all[] = {0, 1, 2, 3};
    ok(weir_block_pool_free(f->m, all, NULL, 4, 0, WEIR_STREAM_HOST));
}

static void a_lookup_stops_at_the_room_there_is(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t tokens[16], indices[3], found[3] = {99, 99, 99}, n;
    leave_behind(cache, f->m, "abcdefghijkl", indices);
    weir_prefix p = prompt(tokens, "abcdefghijkl");
    ok(weir_prefix_cache_acquire(cache, &p, WEIR_STREAM_HOST, found, 2, &n));
    assert_int_equal(n, 2);
    assert_int_equal(found[2], 99);
    assert_int_equal(references(f->pool, indices[2]), 1);
    ok(weir_block_pool_free(f->m, found, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_acquire(cache, &p, WEIR_STREAM_HOST, NULL, 0, &n));
    assert_int_equal(n, 0);
    ok(weir_prefix_cache_destroy(cache));
}

/* Insertions ------------------------------------------------------------------------------------------------------- */

static void inserting_into_a_full_cache_leaves_the_callers_blocks_theirs(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 2);
    uint32_t mine[4], found[4];
    ok(weir_block_pool_alloc(f->m, 4, 0, WEIR_STREAM_HOST, mine));
    assert_int_equal(insert(cache, "abcdefghijklmnop", mine), 2); /* there is room for two, and all are in use */
    weir_prefix_cache_details d = cache_details(cache);
    assert_int_equal(d.cached, 2);
    assert_int_equal(d.evicted, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(references(f->pool, mine[i]), i < 2 ? 2 : 1);
    ok(weir_block_pool_free(f->m, mine, NULL, 4, 0, WEIR_STREAM_HOST)); /* once each, and none is too much */
    assert_int_equal(pool_stats(f->pool).held, 2);
    fails(WEIR_ERR_DOUBLE_FREE, drop(f->m, mine[0], WEIR_STREAM_HOST));
    detail_names("a prefix cache's alone");
    assert_int_equal(acquire(cache, "abcdefghijklmnop", found), 2);
    ok(weir_block_pool_free(f->m, found, NULL, 2, 0, WEIR_STREAM_HOST));
    uint32_t next[2];
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, next));
    assert_int_equal(insert(cache, "ABCDEFGH", next), 2); /* the others have been left, and make room */
    assert_int_equal(cache_details(cache).evicted, 2);
    assert_int_equal(acquire(cache, "abcdefgh", found), 0);
    ok(weir_block_pool_free(f->m, next, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
}

/* The new block hangs below one that nobody uses, and there is room for one block. */
static void a_block_does_not_make_room_for_its_own_child(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 1);
    uint32_t one[1], two[2];
    leave_behind(cache, f->m, "abcd", one);
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, two));
    assert_int_equal(insert(cache, "abcdefgh", two), 0);
    assert_int_equal(cache_details(cache).cached, 1);
    assert_int_equal(acquire(cache, "abcdefgh", one), 1);
    ok(drop(f->m, one[0], WEIR_STREAM_HOST));
    ok(weir_block_pool_free(f->m, two, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
}

static void inserting_what_is_there_adds_nothing(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t one[2], two[3], found[3];
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, one));
    ok(weir_block_pool_alloc(f->m, 3, 0, WEIR_STREAM_HOST, two));
    assert_int_equal(insert(cache, "abcdefgh", one), 2);
    assert_int_equal(insert(cache, "abcdefgh", one), 0); /* the same sequence again */
    assert_int_equal(references(f->pool, one[0]), 2);
    assert_int_equal(insert(cache, "abcdefghijkl", two), 1); /* another one that has computed the same */
    assert_int_equal(references(f->pool, two[0]), 1);
    assert_int_equal(references(f->pool, two[1]), 1);
    assert_int_equal(references(f->pool, two[2]), 2);
    assert_int_equal(cache_details(cache).cached, 3);
    assert_int_equal(cache_details(cache).inserted, 3);
    ok(weir_block_pool_free(f->m, one, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(weir_block_pool_free(f->m, two, NULL, 3, 0, WEIR_STREAM_HOST));
    assert_int_equal(pool_stats(f->pool).held, 3);
    assert_int_equal(acquire(cache, "abcdefghijkl", found), 3);
    assert_int_equal(found[0], one[0]);
    assert_int_equal(found[2], two[2]);
    ok(weir_block_pool_free(f->m, found, NULL, 3, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
}

static void a_bad_insertion_changes_nothing(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t tokens[16], mine[2], theirs = take(b), n = 7;
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, mine));
    weir_prefix p = prompt(tokens, "abcdefghijkl");
    const uint32_t foreign[] = {mine[0], theirs}, loose[] = {mine[0], 6}, far[] = {mine[0], 8},
                   twice[] = {mine[0], mine[1], mine[0]};
    fails(WEIR_ERR_FOREIGN, weir_prefix_cache_insert(cache, &p, foreign, 2, WEIR_STREAM_HOST, &n));
    assert_int_equal(n, 0);
    fails(WEIR_ERR_INVALID, weir_prefix_cache_insert(cache, &p, loose, 2, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_INVALID, weir_prefix_cache_insert(cache, &p, far, 2, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_CONFLICT, weir_prefix_cache_insert(cache, &p, twice, 3, WEIR_STREAM_HOST, NULL));
    detail_names("named twice");
    fails(WEIR_ERR_INVALID, weir_prefix_cache_insert(cache, &p, NULL, 1, WEIR_STREAM_HOST, NULL));
    n = 7;
    fails(WEIR_ERR_INVALID, weir_prefix_cache_insert(NULL, &p, mine, 1, WEIR_STREAM_HOST, &n));
    assert_int_equal(n, 0);
    fails(WEIR_ERR_INVALID, weir_prefix_cache_insert(cache, NULL, mine, 1, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_prefix_cache_insert(cache, &p, mine, 1, (weir_stream){77}, NULL));
    assert_int_equal(cache_details(cache).inserted, 0);
    assert_int_equal(references(f->pool, mine[0]), 1);
    assert_false(details_of(f->pool, mine[0]).cached);
    assert_int_equal(insert(cache, "abcd", mine), 1);
    assert_int_equal(insert(cache, "abcdefgh", mine), 1); /* a mark of the refused calls would be in the way */
    ok(weir_prefix_cache_destroy(cache));
    ok(weir_block_pool_free(f->m, mine, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(drop(b, theirs, WEIR_STREAM_HOST));
}

static void a_cached_block_is_cached_for_one_text(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0), *other = make_cache(f->m, 0);
    uint32_t tokens[8], mine = take(f->m), fresh, same;
    unsigned char bytes[BLOCK] = {1};
    assert_int_equal(insert(cache, "abcd", &mine), 1);
    weir_prefix p = prompt(tokens, "ABCD");
    fails(WEIR_ERR_CONFLICT, weir_prefix_cache_insert(cache, &p, &mine, 1, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_CONFLICT, weir_prefix_cache_insert(other, &p, &mine, 1, WEIR_STREAM_HOST, NULL));
    fails(WEIR_ERR_BUSY, weir_block_pool_upload(f->m, &mine, 1, bytes, WEIR_STREAM_HOST)); /* nor is it written to */
    ok(weir_block_pool_make_writable(f->m, mine, WEIR_STREAM_HOST, &fresh));
    assert_int_not_equal(fresh, mine);
    assert_int_equal(cache_details(cache).idle, 1);
    ok(weir_block_pool_make_writable(f->m, fresh, WEIR_STREAM_HOST, &same));
    assert_int_equal(same, fresh);
    assert_int_equal(insert(other, "ABCD", &fresh), 1);
    ok(drop(f->m, fresh, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
    ok(weir_prefix_cache_destroy(other));
}

/* Order ------------------------------------------------------------------------------------------------------------ */

static void what_is_found_is_read_behind_its_writes(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t mine = take(f->m), to = take(f->m), found;
    paint(f, mine, 1, WEIR_STREAM_HOST);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    paint(f, mine, 2, f->stream);
    assert_int_equal(insert_on(cache, "abcd", &mine, f->stream), 1);
    assert_int_equal(acquire_on(cache, "abcd", &found, f->other), 1);
    ok(weir_block_pool_copy(f->m, &to, f->m, &found, 1, f->other));
    ok(drop(f->m, found, f->other));
    pthread_t thread;
    pthread_create(&thread, NULL, open_gate_later, &g);
    ok(weir_stream_synchronize(f->other));
    pthread_join(thread, NULL);
    assert_int_equal(color(f->m, to), 2);
    ok(drop(f->m, mine, f->stream));
    ok(drop(f->m, to, f->other));
    ok(weir_prefix_cache_destroy(cache));
}

static void without_a_stream_a_lookup_waits_for_the_writes(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    pthread_t thread;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t mine = take(f->m), found;
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    paint(f, mine, 2, f->stream);
    assert_int_equal(insert_on(cache, "abcd", &mine, f->stream), 1);
    pthread_create(&thread, NULL, open_gate_later, &g);
    assert_int_equal(acquire(cache, "abcd", &found), 1);
    assert_int_equal(color(f->m, found), 2);
    pthread_join(thread, NULL);
    ok(drop(f->m, mine, f->stream));
    ok(drop(f->m, found, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
}

static void a_bad_lookup_takes_nothing(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t tokens[8], indices[2], n = 7;
    leave_behind(cache, f->m, "abcdefgh", indices);
    weir_prefix p = prompt(tokens, "abcdefgh"), q = p;
    fails(WEIR_ERR_INVALID, weir_prefix_cache_acquire(NULL, &p, f->stream, indices, 2, &n));
    fails(WEIR_ERR_INVALID, weir_prefix_cache_acquire(cache, NULL, f->stream, indices, 2, &n));
    fails(WEIR_ERR_INVALID, weir_prefix_cache_acquire(cache, &p, f->stream, NULL, 2, &n));
    fails(WEIR_ERR_INVALID, weir_prefix_cache_acquire(cache, &p, f->stream, indices, 2, NULL));
    q.tokens = NULL;
    fails(WEIR_ERR_INVALID, weir_prefix_cache_acquire(cache, &q, f->stream, indices, 2, &n));
    q = p;
    q.salt_bytes = 1;
    fails(WEIR_ERR_INVALID, weir_prefix_cache_acquire(cache, &q, f->stream, indices, 2, &n));
    fails(WEIR_ERR_STREAM_MISUSE, weir_prefix_cache_acquire(cache, &p, (weir_stream){77}, indices, 2, &n));
    ok(weir_capture_begin(f->stream, NULL));
    fails(WEIR_ERR_STREAM_MISUSE, weir_prefix_cache_acquire(cache, &p, f->stream, indices, 2, &n));
    ok(weir_capture_end(f->stream, NULL));
    assert_int_equal(n, 0);
    assert_int_equal(cache_details(cache).idle, 2);
    assert_int_equal(cache_details(cache).lookups, 1); /* the one that found nothing yet */
    ok(weir_prefix_cache_destroy(cache));
}

static void nothing_behind_a_prompt_is_read(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t *tokens = edge_make(), *indices = edge_make(), n;
    char *salt = edge_make();
    weir_prefix p = prompt(tokens - 8, "abcdefgh");
    memset(salt - 3, 's', 3);
    p.salt = salt - 3;
    p.salt_bytes = 3;
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, indices - 2));
    ok(weir_prefix_cache_insert(cache, &p, indices - 2, 2, WEIR_STREAM_HOST, &n));
    assert_int_equal(n, 2);
    ok(weir_block_pool_free(f->m, indices - 2, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_acquire(cache, &p, WEIR_STREAM_HOST, indices - 2, 2, &n));
    assert_int_equal(n, 2);
    ok(weir_block_pool_free(f->m, indices - 2, NULL, 2, 0, WEIR_STREAM_HOST));
    edge_end(tokens);
    edge_end(indices);
    edge_end(salt);
    ok(weir_prefix_cache_destroy(cache));
}

static void bad_options_are_named(void **state)
{
    fixture *f = *state;
    weir_prefix_cache_options good = {.struct_size = sizeof good, .tokens = 4}, o = good;
    weir_prefix_cache *cache = (weir_prefix_cache *)f;
    fails(WEIR_ERR_INVALID, weir_prefix_cache_create(NULL, &o, &cache));
    fails(WEIR_ERR_INVALID, weir_prefix_cache_create(f->m, NULL, &cache));
    fails(WEIR_ERR_INVALID, weir_prefix_cache_create(f->m, &o, NULL));
    o.tokens = 0;
    fails(WEIR_ERR_INVALID, weir_prefix_cache_create(f->m, &o, &cache));
    detail_names("0 tokens");
    assert_null(cache);
    o = good;
    o.most = 1000;
    ok(weir_prefix_cache_create(f->m, &o, &cache));
    assert_int_equal(cache_details(cache).most, 8); /* the pool has no more */
    weir_prefix_cache_details d = {.struct_size = sizeof d};
    fails(WEIR_ERR_INVALID, weir_prefix_cache_info(cache, NULL));
    fails(WEIR_ERR_INVALID, weir_prefix_cache_info(NULL, &d));
    d.struct_size = sizeof(size_t);
    fails(WEIR_ERR_INVALID, weir_prefix_cache_info(cache, &d));
    fails(WEIR_ERR_INVALID, weir_prefix_cache_evict(NULL, 1, NULL));
    fails(WEIR_ERR_INVALID, weir_prefix_cache_destroy(NULL));
    ok(weir_prefix_cache_destroy(cache));
}

static void a_pool_and_a_member_stay_while_they_have_caches(void **state)
{
    fixture *f = *state;
    weir_block_pool *pool = make_shared(f->a, 4, 0);
    weir_block_pool_member *m = join(pool, f->b, 0);
    weir_prefix_cache *empty = make_cache(m, 0), *cache = make_cache(m, 0);
    uint32_t indices[2], found[2];
    leave_behind(cache, m, "abcdefgh", indices);
    assert_int_equal(acquire(cache, "abcd", found), 1);
    fails(WEIR_ERR_BUSY, weir_block_pool_destroy(pool));
    detail_names("prefix caches");
    fails(WEIR_ERR_BUSY, weir_block_pool_member_destroy(m));
    detail_names("prefix caches");
    ok(weir_prefix_cache_destroy(cache));
    assert_int_equal(references(pool, found[0]), 1); /* a sequence's, as before */
    assert_int_equal(pool_stats(pool).held, 1);
    ok(drop(m, found[0], WEIR_STREAM_HOST));
    fails(WEIR_ERR_BUSY, weir_block_pool_member_destroy(m));
    ok(weir_prefix_cache_destroy(empty));
    ok(weir_block_pool_member_destroy(m));
    ok(weir_block_pool_destroy(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_prompt_finds_the_full_blocks_of_its_beginning),
        TEST(a_salt_keeps_prompts_apart),
        TEST(a_lookup_stops_at_the_room_there_is),
        TEST(inserting_into_a_full_cache_leaves_the_callers_blocks_theirs),
        TEST(a_block_does_not_make_room_for_its_own_child),
        TEST(inserting_what_is_there_adds_nothing),
        TEST(a_bad_insertion_changes_nothing),
        TEST(a_cached_block_is_cached_for_one_text),
        TEST(what_is_found_is_read_behind_its_writes),
        TEST(without_a_stream_a_lookup_waits_for_the_writes),
        TEST(a_bad_lookup_takes_nothing),
        TEST(nothing_behind_a_prompt_is_read),
        TEST(bad_options_are_named),
        TEST(a_pool_and_a_member_stay_while_they_have_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
