/* Runtimes with a number of streams of their own: those are handed out and no others, and a failure leaves nothing. */
#include "core.h"
#include "core/faulty.h"

#include "runtime/runtime.h"

enum { BUDGET = 4 << 20, STREAMS = 3 };

static weir_runtime_options with_streams(uint32_t count)
{
    return (weir_runtime_options){
        .struct_size = sizeof(weir_runtime_options), .budget = BUDGET, .resource = "direct", .streams = count};
}

static void its_streams_are_all_that_can_be_acquired(void **state)
{
    (void)state;
    static const char *const devices[] = {"host", "sim"};
    for (int k = 0; k < 2; k++) {
        weir_runtime_options options = with_streams(STREAMS);
        weir_runtime *runtime;
        weir_stream streams[STREAMS], more;
        ok(weir_runtime_create(devices[k], &options, &runtime));
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < STREAMS; i++)
                ok(weir_stream_acquire(runtime, &streams[i]));
            fails(WEIR_ERR_BUSY, weir_stream_acquire(runtime, &more));
            detail_names("all 3 streams of the pool of");
            assert_int_equal(more.id, 0);
            ok(weir_stream_release(streams[1]));
            ok(weir_stream_acquire(runtime, &streams[1]));
            for (int i = 0; i < STREAMS; i++)
                ok(weir_stream_release(streams[i]));
        }
        weir_client *client = open_client(runtime, "one", 0, 0);
        ok(weir_stream_acquire(runtime, &more));
        ok(weir_free(client, allocate(client, 100000, more, WEIR_CLASS_KV), more));
        ok(weir_stream_release(more));
        ok(weir_client_destroy(client));
        ok(weir_runtime_destroy(runtime));
    }
}

static void too_many_streams_are_refused(void **state)
{
    (void)state;
    weir_runtime_options most = with_streams(1024), beyond = with_streams(1025);
    weir_runtime *runtime;
    fails(WEIR_ERR_INVALID, weir_runtime_create("host", &beyond, &runtime));
    assert_null(runtime);
    ok(weir_runtime_create("host", &most, &runtime));
    ok(weir_runtime_destroy(runtime));
    fails(WEIR_ERR_INVALID, weir_runtime_get("host", &most, &runtime));
    assert_null(runtime);
}

static void a_fault_at_every_call_leaves_nothing(void **state)
{
    (void)state;
    long n = 0, failed = 0;
    for (bool reached = true; reached; n++) {
        weir_runtime_options options = with_streams(STREAMS);
        weir_runtime *runtime = NULL;
        faults_reset(n);
        weir_status status = wi_runtime_create_over(&faulty_driver, 0, &options, &runtime);
        reached = fault.calls > n;
        fault.fail_at = -1;
        failed += status != WEIR_OK;
        if (status == WEIR_OK)
            ok(weir_runtime_destroy(runtime));
        assert_true(faults_nothing_left());
    }
    assert_true(n > STREAMS && failed >= STREAMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_streams_are_all_that_can_be_acquired),
        cmocka_unit_test(too_many_streams_are_refused),
        cmocka_unit_test(a_fault_at_every_call_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
