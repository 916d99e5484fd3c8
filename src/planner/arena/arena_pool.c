/* One pool for each runtime: idle blocks, which leave by being taken, by the cap, under pressure, or by a trim. */
#include "planner/arena/arena.h"
#include "runtime/runtime.h"

#include <weir/pressure.h>
#include <weir/arena.h>
#include <weir/stats.h>

struct weir_arena_pool {
    pthread_mutex_t lock;
    wi_idle *idle;
    uint32_t count, room;
    uint32_t away; /* blocks that have left the list, and may come back to it */
    uint64_t kept, taken, missed, dropped, given_up;

    weir_runtime *runtime;
    uint64_t cap;
    uint32_t waste;
    int priority;
    uint64_t pressure; /* the callback's id */
    uint32_t users;    /* under pools_lock, as the list */
    weir_arena_pool *next;
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static weir_arena_pool *pools;

static void unlock(weir_arena_pool *pool)
{
#ifdef WEIR_INVARIANTS
    uint64_t kept = 0;
    for (uint32_t i = 0; i < pool->count; i++)
        kept += pool->idle[i].charged;
    wi_assert(kept == pool->kept && pool->count + pool->away <= pool->room);
#endif
    pthread_mutex_unlock(&pool->lock);
}

/* Ordered writes --------------------------------------------------------------------------------------------------- */

static weir_status arena_pool_put(weir_runtime *runtime, void *to, const void *from, uint64_t bytes, weir_stream stream)
{
    if (bytes == 0)
        return WEIR_OK;
    return from ? weir_copy(runtime, to, from, bytes, stream) : weir_fill(runtime, to, 0, bytes, stream);
}

weir_status wi_order_write(weir_runtime *runtime, weir_block block, void *to, const void *from, uint64_t bytes,
                           weir_stream stream)
{
    weir_use use = {block, WEIR_ACCESS_WRITE};
    weir_launch *launch;
    weir_status status = weir_launch_begin(runtime, stream, &use, 1, &launch);
    if (status != WEIR_OK)
        return status;
    status = arena_pool_put(runtime, to, from, bytes, stream);
    if (status == WEIR_OK && weir_launch_end(launch) == WEIR_OK)
        return WEIR_OK;
    if (status == WEIR_OK) /* no event can say when it is done: it is done at return */
        status = weir_stream_synchronize(stream);
    weir_launch_abort(launch);
    return status;
}

/* Idle blocks ------------------------------------------------------------------------------------------------------ */

/* The next five with the lock held. */
static void insert(weir_arena_pool *pool, const wi_idle *idle, bool old)
{
    wi_assert(pool->count + pool->away < pool->room);
    if (old)
        memmove(&pool->idle[1], &pool->idle[0], pool->count * sizeof *idle);
    pool->idle[old ? 0 : pool->count] = *idle;
    pool->count++;
    pool->kept += idle->charged;
}

/* It may come back: its place in the list stays free until come_back or, once it cannot, `away` is one less. */
static wi_idle unlink_idle(weir_arena_pool *pool, uint32_t i)
{
    wi_idle idle = pool->idle[i];
    pool->kept -= idle.charged;
    pool->count--;
    pool->away++;
    memmove(&pool->idle[i], &pool->idle[i + 1], (pool->count - i) * sizeof idle);
    return idle;
}

/* At the old or the new end. */
static void arena_pool_come_back(weir_arena_pool *pool, const wi_idle *idle, bool old)
{
    pool->away--;
    insert(pool, idle, old);
}

/* False without host memory. */
static bool link_idle(weir_arena_pool *pool, const wi_idle *idle)
{
    if (pool->count + pool->away == pool->room) {
        uint32_t room = pool->room ? 2 * pool->room : 16;
        wi_idle *list = realloc(pool->idle, room * sizeof *list);
        if (!list)
            return false;
        pool->idle = list;
        pool->room = room;
    }
    insert(pool, idle, false);
    return true;
}

/* Finds the block that has been idle longest, of the client or, with NULL, of all clients; pool->count: none. */
static uint32_t longest_idle(const weir_arena_pool *pool, const weir_client *client)
{
    uint32_t i = 0;
    while (i < pool->count && client && pool->idle[i].client != client)
        i++;
    return i;
}

/* Finds the smallest idle block of at least `bytes`, else the largest idle block, of the client or, with NULL, of all
 * clients; pool->count: none. */
static uint32_t covering(const weir_arena_pool *pool, const weir_client *client, uint64_t bytes)
{
    uint32_t best = pool->count;
    for (uint32_t i = 0; i < pool->count; i++) {
        if (client && pool->idle[i].client != client)
            continue;
        uint64_t have = pool->idle[i].charged, found = best < pool->count ? pool->idle[best].charged : 0;
        if (found < bytes ? have > found : have >= bytes && have < found)
            best = i;
    }
    return best;
}

/* Frees a block that was taken out of the list and counted in *counter. On failure the block goes back into the
 * list. */
static weir_status free_idle(weir_arena_pool *pool, const wi_idle *idle, uint64_t *counter)
{
    weir_status status = weir_free_block(idle->client, idle->block, WEIR_STREAM_HOST);
    pthread_mutex_lock(&pool->lock);
    if (status == WEIR_OK) {
        pool->away--;
    } else {
        *counter -= 1;
        arena_pool_come_back(pool, idle, true);
    }
    unlock(pool);
    return status;
}

/* Frees until at most `keep` bytes of the client's, or of all clients', are left. */
static weir_status arena_pool_trim(weir_arena_pool *pool, const weir_client *client, uint64_t keep, uint64_t *freed,
                                   uint64_t *counter)
{
    for (;;) {
        pthread_mutex_lock(&pool->lock);
        uint64_t kept = client ? 0 : pool->kept;
        for (uint32_t i = 0; client && i < pool->count; i++)
            kept += pool->idle[i].client == client ? pool->idle[i].charged : 0;
        wi_idle idle = {.client = NULL};
        if (kept > keep) {
            idle = unlink_idle(pool, longest_idle(pool, client));
            *counter += 1;
        }
        unlock(pool);
        if (!idle.client)
            return WEIR_OK;
        weir_status status = free_idle(pool, &idle, counter);
        if (status != WEIR_OK)
            return status;
        *freed += idle.charged;
    }
}

/* Frees idle blocks, first blocks of the requesting client: this helps also when the client has reached its own
 * maximum. */
static void arena_pool_on_pressure(const weir_pressure *pressure, void *user)
{
    weir_arena_pool *pool = user;
    const weir_client *whose = pressure->client;
    for (uint64_t freed = 0; freed < pressure->shortfall;) {
        pthread_mutex_lock(&pool->lock);
        uint32_t i = covering(pool, whose, pressure->shortfall - freed);
        wi_idle idle = {.client = NULL};
        if (i < pool->count) {
            idle = unlink_idle(pool, i);
            pool->given_up++;
        }
        unlock(pool);
        if (idle.client && free_idle(pool, &idle, &pool->given_up) != WEIR_OK)
            return;
        freed += idle.charged;
        if (!idle.client && !whose)
            return;
        if (!idle.client)
            whose = NULL;
    }
}

/* Taking and giving ------------------------------------------------------------------------------------------------ */

static bool arena_pool_serves(const weir_arena_pool *pool, const wi_idle *idle, const weir_request *request)
{
    if (idle->bytes < request->bytes || (uintptr_t)idle->block.pointer % request->alignment != 0 ||
        idle->memory_class != request->memory_class)
        return false;
    return (unsigned __int128)(idle->bytes - request->bytes) * 100 <= (unsigned __int128)request->bytes * pool->waste;
}

weir_status wi_arena_pool_take(weir_arena_pool *pool, weir_client *client, const weir_request *request,
                               weir_block *block, uint64_t *capacity)
{
    wi_idle best = {.client = NULL};
    uint32_t at = 0;
    *block = (weir_block){NULL, 0};
    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < pool->count; i++) {
        const wi_idle *idle = &pool->idle[i];
        if (idle->client == client && arena_pool_serves(pool, idle, request) &&
            (!best.client || idle->bytes <= best.bytes)) { /* of equally large blocks the most recently used */
            best = *idle;
            at = i;
        }
    }
    *(best.client ? &pool->taken : &pool->missed) += 1;
    if (best.client)
        unlink_idle(pool, at);
    unlock(pool);
    if (!best.client)
        return WEIR_OK;
    weir_status status = wi_order_write(pool->runtime, best.block, best.block.pointer, NULL,
                                        request->flags & WEIR_ALLOC_ZEROED ? best.bytes : 0, request->stream);
    pthread_mutex_lock(&pool->lock);
    if (status == WEIR_OK) {
        pool->away--;
    } else {
        pool->taken--;
        arena_pool_come_back(pool, &best, false);
    }
    unlock(pool);
    if (status != WEIR_OK)
        return status;
    *block = best.block;
    *capacity = best.bytes;
    return WEIR_OK;
}

