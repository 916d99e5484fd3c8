/* Stream uses, declared by launches: a launch holds a ticket on each of its blocks, its stream first waits for earlier
 * uses, and one event behind its work becomes the point of all its uses. */
#include "base/probes.h"
#include <weir/trace.h>
#include "memory/space/stream_order.h"
#include "memory/away.h"
#include "runtime/runtime.h"

struct weir_launch {
    weir_runtime *runtime;
    weir_stream stream;
    uint64_t number; /* in traces; 0: no trace was open when it began */
    size_t count;    /* blocks that hold a ticket of this launch */
    weir_use uses[];
};

/* Events that a stream must wait for, gathered under the resource's lock and queued after it. */
typedef struct waits {
    wi_event *events;
    size_t count, capacity;
} waits;

static weir_status uses_add_wait(waits *w, wi_event event)
{
    if (w->count == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 16;
        wi_event *events = realloc(w->events, capacity * sizeof *events);
        if (!events)
            return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the waits of a launch");
        w->events = events;
        w->capacity = capacity;
    }
    w->events[w->count++] = event;
    return WEIR_OK;
}

/* Traces ----------------------------------------------------------------------------------------------------------- */

static uint64_t uses_next_number(void)
{
    static atomic_uint_fast64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

/* Writes into the rings only. Calls no sink, as tickets may be held. */
static void trace_launch(const weir_launch *launch, weir_action action, weir_status result)
{
    if (launch->number)
        wi_record(&launch->runtime->ledger,
                  (weir_event){.action = action, .stream = launch->stream, .object = launch->number, .result = result},
                  NULL);
}

/* Tickets ---------------------------------------------------------------------------------------------------------- */

typedef struct visit {
    const weir_launch *launch;
    weir_use *use;
    waits *waits;
    const wi_event *event;
} visit;

/* A declared write may go where nothing else may write; the lock is held. */
static weir_status uses_open_for_write(const visit *v, const wi_block *block)
{
    wi_base *base = v->launch->runtime->resource->base; /* only chunks of this base are sealed */
    if (v->use->access == WEIR_ACCESS_READ || wi_likely(atomic_load(&base->sealed) == 0))
        return WEIR_OK;
    return base->table->away->unseal(base, block->pointer, block->charged);
}

/* Called by the resource with its lock held. */
static weir_status uses_open_ticket(wi_block *block, void *user)
{
    visit *v = user;
    bool opened;
    wi_event event;
    if (block->away > 0 && !block->shown)
        return weir_fail(WEIR_ERR_BUSY,
                         "the block of %s at %p is away, as its client is suspended; resume the client before a launch "
                         "that uses it",
                         block->account->name, block->pointer);
    weir_status status = uses_open_for_write(v, block);
    if (status == WEIR_OK)
        status = wi_stream_uses_open(&block->stream_uses, v->use->access, &opened);
    if (status != WEIR_OK)
        return status;
    if (!opened)
        return weir_fail(WEIR_ERR_BUSY,
                         "the block of %s at %p is %s by a launch that has not ended; end it before beginning one that "
                         "%s it",
                         block->account->name, block->pointer, block->stream_uses->writer ? "written" : "read",
                         v->use->access == WEIR_ACCESS_READ ? "reads" : "writes");
    for (uint32_t i = 0; status == WEIR_OK && wi_stream_uses_point(block->stream_uses, v->use->access, i, &event); i++)
        if (event.stream)
            status = uses_add_wait(v->waits, event);
    if (status != WEIR_OK)
        wi_stream_uses_close(block->stream_uses, v->use->access, NULL);
    else if (v->launch->number)
        wi_record(&v->launch->runtime->ledger,
                  (weir_event){.action = WEIR_ACTION_USE_BEGIN,
                               .stream = v->launch->stream,
                               .other = block->stream,
                               .access = v->use->access,
                               .object = v->launch->number},
                  block);
    return status;
}

static weir_status uses_close_ticket(wi_block *block, void *user)
{
    const visit *v = user;
    bool lost = wi_has_bug(WI_BUG_LOST_READER) && v->use->access == WEIR_ACCESS_READ;
    wi_stream_uses_close(block->stream_uses, v->use->access, lost ? NULL : v->event);
    return WEIR_OK;
}

/* The ticket keeps the block where it is, so that this cannot fail. */
static void uses_close_tickets(weir_launch *launch, const wi_event *event)
{
    for (size_t i = 0; i < launch->count; i++) {
        visit v = {.use = &launch->uses[i], .event = event};
        wi_base *base = wi_runtime_stack_of(launch->runtime, v.use->block.pointer)->base;
        weir_status status = wi_visit(base, v.use->block.pointer, v.use->block.generation, uses_close_ticket, &v);
        wi_assert(status == WEIR_OK);
        (void)status;
    }
    launch->count = 0;
}

/* Beginning -------------------------------------------------------------------------------------------------------- */

static int by_pointer(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const weir_use *)a)->block.pointer, y = (uintptr_t)((const weir_use *)b)->block.pointer;
    return x < y ? -1 : x > y;
}

