/* Capture pools: private memory of captured graphs (PyTorch: graph-private pools). A graph uses its memory at every
 * launch, so that blocks freed in the capture stay in the pool, and serve allocations of the capture by best fit. */
#include "memory/space/stream_order.h"
#include "runtime/runtime.h"

#include <sched.h>

struct weir_capture_pool {
    pthread_mutex_t lock;
    atomic_uint users; /* references: the handle, allocations under way, live blocks */
    uint64_t number;
    weir_client *client;
    weir_capture_pool *next; /* in the client's list; under the runtime's clients_lock */
    weir_stream stream;      /* the stream being captured; WEIR_STREAM_HOST: none */
    bool closed;
    wi_event end;    /* while closed: behind the last launch */
    wi_block *first; /* the blocks that it keeps, linked by pending_next */
    wi_block *aside; /* kept blocks that are live while the client is suspended; counted in `held` */
    bool apart;      /* there may be some; under the runtime's clients_lock */
    uint64_t held, held_blocks, live_blocks;
};

static weir_runtime *capture_pool_runtime(const weir_capture_pool *graph)
{
    return graph->client->runtime;
}

static void capture_pool_lock(weir_capture_pool *graph)
{
    pthread_mutex_lock(&graph->lock);
}

static void capture_pool_unlock(weir_capture_pool *graph)
{
    pthread_mutex_unlock(&graph->lock);
}

void wi_capture_pool_hold(weir_capture_pool *graph)
{
    atomic_fetch_add_explicit(&graph->users, 1, memory_order_relaxed);
}

void wi_capture_pool_drop(weir_capture_pool *graph)
{
    if (atomic_fetch_sub_explicit(&graph->users, 1, memory_order_acq_rel) > 1)
        return;
    pthread_mutex_destroy(&graph->lock);
    free(graph);
}

const weir_client *wi_capture_pool_client(const weir_capture_pool *graph)
{
    return graph->client;
}

weir_status wi_capture_pool_check_runtime(const weir_capture_pool *graph, const weir_runtime *runtime,
                                          weir_stream stream, const char *call)
{
    if (capture_pool_runtime(graph) == runtime)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_STREAM_MISUSE, "%s: stream %llx is of %s, but graph %llu is of %s on %s", call,
                     (unsigned long long)stream.id, runtime->name, (unsigned long long)graph->number,
                     graph->client->account.name, capture_pool_runtime(graph)->name);
}

/* Kept blocks, with the lock held ---------------------------------------------------------------------------------- */

static bool capture_pool_is_past(const wi_block *block)
{
    const wi_base *base = block->stack->base;
    wi_event ignored;
    return wi_stream_uses_passed(block->stream_uses, base->resource.driver, base->resource.device, &ignored);
}

/* Whether two kept blocks serve the same requests. */
static bool capture_pool_same_order(const wi_block *block, const wi_block *other)
{
    return block->graph_named == other->graph_named && (!block->graph_named || block->stream.id == other->stream.id);
}

/* Coalesces a kept block with the one behind it, whose record is gone then. False: they cannot be joined. */
static bool capture_pool_join(wi_block *block, wi_block *next)
{
    wi_base *base = block->stack->base;
    const wi_block was = wi_block_copy(next);
    if ((char *)block->pointer + block->charged != was.pointer || !base->table->join ||
        !capture_pool_same_order(block, next) || !capture_pool_is_past(block) || !capture_pool_is_past(next) ||
        !base->table->join(base, block, next))
        return false;
    wi_ledger_let_go(base->resource.ledger, &was, block->memory_class);
    wi_ledger_keep(base->resource.ledger, &was);
    return true;
}

static wi_block *capture_pool_take_out(weir_capture_pool *graph, wi_block **link)
{
    wi_block *block = *link;
    *link = block->pending_next;
    graph->held -= block->charged;
    graph->held_blocks--;
    return block;
}

/* Adds a kept block to the list, and coalesces it with its neighbours. */
static void capture_pool_put_in(weir_capture_pool *graph, wi_block *block)
{
    for (wi_block **link = &graph->first; *link;) {
        wi_block *other = *link, *behind = other->pending_next;
        uint64_t bytes = other->charged;
        if (capture_pool_join(block, other) || (capture_pool_join(other, block) && (block = other))) {
            *link = behind;
            graph->held -= bytes;
            graph->held_blocks--;
        } else {
            link = &other->pending_next;
        }
    }
    block->pending_next = graph->first;
    graph->first = block;
    graph->held += block->charged;
    graph->held_blocks++;
}

