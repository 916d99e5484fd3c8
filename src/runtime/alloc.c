/* Allocation and free: the claim in the ledger, the place in the resource, and the ladder between a shortage and a
 * refusal. */
#include "runtime/runtime.h"
#include "base/intern.h"
#include "base/options.h"
#include "base/system.h"
#include "memory/marks.h"

/* Making room ------------------------------------------------------------------------------------------------------ */

/* What an allocation has tried so far. Each rung is climbed once, the waiting until its deadline. */
typedef struct ladder {
    weir_runtime *runtime;
    wi_account *account;
    bool may_wait, reaped;
    uint64_t deadline; /* 0: not waited yet */
} ladder;

/* True if something has changed that makes another try worth it. `helps`: pending frees would be enough. */
static bool climb(ladder *l, bool helps)
{
    wi_resource *resource = l->runtime->resource;
    if (resource->table->reap(resource) > 0)
        return true;
    if (!l->reaped) { /* another thread may have reaped between the shortage and our look */
        l->reaped = true;
        return true;
    }
    if (!helps || !l->may_wait)
        return false;
    if (l->deadline == 0)
        l->deadline = wi_now() + wi_option_wait();
    if (wi_now() >= l->deadline)
        return false;
    return resource->table->wait_oldest(resource, NULL, l->deadline);
}

static weir_status refuse(const ladder *l, const wi_request *request, const wi_shortage *shortage)
{
    return wi_ledger_refuse(&l->runtime->ledger, l->account, request, shortage, l->runtime->name);
}

static weir_status claim(ladder *l, const wi_request *request, uint64_t alignment)
{
    wi_resource *resource = l->runtime->resource;
    bool could = false;
    while (!wi_ledger_claim(&l->runtime->ledger, l->account, request->charged, &could)) {
        weir_status status = wi_client_check(l->account->client, "weir_alloc");
        if (status != WEIR_OK) /* closed by another thread meanwhile */
            return status;
        if (climb(l, could))
            continue;
        wi_shortage shortage = {.cause = could ? WEIR_CAUSE_PENDING : WEIR_CAUSE_NONE};
        resource->table->look(resource, request->memory_class, request->charged, alignment, &shortage);
        return refuse(l, request, &shortage);
    }
    return WEIR_OK;
}

static bool any_pending(weir_runtime *runtime)
{
    weir_stats stats = {.size = sizeof stats};
    size_t ignored;
    wi_ledger_snapshot(&runtime->ledger, &stats, NULL, 0, 0, &ignored);
    return stats.pending > 0;
}

/* Claims and places a block; it is taken, and not yet settled. */
static weir_status place(ladder *l, const wi_placement *p, wi_block **block)
{
    wi_resource *resource = l->runtime->resource;
    wi_request request = {p->bytes, p->charged, p->memory_class, p->stream, p->tag};
    weir_status status = claim(l, &request, p->alignment);
    if (status != WEIR_OK)
        return status;
    for (;;) {
        wi_shortage shortage = {.cause = WEIR_CAUSE_NONE};
        status = resource->table->allocate(resource, p, block, &shortage);
        if (status == WEIR_OK)
            return WEIR_OK;
        if (status == WEIR_OUT_OF_MEMORY && shortage.cause != WEIR_CAUSE_ADDRESS_RANGE &&
            climb(l, any_pending(l->runtime)))
            continue;
        wi_ledger_cancel(&l->runtime->ledger, l->account, p->charged);
        return status == WEIR_OUT_OF_MEMORY ? refuse(l, &request, &shortage) : status;
    }
}

/* Allocation ------------------------------------------------------------------------------------------------------- */

static weir_status check_request(const weir_request *request, uint64_t alignment)
{
    const uint32_t known = WEIR_ZEROED | WEIR_NO_WAIT | WEIR_STABLE;
    if ((unsigned)request->memory_class >= WEIR_CLASS_COUNT)
        return weir_fail(WEIR_INVALID, "weir_alloc: %d is no class; see weir_class", (int)request->memory_class);
    if (!wi_power_of_two(alignment) || alignment > 2 * WI_MIB)
        return weir_fail(WEIR_INVALID, "weir_alloc: an alignment of %llu is no power of two up to 2 MiB",
                         (unsigned long long)alignment);
    if (request->flags & ~known)
        return weir_fail(WEIR_INVALID, "weir_alloc: flags %x are not all known", request->flags);
    if (request->bytes > UINT64_MAX / 4)
        return weir_fail(WEIR_INVALID, "weir_alloc: %zu bytes is no size a device could have", request->bytes);
    return WEIR_OK;
}