/* As the ledger counts the block, which adaptors may have made longer. */
static weir_status arena_pool_measure(wi_idle *idle)
{
    weir_block_details details = {.struct_size = sizeof details};
    weir_status status = weir_block_info(idle->block.pointer, &details);
    idle->charged = details.charged;
    return status;
}

weir_status wi_arena_pool_give(weir_arena_pool *pool, const wi_idle *given, weir_stream stream)
{
    wi_idle idle = *given;
    weir_status status = arena_pool_measure(&idle);
    if (status != WEIR_OK)
        return status;
    if (idle.charged > pool->cap)
        return weir_free_block(idle.client, idle.block, stream);
    status = wi_order_write(pool->runtime, idle.block, NULL, NULL, 0, stream);
    if (status == WEIR_ERR_DEVICE_LOST) /* a lost device cannot use the block again */
        return weir_free_block(idle.client, idle.block, WEIR_STREAM_HOST);
    if (status != WEIR_OK)
        return status;
    uint64_t freed = 0;
    status = arena_pool_trim(pool, NULL, pool->cap - idle.charged, &freed, &pool->dropped);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&pool->lock);
    bool linked = pool->kept + idle.charged <= pool->cap && link_idle(pool, &idle);
    unlock(pool);
    return linked ? WEIR_OK : weir_free_block(idle.client, idle.block, WEIR_STREAM_HOST);
}

