/* What driver.h promises of handles of several lengths. */
#include "driver/contract.h"

/* A handle that is mapped, whose granules hold first, first + 1, … */
typedef struct piece {
    wi_handle handle;
    size_t granules;
    char *address;
    uint8_t first;
} piece;

static uint64_t bytes_of(const piece *p)
{
    return p->granules * granule;
}

static piece make_piece(char *address, size_t granules, uint8_t first)
{
    piece p = {.granules = granules, .address = address, .first = first};
    ok(D(create(device, bytes_of(&p), 1, &p.handle)));
    ok(D(map(device, address, bytes_of(&p), 1, &p.handle)));
    fill_granules(address, granules, first);
    return p;
}

static void expect_piece(const piece *p)
{
    for (size_t i = 0; i < p->granules; i++)
        expect_granule(p->address + i * granule, (uint8_t)(p->first + i));
}

static void move_piece(piece *p, char *to)
{
    ok(D(unmap(device, p->address, bytes_of(p), 1, &p->handle)));
    ok(D(map(device, to, bytes_of(p), 1, &p->handle)));
    p->address = to;
}

static void drop_piece(piece *p)
{
    ok(D(unmap(device, p->address, bytes_of(p), 1, &p->handle)));
    V(destroy(device, bytes_of(p), 1, &p->handle));
}

static void test_a_long_handle_moves(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 16, 0);
    piece p = make_piece(range.address, 4, 10);
    move_piece(&p, range.address + 9 * granule);
    expect_piece(&p);
    move_piece(&p, range.address + 8 * granule); /* partly where it was */
    expect_piece(&p);
    drop_piece(&p);
    drop_range(&range);
}

/* What is protected can be read, moves with its contents, and can be written when it is opened or mapped anew. */
static void test_a_protected_handle(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 16, 0);
    piece p = make_piece(range.address, 2, 10), other = make_piece(range.address + 2 * granule, 2, 20);
    for (int i = 0; i < 3; i++) {
        ok(D(protect(device, p.address, bytes_of(&p), false)));
        expect_piece(&p);
        fill_granules(other.address, other.granules, other.first); /* which is beside it */
        if (i == 1)
            move_piece(&p, range.address + 8 * granule);
        else
            ok(D(protect(device, p.address, bytes_of(&p), true)));
        expect_piece(&p);
        p.first = (uint8_t)(p.first + 30);
        fill_granules(p.address, p.granules, p.first);
        expect_piece(&p);
        expect_piece(&other);
    }
    ok(D(protect(device, p.address, bytes_of(&p), false)));
    drop_piece(&p);
    drop_piece(&other);
    piece next = make_piece(range.address + 8 * granule, 2, 90);
    expect_piece(&next);
    drop_piece(&next);
    drop_range(&range);
}

static void test_many_long_handles_at_once(void **state)
{
    (void)state;
    enum { COUNT = 4, LENGTH = 3 };
    mapped_range range;
    wi_handle handles[COUNT];
    uint64_t bytes = LENGTH * granule;
    make_range(&range, 32, 0);
    char *here = range.address + granule, *there = range.address + 19 * granule;
    ok(D(create(device, bytes, COUNT, handles)));
    ok(D(map(device, here, bytes, COUNT, handles)));
    fill_granules(here, (size_t)COUNT * LENGTH, 1);
    ok(D(unmap(device, here + bytes, bytes, 2, handles + 1))); /* those in the middle, … */
    wi_handle turned[2] = {handles[2], handles[1]};
    ok(D(map(device, there, bytes, 2, turned))); /* … in another order */
    static const uint8_t expected[] = {7, 8, 9, 4, 5, 6};
    for (size_t i = 0; i < sizeof expected; i++)
        expect_granule(there + i * granule, expected[i]);
    expect_granule(here + 2 * granule, 3);
    expect_granule(here + 9 * granule, 10);
    ok(D(unmap(device, there, bytes, 2, turned)));
    ok(D(unmap(device, here, bytes, 1, &handles[0])));
    ok(D(unmap(device, here + 3 * bytes, bytes, 1, &handles[3])));
    handles[1] = turned[0];
    handles[2] = turned[1];
    V(destroy(device, bytes, COUNT, handles));
    drop_range(&range);
}

