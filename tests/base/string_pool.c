/* Strings of a pool. */
#include "base/texts.h"
#include "core/core.h"

static void strings_of_a_pool_stay(void **state)
{
    (void)state;
    wi_string_pool pool = {.last = NULL};
    const char *kept[100];
    char wanted[300];
    for (int i = 0; i < 100; i++)
        kept[i] = wi_string_pool_print(&pool, "%d of %0*d", i, 2 * i, i);
    for (int i = 0; i < 100; i++) {
        snprintf(wanted, sizeof wanted, "%d of %0*d", i, 2 * i, i);
        assert_string_equal(kept[i], wanted);
    }
    assert_false(pool.failed);
    wi_string_pool_free(&pool);
    assert_null(pool.last);
}

static void a_string_is_one_line(void **state)
{
    (void)state;
    wi_string_pool pool = {.last = NULL};
    assert_string_equal(wi_string_pool_print(&pool, "%s", ""), "");
    assert_null(strchr(wi_string_pool_print(&pool, "a\nb\r\nc\n"), '\n'));
    wi_string_pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_of_a_pool_stay),
        cmocka_unit_test(a_string_is_one_line),
    };
    return cmocka_run_group_tests_name("string pool", tests, NULL, NULL);
}
