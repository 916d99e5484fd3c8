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
    skip_unless(driver->cover && !driver->written);
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

/* … or each holds its own, which the driver finds. */
static void test_what_is_written_to_covered_addresses_is_found(void **state)
{
    (void)state;
    skip_unless(driver->cover && driver->written);
    mapped_range range, second;
    uint8_t mark = 7;
    make_covered(&range);
    make_covered(&second);
    assert_null(driver->written(device, range.address, range.bytes));
    for (size_t i = 0; i < GRANULES; i += 9) {
        char *at = range.address + i * granule + 5 + 100 * i;
        expect_granule(range.address + i * granule, 0);
        ok(D(copy(device, at, &mark, 1, NULL)));
        assert_ptr_equal(driver->written(device, range.address, range.bytes), at);
        assert_null(driver->written(device, range.address, i * granule));
        assert_null(driver->written(device, at - (5 + 100 * i) + granule, range.bytes - (i + 1) * granule));
        assert_null(driver->written(device, second.address, second.bytes));
        ok(D(fill(device, at, 0, 1, NULL)));
        assert_null(driver->written(device, range.address, range.bytes));
    }
    ok(D(fill(device, range.address, 3, range.bytes, NULL)));
    expect_granule(range.address + 3 * granule, 3);
    ok(D(fill(device, range.address + 1, 0, 2 * granule, NULL)));
    expect_byte(range.address, 3);
    expect_byte(range.address + 1, 0);
    expect_granule(range.address + granule, 0);
    expect_byte(range.address + 2 * granule, 0);
    expect_byte(range.address + 2 * granule + 1, 3);
    ok(D(uncover(device, range.address, granule)));
    ok(D(cover(device, range.address, granule)));
    expect_granule(range.address, 0);
    ok(D(fill(device, range.address, 0, range.bytes, NULL)));
    assert_null(driver->written(device, range.address, range.bytes));
    drop_covered(&range);
    drop_covered(&second);
}

/* What is dropped is gone, whether it was mapped among covered addresses or others; what lies beside it stays. */
static void test_a_drop_unmaps_and_destroys(void **state)
{
    (void)state;
    skip_unless(driver->cover && driver->drop);
    mapped_range range;
    wi_handle handles[3];
    make_covered(&range);
    for (int covered = 0; covered < 2; covered++) {
        char *here = range.address + 4 * granule;
        if (!covered)
            ok(D(uncover(device, range.address, range.bytes)));
        else
            ok(D(uncover(device, here, 3 * granule)));
        ok(D(create(device, granule, 3, handles)));
        ok(D(map(device, here, granule, 3, handles)));
        fill_granules(here, 3, 20);
        ok(D(drop(device, here, granule, 2, handles)));
        expect_granule(here + 2 * granule, 22);
        ok(D(create(device, granule, 2, handles)));
        ok(D(map(device, here, granule, 2, handles)));
        expect_granule(here, 0); /* fresh */
        expect_granule(here + 2 * granule, 22);
        ok(D(drop(device, here, granule, 3, handles)));
        if (!covered)
            ok(D(cover(device, range.address, range.bytes)));
        else
            ok(D(cover(device, here, 3 * granule)));
        expect_granule(here + granule, 0);
    }
    drop_covered(&range);
}

/* Covered by parts, uncovered and used across them. */
static void test_cover_by_parts(void **state)
{
    (void)state;
    skip_unless(driver->cover);
    mapped_range range;
    wi_handle handles[8];
    make_range(&range, GRANULES, 0);
    ok(D(cover(device, range.address + 2 * granule, 4 * granule)));
    ok(D(cover(device, range.address + 10 * granule, 2 * granule)));
    ok(D(cover(device, range.address + 6 * granule, 4 * granule)));
    expect_granule(range.address + 2 * granule, 0);
    expect_granule(range.address + 11 * granule, 0);
    ok(D(uncover(device, range.address + 4 * granule, 7 * granule)));
    ok(D(create(device, granule, 7, handles)));
    ok(D(map(device, range.address + 4 * granule, granule, 7, handles)));
    fill_granules(range.address + 4 * granule, 7, 30);
    expect_granule(range.address + 10 * granule, 36);
    ok(D(unmap(device, range.address + 4 * granule, granule, 7, handles)));
    ok(D(map(device, range.address + 20 * granule, granule, 7, handles)));
    expect_granule(range.address + 26 * granule, 36);
    ok(D(unmap(device, range.address + 20 * granule, granule, 7, handles)));
    V(destroy(device, granule, 7, handles));
    ok(D(cover(device, range.address + 4 * granule, 7 * granule)));
    expect_granule(range.address + 4 * granule, 0);
    expect_granule(range.address + 10 * granule, 0);
    ok(D(uncover(device, range.address + 2 * granule, 10 * granule)));
    drop_range(&range);
}

