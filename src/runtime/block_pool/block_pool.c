/* Block pools: making, ending and inspecting pools and members; the check of the invariants. */
#include "runtime/block_pool/block_pool.h"
#include <weir/block_pool.h>
#include "base/texts.h"

#include <sched.h>

void wi_blocks_wait_for_lock(weir_block_pool *pool)
{
    for (unsigned tries = 0;; tries++) {
        if (!atomic_load_explicit(&pool->locked, memory_order_relaxed) &&
            !atomic_exchange_explicit(&pool->locked, 1, memory_order_acquire))
            return;
        if (tries % 32 == 31)
            sched_yield();
    }
}

/* Invariants ------------------------------------------------------------------------------------------------------- */

void wi_blocks_check(weir_block_pool *pool)
{
#ifdef WEIR_INVARIANTS
    wi_assert(pool->free.free + pool->pending <= pool->count && pool->least_free <= pool->free.free);
    if (++pool->changes % (1 + pool->count / 64) != 0)
        return;
    uint64_t used = 0, pending = 0, held = 0, waiting = 0;
    for (const weir_block_pool_member *m = pool->first; m; m = m->next) {
        wi_assert(m->pending <= m->used && m->used <= m->cap && m->used <= m->peak);
        used += m->used;
        pending += m->pending;
    }
    for (uint32_t i = 0; i < pool->count; i++) {
        held += wi_blocks_is_held(pool, i);
        wi_assert(!wi_blocks_is_held(pool, i) || (!wi_bitmap_is_free(&pool->free, i) && wi_blocks_owner(pool, i)));
    }
    for (const wi_waiting *head = pool->heads; head; head = head->next_head)
        for (const wi_waiting *w = head; w; w = w->next)
            for (uint32_t r = 0; r < w->run_count; r++)
                waiting += w->runs[r].count;
    wi_assert(used == pool->count - pool->free.free && held <= used - pending);
    wi_assert(held == used - pending || pool->flags & WEIR_BLOCK_POOL_CLEAR); /* other blocks are being cleared */
    wi_assert(pending == pool->pending && waiting == pending);
#else
    (void)pool;
#endif
}

/* Pools ------------------------------------------------------------------------------------------------------------ */

static weir_status block_pool_check_options(weir_block_pool_options *o, uint64_t *total)
{
    const uint32_t known = WEIR_ALLOC_NO_WAIT | WEIR_BLOCK_POOL_CLEAR | WEIR_BLOCK_POOL_NAMED;
    o->alignment = o->alignment ? o->alignment : WI_UNIT;
    o->memory_class = o->memory_class == WEIR_CLASS_OTHER ? WEIR_CLASS_KV : o->memory_class;
    o->tag = o->tag && *o->tag ? o->tag : "blocks";
    if (o->count == 0 || o->count > WEIR_BLOCK_POOL_MOST)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_create: a count of %u; a pool has from 1 to %u blocks",
                         o->count, WEIR_BLOCK_POOL_MOST);
    if (!wi_power_of_two(o->alignment) || o->alignment > 2 * WI_MIB)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_create: an alignment of %zu is no power of two up to 2 MiB",
                         o->alignment);
    if (o->bytes == 0 || o->bytes % o->alignment != 0)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_block_pool_create: blocks of %zu bytes are no multiple of the alignment of %zu",
                         o->bytes, o->alignment);
    if (o->flags & ~known)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_create: flags %x are not all known", o->flags);
    if (__builtin_mul_overflow((uint64_t)o->count, (uint64_t)o->bytes, total) || *total > UINT64_MAX / 4)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_block_pool_create: %u blocks of %zu bytes are no size a device could have", o->count,
                         o->bytes);
    return WEIR_OK;
}

static void block_pool_free_record(weir_block_pool *pool)
{
    wi_bitmap_destroy(&pool->free);
    wi_bitmap_destroy(&pool->slots);
    free(pool->held);
    free(pool->owners);
    free(pool->generations);
    free(pool);
}

