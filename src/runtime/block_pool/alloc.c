/* Block pools, allocation of one block, a run or many: waits for pending blocks, refuses with numbers, and clears
 * blocks that had another owner. */
#include "runtime/block_pool/block_pool.h"
#include <weir/block_pool.h>
#include "base/values.h"
#include "base/system.h"

typedef struct request {
    weir_block_pool_member *member;
    uint32_t count;
    bool run;      /* in a row */
    uint32_t *out; /* `count` indices, or the first of a run */
    weir_stream stream;
    void *native;
    wi_waiting *clearing; /* with room for `count` runs; NULL in a pool that does not clear */
} request;

/* The k-th block of a request that was served. */
static uint32_t block_pool_index_of(const request *w, uint32_t k)
{
    return w->run ? *w->out + k : w->out[k];
}

/* Under the lock --------------------------------------------------------------------------------------------------- */

/* Makes a run that was taken out of the bitmap a held one of the member's. The lock is held. */
static inline void block_pool_hold(weir_block_pool_member *member, uint32_t first, uint32_t count)
{
    weir_block_pool *pool = member->pool;
    wi_blocks_hold(pool, (wi_block_run){first, count});
    for (uint32_t i = 0; i < count; i++)
        pool->owners[first + i] = member->slot;
    for (uint32_t i = 0; wi_unlikely(pool->generations != NULL) && i < count; i++)
        pool->generations[first + i]++;
}

/* The same in a pool that clears: the blocks are held once they are clear. The runs that had another owner go into
 * `clearing`. The lock is held. */
static void block_pool_hold_cleared(weir_block_pool_member *member, uint32_t first, uint32_t count,
                                    wi_waiting *clearing)
{
    weir_block_pool *pool = member->pool;
    for (uint32_t i = first; i < first + count; i++) {
        wi_block_run *last = clearing->run_count ? &clearing->runs[clearing->run_count - 1] : NULL;
        if (pool->generations)
            pool->generations[i]++;
        if (pool->owners[i] == member->slot)
            continue;
        pool->owners[i] = member->slot;
        if (last && last->first + last->count == i)
            last->count++;
        else
            clearing->runs[clearing->run_count++] = (wi_block_run){i, 1};
    }
}

static inline void block_pool_count_in(weir_block_pool_member *member, uint32_t count)
{
    weir_block_pool *pool = member->pool;
    member->taken += count;
    member->used += count;
    if (member->used > member->peak)
        member->peak = member->used;
    if (pool->free.free < pool->least_free)
        pool->least_free = pool->free.free;
}

static inline bool block_pool_under_cap(const weir_block_pool_member *member, uint32_t count)
{
    return count <= member->cap - member->used;
}

static void block_pool_hold_as_asked(const request *w, uint32_t first, uint32_t count)
{
    if (w->clearing)
        block_pool_hold_cleared(w->member, first, count, w->clearing);
    else
        block_pool_hold(w->member, first, count);
}

static bool block_pool_try_once(const request *w)
{
    weir_block_pool_member *member = w->member;
    wi_bitmap *bitmap = &member->pool->free;
    if (!block_pool_under_cap(member, w->count) || w->count > bitmap->free)
        return false;
    if (w->run) {
        uint32_t first = w->count == 1 ? wi_bitmap_take(bitmap) : wi_bitmap_take_run(bitmap, w->count);
        if (first == WI_BITMAP_NONE)
            return false;
        block_pool_hold_as_asked(w, first, w->count);
        *w->out = first;
    } else {
        for (uint32_t i = 0; i < w->count; i++)
            block_pool_hold_as_asked(w, w->out[i] = wi_bitmap_take(bitmap), 1);
    }
    block_pool_count_in(member, w->count);
    return true;
}

/* Whether the request could be met if no block were pending, as far as counts tell. */
static bool block_pool_could(const request *w)
{
    const weir_block_pool *pool = w->member->pool;
    return pool->pending > 0 && w->count <= w->member->cap - (w->member->used - w->member->pending) &&
           w->count <= pool->free.free + pool->pending;
}

/* Refusing --------------------------------------------------------------------------------------------------------- */

typedef struct numbers {
    uint32_t cap, held, pending;              /* the member's */
    uint32_t free, all_pending, longest, top; /* the pool's */
    const char *top_name;
} numbers;

static numbers block_pool_look(const request *w)
{
    const weir_block_pool_member *member = w->member;
    weir_block_pool *pool = member->pool;
    numbers n = {member->cap, member->used - member->pending, member->pending, pool->free.free, pool->pending, 0, 0,
                 ""};
    if (w->run && w->count <= n.free)
        n.longest = wi_bitmap_longest(&pool->free);
    for (const weir_block_pool_member *m = pool->first; m; m = m->next)
        if (m->used > n.top) {
            n.top = m->used;
            n.top_name = m->name;
        }
    return n;
}

