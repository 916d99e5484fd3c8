/* Memory that goes back to the driver, and the report on what stays. */
#include "memory/space/layout.h"
#include "runtime/thread_cache/thread_cache.h"
#include "runtime/runtime.h"

/* The report ------------------------------------------------------------------------------------------------------- */

/* A block's segments follow each other, so that what it pins is known when another one's turn comes. */
typedef struct tally {
    weir_trim_report *report;
    const weir_span *pin; /* of the block at hand */
    uint64_t pinned;
} tally;

static void end_pin(tally *t)
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
    memcpy(r->pin[at].client_name, p->client_name, strlen(p->client_name) + 1); /* at most 63, and 47 */
    memcpy(r->pin[at].tag, p->tag, strlen(p->tag) + 1);
}

static void add_pinned(tally *t, const weir_span *live, uint64_t unused)
{
    t->report->pinned += unused;
    if (unused == 0)
        return;
    if (!t->pin || t->pin->block.pointer != live->block.pointer) {
        end_pin(t);
        t->pin = live;
        t->pinned = 0;
    }
    t->pinned += unused;
}

static void add_segment(tally *t, const weir_span *spans, uint32_t count)
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
        add_pinned(t, live, unused);
    else
        *(passing + bytes[WEIR_SPAN_PENDING] > 0 ? &r->unpassed : &r->idle) += unused;
    r->spare += bytes[WEIR_SPAN_SPARE];
    r->busy += bytes[WEIR_SPAN_BUSY];
    r->pending += bytes[WEIR_SPAN_PENDING];
}

static weir_status trim_report(weir_runtime *runtime, uint64_t released, weir_trim_report *out)
{
    wi_resource *base = runtime->resource->base;
    wi_layout layout = {0};
    weir_trim_report r = {.struct_size = sizeof r, .released = released};
    tally t = {.report = &r};
    wi_resource_lock(base);
    wi_layout_add(&layout, base);
    wi_resource_unlock(base);
    weir_status status =
        layout.failed ? weir_fail(WEIR_ERR_SYSTEM, "no host memory to report on what a trim of %s left; it is trimmed",
                                  runtime->name)
                      : WEIR_OK;
    const weir_span *span = layout.spans;
    for (size_t i = 0; i < layout.segment_count && status == WEIR_OK; span += layout.segments[i++].spans)
        add_segment(&t, span, layout.segments[i].spans);
    end_pin(&t);
    r.left = r.pinned + r.unpassed + r.idle + r.spare + r.busy;
    if (status == WEIR_OK)
        wi_copy_out(out, out->struct_size, &r, sizeof r);
    wi_layout_clear(&layout);
    return status;
}

/* Giving back ------------------------------------------------------------------------------------------------------ */

/* Everything that is nobody's by now is known to be so, whatever threads go on to free and park. */
static void trim_settle(weir_runtime *runtime)
{
    (void)wi_members_bound(&runtime->ledger);
    (void)wi_tcaches_empty(runtime);
    (void)wi_runtime_reap(runtime);
    (void)wi_release_kept(runtime->resource);
}

static uint64_t trim(weir_runtime *runtime, uint64_t keep)
{
    wi_resource *base = runtime->resource->base;
    trim_settle(runtime);
    return base->table->trim(base, keep);
}

uint64_t wi_runtime_trim_idle(weir_runtime *runtime)
{
    wi_resource *base = runtime->resource->base;
    trim_settle(runtime);
    return base->table->trim_idle ? base->table->trim_idle(base, false) : base->table->trim(base, WEIR_IDLE_KEPT);
}

/* Whether the caller's structure has any member of the layout's, for which it has to be walked. */
static bool wants_layout(const weir_trim_report *out)
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
    uint64_t released = o.idle_only ? wi_runtime_trim_idle(runtime) : trim(runtime, o.keep);
    if (out && wants_layout(out))
        return trim_report(runtime, released, out);
    if (out)
        out->released = released;
    return WEIR_OK;
}
