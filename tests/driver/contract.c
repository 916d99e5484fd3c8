/* The contract suite of drivers, on host, on cuda over the stub, and on a real GPU: what driver.h promises. On the simulated
 * device what it promises of memory. */
#include "driver/contract.h"
#include "driver/cuda_api.h"
#include "sim/device/device.h"

const wi_driver *driver;
wi_device *device;
uint64_t granule;

void check_status(weir_status status, weir_status expected, const char *file, int line)
{
    if (status != expected)
        print_error("%s instead of %s: %s\n", weir_name_of(WEIR_NAMES_STATUS, status),
                    weir_name_of(WEIR_NAMES_STATUS, expected), weir_detail());
    _assert_int_equal((int)status, (int)expected, file, line);
}

thread_state look_at_thread(void)
{
    thread_state state = {0};
    if (device_kind_now == ON_HOST || !wi_cuda.cuCtxGetCurrent)
        return state;
    (void)wi_cuda.cuCtxGetCurrent((CUcontext *)&state.context);
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (wi_cuda.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS) {
        state.mode = (uint64_t)mode;
        (void)wi_cuda.cuThreadExchangeStreamCaptureMode(&mode);
    }
    if (device_kind_now == ON_STUB)
        state.depth = control.stub_count("depth");
    return state;
}

void expect_thread(thread_state before, const char *call)
{
    thread_state after = look_at_thread();
    if (before.context != after.context || before.depth != after.depth || before.mode != after.mode)
        fail_msg("%s left the thread otherwise: context %p -> %p, depth %d -> %d, capture mode %d -> %d", call,
                 before.context, after.context, (int)before.depth, (int)after.depth, (int)before.mode, (int)after.mode);
}

/* What the simulated device finds wrong with the suite's own calls. */
static unsigned findings;

static void note_wrong(void *user, const char *what)
{
    (void)user;
    print_error("sim: %s\n", what);
    findings++;
}

int open_device(void **state)
{
    (void)state;
    static const wi_sim_watcher watcher = {.wrong = note_wrong};
    int ordinal;
    device = NULL;
    findings = 0;
    wi_sim_configure(&(wi_sim_options){.by_itself = true, .watcher = &watcher});
    ok(wi_driver_find(device_name(), &driver, &ordinal));
    ok(D(open(ordinal, &device)));
    assert_non_null(device);
    granule = driver->granule(device);
    return 0;
}

void expect_nothing_left(void)
{
    static const char *const kinds[] = {"handles", "mappings", "reservations", "contexts",
                                        "streams", "events",   "allocations",  "pools"};
    if (device_kind_now != ON_STUB)
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (control.stub_count(kinds[i]) != 0)
            fail_msg("%d %s are left", (int)control.stub_count(kinds[i]), kinds[i]);
}

int close_device(void **state)
{
    (void)state;
    V(close(device));
    expect_nothing_left();
    assert_int_equal(findings, 0);
    return 0;
}

void *new_stream(void)
{
    void *stream = NULL;
    ok(D(stream_create(device, &stream)));
    assert_non_null(stream);
    return stream;
}

void make_range(mapped_range *range, size_t granules, size_t count)
{
    void *address = NULL;
    *range = (mapped_range){.bytes = granules * granule, .count = count};
    ok(D(reserve(device, range->bytes, &address)));
    range->address = address;
    assert_int_equal((uintptr_t)address % (2 * WI_MIB), 0);
    if (count == 0)
        return;
    ok(D(create(device, granule, count, range->handles)));
    ok(D(map(device, address, granule, count, range->handles)));
}

void drop_range(mapped_range *range)
{
    if (range->count > 0) {
        ok(D(unmap(device, range->address, granule, range->count, range->handles)));
        V(destroy(device, granule, range->count, range->handles));
    }
    V(unreserve(device, range->address, range->bytes));
}

void fill_granules(char *address, size_t count, uint8_t first)
{
    for (size_t i = 0; i < count; i++)
        ok(D(fill(device, address + i * granule, (uint8_t)(first + i), granule, NULL)));
}

void expect_granule(const char *address, uint8_t value)
{
    unsigned char *bytes = malloc(granule);
    assert_non_null(bytes);
    ok(D(copy(device, bytes, address, granule, NULL)));
    size_t wrong = 0;
    for (size_t i = 0; i < granule; i++)
        wrong += bytes[i] != value;
    if (wrong)
        print_error("%zu bytes are not %d; the first is %d\n", wrong, value, bytes[0]);
    free(bytes);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    int answer = choose_device(argc, argv);
    if (answer != 0)
        return answer;
    int failed = run_memory_tests() + run_handle_tests() + run_cover_tests();
    if (device_kind_now != ON_SIM)
        failed += run_stream_tests() + run_single_tests() + run_foreign_tests() + run_many_tests();
    if (device_kind_now == ON_STUB)
        failed += run_stub_tests();
    return failed != 0;
}
