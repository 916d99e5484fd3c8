/* Free: a block is acquired, ordered behind the work of its stream and its declared uses, and handed to its base or to the list
 * of pending blocks. */
#include "memory/away.h"
#include "runtime/runtime.h"
#include "base/probes.h"
#include "memory/space/stream_order.h"

weir_status wi_free_note_zeroing(weir_runtime *runtime, wi_block *block, weir_stream stream)
{
    wi_event event;
    if (!wi_block_is_behind(block) || stream.id == block->stream.id)
        return WEIR_OK;
    weir_status status = wi_streams_point(runtime, block->stream, &event);
    if (status == WEIR_OK)
        status = wi_stream_uses_first_write(&block->stream_uses, event);
    if (status == WEIR_OK)
        wi_block_came_behind(block);
    return status;
}

/* Whether the order of the stream is all that the free waits for, and the stack hands the bytes on in that order. On
 * the default stream of one thread others could record nothing later. */
static bool free_follows(weir_runtime *runtime, wi_resource *stack, const wi_block *block, const wi_stream_facts *at)
{
    wi_event ignored;
    return at->native && stack->keeps_order && !at->one_threads &&
           (!block->stream_uses ||
            wi_stream_uses_passed(block->stream_uses, runtime->driver, runtime->device, &ignored)) &&
           stack->base->table->follow(stack->base, at->stream, at->native);
}

weir_status wi_free_record_fence(weir_runtime *runtime, const wi_block *block, const wi_stream_facts *at,
                                 wi_free_fence *f)
{
    wi_event ignored;
    weir_status status = wi_streams_record(runtime, at, &f->event);
    bool past = status == WEIR_OK && runtime->driver->passed(runtime->device, f->event) &&
                wi_stream_uses_passed(block->stream_uses, runtime->driver, runtime->device, &ignored);
    f->past = past ? WI_PASSED : WI_UNPASSED;
    return status;
}

/* An away block is freed at once. Work may still use the bytes that are shown, and bytes that a resume copies back may be on
 * their way, so both are waited for. `point`: of the free. */
static weir_status free_wait_for_away(weir_runtime *runtime, const wi_block *block, wi_event point)
{
    const wi_driver *driver = runtime->driver;
    wi_event event = {0};
    weir_status status = block->shown ? driver->wait(runtime->device, point, UINT64_MAX) : WEIR_OK;
    if (status == WEIR_OK && block->shown && wi_block_is_behind(block)) {
        status = wi_streams_ended(&runtime->streams, block->stream)
                     ? wi_streams_point_of_all(runtime, "weir_free", &event)
                     : wi_streams_point(runtime, block->stream, &event);
        if (status == WEIR_OK)
            status = driver->wait(runtime->device, event, UINT64_MAX);
    }
    for (uint32_t k = 0; status == WEIR_OK && wi_stream_uses_point(block->stream_uses, WEIR_ACCESS_WRITE, k, &event);
         k++)
        status = driver->wait(runtime->device, event, UINT64_MAX);
    return status;
}

static weir_status free_make_fence(weir_runtime *runtime, wi_resource *stack, wi_block *block,
                                   const wi_stream_facts *at, wi_free_fence *f)
{
    if (at->stream.id == WEIR_STREAM_ALL.id) { /* what zeroes the block is on a stream as well */
        *f = (wi_free_fence){.past = WI_UNPASSED};
        weir_status all = wi_streams_point_of_all(runtime, "weir_free", &f->event);
        return all == WEIR_OK && block->away > 0 ? free_wait_for_away(runtime, block, f->event) : all;
    }
    weir_status status = wi_streams_check(&runtime->streams, at, runtime->name);
    wi_window(WI_WINDOW_FREE_LOOKED);
    f->native = at->native;
    if (status == WEIR_OK && at->captured)
        status = wi_streams_captured(runtime, at->stream, "weir_free");
    f->behind_all = false;
    f->past = WI_PASSED;
    if (status == WEIR_OK && block->away > 0) {
        f->event = (wi_event){0};
        if (f->native)
            status = runtime->driver->record(runtime->device, f->native, &f->event);
        return status == WEIR_OK ? free_wait_for_away(runtime, block, f->event) : status;
    }
    if (status != WEIR_OK)
        return status;
    status = wi_free_note_zeroing(runtime, block, at->stream);
    if (status == WEIR_ERR_STREAM_MISUSE && stack->base->table->bound && stack->keeps_order &&
        wi_streams_ended(&runtime->streams, block->stream)) {
        f->behind_all = true;
        f->past = WI_IN_ORDER;
        return WEIR_OK;
    }
    if (status != WEIR_OK)
        return status;
    if (!free_follows(runtime, stack, block, at))
        return wi_free_record_fence(runtime, block, at, f);
    f->past = WI_IN_ORDER;
    return runtime->driver->stream_capturing(runtime->device, f->native)
               ? wi_streams_captured(runtime, at->stream, "weir_free")
               : WEIR_OK;
}

const wi_account *wi_free_account(const weir_client *client, const wi_resource *stack)
{
    bool own = stack == client->runtime->resource || stack->ledger == &client->runtime->ledger;
    return own ? &client->account : &client->host_account;
}

