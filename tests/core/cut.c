/* A chunk that is cut is unmapped, destroyed and made again in two parts. The driver here names a handle anew whenever it is
 * mapped or unmapped, as every driver may, so that a name from before is seen. On the device that WEIR_TEST_DEVICE names, or
 * the host. */
#include "core.h"

#include "driver/driver.h"
#include "memory/mapped/mapped.h"
#include "runtime/runtime.h"

#include <weir/residency.h>

enum { GRANULES = 16, BACK = 4, MOST_NAMES = 1 << 12 };

/* What a name stands for, while it does. */
static struct name {
    bool good, mapped;
    wi_handle handle;
} names[MOST_NAMES];
static size_t names_used;
static long wrong, there, went; /* handles: of old names, that are there, destroyed */
static const wi_driver *real;

/* Chunks are as long as they can be, although the budget is small. */
uint64_t __wrap_wi_map_plan_chunk(const wi_mapped *mapped, uint64_t fresh);
uint64_t __wrap_wi_map_plan_chunk(const wi_mapped *mapped, uint64_t fresh)
{
    (void)mapped;
    return fresh;
}

/* The driver's own handles of those that are named, whose names are no longer good. */
static wi_handle *forget(size_t count, const wi_handle *handles, bool mapped)
{
    wi_handle *own = malloc(count * sizeof *own);
    for (size_t i = 0; i < count; i++) {
        struct name *n = &names[handles[i] < MOST_NAMES ? handles[i] : 0];
        wrong += !n->good || n->mapped != mapped;
        own[i] = n->handle;
        n->good = false;
    }
    return own;
}

static void name(size_t count, wi_handle *handles, const wi_handle *own, bool mapped)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(++names_used < MOST_NAMES);
        names[names_used] = (struct name){true, mapped, own[i]};
        handles[i] = names_used;
    }
}

static weir_status c_create(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    weir_status status = real->create(device, bytes, count, handles);
    if (status != WEIR_OK)
        return status;
    name(count, handles, handles, false);
    there += (long)count;
    return status;
}

static void c_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles)
{
    wi_handle *own = forget(count, handles, false);
    there -= (long)count;
    went += (long)count;
    if (wrong == 0) /* else it may be anybody's by now */
        real->destroy(device, bytes, count, own);
    free(own);
}

static weir_status c_map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    wi_handle *own = forget(count, handles, false);
    weir_status status = real->map(device, address, bytes, count, own);
    name(count, handles, own, status == WEIR_OK);
    free(own);
    return status;
}

static weir_status c_unmap(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    wi_handle *own = forget(count, handles, true);
    weir_status status = real->unmap(device, address, bytes, count, own);
    name(count, handles, own, status != WEIR_OK);
    free(own);
    return status;
}

static void check_bytes(weir_runtime *runtime, const void *pointer, uint8_t value, size_t bytes)
{
    uint8_t *copy = malloc(bytes);
    size_t same = 0;
    ok(weir_copy(runtime, copy, pointer, bytes, WEIR_STREAM_HOST));
    while (same < bytes && copy[same] == value)
        same++;
    assert_int_equal(same, bytes);
    free(copy);
}

/* What comes back needs a part of the one chunk that there is by now. */
static void cut_for_what_comes_back(weir_runtime *runtime, uint64_t granule)
{
    weir_client *goes = open_client(runtime, "goes", 0, 0), *fills = open_client(runtime, "fills", 0, 0);
    uint64_t bytes = BACK * granule, rest = (GRANULES - BACK) * granule;
    void *back = allocate(goes, bytes, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_fill(runtime, back, 1, bytes, WEIR_STREAM_HOST));
    ok(weir_client_suspend(goes, NULL, NULL));
    ok(weir_runtime_trim(runtime, NULL, NULL));
    ok(weir_free(fills, allocate(fills, GRANULES * granule, WEIR_STREAM_HOST, WEIR_CLASS_KV), WEIR_STREAM_HOST));
    assert_int_equal(there, 1);
    went = 0;
    ok(weir_client_resume(goes, WEIR_STREAM_HOST));
    assert_int_equal(wrong, 0);
    assert_int_equal(went, 1); /* the chunk, which is two now */
    assert_int_equal(there, 2);
    void *beside = allocate(fills, rest, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    ok(weir_fill(runtime, beside, 2, rest, WEIR_STREAM_HOST));
    check_bytes(runtime, back, 1, bytes);
    check_bytes(runtime, beside, 2, rest);
    ok(weir_free(fills, beside, WEIR_STREAM_HOST));
    ok(weir_free(goes, back, WEIR_STREAM_HOST));
    ok(weir_client_destroy(fills));
    ok(weir_client_destroy(goes));
}

static void a_cut_gives_back_what_was_unmapped(void **state)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    weir_runtime_options options = {.struct_size = sizeof options, .resource = "mapped"};
    weir_runtime *runtime;
    wi_driver driver;
    wi_device *probe;
    int ordinal;
    (void)state;
    ok(wi_driver_find(device ? device : "host", &real, &ordinal));
    driver = *real;
    driver.create = c_create;
    driver.destroy = c_destroy;
    driver.map = c_map;
    driver.unmap = c_unmap;
    driver.drop = NULL;
    ok(real->open(ordinal, &probe));
    uint64_t granule = real->granule(probe);
    real->close(probe);
    options.budget = GRANULES * granule;
    ok(wi_runtime_create_over(&driver, ordinal, &options, &runtime));
    cut_for_what_comes_back(runtime, granule);
    ok(weir_runtime_destroy(runtime));
    assert_int_equal(wrong, 0);
    assert_int_equal(there, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_cut_gives_back_what_was_unmapped)};
    return cmocka_run_group_tests_name("cut", tests, NULL, NULL);
}
