/* References to blocks of pools: a block may have several, and the last reference frees the block; copy-on-write; and
 * the points that readers have to pass before a write. */
#include "runtime/block_pool/prefix_index.h"
#include <weir/block_pool.h>

/* Checking --------------------------------------------------------------------------------------------------------- */

weir_status wi_blocks_check_list(const weir_block_pool_member *member, const uint32_t *indices, uint32_t count,
                                 const char *call)
{
    WI_ENTER();
    if (!member || !indices)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    if (count == 0)
        return weir_fail(WEIR_ERR_INVALID, "%s: no blocks of the pool %s are named", call, member->pool->tag);
    for (uint32_t k = 0; k < count; k++)
        if (indices[k] >= member->pool->count)
            return weir_fail(WEIR_ERR_INVALID, "%s: block %u is not in the pool %s, which has %u", call, indices[k],
                             member->pool->tag, member->pool->count);
    return WEIR_OK;
}

bool wi_blocks_has(const weir_block_pool_member *member, uint32_t index)
{
    const weir_block_pool *pool = member->pool;
    const wi_block_share *share = pool->shares ? &pool->shares[index] : NULL;
    return wi_blocks_is_held(pool, index) && pool->owners[index] == member->slot &&
           (!share || share->references > (share->node != NULL));
}

wi_block_fault wi_blocks_fault(const weir_block_pool_member *member, uint32_t index)
{
    const weir_block_pool *pool = member->pool;
    bool foreign = wi_blocks_is_held(pool, index) && pool->owners[index] != member->slot;
    const weir_block_pool_member *owner = foreign ? wi_blocks_owner(pool, index) : NULL;
    return (wi_block_fault){foreign ? WEIR_ERR_FOREIGN : WEIR_ERR_INVALID, index, owner ? owner->name : ""};
}

weir_status wi_blocks_report(const weir_block_pool_member *member, const wi_block_fault *fault, const char *call)
{
    const weir_block_pool *pool = member->pool;
    switch (fault->status) {
    case WEIR_OK:
        return WEIR_OK;
    case WEIR_ERR_FOREIGN:
        return weir_fail(fault->status, "%s: block %u (%zu bytes) of the pool %s is held by %s%s, not by %s", call,
                         fault->index, pool->bytes, pool->tag,
                         strcmp(fault->owner, member->name) == 0 ? "another membership of " : "", fault->owner,
                         member->name);
    case WEIR_ERR_BUSY:
        return weir_fail(fault->status,
                         "%s: block %u (%zu bytes) of the pool %s has other references, or too many streams still read "
                         "it; make it writable first",
                         call, fault->index, pool->bytes, pool->tag);
    case WEIR_ERR_CONFLICT:
        return weir_fail(fault->status,
                         "%s: block %u (%zu bytes) of the pool %s is named twice, or cached for other tokens", call,
                         fault->index, pool->bytes, pool->tag);
    default:
        return weir_fail(fault->status, "%s: %s has no reference to block %u (%zu bytes) of the pool %s", call,
                         member->name, fault->index, pool->bytes, pool->tag);
    }
}

/* Points ----------------------------------------------------------------------------------------------------------- */

bool wi_blocks_add_point(wi_block_points *points, wi_event event)
{
    for (uint32_t i = 0; i < points->count; i++)
        if (points->events[i].stream == event.stream) {
            points->events[i].sequence = wi_max(points->events[i].sequence, event.sequence);
            return true;
        }
    if (points->count == WI_BLOCK_POINTS)
        return false;
    points->events[points->count++] = event;
    return true;
}

static bool share_names(const wi_waiting *waiting, uint32_t index)
{
    for (uint32_t r = 0; r < waiting->run_count; r++)
        if (index - waiting->runs[r].first < waiting->runs[r].count)
            return true;
    return false;
}

bool wi_blocks_leaving(const weir_block_pool *pool, uint32_t index, wi_block_points *points)
{
    if (!pool->shares || pool->shares[index].leaving == 0)
        return true;
    for (const wi_waiting *head = pool->heads; head; head = head->next_head)
        for (const wi_waiting *w = head; w; w = w->next)
            if (share_names(w, index) && !wi_blocks_add_point(points, w->event))
                return false;
    return true;
}

weir_status wi_blocks_order(const weir_block_pool *pool, void *native, const wi_block_points *points)
{
    const weir_runtime *runtime = pool->runtime;
    weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < points->count && status == WEIR_OK; i++)
        if (points->events[i].stream != native)
            status = runtime->driver->order(runtime->device, native, points->events[i]);
    return status;
}

/* References ------------------------------------------------------------------------------------------------------- */