/* Other ranges stay as they are when one ends. */
static void test_the_end_of_a_range_is_its_own(void **state)
{
    (void)state;
    skip_unless(driver->cover && driver->written);
    mapped_range ranges[2];
    uint8_t mark = 7;
    make_covered(&ranges[0]);
    make_covered(&ranges[1]);
    int low = ranges[0].address < ranges[1].address ? 0 : 1;
    char *other = ranges[1 - low].address;
    ok(D(copy(device, other, &mark, 1, NULL)));
    drop_covered(&ranges[low]);
    ok(D(uncover(device, other, granule)));
    ok(D(cover(device, other, granule)));
    expect_granule(other, 0);
    drop_covered(&ranges[1 - low]);
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

/* Handles of the host's memory are mapped among those of the device's, and hold what was written at either place. */
static void test_handles_of_the_hosts_memory(void **state)
{
    (void)state;
    skip_unless(driver->has_host_handles && D(has_host_handles(device)));
    mapped_range range;
    wi_handle own, theirs[2];
    make_range(&range, 8, 0);
    ok(D(create(device, granule, 1, &own)));
    ok(D(create_on_host(device, granule, 2, theirs)));
    ok(D(map(device, range.address, granule, 2, theirs)));
    ok(D(map(device, range.address + 2 * granule, granule, 1, &own)));
    fill_granules(range.address, 3, 40);
    ok(D(unmap(device, range.address, granule, 2, theirs)));
    ok(D(unmap(device, range.address + 2 * granule, granule, 1, &own)));
    ok(D(map(device, range.address + 2 * granule, granule, 1, theirs)));
    ok(D(map(device, range.address + 5 * granule, granule, 1, theirs + 1)));
    ok(D(map(device, range.address, granule, 1, &own)));
    expect_granule(range.address + 2 * granule, 40);
    expect_granule(range.address + 5 * granule, 41);
    expect_granule(range.address, 42);
    ok(D(copy(device, range.address, range.address + 5 * granule, granule, NULL)));
    expect_granule(range.address, 41);
    if (device_kind_now == ON_STUB) {
        assert_int_equal(control.stub_count("host handles"), 2);
        wi_handle none[2];
        for (int nth = 1; nth <= 2; nth++) {
            control.stub_fail("cuMemCreate", nth, CUDA_ERROR_OUT_OF_MEMORY);
            fails(D(create_on_host(device, granule, 2, none)), WEIR_ERR_OUT_OF_MEMORY);
        }
        assert_int_equal(control.stub_count("host handles"), 2);
    }
    ok(D(unmap(device, range.address, granule, 1, &own)));
    ok(D(unmap(device, range.address + 2 * granule, granule, 1, theirs)));
    ok(D(unmap(device, range.address + 5 * granule, granule, 1, theirs + 1)));
    V(destroy(device, granule, 1, &own));
    V(destroy(device, granule, 2, theirs));
    drop_range(&range);
}

/* One that opens where it cannot be answers so. */
static void test_a_device_that_does_not_reach_the_host(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_STUB);
    V(close(device));
    control.stub_reach(false);
    ok(D(open(0, &device)));
    assert_false(D(has_host_handles(device)));
    V(close(device));
    control.stub_reach(true);
    ok(D(open(0, &device)));
    assert_true(D(has_host_handles(device)));
}

int run_cover_tests(void)
{
    const struct CMUnitTest cover[] = {
        cmocka_unit_test_setup_teardown(test_covered_addresses_hold_zeros_and_share_what_is_written, open_device,
                                        close_device),
        cmocka_unit_test_setup_teardown(test_what_is_written_to_covered_addresses_is_found, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_drop_unmaps_and_destroys, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_cover_by_parts, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_the_end_of_a_range_is_its_own, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_handles_come_and_go_among_covered_addresses, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_cover_leaves_as_many_areas_as_before, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_failure_leaves_nothing_covered, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_handles_of_the_hosts_memory, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_device_that_does_not_reach_the_host, open_device, close_device),
    };
    return cmocka_run_group_tests(cover, NULL, NULL);
}
