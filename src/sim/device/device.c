/* The simulated device and its memory: handles, ranges, what is mapped where; and the faults. */
#include "sim/device/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

enum { ALIGNMENT = 2 * 1024 * 1024 };

static wi_sim_options next_options;
static bool configured;

void wi_sim_configure(const wi_sim_options *options)
{
    configured = options != NULL;
    if (options)
        next_options = *options;
}

/* xorshift64*: small, and the same everywhere. */
uint64_t wi_sim_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* Faults ----------------------------------------------------------------------------------------------------------- */

static wi_sim_fault faults[2] = {{.at = -1}, {.at = -1}};
static unsigned happened;
static _Atomic uint64_t calls[WI_SIM_CALLS], fallible_calls;

void wi_sim_arm(const wi_sim_fault *first, const wi_sim_fault *second)
{
    faults[0] = first ? *first : (wi_sim_fault){.at = -1};
    faults[1] = second ? *second : (wi_sim_fault){.at = -1};
    happened = 0;
}

unsigned wi_sim_faults(void)
{
    return happened;
}

uint64_t wi_sim_calls(wi_sim_call kind)
{
    return kind == WI_SIM_FALLIBLE ? fallible_calls : calls[kind];
}

static const char *device_call_name(wi_sim_call kind)
{
    static const char *const names[WI_SIM_CALLS] = {
        "open",          "memory",         "reserve",  "create",  "map",           "unmap",
        "stream_create", "synchronize",    "record",   "wait",    "order",         "copy",
        "fill",          "call",           "allocate", "release", "pool_allocate", "pool_release",
        "pool_trim",     "create_on_host", "destroy",  "passed"};
    return kind < WI_SIM_CALLS ? names[kind] : "any";
}

weir_status wi_sim_enter(wi_sim_call kind)
{
    calls[kind]++;
    if (kind >= WI_SIM_FALLIBLE)
        return WEIR_OK;
    fallible_calls++;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < 2; i++) {
        wi_sim_fault *f = &faults[i];
        if (f->at < 0 || (f->kind != kind && f->kind < WI_SIM_FALLIBLE))
            continue;
        if (f->at == 0)
            status = f->status;
        if (f->at > 0 || !f->stay)
            f->at--;
    }
    happened += status != WEIR_OK;
    return status == WEIR_OK ? status : weir_fail(status, "sim: %s is made to fail", device_call_name(kind));
}

void wi_sim_wrong(wi_device *device, const char *format, ...)
{
    char text[256];
    va_list arguments;
    if (!device->watcher.wrong)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    device->watcher.wrong(device->watcher.user, text);
}

/* Opening ---------------------------------------------------------------------------------------------------------- */

static void free_device(wi_device *device)
{
    while (device->ended) {
        wi_sim_stream *s = device->ended;
        device->ended = s->next_ended;
        free(s);
    }
    wi_plane_clear(&device->contents);
    free(device->granules);
    free(device);
}

static weir_status sim_open(int ordinal, wi_device **out)
{
    (void)ordinal;
    weir_status status = wi_sim_enter(WI_SIM_OPEN);
    if (status != WEIR_OK)
        return status;
    wi_sim_options options = configured ? next_options : (wi_sim_options){.by_itself = true};
    wi_device *device = calloc(1, sizeof *device);
    if (!device)
        return weir_fail(WEIR_ERR_SYSTEM, "sim: no memory for the device record");
    device->bytes = options.bytes ? options.bytes : 256 * WI_MIB;
    device->granule = options.granule ? options.granule : 2 * WI_MIB;
    device->by_itself = options.by_itself;
    device->unreachable = options.unreachable;
    wi_sim_seed(device, options.seed);
    if (options.watcher)
        device->watcher = *options.watcher;
    device->granule_count = device->bytes / device->granule;
    device->host_count = device->unreachable ? 0 : WI_SIM_HOST_TIMES * device->granule_count;
    size_t all = device->granule_count + device->host_count + 1;
    device->granules = calloc(all, sizeof *device->granules);
    if (!device->granules || !wi_plane_init(&device->contents, all, (uint32_t)(device->granule / WI_SIM_UNIT))) {
        free_device(device);
        return weir_fail(WEIR_ERR_SYSTEM, "sim: no memory for the granules");
    }
    pthread_mutex_init(&device->lock, NULL);
    *out = device;
    return WEIR_OK;
}

