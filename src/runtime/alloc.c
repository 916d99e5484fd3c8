/* Allocation and free: a request is checked, placed by the runtime's stack of resources, zeroed where it must be, and
 * published; a free is ordered and handed to the list of pending ones. */
#include "runtime/runtime.h"
#include <weir/trace.h>
#include "base/intern.h"
#include "base/window.h"
#include "memory/space/stream_uses.h"

/* Allocation ------------------------------------------------------------------------------------------------------- */

static weir_status check_request(const weir_request *request, uint64_t alignment)
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

/* How far zeros go, from the start of the block: also over what nobody asked for, which a later resize may give to the
 * user, and which becomes the next owner's. An adaptor that adds margins has written all that lies around the bytes. */
static uint64_t scrubbed_bytes(const wi_block *block)
{
    return block->before + block->after == 0 ? block->charged : block->bytes;
}

/* Queues zeros on the stream, which is the block's; WEIR_STREAM_HOST: they are there at return. The block is taken. What no
 * device has seen the host zeroes itself, as not every driver reaches it. */
static weir_status alloc_clear(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t from, uint64_t to,
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

/* Where others cannot ask later for the point behind what was queued for the taken block, it is noted now. If that
 * fails, this thread alone can free the block, or whoever ends the capture. */
static void note_point(weir_runtime *runtime, wi_block *block, void *native)
{
    wi_event event;
    if (block->zeroing && wi_streams_wants_point(&runtime->streams, block->stream) &&
        runtime->driver->record(runtime->device, native, &event) == WEIR_OK &&
        wi_stream_uses_first_write(&block->stream_uses, event) == WEIR_OK)
        block->zeroing = false;
}

static weir_status not_while_captured(const weir_runtime *runtime, const wi_block *block, weir_stream stream)
{
    return weir_fail(
        WEIR_ERR_STREAM_MISUSE,
        "%s: what another client had there must be zeroed first, which stream %llx of %s cannot do while it "
        "is captured into a graph; allocate before the capture or on another stream",
        block->account->name, (unsigned long long)stream.id, runtime->name);
}

static bool alloc_captured(weir_runtime *runtime, weir_stream stream, const void *native)
{
    return native && wi_streams_capturing(&runtime->streams, runtime->driver, runtime->device, stream);
}

/* What must be queued before the allocated block is its client's. */
static weir_status alloc_prepare(weir_runtime *runtime, wi_resource *stack, wi_block *block,
                                 const wi_placement *placement, bool zeroed)
{
    if (wi_account_must_scrub(block->account, block->previous))
        return stack == runtime->resource && alloc_captured(runtime, placement->stream, placement->native)
                   ? not_while_captured(runtime, block, placement->stream)
                   : alloc_clear(runtime, stack, block, 0, scrubbed_bytes(block), placement->stream);
    return zeroed ? alloc_clear(runtime, stack, block, 0, block->bytes, placement->stream) : WEIR_OK;
}

/* Large blocks stay thread-cached from one allocation to the next: one of the same size finds them, any other one finds
 * the free memory in as large pieces as it can be. Those for other clients and streams stay until more memory would be
 * needed. */
static weir_status find_large(weir_client *client, wi_resource *stack, wi_placement *p, wi_block **out)
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
    weir_status status = p->graph && !p->reservation ? wi_graph_allocate(p->graph, stack, p, out) : WEIR_ERR_NO_ROOM;
    if (status != WEIR_ERR_NO_ROOM)
        return status;
    return p->charged > WI_TCACHE_SMALL && stack == client->runtime->resource ? find_large(client, stack, p, out)
                                                                              : wi_allocate(stack, p, out, &ignored);
}

/* Places and publishes in one step what asks for nothing but memory that is there. False: alloc_find_place has to look
 * for it. */
static bool alloc_at_once(weir_client *client, wi_resource *stack, wi_placement *p, weir_block *out)
{
    wi_resource *base = stack->base;
    if (!base->table->place || stack->inner != base || p->graph || p->reservation)
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
    note_point(runtime, block, placement->native);
    *out = (weir_block){block->pointer, wi_block_generation(block)};
    if (placement->graph)
        wi_graph_adopt(placement->graph, block, placement->graph_named);
    wi_tcache_flush(client);
    wi_publish(stack, block);
    return WEIR_OK;
}

static weir_status check_reservation(const weir_client *client, const weir_request *request)
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

