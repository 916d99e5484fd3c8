/* words.c: words in a setting are read, found in a text, and known by their beginnings. */
#include "core/core.h"
#include "engines/text/text.h"

static void has_words(const char *value, const char *const *words, size_t count)
{
    wt_words read;
    size_t longest = 0;
    assert_int_equal(wt_words_read("stop", value, &read), WEIR_OK);
    assert_int_equal(read.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(read.list[i].bytes, strlen(words[i]));
        assert_string_equal(read.list[i].text, words[i]);
        longest = strlen(words[i]) > longest ? strlen(words[i]) : longest;
    }
    assert_int_equal(read.longest, longest);
    wt_words_drop(&read);
    assert_null(read.list);
}

static void test_words_are_read_line_by_line(void **state)
{
    (void)state;
    static const char *const two[] = {"one", "a longer one"}, *const marks[] = {"\n\n", "a\tb", "\\n", " x "};
    has_words(NULL, NULL, 0);
    has_words("", NULL, 0);
    has_words("\n\n", NULL, 0);
    has_words("one\na longer one", two, 2);
    has_words("\none\n\na longer one\n", two, 2);
    has_words("\\n\\n\na\\tb\n\\\\n\n x ", marks, 4);
}

static void test_wrong_words_are_refused(void **state)
{
    (void)state;
    wt_words read;
    char many[200] = "";
    assert_int_equal(wt_words_read("stop", "a\nb\\r", &read), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "'stop'"));
    assert_int_equal(wt_words_read("stop", "a\\\nb", &read), WEIR_ERR_INVALID);
    for (int i = 0; i < 64; i++)
        strcat(many, "a\n");
    assert_int_equal(wt_words_read("stop", many, &read), WEIR_OK);
    assert_int_equal(read.count, 64);
    wt_words_drop(&read);
    strcat(many, "a\n");
    assert_int_equal(wt_words_read("stop", many, &read), WEIR_ERR_INVALID);
    assert_null(read.list);
}

static void finds(const char *value, const char *text, size_t from, const char *word, size_t at)
{
    wt_words read;
    size_t place = 999;
    assert_int_equal(wt_words_read("stop", value, &read), WEIR_OK);
    const wt_word *found = wt_words_find(&read, text, strlen(text), from, &place);
    if (word) {
        assert_non_null(found);
        assert_string_equal(found->text, word);
        assert_int_equal(place, at);
    } else {
        assert_null(found);
    }
    wt_words_drop(&read);
}

static void test_the_word_that_begins_first_is_found(void **state)
{
    (void)state;
    finds("b\nab", "xxab", 0, "ab", 2);
    finds("ab\nabc", "xabc", 0, "ab", 1);
    finds("abc\nab", "xabc", 0, "abc", 1);
    finds("ab", "abxab", 1, "ab", 3);
    finds("ab", "abxab", 3, "ab", 3);
    finds("ab", "abxab", 4, NULL, 0);
    finds("ab", "xab", 3, NULL, 0);
    finds("", "xab", 0, NULL, 0);
    finds("abcd", "abc", 0, NULL, 0);
}

static void held(const char *value, const char *text, size_t most)
{
    wt_words read;
    assert_int_equal(wt_words_read("stop", value, &read), WEIR_OK);
    assert_int_equal(wt_words_held(&read, text, strlen(text)), most);
    wt_words_drop(&read);
}

static void test_the_longest_beginning_at_the_end_of_a_text_is_held(void **state)
{
    (void)state;
    held("abcd", "xxabc", 3);
    held("abcd", "xxab", 2);
    held("abcd", "xxabcx", 0);
    held("abab", "xaba", 3);
    held("abab", "xab", 2);
    held("bq\nabz", "xab", 2);
    held("a", "xa", 0);
    held("abcdef", "ab", 2);
    held("abc", "", 0);
    held("", "abc", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_are_read_line_by_line),
        cmocka_unit_test(test_wrong_words_are_refused),
        cmocka_unit_test(test_the_word_that_begins_first_is_found),
        cmocka_unit_test(test_the_longest_beginning_at_the_end_of_a_text_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
