/* Rows of RMM's logs: the forms of times and what each is in nanoseconds, and refusals. */
#include "../core/core.h"

#include "trace/readers.h"

static char path[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/weir-rows-%d", (int)getpid());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove(path);
}

/* Reads the first row behind RMM's header; what is wrong with it. */
static const char *read_one(const char *line, rmm_row *row)
{
    lines *l;
    rmm_columns columns;
    const char *wrong;
    bool got;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fprintf(file, "Thread,Time,Action,Pointer,Size,Stream\n\n%s\n", line) > 0);
    assert_int_equal(fclose(file), 0);
    ok(rmm_open(path, &l, &columns));
    assert_true(columns.timed && columns.threaded && !columns.weirs && !columns.clocked);
    ok(rmm_next(l, &columns, row, &wrong, &got));
    assert_true(got);
    assert_int_equal(lines_number(l), 3);
    lines_close(l);
    return wrong;
}

static const char *read_time(const char *time, rmm_row *row)
{
    char line[256];
    snprintf(line, sizeof line, "1,%s,free,0x100,10,0", time);
    return read_one(line, row);
}

#define SECOND UINT64_C(1000000000)
#define DAY    (86400 * SECOND)

static void test_forms_of_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t key;
        bool of_day;
    } forms[] = {
        {"1:02:03", 3723 * SECOND, true},
        {"01:02:03:000001", 3723 * SECOND + 1000, true},
        {"01:02:03.5", 3723 * SECOND + SECOND / 2, true},
        {"23:59:60.123456789123", DAY + 123456789, true},
        {"1970-01-01 00:00:00", 0, false},
        {"1970-03-01 00:00:01", 59 * DAY + SECOND, false},
        {"1972-02-29T00:00:00", 789 * DAY, false},
        {"1972-03-01T00:00:00", 790 * DAY, false},
        {"1999/12/31 23:59:60", 10957 * DAY, false},
        {"2000-01-01   00:00:00.25", 10957 * DAY + SECOND / 4, false},
        {"2000-02-29 00:00:00", 11016 * DAY, false},
        {"2000-03-01 00:00:00", 11017 * DAY, false},
        {"2026-11-28 17:30:00Z", UINT64_C(1795887000) * SECOND, false},
        {"2026-11-28 18:30:00+01:00", UINT64_C(1795887000) * SECOND, false},
        {"2026-11-28 16:00:00.000000-0130", UINT64_C(1795887000) * SECOND, false},
        {"2026-11-28T19:30:00+02", UINT64_C(1795887000) * SECOND, false},
        {"2100-03-01 00:00:00", 47541 * DAY, false},
        {"12.000000001", 12 * SECOND + 1, false},
        {"1795887000.5", UINT64_C(1795887000) * SECOND + SECOND / 2, false},
        {"7.", 7 * SECOND, false},
        {"7", 7, false},
        {"1795887000000000000", UINT64_C(1795887000) * SECOND, false},
        {"18446744073709551615", UINT64_MAX, false},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        rmm_row row;
        const char *wrong = read_time(forms[i].text, &row);
        if (wrong || row.key != forms[i].key || row.of_day != forms[i].of_day)
            fail_msg("%s: %s, %llu", forms[i].text, wrong ? wrong : "read", (unsigned long long)row.key);
    }
}

static void test_times_that_are_none(void **state)
{
    (void)state;
    static const char *const times[] = {"",
                                        "now",
                                        "24:00:00",
                                        "1:60:00",
                                        "1:00:61",
                                        "1:00",
                                        "1:00:00 PM",
                                        "1:00:00Z",
                                        "1:00:00.5x",
                                        "-1",
                                        "1e5",
                                        "1.5.2",
                                        "0x10",
                                        "28.11.2026",
                                        "2026-11-28",
                                        "2026-11-28 ",
                                        "2026-13-01 1:00:00",
                                        "2026-00-01 1:00:00",
                                        "2026-11-32 1:00:00",
                                        "2026-11-00 1:00:00",
                                        "1969-01-01 1:00:00",
                                        "2026-11/28 1:00:00",
                                        "26-11-28 1:00:00",
                                        "2026-11-28 1:00:00+25",
                                        "2026-11-28 1:00:00+1:60",
                                        "2026-11-28 1:00:00+1:00x",
                                        "2026-11-28 1:00:00X",
                                        "1970-01-01 00:59:00+01:00",
                                        "2026-11-28 1.5",
                                        "18446744073709551616",
                                        "18446744074.0",
                                        "99999999999999999999999999.5"};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        rmm_row row;
        const char *wrong = read_time(times[i], &row);
        if (!wrong || !strstr(wrong, "a time that is none: hh:mm:ss"))
            fail_msg("'%s': %s", times[i], wrong ? wrong : "read");
    }
}

static void test_refusals(void **state)
{
    (void)state;
    rmm_row row;
    assert_null(read_one("a thread,00:00:00,allocate failure,,99,0x2", &row));
    assert_true(row.action == RMM_FAILURE && row.pointer == 0 && row.bytes == 99 && row.stream == 2 && row.thread > 0);
    assert_null(read_one("1,00:00:00,allocate failure,(nil),18446744073709551615,0", &row));
    assert_true(row.bytes == INT64_MAX && row.thread == 1);
    assert_non_null(read_one("1,00:00:00,allocate failure,x,99,0", &row));
    assert_non_null(read_one("1,00:00:00,allocate failure,,,0", &row));
    assert_non_null(read_one("1,00:00:00,allocate,,99,0", &row));
    assert_non_null(read_one("1,00:00:00,free,,99,0", &row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms_of_times),
                                       cmocka_unit_test(test_times_that_are_none), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
