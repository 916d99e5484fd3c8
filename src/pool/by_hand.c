/* What a program does to models of a pool by hand: load, suspend, unload, remove, pin. */
#include "pool/pool.h"
#include "base/system.h"

#include <weir/pool.h>

#include <stdio.h>

/* Begins a call on a model of that name: the lock is held, and the caller a user of the entry. */
static weir_status by_hand_begin(weir_pool *pool, const char *name, const char *call, wi_pool_entry **out)
{
    weir_status status = name ? wi_pool_enter(pool, call) : weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    if (status != WEIR_OK)
        return status;
    *out = wi_pool_find(pool, name);
    if (*out) {
        (*out)->users++;
        return WEIR_OK;
    }
    status = wi_pool_none(pool, name);
    wi_pool_leave(pool);
    return status;
}

static weir_status by_hand_end(wi_pool_entry *entry, weir_status status)
{
    weir_pool *pool = entry->pool;
    wi_pool_drop(entry);
    wi_pool_leave(pool);
    return status;
}

static bool by_hand_want(wi_pool_entry *entry, wp_state state, wp_answer *why)
{
    wp_event event = {.kind = WP_EVENT_WANT, .model = entry->id, .state = state};
    wi_pool_decide(entry->pool, &event);
    *why = event.answer;
    return event.ok;
}

/* Waits for a change. False: the time is over, or the pool ends. */
static bool wait_change(weir_pool *pool, uint64_t until)
{
    if (pool->ending || !wi_pool_wait(pool, &pool->changed, until))
        return false;
    wi_pool_tick(pool);
    return !pool->ending;
}

static weir_status too_long(const wi_pool_entry *entry, const char *what)
{
    if (entry->pool->ending)
        return weir_fail(WEIR_ERR_CANCELLED, "%s was not %s: the pool is being ended", entry->name, what);
    wp_view now = wi_pool_see(entry);
    return weir_fail(WEIR_ERR_BUSY, "%s was not %s in time: it is %s, with %u requests running and %u waiting",
                     entry->name, what, wp_state_name(now.state), now.running, now.waiting);
}

/* Loading ---------------------------------------------------------------------------------------------------------- */

static weir_status no_room(const wi_pool_entry *entry, const wp_answer *why)
{
    char need[24], limit[24];
    return weir_fail(
        WEIR_ERR_OUT_OF_MEMORY,
        "there is no room to load %s: it takes %s (%llu bytes) of %s that the pool may have there, and what is "
        "in the way is in use, pinned or too large (%s)",
        entry->name, weir_size_format(why->need, need, sizeof need), (unsigned long long)why->need,
        weir_size_format(why->limit, limit, sizeof limit), wp_cause_name(why->cause));
}

static weir_status by_hand_failed(const wi_pool_entry *entry)
{
    return weir_fail(entry->failed != WEIR_OK ? entry->failed : WEIR_ERR_ENGINE, "%s could not be loaded: %s",
                     entry->name, entry->why);
}

weir_status wi_pool_load_entry(wi_pool_entry *entry, uint64_t until)
{
    uint64_t failures = entry->failures;
    wp_answer why;
    for (;;) {
        wp_state state = wi_pool_see(entry).state;
        if (entry->retired)
            return weir_fail(WEIR_ERR_CANCELLED, "%s was removed before it was loaded", entry->name);
        if (state == WP_LOADED)
            return WEIR_OK;
        if (entry->failures > failures)
            return by_hand_failed(entry);
        bool moves = state == WP_LOADING || state == WP_RESUMING || state == WP_SUSPENDING || state == WP_UNLOADING;
        if (!moves && !by_hand_want(entry, WP_LOADED, &why)) {
            if (why.cause == WP_LOAD_FAILED)
                return by_hand_failed(entry);
            if (why.cause == WP_NEVER_FITS || why.cause == WP_WAITS_ROOM)
                return no_room(entry, &why);
        }
        if (wi_pool_see(entry).state != WP_LOADED && !wait_change(entry->pool, until))
            return too_long(entry, "loaded");
    }
}

weir_status weir_pool_load(weir_pool *pool, const char *name, uint64_t wait)
{
    wi_pool_entry *entry;
    WI_ENTER();
    for (uint32_t i = 0; pool && i < pool->device_count; i++)
        wi_pool_look(pool, i, true);
    weir_status status = by_hand_begin(pool, name, "weir_pool_load", &entry);
    return status == WEIR_OK ? by_hand_end(entry, wi_pool_load_entry(entry, wi_pool_until(pool, wait))) : status;
}

/* Suspending ------------------------------------------------------------------------------------------------------- */

