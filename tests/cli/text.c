/* JSON texts of the command that no call of it from the outside reaches. */
#include "cli/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_count_is_never_below_zero)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
