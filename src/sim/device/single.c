/* The simulated device's memory that is given out piece by piece: at once, and from a pool in the order of streams.
 *
 * Device memory lies in two spaces, one for single pieces and one for the pool. A granule of a space has a handle while
 * a piece touches the granule, so that small pieces share a handle; contents, mappings and owners are kept as for
 * handles. A piece that was released into the pool keeps its memory: on the same stream it may be handed out again at
 * once, elsewhere when the device is past the release. Pieces of the host's are real memory, as programs write to it
 * themselves. */
#include "sim/device/internal.h"

#define ULL(x) ((unsigned long long)(x))

enum { TIMES_THE_DEVICE = 8 }; /* the addresses of a space, so that holes between pieces do not use them up */

/* Spaces ----------------------------------------------------------------------------------------------------------- */

static weir_status open_space(wi_device *device, wi_sim_space *space)
{
    uint64_t bytes = TIMES_THE_DEVICE * device->granule_count * device->granule;
    weir_status status = space->base ? WEIR_OK : wi_sim_reserve(device, bytes, &space->base);
    if (status == WEIR_OK)
        space->bytes = bytes;
    return status;
}

static char *granule_of(const wi_device *device, const wi_sim_space *space, const char *address)
{
    return space->base + ((uint64_t)(address - space->base) & ~(device->granule - 1));
}

/* How many granules of [address, +bytes) have no memory. */
static size_t count_missing(wi_device *device, const wi_sim_space *space, const char *address, uint64_t bytes)
{
    size_t missing = 0;
    for (const char *at = granule_of(device, space, address); at < address + bytes; at += device->granule)
        missing += wi_sim_memory_at(device, at) < 0;
    return missing;
}

/* Finds the first hole that is large enough and needs no more memory than the device has left. Returns the link where
 * the new piece is inserted, and the hole's address in *address; NULL: no such hole. */
static wi_sim_piece **find_hole(wi_device *device, wi_sim_space *space, uint64_t bytes, char **address)
{
    char *start = space->base;
    for (wi_sim_piece **at = &space->pieces;; at = &(*at)->next) {
        const char *end = *at ? (*at)->address : space->base + space->bytes;
        if ((uint64_t)(end - start) >= bytes && wi_sim_has_room(device, count_missing(device, space, start, bytes))) {
            *address = start;
            return at;
        }
        if (!*at)
            return NULL;
        start = (*at)->address + (*at)->bytes;
    }
}

static weir_status carve(wi_device *device, wi_sim_space *space, uint64_t bytes, void **out)
{
    char *address = NULL;
    weir_status status = open_space(device, space);
    if (status != WEIR_OK)
        return status;
    wi_sim_piece **at = find_hole(device, space, bytes, &address);
    if (!at)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "sim: the device has no %llu bytes left", ULL(bytes));
    wi_sim_piece *piece = malloc(sizeof *piece);
    if (!piece)
        return weir_fail(WEIR_ERR_SYSTEM, "sim: no memory to note a piece");
    *piece = (wi_sim_piece){.next = *at, .address = address, .bytes = bytes};
    *at = piece;
    for (char *g = granule_of(device, space, address); g < address + bytes; g += device->granule)
        if (wi_sim_memory_at(device, g) < 0) {
            wi_sim_map_handle(device, g, wi_sim_new_handle(device, 1, false));
            space->granules++;
        }
    wi_sim_make_garbage(device, address, bytes);
    space->given += bytes;
    wi_sim_tell_held(device);
    *out = address;
    return WEIR_OK;
}

static bool is_touched(const wi_device *device, const wi_sim_space *space, const char *granule)
{
    for (const wi_sim_piece *p = space->pieces; p; p = p->next)
        if (p->address < granule + device->granule && p->address + p->bytes > granule)
            return true;
    return false;
}

