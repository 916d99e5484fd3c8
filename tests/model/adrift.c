/* A model that is on no device any more: what can still be asked of it, and what its record and its failures say. */
#include "info.h"
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/model.h>

/* Its first candidate is lost, and no other takes it. */
static void lose(weir_model *model)
{
    weir_outputs out;
    memset(b.faults, 0, sizeof b.faults);
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, 1);
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, 1);
    bed_fault("rocm", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    bed_fault("cpu", WEIR_STAGE_LOAD, WEIR_ERR_OUT_OF_MEMORY, -1);
    fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
}

/* Its client is closed, and another model's may lie where it was; what was counted stays true. */
static void what_can_be_asked(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    weir_model_details info = WEIR_INIT(weir_model_details);
    infer_and_release(model);
    assert_non_null(weir_model_client(model));
    lose(model);
    assert_null(weir_model_client(model));
    ok(weir_model_metrics(model, &metrics));
    assert_int_equal(metrics.runs, 1);
    assert_int_equal(metrics.sessions, 0);
    assert_int_equal(metrics.sessions_failed, SESSIONS_FAILED);
    fails(WEIR_ERR_DEVICE_LOST, weir_model_health(model));
    fails(WEIR_ERR_DEVICE_LOST, weir_model_info(model, &info));
    fails(WEIR_ERR_INVALID, weir_model_metrics(model, NULL));
    metrics.struct_size = 0;
    fails(WEIR_ERR_INVALID, weir_model_metrics(model, &metrics));
    b.faults[3].times = 0;
    infer_and_release(model);
    assert_string_equal(client_details(weir_model_client(model)).name, "bert");
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Results that are held are of an instance that goes when they are released. */
static void what_is_held(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    weir_engine_metrics metrics = WEIR_INIT(weir_engine_metrics);
    weir_outputs held;
    ok(infer_once(model, &held));
    lose(model);
    assert_int_equal(b.alive, 1);
    assert_null(weir_model_client(model));
    ok(weir_model_metrics(model, &metrics));
    assert_int_equal(metrics.runs, 1);
    assert_int_equal(metrics.sessions, SESSIONS);
    fails(WEIR_ERR_BUSY, weir_model_destroy(model));
    detail_names("bert has 0 runs under way and 1 results");
    weir_model_release_outputs(model, &held);
    assert_int_equal(b.alive, 0);
    ok(weir_model_metrics(model, &metrics));
    assert_int_equal(metrics.runs, 1);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static size_t times_told(const char *what)
{
    size_t times = 0;
    for (const char *at = weir_detail(); (at = strstr(at, what)); at += strlen(what))
        times++;
    return times;
}

/* Each candidate has one reason: that for which it is not there now. */
static void each_candidate_is_told_once(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda rocm cpu");
    weir_outputs out;
    static const weir_status reasons[] = {WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_DRIVER};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        memset(b.faults, 0, sizeof b.faults);
        bed_fault("", WEIR_STAGE_FIRST_RUN, reasons[i], -1);
        fails(reasons[i], infer_once(model, &out));
    }
    assert_int_equal(record_of(model).attempt_count, 1 + 2 * 3);
    lose(model);
    for (int i = 0; i < 2; i++) { /* also for who comes later */
        assert_int_equal(times_told("onnx with rocm"), 1);
        detail_names("(load): rocm would not load it");
        assert_int_equal(times_told("onnx with cpu"), 1);
        detail_names("(load): cpu would not load it");
        fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
        detail_names("bert is on no device");
    }
    ok(weir_model_destroy(model));
}

/* Of what fails alike the first and the newest are listed, and the others counted. */
static void repetitions_are_counted(void **state)
{
    (void)state;
    weir_model *model = opened_on("cuda rocm cpu");
    weir_outputs out;
    lose(model);
    assert_int_equal(record_of(model).left_out, 0);
    for (size_t i = 0; i < 20; i++) {
        fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
        assert_int_equal(record_of(model).left_out, i); /* the cpu each time; rocm has failed for good */
        assert_int_equal(record_of(model).attempt_count, 4);
    }
    assert_int_equal(b.loads, 3 + 20);
    ok(weir_model_destroy(model));
}

/* Where it runs nowhere it does not run on the processor, either. */
static void the_last_resort_is_lost(void **state)
{
    (void)state;
    wanted w;
    weir_outputs out;
    weir_opening_options options = opening_options(NULL);
    weir_model *model = open_model(wants(&w, "cuda"), &options);
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, 1);
    infer_and_release(model);
    assert_true(record_of(model).on_cpu_unasked);
    bed_fault("cpu", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, 1);
    fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
    assert_false(record_of(model).on_cpu_unasked);
    assert_null(weir_model_client(model));
    ok(weir_model_destroy(model));
}

/* Others are answered while a first request looks for another place: when that is found, what it left has failed. */
static void a_first_request_that_ends_last(void **state)
{
    (void)state;
    books before = take_books();
    request it = {.model = opened_on("cuda rocm")};
    gate loading = GATE;
    pthread_t thread;
    weir_outputs others[2];
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_OUT_OF_MEMORY, 1);
    b.inside_load = &loading;
    assert_int_equal(pthread_create(&thread, NULL, make_request, &it), 0);
    wait_for(&loading);
    ok(infer_once(it.model, &others[0]));
    ok(infer_once(it.model, &others[1]));
    open_gate(&loading);
    pthread_join(thread, NULL);
    ok(it.status);
    assert_string_equal(made_on(&it.out), "rocm");
    weir_record record = record_of(it.model);
    assert_int_equal(record.attempt_count, 2);
    check_attempt(&record, 0, "cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_OUT_OF_MEMORY);
    check_attempt(&record, 1, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_OK);
    weir_model_release_outputs(it.model, &it.out);
    weir_model_release_outputs(it.model, &others[0]);
    weir_model_release_outputs(it.model, &others[1]);
    ok(weir_model_destroy(it.model));
    check_books(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(what_can_be_asked),
        test(what_is_held),
        test(each_candidate_is_told_once),
        test(repetitions_are_counted),
        test(a_first_request_that_ends_last),
        test(the_last_resort_is_lost),
    };
    return cmocka_run_group_tests_name("adrift", tests, bed_begin, bed_end);
}
