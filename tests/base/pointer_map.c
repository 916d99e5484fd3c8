/* The map from pointers to numbers, against a plain array. */
#include "base/maps.h"
#include "core/core.h"

enum { KEYS = 500 };

static void a_pointer_map_is_a_map(void **state)
{
    (void)state;
    static char place[KEYS * 64];
    uint64_t values[KEYS] = {0}, random = 11, value; /* 0: not there */
    wi_pointer_map map = {0};
    size_t used = 0;
    for (uint64_t step = 1; step < 50000; step++) {
        size_t k = next_random(&random) % KEYS;
        if (next_random(&random) % 2) {
            assert_true(wi_pointer_map_put(&map, &place[64 * k], step));
            used += values[k] == 0;
            values[k] = step;
        } else {
            assert_int_equal(wi_pointer_map_remove(&map, &place[64 * k], &value), values[k] != 0);
            if (values[k])
                assert_int_equal(value, values[k]);
            used -= values[k] != 0;
            values[k] = 0;
        }
        value = 0;
        assert_int_equal(wi_pointer_map_get(&map, &place[64 * k], &value), values[k] != 0);
        assert_int_equal(value, values[k]);
        assert_int_equal(map.used, used);
        assert_true(2 * map.used <= map.capacity + 1);
    }
    for (size_t k = 0; k < KEYS; k++)
        assert_int_equal(wi_pointer_map_remove(&map, &place[64 * k], &value), values[k] != 0);
    assert_int_equal(map.used, 0);
    wi_pointer_map_clear(&map);
    assert_int_equal(map.capacity, 0);
}

static void null_is_no_key(void **state)
{
    (void)state;
    wi_pointer_map map = {0};
    uint64_t value = 7;
    assert_false(wi_pointer_map_remove(&map, &map, &value));
    assert_false(wi_pointer_map_get(&map, NULL, &value) || wi_pointer_map_get(&map, &map, &value));
    assert_true(wi_pointer_map_put(&map, NULL, 1));
    assert_false(wi_pointer_map_remove(&map, NULL, &value));
    assert_int_equal(value, 7);
    assert_int_equal(map.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pointer_map_is_a_map),
        cmocka_unit_test(null_is_no_key),
    };
    return cmocka_run_group_tests_name("pointer map", tests, NULL, NULL);
}
