/* The host driver's memory: private anonymous pages, moved between addresses by mremap.
 *
 * Private pages rather than a memfd: they can be huge pages under the kernel's usual setting (madvise), a memfd's cannot;
 * docs/benchmarks.md has the measurement. The price is that a handle is mapped at one address at a time.
 *
 * A handle is 0 while it has no pages yet (they come with the first touch, where it is mapped), and otherwise the address
 * at which its pages are kept while it is mapped nowhere: one area of the kernel's, however long it is. */
#include "driver/host.h"
#include "base/system.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA           0x53564d41 /* linux/prctl.h since 5.17 */
#define PR_SET_VMA_ANON_NAME 0
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4 /* linux/mman.h since 5.7 */
#endif

enum { GRANULE = WI_HOST_GRANULE, ALIGNMENT = WI_HOST_ALIGNMENT };

weir_status wi_host_failed(const char *what, uint64_t bytes)
{
    return weir_fail(errno == ENOMEM || errno == EAGAIN ? WEIR_ERR_OUT_OF_MEMORY : WEIR_ERR_DRIVER,
                     "host: %s of %llu bytes: %s", what, (unsigned long long)bytes, strerror(errno));
}

static weir_status no_mappings(const char *what, uint64_t bytes)
{
    wi_mappings now = wi_mappings_count();
    return weir_fail(
        WEIR_ERR_OUT_OF_MEMORY,
        "host: %s of %llu bytes: the process has %llu mappings of the %llu that the system allows it, and the "
        "last sixteenth is left to the rest of it; free what lies in many pieces, or raise vm.max_map_count",
        what, (unsigned long long)bytes, (unsigned long long)now.there, (unsigned long long)now.most);
}

static weir_status host_open(int ordinal, wi_device **out)
{
    wi_device *device = calloc(1, sizeof *device);
    if (!device)
        return weir_fail(WEIR_ERR_SYSTEM, "host: no memory for the device record");
    (void)ordinal; /* there is one */
    pthread_mutex_init(&device->lock, NULL);
    *out = device;
    return WEIR_OK;
}

static void host_close(wi_device *device)
{
    wi_host_pool_clear(device);
    wi_host_streams_clear(device);
    wi_host_forget_covers(device, NULL, UINTPTR_MAX);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static weir_status host_memory(wi_device *device, uint64_t *available, uint64_t *total)
{
    (void)device;
    (void)wi_cgroup_memory("", available, total);
    return WEIR_OK;
}

static uint64_t host_granule(wi_device *device)
{
    (void)device;
    return GRANULE;
}

/* Of addresses without memory. Both are advice: an old kernel, or one without huge pages, serves as well. */
static void set_advice(char *start, uint64_t bytes)
{
    madvise(start, bytes, MADV_HUGEPAGE);
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, start, bytes, "weir");
}

static weir_status host_reserve(wi_device *device, uint64_t bytes, void **address)
{
    (void)device;
    if (!wi_mappings_take(1))
        return no_mappings("reserving addresses", bytes);
    char *raw = mmap(NULL, bytes + ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return wi_host_failed("reserving addresses", bytes);
    char *start = (char *)wi_round_up((uintptr_t)raw, ALIGNMENT);
    if (start > raw)
        munmap(raw, (size_t)(start - raw));
    munmap(start + bytes, (size_t)(raw + ALIGNMENT - start));
    set_advice(start, bytes);
    *address = start;
    return WEIR_OK;
}

static void host_unreserve(wi_device *device, void *address, uint64_t bytes)
{
    wi_host_forget_covers(device, address, bytes);
    munmap(address, bytes);
}

static weir_status host_create(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    (void)device, (void)bytes;
    memset(handles, 0, count * sizeof *handles);
    return WEIR_OK;
}

/* Here the host's memory and the device's are one. */
static bool host_has_host_handles(wi_device *device)
{
    (void)device;
    return true;
}

static void host_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles)
{
    (void)device;
    for (size_t i = 0; i < count; i++)
        if (handles[i])
            munmap((void *)(uintptr_t)handles[i], bytes);
}

void wi_host_discard(void *address, uint64_t bytes)
{
    bool gone = madvise(address, bytes, MADV_DONTNEED) == 0;
    if (!gone && munlock(address, bytes) == 0) /* pages that the program has locked do not go */
        gone = madvise(address, bytes, MADV_DONTNEED) == 0;
    if (!gone)
        memset(address, 0, bytes);
}

/* Makes them addresses without memory again, as they were reserved: what pages that came and went have left in the kernel's
 * areas would cut up a longer handle that comes here next, and only one area moves at a time. Without a mapping to spare the
 * pages go, and the addresses stay open. */
static void close_part(char *address, uint64_t bytes)
{
    if (mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        madvise(address, bytes, MADV_DONTNEED);
        mprotect(address, bytes, PROT_NONE);
        return;
    }
    set_advice(address, bytes);
}

