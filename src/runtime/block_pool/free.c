/* Block pools, free: a request is checked as a whole; its blocks are free at once, or deferred until an event has
 * passed. */
#include "runtime/block_pool/block_pool.h"
#include <weir/block_pool.h>

/* Waiting ---------------------------------------------------------------------------------------------------------- */

wi_waiting *wi_waiting_make(weir_block_pool_member *member, uint32_t runs)
{
    wi_waiting *waiting = calloc(1, sizeof *waiting + (size_t)runs * sizeof waiting->runs[0]);
    if (waiting)
        waiting->member = member;
    return waiting;
}

void wi_waiting_free(wi_waiting *waiting)
{
    while (waiting) {
        wi_waiting *next = waiting->next;
        free(waiting);
        waiting = next;
    }
}

weir_status wi_waiting_fence(weir_block_pool *pool, void *native, wi_waiting *waiting, bool *wait)
{
    weir_runtime *runtime = pool->runtime;
    weir_status status = runtime->driver->record(runtime->device, native, &waiting->event);
    *wait = status == WEIR_OK && !runtime->driver->passed(runtime->device, waiting->event);
    return status;
}

/* Adds an entry to its stream's list. Threads that free on the same stream may add their entries in another order than
 * their events. An entry may then be reaped late, but never early, as only its own event frees it. */
static void block_pool_hang(weir_block_pool *pool, wi_waiting *waiting)
{
    waiting->order = ++pool->last_order;
    for (wi_waiting *head = pool->heads; head; head = head->next_head)
        if (head->event.stream == waiting->event.stream) {
            head->last->next = waiting;
            head->last = waiting;
            return;
        }
    waiting->last = waiting;
    waiting->next_head = pool->heads;
    pool->heads = waiting;
}

const wi_waiting *wi_blocks_oldest(const weir_block_pool *pool)
{
    const wi_waiting *oldest = pool->heads;
    for (const wi_waiting *head = oldest; head; head = head->next_head)
        if (head->order < oldest->order)
            oldest = head;
    return oldest;
}

void wi_blocks_give(weir_block_pool_member *member, wi_block_run run)
{
    wi_bitmap_give(&member->pool->free, run.first, run.count);
    member->used -= run.count;
}

static void block_pool_free_entry(weir_block_pool *pool, const wi_waiting *waiting)
{
    for (uint32_t r = 0; r < waiting->run_count; r++) {
        wi_blocks_give(waiting->member, waiting->runs[r]);
        waiting->member->pending -= waiting->runs[r].count;
        pool->pending -= waiting->runs[r].count;
    }
}

void wi_blocks_reap(weir_block_pool *pool, wi_waiting **done)
{
    const weir_runtime *runtime = pool->runtime;
    for (wi_waiting **link = &pool->heads; *link;) {
        wi_waiting *head = *link, *next_head = head->next_head, *last = head->last;
        while (head && runtime->driver->passed(runtime->device, head->event)) {
            wi_waiting *next = head->next;
            block_pool_free_entry(pool, head);
            head->next = *done;
            *done = head;
            head = next;
        }
        *link = head ? head : next_head;
        if (head) {
            head->last = last;
            head->next_head = next_head;
            link = &head->next_head;
        }
    }
}

void wi_blocks_flush(weir_block_pool *pool)
{
    wi_waiting *done = NULL;
    wi_blocks_lock(pool);
    wi_blocks_reap(pool, &done);
    wi_blocks_unlock(pool);
    wi_waiting_free(done);
}

void wi_blocks_pend(wi_waiting *waiting)
{
    weir_block_pool *pool = waiting->member->pool;
    for (uint32_t r = 0; r < waiting->run_count; r++) {
        waiting->member->pending += waiting->runs[r].count;
        pool->pending += waiting->runs[r].count;
    }
    block_pool_hang(pool, waiting);
}

/* Checking --------------------------------------------------------------------------------------------------------- */

weir_block_pool_member *wi_blocks_owner(const weir_block_pool *pool, uint32_t index)
{
    weir_block_pool_member *m = pool->first;
    while (m && m->slot != pool->owners[index])
        m = m->next;
    return m;
}

static bool block_pool_may_free(const weir_block_pool_member *member, uint32_t index)
{
    return wi_blocks_is_held(member->pool, index) && member->pool->owners[index] == member->slot;
}

/* Why a block cannot be freed. */
typedef struct complaint {
    weir_status status;
    uint32_t index, generation;
    const char *owner, *state;
} complaint;

