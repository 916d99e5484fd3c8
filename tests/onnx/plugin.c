/* The plug-in as a program meets it: found beside libweir, loaded by the file's suffix, an account of its own. */
#include "info.h"

#include "test_places.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <weir/weir.h>
#include <weir/engine.h>
#include <weir/model.h>

static void assert_ok(weir_status status)
{
    if (status != WEIR_OK)
        fail_msg("%s: %s", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
}

static weir_runtime *make_runtime(uint64_t budget)
{
    weir_runtime *runtime;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget};
    assert_ok(weir_runtime_create("host", &options, &runtime));
    return runtime;
}

static weir_status load(weir_runtime *runtime, const char *name, weir_model **out)
{
    weir_model_options options = {.struct_size = sizeof options, .name = name, .runtime = runtime};
    return weir_model_create(data_path("onnx/%s.onnx", name), &options, out);
}

static void a_model_from_load_to_unload(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(64u << 20);
    weir_model *model;
    assert_ok(load(runtime, "scalar", &model));
    assert_string_equal(engine_name(model), "onnx");
    float a = 1, b = 2;
    weir_tensor inputs[] = {
        {.struct_size = sizeof *inputs, .name = "a", .type = WEIR_TYPE_F32, .data = &a, .bytes = 4},
        {.struct_size = sizeof *inputs, .name = "b", .type = WEIR_TYPE_F32, .data = &b, .bytes = 4}};
    weir_inference inference = {.struct_size = sizeof inference, .inputs = inputs, .input_count = 2};
    weir_outputs out = WEIR_INIT(weir_outputs);
    assert_ok(weir_model_infer(model, &inference, &out));
    assert_true(*(float *)out.tensors[0].data == 3);
    assert_int_equal(weir_model_destroy(model), WEIR_ERR_BUSY); /* its outputs are not released */
    weir_model_release_outputs(model, &out);
    assert_ok(weir_model_warm_up(model));
    assert_ok(weir_model_destroy(model));
    assert_ok(weir_runtime_destroy(runtime));
}

static void a_refusal_says_what_the_model_takes(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(1024);
    weir_model *model;
    assert_int_equal(load(runtime, "mlp", &model), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_detail(), "mlp asked for"));
    assert_non_null(strstr(weir_detail(), "the whole model takes at least 1.3 KiB"));
    weir_refusal refusal = WEIR_INIT(weir_refusal);
    assert_ok(weir_refusal_last(&refusal));
    assert_string_equal(refusal.client, "mlp");
    assert_true(refusal.cause != WEIR_CAUSE_NONE);
    assert_ok(weir_runtime_destroy(runtime));
}

static void a_damaged_file_leaves_nothing(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(64u << 20);
    weir_model *model;
    assert_int_equal(load(runtime, "beyond", &model), WEIR_ERR_CORRUPT);
    assert_int_equal(load(runtime, "strings", &model), WEIR_ERR_UNSUPPORTED);
    assert_ok(weir_runtime_destroy(runtime)); /* BUSY if a client were left */
}

int main(void)
{
    const weir_engine *engine;
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    if (weir_engine_get("onnx", &engine) != WEIR_OK) {
        printf("the plug-in was built and is not found: %s\n", weir_detail());
        return 1;
    }
    if (engine->probe(&probe) != WEIR_OK || !probe.available) {
        const char *require = getenv("WEIR_REQUIRE_ENGINES");
        printf("skipped: %s\n", probe.missing);
        return require && strcmp(require, "1") == 0 ? 1 : 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_from_load_to_unload),
        cmocka_unit_test(a_refusal_says_what_the_model_takes),
        cmocka_unit_test(a_damaged_file_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
