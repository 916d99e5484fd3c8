/* What the factory that weir follows was tested for, by the names of its tests, and its defects that must not come
 * back. */
#include "choice/fixture.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

/* As factory_tests.rs ---------------------------------------------------------------------------------------------- */

/* Of 16 GiB that are free less than that can be had: margins stay. */
static void test_validate_memory_requirements_success(void **state)
{
    (void)state;
    machine_begin(&here, 16 * GIB);
    needs()->min_memory = 8 * GIB;
    assert_string_equal(ranking(), "cpu@cpu");
}

static void test_validate_memory_requirements_failure(void **state)
{
    (void)state;
    machine_begin(&here, 16 * GIB);
    needs()->min_memory = 32 * GIB;
    is_refused(WEIR_VERDICT_LITTLE_MEMORY, "cpu", "cpu",
               "insufficient memory: 14.4 GiB can be had of the host, and 32 GiB");
    assert_int_equal(made->accepted, 0);
    assert_non_null(strstr(made->rule, "32 GiB"));
}

static void test_validate_vram_requirements_success(void **state)
{
    (void)state;
    static const int32_t ids[] = {1};
    with_two_cards();
    needs()->min_vram = 8 * GIB;
    needs()->device_ids = ids;
    needs()->device_count = 1;
    assert_string_equal(ranking(), "cuda@cuda-1 cpu@cpu");
    assert_int_equal(candidate(made, "onnx", "cuda", "cuda-0")->verdict, WEIR_VERDICT_NOT_ASKED);
}

static void test_validate_vram_requirements_failure(void **state)
{
    (void)state;
    static const int32_t ids[] = {1};
    with_two_cards();
    needs()->min_vram = 12 * GIB;
    needs()->device_ids = ids;
    needs()->device_count = 1;
    is_refused(WEIR_VERDICT_LITTLE_VRAM, "cuda", "cuda-1", "insufficient VRAM");
}

static void test_validate_cuda_version_success(void **state)
{
    (void)state;
    with_two_cards();
    needs()->min_cuda_version = version("11.8");
    assert_string_equal(ranking(), "cuda@cuda-1 cuda@cuda-0 cpu@cpu");
}

static void test_validate_cuda_version_failure(void **state)
{
    (void)state;
    with_two_cards();
    needs()->min_cuda_version = version("12.1");
    is_refused(WEIR_VERDICT_OLD_CUDA, "cuda", "cuda-0", "is 12.0, and the manifest wants 12.1");
    assert_string_equal(ranking(), "cpu@cpu");
}

static void test_validate_missing_provider(void **state)
{
    (void)state;
    list_providers("metal", NULL, 0);
    needs()->cpu = WEIR_CPU_LISTED;
    is_refused(WEIR_VERDICT_OTHER_PLATFORM, "coreml", "", "coreml needs a Metal device");
    assert_int_equal(made->accepted, 0);
}

static void test_validate_fallback_provider_success(void **state)
{
    (void)state;
    static const char *const fallbacks[] = {"cpu"};
    list_providers("metal", fallbacks, 1);
    needs()->cpu = WEIR_CPU_LISTED;
    assert_string_equal(ranking(), "cpu@cpu");
}

static void test_validate_device_id_not_found(void **state)
{
    (void)state;
    static const int32_t ids[] = {99};
    with_two_cards();
    needs()->device_ids = ids;
    needs()->device_count = 1;
    is_refused(WEIR_VERDICT_NO_DEVICE, "cuda", "", "99");
    assert_non_null(strstr(candidate(made, "onnx", "cuda", "")->reason, "there are 0, 1"));
}

static void test_validate_strategy_pool_any_device(void **state)
{
    (void)state;
    static const char *const names[] = {"pool", "round-robin",       "data-parallel",  "Pipeline",
                                        "AUTO", "pipeline-parallel", "tensor-parallel"};
    static const int32_t ids[] = {0};
    with_two_cards();
    needs()->min_vram = 9 * GIB - GIB / 2;
    needs()->device_ids = ids;
    needs()->device_count = 1;
    assert_string_equal(ranking(), "cpu@cpu");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        needs()->strategy = names[i];
        assert_string_equal(ranking(), "cuda@cuda-1 cpu@cpu");
    }
    needs()->min_vram = 0; /* both qualify: the one that is named comes first */
    assert_string_equal(ranking(), "cuda@cuda-0 cuda@cuda-1 cpu@cpu");
}

