/* What the tests of shared blocks have in common: a device, a pool whose blocks can be shared, and blocks that are filled
 * with a byte and looked at through the pool's own calls, as a device's memory is. */
#ifndef TESTS_SHARED_H
#define TESTS_SHARED_H

#include "core/core.h"
#include <weir/block_pool.h>
#include <weir/prefix_cache.h>

enum { BLOCK = 256, TOKENS = 4 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *a, *b;
    weir_stream stream, other;
    weir_block_pool *pool; /* of 8 blocks, and who may have all */
    weir_block_pool_member *m;
    weir_block_pool_view view;
} fixture;

static inline weir_block_pool *make_shared(weir_client *client, uint32_t count, uint32_t flags)
{
    weir_block_pool_options options = {.struct_size = sizeof options,
                                       .bytes = BLOCK,
                                       .count = count,
                                       .tag = "kv",
                                       .flags = WEIR_BLOCK_POOL_SHARED | flags};
    weir_block_pool *pool;
    ok(weir_block_pool_create(client, &options, &pool));
    return pool;
}

static inline weir_block_pool_member *join(weir_block_pool *pool, weir_client *client, uint32_t cap)
{
    weir_block_pool_member *member;
    ok(weir_block_pool_member_create(pool, client, cap, &member));
    return member;
}

static inline weir_block_pool_stats pool_stats(weir_block_pool *pool)
{
    weir_block_pool_stats s = WEIR_INIT(weir_block_pool_stats);
    ok(weir_block_pool_info(pool, &s, NULL, 0, NULL));
    return s;
}

static inline weir_block_pool_member_stats member_stats(weir_block_pool_member *member)
{
    weir_block_pool_member_stats s = WEIR_INIT(weir_block_pool_member_stats);
    ok(weir_block_pool_member_info(member, &s));
    return s;
}

static inline weir_block_pool_block_details details_of(weir_block_pool *pool, uint32_t index)
{
    weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
    ok(weir_block_pool_block_info(pool, index, &d));
    return d;
}

static inline uint32_t references(weir_block_pool *pool, uint32_t index)
{
    return details_of(pool, index).references;
}

static inline uint32_t take(weir_block_pool_member *member)
{
    uint32_t index;
    ok(weir_block_pool_alloc(member, 1, 0, WEIR_STREAM_HOST, &index));
    return index;
}

static inline weir_status drop(weir_block_pool_member *member, uint32_t index, weir_stream stream)
{
    return weir_block_pool_free(member, &index, NULL, 1, 0, stream);
}

static inline void paint(fixture *f, uint32_t index, uint8_t value, weir_stream stream)
{
    ok(weir_fill(f->runtime, weir_block_pool_at(&f->view, index), value, BLOCK, stream));
}

/* The block's byte, of which all are alike; -1: they are not. */
static inline int color(weir_block_pool_member *member, uint32_t index)
{
    unsigned char bytes[BLOCK];
    ok(weir_block_pool_download(member, &index, 1, bytes, WEIR_STREAM_HOST));
    for (int i = 1; i < BLOCK; i++)
        if (bytes[i] != bytes[0])
            return -1;
    return bytes[0];
}

static inline int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime_here(64 * MIB);
    f->a = open_client(f->runtime, "anna", 0, 0);
    f->b = open_client(f->runtime, "bert", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    ok(weir_stream_acquire(f->runtime, &f->other));
    f->pool = make_shared(f->a, 8, WEIR_ALLOC_NO_WAIT);
    f->m = join(f->pool, f->a, 0);
    f->view = pool_stats(f->pool).view;
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_synchronize(f->stream));
    ok(weir_stream_synchronize(f->other));
    assert_int_equal(pool_stats(f->pool).free, 8);
    ok(weir_block_pool_destroy(f->pool));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->a));
    ok(weir_client_destroy(f->b));
    ok(weir_stream_release(f->stream));
    ok(weir_stream_release(f->other));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* Prefix caches ---------------------------------------------------------------------------------------------------- */

static inline weir_prefix_cache *make_cache(weir_block_pool_member *member, uint32_t most)
{
    weir_prefix_cache_options options = {.struct_size = sizeof options, .tokens = TOKENS, .most = most};
    weir_prefix_cache *cache;
    ok(weir_prefix_cache_create(member, &options, &cache));
    return cache;
}

static inline weir_prefix_cache_details cache_details(weir_prefix_cache *cache)
{
    weir_prefix_cache_details d = WEIR_INIT(weir_prefix_cache_details);
    ok(weir_prefix_cache_info(cache, &d));
    assert_int_equal(d.inserted - d.evicted, d.cached);
    return d;
}

/* A prompt as a text: a token for each letter. */
static inline weir_prefix prompt(uint32_t *tokens, const char *text)
{
    weir_prefix p = {.struct_size = sizeof p, .tokens = tokens, .count = strlen(text)};
    for (size_t i = 0; i < p.count; i++)
        tokens[i] = (unsigned char)text[i];
    return p;
}

static inline uint32_t insert_on(weir_prefix_cache *cache, const char *text, const uint32_t *indices,
                                 weir_stream stream)
{
    uint32_t tokens[64], inserted;
    weir_prefix p = prompt(tokens, text);
    ok(weir_prefix_cache_insert(cache, &p, indices, (uint32_t)(p.count / TOKENS), stream, &inserted));
    return inserted;
}
#define insert(cache, text, indices) insert_on((cache), (text), (indices), WEIR_STREAM_HOST)

static inline uint32_t acquire_on(weir_prefix_cache *cache, const char *text, uint32_t *indices, weir_stream stream)
{
    uint32_t tokens[64], found;
    weir_prefix p = prompt(tokens, text);
    ok(weir_prefix_cache_acquire(cache, &p, stream, indices, 16, &found));
    return found;
}
#define acquire(cache, text, indices) acquire_on((cache), (text), (indices), WEIR_STREAM_HOST)

/* A sequence that is computed, cached and done with: its blocks are the cache's alone. */
static inline void leave_behind(weir_prefix_cache *cache, weir_block_pool_member *member, const char *text,
                                uint32_t *indices)
{
    uint32_t count = (uint32_t)(strlen(text) / TOKENS), found = acquire(cache, text, indices);
    if (found < count)
        ok(weir_block_pool_alloc(member, count - found, 0, WEIR_STREAM_HOST, indices + found));
    (void)insert(cache, text, indices);
    ok(weir_block_pool_free(member, indices, NULL, count, 0, WEIR_STREAM_HOST));
}

#endif
