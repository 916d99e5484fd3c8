/* Requests: asked for, waited for, granted as leases, ended. */
#include "pool/pool.h"
#include "base/system.h"

#include <weir/model.h>
#include <weir/pool.h>

#include <stdio.h>

struct weir_lease {
    wi_pool_entry *entry; /* a user of it */
    wp_ticket ticket;
    uint64_t bytes;
    bool answered; /* `outputs` are weir_pool_infer's */
    weir_outputs outputs;
};

/* A call of weir_pool_acquire. */
typedef struct asking {
    weir_pool *pool;
    weir_pool_request request;
    uint64_t began, deadline;
    bool waits;              /* it may */
    bool taken;              /* granted, but clients outside of the pool had taken the bytes */
    bool asked;              /* `answer` has how it began */
    weir_pool_answer answer; /* for the caller */
    wi_pool_waiter waiter;
} asking;

/* Refusals --------------------------------------------------------------------------------------------------------- */

static weir_status refuse_size(const asking *a, const char *name)
{
    const weir_pool_answer *answer = &a->answer;
    char need[24], limit[24], fits[24];
    return weir_fail(
        WEIR_ERR_OUT_OF_MEMORY,
        "%s can never have its request: that takes %s (%llu bytes) with the model, and the pool may have %s "
        "(%llu bytes) there. The largest that fits is %s; ask for less, add a variant that gives something "
        "up, or raise the budget",
        name, weir_size_format(answer->need, need, sizeof need), (unsigned long long)answer->need,
        weir_size_format(answer->limit, limit, sizeof limit), (unsigned long long)answer->limit,
        weir_size_format(answer->fits, fits, sizeof fits));
}