static weir_status check_pool(weir_client *client, const weir_request *request)
{
    const weir_capture_pool *pool = request->pool;
    if (pool && wi_graph_client(pool) != client)
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: a capture pool of %s does not serve %s",
                         wi_graph_client(pool)->account.name, client->account.name);
    if (pool && (request->kind != WEIR_KIND_DEVICE || request->flags & WEIR_ALLOC_ZEROED || request->reservation))
        return weir_fail(WEIR_ERR_INVALID, "weir_alloc: a capture pool has device memory, without zeros and without a "
                                           "reservation; ask for those without the pool");
    return WEIR_OK;
}

/* On a stream that is being captured, what the request would queue is refused. */
static weir_status check_capture(weir_runtime *runtime, wi_resource *stack, const weir_request *request, void *native)
{
    bool queues = stack == runtime->resource && request->flags & WEIR_ALLOC_ZEROED;
    if ((queues || !(stack->features & WEIR_FEATURE_CAPTURABLE)) && alloc_captured(runtime, request->stream, native))
        return wi_streams_captured(runtime, request->stream, "weir_alloc");
    return WEIR_OK;
}

/* That of the request; else of the captured stream, when the block shall be of its pool. */
static weir_capture_pool *graph_for(weir_client *client, const wi_resource *stack, const weir_request *request)
{
    weir_runtime *runtime = client->runtime;
    if (request->pool)
        wi_graph_hold(request->pool);
    if (request->pool)
        return request->pool;
    weir_capture_pool *graph = stack == runtime->resource && !(request->flags & WEIR_ALLOC_ZEROED)
                                   ? wi_streams_graph(&runtime->streams, request->stream)
                                   : NULL;
    if (!graph || wi_graph_client(graph) == client)
        return graph;
    wi_graph_drop(graph);
    return NULL;
}

