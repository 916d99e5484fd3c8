/* runs.c: a cancel finds runs by their number, one computes at a time, and each run counts once. */
#include "core/core.h"
#include "engines/text/text.h"

static void tell(void *user, wt_run *run)
{
    *(uint64_t *)user += run->id;
}

static void test_a_cancel_finds_all_runs_of_a_number(void **state)
{
    (void)state;
    wt_runs runs = {0};
    wt_run run[3];
    uint64_t told = 0;
    wt_runs_open(&runs);
    for (uint64_t i = 0; i < 3; i++)
        wt_run_begin(&runs, &run[i], i < 2 ? 7 : 8);
    ok(wt_runs_cancel(&runs, 7, NULL, tell, &told));
    assert_int_equal(told, 14);
    assert_true(wt_run_is_stopped(&run[0]) && wt_run_is_stopped(&run[1]) && !wt_run_is_stopped(&run[2]));
    assert_true(wt_run_was_stopped(&runs, &run[0]));
    assert_false(wt_run_was_stopped(&runs, &run[2]));
    fails(WEIR_ERR_NOT_FOUND, wt_runs_cancel(&runs, 8, NULL, NULL, NULL));
    ok(wt_runs_cancel(&runs, 0, NULL, NULL, NULL));
    for (size_t i = 0; i < 3; i++)
        wt_run_end(&runs, &run[i], WEIR_OK, 0, 0);
    fails(WEIR_ERR_NOT_FOUND, wt_runs_cancel(&runs, 0, NULL, NULL, NULL));
    wt_runs_close(&runs);
}

static void test_order_and_figures(void **state)
{
    (void)state;
    wt_runs runs = {0};
    wt_run first, second;
    weir_engine_metrics now = {.struct_size = sizeof now};
    wt_runs_open(&runs);
    wt_run_begin(&runs, &first, 1);
    wt_run_begin(&runs, &second, 2);
    ok(wt_runs_enter(&runs, &first));
    ok(wt_runs_cancel(&runs, 2, NULL, NULL, NULL));
    fails(WEIR_ERR_CANCELLED, wt_runs_enter(&runs, &second));
    assert_ptr_equal(atomic_load(&runs.active), &first);
    wt_runs_leave(&runs, 0.5);
    assert_null(atomic_load(&runs.active));
    wt_run_end(&runs, &first, WEIR_OK, 3, 4);
    wt_run_end(&runs, &second, WEIR_ERR_CANCELLED, 1, 0);
    ok(wt_runs_metrics(&runs, &now));
    assert_int_equal(now.runs, 1);
    assert_int_equal(now.cancelled, 1);
    assert_int_equal(now.failures, 0);
    assert_int_equal(now.tokens_in, 4);
    assert_int_equal(now.tokens_out, 4);
    assert_true(now.busy_seconds == 0.5);
    wt_runs_close(&runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cancel_finds_all_runs_of_a_number),
        cmocka_unit_test(test_order_and_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
