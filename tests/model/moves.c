/* How a model moves, row by row of the table in weir/model.h: what is done, what the caller sees, and what is left. */
#include "info.h"
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/model.h>

/* Row 1: it fails as it would anywhere ----------------------------------------------------------------------------- */

static void row_1_a_request_that_would_fail_anywhere(void **state)
{
    (void)state;
    static const weir_status statuses[] = {WEIR_ERR_INVALID, WEIR_ERR_CANCELLED, WEIR_ERR_NOT_FOUND,
                                           WEIR_ERR_CORRUPT, WEIR_ERR_SYSTEM,    WEIR_ERR_BUSY};
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    weir_outputs out;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        b.faults[0] = (fault_plan){"cuda", i ? WEIR_STAGE_LATER_RUN : WEIR_STAGE_FIRST_RUN, statuses[i], .times = 1};
        fails(statuses[i], infer_once(model, &out));
        assert_string_equal(weir_detail(), "cuda would not run it");
        infer_and_release(model);
    }
    assert_int_equal(b.loads, 1);
    assert_int_equal(record_of(model).attempt_count, 1);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Rows 2 and 3: others try it -------------------------------------------------------------------------------------- */

static void row_2_another_candidate_answers(void **state)
{
    (void)state;
    static const weir_status statuses[] = {WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_UNSUPPORTED, WEIR_ERR_DRIVER,
                                           WEIR_ERR_ENGINE};
    for (size_t i = 0; i < 2 * sizeof statuses / sizeof statuses[0]; i++) {
        bed_reset(NULL);
        books before = take_books();
        weir_model *model = opened_on("cuda rocm openvino cpu");
        weir_outputs out;
        bool later = i % 2;
        if (later)
            infer_and_release(model);
        bed_fault("cuda", later ? WEIR_STAGE_LATER_RUN : WEIR_STAGE_FIRST_RUN, statuses[i / 2], -1);
        bed_fault("rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_INVALID, -1); /* whatever it says, it could not */
        ok(infer_once(model, &out));
        assert_string_equal(made_on(&out), "openvino");
        assert_string_equal(provider_of(model), "openvino");
        assert_int_equal(b.loads, 3);
        assert_int_equal(b.alive, 1);
        weir_record record = record_of(model);
        check_attempt(&record, 0, "cuda", later ? WEIR_STAGE_LATER_RUN : WEIR_STAGE_FIRST_RUN, statuses[i / 2]);
        check_attempt(&record, 1, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_INVALID);
        check_attempt(&record, 2, "openvino", WEIR_STAGE_FIRST_RUN, WEIR_OK);
        assert_int_equal(record.attempt_count, 3);
        weir_model_release_outputs(model, &out);
        ok(weir_model_destroy(model));
        check_books(&before);
    }
}

/* A request that no candidate answers moves nothing, and is not tried everywhere again. */
static void row_3_a_request_that_nobody_answers(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    weir_outputs out;
    bed_fault("", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, -1);
    fails(WEIR_ERR_UNSUPPORTED, infer_once(model, &out));
    detail_names("cuda would not run it");
    detail_names("onnx with rocm");
    detail_names("rocm would not run it");
    detail_names("onnx with cpu");
    assert_int_equal(b.runs, 3);
    assert_int_equal(b.loads, 3);
    assert_int_equal(b.alive, 1);
    assert_string_equal(provider_of(model), "cuda");
    fails(WEIR_ERR_UNSUPPORTED, infer_once(model, &out));
    assert_string_equal(weir_detail(), "cuda would not run it");
    assert_int_equal(b.runs, 4);
    assert_int_equal(b.loads, 3);
    b.faults[0].times = 0;
    infer_and_release(model);
    /* They are still there for a model that has no other place. */
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, .times = 1};
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), "rocm");
    weir_model_release_outputs(model, &out);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Who could not answer requests of one sort may answer those of another, also one that the model has left; but it does
 * not go back and forth for ever. */