/* Of several handles one cannot be mapped: those before it hold what they held. */
static void test_a_map_that_fails_loses_nothing(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_HOST); /* where a handle is an address */
    mapped_range range;
    make_range(&range, 8, 2);
    fill_granules(range.address, 2, 40);
    ok(D(unmap(device, range.address, granule, 2, range.handles)));
    wi_handle handles[3] = {range.handles[0], range.handles[1], 16 * 4096}; /* nothing is there */
    fails(D(map(device, range.address, granule, 3, handles)), WEIR_ERR_DRIVER);
    memcpy(range.handles, handles, sizeof range.handles[0] * 2);
    ok(D(map(device, range.address, granule, 2, range.handles)));
    expect_granule(range.address, 40);
    expect_granule(range.address + granule, 41);
    drop_range(&range);
}

static void test_lengths_lie_side_by_side(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 4, 2, 3, 8, 1};
    enum { COUNT = sizeof lengths / sizeof lengths[0] };
    mapped_range range;
    piece pieces[COUNT];
    make_range(&range, 64, 0);
    char *at = range.address;
    for (size_t i = 0; i < COUNT; at += lengths[i++] * granule)
        pieces[i] = make_piece(at, lengths[i], (uint8_t)(20 * i));
    at = range.address + 30 * granule;
    for (size_t i = COUNT; i-- > 0; at += lengths[i] * granule)
        move_piece(&pieces[i], at);
    for (size_t i = 0; i < COUNT; i++)
        expect_piece(&pieces[i]);
    for (size_t i = 0; i < COUNT; i++)
        drop_piece(&pieces[i]);
    drop_range(&range);
}

/* Random moves -------------------------------------------------------------------------------------------------------- */

enum { PIECES = 12, PLACES = 96, LONGEST = 8 };

static bool is_free(const piece *pieces, const piece *except, const char *start, const char *end)
{
    for (const piece *p = pieces; p < pieces + PIECES; p++)
        if (p != except && p->granules > 0 && p->address < end && p->address + bytes_of(p) > start)
            return false;
    return true;
}

static char *free_place(const mapped_range *range, const piece *pieces, const piece *except, size_t granules,
                        unsigned *random)
{
    for (;;) {
        char *at = range->address + (size_t)rand_r(random) % (PLACES - granules + 1) * granule;
        if (is_free(pieces, except, at, at + granules * granule))
            return at;
    }
}

/* How many areas of the kernel's [start, +bytes) lies in. */
static unsigned count_areas(const char *start, uint64_t bytes)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned count = 0;
    char line[4096];
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        char *rest;
        uint64_t from = strtoull(line, &rest, 16), to = strtoull(rest + 1, NULL, 16);
        count += from < (uintptr_t)start + bytes && to > (uintptr_t)start;
    }
    (void)fclose(maps);
    return count;
}

/* Whatever lay where before, bytes arrive; and the host's addresses do not fall to pieces. */
static void test_random_moves(void **state)
{
    (void)state;
    mapped_range range;
    piece pieces[PIECES] = {0};
    unsigned random = 7;
    make_range(&range, PLACES, 0);
    for (int round = 0; round < 60; round++) {
        piece *p = &pieces[rand_r(&random) % PIECES];
        if (p->granules > 0 && rand_r(&random) % 3 == 0) {
            drop_piece(p);
            p->granules = 0;
        }
        size_t granules = p->granules ? p->granules : 1 + (size_t)rand_r(&random) % LONGEST;
        char *to = free_place(&range, pieces, p, granules, &random);
        if (p->granules == 0)
            *p = make_piece(to, granules, (uint8_t)round);
        else
            move_piece(p, to);
        expect_piece(p);
    }
    for (piece *p = pieces; p < pieces + PIECES; p++) {
        if (p->granules == 0)
            continue;
        expect_piece(p);
        drop_piece(p);
    }
    if (device_kind_now == ON_HOST)
        assert_int_equal(count_areas(range.address, range.bytes), 1);
    drop_range(&range);
}

