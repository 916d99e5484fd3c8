/* What driver.h promises of addresses and handles. */
#include "driver/contract.h"

static void test_numbers(void **state)
{
    (void)state;
    uint64_t available = 0, total = 0;
    ok(D(memory(device, &available, &total)));
    assert_true(available > 0 && available <= total);
    assert_true(wi_power_of_two(granule));
    assert_true(granule >= 4096 && granule <= 64 * WI_MIB);
}

static void test_reserve_alone(void **state)
{
    (void)state;
    mapped_range first, second;
    make_range(&first, 1, 0);
    make_range(&second, 1024, 0);
    assert_true(first.address + first.bytes <= second.address || second.address + second.bytes <= first.address);
    drop_range(&first);
    drop_range(&second);
}

static void test_mapped_memory_holds_bytes(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 8, 4);
    fill_granules(range.address, 4, 10);
    for (int i = 0; i < 4; i++)
        expect_granule(range.address + (size_t)i * granule, (uint8_t)(10 + i));
    drop_range(&range);
}

static void test_handles_move_with_their_bytes(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 16, 4);
    fill_granules(range.address, 4, 20);
    ok(D(unmap(device, range.address, granule, 4, range.handles)));
    wi_handle turned[4];
    for (int i = 0; i < 4; i++)
        turned[i] = range.handles[3 - i];
    char *there = range.address + 9 * granule;
    ok(D(map(device, there, granule, 4, turned)));
    for (int i = 0; i < 4; i++)
        expect_granule(there + (size_t)i * granule, (uint8_t)(23 - i));
    ok(D(unmap(device, there, granule, 4, turned)));
    memcpy(range.handles, turned, sizeof turned);
    ok(D(map(device, range.address, granule, 4, range.handles)));
    for (int i = 0; i < 4; i++)
        expect_granule(range.address + (size_t)i * granule, (uint8_t)(23 - i));
    drop_range(&range);
}

static void test_one_of_many_moves(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 8, 4);
    fill_granules(range.address, 4, 30);
    ok(D(unmap(device, range.address + 2 * granule, granule, 1, &range.handles[2])));
    ok(D(map(device, range.address + 6 * granule, granule, 1, &range.handles[2])));
    expect_granule(range.address + 6 * granule, 32);
    expect_granule(range.address + granule, 31);
    expect_granule(range.address + 3 * granule, 33);
    ok(D(unmap(device, range.address + 6 * granule, granule, 1, &range.handles[2])));
    ok(D(map(device, range.address + 2 * granule, granule, 1, &range.handles[2])));
    expect_granule(range.address + 2 * granule, 32);
    drop_range(&range);
}

static void test_many_rounds(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 16, 0);
    for (int round = 0; round < 50; round++) {
        wi_handle handles[8];
        size_t at = (size_t)round % 8;
        ok(D(create(device, granule, 8, handles)));
        ok(D(map(device, range.address + at * granule, granule, 8, handles)));
        ok(D(fill(device, range.address + at * granule, (uint8_t)round, 8 * granule, NULL)));
        expect_granule(range.address + (at + 7) * granule, (uint8_t)round);
        ok(D(unmap(device, range.address + at * granule, granule, 8, handles)));
        V(destroy(device, granule, 8, handles));
    }
    drop_range(&range);
}

static void test_nothing_of_nothing(void **state)
{
    (void)state;
    wi_handle handle = 0;
    V(destroy(device, granule, 0, &handle));
}

/* Where the driver checks it, that is on cuda: memory is not mapped over memory, and what is not mapped not taken away. */
static void test_wrong_mappings_are_refused(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_STUB || device_kind_now == ON_CUDA);
    mapped_range range;
    make_range(&range, 8, 2);
    fill_granules(range.address, 2, 40);
    wi_handle more[2];
    ok(D(create(device, granule, 2, more)));
    /* The first granule is free, the second not: neither may be mapped afterwards. */
    ok(D(unmap(device, range.address, granule, 1, &range.handles[0])));
    fails(D(map(device, range.address, granule, 2, more)), WEIR_ERR_DRIVER);
    ok(D(map(device, range.address, granule, 1, &range.handles[0])));
    /* The driver 580 of an H200 takes it for done to unmap what is not mapped; the stub is stricter. */
    if (device_kind_now == ON_STUB) {
        fails(D(unmap(device, range.address + 5 * granule, granule, 1, &more[0])), WEIR_ERR_DRIVER);
        wi_handle three[3] = {range.handles[0], range.handles[1], 0};
        fails(D(unmap(device, range.address, granule, 3, three)), WEIR_ERR_DRIVER);
    }
    expect_granule(range.address, 40);
    expect_granule(range.address + granule, 41);
    V(destroy(device, granule, 2, more));
    drop_range(&range);
}

static void test_two_devices_open(void **state)
{
    (void)state;
    wi_device *second = NULL;
    ok(D(open(0, &second)));
    mapped_range range;
    make_range(&range, 2, 1);
    V(close(second));
    fill_granules(range.address, 1, 50);
    expect_granule(range.address, 50);
    drop_range(&range);
}

int run_memory_tests(void)
{
    const struct CMUnitTest memory[] = {
        cmocka_unit_test_setup_teardown(test_numbers, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_reserve_alone, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_mapped_memory_holds_bytes, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_handles_move_with_their_bytes, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_one_of_many_moves, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_many_rounds, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_nothing_of_nothing, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_wrong_mappings_are_refused, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_two_devices_open, open_device, close_device),
    };
    return cmocka_run_group_tests(memory, NULL, NULL);
}
