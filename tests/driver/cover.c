/* What driver.h promises of covered addresses. The simulated device has none. */
#include "driver/contract.h"
#include "driver/cuda_api.h"

enum { GRANULES = 64 };

static uint64_t period(void)
{
    return wi_max(2 * WI_MIB, granule);
}

static void expect_byte(const char *address, uint8_t value)
{
    uint8_t byte = (uint8_t)~value;
    ok(D(copy(device, &byte, address, 1, NULL)));
    assert_int_equal(byte, value);
}

static void make_covered(mapped_range *range)
{
    make_range(range, GRANULES, 0);
    ok(D(cover(device, range->address, range->bytes)));
}

static void drop_covered(mapped_range *range)
{
    ok(D(uncover(device, range->address, range->bytes)));
    drop_range(range);
}

static void test_covered_addresses_hold_zeros_and_share_what_is_written(void **state)
{
    (void)state;
    skip_unless(driver->cover);
    mapped_range range, second;
    make_covered(&range);
    make_covered(&second);
    for (size_t i = 0; i < GRANULES; i += 9)
        expect_granule(range.address + i * granule, 0);
    ok(D(fill(device, range.address, 3, range.bytes, NULL)));
    for (size_t i = 0; i < GRANULES; i += 9)
        expect_granule(second.address + i * granule, 3);
    ok(D(fill(device, second.address, 0, second.bytes, NULL)));
    expect_granule(range.address, 0);
    uint8_t mark = 7;
    if (range.bytes > 2 * period()) {
        ok(D(copy(device, range.address + period() + 5, &mark, 1, NULL)));
        expect_byte(range.address + 5, 7);
        expect_byte(second.address + 2 * period() + 5, 7);
    }
    drop_covered(&range);
    drop_covered(&second);
}

static void test_handles_come_and_go_among_covered_addresses(void **state)
{
    (void)state;
    skip_unless(driver->cover);
    mapped_range range;
    wi_handle handles[2];
    make_covered(&range);
    char *here = range.address + 5 * granule;
    ok(D(create(device, granule, 2, handles)));
    for (int round = 0; round < 3; round++) {
        ok(D(uncover(device, here, 2 * granule)));
        ok(D(map(device, here, granule, 2, handles)));
        fill_granules(here, 2, (uint8_t)(20 + round));
        expect_granule(here - granule, 0);
        expect_granule(here + 2 * granule, 0);
        ok(D(unmap(device, here, granule, 1, handles)));
        ok(D(cover(device, here, granule)));
        expect_granule(here, 0);
        expect_granule(here + granule, (uint8_t)(21 + round));
        ok(D(unmap(device, here + granule, granule, 1, handles + 1)));
        ok(D(cover(device, here + granule, granule)));
    }
    V(destroy(device, granule, 2, handles));
    drop_covered(&range);
}

/* The kernel allows a process some tens of thousands of areas. */
static void test_cover_leaves_as_many_areas_as_before(void **state)
{
    (void)state;
    skip_unless(driver->cover && device_kind_now == ON_HOST);
    mapped_range range;
    size_t areas[2] = {0};
    char line[512];
    make_covered(&range);
    for (int after = 0; after < 2; after++) {
        FILE *maps = fopen("/proc/self/maps", "r");
        assert_non_null(maps);
        while (fgets(line, sizeof line, maps))
            areas[after]++;
        (void)fclose(maps);
        for (size_t i = 0; i < GRANULES; i++) {
            ok(D(uncover(device, range.address + i * granule, granule)));
            ok(D(cover(device, range.address + i * granule, granule)));
        }
    }
    assert_int_equal(areas[0], areas[1]);
    drop_covered(&range);
}

static void test_a_failure_leaves_nothing_covered(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_STUB);
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemsetD8Async", "cuMemUnmap"};
    mapped_range range;
    V(close(device)); /* each device below covers for the first time */
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        ok(D(open(0, &device))); /* whose first cover it is */
        make_range(&range, GRANULES, 0);
        for (int nth = 1; nth <= 5; nth++) {
            control.stub_fail(calls[i], nth, CUDA_ERROR_OUT_OF_MEMORY);
            weir_status status = D(cover(device, range.address, range.bytes));
            control.stub_fail(calls[i], 0, 0);
            if (status == WEIR_OK)
                ok(D(uncover(device, range.address, range.bytes)));
        }
        drop_range(&range);
        V(close(device));
    }
    expect_nothing_left();
    ok(D(open(0, &device)));
    make_range(&range, GRANULES, 0);
    control.stub_fail("cuMemMap", GRANULES / 2, CUDA_ERROR_OUT_OF_MEMORY);
    fails(D(cover(device, range.address, range.bytes)), WEIR_ERR_OUT_OF_MEMORY);
    drop_range(&range);
}

int run_cover_tests(void)
{
    const struct CMUnitTest cover[] = {
        cmocka_unit_test_setup_teardown(test_covered_addresses_hold_zeros_and_share_what_is_written, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(test_handles_come_and_go_among_covered_addresses, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_cover_leaves_as_many_areas_as_before, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_failure_leaves_nothing_covered, open_device, close_device),
    };
    return cmocka_run_group_tests(cover, NULL, NULL);
}
