/* What the tests of the bases share: runtimes over a driver of the test's own. */
#ifndef BASES_H
#define BASES_H

#include "core.h"
#include "core/faulty.h"
#include "runtime/runtime.h"

static inline weir_runtime *make_over(const wi_driver *driver, const char *resource, uint64_t budget)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget, .resource = resource};
    weir_runtime *runtime;
    ok(wi_runtime_create_over(driver, 0, &options, &runtime));
    return runtime;
}

static inline weir_stats stats_of(weir_runtime *runtime)
{
    snapshot s = take_snapshot(runtime);
    check_sums(&s);
    return s.device;
}

static inline weir_block_details details_of(const void *pointer)
{
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(pointer, &d));
    return d;
}

/* Nothing is live, and the driver has everything back. */
static inline void end_over(weir_runtime *runtime)
{
    check_empty(runtime);
    ok(weir_runtime_destroy(runtime));
    assert_true(faults_nothing_left());
}

/* Allocations, frees, resizes and launches on two streams; what fails with `planned` is passed over. Nothing is lost, whatever
 * fails. */
static inline bool passes(weir_status status, weir_status planned)
{
    if (status != WEIR_OK && status != planned && status != WEIR_ERR_OUT_OF_MEMORY && status != WEIR_ERR_NO_ROOM)
        print_error("%s (%s)\n", weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    assert_true(status == WEIR_OK || status == planned || status == WEIR_ERR_OUT_OF_MEMORY ||
                status == WEIR_ERR_NO_ROOM);
    return status == WEIR_OK;
}

enum { FAULT_BLOCKS = 12 };

static inline void run_with_faults(weir_runtime *runtime, weir_client *client, const weir_stream streams[2],
                                   weir_status planned)
{
    unsigned char *blocks[FAULT_BLOCKS] = {NULL};
    for (int round = 0; round < 3 * FAULT_BLOCKS; round++) {
        unsigned char **at = &blocks[round * 5 % FAULT_BLOCKS];
        weir_stream stream = round % 3 == 2 ? WEIR_STREAM_HOST : streams[round % 2];
        if (*at && passes(weir_free(client, *at, stream), planned))
            *at = NULL;
        weir_request request = {.struct_size = sizeof request,
                                .bytes = 1000 + 7000 * (size_t)(round % 4),
                                .stream = stream,
                                .flags = round % 4 == 1 ? WEIR_ALLOC_ZEROED : 0};
        weir_block block;
        if (!*at && passes(weir_alloc_with(client, &request, &block), planned))
            *at = block.pointer;
        if (*at && round % 5 == 3)
            (void)passes(weir_resize(client, *at, 300, stream), planned);
        if (*at && round % 5 == 4)
            (void)passes(weir_resize(client, *at, 20000, stream), planned);
        if (round % 8 == 7)
            (void)passes(weir_stream_synchronize(streams[round % 2]), planned);
        if (round % 11 == 10)
            ok(weir_runtime_trim(runtime, NULL, NULL));
        weir_stats now = stats_of(runtime);
        assert_int_equal(now.promised, 0);
    }
    fault.fail_at = -1;
    for (int i = 0; i < FAULT_BLOCKS; i++)
        ok(weir_free(client, blocks[i], streams[i % 2]));
}

/* Each call of the driver fails once with this status. */
static inline void a_fault_at_every_call(const char *resource, weir_status status)
{
    long n = 0;
    for (bool reached = true; reached; n++) {
        faults_reset(-1);
        weir_runtime *runtime = make_over(&faulty_driver, resource, 16 * GRANULE);
        weir_client *client = open_client(runtime, "x", 0, 0);
        weir_stream streams[2];
        ok(weir_stream_acquire(runtime, &streams[0]));
        ok(weir_stream_acquire(runtime, &streams[1]));
        fault.calls = 0;
        fault.fail_at = n;
        fault.status = status;
        run_with_faults(runtime, client, streams, status);
        reached = fault.calls > n;
        ok(weir_stream_synchronize(streams[0]));
        ok(weir_stream_synchronize(streams[1]));
        (void)take_snapshot(runtime); /* what failed is tried again */
        void *all = allocate(client, 16 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
        ok(weir_free(client, all, WEIR_STREAM_HOST));
        ok(weir_runtime_trim(runtime, NULL, NULL));
        assert_int_equal(stats_of(runtime).held, 0);
        ok(weir_client_destroy(client));
        ok(weir_stream_release(streams[0]));
        ok(weir_stream_release(streams[1]));
        end_over(runtime);
    }
    assert_true(n > 20);
    print_message("%s: %ld driver calls, each failing once with %s\n", resource, n - 1,
                  weir_name_of(WEIR_NAMES_STATUS, status));
}

#endif