/* Coalesces blocks that could not be joined when they were freed. */
static void capture_pool_join_all(weir_capture_pool *graph)
{
    wi_block *list = graph->first;
    graph->first = NULL;
    graph->held = graph->held_blocks = 0;
    for (wi_block *block = list, *next; block; block = next) {
        next = block->pending_next;
        capture_pool_put_in(graph, block);
    }
}

static bool capture_pool_suits(const wi_block *block, const wi_placement *p, bool cuts)
{
    return block->graph_named == p->graph_named && (!p->graph_named || block->stream.id == p->stream.id) &&
           (block->charged == p->charged || (cuts && block->charged > p->charged)) &&
           (uintptr_t)block->pointer % p->alignment == 0;
}

/* Best fit: takes the smallest block that is large enough and that the device is past. NULL: there is none. */
static wi_block *capture_pool_best(weir_capture_pool *graph, const wi_base *base, const wi_placement *p)
{
    wi_block **best = NULL;
    for (wi_block **link = &graph->first; *link; link = &(*link)->pending_next)
        if (capture_pool_suits(*link, p, base->table->join) && (!best || (*link)->charged < (*best)->charged) &&
            capture_pool_is_past(*link))
            best = link;
    return best ? capture_pool_take_out(graph, best) : NULL;
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

/* Hands a kept block over to the deferred frees. It is free once the device is past `end` and the block's uses. */
static void capture_pool_give_back(weir_capture_pool *graph, wi_block *block, wi_event end)
{
    weir_runtime *runtime = capture_pool_runtime(graph);
    wi_event ignored;
    bool past = runtime->driver->passed(runtime->device, end) &&
                wi_stream_uses_passed(block->stream_uses, runtime->driver, runtime->device, &ignored);
    block->graph = NULL;
    wi_ledger_let_go(&runtime->ledger, block, block->memory_class);
    wi_pending_add(&runtime->pending, block->stack, block, past ? NULL : &end);
}

/* Returns a block to the pool after an allocation from it: the rest of a split block, or a block that did not serve.
 * Its bytes count as pending and kept. */
static void capture_pool_keep_or_give_back(weir_capture_pool *graph, wi_block *block)
{
    capture_pool_lock(graph);
    bool closed = graph->closed;
    wi_event end = graph->end;
    if (!closed)
        capture_pool_put_in(graph, block);
    capture_pool_unlock(graph);
    if (closed)
        capture_pool_give_back(graph, block, end);
}

/* Allocating ------------------------------------------------------------------------------------------------------- */

weir_status wi_capture_pool_allocate(weir_capture_pool *graph, wi_resource *stack, wi_placement *p, wi_block **out)
{
    wi_shortage ignored;
    wi_shortage_begin(&ignored, NULL, 0);
    capture_pool_lock(graph);
    wi_block *held = capture_pool_best(graph, stack->base, p);
    capture_pool_unlock(graph);
    if (!held)
        return WEIR_ERR_NO_ROOM;
    p->held = held;
    weir_status status = wi_allocate(stack, p, out, &ignored);
    p->held = NULL;
    wi_block *left = status == WEIR_OK ? p->rest : held;
    if (left && left != held) {
        left->graph_named = p->graph_named;
        wi_store(left->stream.id, p->stream.id);
    }
    if (left)
        capture_pool_keep_or_give_back(graph, left);
    return status;
}

void wi_capture_pool_adopt(weir_capture_pool *graph, wi_block *block, bool named)
{
    capture_pool_lock(graph);
    block->graph = graph->closed ? NULL : graph;
    block->graph_named = named;
    if (block->graph) {
        graph->live_blocks++;
        wi_capture_pool_hold(graph);
    }
    capture_pool_unlock(graph);
}

/* Stepping aside --------------------------------------------------------------------------------------------------- */

/* While the client is suspended with its graphs, what a pool keeps is live, in the list `aside`: it leaves, is shown and
 * comes back as other blocks do. */

static void capture_pool_set_aside(weir_capture_pool *graph, wi_block *block)
{
    block->pending_next = graph->aside;
    graph->aside = block;
    graph->held += block->charged;
    graph->held_blocks++;
}

/* The place of the block in the list `aside`; NULL: it is not there. */
static wi_block **capture_pool_aside(weir_capture_pool *graph, const wi_block *block)
{
    wi_block **link = &graph->aside;
    while (*link && *link != block)
        link = &(*link)->pending_next;
    return *link ? link : NULL;
}

/* Waits until the device is past all uses of a kept block that was taken out. */
static weir_status capture_pool_await(const weir_capture_pool *graph, const wi_block *block, uint64_t deadline)
{
    weir_runtime *runtime = capture_pool_runtime(graph);
    weir_status status = WEIR_OK;
    wi_event event;
    while (status == WEIR_OK && !wi_stream_uses_passed(block->stream_uses, runtime->driver, runtime->device, &event)) {
        status = runtime->driver->wait(runtime->device, event, deadline);
        if (status == WEIR_OK && deadline != UINT64_MAX && !runtime->driver->passed(runtime->device, event))
            status =
                weir_fail(WEIR_ERR_BUSY, "%s cannot be suspended: work on what graph %llu keeps was not done in time",
                          graph->client->account.name, (unsigned long long)graph->number);
    }
    return status;
}

/* A kept block that was taken out is live again, with the same contents, as if a request of its size had it. */
static weir_status capture_pool_wake(weir_capture_pool *graph, wi_block *block)
{
    wi_resource *stack = block->stack;
    wi_placement p = {.bytes = block->bytes,
                      .charged = block->charged,
                      .alignment = WI_UNIT,
                      .memory_class = block->memory_class,
                      .stream = block->stream,
                      .account = block->account,
                      .tag = block->tag,
                      .graph = graph,
                      .graph_named = block->graph_named,
                      .held = block};
    wi_shortage ignored;
    wi_block *same;
    wi_shortage_begin(&ignored, NULL, 0);
    weir_status status = wi_allocate(stack, &p, &same, &ignored);
    if (status == WEIR_OK)
        wi_publish(stack, block);
    return status;
}

/* Retires a block of the list `aside` that is acquired, and keeps it again. */
static void capture_pool_retire_aside(weir_capture_pool *graph, wi_block *block)
{
    wi_resource *stack = capture_pool_runtime(graph)->resource;
    block->stack = stack;
    if (!wi_retire(stack, block, WEIR_STREAM_HOST, NULL, WI_UNPASSED)) {
        wi_ledger_keep(stack->ledger, block);
        capture_pool_put_in(graph, block);
    }
}

static bool capture_pool_acquire(wi_block *block)
{
    wi_base *base = block->stack->base;
    wi_base_lock(base);
    bool acquired = wi_block_acquire(block, atomic_load(&block->word), WI_ACQUIRED);
    wi_base_unlock(base);
    return acquired;
}

static void capture_pool_return(weir_capture_pool *graph)
{
    capture_pool_lock(graph);
    for (wi_block *block; (block = graph->aside);) {
        if (capture_pool_acquire(block)) {
            (void)capture_pool_take_out(graph, &graph->aside);
            capture_pool_retire_aside(graph, block);
            continue;
        }
        capture_pool_unlock(graph); /* another thread looks whether it may free the block */
        sched_yield();
        capture_pool_lock(graph);
    }
    capture_pool_unlock(graph);
}

/* Frees a block that was woken for a pool that was closed meanwhile. */
static void capture_pool_free_woken(weir_capture_pool *graph, wi_block *block, wi_event end)
{
    weir_runtime *runtime = capture_pool_runtime(graph);
    while (!capture_pool_acquire(block))
        sched_yield();
    block->graph = NULL;
    wi_pending_free(&runtime->pending, block->stack, block, WEIR_STREAM_HOST, NULL, &end);
}

/* The first kept block is set aside. *none: there is none. */
static weir_status capture_pool_step(weir_capture_pool *graph, uint64_t deadline, bool *none)
{
    capture_pool_lock(graph);
    wi_block *block = graph->first ? capture_pool_take_out(graph, &graph->first) : NULL;
    weir_stream stream = graph->stream;
    capture_pool_unlock(graph);
    *none = !block;
    weir_status status = WEIR_OK;
    if (stream.id != 0)
        status =
            weir_fail(WEIR_ERR_STREAM_MISUSE, "%s cannot be suspended: graph %llu is capturing stream %llx",
                      graph->client->account.name, (unsigned long long)graph->number, (unsigned long long)stream.id);
    if (status == WEIR_OK && block)
        status = capture_pool_await(graph, block, deadline);
    if (status == WEIR_OK && block)
        status = capture_pool_wake(graph, block);
    if (status != WEIR_OK && block)
        capture_pool_keep_or_give_back(graph, block);
    if (status != WEIR_OK || !block)
        return status;
    capture_pool_lock(graph);
    bool closed = graph->closed;
    wi_event end = graph->end;
    if (!closed)
        capture_pool_set_aside(graph, block);
    capture_pool_unlock(graph);
    if (closed)
        capture_pool_free_woken(graph, block, end);
    return WEIR_OK;
}

/* The next pool of the client with the mark, which is changed; it is held. NULL: none is left. */
static weir_capture_pool *capture_pool_next(weir_client *client, bool apart)
{
    weir_runtime *runtime = client->runtime;
    pthread_mutex_lock(&runtime->clients_lock);
    weir_capture_pool *graph = client->graphs;
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the owner holds each pool of the list
    while (graph && graph->apart != apart)
        graph = graph->next;
    if (graph) {
        graph->apart = !apart;
        wi_capture_pool_hold(graph);
    }
    pthread_mutex_unlock(&runtime->clients_lock);
    return graph;
}

weir_status wi_capture_pools_step_aside(weir_client *client, uint64_t deadline)
{
    weir_status status = WEIR_OK;
    weir_capture_pool *graph;
    while (status == WEIR_OK && (graph = capture_pool_next(client, false))) {
        for (bool none = false; status == WEIR_OK && !none;)
            status = capture_pool_step(graph, deadline, &none);
        wi_capture_pool_drop(graph);
    }
    return status;
}

void wi_capture_pools_return(weir_client *client)
{
    for (weir_capture_pool *graph; (graph = capture_pool_next(client, true));) {
        capture_pool_return(graph);
        wi_capture_pool_drop(graph);
    }
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

weir_status wi_capture_pool_note(wi_block *block, wi_event event)
{
    bool opened;
    weir_status status =
        wi_stream_uses_open(&block->stream_uses, WEIR_ACCESS_READ, &opened); /* an acquired block has no open ticket */
    if (opened)
        wi_stream_uses_close(block->stream_uses, WEIR_ACCESS_READ, &event);
    return status;
}

/* Zeros that were queued for a resized block on its stream become its last write. A later capture would not wait for
 * them otherwise, as it knows nothing of that stream. */
static weir_status capture_pool_note_zeros(weir_runtime *runtime, wi_block *block)
{
    wi_event event;
    if (!wi_block_is_behind(block))
        return WEIR_OK;
    weir_status status = wi_streams_point(runtime, block->stream, &event);
    if (status == WEIR_OK)
        status = wi_stream_uses_first_write(&block->stream_uses, event);
    if (status == WEIR_OK)
        wi_block_came_behind(block);
    return status;
}

/* A free on a stream outside of the capture is noted as a use of the block, behind which the pool may use the block
 * again. A free in the pool's own capture needs no event: the launches of the graph are in order. Nor does the free, on
 * the block's stream, of a block whose request named the pool: the next use of the block on the stream comes behind. */
static weir_status capture_pool_note_free(const weir_capture_pool *graph, wi_block *block, const wi_stream_facts *at)
{
    weir_runtime *runtime = capture_pool_runtime(graph);
    wi_event event;
    weir_status status = wi_streams_check(&runtime->streams, at, runtime->name);
    if (status == WEIR_OK)
        status = capture_pool_note_zeros(runtime, block);
    if (status != WEIR_OK || !at->native || at->graph == graph ||
        (block->graph_named && at->stream.id == block->stream.id))
        return status;
    status = at->captured ? wi_streams_captured(runtime, at->stream, "weir_free")
                          : runtime->driver->record(runtime->device, at->native, &event);
    if (status != WEIR_OK || runtime->driver->passed(runtime->device, event))
        return status;
    return wi_capture_pool_note(block, event);
}

/* Retires the block and adds it to the pool, in one step under the lock, so that a concurrent close finds it. False:
 * the pool was closed before, and the caller frees the block. */
static bool capture_pool_retire(weir_capture_pool *graph, wi_resource *stack, wi_block *block, weir_stream stream,
                                void *native)
{
    capture_pool_lock(graph);
    bool open = !graph->closed;
    graph->live_blocks--;
    if (open) {
        block->stack = stack;
        if (!wi_retire(stack, block, stream, native, WI_UNPASSED)) {
            wi_ledger_keep(stack->ledger, block);
            capture_pool_put_in(graph, block);
        }
    } else {
        block->graph = NULL;
    }
    capture_pool_unlock(graph);
    wi_capture_pool_drop(graph);
    return open;
}

static bool capture_pool_is_closed(weir_capture_pool *graph)
{
    capture_pool_lock(graph);
    bool closed = graph->closed;
    capture_pool_unlock(graph);
    return closed;
}

/* A block that is away stays live until it is back, as a part of what the pool keeps. False: the pool was closed before. */
static bool capture_pool_keep_away(weir_capture_pool *graph, wi_resource *stack, wi_block *block)
{
    capture_pool_lock(graph);
    bool open = !graph->closed;
    if (open) {
        block->stack = stack;
        graph->live_blocks--;
        capture_pool_set_aside(graph, block);
        wi_let_go(stack->base, block);
    }
    capture_pool_unlock(graph);
    if (open)
        wi_capture_pool_drop(graph);
    return open;
}

static weir_status capture_pool_check_free(weir_capture_pool *graph, const wi_block *block)
{
    capture_pool_lock(graph);
    bool kept = capture_pool_aside(graph, block) != NULL;
    capture_pool_unlock(graph);
    if (!kept)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_DOUBLE_FREE, "the block at %p was freed before; graph %llu of %s keeps it",
                     block->pointer, (unsigned long long)graph->number, graph->client->account.name);
}

weir_status wi_capture_pool_free(weir_capture_pool *graph, wi_resource *stack, wi_block *block,
                                 const wi_stream_facts *at)
{
    weir_runtime *runtime = capture_pool_runtime(graph);
    wi_stream_facts now;
    bool open = !capture_pool_is_closed(graph), away = block->away > 0;
    weir_status status = open ? capture_pool_check_free(graph, block) : WEIR_OK;
    if (status == WEIR_OK && open)
        status = capture_pool_note_free(graph, block, at);
    if (status == WEIR_OK && open && !away)
        wi_freeing(stack, block, at->stream);
    if (status != WEIR_OK || (away && capture_pool_keep_away(graph, stack, block)) ||
        (!away && capture_pool_retire(graph, stack, block, at->stream, at->native)))
        return status;
    wi_streams_facts(&runtime->streams, at->stream,
                     &now); /* the pool's capture may have ended before the pool was closed */
    return wi_free_told(runtime, stack, block, &now, open);
}

bool wi_capture_pool_keep(weir_capture_pool *graph, wi_resource *stack, wi_block *tail)
{
    capture_pool_lock(graph);
    bool open = !graph->closed;
    if (open) {
        tail->stack = stack;
        wi_ledger_keep(stack->ledger, tail);
        capture_pool_put_in(graph, tail);
    } else {
        tail->graph = NULL;
    }
    capture_pool_unlock(graph);
    return open;
}

/* Opening and closing ---------------------------------------------------------------------------------------------- */

static void capture_pool_enlist(weir_capture_pool *graph)
{
    weir_runtime *runtime = capture_pool_runtime(graph);
    pthread_mutex_lock(&runtime->clients_lock);
    graph->next = graph->client->graphs;
    graph->client->graphs = graph;
    pthread_mutex_unlock(&runtime->clients_lock);
}

static void capture_pool_unlist(weir_capture_pool *graph)
{
    weir_runtime *runtime = capture_pool_runtime(graph);
    pthread_mutex_lock(&runtime->clients_lock);
    weir_capture_pool **link = &graph->client->graphs;
    while (*link != graph)
        link = &(*link)->next;
    *link = graph->next;
    pthread_mutex_unlock(&runtime->clients_lock);
}

weir_status weir_capture_pool_create(weir_client *client, weir_capture_pool **out)
{
    static atomic_uint_fast64_t last_number;
    char text[WI_STACK_BYTES];
    weir_status status = wi_client_check(client, "weir_capture_pool_create");
    if (status != WEIR_OK)
        return status;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_capture_pool_create: no place for the result");
    *out = NULL;
    weir_runtime *runtime = client->runtime;
    if (!(runtime->resource->features & WEIR_FEATURE_CAPTURABLE))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "weir_capture_pool_create: %s of %s allocates nothing in captures; use cache or blocks",
                         wi_runtime_resource(runtime, text, sizeof text), runtime->name);
    weir_capture_pool *graph = calloc(1, sizeof *graph);
    if (!graph)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a graph");
    pthread_mutex_init(&graph->lock, NULL);
    atomic_init(&graph->users, 1);
    graph->number = atomic_fetch_add(&last_number, 1) + 1;
    graph->client = client;
    capture_pool_enlist(graph);
    status = wi_client_check(
        client,
        "weir_capture_pool_create"); /* weir_client_close marks the client as closed before it looks for pools */
    if (status == WEIR_OK) {
        *out = graph;
        return WEIR_OK;
    }
    capture_pool_unlist(graph);
    wi_capture_pool_drop(graph);
    return status;
}

