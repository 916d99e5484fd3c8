/* How much of a model its provider runs: what the manifest wants of it, after the load, and what a forbidden processor
 * leaves. */
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>

/* Opens on cuda, or else on rocm; answers why it is not on cuda, "" where it is. */
static const char *why_not_on_cuda(double coverage, weir_cpu_use cpu, double share)
{
    static char reason[512];
    wanted w;
    weir_opening_options options = opening_options(NULL);
    w.manifest = *wants(&w, "cuda cpu");
    w.manifest.requirements.min_coverage = coverage;
    w.manifest.requirements.cpu = cpu;
    b.share = share;
    weir_model *model = NULL;
    weir_status status = weir_model_create_chosen(&w.manifest, &options, &model);
    reason[0] = '\0';
    if (status != WEIR_OK) {
        assert_int_equal(status, WEIR_ERR_UNSUPPORTED);
        snprintf(reason, sizeof reason, "%s", weir_detail());
        return reason;
    }
    weir_record record = record_of(model);
    assert_int_equal(record.attempts[0].parts, (uint64_t)(share * 100)); /* also of what was refused */
    assert_int_equal(record.attempts[0].of, share > 0 ? 100 : 0);
    if (record.attempts[0].status != WEIR_OK) {
        check_attempt(&record, 0, "cuda", WEIR_STAGE_LOAD, WEIR_ERR_UNSUPPORTED);
        check_attempt(&record, 1, "cpu", WEIR_STAGE_LOAD, WEIR_OK);
        snprintf(reason, sizeof reason, "%s", record.attempts[0].reason);
    }
    ok(weir_model_destroy(model));
    return reason;
}

/* Every whole percentage is met by exactly that many of a hundred parts, and by none less. */
static void each_share_is_met_exactly(void **state)
{
    (void)state;
    books before = take_books();
    for (int percent = 1; percent < 100; percent++) {
        assert_string_equal(why_not_on_cuda(percent / 100.0, WEIR_CPU_LAST, (percent + 0.5) / 100), "");
        if (percent > 1)
            assert_string_not_equal(why_not_on_cuda(percent / 100.0, WEIR_CPU_LAST, (percent - 0.5) / 100), "");
    }
    check_books(&before);
}

static void a_refusal_names_both_shares(void **state)
{
    (void)state;
    assert_string_equal(why_not_on_cuda(0.95, WEIR_CPU_LAST, 0.945),
                        "cuda runs 94 % of the model (cuda 94, cpu 6 of 100 parts), and the manifest wants 95 %: its "
                        "min_provider_coverage, or another provider");
    assert_string_equal(
        why_not_on_cuda(0.5, WEIR_CPU_LAST, 0),
        "the engine cannot tell how much of the model it runs, and the manifest wants 50 % of it on cuda");
}

/* A model that is another provider's in name alone runs on the processor: where that is forbidden it is refused, though
 * nothing is said about coverage. A part of it may run there. */
static void a_forbidden_processor_does_not_run_all_of_it(void **state)
{
    (void)state;
    books before = take_books();
    assert_string_equal(why_not_on_cuda(0, WEIR_CPU_FORBIDDEN, 0.015), "");
    assert_string_equal(why_not_on_cuda(0, WEIR_CPU_LAST, 0.001), "");
    const char *reason = why_not_on_cuda(0, WEIR_CPU_FORBIDDEN, 0.001);
    assert_non_null(strstr(reason, "cuda runs none of the model's 100 parts and leaves all to the processor, which is "
                                   "forbidden"));
    wanted w;
    weir_model *model = NULL;
    weir_choice_options choice = WEIR_INIT(weir_choice_options);
    weir_opening_options options = opening_options(&choice);
    choice.no_cpu = true;
    fails(WEIR_ERR_UNSUPPORTED, weir_model_create_chosen(wants(&w, "cuda"), &options, &model));
    detail_names("which is forbidden");
    assert_null(model);
    check_books(&before);
}

static size_t notices_of(const char *what)
{
    size_t found = 0;
    for (size_t i = 0; i < b.notice_count; i++)
        found += strstr(b.notices[i], what) != NULL;
    return found;
}

/* The parts that other providers leave to it are told, each time that the model gets a place. */
static void a_forbidden_processor_is_never_silent(void **state)
{
    (void)state;
    wanted w;
    weir_choice_options choice = WEIR_INIT(weir_choice_options);
    weir_opening_options options = opening_options(&choice);
    for (int forbidden = 0; forbidden <= 1; forbidden++) {
        bed_reset(NULL);
        choice.no_cpu = forbidden;
        b.share = 0.94;
        weir_model *model = open_model(wants(&w, "cuda rocm"), &options);
        assert_int_equal(notices_of("bert: cuda leaves 6 of 100 parts to the processor"), forbidden);
        b.share = 0.5;
        bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_OUT_OF_MEMORY, 1);
        infer_and_release(model);
        assert_int_equal(notices_of("bert: rocm leaves 50 of 100 parts to the processor"), forbidden);
        assert_int_equal(b.notice_count, 1 + 2 * forbidden);
        ok(weir_model_destroy(model));
        b.share = 1; /* nothing to be told */
        b.notice_count = 0;
        ok(weir_model_destroy(open_model(wants(&w, "cuda"), &options)));
        assert_int_equal(b.notice_count, 0);
    }
}

/* Where the model moves, the next provider has to run as much. */
static void the_next_has_to_cover_as_much(void **state)
{
    (void)state;
    wanted w;
    weir_model *model = NULL;
    weir_outputs out;
    w.manifest = *wants(&w, "cuda rocm");
    w.manifest.requirements.min_coverage = 0.5;
    w.manifest.requirements.cpu = WEIR_CPU_FORBIDDEN;
    weir_opening_options options = opening_options(NULL);
    b.share = 0.9;
    model = open_model(&w.manifest, &options);
    b.share = 0.4;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_OUT_OF_MEMORY, 1);
    fails(WEIR_ERR_OUT_OF_MEMORY, infer_once(model, &out));
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count, 2);
    assert_int_equal(record.attempts[0].parts, 90);
    assert_int_equal(record.attempts[1].parts, 40);
    check_attempt(&record, 1, "rocm", WEIR_STAGE_LOAD, WEIR_ERR_UNSUPPORTED);
    assert_non_null(strstr(record.attempts[1].reason, "rocm runs 40 % of the model"));
    ok(weir_model_destroy(model));
}

int main(void)
{
#define test(f) cmocka_unit_test_setup(f, bed_reset)
    const struct CMUnitTest tests[] = {
        test(each_share_is_met_exactly),
        test(a_refusal_names_both_shares),
        test(a_forbidden_processor_does_not_run_all_of_it),
        test(a_forbidden_processor_is_never_silent),
        test(the_next_has_to_cover_as_much),
    };
    return cmocka_run_group_tests_name("model coverage", tests, bed_begin, bed_end);
}