/* Of a block that the member may free, another generation was meant. */
static complaint block_pool_complain(const weir_block_pool_member *member, uint32_t index)
{
    const weir_block_pool *pool = member->pool;
    const weir_block_pool_member *owner = wi_blocks_owner(pool, index);
    complaint c = {.index = index, .owner = owner ? owner->name : ""};
    c.status = block_pool_may_free(member, index) ? WEIR_ERR_STALE
               : wi_blocks_is_held(pool, index)   ? WEIR_ERR_FOREIGN
                                                  : WEIR_ERR_DOUBLE_FREE;
    c.state = wi_bitmap_is_free(&pool->free, index) ? "free" : "pending";
    c.generation = pool->generations ? pool->generations[index] : 0;
    return c;
}

/* Reports it. The lock is not held. */
static weir_status block_pool_report(const weir_block_pool_member *member, const complaint *c)
{
    const weir_block_pool *pool = member->pool;
    switch (c->status) {
    case WEIR_ERR_FOREIGN:
        return weir_fail(c->status, "block %u (%zu bytes) of the pool %s is held by %s%s, not by %s", c->index,
                         pool->bytes, pool->tag, strcmp(c->owner, member->name) == 0 ? "another membership of " : "",
                         c->owner, member->name);
    case WEIR_ERR_STALE:
        return weir_fail(
            c->status,
            "block %u (%zu bytes) of the pool %s was freed; %s has allocated it again since, as generation "
            "%u",
            c->index, pool->bytes, pool->tag, member->name, c->generation);
    default:
        return weir_fail(c->status,
                         "%s frees block %u (%zu bytes) of the pool %s, which is %s already; free a block once",
                         member->name, c->index, pool->bytes, pool->tag, c->state);
    }
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

/* Whether the member may free the block, in the generation that is meant; NULL: any. */
static bool block_pool_is_meant(const weir_block_pool_member *member, uint32_t index, const uint32_t *generation)
{
    return block_pool_may_free(member, index) && (!generation || member->pool->generations[index] == *generation);
}

/* Clears the held bits of a run. False, and nothing but *wrong changes, unless the member may free all of it, each block
 * in its generation. The lock is held. */
static bool block_pool_unhold_run(weir_block_pool_member *member, wi_block_run run, const uint32_t *generations,
                                  complaint *wrong)
{
    weir_block_pool *pool = member->pool;
    const uint16_t *owners = pool->owners + run.first;
    uint64_t bad = 0;
    for (uint32_t i = 0; i < run.count; i++)
        bad |= owners[i] ^ member->slot;
    for (uint32_t i = 0; wi_unlikely(generations != NULL) && i < run.count; i++)
        bad |= generations[i] ^ pool->generations[run.first + i];
    for (uint32_t i = 0, part; i < run.count; i += part) {
        uint32_t at = run.first + i;
        part = (uint32_t)wi_min(run.count - i, 64 - at % 64);
        bad |= ~pool->held[at / 64] & wi_bits(at % 64, part);
    }
    if (wi_unlikely(bad)) {
        uint32_t i = 0;
        while (block_pool_is_meant(member, run.first + i, generations ? generations + i : NULL))
            i++;
        *wrong = block_pool_complain(member, run.first + i);
        return false;
    }
    for (uint32_t part; run.count > 0; run.first += part, run.count -= part) {
        part = (uint32_t)wi_min(run.count, 64 - run.first % 64);
        pool->held[run.first / 64] &= ~wi_bits(run.first % 64, part);
    }
    return true;
}

/* Clears the held bits of a list. At the first wrong block, the bits before it are set again. A block that is named twice
 * is not held the second time. The lock is held. */
static bool block_pool_unhold_list(weir_block_pool_member *member, const uint32_t *indices, const uint32_t *generations,
                                   uint32_t count, complaint *wrong)
{
    uint32_t i = 0;
    while (i < count &&
           block_pool_unhold_run(member, (wi_block_run){indices[i], 1}, generations ? generations + i : NULL, wrong))
        i++;
    for (uint32_t j = i; i < count && j-- > 0;) {
        wi_blocks_hold(member->pool, (wi_block_run){indices[j], 1});
        if (indices[j] == indices[i])
            wrong->state = "named in the same call";
    }
    return i == count;
}

/* Records the event of a free, before the lock is taken. *waiting is NULL when there is nothing to wait for. */
static weir_status block_pool_fence(weir_block_pool_member *member, weir_stream stream, uint32_t runs,
                                    wi_waiting **waiting)
{
    weir_block_pool *pool = member->pool;
    void *native;
    bool wait;
    *waiting = NULL;
    if (wi_likely(stream.id == 0))
        return WEIR_OK;
    weir_status status = wi_streams_resolve_recorded(pool->runtime, stream, "weir_block_pool_free", &native);
    if (status != WEIR_OK)
        return status;
    *waiting = wi_waiting_make(member, runs);
    if (!*waiting)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to free blocks of the pool %s", pool->tag);
    status = wi_waiting_fence(pool, native, *waiting, &wait);
    if (status != WEIR_OK || !wait) {
        wi_waiting_free(*waiting);
        *waiting = NULL;
    }
    return status;
}

/* The fast path: one block, on the host's stream. False: the caller goes the slow way, which also reports mistakes. */
static inline bool block_pool_free_fast(weir_block_pool_member *member, uint32_t index, weir_stream stream)
{
    if (stream.id != 0 || !member || index >= member->pool->count ||
        atomic_load_explicit(&wi_forked, memory_order_relaxed))
        return false;
    weir_block_pool *pool = member->pool;
    wi_blocks_lock(pool);
    bool good = block_pool_may_free(member, index);
    if (wi_likely(good)) {
        pool->held[index / 64] &= ~(UINT64_C(1) << index % 64);
        wi_bitmap_give_one(&pool->free, index);
        member->used--;
    }
    wi_blocks_unlock(pool);
    return good;
}

/* The run that begins at the k-th block: the whole run, or the blocks of a list that are named in a row. */
static wi_block_run block_pool_run_at(const uint32_t *indices, uint32_t count, bool listed, uint32_t k)
{
    wi_block_run run = {indices[k], listed ? 1 : count};
    while (k + run.count < count && indices[k + run.count] == run.first + run.count)
        run.count++;
    return run;
}

/* `generations`: of the blocks that are meant; NULL: the present generations. */
static weir_status block_pool_free(weir_block_pool_member *member, const uint32_t *indices, const uint32_t *generations,
                                   uint32_t count, bool listed, weir_stream stream)
{
    weir_block_pool *pool = member->pool;
    wi_waiting *waiting, *done = NULL;
    complaint wrong = {WEIR_OK, 0, 0, "", ""};
    weir_status status = block_pool_fence(member, stream, listed ? count : 1, &waiting);
    if (status != WEIR_OK)
        return status;
    wi_blocks_lock(pool);
    bool good = listed ? block_pool_unhold_list(member, indices, generations, count, &wrong)
                       : block_pool_unhold_run(member, (wi_block_run){indices[0], count}, generations, &wrong);
    wi_block_run run;
    for (uint32_t k = 0; good && k < count; k += run.count) {
        run = block_pool_run_at(indices, count, listed, k);
        if (waiting)
            waiting->runs[waiting->run_count++] = run;
        else
            wi_blocks_give(member, run);
    }
    if (good && waiting) {
        wi_blocks_pend(waiting);
        wi_blocks_reap(pool, &done);
    }
    wi_blocks_unlock(pool);
    wi_waiting_free(done);
    if (wi_likely(good))
        return WEIR_OK;
    wi_waiting_free(waiting);
    return block_pool_report(member, &wrong);
}

static weir_status block_pool_free_check_call(const weir_block_pool_member *member, const uint32_t *indices, bool named,
                                              uint32_t count, uint32_t flags)
{
    WI_ENTER();
    if (!member)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_free: the member is NULL");
    if (flags & ~(uint32_t)WEIR_BLOCK_POOL_RUN)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_free: %#x has flags other than WEIR_BLOCK_POOL_RUN", flags);
    if (!indices || count == 0)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_free: no blocks of the pool %s are named",
                         member->pool->tag);
    if (named && !member->pool->generations)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "the pool %s does not count generations: make it with WEIR_BLOCK_POOL_NAMED",
                         member->pool->tag);
    return WEIR_OK;
}

static weir_status block_pool_check_range(const weir_block_pool *pool, uint32_t first, uint32_t count)
{
    if (wi_likely(first < pool->count && count <= pool->count - first))
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "weir_block_pool_free: blocks %u to %llu are not all in the pool %s, which has %u", first,
                     (unsigned long long)first + count - 1, pool->tag, pool->count);
}

weir_status weir_block_pool_free(weir_block_pool_member *member, const uint32_t *indices, const uint32_t *generations,
                                 uint32_t count, uint32_t flags, weir_stream stream)
{
    if (wi_likely(count == 1 && indices && !generations && flags == 0 &&
                  block_pool_free_fast(member, indices[0], stream)))
        return WEIR_OK;
    weir_status status = block_pool_free_check_call(member, indices, generations != NULL, count, flags);
    bool listed = count > 1 && !flags;
    for (uint32_t k = 0; status == WEIR_OK && k < (listed ? count : 1); k++)
        status = block_pool_check_range(member->pool, indices[k], listed ? 1 : count);
    return status == WEIR_OK ? block_pool_free(member, indices, generations, count, listed, stream) : status;
}
