/* The simulated device's memory piece by piece, its pool, and streams that were made elsewhere or are captured. */
#include "device.h"

#define ok(call)              assert_int_equal(call, WEIR_OK)
#define fails(call, expected) assert_int_equal(call, expected)

static char *piece_of(wi_device *device, uint64_t bytes)
{
    void *address = NULL;
    ok(sim->allocate(device, WEIR_KIND_DEVICE, bytes, &address));
    assert_int_equal((uintptr_t)address % 256, 0);
    return address;
}

static char *take(wi_device *device, uint64_t bytes, void *stream)
{
    void *address = NULL;
    ok(sim->pool_allocate(device, bytes, stream, &address));
    assert_int_equal((uintptr_t)address % 256, 0);
    return address;
}

static void *new_stream(wi_device *device)
{
    void *stream = NULL;
    ok(sim->stream_create(device, &stream));
    return stream;
}

static uint64_t available(wi_device *device)
{
    uint64_t bytes = 0, total;
    ok(sim->memory(device, &bytes, &total));
    return bytes;
}

static void run_all(wi_device *device)
{
    while (wi_sim_run(device, 0, 100))
        ;
}

/* The device must have complained of this, and of nothing else since. */
static void expect_wrong(const char *part)
{
    assert_non_null(strstr(wrong, part));
    wrong[0] = '\0';
}

/* At once ---------------------------------------------------------------------------------------------------------- */

static void small_pieces_share_a_granule(void **state)
{
    (void)state;
    wi_device *device = open_device();
    char *pieces[6];
    for (unsigned i = 0; i < 6; i++) {
        pieces[i] = piece_of(device, 256 * 1024);
        wi_sim_touch(device, NULL, pieces[i], 256 * 1024, true, 1000 + i);
    }
    assert_int_equal(available(device), 14 * WI_MIB);
    assert_int_equal(told_held, 6 * 256 * 1024);
    for (unsigned i = 0; i < 6; i++)
        wi_sim_touch(device, NULL, pieces[i], 256 * 1024, false, 1000 + i);
    assert_string_equal(wrong, "");
    for (unsigned i = 0; i < 5; i++)
        ok(sim->release(device, WEIR_KIND_DEVICE, pieces[i], 256 * 1024));
    assert_int_equal(available(device), 14 * WI_MIB);
    wi_sim_touch(device, NULL, pieces[5], 256 * 1024, false, 1005);
    ok(sim->release(device, WEIR_KIND_DEVICE, pieces[5], 256 * 1024));
    assert_int_equal(available(device), 16 * WI_MIB);
    assert_int_equal(told_held, 0);
    wi_sim_touch(device, NULL, pieces[5], 256, true, 1);
    expect_wrong("nothing is mapped");
    sim->close(device);
    assert_string_equal(wrong, "");
}

static void what_a_piece_holds_is_unknown(void **state)
{
    (void)state;
    wi_device *device = open_device();
    char *beside = piece_of(device, 256), *piece = piece_of(device, 4096);
    wi_sim_touch(device, NULL, piece, 4096, true, 1000);
    ok(sim->release(device, WEIR_KIND_DEVICE, piece, 4096));
    assert_ptr_equal(piece_of(device, 4096), piece);
    wi_sim_touch(device, NULL, piece, 256, false, 1000);
    expect_wrong("reads version 0");
    ok(sim->release(device, WEIR_KIND_DEVICE, piece, 4096));
    ok(sim->release(device, WEIR_KIND_DEVICE, beside, 256));
    sim->close(device);
    assert_string_equal(wrong, "");
}

