/* The order of rows: what happened first where the clock passed midnight or was set back, and where the rows of several
 * threads were written one thread after another. */
#include "../core/core.h"

#include "trace/readers.h"

#define AT(hours, minutes) ((hours)*3600u + (minutes)*60u)
#define DAY                (24 * 3600u)

enum { ROWS = 16 };

/* A row as it stands in the file: the thread, the seconds of the day, '+' or '-', the pointer; and its place in the
 * order that is wanted, with the hours of the days before. */
typedef struct made {
    unsigned thread, seconds;
    char action;
    unsigned pointer;
} made;

static size_t fill(row_step *rows, const made *list)
{
    size_t count = 0;
    for (; list[count].action; count++)
        rows[count] = (row_step){.logged = list[count].seconds * UINT64_C(1000000000),
                                 .thread = list[count].thread,
                                 .pointer = list[count].pointer,
                                 .place = count,
                                 .action = list[count].action == '+' ? RMM_ALLOCATE : RMM_FREE,
                                 .of_day = true};
    return count;
}

/* `wanted`: the places, in the order in which the rows happened; NULL: that of the file. */
static void check(const made *list, bool threaded, const size_t *wanted)
{
    row_step rows[ROWS];
    size_t count = fill(rows, list);
    ok(rows_sort(rows, count, threaded));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].place, wanted ? wanted[i] : i);
        assert_true(i == 0 || rows[i].time >= rows[i - 1].time);
    }
}

static void test_days(void **state)
{
    (void)state;
    static const made nights[] = {{1, AT(23, 0), '+', 1},
                                  {1, AT(0, 30), '-', 1},
                                  {1, AT(13, 0), '+', 1},
                                  {1, AT(23, 30), '-', 1},
                                  {1, AT(0, 1), '+', 1},
                                  {1, AT(13, 30), '-', 1},
                                  {0}};
    row_step rows[ROWS];
    check(nights, true, NULL);
    check(nights, false, NULL);
    size_t count = fill(rows, nights);
    ok(rows_sort(rows, count, true));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(rows[i].time / 1000000000, nights[i].seconds + (i > 3 ? 2 : i > 0) * DAY);
}

/* The other threads are new on the next day, or come back then. */
static void test_three_threads_over_midnight(void **state)
{
    (void)state;
    check((const made[]){{1, AT(23, 0), '+', 1},
                         {2, AT(23, 10), '+', 2},
                         {2, AT(0, 30), '-', 1},
                         {3, AT(0, 31), '+', 1},
                         {1, AT(0, 32), '-', 2},
                         {3, AT(13, 0), '-', 1},
                         {1, AT(13, 1), '+', 1},
                         {4, AT(23, 5), '-', 1},
                         {0}},
          true, NULL);
    check((const made[]){{1, AT(21, 0), '+', 1}, {2, AT(9, 30), '-', 1}, {3, AT(9, 31), '+', 1}, {0}}, true, NULL);
    check((const made[]){{1, AT(21, 0), '+', 1}, {2, AT(9, 30), '+', 2}, {3, AT(9, 31), '+', 3}, {0}}, true, NULL);
}

static void test_summer_time_ends(void **state)
{
    (void)state;
    const made one[] = {
        {7, AT(2, 10), '+', 1}, {7, AT(2, 50), '-', 1}, {7, AT(2, 5), '+', 1}, {7, AT(2, 20), '-', 1}, {0}};
    check(one, true, NULL);
    check(one, false, NULL);
    check((const made[]){{1, AT(2, 30), '+', 1},
                         {2, AT(2, 55), '+', 2},
                         {1, AT(2, 0), '-', 2},
                         {2, AT(2, 4), '-', 1},
                         {3, AT(2, 5), '+', 1},
                         {2, AT(2, 58), '+', 2},
                         {1, AT(3, 1), '-', 1},
                         {0}},
          true, NULL);
    /* Of threads that share nothing, too. */
    check(
        (const made[]){
            {1, AT(2, 50), '+', 1}, {2, AT(1, 55), '+', 2}, {1, AT(2, 1), '+', 3}, {2, AT(2, 2), '+', 4}, {0}},
        true, (const size_t[]){1, 0, 2, 3});
}

static void test_a_clock_that_is_corrected(void **state)
{
    (void)state;
    check((const made[]){{1, 100, '+', 1}, {1, 97, '-', 1}, {2, 98, '+', 1}, {1, 99, '-', 1}, {0}}, true, NULL);
    check((const made[]){{1, 100, '+', 1}, {2, 97, '-', 1}, {1, 98, '+', 1}, {2, 99, '-', 1}, {0}}, true, NULL);
}

/* Three threads whose rows stand one thread after another, without and over midnight. */
static void test_threads_written_late(void **state)
{
    (void)state;
    const size_t wanted[] = {0, 3, 5, 1, 4, 6, 2};
    for (unsigned start = 0; start < DAY; start += DAY - 4) {
        made list[] = {{1, 0, '+', 1}, {1, 3, '-', 2}, {1, 6, '-', 3}, {2, 1, '+', 2},
                       {2, 4, '+', 2}, {3, 2, '-', 1}, {3, 5, '+', 3}, {0}};
        for (made *one = list; one->action; one++)
            one->seconds = (one->seconds + start) % DAY;
        check(list, true, wanted);
        if (start == 0)
            check(list, false, wanted);
    }
}

/* What one thread did stays in its order, whatever the times say. */
static void test_rows_of_one_thread_stay(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 3000; round++) {
        made list[ROWS] = {{0}};
        row_step rows[ROWS];
        for (size_t i = 0; i + 1 < ROWS; i++)
            list[i] = (made){(unsigned)(next_random(&seed) % 3), (unsigned)(next_random(&seed) % DAY),
                             next_random(&seed) % 2 ? '+' : '-', (unsigned)(next_random(&seed) % 4)};
        size_t count = fill(rows, list), last[3] = {0};
        ok(rows_sort(rows, count, true));
        for (size_t i = 0; i < count; i++) {
            assert_true(rows[i].place + 1 > last[rows[i].thread]);
            last[rows[i].thread] = rows[i].place + 1;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_days),
                                       cmocka_unit_test(test_three_threads_over_midnight),
                                       cmocka_unit_test(test_summer_time_ends),
                                       cmocka_unit_test(test_a_clock_that_is_corrected),
                                       cmocka_unit_test(test_threads_written_late),
                                       cmocka_unit_test(test_rows_of_one_thread_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
