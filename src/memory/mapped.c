/* The resource "mapped": places blocks in free memory by best fit, has memory put where they can stand when there is none, and
 * makes them longer. How they are freed, in the order of streams or when the device is past them, is in ordered.c. */
#include "memory/mapped.h"
#include "base/options.h"
#include "base/system.h"

#include <weir/trim.h>

static wi_mapped *of(wi_resource *resource)
{
    return (wi_mapped *)resource;
}

static wi_space *space_of(wi_mapped *mapped, const void *pointer)
{
    for (int side = 0; side < WI_SIDES; side++)
        if (wi_space_holds(&mapped->sides[side], pointer))
            return &mapped->sides[side];
    return NULL;
}

/* Small blocks live in handles of their own: up to 16 KiB the traces of models behaved well, above 32 KiB worse, and their
 * bytes are few. */
enum { SMALL = 16 * WI_KIB };

static unsigned side_for(weir_class memory_class, uint64_t charged)
{
    return memory_class == WEIR_CLASS_WEIGHTS ? WI_LONG_LIVED : charged <= SMALL ? WI_SMALL : WI_SHORT_LIVED;
}

static unsigned side_of(const wi_placement *p)
{
    return p->apart ? WI_SHORT_LIVED : side_for(p->memory_class, p->charged);
}

static void lock(wi_mapped *mapped)
{
    wi_resource_lock(&mapped->resource);
}

static void unlock(wi_mapped *mapped)
{
    wi_resource_unlock(&mapped->resource);
}

static void check(wi_resource *resource)
{
    for (int side = 0; side < WI_SIDES; side++)
        wi_space_check(&of(resource)->sides[side]);
}

/* Placing ---------------------------------------------------------------------------------------------------------- */

/* How many the driver moves and makes. */
static uint32_t handles_of(const wi_mapped *mapped, const wi_growth *growth)
{
    uint64_t usual = growth->fresh > 0 ? wi_growth_handle(mapped, growth->fresh) : 1;
    return (uint32_t)(growth->spare + growth->taken_count + (growth->fresh + usual - 1) / usual);
}

/* Puts memory where a block can stand, as *g tells then. WEIR_ERR_NO_ROOM: there is no such place, or no means. WEIR_ERR_BUSY: one
 * more try. */
static weir_status grow_space(wi_mapped *mapped, wi_space *space, wi_placement *p, wi_growth *g, wi_extent **busy)
{
    const wi_wish wish = {p->charged, p->alignment, wi_ordered_lane(&mapped->resource, p), p->apart, p->thrifty};
    weir_status status = wi_growth_plan(mapped, space, &wish, g);
    if (status == WEIR_ERR_NO_ROOM && p->thorough && !p->apart) {
        *g = (wi_growth){.taken_count = 1}; /* or nothing, or new handles: it went through everything */
        return wi_rescue(mapped, space, &wish, &g->start, busy);
    }
    if (status == WEIR_OK && p->thrifty && g->beyond) {
        p->beyond = true;
        return WEIR_ERR_NO_ROOM;
    }
    weir_status filled =
        status == WEIR_OK && !p->apart ? wi_rescue_fill(mapped, space, &wish, g, busy) : WEIR_ERR_NO_ROOM;
    if (status != WEIR_OK || filled != WEIR_ERR_NO_ROOM)
        return status != WEIR_OK ? status : filled;
    if (!g->cut)
        return wi_handles_grow(mapped, g, busy);
    status = wi_handles_cut(mapped, g->cut, g->cut_at);
    return status == WEIR_OK ? WEIR_ERR_BUSY : status;
}

static weir_status grow_and_use(wi_mapped *mapped, wi_space *space, wi_placement *p, wi_block **out)
{
    wi_growth growth;
    wi_extent *busy;
    weir_status status = grow_space(mapped, space, p, &growth, &busy);
    if (status != WEIR_OK)
        return status;
    p->handles = handles_of(mapped, &growth);
    wi_climbed(p, growth.taken_count > 0 ? WEIR_RUNG_REMAP : growth.fresh > 0 ? WEIR_RUNG_CREATE : WEIR_RUNG_SPARE);
    *out = wi_ordered_use(busy, growth.start, p, 0);
    (*out)->lent = 0; /* it took the driver */
    return WEIR_OK;
}

/* What a try to get memory has come to: whether there is to be another one. */
static bool once_more(wi_mapped *mapped, weir_status *status, unsigned *waits)
{
    if (*status != WEIR_ERR_BUSY && *status != WEIR_ERR_NO_ROOM)
        return false;
    if (wi_handles_settle(mapped, *status == WEIR_ERR_BUSY, waits))
        return true;
    *status = mapped->device_has == UINT64_MAX ? WEIR_ERR_NO_ROOM : WEIR_ERR_OUT_OF_MEMORY;
    return false;
}

