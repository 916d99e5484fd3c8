/* Allocation: a request is checked, placed by the runtime's stack of resources, zeroed where it must be, and published. */
#include "runtime/runtime.h"
#include <weir/trace.h>
#include "base/texts.h"
#include "base/probes.h"
#include "memory/space/stream_order.h"

static weir_status alloc_check_request(const weir_request *request, uint64_t alignment)
{
    const uint32_t known = WEIR_ALLOC_ZEROED | WEIR_ALLOC_NO_WAIT | WEIR_ALLOC_STABLE;
    if ((unsigned)request->memory_class >= WEIR_CLASS_COUNT)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: %d is no class; see weir_class", (int)request->memory_class);
    if ((unsigned)request->kind >= WEIR_KIND_COUNT)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: %d is no kind of memory; see weir_kind", (int)request->kind);
    if (!wi_power_of_two(alignment) || alignment > 2 * WI_MIB)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: an alignment of %llu is no power of two up to 2 MiB",
                         (unsigned long long)alignment);
    if (request->flags & ~known)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: flags %x are not all known", request->flags);
    if (request->bytes > UINT64_MAX / 4)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: %zu bytes is no size a device could have", request->bytes);
    return WEIR_OK;
}

uint64_t wi_alloc_scrubbed(const wi_block *block)
{
    return block->before + block->after == 0 ? block->charged : block->bytes;
}

/* The host zeroes memory that no device has seen itself, as not every driver reaches it. */
weir_status wi_alloc_clear(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t from, uint64_t to,
                           weir_stream stream)
{
    void *native;
    if (stack != runtime->resource && stack != atomic_load(&runtime->kinds[WI_KIND_SHOWN])) {
        memset((char *)block->pointer + from, 0, to - from);
        return WEIR_OK;
    }
    weir_status status = wi_streams_begin(&runtime->streams, stream, runtime->name, &native);
    if (status != WEIR_OK)
        return status;
    status = runtime->driver->fill(runtime->device, (char *)block->pointer + from, 0, to - from, native);
    block->zeroing |= native != NULL;
    wi_streams_done(&runtime->streams, stream);
    return status;
}

/* Looks the stream up again, behind the zeros: the point of a capture that has begun meanwhile may lie before them. If noting
 * fails, this thread alone can free the block, or the thread that ends the capture. */
void wi_alloc_note_point(weir_runtime *runtime, wi_block *block, void *native)
{
    wi_event event;
    if (block->zeroing && wi_streams_wants_point(&runtime->streams, block->stream) &&
        runtime->driver->record(runtime->device, native, &event) == WEIR_OK &&
        wi_stream_uses_first_write(&block->stream_uses, event) == WEIR_OK)
        block->zeroing = false;
}

weir_status wi_alloc_not_captured(const weir_runtime *runtime, const wi_block *block, weir_stream stream)
{
    return weir_fail(
        WEIR_ERR_STREAM_MISUSE,
        "%s: what another client had there must be zeroed first, which stream %llx of %s cannot do while it "
        "is captured into a graph; allocate before the capture or on another stream",
        block->account->name, (unsigned long long)stream.id, runtime->name);
}

bool wi_alloc_captured(weir_runtime *runtime, weir_stream stream, const void *native)
{
    return native && wi_streams_capturing(&runtime->streams, runtime->driver, runtime->device, stream);
}

/* What must be queued before the allocated block is its client's. Looks again whether the stream is captured, as a capture may
 * have begun while the request waited for room. */
static weir_status alloc_prepare(weir_runtime *runtime, wi_resource *stack, wi_block *block,
                                 const wi_placement *placement, bool zeroed)
{
    bool scrubbed = wi_account_must_scrub(block->account, block->previous);
    if (!scrubbed && !zeroed)
        return WEIR_OK;
    if (stack == runtime->resource && wi_alloc_captured(runtime, placement->stream, placement->native))
        return scrubbed ? wi_alloc_not_captured(runtime, block, placement->stream)
                        : wi_streams_captured(runtime, placement->stream, "weir_alloc");
    return wi_alloc_clear(runtime, stack, block, 0, scrubbed ? wi_alloc_scrubbed(block) : block->bytes,
                          placement->stream);
}

/* Large blocks stay thread-cached from one allocation to the next, for a request of the same size. A request of another size
 * frees them first, so that free memory is in large pieces. Large blocks cached for other clients and streams stay until
 * more memory would be mapped. */
