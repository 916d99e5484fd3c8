/* What an engine does with blocks: a table for each sequence, which grows, forks, leaves the device and comes back. Each
 * sequence's tokens are where its own table says, whatever becomes of the others. */
#include "blocks/shared.h"

enum { MOST = 6 };

typedef struct sequence {
    uint32_t blocks[MOST], count;
} sequence;

/* A block for the sequence's next tokens, painted with its color. */
static void grow(fixture *f, sequence *s, uint8_t value)
{
    ok(weir_block_pool_alloc(f->m, 1, 0, f->stream, &s->blocks[s->count]));
    paint(f, s->blocks[s->count++], value, f->stream);
}

static void end(fixture *f, sequence *s)
{
    ok(weir_block_pool_free(f->m, s->blocks, NULL, s->count, 0, f->stream));
    s->count = 0;
}

static void colors_are(fixture *f, const sequence *s, const char *colors)
{
    ok(weir_stream_synchronize(f->stream));
    assert_int_equal(strlen(colors), s->count);
    for (uint32_t k = 0; k < s->count; k++)
        assert_int_equal(color(f->m, s->blocks[k]), colors[k]);
}

static void sequences_do_not_write_over_each_other(void **state)
{
    fixture *f = *state;
    sequence one = {.count = 0}, two = {.count = 0};
    for (int k = 0; k < 3; k++) { /* by turns, so that their blocks lie among each other */
        grow(f, &one, (uint8_t)('a' + k));
        grow(f, &two, (uint8_t)('A' + k));
    }
    colors_are(f, &one, "abc");
    colors_are(f, &two, "ABC");
    end(f, &one); /* takes nothing of the other's */
    colors_are(f, &two, "ABC");
    sequence three = {.count = 0};
    for (int k = 0; k < 5; k++)
        grow(f, &three, (uint8_t)('1' + k));
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
        grow(f, &s, (uint8_t)('a' + k));
        assert_memory_equal(s.blocks, before.blocks, before.count * sizeof s.blocks[0]);
        assert_int_equal(member_stats(f->m).held, k + 1); /* nothing twice, not even for a moment */
        assert_int_equal(member_stats(f->m).peak, k + 1);
    }
    colors_are(f, &s, "abcdef");
    uint32_t more[3];
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_alloc(f->m, 3, 0, f->stream, more));
    colors_are(f, &s, "abcdef");
    end(f, &s);
}

static void a_fork_diverges_by_copies_of_what_it_writes(void **state)
{
    fixture *f = *state;
    sequence one = {.count = 0}, two;
    for (int k = 0; k < 3; k++)
        grow(f, &one, (uint8_t)('a' + k));
    two = one;
    ok(weir_block_pool_share(f->m, two.blocks, two.count));
    ok(weir_block_pool_make_writable(f->m, two.blocks[2], f->stream, &two.blocks[2]));
    paint(f, two.blocks[2], 'X', f->stream);
    grow(f, &two, 'Y');
    colors_are(f, &one, "abc");
    colors_are(f, &two, "abXY");
    assert_int_equal(member_stats(f->m).held, 5);
    end(f, &one);
    colors_are(f, &two, "abXY");
    end(f, &two);
}

/* Writing to the place that is read from: out is NONE at a refusal, and the old block must not be lost with it. */
static void a_fork_that_is_refused_its_copy_still_has_its_blocks(void **state)
{
    fixture *f = *state;
    weir_block_pool_member *b = join(f->pool, f->b, 2);
    sequence one = {.count = 2}, two;
    ok(weir_block_pool_alloc(b, 2, 0, WEIR_STREAM_HOST, one.blocks));
    two = one;
    ok(weir_block_pool_share(b, two.blocks, 2));
    uint32_t fresh;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_block_pool_make_writable(b, two.blocks[1], f->stream, &fresh));
    ok(weir_block_pool_free(b, two.blocks, NULL, 2, 0, f->stream));
    ok(weir_block_pool_free(b, one.blocks, NULL, 2, 0, f->stream));
}

static void a_sequence_leaves_the_device_and_comes_back(void **state)
{
    fixture *f = *state;
    sequence one = {.count = 0}, other = {.count = 0};
    static unsigned char host[MOST * BLOCK];
    for (int k = 0; k < 4; k++)
        grow(f, &one, (uint8_t)('a' + k));
    ok(weir_block_pool_download(f->m, one.blocks, 4, host, f->stream));
    end(f, &one);
    ok(weir_stream_synchronize(f->stream));
    for (int k = 0; k < MOST; k++)
        grow(f, &other, (uint8_t)('1' + k));
    one.count = 2; /* as many as there is room for; the rest has to be computed again */
    ok(weir_block_pool_alloc(f->m, 2, 0, f->stream, one.blocks));
    ok(weir_block_pool_upload(f->m, one.blocks, 2, host, f->stream));
    colors_are(f, &one, "ab");
    colors_are(f, &other, "123456");
    end(f, &one);
    end(f, &other);
}

/* Blocks of two shapes in one pool, and no shape that is too large. */
static void models_of_other_shapes_share_the_pool_and_its_prefixes_by_salt(void **state)
{
    fixture *f = *state;
    weir_prefix_cache_options coarse = {.struct_size = sizeof coarse, .tokens = 8};
    weir_prefix_cache *fine = make_cache(f->m, 0), *wide;
    ok(weir_prefix_cache_create(f->m, &coarse, &wide));
    uint32_t one[2], two[1], found[2], tokens[8], n;
    leave_behind(fine, f->m, "abcdefgh", one);
    weir_prefix p = prompt(tokens, "abcdefgh");
    ok(weir_prefix_cache_acquire(wide, &p, WEIR_STREAM_HOST, found, 2, &n));
    assert_int_equal(n, 0);
    ok(weir_block_pool_alloc(f->m, 1, 0, WEIR_STREAM_HOST, two));
    ok(weir_prefix_cache_insert(wide, &p, two, 1, WEIR_STREAM_HOST, &n));
    assert_int_equal(n, 1);
    ok(weir_prefix_cache_acquire(wide, &p, WEIR_STREAM_HOST, found, 2, &n));
    assert_int_equal(n, 1);
    assert_int_equal(found[0], two[0]);
    ok(weir_block_pool_free(f->m, found, NULL, 1, 0, WEIR_STREAM_HOST));
    ok(weir_block_pool_free(f->m, two, NULL, 1, 0, WEIR_STREAM_HOST));
    ok(weir_prefix_cache_destroy(fine));
    ok(weir_prefix_cache_destroy(wide));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sequences_do_not_write_over_each_other),
        TEST(a_sequence_that_grows_keeps_what_it_has),
        TEST(a_fork_diverges_by_copies_of_what_it_writes),
        TEST(a_fork_that_is_refused_its_copy_still_has_its_blocks),
        TEST(a_sequence_leaves_the_device_and_comes_back),
        TEST(models_of_other_shapes_share_the_pool_and_its_prefixes_by_salt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
