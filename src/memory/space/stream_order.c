#include "memory/space/stream_order.h"
#include "base/plant.h"
#include "memory/space/stream_uses.h"

/* Blocks ----------------------------------------------------------------------------------------------------------- */

/* What is captured runs who knows when, and where. */
const wi_stream_list *wi_ordered_list(const wi_resource *resource, const wi_placement *p)
{
    return p->captured ? NULL : wi_stream_lists_find(resource->stream_lists, p->stream);
}

/* Who had the memory before that is taken as it lies. */
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
    wi_block made = wi_block_make(p, region->base + extent->offset, extent->last);
    made.ordered = p->ordered;
    made.lent = ordered_lenders(extent, p);
    made.slack = extent->bytes > p->charged;
    wi_block_set(&extent->block, &made);
    return &extent->block;
}

static void ordered_unuse(wi_block *block, uint64_t last, wi_stream_list *stream_list)
{
    wi_extent *extent = wi_extent_of(block);
    wi_region_unuse(extent->region, extent, last, stream_list);
}

void wi_ordered_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    wi_resource_lock(resource);
    wi_stream_list *stream_list = wi_stream_lists_find(resource->stream_lists, p->stream);
    if (!stream_list && p->ordered) /* whose stream has ended meanwhile */
        stream_list = &resource->stream_lists->late;
    if (stream_list) /* it may have been another's */
        wi_stream_lists_returned(stream_list, block->charged);
    ordered_unuse(block, block->previous, stream_list);
    wi_resource_unlock(resource);
}

void wi_ordered_publish(wi_resource *resource, wi_block *block)
{
    wi_resource_lock(resource);
    wi_ledger_commit(resource->ledger, block);
    wi_resource_unlock(resource);
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

static void free_for(wi_block *block, wi_stream_list *stream_list)
{
    ordered_unuse(block, block->untouched ? block->previous : wi_account_owner(block->account), stream_list);
}

bool wi_ordered_follow(wi_resource *resource, weir_stream stream, void *native)
{
    wi_resource_lock(resource);
    bool there = wi_stream_lists_get(resource->stream_lists, stream, native) != NULL;
    wi_resource_unlock(resource);
    return there;
}

static void free_in_order(wi_stream_lists *stream_lists, wi_block *block, weir_stream stream, void *native)
{
    wi_stream_list *stream_list =
        wi_stream_lists_get_late(stream_lists, stream, native); /* it was made before, and may be gone */
    uint64_t bytes = wi_extent_of(block)->bytes;
    free_for(block, stream_list);
    wi_stream_lists_freed(stream_lists, stream_list, bytes, 1);
}

/* In one step with the ledger: whoever sees the bytes there finds them here too. The ledger first: bytes that it calls live
 * or pending must still be there. */
bool wi_ordered_retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    bool planted = wi_plant == WI_PLANT_UNMAP_UNDER_USE;
    if (planted)
        past = WI_PASSED;
    wi_resource_lock(resource);
    wi_ledger_retire(resource->ledger, block, stream, past);
    wi_block_turn(block, WI_PENDING);
    if (past == WI_PASSED)
        free_for(block, NULL);
    else if (past == WI_IN_ORDER)
        free_in_order(resource->stream_lists, block, stream, native);
    wi_resource_unlock(resource);
    if (planted)
        (void)resource->table->trim(resource, 0);
    return past != WI_UNPASSED;
}

enum { RETIRED_AT_ONCE = 32 };

void wi_ordered_retire_list(wi_resource *resource, wi_block *list, weir_stream stream, void *native)
{
    wi_stream_lists *stream_lists = resource->stream_lists;
    while (list) {
        size_t count = 0;
        uint64_t bytes = 0;
        for (const wi_block *block = list; block && count < RETIRED_AT_ONCE; block = block->pending_next)
            count++;
        wi_resource_lock(resource);
        wi_ledger_retire_list(resource->ledger, list, count, stream);
        wi_stream_list *stream_list = wi_stream_lists_get_late(stream_lists, stream, native);
        for (size_t i = 0; i < count; i++) {
            wi_block *block = list;
            list = block->pending_next;
            bytes += wi_extent_of(block)->bytes;
            wi_block_turn(block, WI_PENDING);
            free_for(block, stream_list);
        }
        wi_stream_lists_freed(stream_lists, stream_list, bytes, count);
        wi_resource_unlock(resource);
    }
}

weir_status wi_ordered_release(wi_resource *resource, wi_block *block)
{
    wi_resource_lock(resource);
    wi_ledger_reap(resource->ledger, block);
    free_for(block, NULL);
    wi_resource_unlock(resource);
    return WEIR_OK;
}

/* Passing ---------------------------------------------------------------------------------------------------------- */

