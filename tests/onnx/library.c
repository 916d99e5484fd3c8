/* Looking for ONNX Runtime: what is missing, too old or something else is said in words. Needs no ONNX Runtime. */
#include "common.h"

#include "test_places.h"
#include <weir/engine.h>

#include <dlfcn.h>
#include <unistd.h>

#include "made_library.h"

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

/* In a store without any, and where the system has none: told by how to get it. */
static void nothing_is_here(void **state)
{
    (void)state;
    char folder[] = "/tmp/weir-library-XXXXXX", words[128];
    assert_non_null(mkdtemp(folder));
    assert_ok(weir_option_set("home", folder));
    snprintf(words, sizeof words, "nothing in %s/engines and no system library", folder);
    for (int i = 0; i < ONNX_PROVIDERS; i++) {
        const onnx_library *found;
        weir_engine_provider its = WEIR_INIT(weir_engine_provider);
        weir_status status = onnx_library_look((onnx_provider)i, &found);
        if (status == WEIR_OK)
            skip_without("a system without ONNX Runtime");
        assert_int_equal(status, WEIR_ERR_NOT_FOUND);
        assert_detail(words);
        assert_detail(i == ONNX_CPU ? "version 1.23 or newer" : onnx_provider_advice((onnx_provider)i));
        assert_null(found);
        assert_status(onnx_library_get((onnx_provider)i, &found), WEIR_ERR_NOT_FOUND);
        assert_null(found);
        assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->provider((size_t)i, &its));
        assert_int_equal(its.state, WEIR_PROVIDER_NO_LIBRARY);
        assert_non_null(strstr(its.missing, words));
        assert_string_equal(its.library, "");
    }
    assert_ok(weir_option_set("home", NULL));
    assert_int_equal(rmdir(folder), 0);
}

/* ---- a library that the test has made up -------------------------------------------------------------------------- */

static const char *made_up_path(void)
{
    return built_path("tests/libonnx-made-library.so");
}

static made_library *made_up(void)
{
    static made_library *found;
    void *handle = found ? NULL : dlopen(made_up_path(), RTLD_NOW | RTLD_LOCAL);
    if (!found) {
        assert_non_null(handle);
        found = dlsym(handle, "made_up");
        assert_non_null(found);
    }
    return found;
}

static void too_old(void **state)
{
    (void)state;
    assert_missing(made_up_path(), "ONNX Runtime 1.21.0; weir needs 1.23");
}

static char cpu[] = "CPUExecutionProvider", rocm[] = "ROCMExecutionProvider", migraphx[] = "MIGraphXExecutionProvider",
            core_ml[] = "CoreMLExecutionProvider", unknown[] = "SomebodysExecutionProvider";

/* Of another major version, too old, or no version at all. */
static void versions_that_are_none_of_these(void **state)
{
    (void)state;
    static const char *const versions[] = {"1.22.9", "0.31.0", "2.31.0", "1", "1.", "one", "1.x", "11.31"};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        char words[64];
        snprintf(made_up()->version, sizeof made_up()->version, "%s", versions[i]);
        snprintf(words, sizeof words, "is ONNX Runtime %s; weir needs 1.23 or a later 1.x", versions[i]);
        made_up()->asked = 0;
        assert_missing(made_up_path(), words);
        assert_int_equal(made_up()->asked, 0);
    }
}

/* From a version on there are more functions. */
static void a_table_that_is_not_offered(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        uint32_t asked;
    } cases[] = {{"1.23.0", 23}, {"1.23.99", 23}, {"1.24.0", 24}, {"1.99.1", 24}};
    made_up()->no_table = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[96];
        snprintf(made_up()->version, sizeof made_up()->version, "%s", cases[i].version);
        snprintf(words, sizeof words, "(ONNX Runtime %s) does not offer version %u of its interface", cases[i].version,
                 cases[i].asked);
        assert_missing(made_up_path(), words);
        assert_int_equal(made_up()->asked, cases[i].asked);
    }
    made_up()->no_table = false;
}

static weir_log_level logged;
static char log_words[256];

static void note_log(weir_log_level level, const char *text, void *user)
{
    (void)user;
    logged = level;
    snprintf(log_words, sizeof log_words, "%s", text);
}