static void a_candidate_is_tried_once_for_each_status(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm");
    weir_outputs out;
    infer_and_release(model);
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_UNSUPPORTED, .times = 2};
    b.faults[1] = (fault_plan){"rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, .times = 1};
    fails(WEIR_ERR_UNSUPPORTED, infer_once(model, &out));
    fails(WEIR_ERR_UNSUPPORTED, infer_once(model, &out)); /* it is not loaded for each of them */
    assert_int_equal(b.loads, 2);
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_OUT_OF_MEMORY, .times = 1};
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), "rocm");
    weir_model_release_outputs(model, &out);
    b.faults[0] = (fault_plan){"rocm", WEIR_STAGE_LATER_RUN, WEIR_ERR_OUT_OF_MEMORY, .times = 1};
    fails(WEIR_ERR_OUT_OF_MEMORY, infer_once(model, &out));
    assert_string_equal(weir_detail(), "rocm would not run it"); /* cuda was not asked: it had no memory either */
    assert_int_equal(b.loads, 3);
    b.faults[0] = (fault_plan){"rocm", WEIR_STAGE_LATER_RUN, WEIR_ERR_DRIVER, .times = 1};
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), "cuda");
    weir_model_release_outputs(model, &out);
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_DRIVER, .times = 1};
    fails(WEIR_ERR_DRIVER, infer_once(model, &out));
    assert_int_equal(b.loads, 4);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Row 4: the engine is unhealthy ----------------------------------------------------------------------------------- */

/* A request that nobody can answer costs nobody anything, however often it comes. */
static void a_bad_request_moves_nothing(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    weir_outputs out;
    infer_and_release(model);
    b.ill = true;
    for (int i = 0; i < 50; i++) {
        b.faults[0] = (fault_plan){"", WEIR_STAGE_LATER_RUN, WEIR_ERR_ENGINE, .times = -1};
        b.faults[1] = (fault_plan){"", WEIR_STAGE_FIRST_RUN, WEIR_ERR_ENGINE, .times = -1};
        fails(WEIR_ERR_ENGINE, infer_once(model, &out));
        detail_names("cuda would not run it");
        assert_int_equal(b.alive, 1);
        assert_string_equal(provider_of(model), "cuda");
        b.faults[0].times = b.faults[1].times = 0;
        if (i % 3 == 0)
            infer_and_release(model);
    }
    weir_record record = record_of(model);
    check_attempt(&record, 0, "cuda", WEIR_STAGE_LATER_RUN, WEIR_OK);
    assert_int_equal(record.attempt_count,
                     5); /* and each of the others once; cuda again for the first time and the last */
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* What broke an instance has failed; the next request finds one that was loaded again. */
static void row_4_a_broken_instance_is_loaded_again(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda");
    weir_outputs out;
    infer_and_release(model);
    b.ill = true;
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_ENGINE, .times = 1, .breaks = true};
    fails(WEIR_ERR_ENGINE, infer_once(model, &out));
    assert_int_equal(b.loads, 1);
    infer_and_release(model);
    assert_int_equal(b.loads, 2);
    assert_int_equal(b.alive, 1);
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count, 2);
    check_attempt(&record, 0, "cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_ENGINE);
    check_attempt(&record, 1, "cuda", WEIR_STAGE_FIRST_RUN, WEIR_OK);
    infer_and_release(model);
    assert_int_equal(b.loads, 2);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Also where both do not fit beside each other. */
static void a_broken_instance_goes_for_lack_of_memory(void **state)
{
    (void)state;
    books before = take_books();
    b.weights = 40 * MIB;
    weir_model *model = opened_on("cuda");
    weir_outputs out;
    b.ill = true;
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_ENGINE, .times = 1, .breaks = true};
    fails(WEIR_ERR_ENGINE, infer_once(model, &out));
    infer_and_release(model);
    assert_int_equal(b.alive, 1);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static bool hear(const weir_piece *piece, void *user)
{
    (void)piece;
    ++*(int *)user;
    return true;
}

/* After a piece was handed out the request has failed; who comes next goes where it works. */
static void one_that_breaks_in_the_middle(void **state)
{
    (void)state;
    static const char *const providers[] = {"cuda", "cuda rocm"};
    for (size_t i = 0; i < 2; i++) {
        bed_reset(NULL);
        books before = take_books();
        weir_model *model = opened_on(providers[i]);
        weir_inference inference = WEIR_INIT(weir_inference);
        weir_outputs out = WEIR_INIT(weir_outputs);
        int pieces = 0;
        b.ill = true;
        b.faults[0] =
            (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_ENGINE, .times = 1, .pieces = 3, .breaks = true};
        fails(WEIR_ERR_ENGINE, model_infer_stream(model, &inference, hear, &pieces, &out));
        assert_int_equal(pieces, 3);
        assert_int_equal(b.loads, 1);
        ok(infer_once(model, &out));
        assert_string_equal(made_on(&out), i == 0 ? "cuda" : "rocm");
        assert_int_equal(b.loads, 2);
        assert_int_equal(b.alive, 1);
        weir_model_release_outputs(model, &out);
        ok(weir_model_destroy(model));
        check_books(&before);
    }
}

/* Row 5: both have no room ---------------------------------------------------------------------------------------- */

static void row_5_the_one_before_goes_where_both_have_no_room(void **state)
{
    (void)state;
    books before = take_books();
    b.weights = 40 * MIB;
    weir_model *model = opened_on("cuda rocm");
    weir_outputs out;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, 1);
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), "rocm");
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count, 3);
    assert_int_equal(record.attempts[1].status, WEIR_ERR_OUT_OF_MEMORY);
    check_attempt(&record, 0, "cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED);
    check_attempt(&record, 2, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_OK);
    weir_model_release_outputs(model, &out);
    ok(weir_model_destroy(model));
    check_books(&before);
    /* Where the other cannot be loaded at all, the model goes back. */
    b.weights = 40 * MIB;
    model = opened_on("cuda rocm");
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, .times = 2};
    b.faults[1] = (fault_plan){"rocm", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, .times = -1};
    fails(WEIR_ERR_UNSUPPORTED, infer_once(model, &out));
    assert_string_equal(provider_of(model), "cuda");
    assert_int_equal(b.runs, 2 + 2); /* it is made there once more */
    infer_and_release(model);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* A request that fails otherwise there does not go back: where it has failed it is not tried a second time. */
