/* What an engine does with blocks, on the host and on devices: a table for each sequence, which grows, forks, leaves the
 * device and comes back. Each sequence's tokens are where its own table says, whatever becomes of the others. */
#include "blocks/blocks.h"

enum { MOST = 6, COUNT = 8 };

typedef struct sequence {
    uint32_t blocks[MOST], count;
} sequence;

/* The pool of a test, and who may have all of it. */
static weir_block_pool *pool;
static weir_block_pool_member *member;
static weir_block_pool_view view;

static int set_up_pool(void **state)
{
    int status = set_up(state);
    fixture *f = *state;
    pool = make_pool_with(f->a, COUNT, WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_CLEAR);
    member = join(pool, f->a, 0);
    view = view_of(pool);
    return status;
}

static int tear_down_pool(void **state)
{
    fixture *f = *state;
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(pool_stats(pool).free, COUNT);
    ok(weir_block_pool_destroy(pool));
    return tear_down(state);
}

/* A block for the sequence's next tokens, painted with its color. */
static void grow(fixture *f, sequence *s, char color)
{
    ok(weir_block_pool_alloc(member, 1, 0, f->stream, &s->blocks[s->count]));
    ok(weir_fill(f->runtime, weir_block_pool_at(&view, s->blocks[s->count++]), (uint8_t)color, BLOCK, f->stream));
}

static void end(fixture *f, sequence *s)
{
    ok(weir_block_pool_free(member, s->blocks, NULL, s->count, 0, f->stream));
    s->count = 0;
}

static void block_is(fixture *f, uint32_t index, char color)
{
    unsigned char bytes[BLOCK], wanted[BLOCK];
    memset(wanted, color, BLOCK);
    ok(weir_copy(f->runtime, bytes, weir_block_pool_at(&view, index), BLOCK, f->stream));
    ok(weir_stream_synchronize(f->stream));
    assert_memory_equal(bytes, wanted, BLOCK);
}

static void colors_are(fixture *f, const sequence *s, const char *colors)
{
    assert_int_equal(strlen(colors), s->count);
    for (uint32_t k = 0; k < s->count; k++)
        block_is(f, s->blocks[k], colors[k]);
}

static void sequences_do_not_write_over_each_other(void **state)
{
    fixture *f = *state;
    sequence one = {.count = 0}, two = {.count = 0}, three = {.count = 0};
    for (int k = 0; k < 3; k++) { /* by turns, so that their blocks lie among each other */
        grow(f, &one, (char)('a' + k));
        grow(f, &two, (char)('A' + k));
    }
    colors_are(f, &one, "abc");
    colors_are(f, &two, "ABC");
    end(f, &one); /* takes nothing of the other's */
    colors_are(f, &two, "ABC");
    for (int k = 0; k < 5; k++)
        grow(f, &three, (char)('1' + k));
    colors_are(f, &two, "ABC");
    end(f, &two);
    end(f, &three);
}

static void a_sequence_that_grows_keeps_what_it_has(void **state)
{
    fixture *f = *state;
    sequence s = {.count = 0}, before;
    for (uint32_t k = 0; k < MOST; k++) {
        before = s;
        grow(f, &s, (char)('a' + k));
        assert_memory_equal(s.blocks, before.blocks, before.count * sizeof s.blocks[0]);
        assert_int_equal(member_stats(member).held, k + 1); /* nothing twice, not even for a moment */
        assert_int_equal(member_stats(member).peak, k + 1);
    }
    colors_are(f, &s, "abcdef");
    uint32_t more[3];
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(member, 3, 0, f->stream, more));
    colors_are(f, &s, "abcdef");
    end(f, &s);
}

static void a_fork_is_a_copy_that_goes_its_own_way(void **state)
{
    fixture *f = *state;
    sequence one = {.count = 0}, two = {.count = 3};
    for (int k = 0; k < 3; k++)
        grow(f, &one, (char)('a' + k));
    ok(weir_block_pool_alloc(member, 3, 0, f->stream, two.blocks));
    for (int k = 0; k < 3; k++)
        ok(weir_copy(f->runtime, weir_block_pool_at(&view, two.blocks[k]), weir_block_pool_at(&view, one.blocks[k]),
                     BLOCK, f->stream));
    ok(weir_fill(f->runtime, weir_block_pool_at(&view, two.blocks[2]), 'X', BLOCK, f->stream));
    grow(f, &two, 'Y');
    colors_are(f, &one, "abc");
    end(f, &one);
    colors_are(f, &two, "abXY");
    end(f, &two);
}

static void a_sequence_leaves_the_device_and_comes_back(void **state)
{
    fixture *f = *state;
    sequence one = {.count = 0}, other = {.count = 0};
    static unsigned char host[MOST * BLOCK];
    for (int k = 0; k < 4; k++)
        grow(f, &one, (char)('a' + k));
    for (int k = 0; k < 4; k++)
        ok(weir_copy(f->runtime, host + k * BLOCK, weir_block_pool_at(&view, one.blocks[k]), BLOCK, f->stream));
    end(f, &one);
    ok(weir_stream_synchronize(f->stream));
    for (int k = 0; k < MOST; k++)
        grow(f, &other, (char)('1' + k));
    one.count = 2; /* as many as there is room for; the rest has to be computed again */
    ok(weir_block_pool_alloc(member, 2, 0, f->stream, one.blocks));
    for (int k = 0; k < 2; k++)
        ok(weir_copy(f->runtime, weir_block_pool_at(&view, one.blocks[k]), host + k * BLOCK, BLOCK, f->stream));
    colors_are(f, &one, "ab");
    colors_are(f, &other, "123456");
    end(f, &one);
    end(f, &other);
}

static void another_member_reads_zeros(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(pool, f->b, 0);
    sequence one = {.count = 0};
    uint32_t first;
    for (int k = 0; k < 3; k++)
        grow(f, &one, (char)('a' + k));
    end(f, &one);
    ok(weir_stream_synchronize(f->stream));
    ok(weir_block_pool_alloc(b, COUNT, WEIR_BLOCK_POOL_RUN, f->stream, &first));
    for (uint32_t k = 0; k < COUNT; k++)
        block_is(f, first + k, 0);
    ok(free_run(b, first, COUNT, f->stream));
}

#define ON_POOL(name) cmocka_unit_test_setup_teardown(name, set_up_pool, tear_down_pool)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_POOL(sequences_do_not_write_over_each_other),
        ON_POOL(a_sequence_that_grows_keeps_what_it_has),
        ON_POOL(a_fork_is_a_copy_that_goes_its_own_way),
        ON_POOL(a_sequence_leaves_the_device_and_comes_back),
        ON_POOL(another_member_reads_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
