/* What another thread does between two steps of the beginning of a launch, of a capture, of an allocation. */
#include "core/core.h"

#include "runtime/runtime.h"
#include <weir/block_pool.h>
#include <weir/pressure.h>

static void (*at_record)(void), (*behind_record)(void), (*at_fill)(void), (*at_wait)(void); /* once */
static bool refuse_record;

static void once(void (**place)(void))
{
    void (*fn)(void) = *place;
    *place = NULL;
    if (fn)
        fn();
}

static weir_status record(wi_device *device, void *stream, wi_event *out)
{
    if (refuse_record) {
        refuse_record = false;
        return weir_fail(WEIR_ERR_DRIVER, "between: no event");
    }
    once(&at_record);
    weir_status status = wi_host_driver.record(device, stream, out);
    once(&behind_record);
    return status;
}

static weir_status fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    once(&at_fill);
    return wi_host_driver.fill(device, to, value, bytes, stream);
}

static weir_status wait_for(wi_device *device, wi_event event, uint64_t deadline)
{
    once(&at_wait);
    return wi_host_driver.wait(device, event, deadline);
}

static weir_runtime *runtime;
static weir_client *client;
static weir_stream first, second;
static void *pointer;
static gate held; /* by a stream, until the test is over */

static void *take_zeroed(weir_stream stream)
{
    weir_request request = {.struct_size = sizeof request, .bytes = MIB, .stream = stream, .flags = WEIR_ALLOC_ZEROED};
    weir_block block;
    ok(weir_alloc_with(client, &request, &block));
    return block.pointer;
}

static int set_up(void **state)
{
    (void)state;
    static wi_driver driver;
    driver = wi_host_driver;
    driver.record = record;
    driver.fill = fill;
    driver.wait = wait_for;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB};
    ok(wi_runtime_create_over(&driver, 0, &options, &runtime));
    client = open_client(runtime, "one", 0, 0);
    ok(weir_stream_acquire(runtime, &first));
    ok(weir_stream_acquire(runtime, &second));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ok(weir_stream_release(first));
    ok(weir_stream_release(second));
    check_empty(runtime);
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
    return 0;
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
    weir_stream third;
    ok(weir_stream_acquire(runtime, &third));
    pointer = take_zeroed(first);
    ok(weir_stream_synchronize(first));
    held = (gate)GATE;
    ok(weir_call(runtime, pass_gate, &held, second));
    weir_use use = {{pointer, 0}, WEIR_ACCESS_READ};
    weir_launch *launch;
    at_record = another_takes_its_place;
    fails(WEIR_ERR_STALE, weir_launch_begin(runtime, third, &use, 1, &launch));
    assert_null(at_record);
    assert_null(launch);
    ok(weir_free(client, pointer, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(runtime).device.pending, MIB); /* until the zeros are done */
    open_gate(&held);
    ok(weir_stream_synchronize(second)); /* nobody is at the gate any more */
    ok(weir_stream_release(third));
}

/* Captures --------------------------------------------------------------------------------------------------------- */

static void take_nothing(void)
{
    weir_request request = {.struct_size = sizeof request, .bytes = MIB, .stream = first, .flags = WEIR_ALLOC_ZEROED};
    weir_block block;
    fails(WEIR_ERR_STREAM_MISUSE, weir_alloc_with(client, &request, &block));
}

static void begin_and_give(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    (void)user;
    ok(weir_capture_begin(first, NULL));
    ok(weir_free(client, pointer, WEIR_STREAM_HOST));
}

static void no_zeros_come_here(void)
{
    fail_msg("zeros were queued on a captured stream");
}

/* The request had looked before. */
static void a_capture_that_begins_while_zeros_wait_for_room(void **state)
{
    (void)state;
    uint64_t id;
    pointer = take_zeroed(second);
    ok(weir_stream_synchronize(second));
    ok(weir_pressure_register(runtime, 0, begin_and_give, NULL, &id));
    at_fill = no_zeros_come_here;
    take_nothing();
    at_fill = NULL;
    detail_names("captured");
    ok(weir_pressure_unregister(runtime, id));
    ok(weir_capture_end(first, NULL));
    assert_int_equal(take_snapshot(runtime).device.live, 0);
}

