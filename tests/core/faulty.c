#include "core/faulty.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const wi_driver *const host = &wi_host_driver;

faults fault = {.fail_at = -1, .and_at = -1, .kill_at = -1};

void faults_reset(long fail_at)
{
    fault = (faults){.fail_at = fail_at, .and_at = -1, .kill_at = -1, .status = WEIR_ERR_DRIVER};
}

bool faults_nothing_left(void)
{
    bool nothing = !fault.devices && !fault.ranges && !fault.handles && !fault.mapped && !fault.covered &&
                   !fault.streams && !fault.pieces;
    if (!nothing)
        fprintf(stderr,
                "left: %ld devices, %ld ranges, %ld handles, %ld mapped, %ld covered, %ld streams, %ld pieces\n",
                fault.devices, fault.ranges, fault.handles, fault.mapped, fault.covered, fault.streams, fault.pieces);
    return nothing;
}

static weir_status next(void)
{
    long call = atomic_fetch_add(&fault.calls, 1), fail_at = atomic_load(&fault.fail_at);
    if (call == fault.kill_at)
        kill(getpid(), SIGKILL);
    bool fails = fail_at >= 0 && (atomic_load(&fault.stay) ? call >= fail_at : call == fail_at);
    if (!fails && call != atomic_load(&fault.and_at))
        return WEIR_OK;
    return weir_fail(fault.status, "faulty: call %ld is made to fail", call);
}

#define NEXT                                                                                                           \
    do {                                                                                                               \
        weir_status status_ = next();                                                                                  \
        if (status_ != WEIR_OK)                                                                                        \
            return status_;                                                                                            \
    } while (0)

static weir_status counted(weir_status status, atomic_long *count, long by)
{
    if (status == WEIR_OK)
        atomic_fetch_add(count, by);
    return status;
}