static weir_block_pool *block_pool_make_pool(weir_client *client, const weir_block_pool_options *o)
{
    weir_block_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->count = pool->least_free = o->count;
    pool->runtime = client->runtime;
    pool->client = client;
    pool->bytes = o->bytes;
    pool->flags = o->flags;
    pool->tag = wi_intern(o->tag, sizeof((weir_block_details *)0)->tag - 1);
    pool->held = wi_table_make((o->count + 63) / 64, sizeof *pool->held);
    pool->owners = wi_table_make(o->count, sizeof *pool->owners);
    pool->generations = o->flags & WEIR_BLOCK_POOL_NAMED ? wi_table_make(o->count, sizeof *pool->generations) : NULL;
    if (!pool->held || !pool->owners || (o->flags & WEIR_BLOCK_POOL_NAMED && !pool->generations) ||
        !wi_bitmap_init(&pool->slots, UINT16_MAX) || !wi_bitmap_init(&pool->free, o->count)) {
        block_pool_free_record(pool);
        return NULL;
    }
    return pool;
}

weir_status weir_block_pool_create(weir_client *client, const weir_block_pool_options *options, weir_block_pool **out)
{
    weir_status status = wi_client_check(client, "weir_block_pool_create");
    if (status != WEIR_OK)
        return status;
    weir_block_pool_options o;
    uint64_t total = 0;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_create: no place for the result");
    status = WI_COPY_IN(weir_block_pool_options, &o, options, "weir_block_pool_create");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    status = block_pool_check_options(&o, &total);
    if (status != WEIR_OK)
        return status;
    weir_block_pool *pool = block_pool_make_pool(client, &o);
    if (!pool)
        return weir_fail(WEIR_ERR_SYSTEM, "weir_block_pool_create: no host memory for the books of %u blocks", o.count);
    weir_request request = {.struct_size = sizeof request,
                            .bytes = total,
                            .alignment = o.alignment,
                            .memory_class = o.memory_class,
                            .tag = o.tag,
                            .flags = WEIR_ALLOC_STABLE | (o.flags & WEIR_ALLOC_NO_WAIT)};
    status = weir_alloc_with(client, &request, &pool->block);
    if (status != WEIR_OK) {
        block_pool_free_record(pool);
        return status;
    }
    *out = pool;
    return WEIR_OK;
}

/* The member with the most blocks; NULL: the pool has no members. The lock is held. */
static const weir_block_pool_member *block_pool_top_member(const weir_block_pool *pool)
{
    const weir_block_pool_member *top = pool->first;
    for (const weir_block_pool_member *m = top; m; m = m->next)
        if (m->used > top->used)
            top = m;
    return top;
}

weir_status weir_block_pool_destroy(weir_block_pool *pool)
{
    WI_ENTER();
    if (!pool)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_destroy: NULL");
    WI_VISIT(pool->runtime);
    wi_blocks_flush(pool);
    wi_blocks_lock(pool);
    uint32_t pending = pool->pending, held = pool->count - pool->free.free - pending;
    const weir_block_pool_member *top = block_pool_top_member(pool);
    const char *name = top ? top->name : "";
    wi_blocks_unlock(pool);
    if (held + pending > 0)
        return weir_fail(WEIR_ERR_BUSY,
                         "of the %u blocks of the pool %s %u are held and %u pending, most of them %s's; free them "
                         "before destroying it",
                         pool->count, pool->tag, held, pending, name);
    weir_status status = weir_free_block(pool->client, pool->block, WEIR_STREAM_HOST);
    if (status != WEIR_OK)
        return status;
    for (weir_block_pool_member *m = pool->first, *next; m; m = next) {
        next = m->next;
        wi_client_let_go(m->client);
        free(m);
    }
    block_pool_free_record(pool);
    return WEIR_OK;
}

/* Members ---------------------------------------------------------------------------------------------------------- */

