/* A driver of the program's own: which tables are refused, what its devices are called, and what it lacks is answered with
 * words. */
#include "info.h"
#include "core/core.h"
#include "own-driver/toy.h"

/* NOLINTNEXTLINE(readability-non-const-parameter): the table says so */
static weir_status nothing(weir_driver_device *device, uint64_t *held)
{
    (void)device, (void)held;
    return WEIR_OK;
}

static weir_status no_device(int ordinal, weir_driver_device **out)
{
    (void)out;
    return weir_fail(WEIR_ERR_NOT_FOUND, "there is no number %d", ordinal);
}

static void nobody(weir_driver_device *device)
{
    (void)device;
}

static weir_status not_made(weir_driver_device *device)
{
    (void)device;
    return WEIR_ERR_UNSUPPORTED;
}

/* Every function that a driver needs, none of which is called. */
static weir_driver_table table_called(const char *name)
{
    weir_driver_table t = {.struct_size = sizeof t, .name = name, .ordinals = 1, .open = no_device, .close = nobody};
    void *any = (void *)(uintptr_t)nothing;
    void *needed[] = {&t.memory, &t.allocate, &t.release, &t.stream_create, &t.stream_destroy, &t.stream_synchronize,
                      &t.record, &t.passed,   &t.wait,    &t.order,         &t.copy,           &t.fill};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        memcpy(needed[i], &any, sizeof any);
    return t;
}

static void devices_are_called_by_their_ordinals(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB};
    weir_runtime *first, *again, *other, *none;
    ok(weir_runtime_get("toy", &options, &first));
    ok(weir_runtime_get("toy:0", NULL, &again));
    ok(weir_runtime_get("toy:1", &options, &other));
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(first, other);
    assert_string_equal(runtime_details(first).device, "toy:0");
    assert_int_equal(runtime_details(other).ordinal, 1);
    assert_null(runtime_details(first).native);
    assert_string_equal(runtime_details(first).resource, "budget(segments)");
    fails(WEIR_ERR_NOT_FOUND, weir_runtime_get("toy:2", NULL, &none));
    fails(WEIR_ERR_NOT_FOUND, weir_runtime_create("only-one", NULL, &none)); /* its `open` says so */
    detail_names("there is no number 0");
    fails(WEIR_ERR_NOT_FOUND, weir_runtime_create("only-one:1", NULL, &none));
    detail_names("the ordinals of only-one go from 0 to 0");
    fails(WEIR_ERR_INVALID, weir_runtime_create("to", NULL, &none));
}

static void the_default_budget_comes_from_its_memory(void **state)
{
    (void)state;
    weir_runtime *runtime;
    ok(weir_runtime_create("toy:0", NULL, &runtime));
    assert_int_equal(runtime_details(runtime).budget, 512 * MIB); /* 512 MiB are left alone */
    ok(weir_runtime_destroy(runtime));
}

static void what_it_lacks_is_unsupported(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB};
    weir_runtime *runtime;
    weir_stream stream;
    static const char *const stacks[] = {"mapped", "async", "guard(unmapped, mapped)"};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        options.resource = stacks[i];
        fails(WEIR_ERR_UNSUPPORTED, weir_runtime_create("toy:0", &options, &runtime));
    }
    options.resource = "direct";
    ok(weir_runtime_create("toy:0", &options, &runtime));
    fails(WEIR_ERR_UNSUPPORTED, weir_stream_register(runtime, &options, &stream));
    fails(WEIR_ERR_UNSUPPORTED, weir_stream_default(runtime, WEIR_DEFAULT_STREAM_LEGACY, &stream));
    ok(weir_stream_acquire(runtime, &stream));
    assert_null(weir_stream_native(stream));
    ok(weir_stream_release(stream));
    ok(weir_runtime_destroy(runtime));
}

