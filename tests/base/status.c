/* Texts that have no room for all of it. */
#include "base/internal.h"
#include "core/core.h"

static void words_stay_whole(void **state)
{
    (void)state;
    char to[24], same[] = "one two three four five six";
    assert_string_equal(wi_shorten("short", to, sizeof to), "short");
    assert_string_equal(wi_shorten("exactly twenty-three by", to, sizeof to), "exactly twenty-three by");
    assert_string_equal(wi_shorten("a sentence, which goes on", to, sizeof to), "a sentence, which…");
    assert_string_equal(wi_shorten("what is cut: here; and then", to, sizeof to), "what is cut: here…");
    assert_string_equal(wi_shorten("without-any-space-at-all-in-it", to, sizeof to), "without-any-space-at…");
    assert_string_equal(wi_shorten("äöüäöüäöüäöüäöü", to, 12), "äöüä…");
    assert_string_equal(wi_shorten(same, same, 16), "one two…");
    assert_string_equal(wi_shorten("two", to, 2), "t");
    assert_string_equal(wi_shorten("", to, 1), "");
    assert_string_equal(wi_shorten("x", to, 1), "");
}

/* What is too long for a detail ends with a word, also where it is part of another. */
static void details(void **state)
{
    (void)state;
    char text[3000] = "";
    for (int i = 0; i < 250; i++)
        strcat(text, "elephants ");
    assert_int_equal(weir_fail(WEIR_ERR_ENGINE, "loading x: %s", text), WEIR_ERR_ENGINE);
    const char *end = strstr(weir_detail(), "…");
    assert_non_null(end);
    assert_string_equal(end, "…");
    assert_memory_equal(end - strlen(" elephants"), " elephants", strlen(" elephants"));
    assert_true(strlen(weir_detail()) > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_stay_whole), cmocka_unit_test(details)};
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
