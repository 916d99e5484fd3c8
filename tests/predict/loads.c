/* loads.c: what loads teach: a prediction before any, after a load, after runs; what tells models apart; and that nothing
 * of it stands in a load's way. */
#include "common.h"

#include "toy.h"

#include <sys/stat.h>

static char folder[64], path[96];

static void write_model(const char *name, const char *text)
{
    char file[128];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static weir_prediction predict(const char *file, const weir_setting *settings, size_t count, bool cold)
{
    weir_prediction out = WEIR_INIT(weir_prediction);
    weir_predict_options options = WEIR_INIT(weir_predict_options);
    options.settings = settings;
    options.setting_count = count;
    options.cold = cold;
    OK(weir_predict(file, &options, &out));
    return out;
}

static weir_model *load(const weir_setting *settings, size_t count)
{
    weir_model *model = NULL;
    weir_model_options options = WEIR_INIT(weir_model_options);
    options.settings = settings;
    options.setting_count = count;
    OK(weir_model_create(path, &options, &model));
    return model;
}

static void run(weir_model *model)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    OK(weir_model_infer(model, &inference, &outputs));
    weir_model_release_outputs(model, &outputs);
}

/* Both sums are those of their classes. */
static void adds_up(const weir_prediction *p)
{
    uint64_t resident = 0, peak = 0;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        resident += p->resident[i];
        peak += p->peak[i];
    }
    assert_int_equal(resident, p->resident_total);
    assert_int_equal(peak, p->peak_total);
}

static void test_before_any_load_the_engine_says(void **state)
{
    (void)state;
    weir_prediction p = predict(path, NULL, 0, false);
    adds_up(&p);
    assert_string_equal(p.engine, "toy");
    assert_string_equal(p.provider, "cpu");
    assert_string_equal(p.device, "host");
    assert_string_equal(p.version, toy.version);
    assert_int_equal(p.resident_total, TOY_WEIGHTS + 1024 * TOY_CELL);
    assert_int_equal(p.peak_total, p.resident_total + TOY_FORESEEN);
    assert_int_equal(p.source[WEIR_CLASS_WEIGHTS], WEIR_PREDICTED_DRY_RUN);
    assert_int_equal(p.context, 1024);
    assert_int_equal(p.loads, 0);
}

/* A load alone teaches what stays; what runs take is still what was thought, if that is more. */
static void test_a_load_teaches_what_stays(void **state)
{
    (void)state;
    weir_model *model = load(NULL, 0);
    weir_prediction p = predict(path, NULL, 0, false);
    adds_up(&p);
    assert_int_equal(p.loads, 1);
    assert_int_equal(p.source[WEIR_CLASS_WEIGHTS], WEIR_PREDICTED_MEASURED);
    assert_int_equal(p.source[WEIR_CLASS_ACTIVATIONS], WEIR_PREDICTED_DRY_RUN);
    assert_int_equal(p.peak[WEIR_CLASS_ACTIVATIONS], TOY_FORESEEN);
    OK(weir_model_destroy(model));
}

/* What runs took is known once they have been measured, and a prediction is never less than that. */
static void test_runs_teach_the_peak(void **state)
{
    (void)state;
    for (size_t bytes = TOY_RUN; bytes <= 4 * TOY_RUN; bytes *= 2) {
        toy.run = bytes;
        weir_model *model = load(NULL, 0);
        run(model);
        weir_client_stats stats = WEIR_INIT(weir_client_stats);
        OK(weir_client_info(weir_model_client(model), &stats));
        OK(weir_model_destroy(model));
        weir_prediction p = predict(path, NULL, 0, false), cold = predict(path, NULL, 0, true);
        adds_up(&p);
        assert_int_equal(p.peak_total, stats.peak);
        assert_int_equal(p.resident_total, stats.live);
        assert_int_equal(p.peak[WEIR_CLASS_ACTIVATIONS], bytes);
        assert_int_equal(p.source[WEIR_CLASS_ACTIVATIONS], WEIR_PREDICTED_MEASURED);
        assert_int_equal(cold.peak[WEIR_CLASS_ACTIVATIONS], TOY_FORESEEN);
        assert_int_equal(cold.loads, 0);
    }
    toy.run = 1024; /* a small one after large ones */
    weir_model *model = load(NULL, 0);
    run(model);
    OK(weir_model_destroy(model));
    assert_int_equal(predict(path, NULL, 0, false).peak[WEIR_CLASS_ACTIVATIONS], 4 * TOY_RUN);
    toy.run = TOY_RUN;
}

/* A request that is refused after it took a lot says nothing of the model, whether before or after one that is answered; a larger
 * one that is answered later does. */
