/* Pools of PyTorch, one pool for each MempoolId_t: memory of captured graphs, which stays with the graphs until the
 * last graph is gone.
 *
 * A block of a pool that was freed is the weir_capture_pool's again, in the order of its stream, but for two kinds. One that
 * a state has in it (graph trees take the state of a pool after each graph) stays as it is until no state has it, so that
 * the state can be set again. And one of a captured stream that weir does not know stays until the pool is filled no more:
 * such streams are not told apart, and what one of them frees another would get in the middle of a graph. */
#include "seams/torch.h"
#include "seams/seams.h"

#include "base/maps.h"
#include "seams/places.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct wtorch_pool wtorch_pool;

typedef struct pool_block {
    wtorch_pool *pool;
    struct pool_block *next, *previous;
    void *pointer, *native;
    size_t bytes;
    weir_stream stream;
    unsigned states; /* states that have the block */
    bool live;
} pool_block;

struct wtorch_pool {
    wtorch_pool *next;
    int device;
    uint64_t id[2];
    unsigned users;                      /* begins without a release */
    unsigned states, blocks, allocating; /* states and blocks of the pool, allocations under way */
    bool filling;
    wtorch_filter filter;
    weir_capture_pool *memory;
    pool_block *first;
};

typedef struct pool_state {
    wtorch_pool *pool;
    size_t count;
    pool_block *blocks[];
} pool_state;

