/* JSON texts of the command that no call of it from the outside reaches. */
#include "cli/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void a_count_is_never_below_zero(void **state)
{
    (void)state;
    static const struct {
        uint64_t count;
        json_int_t told;
    } counts[] = {{0, 0},
                  {7, 7},
                  {INT64_MAX, INT64_MAX},
                  {(uint64_t)INT64_MAX + 1, INT64_MAX}, /* the most that jansson's whole numbers hold */
                  {UINT64_MAX, INT64_MAX}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_t *number = text_json_count(counts[i].count);
        assert_true(json_is_integer(number));
        assert_int_equal(json_integer_value(number), counts[i].told);
        json_decref(number);
    }
}

/* As a terminal shows them: the first number is of the whole text, the second of its first character. */
static void columns_are_those_of_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t columns, first;
    } cases[] = {{"", 0, 1},   {"weir", 4, 1},    {"wörk", 4, 1}, {"日本語", 6, 2}, {"한국", 4, 2},    {"Ａ", 2, 2},
                 {"😀x", 3, 2}, {"e\u0301", 1, 1}, {"▏█←…", 4, 1}, {"𠀀", 2, 2},     {"a\u200bb", 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(text_columns(cases[i].text), cases[i].columns);
        assert_int_equal(text_character_columns(cases[i].text), cases[i].first);
    }
    assert_int_equal(text_line("日本語", 4), strlen("日本"));
    assert_int_equal(text_line("日本語", 5), strlen("日本"));
    assert_int_equal(text_line("日本語", 1), strlen("日")); /* a line has one, whatever fits */
    assert_int_equal(text_line("ab 日本", 5), strlen("ab"));
    assert_int_equal(text_line("ab 日本", 7), strlen("ab 日本"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_count_is_never_below_zero),
                                       cmocka_unit_test(columns_are_those_of_a_terminal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