static void test_refused_runs_teach_nothing(void **state)
{
    static const size_t answered[] = {0, TOY_RUN, 16 * TOY_RUN};
    (void)state;
    for (int i = 0; i < 3; i++) {
        weir_model *model = load(NULL, 0);
        weir_inference inference = WEIR_INIT(weir_inference);
        weir_outputs outputs = WEIR_INIT(weir_outputs);
        toy.run = TOY_RUN;
        run(model);
        toy.run = 8 * TOY_RUN;
        toy.refuse = true;
        assert_int_equal(weir_model_infer(model, &inference, &outputs), WEIR_ERR_INVALID);
        toy.refuse = false;
        toy.run = answered[i];
        if (answered[i])
            run(model);
        toy.run = 1024; /* and a small one, which raises nothing */
        toy.refuse = true;
        assert_int_equal(weir_model_infer(model, &inference, &outputs), WEIR_ERR_INVALID);
        toy.refuse = false;
        OK(weir_model_destroy(model));
        assert_int_equal(predict(path, NULL, 0, false).peak[WEIR_CLASS_ACTIVATIONS],
                         i == 2 ? 16 * TOY_RUN : TOY_FORESEEN);
    }
    toy.run = TOY_RUN;
}

/* What the engine is certain of is not less for what was measured, nor for another's record. */
static void test_what_is_certain_stays(void **state)
{
    weir_client_stats little = WEIR_INIT(weir_client_stats);
    (void)state;
    little.live = little.live_class[WEIR_CLASS_WEIGHTS] = 5;
    little.peak = little.peak_class[WEIR_CLASS_WEIGHTS] = 5;
    OK(weir_prediction_learn(path, NULL, &little));
    assert_int_equal(predict(path, NULL, 0, false).peak[WEIR_CLASS_WEIGHTS], 5);
    toy.exact = true;
    weir_prediction p = predict(path, NULL, 0, false);
    assert_int_equal(p.peak[WEIR_CLASS_WEIGHTS], TOY_WEIGHTS);
    assert_int_equal(p.source[WEIR_CLASS_WEIGHTS], WEIR_PREDICTED_DRY_RUN);
    assert_true(p.exact[WEIR_CLASS_WEIGHTS]);
    toy.exact = false;
}

/* By contents, not by name; and by settings, whatever their order. */
static void test_what_tells_loads_apart(void **state)
{
    const weir_setting one[] = {{"context", "2048"}, {"other", "x"}}, turned[] = {{"other", "x"}, {"context", "2048"}};
    char copy[128];
    (void)state;
    OK(weir_model_destroy(load(one, 2)));
    snprintf(copy, sizeof copy, "%s/copy.toy", folder);
    write_model("copy.toy", "a model");
    assert_int_equal(predict(copy, one, 2, false).loads, 1);
    assert_int_equal(predict(path, turned, 2, false).loads, 1);
    assert_int_equal(predict(path, one, 1, false).loads, 0);
    assert_int_equal(predict(path, NULL, 0, false).loads, 0);
    write_model("copy.toy", "b model");
    assert_int_equal(predict(copy, one, 2, false).loads, 0);
    toy.version = "1.1";
    assert_int_equal(predict(path, one, 2, false).loads, 0);
    toy.version = "1.0 of the toys";
    assert_int_equal(predict(path, one, 2, false).loads, 1);
}

/* Before a load the file alone is asked, and the model tells what was said then and what it has. */
static void test_a_model_knows_what_was_predicted(void **state)
{
    (void)state;
    toy.plans = toy.quick_plans = 0;
    weir_model *model = load(NULL, 0);
    assert_int_equal(toy.plans, 1);
    assert_int_equal(toy.quick_plans, 1);
    run(model);
    weir_prediction predicted = WEIR_INIT(weir_prediction), measured = WEIR_INIT(weir_prediction);
    OK(weir_model_prediction(model, &predicted, &measured));
    OK(weir_model_prediction(model, NULL, NULL));
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    OK(weir_client_info(weir_model_client(model), &stats));
    assert_int_equal(stats.predicted, predicted.peak_total);
    adds_up(&predicted);
    adds_up(&measured);
    assert_int_equal(predicted.source[WEIR_CLASS_KV], WEIR_PREDICTED_METADATA);
    assert_int_equal(predicted.peak_total, TOY_WEIGHTS + 1024 * TOY_CELL + TOY_FORESEEN);
    assert_int_equal(measured.peak_total, TOY_WEIGHTS + 1024 * TOY_CELL + TOY_RUN);
    assert_int_equal(measured.source[WEIR_CLASS_KV], WEIR_PREDICTED_MEASURED);
    assert_int_equal(weir_model_prediction(NULL, &predicted, NULL), WEIR_ERR_INVALID);
    predicted.struct_size = 0;
    assert_int_equal(weir_model_prediction(model, &predicted, NULL), WEIR_ERR_INVALID);
    OK(weir_model_destroy(model));
    toy.plan = WEIR_ERR_SYSTEM; /* an engine that cannot tell is loaded all the same */
    model = load(NULL, 0);
    measured = WEIR_INIT(weir_prediction);
    assert_int_equal(weir_model_prediction(model, NULL, &measured), WEIR_ERR_NOT_FOUND);
    OK(weir_model_destroy(model));
    toy.plan = WEIR_OK;
}

