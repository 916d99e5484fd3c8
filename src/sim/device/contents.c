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
static void device_contents_look_at(wi_device *device, const wi_sim_work *work, const char *start, size_t row,
                                    uint32_t first, uint32_t count)
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

/* How many of the bytes from there on hold one version. What comes from no device, and no memory that one gave out, is new. */
static uint64_t same_version(wi_device *device, const char *from, uint64_t bytes, uint32_t *version)
{
    uint64_t inside = (uintptr_t)from % WI_SIM_UNIT;
    size_t row;
    uint32_t first, count;
    *version = WI_SIM_GARBAGE;
    if (!from || !piece_at(device, from, bytes, &row, &first, &count))
        return wi_min(WI_SIM_UNIT - inside, bytes);
    count = wi_plane_run(&device->contents, row, first, count, version);
    return wi_min((uint64_t)count * WI_SIM_UNIT - inside, bytes);
}

/* Bytes of the host ------------------------------------------------------------------------------------------------ */

/* Writes a unit's contents as bytes, so that they can pass through host memory or a file and come back. A fill becomes
 * its value, a user's version becomes a mark and the version, repeated, and any other version becomes bytes that are
 * not zero. */
enum { MARK = 0x51AD0E57, UNKNOWN = 0xA5 };

static void make_bytes(uint32_t version, unsigned char *unit)
{
    uint64_t word = (uint64_t)MARK << 32 | version;
    bool filled = version >= WI_SIM_ZERO && version < WI_SIM_ZERO + 256;
    memset(unit, filled ? (int)(version - WI_SIM_ZERO) : UNKNOWN, WI_SIM_UNIT);
    for (size_t at = 0; version >= WI_SIM_FIRST_VERSION && at < WI_SIM_UNIT; at += sizeof word)
        memcpy(unit + at, &word, sizeof word);
}

static uint32_t version_of_bytes(const char *unit)
{
    uint64_t word;
    memcpy(&word, unit, sizeof word);
    if (memcmp(unit, unit + sizeof word, WI_SIM_UNIT - sizeof word) != 0)
        return WI_SIM_GARBAGE;
    if (word >> 32 == MARK)
        return (uint32_t)word;
    return memcmp(unit, unit + 1, sizeof word) == 0 ? WI_SIM_ZERO + (unsigned char)unit[0] : WI_SIM_GARBAGE;
}

/* To memory of the program's own, which has bytes. */
static void device_contents_copy_out(wi_device *device, const wi_sim_work *work)
{
    unsigned char unit[WI_SIM_UNIT];
    for (uint64_t at = 0, next, end; at < work->bytes;) {
        uint32_t version;
        end = at + same_version(device, work->from + at, work->bytes - at, &version);
        make_bytes(version, unit);
        for (; at < end; at = next) {
            uint64_t inside = (uintptr_t)(work->from + at) % WI_SIM_UNIT;
            next = wi_min(at + WI_SIM_UNIT - inside, end);
            memcpy(work->to + at, unit + inside, next - at);
        }
    }
}

/* From memory of the host's that the device gave out: its bytes tell. */
static uint32_t version_from_host(const wi_sim_work *work, uint64_t at)
{
    return work->bytes - at >= WI_SIM_UNIT ? version_of_bytes(work->from + at) : WI_SIM_GARBAGE;
}

/* The version that comes to `at` of what is written, and how many bytes from there on get it. */
static uint64_t what_comes(wi_device *device, const wi_sim_work *work, uint64_t at, bool from_host, uint32_t *version)
{
    uint64_t left = work->bytes - at, unit = wi_min(WI_SIM_UNIT, left);
    *version = work->version;
    if (work->kind != WI_SIM_DO_COPY)
        return left;
    if (from_host) {
        *version = version_from_host(work, at);
        return unit;
    }
    uint64_t same = same_version(device, work->from + at, left, version);
    bool alike = (uintptr_t)work->to % WI_SIM_UNIT == (uintptr_t)work->from % WI_SIM_UNIT;
    return alike ? same : unit;
}

void wi_sim_do(wi_device *device, const wi_sim_work *work)
{
    if (work->kind == WI_SIM_DO_CALL)
        work->fn(work->user);
    if (work->kind == WI_SIM_DO_CALL || work->kind == WI_SIM_DO_ORDER)
        return;
    if (work->kind == WI_SIM_DO_COPY && !wi_sim_range_of(device, work->to) &&
        wi_sim_memory_at(device, work->from) >= 0) {
        device_contents_copy_out(device, work);
        return;
    }
    if (wi_sim_on_host(device, work->to)) {
        wi_sim_do_on_host(device, work);
        return;
    }
    bool from_host = work->kind == WI_SIM_DO_COPY && wi_sim_on_host(device, work->from);
    for (uint64_t at = 0; at < work->bytes;) {
        size_t row;
        uint32_t first, count, version;
        uint64_t piece = what_comes(device, work, at, from_host, &version);
        if (!piece_at(device, work->to + at, piece, &row, &first, &count)) {
            wi_sim_wrong(device, "work touches %p, where nothing is mapped", (void *)(work->to + at));
            return;
        }
        if (work->kind != WI_SIM_DO_READ && device->granules[row].read_only) {
            wi_sim_wrong(device, "work writes at %p, where it may only read", (void *)(work->to + at));
            return;
        }
        if (work->kind == WI_SIM_DO_READ)
            device_contents_look_at(device, work, work->to + at, row, first, count);
        else
            (void)wi_plane_set(&device->contents, row, first, count, version);
        at += (uint64_t)count * WI_SIM_UNIT - (uintptr_t)(work->to + at) % WI_SIM_UNIT;
    }
}
