/* What another thread does between two steps of the beginning of a launch. */
#include "core/core.h"

#include "runtime/runtime.h"

static void (*at_record)(void); /* once */

static weir_status record(wi_device *device, void *stream, wi_event *out)
{
    void (*fn)(void) = at_record;
    at_record = NULL;
    if (fn)
        fn();
    return wi_host_driver.record(device, stream, out);
}

static weir_runtime *runtime;
static weir_client *client;
static weir_stream first, second;
static void *pointer;

static void *take_zeroed(weir_stream stream)
{
    weir_request request = {.size = sizeof request, .bytes = MIB, .stream = stream, .flags = WEIR_ZEROED};
    weir_block block;
    ok(weir_alloc_with(client, &request, &block));
    return block.pointer;
}

static void another_takes_its_place(void)
{
    ok(weir_free(client, pointer, first));
    assert_ptr_equal(take_zeroed(second), pointer);
}

/* A launch on a pointer whose block goes while it begins says so, and leaves the zeros of the next one there alone. */
static void the_next_block_keeps_its_zeros(void **state)
{
    (void)state;
    static wi_driver driver;
    driver = wi_host_driver;
    driver.record = record;
    weir_runtime_options options = {.size = sizeof options, .budget = MIB};
    ok(wi_runtime_create_over(&driver, 0, &options, &runtime));
    client = open_client(runtime, "one", 0, 0);
    weir_stream third;
    ok(weir_stream_acquire(runtime, &first));
    ok(weir_stream_acquire(runtime, &second));
    ok(weir_stream_acquire(runtime, &third));
    pointer = take_zeroed(first);
    ok(weir_stream_synchronize(first));
    gate g = GATE;
    ok(weir_call(runtime, pass_gate, &g, second));
    weir_use use = {{pointer, 0}, WEIR_READ};
    weir_launch *launch;
    at_record = another_takes_its_place;
    fails(WEIR_STALE, weir_launch_begin(runtime, third, &use, 1, &launch));
    assert_null(at_record);
    assert_null(launch);
    ok(weir_free(client, pointer, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(runtime).device.pending, MIB); /* until the zeros are done */
    open_gate(&g);
    ok(weir_stream_release(first));
    ok(weir_stream_release(second));
    ok(weir_stream_release(third));
    check_empty(runtime);
    ok(weir_client_close(client));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_next_block_keeps_its_zeros)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
