/* A base of the program's own that follows streams and keeps what is released: when it is called, and what is counted. */
#include "info.h"
#include "core/core.h"

static struct {
    uint64_t has, kept;
    void *allocated_on, *released_on;
    int allocations, releases;
    void *list[8];
} pool;

static weir_status pool_allocate(void *state, size_t bytes, void *stream, void **address)
{
    (void)state;
    pool.allocated_on = stream;
    pool.allocations++;
    *address = aligned_alloc(256, bytes);
    assert_non_null(*address);
    pool.has += bytes;
    return WEIR_OK;
}

static weir_status pool_release(void *state, void *address, size_t bytes, void *stream)
{
    (void)state;
    pool.released_on = stream;
    pool.list[pool.releases++] = address; /* work that is queued may still use it */
    pool.has -= bytes;
    pool.kept += bytes;
    return WEIR_OK;
}

static weir_status pool_held(void *state, uint64_t *bytes)
{
    (void)state;
    *bytes = pool.has + pool.kept;
    return WEIR_OK;
}

static weir_status pool_trim(void *state, uint64_t keep, uint64_t *bytes)
{
    for (int i = 0; i < pool.releases && pool.has + pool.kept > keep; i++) {
        free(pool.list[i]);
        pool.list[i] = NULL;
    }
    if (pool.has + pool.kept > keep)
        pool.kept = 0;
    return pool_held(state, bytes);
}

static void a_base_that_follows_streams_gets_a_block_back_in_their_order(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 4 * MIB, .resource = "pool"};
    weir_runtime *runtime;
    weir_stream stream;
    weir_trim_report report = WEIR_INIT(weir_trim_report);
    gate g = GATE;
    ok(weir_runtime_create("cuda:0", &options, &runtime));
    assert_true(runtime_details(runtime).features & WEIR_FEATURE_STREAM_ORDERED);
    assert_true(runtime_details(runtime).features & WEIR_FEATURE_TRIMS);
    assert_false(runtime_details(runtime).features & WEIR_FEATURE_CAPTURABLE);
    weir_client *client = open_client(runtime, "x", 0, 0);
    ok(weir_stream_acquire(runtime, &stream));
    void *p = allocate(client, MIB, stream, WEIR_CLASS_KV);
    assert_non_null(pool.allocated_on);
    assert_ptr_equal(pool.allocated_on, weir_stream_native(stream));
    ok(weir_call(runtime, pass_gate, &g, stream)); /* work that the device is not past */
    ok(weir_free(client, p, stream));
    assert_int_equal(pool.releases, 1);
    assert_ptr_equal(pool.released_on, weir_stream_native(stream));
    assert_int_equal(take_snapshot(runtime).device.pending, MIB);
    open_gate(&g);
    ok(weir_stream_synchronize(stream));
    ok(weir_runtime_drain(runtime, NULL));
    assert_int_equal(take_snapshot(runtime).device.pending, 0);
    assert_int_equal(take_snapshot(runtime).device.cached, MIB); /* what the base keeps */
    ok(weir_runtime_trim(runtime, NULL, &report));
    assert_int_equal(report.released, MIB);
    assert_int_equal(pool.kept, 0);
    assert_int_equal(take_snapshot(runtime).device.held, 0);
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_base_that_follows_streams_gets_a_block_back_in_their_order),
    };
    weir_base_table table = {.struct_size = sizeof table,
                             .name = "pool",
                             .flags = WEIR_BASE_STREAM_ORDERED,
                             .allocate = pool_allocate,
                             .release = pool_release,
                             .held = pool_held,
                             .trim = pool_trim};
    return weir_base_register(&table) == WEIR_OK ? cmocka_run_group_tests_name("own-base-pool", tests, NULL, NULL) : 1;
}