/* Takes the piece out, and the memory from under granules that no other touches. */
static void uncarve(wi_device *device, wi_sim_space *space, wi_sim_piece **at)
{
    wi_sim_piece *piece = *at;
    *at = piece->next;
    for (char *g = granule_of(device, space, piece->address); g < piece->address + piece->bytes; g += device->granule)
        if (!is_touched(device, space, g)) {
            uint32_t index = (uint32_t)wi_sim_memory_at(device, g);
            wi_sim_unmap_handle(device, g, index);
            wi_sim_end_handle(device, index);
            space->granules--;
        }
    space->given -= piece->bytes;
    free(piece);
    wi_sim_tell_held(device);
}

/* Finds the allocated piece with this address and size in a list. NULL: the list has no such piece, and the watcher has
 * been told. */
static wi_sim_piece **find_piece(wi_device *device, wi_sim_piece **first, const void *address, uint64_t bytes)
{
    wi_sim_piece **at = first;
    while (*at && (*at)->address != address)
        at = &(*at)->next;
    if (*at && (*at)->bytes == bytes && !(*at)->released)
        return at;
    wi_sim_wrong(device, "%p, %llu bytes long, is released and is no piece that was allocated", address, ULL(bytes));
    return NULL;
}

static weir_status fail_release(const void *address)
{
    return weir_fail(WEIR_ERR_DRIVER, "sim: %p is no piece that was allocated", address);
}

/* The host's memory ------------------------------------------------------------------------------------------------ */

bool wi_sim_on_host(const wi_device *device, const void *address)
{
    for (const wi_sim_piece *p = device->host; p; p = p->next)
        if ((const char *)address >= p->address && (const char *)address < p->address + p->bytes)
            return true;
    return false;
}

/* What devices write there has no bytes, unless a fill of the runtime's tells them. */
void wi_sim_do_on_host(const wi_device *device, const wi_sim_work *work)
{
    if (work->kind == WI_SIM_DO_WRITE && work->version >= WI_SIM_ZERO && work->version < WI_SIM_ZERO + 256)
        memset(work->to, (int)(work->version - WI_SIM_ZERO), work->bytes);
    if (work->kind == WI_SIM_DO_COPY && wi_sim_on_host(device, work->from))
        memmove(work->to, work->from, work->bytes);
}

static weir_status single_allocate_host(wi_device *device, uint64_t bytes, void **address)
{
    wi_sim_piece *piece = malloc(sizeof *piece);
    if (!piece)
        return weir_fail(WEIR_ERR_SYSTEM, "sim: no memory to note a piece");
    weir_status status = wi_pageable_allocate(bytes, address);
    if (status != WEIR_OK) {
        free(piece);
        return status;
    }
    *piece = (wi_sim_piece){.next = device->host, .address = *address, .bytes = bytes};
    device->host = piece;
    return WEIR_OK;
}

static void single_release_host(wi_sim_piece **at)
{
    wi_sim_piece *piece = *at;
    *at = piece->next;
    free(piece->address);
    free(piece);
}

/* At once ---------------------------------------------------------------------------------------------------------- */

weir_status wi_sim_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    weir_status status = wi_sim_enter(WI_SIM_ALLOCATE);
    if (status != WEIR_OK)
        return status;
    if (kind != WEIR_KIND_DEVICE && kind != WEIR_KIND_PINNED && kind != WEIR_KIND_HOST)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "sim: there is no kind of memory with the number %d", (int)kind);
    wi_sim_lock(device);
    status = kind == WEIR_KIND_DEVICE ? carve(device, &device->single, bytes, address)
                                      : single_allocate_host(device, bytes, address);
    wi_sim_unlock(device);
    return status;
}

weir_status wi_sim_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    weir_status status = wi_sim_enter(WI_SIM_RELEASE);
    if (status != WEIR_OK)
        return status;
    wi_sim_lock(device);
    bool on_device = kind == WEIR_KIND_DEVICE;
    wi_sim_piece **at = find_piece(device, on_device ? &device->single.pieces : &device->host, address, bytes);
    if (at && on_device)
        uncarve(device, &device->single, at);
    else if (at)
        single_release_host(at);
    wi_sim_unlock(device);
    return at ? WEIR_OK : fail_release(address);
}

/* In the order of streams ------------------------------------------------------------------------------------------ */

