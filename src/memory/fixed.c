/* The resource "blocks": runs of fixed blocks over one extent.
 *
 * The extent is taken whole at the first allocation, because only then is there a ledger to say how much there may be, and
 * goes back whole when nothing is in it. Its addresses are reserved from the start: whose pointer one is, and which block it
 * lies in, is arithmetic.
 *
 * Laws: a place is free in the bitmap if and only if it has no run; a run has all of its places. */
#include "memory/fixed.h"
#include "base/options.h"
#include "base/system.h"
#include "memory/fixed_extent.h"
#include "memory/layout.h"
#include "memory/marks.h"

#include <stdio.h>

static wi_fixed *of(wi_resource *resource)
{
    return (wi_fixed *)resource;
}

static wi_fixed_run *run_of(wi_block *block)
{
    return (wi_fixed_run *)block;
}

/* Runs ------------------------------------------------------------------------------------------------------------- */

static uint64_t charge(wi_resource *resource, uint64_t bytes)
{
    return wi_round_up(bytes, of(resource)->block_bytes);
}

static void measure(wi_resource *resource, wi_placement *p)
{
    p->charged = charge(resource, p->before + p->bytes + p->after);
}

static char *address_of(const wi_fixed *f, uint32_t index)
{
    return f->base + index * f->block_bytes;
}

/* The places become the run's; the answer is whose bytes they held. */
static uint64_t use(wi_fixed *f, wi_fixed_run *user, uint32_t first, uint32_t count)
{
    uint64_t previous = f->places[first].owner;
    for (uint32_t i = first; i < first + count; i++) {
        wi_fixed_place *at = &f->places[i];
        if (at->owner != previous)
            previous = WI_MIXED | ((previous | at->owner) & WI_SECRET);
        at->run = user;
        at->freed = 0;
    }
    return previous;
}

/* The run's places are free, and the record goes. owner NULL: they hold what they held before. */
static void unuse(wi_fixed *f, wi_fixed_run *r, const uint64_t *owner)
{
    for (uint32_t i = r->first; i < r->first + r->count; i++) {
        f->places[i].run = NULL;
        if (owner)
            f->places[i].owner = *owner;
    }
    wi_bitmap_give(&f->free, r->first, r->count);
    wi_marks_free(r->block.marks);
    free(r);
}

/* Remembers that a block was freed, and whose. */
static void end_block(wi_fixed *f, wi_block *block)
{
    uint64_t owner = wi_account_owner(block->account);
    uint64_t offset = (uint64_t)((char *)block->pointer - f->base);
    f->places[offset / f->block_bytes].freed = 1 + (uint32_t)(offset % f->block_bytes / WI_UNIT);
    f->secret |= owner & WI_SECRET;
    unuse(f, run_of(block), block->untouched ? NULL : &owner);
}

/* A run whose start is aligned beyond a block: the first one that fits. */
static uint32_t take_aligned(wi_fixed *f, uint32_t count, uint32_t step)
{
    for (uint64_t first = 0; first + count <= f->count; first += step)
        if (wi_bitmap_take_at(&f->free, (uint32_t)first, count))
            return (uint32_t)first;
    return WI_BITMAP_NONE;
}

static uint32_t take_places(wi_fixed *f, uint64_t count, uint64_t alignment)
{
    if (count > f->free.free)
        return WI_BITMAP_NONE;
    if (alignment > f->block_bytes)
        return take_aligned(f, (uint32_t)count, (uint32_t)(alignment / f->block_bytes));
    return wi_bitmap_take_run(&f->free, (uint32_t)count);
}

/* What there is in one piece, and what would have to be held for the request. With the lock held. */
static void look_around(wi_fixed *f, uint64_t charged, wi_shortage *shortage)
{
    wi_standing now = wi_ledger_look(f->resource.ledger);
    uint64_t most = wi_min(now.budget - now.held, f->range_bytes) & ~(wi_fixed_step_of(f) - 1);
    shortage->largest = f->count ? wi_bitmap_longest(&f->free) * f->block_bytes : most;
    shortage->held = now.held;
    if (charged > shortage->largest)
        shortage->held += wi_round_up(f->count ? charged : wi_max(charged, wi_fixed_step_of(f)), wi_fixed_step_of(f));
}

