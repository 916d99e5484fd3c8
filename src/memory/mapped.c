/* The resource "mapped": places blocks in free memory by best fit, gets more under the cheapest hole, and frees them when
 * the device is past them. */
#include "memory/mapped.h"
#include "memory/marks.h"
#include "base/plant.h"
#include "base/options.h"
#include "base/system.h"

static atomic_uint_fast64_t last_generation;

static wi_mapped *of(wi_resource *resource)
{
    return (wi_mapped *)resource;
}

/* The block is the first member of its extent. */
static wi_extent *extent_of(wi_block *block)
{
    return (wi_extent *)block;
}

static int side_of(weir_class memory_class)
{
    return memory_class == WEIR_WEIGHTS ? WI_LONG_LIVED : WI_SHORT_LIVED;
}

static void lock(wi_mapped *mapped)
{
    pthread_mutex_lock(&mapped->lock);
}

static void unlock(wi_mapped *mapped)
{
    for (int side = 0; side < WI_SIDES; side++)
        wi_space_check(&mapped->sides[side]);
    pthread_mutex_unlock(&mapped->lock);
}

/* Placing ---------------------------------------------------------------------------------------------------------- */

/* Makes [low, high), which consists of free memory and holes and begins in `extent`, one busy extent. */
static wi_extent *make_busy(wi_space *space, wi_extent *extent, uint64_t low, uint64_t high)
{
    if (low > extent->offset)
        extent = wi_space_cut(space, extent, low);
    for (wi_extent *e = extent; e && e->offset < high; e = extent->next) {
        if (e->offset + e->bytes > high)
            wi_space_cut(space, e, high);
        wi_space_set(space, e, WI_BUSY);
        if (e != extent)
            wi_space_merge_busy(space, extent);
    }
    return extent;
}

/* Puts memory under a place and the block into it. WEIR_NO_ROOM: there is no such place, or too few handles for it. */
static weir_status back_and_use(wi_mapped *mapped, wi_space *space, const wi_placement *p, wi_extent **out)
{
    wi_place at;
    if (!wi_place_find(space, p->charged, p->alignment, wi_mapped_at_hand(mapped, NULL), &at) &&
        !wi_place_find(space, p->charged, p->alignment, wi_mapped_obtainable(mapped), &at))
        return WEIR_NO_ROOM;
    wi_extent *busy = make_busy(space, at.extent, at.low, at.high);
    weir_status status = wi_mapped_back(mapped, busy);
    if (status == WEIR_OK)
        *out = wi_space_use(space, busy, at.start, p->charged);
    return status;
}

static weir_status find_room(wi_mapped *mapped, wi_space *space, const wi_placement *p, wi_extent **out)
{
    for (unsigned waits = 0;;) {
        weir_status status = wi_extent_pool_reserve(&mapped->pool, WI_RECORDS_PER_CHANGE);
        if (status != WEIR_OK)
            return status;
        wi_extent *extent = wi_space_best(space, p->charged, p->alignment);
        if (extent) {
            *out = wi_space_use(space, extent, wi_round_up(extent->offset, p->alignment), p->charged);
            return WEIR_OK;
        }
        status = back_and_use(mapped, space, p, out);
        if ((status != WEIR_BUSY && status != WEIR_NO_ROOM) || !wi_mapped_settle(mapped, status == WEIR_BUSY, &waits))
            return status == WEIR_BUSY ? WEIR_NO_ROOM : status;
    }
}

/* What could be had instead, and how many bytes would have to be held for `bytes`. With the lock held. */
static void look_around(wi_mapped *mapped, const wi_space *space, uint64_t bytes, uint64_t alignment,
                        wi_shortage *shortage)
{
    shortage->largest = wi_place_largest(space, wi_mapped_obtainable(mapped));
    shortage->held = wi_mapped_held_for(mapped, wi_place_handles(space, bytes, alignment));
}