static void test_unsupported_framework_never_reaches_onnx(void **state)
{
    (void)state;
    manifest.framework = "safetensors";
    cannot_choose(WEIR_ERR_INVALID, "framework \"safetensors\" is no engine; there are gguf, llm, onnx");
    assert_int_equal(doubles[0].plans, 0);
}

static void test_fastest_list_is_cuda_and_cpu(void **state)
{
    (void)state;
    with_two_cards();
    needs()->preferred_provider = NULL;
    assert_string_equal(ranking(), "cuda@cuda-1 cuda@cuda-0 cpu@cpu");
}

/* Defects that do not come back ------------------------------------------------------------------------------------ */

static void d24_levels_reach_the_engine_or_are_refused(void **state)
{
    (void)state;
    static const weir_setting basic = {"optimization", "basic"};
    needs()->graph_optimization_level = "extended";
    assert_string_equal(ranking(), "cpu@cpu");
    assert_string_equal(doubles[0].setting, "extended");
    options.settings = &basic;
    options.setting_count = 1;
    assert_string_equal(ranking(), "cpu@cpu");
    assert_string_equal(doubles[0].setting, "basic");
    manifest.framework = "gguf"; /* which has none */
    choose_here();
    assert_int_equal(candidate(made, "gguf", "cpu", "cpu")->verdict, WEIR_VERDICT_BAD_SETTING);
    needs()->graph_optimization_level = "all"; /* and so does all that it can */
    assert_string_equal(ranking(), "cpu@cpu");
}

static void d26_bytes_are_bytes(void **state)
{
    (void)state;
    machine_begin(&here, 16 * GIB);
    needs()->min_memory = 16 * GIB - 16 * GIB / 10;
    assert_string_equal(ranking(), "cpu@cpu");
    needs()->min_memory++;
    assert_string_equal(ranking(), "");
}