static weir_status place_run(wi_fixed *f, wi_placement *p, wi_fixed_run *new)
{
    if (!wi_fixed_wait_settled(f))
        return WEIR_ERR_NO_ROOM;
    bool small = p->charged > f->count * f->block_bytes && p->charged <= f->range_bytes;
    if (f->count > 0 && small && f->free.free == f->count) /* the budget may leave more by now */
        (void)wi_fixed_give_extent(f);
    p->hit = f->count > 0;
    weir_status status = f->count > 0 ? WEIR_OK : wi_fixed_take_extent(f);
    if (status != WEIR_OK)
        return status;
    uint32_t first = take_places(f, p->charged / f->block_bytes, p->alignment);
    if (first == WI_BITMAP_NONE)
        return WEIR_ERR_NO_ROOM;
    new->first = first;
    new->count = (uint32_t)(p->charged / f->block_bytes);
    uint64_t previous = use(f, new, new->first, new->count);
    wi_climbed(p, p->hit ? WEIR_RUNG_FIT : WEIR_RUNG_CREATE);
    new->block = wi_block_make(p, address_of(f, first), previous);
    return WEIR_OK;
}

static weir_status allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    wi_fixed *f = of(resource);
    wi_fixed_run *new = calloc(1, sizeof *new);
    if (!new)
        return wi_fixed_no_records();
    wi_resource_lock(&f->resource);
    weir_status status = place_run(f, p, new);
    if (status == WEIR_OK) {
        *out = &new->block;
    } else if (status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY) {
        shortage->cause = status == WEIR_ERR_OUT_OF_MEMORY ? WEIR_CAUSE_OTHER_PROCESS
                          : p->charged > f->range_bytes    ? WEIR_CAUSE_ADDRESS_RANGE
                                                           : WEIR_CAUSE_FRAGMENTATION;
        look_around(f, p->charged, shortage);
        status = WEIR_ERR_OUT_OF_MEMORY;
    }
    wi_resource_unlock(&f->resource);
    if (status != WEIR_OK)
        free(new);
    return status;
}

static void discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    wi_fixed *f = of(resource);
    (void)p;
    wi_resource_lock(&f->resource);
    unuse(f, run_of(block), NULL);
    wi_resource_unlock(&f->resource);
}

static void publish(wi_resource *resource, wi_block *block)
{
    wi_fixed *f = of(resource);
    wi_resource_lock(&f->resource);
    wi_ledger_settle(resource->ledger, block);
    wi_resource_unlock(&f->resource);
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

static bool retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    wi_fixed *f = of(resource);
    wi_resource_lock(&f->resource);
    (void)native;
    wi_ledger_retire(resource->ledger, block, stream, past);
    wi_block_turn(block, WI_PENDING);
    if (past == WI_PASSED)
        end_block(f, block);
    wi_resource_unlock(&f->resource);
    return past == WI_PASSED;
}