/* Zeros that an allocation queued on another stream than the launch's, or found queued there. They come before the
 * block's first use. */
typedef struct zeroing {
    weir_stream launch, stream; /* `stream` is where the zeros were queued; WEIR_STREAM_HOST: no need to wait */
    uint64_t generation;        /* of the block: a later block at this address has zeros of its own */
    wi_event event;
} zeroing;

static weir_status uses_find_zeroing(wi_block *block, void *user)
{
    zeroing *z = user;
    z->stream = wi_block_is_behind(block) && block->stream.id != z->launch.id ? block->stream : WEIR_STREAM_HOST;
    z->generation = wi_block_generation(block);
    return WEIR_OK;
}

static weir_status uses_note_zeroing(wi_block *block, void *user)
{
    const zeroing *z = user;
    weir_status status =
        wi_block_is_behind(block) ? wi_stream_uses_first_write(&block->stream_uses, z->event) : WEIR_OK;
    if (status == WEIR_OK)
        wi_block_came_behind(block);
    return status;
}

/* WEIR_ERR_STREAM_MISUSE for a resource that cannot track uses, so that no program relies on tracking that
 * does not happen. */
static weir_status uses_check_tracking(const wi_resource *stack)
{
    if (stack->features & WEIR_FEATURE_TRACKS_USES)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_STREAM_MISUSE,
                     "the resource %s of %s cannot track uses: work on other streams than the block's own is not "
                     "protected; order it yourself or choose another resource",
                     stack->base->table->all.name, stack->ledger->device);
}

static weir_status uses_order_behind_zeroing(weir_runtime *runtime, weir_stream stream, const weir_block *block)
{
    wi_resource *stack = wi_runtime_stack_of(runtime, block->pointer);
    wi_base *base = stack->base;
    zeroing z = {.launch = stream};
    weir_status status = uses_check_tracking(stack);
    if (status != WEIR_OK)
        return status;
    status = wi_visit(base, block->pointer, block->generation, uses_find_zeroing, &z);
    if (status != WEIR_OK || z.stream.id == 0)
        return status;
    status = wi_streams_point(runtime, z.stream, &z.event);
    if (status == WEIR_OK)
        status = wi_visit(base, block->pointer, z.generation, uses_note_zeroing, &z);
    return status;
}

/* Whether two uses name different generations of an address. At most one use then names the block that is there now. */
static bool uses_contradict(const weir_block *a, const weir_block *b)
{
    return a->generation != 0 && b->generation != 0 && a->generation != b->generation;
}

/* Merges uses of the same block into one entry with both accesses. An entry with a stale generation stays: the visit of
 * its block reports the error. */
