/* This machine with a GPU that is a stub: what a look names, a runtime can be made of, and a look makes no context. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <string.h>

#include <weir/weir.h>
#include <weir/select.h>

static const weir_hardware_device *find(const weir_hardware *hardware, const char *runtime)
{
    for (size_t i = 0; i < hardware->device_count; i++)
        if (strcmp(hardware->devices[i].runtime, runtime) == 0)
            return &hardware->devices[i];
    fail_msg("no %s: %s", runtime, hardware->remarks);
    return NULL;
}

/* What the stub has counted. It is loaded by the first look. */
static uint64_t count(const char *what)
{
    uint64_t (*stub_count)(const char *);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    void *symbol = dlsym(library, "stub_count");
    memcpy(&stub_count, &symbol, sizeof symbol);
    dlclose(library);
    return stub_count(what);
}

static void a_look_makes_no_context(void **state)
{
    (void)state;
    weir_hardware_options o = WEIR_INIT(weir_hardware_options);
    weir_hardware *hardware = NULL;
    weir_runtime *runtime = NULL;
    o.limit_ms = 10000;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_hardware_create(&o, &hardware), WEIR_OK);
        const weir_hardware_device *device = find(hardware, "cuda:0");
        assert_string_equal(device->name, "stub");
        assert_string_equal(device->key, "GPU-00000000-0000-0000-0000-000000000000");
        assert_int_equal(device->total, 0x10000000);
        assert_true(device->usable);
        assert_int_equal(count("contexts"), i < 2 ? 0 : 1);
        if (i == 1 && weir_runtime_get(device->runtime, NULL, &runtime) != WEIR_OK)
            fail_msg("%s", weir_detail());
        weir_hardware_destroy(hardware);
    }
    assert_int_equal(count("captures broken"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_makes_no_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