weir_status wi_graphs_check_none(const weir_client *client)
{
    weir_runtime *runtime = client->runtime;
    weir_capture_pool_details details = {.number = 0};
    char text[24];
    pthread_mutex_lock(&runtime->clients_lock);
    weir_capture_pool *graph = client->graphs;
    if (graph) {
        capture_pool_lock(graph);
        details = (weir_capture_pool_details){.number = graph->number, .held = graph->held};
        capture_pool_unlock(graph);
    }
    pthread_mutex_unlock(&runtime->clients_lock);
    if (details.number == 0)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_BUSY, "%s has graph %llu open, which holds %s; close it before closing the client",
                     client->account.name, (unsigned long long)details.number,
                     weir_size_format(details.held, text, sizeof text));
}

static weir_status capture_pool_capturing(const weir_capture_pool *graph, const char *call, weir_stream stream)
{
    return weir_fail(WEIR_ERR_BUSY,
                     "%s: graph %llu of %s is capturing stream %llx; end that with weir_capture_end first", call,
                     (unsigned long long)graph->number, graph->client->account.name, (unsigned long long)stream.id);
}

/* Closes the pool unless a capture is open, or it has blocks set aside: *aside. *list: the blocks that it kept. */
static weir_status capture_pool_shut(weir_capture_pool *graph, wi_event end, wi_block **list, bool *aside)
{
    capture_pool_lock(graph);
    weir_stream stream = graph->stream;
    *aside = stream.id == 0 && graph->aside;
    if (stream.id == 0 && !*aside) {
        graph->closed = true;
        graph->end = end;
        *list = graph->first;
        graph->first = NULL;
        graph->held = graph->held_blocks = 0;
    }
    capture_pool_unlock(graph);
    return stream.id == 0 ? WEIR_OK : capture_pool_capturing(graph, "weir_capture_pool_destroy", stream);
}