/* `own`: the space is that of its kind. What passes while other spaces are looked at is first looked for there, later. */
static weir_status find_room(wi_mapped *mapped, wi_space *space, wi_placement *p, bool own, wi_block **out)
{
    for (unsigned waits = 0, renewals = 0;;) {
        weir_status status = wi_extent_pool_reserve(&mapped->shared.pool, WI_RECORDS_PER_CHANGE);
        if (status != WEIR_OK)
            return status;
        const wi_lane *lane = wi_ordered_lane(&mapped->resource, p);
        wi_extent *extent = p->apart ? NULL : wi_space_best(space, lane, p->charged, p->alignment);
        if (extent) {
            p->hit = waits == 0;
            *out = wi_ordered_use(extent, wi_extent_start(extent, p->alignment), p, 0);
            return WEIR_OK;
        }
        if (own && renewals++ < WI_MOST_RENEWALS &&
            wi_lanes_renew(&mapped->lanes) > 0) { /* what has passed is anyone's, and can be moved */
            wi_climbed(p, WEIR_RUNG_COMPLETED);
            continue;
        }
        if (p->modest)
            return WEIR_ERR_NO_ROOM;
        status = grow_and_use(mapped, space, p, out);
        if (p->beyond || !once_more(mapped, &status, &waits))
            return status;
    }
}

static bool is_shortage(weir_status status)
{
    return status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY;
}

/* Spaces are kept apart as long as nothing has to be refused for it; what is small may lie among the large before that. */
static unsigned spaces_for(const wi_placement *p, const unsigned **out)
{
    static const unsigned spaces[WI_SIDES][WI_SIDES] = {
        [WI_LONG_LIVED] = {WI_LONG_LIVED, WI_SHORT_LIVED, WI_SMALL},
        [WI_SHORT_LIVED] = {WI_SHORT_LIVED, WI_LONG_LIVED, WI_SMALL},
        [WI_SMALL] = {WI_SMALL, WI_SHORT_LIVED, WI_LONG_LIVED},
    };
    unsigned own = side_of(p);
    *out = spaces[own];
    return p->thorough && !p->apart ? WI_SIDES : own == WI_SMALL ? 2 : 1;
}

static weir_status find_in_spaces(wi_mapped *mapped, wi_placement *p, wi_block **out)
{
    const unsigned *spaces;
    unsigned count = spaces_for(p, &spaces);
    weir_status status = WEIR_ERR_NO_ROOM;
    for (unsigned i = 0; i < count && is_shortage(status) && !p->beyond; i++)
        status = find_room(mapped, &mapped->sides[spaces[i]], p, i == 0, out);
    return status;
}

/* What is free in the order of another stream. */
static wi_block *find_behind(wi_mapped *mapped, wi_placement *p)
{
    const unsigned *spaces;
    unsigned count = spaces_for(p, &spaces);
    wi_block *block = NULL;
    for (unsigned i = 0; i < count && !block; i++)
        block = wi_ordered_use_behind(&mapped->resource, &mapped->shared, spaces[i], p, 0);
    return block;
}

/* Others on the device want memory: they get what is idle here beyond a little. */
static uint64_t relax(wi_mapped *mapped)
{
    bool squeezed = mapped->squeezed;
    mapped->squeezed = false;
    return squeezed ? wi_handles_shed(mapped, WEIR_IDLE_KEPT) : 0;
}

/* As long as there is hope without holding more than is liked, and then at any rate; then no wait is what served it. */
static weir_status find_thriftily(wi_mapped *mapped, wi_placement *p, wi_block **out)
{
    const weir_rung before = p->rung;
    uint64_t deadline = 0;
    p->thrifty = wi_patience_has(mapped, p);
    for (;;) {
        p->beyond = false;
        weir_status status = find_in_spaces(mapped, p, out);
        if (!p->beyond)
            return status;
        p->thrifty = wi_patience_wait(mapped, p, &deadline);
        p->rung = before;
        if (p->thrifty)
            wi_climbed(p, WEIR_RUNG_WAIT);
    }
}