/* What it says of itself goes to weir's log, as grave as it is. */
static void its_words_are_logged(void)
{
    static const struct {
        int severity;
        weir_log_level level;
    } cases[] = {{ORT_LOG_WARNING - 1, WEIR_LOG_DEBUG},
                 {ORT_LOG_WARNING, WEIR_LOG_WARNING},
                 {ORT_LOG_ERROR, WEIR_LOG_ERROR},
                 {ORT_LOG_ERROR + 1, WEIR_LOG_ERROR}};
    assert_int_equal(made_up()->severity, ORT_LOG_ERROR);
    assert_ok(weir_log_set(note_log, NULL, WEIR_LOG_DEBUG));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        made_up()->log(made_up()->log_user, cases[i].severity, "category", "id", "place.cc:7", "words");
        assert_int_equal(logged, cases[i].level);
        assert_string_equal(log_words, "onnxruntime: words (place.cc:7)");
    }
    assert_ok(weir_log_set(NULL, NULL, WEIR_LOG_ERROR));
}

/* Whatever of it fails is said, and tried again the next time; what was made is not made again. */
static void each_step_may_fail(void **state)
{
    (void)state;
    made_library *it = made_up();
    const onnx_library *found;
    enum { TO_OPEN = 2, TO_START = 3 };
    char *providers[] = {migraphx, unknown, cpu, core_ml, rocm, NULL};
    memcpy(it->providers, providers, sizeof providers);
    snprintf(it->version, sizeof it->version, "1.23.0");
    assert_ok(weir_option_set("onnxruntime", made_up_path()));
    it->statuses_released = 0;
    for (int step = 1; step <= TO_OPEN + TO_START; step++) {
        it->calls = 0; /* the library is opened for good with the first start */
        it->fails_at = step <= TO_OPEN ? step : step == TO_OPEN + 1 ? step : step - TO_OPEN - (it->places > 0);
        assert_status(onnx_library_get(ONNX_CPU, &found), WEIR_ERR_ENGINE);
        assert_detail("ONNX Runtime 1.23.0");
        assert_detail("could not be started: failed on purpose");
        assert_null(found);
        assert_int_equal(it->statuses_released, step);
        assert_int_equal(it->calls, it->fails_at);
    }
    it->fails_at = 0;
    assert_int_equal(it->places, 1);
    assert_int_equal(it->lists_released, TO_OPEN);
    for (int again = 0; again < 2; again++) {
        assert_ok(onnx_library_get(ONNX_CPU, &found));
        assert_int_equal(it->places, 1);
        assert_int_equal(it->environments, 1);
        assert_int_equal(it->asked, 23);
    }
    its_words_are_logged();
    static const uint32_t kinds[ONNX_PROVIDERS] = {[ONNX_ROCM] = 3, [ONNX_COREML] = 1, [ONNX_CPU] = 1};
    for (int i = 0; i < ONNX_PROVIDERS; i++) {
        const onnx_library *looked;
        assert_int_equal(found->has[i], kinds[i]);
        assert_ok(onnx_library_look((onnx_provider)i, &looked)); /* none but the one that is named */
        assert_ptr_equal(looked, found);
        assert_status(onnx_library_get((onnx_provider)i, &looked), kinds[i] ? WEIR_OK : WEIR_ERR_UNSUPPORTED);
        if (!kinds[i])
            assert_detail(onnx_provider_name((onnx_provider)i));
        assert_int_equal(looked == found, kinds[i] != 0);
    }
    assert_ok(weir_option_set("onnxruntime", "libm.so.6"));
    assert_status(onnx_library_get(ONNX_CPU, &found), WEIR_ERR_CONFLICT);
    assert_detail("names libm.so.6");
    assert_null(found);
    assert_status(onnx_library_look(ONNX_CPU, &found), WEIR_ERR_CONFLICT);
    assert_null(found);
    assert_ok(weir_option_set("onnxruntime", made_up_path()));
    assert_ok(onnx_library_get(ONNX_CPU, &found));
    assert_ok(weir_option_set("onnxruntime", NULL));
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
        cmocka_unit_test(nothing_is_here),
        cmocka_unit_test(versions_that_are_none_of_these),
        cmocka_unit_test(a_table_that_is_not_offered),
        cmocka_unit_test(each_step_may_fail), /* the last, as a library that was opened stays */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
