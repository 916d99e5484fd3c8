/* Opening: what is asked for, exactly or as far as it goes; the last resort; what is left of what could not be. */
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>
#include <weir/predict.h>

#include <sys/stat.h>
#include <unistd.h>

static weir_status open_with(const weir_manifest *manifest, const weir_choice_options *choice, weir_model **out)
{
    weir_choice_options asked = choice ? *choice : (weir_choice_options){.struct_size = sizeof asked};
    weir_opening_options options = opening_options(&asked);
    return weir_model_create_chosen(manifest, &options, out);
}

static void exactly_this_or_an_error(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    books before = take_books();
    weir_choice_options choice = WEIR_INIT(weir_choice_options);
    choice.provider = "rocm";
    ok(open_with(wants(&w, "cuda cpu"), &choice, &model));
    weir_record record = record_of(model);
    assert_int_equal(record.choice->accepted, 1);
    check_attempt(&record, 0, "rocm", WEIR_STAGE_LOAD, WEIR_OK);
    ok(weir_model_destroy(model));
    bed_fault("rocm", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, 1);
    fails(WEIR_ERR_ENGINE, open_with(wants(&w, "cuda cpu"), &choice, &model));
    assert_null(model);
    assert_string_equal(weir_detail(), "rocm would not load it");
    choice.provider = NULL;
    choice.device = "metal:0";
    fails(WEIR_ERR_UNSUPPORTED, open_with(wants(&w, "cuda"), &choice, &model));
    detail_names("model.onnx: policy fastest");
    detail_names("the manifest lists cuda, and not coreml");
    choice.device = NULL;
    choice.engine = "nonesuch";
    fails(WEIR_ERR_INVALID, open_with(wants(&w, "cuda"), &choice, &model));
    assert_int_equal(b.alive, 0);
    check_books(&before);
}

static void no_fallback(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    weir_outputs out;
    books before = take_books();
    weir_opening_options options = opening_options(NULL);
    options.no_fallback = true;
    bed_fault("cuda", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, 1);
    fails(WEIR_ERR_ENGINE, weir_model_create_chosen(wants(&w, "cuda rocm cpu"), &options, &model));
    assert_string_equal(weir_detail(), "cuda would not load it");
    assert_int_equal(b.loads, 1);
    model = open_model(&w.manifest, &options);
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_OUT_OF_MEMORY, .times = 1};
    fails(WEIR_ERR_OUT_OF_MEMORY, infer_once(model, &out));
    infer_and_release(model);
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, .times = 1};
    fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
    fails(WEIR_ERR_DEVICE_LOST, infer_once(model, &out));
    assert_int_equal(b.loads, 2);
    check_books(&before); /* nothing of it is kept for nobody */
    ok(weir_model_destroy(model));
    check_books(&before);
}

static void everything_fails(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    books before = take_books();
    weir_opening_options options = opening_options(NULL);
    bed_fault("", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    fails(WEIR_ERR_ENGINE, weir_model_create_chosen(wants(&w, "cuda rocm coreml directml cpu"), &options, &model));
    assert_null(model);
    detail_names("bert could not be opened");
    for (size_t i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s would not load it", w.rest[i]);
        detail_names(name);
    }
    assert_int_equal(b.loads, 5);
    assert_int_equal(b.notice_count, 5);
    check_books(&before);
}

/* With reasons that are long, each candidate is still named. */
static void long_reasons_hide_nobody(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    weir_opening_options options = opening_options(NULL);
    for (int i = 0; i < 8; i++)
        machine_add(&b.m, WEIR_HARDWARE_ROCM, 8 * GIB);
    w.manifest = *wants(&w, "cuda rocm cpu");
    bed_fault("", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    fails(WEIR_ERR_ENGINE, weir_model_create_chosen(&w.manifest, &options, &model));
    detail_names("onnx with cuda");
    detail_names("rocm-3");
    detail_names("rocm-8");
    detail_names("onnx with cpu");
    assert_true(strlen(weir_detail()) < 1023);
}

/* Who failed before it is named as well. */
static void what_failed_before_is_told(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    bed_fault("cuda", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, 1);
    bed_fault("rocm", WEIR_STAGE_LOAD, WEIR_ERR_CORRUPT, 1);
    fails(WEIR_ERR_CORRUPT, weir_model_create_chosen(wants(&w, "cuda rocm cpu"), NULL, &model));
    detail_names("cuda would not load it");
    detail_names("rocm would not load it");
    assert_int_equal(b.loads, 2);
}

/* What is wrong with the model or the request is so everywhere: nobody else is asked. */
static void what_is_wrong_everywhere(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    static const weir_status statuses[] = {WEIR_ERR_INVALID, WEIR_ERR_CORRUPT, WEIR_ERR_CANCELLED};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        b.loads = 0;
        b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LOAD, statuses[i], .times = 1};
        fails(statuses[i], open_with(wants(&w, "cuda rocm cpu"), NULL, &model));
        assert_int_equal(b.loads, 1);
    }
}

