/* Seven providers, five stages: what fails goes on with the right candidate, once, and leaves the ledgers as they were.
 * That D30 does not come back: a fallback is not for what is constructed alone. */
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/select.h>
#include <weir/model.h>

/* The providers in their usual order, `first` before the others. */
static const char *listed(const char *first, char text[200])
{
    snprintf(text, 200, "%s", first);
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
        if (strcmp(provider_names[i], first) != 0) {
            strcat(text, " ");
            strcat(text, provider_names[i]);
        }
    return text;
}

/* The manifest's order, also of the processor. */
static weir_choice_options in_order = {.struct_size = sizeof(weir_choice_options), .policy = "manifest"};

/* The candidate that has to come after number 0; those of a lost device are passed over. */
static size_t successor(const weir_choice *choice, weir_status status)
{
    size_t next = 1;
    while (status == WEIR_ERR_DEVICE_LOST && strcmp(choice->candidates[next].device, choice->candidates[0].device) == 0)
        next++;
    assert_true(next < choice->accepted);
    return next;
}

/* Attempts: the one that failed; those of its device if that was lost; the one that serves. */
static void check_record(weir_model *model, const char *provider, weir_stage stage, weir_status status,
                         weir_stage reached)
{
    weir_record record = record_of(model);
    size_t next = successor(record.choice, status);
    assert_int_equal(record.attempt_count, next + 1);
    check_attempt(&record, 0, provider, stage, status);
    for (size_t i = 1; i < next; i++)
        check_attempt(&record, i, record.choice->candidates[i].provider, WEIR_STAGE_DETECT, WEIR_ERR_DEVICE_LOST);
    check_attempt(&record, next, record.choice->candidates[next].provider, reached, WEIR_OK);
    assert_int_equal(b.notice_count, next);
    for (size_t i = 0; i < b.notice_count; i++)
        assert_non_null(strstr(b.notices[i], record.attempts[i].reason));
    assert_false(record.on_cpu_unasked); /* the manifest lists cpu */
}

static void inject(const char *provider, weir_stage stage, weir_status status)
{
    if (stage == WEIR_STAGE_CONSTRUCT)
        b.fail_construct = 1;
    else if (stage == WEIR_STAGE_DETECT) {
        wanted w;
        char text[200];
        weir_choice *choice = choose(wants(&w, listed(provider, text)), &in_order);
        snprintf(b.hidden, sizeof b.hidden, "%s", choice->candidates[0].device);
        weir_choice_destroy(choice);
        b.looks = 0;
    } else
        bed_fault(provider, stage, status, 1);
}

/* A device is looked for once more after the choice; the processor does not go away. Answers whether it is that. */
static bool opens_on_processor(const char *provider)
{
    wanted w;
    char text[200];
    bed_reset(NULL);
    weir_opening_options options = opening_options(&in_order);
    weir_model *model = open_model(wants(&w, listed(provider, text)), &options);
    weir_record record = record_of(model);
    assert_string_equal(record.choice->candidates[0].provider, provider);
    bool on_processor = strcmp(record.choice->candidates[0].device, "cpu") == 0;
    assert_int_equal(b.looks, on_processor ? 1 : 2);
    ok(weir_model_destroy(model));
    return on_processor;
}

/* A failure before the model is there: another is. */
static void opening_fails(const char *provider, weir_stage stage, weir_status status)
{
    wanted w;
    char text[200];
    weir_outputs out;
    bed_reset(NULL);
    books before = take_books();
    inject(provider, stage, status);
    weir_opening_options options = opening_options(&in_order);
    weir_model *model = open_model(wants(&w, listed(provider, text)), &options);
    weir_record record = record_of(model);
    assert_string_equal(record.choice->candidates[0].provider, provider);
    size_t served = record.attempt_count - 1;
    /* What else is on a device that is gone fails as it did. */
    for (size_t i = 0; i < served; i++)
        assert_string_equal(record.attempts[i].device, record.attempts[0].device);
    check_attempt(&record, 0, provider, stage, status);
    assert_string_equal(record.attempts[served].provider, record.choice->candidates[served].provider);
    if (stage != WEIR_STAGE_DETECT && status != WEIR_ERR_DEVICE_LOST)
        assert_int_equal(served, 1);
    assert_int_equal(b.alive, 1);
    ok(infer_once(model, &out));
    assert_string_equal(made_on(&out), record.attempts[served].provider);
    assert_int_equal(b.runs, 1);
    weir_model_release_outputs(model, &out);
    ok(weir_model_destroy(model));
    check_books(&before);
}

