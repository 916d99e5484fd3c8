/* The cuda driver over the stub: failures at each call, other people's contexts and captures, a lost device. */
#include "driver/contract.h"
#include "driver/cuda_api.h"

/* Failures --------------------------------------------------------------------------------------------------------- */

static void test_create_is_all_or_none(void **state)
{
    (void)state;
    wi_handle handles[200];
    uint64_t before = control.stub_count("used");
    fails(D(create(device, granule, 200, handles)), WEIR_ERR_OUT_OF_MEMORY); /* 256 MiB are 128 of them */
    assert_non_null(strstr(weir_detail(), "cuMemCreate"));
    assert_int_equal(control.stub_count("used"), before);
    for (int nth = 1; nth <= 5; nth++) {
        control.stub_fail("cuMemCreate", nth, nth % 2 ? 2 : 999);
        fails(D(create(device, granule, 5, handles)), nth % 2 ? WEIR_ERR_OUT_OF_MEMORY : WEIR_ERR_DRIVER);
        assert_int_equal(control.stub_count("handles"), 0);
    }
    control.stub_fail("cuMemCreate", 3, 2);
    fails(D(create(device, 8 * granule, 5, handles)), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(control.stub_count("used"), before);
    ok(D(create(device, granule, 128, handles)));
    V(destroy(device, granule, 128, handles));
}

static void test_map_is_all_or_none(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 8, 4);
    fill_granules(range.address, 4, 60);
    ok(D(unmap(device, range.address, granule, 4, range.handles)));
    for (int nth = 1; nth <= 4; nth++) {
        control.stub_fail("cuMemMap", nth, 999);
        fails(D(map(device, range.address, granule, 4, range.handles)), WEIR_ERR_DRIVER);
        assert_int_equal(control.stub_count("mappings"), 0);
    }
    control.stub_fail("cuMemSetAccess", 1, 2);
    fails(D(map(device, range.address, granule, 4, range.handles)), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(control.stub_count("mappings"), 0);
    ok(D(map(device, range.address, granule, 4, range.handles)));
    for (int i = 0; i < 4; i++)
        expect_granule(range.address + (size_t)i * granule, (uint8_t)(60 + i));
    drop_range(&range);
}

static void test_unmap_is_all_or_none(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 8, 4);
    fill_granules(range.address, 4, 70);
    control.stub_fail("cuMemUnmap", 1, 999);
    fails(D(unmap(device, range.address, granule, 4, range.handles)), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_detail(), "cuMemUnmap"));
    assert_int_equal(control.stub_count("mappings"), 4);
    for (int i = 0; i < 4; i++)
        expect_granule(range.address + (size_t)i * granule, (uint8_t)(70 + i));
    drop_range(&range);
}

/* Every function that open needs, failing once: an error, nothing left, and the next open works. */
static void test_open_fails_and_then_works(void **state)
{
    (void)state;
    static const char *const functions[] = {"cuInit",
                                            "cuDeviceGetCount",
                                            "cuDeviceGet",
                                            "cuDeviceGetAttribute",
                                            "cuDevicePrimaryCtxRetain",
                                            "cuMemGetAllocationGranularity",
                                            "cuCtxPushCurrent",
                                            "cuStreamCreate"};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        wi_device *second = NULL;
        uint64_t contexts = control.stub_count("contexts"), streams = control.stub_count("streams");
        control.stub_fail(functions[i], 1, 999);
        fails(D(open(0, &second)), WEIR_ERR_DRIVER);
        control.stub_fail(functions[i], 0, 0);
        assert_int_equal(control.stub_count("contexts"), contexts);
        assert_int_equal(control.stub_count("streams"), streams);
        ok(D(open(0, &second)));
        V(close(second));
    }
    fails(D(open(1, &(wi_device *){NULL})), WEIR_ERR_NOT_FOUND);
}

static void test_no_device_is_not_found(void **state)
{
    (void)state;
    wi_device *second = NULL;
    control.stub_fail("cuInit", 1, CUDA_ERROR_NO_DEVICE);
    fails(D(open(0, &second)), WEIR_ERR_NOT_FOUND);
}

