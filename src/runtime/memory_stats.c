/* Statistics in PyTorch's names: the ledger's gauges, and those of the resource that cuts segments. */
#include "memory/space/chunks.h"
#include "memory/ledger/gauges.h"
#include "runtime/runtime.h"

/* Calls fn for those of the resource; they are under its lock. */
static void each_split(weir_runtime *runtime, void (*fn)(weir_gauge *gauge))
{
    wi_resource *base = runtime->resource->base;
    if (!base->idle)
        return;
    wi_resource_lock(base);
    fn(&base->idle->split);
    fn(&base->idle->split_segments);
    wi_resource_unlock(base);
}

weir_status weir_memory_stats_info(weir_runtime *runtime, weir_memory_stats *out)
{
    WI_ENTER();
    if (!runtime || !out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_memory_stats_info: NULL, or member struct_size is not set");
    weir_memory_stats stats = {.struct_size = sizeof stats};
    wi_resource *base = runtime->resource->base;
    (void)wi_runtime_reap(runtime);
    wi_resource_lock(base); /* one moment for both */
    wi_ledger_gauges(&runtime->ledger, &stats);
    if (base->idle) {
        stats.inactive_split_bytes = base->idle->split;
        stats.inactive_split = base->idle->split_segments;
    }
    wi_resource_unlock(base);
    wi_copy_out(out, out->struct_size, &stats, sizeof stats);
    return WEIR_OK;
}

weir_status weir_reset_peaks(weir_runtime *runtime)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_reset_peaks: NULL");
    wi_ledger_reset_peaks(&runtime->ledger);
    each_split(runtime, wi_gauge_forget_peak);
    return WEIR_OK;
}

weir_status weir_reset_accumulated(weir_runtime *runtime)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_reset_accumulated: NULL");
    wi_ledger_reset_accumulated(&runtime->ledger);
    each_split(runtime, wi_gauge_forget_past);
    return WEIR_OK;
}
