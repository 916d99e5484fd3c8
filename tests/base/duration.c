/* Durations as options have them. */
#include "base/values.h"
#include "core/core.h"

static void durations_are_digits_and_a_unit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t seconds;
    } good[] = {{"0s", 0}, {"90s", 90}, {"15m", 900}, {"12h", 43200}, {"30d", 2592000}, {"36500d", 3153600000}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t seconds = 7;
        assert_true(wi_duration_read(good[i].text, &seconds));
        assert_int_equal(seconds, good[i].seconds);
    }
}

static void anything_else_is_no_duration(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "s",     "30",         "-1s",    "+1s",     " 1s",
                                      "1 s", "1S",    "1w",         "36501d", "876001h", "99999999999999999999999s",
                                      "1sd", "0x10s", "3153600001s"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t seconds = 7;
        assert_false(wi_duration_read(bad[i], &seconds));
        assert_int_equal(seconds, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_digits_and_a_unit),
        cmocka_unit_test(anything_else_is_no_duration),
    };
    return cmocka_run_group_tests_name("duration", tests, NULL, NULL);
}