static weir_status allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    wi_mapped *mapped = of(resource);
    const wi_space *space = &mapped->sides[side_of(p)];
    lock(mapped);
    weir_status status = find_thriftily(mapped, p, out);
    if (is_shortage(status) && p->behind && !p->apart && (*out = find_behind(mapped, p)))
        status = WEIR_OK;
    if (status == WEIR_OK) {
        (void)relax(mapped);
    } else if (is_shortage(status) && !p->modest) {
        shortage->cause = p->charged > space->bytes - p->alignment ? WEIR_CAUSE_ADDRESS_RANGE
                          : status == WEIR_ERR_NO_ROOM             ? WEIR_CAUSE_FRAGMENTATION
                                                                   : WEIR_CAUSE_OTHER_PROCESS;
        wi_place_look(mapped, wi_ordered_lane(resource, p), p->charged, p->alignment, shortage);
        status = WEIR_ERR_OUT_OF_MEMORY;
    }
    mapped->device_has = UINT64_MAX;
    unlock(mapped);
    return status;
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static uint64_t charge(wi_resource *resource, uint64_t bytes)
{
    (void)resource;
    return wi_round_up(bytes, WI_UNIT);
}

static void measure(wi_resource *resource, wi_placement *p)
{
    p->charged = charge(resource, p->before + p->bytes + p->after);
}

static weir_status grow_behind(wi_mapped *mapped, wi_extent *extent, uint64_t more, wi_extent **busy)
{
    wi_growth growth;
    weir_status status = wi_growth_behind(mapped, extent, more, &growth);
    if (status == WEIR_OK && growth.cut) {
        status = wi_handles_cut(mapped, growth.cut, growth.cut_at);
        return status == WEIR_OK ? WEIR_ERR_BUSY : status;
    }
    if (status == WEIR_OK)
        return wi_handles_grow(mapped, &growth, busy);
    weir_status rescued = wi_rescue_behind(mapped, extent, more, busy);
    return rescued == WEIR_ERR_NO_ROOM ? status : rescued;
}

/* Puts memory behind the extent and gives it `more` bytes of it. WEIR_ERR_OUT_OF_MEMORY: there are too few handles. */
static weir_status extend(wi_mapped *mapped, wi_extent *extent, uint64_t more)
{
    for (unsigned waits = 0;;) {
        weir_status status = wi_extent_pool_reserve(&mapped->shared.pool, WI_RECORDS_PER_CHANGE);
        if (status != WEIR_OK)
            return status;
        wi_extent *busy = wi_ordered_take_behind(extent, more);
        if (!busy)
            status = grow_behind(mapped, extent, more, &busy);
        if (status == WEIR_OK) {
            extent->block.previous = busy->last;
            wi_space_give(extent->space, busy, extent, more);
        }
        bool again = status == WEIR_ERR_BUSY || status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY;
        if (!again || !wi_handles_settle(mapped, status == WEIR_ERR_BUSY, &waits))
            return status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_BUSY ? wi_ordered_no_room(extent) : status;
    }
}

static weir_status grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait, wi_shortage *shortage)
{
    wi_mapped *mapped = of(resource);
    uint64_t charged = charge(resource, block->before + bytes + block->after);
    weir_status status = WEIR_OK;
    (void)may_wait;
    (void)shortage;
    lock(mapped);
    if (charged > block->charged)
        status = extend(mapped, wi_extent_of(block), charged - block->charged);
    if (status == WEIR_OK)
        wi_ordered_grown(resource, block, bytes, charged);
    mapped->device_has = UINT64_MAX;
    unlock(mapped);
    return status;
}

/* Giving back, looking, ending ------------------------------------------------------------------------------------- */

static uint64_t trim(wi_resource *resource, uint64_t keep)
{
    wi_mapped *mapped = of(resource);
    lock(mapped);
    (void)wi_lanes_renew(&mapped->lanes);
    uint64_t released = wi_handles_trim(mapped, keep);
    unlock(mapped);
    return released;
}

static uint64_t shed(wi_resource *resource, bool if_squeezed)
{
    wi_mapped *mapped = of(resource);
    lock(mapped);
    (void)wi_lanes_renew(&mapped->lanes);
    mapped->squeezed |= !if_squeezed;
    uint64_t released = relax(mapped);
    unlock(mapped);
    return released;
}

static void look(wi_resource *resource, weir_class memory_class, uint64_t charged, uint64_t alignment,
                 wi_shortage *shortage)
{
    wi_mapped *mapped = of(resource);
    lock(mapped);
    (void)memory_class; /* at last the request goes into any space */
    wi_place_look(mapped, WI_ANY_LANE, charged, alignment, shortage);
    unlock(mapped);
}

static bool owns(wi_resource *resource, const void *pointer)
{
    return space_of(of(resource), pointer) != NULL;
}

