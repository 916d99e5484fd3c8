/* Failures of an engine's own, after which it calls itself unhealthy: it may be the request that is bad, or the
 * instance. */
#include "info.h"
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/model.h>

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
                     5); /* and each of the others once; cuda anew for the first time and the last */
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* What broke an instance has failed; the next request finds one that was loaded anew. */
static void a_broken_instance_is_loaded_anew(void **state)
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

/* Who could not answer requests of one sort may answer those of another. */
static void each_reason_is_tried_for_itself(void **state)
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
    /* Not back and forth: who was left once for a request is no place for one again. */
    b.faults[0] = (fault_plan){"rocm", WEIR_STAGE_LATER_RUN, WEIR_ERR_DRIVER, .times = 1};
    fails(WEIR_ERR_DRIVER, infer_once(model, &out));
    assert_int_equal(b.loads, 3);
    ok(weir_model_destroy(model));
    check_books(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(a_bad_request_moves_nothing),
        test(a_broken_instance_is_loaded_anew),
        test(a_broken_instance_goes_for_lack_of_memory),
        test(one_that_breaks_in_the_middle),
        test(each_reason_is_tried_for_itself),
    };
    return cmocka_run_group_tests_name("ill", tests, bed_begin, bed_end);
}
