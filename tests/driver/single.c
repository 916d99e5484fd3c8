/* What driver.h promises of memory that is allocated piece by piece, at once and in the order of a stream. */
#include "driver/contract.h"

enum { PIECE = 3 * 64 * 1024 + 256 };

static void *allocate(weir_kind kind, uint64_t bytes)
{
    void *address = NULL;
    ok(D(allocate(device, kind, bytes, &address)));
    assert_non_null(address);
    assert_int_equal((uintptr_t)address % 256, 0);
    return address;
}

static char *take(uint64_t bytes, void *stream)
{
    void *address = NULL;
    ok(D(pool_allocate(device, bytes, stream, &address)));
    assert_non_null(address);
    assert_int_equal((uintptr_t)address % 256, 0);
    return address;
}

static uint64_t pool_held(void)
{
    uint64_t held = UINT64_MAX;
    ok(D(pool_held(device, &held)));
    return held;
}

/* Writes bytes of a pattern that follows from the seed there, or compares them with it. */
static void write_pattern(void *address, size_t bytes, unsigned seed)
{
    unsigned char *pattern = malloc(bytes);
    assert_non_null(pattern);
    for (size_t i = 0; i < bytes; i++)
        pattern[i] = (unsigned char)(i * 7 + i / 256 + seed);
    ok(D(copy(device, address, pattern, bytes, NULL)));
    free(pattern);
}

static void expect_pattern(const void *address, size_t bytes, unsigned seed)
{
    unsigned char *seen = malloc(bytes);
    size_t wrong = 0;
    assert_non_null(seen);
    ok(D(copy(device, seen, address, bytes, NULL)));
    for (size_t i = 0; i < bytes; i++)
        wrong += seen[i] != (unsigned char)(i * 7 + i / 256 + seed);
    free(seen);
    assert_int_equal(wrong, 0);
}

static void expect_bytes(const void *address, size_t bytes, uint8_t value)
{
    unsigned char *seen = malloc(bytes);
    size_t wrong = 0;
    assert_non_null(seen);
    ok(D(copy(device, seen, address, bytes, NULL)));
    for (size_t i = 0; i < bytes; i++)
        wrong += seen[i] != value;
    free(seen);
    assert_int_equal(wrong, 0);
}

/* At once ---------------------------------------------------------------------------------------------------------- */

static void test_pieces_of_every_kind_hold_bytes(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {256, 4096 + 256, 3 * WI_MIB};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    void *pieces[WEIR_KIND_COUNT][SIZES];
    for (int kind = 0; kind < WEIR_KIND_COUNT; kind++)
        for (unsigned i = 0; i < SIZES; i++) {
            pieces[kind][i] = allocate((weir_kind)kind, sizes[i]);
            write_pattern(pieces[kind][i], sizes[i], (unsigned)kind * SIZES + i);
        }
    for (int kind = 0; kind < WEIR_KIND_COUNT; kind++)
        for (unsigned i = 0; i < SIZES; i++)
            expect_pattern(pieces[kind][i], sizes[i], (unsigned)kind * SIZES + i);
    for (int kind = 0; kind < WEIR_KIND_COUNT; kind++)
        for (unsigned i = 0; i < SIZES; i++)
            ok(D(release(device, (weir_kind)kind, pieces[kind][i], sizes[i])));
}

/* The device writes what it reaches, and the host reads the same without another copy. */
static void test_host_and_device_share_pinned_memory(void **state)
{
    (void)state;
    unsigned char *pinned = allocate(WEIR_KIND_PINNED, 4096), *host = allocate(WEIR_KIND_HOST, 4096);
    memset(pinned, 1, 4096);
    memset(host, 2, 4096);
    expect_bytes(host, 4096, 2);
    ok(D(fill(device, pinned + 256, 3, 512, NULL)));
    assert_int_equal(pinned[255], 1);
    assert_int_equal(pinned[256], 3);
    assert_int_equal(pinned[767], 3);
    assert_int_equal(pinned[768], 1);
    ok(D(release(device, WEIR_KIND_PINNED, pinned, 4096)));
    ok(D(release(device, WEIR_KIND_HOST, host, 4096)));
}

static void test_no_such_kind(void **state)
{
    (void)state;
    void *address = NULL;
    fails(D(allocate(device, (weir_kind)WEIR_KIND_COUNT, 256, &address)), WEIR_ERR_UNSUPPORTED);
    assert_string_equal(weir_name_of(WEIR_NAMES_KIND, WEIR_KIND_DEVICE), "device");
    assert_string_equal(weir_name_of(WEIR_NAMES_KIND, WEIR_KIND_PINNED), "pinned");
    assert_string_equal(weir_name_of(WEIR_NAMES_KIND, WEIR_KIND_HOST), "host");
    assert_string_equal(weir_name_of(WEIR_NAMES_KIND, (int)WEIR_KIND_COUNT), "?");
}

