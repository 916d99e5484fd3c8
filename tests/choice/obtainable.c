/* What can be had of a device on which the process has a runtime, and of one on which it will have one. */
#include "choice/machine.h"
#include <weir/manifest.h>
#include <weir/select.h>

enum { BUDGET = 64 << 20 };

static const char *model;
static machine here;
static weir_manifest manifest;
static weir_choice_options options;

static uint64_t of_host(void)
{
    weir_choice *choice = choose(&manifest, &options);
    uint64_t bytes = candidate(choice, "onnx", "cpu", "cpu")->obtainable;
    weir_choice_destroy(choice);
    return bytes;
}

static int set_up(void **state)
{
    (void)state;
    doubles_reset();
    machine_begin(&here, 16 * GIB);
    manifest = (weir_manifest){.struct_size = sizeof manifest, .path = "", .model_file = model};
    options = (weir_choice_options){.struct_size = sizeof options, .hardware = &here.hardware};
    return 0;
}

/* Before there is a runtime: the budget that one would get, and none is made. */
static void without_a_runtime(void **state)
{
    (void)state;
    assert_int_equal(of_host(), 16 * GIB - 16 * GIB / 10);
    here.devices[0].free = 2 * GIB;
    assert_int_equal(of_host(), 2 * GIB - 512 * MIB);
    here.devices[0].free = 100 * MIB;
    assert_int_equal(of_host(), 0);
    here.devices[0].free = 16 * GIB;
    ok(weir_option_set("budget", "host=1GiB"));
    assert_int_equal(of_host(), GIB);
    here.devices[0].free = 100 * MIB; /* a budget makes no memory */
    assert_int_equal(of_host(), 100 * MIB);
    ok(weir_option_set("budget", NULL));
    weir_obtainable given = {"cpu", 12345};
    options.obtainable = &given;
    options.obtainable_count = 1;
    assert_int_equal(of_host(), 12345);
}

static void with_a_runtime(void **state)
{
    (void)state;
    weir_runtime *runtime;
    weir_runtime_options budget = {.struct_size = sizeof budget, .budget = BUDGET};
    ok(weir_runtime_get("host", &budget, &runtime));
    assert_int_equal(of_host(), BUDGET);
    weir_client *a = open_client(runtime, "a", 16 * MIB, 0), *b = open_client(runtime, "b", 0, 0);
    assert_int_equal(of_host(), BUDGET - 16 * MIB); /* a guarantee is nobody else's */
    void *p = allocate(a, 4 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    assert_int_equal(of_host(), BUDGET - 16 * MIB);
    void *q = allocate(b, 8 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS),
         *r = allocate(b, 4096, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    assert_int_equal(of_host(), BUDGET - 24 * MIB - 4096);
    ok(weir_free(b, r, WEIR_STREAM_HOST)); /* thread-cached bytes can be had */
    assert_int_equal(of_host(), BUDGET - 24 * MIB);
    here.devices[0].free = 0; /* what is held and in nobody's use can be had, and no more */
    ok(weir_free(b, q, WEIR_STREAM_HOST));
    snapshot s = take_snapshot(runtime);
    assert_true(s.device.cached + s.device.spare > 0 && s.device.held < BUDGET - 16 * MIB);
    assert_int_equal(of_host(), s.device.cached + s.device.spare);
    ok(weir_free(a, p, WEIR_STREAM_HOST));
    ok(weir_client_destroy(a));
    ok(weir_client_destroy(b));
    here.devices[0].free = 16 * GIB;
    assert_int_equal(of_host(), BUDGET);
}

/* A model that the budget would refuse is refused before it is loaded. */
static void a_verdict_of_the_budget(void **state)
{
    (void)state;
    doubles[0].bytes[6] = BUDGET + 1;
    weir_choice *choice = choose(&manifest, &options);
    assert_int_equal(candidate(choice, "onnx", "cpu", "cpu")->verdict, WEIR_VERDICT_LITTLE_MEMORY);
    weir_choice_destroy(choice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_a_runtime, set_up),
        cmocka_unit_test_setup(with_a_runtime, set_up),
        cmocka_unit_test_setup(a_verdict_of_the_budget, set_up),
    };
    doubles_register();
    model = model_file("model.onnx", 100);
    return cmocka_run_group_tests_name("choice-obtainable", tests, NULL, NULL);
}