static uint64_t held_by_pool(const wi_device *device)
{
    return device->pool.granules * device->granule;
}

/* Gives back what was released and is passed, until the pool has no more than `keep` bytes. */
static void single_trim(wi_device *device, uint64_t keep)
{
    for (wi_sim_piece **at = &device->pool.pieces; *at && held_by_pool(device) > keep;)
        if ((*at)->released && wi_sim_is_past(device, (*at)->point))
            uncarve(device, &device->pool, at);
        else
            at = &(*at)->next;
}

static bool single_serves(wi_device *device, const wi_sim_piece *p, uint64_t bytes, const void *stream)
{
    return p->released && p->bytes == bytes &&
           ((stream && p->point.stream == stream) || wi_sim_is_past(device, p->point));
}

static weir_status single_take(wi_device *device, uint64_t bytes, void *stream, void **address)
{
    for (wi_sim_piece *p = device->pool.pieces; p; p = p->next)
        if (single_serves(device, p, bytes, stream)) {
            p->released = false;
            *address = p->address;
            return WEIR_OK;
        }
    weir_status status = carve(device, &device->pool, bytes, address);
    if (status != WEIR_ERR_OUT_OF_MEMORY)
        return status;
    single_trim(device, 0);
    return carve(device, &device->pool, bytes, address);
}

weir_status wi_sim_pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address)
{
    weir_status status = wi_sim_enter(WI_SIM_POOL_ALLOCATE);
    if (status != WEIR_OK)
        return status;
    wi_sim_lock(device);
    status = wi_sim_check_capture(wi_sim_at(device, stream), "allocating from the pool");
    if (status == WEIR_OK)
        status = single_take(device, bytes, wi_sim_at(device, stream), address);
    wi_sim_unlock(device);
    return status;
}

weir_status wi_sim_pool_release(wi_device *device, void *address, uint64_t bytes, void *stream)
{
    weir_status status = wi_sim_enter(WI_SIM_POOL_RELEASE);
    if (status != WEIR_OK)
        return status;
    wi_sim_lock(device);
    status = wi_sim_check_capture(wi_sim_at(device, stream), "releasing memory of the pool");
    if (status == WEIR_OK) {
        wi_sim_piece **at = find_piece(device, &device->pool.pieces, address, bytes);
        if (at) {
            (*at)->released = true;
            (*at)->point = wi_sim_point(device, wi_sim_at(device, stream));
        } else {
            status = fail_release(address);
        }
    }
    wi_sim_unlock(device);
    return status;
}

weir_status wi_sim_pool_trim(wi_device *device, uint64_t keep, uint64_t *held)
{
    weir_status status = wi_sim_enter(WI_SIM_POOL_TRIM);
    if (status != WEIR_OK)
        return status;
    wi_sim_lock(device);
    single_trim(device, keep);
    *held = held_by_pool(device);
    wi_sim_unlock(device);
    return WEIR_OK;
}

weir_status wi_sim_pool_held(wi_device *device, uint64_t *held)
{
    wi_sim_lock(device);
    *held = held_by_pool(device);
    wi_sim_unlock(device);
    return WEIR_OK;
}

/* The end ---------------------------------------------------------------------------------------------------------- */

static void close_space(wi_device *device, wi_sim_space *space, const char *what)
{
    while (space->pieces) {
        if (!space->pieces->released)
            wi_sim_wrong(device, "the device is closed while a piece of %llu bytes %s exists",
                         ULL(space->pieces->bytes), what);
        uncarve(device, space, &space->pieces);
    }
    if (space->base)
        wi_sim_unreserve(device, space->base, space->bytes);
    *space = (wi_sim_space){0};
}

void wi_sim_close_pieces(wi_device *device)
{
    close_space(device, &device->single, "by itself");
    close_space(device, &device->pool, "of the pool");
    while (device->host) {
        wi_sim_wrong(device, "the device is closed while %llu bytes of the host's memory are allocated",
                     ULL(device->host->bytes));
        single_release_host(&device->host);
    }
}