/* More than any machine has; a checker of the C allocator's takes such a request for a mistake and ends the process. */
static void test_too_much_is_refused(void **state)
{
    (void)state;
    void *address = NULL, *stream = NULL;
    skip_unless(device_kind_now != ON_HOST);
    ok(D(stream_create(device, &stream)));
    fails(D(allocate(device, WEIR_KIND_DEVICE, UINT64_C(1) << 46, &address)), WEIR_ERR_OUT_OF_MEMORY);
    fails(D(pool_allocate(device, UINT64_C(1) << 46, stream, &address)), WEIR_ERR_OUT_OF_MEMORY);
    ok(D(pool_allocate(device, 4096, stream, &address)));
    ok(D(pool_release(device, address, 4096, stream)));
    V(stream_destroy(device, stream));
}

/* In the order of a stream ----------------------------------------------------------------------------------------- */

static void test_pool_serves_at_once_without_a_stream(void **state)
{
    (void)state;
    char *first = take(PIECE, NULL), *second = take(PIECE, NULL);
    write_pattern(first, PIECE, 1);
    write_pattern(second, PIECE, 2);
    expect_pattern(first, PIECE, 1);
    expect_pattern(second, PIECE, 2);
    ok(D(pool_release(device, first, PIECE, NULL)));
    expect_pattern(second, PIECE, 2);
    ok(D(pool_release(device, second, PIECE, NULL)));
}

/* What is kept serves no request that it is too short for. */
static void test_reuse_is_long_enough(void **state)
{
    (void)state;
    void *stream = new_stream();
    char *piece = take(PIECE, stream);
    ok(D(pool_release(device, piece, PIECE, stream)));
    char *longer = take(2 * PIECE, stream), *again = take(PIECE, stream);
    if (device_kind_now != ON_CUDA)
        assert_ptr_not_equal(longer, piece);
    ok(D(stream_synchronize(device, stream)));
    write_pattern(longer, 2 * PIECE, 3);
    write_pattern(again, PIECE, 4);
    expect_pattern(longer, 2 * PIECE, 3);
    expect_pattern(again, PIECE, 4);
    ok(D(pool_release(device, longer, 2 * PIECE, stream)));
    ok(D(pool_release(device, again, PIECE, stream)));
    V(stream_destroy(device, stream));
}

/* The next owner on the same stream has the piece while the one before still works on it: the last value wins. */
static void test_reuse_on_a_stream_is_ordered(void **state)
{
    (void)state;
    void *stream = new_stream();
    gate g = {0};
    wi_event event;
    char *piece = take(PIECE, stream), *again = NULL;
    ok(D(call(device, hold, &g, stream)));
    for (uint8_t value = 1; value <= 10; value++) {
        ok(D(fill(device, piece, value, PIECE, stream)));
        ok(D(pool_release(device, piece, PIECE, stream)));
        again = take(PIECE, stream);
        if (device_kind_now != ON_CUDA)
            assert_ptr_equal(again, piece);
        piece = again;
    }
    ok(D(fill(device, piece, 99, PIECE, stream)));
    ok(D(record(device, stream, &event)));
    assert_false(driver->passed(device, event));
    atomic_store(&g.open, true);
    ok(D(stream_synchronize(device, stream)));
    expect_bytes(piece, PIECE, 99);
    ok(D(pool_release(device, piece, PIECE, stream)));
    V(stream_destroy(device, stream));
}

static void test_reuse_elsewhere_waits_for_the_device(void **state)
{
    (void)state;
    /* compute-sanitizer makes a fill wait for all work on the device, and so for a gate that opens after it. */
    skip_unless(getenv("WEIR_SANITIZED") == NULL || device_kind_now != ON_CUDA);
    void *busy = new_stream(), *idle = new_stream();
    gate g = {0};
    char *piece = take(PIECE, busy);
    ok(D(call(device, hold, &g, busy)));
    ok(D(fill(device, piece, 1, PIECE, busy)));
    ok(D(pool_release(device, piece, PIECE, busy)));
    char *other = take(PIECE, idle), *host = take(PIECE, NULL);
    assert_ptr_not_equal(other, piece);
    assert_ptr_not_equal(host, piece);
    assert_ptr_not_equal(host, other);
    ok(D(fill(device, other, 2, PIECE, idle)));
    ok(D(stream_synchronize(device, idle))); /* nothing of it stands behind the busy stream */
    atomic_store(&g.open, true);
    ok(D(stream_synchronize(device, busy)));
    expect_bytes(other, PIECE, 2);
    char *later = take(PIECE, idle);
    if (device_kind_now != ON_CUDA)
        assert_ptr_equal(later, piece);
    ok(D(pool_release(device, later, PIECE, idle)));
    ok(D(pool_release(device, other, PIECE, idle)));
    ok(D(pool_release(device, host, PIECE, NULL)));
    V(stream_destroy(device, busy));
    V(stream_destroy(device, idle));
}

