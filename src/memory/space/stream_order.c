/* Stream order: free, release, shrink and join of blocks that are extents; and taking memory of other streams behind a
 * wait. */
#include "memory/space/stream_order.h"
#include "base/probes.h"
#include "memory/away.h"

/* Blocks ----------------------------------------------------------------------------------------------------------- */

/* A capture's work runs later, on an unknown stream, so that no stream's order helps it. */
const wi_stream_list *wi_ordered_list(const wi_base *base, const wi_placement *p)
{
    return p->captured ? NULL : wi_stream_lists_find(base->stream_lists, p->stream);
}

/* Which lenders the memory has: another client, another stream. */
static uint8_t ordered_lenders(const wi_extent *extent, const wi_placement *p)
{
    uint64_t owner = extent->last & ~WI_SECRET;
    bool clients = owner != WI_CLEAN && owner != WI_MIXED && owner != p->account->serial;
    bool streams = extent->freed_on != WI_CLEAN && extent->freed_on != wi_stream_list_number(p->stream);
    return (uint8_t)((clients ? WI_LENT_CLIENT : 0) | (streams ? WI_LENT_STREAM : 0));
}

wi_block *wi_ordered_use(wi_extent *extent, uint64_t start, wi_placement *p, uint64_t slack)
{
    wi_region *region = extent->region;
    p->ordered = extent->stream_list != NULL;
    extent = wi_region_use(region, extent, start, p->charged, wi_min(slack, region->most_slack));
    wi_block *block = &extent->block;
    wi_block_begin(block, p, region->base + extent->offset, extent->last);
    wi_store(block->ordered, p->ordered);
    block->lent = ordered_lenders(extent, p);
    block->slack = extent->bytes > p->charged;
    return block;
}

/* A free extent for a request, and the block that it becomes. */
typedef struct placing {
    wi_extent *extent;
    wi_placement *placement;
    weir_block *out;
} placing;

static wi_block *ordered_make(void *user)
{
    const placing *at = user;
    uint64_t start = wi_extent_start(at->extent, at->placement->alignment);
    wi_block *block = wi_ordered_use(at->extent, start, at->placement, 0);
    *at->out = (weir_block){block->pointer, wi_block_generation(block)};
    return block;
}

bool wi_ordered_place(wi_base *base, wi_extent *extent, wi_placement *p, weir_block *out)
{
    return wi_ledger_place(base->resource.ledger, p->account, p->charged, ordered_make, &(placing){extent, p, out});
}

static void ordered_unuse(wi_block *block, uint64_t last, wi_stream_list *stream_list)
{
    wi_extent *extent = wi_extent_of(block);
    wi_region_unuse(extent->region, extent, last, stream_list);
}

void wi_ordered_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    wi_base *base = wi_base_of(resource);
    wi_base_lock(base);
    wi_stream_list *stream_list = wi_stream_lists_find(base->stream_lists, p->stream);
    if (!stream_list && p->ordered) /* the list's stream has ended */
        stream_list = &base->stream_lists->late;
    if (stream_list) /* an extent of another stream may lie there */
        wi_stream_lists_returned(stream_list, block->charged);
    ordered_unuse(block, block->previous, stream_list);
    wi_base_unlock(base);
}