static void block_pool_list(weir_block_pool *pool, weir_block_pool_member *member)
{
    member->previous = pool->last;
    *(pool->last ? &pool->last->next : &pool->first) = member;
    pool->last = member;
    pool->members++;
}

weir_status weir_block_pool_member_create(weir_block_pool *pool, weir_client *client, uint32_t cap,
                                          weir_block_pool_member **out)
{
    weir_status status = wi_client_check(client, "weir_block_pool_member_create");
    if (status != WEIR_OK)
        return status;
    if (!pool || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_member_create: NULL");
    *out = NULL;
    if (client->runtime != pool->runtime)
        return weir_fail(WEIR_ERR_INVALID, "%s is a client of another runtime than the pool %s, which is on %s",
                         client->account.name, pool->tag, pool->runtime->name);
    weir_block_pool_member *member = calloc(1, sizeof *member);
    if (!member)
        return weir_fail(WEIR_ERR_SYSTEM, "weir_block_pool_member_create: no host memory for a member");
    if (!wi_client_hold(client)) {
        free(member);
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_member_create: the client is closed");
    }
    member->pool = pool;
    member->client = client;
    member->name = client->account.name;
    member->cap = cap == 0 ? pool->count : (uint32_t)wi_min(cap, pool->count);
    wi_blocks_lock(pool);
    uint32_t slot = wi_bitmap_take(&pool->slots);
    if (slot != WI_BITMAP_NONE) {
        member->slot = (uint16_t)(slot + 1);
        block_pool_list(pool, member);
    }
    wi_blocks_unlock(pool);
    if (slot == WI_BITMAP_NONE) {
        wi_client_let_go(client);
        free(member);
        return weir_fail(WEIR_ERR_BUSY, "the pool %s has %u members, as many as it can tell apart; let one leave first",
                         pool->tag, UINT16_MAX);
    }
    *out = member;
    return WEIR_OK;
}

/* Takes the slot of a former member out of the owners, before the slot serves another member, who would get the old
 * blocks without clearing. The lock is released after every step, so that allocations go on. */
static void block_pool_forget(weir_block_pool *pool, uint16_t slot)
{
    const uint32_t step = 4096;
    for (uint32_t i = 0; pool->flags & WEIR_BLOCK_POOL_CLEAR && i < pool->count; i += step) {
        uint32_t end = i + (uint32_t)wi_min(step, pool->count - i);
        wi_blocks_lock(pool);
        for (uint32_t k = i; k < end; k++)
            pool->owners[k] = pool->owners[k] == slot ? 0 : pool->owners[k];
        wi_blocks_unlock(pool);
    }
    wi_blocks_lock(pool);
    wi_bitmap_give(&pool->slots, slot - 1u, 1);
    wi_blocks_unlock(pool);
}

weir_status weir_block_pool_member_destroy(weir_block_pool_member *member)
{
    WI_ENTER();
    if (!member)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_member_destroy: NULL");
    weir_block_pool *pool = member->pool;
    WI_VISIT(pool->runtime);
    wi_blocks_flush(pool);
    wi_blocks_lock(pool);
    uint32_t pending = member->pending, held = member->used - pending;
    if (held + pending == 0) {
        *(member->previous ? &member->previous->next : &pool->first) = member->next;
        *(member->next ? &member->next->previous : &pool->last) = member->previous;
        pool->members--;
        pool->taken += member->taken;
    }
    wi_blocks_unlock(pool);
    if (held + pending > 0)
        return weir_fail(WEIR_ERR_BUSY,
                         "%s holds %u blocks of the pool %s and %u are pending; free them before leaving", member->name,
                         held, pool->tag, pending);
    block_pool_forget(pool, member->slot);
    wi_client_let_go(member->client);
    free(member);
    return WEIR_OK;
}

weir_status weir_block_pool_member_set_cap(weir_block_pool_member *member, uint32_t cap)
{
    WI_ENTER();
    if (!member)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_member_set_cap: NULL");
    weir_block_pool *pool = member->pool;
    cap = cap == 0 ? pool->count : (uint32_t)wi_min(cap, pool->count);
    wi_blocks_flush(pool);
    wi_blocks_lock(pool);
    uint32_t pending = member->pending, held = member->used - pending;
    bool fits = held + pending <= cap;
    if (fits)
        member->cap = cap;
    wi_blocks_unlock(pool);
    if (!fits)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                         "%s cannot have a cap of %u blocks of the pool %s: it holds %u, and %u are pending",
                         member->name, cap, pool->tag, held, pending);
    return WEIR_OK;
}