/* Pieces and handles come out of the same bytes; a hole serves only if the memory that it lacks is there. */
static void never_more_than_there_is(void **state)
{
    (void)state;
    wi_device *device = open_device();
    wi_handle handles[5];
    void *none = NULL;
    char *first = piece_of(device, 8 * WI_MIB);
    fails(sim->create(device, 2 * WI_MIB, 5, handles), WEIR_ERR_OUT_OF_MEMORY);
    ok(sim->create(device, 2 * WI_MIB, 4, handles));
    fails(sim->allocate(device, WEIR_KIND_DEVICE, 256, &none), WEIR_ERR_OUT_OF_MEMORY);
    fails(sim->pool_allocate(device, 256, NULL, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(told_held, 16 * WI_MIB);
    sim->destroy(device, 2 * WI_MIB, 1, handles);
    char *second = piece_of(device, WI_MIB); /* behind the first one, in a granule of its own */
    ok(sim->release(device, WEIR_KIND_DEVICE, first, 8 * WI_MIB));
    assert_ptr_equal(piece_of(device, 8 * WI_MIB), first);
    ok(sim->release(device, WEIR_KIND_DEVICE, first, 8 * WI_MIB));
    wi_sim_resize(device, 8 * WI_MIB); /* three handles and a granule: nothing new may be given out */
    char *third = piece_of(device, WI_MIB);
    assert_ptr_equal(third, second + WI_MIB);
    fails(sim->allocate(device, WEIR_KIND_DEVICE, 256, &none), WEIR_ERR_OUT_OF_MEMORY);
    ok(sim->release(device, WEIR_KIND_DEVICE, second, WI_MIB));
    ok(sim->release(device, WEIR_KIND_DEVICE, third, WI_MIB));
    sim->destroy(device, 2 * WI_MIB, 3, handles + 1);
    sim->close(device);
    assert_string_equal(wrong, "");
}

static void wrong_releases_are_told(void **state)
{
    (void)state;
    wi_device *device = open_device();
    char *piece = piece_of(device, 4096), *pooled = take(device, 4096, NULL);
    fails(sim->release(device, WEIR_KIND_DEVICE, piece + 256, 256), WEIR_ERR_DRIVER);
    expect_wrong("no piece");
    fails(sim->release(device, WEIR_KIND_DEVICE, piece, 256), WEIR_ERR_DRIVER);
    expect_wrong("no piece");
    fails(sim->release(device, WEIR_KIND_PINNED, piece, 4096), WEIR_ERR_DRIVER);
    expect_wrong("no piece");
    fails(sim->pool_release(device, piece, 4096, NULL), WEIR_ERR_DRIVER);
    expect_wrong("no piece");
    ok(sim->pool_release(device, pooled, 4096, NULL));
    fails(sim->pool_release(device, pooled, 4096, NULL), WEIR_ERR_DRIVER);
    expect_wrong("no piece");
    sim->close(device);
    expect_wrong("a piece of 4096 bytes");
}

/* What was copied to the host has bytes that tell what it was, wherever they are moved, and is that again back on the device. */
static void contents_pass_through_the_host(void **state)
{
    (void)state;
    enum { THERE = 4096 };
    wi_device *device = open_device();
    void *at = NULL, *first = NULL, *second = NULL;
    ok(sim->allocate(device, WEIR_KIND_DEVICE, 8192, &at));
    ok(sim->allocate(device, WEIR_KIND_PINNED, 4096, &first));
    ok(sim->allocate(device, WEIR_KIND_PINNED, 4096, &second));
    char *piece = at;
    wi_sim_touch(device, NULL, piece, 1024, true, 70000);
    ok(sim->fill(device, piece + 1024, 7, 512, NULL));
    ok(sim->copy(device, first, piece, 2048, NULL));
    assert_int_equal(((unsigned char *)first)[1024], 7);
    memcpy((char *)second + 512, first, 2048);
    ok(sim->copy(device, piece + THERE, (char *)second + 512, 2048, NULL));
    wi_sim_touch(device, NULL, piece + THERE, 1024, false, 70000);
    wi_sim_touch(device, NULL, piece + THERE + 1024, 512, false, WI_SIM_ZERO + 7);
    assert_string_equal(wrong, "");
    ((unsigned char *)second)[512 + 300] ^= 1; /* a byte is not what it was */
    ok(sim->copy(device, piece + THERE, (char *)second + 512, 2048, NULL));
    wi_sim_touch(device, NULL, piece + THERE, 256, false, 70000);
    assert_string_equal(wrong, "");
    wi_sim_touch(device, NULL, piece + THERE + 256, 256, false, 70000);
    expect_wrong("where version 70000 was written");
    ok(sim->release(device, WEIR_KIND_DEVICE, at, 8192));
    ok(sim->release(device, WEIR_KIND_PINNED, first, 4096));
    ok(sim->release(device, WEIR_KIND_PINNED, second, 4096));
    sim->close(device);
}

/* Pinned and pageable memory has bytes and takes none of the device's. */
static void host_memory_is_real(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *none;
    for (int kind = WEIR_KIND_PINNED; kind <= WEIR_KIND_HOST; kind++) {
        void *address = NULL, *other = NULL;
        ok(sim->allocate(device, (weir_kind)kind, 4096, &address));
        ok(sim->allocate(device, (weir_kind)kind, 4096, &other));
        memset(address, 1, 4096);
        ok(sim->fill(device, other, 7, 4096, NULL));
        ok(sim->copy(device, (char *)address + 256, other, 256, NULL));
        const unsigned char *bytes = address;
        assert_int_equal(bytes[255], 1);
        assert_int_equal(bytes[256], 7);
        assert_int_equal(bytes[511], 7);
        assert_int_equal(bytes[512], 1);
        assert_int_equal(wi_sim_memory_at(device, address), -2);
        assert_int_equal(available(device), 16 * WI_MIB);
        assert_int_equal(told_held, 0);
        ok(sim->release(device, (weir_kind)kind, address, 4096));
        ok(sim->release(device, (weir_kind)kind, other, 4096));
    }
    fails(sim->allocate(device, WEIR_KIND_COUNT, 4096, &none), WEIR_ERR_UNSUPPORTED);
    sim->close(device);
    assert_string_equal(wrong, "");
}

/* The pool --------------------------------------------------------------------------------------------------------- */

static void pool_follows_the_streams(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *a = new_stream(device), *b = new_stream(device);
    char *piece = take(device, 4096, a);
    wi_sim_touch(device, a, piece, 4096, true, 1000);
    ok(sim->pool_release(device, piece, 4096, a));
    assert_ptr_equal(take(device, 4096, a), piece); /* at once, behind the work */
    wi_sim_touch(device, a, piece, 4096, true, 1001);
    ok(sim->pool_release(device, piece, 4096, a));
    char *elsewhere = take(device, 4096, b), *host = take(device, 4096, NULL), *longer = take(device, 8192, a);
    assert_ptr_not_equal(elsewhere, piece);
    assert_ptr_not_equal(host, piece);
    assert_ptr_not_equal(longer, piece);
    assert_int_equal(wi_sim_run(device, wi_sim_number(a), 1), 1);
    char *early = take(device, 4096, b); /* one piece of work is still to come */
    assert_ptr_not_equal(early, piece);
    run_all(device);
    assert_ptr_equal(take(device, 4096, b), piece);
    wi_sim_touch(device, b, piece, 4096, false, 1001);
    run_all(device);
    char *const last[] = {piece, elsewhere, host, early};
    for (int i = 0; i < 4; i++)
        ok(sim->pool_release(device, last[i], 4096, i % 2 ? b : NULL));
    ok(sim->pool_release(device, longer, 8192, a));
    sim->stream_destroy(device, a);
    sim->stream_destroy(device, b);
    sim->close(device);
    assert_string_equal(wrong, "");
}

static void pool_is_trimmed(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *a = new_stream(device);
    uint64_t held = 1;
    char *pieces[4];
    for (int i = 0; i < 4; i++)
        pieces[i] = take(device, 2 * WI_MIB, a);
    wi_sim_touch(device, a, pieces[0], 256, true, 1000);
    for (int i = 0; i < 3; i++)
        ok(sim->pool_release(device, pieces[i], 2 * WI_MIB, a));
    ok(sim->pool_trim(device, 0, &held));
    assert_int_equal(held, 8 * WI_MIB); /* the device is not past it */
    run_all(device);
    ok(sim->pool_trim(device, 6 * WI_MIB, &held));
    assert_int_equal(held, 6 * WI_MIB);
    assert_int_equal(told_held, 6 * WI_MIB);
    assert_int_equal(available(device), 10 * WI_MIB);
    ok(sim->pool_trim(device, 0, &held));
    assert_int_equal(held, 2 * WI_MIB);
    ok(sim->pool_held(device, &held));
    assert_int_equal(held, 2 * WI_MIB);
    ok(sim->pool_release(device, pieces[3], 2 * WI_MIB, a));
    sim->stream_destroy(device, a);
    assert_int_equal(available(device), 14 * WI_MIB);
    sim->close(device);
    assert_string_equal(wrong, "");
}

/* What it keeps in other sizes is given up before a request is refused. */
static void pool_gives_up_what_it_keeps(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *a = new_stream(device), *none = NULL;
    char *piece = take(device, 10 * WI_MIB, a);
    wi_sim_touch(device, a, piece, 256, true, 1000);
    ok(sim->pool_release(device, piece, 10 * WI_MIB, a));
    fails(sim->pool_allocate(device, 12 * WI_MIB, a, &none), WEIR_ERR_OUT_OF_MEMORY);
    run_all(device);
    char *larger = take(device, 12 * WI_MIB, a);
    ok(sim->pool_release(device, larger, 12 * WI_MIB, a));
    sim->stream_destroy(device, a);
    sim->close(device);
    assert_string_equal(wrong, "");
}

/* The oracle ------------------------------------------------------------------------------------------------------- */

/* Pieces given out by the pool are rightly given out; handed on past it, they are not. */
static void oracle_knows_pieces(void **state)
{
    (void)state;
    oracle *o = oracle_create(3, 16 * WI_MIB, 2 * WI_MIB, 16 * WI_MIB);
    wi_sim_watcher watcher = oracle_watcher(o);
    wi_device *device;
    wi_sim_configure(&(wi_sim_options){.bytes = 16 * WI_MIB, .granule = 2 * WI_MIB, .watcher = &watcher});
    ok(sim->open(0, &device));
    wi_sim_configure(NULL);
    oracle_attach(o, device);
    void *a = new_stream(device), *b = new_stream(device);
    char *piece = take(device, 4096, a);
    oracle_block block =
        oracle_allocated(o, &(oracle_got){.stream = 1, .address = piece, .length = 4096, .charged = 4096});
    wi_sim_touch(device, a, piece, 4096, true, 1000);
    oracle_freeing(o, block, 1);
    oracle_freed(o, block);
    ok(sim->pool_release(device, piece, 4096, a));
    run_all(device);
    assert_ptr_equal(take(device, 4096, b), piece); /* the pool has looked: the device is past it */
    block = oracle_allocated(o, &(oracle_got){.stream = 2, .address = piece, .length = 4096, .charged = 4096});
    wi_sim_touch(device, b, piece, 4096, true, 1001);
    assert_int_equal(oracle_found(o)->violations, 0);
    oracle_freeing(o, block, 2);
    oracle_freed(o, block);
    block = oracle_allocated(o, &(oracle_got){.stream = 1, .address = piece, .length = 4096, .charged = 4096});
    assert_int_equal(oracle_found(o)->count[ORACLE_EARLY_REUSE], 1);
    oracle_freeing(o, block, 1);
    oracle_freed(o, block);
    run_all(device);
    ok(sim->stream_synchronize(device, b));
    ok(sim->stream_synchronize(device, a));
    char *single = piece_of(device, 4096);
    (void)oracle_allocated(o, &(oracle_got){.stream = 0, .address = single, .length = 4096, .charged = 4096});
    assert_int_equal(oracle_found(o)->count[ORACLE_UNMAP_LIVE], 0);
    ok(sim->release(device, WEIR_KIND_DEVICE, single, 4096)); /* under a live block */
    assert_int_equal(oracle_found(o)->count[ORACLE_UNMAP_LIVE], 1);
    assert_int_equal(oracle_found(o)->violations, 2);
    ok(sim->pool_release(device, piece, 4096, b));
    sim->stream_destroy(device, a);
    sim->stream_destroy(device, b);
    sim->close(device);
    oracle_destroy(o);
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static void streams_are_adopted(void **state)
{
    (void)state;
    wi_device *device = open_device(), *other = open_device();
    void *made = new_stream(device), *foreign = new_stream(other), *stream = NULL, *again = NULL;
    uint64_t first = 0, second = 0, third = 0;
    wi_event event;
    ok(sim->stream_adopt(device, made, &stream, &first));
    ok(sim->stream_adopt(device, made, &again, &second));
    assert_int_equal(first, second);
    assert_ptr_equal(sim->stream_native(stream), made);
    wi_sim_touch(device, made, &event, 0, true, 1000);
    sim->stream_destroy(device, stream);
    ok(sim->record(device, again, &event));
    assert_false(sim->passed(device, event)); /* it is only forgotten */
    sim->stream_destroy(device, again);
    assert_int_equal(wi_sim_done(device, wi_sim_number(made)), 0);
    fails(sim->stream_adopt(device, NULL, &stream, &third), WEIR_ERR_INVALID);
    fails(sim->stream_adopt(device, foreign, &stream, &third), WEIR_ERR_STREAM_MISUSE);
    sim->stream_destroy(device, made);
    fails(sim->stream_adopt(device, made, &stream, &third), WEIR_ERR_STREAM_MISUSE);
    made = new_stream(device);
    ok(sim->stream_adopt(device, made, &stream, &third));
    assert_int_not_equal(first, third);
    sim->stream_destroy(device, stream);
    sim->stream_destroy(device, made);
    sim->stream_destroy(other, foreign);
    fails(sim->stream_default(device, WEIR_DEFAULT_STREAM_LEGACY, &stream), WEIR_ERR_UNSUPPORTED);
    assert_null(sim->context(device));
    sim->close(other);
    sim->close(device);
    assert_string_equal(wrong, "");
}

static void captured_streams_take_nothing(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *a = new_stream(device), *b = new_stream(device), *none = NULL;
    char *piece = take(device, 4096, a);
    wi_event event, late;
    wi_sim_touch(device, a, piece, 256, true, 1000);
    wi_sim_touch(device, b, piece + 256, 256, true, 1000);
    ok(sim->record(device, b, &late));
    assert_false(sim->stream_capturing(device, a));
    wi_sim_capture(device, a, true);
    assert_true(sim->stream_capturing(device, a));
    assert_false(sim->stream_capturing(device, b));
    fails(sim->record(device, a, &event), WEIR_ERR_STREAM_MISUSE);
    fails(sim->order(device, a, late), WEIR_ERR_STREAM_MISUSE);
    fails(sim->stream_synchronize(device, a), WEIR_ERR_STREAM_MISUSE);
    fails(sim->pool_allocate(device, 4096, a, &none), WEIR_ERR_STREAM_MISUSE);
    fails(sim->pool_release(device, piece, 4096, a), WEIR_ERR_STREAM_MISUSE);
    ok(sim->fill(device, piece, 7, 256, a));
    ok(sim->copy(device, piece, piece + 256, 256, a));
    assert_int_equal(wi_sim_queued(device, wi_sim_number(a)), 1);
    run_all(device); /* what was queued before goes on */
    wi_sim_capture(device, a, false);
    wi_sim_touch(device, a, piece, 256, false, 1000);
    ok(sim->pool_release(device, piece, 4096, a));
    ok(sim->stream_synchronize(device, a));
    sim->stream_destroy(device, a);
    sim->stream_destroy(device, b);
    sim->close(device);
    assert_string_equal(wrong, "");
}

static weir_status make_call(wi_device *device, wi_sim_call call, void **piece)
{
    uint64_t held;
    switch (call) {
    case WI_SIM_ALLOCATE:
        return sim->allocate(device, WEIR_KIND_DEVICE, 256, piece);
    case WI_SIM_RELEASE:
        return sim->release(device, WEIR_KIND_DEVICE, *piece, 256);
    case WI_SIM_POOL_ALLOCATE:
        return sim->pool_allocate(device, 256, NULL, piece);
    case WI_SIM_POOL_RELEASE:
        return sim->pool_release(device, *piece, 256, NULL);
    default:
        return sim->pool_trim(device, 0, &held);
    }
}

/* Each of the calls fails when it is told to, changes nothing, and works the next time. */
static void each_call_can_fail(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *piece = NULL;
    static const wi_sim_call calls[] = {WI_SIM_ALLOCATE, WI_SIM_RELEASE, WI_SIM_POOL_ALLOCATE, WI_SIM_POOL_RELEASE,
                                        WI_SIM_POOL_TRIM};
    static const uint64_t held_after[] = {256, 0, 2 * WI_MIB, 2 * WI_MIB, 0};
    uint64_t before = 0;
    for (int i = 0; i < 5; i++) {
        wi_sim_arm(&(wi_sim_fault){calls[i], 0, false, WEIR_ERR_DRIVER}, NULL);
        fails(make_call(device, calls[i], &piece), WEIR_ERR_DRIVER);
        assert_int_equal(told_held, before);
        ok(make_call(device, calls[i], &piece));
        assert_int_equal(told_held, held_after[i]);
        before = held_after[i];
    }
    wi_sim_arm(NULL, NULL);
    sim->close(device);
    assert_string_equal(wrong, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_pieces_share_a_granule),
        cmocka_unit_test(what_a_piece_holds_is_unknown),
        cmocka_unit_test(never_more_than_there_is),
        cmocka_unit_test(wrong_releases_are_told),
        cmocka_unit_test(contents_pass_through_the_host),
        cmocka_unit_test(host_memory_is_real),
        cmocka_unit_test(pool_follows_the_streams),
        cmocka_unit_test(pool_is_trimmed),
        cmocka_unit_test(pool_gives_up_what_it_keeps),
        cmocka_unit_test(oracle_knows_pieces),
        cmocka_unit_test(streams_are_adopted),
        cmocka_unit_test(captured_streams_take_nothing),
        cmocka_unit_test(each_call_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
