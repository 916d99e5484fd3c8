/* weir/statistics.h: finds the meter in a runtime's stack, and asks it. */
#include "memory/meter.h"
#include "runtime/runtime.h"

#include <stdio.h>

static weir_status find_meter(weir_runtime *runtime, const char *call, wi_meter **out)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    *out = wi_meter_in(runtime->resource);
    if (*out)
        return WEIR_OK;
    char stack[200];
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "%s counts nothing in its stack %s; WEIR_RESOURCE=stats(mapped) makes it count", runtime->name,
                     weir_runtime_resource(runtime, stack, sizeof stack));
}

weir_status weir_statistics_read(weir_runtime *runtime, const weir_client *client, weir_class memory_class,
                                 weir_statistics *out)
{
    wi_meter *meter;
    weir_status status = find_meter(runtime, "weir_statistics_read", &meter);
    if (status == WEIR_OK && client)
        status = wi_client_check_giving(client, "weir_statistics_read");
    if (status != WEIR_OK)
        return status;
    if (!out || out->struct_size < 2 * sizeof(size_t) || (unsigned)memory_class > WEIR_CLASS_COUNT)
        return weir_fail(WEIR_ERR_INVALID, "weir_statistics_read: NULL, no class, or member struct_size is not set");
    if (client && client->runtime != runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_statistics_read: %s is a client of another runtime",
                         client->account.name);
    weir_statistics found;
    if (!wi_meter_read(meter, client ? &client->account : NULL, memory_class, &found) && client)
        return weir_fail(WEIR_ERR_NOT_FOUND, "%s has no figures of its own in %s", client->account.name, runtime->name);
    wi_copy_out(out, out->struct_size, &found, sizeof found);
    return WEIR_OK;
}

weir_status weir_statistics_push(weir_runtime *runtime)
{
    wi_meter *meter;
    weir_status status = find_meter(runtime, "weir_statistics_push", &meter);
    return status == WEIR_OK ? wi_meter_push(meter) : status;
}

weir_status weir_statistics_pop(weir_runtime *runtime, weir_statistics_frame *out)
{
    wi_meter *meter;
    weir_statistics_frame frame;
    weir_status status = find_meter(runtime, "weir_statistics_pop", &meter);
    if (status == WEIR_OK && out && out->struct_size < 2 * sizeof(size_t))
        status = weir_fail(WEIR_ERR_INVALID, "weir_statistics_pop: member struct_size is not set");
    if (status == WEIR_OK)
        status = wi_meter_pop(meter, &frame);
    if (status == WEIR_OK && out)
        wi_copy_out(out, out->struct_size, &frame, sizeof frame);
    return status;
}

/* The text form ---------------------------------------------------------------------------------------------------- */

static const char *time_text(uint64_t nanoseconds, char *text, size_t capacity)
{
    if (nanoseconds < 1000)
        snprintf(text, capacity, "%u ns", (unsigned)nanoseconds);
    else if (nanoseconds < 1000000)
        snprintf(text, capacity, "%.1f µs", (double)nanoseconds / 1e3);
    else
        snprintf(text, capacity, "%.1f ms", (double)nanoseconds / 1e6);
    return text;
}

weir_status weir_statistics_format(weir_runtime *runtime, char *text, size_t capacity)
{
    wi_meter *meter;
    weir_status status = find_meter(runtime, "weir_statistics_format", &meter);
    if (status == WEIR_OK && (!text || capacity == 0))
        status = weir_fail(WEIR_ERR_INVALID, "weir_statistics_format: no place for the text");
    if (status != WEIR_OK)
        return status;
    char stack[200], live[24], peak[24], p50[24], p99[24];
    weir_stats ledger = {.struct_size = sizeof ledger};
    weir_statistics s;
    size_t ignored;
    wi_ledger_snapshot(&runtime->ledger, &ledger, NULL, 0, 0, &ignored);
    (void)wi_meter_read(meter, NULL, WEIR_CLASS_COUNT, &s);
    uint64_t served = s.hits + s.misses;
    snprintf(text, capacity, "%s %s: %llu live %s, peak %s, %llu allocations, %.1f %% hits, p50 %s, p99 %s",
             runtime->name, weir_runtime_resource(runtime, stack, sizeof stack),
             (unsigned long long)(s.allocations - s.frees), weir_size_format(ledger.live, live, sizeof live),
             weir_size_format(ledger.peak, peak, sizeof peak), (unsigned long long)s.allocations,
             served ? 100.0 * (double)s.hits / (double)served : 0, time_text(s.allocate.p50, p50, sizeof p50),
             time_text(s.allocate.p99, p99, sizeof p99));
    return WEIR_OK;
}