static weir_status capture_pool_point(weir_runtime *runtime, weir_stream stream, wi_event *out)
{
    void *native;
    weir_status status = wi_streams_resolve_recorded(runtime, stream, "weir_capture_pool_destroy", &native);
    return status == WEIR_OK && native ? runtime->driver->record(runtime->device, native, out) : status;
}

/* Frees an acquired block of the list `aside`, in the order of the stream. */
static weir_status capture_pool_free_aside(weir_capture_pool *graph, wi_block *block, weir_stream stream)
{
    weir_runtime *runtime = capture_pool_runtime(graph);
    wi_stream_facts at;
    capture_pool_lock(graph);
    wi_block **link = capture_pool_aside(graph, block);
    wi_assert(link); /* what is put back is not live */
    (void)capture_pool_take_out(graph, link);
    block->graph = NULL;
    capture_pool_unlock(graph);
    wi_streams_facts(&runtime->streams, stream, &at);
    weir_status status = wi_free_acquired(runtime, runtime->resource, block, &at);
    if (status == WEIR_OK)
        return WEIR_OK;
    capture_pool_lock(graph);
    block->graph = graph;
    capture_pool_set_aside(graph, block);
    wi_let_go(runtime->resource->base, block);
    capture_pool_unlock(graph);
    return status;
}