static void sim_close(wi_device *device)
{
    wi_sim_run_all(device); /* of streams that ended without notice */
    wi_sim_close_pieces(device);
    if (device->granules_used + device->host_used)
        wi_sim_wrong(device, "the device is closed while handles of %zu granules exist",
                     device->granules_used + device->host_used);
    for (size_t i = 0; i < device->range_count; i++)
        if (device->ranges[i].base)
            wi_sim_wrong(device, "the device is closed while a range is reserved");
    for (size_t i = 0; i < WI_SIM_STREAMS; i++)
        if (device->streams[i])
            wi_sim_wrong(device, "the device is closed while stream %zu exists", i + 1);
    pthread_mutex_destroy(&device->lock);
    free_device(device);
}

static weir_status sim_memory(wi_device *device, uint64_t *available, uint64_t *total)
{
    weir_status status = wi_sim_enter(WI_SIM_MEMORY);
    uint64_t used = device->granules_used * device->granule;
    *total = device->granule_count * device->granule;
    *available = device->bytes > used ? device->bytes - used : 0;
    return status;
}

static uint64_t sim_granule(wi_device *device)
{
    return device->granule;
}

void wi_sim_resize(wi_device *device, uint64_t bytes)
{
    pthread_mutex_lock(&device->lock);
    device->bytes = wi_min(bytes, device->granule_count * device->granule);
    pthread_mutex_unlock(&device->lock);
}

/* Ranges ----------------------------------------------------------------------------------------------------------- */

static wi_sim_range *free_range(wi_device *device)
{
    size_t i = 0;
    while (i < device->range_count && device->ranges[i].base)
        i++;
    if (i == WI_SIM_RANGES)
        return NULL;
    device->range_count = wi_max(device->range_count, i + 1);
    return &device->ranges[i];
}

weir_status wi_sim_reserve(wi_device *device, uint64_t bytes, char **address)
{
    uint64_t alignment = wi_max(ALIGNMENT, device->granule); /* granules begin where addresses say so */
    wi_sim_range *range = free_range(device);
    uint32_t *memory = range ? calloc(bytes / device->granule, sizeof *memory) : NULL;
    char *raw = memory ? mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                       : MAP_FAILED;
    if (raw == MAP_FAILED) {
        free(memory);
        return weir_fail(WEIR_ERR_DRIVER, "sim: no addresses for a range of %llu bytes", (unsigned long long)bytes);
    }
    char *start = (char *)wi_round_up((uintptr_t)raw, alignment);
    if (start > raw)
        munmap(raw, (size_t)(start - raw));
    munmap(start + bytes, (size_t)(raw + alignment - start));
    *range = (wi_sim_range){start, bytes, memory};
    *address = start;
    return WEIR_OK;
}

static weir_status sim_reserve(wi_device *device, uint64_t bytes, void **address)
{
    char *start = NULL;
    weir_status status = wi_sim_enter(WI_SIM_RESERVE);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    status = wi_sim_reserve(device, bytes, &start);
    pthread_mutex_unlock(&device->lock);
    *address = start;
    return status;
}

wi_sim_range *wi_sim_range_of(wi_device *device, const void *address)
{
    for (size_t i = 0; i < device->range_count; i++) {
        wi_sim_range *range = &device->ranges[i];
        if (range->base && (const char *)address >= range->base && (const char *)address < range->base + range->bytes)
            return range;
    }
    return NULL;
}

void wi_sim_unreserve(wi_device *device, void *address, uint64_t bytes)
{
    wi_sim_range *range = wi_sim_range_of(device, address);
    if (!range || range->base != address || range->bytes != bytes) {
        wi_sim_wrong(device, "a range is given back that was not reserved so");
        return;
    }
    for (uint64_t g = 0; g < bytes / device->granule; g++)
        if (range->memory[g])
            wi_sim_wrong(device, "a range is given back while granule %u is mapped there", range->memory[g] - 1);
    munmap(address, bytes);
    free(range->memory);
    *range = (wi_sim_range){0};
    while (device->range_count > 0 && !device->ranges[device->range_count - 1].base)
        device->range_count--;
}

static void sim_unreserve(wi_device *device, void *address, uint64_t bytes)
{
    pthread_mutex_lock(&device->lock);
    wi_sim_unreserve(device, address, bytes);
    pthread_mutex_unlock(&device->lock);
}

