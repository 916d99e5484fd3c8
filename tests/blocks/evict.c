/* Evictions: in which order, for whom, and never what somebody uses. */
#include "blocks/shared.h"

static void what_was_used_least_recently_goes_first_and_leaves_before_their_parents(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t one[3], two[2], three[1], found[3], n;
    leave_behind(cache, f->m, "abcdefghijkl", one); /* 3 blocks, the oldest */
    leave_behind(cache, f->m, "ABCDEFGH", two);     /* 2 */
    leave_behind(cache, f->m, "1234", three);
    assert_int_equal(acquire(cache, "abcd", found), 1); /* its root is the latest now, its leaves are not */
    ok(drop(f->m, found[0], WEIR_STREAM_HOST));
    const struct {
        const char *text;
        uint32_t blocks;
    } order[] = {{"abcdefghijkl", 2}, {"abcdefghijkl", 1}, {"ABCDEFGH", 1}, {"ABCDEFGH", 0}, {"1234", 0}, {"abcd", 0}};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        ok(weir_prefix_cache_evict(cache, 1, &n));
        assert_int_equal(n, 1);
        assert_int_equal(cache_details(cache).cached, 5 - i);
        /* Looked at without a lookup, which would be a use. */
        uint32_t left = 0;
        const uint32_t *blocks = order[i].text[0] == 'a' ? one : order[i].text[0] == 'A' ? two : three;
        for (size_t k = 0; k < strlen(order[i].text) / TOKENS; k++)
            left += details_of(f->pool, blocks[k]).cached;
        assert_int_equal(left, order[i].blocks);
    }
    ok(weir_prefix_cache_evict(cache, 1, &n));
    assert_int_equal(n, 0);
    ok(weir_prefix_cache_destroy(cache));
}

/* An insertion of fewer blocks than the prefix has is a use of those alone. */
static void what_is_not_inserted_is_not_used(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t one[2], two, tokens[8], n;
    leave_behind(cache, f->m, "abcdefgh", one);
    leave_behind(cache, f->m, "ABCD", &two);
    weir_prefix p = prompt(tokens, "abcdefgh");
    ok(weir_prefix_cache_insert(cache, &p, one, 1, WEIR_STREAM_HOST, &n));
    assert_int_equal(n, 0);
    ok(weir_prefix_cache_evict(cache, 1, &n));
    assert_true(details_of(f->pool, one[0]).cached && !details_of(f->pool, one[1]).cached);
    assert_true(details_of(f->pool, two).cached);
    ok(weir_prefix_cache_destroy(cache));
}

/* It is the latest use then, later than that of what was left just before. */
static void what_is_inserted_again_was_used_last(void **state)
{
    static const char *const texts[] = {"aaaa", "bbbb", "cccc", "dddd"};
    enum { TEXTS = 4 };
    fixture *f = *state;
    for (int again = 0; again < TEXTS - 1; again++) {
        weir_prefix_cache *cache = make_cache(f->m, 0);
        uint32_t blocks[TEXTS], n, own = take(f->m);
        for (int i = 0; i < TEXTS; i++)
            leave_behind(cache, f->m, texts[i], &blocks[i]);
        assert_int_equal(insert(cache, texts[again], &own), 0);
        for (int i = 0; i < TEXTS - 1; i++) {
            ok(weir_prefix_cache_evict(cache, 1, &n));
            assert_true(details_of(f->pool, blocks[again]).cached);
        }
        ok(drop(f->m, own, WEIR_STREAM_HOST));
        ok(weir_prefix_cache_destroy(cache));
    }
}