static weir_status release(wi_resource *resource, wi_block *block)
{
    wi_fixed *f = of(resource);
    wi_resource_lock(&f->resource);
    wi_ledger_reap(resource->ledger, block);
    end_block(f, block);
    wi_resource_unlock(&f->resource);
    return WEIR_OK;
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

/* The places of the run from the `keep`th on become a pending block of their own. */
static weir_status cut_tail(wi_fixed *f, wi_fixed_run *r, uint32_t keep, wi_block **out)
{
    wi_fixed_run *tail = malloc(sizeof *tail);
    wi_marks *marks = NULL;
    if (!tail)
        return wi_fixed_no_records();
    weir_status status = wi_marks_copy(r->block.marks, &marks);
    if (status != WEIR_OK) {
        free(tail);
        return status;
    }
    *tail = (wi_fixed_run){.block = r->block, .first = r->first + keep, .count = r->count - keep};
    tail->block.pointer = address_of(f, tail->first);
    tail->block.bytes = tail->block.charged = tail->count * f->block_bytes;
    tail->block.before = tail->block.after = 0;
    wi_block_turn(&tail->block, WI_PENDING);
    tail->block.marks = marks;
    for (uint32_t i = tail->first; i < tail->first + tail->count; i++)
        f->places[i].run = tail;
    r->count = keep;
    *out = &tail->block;
    return WEIR_OK;
}

static weir_status shrink(wi_resource *resource, wi_block *block, uint64_t bytes, void *native, wi_block **tail)
{
    wi_fixed *f = of(resource);
    wi_fixed_run *r = run_of(block);
    uint64_t charged = charge(resource, block->before + bytes + block->after);
    uint32_t keep = (uint32_t)(charged / f->block_bytes);
    weir_status status = WEIR_OK;
    (void)native;
    *tail = NULL;
    wi_resource_lock(&f->resource);
    if (keep < r->count)
        status = cut_tail(f, r, keep, tail);
    if (status == WEIR_OK) {
        wi_ledger_resize(resource->ledger, block, bytes, charged, false);
        block->bytes = bytes;
        block->charged = charged;
    }
    wi_resource_unlock(&f->resource);
    return status;
}

static bool join(wi_resource *resource, wi_block *block, wi_block *next)
{
    wi_fixed *f = of(resource);
    wi_fixed_run *r = run_of(block), *more = run_of(next);
    wi_resource_lock(resource);
    bool adjoin = r->first + r->count == more->first;
    for (uint32_t i = more->first; adjoin && i < more->first + more->count; i++)
        f->places[i].run = r;
    if (adjoin) {
        f->places[more->first].freed = 1; /* a block was, at its first unit */
        r->count += more->count;
        block->bytes = block->charged = r->count * f->block_bytes;
        wi_marks_free(next->marks);
        free(more);
    }
    wi_resource_unlock(resource);
    return adjoin;
}

static weir_status no_room(const wi_fixed *f, const wi_fixed_run *r, uint32_t more)
{
    for (uint32_t i = r->first + r->count; i < f->count && i < r->first + r->count + more; i++)
        if (f->places[i].run)
            return weir_fail(WEIR_ERR_NO_ROOM,
                             "the block at %p cannot grow: a block of %s stands behind it; allocate anew and copy",
                             r->block.pointer, f->places[i].run->block.account->name);
    return weir_fail(WEIR_ERR_NO_ROOM,
                     "the block at %p cannot grow by so much: its extent ends; allocate anew and copy",
                     r->block.pointer);
}

static weir_status grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait, wi_shortage *shortage)
{
    wi_fixed *f = of(resource);
    wi_fixed_run *r = run_of(block);
    uint64_t charged = charge(resource, block->before + bytes + block->after);
    uint64_t more = charged / f->block_bytes - r->count;
    weir_status status = WEIR_OK;
    (void)may_wait, (void)shortage;
    wi_resource_lock(&f->resource);
    uint32_t end = r->first + r->count;
    if (more > f->count - end || !wi_bitmap_take_at(&f->free, end, (uint32_t)more))
        status = no_room(f, r, (uint32_t)wi_min(more, f->count));
    if (status == WEIR_OK) {
        block->previous = use(f, r, end, (uint32_t)more);
        r->count += (uint32_t)more;
        wi_ledger_resize(resource->ledger, block, bytes, charged, true);
        block->bytes = bytes;
        block->charged = charged;
    }
    wi_resource_unlock(&f->resource);
    return status;
}

/* Giving back, looking --------------------------------------------------------------------------------------------- */

/* All of it or nothing. */
static uint64_t trim(wi_resource *resource, uint64_t keep)
{
    wi_fixed *f = of(resource);
    uint64_t given = 0;
    wi_resource_lock(&f->resource);
    if (wi_fixed_wait_settled(f) && f->count > 0 && f->free.free == f->count &&
        keep < f->handle_count * resource->granule)
        given = wi_fixed_give_extent(f);
    wi_resource_unlock(&f->resource);
    return given;
}

static void look(wi_resource *resource, weir_class memory_class, uint64_t charged, uint64_t alignment,
                 wi_shortage *shortage)
{
    wi_fixed *f = of(resource);
    (void)memory_class, (void)alignment;
    wi_resource_lock(&f->resource);
    look_around(f, charged, shortage);
    wi_resource_unlock(&f->resource);
}

static bool owns(wi_resource *resource, const void *pointer)
{
    const wi_fixed *f = of(resource);
    return (uintptr_t)pointer - (uintptr_t)f->base < f->range_bytes;
}

static wi_block *find(wi_resource *resource, const void *pointer, bool *freed)
{
    wi_fixed *f = of(resource);
    uint64_t offset = (uint64_t)((const char *)pointer - f->base), index = offset / f->block_bytes;
    *freed = false;
    if (index >= f->count)
        return NULL;
    const wi_fixed_place *at = &f->places[index];
    *freed = at->freed && offset == index * f->block_bytes + (at->freed - UINT64_C(1)) * WI_UNIT;
    return at->run ? &at->run->block : NULL;
}

static void each(wi_resource *resource, void (*fn)(wi_block *block, void *user), void *user)
{
    wi_fixed *f = of(resource);
    for (uint32_t i = 0; i < f->count;) {
        wi_fixed_run *r = f->places[i].run;
        if (r && wi_block_is_charged(&r->block))
            fn(&r->block, user);
        i += r ? r->count : 1;
    }
}

