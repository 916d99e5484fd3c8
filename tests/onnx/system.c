/* The system's ONNX Runtime beside the store's: both have the same name inside, and both are there. */
#include "common.h"

#include "test_places.h"
#include <weir/engine.h>

#include <dlfcn.h>
#include <limits.h>

#include "engines/onnx/needs.h"

static void the_systems_own_is_found_behind_the_stores(void **state)
{
    (void)state;
    const onnx_library *store, *system;
    char real[PATH_MAX];
    assert_ok(onnx_library_get(ONNX_CPU, &store));
    assert_ok(onnx_library_look(ONNX_ROCM, &system));
    assert_ptr_not_equal(system, store);
    assert_int_equal(system->has[ONNX_ROCM], 1u << 1); /* the second of its kinds */
    assert_string_equal(system->version, "1.30.0");
    assert_non_null(realpath(built_path("tests/system/libonnxruntime.so.1"), real));
    char *its = realpath(system->path, NULL);
    assert_non_null(its);
    assert_string_equal(its, real);
    free(its);
    assert_string_not_equal(store->version, system->version);
    weir_engine_provider found = WEIR_INIT(weir_engine_provider);
    assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->provider(ONNX_ROCM, &found)); /* by the file that is asked for */
    assert_int_equal(found.state, WEIR_PROVIDER_NOT_LOADABLE);
    assert_non_null(strstr(found.missing, "libonnxruntime_providers_rocm.so is not beside ONNX Runtime 1.30.0"));
}

/* As the dynamic linker has it: it read LD_LIBRARY_PATH at the start. */
static void later_paths_are_not_heeded(void **state)
{
    (void)state;
    char path[512];
    assert_true(onnx_needs_find("libonnxruntime.so.1", path, sizeof path));
    assert_string_equal(path, built_path("tests/system/libonnxruntime.so.1"));
    assert_false(onnx_needs_find("libonnxruntime.so.1", path, 4));
    assert_false(onnx_needs_find("libnobody.so.1", path, sizeof path));
    assert_true(onnx_needs_find("libm.so.6", path, sizeof path));
    unsetenv("LD_LIBRARY_PATH");
    assert_true(onnx_needs_find("libonnxruntime.so.1", path, sizeof path));
    setenv("LD_LIBRARY_PATH", built_path("tests/needs/there"), 1);
    assert_false(onnx_needs_find("libonnx-needed.so.3", path, sizeof path));
    assert_null(dlopen("libonnx-needed.so.3", RTLD_LAZY)); /* nor does it itself */
    (void)dlerror();
    unsetenv("LD_LIBRARY_PATH");
}

/* Versions are told in the order in which the places are looked through: LD_LIBRARY_PATH before the library's own RUNPATH, and behind
 * its RPATH. */
static void places_are_looked_through_in_order(void **state)
{
    char text[256];
    (void)state;
    assert_int_equal(onnx_needs_missing(built_path("tests/needs/libonnx-needing.so"), NULL, text, sizeof text), 1);
    assert_string_equal(text, "libonnx-needed.so.3 (found libonnx-needed.so.1, libonnx-needed.so.2)");
    assert_int_equal(onnx_needs_missing(built_path("tests/needs/libonnx-needing-before.so"), NULL, text, sizeof text),
                     1);
    assert_string_equal(text, "libonnx-needed.so.3 (found libonnx-needed.so.2, libonnx-needed.so.1)");
}

int main(void)
{
    int status = need_onnxruntime();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_systems_own_is_found_behind_the_stores),
        cmocka_unit_test(places_are_looked_through_in_order),
        cmocka_unit_test(later_paths_are_not_heeded),
    };
    return status ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