static void a_request_does_not_go_back_and_forth(void **state)
{
    (void)state;
    books before = take_books();
    weir_outputs out;
    b.weights = 40 * MIB;
    weir_model *model = opened_on("cuda rocm");
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, 3);
    bed_fault("rocm", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DRIVER, 3);
    fails(WEIR_ERR_DRIVER, infer_once(model, &out));
    assert_int_equal(b.runs, 2);
    assert_string_equal(provider_of(model), "rocm");
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* What somebody uses stays, and the request has failed. */
static void one_that_is_used_does_not_go_for_lack_of_memory(void **state)
{
    (void)state;
    books before = take_books();
    b.weights = 40 * MIB;
    weir_model *model = opened_on("cuda rocm");
    weir_outputs held, out;
    ok(infer_once(model, &held));
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_UNSUPPORTED, 1);
    fails(WEIR_ERR_UNSUPPORTED, infer_once(model, &out));
    detail_names("onnx with rocm");
    assert_string_equal(provider_of(model), "cuda");
    assert_int_equal(b.unloads, 0);
    weir_model_release_outputs(model, &held);
    infer_and_release(model);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Rows 6 to 8: without a device ------------------------------------------------------------------------------------ */

static void row_6_a_lost_device_is_left(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("tensorrt cuda rocm cpu");
    weir_outputs out;
    bed_fault("tensorrt", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, 1);
    bed_fault("rocm", WEIR_STAGE_LATER_RUN, WEIR_ERR_UNSUPPORTED, 1);
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), "rocm");
    assert_int_equal(b.loads, 2); /* cuda is on the device of tensorrt */
    weir_record record = record_of(model);
    check_attempt(&record, 0, "tensorrt", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST);
    check_attempt(&record, 1, "cuda", WEIR_STAGE_DETECT, WEIR_ERR_DEVICE_LOST);
    check_attempt(&record, 2, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_OK);
    weir_model_release_outputs(model, &out);
    ok(infer_once(model, &out)); /* neither of them comes back */
    assert_string_equal(made_on(&out), "cpu");
    assert_int_equal(record_of(model).attempt_count, 4);
    weir_model_release_outputs(model, &out);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Nor has anybody room for it at first: the request that finds it there again is answered. */
