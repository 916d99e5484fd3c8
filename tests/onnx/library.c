/* Looking for ONNX Runtime: what is missing, too old or something else is said in words. Needs no ONNX Runtime. */
#include "common.h"

#include "test_places.h"
#include <weir/engine.h>

static void assert_missing(const char *library, const char *words)
{
    weir_engine_probe probe = WEIR_INIT(weir_engine_probe);
    assert_ok(weir_option_set("onnxruntime", library));
    assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->probe(&probe));
    assert_false(probe.available);
    if (!strstr(probe.missing, words))
        fail_msg("\"%s\" is not in: %s", words, probe.missing);
    loaded l = open_client(0);
    assert_int_not_equal(load_into(&l, "scalar", NULL), WEIR_OK);
    assert_detail(words);
    close_client(&l);
    assert_ok(weir_option_set("onnxruntime", NULL));
}

static void not_there(void **state)
{
    (void)state;
    assert_missing("/nowhere/libonnxruntime.so", "/nowhere/libonnxruntime.so");
}

static void something_else(void **state)
{
    (void)state;
    assert_missing("libm.so.6", "is no ONNX Runtime");
}

static void too_old(void **state)
{
    (void)state;
    assert_missing(built_path("tests/libonnx-old-library.so"), "ONNX Runtime 1.21.0; weir needs 1.23");
}

static void no_other_interface(void **state)
{
    (void)state;
    assert_null(weir_engine_entry(0));
    const weir_engine *engine = weir_engine_entry(WEIR_ENGINE_ABI + 1);
    assert_non_null(engine);
    assert_int_equal(engine->abi, WEIR_ENGINE_ABI);
    assert_string_equal(engine->suffixes, ".onnx");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_there),
        cmocka_unit_test(something_else),
        cmocka_unit_test(too_old),
        cmocka_unit_test(no_other_interface),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