static weir_status allocate(wi_resource *resource, const wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    wi_mapped *mapped = of(resource);
    wi_space *space = &mapped->sides[side_of(p->memory_class)];
    wi_extent *extent = NULL;
    lock(mapped);
    weir_status status = find_room(mapped, space, p, &extent);
    if (status == WEIR_OK) {
        extent->block = (wi_block){.pointer = space->base + extent->offset,
                                   .bytes = p->bytes,
                                   .charged = p->charged,
                                   .generation = atomic_fetch_add(&last_generation, 1) + 1,
                                   .account = p->account,
                                   .tag = p->tag,
                                   .stream = p->stream,
                                   .memory_class = p->memory_class,
                                   .state = WEIR_BLOCK_FREE}; /* until the runtime has put it back */
        extent->taken = true;
        *out = &extent->block;
    } else if (status == WEIR_NO_ROOM || status == WEIR_OUT_OF_MEMORY) {
        shortage->cause = p->charged > space->bytes - p->alignment ? WEIR_CAUSE_ADDRESS_RANGE
                          : status == WEIR_NO_ROOM                 ? WEIR_CAUSE_FRAGMENTATION
                                                                   : WEIR_CAUSE_OTHER_PROCESS;
        look_around(mapped, space, p->charged, p->alignment, shortage);
        status = WEIR_OUT_OF_MEMORY;
    }
    unlock(mapped);
    return status;
}

static void discard(wi_resource *resource, wi_block *block)
{
    wi_mapped *mapped = of(resource);
    lock(mapped);
    extent_of(block)->taken = false;
    wi_space_unuse(extent_of(block)->space, extent_of(block));
    unlock(mapped);
}

/* Taking and freeing ----------------------------------------------------------------------------------------------- */

static wi_space *space_of(wi_mapped *mapped, const void *pointer)
{
    for (int side = 0; side < WI_SIDES; side++)
        if (wi_space_holds(&mapped->sides[side], pointer))
            return &mapped->sides[side];
    return NULL;
}

static weir_status no_block_there(const void *pointer, const wi_extent *extent, bool freed, uint64_t offset)
{
    if (freed || (extent && extent->offset == offset))
        return weir_fail(WEIR_DOUBLE_FREE, "the block at %p was freed before; free a block once", pointer);
    return weir_fail(WEIR_FOREIGN, "%p lies in weir's memory, but no block begins there", pointer);
}

static weir_status check_taking(const wi_extent *extent, const wi_account *account, const void *pointer, bool freed,
                                uint64_t generation, uint64_t offset)
{
    if (!extent || extent->block.state != WEIR_BLOCK_LIVE)
        return no_block_there(pointer, extent, freed, offset);
    const wi_block *block = &extent->block;
    if (extent->offset != offset)
        return weir_fail(WEIR_INTERIOR, "%p points %llu bytes into the block of %llu bytes at %p (%s); pass its start",
                         pointer, (unsigned long long)(offset - extent->offset), (unsigned long long)block->bytes,
                         block->pointer, block->account->name);
    if (generation != 0 && generation != block->generation)
        return weir_fail(WEIR_STALE,
                         "the block at %p that generation %llu named was freed; a block of %s with generation "
                         "%llu lives there now",
                         pointer, (unsigned long long)generation, block->account->name,
                         (unsigned long long)block->generation);
    if (account && block->account != account)
        return weir_fail(WEIR_FOREIGN, "the block of %llu bytes at %p belongs to %s, not to %s",
                         (unsigned long long)block->bytes, pointer, block->account->name, account->name);
    if (extent->taken)
        return weir_fail(WEIR_BUSY, "the block at %p is being freed or resized by another thread", pointer);
    return WEIR_OK;
}

/* With the lock held. `account` NULL: anyone's. */
static weir_status find_live(wi_mapped *mapped, const wi_account *account, void *pointer, uint64_t generation,
                             wi_extent **out)
{
    wi_space *space = space_of(mapped, pointer);
    if (!space)
        return weir_fail(WEIR_FOREIGN, "%p is no memory of this runtime's; free it where it was allocated", pointer);
    uint64_t offset = (uint64_t)((char *)pointer - space->base);
    bool freed;
    *out = wi_space_find(space, offset, &freed);
    return check_taking(*out, account, pointer, freed, generation, offset);
}

