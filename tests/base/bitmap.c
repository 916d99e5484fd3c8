/* The bitmap against a plain array: singles and runs of every length, at many sizes and fillings. */
#include "core/core.h"
#include "base/bitmap.h"

static bool used[70000];

static bool run_is(uint32_t first, uint32_t count, bool value)
{
    for (uint32_t i = 0; i < count; i++)
        if (used[first + i] != value)
            return false;
    return true;
}

static uint32_t longest_run(uint32_t count)
{
    uint32_t best = 0, now = 0;
    for (uint32_t i = 0; i < count; i++) {
        now = used[i] ? 0 : now + 1;
        best = now > best ? now : best;
    }
    return best;
}

static void set(uint32_t first, uint32_t count, bool value)
{
    for (uint32_t i = 0; i < count; i++)
        used[first + i] = value;
}

static void play(uint32_t count, int steps, uint64_t seed)
{
    wi_bitmap b;
    uint64_t random = seed;
    memset(used, 0, sizeof used);
    assert_true(wi_bitmap_init(&b, count));
    for (int i = 0; i < steps; i++) {
        uint64_t r = next_random(&random);
        uint32_t wanted = r % 4 ? 1 + (uint32_t)(r >> 8) % 64 : 1 + (uint32_t)(r >> 8) % count;
        bool giving = (i / 400) % 2; /* fuller for a while, then emptier */
        if ((r >> 40) % 8 < (giving ? 5 : 2)) {
            uint32_t at = (uint32_t)(r >> 44) % count, n = 0;
            while (at + n < count && n < wanted && used[at + n])
                n++;
            if (n > 0) {
                wi_bitmap_give(&b, at, n);
                set(at, n, false);
            }
        } else if ((r >> 3) % 4 == 0) {
            uint32_t at = wi_bitmap_take(&b);
            assert_true(at == WI_BITMAP_NONE ? longest_run(count) == 0 : at < count && !used[at]);
            if (at != WI_BITMAP_NONE)
                set(at, 1, true);
        } else {
            uint32_t at = wi_bitmap_take_run(&b, wanted);
            if (at == WI_BITMAP_NONE) {
                assert_true(longest_run(count) < wanted);
            } else {
                assert_true(at + wanted <= count && run_is(at, wanted, false));
                set(at, wanted, true);
            }
        }
        if (i % 16 == 0)
            assert_int_equal(wi_bitmap_longest(&b), longest_run(count));
    }
    uint32_t free_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(wi_bitmap_is_free(&b, i), !used[i]);
        free_count += !used[i];
    }
    assert_int_equal(b.free, free_count);
    wi_bitmap_destroy(&b);
}

static void it_agrees_with_an_array(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 63, 64, 65, 127, 128, 129, 200, 640, 1000, 4096, 4097, 10000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            play(counts[i], UNDER_TSAN ? 2000 : 20000, seed * 7919);
    play(70000, 5000, 11); /* a tree of three levels needs more words than 4096 x 64 */
    play(300 * 64, 8000, 12);
}

/* Every run at every place of three words: found exactly, with everything else taken. */
static void a_lone_run_is_found_wherever_it_is(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    for (uint32_t length = 1; length <= 140; length++)
        for (uint32_t at = 0; at + length <= COUNT; at += length > 66 ? 7 : 1) {
            wi_bitmap b;
            assert_true(wi_bitmap_init(&b, COUNT));
            assert_int_equal(wi_bitmap_take_run(&b, COUNT), 0);
            wi_bitmap_give(&b, at, length);
            assert_int_equal(wi_bitmap_longest(&b), length);
            if (at + length < COUNT)
                assert_int_equal(wi_bitmap_take_run(&b, length + 1), WI_BITMAP_NONE);
            assert_int_equal(wi_bitmap_take_run(&b, length), at);
            assert_int_equal(b.free, 0);
            assert_int_equal(wi_bitmap_take(&b), WI_BITMAP_NONE);
            wi_bitmap_destroy(&b);
        }
}

static void large_ones_have_more_levels(void **state)
{
    (void)state;
    wi_bitmap b;
    const uint32_t count = 64 * 64 * 64 * 2 + 5;
    assert_true(wi_bitmap_init(&b, count));
    assert_int_equal(wi_bitmap_take_run(&b, count), 0);
    wi_bitmap_give(&b, count - 1, 1);
    assert_int_equal(wi_bitmap_take(&b), count - 1);
    wi_bitmap_give(&b, count - 70, 70);
    assert_int_equal(wi_bitmap_take_run(&b, 64), count - 70);
    assert_int_equal(b.free, 6);
    wi_bitmap_destroy(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_agrees_with_an_array),
        cmocka_unit_test(a_lone_run_is_found_wherever_it_is),
        cmocka_unit_test(large_ones_have_more_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
