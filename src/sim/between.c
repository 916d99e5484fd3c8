#include "sim/between.h"

static void (*interrupt)(void *user);
static void *interrupted;

void between_calls(void (*fn)(void *user), void *user)
{
    interrupt = fn;
    interrupted = user;
}

static void between_before(void)
{
    if (interrupt)
        interrupt(interrupted);
}

static weir_status between_after(weir_status status)
{
    if (status == WEIR_OK)
        between_before();
    return status;
}

static weir_status between_create(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    between_before();
    return between_after(wi_sim_driver.create(device, bytes, count, handles));
}

static void between_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles)
{
    between_before();
    wi_sim_driver.destroy(device, bytes, count, handles);
    between_before();
}

static weir_status map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    between_before();
    return between_after(wi_sim_driver.map(device, address, bytes, count, handles));
}

static weir_status between_unmap(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    between_before();
    return between_after(wi_sim_driver.unmap(device, address, bytes, count, handles));
}

static weir_status between_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    between_before();
    return between_after(wi_sim_driver.allocate(device, kind, bytes, address));
}

static weir_status between_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    between_before();
    return between_after(wi_sim_driver.release(device, kind, address, bytes));
}

static weir_status pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address)
{
    between_before();
    return between_after(wi_sim_driver.pool_allocate(device, bytes, stream, address));
}

static weir_status pool_release(wi_device *device, void *address, uint64_t bytes, void *stream)
{
    between_before();
    return between_after(wi_sim_driver.pool_release(device, address, bytes, stream));
}

static weir_status pool_trim(wi_device *device, uint64_t keep, uint64_t *held)
{
    between_before();
    return between_after(wi_sim_driver.pool_trim(device, keep, held));
}

static weir_status pool_held(wi_device *device, uint64_t *held)
{
    between_before();
    return between_after(wi_sim_driver.pool_held(device, held));
}

static weir_status stream_create(wi_device *device, void **stream)
{
    between_before();
    return between_after(wi_sim_driver.stream_create(device, stream));
}

static weir_status stream_synchronize(wi_device *device, void *stream)
{
    between_before();
    return between_after(wi_sim_driver.stream_synchronize(device, stream));
}

static weir_status between_synchronize(wi_device *device)
{
    between_before();
    return between_after(wi_sim_driver.synchronize(device));
}

static weir_status between_record(wi_device *device, void *stream, wi_event *out)
{
    between_before();
    return between_after(wi_sim_driver.record(device, stream, out));
}

static weir_status wait(wi_device *device, wi_event event, uint64_t deadline)
{
    between_before();
    return between_after(wi_sim_driver.wait(device, event, deadline));
}

static weir_status between_order(wi_device *device, void *stream, wi_event event)
{
    between_before();
    return between_after(wi_sim_driver.order(device, stream, event));
}

static weir_status between_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    between_before();
    return between_after(wi_sim_driver.copy(device, to, from, bytes, stream));
}

static weir_status between_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    between_before();
    return between_after(wi_sim_driver.fill(device, to, value, bytes, stream));
}

static weir_status call(wi_device *device, void (*fn)(void *), void *user, void *stream)
{
    between_before();
    return between_after(wi_sim_driver.call(device, fn, user, stream));
}

const wi_driver *between_driver(void)
{
    static wi_driver driver;
    driver = wi_sim_driver;
    driver.create = between_create;
    driver.destroy = between_destroy;
    driver.map = map;
    driver.unmap = between_unmap;
    driver.allocate = between_allocate;
    driver.release = between_release;
    driver.pool_allocate = pool_allocate;
    driver.pool_release = pool_release;
    driver.pool_trim = pool_trim;
    driver.pool_held = pool_held;
    driver.stream_create = stream_create;
    driver.stream_synchronize = stream_synchronize;
    driver.synchronize = between_synchronize;
    driver.record = between_record;
    driver.wait = wait;
    driver.order = between_order;
    driver.copy = between_copy;
    driver.fill = between_fill;
    driver.call = call;
    return &driver;
}
