/* Versions as tuples of integers, against an oracle that works on their text. */
#include "base/values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/base.h>

static weir_version_number version(const char *text)
{
    weir_version_number v = {.count = 0};
    if (wi_version_read(text, &v) != WEIR_OK)
        fail_msg("%s: %s", text, weir_detail());
    return v;
}

static int compare(const char *a, const char *b)
{
    int forward = wi_version_compare(version(a), version(b)), back = wi_version_compare(version(b), version(a));
    assert_int_equal(forward, -back);
    return forward;
}

/* D27: compared as texts, 9.2 came after 11.8 and 12.10 before 12.2. */
static void d27_numbers_count_not_texts(void **state)
{
    (void)state;
    assert_true(compare("9.2", "11.8") < 0);
    assert_true(compare("12.10", "12.2") > 0);
    assert_true(compare("12.10", "12.9") > 0);
    assert_true(compare("13", "12.9") > 0);
    assert_int_equal(compare("13", "13.0"), 0);
    assert_int_equal(compare("13", "13.0.0.0"), 0);
    assert_int_equal(compare("12.08", "12.8"), 0);
    assert_true(compare("13.0", "12.4") > 0); /* major at least, and minor at least, would refuse it */
    assert_true(compare("535.129.03", "535.129.1") > 0);
    assert_true(compare("4294967295", "4294967294.4294967295") > 0);
}

static void what_is_read(void **state)
{
    (void)state;
    weir_version_number v = version("v12.4.1-rc.2");
    assert_int_equal(v.count, 3);
    assert_int_equal(v.part[0], 12);
    assert_int_equal(v.part[1], 4);
    assert_int_equal(v.part[2], 1);
    assert_int_equal(version("1.2.3.4+cu121").count, 4);
    assert_int_equal(version("0").count, 1);
    assert_int_equal(version("4294967295").part[0], UINT32_MAX);
    assert_int_equal(version("00000000000000000000012").part[0], 12);
}

static void what_is_refused_changes_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "v",    ".",    "12.",  ".4",       "12..4",      "1.2.3.4.5",
                                      "-1",  "+1",   " 12",  "12 ",  "12.4rc1",  "4294967296", "1.4294967296",
                                      "vv1", "1.-2", "0x12", "12,4", "1.2.3.4.", "unknown",    "V1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        weir_version_number v = {{7, 8, 9, 10}, 4}, before = v;
        assert_int_equal(wi_version_read(bad[i], &v), WEIR_ERR_INVALID);
        assert_memory_equal(&v, &before, sizeof v);
        assert_non_null(strstr(weir_detail(), bad[i]));
    }
    weir_version_number v;
    assert_int_equal(wi_version_read(NULL, &v), WEIR_ERR_INVALID);
    assert_int_equal(wi_version_read("1", NULL), WEIR_ERR_INVALID);
}

static void one_that_is_not_known_is_earlier_than_all(void **state)
{
    (void)state;
    weir_version_number unknown = {.count = 0};
    assert_int_equal(wi_version_compare(unknown, unknown), 0);
    assert_true(wi_version_compare(unknown, version("0")) < 0);
    assert_true(wi_version_compare(version("0"), unknown) > 0);
}

static void what_is_written(void **state)
{
    (void)state;
    char text[48], small[4] = "xyz", none = 'n';
    assert_string_equal(wi_version_write(version("012.04"), text, sizeof text), "12.4");
    assert_string_equal(wi_version_write((weir_version_number){.count = 0}, text, sizeof text), "unknown");
    weir_version_number longest = {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}, 4};
    assert_string_equal(wi_version_write(longest, text, sizeof text), "4294967295.4294967295.4294967295.4294967295");
    assert_string_equal(wi_version_write(longest, small, sizeof small), "429");
    wi_version_write(longest, &none, 0);
    assert_int_equal(none, 'n');
}

/* The oracle: every part as a text of 12 digits, four of them, compared as texts. Of the library it has nothing. */
typedef struct drawn {
    char text[80], padded[4 * 12 + 1];
} drawn;

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static drawn draw(uint64_t *seed)
{
    static const uint64_t spans[] = {3, 13, 120, UINT64_C(1) << 32};
    drawn d = {.text = ""};
    size_t parts = 1 + next(seed) % 4, used = (size_t)snprintf(d.text, sizeof d.text, "%s", next(seed) % 8 ? "" : "v");
    for (size_t i = 0; i < 4; i++) {
        uint64_t value = i < parts ? next(seed) % spans[next(seed) % 4] : 0;
        snprintf(d.padded + i * 12, 13, "%012llu", (unsigned long long)value);
        if (i < parts)
            used += (size_t)snprintf(d.text + used, sizeof d.text - used, "%s%s%llu", i ? "." : "",
                                     next(seed) % 8 ? "" : "00", (unsigned long long)value);
    }
    if (next(seed) % 8 == 0)
        snprintf(d.text + used, sizeof d.text - used, "-rc.9");
    return d;
}

static void a_million_pairs_as_the_oracle_says(void **state)
{
    (void)state;
    uint64_t seed = 0x9e3779b97f4a7c15, less = 0, same = 0;
    for (int i = 0; i < 1000000; i++) {
        drawn a = draw(&seed), b = draw(&seed);
        if (next(&seed) % 4 == 0)
            b = a;
        int wanted = strcmp(a.padded, b.padded), found = wi_version_compare(version(a.text), version(b.text));
        if ((wanted > 0) - (wanted < 0) != (found > 0) - (found < 0))
            fail_msg("%s and %s: %d", a.text, b.text, found);
        less += wanted < 0;
        same += wanted == 0;
    }
    assert_in_range(less, 300000, 450000);
    assert_in_range(same, 240000, 400000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d27_numbers_count_not_texts),
        cmocka_unit_test(what_is_read),
        cmocka_unit_test(what_is_refused_changes_nothing),
        cmocka_unit_test(one_that_is_not_known_is_earlier_than_all),
        cmocka_unit_test(what_is_written),
        cmocka_unit_test(a_million_pairs_as_the_oracle_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