static size_t uses_merge_duplicates(weir_use *uses, size_t count)
{
    size_t left = 0;
    qsort(uses, count, sizeof *uses, by_pointer);
    for (size_t i = 0; i < count; i++) {
        weir_use *last = left > 0 ? &uses[left - 1] : NULL;
        if (!last || last->block.pointer != uses[i].block.pointer || uses_contradict(&last->block, &uses[i].block)) {
            uses[left++] = uses[i];
            continue;
        }
        last->access = (weir_access)((int)last->access | (int)uses[i].access);
        last->block.generation = wi_max(last->block.generation, uses[i].block.generation);
    }
    return left;
}

static weir_status uses_check(const weir_use *uses, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!uses[i].block.pointer)
            return weir_fail(WEIR_ERR_INVALID, "weir_launch_begin: the pointer of use %zu is NULL", i);
        if (uses[i].access < WEIR_ACCESS_READ || uses[i].access > WEIR_ACCESS_READ_WRITE)
            return weir_fail(WEIR_ERR_INVALID, "weir_launch_begin: %d is no access; see weir_access",
                             (int)uses[i].access);
    }
    return WEIR_OK;
}

static weir_status uses_open_tickets(weir_launch *launch, size_t count, waits *w)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        visit v = {.launch = launch, .use = &launch->uses[i], .waits = w};
        status = uses_order_behind_zeroing(launch->runtime, launch->stream, &v.use->block);
        if (status != WEIR_OK)
            break;
        wi_base *base = wi_runtime_stack_of(launch->runtime, v.use->block.pointer)->base;
        status = wi_visit(base, v.use->block.pointer, v.use->block.generation, uses_open_ticket, &v);
        launch->count += status == WEIR_OK;
    }
    return status;
}

/* The launch's own stream is ordered without a wait. The driver skips events that have passed. */
static weir_status uses_queue_waits(weir_runtime *runtime, weir_stream stream, const waits *w)
{
    void *native;
    if (w->count == 0)
        return WEIR_OK;
    weir_status status = wi_streams_begin(&runtime->streams, stream, runtime->name, &native);
    if (status != WEIR_OK)
        return status;
    for (size_t i = 0; i < w->count && status == WEIR_OK; i++)
        if (w->events[i].stream != native)
            status = runtime->driver->order(runtime->device, native, w->events[i]);
    wi_streams_done(&runtime->streams, stream);
    return status;
}

weir_status weir_launch_begin(weir_runtime *runtime, weir_stream stream, const weir_use *uses, size_t count,
                              weir_launch **out)
{
    WI_ENTER();
    void *native;
    if (!runtime || !out || (!uses && count > 0))
        return weir_fail(WEIR_ERR_INVALID, "weir_launch_begin: NULL");
    *out = NULL;
    WI_VISIT(runtime);
    weir_status status = uses_check(uses, count);
    if (status == WEIR_OK)
        status = wi_streams_resolve_now(runtime, stream, "weir_launch_begin", &native);
    if (status != WEIR_OK)
        return wi_recorded(runtime, status, .action = WEIR_ACTION_USE_BEGIN, .stream = stream);
    weir_launch *launch = malloc(sizeof *launch + count * sizeof *uses);
    if (!launch)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a launch of %zu uses", count);
    *launch = (weir_launch){.runtime = runtime, .stream = stream};
    launch->number = wi_recording(&runtime->ledger) ? uses_next_number() : 0;
    if (count > 0)
        memcpy(launch->uses, uses, count * sizeof *uses);
    waits w = {0};
    status = uses_open_tickets(launch, uses_merge_duplicates(launch->uses, count), &w);
    if (status == WEIR_OK && !wi_has_bug(WI_BUG_DROP_WAIT))
        status = uses_queue_waits(runtime, stream, &w);
    free(w.events);
    if (status != WEIR_OK) {
        trace_launch(launch, WEIR_ACTION_USE_BEGIN, status);
        uses_close_tickets(launch, NULL);
        free(launch);
    } else {
        *out = launch;
    }
    wi_hand_out(runtime);
    return status;
}

