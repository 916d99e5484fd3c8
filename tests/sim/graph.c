/* Graphs on the simulated device: that no call is made that a capture does not stand, that what its launches touch is nobody
 * else's until they are done, and that a failure of the driver anywhere leaves the books right. */
#include "sim.h"
#include "base/system.h"
#include "runtime/runtime.h"

enum { BUDGET = 16 << 20, BLOCK = 1 << 20 };

static char wrong[256];

static void note_wrong(void *user, const char *what)
{
    (void)user;
    snprintf(wrong, sizeof wrong, "%s", what);
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client, *other;
    weir_stream a, b;
    void *native;
    weir_capture_pool *graph;
} fixture;

static void check_ok(weir_status status, const char *call, int line)
{
    if (status != WEIR_OK)
        print_error("%s: %s\n", call, weir_detail());
    _assert_int_equal((uintmax_t)status, WEIR_OK, __FILE__, line);
}

#define ok(call)            check_ok((call), #call, __LINE__)
#define fails(status, call) assert_int_equal(call, status)

static weir_client *open_client(weir_runtime *runtime, const char *name)
{
    weir_client_options options = {.struct_size = sizeof options, .name = name};
    weir_client *client;
    ok(weir_client_create(runtime, &options, &client));
    return client;
}

static int set_up(void **state)
{
    static const wi_sim_watcher watcher = {.wrong = note_wrong};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = *state};
    fixture *f = calloc(1, sizeof *f);
    wrong[0] = '\0';
    wi_clock = wi_sim_now;
    wi_sim_configure(&(wi_sim_options){.bytes = 2 * BUDGET, .granule = 2 * WI_MIB, .watcher = &watcher});
    ok(wi_runtime_create_over(&wi_sim_driver, 0, &options, &f->runtime));
    wi_sim_configure(NULL);
    f->client = open_client(f->runtime, "one");
    f->other = open_client(f->runtime, "other");
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    f->native = weir_stream_native(f->a);
    *state = f;
    return 0;
}

static weir_stats stats_of(fixture *f)
{
    weir_stats stats = {.struct_size = sizeof stats};
    ok(weir_snapshot(f->runtime, &stats, NULL, 0, NULL));
    return stats;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    weir_stats stats = stats_of(f);
    assert_int_equal(stats.live + stats.pending + stats.promised, 0);
    ok(weir_client_destroy(f->client));
    ok(weir_client_destroy(f->other));
    ok(weir_runtime_destroy(f->runtime));
    assert_string_equal(wrong, "");
    free(f);
    return 0;
}

static void *allocate(weir_client *client, uint64_t bytes, weir_stream stream)
{
    void *pointer;
    ok(weir_alloc(client, bytes, stream, WEIR_CLASS_KV, &pointer));
    return pointer;
}

/* The simulated device refuses on a captured stream what the real one does. */
static void no_call_breaks_a_capture(void **state)
{
    fixture *f = *state;
    wi_device *device = f->runtime->device;
    ok(weir_capture_pool_create(f->client, &f->graph));
    for (int round = 0; round < 3; round++) {
        ok(weir_capture_begin(f->a, f->graph));
        wi_sim_capture(device, f->native, true);
        uint64_t before = wi_sim_calls(WI_SIM_RECORD) + wi_sim_calls(WI_SIM_WAIT) + wi_sim_calls(WI_SIM_SYNCHRONIZE) +
                          wi_sim_calls(WI_SIM_ORDER);
        void *large = allocate(f->client, 4 * BLOCK, f->a);
        ok(weir_free(f->client, large, f->a));
        void *small = allocate(f->client, BLOCK, f->a), *left = allocate(f->client, 3 * BLOCK, f->a);
        assert_ptr_equal(small, large);
        assert_ptr_equal(left, (char *)large + BLOCK);
        void *none;
        fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc(f->client, BUDGET, f->a, WEIR_CLASS_KV, &none));
        ok(weir_free(f->client, left, f->a));
        ok(weir_free(f->client, small, f->a));
        uint64_t after = wi_sim_calls(WI_SIM_RECORD) + wi_sim_calls(WI_SIM_WAIT) + wi_sim_calls(WI_SIM_SYNCHRONIZE) +
                         wi_sim_calls(WI_SIM_ORDER);
        assert_int_equal(before, after);
        wi_sim_capture(device, f->native, false);
        ok(weir_capture_end(f->a, f->graph));
        ok(weir_capture_pool_destroy(f->graph, f->a));
        ok(weir_capture_pool_create(f->client, &f->graph));
    }
    ok(weir_capture_pool_destroy(f->graph, WEIR_STREAM_HOST));
}