static void d27_versions_are_numbers(void **state)
{
    (void)state;
    weir_hardware_device *card = machine_add(&here, WEIR_HARDWARE_CUDA, 8 * GIB);
    static const struct {
        const char *there, *wanted;
        bool enough;
    } cases[] = {{"9.2", "11.8", false}, {"12.10", "12.2", true}, {"13", "12.9", true}, {"12.08", "12.8", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        card->driver_runtime = version(cases[i].there);
        needs()->min_cuda_version = version(cases[i].wanted);
        assert_string_equal(ranking(), cases[i].enough ? "cuda@cuda-0 cpu@cpu" : "cpu@cpu");
    }
    card->driver_runtime = (weir_version_number){.count = 0};
    is_refused(WEIR_VERDICT_OLD_CUDA, "cuda", "cuda-0", "unknown");
}

static void d28_memory_is_what_can_be_had(void **state)
{
    (void)state;
    weir_hardware_device *card = machine_add(&here, WEIR_HARDWARE_CUDA, 80 * GIB);
    needs()->min_vram = 40 * GIB;
    card->free = 30 * GIB; /* of 80: another program has the rest */
    is_refused(WEIR_VERDICT_LITTLE_VRAM, "cuda", "cuda-0", "27 GiB can be had");
    card->free = 60 * GIB;
    assert_string_equal(ranking(), "cuda@cuda-0 cpu@cpu");
    weir_obtainable little = {"cuda-0", 40 * GIB - 1}; /* models that are loaded have it */
    options.obtainable = &little;
    options.obtainable_count = 1;
    is_refused(WEIR_VERDICT_LITTLE_VRAM, "cuda", "cuda-0", "min_vram");
}

static void d30_cpu_first_does_not_hide_accelerators(void **state)
{
    (void)state;
    static const char *const accelerators[] = {"cuda", "CUDA", "", "rocm"};
    machine_add(&here, WEIR_HARDWARE_CUDA, 8 * GIB);
    machine_add(&here, WEIR_HARDWARE_ROCM, 8 * GIB);
    list_providers("cpu", NULL, 0);
    assert_string_equal(ranking(), "cuda@cuda-0 rocm@rocm-0 cpu@cpu");
    list_providers("cpu", accelerators, 4);
    assert_string_equal(ranking(), "cuda@cuda-0 rocm@rocm-0 cpu@cpu");
    options.policy = "manifest"; /* which means every word of it */
    assert_string_equal(ranking(), "cpu@cpu cuda@cuda-0 rocm@rocm-0");
}

static void d30_empty_strings_are_nothing(void **state)
{
    (void)state;
    static const char *const empty[] = {"", ""};
    list_providers("", empty, 2);
    manifest.framework = needs()->strategy = needs()->graph_optimization_level = "";
    options.engine = options.provider = options.device = options.policy = options.order = "";
    assert_string_equal(ranking(), "cpu@cpu");
    options.policy = "manifest";
    assert_string_equal(ranking(), "cpu@cpu"); /* an empty list passes */
}

static void d30_openvino_passes(void **state)
{
    (void)state;
    list_providers("openvino", NULL, 0);
    assert_string_equal(ranking(), "openvino@cpu cpu@cpu");
    machine_add(&here, WEIR_HARDWARE_INTEL, 80 * GIB);
    assert_string_equal(ranking(), "openvino@intel-0 openvino@cpu cpu@cpu");
}

static void d30_negative_ordinals(void **state)
{
    (void)state;
    static const int32_t ids[] = {0, -1};
    needs()->device_ids = ids;
    needs()->device_count = 2;
    cannot_choose(WEIR_ERR_INVALID, "device id -1");
    needs()->device_count = 0;
    options.device = "-1";
    cannot_choose(WEIR_ERR_INVALID, "device \"-1\"");
}

static void d31_gguf_keeps_to_device_and_provider(void **state)
{
    (void)state;
    with_two_cards();
    manifest.framework = "gguf";
    options.device = "cuda:0";
    options.provider = "cuda";
    choose_here();
    assert_int_equal(made->accepted, 1);
    assert_string_equal(made->candidates[0].engine, "gguf");
    assert_string_equal(made->candidates[0].device, "cuda-0");
    assert_string_equal(made->candidates[0].runtime, "cuda:0");
}

/* The processor's ordinal is nobody's: device 0 of a manifest is a card. */
static void d31_cpu_and_gpu_do_not_share_0(void **state)
{
    (void)state;
    static const int32_t ids[] = {1};
    with_two_cards();
    needs()->device_ids = ids;
    needs()->device_count = 1;
    assert_string_equal(ranking(), "cuda@cuda-1 cpu@cpu");
    options.device = "0";
    assert_string_equal(ranking(), "cuda@cuda-0");
}

static void d32_tensorrt_only_where_it_is_named(void **state)
{
    (void)state;
    machine_add(&here, WEIR_HARDWARE_CUDA, 8 * GIB);
    is_refused(WEIR_VERDICT_NOT_LISTED, "tensorrt", "cuda-0", "is taken where it is named");
    list_providers("TensorRT", NULL, 0);
    assert_string_equal(ranking(), "tensorrt@cuda-0 cpu@cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_validate_memory_requirements_success),
        TEST(test_validate_memory_requirements_failure),
        TEST(test_validate_vram_requirements_success),
        TEST(test_validate_vram_requirements_failure),
        TEST(test_validate_cuda_version_success),
        TEST(test_validate_cuda_version_failure),
        TEST(test_validate_missing_provider),
        TEST(test_validate_fallback_provider_success),
        TEST(test_validate_device_id_not_found),
        TEST(test_validate_strategy_pool_any_device),
        TEST(test_unsupported_framework_never_reaches_onnx),
        TEST(test_fastest_list_is_cuda_and_cpu),
        TEST(d24_levels_reach_the_engine_or_are_refused),
        TEST(d26_bytes_are_bytes),
        TEST(d27_versions_are_numbers),
        TEST(d28_memory_is_what_can_be_had),
        TEST(d30_cpu_first_does_not_hide_accelerators),
        TEST(d30_empty_strings_are_nothing),
        TEST(d30_openvino_passes),
        TEST(d30_negative_ordinals),
        TEST(d31_gguf_keeps_to_device_and_provider),
        TEST(d31_cpu_and_gpu_do_not_share_0),
        TEST(d32_tensorrt_only_where_it_is_named),
    };
    doubles_register();
    model = model_file("model.onnx", 100);
    return cmocka_run_group_tests_name("choice-factory", tests, NULL, NULL);
}
