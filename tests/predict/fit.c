/* fit.c: the best way to have a model in so many bytes, against every way that there is. */
#include "common.h"

#include "toy.h"

static char folder[64], path[96];

/* As the toy has it, with ten layers. */
static uint64_t takes(uint64_t context, uint64_t layers)
{
    return TOY_WEIGHTS * layers / TOY_LAYERS + context * TOY_CELL * layers / TOY_LAYERS + TOY_FORESEEN;
}

static weir_fit fit(uint64_t bytes, const char *device, uint64_t least, bool layers)
{
    weir_fit out = WEIR_INIT(weir_fit);
    weir_fit_options allowed = WEIR_INIT(weir_fit_options);
    weir_predict_options options = WEIR_INIT(weir_predict_options);
    const weir_setting context[] = {{"context", "65536"}};
    options.device = device;
    options.settings = context;
    options.setting_count = 1;
    allowed.least_context = least;
    allowed.layers = layers;
    toy.plans = 0;
    OK(weir_predict_fit(path, &options, bytes, &allowed, &out));
    assert_int_equal(out.prediction.peak_total <= bytes, out.fits);
    assert_in_range(toy.plans, 1, 40);
    return out;
}

static void test_it_fits_as_it_is(void **state)
{
    (void)state;
    weir_fit out = fit(takes(65536, 10), "host", 512, true);
    assert_true(out.fits && out.context == 0 && out.layers == -1);
    assert_int_equal(toy.plans, 1);
}

static void test_nothing_may_be_given_up(void **state)
{
    (void)state;
    weir_fit out = fit(takes(65536, 10) - 1, "host", 0, false);
    assert_false(out.fits);
    assert_int_equal(out.prediction.peak_total, takes(65536, 10));
    weir_fit other = WEIR_INIT(weir_fit);
    OK(weir_predict_fit(path, NULL, 1, NULL, &other));
    assert_false(other.fits);
}

/* No larger whole 256 fits. */
static void test_the_largest_context(void **state)
{
    (void)state;
    for (uint64_t bytes = takes(512, 10); bytes < takes(65536, 10); bytes += 99991) {
        weir_fit out = fit(bytes, "host", 512, true);
        assert_true(out.fits);
        assert_true(out.context >= 512 && out.layers == -1);
        assert_int_equal(out.prediction.context, out.context);
        assert_true(takes(out.context, 10) <= bytes);
        assert_true(out.context + 256 >= 65536 || takes(out.context + 256, 10) > bytes);
    }
    assert_false(fit(takes(512, 10) - 1, "host", 512, false).fits);
}

/* The most layers that fit at the least context, then as much context as they leave. */
static void test_the_most_layers(void **state)
{
    (void)state;
    for (uint64_t bytes = takes(512, 0); bytes < takes(512, 10); bytes += 997) {
        weir_fit out = fit(bytes, "cuda:0", 512, true);
        assert_true(out.fits);
        assert_in_range(out.layers, 0, 9);
        assert_true(takes(512, (uint64_t)out.layers) <= bytes);
        assert_true(takes(512, (uint64_t)out.layers + 1) > bytes);
        assert_true(out.layers == 0 || out.context + 256 >= 65536 ||
                    takes(out.context + 256, (uint64_t)out.layers) > bytes);
    }
    weir_fit out = fit(takes(512, 0) - 1, "cuda:0", 512, true);
    assert_false(out.fits);
    out = fit(takes(512, 10) - 1, "cuda:0", 512, false);
    assert_false(out.fits);
}

static void test_errors(void **state)
{
    weir_fit out = WEIR_INIT(weir_fit);
    weir_fit_options allowed = WEIR_INIT(weir_fit_options);
    weir_predict_options options = WEIR_INIT(weir_predict_options);
    (void)state;
    assert_int_equal(weir_predict_fit(path, NULL, 1, NULL, NULL), WEIR_ERR_INVALID);
    assert_int_equal(weir_predict_fit("/nowhere.toy", NULL, 1, NULL, &out), WEIR_ERR_NOT_FOUND);
    allowed.struct_size = 0;
    assert_int_equal(weir_predict_fit(path, NULL, 1, &allowed, &out), WEIR_ERR_INVALID);
    toy.plan = WEIR_ERR_CORRUPT;
    assert_int_equal(weir_predict_fit(path, &options, 1, NULL, &out), WEIR_ERR_CORRUPT);
    toy.plan = WEIR_OK;
}

static int open_store(void **state)
{
    (void)state;
    store_open(folder);
    snprintf(path, sizeof path, "%s/model.toy", folder);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs("a model", out);
    fclose(out);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_fits_as_it_is),
        cmocka_unit_test(test_nothing_may_be_given_up),
        cmocka_unit_test(test_the_largest_context),
        cmocka_unit_test(test_the_most_layers),
        cmocka_unit_test(test_errors),
    };
    toy_register("gguf"); /* whose settings are those that may be given up */
    return cmocka_run_group_tests(tests, open_store, close_store);
}
