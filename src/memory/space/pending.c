/* Deferred frees: the list of pending blocks, reaping and waiting. */
#include "memory/space/pending.h"
#include "base/probes.h"
#include "base/system.h"
#include "memory/space/stream_order.h"

#include <weir/base.h>

void wi_pending_init(wi_pending *pending, const wi_driver *driver, wi_device *device)
{
    *pending = (wi_pending){.driver = driver, .device = device};
    pthread_mutex_init(&pending->lock, NULL);
    pthread_cond_init(&pending->released, NULL);
}

void wi_pending_destroy(wi_pending *pending)
{
    wi_assert(!pending->first && pending->working == 0);
    pthread_cond_destroy(&pending->released);
    pthread_mutex_destroy(&pending->lock);
}

/* The list, with the lock held ------------------------------------------------------------------------------------- */

static void pending_append(wi_pending *pending, wi_block *block)
{
    block->pending_previous = pending->last;
    block->pending_next = NULL;
    block->listed = true;
    *(pending->last ? &pending->last->pending_next : &pending->first) = block;
    pending->last = block;
    atomic_fetch_add_explicit(&pending->count, 1, memory_order_relaxed);
}

static void pending_take_out(wi_pending *pending, wi_block *block)
{
    block->listed = false;
    atomic_fetch_sub_explicit(&pending->count, 1, memory_order_relaxed);
    *(block->pending_previous ? &block->pending_previous->pending_next : &pending->first) = block->pending_next;
    *(block->pending_next ? &block->pending_next->pending_previous : &pending->last) = block->pending_previous;
}

/* Whether the device is past the free and all uses of the block; else *waiting is one event that has not passed. Never
 * blocks. */
static bool pending_is_past(const wi_pending *pending, const wi_block *block, wi_event *waiting)
{
    *waiting = block->freed;
    return pending->driver->passed(pending->device, block->freed) &&
           wi_stream_uses_passed(block->stream_uses, pending->driver, pending->device, waiting);
}

/* Releasing, with the lock released meanwhile ---------------------------------------------------------------------- */

/* Lists whose blocks this thread is releasing. Releasing may log, the log's function may allocate, and an allocation
 * that waited for this thread would wait for itself. */
static _Thread_local size_t in_hand;

/* Around the release of blocks: the lock is released in between. */
static unsigned pending_begin_release(wi_pending *pending)
{
    pending->working++;
    pending->at_work[pending->side]++;
    in_hand++;
    return pending->side;
}

static void pending_end_release(wi_pending *pending, unsigned side)
{
    in_hand--;
    pending->at_work[side]--;
    pending->working--;
    pending->ends++;
    pthread_cond_broadcast(&pending->released);
}

/* Releases the blocks of a list, linked by pending_next, that was taken out. Returns their bytes. */
static uint64_t pending_release_list(wi_pending *pending, wi_block *list)
{
    uint64_t bytes = 0;
    wi_block *refused = NULL;
    unsigned side = pending_begin_release(pending);
    pthread_mutex_unlock(&pending->lock);
    for (wi_block *block = list, *next; block; block = next) {
        uint64_t charged = block->charged;
        next = block->pending_next; /* the record may serve another block at once */
        if (wi_release(block->stack, block) == WEIR_OK) {
            bytes += charged;
            continue;
        }
        weir_log(WEIR_LOG_WARNING, "a free is tried again later: %s", weir_detail());
        block->pending_next = refused;
        refused = block;
    }
    pthread_mutex_lock(&pending->lock);
    for (wi_block *block = refused, *next; block; block = next) {
        next = block->pending_next;
        block->refused = true;
        atomic_fetch_add(&pending->failures, 1);
        pending_append(pending, block);
    }
    pending_end_release(pending, side);
    return bytes;
}

void wi_pending_put_back(wi_pending *pending, wi_resource *stack, wi_block *block, const wi_event *event)
{
    block->stack = stack;
    block->freed = event ? *event : (wi_event){0};
    block->pending_next = NULL;
    if (event)
        pending_append(pending, block);
    else
        (void)pending_release_list(pending, block);
}

void wi_pending_add(wi_pending *pending, wi_resource *stack, wi_block *block, const wi_event *event)
{
    pthread_mutex_lock(&pending->lock);
    wi_pending_put_back(pending, stack, block, event);
    pthread_mutex_unlock(&pending->lock);
}

/* Whether the block waits for nothing but its own stream, and its base can hand it over in that order. */
static bool pending_waits_for_stream_alone(const wi_pending *pending, const wi_block *block)
{
    wi_event ignored;
    return block->freed.stream && block->stack->base->table->hand_over &&
           (block->stack->features & WEIR_FEATURE_STREAM_ORDERED) &&
           wi_stream_uses_passed(block->stream_uses, pending->driver, pending->device, &ignored);
}