/* Limits -------------------------------------------------------------------------------------------------------------- */

static void test_more_than_there_is_is_refused_whole(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST);
    uint64_t before = 0, after = 0, total = 0;
    wi_handle handles[17];
    ok(D(memory(device, &before, &total)));
    uint64_t bytes = total / 16 & ~(granule - 1);
    fails(D(create(device, bytes, 17, handles)), WEIR_ERR_OUT_OF_MEMORY);
    ok(D(memory(device, &after, &total)));
    if (device_kind_now != ON_CUDA) /* which may have other users */
        assert_int_equal(after, before);
    ok(D(create(device, bytes, 8, handles)));
    ok(D(memory(device, &after, &total)));
    assert_true(device_kind_now == ON_CUDA || before - after == 8 * bytes);
    V(destroy(device, bytes, 8, handles));
}

static void test_two_addresses_show_the_same_bytes(void **state)
{
    (void)state;
    skip_unless(device_kind_now != ON_HOST); /* more than a driver has to do */
    mapped_range range;
    make_range(&range, 16, 0);
    piece p = make_piece(range.address, 3, 60), other = p;
    other.address = range.address + 8 * granule;
    ok(D(map(device, other.address, bytes_of(&p), 1, &other.handle)));
    expect_piece(&other);
    other.first = p.first = 70;
    fill_granules(other.address, 3, 70);
    expect_piece(&p);
    ok(D(unmap(device, p.address, bytes_of(&p), 1, &p.handle)));
    expect_piece(&other);
    drop_piece(&other);
    drop_range(&range);
}

/* Where the driver checks it, that is on cuda: handles are mapped whole, over nothing. The simulated device tells what is
 * done wrong; tests/sim looks at that. */
static void test_parts_are_refused(void **state)
{
    (void)state;
    skip_unless(device_kind_now == ON_STUB || device_kind_now == ON_CUDA);
    mapped_range range;
    make_range(&range, 32, 0);
    piece p = make_piece(range.address + 4 * granule, 4, 80);
    wi_handle more[2];
    ok(D(create(device, 4 * granule, 2, more)));
    fails(D(map(device, range.address + 16 * granule, granule, 1, more)), WEIR_ERR_DRIVER);
    fails(D(map(device, range.address + 16 * granule, 8 * granule, 1, more)), WEIR_ERR_DRIVER);
    fails(D(map(device, range.address + granule, 4 * granule, 1, more)),
          WEIR_ERR_DRIVER); /* over the other's first granule */
    fails(D(map(device, range.address + 7 * granule, 4 * granule, 2, more)), WEIR_ERR_DRIVER); /* over its last one */
    /* What a GPU's driver says to these is not known; the stub is strict. */
    if (device_kind_now == ON_STUB) {
        fails(D(unmap(device, p.address, 2 * granule, 1, &p.handle)), WEIR_ERR_DRIVER);
        fails(D(unmap(device, p.address + 2 * granule, 2 * granule, 1, &p.handle)), WEIR_ERR_DRIVER);
        fails(D(unmap(device, p.address, 6 * granule, 1, &p.handle)), WEIR_ERR_DRIVER);
    }
    expect_piece(&p);
    ok(D(map(device, range.address + 8 * granule, 4 * granule, 2, more)));
    ok(D(unmap(device, range.address + 8 * granule, 4 * granule, 2, more)));
    V(destroy(device, 4 * granule, 2, more));
    drop_piece(&p);
    drop_range(&range);
}

int run_handle_tests(void)
{
    const struct CMUnitTest handles[] = {
        cmocka_unit_test_setup_teardown(test_a_long_handle_moves, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_protected_handle, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_many_long_handles_at_once, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_a_map_that_fails_loses_nothing, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_lengths_lie_side_by_side, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_random_moves, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_more_than_there_is_is_refused_whole, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_two_addresses_show_the_same_bytes, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_parts_are_refused, open_device, close_device),
    };
    return cmocka_run_group_tests(handles, NULL, NULL);
}
