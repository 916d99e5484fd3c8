/* Resize: a block becomes shorter, and its tail is freed in order, or longer where the bytes behind it are free. */
#include "memory/away.h"
#include "runtime/runtime.h"
#include "memory/space/stream_order.h"

/* Looks the stream up again, as the block may have been waited for long. */
static weir_status resize_shrink(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t bytes,
                                 weir_stream stream)
{
    wi_block *tail = NULL;
    wi_free_fence f = {.native = NULL};
    wi_stream_facts at;
    weir_status status = wi_streams_look(&runtime->streams, stream, runtime->name, &at);
    if (status == WEIR_OK && at.captured)
        status = wi_streams_captured(runtime, stream, "weir_resize");
    if (status == WEIR_OK)
        status = wi_free_note_zeroing(runtime, block, stream);
    if (status == WEIR_OK)
        status = wi_free_record_fence(runtime, block, &at, &f);
    if (status == WEIR_OK && block->graph && f.past == WI_UNPASSED)
        status = wi_capture_pool_note(block, f.event);
    if (status == WEIR_OK)
        status = wi_shrink(stack, block, bytes, at.native, &tail);
    if (tail && !(tail->graph && wi_capture_pool_keep(tail->graph, stack, tail)))
        wi_pending_add(&runtime->pending, stack, tail, f.past == WI_UNPASSED ? &f.event : NULL);
    return status;
}

/* Gives the block its earlier length back. The client never had the bytes of the growth, which are as before. */
static void resize_undo_growth(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t bytes)
{
    wi_block *tail = NULL;
    bool shrunk = block->shrunk;
    weir_status status = wi_shrink(stack, block, bytes, NULL, &tail);
    block->shrunk = shrunk; /* the bytes that the block gives up were never used */
    if (status != WEIR_OK || !tail)
        return; /* the failure that this leaves behind is the caller's answer; weir_block_info tells the length */
    tail->untouched = true;
    tail->graph = NULL; /* no graph has had it */
    wi_pending_add(&runtime->pending, stack, tail, NULL);
}

/* Zeros that are there at return must not come before work that stands before the block on its own stream. */
static weir_status resize_check_slack(weir_runtime *runtime, const wi_block *block)
{
    wi_event event;
    if (!block->slack || block->stream.id == 0)
        return WEIR_OK;
    weir_status status = wi_streams_point(runtime, block->stream, &event);
    if (status != WEIR_OK || runtime->driver->passed(runtime->device, event))
        return status;
    return weir_fail(
        WEIR_ERR_NO_ROOM,
        "the block at %p cannot grow here: what lies behind it is in the order of stream %llx of %s, and would "
        "have to be zeroed first; grow it on that stream, or when it is past, or allocate another block and copy",
        block->pointer, (unsigned long long)block->stream.id, runtime->name);
}

/* Writes the zeros of a growth. Queues them on the block's own stream, as in an allocation, if the call names this
 * stream and the block has no uses on other streams that the zeros might have to follow. Else the zeros are there at
 * return. */
static weir_status resize_scrub_growth(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t from,
                                       const wi_stream_facts *at)
{
    bool queued = stack == runtime->resource && at->native && at->stream.id == block->stream.id && !block->stream_uses;
    if (queued && wi_alloc_captured(runtime, at->stream, at->native))
        return wi_alloc_not_captured(runtime, block, at->stream);
    weir_status status = queued ? WEIR_OK : resize_check_slack(runtime, block);
    return status == WEIR_OK ? wi_alloc_clear(runtime, stack, block, from, wi_alloc_scrubbed(block),
                                              queued ? at->stream : WEIR_STREAM_HOST)
                             : status;
}

static weir_status resize_grow(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t bytes,
                               const wi_stream_facts *at)
{
    uint64_t before = block->bytes, from = wi_alloc_scrubbed(block);
    wi_shortage ignored;
    wi_shortage_begin(&ignored, NULL, 0);
    weir_status status = wi_grow(stack, block, bytes, false, &ignored);
    if (status != WEIR_OK || !wi_account_must_scrub(block->account, block->previous))
        return status;
    status =
        block->shrunk
            ? weir_fail(WEIR_ERR_NO_ROOM,
                        "the block at %p cannot grow: what it had behind it may still be in use, and would have to "
                        "be zeroed first; allocate another block and copy",
                        block->pointer)
            : resize_scrub_growth(runtime, stack, block, from, at);
    if (status != WEIR_OK)
        resize_undo_growth(runtime, stack, block, before);
    else if (at->stream.id == block->stream.id)
        wi_alloc_note_point(runtime, block, at->native);
    return status;
}

static weir_status resize_block(weir_client *client, void *pointer, size_t bytes, weir_stream stream)
{
    if (!pointer || bytes == 0 || bytes > UINT64_MAX / 4)
        return weir_fail(WEIR_ERR_INVALID, "weir_resize: %s",
                         !pointer     ? "the pointer is NULL"
                         : bytes == 0 ? "to zero bytes; free the block instead"
                                      : "no size a device could have");
    weir_runtime *runtime = client->runtime;
    wi_resource *stack = wi_runtime_stack_of(runtime, pointer);
    wi_base *base = stack->base;
    wi_block *block;
    wi_stream_facts at;
    weir_status status = wi_streams_look(&runtime->streams, stream, runtime->name, &at);
    wi_tcache_flush(client);
    if (status == WEIR_OK)
        status = wi_elastic_refuse_page(runtime, stack, pointer, "weir_resize");
    if (status == WEIR_OK)
        do
            status = wi_acquire(base, wi_free_account(client, stack), pointer, 0, &block);
        while (wi_unlikely(status == WEIR_ERR_BUSY) && wi_residency_found_done(client));
    if (status != WEIR_OK)
        return status;
    status = wi_away_open_for_write(base, block->pointer, block->charged);
    bool more = base->table->charge(base, block->before + bytes + block->after) > block->charged;
    if (status == WEIR_OK)
        status = block->away > 0
                     ? weir_fail(WEIR_ERR_BUSY, "the block at %p is away, as %s is suspended; resume it first", pointer,
                                 client->account.name)
                 : more ? resize_grow(runtime, stack, block, bytes, &at)
                        : resize_shrink(runtime, stack, block, bytes, stream);
    wi_let_go(base, block);
    return status;
}

weir_status weir_resize(weir_client *client, void *pointer, size_t bytes, weir_stream stream)
{
    weir_status status = wi_client_check(client, "weir_resize");
    if (status != WEIR_OK)
        return status;
    status = resize_block(client, pointer, bytes, stream);
    return wi_recorded_failure(client->runtime, status, WEIR_ACTION_RESIZE, pointer, bytes, stream);
}