/* Takes the memory from the addresses. Covered addresses stay open, as a covered range is one area. */
static void close_addresses(wi_device *device, char *address, uint64_t bytes)
{
    for (char *at = address, *end = at + bytes, *until; at < end; at = until)
        if (wi_host_is_open(device, at, end, &until))
            wi_host_discard(at, (uint64_t)(until - at));
        else
            close_part(at, (uint64_t)(until - at));
}

static weir_status host_map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles);

/* A kernel that cannot leave the range behind: the bytes are copied. MAP_FAILED when there is no memory for that. */
static void *copy_away(const char *from, uint64_t bytes)
{
    void *away = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (away != MAP_FAILED)
        memcpy(away, from, bytes);
    return away;
}

/* Moves the pages of mapped handles elsewhere; their range stays reserved. */
static weir_status host_unmap(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    for (size_t i = 0; i < count; i++) {
        char *from = (char *)address + i * bytes;
        /* No address is asked for, but the C library reads the argument in any case and recent kernels look at it. */
        void *away = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        if (away == MAP_FAILED)
            away = copy_away(from, bytes);
        if (away == MAP_FAILED) {
            weir_status status = wi_host_failed("moving memory away", bytes);
            (void)host_map(device, address, bytes, i, handles);
            return status;
        }
        handles[i] = (wi_handle)(uintptr_t)away;
    }
    close_addresses(device, address, count * bytes);
    return WEIR_OK;
}

/* Unmaps and destroys: no page is moved away for that, and no mapping is needed. */
static weir_status host_drop(wi_device *device, void *address, uint64_t bytes, size_t count, const wi_handle *handles)
{
    (void)handles;
    close_addresses(device, address, count * bytes);
    return WEIR_OK;
}

/* One call opens all of a run of fresh handles, which is where memory grows, and the process's mappings with it. */
static weir_status open_fresh(wi_device *device, char *to, uint64_t bytes)
{
    for (char *at = to, *end = to + bytes, *until; at < end; at = until) {
        if (wi_host_is_open(device, at, end, &until))
            continue;
        if (!wi_mappings_take(2))
            return no_mappings("opening memory", bytes);
        if (mprotect(at, (size_t)(until - at), PROT_READ | PROT_WRITE) != 0)
            return wi_host_failed("opening memory", bytes);
    }
    return WEIR_OK;
}

static weir_status host_move_in(char *to, uint64_t bytes, wi_handle away)
{
    void *moved = mremap((void *)(uintptr_t)away, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    return moved != MAP_FAILED ? WEIR_OK : wi_host_failed("moving memory", bytes);
}

static weir_status host_map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    size_t done = 0;
    while (done < count) {
        char *to = (char *)address + done * bytes;
        size_t fresh = 0;
        while (done + fresh < count && !handles[done + fresh])
            fresh++;
        weir_status status = fresh ? open_fresh(device, to, fresh * bytes) : host_move_in(to, bytes, handles[done]);
        if (status != WEIR_OK) {
            (void)host_unmap(device, address, bytes, done, handles);
            close_addresses(device, to, (count - done) * bytes);
            return status;
        }
        done += fresh ? fresh : 1;
    }
    return WEIR_OK;
}

/* Single pieces ---------------------------------------------------------------------------------------------------- */

weir_status wi_host_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    (void)device;
    if (kind < 0 || kind >= WEIR_KIND_COUNT)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "host: there is no kind of memory with the number %d", (int)kind);
    return wi_pageable_allocate(bytes, address);
}

static weir_status host_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    (void)device, (void)kind, (void)bytes;
    free(address);
    return WEIR_OK;
}

static void *host_stream_native(void *stream)
{
    (void)stream;
    return NULL;
}

static void *host_context(wi_device *device)
{
    (void)device;
    return NULL;
}

const wi_driver wi_host_driver = {
    .name = "host",
    .ordinals = 1,
    .open = host_open,
    .close = host_close,
    .memory = host_memory,
    .granule = host_granule,
    .reserve = host_reserve,
    .unreserve = host_unreserve,
    .create = host_create,
    .destroy = host_destroy,
    .map = host_map,
    .unmap = host_unmap,
    .allocate = wi_host_allocate,
    .release = host_release,
    .pool_allocate = wi_host_pool_allocate,
    .pool_release = wi_host_pool_release,
    .pool_trim = wi_host_pool_trim,
    .pool_held = wi_host_pool_held,
    .stream_create = wi_host_stream_create,
    .stream_adopt = wi_host_stream_adopt,
    .stream_default = wi_host_stream_default,
    .stream_destroy = wi_host_stream_destroy,
    .stream_synchronize = wi_host_stream_synchronize,
    .stream_native = host_stream_native,
    .stream_capturing = wi_host_stream_capturing,
    .context = host_context,
    .record = wi_host_record,
    .passed = wi_host_passed,
    .wait = wi_host_wait,
    .order = wi_host_order,
    .copy = wi_host_copy,
    .fill = wi_host_fill,
    .call = wi_host_call,
    .cover = wi_host_cover,
    .uncover = wi_host_uncover,
    .has_host_handles = host_has_host_handles,
    .create_on_host = host_create,
    .drop = host_drop,
    .written = wi_host_written,
    .copy_many = wi_host_copy_many,
};