void wi_blocks_unreference(weir_block_pool_member *member, uint32_t index)
{
    weir_block_pool *pool = member->pool;
    wi_block_share *share = &pool->shares[index];
    wi_assert(share->references > 0);
    if (--share->references > 0) {
        if (share->references == 1 && share->node)
            wi_prefix_left(share->node);
        return;
    }
    wi_assert(!share->node);
    pool->held[index / 64] &= ~(UINT64_C(1) << index % 64);
    if (share->leaving > 0) {
        pool->pending++;
        member->pending++;
    } else {
        wi_bitmap_give_one(&pool->free, index);
        member->used--;
    }
}

enum { MOST_REFERENCES = INT32_MAX };

weir_status weir_block_pool_share(weir_block_pool_member *member, const uint32_t *indices, uint32_t count)
{
    weir_status status = wi_blocks_check_list(member, indices, count, "weir_block_pool_share");
    if (status != WEIR_OK)
        return status;
    weir_block_pool *pool = member->pool;
    if (!pool->shares)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "weir_block_pool_share: make the pool %s with WEIR_BLOCK_POOL_SHARED, and its blocks have "
                         "references",
                         pool->tag);
    wi_block_fault fault = {WEIR_OK, 0, ""};
    uint32_t k = 0;
    wi_blocks_lock(pool);
    for (; k < count && wi_blocks_has(member, indices[k]) && pool->shares[indices[k]].references < MOST_REFERENCES; k++)
        pool->shares[indices[k]].references++;
    if (k < count) {
        fault = wi_blocks_fault(member, indices[k]);
        fault.status = wi_blocks_has(member, indices[k]) ? WEIR_ERR_BUSY : fault.status;
        while (k-- > 0)
            pool->shares[indices[k]].references--;
    }
    wi_blocks_unlock(pool);
    return wi_blocks_report(member, &fault, "weir_block_pool_share");
}

/* Copy-on-write ---------------------------------------------------------------------------------------------------- */

/* Takes back a block whose contents could not be copied. What was queued is waited for if it cannot be ordered. */
static void share_give_back(weir_block_pool_member *member, uint32_t fresh, weir_stream stream, void *native)
{
    const weir_runtime *runtime = member->pool->runtime;
    wi_kept_detail kept;
    wi_detail_keep(&kept);
    if (weir_block_pool_free(member, &fresh, NULL, 1, 0, stream) != WEIR_OK) {
        (void)!runtime->driver->stream_synchronize(runtime->device, native);
        (void)!weir_block_pool_free(member, &fresh, NULL, 1, 0, WEIR_STREAM_HOST);
    }
    wi_detail_restore(&kept);
}

static weir_status share_copy(weir_block_pool_member *member, uint32_t index, weir_stream stream, uint32_t *out)
{
    weir_block_pool *pool = member->pool;
    weir_block_pool_view view = wi_blocks_view(pool);
    void *native = NULL;
    uint32_t fresh;
    weir_status status = WEIR_OK;
    if (stream.id != 0) /* a capture would record the copy into a graph, and it is needed now */
        status = wi_streams_resolve_now(pool->runtime, stream, "weir_block_pool_make_writable", &native);
    if (status == WEIR_OK)
        status = weir_block_pool_alloc(member, 1, 0, stream, &fresh);
    if (status != WEIR_OK)
        return status;
    status = weir_copy(pool->runtime, weir_block_pool_at(&view, fresh), weir_block_pool_at(&view, index), view.bytes,
                       stream);
    if (status == WEIR_OK)
        status = weir_block_pool_free(member, &index, NULL, 1, 0, stream);
    if (status != WEIR_OK)
        share_give_back(member, fresh, stream, native);
    else
        *out = fresh;
    return status;
}

weir_status weir_block_pool_make_writable(weir_block_pool_member *member, uint32_t index, weir_stream stream,
                                          uint32_t *out)
{
    static const char call[] = "weir_block_pool_make_writable";
    weir_status status = wi_blocks_check_list(member, out ? &index : NULL, 1, call);
    void *native;
    if (out)
        *out = WEIR_BLOCK_POOL_NONE;
    if (status == WEIR_OK)
        status = wi_streams_resolve(&member->pool->runtime->streams, stream, member->pool->runtime->name, &native);
    if (status != WEIR_OK)
        return status;
    weir_block_pool *pool = member->pool;
    wi_block_fault fault = {WEIR_OK, 0, ""};
    wi_block_points points = {.count = 0};
    bool alone = false;
    wi_blocks_lock(pool);
    if (!wi_blocks_has(member, index))
        fault = wi_blocks_fault(member, index);
    else
        alone = (!pool->shares || pool->shares[index].references == 1) && wi_blocks_leaving(pool, index, &points);
    wi_blocks_unlock(pool);
    if (fault.status != WEIR_OK)
        return wi_blocks_report(member, &fault, call);
    if (!alone)
        return share_copy(member, index, stream, out);
    status = wi_blocks_order(pool, native, &points);
    if (status == WEIR_OK)
        *out = index;
    return status;
}