static void row_7_a_model_on_no_device_goes_where_it_is_loaded(void **state)
{
    (void)state;
    books before = take_books();
    weir_outputs out;
    b.weights = 40 * MIB;
    weir_model *model = opened_on("cuda rocm");
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, .times = 1};
    b.faults[1] = (fault_plan){"rocm", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, .times = -1};
    b.faults[2] = (fault_plan){"cuda", WEIR_STAGE_LOAD, WEIR_ERR_OUT_OF_MEMORY, .times = 1};
    fails(WEIR_ERR_UNSUPPORTED, infer_once(model, &out));
    assert_int_equal(b.alive, 0);
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), "cuda");
    assert_int_equal(b.runs, 2);
    weir_model_release_outputs(model, &out);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static void row_8_a_model_that_nobody_loads(void **state)
{
    (void)state;
    books before = take_books();
    weir_model *model = opened_on("cuda rocm cpu");
    weir_outputs out;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, -1);
    bed_fault("rocm", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    bed_fault("cpu", WEIR_STAGE_LOAD, WEIR_ERR_OUT_OF_MEMORY, 2);
    fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
    detail_names("cuda would not run it");
    detail_names("rocm would not load it");
    detail_names("cpu would not load it");
    assert_int_equal(b.alive, 0);
    check_books(&before);
    fails(WEIR_ERR_DEVICE_LOST, weir_model_health(model));
    fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
    detail_names("bert is on no device");
    assert_int_equal(b.loads, 4); /* memory might have been there again; rocm is not asked twice */
    infer_and_release(model);     /* and now it is */
    assert_string_equal(provider_of(model), "cpu");
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* Row 9: while it moves -------------------------------------------------------------------------------------------- */

static void row_9_who_comes_while_it_moves_waits(void **state)
{
    (void)state;
    books before = take_books();
    request first = {.model = opened_on("cuda rocm cpu")}, second = {.model = first.model};
    gate loading = GATE;
    pthread_t threads[2];
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, 1);
    b.inside_load = &loading;
    assert_int_equal(pthread_create(&threads[0], NULL, make_request, &first), 0);
    wait_for(&loading);
    assert_int_equal(pthread_create(&threads[1], NULL, make_request, &second), 0);
    do
        fails(WEIR_ERR_BUSY, weir_model_destroy(first.model));
    while (!strstr(weir_detail(), "2 runs"));
    open_gate(&loading);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ok(first.status);
    ok(second.status);
    assert_string_equal(made_on(&first.out), "rocm");
    assert_string_equal(made_on(&second.out), "rocm");
    assert_int_equal(b.loads, 2);
    assert_int_equal(b.runs, 3);
    weir_model_release_outputs(first.model, &first.out);
    weir_model_release_outputs(first.model, &second.out);
    ok(weir_model_destroy(first.model));
    check_books(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(row_1_a_request_that_would_fail_anywhere),
        test(row_2_another_candidate_answers),
        test(row_3_a_request_that_nobody_answers),
        test(a_candidate_is_tried_once_for_each_status),
        test(a_bad_request_moves_nothing),
        test(row_4_a_broken_instance_is_loaded_again),
        test(a_broken_instance_goes_for_lack_of_memory),
        test(one_that_breaks_in_the_middle),
        test(row_5_the_one_before_goes_where_both_have_no_room),
        test(a_request_does_not_go_back_and_forth),
        test(one_that_is_used_does_not_go_for_lack_of_memory),
        test(row_6_a_lost_device_is_left),
        test(row_7_a_model_on_no_device_goes_where_it_is_loaded),
        test(row_8_a_model_that_nobody_loads),
        test(row_9_who_comes_while_it_moves_waits),
    };
    return cmocka_run_group_tests_name("moves", tests, bed_begin, bed_end);
}