/* Pools ------------------------------------------------------------------------------------------------------------ */

static weir_status arena_pool_listen(weir_arena_pool *pool)
{
    return weir_pressure_register(pool->runtime, pool->priority, arena_pool_on_pressure, pool, &pool->pressure);
}

static weir_status arena_pool_make(weir_runtime *runtime, const weir_arena_pool_options *o, weir_arena_pool **out)
{
    weir_arena_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a pool of arenas");
    pthread_mutex_init(&pool->lock, NULL);
    pool->runtime = runtime;
    pool->cap = o->cap;
    pool->waste = o->waste ? o->waste : 25;
    pool->priority = o->priority;
    weir_stats stats = {.struct_size = sizeof stats};
    size_t clients;
    weir_status status = o->cap ? WEIR_OK : weir_snapshot(runtime, &stats, NULL, 0, &clients);
    if (status == WEIR_OK && !o->cap)
        pool->cap = stats.budget / 8;
    if (status == WEIR_OK)
        status = arena_pool_listen(pool);
    if (status != WEIR_OK) {
        pthread_mutex_destroy(&pool->lock);
        free(pool);
        return status;
    }
    pool->next = pools;
    pools = pool;
    *out = pool;
    return WEIR_OK;
}

static weir_status arena_pool_compare(const weir_arena_pool *pool, const weir_arena_pool_options *o)
{
    uint32_t waste = o->waste ? o->waste : 25;
    if ((o->cap == 0 || o->cap == pool->cap) && waste == pool->waste && o->priority == pool->priority)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_CONFLICT,
                     "the runtime's pool of arenas has a cap of %llu bytes, a waste of %u %% and priority %d; it "
                     "cannot have %llu bytes, %u %% and priority %d",
                     (unsigned long long)pool->cap, pool->waste, pool->priority, (unsigned long long)o->cap, waste,
                     o->priority);
}

