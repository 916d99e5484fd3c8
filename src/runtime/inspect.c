/* Inspection: where memory lies, statistics under PyTorch's names, what the guard found. */
#include "memory/adaptors/adaptors.h"
#include <weir/guard.h>
#include "memory/ledger/ledger.h"
#include "memory/space/chunks.h"
#include "memory/space/stream_lists.h"
#include "runtime/runtime.h"

/* Copies the layout of all bases, and reads the ledger under the same locks, so that they agree. */
static void inspect_copy(weir_runtime *runtime, wi_layout *layout, uint64_t *held)
{
    wi_members_lock(&runtime->ledger);
    for (wi_member *h = runtime->ledger.first_member; h; h = h->next)
        wi_layout_add(layout, h->base);
    *held = wi_ledger_look(&runtime->ledger).held;
    wi_members_unlock(&runtime->ledger);
}

static weir_layout_totals inspect_add_up(const wi_layout *layout, uint64_t held)
{
    weir_layout_totals t = {
        .struct_size = sizeof t, .held = held, .segments = layout->segment_count, .spans = layout->span_count};
    uint64_t sum = 0;
    for (size_t i = 0; i < layout->span_count; i++) {
        t.bytes[layout->spans[i].state] += layout->spans[i].bytes;
        sum += layout->spans[i].bytes;
    }
    wi_assert(sum <= held);
    t.in_hand = held - sum;
    return t;
}

static weir_status inspect_look(weir_runtime *runtime, wi_layout *layout, weir_layout_totals *out)
{
    uint64_t held;
    inspect_copy(runtime, layout, &held);
    if (layout->failed)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a copy of where %s's memory lies", runtime->name);
    *out = inspect_add_up(layout, held);
    return WEIR_OK;
}

weir_status wi_runtime_look_layout(weir_runtime *runtime, weir_layout_totals *out)
{
    wi_layout layout = {0};
    weir_status status = inspect_look(runtime, &layout, out);
    wi_layout_clear(&layout);
    return status;
}

static void inspect_tell(const wi_layout *layout, weir_layout_fn fn, void *user)
{
    const weir_span *span = layout->spans;
    for (size_t i = 0; i < layout->segment_count; i++)
        for (uint32_t k = 0; k < layout->segments[i].spans; k++)
            fn(&layout->segments[i], span++, user);
}

weir_status weir_layout_walk(weir_runtime *runtime, weir_layout_fn fn, void *user, weir_layout_totals *out)
{
    WI_ENTER();
    if (!runtime || (out && out->struct_size < 2 * sizeof(size_t)))
        return weir_fail(WEIR_ERR_INVALID, "weir_layout_walk: NULL, or member struct_size is not set");
    WI_VISIT(runtime);
    wi_layout layout = {0};
    weir_layout_totals totals;
    (void)wi_runtime_reap(runtime);
    weir_status status = inspect_look(runtime, &layout, &totals);
    if (status == WEIR_OK && out)
        wi_copy_out(out, out->struct_size, &totals, sizeof totals);
    if (status == WEIR_OK && fn)
        inspect_tell(&layout, fn, user);
    wi_layout_clear(&layout);
    return status;
}

/* Statistics ------------------------------------------------------------------------------------------------------- */

/* Statistics under PyTorch's names: the ledger's gauges, and those of a base that splits segments. */

/* Calls fn for the gauges of such a base. Its lock is held. */
static void inspect_each_split(weir_runtime *runtime, void (*fn)(weir_gauge *gauge))
{
    wi_base *base = runtime->resource->base;
    if (!base->idle)
        return;
    wi_base_lock(base);
    fn(&base->idle->split);
    fn(&base->idle->split_segments);
    wi_base_unlock(base);
}

