/* The simulated device by itself: its order, its time, its contents, its faults. */
#include "device.h"

#include "base/system.h"

static void work_waits_for_the_world(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *a, *b;
    wi_event event;
    int order[3] = {0};
    assert_int_equal(sim->stream_create(device, &a), WEIR_OK);
    assert_int_equal(sim->stream_create(device, &b), WEIR_OK);
    assert_int_equal(sim->fill(device, order, 0, 0, a), WEIR_OK);
    assert_int_equal(sim->record(device, a, &event), WEIR_OK);
    assert_int_equal(sim->order(device, b, event), WEIR_OK);
    assert_false(sim->passed(device, event));
    assert_int_equal(wi_sim_run(device, wi_sim_number(b), 10), 0); /* it waits for the other */
    assert_int_equal(wi_sim_run(device, wi_sim_number(a), 10), 1);
    assert_true(sim->passed(device, event));
    assert_int_equal(wi_sim_run(device, wi_sim_number(b), 10), 1);
    sim->stream_destroy(device, a);
    sim->stream_destroy(device, b);
    assert_true(sim->passed(device, event)); /* events outlive their stream */
    sim->close(device);
    assert_string_equal(wrong, "");
}

static void waiting_passes_virtual_time(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *a;
    wi_event event;
    assert_int_equal(sim->stream_create(device, &a), WEIR_OK);
    assert_int_equal(sim->fill(device, &event, 0, 0, a), WEIR_OK);
    assert_int_equal(sim->record(device, a, &event), WEIR_OK);
    wi_sim_stall(device, wi_sim_number(a), UINT64_C(5000000000));
    uint64_t start = wi_sim_now();
    assert_int_equal(sim->wait(device, event, start + 1000000000), WEIR_OK);
    assert_false(sim->passed(device, event));
    assert_int_equal(wi_sim_now(), start + 1000000000);
    assert_int_equal(sim->wait(device, event, UINT64_MAX), WEIR_OK);
    assert_true(sim->passed(device, event));
    assert_true(wi_sim_now() >= start + UINT64_C(5000000000));
    sim->stream_destroy(device, a);
    sim->close(device);
    assert_string_equal(wrong, "");
}

/* A handle mapped at two addresses shows the same bytes at both; what it holds moves with it. */
static void contents_belong_to_handles(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *range;
    wi_handle handle[2];
    assert_int_equal(sim->reserve(device, 16 * WI_MIB, &range), WEIR_OK);
    char *here = range, *there = here + 4 * WI_MIB;
    assert_int_equal(sim->create(device, 2 * WI_MIB, 2, handle), WEIR_OK);
    assert_int_equal(sim->map(device, here, 2 * WI_MIB, 2, handle), WEIR_OK);
    wi_sim_touch(device, NULL, here + WI_MIB, 2 * WI_MIB, true, 1000);
    assert_int_equal(sim->map(device, there, 2 * WI_MIB, 1, &handle[1]), WEIR_OK);
    wi_sim_touch(device, NULL, there, WI_MIB, false, 1000);
    assert_string_equal(wrong, "");
    wi_sim_touch(device, NULL, there + WI_MIB, 256, false, 1000);
    assert_non_null(strstr(wrong, "reads version 0"));
    wrong[0] = '\0';
    assert_int_equal(sim->unmap(device, here, 2 * WI_MIB, 2, handle), WEIR_OK);
    wi_sim_touch(device, NULL, here, 256, true, 1001);
    assert_non_null(strstr(wrong, "nothing is mapped"));
    wrong[0] = '\0';
    wi_sim_touch(device, NULL, there, WI_MIB, false, 1000);
    assert_int_equal(sim->unmap(device, there, 2 * WI_MIB, 1, &handle[1]), WEIR_OK);
    sim->destroy(device, 2 * WI_MIB, 2, handle);
    assert_string_equal(wrong, "");
    sim->destroy(device, 2 * WI_MIB, 1, handle);
    assert_non_null(strstr(wrong, "no handle"));
    wrong[0] = '\0';
    sim->unreserve(device, range, 16 * WI_MIB);
    sim->close(device);
    assert_string_equal(wrong, "");
}