weir_status weir_arena_pool_acquire(weir_runtime *runtime, const weir_arena_pool_options *options,
                                    weir_arena_pool **out)
{
    WI_ENTER();
    weir_arena_pool_options o = {.struct_size = 0};
    if (!runtime || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_pool_acquire: no runtime, or no place for the result");
    weir_status status = WI_COPY_OPTIONS_IN(weir_arena_pool_options, &o, options, "weir_arena_pool_acquire");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    if (o.waste > 1000)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_pool_acquire: a waste of %u %% is more than 1000 %%", o.waste);
    WI_VISIT(runtime);
    pthread_mutex_lock(&pools_lock);
    weir_arena_pool *pool = pools;
    while (pool && pool->runtime != runtime)
        pool = pool->next;
    status = WEIR_OK;
    if (!pool)
        status = arena_pool_make(runtime, &o, &pool);
    else if (options)
        status = arena_pool_compare(pool, &o);
    if (status == WEIR_OK) {
        pool->users++;
        *out = pool;
    }
    pthread_mutex_unlock(&pools_lock);
    return status;
}

void wi_arena_pool_hold(weir_arena_pool *pool)
{
    pthread_mutex_lock(&pools_lock);
    pool->users++;
    pthread_mutex_unlock(&pools_lock);
}

weir_runtime *wi_arena_pool_runtime(const weir_arena_pool *pool)
{
    return pool->runtime;
}

/* Removes a user, and takes a pool without users out of the list. False: the pool still has users. */
static bool arena_pool_leave(weir_arena_pool *pool)
{
    pthread_mutex_lock(&pools_lock);
    bool last = --pool->users == 0;
    weir_arena_pool **at = &pools;
    while (last && *at != pool)
        at = &(*at)->next;
    if (last)
        *at = pool->next;
    pthread_mutex_unlock(&pools_lock);
    return last;
}

/* It could not be emptied, and serves its last user on. */
static void come_again(weir_arena_pool *pool)
{
    wi_saved_detail saved;
    wi_detail_save(&saved);
    if (arena_pool_listen(pool) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "workspace: a pool of arenas gives up nothing any more: %s", weir_detail());
    wi_detail_restore(&saved);
    pthread_mutex_lock(&pools_lock);
    pool->users++;
    pool->next = pools;
    pools = pool;
    pthread_mutex_unlock(&pools_lock);
}

weir_status weir_arena_pool_release(weir_arena_pool *pool)
{
    WI_ENTER();
    if (!pool)
        return WEIR_OK;
    WI_VISIT(pool->runtime);
    if (!arena_pool_leave(pool))
        return WEIR_OK;
    /* Also inside a callback of the program's: the pool's own waits for no other. What it could not free is back after
     * that, and freed here. */
    uint64_t freed = 0;
    weir_status status = wi_pressures_remove(&pool->runtime->ledger.pressures, pool->pressure, true);
    if (status == WEIR_OK)
        status = arena_pool_trim(pool, NULL, 0, &freed, &freed);
    if (status != WEIR_OK) {
        come_again(pool);
        return status;
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool->idle);
    free(pool);
    return WEIR_OK;
}

weir_status weir_arena_pool_trim(weir_arena_pool *pool, weir_client *client, uint64_t keep, uint64_t *freed)
{
    WI_ENTER();
    uint64_t bytes = 0, blocks = 0;
    if (!pool)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_pool_trim: NULL");
    weir_status status = arena_pool_trim(pool, client, keep, &bytes, &blocks);
    if (freed)
        *freed = bytes;
    return status;
}

weir_status weir_arena_pool_info(weir_arena_pool *pool, weir_arena_pool_details *out)
{
    WI_ENTER();
    if (!pool || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_pool_info: NULL");
    pthread_mutex_lock(&pool->lock);
    weir_arena_pool_details details = {.cap = pool->cap,
                                       .kept = pool->kept,
                                       .taken = pool->taken,
                                       .missed = pool->missed,
                                       .dropped = pool->dropped,
                                       .given_up = pool->given_up,
                                       .blocks = pool->count,
                                       .waste = pool->waste};
    unlock(pool);
    if (!wi_copy_out(out, out->struct_size, &details, sizeof details))
        return weir_fail(WEIR_ERR_INVALID, "weir_arena_pool_info: a structure without its size");
    return WEIR_OK;
}