static void test_trim_gives_back_what_is_passed(void **state)
{
    (void)state;
    uint64_t held = 1;
    void *stream = new_stream();
    gate g = {0};
    char *pieces[4];
    assert_int_equal(pool_held(), 0);
    ok(D(pool_trim(device, 0, &held)));
    assert_int_equal(held, 0);
    for (int i = 0; i < 4; i++)
        pieces[i] = take(WI_MIB, stream);
    ok(D(stream_synchronize(device, stream)));
    assert_true(pool_held() >= 4 * WI_MIB);
    ok(D(call(device, hold, &g, stream)));
    for (int i = 0; i < 3; i++)
        ok(D(pool_release(device, pieces[i], WI_MIB, stream)));
    ok(D(pool_trim(device, 0, &held)));
    assert_true(held >= 4 * WI_MIB);
    atomic_store(&g.open, true);
    ok(D(stream_synchronize(device, stream)));
    uint64_t before = pool_held();
    assert_true(before >= 4 * WI_MIB); /* it keeps what comes back until it is trimmed */
    ok(D(pool_trim(device, before, &held)));
    assert_int_equal(held, before);
    write_pattern(pieces[3], WI_MIB, 5);
    ok(D(pool_trim(device, 0, &held)));
    assert_true(held >= WI_MIB && held <= before);
    if (device_kind_now != ON_CUDA)
        assert_int_equal(held, before / 4);
    assert_int_equal(held, pool_held());
    expect_pattern(pieces[3], WI_MIB, 5);
    ok(D(pool_release(device, pieces[3], WI_MIB, stream)));
    ok(D(stream_synchronize(device, stream)));
    ok(D(pool_trim(device, 0, &held)));
    assert_int_equal(held, 0);
    V(stream_destroy(device, stream));
}

static void test_two_devices_have_two_pools(void **state)
{
    (void)state;
    wi_device *second = NULL;
    uint64_t held = 1;
    ok(D(open(0, &second)));
    char *piece = take(PIECE, NULL);
    ok(D(pool_held(second, &held)));
    assert_int_equal(held, 0);
    V(close(second));
    write_pattern(piece, PIECE, 9);
    expect_pattern(piece, PIECE, 9);
    ok(D(pool_release(device, piece, PIECE, NULL)));
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 200 };

/* Gives each piece back while the work on it is still queued, and looks afterwards what that work has seen. */
static void *churn(void *argument)
{
    size_t *failures = argument;
    void *stream = NULL, *piece = NULL;
    thread_state before = look_at_thread();
    *failures += driver->stream_create(device, &stream) != WEIR_OK;
    for (int i = 0; i < ROUNDS && *failures == 0; i++) {
        unsigned char seen[2] = {0};
        *failures += driver->pool_allocate(device, PIECE, stream, &piece) != WEIR_OK;
        *failures += driver->fill(device, piece, (uint8_t)i, PIECE, stream) != WEIR_OK;
        *failures += driver->copy(device, seen, piece, 1, stream) != WEIR_OK;
        *failures += driver->copy(device, seen + 1, (char *)piece + PIECE - 1, 1, stream) != WEIR_OK;
        *failures += driver->pool_release(device, piece, PIECE, stream) != WEIR_OK;
        *failures += driver->stream_synchronize(device, stream) != WEIR_OK;
        *failures += seen[0] != (uint8_t)i || seen[1] != (uint8_t)i;
    }
    driver->stream_destroy(device, stream);
    thread_state after = look_at_thread();
    *failures += before.context != after.context || before.depth != after.depth || before.mode != after.mode;
    return NULL;
}

static void test_threads_share_the_pool(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    size_t failures[THREADS] = {0};
    uint64_t held;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &failures[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(failures[i], 0);
    }
    ok(D(pool_trim(device, 0, &held)));
    assert_int_equal(held, 0);
}

int run_single_tests(void)
{
    const struct CMUnitTest single[] = {
        cmocka_unit_test_setup_teardown(test_pieces_of_every_kind_hold_bytes, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_host_and_device_share_pinned_memory, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_no_such_kind, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_too_much_is_refused, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_pool_serves_at_once_without_a_stream, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_reuse_is_long_enough, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_reuse_on_a_stream_is_ordered, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_reuse_elsewhere_waits_for_the_device, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_trim_gives_back_what_is_passed, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_two_devices_have_two_pools, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_threads_share_the_pool, open_device, close_device),
    };
    return cmocka_run_group_tests(single, NULL, NULL);
}
