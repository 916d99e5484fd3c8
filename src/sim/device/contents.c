/* What the simulated device's memory holds, and what work does to it. */
#include "sim/device/internal.h"

/* The part of [address, +bytes) that lies in one granule of memory; false: nothing is mapped there. */
static bool piece_at(wi_device *device, const char *address, uint64_t bytes, size_t *row, uint32_t *first,
                     uint32_t *count)
{
    const wi_sim_range *range = wi_sim_range_of(device, address);
    uint64_t offset = range ? (uint64_t)(address - range->base) : 0, inside = offset % device->granule;
    if (!range || range->memory[offset / device->granule] == 0)
        return false;
    *row = range->memory[offset / device->granule] - 1;
    *first = (uint32_t)(inside / WI_SIM_UNIT);
    *count = (uint32_t)((wi_min(inside + bytes, device->granule) + WI_SIM_UNIT - 1) / WI_SIM_UNIT) - *first;
    return true;
}

void wi_sim_make_garbage(wi_device *device, char *address, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        size_t row;
        uint32_t first, count;
        if (!piece_at(device, address + at, bytes - at, &row, &first, &count))
            return;
        (void)wi_plane_set(&device->contents, row, first, count, WI_SIM_GARBAGE);
        at += (uint64_t)count * WI_SIM_UNIT;
    }
}

static bool may_be_read(uint32_t expected, uint32_t found)
{
    if (!(expected & WI_SIM_VISIBLE))
        return found == expected;
    uint32_t reader = expected & ~WI_SIM_VISIBLE, owner = (found - WI_SIM_FIRST_VERSION) % WI_SIM_OWNERS;
    return found < WI_SIM_FIRST_VERSION || owner == reader || !((owner | reader) & 1);
}

static void tell_other_version(wi_device *device, const wi_sim_work *work, uint32_t found, const char *at)
{
    if (work->version & WI_SIM_VISIBLE)
        wi_sim_wrong(device,
                     "work reads version %u at %p, which is another's who shares nothing, or shares not with it", found,
                     (const void *)at);
    else
        wi_sim_wrong(device, "work reads version %u at %p, where version %u was written", found, (const void *)at,
                     work->version);
}

/* The units lie at `start`. */
static void look_at(wi_device *device, const wi_sim_work *work, const char *start, size_t row, uint32_t first,
                    uint32_t count)
{
    uint32_t found, run;
    for (uint32_t done = 0; done < count; done += run) {
        run = wi_plane_run(&device->contents, row, first + done, count - done, &found);
        if (!may_be_read(work->version, found)) {
            tell_other_version(device, work, found, start + (uint64_t)done * WI_SIM_UNIT);
            return;
        }
    }
}

/* Copies are rare and go unit by unit; what comes from no device is new. */
static uint32_t version_from(wi_device *device, const char *from)
{
    size_t row;
    uint32_t first, count, version;
    if (!from || !piece_at(device, from, 1, &row, &first, &count))
        return WI_SIM_GARBAGE;
    (void)wi_plane_run(&device->contents, row, first, 1, &version);
    return version;
}

/* To memory of the program's own, which has bytes: what a fill wrote is known, what else lies there is not zero. */
static void copy_out(wi_device *device, const wi_sim_work *work)
{
    for (uint64_t at = 0, next; at < work->bytes; at = next) {
        uint32_t version = version_from(device, work->from + at);
        bool filled = version >= WI_SIM_ZERO && version < WI_SIM_ZERO + 256;
        next = at + WI_SIM_UNIT - (uintptr_t)(work->from + at) % WI_SIM_UNIT;
        next = wi_min(next, work->bytes);
        memset(work->to + at, filled ? (int)(version - WI_SIM_ZERO) : 0xA5, next - at);
    }
}

void wi_sim_do(wi_device *device, const wi_sim_work *work)
{
    if (work->kind == WI_SIM_DO_CALL)
        work->fn(work->user);
    if (work->kind == WI_SIM_DO_CALL || work->kind == WI_SIM_DO_ORDER)
        return;
    if (work->kind == WI_SIM_DO_COPY && !wi_sim_range_of(device, work->to) &&
        wi_sim_memory_at(device, work->from) >= 0) {
        copy_out(device, work);
        return;
    }
    if (wi_sim_on_host(device, work->to)) {
        wi_sim_do_on_host(device, work);
        return;
    }
    for (uint64_t at = 0; at < work->bytes;) {
        size_t row;
        uint32_t first, count;
        uint64_t piece = work->kind == WI_SIM_DO_COPY ? wi_min(WI_SIM_UNIT, work->bytes - at) : work->bytes - at;
        if (!piece_at(device, work->to + at, piece, &row, &first, &count)) {
            wi_sim_wrong(device, "work touches %p, where nothing is mapped", (void *)(work->to + at));
            return;
        }
        if (work->kind == WI_SIM_DO_READ)
            look_at(device, work, work->to + at, row, first, count);
        else
            (void)wi_plane_set(&device->contents, row, first, count,
                               work->kind == WI_SIM_DO_COPY ? version_from(device, work->from + at) : work->version);
        at += (uint64_t)count * WI_SIM_UNIT - (uintptr_t)(work->to + at) % WI_SIM_UNIT;
    }
}