/* Handles ---------------------------------------------------------------------------------------------------------- */

uint32_t wi_sim_first_of_host(const wi_device *device)
{
    return (uint32_t)device->granule_count;
}

uint32_t wi_sim_granules(const wi_device *device)
{
    return (uint32_t)(device->granule_count + device->host_count);
}

static wi_handle device_value_of(const wi_device *device, uint32_t index)
{
    return (wi_handle)device->granules[index].stamp << 32 | (index + 1);
}

/* The index of the first granule of a handle of so many bytes, or -1, which has been told. */
static long index_of(wi_device *device, wi_handle handle, uint64_t bytes)
{
    uint32_t index = (uint32_t)handle - 1;
    if (index >= wi_sim_granules(device) || device->granules[index].length == 0 ||
        device_value_of(device, index) != handle) {
        wi_sim_wrong(device, "%llx is no handle, or a stale value of one", (unsigned long long)handle);
        return -1;
    }
    if (bytes == device->granules[index].length * device->granule)
        return (long)index;
    wi_sim_wrong(device, "handle %u, %u granules long, is said to have %llu bytes", index,
                 device->granules[index].length, (unsigned long long)bytes);
    return -1;
}

void wi_sim_tell_held(wi_device *device)
{
    if (device->watcher.hold)
        device->watcher.hold(device->watcher.user, (device->granules_used - device->single.granules) * device->granule +
                                                       device->single.given);
}

bool wi_sim_has_room(const wi_device *device, size_t granules)
{
    uint64_t room = device->bytes / device->granule;
    return device->granules_used <= room && granules <= room - device->granules_used;
}

static uint32_t take_granule(wi_device *device, bool on_host)
{
    size_t count = on_host ? device->host_count : device->granule_count;
    size_t *next = on_host ? &device->next_host : &device->next_granule, first = on_host ? device->granule_count : 0;
    while (device->granules[first + *next % count].used)
        ++*next;
    uint32_t index = (uint32_t)(first + (*next)++ % count);
    device->granules[index].used = true;
    *(on_host ? &device->host_used : &device->granules_used) += 1;
    (void)wi_plane_set(&device->contents, index, 0, device->contents.units, WI_SIM_GARBAGE);
    return index;
}

uint32_t wi_sim_new_handle(wi_device *device, uint32_t granules, bool on_host)
{
    uint32_t first = take_granule(device, on_host);
    device->granules[first].stamp++;
    device->granules[first].length = granules;
    for (uint32_t i = 1, last = first; i < granules; i++) {
        uint32_t index = take_granule(device, on_host);
        device->granules[last].next = index + 1;
        last = index;
    }
    return first;
}

void wi_sim_end_handle(wi_device *device, uint32_t index)
{
    if (device->granules[index].maps)
        wi_sim_wrong(device, "handle %u is destroyed while it is mapped", index);
    device->granules[index].stamp++;
    device->granules[index].length = 0;
    for (uint32_t next = index + 1; next;) {
        wi_sim_granule *g = &device->granules[next - 1];
        next = g->next;
        g->next = 0;
        g->used = false;
        *(index >= device->granule_count ? &device->host_used : &device->granules_used) -= 1;
    }
}

static bool device_has_room(const wi_device *device, uint64_t granules, bool on_host)
{
    return on_host ? granules <= device->host_count - device->host_used
                   : granules <= device->granule_count && wi_sim_has_room(device, granules);
}

static weir_status device_create(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles, bool on_host)
{
    uint64_t length = bytes / device->granule;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&device->lock);
    if (length == 0 || bytes % device->granule != 0) {
        wi_sim_wrong(device, "handles of %llu bytes are asked for, no whole granules", (unsigned long long)bytes);
        status = weir_fail(WEIR_ERR_DRIVER, "sim: %llu bytes are no whole granules", (unsigned long long)bytes);
    } else if (count > wi_sim_granules(device) || length > wi_sim_granules(device) ||
               !device_has_room(device, count * length, on_host)) {
        status = weir_fail(WEIR_ERR_OUT_OF_MEMORY, "sim: the %s has no more memory", on_host ? "host" : "device");
    }
    for (size_t i = 0; status == WEIR_OK && i < count; i++)
        handles[i] = device_value_of(device, wi_sim_new_handle(device, (uint32_t)length, on_host));
    if (status == WEIR_OK)
        wi_sim_tell_held(device);
    pthread_mutex_unlock(&device->lock);
    return status;
}

