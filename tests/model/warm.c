/* Warming a model up: it falls back as a first run does, and the record says what an engine has really done. */
#include "model/bed.h"
#include <weir/model.h>

static void a_warm_up_goes_on_with_the_next(void **state)
{
    (void)state;
    static const weir_status statuses[] = {WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_DRIVER,
                                           WEIR_ERR_ENGINE, WEIR_ERR_DEVICE_LOST};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        bed_reset(NULL);
        books before = take_books();
        weir_model *model = opened_on("cuda rocm");
        bed_fault("cuda", WEIR_STAGE_FIRST_RUN, statuses[i], -1);
        ok(weir_model_warm_up(model));
        assert_string_equal(provider_of(model), "rocm");
        assert_int_equal(b.warm_ups, 2);
        assert_int_equal(b.runs, 0);
        weir_record record = record_of(model);
        assert_int_equal(record.attempt_count, 2);
        check_attempt(&record, 0, "cuda", WEIR_STAGE_FIRST_RUN, statuses[i]);
        check_attempt(&record, 1, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_OK);
        infer_and_release(model);
        ok(weir_model_destroy(model));
        check_books(&before);
    }
}

/* One that nobody can do moves nothing, and what would be the same anywhere is not tried there. */
static void a_warm_up_that_fails(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm");
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_INVALID, 1);
    fails(WEIR_ERR_INVALID, weir_model_warm_up(model));
    assert_int_equal(b.loads, 1);
    b.faults[0] = (fault_plan){"", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, .times = -1};
    fails(WEIR_ERR_UNSUPPORTED, weir_model_warm_up(model));
    detail_names("rocm would not run it");
    assert_string_equal(provider_of(model), "cuda");
    assert_int_equal(b.alive, 1);
    double_onnx.warm_up = NULL;
    fails(WEIR_ERR_UNSUPPORTED, weir_model_warm_up(model));
    detail_names("no warm-up");
    assert_int_equal(b.loads, 2);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* It moves the model as any later run does. */
static void a_later_warm_up(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda rocm");
    infer_and_release(model);
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_INVALID, 1);
    fails(WEIR_ERR_INVALID, weir_model_warm_up(model));
    assert_string_equal(provider_of(model), "cuda");
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, .times = 1};
    ok(weir_model_warm_up(model));
    assert_string_equal(provider_of(model), "rocm");
    ok(weir_model_destroy(model));
}

static void *warm_it(void *user)
{
    request *it = user;
    it->status = weir_model_warm_up(it->model);
    return NULL;
}

static void a_warm_up_under_way(void **state)
{
    (void)state;
    books before = take_books();
    request it = {.model = opened_on("cuda rocm")};
    gate warming = GATE;
    pthread_t thread;
    b.inside_run = &warming;
    assert_int_equal(pthread_create(&thread, NULL, warm_it, &it), 0);
    wait_for(&warming);
    fails(WEIR_ERR_BUSY, weir_model_destroy(it.model));
    ok(weir_model_cancel(it.model, 0)); /* though the engine counts it as no run */
    open_gate(&warming);
    pthread_join(thread, NULL);
    assert_int_equal(it.status, WEIR_ERR_CANCELLED);
    ok(weir_model_destroy(it.model));
    check_books(&before);
}

/* An engine without a warm-up has not run when the model is open. */
static void a_first_run_that_was_none(void **state)
{
    (void)state;
    wanted w;
    weir_opening_options options = opening_options(NULL);
    options.first_run = true;
    double_onnx.warm_up = NULL;
    weir_model *model = open_model(wants(&w, "cuda rocm cpu"), &options);
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count, 1);
    check_attempt(&record, 0, "cuda", WEIR_STAGE_LOAD, WEIR_OK);
    infer_and_release(model);
    record = record_of(model);
    check_attempt(&record, 0, "cuda", WEIR_STAGE_FIRST_RUN, WEIR_OK);
    ok(weir_model_destroy(model));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(a_warm_up_goes_on_with_the_next),
        test(a_warm_up_that_fails),
        test(a_later_warm_up),
        test(a_warm_up_under_way),
        test(a_first_run_that_was_none),
    };
    return cmocka_run_group_tests_name("warm", tests, bed_begin, bed_end);
}
