/* Whom the seam of PyTorch tells of its blocks (src/seams/torch_told.c), over a stand-in for libc10.so. */
#include "seams/torch.h"
#include "seams/seams.h"

#include "core.h"
#include "test_places.h"

#include <dlfcn.h>

enum { BLOCK = 3 << 20 };

typedef struct reported {
    void *pointer;
    int64_t bytes;
    size_t allocated, reserved;
    int8_t type, device;
    int reports, refusals;
} reported;

static reported *report;
static bool *profiled, *traced;
static weir_client *client;

static struct {
    void *pointer;
    uint64_t live; /* when it was told */
    bool freed;
    int calls;
} call;

static void open_device(int device)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_runtime *runtime;
    options.name = "torch";
    ok(weir_runtime_get("cuda:0", NULL, &runtime));
    ok(weir_client_create(runtime, &options, &client));
    ok(wseam_torch_give(device, client));
}

static uint64_t live_now(void)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(client, &stats));
    return stats.live;
}

static void note(void *pointer, bool freed)
{
    call.pointer = pointer;
    call.live = live_now();
    call.freed = freed;
    call.calls++;
}

static int set_up(void **state)
{
    (void)state;
    void *c10 = dlopen(built_path("tests/torch/libc10.so"), RTLD_NOW);
    if (!c10)
        return -1;
    report = dlsym(c10, "fake_reported");
    profiled = dlsym(c10, "fake_profiled");
    traced = dlsym(c10, "_ZN3c104impl8GPUTrace9haveStateE");
    ok(wseam_torch_begin(open_device));
    return report && profiled && traced ? 0 : -1;
}

static void the_profiler_is_told_what_is_allocated_and_held(void **state)
{
    (void)state;
    void *unseen = wseam_torch_alloc(BLOCK, 0, NULL);
    assert_int_equal(report->reports, 0);
    *profiled = true;
    void *pointer = wseam_torch_alloc(BLOCK, 0, NULL);
    weir_stats all = WEIR_INIT(weir_stats);
    ok(weir_snapshot(weir_client_runtime(client), &all, NULL, 0, NULL));
    assert_ptr_equal(report->pointer, pointer);
    assert_int_equal(report->bytes, BLOCK);
    assert_int_equal(report->allocated, 2 * BLOCK);
    assert_int_equal(report->reserved, all.held);
    assert_int_equal(report->type, 1);
    assert_int_equal(report->device, 0);
    wseam_torch_free(pointer, BLOCK, 0, NULL);
    assert_ptr_equal(report->pointer, pointer);
    assert_int_equal(report->bytes, -BLOCK);
    assert_int_equal(report->allocated, BLOCK);
    assert_null(wseam_torch_alloc((size_t)1 << 40, 0, NULL));
    assert_int_equal(report->refusals, 1);
    assert_int_equal(report->bytes, (int64_t)1 << 40);
    *profiled = false;
    wseam_torch_free(unseen, BLOCK, 0, NULL);
    assert_int_equal(report->reports, 2);
}

static void the_trace_is_told_while_a_block_is_there(void **state)
{
    (void)state;
    wseam_torch_trace(note);
    void *unseen = wseam_torch_alloc(BLOCK, 0, NULL);
    assert_int_equal(call.calls, 0); /* nobody has asked for it yet */
    *traced = true;
    void *pointer = wseam_torch_alloc(BLOCK, 0, NULL);
    assert_ptr_equal(call.pointer, pointer);
    assert_int_equal(call.live, 2 * BLOCK);
    assert_false(call.freed);
    wseam_torch_free(pointer, BLOCK, 0, NULL);
    assert_ptr_equal(call.pointer, pointer);
    assert_int_equal(call.live, 2 * BLOCK); /* before the free: nobody has the address yet */
    assert_true(call.freed);
    wseam_torch_trace(NULL);
    wseam_torch_free(unseen, BLOCK, 0, NULL);
    assert_int_equal(call.calls, 2);
    *traced = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_profiler_is_told_what_is_allocated_and_held),
        cmocka_unit_test(the_trace_is_told_while_a_block_is_there),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