static ino_t record_file(void)
{
    char file[128];
    struct stat about;
    snprintf(file, sizeof file, "%s/predictions", folder);
    assert_int_equal(stat(file, &about), 0);
    return about.st_ino; /* another one with each change: it is written beside the one before */
}

/* The load of a model that is known by then writes nothing; it is counted when the model goes. */
static void test_a_load_that_teaches_nothing_is_counted_later(void **state)
{
    (void)state;
    OK(weir_model_destroy(load(NULL, 0)));
    ino_t before = record_file();
    for (uint64_t loads = 1; loads < 4; loads++) {
        weir_model *model = load(NULL, 0);
        assert_int_equal(record_file(), before);
        assert_int_equal(predict(path, NULL, 0, false).loads, loads);
        if (loads == 2)
            run(model);
        OK(weir_model_destroy(model));
        before = record_file();
        assert_int_equal(predict(path, NULL, 0, false).loads, loads + 1);
    }
    toy.version = "2"; /* of which nothing is known */
    weir_model *model = load(NULL, 0);
    assert_int_not_equal(record_file(), before);
    assert_int_equal(predict(path, NULL, 0, false).loads, 1);
    OK(weir_model_destroy(model));
    toy.version = "1.0 of the toys";
    assert_int_equal(predict(path, NULL, 0, false).loads, 4);
}

static void test_the_option_turns_it_off(void **state)
{
    char file[128];
    (void)state;
    OK(weir_model_destroy(load(NULL, 0)));
    OK(weir_option_set("predictions", "0"));
    assert_int_equal(predict(path, NULL, 0, false).loads, 0);
    snprintf(file, sizeof file, "%s/predictions", folder);
    assert_int_equal(remove(file), 0);
    OK(weir_model_destroy(load(NULL, 0)));
    assert_int_not_equal(access(file, F_OK), 0);
    OK(weir_option_set("predictions", "1"));
}

static void test_a_store_that_cannot_be_written_stops_no_load(void **state)
{
    (void)state;
    OK(weir_option_set("home", "/proc/none"));
    weir_model *model = load(NULL, 0);
    run(model);
    OK(weir_model_destroy(model));
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    assert_int_equal(weir_prediction_learn(path, NULL, &stats), WEIR_ERR_SYSTEM);
    OK(weir_option_set("home", folder));
}

static void test_errors(void **state)
{
    weir_prediction p = WEIR_INIT(weir_prediction);
    weir_predict_options options = WEIR_INIT(weir_predict_options);
    (void)state;
    assert_int_equal(weir_predict(path, NULL, NULL), WEIR_ERR_INVALID);
    assert_int_equal(weir_predict(NULL, NULL, &p), WEIR_ERR_INVALID);
    assert_int_equal(weir_predict("/nowhere.toy", NULL, &p), WEIR_ERR_NOT_FOUND);
    options.engine = "none-such";
    assert_int_equal(weir_predict(path, &options, &p), WEIR_ERR_NOT_FOUND);
    options.struct_size = 0;
    assert_int_equal(weir_predict(path, &options, &p), WEIR_ERR_INVALID);
    p.struct_size = 0;
    assert_int_equal(weir_predict(path, NULL, &p), WEIR_ERR_INVALID);
    p.struct_size = sizeof p;
    toy.plan = WEIR_ERR_CORRUPT;
    assert_int_equal(weir_predict(path, NULL, &p), WEIR_ERR_CORRUPT);
    toy.plan = WEIR_OK;
    assert_int_equal(weir_prediction_learn(path, NULL, NULL), WEIR_ERR_INVALID);
}

static int open_store(void **state)
{
    (void)state;
    store_open(folder);
    write_model("model.toy", "a model");
    snprintf(path, sizeof path, "%s/model.toy", folder);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    store_close(folder);
    return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)
    const struct CMUnitTest tests[] = {
        TEST(test_before_any_load_the_engine_says),
        TEST(test_a_load_teaches_what_stays),
        TEST(test_runs_teach_the_peak),
        TEST(test_refused_runs_teach_nothing),
        TEST(test_what_is_certain_stays),
        TEST(test_what_tells_loads_apart),
        TEST(test_a_model_knows_what_was_predicted),
        TEST(test_a_load_that_teaches_nothing_is_counted_later),
        TEST(test_the_option_turns_it_off),
        TEST(test_a_store_that_cannot_be_written_stops_no_load),
        TEST(test_errors),
    };
    toy_register("toy");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
