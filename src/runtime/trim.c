/* Trim and drain: giving cached memory back to the driver, with a report on what stays; and pressure callbacks. */
#include "memory/space/stream_lists.h"
#include "runtime/runtime.h"
#include "runtime/thread_cache/thread_cache.h"

/* The report ------------------------------------------------------------------------------------------------------- */

/* A block may have several parts. The parts follow each other in the layout, so that a block's sum is complete
 * when the next block begins. */
typedef struct tally {
    weir_trim_report *report;
    const weir_span *pin; /* of the current block */
    uint64_t pinned;
} tally;

static void trim_end_pin(tally *t)
{
    weir_trim_report *r = t->report;
    const weir_span *p = t->pin;
    if (!p)
        return;
    uint32_t at = r->pins;
    r->pinning++;
    while (at > 0 && r->pin[at - 1].pinned < t->pinned)
        at--;
    if (at == WEIR_TRIM_PINS)
        return;
    r->pins += r->pins < WEIR_TRIM_PINS;
    memmove(&r->pin[at + 1], &r->pin[at], (r->pins - at - 1) * sizeof r->pin[0]);
    r->pin[at] = (weir_pin){.block = p->block,
                            .charged = p->charged,
                            .pinned = t->pinned,
                            .client = p->client,
                            .memory_class = p->memory_class,
                            .stream = p->stream};
    memcpy(r->pin[at].client_name, p->client_name,
           strlen(p->client_name) + 1); /* a tag has at most 63 bytes, a name 47 */
    memcpy(r->pin[at].tag, p->tag, strlen(p->tag) + 1);
}

static void trim_add_pinned(tally *t, const weir_span *live, uint64_t unused)
{
    t->report->pinned += unused;
    if (unused == 0)
        return;
    if (!t->pin || t->pin->block.pointer != live->block.pointer) {
        trim_end_pin(t);
        t->pin = live;
        t->pinned = 0;
    }
    t->pinned += unused;
}

static void trim_add_segment(tally *t, const weir_span *spans, uint32_t count)
{
    weir_trim_report *r = t->report;
    const weir_span *live = NULL;
    uint64_t bytes[WEIR_SPAN_COUNT] = {0};
    for (uint32_t i = 0; i < count; i++) {
        bytes[spans[i].state] += spans[i].bytes;
        if (spans[i].state == WEIR_SPAN_LIVE && (!live || spans[i].bytes > live->bytes))
            live = &spans[i];
    }
    uint64_t passing = bytes[WEIR_SPAN_ORDERED] + bytes[WEIR_SPAN_THREAD_CACHED] + bytes[WEIR_SPAN_PROMISED];
    uint64_t unused = bytes[WEIR_SPAN_FREE] + bytes[WEIR_SPAN_KEPT] + passing;
    if (live)
        trim_add_pinned(t, live, unused);
    else
        *(passing + bytes[WEIR_SPAN_PENDING] > 0 ? &r->unpassed : &r->idle) += unused;
    r->spare += bytes[WEIR_SPAN_SPARE];
    r->busy += bytes[WEIR_SPAN_BUSY];
    r->pending += bytes[WEIR_SPAN_PENDING];
}

