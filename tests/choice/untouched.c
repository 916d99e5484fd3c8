/* The choice looks at a CUDA device, here the stub's, and makes no context and takes no memory there. */
#include "info.h"
#include "choice/machine.h"
#include <weir/manifest.h>
#include <weir/select.h>

#include <dlfcn.h>

static uint64_t stub_count(const char *what)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(library);
    uint64_t (*count)(const char *) = NULL;
    *(void **)&count = dlsym(library, "stub_count");
    assert_non_null(count); /* the stub's own library, and no other */
    return count(what);
}

static void nothing_is_there(void)
{
    static const char *const things[] = {"contexts", "handles",     "mappings", "reservations",
                                         "streams",  "allocations", "pools",    "used"};
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++)
        assert_int_equal(stub_count(things[i]), 0);
}

static void no_context_is_made(void **state)
{
    (void)state;
    weir_manifest manifest = {.struct_size = sizeof manifest, .path = "", .model_file = model_file("model.onnx", 100)};
    weir_choice_options options = {.struct_size = sizeof options};
    weir_choice *choice = choose(&manifest, &options); /* of this machine */
    assert_true(choice->accepted > 0);
    weir_choice_destroy(choice);
    nothing_is_there();
    machine here;
    machine_begin(&here, 16 * GIB);
    machine_add(&here, WEIR_HARDWARE_CUDA, 8 * GIB);
    options.hardware = &here.hardware;
    doubles[0].plans = 0;
    choice = choose(&manifest, &options);
    assert_string_equal(choice->candidates[0].runtime, "cuda:0");
    assert_int_equal(doubles[0].plans, 2);
    weir_choice_destroy(choice);
    nothing_is_there();
    weir_runtime *runtime; /* what would be seen */
    ok(weir_runtime_get("cuda:0", NULL, &runtime));
    assert_int_equal(stub_count("contexts"), 1);
    choice = choose(&manifest, &options);
    assert_int_equal(candidate(choice, "onnx", "cuda", "cuda-0")->obtainable, runtime_details(runtime).budget);
    weir_choice_destroy(choice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_context_is_made)};
    doubles_register();
    doubles_reset();
    return cmocka_run_group_tests_name("choice-untouched", tests, NULL, NULL);
}
