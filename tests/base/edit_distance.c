/* How far apart words are, against the whole table of it, for words of any length. */
#include "base/values.h"
#include "core/core.h"

enum { LONGEST = 160 };

/* The textbook's table. */
static size_t table_distance(const char *a, const char *b)
{
    static size_t t[LONGEST + 1][LONGEST + 1];
    size_t m = strlen(a), n = strlen(b);
    for (size_t i = 0; i <= m; i++)
        for (size_t j = 0; j <= n; j++) {
            size_t best = i > j ? i : j;
            if (i > 0 && j > 0) {
                best = t[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
                best = t[i - 1][j] + 1 < best ? t[i - 1][j] + 1 : best;
                best = t[i][j - 1] + 1 < best ? t[i][j - 1] + 1 : best;
            }
            t[i][j] = best;
        }
    return t[m][n];
}

static void make_word(char *word, size_t length, uint64_t *seed)
{
    for (size_t i = 0; i < length; i++)
        word[i] = (char)('a' + next_random(seed) % 3);
    word[length] = '\0';
}

static void of_any_length(void **state)
{
    (void)state;
    uint64_t seed = 3;
    int long_ones = 0;
    for (int i = 0; i < 3000; i++) {
        char a[LONGEST + 1], b[LONGEST + 1];
        make_word(a, next_random(&seed) % LONGEST, &seed);
        make_word(b, next_random(&seed) % 64, &seed); /* what is known is no longer */
        assert_int_equal(wi_edit_distance(a, b), table_distance(a, b));
        assert_int_equal(wi_edit_distance(b, a), table_distance(a, b));
        long_ones += strlen(a) > 63;
    }
    assert_true(long_ones > 1000);
}

/* One letter anywhere in a long word is one letter. */
static void of_long_words_that_are_near(void **state)
{
    (void)state;
    uint64_t seed = 4;
    char a[LONGEST + 1], b[LONGEST + 1];
    make_word(a, LONGEST, &seed);
    memcpy(b, a, sizeof b);
    assert_int_equal(wi_edit_distance(a, b), 0);
    for (size_t i = 0; i < LONGEST; i++) {
        b[i] = 'x';
        assert_int_equal(wi_edit_distance(a, b), 1);
        b[i] = a[i];
    }
    memset(b, 'x', LONGEST);
    assert_int_equal(wi_edit_distance(a, b), LONGEST);
    assert_int_equal(wi_edit_distance("fp16", b), LONGEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_any_length),
        cmocka_unit_test(of_long_words_that_are_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