static weir_status alloc_find_large(weir_client *client, wi_resource *stack, wi_placement *p, wi_block **out)
{
    wi_shortage ignored;
    wi_shortage_begin(&ignored, NULL, 0);
    wi_tcache_large thread_cached = wi_tcache_look_large(client, p->stream);
    if (thread_cached.here)
        (void)wi_tcache_empty_large(client, p->stream, false);
    if (!thread_cached.elsewhere)
        return wi_allocate(stack, p, out, &ignored);
    p->growth = WI_GROWTH_NONE;
    weir_status status = wi_allocate(stack, p, out, &ignored);
    if (status != WEIR_ERR_NO_ROOM)
        return status;
    uint64_t bytes = wi_tcache_empty_large(client, p->stream, true);
    p->rung = bytes > 0 ? WEIR_RUNG_THREAD_CACHED : WEIR_RUNG_FIT;
    p->growth = WI_GROWTH_NORMAL;
    wi_ledger_note_emptied(&client->runtime->ledger, bytes);
    return wi_allocate(stack, p, out, &ignored);
}

/* What a graph holds serves its captures first. */
static weir_status alloc_find_place(weir_client *client, wi_resource *stack, wi_placement *p, wi_block **out)
{
    wi_shortage ignored;
    wi_shortage_begin(&ignored, NULL, 0);
    weir_status status =
        p->graph && !p->reservation ? wi_capture_pool_allocate(p->graph, stack, p, out) : WEIR_ERR_NO_ROOM;
    if (status != WEIR_ERR_NO_ROOM)
        return status;
    return p->charged > WI_TCACHE_SMALL && stack == client->runtime->resource ? alloc_find_large(client, stack, p, out)
                                                                              : wi_allocate(stack, p, out, &ignored);
}

/* Places and publishes a request in one step where the base has memory for it. False: alloc_find_place looks for memory. */
static bool alloc_at_once(weir_client *client, wi_resource *stack, wi_placement *p, weir_block *out)
{
    wi_base *base = stack->base;
    if (!base->table->place || !wi_is_plain(stack) || p->graph || p->reservation)
        return false;
    if (p->charged > WI_TCACHE_SMALL && stack == client->runtime->resource &&
        wi_tcache_look_large(client, p->stream).here)
        (void)wi_tcache_empty_large(client, p->stream, false);
    wi_tcache_flush(client);
    return base->table->place(base, p, out);
}

/* Before more memory is mapped, or some is moved: what was freed and has passed since. A base that places at once takes it back
 * without a call of the driver. */
static void alloc_reap(weir_runtime *runtime, const wi_resource *stack, wi_placement *p)
{
    if (stack->base->table->place && wi_pending_reap_oldest(&runtime->pending, stack->base) > 0)
        wi_climbed(p, WEIR_RUNG_COMPLETED);
}

/* Places the block in the stack and makes it its client's. */
static weir_status alloc_place(weir_client *client, wi_resource *stack, wi_placement *placement, bool zeroed,
                               weir_block *out)
{
    weir_runtime *runtime = client->runtime;
    wi_block *block;
    wi_measure(stack, placement);
    if (!zeroed && alloc_at_once(client, stack, placement, out))
        return WEIR_OK;
    alloc_reap(runtime, stack, placement);
    weir_status status = alloc_find_place(client, stack, placement, &block);
    if (status == WEIR_ERR_OUT_OF_MEMORY && stack->base->table->trim_idle)
        (void)stack->base->table->trim_idle(stack->base, true);
    if (status != WEIR_OK)
        return status;
    status = alloc_prepare(runtime, stack, block, placement, zeroed);
    if (status != WEIR_OK) {
        wi_discard(stack, block, placement);
        return status;
    }
    wi_alloc_note_point(runtime, block, placement->native);
    *out = (weir_block){block->pointer, wi_block_generation(block)};
    if (placement->graph)
        wi_capture_pool_adopt(placement->graph, block, placement->graph_named);
    wi_tcache_flush(client);
    wi_publish(stack, block);
    return WEIR_OK;
}

/* The same, and where the device has no room, in memory of the host's, if the client is to have that. */
static weir_status alloc_place_anywhere(weir_client *client, wi_resource *stack, wi_placement *placement, bool zeroed,
                                        weir_block *out)
{
    weir_reservation *room;
    wi_saved_detail why;
    if (wi_likely(!wi_overflow_serves(client, stack, placement)))
        return alloc_place(client, stack, placement, zeroed, out);
    wi_placement again = *placement;
    weir_status status = wi_overflow_keep_room(client, placement, &room);
    if (status == WEIR_OK)
        status = alloc_place(client, stack, placement, zeroed, out);
    wi_detail_save(&why);
    if (room)
        (void)!weir_reservation_destroy(room); /* nothing was taken from it */
    wi_detail_restore(&why);
    return status == WEIR_ERR_OUT_OF_MEMORY ? wi_overflow_place(client, &again, zeroed, out) : status;
}

