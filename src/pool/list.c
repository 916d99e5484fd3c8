/* Lists the models of a pool and their state, for callers. */
#include "pool/pool.h"
#include "base/system.h"

#include <weir/pool.h>

#include <stdio.h>

const char *weir_pool_state_name(weir_pool_state state)
{
    return wp_state_name((wp_state)state);
}

const char *weir_pool_cause_name(weir_pool_cause cause)
{
    return wp_cause_name((wp_cause)cause);
}

const char *weir_pool_step_name(weir_pool_step step)
{
    return wp_step_name((wp_step)step);
}

/* Time from now until it leaves by itself. */
static uint64_t expires(const wi_pool_entry *entry, const wp_view *view)
{
    const wp_spec *spec = &entry->spec;
    bool idle = view->running == 0 && view->waiting == 0 && !spec->pinned;
    uint64_t after = view->state == WP_LOADED ? wi_min(spec->keep_alive, spec->suspend_after) : spec->keep_alive;
    if (!idle || (view->state != WP_LOADED && view->state != WP_SUSPENDED) || after == WP_FOREVER)
        return WEIR_POOL_NONE;
    uint64_t now = wi_now(), at = wi_max(view->used, view->loads || view->resumes ? view->since : 0);
    return __builtin_add_overflow(at, after, &at) ? WEIR_POOL_NONE : at - wi_min(at, now);
}

static void list_describe(const wi_pool_entry *entry, weir_pool_entry *out)
{
    wp_view view = wi_pool_see(entry);
    *out = (weir_pool_entry){.state = (weir_pool_state)view.state,
                             .current = entry->current,
                             .pinned = entry->spec.pinned,
                             .can_suspend = entry->spec.can_suspend,
                             .variant = entry->variant,
                             .predicted_peak = entry->predicted_peak,
                             .measured_peak = entry->measured_peak,
                             .taken = view.taken + view.promised,
                             .promised = view.promised,
                             .running = view.running,
                             .waiting = view.waiting,
                             .expires = expires(entry, &view),
                             .load_time = view.load_time,
                             .resume_time = view.resume_time,
                             .loads = entry->past.loads + view.loads,
                             .resumes = entry->past.resumes + view.resumes,
                             .suspends = entry->past.suspends + view.suspends,
                             .evictions = entry->past.evictions + view.evictions,
                             .failures = entry->past.failures + view.failures};
    if (view.state == WP_LOADING)
        out->progress = (double)atomic_load(&entry->progress) / WI_POOL_PROGRESS;
    memcpy(out->name, entry->name, sizeof out->name);
    memcpy(out->version, entry->version, sizeof out->version);
    snprintf(out->device, sizeof out->device, "%s", entry->pool->devices[entry->device].name);
    if (view.state == WP_FAILED || entry->unhealthy)
        wi_shorten(entry->why, out->why, sizeof out->why);
    memcpy(out->predicted, entry->predicted, sizeof out->predicted);
    memcpy(out->measured, entry->measured, sizeof out->measured);
}

weir_status weir_pool_list(weir_pool *pool, weir_pool_entry *entries, size_t capacity, size_t *count)
{
    size_t stride = entries && capacity > 0 ? entries[0].struct_size : sizeof *entries, found = 0;
    if ((!entries && capacity > 0) || stride < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_pool_list: NULL, or member struct_size of the first is not set");
    weir_status status = wi_pool_enter(pool, "weir_pool_list");
    if (status != WEIR_OK)
        return status;
    for (const wi_pool_entry *entry = pool->entries; entry; entry = entry->next, found++) {
        weir_pool_entry now;
        if (found >= capacity)
            continue;
        char *to = (char *)entries + found * stride;
        list_describe(entry, &now);
        memcpy(to, &stride, sizeof stride);
        (void)wi_copy_out(to, stride, &now, sizeof now);
    }
    wi_pool_leave(pool);
    if (count)
        *count = found;
    return WEIR_OK;
}

weir_status weir_pool_usage_info(weir_pool *pool, size_t index, weir_pool_usage *out)
{
    WI_ENTER();
    if (!pool || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_pool_usage_info: NULL");
    if (index >= pool->device_count)
        return weir_fail(WEIR_ERR_NOT_FOUND, "the pool has %u devices", pool->device_count);
    wi_pool_look(pool, (uint32_t)index, true);
    weir_status status = wi_pool_enter(pool, "weir_pool_usage_info");
    if (status != WEIR_OK)
        return status;
    weir_pool_usage now = {.ceiling = wp_bound(pool->admission, (uint32_t)index),
                           .taken = wp_taken(pool->admission, (uint32_t)index),
                           .waiting = pool->waiting};
    memcpy(now.device, pool->devices[index].name, sizeof now.device);
    wi_pool_leave(pool);
    return wi_copy_out(out, out->struct_size, &now, sizeof now)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_pool_usage_info: member struct_size is not set");
}
