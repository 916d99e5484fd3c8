/* Uses over a resource that cannot track them: refused as stream misuse, with everything as it was. */
#include "info.h"
#include "core/core.h"

#include "runtime/runtime.h"

static void untracked_uses_are_misuse(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(MIB);
    weir_client *client = open_client(runtime, "plain", 0, 0);
    weir_stream stream;
    weir_launch *launch;
    ok(weir_stream_acquire(runtime, &stream));
    weir_use use = {{allocate(client, 1000, stream, WEIR_CLASS_OTHER), 0}, WEIR_ACCESS_READ};
    wi_resource *stack = runtime->resource;
    stack->features &= ~(uint32_t)WEIR_FEATURE_TRACKS_USES;
    assert_false(runtime_details(runtime).features & WEIR_FEATURE_TRACKS_USES);
    fails(WEIR_ERR_STREAM_MISUSE, weir_launch_begin(runtime, stream, &use, 1, &launch));
    detail_names("mapped of host");
    assert_null(launch);
    fails(WEIR_ERR_STREAM_MISUSE, weir_use_record(runtime, (weir_block){.pointer = use.block.pointer}, stream));
    stack->features |= WEIR_FEATURE_TRACKS_USES;
    ok(weir_launch_begin(runtime, stream, &use, 1, &launch)); /* nothing was left behind */
    ok(weir_launch_end(launch));
    ok(weir_free(client, use.block.pointer, stream));
    ok(weir_stream_release(stream));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(untracked_uses_are_misuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