static void expect_wrong(const char *what)
{
    if (!strstr(wrong, what))
        fail_msg("'%s' instead of '%s'", wrong, what);
    wrong[0] = '\0';
}

/* What is protected can be read, and written again when it is opened, or mapped anew. */
static void protected_memory_is_not_written(void **state)
{
    (void)state;
    enum { G = 2 * WI_MIB };
    wi_device *device = open_device();
    void *range;
    wi_handle handle;
    assert_int_equal(sim->reserve(device, 16 * G, &range), WEIR_OK);
    assert_int_equal(sim->create(device, 2 * G, 1, &handle), WEIR_OK);
    assert_int_equal(sim->map(device, range, 2 * G, 1, &handle), WEIR_OK);
    wi_sim_touch(device, NULL, range, 2 * G, true, 1000);
    assert_int_equal(sim->protect(device, range, 2 * G, false), WEIR_OK);
    wi_sim_touch(device, NULL, range, 2 * G, false, 1000);
    assert_string_equal(wrong, "");
    wi_sim_touch(device, NULL, (char *)range + G + 256, 256, true, 1001);
    expect_wrong("where it may only read");
    assert_int_equal(sim->fill(device, range, 0, 256, NULL), WEIR_OK);
    expect_wrong("where it may only read");
    wi_sim_touch(device, NULL, range, 2 * G, false, 1000);
    assert_int_equal(sim->protect(device, range, 2 * G, true), WEIR_OK);
    wi_sim_touch(device, NULL, range, 2 * G, true, 1001);
    assert_int_equal(sim->protect(device, range, 2 * G, false), WEIR_OK);
    assert_int_equal(sim->unmap(device, range, 2 * G, 1, &handle), WEIR_OK);
    assert_int_equal(sim->map(device, range, 2 * G, 1, &handle), WEIR_OK);
    wi_sim_touch(device, NULL, range, 2 * G, true, 1002);
    assert_string_equal(wrong, "");
    assert_int_equal(sim->protect(device, range, 4 * G, false), WEIR_OK);
    expect_wrong("no handle that is mapped");
    assert_int_equal(sim->unmap(device, range, 2 * G, 1, &handle), WEIR_OK);
    sim->destroy(device, 2 * G, 1, &handle);
    sim->unreserve(device, range, 16 * G);
    sim->close(device);
    assert_string_equal(wrong, "");
}

