/* A device that is really lost, as far as weir can tell: CUDA's stub answers every call with 719 from then on. */
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/model.h>

#include <dlfcn.h>

static void lose_device(void)
{
    void (*lose)(bool);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    void *symbol = dlsym(library, "stub_lose");
    assert_non_null(symbol);
    memcpy(&lose, &symbol, sizeof symbol);
    lose(true);
    dlclose(library);
}

static weir_status agree(weir_engine_model *model, weir_engine_leaving *out)
{
    (void)model;
    (void)out;
    return WEIR_OK;
}

/* What is live when it happens is given back in the ledger all the same; what is held goes last. */
static void a_lost_device_leaves_nothing(void **state)
{
    (void)state;
    wanted w;
    weir_outputs held, out;
    books before = take_books();
    weir_opening_options options = opening_options(NULL);
    weir_model_presence presence = WEIR_INIT(weir_model_presence);
    double_onnx.suspend = agree;
    b.weights = 4 * MIB; /* a chunk of its own */
    weir_model *away = open_model(wants(&w, "cuda cpu"), &options);
    infer_and_release(away);
    weir_model_suspend_options nothing = WEIR_INIT(weir_model_suspend_options);
    nothing.drop = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS); /* so that no page-locked memory is lost with the device */
    ok(weir_model_suspend(away, &nothing, NULL));
    b.weights = WEIGHTS;
    weir_model *model = open_model(wants(&w, "tensorrt cuda cpu"), &options);
    ok(infer_once(model, &held));
    assert_string_equal(made_on(&held), "tensorrt");
    lose_device();
    b.scratch = 16 * MIB; /* cannot be had without the driver */
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), "cpu");
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count, 3);
    check_attempt(&record, 0, "tensorrt", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST);
    check_attempt(&record, 1, "cuda", WEIR_STAGE_DETECT, WEIR_ERR_DEVICE_LOST);
    check_attempt(&record, 2, "cpu", WEIR_STAGE_FIRST_RUN, WEIR_OK);
    assert_non_null(strstr(record.attempts[0].reason, "lost to this process"));
    weir_model_release_outputs(model, &held);
    weir_model_release_outputs(model, &out);
    assert_int_equal(b.alive, 2);
    infer_and_release(model);
    /* One that was away cannot come back: it is moved like any other, and is here then. */
    ok(weir_model_residency(away, &presence));
    assert_int_equal(presence.state, WEIR_SUSPENDED);
    assert_int_equal(presence.away, 4 * MIB);
    ok(infer_once(away, &out));
    assert_string_equal(made_on(&out), "cpu");
    weir_model_release_outputs(away, &out);
    ok(weir_model_residency(away, &presence));
    assert_int_equal(presence.state, WEIR_RESIDENT);
    assert_int_equal(presence.resumes, 0);
    ok(weir_model_suspend(away, NULL, NULL)); /* from where it is now */
    infer_and_release(away);
    ok(weir_model_destroy(away));
    /* Another model finds out for itself, and is opened where it can be. */
    weir_model *other = open_model(wants(&w, "cuda cpu"), &options);
    infer_and_release(other);
    record = record_of(other);
    check_attempt(&record, record.attempt_count - 1, "cpu", WEIR_STAGE_FIRST_RUN, WEIR_OK);
    ok(weir_model_destroy(other));
    ok(weir_model_destroy(model));
    check_books(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_lost_device_leaves_nothing, bed_reset),
    };
    return cmocka_run_group_tests_name("lost", tests, bed_begin, bed_end);
}