static void test_unknown_codes_have_words(void **state)
{
    (void)state;
    uint64_t available, total;
    control.stub_fail("cuMemGetInfo", 1, 12345);
    fails(D(memory(device, &available, &total)), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_detail(), "12345"));
    assert_null(strstr(weir_detail(), "(null)"));
}

/* Each call of the driver's table with each function below it failing once: an error or not, but the thread as it was, and
 * afterwards it works. */
static void test_each_call_recovers(void **state)
{
    (void)state;
    static const char *const functions[] = {
        "cuCtxGetCurrent",   "cuCtxPushCurrent",    "cuThreadExchangeStreamCaptureMode",
        "cuEventCreate",     "cuEventRecord",       "cuEventQuery",
        "cuStreamWaitEvent", "cuStreamSynchronize", "cuMemcpyAsync",
        "cuMemsetD8Async",   "cuLaunchHostFunc",    "cuStreamIsCapturing"};
    mapped_range range;
    make_range(&range, 2, 1);
    void *one = NULL, *two = NULL;
    ok(D(stream_create(device, &one)));
    ok(D(stream_create(device, &two)));
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        /* The even calls of cuThreadExchangeStreamCaptureMode put back what was there: nothing could make up for those. */
        for (int nth = 1; nth <= 3; nth += strcmp(functions[i], "cuThreadExchangeStreamCaptureMode") == 0 ? 2 : 1) {
            gate g = {.open = true};
            wi_event event = {0};
            uint64_t depth = control.stub_count("depth"), mode = control.stub_count("capture mode");
            control.stub_fail(functions[i], nth, 999);
            (void)driver->fill(device, range.address, 1, 4096, one);
            (void)driver->call(device, hold, &g, one);
            (void)driver->record(device, one, &event);
            (void)driver->order(device, two, event);
            (void)driver->copy(device, range.address + 8192, range.address + 4096, 256, two);
            (void)driver->passed(device, event);
            (void)driver->stream_synchronize(device, one);
            (void)driver->stream_synchronize(device, two);
            control.stub_fail(functions[i], 0, 0);
            assert_int_equal(control.stub_count("depth"), depth);
            assert_int_equal(control.stub_count("capture mode"), mode);
            ok(D(stream_synchronize(device, one)));
            ok(D(record(device, one, &event)));
            ok(D(wait(device, event, UINT64_MAX)));
            assert_true(driver->passed(device, event));
        }
    }
    V(stream_destroy(device, one));
    V(stream_destroy(device, two));
    drop_range(&range);
}