/* Looking at pools ------------------------------------------------------------------------------------------------- */

static bool block_pool_sized(const void *structure, size_t size)
{
    return structure && size >= 2 * sizeof(size_t);
}

static void block_pool_copy_name(char *to, size_t capacity, const char *name)
{
    size_t length = wi_min(strlen(name), capacity - 1);
    memcpy(to, name, length);
    to[length] = '\0';
}

weir_status weir_block_pool_block_info(weir_block_pool *pool, uint32_t index, weir_block_pool_block_details *out)
{
    WI_ENTER();
    if (!pool || !block_pool_sized(out, out ? out->struct_size : 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_block_info: NULL, or member struct_size is not set");
    if (index >= pool->count)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_block_info: there is no block %u in the pool %s of %u",
                         index, pool->tag, pool->count);
    const weir_block_pool_view view = wi_blocks_view(pool);
    weir_block_pool_block_details details = {.struct_size = sizeof details,
                                             .index = index,
                                             .state = WEIR_BLOCK_FREE,
                                             .pointer = weir_block_pool_at(&view, index)};
    wi_blocks_flush(pool);
    wi_blocks_lock(pool);
    details.generation = pool->generations ? pool->generations[index] : 0;
    if (!wi_bitmap_is_free(&pool->free, index)) {
        const weir_block_pool_member *owner = wi_blocks_owner(pool, index);
        details.state = wi_blocks_is_held(pool, index) ? WEIR_BLOCK_LIVE : WEIR_BLOCK_PENDING;
        details.member = owner;
        block_pool_copy_name(details.name, sizeof details.name, owner ? owner->name : "");
    }
    wi_blocks_unlock(pool);
    wi_copy_out(out, out->struct_size, &details, sizeof details);
    return WEIR_OK;
}

static weir_block_pool_member_stats block_pool_member_stats(const weir_block_pool_member *m)
{
    weir_block_pool_member_stats s = {.struct_size = sizeof s,
                                      .member = m,
                                      .cap = m->cap,
                                      .held = m->used - m->pending,
                                      .pending = m->pending,
                                      .peak = m->peak,
                                      .allocations = m->taken,
                                      .frees = m->taken - (m->used - m->pending),
                                      .refused = atomic_load(&m->refused)};
    block_pool_copy_name(s.name, sizeof s.name, m->name);
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
    weir_block_pool_stats s = {.struct_size = sizeof s, .view = wi_blocks_view(pool)};
    wi_blocks_flush(pool);
    wi_blocks_lock(pool);
    s.free = pool->free.free;
    s.held = pool->count - s.free - pool->pending;
    s.pending = pool->pending;
    s.peak = pool->count - pool->least_free;
    s.longest = wi_bitmap_longest(&pool->free);
    s.members = pool->members;
    s.allocations = pool->taken;
    for (const weir_block_pool_member *m = pool->first; m; m = m->next)
        s.allocations += m->taken;
    s.frees = s.allocations - s.held;
    s.refused = atomic_load(&pool->refused);
    for (const weir_block_pool_member *m = pool->first; m && found < capacity; m = m->next, found++) {
        weir_block_pool_member_stats line = block_pool_member_stats(m);
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
    weir_block_pool_member_stats line = block_pool_member_stats(member);
    wi_blocks_unlock(member->pool);
    wi_copy_out(out, out->struct_size, &line, sizeof line);
    return WEIR_OK;
}