static wi_block *find(wi_resource *resource, const void *pointer, bool *freed)
{
    wi_space *space = space_of(of(resource), pointer);
    wi_extent *extent = wi_space_find(space, (uint64_t)((const char *)pointer - space->base), freed);
    return extent ? &extent->block : NULL;
}

static wi_block *peek(wi_resource *resource, const void *pointer)
{
    wi_space *space = space_of(of(resource), pointer);
    wi_extent *extent = space ? wi_space_peek(space, (uint64_t)((const char *)pointer - space->base)) : NULL;
    return extent ? &extent->block : NULL;
}

static void each(wi_resource *resource, void (*fn)(wi_block *block, void *user), void *user)
{
    for (int side = 0; side < WI_SIDES; side++)
        for (wi_extent *e = of(resource)->sides[side].first; e; e = e->next)
            if (e->kind == WI_USED && wi_block_is_charged(&e->block))
                fn(&e->block, user);
}

static void destroy(wi_resource *resource)
{
    wi_mapped *mapped = of(resource);
    wi_lanes_drain(&mapped->lanes);
    (void)trim(resource, 0);
    for (int side = 0; side < WI_SIDES; side++) {
        char *base = mapped->sides[side].base;
        wi_space_destroy(&mapped->sides[side]);
        if (base)
            resource->driver->unreserve(resource->device, base, mapped->range_bytes);
    }
    wi_lanes_destroy(&mapped->lanes);
    wi_extent_pool_destroy(&mapped->shared.pool);
    pthread_cond_destroy(&mapped->settled);
    pthread_mutex_destroy(&mapped->resource.lock);
    free(mapped);
}

static const wi_resource_table table = {
    .name = "mapped",
    .places_apart = true,
    .features = WEIR_FEATURE_TRACKS_USES | WEIR_FEATURE_ZEROES | WEIR_FEATURE_SHRINKS | WEIR_FEATURE_GROWS |
                WEIR_FEATURE_MOVES_MEMORY | WEIR_FEATURE_STREAM_ORDERED | WEIR_FEATURE_CAPTURABLE | WEIR_FEATURE_TRIMS,
    WI_ORDERED,
    .measure = measure,
    .allocate = allocate,
    .grow = grow,
    .destroy = destroy,
    .charge = charge,
    .find = find,
    .peek = peek,
    .each = each,
    .walk = wi_mapped_walk,
    .owns = owns,
    .trim = trim,
    .shed = shed,
    .look = look,
    .check = check,
};

/* Addresses cost nothing but the tables for them: four times the device per side leaves room for large blocks between
 * scattered small ones. A system that limits addresses gets less, or what the option `range` says. */
static weir_status reserve_sides(wi_mapped *mapped)
{
    wi_resource *r = &mapped->resource;
    uint64_t available, total, bytes = wi_round_up(wi_min(wi_option_range(), 4096 * WI_GIB), WI_GIB);
    weir_status status = r->driver->memory(r->device, &available, &total);
    if (status != WEIR_OK)
        return status;
    if (bytes == 0)
        for (bytes = WI_GIB; bytes < 4 * total && bytes < 4096 * WI_GIB;)
            bytes *= 2;
    for (int side = 0; side < WI_SIDES; side++) {
        void *base = NULL;
        while ((status = r->driver->reserve(r->device, bytes, &base)) != WEIR_OK && side == 0 && bytes > total)
            bytes /= 2;
        if (status == WEIR_OK)
            status = wi_space_init(&mapped->sides[side], (unsigned)side, base, bytes, mapped->granule, &mapped->shared);
        if (status != WEIR_OK) {
            if (base)
                r->driver->unreserve(r->device, base, bytes);
            return status;
        }
        mapped->range_bytes = bytes;
    }
    return WEIR_OK;
}

weir_status wi_mapped_create(const wi_driver *driver, wi_device *device, wi_resource **out)
{
    wi_mapped *mapped = calloc(1, sizeof *mapped);
    if (!mapped)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a resource");
    wi_resource_init(&mapped->resource, &table, driver, device, NULL);
    mapped->granule = mapped->resource.granule = driver->granule(device);
    wi_lanes_init(&mapped->lanes, &mapped->resource, &mapped->shared.lanes);
    mapped->resource.idle = &mapped->shared.idle;
    mapped->device_has = UINT64_MAX;
    wi_growth_begin(mapped);
    wi_patience_begin(&mapped->patience);
    pthread_cond_init(&mapped->settled, NULL);
    weir_status status = reserve_sides(mapped);
    if (status != WEIR_OK) {
        destroy(&mapped->resource);
        return status;
    }
    *out = &mapped->resource;
    return WEIR_OK;
}
