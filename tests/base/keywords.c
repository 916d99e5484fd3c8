/* Keywords of manifests and options: in any case, and named where another word stands. */
#include "base/values.h"
#include "core/core.h"

static void providers_are_read_in_any_case(void **state)
{
    (void)state;
    wi_provider provider = WI_CPU;
    for (int i = 0; i < WI_PROVIDERS; i++) {
        assert_int_equal(wi_provider_read("it:", wi_provider_name((wi_provider)i), &provider), WEIR_OK);
        assert_int_equal(provider, i);
    }
    assert_int_equal(wi_provider_read("it:", "TensorRT", &provider), WEIR_OK);
    assert_int_equal(provider, WI_TENSORRT);
    assert_int_equal(wi_provider_read("it:", "Metal", &provider), WEIR_OK);
    assert_int_equal(provider, WI_COREML);
}

static void another_word_is_refused_with_all_that_there_are(void **state)
{
    (void)state;
    wi_provider provider = WI_ROCM;
    wi_policy policy = WI_MEMORY;
    assert_int_equal(wi_provider_read("the manifest's provider", "gpu", &provider), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "the manifest's provider \"gpu\""));
    for (int i = 0; i < WI_PROVIDERS; i++)
        assert_non_null(strstr(weir_detail(), wi_provider_name((wi_provider)i)));
    assert_int_equal(provider, WI_ROCM);
    assert_int_equal(wi_policy_read("policy", "fast", &policy), WEIR_ERR_INVALID);
    assert_int_equal(policy, WI_MEMORY);
    assert_int_equal(wi_strategy_check("strategy", "best"), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "round-robin"));
    assert_int_equal(wi_level_check("level", "4"), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "extended"));
}

static void a_strategy_that_splits_a_model_is_refused_for_that(void **state)
{
    (void)state;
    assert_int_equal(wi_strategy_check("strategy", "Pipeline"), WEIR_OK);
    assert_int_equal(wi_strategy_check("strategy", "row-split"), WEIR_ERR_INVALID);
    assert_non_null(strstr(weir_detail(), "several devices"));
}

static void levels_have_numbers_too(void **state)
{
    (void)state;
    static const char *const all[] = {"all", "3", "99"}, *const less[] = {"disable", "0",        "basic",
                                                                          "1",       "extended", "2"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_true(wi_level_check("level", all[i]) == WEIR_OK && wi_level_is_all(all[i]));
    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++)
        assert_true(wi_level_check("level", less[i]) == WEIR_OK && !wi_level_is_all(less[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(providers_are_read_in_any_case),
        cmocka_unit_test(another_word_is_refused_with_all_that_there_are),
        cmocka_unit_test(a_strategy_that_splits_a_model_is_refused_for_that),
        cmocka_unit_test(levels_have_numbers_too),
    };
    return cmocka_run_group_tests_name("keywords", tests, NULL, NULL);
}
