/* How many threads may wait for one another beside other processes. */
#include "cores/crowd.h"

#include "core/core.h"

static const wi_crowd_sample quiet = {WI_CROWD_WINDOW, WI_CROWD_WINDOW, 0},
                             crowded = {WI_CROWD_WINDOW, WI_CROWD_WINDOW / 3, 5};

/* So many windows with as many threads as are allowed. */
static void see(wi_crowd *crowd, uint32_t cores, const wi_crowd_sample *sample, int windows)
{
    while (windows-- > 0)
        wi_crowd_add(crowd, cores, crowd->limit, sample);
}

static void fewer_threads_where_they_are_put_off(void **state)
{
    (void)state;
    wi_crowd crowd;
    wi_crowd_begin(&crowd, 2);
    see(&crowd, 2, &quiet, 100);
    assert_int_equal(crowd.limit, 2);
    assert_true(wi_crowd_add(&crowd, 2, 2, &crowded));
    assert_int_equal(crowd.limit, 1);
    see(&crowd, 2, &crowded, 100); /* one thread is the least, and nothing is tried in a crowd */
    assert_int_equal(crowd.limit, 1);
    see(&crowd, 2, &quiet, 3);
    assert_int_equal(crowd.limit, 2);
}

static void time_alone_is_no_crowd(void **state)
{
    (void)state;
    wi_crowd crowd;
    wi_crowd_begin(&crowd, 4);
    /* A file is read; somebody else runs for a moment. */
    see(&crowd, 4, &(wi_crowd_sample){WI_CROWD_WINDOW, WI_CROWD_WINDOW / 3, 0}, 10);
    see(&crowd, 4, &(wi_crowd_sample){WI_CROWD_WINDOW, WI_CROWD_WINDOW - WI_CROWD_WINDOW / 10, 3}, 10);
    assert_int_equal(crowd.limit, 4);
    /* Short leases are judged together. */
    wi_crowd_sample part = {WI_CROWD_WINDOW / 4, WI_CROWD_WINDOW / 8, 1};
    for (int i = 0; i < 3; i++)
        assert_false(wi_crowd_add(&crowd, 4, 4, &part));
    assert_true(wi_crowd_add(&crowd, 4, 4, &part));
    assert_int_equal(crowd.limit, 3);
}

static void many_threads_become_few_soon(void **state)
{
    (void)state;
    wi_crowd crowd;
    wi_crowd_begin(&crowd, 64);
    see(&crowd, 64, &crowded, 1);
    assert_int_equal(crowd.limit, 48);
    see(&crowd, 64, &crowded, 20);
    assert_int_equal(crowd.limit, 1);
    see(&crowd, 64, &quiet, 200);
    assert_int_equal(crowd.limit, 64);
    /* Models that share have fewer anyway: what these see holds for fewer still. */
    wi_crowd_add(&crowd, 64, 8, &crowded);
    assert_int_equal(crowd.limit, 6);
}

/* Windows until more are tried. */
static int windows_until_tried(wi_crowd *crowd)
{
    int windows = 0;
    while (crowd->limit == 1 && ++windows < 10000)
        wi_crowd_add(crowd, 2, 1, &quiet);
    return windows;
}

static void attempts_in_vain_become_rare(void **state)
{
    (void)state;
    wi_crowd crowd;
    wi_crowd_begin(&crowd, 2);
    see(&crowd, 2, &crowded, 1);
    static const int wanted[] = {3, 5, 10, 20, 40, 80, 160, 160, 160};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_int_equal(windows_until_tried(&crowd), wanted[i]);
        wi_crowd_add(&crowd, 2, 1, &crowded); /* no attempt: it had one thread */
        see(&crowd, 2, &crowded, crowd.limit == 2);
        assert_int_equal(crowd.limit, 1);
    }
    /* One that does good makes the next one early again. */
    windows_until_tried(&crowd);
    see(&crowd, 2, &quiet, 1);
    see(&crowd, 2, &crowded, 1);
    assert_int_equal(windows_until_tried(&crowd), 3);
}

static uint64_t time_of_thread(void)
{
    struct timespec ran;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return (uint64_t)ran.tv_sec * UINT64_C(1000000000) + (uint64_t)ran.tv_nsec;
}

/* Times that are as old as the last tick make a window of 20 ms look like a crowd's. */
static void what_a_thread_ran_is_not_of_the_last_tick(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t before = time_of_thread();
        wi_crowd_sample now = wi_crowd_look(7);
        assert_in_range(now.ran, before, time_of_thread());
        assert_int_equal(now.passed, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fewer_threads_where_they_are_put_off),
        cmocka_unit_test(time_alone_is_no_crowd),
        cmocka_unit_test(many_threads_become_few_soon),
        cmocka_unit_test(attempts_in_vain_become_rare),
        cmocka_unit_test(what_a_thread_ran_is_not_of_the_last_tick),
    };
    return cmocka_run_group_tests_name("cores-crowd", tests, NULL, NULL);
}
