/* Several threads with one pool, its references and its prefix caches, where memory is short, so that allocations evict
 * while others look up and insert. A book beside it knows what a block holds: the bytes of a block say of which salt and
 * of which tokens it is. Whoever has a reference finds them so until it drops it, on whatever stream. */
#include "blocks/shared.h"

#include <stdatomic.h>

enum { THREADS = 6, COUNT = 40, LENGTH = 6, SALTS = 2, WORDS = BLOCK / 8 };
enum { STEPS = UNDER_TSAN ? 400 : 1500, LONG_STEPS = 8000 };

static fixture *shared;
static weir_block_pool *pool;
static weir_block_pool_member *members[2];
static weir_prefix_cache *caches[2];
static atomic_uint wrong, hits, refused, copies;

#define expect(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            atomic_fetch_add(&wrong, 1);                                                                               \
            print_error("%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, weir_detail());                            \
        }                                                                                                              \
    } while (0)

typedef struct worker {
    pthread_t thread;
    uint64_t random;
    uint32_t number;
    weir_stream stream;
    weir_block_pool_member *m;
    weir_prefix_cache *cache;
} worker;

static uint32_t pick(worker *w, uint32_t below)
{
    return (uint32_t)(next_random(&w->random) >> 16) % below;
}

/* What the keys and values of block k are: of everything before it. */
static uint64_t contents(const worker *w, const weir_prefix *p, uint32_t k)
{
    uint64_t sum = 1 + *(const uint64_t *)p->salt + (w->m == members[1] ? 1000 : 0);
    for (uint32_t i = 0; i < (k + 1) * TOKENS; i++)
        sum = sum * 1000003 + p->tokens[i];
    return sum;
}

/* Uploads and downloads are waited for, as the bytes are this call's; the fills of a device's memory would not say enough. */
static void write_block(worker *w, uint32_t index, uint64_t value)
{
    uint64_t words[WORDS];
    for (int i = 0; i < WORDS; i++)
        words[i] = value;
    expect(weir_block_pool_upload(w->m, &index, 1, words, w->stream) == WEIR_OK);
    expect(weir_stream_synchronize(w->stream) == WEIR_OK);
}

static void expect_block(worker *w, uint32_t index, uint64_t value)
{
    uint64_t words[WORDS] = {0};
    expect(weir_block_pool_download(w->m, &index, 1, words, w->stream) == WEIR_OK);
    expect(weir_stream_synchronize(w->stream) == WEIR_OK);
    for (int i = 0; i < WORDS; i++)
        if (words[i] != value) {
            expect(words[i] == value);
            return;
        }
}

/* Few words, so that prompts begin alike. */
static weir_prefix some_prompt(worker *w, uint32_t *tokens, uint64_t *salt)
{
    weir_prefix p = {.struct_size = sizeof p, .tokens = tokens, .salt = salt, .salt_bytes = sizeof *salt};
    *salt = pick(w, SALTS);
    p.count = TOKENS * (1 + pick(w, LENGTH)) + pick(w, TOKENS);
    for (size_t i = 0; i < p.count; i++)
        tokens[i] = i % TOKENS == 0 ? pick(w, 2) : (uint32_t)i;
    return p;
}

/* Diverges from its first blocks, and looks whether others see it. */
static void diverge(worker *w, const weir_prefix *p, uint32_t *blocks, uint32_t count)
{
    uint32_t k = pick(w, count), fresh;
    weir_status status = weir_block_pool_make_writable(w->m, blocks[k], w->stream, &fresh);
    expect(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status == WEIR_OK) {
        expect_block(w, fresh, contents(w, p, k)); /* the copy is of what it was */
        write_block(w, fresh, UINT64_C(0xdead) + w->number);
        expect_block(w, fresh, UINT64_C(0xdead) + w->number);
        atomic_fetch_add(&copies, fresh != blocks[k]);
        expect(drop(w->m, fresh, w->stream) == WEIR_OK);
        blocks[k] = blocks[count - 1];
        count--;
    }
    if (count > 0)
        expect(weir_block_pool_free(w->m, blocks, NULL, count, 0, w->stream) == WEIR_OK);
}

static void serve(worker *w)
{
    uint32_t tokens[TOKENS * (LENGTH + 2)], blocks[LENGTH + 1], found = 0;
    uint64_t salt;
    weir_prefix p = some_prompt(w, tokens, &salt);
    uint32_t count = (uint32_t)(p.count / TOKENS);
    expect(weir_prefix_cache_acquire(w->cache, &p, w->stream, blocks, LENGTH + 1, &found) == WEIR_OK);
    expect(found <= count);
    atomic_fetch_add(&hits, found);
    for (uint32_t k = 0; k < found; k++)
        expect_block(w, blocks[k], contents(w, &p, k));
    weir_status status =
        found < count ? weir_block_pool_alloc(w->m, count - found, 0, w->stream, blocks + found) : WEIR_OK;
    expect(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    atomic_fetch_add(&refused, status != WEIR_OK);
    if (status != WEIR_OK)
        count = found; /* it is content with its beginning */
    for (uint32_t k = found; k < count; k++)
        write_block(w, blocks[k], contents(w, &p, k));
    if (count == 0)
        return;
    if (pick(w, 3) > 0) {
        p.count = (size_t)count * TOKENS;
        expect(weir_prefix_cache_insert(w->cache, &p, blocks, count, w->stream, NULL) == WEIR_OK);
    }
    if (pick(w, 4) == 0)
        sched_yield();
    for (uint32_t k = 0; k < count; k++)
        expect_block(w, blocks[k], contents(w, &p, k)); /* nobody has evicted it */
    if (pick(w, 4) == 0)
        diverge(w, &p, blocks, count);
    else
        expect(weir_block_pool_free(w->m, blocks, NULL, count, 0, pick(w, 2) ? w->stream : WEIR_STREAM_HOST) ==
               WEIR_OK);
}

static void *work(void *user)
{
    worker *w = user;
    expect(weir_stream_acquire(shared->runtime, &w->stream) == WEIR_OK);
    int steps = getenv("WEIR_TEST_LONG") ? LONG_STEPS : STEPS;
    for (int i = 0; i < steps; i++) {
        serve(w);
        if (pick(w, 64) == 0)
            expect(weir_prefix_cache_evict(w->cache, 1 + pick(w, 5), NULL) == WEIR_OK);
        if (pick(w, 64) == 0) {
            weir_prefix_cache_details d = WEIR_INIT(weir_prefix_cache_details);
            expect(weir_prefix_cache_info(w->cache, &d) == WEIR_OK);
            expect(d.idle <= d.cached && d.cached <= d.most && d.inserted - d.evicted == d.cached);
        }
    }
    expect(weir_stream_release(w->stream) == WEIR_OK);
    return NULL;
}

/* At the end the book is simple: each cached block has one reference, and there is no other. */
static void check_end(void)
{
    uint32_t cached = cache_details(caches[0]).cached + cache_details(caches[1]).cached;
    weir_block_pool_stats s = pool_stats(pool);
    assert_int_equal(s.held, cached);
    assert_int_equal(s.pending, 0);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(references(pool, i), details_of(pool, i).cached);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cache_details(caches[i]).idle, cache_details(caches[i]).cached);
        ok(weir_prefix_cache_destroy(caches[i]));
    }
    s = pool_stats(pool);
    assert_int_equal(s.free, COUNT);
    assert_int_equal(s.longest, COUNT);
    assert_int_equal(s.allocations, s.frees);
}