/* Single pieces, and those of a pool: an error leaves nothing behind, and the next call works. */
static void test_pieces_fail_and_then_work(void **state)
{
    (void)state;
    static const struct {
        const char *function;
        int nth;
        weir_kind kind; /* WEIR_KIND_COUNT: from the pool, without a stream */
    } cases[] = {{"cuMemAlloc", 1, WEIR_KIND_DEVICE},
                 {"cuMemHostAlloc", 1, WEIR_KIND_PINNED},
                 {"cuDeviceGetAttribute", 1, WEIR_KIND_COUNT},
                 {"cuMemPoolCreate", 1, WEIR_KIND_COUNT},
                 {"cuMemPoolSetAttribute", 1, WEIR_KIND_COUNT},
                 {"cuMemPoolSetAttribute", 2, WEIR_KIND_COUNT},
                 {"cuMemAllocFromPoolAsync", 1, WEIR_KIND_COUNT},
                 {"cuStreamSynchronize", 1, WEIR_KIND_COUNT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *address = NULL;
        bool pool = cases[i].kind == WEIR_KIND_COUNT;
        wi_device *second = NULL;
        ok(D(open(0, &second)));
        for (int code = 2; code < 1000; code += 997) {
            weir_status expected = code == 2 ? WEIR_ERR_OUT_OF_MEMORY : WEIR_ERR_DRIVER;
            control.stub_fail(cases[i].function, cases[i].nth, code);
            fails(pool ? D(pool_allocate(second, 4096, NULL, &address))
                       : D(allocate(second, cases[i].kind, 4096, &address)),
                  expected);
            assert_non_null(strstr(weir_detail(), cases[i].function));
            assert_int_equal(control.stub_count("allocations"), 0);
        }
        ok(pool ? D(pool_allocate(second, 4096, NULL, &address)) : D(allocate(second, cases[i].kind, 4096, &address)));
        ok(pool ? D(pool_release(second, address, 4096, NULL)) : D(release(second, cases[i].kind, address, 4096)));
        V(close(second));
        assert_int_equal(control.stub_count("pools"), 0);
    }
}

/* Long page-locked pieces are the process's own pages, registered: each error gives them back. */
static void test_long_pinned_pieces(void **state)
{
    (void)state;
    const uint64_t bytes = UINT64_C(70) << 20;
    uint64_t allocated = control.stub_count("cuMemHostAlloc");
    unsigned char *piece = NULL;
    for (int code = 2; code < 1000; code += 997) {
        control.stub_fail("cuMemHostRegister", 1, code);
        fails(D(allocate(device, WEIR_KIND_PINNED, bytes, (void **)&piece)),
              code == 2 ? WEIR_ERR_OUT_OF_MEMORY : WEIR_ERR_DRIVER);
        assert_non_null(strstr(weir_detail(), "cuMemHostRegister"));
        assert_int_equal(control.stub_count("registered"), 0);
    }
    ok(D(allocate(device, WEIR_KIND_PINNED, bytes, (void **)&piece)));
    assert_int_equal(control.stub_count("registered"), 1);
    assert_int_equal(control.stub_count("cuMemHostAlloc"), allocated);
    for (uint64_t at = 0; at < bytes; at += 4096)
        assert_int_equal(piece[at]++, 0);
    control.stub_fail("cuMemHostUnregister", 1, 999);
    fails(D(release(device, WEIR_KIND_PINNED, piece, bytes)), WEIR_ERR_DRIVER);
    assert_int_equal(piece[bytes - 4096], 1);
    ok(D(release(device, WEIR_KIND_PINNED, piece, bytes)));
    assert_int_equal(control.stub_count("registered"), 0);
}

static void test_releases_fail_and_then_work(void **state)
{
    (void)state;
    static const char *const functions[] = {"cuMemFree", "cuMemFreeHost", "cuMemFreeAsync"};
    void *pieces[3];
    uint64_t held = 1;
    ok(D(allocate(device, WEIR_KIND_DEVICE, 4096, &pieces[0])));
    ok(D(allocate(device, WEIR_KIND_PINNED, 4096, &pieces[1])));
    ok(D(pool_allocate(device, 4096, NULL, &pieces[2])));
    for (int nth = 1; nth >= 0; nth--) /* once with the failure, then without */
        for (int i = 0; i < 3; i++) {
            control.stub_fail(functions[i], nth, 999);
            weir_status status = i < 2 ? D(release(device, (weir_kind)i, pieces[i], 4096))
                                       : D(pool_release(device, pieces[i], 4096, NULL));
            fails(status, nth ? WEIR_ERR_DRIVER : WEIR_OK);
            assert_int_equal(control.stub_count("allocations"), nth ? 3 : 2 - i);
        }
    control.stub_fail("cuMemPoolTrimTo", 1, 999);
    fails(D(pool_trim(device, 0, &held)), WEIR_ERR_DRIVER);
    control.stub_fail("cuMemPoolGetAttribute", 1, 999);
    fails(D(pool_held(device, &held)), WEIR_ERR_DRIVER);
    ok(D(pool_trim(device, 0, &held)));
    assert_int_equal(held, 0);
}

static void test_without_pools(void **state)
{
    (void)state;
    void *address = NULL;
    uint64_t held = 1;
    control.stub_pools(false);
    fails(D(pool_allocate(device, 4096, NULL, &address)), WEIR_ERR_UNSUPPORTED);
    ok(D(pool_held(device, &held)));
    assert_int_equal(held, 0);
    control.stub_pools(true);
    ok(D(pool_allocate(device, 4096, NULL, &address)));
    ok(D(pool_release(device, address, 4096, NULL)));
}

/* Nothing is left of a stream that could not be adopted. */
static void test_adopting_fails_and_then_works(void **state)
{
    (void)state;
    static const char *const functions[] = {"cuCtxPushCurrent", "cuStreamGetCtx", "cuStreamGetId"};
    void *own = new_stream(), *stream = NULL;
    uint64_t identity;
    for (int i = 0; i < 3; i++) {
        control.stub_fail(functions[i], 1, 999);
        fails(D(stream_adopt(device, driver->stream_native(own), &stream, &identity)), WEIR_ERR_DRIVER);
        ok(D(stream_adopt(device, driver->stream_native(own), &stream, &identity)));
        V(stream_destroy(device, stream));
    }
    control.stub_fail("cuStreamGetId", 1, 999);
    fails(D(stream_default(device, WEIR_DEFAULT_STREAM_PER_THREAD, &stream)), WEIR_ERR_DRIVER);
    V(stream_destroy(device, own));
}

/* The driver's own words for a capture in the way. */
static void test_capture_errors_are_misuse(void **state)
{
    (void)state;
    void *stream = new_stream();
    wi_event event;
    for (int code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; code++) {
        control.stub_fail("cuEventRecord", 1, code);
        fails(D(record(device, stream, &event)), WEIR_ERR_STREAM_MISUSE);
    }
    control.stub_fail("cuEventRecord", 1, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD + 1);
    fails(D(record(device, stream, &event)), WEIR_ERR_DRIVER);
    V(stream_destroy(device, stream));
}

/* An event that can never be asked for again: the wait says so instead of waiting for ever. */
static void test_wait_ends_when_asking_fails(void **state)
{
    (void)state;
    void *stream = NULL;
    gate g = {0};
    wi_event event;
    ok(D(stream_create(device, &stream)));
    ok(D(call(device, hold, &g, stream)));
    ok(D(record(device, stream, &event)));
    control.stub_fail("cuEventQuery", 1, 999);
    fails(D(wait(device, event, UINT64_MAX)), WEIR_ERR_DRIVER);
    atomic_store(&g.open, true);
    ok(D(wait(device, event, UINT64_MAX)));
    V(stream_destroy(device, stream));
}

/* Others in the process -------------------------------------------------------------------------------------------- */

static void test_foreign_context_stays_current(void **state)
{
    (void)state;
    CUcontext foreign = control.stub_foreign(0), popped = NULL;
    assert_int_equal(wi_cuda.cuCtxPushCurrent(foreign), CUDA_SUCCESS);
    mapped_range range;
    make_range(&range, 2, 2);
    fill_granules(range.address, 2, 80);
    expect_granule(range.address + granule, 81);
    void *stream = NULL;
    wi_event event;
    ok(D(stream_create(device, &stream)));
    ok(D(fill(device, range.address, 5, granule, stream)));
    ok(D(record(device, stream, &event)));
    ok(D(wait(device, event, UINT64_MAX)));
    V(stream_destroy(device, stream));
    drop_range(&range);
    assert_int_equal(wi_cuda.cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    assert_ptr_equal(popped, foreign);
}

static void test_no_capture_is_broken(void **state)
{
    (void)state;
    control.stub_capture(true);
    wi_device *second = NULL;
    uint64_t available, total;
    ok(D(open(0, &second)));
    ok(D(memory(second, &available, &total)));
    V(close(second));
    mapped_range range;
    make_range(&range, 4, 3);
    fill_granules(range.address, 3, 90);
    expect_granule(range.address + 2 * granule, 92);
    void *stream = NULL;
    wi_event event;
    ok(D(stream_create(device, &stream)));
    ok(D(fill(device, range.address, 5, granule, stream)));
    ok(D(record(device, stream, &event)));
    ok(D(wait(device, event, UINT64_MAX)));
    ok(D(stream_synchronize(device, stream)));
    V(stream_destroy(device, stream));
    drop_range(&range);
    control.stub_capture(false);
    assert_int_equal(control.stub_count("captures broken"), 0);
}

/* A lost device ---------------------------------------------------------------------------------------------------- */

static void test_lost_is_sticky(void **state)
{
    (void)state;
    mapped_range range;
    make_range(&range, 4, 2);
    void *stream = NULL, *more = NULL;
    wi_handle handle;
    uint64_t available, total;
    wi_event event;
    static gate g; /* the stream is never destroyed */
    ok(D(stream_create(device, &stream)));
    ok(D(call(device, hold, &g, stream)));
    ok(D(record(device, stream, &event)));
    assert_false(driver->passed(device, event));
    control.stub_lose(true);
    fails(D(copy(device, range.address, range.address + granule, 16, stream)), WEIR_ERR_DEVICE_LOST);
    control.stub_lose(false); /* the driver must not ask again: lost is lost */
    uint64_t calls = control.stub_count("cuMemCreate") + control.stub_count("cuMemRelease") +
                     control.stub_count("cuMemUnmap") + control.stub_count("cuMemGetInfo") +
                     control.stub_count("cuEventQuery");
    fails(D(create(device, granule, 1, &handle)), WEIR_ERR_DEVICE_LOST);
    fails(D(unmap(device, range.address, granule, 2, range.handles)), WEIR_ERR_DEVICE_LOST);
    fails(D(memory(device, &available, &total)), WEIR_ERR_DEVICE_LOST);
    fails(D(fill(device, range.address, 1, 1, NULL)), WEIR_ERR_DEVICE_LOST);
    fails(D(stream_create(device, &more)), WEIR_ERR_DEVICE_LOST);
    fails(D(stream_synchronize(device, stream)), WEIR_ERR_DEVICE_LOST);
    fails(D(call(device, hold, &g, stream)), WEIR_ERR_DEVICE_LOST);
    fails(D(allocate(device, WEIR_KIND_DEVICE, 256, &more)), WEIR_ERR_DEVICE_LOST);
    fails(D(release(device, WEIR_KIND_DEVICE, range.address, 256)), WEIR_ERR_DEVICE_LOST);
    fails(D(pool_allocate(device, 256, stream, &more)), WEIR_ERR_DEVICE_LOST);
    assert_false(driver->stream_capturing(device, stream));
    V(destroy(device, granule, 2, range.handles));
    /* Nothing runs there any more, so what was waited for is over, and a free has nothing to wait for. */
    assert_true(driver->passed(device, event));
    ok(D(wait(device, event, UINT64_MAX)));
    ok(D(record(device, stream, &event)));
    assert_true(driver->passed(device, event));
    assert_int_equal(control.stub_count("cuMemCreate") + control.stub_count("cuMemRelease") +
                         control.stub_count("cuMemUnmap") + control.stub_count("cuMemGetInfo") +
                         control.stub_count("cuEventQuery"),
                     calls);
    atomic_store(&g.open, true);
    V(stream_destroy(device, stream));
    V(close(device));
}

int run_stub_tests(void)
{
    const struct CMUnitTest faults[] = {
        cmocka_unit_test_setup_teardown(test_create_is_all_or_none, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_map_is_all_or_none, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_unmap_is_all_or_none, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_open_fails_and_then_works, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_no_device_is_not_found, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_unknown_codes_have_words, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_each_call_recovers, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_pieces_fail_and_then_work, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_long_pinned_pieces, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_releases_fail_and_then_work, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_without_pools, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_adopting_fails_and_then_works, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_capture_errors_are_misuse, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_wait_ends_when_asking_fails, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_foreign_context_stays_current, open_device, close_device),
        cmocka_unit_test_setup_teardown(test_no_capture_is_broken, open_device, close_device),
        /* The last one: what is on a lost device stays there. */
        cmocka_unit_test_setup(test_lost_is_sticky, open_device),
    };
    return cmocka_run_group_tests(faults, NULL, NULL);
}
