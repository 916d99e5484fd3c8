/* The ids of streams name one runtime of those there are, however many there have been. */
#include "core.h"
#include "core/toy.h"
#include "runtime/runtime.h"

enum { NUMBERS = 65535 };

static weir_runtime *make(void)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = MIB, .resource = "direct"};
    weir_runtime *runtime;
    ok(wi_runtime_create_over(&toy_driver, 0, &options, &runtime));
    return runtime;
}

static void no_two_have_the_same(void **state)
{
    (void)state;
    weir_runtime *old = make(), *now;
    weir_stream stream, other;
    ok(weir_stream_acquire(old, &stream));
    for (int i = 1; i < NUMBERS; i++)
        ok(weir_runtime_destroy(make()));
    now = make();
    ok(weir_stream_acquire(now, &other));
    assert_true(stream.id != other.id);
    assert_ptr_not_equal(weir_stream_native(stream), weir_stream_native(other));
    fails(WEIR_ERR_STREAM_MISUSE, weir_fill(now, &other, 0, 1, stream));
    ok(weir_stream_release(other));
    fails(WEIR_ERR_STREAM_MISUSE, weir_stream_release(other));
    ok(weir_stream_release(stream));
    ok(weir_runtime_destroy(old));
    ok(weir_runtime_destroy(now));
}

/* What is given back is given again, and a start that fails gives it back, too. */
static void none_is_lost(void **state)
{
    (void)state;
    weir_runtime_options bad = {.struct_size = sizeof bad, .budget = MIB, .resource = "nothing"};
    weir_runtime *failed;
    for (int i = 0; i <= NUMBERS; i++)
        fails(WEIR_ERR_NOT_FOUND, wi_runtime_create_over(&toy_driver, 0, &bad, &failed));
    weir_runtime *runtime = make();
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_two_have_the_same), cmocka_unit_test(none_is_lost)};
    toy_reset(64 * KIB, 64, UINT64_C(1) << 40);
    return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