/* It has memory of the host's, too, which counts there. */
static void pinned_memory_is_its_own_and_counts_on_the_host(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB};
    weir_runtime *runtime, *host;
    ok(weir_runtime_create("host", &options, &host));
    options.host = host;
    ok(weir_runtime_create("toy:0", &options, &runtime));
    weir_client *client = open_client(runtime, "x", 0, 0);
    weir_request request = {.struct_size = sizeof request, .bytes = MIB, .kind = WEIR_KIND_PINNED};
    weir_block block;
    ok(weir_alloc_with(client, &request, &block));
    memset(block.pointer, 1, MIB);
    assert_int_equal(take_snapshot(host).device.live, MIB);
    assert_int_equal(take_snapshot(runtime).device.live, 0);
    ok(weir_free_block(client, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    ok(weir_runtime_destroy(host));
}

static void a_device_without_memory_left_refuses(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4096ull * MIB, .resource = "direct"};
    weir_refusal refusal = WEIR_INIT(weir_refusal);
    weir_runtime *runtime;
    ok(weir_runtime_create("toy:0", &options, &runtime));
    weir_client *client = open_client(runtime, "x", 0, 0);
    void *p;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(client, 2048ull * MIB, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
    ok(weir_refusal_last(&refusal));
    assert_int_equal(refusal.cause, WEIR_CAUSE_OTHER_PROCESS);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

static void names_that_are_none_or_taken_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "", "Mine", "a:b", "twelve-bytes"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        weir_driver_table t = table_called(names[i]);
        fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    }
    static const char *const taken[] = {"host", "cuda", "toy"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        weir_driver_table t = table_called(taken[i]);
        fails(WEIR_ERR_CONFLICT, weir_driver_register(&t));
    }
    weir_driver_table t = table_called("more");
    static const int ordinals[] = {-1, 0, 65};
    for (size_t i = 0; i < sizeof ordinals / sizeof ordinals[0]; i++) {
        t.ordinals = ordinals[i];
        fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    }
    fails(WEIR_ERR_INVALID, weir_driver_register(NULL));
}

static void a_table_that_lacks_a_function_or_has_half_a_group_is_refused(void **state)
{
    (void)state;
    weir_driver_table t = table_called("lacks");
    t.fill = NULL;
    fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    t = table_called("lacks");
    t.open = NULL;
    fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    t = table_called("pools");
    t.pool_held = nothing;
    fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    t = table_called("maps");
    t.granule = (uint64_t(*)(weir_driver_device *))(uintptr_t)nothing;
    fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    t = table_called("enters");
    t.enter = not_made;
    fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    void *any = (void *)(uintptr_t)nothing;
    t = table_called("drops"); /* what it has not mapped */
    memcpy(&t.drop, &any, sizeof any);
    fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    t = table_called("protects");
    memcpy(&t.protect, &any, sizeof any);
    fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    t = table_called("written");
    memcpy(&t.written, &any, sizeof any);
    fails(WEIR_ERR_INVALID, weir_driver_register(&t));
    detail_names("`written` without what it goes with");
}

static void there_is_an_end_of_drivers(void **state)
{
    (void)state;
    weir_runtime *runtime;
    for (int i = 0; i < 2; i++) { /* beside "toy" and "only-one" */
        weir_driver_table t = table_called(i ? "second" : "first");
        ok(weir_driver_register(&t));
    }
    weir_driver_table t = table_called("third");
    fails(WEIR_ERR_BUSY, weir_driver_register(&t));
    fails(WEIR_ERR_NOT_FOUND, weir_runtime_create("second", NULL, &runtime));
    fails(WEIR_ERR_INVALID, weir_runtime_create("third", NULL, &runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_called_by_their_ordinals),
        cmocka_unit_test(the_default_budget_comes_from_its_memory),
        cmocka_unit_test(what_it_lacks_is_unsupported),
        cmocka_unit_test(pinned_memory_is_its_own_and_counts_on_the_host),
        cmocka_unit_test(a_device_without_memory_left_refuses),
        cmocka_unit_test(names_that_are_none_or_taken_are_refused),
        cmocka_unit_test(a_table_that_lacks_a_function_or_has_half_a_group_is_refused),
        cmocka_unit_test(there_is_an_end_of_drivers),
    };
    weir_driver_table one = table_called("only-one");
    if (toy_register() != WEIR_OK || weir_driver_register(&one) != WEIR_OK)
        return 1;
    return cmocka_run_group_tests_name("own-driver", tests, NULL, NULL);
}