static weir_status by_hand_suspend(wi_pool_entry *entry, uint64_t until)
{
    uint64_t failures = entry->failures;
    wp_answer why;
    if (!entry->spec.can_suspend)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s cannot be suspended: its engine, its spec or the pool says so",
                         entry->name);
    for (;;) {
        wp_state state = wi_pool_see(entry).state;
        if (state == WP_SUSPENDED || state == WP_UNLOADED || state == WP_FAILED || entry->gone)
            return WEIR_OK;
        if (entry->failures > failures)
            return weir_fail(entry->failed, "%s could not be suspended: %s", entry->name, entry->why);
        if (state == WP_LOADED)
            (void)by_hand_want(entry, WP_SUSPENDED, &why); /* in use: again when that has changed */
        if (!wait_change(entry->pool, until))
            return too_long(entry, "suspended");
    }
}

weir_status weir_pool_suspend(weir_pool *pool, const char *name, uint64_t wait)
{
    wi_pool_entry *entry;
    WI_ENTER();
    weir_status status = by_hand_begin(pool, name, "weir_pool_suspend", &entry);
    return status == WEIR_OK ? by_hand_end(entry, by_hand_suspend(entry, wi_pool_until(pool, wait))) : status;
}

/* Unloading -------------------------------------------------------------------------------------------------------- */

/* Of one that is retired. */
static weir_status wait_gone(wi_pool_entry *entry, uint64_t until, weir_pool_receipt *receipt)
{
    uint64_t unloads = entry->here ? 0 : entry->unloads;
    while (!entry->gone)
        if (!wait_change(entry->pool, until) && !entry->gone)
            return too_long(entry, "unloaded");
    weir_pool_receipt none = {.struct_size = sizeof none, .complete = true};
    const weir_pool_receipt *its = entry->unloads > unloads ? &entry->receipt : &none;
    if (receipt && !wi_copy_out(receipt, receipt->struct_size, its, sizeof *its))
        return weir_fail(WEIR_ERR_INVALID, "member struct_size of the receipt is not set");
    return WEIR_OK;
}

weir_status weir_pool_remove(weir_pool *pool, const char *name, uint64_t wait, weir_pool_receipt *receipt)
{
    wi_pool_entry *entry;
    WI_ENTER();
    weir_status status = by_hand_begin(pool, name, "weir_pool_remove", &entry);
    if (status != WEIR_OK)
        return status;
    wi_pool_retire(entry, NULL);
    return by_hand_end(entry, wait_gone(entry, wait ? wi_pool_until(pool, wait) : 0, receipt));
}

weir_status weir_pool_unload(weir_pool *pool, const char *name, uint64_t wait, weir_pool_receipt *receipt)
{
    wi_pool_entry *entry;
    weir_pool_receipt none = {.struct_size = sizeof none, .complete = true};
    WI_ENTER();
    weir_status status = by_hand_begin(pool, name, "weir_pool_unload", &entry);
    if (status != WEIR_OK)
        return status;
    wp_state state = wi_pool_see(entry).state;
    if (state == WP_UNLOADED || state == WP_FAILED) {
        if (receipt)
            (void)wi_copy_out(receipt, receipt->struct_size, &none, sizeof none);
        return by_hand_end(entry, WEIR_OK);
    }
    if (!wi_pool_renew(entry))
        return by_hand_end(entry, weir_fail(WEIR_ERR_SYSTEM, "no host memory to unload %s", entry->name));
    return by_hand_end(entry, wait_gone(entry, wi_pool_until(pool, wait), receipt));
}

/* Pinning, keeping ------------------------------------------------------------------------------------------------- */

static void by_hand_change(weir_pool *pool, wi_pool_entry *entry)
{
    wp_event event = {.kind = WP_EVENT_CHANGE, .model = entry->id, .spec = entry->spec};
    wi_pool_decide(pool, &event);
}

weir_status weir_pool_pin(weir_pool *pool, const char *name, bool pinned)
{
    wi_pool_entry *entry;
    WI_ENTER();
    weir_status status = by_hand_begin(pool, name, "weir_pool_pin", &entry);
    if (status != WEIR_OK)
        return status;
    entry->spec.pinned = pinned;
    by_hand_change(pool, entry);
    return by_hand_end(entry, WEIR_OK);
}

weir_status weir_pool_keep(weir_pool *pool, const char *name, uint64_t keep_alive)
{
    wi_pool_entry *entry;
    WI_ENTER();
    weir_status status = by_hand_begin(pool, name, "weir_pool_keep", &entry);
    if (status != WEIR_OK)
        return status;
    entry->spec.keep_alive = keep_alive; /* WEIR_POOL_NONE is WP_FOREVER */
    by_hand_change(pool, entry);
    return by_hand_end(entry, WEIR_OK);
}