void wi_ordered_publish(wi_resource *resource, wi_block *block)
{
    wi_base *base = wi_base_of(resource);
    wi_base_lock(base);
    wi_ledger_commit(resource->ledger, block);
    wi_base_unlock(base);
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

static void ordered_free(wi_block *block, wi_stream_list *stream_list)
{
    ordered_unuse(block, block->untouched ? block->previous : wi_account_owner(block->account), stream_list);
}

bool wi_ordered_follow(wi_base *base, weir_stream stream, void *native)
{
    if (wi_stream_lists_has(base->stream_lists, stream))
        return true;
    wi_base_lock(base);
    bool there = wi_stream_lists_get(base->stream_lists, stream, native) != NULL;
    wi_base_unlock(base);
    return there;
}

static void ordered_free_on(wi_stream_lists *stream_lists, wi_block *block, weir_stream stream, void *native)
{
    wi_stream_list *stream_list =
        wi_stream_lists_get_late(stream_lists, stream, native); /* the stream's list, if the stream has not ended */
    uint64_t bytes = wi_extent_of(block)->bytes;
    ordered_free(block, stream_list);
    wi_stream_lists_freed(stream_lists, stream_list, bytes, 1);
}

/* Retires a block in one step with the ledger, so that a thread that sees the bytes in the ledger also finds them in
 * the base. The ledger comes first: bytes that it counts as live or pending must still exist. */
bool wi_ordered_retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    wi_base *base = wi_base_of(resource);
    bool planted = wi_has_bug(WI_BUG_UNMAP_UNDER_USE);
    if (planted)
        past = WI_PASSED;
    wi_base_lock(base);
    if (wi_unlikely(block->away > 0)) /* no work touches it; weir/residency.h */
        past = WI_PASSED;
    wi_ledger_retire(resource->ledger, block, stream, past);
    wi_block_set_phase(block, WI_PENDING);
    if (wi_unlikely(block->away > 0))
        base->table->away->free(base, block);
    else if (past == WI_PASSED)
        ordered_free(block, NULL);
    else if (past == WI_IN_ORDER)
        ordered_free_on(base->stream_lists, block, stream, native);
    wi_base_unlock(base);
    if (planted)
        (void)base->table->trim(base, 0);
    return past != WI_UNPASSED;
}

enum { RETIRED_AT_ONCE = 32 };

void wi_ordered_retire_list(wi_base *base, wi_block *list, weir_stream stream, void *native)
{
    wi_stream_lists *stream_lists = base->stream_lists;
    while (list) {
        size_t count = 0;
        uint64_t bytes = 0;
        for (const wi_block *block = list; block && count < RETIRED_AT_ONCE; block = block->pending_next)
            count++;
        wi_base_lock(base);
        wi_ledger_retire_list(base->resource.ledger, list, count, stream);
        wi_stream_list *stream_list = wi_stream_lists_get_late(stream_lists, stream, native);
        for (size_t i = 0; i < count; i++) {
            wi_block *block = list;
            list = block->pending_next;
            bytes += wi_extent_of(block)->bytes;
            wi_block_set_phase(block, WI_PENDING);
            ordered_free(block, stream_list);
        }
        wi_stream_lists_freed(stream_lists, stream_list, bytes, count);
        wi_base_unlock(base);
    }
}

weir_status wi_ordered_release(wi_resource *resource, wi_block *block)
{
    wi_base *base = wi_base_of(resource);
    wi_base_lock(base);
    wi_ledger_reap(resource->ledger, block);
    ordered_free(block, NULL);
    wi_base_unlock(base);
    return WEIR_OK;
}

/* Passing ---------------------------------------------------------------------------------------------------------- */

uint64_t wi_ordered_pass(wi_base *base, uint64_t *left)
{
    wi_base_lock(base);
    uint64_t bytes = wi_stream_lists_renew(base->stream_lists);
    *left = wi_stream_lists_bytes(base->stream_lists);
    wi_base_unlock(base);
    return bytes;
}

uint64_t wi_ordered_released(wi_base *base)
{
    wi_base_lock(base);
    uint64_t bytes = base->stream_lists->released;
    wi_base_unlock(base);
    return bytes;
}

bool wi_ordered_await(wi_base *base, uint64_t deadline)
{
    wi_event oldest;
    wi_base_lock(base);
    bool any = wi_stream_lists_oldest(base->stream_lists, WEIR_STREAM_HOST, &oldest);
    wi_base_unlock(base);
    return any && base->resource.driver->wait(base->resource.device, oldest, deadline) == WEIR_OK;
}