static struct {
    pthread_mutex_t lock;
    wtorch_pool *first;
    wi_pointer_map blocks; /* to pool_block */
    atomic_uint filling, count;
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held in all of these -------------------------------------------------------------------------------- */

static wtorch_pool *find_pool(int device, const uint64_t *id)
{
    wtorch_pool *pool = pools.first;
    while (pool && (pool->device != device || pool->id[0] != id[0] || pool->id[1] != id[1]))
        pool = pool->next;
    return pool;
}

static weir_status torch_pools_make_pool(int device, const uint64_t *id, wtorch_pool **out)
{
    wtorch_pool *pool = calloc(1, sizeof *pool);
    weir_status status = pool ? weir_capture_pool_create(wtorch_client(device), &pool->memory)
                              : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a pool of PyTorch's");
    if (status != WEIR_OK) {
        free(pool);
        return status;
    }
    *pool = (wtorch_pool){.next = pools.first, .device = device, .id = {id[0], id[1]}, .memory = pool->memory};
    pools.first = *out = pool;
    return WEIR_OK;
}

static pool_block *find_block(const void *pointer)
{
    uint64_t value = 0;
    if (!pointer || !wi_pointer_map_remove(&pools.blocks, pointer, &value))
        return NULL;
    (void)wi_pointer_map_put(&pools.blocks, pointer, value); /* there is room: it was there */
    return (pool_block *)(uintptr_t)value;
}

/* Frees the block, unless the block is live, a state has it, or its stream is unknown to weir and the pool is still
 * being filled. */
static void drop_block(pool_block *block)
{
    uint64_t value;
    wtorch_pool *pool = block->pool;
    if (block->live || block->states > 0 || (block->stream.id == WEIR_STREAM_HOST.id && pool->filling))
        return;
    (void)wi_pointer_map_remove(&pools.blocks, block->pointer, &value);
    *(block->previous ? &block->previous->next : &pool->first) = block->next;
    if (block->next)
        block->next->previous = block->previous;
    pool->blocks--;
    atomic_fetch_sub(&pools.count, 1);
    wseam_free(wtorch_client(pool->device), block->pointer, block->stream);
    free(block);
}

/* Blocks that are live become ordinary ones of weir's, and stay known here. */
static void reclaim(void)
{
    for (wtorch_pool **link = &pools.first; *link;) {
        wtorch_pool *pool = *link;
        if (pool->users > 0 || pool->filling || pool->allocating > 0 ||
            (pool->memory && weir_capture_pool_destroy(pool->memory, WEIR_STREAM_ALL) != WEIR_OK)) {
            link = &pool->next;
            continue;
        }
        pool->memory = NULL;
        if (pool->blocks > 0 || pool->states > 0) {
            link = &pool->next;
            continue;
        }
        *link = pool->next;
        free(pool);
    }
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

/* The lock is held. NULL: no pool is filled by that stream. */
static wtorch_pool *find_filled(int device, void *native)
{
    wtorch_pool *pool = pools.first;
    while (pool && !(pool->device == device && pool->filling && wtorch_filter_accepts(&pool->filter, native)))
        pool = pool->next;
    return pool;
}

/* In a capture nothing is waited for. */
static weir_status take_memory(const wtorch_pool *pool, pool_block *block)
{
    weir_block made;
    weir_request request = WEIR_INIT(weir_request);
    request.bytes = block->bytes;
    request.stream = block->stream;
    request.memory_class = WEIR_CLASS_ACTIVATIONS;
    request.flags = block->stream.id == WEIR_STREAM_HOST.id ? WEIR_ALLOC_NO_WAIT : 0;
    request.pool = pool->memory;
    weir_status status = weir_alloc_with(wtorch_client(pool->device), &request, &made);
    block->pointer = made.pointer;
    return status;
}

/* The lock is held. */
static weir_status enlist_block(pool_block *block)
{
    wtorch_pool *pool = block->pool;
    if (!wi_pointer_map_put(&pools.blocks, block->pointer, (uintptr_t)block))
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a block of a pool");
    block->next = pool->first;
    if (pool->first)
        pool->first->previous = block;
    pool->first = block;
    pool->blocks++;
    atomic_fetch_add(&pools.count, 1);
    return WEIR_OK;
}

/* The pool stays, as `allocating` counts this. */
static weir_status alloc_in(wtorch_pool *pool, size_t bytes, void *native, weir_stream stream, void **out)
{
    pool_block *block = malloc(sizeof *block);
    if (!block)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a block of a pool");
    *block = (pool_block){.pool = pool, .native = native, .bytes = bytes, .stream = stream, .live = true};
    weir_status status = take_memory(pool, block);
    if (status == WEIR_OK) {
        pthread_mutex_lock(&pools.lock);
        status = enlist_block(block);
        pthread_mutex_unlock(&pools.lock);
        if (status != WEIR_OK)
            wseam_free(wtorch_client(pool->device), block->pointer, stream);
    }
    if (status == WEIR_OK)
        *out = block->pointer;
    else
        free(block);
    return status;
}

bool wtorch_pool_alloc(int device, size_t bytes, void *native, weir_stream stream, weir_status *status, void **out)
{
    if (atomic_load_explicit(&pools.filling, memory_order_acquire) == 0)
        return false;
    pthread_mutex_lock(&pools.lock);
    wtorch_pool *pool = find_filled(device, native);
    if (pool)
        pool->allocating++;
    pthread_mutex_unlock(&pools.lock);
    if (!pool)
        return false;
    *status = alloc_in(pool, bytes, native, stream, out);
    pthread_mutex_lock(&pools.lock);
    pool->allocating--;
    pthread_mutex_unlock(&pools.lock);
    return true;
}

bool wtorch_pool_free(const void *pointer)
{
    if (atomic_load_explicit(&pools.count, memory_order_acquire) == 0)
        return false;
    pthread_mutex_lock(&pools.lock);
    pool_block *block = find_block(pointer);
    if (block) {
        block->live = false;
        drop_block(block);
    }
    pthread_mutex_unlock(&pools.lock);
    return block != NULL;
}

void wtorch_pools_reclaim(void)
{
    pthread_mutex_lock(&pools.lock);
    reclaim();
    pthread_mutex_unlock(&pools.lock);
}

/* Hooks ------------------------------------------------------------------------------------------------------------ */

void wseam_torch_begin_pool(int device, uint64_t first, uint64_t second, const void *filter)
{
    const uint64_t id[2] = {first, second};
    weir_stream ignored;
    weir_client *client = wtorch_client_open(device);
    weir_status status = client ? WEIR_OK : WEIR_ERR_NOT_FOUND;
    void *native = client ? wtorch_abi_current_stream(device) : NULL;
    if (native) /* once it is captured it cannot be made known to weir any more */
        (void)!wseam_place_of(client, native, &ignored);
    pthread_mutex_lock(&pools.lock);
    reclaim();
    wtorch_pool *pool = find_pool(device, id);
    if (status == WEIR_OK && pool && pool->filling)
        status = weir_fail(WEIR_ERR_BUSY, "pool (%llu, %llu) is being filled already", (unsigned long long)first,
                           (unsigned long long)second);
    else if (status == WEIR_OK && (!pool || !pool->memory))
        status = pool ? weir_capture_pool_create(client, &pool->memory) : torch_pools_make_pool(device, id, &pool);
    if (status == WEIR_OK) {
        pool->users++;
        pool->filling = true;
        wtorch_filter_copy(&pool->filter, filter);
        atomic_fetch_add(&pools.filling, 1);
    }
    pthread_mutex_unlock(&pools.lock);
    if (status != WEIR_OK)
        wtorch_abi_throw(false, weir_detail());
}

void wseam_torch_end_pool(int device, uint64_t first, uint64_t second)
{
    const uint64_t id[2] = {first, second};
    pthread_mutex_lock(&pools.lock);
    wtorch_pool *pool = find_pool(device, id);
    if (pool && pool->filling) {
        pool->filling = false;
        wtorch_filter_drop(&pool->filter);
        atomic_fetch_sub(&pools.filling, 1);
        for (pool_block *block = pool->first, *next; block; block = next) {
            next = block->next;
            drop_block(block);
        }
    }
    pthread_mutex_unlock(&pools.lock);
    wseam_free_waiting();
}

void wseam_torch_release_pool(int device, uint64_t first, uint64_t second)
{
    const uint64_t id[2] = {first, second};
    pthread_mutex_lock(&pools.lock);
    wtorch_pool *pool = find_pool(device, id);
    if (pool && pool->users > 0)
        pool->users--;
    reclaim();
    pthread_mutex_unlock(&pools.lock);
}

weir_status wseam_torch_keep_pool(int device, uint64_t first, uint64_t second)
{
    const uint64_t id[2] = {first, second};
    if (!wtorch_client_open(device))
        return WEIR_ERR_NOT_FOUND;
    pthread_mutex_lock(&pools.lock);
    wtorch_pool *pool = find_pool(device, id);
    weir_status status = pool ? WEIR_OK : torch_pools_make_pool(device, id, &pool);
    if (status == WEIR_OK)
        pool->users++;
    pthread_mutex_unlock(&pools.lock);
    return status;
}

unsigned wseam_torch_pool_users(int device, uint64_t first, uint64_t second)
{
    const uint64_t id[2] = {first, second};
    pthread_mutex_lock(&pools.lock);
    const wtorch_pool *pool = find_pool(device, id);
    unsigned users = pool ? pool->users : 0;
    pthread_mutex_unlock(&pools.lock);
    return users;
}

size_t wseam_torch_pool_blocks(int device, uint64_t first, uint64_t second, void **blocks, size_t room)
{
    const uint64_t id[2] = {first, second};
    size_t count = 0;
    pthread_mutex_lock(&pools.lock);
    const wtorch_pool *pool = find_pool(device, id);
    for (const pool_block *block = pool ? pool->first : NULL; block; block = block->next)
        if (block->live && count++ < room)
            blocks[count - 1] = block->pointer;
    pthread_mutex_unlock(&pools.lock);
    return count;
}

int wseam_torch_pool_of(const void *pointer, uint64_t id[2])
{
    int found = 0;
    if (atomic_load_explicit(&pools.count, memory_order_acquire) == 0)
        return 0;
    pthread_mutex_lock(&pools.lock);
    const pool_block *block = find_block(pointer);
    if (block) {
        memcpy(id, block->pool->id, sizeof block->pool->id);
        found = block->live ? 2 : 1;
    }
    pthread_mutex_unlock(&pools.lock);
    return found;
}

/* States ----------------------------------------------------------------------------------------------------------- */

void *wtorch_state_get(int device, const uint64_t *id)
{
    pthread_mutex_lock(&pools.lock);
    wtorch_pool *pool = find_pool(device, id);
    pool_state *state = pool ? calloc(1, sizeof *state + pool->blocks * sizeof(pool_block *)) : NULL;
    if (state) {
        state->pool = pool;
        pool->states++;
        for (pool_block *block = pool->first; block; block = block->next)
            if (block->live) {
                block->states++;
                state->blocks[state->count++] = block;
            }
    }
    pthread_mutex_unlock(&pools.lock);
    if (!state)
        wtorch_abi_throw(false, pool ? "no host memory for the state of a pool"
                                     : "the state of a pool that is none was asked for");
    return state;
}

void wtorch_state_drop(void *given)
{
    pool_state *state = given;
    pthread_mutex_lock(&pools.lock);
    for (size_t i = 0; i < state->count; i++) {
        state->blocks[i]->states--;
        drop_block(state->blocks[i]);
    }
    state->pool->states--;
    reclaim();
    pthread_mutex_unlock(&pools.lock);
    free(state);
}

static bool state_has(const pool_state *state, const pool_block *block)
{
    for (size_t i = 0; i < state->count; i++)
        if (state->blocks[i] == block)
            return true;
    return false;
}

/* One that is to be freed for the state, or else with `gone` one that is to live again; NULL: there is none. */
static pool_block *state_next(const pool_state *state, bool gone)
{
    pool_block *found = NULL;
    pthread_mutex_lock(&pools.lock);
    for (pool_block *block = state->pool->first; block && !found; block = block->next)
        if (block->live != gone && state_has(state, block) == gone)
            found = block;
    if (found && gone)
        found->live = true;
    pthread_mutex_unlock(&pools.lock);
    return found;
}

/* What `freed` and `alive` are told of comes back as a free, and as an allocation. */
void wtorch_state_set(void *given, void (*freed)(void *user, void *pointer),
                      void (*alive)(void *user, void *pointer, size_t bytes, void *native), void *user)
{
    pool_state *state = given;
    for (pool_block *block; (block = state_next(state, false));)
        freed(user, block->pointer);
    for (pool_block *block; (block = state_next(state, true));)
        alive(user, block->pointer, block->bytes, block->native);
}