/* A failure of a run: the request is answered elsewhere, once. */
static void run_fails(const char *provider, weir_stage stage, weir_status status)
{
    wanted w;
    char text[200];
    weir_outputs out;
    bed_reset(NULL);
    books before = take_books();
    weir_opening_options options = opening_options(&in_order);
    weir_model *model = open_model(wants(&w, listed(provider, text)), &options);
    assert_string_equal(record_of(model).choice->candidates[0].provider, provider);
    inject(provider, stage, status);
    if (stage == WEIR_STAGE_LATER_RUN)
        infer_and_release(model);
    b.runs = b.answers = 0;
    ok(infer_once(model, &out));
    assert_int_equal(b.runs, 2); /* the one that failed, and the one that answered */
    assert_int_equal(b.answers, 1);
    check_record(model, provider, stage, status, WEIR_STAGE_FIRST_RUN);
    weir_record record = record_of(model);
    assert_string_equal(made_on(&out), record.attempts[record.attempt_count - 1].provider);
    assert_int_equal(b.alive, 1); /* the one before is gone already */
    weir_model_release_outputs(model, &out);
    infer_and_release(model);
    check_record(model, provider, stage, status, WEIR_STAGE_LATER_RUN);
    assert_int_equal(b.loads, 2);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static void detect(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
        if (!opens_on_processor(provider_names[i]))
            opening_fails(provider_names[i], WEIR_STAGE_DETECT, WEIR_ERR_NOT_FOUND);
}

static void construct(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
        opening_fails(provider_names[i], WEIR_STAGE_CONSTRUCT, WEIR_ERR_DRIVER);
}

static void load(void **state)
{
    (void)state;
    static const weir_status statuses[] = {WEIR_ERR_ENGINE, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_UNSUPPORTED,
                                           WEIR_ERR_DEVICE_LOST};
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
        for (size_t k = 0; k < sizeof statuses / sizeof statuses[0]; k++)
            opening_fails(provider_names[i], WEIR_STAGE_LOAD, statuses[k]);
}

static void first_run(void **state)
{
    (void)state;
    static const weir_status statuses[] = {WEIR_ERR_ENGINE, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_UNSUPPORTED,
                                           WEIR_ERR_DEVICE_LOST, WEIR_ERR_DRIVER};
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
        for (size_t k = 0; k < sizeof statuses / sizeof statuses[0]; k++)
            run_fails(provider_names[i], WEIR_STAGE_FIRST_RUN, statuses[k]);
}

static void later_run(void **state)
{
    (void)state;
    static const weir_status statuses[] = {WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_UNSUPPORTED, WEIR_ERR_DEVICE_LOST,
                                           WEIR_ERR_DRIVER};
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
        for (size_t k = 0; k < sizeof statuses / sizeof statuses[0]; k++)
            run_fails(provider_names[i], WEIR_STAGE_LATER_RUN, statuses[k]);
}

/* The first run can be made while opening; what fails in it never sees a request. */
static void first_run_while_opening(void **state)
{
    (void)state;
    wanted w;
    books before = take_books();
    weir_opening_options options = opening_options(NULL);
    options.first_run = true;
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_ENGINE, 1);
    weir_model *model = open_model(wants(&w, "cuda rocm cpu"), &options);
    weir_record record = record_of(model);
    assert_int_equal(record.attempt_count, 2);
    check_attempt(&record, 0, "cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_ENGINE);
    check_attempt(&record, 1, "rocm", WEIR_STAGE_FIRST_RUN, WEIR_OK);
    assert_int_equal(b.runs, 0);
    ok(weir_model_destroy(model));
    check_books(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(detect), test(construct), test(load), test(first_run), test(later_run), test(first_run_while_opening),
    };
    return cmocka_run_group_tests_name("stages", tests, bed_begin, bed_end);
}