static weir_status alloc_check_reservation(const weir_client *client, const weir_request *request)
{
    const weir_reservation *r = request->reservation;
    if (r && r->client != client)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: a reservation of %s does not serve %s", r->client->account.name,
                         client->account.name);
    if (r && !wi_kind_is_own(client->runtime, request->kind))
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: %s reserved memory of %s, not %s memory of the host",
                         client->account.name, client->runtime->name, weir_name_of(WEIR_NAMES_KIND, request->kind));
    return WEIR_OK;
}

static weir_status alloc_check_pool(weir_client *client, const weir_request *request)
{
    const weir_capture_pool *pool = request->pool;
    if (pool && wi_capture_pool_client(pool) != client)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: a capture pool of %s does not serve %s",
                         wi_capture_pool_client(pool)->account.name, client->account.name);
    if (pool && (request->kind != WEIR_KIND_DEVICE || request->flags & WEIR_ALLOC_ZEROED || request->reservation))
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: a capture pool has device memory, without zeros and without a "
                                           "reservation; ask for those without the pool");
    return WEIR_OK;
}

/* On a stream that is being captured, what the request would queue is refused. */
static weir_status alloc_check_capture(weir_runtime *runtime, wi_resource *stack, const weir_request *request,
                                       const wi_stream_facts *at)
{
    bool queues = stack == runtime->resource && request->flags & WEIR_ALLOC_ZEROED;
    if ((queues || !(stack->features & WEIR_FEATURE_CAPTURABLE)) && wi_stream_is_captured(runtime, at))
        return wi_streams_captured(runtime, request->stream, "weir_alloc");
    return WEIR_OK;
}

/* The capture pool of the request; else that of the captured stream, where the block shall be of it. The stream is looked up again
 * for that, as the pool is to be held before another thread ends the capture. */
static weir_capture_pool *alloc_graph_for(weir_client *client, const wi_resource *stack, const weir_request *request,
                                          const wi_stream_facts *at)
{
    weir_runtime *runtime = client->runtime;
    if (request->pool)
        wi_capture_pool_hold(request->pool);
    if (request->pool)
        return request->pool;
    weir_capture_pool *graph = at->graph && stack == runtime->resource && !(request->flags & WEIR_ALLOC_ZEROED)
                                   ? wi_streams_graph(&runtime->streams, request->stream)
                                   : NULL;
    if (!graph || wi_capture_pool_client(graph) == client)
        return graph;
    wi_capture_pool_drop(graph);
    return NULL;
}

/* The stack that has memory of the kind, and the client's account there. */
static weir_status alloc_kind(weir_client *client, weir_kind kind, wi_resource **stack, wi_account **account)
{
    *stack = client->runtime->resource;
    *account = &client->account;
    if (wi_likely(kind == WEIR_KIND_DEVICE))
        return WEIR_OK;
    weir_status status = wi_host_memory_stack(client->runtime, kind, stack);
    return status == WEIR_OK ? wi_host_memory_account(client, *stack, account) : status;
}

static const char *alloc_tag(const weir_request *request)
{
    return wi_intern(request->tag, sizeof((weir_block_details *)0)->tag - 1);
}

/* Whether a thread cache may serve it: beyond how much, where, for what class and under which tag, it says only what is
 * true of each hit. */
static bool alloc_is_plain(const weir_client *client, const weir_request *request)
{
    const uint32_t true_of_hits = WEIR_ALLOC_NO_WAIT;
    return request->memory_class != WEIR_CLASS_WEIGHTS && (unsigned)request->kind < WEIR_KIND_COUNT &&
           wi_kind_is_own(client->runtime, request->kind) && request->alignment <= WI_UNIT &&
           wi_power_of_two(request->alignment | !request->alignment) && !(request->flags & ~true_of_hits) &&
           !request->reservation && !request->pool;
}