static weir_status block_pool_refuse(const request *w, const numbers *n)
{
    const weir_block_pool_member *member = w->member;
    const weir_block_pool *pool = member->pool;
    const char *row = w->run && w->count > 1 ? " in a row" : "", *plural = w->count == 1 ? "" : "s";
    atomic_fetch_add(&w->member->refused, 1);
    atomic_fetch_add(&w->member->pool->refused, 1);
    if (w->count > n->cap - wi_min(n->cap, n->held + n->pending))
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                         "%s asked the pool %s for %u block%s of %zu bytes%s; its cap is %u, it holds %u and %u are "
                         "pending; free blocks, or raise the cap",
                         member->name, pool->tag, w->count, plural, pool->bytes, row, n->cap, n->held, n->pending);
    if (w->count <= n->free)
        return weir_fail(
            WEIR_ERR_OUT_OF_MEMORY,
            "%s asked the pool %s for %u block%s of %zu bytes%s; %u of %u are free and %u pending, but the "
            "longest run is %u; allocate them one by one, or free what lies between",
            member->name, pool->tag, w->count, plural, pool->bytes, row, n->free, pool->count, n->all_pending,
            n->longest);
    return weir_fail(WEIR_ERR_OUT_OF_MEMORY,
                     "%s asked the pool %s for %u block%s of %zu bytes%s; %u of %u are free and %u pending; %s has %u",
                     member->name, pool->tag, w->count, plural, pool->bytes, row, n->free, pool->count, n->all_pending,
                     n->top_name[0] ? n->top_name : "nobody", n->top);
}

/* The slow path: reaps, waits for the oldest pending blocks until the deadline, and refuses. */
static weir_status block_pool_alloc_slowly(const request *w)
{
    weir_block_pool *pool = w->member->pool;
    const weir_runtime *runtime = pool->runtime;
    uint64_t deadline = 0;
    for (;;) {
        wi_waiting *done = NULL;
        wi_event event = {NULL, 0};
        numbers n = {0};
        wi_blocks_lock(pool);
        wi_blocks_reap(pool, &done);
        bool taken = block_pool_try_once(w);
        bool wait = !taken && block_pool_could(w) && !(pool->flags & WEIR_ALLOC_NO_WAIT);
        if (wait)
            event = wi_blocks_oldest(pool)->event;
        if (!taken)
            n = block_pool_look(w);
        wi_blocks_unlock(pool);
        wi_waiting_free(done);
        if (taken)
            return WEIR_OK;
        if (deadline == 0)
            deadline = wi_now() + wi_option_wait();
        if (!wait || wi_now() >= deadline || runtime->driver->wait(runtime->device, event, deadline) != WEIR_OK)
            return block_pool_refuse(w, &n);
    }
}

/* Clearing --------------------------------------------------------------------------------------------------------- */

static weir_status block_pool_fill(const request *w)
{
    const weir_block_pool *pool = w->member->pool;
    weir_runtime *runtime = pool->runtime;
    void *native;
    weir_status status = wi_streams_begin(&runtime->streams, w->stream, runtime->name, &native);
    if (status != WEIR_OK)
        return status;
    for (uint32_t r = 0; r < w->clearing->run_count && status == WEIR_OK; r++) {
        wi_block_run run = w->clearing->runs[r];
        status = runtime->driver->fill(runtime->device, (char *)pool->block.pointer + run.first * pool->bytes, 0,
                                       run.count * pool->bytes, native);
    }
    wi_streams_done(&runtime->streams, w->stream);
    return status;
}

/* Undoes an allocation whose zeros could not be queued. The blocks then have no last owner, so that the next owner gets
 * them cleared. */
static void block_pool_undo_alloc(const request *w)
{
    weir_block_pool *pool = w->member->pool;
    wi_waiting *waiting = w->clearing;
    bool wait = false;
    /* The next owner's work comes behind the zeros that were queued. Without an event, this thread waits for them. */
    if (w->native && wi_waiting_fence(pool, w->native, waiting, &wait) != WEIR_OK)
        (void)!pool->runtime->driver->stream_synchronize(pool->runtime->device, w->native);
    wi_blocks_lock(pool);
    for (uint32_t k = 0; k < w->count; k++) {
        waiting->runs[k] = (wi_block_run){block_pool_index_of(w, k), 1};
        pool->owners[waiting->runs[k].first] = 0;
        if (!wait)
            wi_blocks_give(w->member, waiting->runs[k]);
    }
    waiting->run_count = w->count;
    w->member->taken -= w->count;
    if (wait)
        wi_blocks_pend(waiting);
    wi_blocks_unlock(pool);
    if (!wait)
        wi_waiting_free(waiting);
}