static void what_was_left_last_goes_last(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t one, two, n;
    leave_behind(cache, f->m, "abcd", &one);
    leave_behind(cache, f->m, "ABCD", &two);
    assert_int_equal(acquire(cache, "abcd", &one), 1);
    assert_int_equal(acquire(cache, "ABCD", &two), 1);
    ok(drop(f->m, two, WEIR_STREAM_HOST));
    ok(drop(f->m, one, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_evict(cache, 1, &n));
    assert_true(details_of(f->pool, one).cached && !details_of(f->pool, two).cached);
    ok(weir_prefix_cache_destroy(cache));
}

static void evictions_count_blocks(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t one[4], two[4], n;
    leave_behind(cache, f->m, "abcdefghijklmnop", one);
    leave_behind(cache, f->m, "ABCDEFGHIJKLMNOP", two);
    assert_int_equal(pool_stats(f->pool).free, 0);
    ok(weir_prefix_cache_evict(cache, 5, &n));
    assert_int_equal(n, 5);
    assert_int_equal(pool_stats(f->pool).free, 5);
    assert_int_equal(cache_details(cache).evicted, 5);
    assert_int_equal(cache_details(cache).idle, 3);
    ok(weir_prefix_cache_evict(cache, UINT32_MAX, &n));
    assert_int_equal(n, 3);
    ok(weir_prefix_cache_destroy(cache));
}

static void a_block_in_use_is_never_evicted(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t one[4], found[4], n;
    leave_behind(cache, f->m, "abcdefghijklmnop", one);
    assert_int_equal(acquire(cache, "abcdefgh", found), 2);
    ok(drop(f->m, found[0], WEIR_STREAM_HOST)); /* the root is the cache's alone, but not a leaf */
    assert_int_equal(cache_details(cache).idle, 3);
    ok(weir_prefix_cache_evict(cache, UINT32_MAX, &n));
    assert_int_equal(n, 2);
    assert_true(details_of(f->pool, one[0]).cached && details_of(f->pool, one[1]).cached);
    ok(drop(f->m, found[1], WEIR_STREAM_HOST));
    ok(weir_prefix_cache_evict(cache, UINT32_MAX, &n));
    assert_int_equal(n, 2);
    ok(weir_prefix_cache_destroy(cache));
}

static void an_allocation_that_finds_no_free_block_evicts_as_many_as_it_needs(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    uint32_t one[3], two[3], mine[5], found[4];
    leave_behind(cache, f->m, "abcdefghijkl", one);
    leave_behind(cache, f->m, "ABCDEFGHIJKL", two);
    assert_int_equal(acquire(cache, "abcd", found), 1);
    ok(weir_block_pool_alloc(b, 4, 0, WEIR_STREAM_HOST, mine)); /* another member's: 2 are free */
    assert_int_equal(cache_details(cache).evicted, 2);
    assert_int_equal(cache_details(cache).cached, 4);
    assert_int_equal(member_stats(f->m).held, 4);
    assert_int_equal(member_stats(b).refused, 0);
    uint32_t more[4];
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(b, 4, 0, WEIR_STREAM_HOST, more));
    assert_int_equal(cache_details(cache).evicted, 2); /* it would not have been enough: all stay */
    ok(weir_block_pool_alloc(b, 3, 0, WEIR_STREAM_HOST, more));
    assert_int_equal(cache_details(cache).evicted, 5);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(b, 1, 0, WEIR_STREAM_HOST, mine + 4));
    assert_int_equal(references(f->pool, found[0]), 2);
    ok(drop(f->m, found[0], WEIR_STREAM_HOST));
    ok(weir_block_pool_free(b, mine, NULL, 4, 0, WEIR_STREAM_HOST));
    ok(weir_block_pool_free(b, more, NULL, 3, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
}

static void at_its_cap_a_member_evicts_from_its_own_caches(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 3);
    weir_prefix_cache *cache = make_cache(f->m, 0), *own = make_cache(b, 0);
    uint32_t one[2], two[2], mine[4];
    leave_behind(cache, f->m, "abcdefgh", one); /* older, and no help */
    leave_behind(own, b, "ABCDEFGH", two);
    weir_block_pool_member_stats s = member_stats(b);
    assert_int_equal(s.held, 2); /* what is cached counts under the cap of the cache's member */
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_member_set_cap(b, 1));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(b, 4, 0, WEIR_STREAM_HOST, mine));
    assert_int_equal(cache_details(own).cached, 2);
    ok(weir_block_pool_alloc(b, 3, 0, WEIR_STREAM_HOST, mine));
    assert_int_equal(cache_details(own).cached, 0);
    assert_int_equal(cache_details(cache).cached, 2);
    assert_int_equal(member_stats(b).peak, 3);
    ok(weir_block_pool_free(b, mine, NULL, 3, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
    ok(weir_prefix_cache_destroy(own));
}

static void of_several_caches_the_coldest_gives(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *one = make_cache(f->m, 0), *two = make_cache(f->m, 0);
    uint32_t indices[4], mine[4];
    leave_behind(one, f->m, "abcdefgh", indices);
    leave_behind(two, f->m, "abcdefgh", indices);
    leave_behind(one, f->m, "12345678", indices);
    ok(weir_block_pool_alloc(f->m, 4, 0, WEIR_STREAM_HOST, mine)); /* 2 are free */
    assert_int_equal(cache_details(one).cached, 2);
    assert_int_equal(cache_details(two).cached, 2);
    uint32_t last;
    ok(weir_block_pool_alloc(f->m, 1, 0, WEIR_STREAM_HOST, &last));
    assert_int_equal(cache_details(two).cached, 1);
    ok(weir_block_pool_free(f->m, mine, NULL, 4, 0, WEIR_STREAM_HOST));
    ok(drop(f->m, last, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(one));
    ok(weir_prefix_cache_destroy(two));
}

/* All blocks of a prompt that is computed once more have been used, not the last alone. */
static void what_leads_to_a_block_was_used_with_it(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 0);
    weir_prefix_cache *mine = make_cache(f->m, 0), *theirs = make_cache(b, 0);
    uint32_t list[3], other[1], again[3], index, n;
    leave_behind(mine, f->m, "abcdefghijkl", list);
    leave_behind(theirs, b, "1234", other);
    assert_int_equal(insert(mine, "abcdefghijkl", list), 0); /* by its name alone: nothing is acquired */
    ok(weir_prefix_cache_evict(mine, 2, &n));
    assert_int_equal(n, 2);
    uint32_t rest[6];
    ok(weir_block_pool_alloc(f->m, 6, 0, WEIR_STREAM_HOST, rest));
    ok(weir_block_pool_alloc(f->m, 1, 0, WEIR_STREAM_HOST, &index));
    assert_int_equal(cache_details(theirs).cached, 0); /* which was used before */
    assert_int_equal(acquire(mine, "abcdefghijkl", again), 1);
    ok(drop(f->m, again[0], WEIR_STREAM_HOST));
    ok(drop(f->m, index, WEIR_STREAM_HOST));
    ok(weir_block_pool_free(f->m, rest, NULL, 6, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(mine));
    ok(weir_prefix_cache_destroy(theirs));
    ok(weir_block_pool_member_destroy(b));
}

/* A member leaves after each of its caches, whoever has others. */
static void caches_keep_their_own_member(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 0), *c = join(f->pool, f->b, 0);
    weir_prefix_cache *first = make_cache(b, 0), *between = make_cache(f->m, 0), *last = make_cache(b, 0);
    ok(weir_block_pool_member_destroy(c)); /* which has none */
    ok(weir_prefix_cache_destroy(last));
    fails(WEIR_ERR_BUSY, weir_block_pool_member_destroy(b));
    detail_names("prefix caches");
    ok(weir_prefix_cache_destroy(first));
    ok(weir_block_pool_member_destroy(b));
    ok(weir_prefix_cache_destroy(between));
}

static void a_run_evicts_until_enough_lie_in_a_row(void **state)
{
    fixture *f = *state;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t all[8], first;
    ok(weir_block_pool_alloc(f->m, 8, 0, WEIR_STREAM_HOST, all));
    const uint32_t texts[] = {1, 3, 5}; /* cached, one block each, the oldest first */
    assert_int_equal(insert(cache, "abcd", &texts[0]), 1);
    assert_int_equal(insert(cache, "ABCD", &texts[1]), 1);
    assert_int_equal(insert(cache, "1234", &texts[2]), 1);
    for (uint32_t i = 0; i < 7; i++)
        ok(drop(f->m, i, WEIR_STREAM_HOST));
    assert_int_equal(pool_stats(f->pool).free, 4);
    ok(weir_block_pool_alloc(f->m, 4, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &first));
    assert_int_equal(first, 0); /* 1 and 3 have gone, 5 was not in the way */
    assert_int_equal(cache_details(cache).cached, 1);
    ok(weir_block_pool_free(f->m, &first, NULL, 4, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST));
    ok(drop(f->m, 7, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
}

/* The sequence has left it on a stream that is not past its work: nobody gets it before. */
static void an_evicted_block_waits_for_its_readers(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_prefix_cache *cache = make_cache(f->m, 0);
    uint32_t one[2], rest[6], index, n;
    leave_behind(cache, f->m, "abcdefgh", one);
    ok(weir_block_pool_alloc(f->m, 6, 0, WEIR_STREAM_HOST, rest));
    assert_int_equal(acquire_on(cache, "abcdefgh", one, f->stream), 2);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_block_pool_free(f->m, one, NULL, 2, 0, f->stream));
    assert_int_equal(cache_details(cache).idle, 2);
    ok(weir_prefix_cache_evict(cache, 1, &n));
    assert_int_equal(n, 1);
    assert_int_equal(details_of(f->pool, one[1]).state, WEIR_BLOCK_PENDING);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(f->m, 1, 0, WEIR_STREAM_HOST, &index));
    open_gate(&g);
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(pool_stats(f->pool).pending, 0);
    ok(weir_block_pool_free(f->m, rest, NULL, 6, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
}

/* Where it may wait, it evicts what it needs and waits for that. */
static void an_allocation_waits_for_what_it_has_evicted(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    pthread_t thread;
    weir_block_pool *pool = make_shared(f->a, 4, 0);
    weir_block_pool_member *m = join(pool, f->a, 0);
    weir_prefix_cache *cache = make_cache(m, 0);
    uint32_t four[4], index;
    leave_behind(cache, m, "abcdefghijklmnop", four);
    assert_int_equal(acquire_on(cache, "abcdefghijklmnop", four, f->stream), 4);
    ok(weir_call(f->runtime, pass_gate, &g, f->stream));
    ok(weir_block_pool_free(m, four, NULL, 4, 0, f->stream));
    pthread_create(&thread, NULL, open_gate_later, &g);
    ok(weir_block_pool_alloc(m, 1, 0, WEIR_STREAM_HOST, &index));
    assert_true(g.open);
    assert_int_equal(cache_details(cache).cached, 3); /* and not all, as none came at once */
    pthread_join(thread, NULL);
    ok(drop(m, index, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(cache));
    ok(weir_stream_synchronize(f->stream));
    ok(weir_block_pool_destroy(pool));
}

/* Pressure: an engine gives a pool back in which nothing but cached prefixes is. */
typedef struct engine {
    weir_block_pool *pool;
    weir_prefix_cache *cache;
    unsigned calls;
} engine;

static void give_the_pool_back(const weir_pressure *pressure, void *user)
{
    engine *e = user;
    weir_block_pool_stats s = WEIR_INIT(weir_block_pool_stats);
    uint32_t n;
    e->calls++;
    if (!e->pool || pressure->bytes < MIB)
        return;
    ok(weir_prefix_cache_evict(e->cache, UINT32_MAX, &n));
    ok(weir_block_pool_info(e->pool, &s, NULL, 0, NULL));
    if (s.held + s.pending > 0)
        return; /* somebody still needs it */
    ok(weir_prefix_cache_destroy(e->cache));
    ok(weir_block_pool_destroy(e->pool));
    e->pool = NULL;
}

static void a_pressure_callback_gives_cached_blocks_up(void **state)
{
    fixture *f = *state;
    weir_block_pool_options options = {
        .struct_size = sizeof options, .bytes = MIB, .count = 40, .flags = WEIR_BLOCK_POOL_SHARED};
    engine e = {NULL, NULL, 0};
    ok(weir_block_pool_create(f->b, &options, &e.pool));
    weir_block_pool_member *m = join(e.pool, f->b, 0);
    e.cache = make_cache(m, 0);
    uint32_t indices[2], found[2];
    uint64_t id;
    void *large = NULL;
    leave_behind(e.cache, m, "abcdefgh", indices);
    assert_int_equal(acquire(e.cache, "abcd", found), 1);
    ok(weir_pressure_register(f->runtime, 0, give_the_pool_back, &e, &id));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->a, 40 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &large));
    assert_true(e.calls > 0 && e.pool);
    assert_int_equal(cache_details(e.cache).cached, 1);
    ok(drop(m, found[0], WEIR_STREAM_HOST));
    ok(weir_alloc(f->a, 40 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &large));
    assert_null(e.pool);
    ok(weir_pressure_unregister(f->runtime, id));
    ok(weir_free(f->a, large, WEIR_STREAM_HOST));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_used_least_recently_goes_first_and_leaves_before_their_parents),
        TEST(what_is_not_inserted_is_not_used),
        TEST(what_is_inserted_again_was_used_last),
        TEST(what_was_left_last_goes_last),
        TEST(evictions_count_blocks),
        TEST(a_block_in_use_is_never_evicted),
        TEST(an_allocation_that_finds_no_free_block_evicts_as_many_as_it_needs),
        TEST(at_its_cap_a_member_evicts_from_its_own_caches),
        TEST(of_several_caches_the_coldest_gives),
        TEST(what_leads_to_a_block_was_used_with_it),
        TEST(caches_keep_their_own_member),
        TEST(a_run_evicts_until_enough_lie_in_a_row),
        TEST(an_evicted_block_waits_for_its_readers),
        TEST(an_allocation_waits_for_what_it_has_evicted),
        TEST(a_pressure_callback_gives_cached_blocks_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