/* Dropped in flight: what its launch reads and writes is as it left it, until it is done. */
static void a_launch_in_flight(void **state)
{
    fixture *f = *state;
    wi_device *device = f->runtime->device;
    uint32_t mine = WI_SIM_FIRST_VERSION + 1, theirs = WI_SIM_FIRST_VERSION + 2;
    ok(weir_capture_pool_create(f->client, &f->graph));
    ok(weir_capture_begin(f->a, f->graph));
    void *temporary = allocate(f->client, BLOCK, f->a);
    ok(weir_free(f->client, temporary, f->a));
    ok(weir_capture_end(f->a, f->graph));
    wi_sim_touch(device, f->native, temporary, BLOCK, true, mine);
    void *others = allocate(f->other, BUDGET - BLOCK, f->b);
    wi_sim_touch(device, weir_stream_native(f->b), others, BUDGET - BLOCK, true, theirs);
    wi_sim_touch(device, f->native, temporary, BLOCK, false, mine);
    ok(weir_capture_pool_destroy(f->graph, f->a));
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .stream = f->b, .flags = WEIR_ALLOC_NO_WAIT};
    weir_block block;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->other, &request, &block));
    assert_int_equal(stats_of(f).pending, BLOCK);
    while (wi_sim_run(device, 0, 100))
        ;
    assert_int_equal(stats_of(f).pending, 0);
    ok(weir_alloc_with(f->other, &request, &block));
    assert_ptr_equal(block.pointer, temporary);
    ok(weir_free_block(f->other, block, f->b));
    ok(weir_free(f->other, others, f->b));
    assert_string_equal(wrong, "");
}

/* Two captures, frees and cuts elsewhere and a close, as far as the calls succeed. */
static void use_graphs(fixture *f)
{
    void *blocks[3] = {NULL}, *again = NULL;
    if (weir_capture_pool_create(f->client, &f->graph) != WEIR_OK)
        return;
    if (weir_capture_begin(f->a, f->graph) == WEIR_OK) {
        for (int i = 0; i < 3; i++)
            (void)!weir_alloc(f->client, BLOCK << i, f->a, WEIR_CLASS_KV, &blocks[i]);
        if (weir_free(f->client, blocks[0], f->a) == WEIR_OK)
            blocks[0] = NULL;
        ok(weir_capture_end(f->a, f->graph));
    }
    if (weir_free(f->client, blocks[1], f->b) == WEIR_OK)
        blocks[1] = NULL;
    if (blocks[2])
        (void)!weir_resize(f->client, blocks[2], BLOCK, f->b);
    if (weir_capture_begin(f->b, f->graph) == WEIR_OK) {
        (void)!weir_alloc(f->client, BLOCK / 2, f->b, WEIR_CLASS_KV, &again);
        ok(weir_capture_end(f->b, f->graph));
    }
    if (weir_capture_pool_destroy(f->graph, f->a) != WEIR_OK)
        ok(weir_capture_pool_destroy(f->graph, WEIR_STREAM_HOST));
    while (wi_sim_run(f->runtime->device, 0, 100))
        ;
    for (int i = 0; i < 3; i++)
        ok(weir_free(f->client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_free(f->client, again, WEIR_STREAM_HOST));
}

static void failures_of_the_driver(void **state)
{
    fixture *f = *state;
    unsigned happened = 1;
    long at = 0;
    for (; happened > 0 && at < 200; at++) {
        wi_sim_arm(&(wi_sim_fault){WI_SIM_CALLS, at, false, WEIR_ERR_DRIVER}, NULL);
        use_graphs(f);
        happened = wi_sim_faults();
        wi_sim_arm(NULL, NULL);
        (void)!weir_runtime_trim(f->runtime, NULL, NULL);
        weir_stats stats = stats_of(f);
        assert_int_equal(stats.live + stats.pending + stats.promised, 0);
        assert_int_equal(stats.allocations, stats.frees);
    }
    assert_in_range(at, 6, 100);
}

#define CASE(name, resource) cmocka_unit_test_prestate_setup_teardown(name, set_up, tear_down, (void *)(resource))

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(no_call_breaks_a_capture, "mapped"), CASE(no_call_breaks_a_capture, "segments"),
        CASE(a_launch_in_flight, "mapped"),       CASE(a_launch_in_flight, "log(mapped)"),
        CASE(failures_of_the_driver, "mapped"),   CASE(failures_of_the_driver, "segments"),
        CASE(failures_of_the_driver, "direct"),
    };
    return cmocka_run_group_tests_name("graphs", tests, NULL, NULL);
}
