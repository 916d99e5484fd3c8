/* Without host memory a choice is refused as a whole: whichever allocation fails, nothing is left and nothing is made
 * up. */
#include "choice/machine.h"

#define HEAP_REFUSES refuse_malloc()
#include "core/heap.h"

#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

static void every_allocation_fails_once(void **state)
{
    (void)state;
    static const weir_setting settings[] = {{"threads", "1"}};
    machine here;
    machine_begin(&here, 16 * GIB);
    machine_add(&here, WEIR_HARDWARE_CUDA, 8 * GIB);
    weir_manifest manifest = {.struct_size = sizeof manifest, .path = "", .model_file = model_file("model.onnx", 100)};
    weir_choice_options options = {.struct_size = sizeof options, .hardware = &here.hardware};
    options.settings = settings;
    options.setting_count = 1;
    weir_choice *whole = choose(&manifest, &options), *choice = NULL;
    int refused = 0;
    for (long n = 0; !choice; n++) {
        mallocs = 0;
        malloc_fails_at = n;
        malloc_armed = true;
        weir_status status = weir_choice_create(&manifest, &options, &choice);
        malloc_armed = false;
        bool failed = mallocs > n;
        assert_true(status == WEIR_ERR_SYSTEM || status == WEIR_OK);
        refused += status == WEIR_ERR_SYSTEM;
        if (status == WEIR_OK && failed) { /* weir_engine_name_at, which lists no plug-ins then: these are linked in */
            assert_int_equal(n, 0);
            weir_choice_destroy(choice);
            choice = NULL;
        }
    }
    assert_true(refused > 20);
    assert_int_equal(choice->accepted, whole->accepted);
    assert_string_equal(choice->rule, whole->rule);
    weir_choice_destroy(choice);
    weir_choice_destroy(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_fails_once)};
    doubles_register();
    doubles_reset();
    return cmocka_run_group_tests_name("choice-faults", tests, NULL, NULL);
}