/* `plain`: a thread cache could have served it. */
static weir_status alloc_request(weir_client *client, const weir_request *request, bool plain, weir_block *out)
{
    weir_runtime *runtime = client->runtime;
    uint64_t alignment = request->alignment ? request->alignment : WI_UNIT;
    wi_resource *stack;
    wi_account *account;
    wi_stream_facts at;
    weir_status status = alloc_check_request(request, alignment);
    if (status == WEIR_OK && wi_kind_is_own(runtime, request->kind))
        status = wi_residency_admit(client, "weir_alloc");
    if (status == WEIR_OK)
        status = wi_streams_look(&runtime->streams, request->stream, runtime->name, &at);
    if (status == WEIR_OK)
        status = alloc_check_reservation(client, request);
    if (status == WEIR_OK)
        status = alloc_check_pool(client, request);
    if (status != WEIR_OK || request->bytes == 0)
        return status;
    status = alloc_kind(client, request->kind, &stack, &account);
    if (status == WEIR_OK)
        status = alloc_check_capture(runtime, stack, request, &at);
    if (status != WEIR_OK)
        return status;
    wi_placement placement = {.bytes = request->bytes,
                              .alignment = wi_max(alignment, WI_UNIT),
                              .memory_class = request->memory_class,
                              .stream = request->stream,
                              .native = at.native,
                              .account = account,
                              .tag = alloc_tag(request),
                              .plain = plain,
                              .captured = at.captured || request->pool,
                              .graph_named = request->pool != NULL,
                              .stable = request->flags & WEIR_ALLOC_STABLE,
                              .thread_bound = at.one_threads,
                              .reservation = request->reservation ? &request->reservation->claim : NULL};
    placement.may_wait = !(request->flags & WEIR_ALLOC_NO_WAIT) && !at.captured;
    placement.graph = placement.captured ? alloc_graph_for(client, stack, request, &at) : NULL;
    status = alloc_place_anywhere(client, stack, &placement, request->flags & WEIR_ALLOC_ZEROED, out);
    if (placement.graph)
        wi_capture_pool_drop(placement.graph);
    return status;
}

/* Asks no residence: it is a part of the client's own. */
weir_status wi_alloc_shown(weir_client *client, uint64_t bytes, const char *tag, weir_block *out)
{
    weir_runtime *runtime = client->runtime;
    wi_resource *stack;
    wi_account *account;
    *out = (weir_block){NULL, 0};
    weir_status status = wi_host_memory_shown(runtime, &stack);
    if (status == WEIR_OK)
        status = wi_host_memory_account(client, stack, &account);
    if (status != WEIR_OK)
        return status;
    wi_placement p = {.bytes = bytes,
                      .alignment = WI_UNIT,
                      .stream = WEIR_STREAM_HOST,
                      .account = account,
                      .tag = wi_intern(tag, sizeof((weir_block_details *)0)->tag - 1),
                      .may_wait = true};
    status = alloc_place(client, stack, &p, false, out);
    return wi_recorded_failure(runtime, status, WEIR_ACTION_ALLOCATE, NULL, bytes, WEIR_STREAM_HOST);
}

static bool alloc_hit(weir_client *client, const weir_request *r, weir_block *out)
{
    const char *tag = r->tag ? alloc_tag(r) : NULL;
    out->pointer = wi_tcache_alloc_tagged(client, r->bytes, r->stream, r->memory_class, tag, &out->generation);
    return out->pointer || wi_tcache_alloc_slow(client, r->bytes, r->stream, r->memory_class, tag, out);
}

weir_status weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out)
{
    weir_status status = wi_client_check(client, "weir_alloc_with");
    if (status != WEIR_OK)
        return status;
    weir_request copy;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc_with: no place for the result");
    status = WI_COPY_IN(weir_request, &copy, request, "weir_alloc_with");
    if (wi_unlikely(status != WEIR_OK))
        return status;
    *out = (weir_block){NULL, 0};
    bool plain = alloc_is_plain(client, &copy);
    if (plain && alloc_hit(client, &copy, out))
        return WEIR_OK;
    status = alloc_request(client, &copy, plain, out);
    return wi_recorded_failure(client->runtime, status, WEIR_ACTION_ALLOCATE, NULL, copy.bytes, copy.stream);
}

static __attribute__((noinline)) weir_status alloc_slowly(weir_client *client, size_t bytes, weir_stream stream,
                                                          weir_class memory_class, void **out)
{
    weir_block block = {NULL, 0};
    weir_status status = wi_client_check(client, "weir_alloc");
    if (status != WEIR_OK)
        return status;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: no place for the result");
    if (wi_tcache_alloc_slow(client, bytes, stream, memory_class, NULL, &block)) {
        *out = block.pointer;
        return WEIR_OK;
    }
    weir_request request = {
        .struct_size = sizeof request, .bytes = bytes, .stream = stream, .memory_class = memory_class};
    *out = NULL;
    status = alloc_request(client, &request, memory_class != WEIR_CLASS_WEIGHTS, &block);
    *out = block.pointer;
    return wi_recorded_failure(client->runtime, status, WEIR_ACTION_ALLOCATE, NULL, bytes, stream);
}

weir_status weir_alloc(weir_client *client, size_t bytes, weir_stream stream, weir_class memory_class, void **out)
{
    uint64_t ignored;
    void *pointer = wi_likely(out) ? wi_tcache_alloc(client, bytes, stream, memory_class, &ignored) : NULL;
    if (wi_likely(pointer)) {
        *out = pointer;
        return WEIR_OK;
    }
    return alloc_slowly(client, bytes, stream, memory_class, out);
}