static weir_status f_open(int ordinal, wi_device **out)
{
    NEXT;
    return counted(host->open(ordinal, out), &fault.devices, 1);
}
static void f_close(wi_device *device)
{
    fault.devices--;
    host->close(device);
}
static weir_status f_memory(wi_device *device, uint64_t *available, uint64_t *total)
{
    NEXT;
    (void)device;
    *available = *total = UINT64_C(256) << 20;
    return WEIR_OK;
}
static uint64_t f_granule(wi_device *device)
{
    return host->granule(device);
}
static weir_status f_reserve(wi_device *device, uint64_t bytes, void **address)
{
    NEXT;
    return counted(host->reserve(device, bytes, address), &fault.ranges, 1);
}
static void f_unreserve(wi_device *device, void *address, uint64_t bytes)
{
    fault.ranges--;
    host->unreserve(device, address, bytes);
}
static long granules(wi_device *device, uint64_t bytes, size_t count)
{
    return (long)(count * (bytes / host->granule(device)));
}
static weir_status f_create(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    NEXT;
    long more = granules(device, bytes, count);
    long there = atomic_fetch_add(&fault.handles, more), limit = atomic_load(&fault.limit);
    weir_status status = limit && there + more > limit ? weir_fail(WEIR_ERR_OUT_OF_MEMORY, "faulty: the device is full")
                                                       : host->create(device, bytes, count, handles);
    if (status != WEIR_OK)
        atomic_fetch_sub(&fault.handles, more);
    return status;
}
static void f_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles)
{
    if (fault.in_destroy)
        fault.in_destroy(fault.user);
    fault.handles -= granules(device, bytes, count);
    host->destroy(device, bytes, count, handles);
}
static weir_status f_map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    NEXT;
    return counted(host->map(device, address, bytes, count, handles), &fault.mapped, granules(device, bytes, count));
}
static weir_status f_unmap(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    NEXT;
    if (atomic_load(&fault.refused_unmaps) > 0 && atomic_fetch_sub(&fault.refused_unmaps, 1) > 0)
        return weir_fail(WEIR_ERR_DRIVER, "faulty: what is at %p is not unmapped", address);
    return counted(host->unmap(device, address, bytes, count, handles), &fault.mapped, -granules(device, bytes, count));
}
static weir_status f_drop(wi_device *device, void *address, uint64_t bytes, size_t count, const wi_handle *handles)
{
    NEXT;
    if (atomic_load(&fault.refused_unmaps) > 0 && atomic_fetch_sub(&fault.refused_unmaps, 1) > 0)
        return weir_fail(WEIR_ERR_DRIVER, "faulty: what is at %p is not dropped", address);
    if (fault.in_destroy)
        fault.in_destroy(fault.user);
    weir_status status =
        counted(host->drop(device, address, bytes, count, handles), &fault.mapped, -granules(device, bytes, count));
    return counted(status, &fault.handles, -granules(device, bytes, count));
}
/* They count as the device's. */
static bool f_has_host_handles(wi_device *device)
{
    return host->has_host_handles(device);
}
static weir_status f_create_on_host(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    NEXT;
    return counted(host->create_on_host(device, bytes, count, handles), &fault.handles, granules(device, bytes, count));
}
static weir_status f_cover(wi_device *device, void *address, uint64_t bytes)
{
    NEXT;
    return counted(host->cover(device, address, bytes), &fault.covered, granules(device, bytes, 1));
}
static weir_status f_uncover(wi_device *device, void *address, uint64_t bytes)
{
    NEXT;
    return counted(host->uncover(device, address, bytes), &fault.covered, -granules(device, bytes, 1));
}
static weir_status f_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    NEXT;
    return counted(host->allocate(device, kind, bytes, address), &fault.pieces, 1);
}
static weir_status f_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    NEXT;
    if (fault.in_release)
        fault.in_release(fault.user);
    if (atomic_load(&fault.refused_releases) > 0 && atomic_fetch_sub(&fault.refused_releases, 1) > 0)
        return weir_fail(WEIR_ERR_DRIVER, "faulty: the piece at %p is not taken back", address);
    return counted(host->release(device, kind, address, bytes), &fault.pieces, -1);
}
static weir_status f_pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address)
{
    NEXT;
    return counted(host->pool_allocate(device, bytes, stream, address), &fault.pieces, 1);
}
static weir_status f_pool_release(wi_device *device, void *address, uint64_t bytes, void *stream)
{
    NEXT;
    return counted(host->pool_release(device, address, bytes, stream), &fault.pieces, -1);
}
static weir_status f_pool_trim(wi_device *device, uint64_t keep, uint64_t *held)
{
    NEXT;
    return host->pool_trim(device, keep, held);
}
static weir_status f_pool_held(wi_device *device, uint64_t *held)
{
    NEXT;
    return host->pool_held(device, held);
}
static weir_status f_stream_create(wi_device *device, void **stream)
{
    NEXT;
    return counted(host->stream_create(device, stream), &fault.streams, 1);
}
static void f_stream_destroy(wi_device *device, void *stream)
{
    fault.streams--;
    host->stream_destroy(device, stream);
}
static weir_status f_stream_synchronize(wi_device *device, void *stream)
{
    NEXT;
    return host->stream_synchronize(device, stream);
}
static void *f_stream_native(void *stream)
{
    return stream;
}
static weir_status f_stream_adopt(wi_device *device, void *native, void **stream, uint64_t *identity)
{
    return host->stream_adopt(device, native, stream, identity);
}
static weir_status f_stream_default(wi_device *device, weir_default_stream which, void **stream)
{
    return host->stream_default(device, which, stream);
}
static bool f_stream_capturing(wi_device *device, void *stream)
{
    return host->stream_capturing(device, stream);
}
static void *f_context(wi_device *device)
{
    return host->context(device);
}
static weir_status f_record(wi_device *device, void *stream, wi_event *out)
{
    NEXT;
    return host->record(device, stream, out);
}
static bool f_passed(wi_device *device, wi_event event)
{
    return host->passed(device, event);
}
static weir_status f_wait(wi_device *device, wi_event event, uint64_t deadline)
{
    NEXT;
    return host->wait(device, event, deadline);
}
static weir_status f_order(wi_device *device, void *stream, wi_event event)
{
    NEXT;
    return host->order(device, stream, event);
}
static weir_status f_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    NEXT;
    return host->copy(device, to, from, bytes, stream);
}
weir_status faulty_copy_many(wi_device *device, const weir_driver_copy *copies, size_t count, void *stream)
{
    NEXT;
    return host->copy_many(device, copies, count, stream);
}
static weir_status f_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    NEXT;
    return host->fill(device, to, value, bytes, stream);
}
static weir_status f_call(wi_device *device, void (*fn)(void *), void *user, void *stream)
{
    NEXT;
    return host->call(device, fn, user, stream);
}

const wi_driver faulty_driver = {
    .name = "faulty",
    .ordinals = 2,
    .open = f_open,
    .close = f_close,
    .memory = f_memory,
    .granule = f_granule,
    .reserve = f_reserve,
    .unreserve = f_unreserve,
    .create = f_create,
    .destroy = f_destroy,
    .map = f_map,
    .unmap = f_unmap,
    .allocate = f_allocate,
    .release = f_release,
    .pool_allocate = f_pool_allocate,
    .pool_release = f_pool_release,
    .pool_trim = f_pool_trim,
    .pool_held = f_pool_held,
    .stream_create = f_stream_create,
    .stream_adopt = f_stream_adopt,
    .stream_default = f_stream_default,
    .stream_destroy = f_stream_destroy,
    .stream_synchronize = f_stream_synchronize,
    .stream_native = f_stream_native,
    .stream_capturing = f_stream_capturing,
    .context = f_context,
    .record = f_record,
    .passed = f_passed,
    .wait = f_wait,
    .order = f_order,
    .copy = f_copy,
    .fill = f_fill,
    .call = f_call,
    .cover = f_cover,
    .uncover = f_uncover,
    .has_host_handles = f_has_host_handles,
    .create_on_host = f_create_on_host,
};

wi_driver faulty_driver_that_drops(void)
{
    wi_driver driver = faulty_driver;
    driver.drop = f_drop;
    driver.written = host->written;
    return driver;
}