static weir_status sim_create(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    weir_status status = wi_sim_enter(WI_SIM_CREATE);
    return status == WEIR_OK ? device_create(device, bytes, count, handles, false) : status;
}

static weir_status sim_create_on_host(wi_device *device, uint64_t bytes, size_t count, wi_handle *handles)
{
    weir_status status = wi_sim_enter(WI_SIM_CREATE_ON_HOST);
    return status == WEIR_OK ? device_create(device, bytes, count, handles, true) : status;
}

static bool sim_has_host_handles(wi_device *device)
{
    return !device->unreachable;
}

static void sim_destroy(wi_device *device, uint64_t bytes, size_t count, const wi_handle *handles)
{
    (void)wi_sim_enter(WI_SIM_DESTROY);
    pthread_mutex_lock(&device->lock);
    for (size_t i = 0; i < count; i++) {
        long index = index_of(device, handles[i], bytes);
        if (index >= 0)
            wi_sim_end_handle(device, (uint32_t)index);
    }
    wi_sim_tell_held(device);
    pthread_mutex_unlock(&device->lock);
}

/* What says which memory is under the granules at `address`, or NULL, which has been told. */
static uint32_t *granules_at(wi_device *device, const char *address, uint64_t bytes)
{
    wi_sim_range *range = wi_sim_range_of(device, address);
    uint64_t offset = range ? (uint64_t)(address - range->base) : 0;
    if (range && offset % device->granule == 0 && bytes <= range->bytes - offset)
        return range->memory + offset / device->granule;
    wi_sim_wrong(device, "%p, %llu bytes long, is no part of a range", (const void *)address,
                 (unsigned long long)bytes);
    return NULL;
}

void wi_sim_map_handle(wi_device *device, char *address, uint32_t index)
{
    for (uint32_t next = index + 1; next; next = device->granules[next - 1].next, address += device->granule) {
        *granules_at(device, address, device->granule) = next;
        if (device->watcher.map)
            device->watcher.map(device->watcher.user, address, next - 1);
    }
    if (device->granules[index].maps++ == 0)
        device->granules[index].stamp++;
}

void wi_sim_unmap_handle(wi_device *device, char *address, uint32_t index)
{
    for (uint32_t next = index + 1; next; next = device->granules[next - 1].next, address += device->granule) {
        if (device->watcher.unmap)
            device->watcher.unmap(device->watcher.user, address, next - 1);
        *granules_at(device, address, device->granule) = 0;
        device->granules[next - 1].read_only = false;
    }
    if (--device->granules[index].maps == 0)
        device->granules[index].stamp++;
}

/* Whether nothing is mapped there; else it has been told. */
static bool is_unmapped(wi_device *device, const uint32_t *at, uint32_t index)
{
    for (uint32_t i = 0; i < device->granules[index].length; i++)
        if (at[i]) {
            wi_sim_wrong(device, "handle %u is mapped where granule %u is", index, at[i] - 1);
            return false;
        }
    return true;
}

/* True: the whole handle, from its first granule to its last, is mapped at these addresses. Otherwise reports the
 * mismatch to the watcher. */
static bool device_is_mapped(wi_device *device, const uint32_t *at, uint32_t index)
{
    for (uint32_t next = index + 1; next; next = device->granules[next - 1].next)
        if (*at++ != next) {
            wi_sim_wrong(device, "handle %u is unmapped where it is not", index);
            return false;
        }
    return true;
}