static void walk(wi_resource *resource, wi_layout *layout)
{
    const wi_fixed *f = of(resource);
    if (f->count == 0)
        return;
    wi_layout_segment(layout, f->base, f->handle_count * resource->granule);
    for (uint32_t i = 0, end; i < f->count; i = end) {
        const wi_fixed_run *r = f->places[i].run;
        for (end = i + 1; end < f->count && f->places[end].run == r;)
            end++;
        uint64_t bytes = (end - i) * f->block_bytes;
        if (r)
            wi_layout_block(layout, &r->block, address_of(f, i), bytes);
        else
            wi_layout_span(layout, f->working ? WEIR_SPAN_BUSY : WEIR_SPAN_FREE, address_of(f, i), bytes);
    }
}

/* Making and ending ------------------------------------------------------------------------------------------------ */

static void describe(const wi_resource *resource, char *text, size_t capacity)
{
    const wi_fixed *f = (const wi_fixed *)resource;
    char block[24], all[24];
    wi_size_write(f->block_bytes, block, sizeof block);
    wi_size_write(f->range_bytes, all, sizeof all);
    snprintf(text, capacity, "%s, size=%s, ", block, all);
}

static void destroy(wi_resource *resource)
{
    wi_fixed *f = of(resource);
    if (f->count > 0)
        (void)trim(resource, 0);
    wi_fixed_forget_extent(f);
    if (f->base)
        resource->driver->unreserve(resource->device, f->base, f->range_bytes);
    pthread_cond_destroy(&f->settled);
    pthread_mutex_destroy(&resource->lock);
    free(f);
}

static const wi_resource_table table = {
    .name = "blocks",
    .join = join,
    .features = WEIR_FEATURE_TRACKS_USES | WEIR_FEATURE_ZEROES | WEIR_FEATURE_SHRINKS | WEIR_FEATURE_GROWS |
                WEIR_FEATURE_CAPTURABLE | WEIR_FEATURE_TRIMS,
    .measure = measure,
    .allocate = allocate,
    .discard = discard,
    .publish = publish,
    .retire = retire,
    .release = release,
    .shrink = shrink,
    .grow = grow,
    .describe = describe,
    .destroy = destroy,
    .charge = charge,
    .find = find,
    .each = each,
    .walk = walk,
    .owns = owns,
    .trim = trim,
    .look = look,
};

/* Addresses for `bytes` at most, and for as many as the device and the option `range` allow. */
static weir_status reserve(wi_fixed *f, uint64_t bytes)
{
    wi_resource *r = &f->resource;
    uint64_t available, total, range = wi_option_range();
    weir_status status = r->driver->memory(r->device, &available, &total);
    if (status != WEIR_OK)
        return status;
    if (bytes == 0)
        bytes = range ? wi_min(range, total) : total;
    bytes = wi_round_up(wi_min(bytes, UINT64_MAX / 2), wi_fixed_step_of(f));
    bytes = wi_min(bytes, (f->block_bytes * WI_BITMAP_MOST) & ~(wi_fixed_step_of(f) - 1));
    status = r->driver->reserve(r->device, bytes, (void **)&f->base);
    if (status == WEIR_OK)
        f->range_bytes = bytes;
    return status;
}

weir_status wi_fixed_create(const wi_driver *driver, wi_device *device, uint64_t block_bytes, uint64_t bytes,
                            wi_resource **out)
{
    if (!wi_power_of_two(block_bytes) || block_bytes < WI_UNIT || block_bytes > WI_GIB)
        return weir_fail(WEIR_ERR_INVALID,
                         "the resource blocks cannot have blocks of %llu bytes; their size is a power of two from %d "
                         "bytes to 1 GiB",
                         (unsigned long long)block_bytes, WI_UNIT);
    wi_fixed *f = calloc(1, sizeof *f);
    if (!f)
        return wi_fixed_no_records();
    wi_resource_init(&f->resource, &table, driver, device, NULL);
    f->resource.granule = driver->granule(device);
    f->block_bytes = block_bytes;
    pthread_cond_init(&f->settled, NULL);
    weir_status status = reserve(f, bytes);
    if (status == WEIR_OK)
        *out = &f->resource;
    else
        destroy(&f->resource);
    return status;
}

weir_status wi_fixed_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments, wi_resource **out)
{
    uint64_t block_bytes = 64 * WI_KIB, bytes = 0;
    weir_status status = wi_arguments_check(arguments, (const char *const[]){"", "size", NULL});
    if (status == WEIR_OK)
        status = wi_argument_size(arguments, "", 1, &block_bytes);
    if (status == WEIR_OK)
        status = wi_argument_size(arguments, "size", 1, &bytes);
    return status == WEIR_OK ? wi_fixed_create(driver, device, block_bytes, bytes, out) : status;
}