static void nothing_is_recorded(void)
{
    fail_msg("an event was recorded on a captured stream");
}

static void begin_and_open(void)
{
    ok(weir_capture_begin(first, NULL));
    at_record = nothing_is_recorded;
    open_gate(&held);
}

static void a_capture_that_begins_while_a_pools_block_is_waited_for(void **state)
{
    (void)state;
    enum { BYTES = 4096 };
    weir_block_pool_options options = {
        .struct_size = sizeof options, .bytes = BYTES, .count = 1, .tag = "kv", .flags = WEIR_BLOCK_POOL_CLEAR};
    weir_block_pool *pool;
    weir_block_pool_member *one, *other;
    weir_block_pool_stats stats = WEIR_INIT(weir_block_pool_stats);
    uint32_t index;
    ok(weir_block_pool_create(client, &options, &pool));
    ok(weir_block_pool_member_create(pool, client, 0, &one));
    ok(weir_block_pool_member_create(pool, client, 0, &other));
    ok(weir_block_pool_alloc(other, 1, 0, second, &index));
    held = (gate)GATE;
    ok(weir_call(runtime, pass_gate, &held, second));
    ok(weir_block_pool_free(other, &index, NULL, 1, 0, second));
    at_wait = begin_and_open;
    at_fill = no_zeros_come_here;
    fails(WEIR_ERR_STREAM_MISUSE, weir_block_pool_alloc(one, 1, 0, first, &index));
    detail_names("weir_block_pool_alloc");
    at_fill = at_record = NULL;
    assert_null(at_wait);
    ok(weir_capture_end(first, NULL));
    ok(weir_block_pool_info(pool, &stats, NULL, 0, NULL));
    assert_int_equal(stats.free, 1);
    ok(weir_block_pool_alloc(one, 1, 0, first, &index));
    ok(weir_stream_synchronize(first));
    ok(weir_block_pool_free(one, &index, NULL, 1, 0, WEIR_STREAM_HOST));
    ok(weir_block_pool_destroy(pool));
}

static void begin_before_the_gate(void)
{
    ok(weir_capture_begin(first, NULL));
    ok(weir_call(runtime, pass_gate, &held, first));
}

static void nobody_queues_zeros_once_a_capture_begins(void **state)
{
    (void)state;
    behind_record = take_nothing;
    ok(weir_capture_begin(first, NULL));
    assert_null(behind_record);
    ok(weir_capture_end(first, NULL));
}

static void free_it(void)
{
    ok(weir_free(client, pointer, WEIR_STREAM_HOST));
    assert_int_equal(take_snapshot(runtime).device.pending, MIB);
}

static void a_free_while_a_capture_begins(void **state)
{
    (void)state;
    held = (gate)GATE;
    ok(weir_call(runtime, pass_gate, &held, first));
    pointer = take_zeroed(first);
    at_record = free_it;
    ok(weir_capture_begin(first, NULL));
    assert_null(at_record);
    ok(weir_capture_end(first, NULL));
    open_gate(&held);
    ok(weir_stream_synchronize(first));
}

static void a_capture_that_begins_while_zeros_are_queued(void **state)
{
    (void)state;
    held = (gate)GATE;
    at_fill = begin_before_the_gate;
    pointer = take_zeroed(first);
    free_it();
    ok(weir_capture_end(first, NULL));
    open_gate(&held);
    ok(weir_stream_synchronize(first));
    assert_int_equal(take_snapshot(runtime).device.pending, 0);
}

static void a_capture_that_does_not_begin(void **state)
{
    (void)state;
    refuse_record = true;
    fails(WEIR_ERR_DRIVER, weir_capture_begin(first, NULL));
    assert_false(refuse_record);
    ok(weir_stream_synchronize(first)); /* it is not captured */
    fails(WEIR_ERR_INVALID, weir_capture_end(first, NULL));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_next_block_keeps_its_zeros),
        CASE(nobody_queues_zeros_once_a_capture_begins),
        CASE(a_free_while_a_capture_begins),
        CASE(a_capture_that_begins_while_zeros_are_queued),
        CASE(a_capture_that_begins_while_zeros_wait_for_room),
        CASE(a_capture_that_begins_while_a_pools_block_is_waited_for),
        CASE(a_capture_that_does_not_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
