/* weir/guard.h: finds the guard in a runtime's stack, and asks it. */
#include "memory/adaptors/guard.h"
#include <weir/guard.h>
#include "runtime/runtime.h"

static weir_status find_guard(weir_runtime *runtime, const char *call, wi_guard **out)
{
    WI_ENTER();
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    *out = wi_guard_in(runtime->resource);
    if (*out)
        return WEIR_OK;
    char stack[200];
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "%s has no guard in its stack %s; WEIR_POISON=1 or WEIR_RESOURCE=guard(mapped) adds it",
                     runtime->name, weir_runtime_resource(runtime, stack, sizeof stack));
}

/* An array whose first element says how long each is. */
static weir_status check_array(const char *call, const size_t *first, size_t capacity)
{
    if (capacity == 0 || (first && *first >= 2 * sizeof(size_t)))
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "%s: NULL, or member struct_size is not set", call);
}

weir_status weir_guard_reports(weir_runtime *runtime, weir_guard_report *reports, size_t capacity, size_t *count)
{
    wi_guard *guard;
    weir_status status = find_guard(runtime, "weir_guard_reports", &guard);
    if (status == WEIR_OK)
        status = check_array("weir_guard_reports", (const size_t *)reports, capacity);
    if (status == WEIR_OK) {
        (void)wi_runtime_reap(runtime); /* what the device is past has been looked at then */
        wi_guard_reports(guard, reports, capacity, count);
    }
    return status;
}

weir_status weir_guard_check(weir_runtime *runtime)
{
    wi_guard *guard;
    weir_status status = find_guard(runtime, "weir_guard_check", &guard);
    return status == WEIR_OK ? wi_guard_check(guard) : status;
}

weir_status weir_guard_leaks(weir_runtime *runtime, weir_guard_leak *leaks, size_t capacity, size_t *count)
{
    wi_guard *guard;
    weir_status status = find_guard(runtime, "weir_guard_leaks", &guard);
    if (status == WEIR_OK)
        status = check_array("weir_guard_leaks", (const size_t *)leaks, capacity);
    return status == WEIR_OK ? wi_guard_leaks(guard, leaks, capacity, count) : status;
}

weir_status weir_guard_leak_sums(weir_runtime *runtime, weir_guard_leak_sum *sums, size_t capacity, size_t *count)
{
    wi_guard *guard;
    weir_status status = find_guard(runtime, "weir_guard_leak_sums", &guard);
    if (status == WEIR_OK)
        status = check_array("weir_guard_leak_sums", (const size_t *)sums, capacity);
    return status == WEIR_OK ? wi_guard_leak_sums(guard, sums, capacity, count) : status;
}