/* No silent processor: the record and a notice say so, unless it was asked for. */
static void the_last_resort_is_told(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    static const struct {
        const char *providers, *provider, *device;
        bool told;
    } cases[] = {{"cuda", NULL, NULL, true},
                 {"cuda cpu", NULL, NULL, false},
                 {"", NULL, NULL, true},
                 {"", "cpu", NULL, false},
                 {"", NULL, "cpu", false}};
    bed_fault("cuda", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    bed_fault("rocm", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    bed_fault("coreml", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    bed_fault("directml", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, -1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_choice_options choice = WEIR_INIT(weir_choice_options);
        choice.provider = cases[i].provider;
        choice.device = cases[i].device;
        b.notice_count = 0;
        ok(open_with(wants(&w, cases[i].providers), &choice, &model));
        weir_record record = record_of(model);
        assert_int_equal(record.on_cpu_unasked, cases[i].told);
        assert_string_equal(record.attempts[record.attempt_count - 1].provider, "cpu");
        bool told = b.notice_count > 0 && strstr(b.notices[b.notice_count - 1], "last resort");
        assert_int_equal(told, cases[i].told);
        ok(weir_model_destroy(model));
    }
    w.manifest = *wants(&w, "cuda");
    w.manifest.requirements.cpu = WEIR_CPU_FORBIDDEN;
    fails(WEIR_ERR_ENGINE, open_with(&w.manifest, NULL, &model));
}

/* A run can end up there, too. */
static void a_run_that_ends_on_the_processor_is_told(void **state)
{
    (void)state;
    wanted w;
    weir_opening_options options = opening_options(NULL);
    weir_model *model = open_model(wants(&w, "cuda"), &options);
    assert_false(record_of(model).on_cpu_unasked);
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, 1);
    infer_and_release(model);
    assert_true(record_of(model).on_cpu_unasked);
    assert_non_null(strstr(b.notices[b.notice_count - 1], "last resort"));
    ok(weir_model_destroy(model));
}

static void coverage(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    books before = take_books();
    w.manifest = *wants(&w, "cuda cpu");
    w.manifest.requirements.min_coverage = 0.95;
    b.share = 0.97;
    ok(open_with(&w.manifest, NULL, &model));
    check_attempt(&(weir_record){.attempts = record_of(model).attempts, .attempt_count = 1}, 0, "cuda", WEIR_STAGE_LOAD,
                  WEIR_OK);
    ok(weir_model_destroy(model));
    assert_string_equal(b.settings, "");
    w.manifest.requirements.min_coverage = 1; /* all of it: the engine's library sees to that */
    b.share = 1;
    ok(open_with(&w.manifest, NULL, &model));
    assert_string_equal(b.settings, "cpu_fallback=off ");
    ok(weir_model_destroy(model));
    w.manifest.requirements.min_coverage = 0.95;
    static const double little[] = {0.94, 0}; /* 0: the engine cannot tell */
    for (size_t i = 0; i < 2; i++) {
        b.share = little[i];
        ok(open_with(&w.manifest, NULL, &model));
        weir_record record = record_of(model);
        check_attempt(&record, 0, "cuda", WEIR_STAGE_LOAD, WEIR_ERR_UNSUPPORTED);
        assert_non_null(strstr(record.attempts[0].reason, "95 %"));
        check_attempt(&record, 1, "cpu", WEIR_STAGE_LOAD, WEIR_OK);
        ok(weir_model_destroy(model));
    }
    check_books(&before);
}

/* By each of its names; a setting of the same meaning comes first. */
static void each_level_reaches_the_engine(void **state)
{
    (void)state;
    static const char *const levels[] = {"disable", "0", "basic", "1", "extended", "2", "all", "3", "99"};
    static const weir_setting tuned = {"optimization", "layout"};
    wanted w;
    weir_model *model;
    w.manifest = *wants(&w, "cuda");
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        char expected[40];
        snprintf(expected, sizeof expected, "optimization=%s ", levels[i]);
        w.manifest.requirements.graph_optimization_level = levels[i];
        ok(open_with(&w.manifest, NULL, &model));
        assert_string_equal(b.settings, expected);
        ok(weir_model_destroy(model));
    }
    w.manifest.settings = &tuned;
    w.manifest.setting_count = 1;
    ok(open_with(&w.manifest, NULL, &model));
    assert_string_equal(b.settings, "optimization=layout ");
    ok(weir_model_destroy(model));
    w.manifest.requirements.graph_optimization_level = "4";
    fails(WEIR_ERR_INVALID, open_with(&w.manifest, NULL, &model));
    detail_names("there are disable, 0, basic, 1, extended, 2, all, 3, 99");
}

/* Limits and settings reach the client and the engine, also when the manifest is gone by then. */
static void limits_and_settings(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    books before = take_books();
    static const weir_setting tuned[] = {{"threads", "4"}, {"prepack", "off"}}, given[] = {{"threads", "2"}};
    w.manifest = *wants(&w, "cuda rocm");
    w.manifest.settings = tuned;
    w.manifest.setting_count = 2;
    w.manifest.requirements.graph_optimization_level = "basic";
    w.manifest.requirements.guaranteed = MIB;
    w.manifest.requirements.maximum = 2 * MIB;
    weir_choice_options choice = WEIR_INIT(weir_choice_options);
    choice.settings = given;
    choice.setting_count = 1;
    weir_opening_options options = opening_options(&choice);
    ok(weir_model_create_chosen(&w.manifest, &options, &model));
    memset(&w, 0, sizeof w);
    memset(&choice, 0, sizeof choice);
    b.settings[0] = '\0';
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, 1);
    infer_and_release(model);
    assert_string_equal(b.settings, "threads=2 prepack=off optimization=basic ");
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(weir_model_client(model), &stats));
    assert_string_equal(stats.name, "bert");
    assert_int_equal(stats.guaranteed, MIB);
    assert_int_equal(stats.maximum, 2 * MIB);
    ok(weir_model_destroy(model));
    check_books(&before);
}