static weir_status take(wi_resource *resource, const wi_account *account, void *pointer, uint64_t generation,
                        wi_block **out)
{
    wi_mapped *mapped = of(resource);
    wi_extent *extent = NULL;
    lock(mapped);
    weir_status status = find_live(mapped, account, pointer, generation, &extent);
    if (status == WEIR_OK && wi_marks_held(extent->block.marks))
        status = weir_fail(WEIR_BUSY, "the block at %p is used by a launch that has not ended; end or abort it first",
                           pointer);
    if (status == WEIR_OK) {
        extent->taken = true;
        *out = &extent->block;
    }
    unlock(mapped);
    return status;
}

static weir_status visit(wi_resource *resource, void *pointer, uint64_t generation,
                         weir_status (*fn)(wi_block *block, void *user), void *user)
{
    wi_mapped *mapped = of(resource);
    wi_extent *extent = NULL;
    lock(mapped);
    weir_status status = find_live(mapped, NULL, pointer, generation, &extent);
    if (status == WEIR_OK)
        status = fn(&extent->block, user);
    unlock(mapped);
    return status;
}

static void put_back(wi_resource *resource, wi_block *block)
{
    wi_mapped *mapped = of(resource);
    lock(mapped);
    block->state = WEIR_BLOCK_LIVE;
    extent_of(block)->taken = false;
    unlock(mapped);
}

/* In one step with the ledger: whoever sees the bytes there finds them here too. The ledger first: bytes that it calls live
 * or pending must still be mapped. */