weir_status wi_free_told(weir_runtime *runtime, wi_resource *stack, wi_block *block, const wi_stream_facts *at,
                         bool told)
{
    wi_free_fence f;
    weir_status status = wi_away_open_for_write(stack->base, block->pointer, block->charged);
    if (status == WEIR_OK)
        status = free_make_fence(runtime, stack, block, at, &f);
    wi_window(WI_WINDOW_FREE_FENCED);
    if (status != WEIR_OK)
        return status;
    weir_stream stream = at->stream.id == WEIR_STREAM_ALL.id ? WEIR_STREAM_HOST : at->stream;
    if (!told && stack->hears_frees)
        wi_freeing(stack, block, stream);
    if (f.past == WI_IN_ORDER)
        (void)wi_retire(stack, block, f.behind_all ? WEIR_STREAM_HOST : stream, f.native, f.past);
    else
        wi_pending_free(&runtime->pending, stack, block, stream, f.native, f.past == WI_UNPASSED ? &f.event : NULL);
    return WEIR_OK;
}

weir_status wi_free_acquired(weir_runtime *runtime, wi_resource *stack, wi_block *block, const wi_stream_facts *at)
{
    return wi_free_told(runtime, stack, block, at, false);
}

bool wi_free_cached(weir_runtime *runtime, wi_block *list, const wi_stream_facts *at)
{
    wi_base *base = runtime->resource->base;
    if (!base->table->retire_list || !wi_stream_is_usable(at) || at->captured ||
        !free_follows(runtime, runtime->resource, list, at) ||
        runtime->driver->stream_capturing(runtime->device, at->native))
        return false;
    base->table->retire_list(base, list, at->stream, at->native);
    return true;
}

weir_status wi_free_behind(weir_runtime *runtime, wi_resource *stack, wi_block *block, weir_stream stream)
{
    wi_event event;
    weir_status status = wi_streams_point(runtime, stream, &event);
    bool wait = status == WEIR_OK && event.stream && !runtime->driver->passed(runtime->device, event);
    if (status == WEIR_OK)
        wi_pending_free(&runtime->pending, stack, block, WEIR_STREAM_HOST, NULL, wait ? &event : NULL);
    return status;
}

static weir_status free_named(weir_client *client, void *pointer, uint64_t generation, weir_stream stream)
{
    weir_runtime *runtime = client->runtime;
    wi_resource *stack = wi_runtime_stack_of(runtime, pointer);
    wi_stream_facts at;
    wi_block *block;
    if (stream.id != WEIR_STREAM_ALL.id && wi_tcache_free_slow(client, pointer, generation, stream))
        return WEIR_OK;
    wi_tcache_flush(client);
    uint64_t moves = wi_residency_moves(client);
    weir_status status = wi_elastic_refuse_page(runtime, stack, pointer, "weir_free");
    if (status == WEIR_OK)
        do
            status = wi_acquire(stack->base, wi_free_account(client, stack), pointer, generation, &block);
        while (wi_unlikely(status == WEIR_ERR_BUSY) &&
               (wi_residency_wait(client, &moves) || wi_residency_found_done(client)));
    if (status != WEIR_OK)
        return status;
    bool shown = block->shown;
    wi_streams_facts(&runtime->streams, stream, &at); /* not before it is acquired, which may take long */
    status = block->graph ? wi_capture_pool_free(block->graph, stack, block, &at)
                          : wi_free_acquired(runtime, stack, block, &at);
    if (status != WEIR_OK)
        wi_let_go(stack->base, block);
    else if (shown)
        wi_residency_sweep(client);
    return status;
}

static __attribute__((noinline)) weir_status free_slowly(weir_client *client, void *pointer, weir_stream stream)
{
    weir_status status = wi_client_check_giving(client, "weir_free");
    if (status != WEIR_OK || !pointer)
        return status;
    WI_VISIT(client->runtime); /* with its last block the client may be closed by another thread */
    status = free_named(client, pointer, 0, stream);
    return wi_recorded_failure(client->runtime, status, WEIR_ACTION_DEALLOCATE, pointer, 0, stream);
}

/* Keeps nothing for the slow way, so that the quick way saves no registers. */
weir_status weir_free(weir_client *client, void *pointer, weir_stream stream)
{
    return wi_likely(wi_tcache_free(client, pointer, 0, stream)) ? WEIR_OK : free_slowly(client, pointer, stream);
}

weir_status weir_free_block(weir_client *client, weir_block block, weir_stream stream)
{
    weir_status status = wi_client_check_giving(client, "weir_free_block");
    if (status != WEIR_OK || !block.pointer)
        return status;
    if (block.generation == 0)
        return weir_fail(WEIR_ERR_INVALID, "weir_free_block: the block at %p has no generation", block.pointer);
    if (wi_tcache_free(client, block.pointer, block.generation, stream))
        return WEIR_OK;
    WI_VISIT(client->runtime);
    status = free_named(client, block.pointer, block.generation, stream);
    return wi_recorded_failure(client->runtime, status, WEIR_ACTION_DEALLOCATE, block.pointer, 0, stream);
}