uint64_t wi_ordered_pass(wi_resource *resource, uint64_t *left)
{
    wi_resource_lock(resource);
    uint64_t bytes = wi_stream_lists_renew(resource->stream_lists);
    *left = wi_stream_lists_bytes(resource->stream_lists);
    wi_resource_unlock(resource);
    return bytes;
}

uint64_t wi_ordered_released(wi_resource *resource)
{
    wi_resource_lock(resource);
    uint64_t bytes = resource->stream_lists->released;
    wi_resource_unlock(resource);
    return bytes;
}

bool wi_ordered_await(wi_resource *resource, uint64_t deadline)
{
    wi_event oldest;
    wi_resource_lock(resource);
    bool any = wi_stream_lists_oldest(resource->stream_lists, WEIR_STREAM_HOST, &oldest);
    wi_resource_unlock(resource);
    return any && resource->driver->wait(resource->device, oldest, deadline) == WEIR_OK;
}

void wi_ordered_forget(wi_resource *resource, weir_stream stream)
{
    wi_resource_lock(resource);
    (void)wi_stream_lists_forget(resource->stream_lists, stream);
    wi_resource_unlock(resource);
}

bool wi_ordered_bound(wi_resource *resource)
{
    wi_resource_lock(resource);
    bool bound = wi_stream_lists_bound(resource->stream_lists);
    wi_resource_unlock(resource);
    return bound;
}

void wi_ordered_abandon(wi_resource *resource, weir_stream stream)
{
    wi_resource_lock(resource);
    wi_stream_lists_abandon(resource->stream_lists, stream);
    wi_resource_unlock(resource);
}

/* Resizing --------------------------------------------------------------------------------------------------------- */

/* What is charged to the used extent from `charged` on, as a block of its own. */
static wi_block *cut_tail(wi_extent *extent, uint64_t charged, wi_stream_uses *stream_uses)
{
    wi_region *region = extent->region;
    wi_extent *tail = wi_region_cut(region, extent, extent->offset + charged);
    wi_block cut = wi_block_copy(&extent->block);
    cut.pointer = region->base + tail->offset;
    cut.bytes = cut.charged = extent->block.charged - charged;
    cut.before = cut.after = 0;
    wi_block_turn(&cut, WI_PENDING);
    cut.stream_uses = stream_uses;
    wi_block_set(&tail->block, &cut);
    wi_region_set_slot(region, tail->offset, tail->index + 1);
    wi_region_note_start(region, tail->offset, true);
    return &tail->block;
}

/* A tail that is not worth an extent stays behind the block, and is nobody's but the block's. */
weir_status wi_ordered_shrink(wi_resource *resource, wi_block *block, uint64_t bytes, void *native, wi_block **tail)
{
    wi_extent *extent = wi_extent_of(block);
    uint64_t charged = resource->table->charge(resource, block->before + bytes + block->after);
    wi_stream_uses *stream_uses = NULL;
    (void)native;
    *tail = NULL;
    wi_resource_lock(resource);
    bool less = charged < block->charged, cut = less && extent->bytes - charged > extent->region->most_slack;
    weir_status status = wi_extent_pool_reserve(&extent->region->shared->pool, WI_RECORDS_PER_CHANGE);
    if (status == WEIR_OK && cut)
        status = wi_stream_uses_copy(block->stream_uses, &stream_uses);
    if (status == WEIR_OK) {
        wi_ledger_resize(resource->ledger, block, bytes, charged, !cut);
        if (cut) {
            *tail = cut_tail(extent, charged, stream_uses);
        } else if (less) {
            extent->last = wi_owners_mix(extent->last, wi_account_owner(block->account));
            block->shrunk = true;
        }
        wi_block_measure(block, bytes, charged);
    }
    wi_resource_unlock(resource);
    return status;
}

/* Where something stays behind the first one, they do not. */
bool wi_ordered_join(wi_resource *resource, wi_block *block, wi_block *next)
{
    wi_extent *extent = wi_extent_of(block);
    wi_resource_lock(resource);
    bool adjoin = extent->next == wi_extent_of(next) && extent->bytes == block->charged;
    if (adjoin) {
        wi_block_measure(block, block->charged + next->charged, block->charged + next->charged);
        wi_region_unite(extent->region, extent);
    }
    wi_resource_unlock(resource);
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
                         "the block at %p cannot grow: a block of %s stands behind it; allocate anew and "
                         "copy",
                         extent->block.pointer, next->block.account ? next->block.account->name : "another");
    return weir_fail(WEIR_ERR_NO_ROOM, "the block at %p cannot grow by so much where it is; allocate anew and copy",
                     extent->block.pointer);
}

void wi_ordered_grown(wi_resource *resource, wi_block *block, uint64_t bytes, uint64_t charged)
{
    wi_ledger_resize(resource->ledger, block, bytes, charged, true);
    wi_block_measure(block, bytes, charged);
}