/* Ending ----------------------------------------------------------------------------------------------------------- */

static weir_status uses_record(weir_runtime *runtime, weir_stream stream, const char *call, wi_event *event)
{
    void *native;
    *event = (wi_event){0};
    weir_status status = wi_streams_begin_recorded(runtime, stream, call, &native);
    if (status != WEIR_OK || !native)
        return status;
    status = runtime->driver->record(runtime->device, native, event);
    wi_streams_done(&runtime->streams, stream);
    return status;
}

weir_status weir_launch_end(weir_launch *launch)
{
    WI_ENTER();
    if (!launch)
        return weir_fail(WEIR_ERR_INVALID, "weir_launch_end: NULL");
    wi_event event;
    weir_runtime *runtime = launch->runtime;
    WI_VISIT(runtime);
    weir_status status = uses_record(runtime, launch->stream, "weir_launch_end", &event);
    trace_launch(launch, WEIR_ACTION_USE_END, status);
    if (status != WEIR_OK)
        return status;
    uses_close_tickets(launch, &event);
    free(launch);
    wi_hand_out(runtime);
    return WEIR_OK;
}

void weir_launch_abort(weir_launch *launch)
{
    if (!launch || atomic_load(&wi_forked))
        return;
    trace_launch(launch, WEIR_ACTION_USE_ABORT, WEIR_OK);
    uses_close_tickets(launch, NULL);
    free(launch);
}

/* The simple form -------------------------------------------------------------------------------------------------- */

typedef struct simple_use {
    weir_runtime *runtime;
    weir_stream stream;
    const wi_event *event;
} simple_use;

static weir_status uses_note_read(wi_block *block, void *user)
{
    const simple_use *use = user;
    bool opened;
    weir_status status = wi_stream_uses_open(&block->stream_uses, WEIR_ACCESS_READ, &opened);
    if (status == WEIR_OK && !opened)
        status = weir_fail(WEIR_ERR_BUSY, "the block of %s at %p is written by a launch that has not ended",
                           block->account->name, block->pointer);
    if (status == WEIR_OK)
        wi_stream_uses_close(block->stream_uses, WEIR_ACCESS_READ, use->event);
    if (status == WEIR_OK && wi_recording(&use->runtime->ledger))
        wi_record(&use->runtime->ledger,
                  (weir_event){.action = WEIR_ACTION_USE_RECORD,
                               .stream = use->stream,
                               .other = block->stream,
                               .access = WEIR_ACCESS_READ},
                  block);
    return status;
}

static weir_status uses_note_block(weir_runtime *runtime, weir_block block, weir_stream stream, const char *call)
{
    wi_event event;
    wi_resource *stack = wi_runtime_stack_of(runtime, block.pointer);
    weir_status status = uses_check_tracking(stack);
    if (status == WEIR_OK)
        status = uses_record(runtime, stream, call, &event);
    if (status != WEIR_OK)
        return status;
    simple_use use = {runtime, stream, &event};
    return wi_visit(stack->base, block.pointer, block.generation, uses_note_read, &use);
}

static weir_status uses_note(weir_runtime *runtime, weir_block block, weir_stream stream, const char *call)
{
    weir_status status = uses_note_block(runtime, block, stream, call);
    if (status != WEIR_OK) /* a success was recorded together with the block */
        return wi_recorded(runtime, status, .action = WEIR_ACTION_USE_RECORD, .pointer = block.pointer,
                           .stream = stream, .access = WEIR_ACCESS_READ);
    wi_hand_out(runtime);
    return WEIR_OK;
}

weir_status weir_use_record(weir_runtime *runtime, weir_block block, weir_stream stream)
{
    WI_ENTER();
    if (!runtime || !block.pointer)
        return weir_fail(WEIR_ERR_INVALID, "weir_use_record: NULL");
    WI_VISIT(runtime);
    return uses_note(runtime, block, stream, "weir_use_record");
}