/* Hands the block to the driver in the order of its stream. The block was retired before, so the free is recorded
 * before the addresses serve again. On failure, release does it later. The lock is held, and released meanwhile. */
static void pending_hand_over(wi_pending *pending, wi_block *block, void *native)
{
    wi_base *base = block->stack->base;
    unsigned side = pending_begin_release(pending);
    pthread_mutex_unlock(&pending->lock);
    (void)!base->table->hand_over(base, block, native);
    pthread_mutex_lock(&pending->lock);
    pending_end_release(pending, side);
}

void wi_pending_free(wi_pending *pending, wi_resource *stack, wi_block *block, weir_stream stream, void *native,
                     const wi_event *event)
{
    pthread_mutex_lock(&pending->lock);
    block->stack = stack;
    block->freed = event ? *event : (wi_event){0};
    block->pending_next = NULL;
    if (!wi_retire(stack, block, stream, native, event ? WI_UNPASSED : WI_PASSED)) {
        if (event && pending_waits_for_stream_alone(pending, block))
            pending_hand_over(pending, block, native);
        if (event)
            pending_append(pending, block);
        else
            (void)pending_release_list(pending, block);
    }
    pthread_mutex_unlock(&pending->lock);
}

static bool pending_is_of(const wi_block *block, const wi_base *base)
{
    return !base || block->stack->base == base;
}

/* Until so many blocks were met that the device is not past. */
static uint64_t pending_reap(wi_pending *pending, const wi_base *base, size_t misses, bool refused)
{
    wi_event ignored;
    wi_block *done = NULL, **end = &done;
    uint64_t bytes = 0;
    pthread_mutex_lock(&pending->lock);
    for (wi_block *block = pending->first, *next; block && misses > 0; block = next) {
        next = block->pending_next;
        if (!pending_is_of(block, base) || (block->refused && !refused))
            continue;
        if (!pending_is_past(pending, block, &ignored) && !wi_has_bug(WI_BUG_EARLY_REUSE)) {
            misses--;
            continue;
        }
        pending_take_out(pending, block);
        block->pending_next = NULL;
        *end = block;
        end = &block->pending_next;
    }
    if (done)
        bytes = pending_release_list(pending, done);
    pthread_mutex_unlock(&pending->lock);
    return bytes;
}

uint64_t wi_pending_reap(wi_pending *pending, const wi_base *base)
{
    return pending_reap(pending, base, SIZE_MAX, true);
}

uint64_t wi_pending_reap_oldest(wi_pending *pending, const wi_base *base)
{
    enum { MISSES = 64 };
    return atomic_load_explicit(&pending->count, memory_order_relaxed) > 0 ? pending_reap(pending, base, MISSES, false)
                                                                           : 0;
}

bool wi_pending_take(wi_pending *pending, wi_block *block)
{
    bool listed = block->listed;
    if (listed)
        pending_take_out(pending, block);
    return listed;
}

/* Waiting ---------------------------------------------------------------------------------------------------------- */

static bool pending_await_release(wi_pending *pending)
{
    if (pending->working <= pending->waiting + in_hand || wi_alone)
        return false;
    pending->waiting += in_hand;
    for (uint64_t seen = pending->ends; seen == pending->ends;)
        pthread_cond_wait(&pending->released, &pending->lock);
    pending->waiting -= in_hand;
    return true;
}

bool wi_pending_drain(wi_pending *pending)
{
    pthread_mutex_lock(&pending->lock);
    bool released = pending_await_release(pending);
    pthread_mutex_unlock(&pending->lock);
    return released;
}

void wi_pending_finish(wi_pending *pending)
{
    pthread_mutex_lock(&pending->lock);
    bool others = in_hand == 0 && !wi_alone;
    while (others && pending->finishing)
        pthread_cond_wait(&pending->released, &pending->lock);
    unsigned side = pending->side;
    if (others && pending->at_work[side] > 0) {
        pending->finishing = true;
        pending->side = !side; /* threads that begin now are left to the next caller */
        while (pending->at_work[side] > 0)
            pthread_cond_wait(&pending->released, &pending->lock);
        pending->finishing = false;
        pthread_cond_broadcast(&pending->released);
    }
    pthread_mutex_unlock(&pending->lock);
}

bool wi_pending_wait(wi_pending *pending, const wi_base *base, const wi_account *account, uint64_t deadline)
{
    wi_event event;
    bool past = true, found = false;
    pthread_mutex_lock(&pending->lock);
    for (const wi_block *block = pending->first; block && !found; block = block->pending_next)
        if (pending_is_of(block, base) && (!account || block->account == account) && !block->refused) {
            past = pending_is_past(pending, block, &event);
            found = true;
        }
    if (!found)
        found = pending_await_release(pending);
    pthread_mutex_unlock(&pending->lock);
    if (!past && pending->driver->wait(pending->device, event, deadline) != WEIR_OK)
        return false; /* timed out, or the driver cannot wait: trying again might never end */
    return found;
}