static weir_status pool_requests_refuse(const asking *a, const wi_pool_entry *entry)
{
    const weir_pool_answer *answer = &a->answer;
    const weir_pool *pool = a->pool;
    char need[24], limit[24];
    switch (answer->cause) {
    case WEIR_POOL_NEVER_FITS:
        return refuse_size(a, entry->name);
    case WEIR_POOL_QUEUE_FULL:
        return weir_fail(WEIR_ERR_BUSY, "the queue of the pool is full: %u of %u requests wait", pool->waiting,
                         pool->limits.queue);
    case WEIR_POOL_TOO_LATE:
        return weir_fail(WEIR_ERR_BUSY,
                         "%s was not to be had within %.3f s; the request was number %u of those that wait",
                         entry->name, (double)answer->waited / 1e9, answer->position);
    case WEIR_POOL_LOAD_FAILED:
        return weir_fail(entry->failed != WEIR_OK ? entry->failed : WEIR_ERR_ENGINE, "%s could not be loaded: %s",
                         entry->name, entry->why);
    case WEIR_POOL_CANCELLED:
        return weir_fail(WEIR_ERR_CANCELLED, "the request for %s was cancelled while it waited", entry->name);
    case WEIR_POOL_REMOVED:
        return weir_fail(WEIR_ERR_NOT_FOUND, "%s was removed from the pool", entry->name);
    case WEIR_POOL_NO_ROOM:
        return weir_fail(WEIR_ERR_BUSY,
                         "%s takes %s (%llu bytes) more, %s are free, and what it may give up has no wait", entry->name,
                         weir_size_format(answer->need, need, sizeof need), (unsigned long long)answer->need,
                         weir_size_format(answer->limit, limit, sizeof limit));
    default:
        if (a->taken)
            return weir_fail(
                WEIR_ERR_OUT_OF_MEMORY,
                "the %s for the request of %s were taken by clients outside of the pool, which may have %s",
                weir_size_format(answer->need, need, sizeof need), entry->name,
                weir_size_format(answer->limit, limit, sizeof limit));
        return weir_fail(WEIR_ERR_BUSY, "the request for %s would have to wait (%s)", entry->name,
                         weir_pool_cause_name(answer->cause));
    }
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static void pool_requests_cancel(weir_pool *pool, const wi_pool_waiter *waiter, bool stops)
{
    wp_event event = {.kind = WP_EVENT_CANCEL, .ticket = waiter->ticket, .stops = stops};
    wi_pool_decide(pool, &event);
}

/* Until it is over, by its deadline at the latest: the pool's threads may all be busy. */
static void wait_for_it(asking *a)
{
    weir_pool *pool = a->pool;
    wi_pool_waiter *waiter = &a->waiter;
    wp_cause first = waiter->answer.cause;
    if (!waiter->over && !a->waits) {
        pool_requests_cancel(pool, waiter, false);
        waiter->answer.cause = first;
    }
    while (!waiter->over && !pool->ending)
        if (!wi_pool_wait(pool, &waiter->ended, a->deadline))
            break;
    if (!waiter->over)
        wi_pool_tick(pool);
    if (!waiter->over) {
        pool_requests_cancel(pool, waiter, false);
        if (waiter->answer.cause == WP_CANCELLED && !pool->ending)
            waiter->answer.cause = WP_TOO_LATE;
    }
    wi_assert(waiter->over);
}

static void note_answer(asking *a, const wp_answer *answer)
{
    weir_pool_answer *out = &a->answer;
    uint64_t now = wi_now();
    if (!a->asked) {
        out->position = answer->position;
        out->expected = answer->expected;
        a->asked = true;
    }
    out->cause = (weir_pool_cause)answer->cause;
    out->waited = now - a->began;
    out->need = answer->need;
    out->limit = answer->limit;
    out->fits = answer->fits;
    out->context = answer->context;
    out->retry_after = answer->until > now && answer->until != WP_FOREVER ? answer->until - now : 0;
}

/* The model's own maximum refuses what no room can help. */
static bool exceeds_maximum(asking *a, const wi_pool_entry *entry)
{
    uint64_t maximum = entry->source->maximum, has = entry->spec.variants[entry->variant].resident;
    if (maximum == 0 || (has <= maximum && a->request.bytes <= maximum - has))
        return false;
    const wp_answer answer = {.cause = WP_NEVER_FITS,
                              .need = __builtin_add_overflow(has, a->request.bytes, &has) ? UINT64_MAX : has,
                              .limit = maximum,
                              .fits = maximum - wi_min(maximum, entry->spec.variants[entry->variant].resident)};
    note_answer(a, &answer);
    return true;
}

/* Asks the machine once, and waits for its answer. With the lock. The waiter is a user of the entry. */
static void pool_requests_ask(asking *a, wi_pool_entry *entry)
{
    weir_pool *pool = a->pool;
    wi_pool_waiter *waiter = &a->waiter;
    *waiter = (wi_pool_waiter){.entry = entry, .id = a->request.id, .since = a->began, .bytes = a->request.bytes};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&waiter->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    entry->users++;
    if (exceeds_maximum(a, entry)) {
        pthread_cond_destroy(&waiter->ended);
        return;
    }
    wp_event event = {.kind = WP_EVENT_ASK, .request = {entry->id, a->request.bytes, a->deadline, a->request.priority}};
    pool->asking = waiter;
    wi_pool_decide(pool, &event);
    note_answer(a, &event.answer);
    if (!waiter->over)
        wait_for_it(a);
    note_answer(a, &waiter->answer); /* which may have come at once */
    pthread_cond_destroy(&waiter->ended);
}

/* ---- granted ----------------------------------------------------------------------------------------------------- */

/* A grant is over. With the lock. */
static void end_grant(wi_pool_entry *entry, wp_ticket ticket)
{
    wp_event event = {.kind = WP_EVENT_DONE, .ticket = ticket};
    wi_assert(entry->leases > 0 && entry->pool->leases > 0);
    entry->leases--;
    entry->pool->leases--;
    wi_pool_decide(entry->pool, &event);
}

/* The bytes become its client's guarantee, which clients outside of the pool may stand in the way of. With the lock, which
 * it lets go of meanwhile. */
static bool secure(asking *a)
{
    wi_pool_entry *entry = a->waiter.entry;
    if (a->request.bytes == 0)
        return true;
    pthread_mutex_unlock(&a->pool->lock);
    weir_status status = wi_pool_guarantee(entry);
    pthread_mutex_lock(&a->pool->lock);
    if (status == WEIR_OK)
        return true;
    entry->promised -= a->request.bytes;
    end_grant(entry, a->waiter.ticket);
    a->taken = true;
    a->answer.cause = WEIR_POOL_WAITS_ROOM;
    a->answer.need = a->request.bytes;
    a->answer.limit = a->pool->devices[entry->device].ceiling;
    return false;
}

static bool pool_requests_look_at(weir_pool *pool, uint32_t device, bool at_once)
{
    uint64_t before = pool->devices[device].ceiling;
    pthread_mutex_unlock(&pool->lock);
    wi_pool_look(pool, device, at_once);
    pthread_mutex_lock(&pool->lock);
    return pool->devices[device].ceiling != before;
}

/* At the devices that it may be on. The entry may have gone when this returns. */
static bool pool_requests_look(weir_pool *pool, const wi_pool_entry *entry, bool at_once)
{
    wp_spec spec = entry->spec;
    bool news = pool_requests_look_at(pool, spec.device, at_once);
    for (uint32_t v = 1; v < spec.variant_count; v++)
        if (spec.variants[v].on)
            news |= pool_requests_look_at(pool, spec.variants[v].on - 1, at_once);
    return news;
}

/* Whether it is worth asking again: the model has another version by now, or there is another ceiling. */
static bool asks_again(asking *a, int times)
{
    enum { TIMES = 8 };
    wi_pool_entry *entry = a->waiter.entry;
    if (times >= TIMES || a->pool->ending)
        return false;
    switch (a->answer.cause) {
    case WEIR_POOL_REMOVED: {
        const wi_pool_entry *other = wi_pool_find(a->pool, entry->name);
        return other && other != entry;
    }
    case WEIR_POOL_NEVER_FITS:
    case WEIR_POOL_WAITS_ROOM:
        return pool_requests_look(a->pool, entry, true) && a->waits && wi_now() < a->deadline;
    default:
        return false;
    }
}

/* With the lock. WEIR_OK: granted, and a user of waiter.entry. */
static weir_status pool_requests_acquire(asking *a)
{
    weir_pool *pool = a->pool;
    for (int times = 0;; times++) {
        wi_pool_entry *entry = wi_pool_find(pool, a->request.name);
        if (entry && times == 0) {
            (void)pool_requests_look(pool, entry, false);
            entry = wi_pool_find(pool, a->request.name);
        }
        if (!entry)
            return wi_pool_none(pool, a->request.name);
        pool_requests_ask(a, entry);
        if (a->answer.cause == WEIR_POOL_GRANTED && secure(a))
            return WEIR_OK;
        bool again = asks_again(a, times);
        weir_status status = again ? WEIR_OK : pool_requests_refuse(a, entry);
        if (!again)
            wi_pool_note(pool, WEIR_POOL_EVENT_REFUSED, entry, a->request.bytes, weir_detail());
        wi_pool_drop(entry);
        if (!again)
            return status;
    }
}

static weir_status pool_requests_begin(asking *a, weir_pool *pool, const weir_pool_request *request, const char *call)
{
    WI_ENTER();
    if (!pool)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", call);
    weir_status status = wi_copy_in(&a->request, sizeof a->request, request, request ? request->struct_size : 0, call,
                                    "weir_pool_request");
    if (status != WEIR_OK)
        return status;
    if (!a->request.name)
        return weir_fail(WEIR_ERR_INVALID, "%s: the request names no model", call);
    a->pool = pool;
    a->began = wi_now();
    a->waits = a->request.wait != WEIR_POOL_NONE;
    a->deadline = wi_pool_until(pool, a->waits ? wi_min(a->request.wait, pool->limits.longest) : 0);
    return WEIR_OK;
}

weir_status weir_pool_acquire(weir_pool *pool, const weir_pool_request *request, weir_pool_answer *answer,
                              weir_lease **out)
{
    asking a = {.answer.struct_size = sizeof a.answer};
    weir_status status = pool_requests_begin(&a, pool, request, "weir_pool_acquire");
    if (status != WEIR_OK)
        return status;
    if (!out || (answer && answer->struct_size < 2 * sizeof(size_t)))
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_pool_acquire: no place for the lease, or member struct_size of the answer is not set");
    *out = NULL;
    weir_lease *lease = calloc(1, sizeof *lease);
    if (!lease)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a lease");
    status = wi_pool_enter(pool, "weir_pool_acquire");
    if (status == WEIR_OK) {
        status = pool_requests_acquire(&a);
        wi_pool_leave(pool);
    }
    if (answer)
        (void)wi_copy_out(answer, answer->struct_size, &a.answer, sizeof a.answer);
    if (status != WEIR_OK) {
        free(lease);
        return status;
    }
    *lease = (weir_lease){.entry = a.waiter.entry, .ticket = a.waiter.answer.ticket, .bytes = a.request.bytes};
    *out = lease;
    return WEIR_OK;
}

weir_model *weir_lease_model(const weir_lease *lease)
{
    return lease ? lease->entry->model : NULL;
}

const char *weir_lease_version(const weir_lease *lease)
{
    return lease ? lease->entry->version : "";
}

/* ---- ended ------------------------------------------------------------------------------------------------------- */

/* What the model has while this is its only lease; 0: others run in it. */
static uint64_t measure_alone(wi_pool_entry *entry, uint64_t *grants)
{
    weir_client_stats stats;
    pthread_mutex_lock(&entry->pool->lock);
    bool alone = entry->leases == 1;
    *grants = entry->grants;
    pthread_mutex_unlock(&entry->pool->lock);
    return alone ? wi_pool_measure(entry->model, &stats) : 0;
}

/* Sets the guarantee before the machine is told, so that the machine gives only free bytes away. */
static void pool_requests_end_lease(const weir_lease *lease, uint64_t measured, uint64_t grants)
{
    wi_pool_entry *entry = lease->entry;
    weir_pool *pool = entry->pool;
    wp_event event = {.kind = WP_EVENT_MEASURED, .model = entry->id};
    pthread_mutex_lock(&pool->lock);
    uint64_t before = entry->resident;
    entry->promised -= lease->bytes;
    if (measured > 0 && entry->grants == grants)
        entry->resident = wi_max(measured, entry->source->guaranteed);
    event.bytes = entry->resident;
    pthread_mutex_unlock(&pool->lock);
    wi_saved_detail caller;
    wi_detail_save(&caller);
    (void)wi_pool_guarantee(entry); /* more than there is room for: it stays as it is, and the bytes are the client's */
    wi_detail_restore(&caller);
    pthread_mutex_lock(&pool->lock);
    if (event.bytes != before && entry->resident == event.bytes)
        wi_pool_decide(pool, &event);
    end_grant(entry, lease->ticket);
}

static bool is_well(weir_model *model)
{
    weir_status status = weir_model_health(model);
    return status == WEIR_OK || status == WEIR_ERR_UNSUPPORTED;
}

/* With the lock: another entry of the same source gets the requests. */
static void pool_requests_take_out(wi_pool_entry *entry, const char *why)
{
    if (entry->retired)
        return;
    entry->unhealthy = true;
    snprintf(entry->why, sizeof entry->why, "%s", why);
    wi_pool_note(entry->pool, WEIR_POOL_EVENT_UNHEALTHY, entry, 0, entry->why);
    (void)wi_pool_renew(entry); /* without host memory the next lease tries again */
}

void weir_lease_release(weir_lease *lease)
{
    if (!lease || atomic_load_explicit(&wi_forked, memory_order_relaxed))
        return;
    wi_pool_entry *entry = lease->entry;
    weir_pool *pool = entry->pool;
    uint64_t grants;
    char why[512] = "";
    wi_saved_detail caller;
    if (lease->answered)
        weir_model_release_outputs(entry->model, &lease->outputs);
    wi_detail_save(&caller);
    bool well = is_well(entry->model);
    if (!well)
        wi_shorten(weir_detail(), why, sizeof why);
    wi_detail_restore(&caller);
    pthread_mutex_lock(&pool->lock);
    pool->inside++;
    if (!well)
        pool_requests_take_out(entry, why);
    pthread_mutex_unlock(&pool->lock);
    uint64_t measured = measure_alone(entry, &grants);
    pool_requests_end_lease(lease, measured, grants);
    wi_pool_drop(entry);
    free(lease);
    wi_pool_leave(pool);
}

weir_status weir_pool_infer(weir_pool *pool, const weir_pool_request *request, const weir_inference *inference,
                            weir_outputs *out, weir_pool_answer *answer, weir_lease **lease)
{
    WI_ENTER();
    if (!inference || !out || !lease)
        return weir_fail(WEIR_ERR_INVALID, "weir_pool_infer: NULL");
    weir_status status = weir_pool_acquire(pool, request, answer, lease);
    if (status != WEIR_OK)
        return status;
    status = weir_model_infer(weir_lease_model(*lease), inference, out);
    if (status == WEIR_OK) {
        (*lease)->answered = true;
        (*lease)->outputs = *out;
        return WEIR_OK;
    }
    weir_lease_release(*lease);
    *lease = NULL;
    return status;
}

/* ---- others' ----------------------------------------------------------------------------------------------------- */

static wi_pool_waiter *find_waiter(const weir_pool *pool, uint64_t id)
{
    wi_pool_waiter *waiter = pool->waiters;
    while (waiter && waiter->id != id)
        waiter = waiter->next;
    return waiter;
}

weir_status weir_pool_cancel(weir_pool *pool, uint64_t id)
{
    size_t found = 0;
    weir_status status = wi_pool_enter(pool, "weir_pool_cancel");
    if (status != WEIR_OK)
        return status;
    for (const wi_pool_waiter *waiter = id ? find_waiter(pool, id) : NULL; waiter; waiter = find_waiter(pool, id)) {
        pool_requests_cancel(pool, waiter, true); /* also unlinks the waiter */
        found++;
    }
    wi_pool_leave(pool);
    return found > 0 ? WEIR_OK
                     : weir_fail(WEIR_ERR_NOT_FOUND, "no request with the id %llu waits", (unsigned long long)id);
}

weir_status weir_pool_waiting(weir_pool *pool, uint64_t id, weir_pool_answer *out)
{
    WI_ENTER();
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_pool_waiting: NULL");
    weir_status status = wi_pool_enter(pool, "weir_pool_waiting");
    if (status != WEIR_OK)
        return status;
    const wi_pool_waiter *waiter = id ? find_waiter(pool, id) : NULL;
    weir_pool_answer now = {.struct_size = sizeof now};
    if (waiter) {
        wp_answer answer = wp_look(pool->admission, wi_now(), waiter->ticket);
        now.cause = (weir_pool_cause)answer.cause;
        now.position = answer.position;
        now.expected = answer.expected;
        now.waited = wi_now() - waiter->since;
    }
    wi_pool_leave(pool);
    if (!waiter)
        return weir_fail(WEIR_ERR_NOT_FOUND, "no request with the id %llu waits", (unsigned long long)id);
    return wi_copy_out(out, out->struct_size, &now, sizeof now)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_pool_waiting: member struct_size is not set");
}