static weir_status block_pool_alloc_cleared(request *w)
{
    weir_block_pool *pool = w->member->pool;
    w->clearing = wi_waiting_make(w->member, w->count); /* before anything that would have to be undone */
    if (!w->clearing)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to clear blocks of the pool %s", pool->tag);
    weir_status status = block_pool_alloc_slowly(w);
    bool taken = status == WEIR_OK;
    if (taken && w->stream.id != 0) /* a capture may have begun while the request waited */
        status = wi_streams_resolve_now(pool->runtime, w->stream, "weir_block_pool_alloc", &w->native);
    if (taken && status != WEIR_OK)
        w->native = NULL; /* nothing is queued that the next owner would have to come behind */
    if (status == WEIR_OK)
        status = block_pool_fill(w);
    if (taken && status != WEIR_OK) {
        block_pool_undo_alloc(w);
        return status;
    }
    wi_blocks_lock(pool);
    for (uint32_t k = 0; status == WEIR_OK && k < w->count; k++)
        wi_blocks_hold(pool, (wi_block_run){block_pool_index_of(w, k), 1});
    wi_blocks_unlock(pool);
    wi_waiting_free(w->clearing);
    return status;
}

/* Calls ------------------------------------------------------------------------------------------------------------ */

static weir_status block_pool_alloc_check_call(const request *w, uint32_t flags)
{
    WI_ENTER();
    if (!w->member || !w->out)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_alloc: NULL");
    if (flags & ~(uint32_t)WEIR_BLOCK_POOL_RUN)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_alloc: %#x has flags other than WEIR_BLOCK_POOL_RUN",
                         flags);
    if (w->count == 0)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_alloc: a count of 0 blocks");
    return wi_client_check(w->member->client, "weir_block_pool_alloc");
}

static weir_status block_pool_alloc(request *w)
{
    weir_block_pool *pool = w->member->pool;
    weir_status status = WEIR_OK;
    if (w->stream.id != 0 && pool->flags & WEIR_BLOCK_POOL_CLEAR) /* a capture would record the zeros into a graph */
        status = wi_streams_resolve_now(pool->runtime, w->stream, "weir_block_pool_alloc", &w->native);
    else if (w->stream.id != 0)
        status = wi_streams_resolve(&pool->runtime->streams, w->stream, pool->runtime->name, &w->native);
    if (status != WEIR_OK)
        return status;
    if (wi_unlikely(pool->flags & WEIR_BLOCK_POOL_CLEAR))
        return block_pool_alloc_cleared(w);
    wi_blocks_lock(pool);
    bool taken = block_pool_try_once(w);
    wi_blocks_unlock(pool);
    return wi_likely(taken) ? WEIR_OK : block_pool_alloc_slowly(w);
}

/* The fast path: one block, on the host's stream, not cleared. False: the caller goes the slow way. */
static inline bool block_pool_alloc_fast(weir_block_pool_member *member, weir_stream stream, uint32_t *index)
{
    if (!member || !index || stream.id != 0 || atomic_load_explicit(&wi_forked, memory_order_relaxed) ||
        member->pool->flags & WEIR_BLOCK_POOL_CLEAR ||
        atomic_load_explicit(&member->client->state, memory_order_acquire) != WI_CLIENT_OPEN)
        return false;
    weir_block_pool *pool = member->pool;
    uint32_t taken = WI_BITMAP_NONE;
    wi_blocks_lock(pool);
    if (wi_likely(block_pool_under_cap(member, 1)))
        taken = wi_bitmap_take(&pool->free);
    if (wi_likely(taken != WI_BITMAP_NONE)) {
        block_pool_hold(member, taken, 1);
        block_pool_count_in(member, 1);
    }
    wi_blocks_unlock(pool);
    *index = taken;
    return taken != WI_BITMAP_NONE;
}

weir_status weir_block_pool_alloc(weir_block_pool_member *member, uint32_t count, uint32_t flags, weir_stream stream,
                                  uint32_t *indices)
{
    if (wi_likely(count == 1 && flags == 0 && block_pool_alloc_fast(member, stream, indices)))
        return WEIR_OK;
    request w = {.member = member, .count = count, .run = flags != 0, .out = indices, .stream = stream};
    weir_status status = block_pool_alloc_check_call(&w, flags);
    if (status == WEIR_OK)
        status = block_pool_alloc(&w);
    for (uint32_t k = 0; status != WEIR_OK && indices && k < (w.run ? 1 : count); k++)
        indices[k] = WEIR_BLOCK_POOL_NONE;
    return status;
}