static void hammer(fixture *f, uint32_t flags, uint32_t cap, uint32_t most, uint64_t seed)
{
    worker workers[THREADS];
    shared = f;
    pool = make_shared(f->a, COUNT, flags);
    atomic_store(&wrong, 0);
    for (int i = 0; i < 2; i++) {
        members[i] = join(pool, i ? f->b : f->a, i ? cap : 0);
        caches[i] = make_cache(members[i], i ? most : 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.random = seed * 7919 + i * 104729 + 1, .number = i};
        workers[i].m = members[i % 2];
        workers[i].cache = caches[i % 2];
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(wrong, 0);
    assert_true(cache_details(caches[0]).evicted > 0);
    assert_true(cache_details(caches[1]).evicted > 0);
    assert_true(member_stats(members[1]).peak <= (cap ? cap : COUNT));
    check_end();
    ok(weir_block_pool_destroy(pool));
}

static void blocks_hold_what_their_references_say(void **state)
{
    hammer(*state, WEIR_ALLOC_NO_WAIT, 14, 0, 1);
    hammer(*state, WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_CLEAR | WEIR_BLOCK_POOL_NAMED, 12, 7, 2);
    assert_true(atomic_load(&hits) > 0 && atomic_load(&copies) > 0 && atomic_load(&refused) > 0);
}

static void allocations_that_may_wait_find_the_same(void **state)
{
    ok(weir_option_set("wait", "20ms"));
    hammer(*state, 0, 16, 0, 3);
    ok(weir_option_set("wait", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_hold_what_their_references_say),
        TEST(allocations_that_may_wait_find_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
