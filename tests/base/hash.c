/* The hash, against the values that its authors publish. */
#include "base/texts.h"
#include "core/core.h"

static void fnv_1a_is_the_published_one(void **state)
{
    (void)state;
    assert_int_equal(wi_fnv1a("", 0), UINT64_C(0xcbf29ce484222325));
    assert_int_equal(wi_fnv1a("a", 1), UINT64_C(0xaf63dc4c8601ec8c));
    assert_int_equal(wi_fnv1a("foobar", 6), UINT64_C(0x85944171f73967e8));
    assert_int_equal(wi_fnv1a("foobar", 3), wi_fnv1a("foo", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fnv_1a_is_the_published_one)};
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