weir_status weir_memory_stats_info(weir_runtime *runtime, weir_memory_stats *out)
{
    WI_ENTER();
    if (!runtime || !out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_memory_stats_info: NULL, or member struct_size is not set");
    WI_VISIT(runtime);
    weir_memory_stats stats = {.struct_size = sizeof stats};
    wi_base *base = runtime->resource->base;
    (void)wi_runtime_reap(runtime);
    wi_base_lock(base); /* reads both at one moment */
    wi_ledger_gauges(&runtime->ledger, &stats);
    if (base->idle) {
        stats.inactive_split_bytes = base->idle->split;
        stats.inactive_split = base->idle->split_segments;
    }
    wi_base_unlock(base);
    wi_copy_out(out, out->struct_size, &stats, sizeof stats);
    return WEIR_OK;
}

weir_status weir_stats_reset(weir_runtime *runtime, uint32_t what)
{
    WI_ENTER();
    if (!runtime || what & ~(uint32_t)(WEIR_RESET_PEAKS | WEIR_RESET_ACCUMULATED))
        return weir_fail(WEIR_ERR_INVALID, "weir_stats_reset: NULL, or %#x is no sum of WEIR_RESET_…", what);
    WI_VISIT(runtime);
    if (what & WEIR_RESET_PEAKS) {
        wi_ledger_reset_peaks(&runtime->ledger);
        inspect_each_split(runtime, wi_gauge_forget_peak);
    }
    if (what & WEIR_RESET_ACCUMULATED) {
        wi_ledger_reset_accumulated(&runtime->ledger);
        inspect_each_split(runtime, wi_gauge_forget_past);
    }
    return WEIR_OK;
}

/* Guards ----------------------------------------------------------------------------------------------------------- */

/* weir/guard.h: finds the guard in a runtime's stack, and asks it. */

static weir_status inspect_find_guard(weir_runtime *runtime, wi_guard **out)
{
    *out = wi_guard_in(runtime->resource);
    if (*out)
        return WEIR_OK;
    char stack[200];
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "%s has no guard in its stack %s; WEIR_POISON=1 or WEIR_RESOURCE=guard(mapped) adds it",
                     runtime->name, wi_runtime_resource(runtime, stack, sizeof stack));
}

/* Checks an array whose first element has its struct_size. */
static weir_status inspect_check_array(const char *call, const size_t *first, size_t capacity)
{
    if (capacity == 0 || (first && *first >= 2 * sizeof(size_t)))
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "%s: NULL, or member struct_size is not set", call);
}

weir_status weir_guard_reports(weir_runtime *runtime, weir_guard_report *reports, size_t capacity, size_t *count)
{
    WI_ENTER();
    wi_guard *guard;
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_guard_reports: NULL");
    WI_VISIT(runtime);
    weir_status status = inspect_find_guard(runtime, &guard);
    if (status == WEIR_OK)
        status = inspect_check_array("weir_guard_reports", (const size_t *)reports, capacity);
    if (status == WEIR_OK) {
        (void)wi_runtime_reap(runtime); /* reaps, so that the guard has checked what the device is past */
        wi_guard_reports(guard, reports, capacity, count);
    }
    return status;
}

weir_status weir_guard_check(weir_runtime *runtime)
{
    WI_ENTER();
    wi_guard *guard;
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_guard_check: NULL");
    WI_VISIT(runtime);
    weir_status status = inspect_find_guard(runtime, &guard);
    return status == WEIR_OK ? wi_guard_check(guard) : status;
}

weir_status weir_guard_leaks(weir_runtime *runtime, weir_guard_leak *leaks, size_t capacity, size_t *count)
{
    WI_ENTER();
    wi_guard *guard;
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_guard_leaks: NULL");
    WI_VISIT(runtime);
    weir_status status = inspect_find_guard(runtime, &guard);
    if (status == WEIR_OK)
        status = inspect_check_array("weir_guard_leaks", (const size_t *)leaks, capacity);
    return status == WEIR_OK ? wi_guard_leaks(guard, leaks, capacity, count) : status;
}

/* One block --------------------------------------------------------------------------------------------------------- */

static void inspect_block(weir_runtime *runtime, wi_resource *stack, const void *pointer, weir_block_details *out)
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
        wi_resource *stack = wi_host_memory_owner(runtime, pointer, &details.kind);
        details.runtime = runtime;
        if (stack) /* else its memory was given back meanwhile */
            inspect_block(runtime, stack, pointer, &details);
        else
            details.state = WEIR_BLOCK_FREE;
    }
    wi_runtimes_unlock();
    if (!runtime)
        return weir_fail(WEIR_ERR_FOREIGN, "%p is no memory of weir's", pointer);
    wi_copy_out(out, out->struct_size, &details, sizeof details);
    return WEIR_OK;
}