/* Frees all blocks of the list `aside`, also those that are away. Waits while another thread moves the client. */
static weir_status capture_pool_end_aside(weir_capture_pool *graph, weir_stream stream)
{
    weir_client *client = graph->client;
    wi_base *base = capture_pool_runtime(graph)->resource->base;
    uint64_t moves = wi_residency_moves(client);
    for (;;) {
        wi_block *block;
        capture_pool_lock(graph);
        wi_block *first = graph->aside;
        void *pointer = first ? first->pointer : NULL;
        uint64_t generation = first ? wi_block_generation(first) : 0;
        capture_pool_unlock(graph);
        if (!first)
            return WEIR_OK;
        weir_status status = wi_acquire(base, &client->account, pointer, generation, &block);
        if (status == WEIR_OK)
            status = capture_pool_free_aside(graph, block, stream);
        else if (status != WEIR_ERR_BUSY || wi_residency_wait(client, &moves) || wi_residency_found_done(client))
            status = WEIR_OK; /* the pool keeps it again, or it may be had now */
        if (status != WEIR_OK)
            return status;
    }
}

weir_status weir_capture_pool_destroy(weir_capture_pool *graph, weir_stream stream)
{
    WI_ENTER();
    if (!graph)
        return WEIR_OK;
    weir_runtime *runtime = capture_pool_runtime(graph);
    WI_VISIT(runtime);
    wi_event end = {0};
    wi_block *list = NULL;
    weir_status status = stream.id == WEIR_STREAM_ALL.id
                             ? wi_streams_point_of_all(runtime, "weir_capture_pool_destroy", &end)
                             : capture_pool_point(runtime, stream, &end);
    for (bool aside = true; aside && status == WEIR_OK;) {
        status = capture_pool_shut(graph, end, &list, &aside);
        if (status == WEIR_OK && aside)
            status = capture_pool_end_aside(graph, stream);
    }
    if (status != WEIR_OK)
        return status;
    for (wi_block *block = list, *next; block; block = next) {
        next = block->pending_next;
        capture_pool_give_back(graph, block, end);
    }
    capture_pool_unlist(graph); /* the client may be closed from here on */
    wi_capture_pool_drop(graph);
    return WEIR_OK;
}