static weir_status trim_report(weir_runtime *runtime, uint64_t released, weir_trim_report *out)
{
    wi_base *base = runtime->resource->base;
    wi_layout layout = {0};
    weir_trim_report r = {.struct_size = sizeof r, .released = released};
    tally t = {.report = &r};
    wi_base_lock(base);
    wi_layout_add(&layout, base);
    wi_base_unlock(base);
    wi_resource *pages = atomic_load(&runtime->elastic);
    if (pages) {
        wi_base_lock(pages->base);
        wi_layout_add(&layout, pages->base);
        wi_base_unlock(pages->base);
    }
    weir_status status =
        layout.failed ? weir_fail(WEIR_ERR_SYSTEM, "no host memory to report on what a trim of %s left; it is trimmed",
                                  runtime->name)
                      : WEIR_OK;
    const weir_span *span = layout.spans;
    for (size_t i = 0; i < layout.segment_count && status == WEIR_OK; span += layout.segments[i++].spans)
        trim_add_segment(&t, span, layout.segments[i].spans);
    trim_end_pin(&t);
    r.left = r.pinned + r.unpassed + r.idle + r.spare + r.busy;
    if (status == WEIR_OK)
        wi_copy_out(out, out->struct_size, &r, sizeof r);
    wi_layout_clear(&layout);
    return status;
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

/* Makes free what the device is past: flushes thread caches, reaps deferred frees, and releases what adaptors keep. */
static void trim_flush(weir_runtime *runtime)
{
    (void)wi_members_bound(&runtime->ledger);
    (void)wi_tcaches_empty(runtime);
    (void)wi_runtime_reap(runtime);
    (void)wi_release_kept(runtime->resource);
    if (atomic_load(&runtime->elastic))
        (void)wi_release_kept(atomic_load(&runtime->elastic));
}

static uint64_t runtime_trim(weir_runtime *runtime, uint64_t keep)
{
    wi_base *base = runtime->resource->base;
    trim_flush(runtime);
    return base->table->trim(base, keep);
}

uint64_t wi_runtime_trim_idle(weir_runtime *runtime)
{
    wi_base *base = runtime->resource->base;
    trim_flush(runtime);
    return base->table->trim_idle ? base->table->trim_idle(base, false) : base->table->trim(base, WEIR_IDLE_KEPT);
}

/* Whether the caller's structure is long enough for members that need a walk over the layout. */
static bool trim_wants_layout(const weir_trim_report *out)
{
    return out->struct_size > offsetof(weir_trim_report, left);
}

weir_status weir_runtime_trim(weir_runtime *runtime, const weir_trim_options *options, weir_trim_report *out)
{
    WI_ENTER();
    weir_trim_options o = {0};
    if (!runtime || (out && out->struct_size < 2 * sizeof(size_t)))
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_trim: %s",
                         runtime ? "the member struct_size of the report is not set" : "no runtime");
    weir_status status = WI_COPY_OPTIONS_IN(weir_trim_options, &o, options, "weir_runtime_trim");
    if (status != WEIR_OK)
        return status;
    WI_VISIT(runtime);
    uint64_t released = o.idle_only ? wi_runtime_trim_idle(runtime) : runtime_trim(runtime, o.keep);
    if (out && trim_wants_layout(out))
        return trim_report(runtime, released, out);
    if (out)
        out->released = released;
    return WEIR_OK;
}

/* Draining --------------------------------------------------------------------------------------------------------- */

/* Flushes this thread's caches, then those of all others, then the blocks that threads had in hand. Other threads may
 * go on caching, so that the number of passes is bounded. */
static void trim_flush_caches(weir_runtime *runtime)
{
    enum { MOST = 8 };
    const wi_tcache_hooks *hooks = &runtime->ledger.tcache_hooks;
    for (int i = 0; i < MOST && hooks->flush && hooks->flush(hooks->user) > 0; i++)
        ;
}

weir_status weir_runtime_drain(weir_runtime *runtime, uint64_t *left)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_runtime_drain: NULL");
    WI_VISIT(runtime);
    wi_ledger *ledger = &runtime->ledger;
    uint64_t ordered;
    trim_flush_caches(runtime);
    (void)wi_members_pass(ledger, &ordered); /* records events, which the second pass looks at */
    (void)wi_runtime_reap(runtime);
    wi_pending_finish(&runtime->pending);
    wi_members_finish(ledger, &runtime->pending);
    (void)wi_release_kept(runtime->resource);
    (void)wi_members_pass(ledger, &ordered);
    wi_standing now = wi_ledger_look(ledger);
    if (left)
        *left = now.pending - now.kept + ordered;
    return WEIR_OK;
}

/* Pressure callbacks ----------------------------------------------------------------------------------------------- */

/* weir/pressure.h: callbacks belong to the ledger that they can make room in. */

weir_status weir_pressure_register_with(weir_runtime *runtime, const weir_pressure_options *options, uint64_t *id)
{
    WI_ENTER();
    weir_pressure_options o = {0};
    if (!runtime || !id)
        return weir_fail(WEIR_ERR_INVALID, "weir_pressure_register_with: no runtime, or no place for the result");
    weir_status status = WI_COPY_IN(weir_pressure_options, &o, options, "weir_pressure_register_with");
    if (status == WEIR_OK && !o.fn)
        status = weir_fail(WEIR_ERR_INVALID, "weir_pressure_register_with: the member fn is NULL");
    if (status != WEIR_OK)
        return status;
    WI_VISIT(runtime);
    return wi_pressures_add(&runtime->ledger.pressures, &o, id);
}

weir_status weir_pressure_register(weir_runtime *runtime, int priority, weir_pressure_fn fn, void *user, uint64_t *id)
{
    WI_ENTER();
    if (!runtime || !fn || !id)
        return weir_fail(WEIR_ERR_INVALID, "weir_pressure_register: NULL");
    weir_pressure_options options = {.struct_size = sizeof options, .priority = priority, .fn = fn, .user = user};
    WI_VISIT(runtime);
    return wi_pressures_add(&runtime->ledger.pressures, &options, id);
}

weir_status weir_pressure_unregister(weir_runtime *runtime, uint64_t id)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_pressure_unregister: NULL");
    WI_VISIT(runtime);
    return wi_pressures_remove(&runtime->ledger.pressures, id, false);
}
