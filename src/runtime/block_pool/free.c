/* Block pools, free: a request is checked as a whole; its blocks are free at once, or deferred until an event has
 * passed. */
#include "runtime/block_pool/prefix_index.h"
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

/* Ends dropped references that the stream is past, and frees blocks without further references. Returns the number of
 * freed blocks. */
static uint32_t block_pool_free_left(weir_block_pool *pool, wi_block_run run)
{
    uint32_t blocks = 0;
    for (uint32_t i = run.first; i < run.first + run.count; i++)
        if (--pool->shares[i].leaving == 0 && pool->shares[i].references == 0) {
            wi_bitmap_give_one(&pool->free, i);
            blocks++;
        }
    return blocks;
}

static void block_pool_free_entry(weir_block_pool *pool, const wi_waiting *waiting)
{
    uint32_t blocks = 0;
    for (uint32_t r = 0; r < waiting->run_count; r++) {
        if (pool->shares) {
            blocks += block_pool_free_left(pool, waiting->runs[r]);
            continue;
        }
        wi_bitmap_give(&pool->free, waiting->runs[r].first, waiting->runs[r].count);
        blocks += waiting->runs[r].count;
    }
    pool->pending -= blocks;
    waiting->member->pending -= blocks;
    waiting->member->used -= blocks;
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

void wi_blocks_put(weir_block_pool_member *member, const wi_block_run *runs, uint32_t count, wi_waiting *waiting)
{
    weir_block_pool *pool = member->pool;
    uint32_t blocks = 0;
    for (uint32_t r = 0; r < count; r++) {
        if (!waiting)
            wi_bitmap_give(&pool->free, runs[r].first, runs[r].count);
        for (uint32_t i = 0; waiting && pool->shares && i < runs[r].count; i++)
            pool->shares[runs[r].first + i].leaving++;
        blocks += runs[r].count;
    }
    if (!waiting) {
        member->used -= blocks;
    } else {
        waiting->run_count = count;
        member->pending += blocks;
        pool->pending += blocks;
        block_pool_hang(pool, waiting);
    }
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

static complaint block_pool_complain(const weir_block_pool_member *member, uint32_t index)
{
    const weir_block_pool *pool = member->pool;
    const weir_block_pool_member *owner = wi_blocks_owner(pool, index);
    complaint c = {.index = index, .owner = owner ? owner->name : ""};
    c.status = wi_blocks_is_held(pool, index) ? WEIR_ERR_FOREIGN : WEIR_ERR_DOUBLE_FREE;
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

/* Giving ----------------------------------------------------------------------------------------------------------- */

static weir_status block_pool_free_check_call(const weir_block_pool_member *member, const char *call)
{
    WI_ENTER();
    return wi_likely(member != NULL) ? WEIR_OK : weir_fail(WEIR_ERR_INVALID, "%s: the member is NULL", call);
}

static weir_status block_pool_out_of_range(const weir_block_pool *pool, const char *call, uint64_t first,
                                           uint32_t count)
{
    if (count == 0)
        return weir_fail(WEIR_ERR_INVALID, "%s: no blocks of the pool %s are named", call, pool->tag);
    return weir_fail(WEIR_ERR_INVALID, "%s: blocks %llu to %llu are not all in the pool %s, which has %u", call,
                     (unsigned long long)first, (unsigned long long)(first + count - 1), pool->tag, pool->count);
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

bool wi_blocks_unhold(weir_block_pool_member *member, wi_block_run run)
{
    weir_block_pool *pool = member->pool;
    const uint16_t *owners = pool->owners + run.first;
    uint64_t bad = 0;
    for (uint32_t i = 0; i < run.count; i++)
        bad |= owners[i] ^ member->slot;
    for (uint32_t i = 0, part; i < run.count; i += part) {
        uint32_t at = run.first + i;
        part = (uint32_t)wi_min(run.count - i, 64 - at % 64);
        bad |= ~pool->held[at / 64] & wi_bits(at % 64, part);
    }
    if (wi_unlikely(bad))
        return false;
    for (uint32_t part; run.count > 0; run.first += part, run.count -= part) {
        part = (uint32_t)wi_min(run.count, 64 - run.first % 64);
        pool->held[run.first / 64] &= ~wi_bits(run.first % 64, part);
    }
    return true;
}

/* Why the run cannot be freed: its first wrong block. */
static complaint block_pool_complain_run(const weir_block_pool_member *member, wi_block_run run)
{
    while (block_pool_may_free(member, run.first))
        run.first++;
    return block_pool_complain(member, run.first);
}

/* Whether the block has the generation that is meant. Of a block that cannot be freed, something else is wrong. */
static bool block_pool_meant(const weir_block_pool_member *member, uint32_t index, uint32_t generation)
{
    return !block_pool_may_free(member, index) || member->pool->generations[index] == generation;
}

static complaint block_pool_stale(const weir_block_pool_member *member, uint32_t index)
{
    complaint c = block_pool_complain(member, index);
    c.status = WEIR_ERR_STALE;
    return c;
}

/* `generations`: of the blocks that are meant; NULL: the present generations. */
static weir_status block_pool_free_run(weir_block_pool_member *member, wi_block_run run, const uint32_t *generations,
                                       weir_stream stream)
{
    weir_block_pool *pool = member->pool;
    wi_waiting *waiting, *done = NULL;
    complaint wrong = {WEIR_OK, 0, 0, "", ""};
    weir_status status = block_pool_fence(member, stream, 1, &waiting);
    if (status != WEIR_OK)
        return status;
    if (waiting)
        waiting->runs[0] = run;
    wi_blocks_lock(pool);
    uint32_t meant = 0;
    while (wi_unlikely(generations != NULL) && meant < run.count &&
           block_pool_meant(member, run.first + meant, generations[meant]))
        meant++;
    if (wi_unlikely(generations && meant < run.count)) {
        wrong = block_pool_stale(member, run.first + meant);
    } else if (wi_likely(wi_blocks_unhold(member, run))) {
        wi_blocks_put(member, &run, 1, waiting);
        if (waiting)
            wi_blocks_reap(pool, &done);
    } else {
        wrong = block_pool_complain_run(member, run);
    }
    wi_blocks_unlock(pool);
    if (wi_unlikely(done != NULL))
        wi_waiting_free(done);
    if (wi_likely(wrong.status == WEIR_OK))
        return WEIR_OK;
    wi_waiting_free(waiting);
    return block_pool_report(member, &wrong);
}

/* The fast path: one block, on the host's stream. False: the caller goes the slow way, which also reports mistakes. */
static inline bool block_pool_free_fast(weir_block_pool_member *member, uint32_t index, weir_stream stream)
{
    if (stream.id != 0 || !member || index >= member->pool->count || member->pool->shares ||
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

/* Clears the held bits of all the blocks. At the first wrong one, the bits before it are set again. A block that is
 * named twice is not held the second time. */
static bool block_pool_unhold_many(weir_block_pool_member *member, const uint32_t *indices, const uint32_t *generations,
                                   uint32_t count, complaint *wrong)
{
    uint32_t i = 0;
    bool meant = true;
    for (; i < count; i++) {
        meant = !generations || block_pool_meant(member, indices[i], generations[i]);
        if (!meant || !wi_blocks_unhold(member, (wi_block_run){indices[i], 1}))
            break;
    }
    if (i == count)
        return true;
    *wrong = meant ? block_pool_complain(member, indices[i]) : block_pool_stale(member, indices[i]);
    for (uint32_t j = i; j-- > 0;) {
        wi_blocks_hold(member->pool, (wi_block_run){indices[j], 1});
        if (indices[j] == indices[i])
            wrong->state = "named in the same call";
    }
    return false;
}

/* Gathers a list of indices into runs; returns their number. */
static uint32_t block_pool_find_runs(const uint32_t *indices, uint32_t count, wi_block_run *runs)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (found > 0 && indices[i] == runs[found - 1].first + runs[found - 1].count)
            runs[found - 1].count++;
        else
            runs[found++] = (wi_block_run){indices[i], 1};
    return found;
}

static weir_status block_pool_free_each(weir_block_pool_member *member, const uint32_t *indices,
                                        const uint32_t *generations, uint32_t count, weir_stream stream)
{
    weir_block_pool *pool = member->pool;
    wi_waiting *waiting, *done = NULL, *room = wi_waiting_make(member, count);
    complaint wrong = {WEIR_OK, 0, 0, "", ""};
    if (!room)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory to free blocks of the pool %s", pool->tag);
    uint32_t runs = block_pool_find_runs(indices, count, room->runs);
    weir_status status = block_pool_fence(member, stream, 0, &waiting);
    if (status != WEIR_OK) {
        wi_waiting_free(room);
        return status;
    }
    if (waiting)
        room->event = waiting->event;
    wi_blocks_lock(pool);
    bool good = block_pool_unhold_many(member, indices, generations, count, &wrong);
    if (good) {
        wi_blocks_put(member, room->runs, runs, waiting ? room : NULL);
        wi_blocks_reap(pool, &done);
    }
    wi_blocks_unlock(pool);
    if (!good || !waiting)
        wi_waiting_free(room);
    wi_waiting_free(done);
    wi_waiting_free(waiting);
    return good ? WEIR_OK : block_pool_report(member, &wrong);
}

/* Shared blocks ---------------------------------------------------------------------------------------------------- */

static uint32_t block_pool_named(const uint32_t *indices, uint32_t flags, uint32_t k)
{
    return flags ? indices[0] + k : indices[k];
}

/* Whether the member's caller has as many references to the blocks as are named. Nothing is changed. */
static bool block_pool_may_drop(weir_block_pool_member *member, const uint32_t *indices, const uint32_t *generations,
                                uint32_t count, uint32_t flags, complaint *wrong)
{
    weir_block_pool *pool = member->pool;
    uint32_t k = 0, index = 0;
    bool meant = true;
    for (; k < count; k++) { /* what is named twice is dropped twice */
        index = block_pool_named(indices, flags, k);
        meant = !generations || block_pool_meant(member, index, generations[k]);
        if (!meant || !wi_blocks_has(member, index))
            break;
        pool->shares[index].references--;
    }
    for (uint32_t undo = k; undo-- > 0;)
        pool->shares[block_pool_named(indices, flags, undo)].references++;
    if (k == count)
        return true;
    *wrong = meant ? block_pool_complain(member, index) : block_pool_stale(member, index);
    if (meant && block_pool_may_free(member, index)) {
        wrong->status = WEIR_ERR_DOUBLE_FREE;
        wrong->state = wi_blocks_has(member, index) ? "named in the same call" : "a prefix cache's alone";
    }
    return false;
}

/* Drops them. Blocks without any reference are free or pending then, and those that a prefix cache alone has can be
 * evicted. The lock is held. */
static void block_pool_drop(weir_block_pool_member *member, const uint32_t *indices, uint32_t count, uint32_t flags,
                            wi_waiting *waiting)
{
    weir_block_pool *pool = member->pool;
    pool->tick++;
    for (uint32_t k = 0; waiting && k < count; k++) {
        uint32_t index = block_pool_named(indices, flags, k);
        waiting->runs[waiting->run_count++] = (wi_block_run){index, 1};
        pool->shares[index].leaving++;
    }
    if (waiting)
        block_pool_hang(pool, waiting);
    for (uint32_t k = 0; k < count; k++)
        wi_blocks_unreference(member, block_pool_named(indices, flags, k));
}

static weir_status block_pool_free_shared(weir_block_pool_member *member, const uint32_t *indices,
                                          const uint32_t *generations, uint32_t count, uint32_t flags,
                                          weir_stream stream)
{
    weir_block_pool *pool = member->pool;
    wi_waiting *waiting, *done = NULL;
    complaint wrong = {WEIR_OK, 0, 0, "", ""};
    weir_status status = block_pool_fence(member, stream, count, &waiting);
    if (status != WEIR_OK)
        return status;
    wi_blocks_lock(pool);
    bool good = block_pool_may_drop(member, indices, generations, count, flags, &wrong);
    if (good) {
        block_pool_drop(member, indices, count, flags, waiting);
        if (waiting)
            wi_blocks_reap(pool, &done);
    }
    wi_blocks_unlock(pool);
    wi_waiting_free(done);
    if (good)
        return WEIR_OK;
    wi_waiting_free(waiting);
    return block_pool_report(member, &wrong);
}

/* What is wrong with a free, whatever the blocks are. */
static weir_status block_pool_check_free(const weir_block_pool_member *member, const uint32_t *indices, bool named,
                                         uint32_t count, uint32_t flags)
{
    weir_status status = block_pool_free_check_call(member, "weir_block_pool_free");
    if (status != WEIR_OK)
        return status;
    if (flags & ~(uint32_t)WEIR_BLOCK_POOL_RUN)
        return weir_fail(WEIR_ERR_INVALID, "weir_block_pool_free: %#x has flags other than WEIR_BLOCK_POOL_RUN", flags);
    if (!indices || count == 0)
        return block_pool_out_of_range(member->pool, "weir_block_pool_free", 0, 0);
    if (named && !member->pool->generations)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "the pool %s does not count generations: make it with WEIR_BLOCK_POOL_NAMED",
                         member->pool->tag);
    return WEIR_OK;
}

weir_status weir_block_pool_free(weir_block_pool_member *member, const uint32_t *indices, const uint32_t *generations,
                                 uint32_t count, uint32_t flags, weir_stream stream)
{
    if (wi_likely(count == 1 && indices && !generations && flags == 0 &&
                  block_pool_free_fast(member, indices[0], stream)))
        return WEIR_OK;
    weir_status status = block_pool_check_free(member, indices, generations != NULL, count, flags);
    if (status != WEIR_OK)
        return status;
    uint32_t first = indices[0];
    bool listed = count > 1 && !flags;
    if (!listed && (first >= member->pool->count || count > member->pool->count - first))
        return block_pool_out_of_range(member->pool, "weir_block_pool_free", first, count);
    for (uint32_t k = 0; listed && k < count; k++)
        if (indices[k] >= member->pool->count)
            return block_pool_out_of_range(member->pool, "weir_block_pool_free", indices[k], 1);
    if (member->pool->shares)
        return block_pool_free_shared(member, indices, generations, count, flags, stream);
    if (listed)
        return block_pool_free_each(member, indices, generations, count, stream);
    return block_pool_free_run(member, (wi_block_run){first, count}, generations, stream);
}
