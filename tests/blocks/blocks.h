/* What the tests of pools share, on top of the core's. */
#ifndef TESTS_BLOCKS_H
#define TESTS_BLOCKS_H

#include "core/core.h"
#include <weir/block_pool.h>

enum { BLOCK = 256 };

static inline weir_block_pool *make_pool_with(weir_client *client, uint32_t count, uint32_t flags)
{
    weir_block_pool_options options = {
        .struct_size = sizeof options, .bytes = BLOCK, .count = count, .tag = "kv", .flags = flags};
    weir_block_pool *pool;
    ok(weir_block_pool_create(client, &options, &pool));
    return pool;
}

static inline weir_block_pool *make_pool(weir_client *client, uint32_t count)
{
    return make_pool_with(client, count, WEIR_ALLOC_NO_WAIT);
}

static inline weir_block_pool_member *join(weir_block_pool *pool, weir_client *client, uint32_t cap)
{
    weir_block_pool_member *member;
    ok(weir_block_pool_member_create(pool, client, cap, &member));
    return member;
}

static inline uint32_t take(weir_block_pool_member *member)
{
    uint32_t index;
    ok(weir_block_pool_alloc(member, 1, 0, WEIR_STREAM_HOST, &index));
    return index;
}

static inline uint32_t take_run(weir_block_pool_member *member, uint32_t count)
{
    uint32_t first;
    ok(weir_block_pool_alloc(member, count, WEIR_BLOCK_POOL_RUN, WEIR_STREAM_HOST, &first));
    return first;
}

/* Frees blocks that a test names by number: one, the first of a run, or one by its generation, too. */
static inline weir_status free_one(weir_block_pool_member *member, uint32_t index, weir_stream stream)
{
    return weir_block_pool_free(member, &index, NULL, 1, 0, stream);
}

static inline weir_status free_run(weir_block_pool_member *member, uint32_t first, uint32_t count, weir_stream stream)
{
    return weir_block_pool_free(member, &first, NULL, count, WEIR_BLOCK_POOL_RUN, stream);
}

static inline weir_status free_named(weir_block_pool_member *member, uint32_t index, uint32_t generation,
                                     weir_stream stream)
{
    return weir_block_pool_free(member, &index, &generation, 1, 0, stream);
}

#define give(member, first, count) ok(free_run((member), (first), (count), WEIR_STREAM_HOST))

static inline weir_block_pool_stats pool_stats(weir_block_pool *pool)
{
    weir_block_pool_stats s;
    memset(&s, 0, sizeof s); /* padding too, for comparing */
    s.struct_size = sizeof s;
    ok(weir_block_pool_info(pool, &s, NULL, 0, NULL));
    assert_int_equal(s.free + s.held + s.pending, s.view.count);
    return s;
}

static inline weir_block_pool_member_stats member_stats(weir_block_pool_member *member)
{
    weir_block_pool_member_stats s;
    memset(&s, 0, sizeof s);
    s.struct_size = sizeof s;
    ok(weir_block_pool_member_info(member, &s));
    return s;
}

static inline weir_block_state state_of(weir_block_pool *pool, uint32_t index)
{
    weir_block_pool_block_details d = WEIR_INIT(weir_block_pool_block_details);
    ok(weir_block_pool_block_info(pool, index, &d));
    return d.state;
}

static inline weir_block_pool_view view_of(weir_block_pool *pool)
{
    weir_block_pool_stats s = WEIR_INIT(weir_block_pool_stats);
    ok(weir_block_pool_info(pool, &s, NULL, 0, NULL));
    return s.view;
}

/* A runtime with two clients, a pool of the first one's, and a stream. */
typedef struct fixture {
    weir_runtime *runtime;
    weir_client *a, *b;
    weir_stream stream;
} fixture;

static inline int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->runtime = make_runtime_here(64 * MIB);
    f->a = open_client(f->runtime, "anna", 0, 0);
    f->b = open_client(f->runtime, "bert", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->stream));
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_option_set("wait", NULL));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->a));
    ok(weir_client_destroy(f->b));
    ok(weir_stream_release(f->stream));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
