/* The threads of a pool: they carry out what the state machine orders, and one that has nothing to do watches the time. */
#include "pool/pool.h"
#include "base/system.h"

#include <weir/client.h>
#include <weir/pool.h>

#include <stdio.h>

enum { AGAIN_NS = 10000000, WATCH_NS = 10000000 }; /* an unload that found results out; a look while requests wait */

/* Guarantees ------------------------------------------------------------------------------------------------------- */

/* One thread at a time gives the client what is due by then; the others find it done. */
weir_status wi_pool_guarantee(wi_pool_entry *entry)
{
    weir_pool *pool = entry->pool;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&pool->lock);
    while (entry->limiting)
        pthread_cond_wait(&pool->changed, &pool->lock); /* for a call of weir's that waits for nobody */
    uint64_t due = wi_max(entry->resident, entry->source->guaranteed) + entry->promised;
    if (entry->source->maximum) /* leases together may ask for more than it may have */
        due = wi_min(due, wi_max(entry->source->maximum, entry->source->guaranteed));
    if (due != entry->guarantee) {
        entry->limiting = true;
        pthread_mutex_unlock(&pool->lock);
        status = weir_client_set_limits(weir_model_client(entry->model), due, entry->source->maximum);
        pthread_mutex_lock(&pool->lock);
        entry->limiting = false;
        if (status == WEIR_OK)
            entry->guarantee = due;
        pthread_cond_broadcast(&pool->changed);
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

/* Work ------------------------------------------------------------------------------------------------------------- */

/* The detail says why. */
static void work_note_failure(wi_pool_entry *entry)
{
    entry->failures++;
    wi_shorten(weir_detail(), entry->why, sizeof entry->why);
    wi_pool_note(entry->pool, WEIR_POOL_EVENT_FAILED, entry, 0, entry->why);
}

/* What a load has shown is what the next one is predicted to take. With the lock. */
static void work_learn(wi_pool_entry *entry)
{
    wp_event event = {.kind = WP_EVENT_CHANGE, .model = entry->id};
    wp_variant *variant = &entry->spec.variants[entry->variant];
    if (variant->peak == entry->measured_peak && variant->resident == entry->resident)
        return;
    variant->peak = entry->measured_peak;
    variant->resident = entry->resident;
    entry->spec.host = entry->resident;
    event.spec = entry->spec;
    wi_pool_decide(entry->pool, &event);
}

/* Requests that came after the stop cause another load. */
static void end_stopped(wi_pool_entry *entry, wp_event *event)
{
    event->kind = WP_EVENT_STOPPED;
    entry->here = false;
    wi_pool_note(entry->pool, WEIR_POOL_EVENT_STOPPED, entry, entry->order_bytes, NULL);
    wi_pool_decide(entry->pool, event);
}

static void end_load(wi_pool_entry *entry, wp_event *event, const wi_pool_carried *carried)
{
    event->kind = WP_EVENT_LOADED;
    entry->here = event->ok;
    if (event->ok) {
        entry->variant = entry->order_variant;
        entry->model = carried->model;
        entry->guarantee = entry->resident = carried->bytes;
        entry->measured_peak = carried->peak;
        memcpy(entry->measured, carried->classes, sizeof entry->measured);
        entry->why[0] = '\0';
        wi_pool_note(entry->pool, WEIR_POOL_EVENT_LOADED, entry, event->bytes, NULL);
    } else {
        /* The machine hears how much it would have taken, and the entry remembers it as the machine does. */
        uint64_t *peak = &entry->spec.variants[entry->order_variant].peak;
        event->bytes = carried->wanted;
        *peak = wi_max(*peak, carried->wanted);
        work_note_failure(entry);
    }
    wi_pool_decide(entry->pool, event);
    if (event->ok)
        work_learn(entry);
}

static void end_move(wi_pool_entry *entry, wp_event *event, const wi_pool_carried *carried)
{
    bool away = entry->order == WP_SUSPEND;
    event->kind = away ? WP_EVENT_SUSPENDED : WP_EVENT_RESUMED;
    if (event->ok && !away)
        entry->resident = event->bytes;
    if (carried->lost)
        entry->model = NULL;
    if (event->ok)
        wi_pool_note(entry->pool, away ? WEIR_POOL_EVENT_SUSPENDED : WEIR_POOL_EVENT_RESUMED, entry, event->bytes,
                     NULL);
    else
        work_note_failure(entry);
    wi_pool_decide(entry->pool, event);
}

/* What its engine has kept is an account outside of the pool by now, and lessens the ceiling: so nothing of the model's is
 * left for the machine. */
static void end_unload(wi_pool_entry *entry, wp_event *event, const weir_pool_receipt *receipt)
{
    event->kind = WP_EVENT_UNLOADED;
    event->bytes = 0;
    entry->here = false;
    entry->model = NULL;
    entry->receipt = *receipt;
    entry->receipt.drain_ms = entry->drain_ms;
    entry->unloads++;
    entry->resident = entry->guarantee = 0;
    wi_pool_note(entry->pool, WEIR_POOL_EVENT_UNLOADED, entry, receipt->returned, NULL);
    wi_pool_decide(entry->pool, event);
}

static void work_put_back(wi_pool_entry *entry)
{
    entry->ordered = true;
    entry->not_before = wi_now() + AGAIN_NS;
    entry->next_ordered = entry->pool->first_ordered;
    entry->pool->first_ordered = entry;
    pthread_cond_broadcast(&entry->pool->work); /* the thread that watches the time has to see the new time */
}

static const char *const orders[] = {
    [WP_LOAD] = "a load", [WP_SUSPEND] = "a suspend", [WP_RESUME] = "a resume", [WP_UNLOAD] = "the unload"};

/* With the lock, which it lets go of meanwhile. */
static void work_carry_out(wi_pool_entry *entry)
{
    weir_pool *pool = entry->pool;
    wi_pool_carried carried = {0};
    wp_event event = {.model = entry->id};
    weir_status status = WEIR_OK;
    wp_action_kind kind = entry->order;
    entry->under_way = true;
    entry->drain_ms = entry->retired ? (double)(wi_now() - entry->retired_at) / 1e6 : 0;
    if (kind == WP_LOAD)
        wi_pool_note(pool, WEIR_POOL_EVENT_LOADING, entry, entry->order_bytes, NULL);
    pthread_mutex_unlock(&pool->lock);
    wi_pool_tell(pool);
    uint64_t began = wi_now();
    if (kind == WP_LOAD)
        status = wi_pool_carry_load(entry, &carried);
    else if (kind == WP_SUSPEND)
        status = wi_pool_carry_suspend(entry, &carried);
    else if (kind == WP_RESUME)
        status = wi_pool_carry_resume(entry, &carried);
    else
        status = wi_pool_carry_unload(entry, &carried);
    event.took = wi_now() - began - carried.waited;
    if (status != WEIR_OK && status != WEIR_ERR_BUSY && !(status == WEIR_ERR_CANCELLED && atomic_load(&entry->stop)))
        weir_log(WEIR_LOG_WARNING, "pool: %s of %s: %s", orders[kind], entry->name, weir_detail());
    event.ok = status == WEIR_OK;
    event.bytes = carried.bytes;
    if (kind == WP_UNLOAD && status != WEIR_ERR_BUSY)
        wi_pool_look(pool, entry->device, true); /* before the freed bytes go to other models */
    pthread_mutex_lock(&pool->lock);
    entry->under_way = false;
    bool stopped = kind == WP_LOAD && status == WEIR_ERR_CANCELLED && atomic_load(&entry->stop);
    entry->failed = status == WEIR_OK || stopped ? entry->failed : status;
    if (stopped)
        end_stopped(entry, &event);
    else if (kind == WP_LOAD)
        end_load(entry, &event, &carried);
    else if (kind != WP_UNLOAD)
        end_move(entry, &event, &carried);
    else if (status == WEIR_ERR_BUSY)
        work_put_back(entry);
    else
        end_unload(entry, &event, &carried.receipt);
    wi_pool_look_gone(entry);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

static wi_pool_entry *take_order(weir_pool *pool)
{
    uint64_t now = wi_now();
    for (wi_pool_entry **link = &pool->first_ordered; *link; link = &(*link)->next_ordered)
        if ((*link)->not_before <= now) {
            wi_pool_entry *entry = *link;
            *link = entry->next_ordered;
            entry->ordered = false;
            return entry;
        }
    return NULL;
}

uint64_t wi_pool_next_time(const weir_pool *pool)
{
    uint64_t until = wp_wake(pool->admission);
    for (const wi_pool_entry *entry = pool->first_ordered; entry; entry = entry->next_ordered)
        until = wi_min(until, entry->not_before);
    return pool->waiting > 0 ? wi_min(until, wi_now() + WATCH_NS) : until;
}

/* Looks at all devices while requests wait: clients outside of the pool do not report freed memory. */
static void look_around(weir_pool *pool)
{
    if (pool->waiting == 0)
        return;
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->device_count; i++)
        wi_pool_look(pool, i, false);
    pthread_mutex_lock(&pool->lock);
}

static void be_idle(weir_pool *pool)
{
    if (pool->watched) {
        pthread_cond_wait(&pool->work, &pool->lock);
        return;
    }
    pool->watched = true;
    pool->watch_until = wi_pool_next_time(pool);
    bool in_time = wi_pool_wait(pool, &pool->work, pool->watch_until);
    pool->watched = false;
    wi_pool_tick(pool);
    if (!in_time)
        look_around(pool);
    pthread_cond_signal(&pool->work); /* another thread may watch the time if this thread gets work */
}

void *wi_pool_work(void *user)
{
    weir_pool *pool = user;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        wi_pool_entry *entry = take_order(pool);
        if (entry)
            work_carry_out(entry);
        else if (pool->closing && !pool->first_ordered)
            break;
        else
            be_idle(pool);
        if (pool->news) {
            pthread_mutex_unlock(&pool->lock);
            wi_pool_tell(pool);
            pthread_mutex_lock(&pool->lock);
        }
    }
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}