/* Capturing -------------------------------------------------------------------------------------------------------- */

weir_status wi_capture_pool_begin(weir_capture_pool *graph, weir_stream stream)
{
    WI_ENTER();
    capture_pool_lock(graph);
    weir_stream other = graph->stream;
    if (other.id == 0) {
        graph->stream = stream;
        capture_pool_join_all(graph);
    }
    capture_pool_unlock(graph);
    if (other.id != 0)
        return capture_pool_capturing(graph, "weir_capture_begin", other);
    weir_status status = wi_capture_begin(stream, graph, "weir_capture_begin");
    if (status != WEIR_OK) {
        capture_pool_lock(graph);
        graph->stream = WEIR_STREAM_HOST;
        capture_pool_unlock(graph);
    }
    return status;
}

weir_status wi_capture_pool_end(weir_capture_pool *graph, weir_stream stream)
{
    WI_ENTER();
    capture_pool_lock(graph);
    bool mine = stream.id != 0 && graph->stream.id == stream.id;
    if (mine) {
        wi_streams_end_graph(&capture_pool_runtime(graph)->streams, stream, graph);
        graph->stream = WEIR_STREAM_HOST;
    }
    capture_pool_unlock(graph);
    if (mine)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "weir_capture_end: graph %llu of %s is not capturing stream %llx",
                     (unsigned long long)graph->number, graph->client->account.name, (unsigned long long)stream.id);
}

weir_status weir_capture_pool_info(weir_capture_pool *graph, weir_capture_pool_details *out)
{
    WI_ENTER();
    if (!graph || !out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_capture_pool_info: NULL, or member struct_size is not set");
    capture_pool_lock(graph);
    weir_capture_pool_details details = {.struct_size = sizeof details,
                                         .number = graph->number,
                                         .held = graph->held,
                                         .held_blocks = graph->held_blocks,
                                         .live_blocks = graph->live_blocks,
                                         .stream = graph->stream};
    capture_pool_unlock(graph);
    wi_copy_out(out, out->struct_size, &details, sizeof details);
    return WEIR_OK;
}