void wi_ordered_forget(wi_base *base, weir_stream stream)
{
    wi_base_lock(base);
    (void)wi_stream_lists_forget(base->stream_lists, stream);
    wi_base_unlock(base);
}

bool wi_ordered_bound(wi_base *base)
{
    wi_base_lock(base);
    bool bound = wi_stream_lists_bound(base->stream_lists);
    wi_base_unlock(base);
    return bound;
}

void wi_ordered_abandon(wi_base *base, weir_stream stream)
{
    wi_base_lock(base);
    wi_stream_lists_abandon(base->stream_lists, stream);
    wi_base_unlock(base);
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

/* Makes the part of a used extent from `charged` on a block of its own. */
static wi_block *ordered_cut_tail(wi_extent *extent, uint64_t charged, wi_stream_uses *stream_uses)
{
    wi_region *region = extent->region;
    wi_extent *tail = wi_region_cut(region, extent, extent->offset + charged);
    wi_block cut = wi_block_copy(&extent->block);
    cut.pointer = region->base + tail->offset;
    cut.bytes = cut.charged = extent->block.charged - charged;
    cut.before = cut.after = 0;
    wi_block_set_phase(&cut, WI_PENDING);
    cut.stream_uses = stream_uses;
    wi_block_set(&tail->block, &cut);
    wi_region_set_slot(region, tail->offset, tail->index + 1);
    wi_region_note_start(region, tail->offset, true);
    return &tail->block;
}

/* Shrinks a block. A tail that is too small for an extent stays as slack. */
weir_status wi_ordered_shrink(wi_resource *resource, wi_block *block, uint64_t bytes, void *native, wi_block **tail)
{
    wi_base *base = wi_base_of(resource);
    wi_extent *extent = wi_extent_of(block);
    uint64_t charged = base->table->charge(base, block->before + bytes + block->after);
    wi_stream_uses *stream_uses = NULL;
    (void)native;
    *tail = NULL;
    wi_base_lock(base);
    bool less = charged < block->charged, cut = less && extent->bytes - charged > extent->region->most_slack;
    weir_status status = wi_extent_pool_reserve(&extent->region->shared->pool, WI_RECORDS_PER_CHANGE);
    if (status == WEIR_OK && cut)
        status = wi_stream_uses_copy(block->stream_uses, &stream_uses);
    if (status == WEIR_OK) {
        wi_ledger_resize(resource->ledger, block, bytes, charged, !cut);
        if (cut) {
            *tail = ordered_cut_tail(extent, charged, stream_uses);
        } else if (less) {
            extent->last = wi_owners_mix(extent->last, wi_account_owner(block->account));
            block->shrunk = true;
        }
        wi_block_measure(block, bytes, charged);
    }
    wi_base_unlock(base);
    return status;
}

/* Joins two pending blocks, if no unused bytes lie between them. */
bool wi_ordered_join(wi_base *base, wi_block *block, wi_block *next)
{
    wi_extent *extent = wi_extent_of(block);
    wi_base_lock(base);
    bool adjoin = extent->next == wi_extent_of(next) && extent->bytes == block->charged;
    if (adjoin) {
        wi_block_measure(block, block->charged + next->charged, block->charged + next->charged);
        wi_region_unite(extent->region, extent);
    }
    wi_base_unlock(base);
    return adjoin;
}

wi_extent *wi_ordered_take_behind(wi_extent *extent, uint64_t more)
{
    wi_extent *next = extent->next;
    if (!next || next->kind != WI_FREE || next->stream_list || next->bytes < more)
        return NULL;
    if (next->bytes - more > next->region->most_slack)
        wi_region_cut(next->region, next, next->offset + more);
    wi_region_set(next->region, next, WI_BUSY);
    return next;
}

weir_status wi_ordered_no_room(const wi_extent *extent)
{
    const wi_extent *next = extent->next;
    if (next && next->kind == WI_USED)
        return weir_fail(WEIR_ERR_NO_ROOM,
                         "the block at %p cannot grow: a block of %s stands behind it; allocate another one "
                         "and copy",
                         extent->block.pointer, next->block.account ? next->block.account->name : "another");
    return weir_fail(WEIR_ERR_NO_ROOM,
                     "the block at %p cannot grow by so much where it is; allocate another one and copy",
                     extent->block.pointer);
}

void wi_ordered_grown(wi_base *base, wi_block *block, uint64_t bytes, uint64_t charged)
{
    wi_ledger_resize(base->resource.ledger, block, bytes, charged, true);
    wi_block_measure(block, bytes, charged);
}

/* Behind other streams --------------------------------------------------------------------------------------------- */

/* A request that would have to wait takes memory that is free in the order of other streams. Its own stream then waits
 * for the frees there: the device loses some parallelism, the host nothing. */

/* A run of adjacent free extents; the block begins at `start`. */
typedef struct run {
    wi_extent *first;
    size_t pieces;
    uint64_t start;
} run;

static uint64_t ordered_end_of(const wi_extent *extent)
{
    return extent->offset + extent->bytes;
}

/* Finding ---------------------------------------------------------------------------------------------------------- */

static bool ordered_is_others(const wi_extent *extent, const wi_placement *p)
{
    return extent->stream_list && extent->stream_list->stream.id != p->stream.id;
}

/* Finds the smallest extent that fits among other streams' lists. */
static bool ordered_find_one(const wi_stream_lists *stream_lists, const wi_shared *shared, unsigned number,
                             const wi_placement *p, run *out)
{
    wi_extent *best = NULL;
    wi_event ignored;
    for (const wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));) {
        if (!stream_list->first || stream_list->stream.id == p->stream.id)
            continue;
        wi_extent *extent = wi_shared_best_of(shared, number, stream_list, p->charged, p->alignment);
        if (extent && (!best || extent->bytes < best->bytes) && wi_stream_lists_point(extent, &ignored))
            best = extent;
    }
    if (best)
        *out = (run){best, 1, wi_extent_start(best, p->alignment)};
    return best != NULL;
}

