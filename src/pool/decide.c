/* Drives the state machine of a pool: reports events to the machine, hands out its orders, and tells the pool's event
 * function. */
#include "pool/pool.h"
#include "base/texts.h"
#include "base/system.h"
#include "runtime/runtime.h"
#include "runtime/trace.h"

#include <weir/pool.h>

#include <stdio.h>

/* News ------------------------------------------------------------------------------------------------------------- */

void wi_pool_note(weir_pool *pool, weir_pool_event_kind kind, const wi_pool_entry *entry, uint64_t bytes,
                  const char *text)
{
    weir_runtime *runtime = entry ? pool->devices[entry->device].runtime : NULL;
    if (!pool->event && !(runtime && wi_traced(runtime)))
        return;
    size_t length = text ? strlen(text) : 0;
    wi_pool_news *news = malloc(sizeof *news + length + 1);
    if (!news) {
        pool->news_lost = true;
        return;
    }
    *news = (wi_pool_news){.kind = kind,
                           .time = wi_now(),
                           .bytes = bytes,
                           .runtime = runtime,
                           .ceiling = entry ? pool->devices[entry->device].ceiling : 0,
                           .evicted = entry && entry->order_evicts,
                           .device = entry ? pool->devices[entry->device].name : ""};
    if (entry) {
        memcpy(news->name, entry->name, sizeof news->name);
        memcpy(news->version, entry->version, sizeof news->version);
    }
    memcpy(news->text, text ? text : "", length + 1);
    *pool->news_end = news;
    pool->news_end = &news->next;
}

/* As an event of the runtime's trace. Kinds that are about nothing of the device's are none. */
static void trace(const wi_pool_news *news)
{
    static const struct {
        bool traced;
        weir_pool_action action;
    } actions[WEIR_POOL_EVENT_COUNT] = {[WEIR_POOL_EVENT_LOADING] = {true, WEIR_POOL_PREDICTED},
                                        [WEIR_POOL_EVENT_PROMISED] = {true, WEIR_POOL_PROMISED},
                                        [WEIR_POOL_EVENT_LOADED] = {true, WEIR_POOL_COMMITTED},
                                        [WEIR_POOL_EVENT_SUSPENDED] = {true, WEIR_POOL_WENT_SUSPENDED},
                                        [WEIR_POOL_EVENT_RESUMED] = {true, WEIR_POOL_CAME_BACK},
                                        [WEIR_POOL_EVENT_UNLOADED] = {true, WEIR_POOL_WENT},
                                        [WEIR_POOL_EVENT_REFUSED] = {true, WEIR_POOL_REFUSED},
                                        [WEIR_POOL_EVENT_FAILED] = {true, WEIR_POOL_LOAD_GAVE_UP},
                                        [WEIR_POOL_EVENT_STOPPED] = {true, WEIR_POOL_LOAD_GAVE_UP}};
    bool evicted = news->kind == WEIR_POOL_EVENT_UNLOADED && news->evicted;
    if (!actions[news->kind].traced || !news->runtime)
        return;
    (void)wi_recorded(news->runtime, WEIR_OK, .action = WEIR_ACTION_POOL, .bytes = news->bytes,
                      .generation = news->ceiling, .tag = wi_intern(news->name, sizeof news->name),
                      .object = evicted ? WEIR_POOL_EVICTED : actions[news->kind].action);
}

static void decide_tell(const weir_pool *pool, const wi_pool_news *news)
{
    trace(news);
    if (!pool->event)
        return;
    bool decided = news->kind == WEIR_POOL_EVENT_DECIDED;
    weir_pool_event event = {.struct_size = sizeof event,
                             .kind = news->kind,
                             .time = news->time,
                             .name = news->name,
                             .version = news->version,
                             .device = news->device,
                             .bytes = news->bytes,
                             .detail = decided ? "" : news->text,
                             .line = decided ? news->text : ""};
    pool->event(&event, pool->user);
}

void wi_pool_tell(weir_pool *pool)
{
    wi_saved_detail caller;
    pthread_mutex_lock(&pool->lock);
    if (pool->telling || !pool->news) {
        pthread_mutex_unlock(&pool->lock);
        return;
    }
    pool->telling = true;
    wi_detail_save(&caller);
    while (pool->news) {
        wi_pool_news *first = pool->news;
        bool lost = pool->news_lost;
        pool->news = NULL;
        pool->news_end = &pool->news;
        pool->news_lost = false;
        pthread_mutex_unlock(&pool->lock);
        for (wi_pool_news *next; first; first = next) {
            next = first->next;
            decide_tell(pool, first);
            free(first);
        }
        if (lost)
            weir_log(WEIR_LOG_WARNING, "events of a pool were lost: no host memory");
        pthread_mutex_lock(&pool->lock);
    }
    pool->telling = false;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    wi_detail_restore(&caller);
}