/* The stack that has memory of the kind, and the client's account there. */
static weir_status alloc_kind(weir_client *client, weir_kind kind, wi_resource **stack, wi_account **account)
{
    *stack = client->runtime->resource;
    *account = &client->account;
    if (wi_likely(kind == WEIR_KIND_DEVICE))
        return WEIR_OK;
    weir_status status = wi_kinds_stack(client->runtime, kind, stack);
    return status == WEIR_OK ? wi_kinds_account(client, *stack, account) : status;
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

static weir_status allocate(weir_client *client, const weir_request *request, weir_block *out)
{
    weir_runtime *runtime = client->runtime;
    uint64_t alignment = request->alignment ? request->alignment : WI_UNIT;
    wi_resource *stack;
    wi_account *account;
    wi_stream_facts at;
    weir_status status = check_request(request, alignment);
    if (status == WEIR_OK && wi_kind_is_own(runtime, request->kind))
        status = wi_residency_admit(client, "weir_alloc");
    if (status == WEIR_OK)
        status = wi_streams_look(&runtime->streams, request->stream, runtime->name, &at);
    if (status == WEIR_OK)
        status = check_reservation(client, request);
    if (status == WEIR_OK)
        status = check_pool(client, request);
    if (status != WEIR_OK || request->bytes == 0)
        return status;
    status = alloc_kind(client, request->kind, &stack, &account);
    if (status == WEIR_OK)
        status = check_capture(runtime, stack, request, at.native);
    if (status != WEIR_OK)
        return status;
    wi_placement placement = {.bytes = request->bytes,
                              .alignment = wi_max(alignment, WI_UNIT),
                              .memory_class = request->memory_class,
                              .stream = request->stream,
                              .native = at.native,
                              .account = account,
                              .tag = alloc_tag(request),
                              .plain = alloc_is_plain(client, request),
                              .captured = at.captured || request->pool,
                              .graph_named = request->pool != NULL,
                              .stable = request->flags & WEIR_ALLOC_STABLE,
                              .thread_bound = at.one_threads,
                              .reservation = request->reservation ? &request->reservation->claim : NULL};
    placement.may_wait = !(request->flags & WEIR_ALLOC_NO_WAIT) && !at.captured;
    placement.graph = placement.captured ? graph_for(client, stack, request) : NULL;
    status = alloc_place(client, stack, &placement, request->flags & WEIR_ALLOC_ZEROED, out);
    if (placement.graph)
        wi_graph_drop(placement.graph);
    return status;
}

/* Asks no residence: it is a part of the client's own. */
weir_status wi_alloc_shown(weir_client *client, uint64_t bytes, const char *tag, weir_block *out)
{
    weir_runtime *runtime = client->runtime;
    wi_resource *stack;
    wi_account *account;
    *out = (weir_block){NULL, 0};
    weir_status status = wi_kinds_shown(runtime, &stack);
    if (status == WEIR_OK)
        status = wi_kinds_account(client, stack, &account);
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
    if (alloc_is_plain(client, &copy) && alloc_hit(client, &copy, out))
        return WEIR_OK;
    status = allocate(client, &copy, out);
    return wi_recorded_failure(client->runtime, status, WEIR_ACTION_ALLOCATE, NULL, copy.bytes, copy.stream);
}

static __attribute__((noinline)) weir_status allocate_slowly(weir_client *client, size_t bytes, weir_stream stream,
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
    status = allocate(client, &request, &block);
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
    return allocate_slowly(client, bytes, stream, memory_class, out);
}

/* Free and resize -------------------------------------------------------------------------------------------------- */

/* A block that is being zeroed on another stream is not given back before that is done. The block is taken. */
static weir_status wait_for_zeroing(weir_runtime *runtime, wi_block *block, weir_stream stream)
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

/* What the free of a taken block must wait for. */
typedef struct fence {
    wi_past past;
    bool
        /* WI_IN_ORDER of all work, not of the stream: the block's own stream is gone, and has no point now */
        behind_all;
    void *native;   /* the stream's */
    wi_event event; /* WI_UNPASSED: the point behind which the block is nobody's, besides its declared uses */
} fence;

/* Whether the order of the stream is all that the free waits for, and the stack hands the bytes on in that order. On
 * the default stream of one thread others could record nothing later. */
static bool alloc_follows(weir_runtime *runtime, wi_resource *stack, const wi_block *block, weir_stream stream,
                          const wi_stream_facts *at)
{
    wi_event ignored;
    return at->native && wi_keeps_order(stack) && !at->one_threads &&
           (!block->stream_uses ||
            wi_stream_uses_passed(block->stream_uses, runtime->driver, runtime->device, &ignored)) &&
           stack->base->table->follow(stack->base, stream, at->native);
}

static weir_status record_fence(weir_runtime *runtime, const wi_block *block, weir_stream stream, fence *f)
{
    wi_event ignored;
    f->event = (wi_event){0};
    weir_status status = f->native ? runtime->driver->record(runtime->device, f->native, &f->event) : WEIR_OK;
    if (status == WEIR_OK && !wi_streams_knows(&runtime->streams, stream)) /* the event may be another stream's */
        status = wi_streams_resolve(&runtime->streams, stream, runtime->name, &f->native);
    bool past = status == WEIR_OK && runtime->driver->passed(runtime->device, f->event) &&
                wi_stream_uses_passed(block->stream_uses, runtime->driver, runtime->device, &ignored);
    f->past = past ? WI_PASSED : WI_UNPASSED;
    return status;
}

/* A block that is away is freed at once. What is shown of it work may be using, and what has come back may be on its way.
 * The point is that of the free. */
static weir_status wait_for_away(weir_runtime *runtime, const wi_block *block, wi_event point)
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

static weir_status make_fence(weir_runtime *runtime, wi_resource *stack, wi_block *block, weir_stream stream, fence *f)
{
    wi_stream_facts at;
    if (stream.id == WEIR_STREAM_ALL.id) { /* what zeroes the block is on a stream as well */
        *f = (fence){.past = WI_UNPASSED};
        weir_status all = wi_streams_point_of_all(runtime, "weir_free", &f->event);
        return all == WEIR_OK && block->away > 0 ? wait_for_away(runtime, block, f->event) : all;
    }
    weir_status status = wi_streams_look(&runtime->streams, stream, runtime->name, &at);
    wi_window(WI_WINDOW_FREE_LOOKED);
    f->native = at.native;
    if (status == WEIR_OK && at.captured)
        status = wi_streams_captured(runtime, stream, "weir_free");
    f->behind_all = false;
    f->past = WI_PASSED;
    if (status == WEIR_OK && block->away > 0) {
        f->event = (wi_event){0};
        if (f->native)
            status = runtime->driver->record(runtime->device, f->native, &f->event);
        return status == WEIR_OK ? wait_for_away(runtime, block, f->event) : status;
    }
    if (status != WEIR_OK)
        return status;
    status = wait_for_zeroing(runtime, block, stream);
    if (status == WEIR_ERR_STREAM_MISUSE && stack->base->table->bound && wi_keeps_order(stack) &&
        wi_streams_ended(&runtime->streams, block->stream)) {
        f->behind_all = true;
        f->past = WI_IN_ORDER;
        return WEIR_OK;
    }
    if (status != WEIR_OK)
        return status;
    if (!alloc_follows(runtime, stack, block, stream, &at))
        return record_fence(runtime, block, stream, f);
    f->past = WI_IN_ORDER;
    return runtime->driver->stream_capturing(runtime->device, f->native)
               ? wi_streams_captured(runtime, stream, "weir_free")
               : WEIR_OK;
}

/* The client's account where the stack's memory counts. */
static const wi_account *account_in(const weir_client *client, const wi_resource *stack)
{
    bool own = stack == client->runtime->resource || stack->ledger == &client->runtime->ledger;
    return own ? &client->account : &client->host_account;
}

weir_status wi_free_told(weir_runtime *runtime, wi_resource *stack, wi_block *block, weir_stream stream, bool told)
{
    fence f;
    weir_status status = make_fence(runtime, stack, block, stream, &f);
    wi_window(WI_WINDOW_FREE_FENCED);
    if (status != WEIR_OK)
        return status;
    if (stream.id == WEIR_STREAM_ALL.id)
        stream = WEIR_STREAM_HOST;
    if (!told && stack->hears_frees)
        wi_freeing(stack, block, stream);
    if (f.past == WI_IN_ORDER)
        (void)wi_retire(stack, block, f.behind_all ? WEIR_STREAM_HOST : stream, f.native, f.past);
    else
        wi_pending_free(&runtime->pending, stack, block, stream, f.native, f.past == WI_UNPASSED ? &f.event : NULL);
    return WEIR_OK;
}

weir_status wi_free_claimed(weir_runtime *runtime, wi_resource *stack, wi_block *block, weir_stream stream)
{
    return wi_free_told(runtime, stack, block, stream, false);
}

bool wi_free_cached(weir_runtime *runtime, wi_block *list, weir_stream stream)
{
    wi_resource *base = runtime->resource->base;
    wi_stream_facts at;
    if (!base->table->retire_list || !wi_streams_find(&runtime->streams, stream, &at) || at.captured ||
        !alloc_follows(runtime, runtime->resource, list, stream, &at) ||
        runtime->driver->stream_capturing(runtime->device, at.native))
        return false;
    base->table->retire_list(base, list, stream, at.native);
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
    wi_block *block;
    if (stream.id != WEIR_STREAM_ALL.id && wi_tcache_free_slow(client, pointer, generation, stream))
        return WEIR_OK;
    wi_tcache_flush(client);
    uint64_t moves = wi_residency_moves(client);
    weir_status status = wi_elastic_refuse_page(runtime, stack, pointer, "weir_free");
    if (status == WEIR_OK)
        do
            status = wi_claim(stack->base, account_in(client, stack), pointer, generation, &block);
        while (wi_unlikely(status == WEIR_ERR_BUSY) &&
               (wi_residency_wait(client, &moves) || wi_residency_found_done(client)));
    if (status != WEIR_OK)
        return status;
    bool shown = block->shown;
    status = block->graph ? wi_graph_free(block->graph, stack, block, stream)
                          : wi_free_claimed(runtime, stack, block, stream);
    if (status != WEIR_OK)
        wi_unclaim(stack->base, block);
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

static weir_status alloc_shrink(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t bytes,
                                weir_stream stream)
{
    wi_block *tail = NULL;
    fence f;
    weir_status status = wi_streams_resolve_recorded(runtime, stream, "weir_resize", &f.native);
    if (status == WEIR_OK)
        status = wait_for_zeroing(runtime, block, stream);
    if (status == WEIR_OK)
        status = record_fence(runtime, block, stream, &f);
    if (status == WEIR_OK && block->graph && f.past == WI_UNPASSED)
        status = wi_graph_note(block, f.event);
    if (status == WEIR_OK)
        status = wi_shrink(stack, block, bytes, f.native, &tail);
    if (tail && !(tail->graph && wi_graph_keep(tail->graph, stack, tail)))
        wi_pending_add(&runtime->pending, stack, tail, f.past == WI_UNPASSED ? &f.event : NULL);
    return status;
}

/* The block gets back the length it had; what it had won is still as it was, and nobody's. */
static void undo_growth(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t bytes)
{
    wi_block *tail = NULL;
    bool shrunk = block->shrunk;
    weir_status status = wi_shrink(stack, block, bytes, NULL, &tail);
    block->shrunk = shrunk; /* nobody used what it gives up */
    if (status != WEIR_OK || !tail)
        return; /* the failure that this leaves behind is the caller's answer; weir_block_info tells the length */
    tail->untouched = true;
    tail->graph = NULL; /* no graph has had it */
    wi_pending_add(&runtime->pending, stack, tail, NULL);
}

/* Zeros that are there at return must not come before work that stands before the block on its own stream. */
static weir_status check_slack(weir_runtime *runtime, const wi_block *block)
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

/* The zeros of a growth are on the block's own stream like those of an allocation, if nothing was declared elsewhere
 * that they might come behind; else they are there at return. */
static weir_status scrub_growth(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t from,
                                weir_stream stream, void *native)
{
    bool queued = stack == runtime->resource && native && stream.id == block->stream.id && !block->stream_uses;
    if (queued && alloc_captured(runtime, stream, native))
        return not_while_captured(runtime, block, stream);
    weir_status status = queued ? WEIR_OK : check_slack(runtime, block);
    return status == WEIR_OK
               ? alloc_clear(runtime, stack, block, from, scrubbed_bytes(block), queued ? stream : WEIR_STREAM_HOST)
               : status;
}

static weir_status alloc_grow(weir_runtime *runtime, wi_resource *stack, wi_block *block, uint64_t bytes,
                              weir_stream stream, void *native)
{
    uint64_t before = block->bytes, from = scrubbed_bytes(block);
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
            : scrub_growth(runtime, stack, block, from, stream, native);
    if (status != WEIR_OK)
        undo_growth(runtime, stack, block, before);
    else if (stream.id == block->stream.id)
        note_point(runtime, block, native);
    return status;
}

static weir_status alloc_resize(weir_client *client, void *pointer, size_t bytes, weir_stream stream)
{
    if (!pointer || bytes == 0 || bytes > UINT64_MAX / 4)
        return weir_fail(WEIR_ERR_INVALID, "weir_resize: %s",
                         !pointer     ? "the pointer is NULL"
                         : bytes == 0 ? "to zero bytes; free the block instead"
                                      : "no size a device could have");
    weir_runtime *runtime = client->runtime;
    wi_resource *stack = wi_runtime_stack_of(runtime, pointer), *base = stack->base;
    wi_block *block;
    void *native;
    weir_status status = wi_streams_resolve(&runtime->streams, stream, runtime->name, &native);
    wi_tcache_flush(client);
    if (status == WEIR_OK)
        status = wi_elastic_refuse_page(runtime, stack, pointer, "weir_resize");
    if (status == WEIR_OK)
        do
            status = wi_claim(base, account_in(client, stack), pointer, 0, &block);
        while (wi_unlikely(status == WEIR_ERR_BUSY) && wi_residency_found_done(client));
    if (status != WEIR_OK)
        return status;
    bool more = base->table->charge(base, block->before + bytes + block->after) > block->charged;
    status = block->away > 0 ? weir_fail(WEIR_ERR_BUSY, "the block at %p is away, as %s is suspended; resume it first",
                                         pointer, client->account.name)
             : more          ? alloc_grow(runtime, stack, block, bytes, stream, native)
                             : alloc_shrink(runtime, stack, block, bytes, stream);
    wi_unclaim(base, block);
    return status;
}

weir_status weir_resize(weir_client *client, void *pointer, size_t bytes, weir_stream stream)
{
    weir_status status = wi_client_check(client, "weir_resize");
    if (status != WEIR_OK)
        return status;
    status = alloc_resize(client, pointer, bytes, stream);
    return wi_recorded_failure(client->runtime, status, WEIR_ACTION_RESIZE, pointer, bytes, stream);
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

static void alloc_inspect(weir_runtime *runtime, wi_resource *stack, const void *pointer, weir_block_details *out)
{
    wi_points waits;
    pthread_mutex_lock(&runtime->pending.lock);
    wi_inspect(stack->base, pointer, out, &waits);
    pthread_mutex_unlock(&runtime->pending.lock);
    out->waits = waits.count;
    for (uint32_t i = 0; i < waits.count; i++)
        out->wait[i] =
            (weir_block_wait){wi_streams_named(&runtime->streams, waits.events[i].stream), waits.events[i].sequence};
}

weir_status weir_block_info(const void *pointer, weir_block_details *out)
{
    WI_ENTER();
    if (!out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_block_info: NULL, or member struct_size is not set");
    weir_block_details details = {.struct_size = sizeof details};
    weir_runtime *runtime = wi_runtime_of(pointer);
    if (runtime) {
        wi_resource *stack = wi_kinds_owner(runtime, pointer, &details.kind);
        details.runtime = runtime;
        if (stack) /* else its memory was given back meanwhile */
            alloc_inspect(runtime, stack, pointer, &details);
        else
            details.state = WEIR_BLOCK_FREE;
    }
    wi_runtimes_unlock();
    if (!runtime)
        return weir_fail(WEIR_ERR_FOREIGN, "%p is no memory of weir's", pointer);
    wi_copy_out(out, out->struct_size, &details, sizeof details);
    return WEIR_OK;
}
