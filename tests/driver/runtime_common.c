#include "driver/runtime.h"

weir_runtime *runtime;

void check_status(weir_status status, weir_status expected, const char *file, int line)
{
    if (status != expected)
        print_error("%s instead of %s: %s\n", weir_name_of(WEIR_NAMES_STATUS, status),
                    weir_name_of(WEIR_NAMES_STATUS, expected), weir_detail());
    _assert_int_equal((int)status, (int)expected, file, line);
}

void make_runtime(uint64_t budget)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = budget;
    ok(weir_runtime_create(device_name(), &options, &runtime));
}

void end_runtime(void)
{
    static const char *const kinds[] = {"handles", "mappings", "reservations", "contexts", "streams", "events"};
    ok(weir_runtime_destroy(runtime));
    runtime = NULL;
    if (device_kind_now == ON_STUB)
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
            if (control.stub_count(kinds[i]) != 0)
                fail_msg("%d %s are left", (int)control.stub_count(kinds[i]), kinds[i]);
}

weir_client *open_client(const char *name)
{
    weir_client *client;
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = name;
    ok(weir_client_create(runtime, &options, &client));
    return client;
}

weir_stats snapshot(void)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    ok(weir_snapshot(runtime, &stats, NULL, 0, NULL));
    assert_true(stats.held == stats.live + stats.pending + stats.cached + stats.spare);
    return stats;
}

size_t granule(void)
{
    return device_kind_now == ON_HOST ? 65536 : 2 * MIB;
}

size_t wrong_bytes(const void *block, uint8_t value, size_t bytes)
{
    unsigned char *copy = malloc(bytes);
    size_t wrong = 0;
    assert_non_null(copy);
    ok(weir_copy(runtime, copy, block, bytes, WEIR_STREAM_HOST));
    for (size_t i = 0; i < bytes; i++)
        wrong += copy[i] != value;
    free(copy);
    return wrong;
}

void fill_now(void *block, uint8_t value, size_t bytes)
{
    ok(weir_fill(runtime, block, value, bytes, WEIR_STREAM_HOST));
}