void wi_pool_note_line(weir_pool *pool, const wp_event *event)
{
    char line[WP_LINE];
    if (!pool->event)
        return;
    (void)wp_event_write(event, line, sizeof line);
    wi_pool_note(pool, WEIR_POOL_EVENT_DECIDED, NULL, 0, line);
}

/* Orders ----------------------------------------------------------------------------------------------------------- */

static void decide_order(weir_pool *pool, const wp_action *action)
{
    wi_pool_entry *entry = pool->by_id[action->model];
    wi_pool_entry **link = &pool->first_ordered;
    wi_assert(!entry->ordered && !entry->under_way);
    entry->ordered = true;
    entry->order = action->kind;
    entry->order_variant = action->variant;
    entry->order_bytes = action->bytes;
    entry->order_evicts = action->kind == WP_UNLOAD && action->why != 0;
    entry->not_before = 0;
    entry->next_ordered = NULL;
    if (action->kind == WP_LOAD) {
        entry->here = true;
        atomic_store(&entry->stop, false);
        entry->device = action->device;
    }
    while (*link)
        link = &(*link)->next_ordered;
    *link = entry;
    pthread_cond_broadcast(&pool->work);
}

static void decide_grant(weir_pool *pool, const wi_pool_waiter *waiter)
{
    waiter->entry->leases++;
    waiter->entry->grants++;
    waiter->entry->promised += waiter->bytes;
    pool->leases++;
    if (waiter->bytes > 0)
        wi_pool_note(pool, WEIR_POOL_EVENT_PROMISED, waiter->entry, waiter->bytes, NULL);
}

static void end_wait(weir_pool *pool, const wp_action *action)
{
    wi_pool_waiter **link = &pool->waiters;
    while (*link && (*link)->ticket != action->answer.ticket)
        link = &(*link)->next;
    wi_pool_waiter *waiter = *link;
    wi_assert(waiter != NULL);
    if (!waiter)
        return;
    *link = waiter->next;
    pool->waiting--;
    waiter->over = true;
    waiter->answer = action->answer;
    if (action->kind == WP_GRANT)
        decide_grant(pool, waiter);
    pthread_cond_signal(&waiter->ended);
}

/* In the list before an action can be for it. */
static void begin_wait(weir_pool *pool, const wp_event *event)
{
    wi_pool_waiter *waiter = pool->asking;
    pool->asking = NULL;
    waiter->ticket = event->answer.ticket;
    waiter->answer = event->answer;
    waiter->over = event->answer.cause < WP_WAITS_BUSY || event->answer.cause > WP_WAITS_OTHERS;
    if (event->answer.cause == WP_GRANTED)
        decide_grant(pool, waiter);
    if (waiter->over)
        return;
    waiter->next = pool->waiters;
    pool->waiters = waiter;
    pool->waiting++;
}

void wi_pool_decide(weir_pool *pool, wp_event *event)
{
    wp_event answer;
    wp_action action;
    event->now = wi_now();
    wp_apply(&pool->admission, event);
    wi_pool_note_line(pool, event);
    if (event->kind == WP_EVENT_ASK)
        begin_wait(pool, event);
    while (wp_take(pool->admission, &answer, &action)) {
        wi_pool_note_line(pool, &answer);
        if (action.kind == WP_GRANT || action.kind == WP_REFUSE)
            end_wait(pool, &action);
        else if (action.kind == WP_STOP)
            atomic_store(&pool->by_id[action.model]->stop, true);
        else
            decide_order(pool, &action);
    }
    wi_assert(wp_invariants(pool->admission));
    pthread_cond_broadcast(&pool->changed);
    if (pool->watched && wi_pool_next_time(pool) < pool->watch_until)
        pthread_cond_broadcast(&pool->work);
}

void wi_pool_tick(weir_pool *pool)
{
    if (wp_wake(pool->admission) > wi_now())
        return;
    wp_event event = {.kind = WP_EVENT_TICK};
    wi_pool_decide(pool, &event);
}

wp_view wi_pool_see(const wi_pool_entry *entry)
{
    const wp_view none = {.state = WP_UNLOADED};
    return entry->gone ? none : wp_see(entry->pool->admission, entry->id);
}