/* The leftmost free extent of those adjacent to this one. Free neighbours are in different lists, or would have
 * coalesced. */
static wi_extent *ordered_leftmost(wi_extent *extent)
{
    wi_extent *left = extent->previous;
    if (!left || left->kind != WI_FREE)
        return extent;
    bool first = !left->stream_list && !(left->previous && left->previous->kind == WI_FREE);
    return first ? left : NULL;
}

/* The adjacent extents from `first` on that hold the request together. False: too few, or the point of one cannot be
 * waited for. */
static bool ordered_fits_from(wi_extent *first, const wi_placement *p, run *out)
{
    wi_event ignored;
    *out = (run){0};
    for (wi_extent *e = first; e && e->kind == WI_FREE; e = e->next) {
        if (out->pieces == 0)
            *out = (run){.first = e, .start = wi_extent_start(e, p->alignment)};
        bool usable = !ordered_is_others(e, p) || wi_stream_lists_point(e, &ignored);
        out->pieces = usable && out->start < ordered_end_of(e) ? out->pieces + 1 : 0;
        if (out->pieces > 0 && out->start + p->charged <= ordered_end_of(e))
            return true;
    }
    return false;
}

/* The run with the fewest extents. */
static bool ordered_find_several(const wi_stream_lists *stream_lists, unsigned number, const wi_placement *p, run *out)
{
    bool found = false;
    run r;
    *out = (run){0};
    for (const wi_stream_list *stream_list = NULL; (stream_list = wi_stream_lists_next(stream_lists, stream_list));)
        for (wi_extent *e = stream_list->first; e; e = e->stream_next) {
            wi_extent *first = e->region->number == number ? ordered_leftmost(e) : NULL;
            if (first && ordered_fits_from(first, p, &r) && (!found || r.pieces < out->pieces)) {
                *out = r;
                found = true;
            }
        }
    return found;
}