static void free_taken(wi_resource *resource, wi_block *block, weir_stream stream, const wi_event *event)
{
    wi_mapped *mapped = of(resource);
    wi_extent *extent = extent_of(block);
    lock(mapped);
    wi_ledger_retire(resource->ledger, block, stream, event == NULL);
    extent->taken = false;
    if (event) {
        block->state = WEIR_BLOCK_PENDING;
        extent->event = *event;
        wi_list_add(&mapped->pending, extent);
    } else {
        wi_space_unuse(extent->space, extent);
    }
    unlock(mapped);
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

static weir_status shrink(wi_resource *resource, wi_block *block, uint64_t bytes, uint64_t charged,
                          const wi_event *event)
{
    wi_mapped *mapped = of(resource);
    wi_extent *extent = extent_of(block), *tail = NULL;
    wi_marks *marks = NULL;
    lock(mapped);
    weir_status status = wi_extent_pool_reserve(&mapped->pool, WI_RECORDS_PER_CHANGE);
    if (status == WEIR_OK && event)
        status = wi_marks_copy(block->marks, &marks);
    if (status == WEIR_OK && charged < block->charged) {
        tail = wi_space_cut(extent->space, extent, extent->offset + charged);
        tail->block = *block;
        tail->block.pointer = extent->space->base + tail->offset;
        tail->block.bytes = tail->block.charged = tail->bytes;
        tail->block.state = WEIR_BLOCK_PENDING;
        tail->block.marks = marks;
        marks = NULL;
        extent->space->slots[tail->offset / WI_UNIT] = tail->index + 1;
        extent->space->starts[tail->offset / mapped->granule]++;
    }
    if (status == WEIR_OK) {
        wi_ledger_resize(resource->ledger, block, bytes, charged, event == NULL);
        block->bytes = bytes;
        block->charged = charged;
    }
    if (tail && event) {
        tail->event = *event;
        wi_list_add(&mapped->pending, tail);
    } else if (tail) {
        wi_space_unuse(tail->space, tail);
    }
    unlock(mapped);
    wi_marks_free(marks);
    return status;
}

static weir_status no_room(const wi_extent *extent)
{
    const wi_extent *next = extent->next;
    if (next && next->kind == WI_USED)
        return weir_fail(WEIR_NO_ROOM,
                         "the block at %p cannot grow: a block of %s stands behind it; allocate anew and "
                         "copy",
                         extent->block.pointer, next->block.account ? next->block.account->name : "another");
    return weir_fail(WEIR_NO_ROOM, "the block at %p cannot grow by so much where it is; allocate anew and copy",
                     extent->block.pointer);
}

/* Puts memory behind the extent and gives it `more` bytes of it. WEIR_OUT_OF_MEMORY: there are too few handles. */
static weir_status extend(wi_mapped *mapped, wi_extent *extent, uint64_t more)
{
    wi_place at;
    for (unsigned waits = 0;;) {
        weir_status status = wi_extent_pool_reserve(&mapped->pool, WI_RECORDS_PER_CHANGE);
        if (status != WEIR_OK)
            return status;
        bool there = wi_place_behind(extent->space, extent, more, &at), tried = false;
        if (there && at.whole <= wi_mapped_obtainable(mapped)) {
            tried = true;
            wi_extent *busy = make_busy(extent->space, at.extent, at.low, at.high);
            status = wi_mapped_back(mapped, busy);
            if (status == WEIR_OK)
                wi_space_give(extent->space, busy, extent, more);
            if (status != WEIR_BUSY)
                return status;
        }
        if (!wi_mapped_settle(mapped, tried, &waits))
            return there ? WEIR_OUT_OF_MEMORY : no_room(extent);
    }
}

static weir_status grow(wi_resource *resource, wi_block *block, uint64_t bytes, uint64_t charged)
{
    wi_mapped *mapped = of(resource);
    lock(mapped);
    weir_status status = extend(mapped, extent_of(block), charged - block->charged);
    if (status == WEIR_OK) {
        wi_ledger_resize(resource->ledger, block, bytes, charged, true);
        block->bytes = bytes;
        block->charged = charged;
    }
    unlock(mapped);
    return status;
}

/* Pending blocks --------------------------------------------------------------------------------------------------- */

/* Is the device past the free and past every declared use? If not, *waiting is one point that it is not past. Never
 * blocks. */
static bool is_past(const wi_resource *resource, const wi_extent *extent, wi_event *waiting)
{
    *waiting = extent->event;
    return resource->driver->passed(resource->device, extent->event) &&
           wi_marks_passed(extent->block.marks, resource->driver, resource->device, waiting);
}

static uint64_t reap(wi_resource *resource)
{
    wi_mapped *mapped = of(resource);
    uint64_t freed = 0;
    wi_event ignored;
    lock(mapped);
    for (wi_extent *e = mapped->pending.first, *next; e; e = next) {
        next = e->list_next;
        if (!is_past(resource, e, &ignored) && wi_plant != WI_PLANT_EARLY_REUSE)
            continue;
        wi_list_remove(&mapped->pending, e);
        freed += e->bytes;
        wi_ledger_reap(resource->ledger, &e->block);
        wi_space_unuse(e->space, e);
    }
    unlock(mapped);
    return freed;
}

static bool wait_oldest(wi_resource *resource, const wi_account *account, uint64_t deadline)
{
    wi_mapped *mapped = of(resource);
    wi_event event;
    bool found = false, past = true;
    lock(mapped);
    for (const wi_extent *e = mapped->pending.first; e && !found; e = e->list_next)
        if (!account || e->block.account == account) {
            past = is_past(resource, e, &event);
            found = true;
        }
    unlock(mapped);
    if (!past && resource->driver->wait(resource->device, event, deadline) != WEIR_OK)
        return false; /* asking again would be asking for ever */
    return found;
}

/* Giving back, looking, ending ------------------------------------------------------------------------------------- */

static uint64_t trim(wi_resource *resource, uint64_t keep)
{
    wi_mapped *mapped = of(resource);
    uint64_t released = 0;
    lock(mapped);
    for (;;) {
        uint64_t spare = mapped->spare_count * mapped->granule, there = spare;
        for (int side = 0; side < WI_SIDES; side++)
            there += mapped->sides[side].free_bytes;
        if (there <= keep)
            break;
        uint64_t excess = there - keep;
        uint64_t given = wi_mapped_destroy_spare(mapped, spare - wi_min(spare, wi_round_up(excess, mapped->granule)));
        size_t moved = 0;
        released += given;
        if (given == 0)
            (void)wi_mapped_unmap_free(mapped, (excess + mapped->granule - 1) / mapped->granule, &moved);
        if (given == 0 && moved == 0)
            break;
    }
    unlock(mapped);
    return released;
}

static void look(wi_resource *resource, weir_class memory_class, uint64_t charged, uint64_t alignment,
                 wi_shortage *shortage)
{
    wi_mapped *mapped = of(resource);
    lock(mapped);
    look_around(mapped, &mapped->sides[side_of(memory_class)], charged, alignment, shortage);
    unlock(mapped);
}

static void largest_block(wi_resource *resource, const wi_account *account, wi_block *out)
{
    wi_mapped *mapped = of(resource);
    *out = (wi_block){.tag = ""};
    lock(mapped);
    for (int side = 0; side < WI_SIDES; side++)
        for (const wi_extent *e = mapped->sides[side].first; e; e = e->next)
            if (e->kind == WI_USED && e->block.account == account && e->block.state == WEIR_BLOCK_LIVE &&
                e->block.charged > out->charged)
                *out = e->block;
    unlock(mapped);
}

static bool owns(wi_resource *resource, const void *pointer)
{
    return space_of(of(resource), pointer) != NULL;
}

static void inspect(wi_resource *resource, const void *pointer, weir_block_details *out)
{
    wi_mapped *mapped = of(resource);
    wi_space *space = space_of(mapped, pointer);
    uint64_t offset = (uint64_t)((const char *)pointer - space->base);
    bool freed;
    lock(mapped);
    const wi_extent *extent = wi_space_find(space, offset, &freed);
    if (extent && extent->block.state != WEIR_BLOCK_FREE) {
        const wi_block *block = &extent->block;
        out->block = (weir_block){block->pointer, block->generation};
        out->offset = offset - extent->offset;
        out->bytes = block->bytes;
        out->charged = block->charged;
        out->client = block->account->client;
        out->memory_class = block->memory_class;
        out->state = block->state;
        out->stream = block->stream;
        memcpy(out->tag, block->tag, strlen(block->tag) + 1);
    } else {
        out->state = WEIR_BLOCK_FREE;
    }
    unlock(mapped);
}

static void destroy(wi_resource *resource)
{
    wi_mapped *mapped = of(resource);
    (void)trim(resource, 0);
    for (int side = 0; side < WI_SIDES; side++) {
        char *base = mapped->sides[side].base;
        wi_space_destroy(&mapped->sides[side]);
        if (base)
            resource->driver->unreserve(resource->device, base, mapped->range_bytes);
    }
    wi_extent_pool_destroy(&mapped->pool);
    free(mapped->spare);
    pthread_cond_destroy(&mapped->settled);
    pthread_mutex_destroy(&mapped->lock);
    free(mapped);
}

static const wi_resource_table table = {
    .name = "mapped",
    .allocate = allocate,
    .discard = discard,
    .take = take,
    .put_back = put_back,
    .visit = visit,
    .free = free_taken,
    .shrink = shrink,
    .grow = grow,
    .reap = reap,
    .wait_oldest = wait_oldest,
    .trim = trim,
    .look = look,
    .largest_block = largest_block,
    .owns = owns,
    .inspect = inspect,
    .destroy = destroy,
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
            status = wi_space_init(&mapped->sides[side], base, bytes, mapped->granule, &mapped->pool);
        if (status != WEIR_OK) {
            if (base)
                r->driver->unreserve(r->device, base, bytes);
            return status;
        }
        mapped->range_bytes = bytes;
    }
    return WEIR_OK;
}

weir_status wi_mapped_create(const wi_driver *driver, wi_device *device, wi_ledger *ledger, wi_resource **out)
{
    wi_mapped *mapped = calloc(1, sizeof *mapped);
    if (!mapped)
        return weir_fail(WEIR_SYSTEM, "no host memory for a resource");
    mapped->resource = (wi_resource){&table, driver, device, ledger};
    mapped->granule = driver->granule(device);
    pthread_mutex_init(&mapped->lock, NULL);
    pthread_cond_init(&mapped->settled, NULL);
    weir_status status = reserve_sides(mapped);
    if (status != WEIR_OK) {
        destroy(&mapped->resource);
        return status;
    }
    *out = &mapped->resource;
    return WEIR_OK;
}