static weir_status sim_map(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    weir_status status = wi_sim_enter(WI_SIM_MAP);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    const uint32_t *granules = granules_at(device, address, count * bytes);
    for (size_t i = 0; granules && i < count; i++) {
        long index = index_of(device, handles[i], bytes);
        if (index < 0 || !is_unmapped(device, granules + i * (bytes / device->granule), (uint32_t)index))
            continue;
        wi_sim_map_handle(device, (char *)address + i * bytes, (uint32_t)index);
        handles[i] = device_value_of(device, (uint32_t)index);
    }
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

static weir_status sim_unmap(wi_device *device, void *address, uint64_t bytes, size_t count, wi_handle *handles)
{
    weir_status status = wi_sim_enter(WI_SIM_UNMAP);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&device->lock);
    const uint32_t *granules = granules_at(device, address, count * bytes);
    for (size_t i = 0; granules && i < count; i++) {
        long index = index_of(device, handles[i], bytes);
        if (index < 0 || !device_is_mapped(device, granules + i * (bytes / device->granule), (uint32_t)index))
            continue;
        wi_sim_unmap_handle(device, (char *)address + i * bytes, (uint32_t)index);
        handles[i] = device_value_of(device, (uint32_t)index);
    }
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

static weir_status sim_protect(wi_device *device, void *address, uint64_t bytes, bool writable)
{
    pthread_mutex_lock(&device->lock);
    const uint32_t *granules = granules_at(device, address, bytes);
    uint32_t first = granules ? granules[0] : 0, next = first;
    for (uint64_t i = 0; granules && i < bytes / device->granule; i++) {
        if (next == 0 || granules[i] != next) {
            wi_sim_wrong(device, "%p, %llu bytes long, is no handle that is mapped, and is protected", address,
                         (unsigned long long)bytes);
            break;
        }
        device->granules[next - 1].read_only = !writable;
        next = device->granules[next - 1].next;
    }
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

uint64_t wi_sim_idle(wi_device *device, bool (*used)(void *user, uint32_t granule), void *user, uint64_t *room)
{
    uint64_t granules = 0, all = device->bytes / device->granule;
    for (uint32_t i = 0; i < device->granule_count; i++) {
        bool any = device->granules[i].length == 0;
        for (uint32_t next = i + 1; next && !any; next = device->granules[next - 1].next)
            any = used(user, next - 1);
        granules += any ? 0 : device->granules[i].length;
    }
    *room = (all - wi_min(all, device->granules_used)) * device->granule;
    return granules * device->granule;
}

long wi_sim_memory_at(wi_device *device, const void *address)
{
    const wi_sim_range *range = wi_sim_range_of(device, address);
    if (!range)
        return wi_sim_on_host(device, address) ? -2 : -1;
    return (long)range->memory[(uint64_t)((const char *)address - range->base) / device->granule] - 1;
}

/* The table -------------------------------------------------------------------------------------------------------- */

static void *sim_stream_native(void *stream)
{
    return wi_sim_address(stream);
}

static weir_status sim_stream_default(wi_device *device, weir_default_stream which, void **stream)
{
    (void)device, (void)which, (void)stream;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "sim: there is no default stream");
}

static void *sim_context(wi_device *device)
{
    (void)device;
    return NULL;
}

const wi_driver wi_sim_driver = {
    .name = "sim",
    .ordinals = 1,
    .open = sim_open,
    .close = sim_close,
    .memory = sim_memory,
    .granule = sim_granule,
    .reserve = sim_reserve,
    .unreserve = sim_unreserve,
    .create = sim_create,
    .destroy = sim_destroy,
    .map = sim_map,
    .unmap = sim_unmap,
    .protect = sim_protect,
    .allocate = wi_sim_allocate,
    .release = wi_sim_release,
    .pool_allocate = wi_sim_pool_allocate,
    .pool_release = wi_sim_pool_release,
    .pool_trim = wi_sim_pool_trim,
    .pool_held = wi_sim_pool_held,
    .stream_create = wi_sim_stream_create,
    .stream_adopt = wi_sim_stream_adopt,
    .stream_abandon = wi_sim_stream_abandon,
    .record_all = wi_sim_record_all,
    .stream_default = sim_stream_default,
    .stream_destroy = wi_sim_stream_destroy,
    .stream_synchronize = wi_sim_stream_synchronize,
    .synchronize = wi_sim_synchronize,
    .stream_native = sim_stream_native,
    .stream_capturing = wi_sim_stream_capturing,
    .context = sim_context,
    .record = wi_sim_record,
    .passed = wi_sim_passed,
    .wait = wi_sim_wait,
    .order = wi_sim_order,
    .copy = wi_sim_copy,
    .fill = wi_sim_fill,
    .call = wi_sim_do_call,
    .has_host_handles = sim_has_host_handles,
    .create_on_host = sim_create_on_host,
};

__attribute__((constructor)) static void add_driver(void)
{
    wi_driver_add(&wi_sim_driver);
}