static void bytes_that_a_failed_load_keeps_are_named(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    books before = take_books();
    b.faults[0] = (fault_plan){"cuda", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, .times = 1, .keeps = true};
    ok(open_with(wants(&w, "cuda cpu"), NULL, &model));
    weir_record record = record_of(model);
    assert_non_null(strstr(record.attempts[0].reason, "cuda would not load it; "));
    assert_non_null(strstr(record.attempts[0].reason, "256 KiB"));
    assert_int_equal(record.attempts[0].bytes, WEIGHTS);
    ok(weir_model_destroy(model));
    ok(weir_free(b.kept_by, b.kept, WEIR_STREAM_HOST));
    ok(weir_client_destroy(b.kept_by));
    check_books(&before);
}

/* Also those of a model that has moved on since: its unload says so. */
static void bytes_that_are_kept_after_a_move_are_named(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    books before = take_books();
    ok(open_with(wants(&w, "cuda rocm"), NULL, &model));
    b.keeper = "cuda";
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, 1);
    infer_and_release(model);
    fails(WEIR_ERR_ENGINE, weir_model_destroy(model)); /* it is gone all the same */
    detail_names("kept memory");
    detail_names("256 KiB");
    assert_int_equal(b.alive, 0);
    ok(weir_free(b.kept_by, b.kept, WEIR_STREAM_HOST));
    ok(weir_client_destroy(b.kept_by));
    check_books(&before);
}

/* What was handed out of a record stays as it was. */
static void records_stay(void **state)
{
    (void)state;
    wanted w;
    weir_opening_options options = opening_options(NULL);
    weir_model *model = open_model(wants(&w, "cuda rocm"), &options);
    weir_record first = record_of(model), again = record_of(model);
    assert_ptr_equal(first.attempts, again.attempts);
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST, 1);
    infer_and_release(model);
    check_attempt(&first, 0, "cuda", WEIR_STAGE_LOAD, WEIR_OK);
    assert_int_equal(first.attempt_count, 1);
    weir_record now = record_of(model);
    check_attempt(&now, 0, "cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_DEVICE_LOST);
    assert_int_equal(now.attempt_count, 2);
    ok(weir_model_destroy(model));
    weir_model_options plain = WEIR_INIT(weir_model_options);
    ok(weir_model_create(w.manifest.model_file, &plain, &model));
    fails(WEIR_ERR_UNSUPPORTED, weir_model_record(model, &now));
    ok(weir_model_destroy(model));
}

