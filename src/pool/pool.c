/* A pool: made, entered by calls, ended. */
#include "pool/pool.h"
#include "base/system.h"
#include "runtime/runtime.h"

#include <weir/pool.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>

/* Calls ------------------------------------------------------------------------------------------------------------ */

weir_status wi_pool_enter(weir_pool *pool, const char *call)
{
    WI_ENTER();
    if (!pool)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    pthread_mutex_lock(&pool->lock);
    if (!pool->ending) {
        pool->inside++;
        wi_pool_tick(pool);
        return WEIR_OK;
    }
    pthread_mutex_unlock(&pool->lock);
    return weir_fail(WEIR_ERR_CANCELLED, "%s: the pool is being ended", call);
}

void wi_pool_leave(weir_pool *pool)
{
    pthread_mutex_unlock(&pool->lock);
    if (pool->event)
        wi_pool_tell(pool);
    pthread_mutex_lock(&pool->lock);
    if (--pool->inside == 0 && pool->ending)
        pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

bool wi_pool_wait(weir_pool *pool, pthread_cond_t *condition, uint64_t until)
{
    const uint64_t second = 1000000000, longest = 3600 * second;
    uint64_t now = wi_now(), left = until > now ? wi_min(until - now, longest) : 0;
    struct timespec at;
    if (left == 0)
        return false;
    clock_gettime(CLOCK_MONOTONIC, &at); /* which wi_now need not be */
    left += (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(left / second);
    at.tv_nsec = (long)(left % second);
    return pthread_cond_timedwait(condition, &pool->lock, &at) != ETIMEDOUT || wi_now() < until;
}

uint64_t wi_pool_until(const weir_pool *pool, uint64_t wait)
{
    uint64_t until;
    return __builtin_add_overflow(wi_now(), wait ? wait : pool->limits.longest, &until) ? WP_FOREVER : until;
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static weir_status open_devices(weir_pool *pool, const weir_pool_options *o)
{
    static const weir_pool_device host = {"host", NULL};
    const weir_pool_device *given = o->device_count ? o->devices : &host;
    pool->device_count = o->device_count ? (uint32_t)o->device_count : 1;
    pool->devices = calloc(pool->device_count, sizeof *pool->devices);
    if (!pool->devices)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a pool");
    for (uint32_t i = 0; i < pool->device_count; i++) {
        wi_pool_device *device = &pool->devices[i];
        device->runtime = given[i].runtime;
        weir_status status = device->runtime
                                 ? WEIR_OK
                                 : weir_runtime_get(given[i].device ? given[i].device : "host", NULL, &device->runtime);
        if (status != WEIR_OK)
            return status;
        snprintf(device->name, sizeof device->name, "%s", wi_runtime_device(device->runtime));
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(pool->devices[k].name, device->name) == 0)
                return weir_fail(WEIR_ERR_INVALID, "weir_pool_create: %s is given twice", device->name);
    }
    return WEIR_OK;
}

static uint64_t pool_or_default(uint64_t given, uint64_t usual)
{
    return given == WEIR_POOL_NONE ? 0 : given ? given : usual;
}

static void read_limits(weir_pool *pool, const weir_pool_options *o)
{
    const uint64_t second = 1000000000;
    pool->limits = (wp_limits){.queue = (uint32_t)wi_min(pool_or_default(o->queue, 512), UINT32_MAX),
                               .queue_bytes = o->queue_bytes ? o->queue_bytes : WP_FOREVER,
                               .longest = o->longest_wait ? o->longest_wait : 60 * second,
                               .retry = pool_or_default(o->retry, 5 * second),
                               .host = pool_or_default(o->host_bytes, WP_FOREVER),
                               .passing = pool_or_default(o->passing, second)};
    pool->event = o->event;
    pool->user = o->user;
}

static weir_status pool_start(weir_pool *pool, uint32_t threads)
{
    sigset_t all, before;
    pool->threads = calloc(threads, sizeof *pool->threads);
    if (!pool->threads)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the threads of a pool");
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = 0;
    while (failure == 0 && pool->thread_count < threads) {
        failure = pthread_create(&pool->threads[pool->thread_count], NULL, wi_pool_work, pool);
        pool->thread_count += failure == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool->thread_count > 0 ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no thread for a pool: %s", strerror(failure));
}

static weir_status pool_begin(weir_pool *pool, const weir_pool_options *o)
{
    enum { THREADS = 4, MOST_THREADS = 64 };
    weir_status status = open_devices(pool, o);
    if (status != WEIR_OK)
        return status;
    read_limits(pool, o);
    wp_event event = {.kind = WP_EVENT_BEGIN, .limits = pool->limits, .devices = pool->device_count};
    wp_apply(&pool->admission, &event);
    if (!pool->admission)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a pool");
    wi_pool_note_line(pool, &event);
    for (uint32_t i = 0; i < pool->device_count && status == WEIR_OK; i++) {
        wi_pool_look(pool, i, true);
        status = wi_pool_listen(pool, i);
    }
    return status != WEIR_OK ? status
                             : pool_start(pool, (uint32_t)wi_min(o->threads ? o->threads : THREADS, MOST_THREADS));
}

static void free_pool(weir_pool *pool)
{
    wi_pool_listen_no_more(pool);
    for (wi_pool_news *next; pool->news; pool->news = next) {
        next = pool->news->next;
        free(pool->news);
    }
    if (pool->admission)
        wp_admission_destroy(pool->admission);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool->threads);
    free(pool->by_id);
    free(pool->devices);
    free(pool);
}

weir_status weir_pool_create(const weir_pool_options *options, weir_pool **out)
{
    weir_pool_options o = {0};
    pthread_condattr_t monotonic;
    WI_ENTER();
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_pool_create: NULL");
    *out = NULL;
    weir_status status = WI_COPY_OPTIONS_IN(weir_pool_options, &o, options, "weir_pool_create");
    if (status != WEIR_OK)
        return status;
    if (o.device_count > 0 && !o.devices)
        return weir_fail(WEIR_ERR_INVALID, "weir_pool_create: devices are NULL");
    weir_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a pool");
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, &monotonic);
    pthread_cond_init(&pool->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pool->news_end = &pool->news;
    status = pool_begin(pool, &o);
    if (status != WEIR_OK)
        free_pool(pool);
    else {
        wi_pool_tell(pool);
        *out = pool;
    }
    return status;
}

/* Ending ----------------------------------------------------------------------------------------------------------- */

/* With the lock: those that wait are told, and calls leave. */
static void pool_empty(weir_pool *pool)
{
    pool->ending = true;
    while (pool->waiters) {
        wp_event event = {.kind = WP_EVENT_CANCEL, .ticket = pool->waiters->ticket, .stops = true};
        wi_pool_decide(pool, &event);
    }
    pthread_cond_broadcast(&pool->changed);
    while (pool->inside > 0)
        pthread_cond_wait(&pool->changed, &pool->lock);
}

static void retire_all(weir_pool *pool)
{
    wi_pool_entry *entry = pool->entries;
    while (entry) {
        if (entry->retired)
            entry = entry->next;
        else {
            wi_pool_retire(entry, NULL);
            entry = pool->entries; /* it may be gone */
        }
    }
}

/* With the lock. Retires all models and waits until they are unloaded. WEIR_ERR_ENGINE: an engine has kept memory of
 * a model that was unloaded in this call. WEIR_ERR_BUSY: a model is not unloaded yet. */
static weir_status pool_unload_all(weir_pool *pool)
{
    char kept[256] = "";
    retire_all(pool);
    uint64_t until = wi_pool_until(pool, 0);
    while (pool->entries) {
        wi_pool_entry *first = pool->entries;
        first->users++;
        while (!first->gone && wi_pool_wait(pool, &pool->changed, until))
            ;
        if (!first->gone) {
            wi_pool_drop(first);
            return weir_fail(WEIR_ERR_BUSY, "%s is not unloaded yet: a load lasts, or results of its are not released",
                             first->name);
        }
        if (first->receipt.kept > 0 && !kept[0])
            snprintf(kept, sizeof kept, "the engine of %s has kept %llu bytes of %s", first->name,
                     (unsigned long long)first->receipt.kept, first->receipt.holder[0].client);
        wi_pool_drop(first);
    }
    return kept[0] ? weir_fail(WEIR_ERR_ENGINE, "the pool is gone, but %s", kept) : WEIR_OK;
}

weir_status weir_pool_destroy(weir_pool *pool)
{
    WI_ENTER();
    if (!pool)
        return weir_fail(WEIR_ERR_INVALID, "weir_pool_destroy: NULL");
    pthread_mutex_lock(&pool->lock);
    size_t leases = pool->leases;
    if (leases > 0) {
        pthread_mutex_unlock(&pool->lock);
        return weir_fail(WEIR_ERR_BUSY, "the pool has %zu leases that are not released", leases);
    }
    pool_empty(pool);
    weir_status status = pool_unload_all(pool);
    if (status == WEIR_ERR_BUSY) {
        pthread_mutex_unlock(&pool->lock);
        return status;
    }
    pool->closing = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL);
    wi_pool_tell(pool);
    free_pool(pool);
    return status;
}