static weir_status allocate(weir_client *client, const weir_request *request, weir_block *out)
{
    weir_runtime *runtime = client->runtime;
    uint64_t alignment = request->alignment ? request->alignment : WI_UNIT;
    void *native;
    weir_status status = check_request(request, alignment);
    if (status == WEIR_OK)
        status = wi_streams_resolve(&runtime->streams, request->stream, runtime->name, &native);
    if (status != WEIR_OK || request->bytes == 0)
        return status;
    wi_placement placement = {.bytes = request->bytes,
                              .charged = wi_round_up(request->bytes, WI_UNIT),
                              .alignment = wi_max(alignment, WI_UNIT),
                              .memory_class = request->memory_class,
                              .stream = request->stream,
                              .account = &client->account,
                              .tag = wi_intern(request->tag, sizeof((weir_block_details *)0)->tag - 1)};
    ladder l = {.runtime = runtime, .account = &client->account, .may_wait = !(request->flags & WEIR_NO_WAIT)};
    wi_block *block;
    status = place(&l, &placement, &block);
    if (status != WEIR_OK)
        return status;
    if (request->flags & WEIR_ZEROED) {
        status = runtime->driver->fill(runtime->device, block->pointer, 0, request->bytes, native);
        block->zeroing = native != NULL;
        if (status != WEIR_OK) {
            runtime->resource->table->discard(runtime->resource, block);
            wi_ledger_cancel(&runtime->ledger, &client->account, placement.charged);
            return status;
        }
    }
    *out = (weir_block){block->pointer, block->generation};
    wi_ledger_settle(&runtime->ledger, block);
    runtime->resource->table->put_back(runtime->resource, block);
    return WEIR_OK;
}

weir_status weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out)
{
    weir_status status = wi_client_check(client, "weir_alloc_with");
    if (status != WEIR_OK)
        return status;
    weir_request copy;
    if (!out || !request || !wi_copy_in(&copy, sizeof copy, request, request->size))
        return weir_fail(WEIR_INVALID, "weir_alloc_with: NULL, or member size is not set");
    *out = (weir_block){NULL, 0};
    return allocate(client, &copy, out);
}

weir_status weir_alloc(weir_client *client, size_t bytes, weir_stream stream, weir_class memory_class, void **out)
{
    weir_status status = wi_client_check(client, "weir_alloc");
    if (status != WEIR_OK)
        return status;
    if (!out)
        return weir_fail(WEIR_INVALID, "weir_alloc: no place for the result");
    weir_request request = {.size = sizeof request, .bytes = bytes, .stream = stream, .memory_class = memory_class};
    weir_block block = {NULL, 0};
    *out = NULL;
    status = allocate(client, &request, &block);
    *out = block.pointer;
    return status;
}

/* Free and resize -------------------------------------------------------------------------------------------------- */

weir_status wi_zeroing_point(weir_runtime *runtime, weir_stream stream, wi_event *out)
{
    void *native;
    *out = (wi_event){0};
    if (wi_streams_find(&runtime->streams, stream, &native)) /* a released one was waited for */
        return runtime->driver->record(runtime->device, native, out);
    return WEIR_OK;
}

/* A block that is being zeroed on another stream is not given back before that is done. The block is taken. */
static weir_status wait_for_zeroing(weir_runtime *runtime, wi_block *block, weir_stream stream)
{
    wi_event event;
    if (!block->zeroing || stream.id == block->stream.id)
        return WEIR_OK;
    weir_status status = wi_zeroing_point(runtime, block->stream, &event);
    if (status == WEIR_OK)
        status = wi_marks_first_write(&block->marks, event);
    if (status == WEIR_OK)
        block->zeroing = false;
    return status;
}

/* The point on the stream that what is given back of a taken block now must wait for; *wait is false when it and every
 * declared use of the block are passed already. */
static weir_status fence(weir_runtime *runtime, wi_block *block, weir_stream stream, wi_event *event, bool *wait)
{
    void *native;
    wi_event ignored;
    *event = (wi_event){0};
    *wait = false;
    weir_status status = wi_streams_resolve(&runtime->streams, stream, runtime->name, &native);
    if (status == WEIR_OK)
        status = wait_for_zeroing(runtime, block, stream);
    if (status == WEIR_OK && native)
        status = runtime->driver->record(runtime->device, native, event);
    if (status == WEIR_OK)
        *wait = !runtime->driver->passed(runtime->device, *event) ||
                !wi_marks_passed(block->marks, runtime->driver, runtime->device, &ignored);
    return status;
}

