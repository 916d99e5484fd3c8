/* Prompts whose hashes are equal: the tokens and the salt decide, and nothing else. */
#include "blocks/shared.h"

uint64_t __wrap_wi_prefix_hash(uint64_t before, const uint32_t *tokens, uint32_t count);
uint64_t __wrap_wi_prefix_hash(uint64_t before, const uint32_t *tokens, uint32_t count)
{
    (void)before;
    (void)tokens;
    (void)count;
    return 42;
}

static void equal_hashes_share_nothing(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t one[2], two[2], found[2];
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, one));
    ok(weir_block_pool_alloc(f->m, 2, 0, WEIR_STREAM_HOST, two));
    assert_int_equal(insert(cache, "abcdefgh", one), 2);
    assert_int_equal(acquire(cache, "ABCDEFGH", found), 0);
    assert_int_equal(acquire(cache, "abcx", found), 0);
    assert_int_equal(acquire(cache, "efgh", found), 0); /* the tokens of another place */
    assert_int_equal(insert(cache, "ABCD", two), 1);
    assert_int_equal(acquire(cache, "ABCDefgh", found), 1); /* the same tokens behind other ones */
    ok(drop(f->m, found[0], WEIR_STREAM_HOST));
    assert_int_equal(insert(cache, "ABCDefgh", two), 1);
    assert_int_equal(acquire(cache, "ABCDefgh", found), 2);
    assert_memory_equal(found, two, sizeof two);
    assert_int_equal(cache_details(cache).cached, 4);
    ok(weir_block_pool_free(f->m, found, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(weir_block_pool_free(f->m, one, NULL, 2, 0, WEIR_STREAM_HOST));
    ok(weir_block_pool_free(f->m, two, NULL, 2, 0, WEIR_STREAM_HOST));
    uint32_t n;
    for (uint32_t left = 4; left > 0; left--) { /* each is taken out of the one row they are in */
        ok(weir_prefix_cache_evict(cache, 1, &n));
        assert_int_equal(n, 1);
        assert_int_equal(cache_details(cache).cached, left - 1);
    }
    ok(weir_prefix_cache_destroy(cache));
}

/* Also of salts that begin alike, and of none. */
static void equal_hashes_of_other_salts_share_nothing(void **state)
{
    fixture *f = *state;
    static const char *const salts[] = {"ab", "a", "", "b", "ba"};
    enum { SALTS = sizeof salts / sizeof salts[0] };
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t tokens[TOKENS], mine[SALTS], found, n;
    weir_prefix p = prompt(tokens, "abcd");
    for (int known = 0; known <= SALTS; known++) {
        for (int i = 0; i < SALTS; i++) {
            p.salt = salts[i];
            p.salt_bytes = strlen(salts[i]);
            ok(weir_prefix_cache_acquire(cache, &p, WEIR_STREAM_HOST, &found, 1, &n));
            assert_int_equal(n, i < known);
            assert_true(n == 0 || found == mine[i]);
            if (n > 0)
                ok(drop(f->m, found, WEIR_STREAM_HOST));
        }
        if (known == SALTS)
            continue;
        mine[known] = take(f->m);
        p.salt = salts[known];
        p.salt_bytes = strlen(salts[known]);
        ok(weir_prefix_cache_insert(cache, &p, &mine[known], 1, WEIR_STREAM_HOST, &n));
        assert_int_equal(n, 1);
    }
    ok(weir_prefix_cache_destroy(cache));
    ok(weir_block_pool_free(f->m, mine, NULL, SALTS, 0, WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_hashes_share_nothing),
        TEST(equal_hashes_of_other_salts_share_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