/* By whichever function: the command's words and a program's are the same names. */
static void bare_names_are_the_stores(void **state)
{
    (void)state;
    char home[] = "/tmp/weir-home-XXXXXX", folder[64], path[64];
    weir_model *model = NULL;
    weir_model_options options = WEIR_INIT(weir_model_options);
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    weir_prediction prediction = WEIR_INIT(weir_prediction);
    assert_non_null(mkdtemp(home));
    snprintf(folder, sizeof folder, "%s/models", home);
    snprintf(path, sizeof path, "%s/bare.onnx", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    fails(WEIR_ERR_NOT_FOUND, weir_model_create("bare.onnx", &options, &model));
    detail_names("bare.onnx is not there or cannot be read, here or among the store's models");
    ok(weir_option_set("home", home));
    ok(weir_model_create("bare.onnx", &options, &model));
    ok(weir_client_info(weir_model_client(model), &stats));
    assert_string_equal(stats.name, "bare.onnx");
    ok(weir_model_destroy(model));
    fails(WEIR_ERR_NOT_FOUND, weir_model_create("./bare.onnx", &options, &model));
    fails(WEIR_ERR_NOT_FOUND, weir_predict("other.onnx", NULL, &prediction));
    assert_true(weir_predict("bare.onnx", NULL, &prediction) != WEIR_ERR_NOT_FOUND);
    ok(weir_option_set("home", NULL));
    unlink(path);
    rmdir(folder);
    rmdir(home);
}

/* A client that was opened before: its limits bind from then on, and it stays when the model goes. */
static void an_account_that_was_there(void **state)
{
    (void)state;
    wanted w;
    weir_model *model;
    books before = take_books();
    weir_client *client = open_client(b.device, "early", 40 * MIB, 48 * MIB);
    weir_opening_options options = opening_options(NULL);
    options.client = client;
    b.weights = 36 * MIB; /* less than what is left of the budget without what it is guaranteed */
    (void)wants(&w, "cuda rocm");
    w.manifest.requirements.guaranteed = 40 * MIB;
    w.manifest.requirements.cpu = WEIR_CPU_FORBIDDEN;
    model = open_model(&w.manifest, &options);
    assert_ptr_equal(weir_model_client(model), client);
    assert_string_equal(client_details(client).name, "early");
    assert_true(client_details(client).live >= 36 * MIB);
    weir_client *other = NULL;
    weir_client_options more = {.struct_size = sizeof more, .name = "other", .guaranteed = 30 * MIB};
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_create(b.device, &more, &other));
    infer_and_release(model);
    fails(WEIR_ERR_BUSY, weir_client_destroy(client));
    ok(weir_model_destroy(model));
    assert_int_equal(client_details(client).live, 0);
    /* Again, without a choice; and after a load that fails. */
    weir_model_options plain = WEIR_INIT(weir_model_options);
    plain.client = client;
    plain.device = "nowhere:7"; /* the client's is meant */
    bed_fault("plain", WEIR_STAGE_LOAD, WEIR_ERR_ENGINE, 1);
    fails(WEIR_ERR_ENGINE, weir_model_create(w.manifest.model_file, &plain, &model));
    assert_int_equal(client_details(client).live, 0);
    ok(weir_model_create(w.manifest.model_file, &plain, &model));
    assert_ptr_equal(weir_model_client(model), client);
    ok(weir_model_destroy(model));
    ok(weir_client_destroy(client));
    fails(WEIR_ERR_INVALID, weir_model_create(w.manifest.model_file, &plain, &model));
    fails(WEIR_ERR_INVALID, weir_model_create_chosen(&w.manifest, &options, &model));
    check_books(&before);
}

/* It is the account of one instance at a time; another device has another. */
static void an_account_while_the_model_moves(void **state)
{
    (void)state;
    wanted w;
    books before = take_books();
    weir_client *client = open_client(b.device, "early", 0, 0);
    weir_opening_options options = opening_options(NULL);
    options.client = client;
    weir_model *model = open_model(wants(&w, "cuda rocm cpu"), &options);
    bed_fault("cuda", WEIR_STAGE_FIRST_RUN, WEIR_ERR_UNSUPPORTED, 1);
    infer_and_release(model);
    assert_string_equal(provider_of(model), "rocm");
    assert_ptr_not_equal(weir_model_client(model), client);
    assert_int_equal(client_details(client).live, 0);
    bed_fault("rocm", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, 1);
    infer_and_release(model);
    assert_string_equal(provider_of(model), "cuda");
    assert_ptr_equal(weir_model_client(model), client); /* it was free again */
    bed_fault("cuda", WEIR_STAGE_LATER_RUN, WEIR_ERR_DEVICE_LOST, 1);
    infer_and_release(model);
    assert_string_equal(provider_of(model), "cpu");
    assert_int_equal(weir_model_client(model) == client, b.device == b.host);
    ok(weir_model_destroy(model));
    ok(weir_client_destroy(client));
    check_books(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, bed_reset)
        test(exactly_this_or_an_error),
        test(no_fallback),
        test(everything_fails),
        test(long_reasons_hide_nobody),
        test(what_failed_before_is_told),
        test(what_is_wrong_everywhere),
        test(the_last_resort_is_told),
        test(a_run_that_ends_on_the_processor_is_told),
        test(coverage),
        test(each_level_reaches_the_engine),
        test(limits_and_settings),
        test(bytes_that_a_failed_load_keeps_are_named),
        test(bytes_that_are_kept_after_a_move_are_named),
        test(records_stay),
        test(bare_names_are_the_stores),
        test(an_account_that_was_there),
        test(an_account_while_the_model_moves),
    };
    return cmocka_run_group_tests_name("open", tests, bed_begin, bed_end);
}