/* Taking ----------------------------------------------------------------------------------------------------------- */

/* Makes the run busy, and cuts off what is not needed. */
static void ordered_seize(run *r, const wi_placement *p, uint64_t slack)
{
    wi_region *region = r->first->region;
    if (r->start > r->first->offset)
        r->first = wi_region_cut(region, r->first, r->start);
    wi_extent *e = r->first;
    for (size_t i = 0; i < r->pieces; i++, e = e->next) {
        if (ordered_end_of(e) > r->start + p->charged + slack)
            wi_region_cut(region, e, r->start + p->charged);
        wi_region_set(region, e, WI_BUSY);
    }
}

static void ordered_put_back(const run *r)
{
    wi_extent *e = r->first, *next;
    for (size_t i = 0; i < r->pieces; i++, e = next) {
        next = e->next;
        wi_region_set(e->region, e, WI_FREE);
        wi_region_join(e->region, e);
    }
}

/* The points to wait for, one for each stream. NULL: no host memory. */
static wi_event *ordered_points(const run *r, const wi_placement *p, size_t *count)
{
    wi_event *points = malloc(r->pieces * sizeof *points), point;
    const wi_extent *e = r->first;
    *count = 0;
    for (size_t i = 0; points && i < r->pieces; i++, e = e->next) {
        if (!ordered_is_others(e, p) || !wi_stream_lists_point(e, &point))
            continue;
        size_t k = 0;
        while (k < *count && points[k].stream != point.stream)
            k++;
        if (k == *count)
            points[(*count)++] = point;
        points[k].sequence = wi_max(points[k].sequence, point.sequence);
    }
    return points;
}

/* Makes the request's stream wait for them. The lock is released meanwhile; the run is busy. */
static weir_status ordered_wait_for(wi_base *base, const wi_placement *p, const wi_event *points, size_t count)
{
    weir_status status = WEIR_OK;
    wi_base_unlock(base);
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = base->resource.driver->order(base->resource.device, p->native, points[i]);
    wi_base_lock(base);
    return status;
}

/* Coalesces the run into one extent in the order of the request's stream. */
static wi_extent *ordered_unite(const wi_stream_lists *stream_lists, const run *r, const wi_placement *p)
{
    wi_extent *e = r->first;
    for (size_t i = 0; i < r->pieces; i++, e = e->next) {
        if (e->stream_list)
            wi_stream_lists_trace(stream_lists, e, p->stream);
        e->stream_list = NULL;
    }
    for (size_t i = 1; i < r->pieces; i++)
        wi_region_merge_busy(r->first->region, r->first);
    return r->first;
}

static wi_block *ordered_take(wi_base *base, run *r, wi_placement *p, uint64_t slack)
{
    size_t count;
    slack = wi_min(slack, r->first->region->most_slack);
    ordered_seize(r, p, slack);
    wi_event *points = ordered_points(r, p, &count);
    bool ordered = points && ordered_wait_for(base, p, points, count) == WEIR_OK;
    free(points);
    if (!ordered) {
        ordered_put_back(r);
        return NULL;
    }
    wi_climbed(p, count > 0 ? WEIR_RUNG_ORDER : WEIR_RUNG_FIT);
    wi_block *block = wi_ordered_use(ordered_unite(base->stream_lists, r, p), r->start, p, slack);
    p->ordered = true;
    wi_store(block->ordered, true);
    return block;
}

wi_block *wi_ordered_use_behind(wi_base *base, wi_shared *shared, unsigned number, wi_placement *p, uint64_t slack)
{
    run r;
    if (wi_extent_pool_reserve(&shared->pool, WI_RECORDS_PER_CHANGE) != WEIR_OK)
        return NULL;
    bool found = ordered_find_one(base->stream_lists, shared, number, p, &r) ||
                 ordered_find_several(base->stream_lists, number, p, &r);
    return found ? ordered_take(base, &r, p, slack) : NULL;
}