static weir_status free_named(weir_client *client, void *pointer, uint64_t generation, weir_stream stream)
{
    weir_runtime *runtime = client->runtime;
    wi_resource *resource = runtime->resource;
    wi_block *block;
    wi_event event;
    bool wait;
    weir_status status = resource->table->take(resource, &client->account, pointer, generation, &block);
    if (status != WEIR_OK)
        return status;
    status = fence(runtime, block, stream, &event, &wait);
    if (status != WEIR_OK)
        resource->table->put_back(resource, block);
    else
        resource->table->free(resource, block, stream, wait ? &event : NULL);
    return status;
}

weir_status weir_free(weir_client *client, void *pointer, weir_stream stream)
{
    weir_status status = wi_client_check(client, "weir_free");
    return status != WEIR_OK || !pointer ? status : free_named(client, pointer, 0, stream);
}

weir_status weir_free_block(weir_client *client, weir_block block, weir_stream stream)
{
    weir_status status = wi_client_check(client, "weir_free_block");
    if (status != WEIR_OK || !block.pointer)
        return status;
    if (block.generation == 0)
        return weir_fail(WEIR_INVALID, "weir_free_block: the block at %p has no generation", block.pointer);
    return free_named(client, block.pointer, block.generation, stream);
}

static weir_status shrink(weir_runtime *runtime, wi_block *block, uint64_t bytes, uint64_t charged, weir_stream stream)
{
    wi_event event;
    bool wait;
    weir_status status = fence(runtime, block, stream, &event, &wait);
    if (status == WEIR_OK)
        status = runtime->resource->table->shrink(runtime->resource, block, bytes, charged, wait ? &event : NULL);
    return status;
}

static weir_status grow(weir_runtime *runtime, wi_block *block, uint64_t bytes, uint64_t charged, weir_stream stream)
{
    wi_resource *resource = runtime->resource;
    uint64_t more = charged - block->charged;
    wi_request request = {bytes - block->bytes, more, block->memory_class, stream, block->tag};
    ladder l = {.runtime = runtime, .account = block->account, .may_wait = false};
    weir_status status = claim(&l, &request, WI_UNIT);
    if (status != WEIR_OK)
        return status;
    do
        status = resource->table->grow(resource, block, bytes, charged);
    while ((status == WEIR_NO_ROOM || status == WEIR_OUT_OF_MEMORY) && climb(&l, false));
    if (status != WEIR_OK)
        wi_ledger_cancel(&runtime->ledger, block->account, more);
    if (status == WEIR_OUT_OF_MEMORY) { /* no handle to put there */
        wi_shortage shortage = {.cause = WEIR_CAUSE_FRAGMENTATION};
        resource->table->look(resource, block->memory_class, more, WI_UNIT, &shortage);
        status = refuse(&l, &request, &shortage);
    }
    return status;
}

weir_status weir_resize(weir_client *client, void *pointer, size_t bytes, weir_stream stream)
{
    weir_status status = wi_client_check(client, "weir_resize");
    if (status != WEIR_OK)
        return status;
    if (!pointer || bytes == 0 || bytes > UINT64_MAX / 4)
        return weir_fail(WEIR_INVALID, "weir_resize: %s",
                         !pointer     ? "the pointer is NULL"
                         : bytes == 0 ? "to zero bytes; free the block instead"
                                      : "no size a device could have");
    weir_runtime *runtime = client->runtime;
    wi_resource *resource = runtime->resource;
    wi_block *block;
    void *ignored;
    uint64_t charged = wi_round_up(bytes, WI_UNIT);
    status = wi_streams_resolve(&runtime->streams, stream, runtime->name, &ignored);
    if (status == WEIR_OK)
        status = resource->table->take(resource, &client->account, pointer, 0, &block);
    if (status != WEIR_OK)
        return status;
    status = charged > block->charged ? grow(runtime, block, bytes, charged, stream)
                                      : shrink(runtime, block, bytes, charged, stream);
    resource->table->put_back(resource, block);
    return status;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

weir_status weir_block_info(const void *pointer, weir_block_details *out)
{
    WI_ENTER();
    if (!out || out->size < 2 * sizeof(size_t))
        return weir_fail(WEIR_INVALID, "weir_block_info: NULL, or member size is not set");
    weir_block_details details = {.size = sizeof details};
    weir_runtime *runtime = wi_runtime_of(pointer);
    if (runtime) {
        details.runtime = runtime;
        runtime->resource->table->inspect(runtime->resource, pointer, &details);
    }
    wi_runtimes_unlock();
    if (!runtime)
        return weir_fail(WEIR_FOREIGN, "%p is no memory of weir's", pointer);
    wi_copy_out(out, out->size, &details, sizeof details);
    return WEIR_OK;
}
