/* Looking at pools: addresses, owners, statistics. */
#include "runtime/block_pool/block_pool.h"
#include <weir/block_pool.h>

static bool block_pool_sized(const void *structure, size_t size)
{
    return structure && size >= 2 * sizeof(size_t);
}

static void copy_name(char *to, size_t capacity, const char *name)
{
    size_t length = wi_min(strlen(name), capacity - 1);
    memcpy(to, name, length);
    to[length] = '\0';
}

weir_status weir_block_pool_view_info(const weir_block_pool *pool, weir_block_pool_view *out)
{
    WI_ENTER();
    if (!pool || !block_pool_sized(out, out ? out->struct_size : 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_view_info: NULL, or member struct_size is not set");
    weir_block_pool_view view = {sizeof view, pool->block.pointer, pool->bytes, pool->count};
    wi_copy_out(out, out->struct_size, &view, sizeof view);
    return WEIR_OK;
}

weir_status weir_block_pool_block_info(weir_block_pool *pool, uint32_t index, weir_block_pool_block_details *out)
{
    WI_ENTER();
    if (!pool || !block_pool_sized(out, out ? out->struct_size : 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_block_info: NULL, or member struct_size is not set");
    if (index >= pool->count)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_block_info: there is no block %u in the pool %s of %u",
                         index, pool->tag, pool->count);
    weir_block_pool_block_details details = {.struct_size = sizeof details, .index = index, .state = WEIR_BLOCK_FREE};
    details.pointer = (char *)pool->block.pointer + (size_t)index * pool->bytes;
    wi_blocks_flush(pool);
    wi_blocks_lock(pool);
    details.generation = pool->takings ? pool->takings[index] : 0;
    if (!wi_bitmap_is_free(&pool->free, index)) {
        const weir_block_pool_member *owner = wi_blocks_owner(pool, index);
        details.state = wi_blocks_is_held(pool, index) ? WEIR_BLOCK_LIVE : WEIR_BLOCK_PENDING;
        details.member = owner;
        copy_name(details.name, sizeof details.name, owner ? owner->name : "");
    }
    wi_blocks_unlock(pool);
    wi_copy_out(out, out->struct_size, &details, sizeof details);
    return WEIR_OK;
}

static weir_block_pool_member_stats stats_of(const weir_block_pool_member *m)
{
    weir_block_pool_member_stats s = {.struct_size = sizeof s,
                                      .member = m,
                                      .cap = m->cap,
                                      .held = m->used - m->pending,
                                      .pending = m->pending,
                                      .peak = m->peak,
                                      .taken = m->taken,
                                      .given = m->taken - (m->used - m->pending),
                                      .refused = atomic_load(&m->refused)};
    copy_name(s.name, sizeof s.name, m->name);
    return s;
}

weir_status weir_block_pool_info(weir_block_pool *pool, weir_block_pool_stats *out,
                                 weir_block_pool_member_stats *members, size_t capacity, size_t *count)
{
    WI_ENTER();
    if (!pool || !out || (!members && capacity > 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_info: NULL");
    size_t stride = capacity > 0 ? members[0].struct_size : sizeof *members, found = 0;
    if (!block_pool_sized(out, out->struct_size) || stride < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_info: member struct_size is not set");
    weir_block_pool_stats s = {.struct_size = sizeof s, .bytes = pool->bytes, .count = pool->count};
    wi_blocks_flush(pool);
    wi_blocks_lock(pool);
    s.free = pool->free.free;
    s.held = pool->count - s.free - pool->pending;
    s.pending = pool->pending;
    s.peak = pool->count - pool->least_free;
    s.longest = wi_bitmap_longest(&pool->free);
    s.members = pool->members;
    s.taken = pool->taken;
    for (const weir_block_pool_member *m = pool->first; m; m = m->next)
        s.taken += m->taken;
    s.given = s.taken - s.held;
    s.refused = atomic_load(&pool->refused);
    for (const weir_block_pool_member *m = pool->first; m && found < capacity; m = m->next, found++) {
        weir_block_pool_member_stats line = stats_of(m);
        char *to = (char *)members + found * stride;
        memcpy(to, &stride, sizeof stride);
        wi_copy_out(to, stride, &line, sizeof line);
    }
    wi_blocks_unlock(pool);
    s.fragmentation = s.free ? 1.0 - (double)s.longest / (double)s.free : 0.0;
    wi_copy_out(out, out->struct_size, &s, sizeof s);
    if (count)
        *count = s.members;
    return WEIR_OK;
}

weir_status weir_block_pool_member_info(weir_block_pool_member *member, weir_block_pool_member_stats *out)
{
    WI_ENTER();
    if (!member || !block_pool_sized(out, out ? out->struct_size : 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_member_info: NULL, or member struct_size is not set");
    wi_blocks_flush(member->pool);
    wi_blocks_lock(member->pool);
    weir_block_pool_member_stats line = stats_of(member);
    wi_blocks_unlock(member->pool);
    wi_copy_out(out, out->struct_size, &line, sizeof line);
    return WEIR_OK;
}