/* A handle is as long as it was created, and whole. */
static void handles_have_a_length(void **state)
{
    (void)state;
    enum { G = 2 * WI_MIB };
    wi_device *device = open_device();
    void *range;
    wi_handle small[3], large, more;
    assert_int_equal(sim->reserve(device, 16 * G, &range), WEIR_OK);
    char *base = range;
    assert_int_equal(sim->create(device, G, 3, small), WEIR_OK);
    sim->destroy(device, G, 1, &small[1]);
    assert_int_equal(sim->create(device, 7 * G, 1, &large), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(sim->create(device, 6 * G, 1, &large), WEIR_OK); /* its memory need not lie in one piece */
    assert_int_equal(told_held, 8 * G);
    assert_int_equal(sim->create(device, G, 1, &more), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(sim->create(device, UINT64_MAX / G * G, 2, &more), WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(wrong, "");
    assert_int_equal(sim->create(device, G / 2, 1, &more), WEIR_ERR_DRIVER);
    expect_wrong("no whole granules");
    assert_int_equal(sim->map(device, base, 5 * G, 1, &large), WEIR_OK);
    expect_wrong("6 granules long");
    assert_int_equal(sim->map(device, base + 11 * G, 6 * G, 1, &large), WEIR_OK);
    expect_wrong("no part of a range");
    assert_int_equal(sim->map(device, base + G, 6 * G, 1, &large), WEIR_OK);
    wi_sim_touch(device, NULL, base + G, 6 * G, true, 1000);
    assert_int_equal(sim->map(device, base + 6 * G, G, 1, small), WEIR_OK);
    expect_wrong("is mapped where");
    assert_int_equal(sim->unmap(device, base + G, 3 * G, 1, &large), WEIR_OK);
    expect_wrong("6 granules long");
    assert_int_equal(sim->unmap(device, base + 4 * G, 6 * G, 1, &large), WEIR_OK);
    expect_wrong("unmapped where it is not");
    assert_int_equal(sim->map(device, base + 10 * G, 6 * G, 1, &large), WEIR_OK); /* at two addresses */
    assert_int_equal(sim->unmap(device, base + G, 6 * G, 1, &large), WEIR_OK);
    wi_sim_touch(device, NULL, base + 10 * G, 6 * G, false, 1000);
    assert_string_equal(wrong, "");
    assert_int_equal(sim->unmap(device, base + 10 * G, 6 * G, 1, &large), WEIR_OK);
    sim->destroy(device, 2 * G, 1, &large);
    expect_wrong("6 granules long");
    sim->destroy(device, 6 * G, 1, &large);
    assert_int_equal(told_held, 2 * G);
    sim->destroy(device, G, 1, small);
    sim->destroy(device, G, 1, &small[2]);
    sim->unreserve(device, range, 16 * G);
    sim->close(device);
    assert_string_equal(wrong, "");
}

static void what_is_left_is_told(void **state)
{
    (void)state;
    wi_device *device = open_device();
    wi_handle handles[9];
    assert_int_equal(sim->create(device, 2 * WI_MIB, 9, handles), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(sim->create(device, 2 * WI_MIB, 8, handles), WEIR_OK);
    wi_sim_resize(device, WI_MIB);
    sim->destroy(device, 2 * WI_MIB, 7, handles);
    assert_int_equal(sim->create(device, 2 * WI_MIB, 1, handles), WEIR_ERR_OUT_OF_MEMORY);
    sim->close(device);
    assert_non_null(strstr(wrong, "handles of 1 granules"));
}

static void any_call_can_fail(void **state)
{
    (void)state;
    wi_device *device = open_device();
    void *range, *stream;
    wi_sim_fault second = {WI_SIM_CALLS, 1, false, WEIR_ERR_DRIVER},
                 streams = {WI_SIM_STREAM_CREATE, 0, true, WEIR_ERR_SYSTEM};
    wi_sim_arm(&second, &streams);
    assert_int_equal(sim->reserve(device, 2 * WI_MIB, &range), WEIR_OK);
    void *none;
    assert_int_equal(sim->reserve(device, 2 * WI_MIB, &none), WEIR_ERR_DRIVER);
    assert_int_equal(sim->stream_create(device, &stream), WEIR_ERR_SYSTEM);
    assert_int_equal(sim->stream_create(device, &stream), WEIR_ERR_SYSTEM);
    assert_int_equal(wi_sim_faults(), 3);
    wi_sim_arm(NULL, NULL);
    sim->unreserve(device, range, 2 * WI_MIB);
    sim->close(device);
}

/* Found by its name it goes on by itself. */
static void by_its_name(void **state)
{
    (void)state;
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    void *block;
    weir_runtime_options o = {.struct_size = sizeof o, .budget = 32 * WI_MIB};
    assert_int_equal(weir_runtime_create("sim", &o, &runtime), WEIR_OK);
    weir_client_options c = {.struct_size = sizeof c, .name = "client"};
    assert_int_equal(weir_client_create(runtime, &c, &client), WEIR_OK);
    assert_int_equal(weir_stream_acquire(runtime, &stream), WEIR_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(weir_alloc(client, 5 * WI_MIB, stream, WEIR_CLASS_SCRATCH, &block), WEIR_OK);
        assert_int_equal(weir_fill(runtime, block, 1, 5 * WI_MIB, stream), WEIR_OK);
        assert_int_equal(weir_free(client, block, stream), WEIR_OK);
    }
    assert_int_equal(weir_client_destroy(client), WEIR_OK);
    assert_int_equal(weir_stream_release(stream), WEIR_OK);
    assert_int_equal(weir_runtime_destroy(runtime), WEIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_waits_for_the_world),   cmocka_unit_test(waiting_passes_virtual_time),
        cmocka_unit_test(contents_belong_to_handles), cmocka_unit_test(protected_memory_is_not_written),
        cmocka_unit_test(handles_have_a_length),      cmocka_unit_test(what_is_left_is_told),
        cmocka_unit_test(any_call_can_fail),          cmocka_unit_test(by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
